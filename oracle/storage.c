/* SPDX-License-Identifier: Apache-2.0 */
/* Stores rows in a format, in double: transforms, encodes, decodes, undoes the transform. */
#include "oracle/storage.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/products.h"
#include "workloads/array.h"

/* A plug-in's own encoding. */
static int opaque_init(kvb_storage *store, const kvb_format *f, uint32_t dim, char *why, size_t why_bytes)
{
    *store = (kvb_storage){.format = f, .dim = dim, .head_scale = 1};
    bool plain = !f->transform && !f->head_scale && !f->residual_cells;
    if (f->reference && plain)
        return 0;
    snprintf(why, why_bytes,
             plain ? "format '%s' brings no reference: nothing can judge what is computed over it"
                   : "format '%s' is opaque: a transform, head scales or residual cells belong inside it",
             f->name);
    return -ENOTSUP;
}

int kvb_storage_init(kvb_storage *store, const kvb_format *format, uint32_t dim, const float *amax, uint32_t n_kv_heads,
                     uint32_t h, char *why, size_t why_bytes)
{
    if (format->elem == KVB_OPAQUE)
        return opaque_init(store, format, dim, why, why_bytes);
    const kvb_codec *codec = kvb_codec_find(format->name);
    *store = (kvb_storage){.codec = codec, .format = format, .dim = dim};
    uint32_t group = codec && codec->group != KVB_GROUP_ROW ? codec->group : 0;
    uint32_t block = kvb_transform_block(dim), least = format->elem == KVB_CODEBOOK ? 32 : 2;

    if (!codec) {
        const kvb_codec *alike = kvb_codec_alike(format);
        snprintf(why, why_bytes,
                 alike ? "no reference codec for format '%s': a format of such rows is judged if its name is '%s%s'"
                       : "no reference codec for format '%s'",
                 format->name, alike ? alike->name : "", format->transform == KVB_TRANSFORM_HADAMARD ? "+had" : "");
    } else if (codec->elem != format->elem || (format->residual_cells ? format->residual_cells : 1) != codec->block)
        snprintf(why, why_bytes, "format '%s' is not what the reference codec of that name stores", format->name);
    else if (dim == 0 || (group && dim % group))
        snprintf(why, why_bytes, "%s: rows of %u are not a multiple of %u", format->name, dim, group);
    else if (format->transform && block < least)
        snprintf(why, why_bytes, "%s: rows of %u are not a multiple of %u", format->name, dim, least);
    else {
        store->head_scale = kvb_codec_head_scale(format, amax, n_kv_heads, h);
        return 0;
    }
    return -ENOTSUP;
}

/* Scratch: a block's rows as floats, then their parts. */
size_t kvb_storage_scratch(const kvb_storage *store)
{
    const kvb_codec *codec = store->codec;
    size_t bytes = store->dim * sizeof(float);
    if (!codec)
        return bytes;
    for (int part = 0; part < KVB_PARTS; part++)
        bytes += kvb_codec_bytes(codec, store->dim, part);
    return codec->block * bytes;
}

/* least, if x is NaN. */
static inline double smaller(double least, double x)
{
    return x < least ? x : least;
}

/* The sizes of one block of the transform: from the sizes of its stored elements, and from its row, turned back. */
static void block_sizes(uint32_t block, bool is_v, const double *row, double *size)
{
    double sum = 0, sum_row = 0, largest = 0;
    for (uint32_t c = 0; c < block; c++) {
        sum += size[c] * size[c];
        sum_row += row[c] * row[c];
        largest = kvb_larger(largest, row[c] * row[c]);
    }
    for (uint32_t c = 0; c < block; c++) {
        double groups = 0, stages = 0, square = sum / block;
        for (double n = 2; is_v && n <= block; n *= 2, stages++)
            groups += smaller(row[c] * row[c] + (n - 1) * largest, sum_row) / n;
        if (groups / stages > square) /* false if one is NaN */
            square = groups / stages;
        size[c] = sqrt(square);
    }
}

void kvb_storage_finish(const kvb_storage *store, double *row, double *size)
{
    if (store->format->transform == KVB_TRANSFORM_NONE)
        return;
    uint32_t block = kvb_transform_block(store->dim);
    kvb_codec_unrotate(store->format->transform, store->dim, row);
    for (uint32_t first = 0; first < store->dim; first += block)
        block_sizes(block, store->is_v, row + first, size + first);
}

void kvb_storage_turn(const kvb_storage *store, const float *row, float *turned)
{
    memcpy(turned, row, store->dim * sizeof *row);
    kvb_codec_rotate(store->format->transform, store->dim, turned);
    if (store->codec->block > 1)
        kvb_codec_round(KVB_F16, turned, store->dim);
}

static void centred_sizes(const kvb_storage *store, const double *row, double *size)
{
    const uint32_t group = store->codec->group == KVB_GROUP_ROW ? store->dim : store->codec->group;
    for (uint32_t first = 0; first < store->dim; first += group) {
        double least = INFINITY, most = -INFINITY;
        for (uint32_t c = first; c < first + group; c++) {
            least = smaller(least, row[c]);
            most = kvb_larger(most, row[c]);
        }
        for (uint32_t c = first; c < first + group; c++)
            size[c] = kvb_larger(fabs(row[c] - (least + most) / 2) + fabs(least + most) / 2, size[c]);
    }
}

void kvb_storage_code(const kvb_storage *store, uint32_t n, void *scratch, double *rows, double *sizes)
{
    const kvb_codec *codec = store->codec;
    const uint32_t dim = store->dim, block = codec->block;
    const float *turned = scratch;
    unsigned char *part[KVB_PARTS];
    part[KVB_CODES] = (unsigned char *)scratch + (size_t)block * dim * sizeof *turned;
    for (int p = KVB_SCALES; p < KVB_PARTS; p++)
        part[p] = part[p - 1] + block * kvb_codec_bytes(codec, dim, p - 1);
    kvb_codec_encode(codec, turned, n, dim, store->head_scale, part);
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *own[KVB_PARTS];
        for (int p = 0; p < KVB_PARTS; p++)
            own[p] = part[p] + (p != KVB_CODES && codec->shared ? 0 : i * kvb_codec_bytes(codec, dim, p));
        kvb_codec_decode(codec, own, dim, store->head_scale, rows + (size_t)i * dim, sizes + (size_t)i * dim);
        if (store->centred && kvb_storage_has_zeros(store->format) && !codec->shared)
            centred_sizes(store, rows + (size_t)i * dim, sizes + (size_t)i * dim);
    }
}

void kvb_storage_rows(const kvb_storage *store, const float *const *rows, uint32_t n, void *scratch, double *stored,
                      double *size)
{
    const kvb_codec *codec = store->codec;
    for (uint32_t i = 0; !codec && i < n; i++)
        store->format->reference(store->format, store->dim, rows[i], stored + (size_t)i * store->dim,
                                 size + (size_t)i * store->dim);
    if (!codec)
        return;
    uint32_t dim = store->dim, block = codec->block, residual = store->format->residual_blocks;
    uint32_t n_blocks = n / block + (n % block > 0);
    uint32_t closed = codec->elem == KVB_F32 || n_blocks < residual ? 0 : n_blocks - residual; /* f32: as they are */
    float *turned = scratch;
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t first = b * block, held = n - first < block ? n - first : block;
        double *to = stored + (size_t)first * dim, *to_size = size + (size_t)first * dim;
        for (uint32_t i = 0; i < held; i++)
            kvb_storage_turn(store, rows[first + i], turned + (size_t)i * dim);
        for (uint32_t c = 0; b >= closed && c < held * dim; c++)
            to_size[c] = fabs(to[c] = (double)turned[c]);
        if (b < closed)
            kvb_storage_code(store, held, scratch, to, to_size);
        for (uint32_t i = 0; i < held; i++)
            kvb_storage_finish(store, to + (size_t)i * dim, to_size + (size_t)i * dim);
    }
}

void kvb_storage_read(const kvb_storage *store, const double *decoded, float *row)
{
    for (uint32_t c = 0; c < store->dim; c++)
        row[c] = (float)decoded[c];
    kvb_codec_unrotate_f32(store->format->transform, store->dim, row);
}

/* Each operation is one on floats: a double holds the product of two floats exactly, and their sum rounds alike. */
void kvb_storage_shift(const kvb_rope *rope, int32_t delta, float *rows, uint32_t heads, uint32_t dim)
{
    for (uint32_t i = 0; 2 * i < rope->dims; i++) {
        double angle = delta * pow(rope->base, -2.0 * i / rope->dims);
        double c = (double)(float)cos(angle), s = (double)(float)sin(angle);
        float *x = &rows[rope->first + (rope->neighbours ? 2 * i : i)];
        float *y = &rows[rope->first + (rope->neighbours ? 2 * i + 1 : i + rope->dims / 2)];
        for (uint32_t h = 0; h < heads; h++, x += dim, y += dim) {
            float xc = (float)((double)*x * c), ys = (float)((double)*y * s);
            float xs = (float)((double)*x * s), yc = (float)((double)*y * c);
            *x = (float)((double)xc - (double)ys);
            *y = (float)((double)xs + (double)yc);
        }
    }
}

/* ---- stored rows ------------------------------------------------------------------------------------------------ */

/* Needs the format sizes? It does if an element's terms may be larger than the element, or if others are mixed in. */
static bool is_sized(const kvb_format *f)
{
    return kvb_storage_has_zeros(f) || f->transform || f->residual_cells > 0 || f->elem == KVB_OPAQUE;
}

#define PAGED_BYTES ((size_t)2 << 20) /* a huge page: a smaller mapping costs more page faults than it saves */

/* Aligned, so that no vector of a row of 8 n doubles lies in two cache lines. */
static double *doubles_take(const kvb_stored *side, size_t n)
{
    return side->paged ? kvb_pages_alloc(n * sizeof(double)) : aligned_alloc(64, (n * sizeof(double) + 63) / 64 * 64);
}

static void doubles_free(const kvb_stored *side, double *x)
{
    if (side->paged)
        kvb_pages_free(x);
    else
        free(x);
}

int kvb_stored_open(kvb_stored *side, const kvb_storage *store, size_t n)
{
    const size_t count = n * store->dim + 1;
    *side = (kvb_stored){
        .sums = malloc((n + 1) * sizeof(double)), .dim = store->dim, .paged = count >= PAGED_BYTES / sizeof(double)};
    side->rows = doubles_take(side, count);
    if (is_sized(store->format))
        side->sizes = doubles_take(side, count);
    return side->rows && side->sums && (side->sizes || !is_sized(store->format)) ? 0 : -ENOMEM;
}

void kvb_stored_close(kvb_stored *side)
{
    doubles_free(side, side->rows);
    doubles_free(side, side->sizes);
    free(side->sums);
    *side = (kvb_stored){0};
}

/* First a row's sizes that are not kept, then the store's own scratch. */
size_t kvb_stored_scratch(const kvb_storage *store)
{
    return store->dim + kvb_storage_scratch(store) / sizeof(double) + 1;
}

static void sum_put(const kvb_stored *side, size_t at)
{
    const double *sizes = side->sizes ? side->sizes : side->rows;
    double sum = 0;
    for (size_t c = at * side->dim; c < (at + 1) * side->dim; c++)
        sum += fabs(sizes[c]);
    side->sums[at] = sum;
}

void kvb_stored_put(const kvb_stored *side, const kvb_storage *store, size_t at, const float *const *rows, uint32_t n,
                    double *scratch)
{
    /* all at once where rows depend on each other */
    uint32_t step = kvb_storage_has_residual(store) ? n : 1;
    size_t first = at;
    for (uint32_t i = 0; i < n; i += step, at += step)
        kvb_storage_rows(store, rows + i, step, scratch + store->dim, side->rows + at * side->dim,
                         side->sizes ? side->sizes + at * side->dim : scratch);
    for (uint32_t i = 0; i < n; i++)
        sum_put(side, first + i);
}

void kvb_stored_take(const kvb_stored *side, const kvb_storage *store, size_t at, double *row, double *size)
{
    kvb_storage_finish(store, row, size);
    memcpy(side->rows + at * side->dim, row, side->dim * sizeof *row);
    if (side->sizes)
        memcpy(side->sizes + at * side->dim, size, side->dim * sizeof *size);
    sum_put(side, at);
}

void kvb_attention_take_k(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered)
{
    attention->k = side->rows;
    attention->k_size = side->sizes;
    attention->k_sum = side->sums;
    attention->k_dim = store->dim;
    attention->k_gathered = gathered;
    attention->k_turned = store->format->transform != KVB_TRANSFORM_NONE;
}

void kvb_attention_take_v(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered)
{
    attention->v = side->rows;
    attention->v_size = side->sizes;
    attention->v_dim = attention->v_row = store->dim;
    attention->v_gathered = gathered;
    attention->v_offset = kvb_storage_has_zeros(store->format);
    attention->v_mix = store->format->transform ? sqrt(kvb_transform_block(store->dim)) : 1;
}
