/* SPDX-License-Identifier: Apache-2.0 */
/* Rows through a format, in double: transformed, encoded, decoded, the transform undone. */
#include "oracle/storage.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A plug-in's own encoding. */
static int opaque_init(kvb_storage *store, const kvb_format *f, uint32_t dim, char *why, size_t why_bytes)
{
    *store = (kvb_storage){.format = f, .dim = dim, .head_scale = 1};
    bool plain = !f->transform && !f->head_scale && !f->residual_cells;
    if (f->reference && plain)
        return 0;
    snprintf(why, why_bytes,
             plain ? "format '%s' brings no reference: nothing can judge what is computed over it"
                   : "format '%s' is opaque: a transform, head scales or residual cells are its own affair",
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

    if (!codec)
        snprintf(why, why_bytes, "no reference codec for format '%s'", format->name);
    else if (codec->elem != format->elem || (format->residual_cells ? format->residual_cells : 1) != codec->block)
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
        bytes += codec->bytes(codec, store->dim, part);
    return codec->block * bytes;
}

/* What is left to do with a decoded row. */
static void row_finish(const kvb_storage *store, double *row, double *size)
{
    if (store->format->transform == KVB_TRANSFORM_NONE)
        return;
    uint32_t block = kvb_transform_block(store->dim);
    kvb_codec_unrotate(store->format->transform, store->dim, row);
    for (uint32_t first = 0; first < store->dim; first += block) {
        double sum = 0;
        for (uint32_t c = first; c < first + block; c++)
            sum += size[c] * size[c];
        for (uint32_t c = first; c < first + block; c++)
            size[c] = sqrt(sum / block);
    }
}

/* A row as it lies among the residual cells. */
static void row_recent(const kvb_storage *store, const unsigned char *halves, double *row, double *size)
{
    for (uint32_t c = 0; c < store->dim; c++) {
        uint16_t bits;
        memcpy(&bits, halves + 2 * (size_t)c, sizeof bits);
        row[c] = kvb_codec_f16_value(bits);
        size[c] = fabs(row[c]);
    }
    row_finish(store, row, size);
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
    uint32_t n_blocks = n / block + (n % block > 0), closed = n_blocks > residual ? n_blocks - residual : 0;
    float *turned = scratch;
    unsigned char *part[KVB_PARTS];
    part[KVB_CODES] = (unsigned char *)(turned + (size_t)block * dim);
    for (int p = KVB_SCALES; p < KVB_PARTS; p++)
        part[p] = part[p - 1] + block * codec->bytes(codec, dim, p - 1);

    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t first = b * block, held = n - first < block ? n - first : block;
        for (uint32_t i = 0; i < held; i++) {
            float *row = turned + (size_t)i * dim;
            memcpy(row, rows[first + i], dim * sizeof *row);
            kvb_codec_rotate(store->format->transform, dim, row);
            for (uint32_t c = 0; block > 1 && c < dim; c++)
                row[c] = (float)kvb_codec_f16_value(kvb_codec_f16(row[c]));
        }
        if (b < closed)
            codec->encode(codec, turned, held, dim, store->head_scale, part);
        for (uint32_t i = 0; i < held; i++) {
            double *to = stored + (size_t)(first + i) * dim, *to_size = size + (size_t)(first + i) * dim;
            const unsigned char *own[KVB_PARTS];
            for (int p = 0; p < KVB_PARTS; p++)
                own[p] = part[p] + (p != KVB_CODES && codec->shared ? 0 : i * codec->bytes(codec, dim, p));
            for (uint32_t c = 0; c < dim; c++) {
                to[c] = (double)turned[(size_t)i * dim + c];
                to_size[c] = fabs(to[c]);
            }
            if (b < closed)
                codec->decode(codec, own, dim, store->head_scale, to, to_size);
            row_finish(store, to, to_size);
        }
    }
}

void kvb_storage_read(const kvb_storage *store, const kvb_view *view, uint32_t h, uint32_t cell, double *stored,
                      double *size)
{
    const kvb_format *f = view->format;
    uint32_t c = cell, w = f->residual_cells;
    if (view->block_table)
        c = view->block_table[c / view->block_cells] * view->block_cells + c % view->block_cells;
    if (w && view->recent_slot && view->recent_slot[c / w] != KVB_SLOT_NONE) {
        const unsigned char *slot = view->recent;
        slot += view->recent_slot[c / w] * view->recent_slot_stride + h * view->recent_head_stride;
        row_recent(store, slot + (size_t)(c % w) * store->dim * 2, stored, size);
        return;
    }
    size_t unit = f->axis == KVB_AXIS_TOKENS ? c / f->group : c;
    const unsigned char *base = view->base, *scales = view->scales, *zeros = view->zeros;
    const unsigned char *part[KVB_PARTS] = {
        base + h * view->head_stride + c * view->cell_stride,
        scales ? scales + h * view->scale_head_stride + unit * view->scale_cell_stride : NULL,
        zeros ? zeros + h * view->zero_head_stride + unit * view->zero_cell_stride : NULL,
    };
    float head_scale = view->head_scales ? view->head_scales[h] : 1.0f;
    store->codec->decode(store->codec, part, store->dim, head_scale, stored, size);
    row_finish(store, stored, size);
}
