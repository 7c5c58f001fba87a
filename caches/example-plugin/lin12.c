/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An example of a pool with an encoding of its own: "lin12", evenly spaced codes of 12 bits, two in three bytes, and an
 * f32 scale in front of each row. No kernel knows the encoding: the program decodes rows with rows_read(), and the
 * oracle judges the result by row_reference().
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "caches/plugin.h"

#define LARGEST 2047 /* code */

typedef struct lin12_pool {
    kvb_pool pool;
    kvb_pool_options options;
    unsigned char *rows; /* [cells][n_kv_heads][row_bytes] */
    size_t room;         /* bytes */
    uint32_t cells;      /* usable */
} lin12_pool;

static size_t row_size(uint32_t dim)
{
    return sizeof(float) + dim / 2 * 3;
}

static bool pool_supports(const kvb_pool_type *type, uint32_t dim, char *why, size_t why_bytes)
{
    (void)type;
    if (dim % 2)
        snprintf(why, why_bytes, "lin12: rows of %u are not a multiple of 2", dim);
    return dim % 2 == 0;
}

static double pool_row_bytes(const kvb_pool_type *type, uint32_t dim)
{
    (void)type;
    return (double)row_size(dim);
}

/* The room, in cells, when so many are ensured: the first chunk, doubled as often as needed. */
static uint32_t cells_held(const kvb_pool_options *o, uint32_t cells)
{
    uint64_t held = cells ? o->min_chunk : 0;
    while (held < cells)
        held *= 2;
    return held < o->capacity ? (uint32_t)held : o->capacity;
}

static size_t cell_bytes(const kvb_pool_options *o)
{
    return o->n_kv_heads * row_size(o->dim);
}

static size_t pool_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells)
{
    (void)type;
    return sizeof(lin12_pool) + cells_held(options, cells) * cell_bytes(options);
}

static int pool_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    lin12_pool *p = kvb_alloc(options->allocator, sizeof *p);
    if (!p)
        return -ENOMEM;
    *p = (lin12_pool){.pool.type = type, .options = *options};
    *pool = &p->pool;
    return 0;
}

static void pool_close(kvb_pool *pool)
{
    lin12_pool *p = (lin12_pool *)pool;
    kvb_free(p->options.allocator, p->rows, p->room);
    kvb_free(p->options.allocator, p, sizeof *p);
}

static int pool_ensure(kvb_pool *pool, uint32_t cells)
{
    lin12_pool *p = (lin12_pool *)pool;
    if (cells > p->options.capacity)
        return -ENOSPC;
    size_t bytes = cells_held(&p->options, cells) * cell_bytes(&p->options);
    if (bytes > p->room) {
        unsigned char *grown = kvb_realloc(p->options.allocator, p->rows, p->room, bytes);
        if (!grown)
            return -ENOMEM;
        p->rows = grown;
        p->room = bytes;
        p->pool.growths++;
    }
    p->cells = p->cells > cells ? p->cells : cells;
    return 0;
}

static unsigned char *row_at(const lin12_pool *p, uint32_t head, uint32_t cell)
{
    return p->rows + cell * cell_bytes(&p->options) + head * row_size(p->options.dim);
}

static void row_encode(const float *row, uint32_t dim, unsigned char *to)
{
    float largest = 0;
    for (uint32_t c = 0; c < dim; c++)
        largest = fmaxf(largest, fabsf(row[c]));
    float scale = largest / LARGEST;
    memcpy(to, &scale, sizeof scale);
    to += sizeof scale;
    for (uint32_t c = 0; c < dim; c += 2, to += 3) {
        int a = scale > 0 ? (int)rintf(row[c] / scale) : 0, b = scale > 0 ? (int)rintf(row[c + 1] / scale) : 0;
        uint32_t codes = ((uint32_t)a & 0xfff) | ((uint32_t)b & 0xfff) << 12;
        to[0] = (unsigned char)codes;
        to[1] = (unsigned char)(codes >> 8);
        to[2] = (unsigned char)(codes >> 16);
    }
}

static int code_of(uint32_t bits)
{
    return (int)(bits & 0xfff) - (bits & 0x800 ? 0x1000 : 0);
}

static void rows_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    for (uint32_t i = 0; i < n; i++, rows += view->dim) {
        const unsigned char *from = kvb_view_row(view, h, c + i);
        float scale;
        memcpy(&scale, from, sizeof scale);
        from += sizeof scale;
        for (uint32_t e = 0; e < view->dim; e += 2, from += 3) {
            uint32_t codes = from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16;
            rows[e] = (float)code_of(codes) * scale;
            rows[e + 1] = (float)code_of(codes >> 12) * scale;
        }
    }
}

/* The encoding's definition for the oracle: the nearest multiple of the row's largest magnitude / 2047. */
static void row_reference(const kvb_format *format, uint32_t dim, const float *row, double *stored, double *size)
{
    float largest = 0;
    (void)format;
    for (uint32_t c = 0; c < dim; c++)
        if (fabsf(row[c]) > largest)
            largest = fabsf(row[c]);
    float scale = largest / 2047.0f; /* as it is stored */
    for (uint32_t c = 0; c < dim; c++) {
        stored[c] = scale > 0 ? nearbyint((double)(row[c] / scale)) * (double)scale : 0;
        size[c] = fabs(stored[c]);
    }
}

static void pool_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    lin12_pool *p = (lin12_pool *)pool;
    assert(start <= p->cells && n <= p->cells - start);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < p->options.n_kv_heads; h++, rows += p->options.dim)
            row_encode(rows, p->options.dim, row_at(p, h, start + i));
}

static void pool_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    const kvb_pool_options *o = &((lin12_pool *)pool)->options;
    for (uint32_t i = 0; i < n; i++)
        pool_write_run(pool, cells[i], 1, rows + (size_t)i * o->n_kv_heads * o->dim);
}

static void pool_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    lin12_pool *p = (lin12_pool *)pool;
    for (uint32_t i = 0; i < n; i++)
        if (cells[i] != base + i)
            memcpy(row_at(p, 0, base + i), row_at(p, 0, cells[i]), cell_bytes(&p->options));
}

static void pool_view(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    const lin12_pool *p = (const lin12_pool *)pool;
    *view = (kvb_view){.base = p->rows,
                       .head_stride = row_size(p->options.dim),
                       .cell_stride = cell_bytes(&p->options),
                       .cells = cells,
                       .dim = p->options.dim,
                       .format = pool->type->format};
}

static size_t pool_reserved(const kvb_pool *pool)
{
    return ((const lin12_pool *)pool)->room;
}

static const kvb_format format = {
    .name = "lin12",
    .elem = KVB_OPAQUE,
    .read = rows_read,
    .reference = row_reference,
    .read_roundings = 1, /* code * scale */
};

static const kvb_pool_type lin12 = {
    .name = "lin12",
    .summary = "an example: 12 bits, evenly spaced, an f32 scale a row",
    .format = &format,
    .supports = pool_supports,
    .row_bytes = pool_row_bytes,
    .bytes = pool_bytes,
    .open = pool_open,
    .close = pool_close,
    .ensure = pool_ensure,
    .write_run = pool_write_run,
    .scatter = pool_scatter,
    .gather_into = pool_gather_into,
    .view = pool_view,
    .reserved = pool_reserved,
};

static const kvb_pool_type *const pools[] = {&lin12, NULL};
KVB_PLUGIN_EXPORT const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "lin12", .pools = pools};
