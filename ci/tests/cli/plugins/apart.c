/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of 8-bit codes, with each row's f32 scale in a separate table that no kernel knows. -D changes what it
 * declares about its memory: GROUP, the format's group of scales; ROW_MORE and BYTES_MORE, added to row_bytes() and
 * bytes(); PAD, bytes between rows, with none behind the last row.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "caches/plugin.h"

#ifndef GROUP
#define GROUP KVB_GROUP_ROW
#endif
#ifndef ROW_MORE
#define ROW_MORE 0
#endif
#ifndef BYTES_MORE
#define BYTES_MORE 0u
#endif
#ifndef PAD
#define PAD 0u
#endif

typedef struct apart {
    kvb_pool pool;
    kvb_pool_options options;
    signed char *codes; /* [n_kv_heads][capacity][dim + PAD] */
    float *scales;      /* [capacity][n_kv_heads] */
} apart;

static size_t code_bytes(const kvb_pool_options *o)
{
    return (size_t)o->n_kv_heads * o->capacity * (o->dim + PAD) - PAD;
}

static size_t scale_bytes(const kvb_pool_options *o)
{
    return (size_t)o->n_kv_heads * o->capacity * sizeof(float);
}

static double row_bytes(const kvb_pool_type *type, uint32_t dim)
{
    (void)type;
    return (double)(dim + sizeof(float)) + ROW_MORE;
}

/* The pool allocates its capacity at once. */
static size_t bytes(const kvb_pool_type *type, const kvb_pool_options *o, uint32_t cells)
{
    (void)type;
    (void)cells;
    return sizeof(apart) + code_bytes(o) + scale_bytes(o) + BYTES_MORE;
}

static void pool_close(kvb_pool *pool)
{
    apart *p = (apart *)pool;
    kvb_free(p->options.allocator, p->codes, code_bytes(&p->options));
    kvb_free(p->options.allocator, p->scales, scale_bytes(&p->options));
    kvb_free(p->options.allocator, p, sizeof *p);
}

static int pool_open(const kvb_pool_type *type, const kvb_pool_options *o, kvb_pool **pool)
{
    apart *p = kvb_alloc_zeroed(o->allocator, sizeof *p);
    if (!p)
        return -ENOMEM;
    *p = (apart){{.type = type}, *o, kvb_alloc(o->allocator, code_bytes(o)), kvb_alloc(o->allocator, scale_bytes(o))};
    *pool = &p->pool;
    if (p->codes && p->scales)
        return 0;
    pool_close(*pool);
    return -ENOMEM;
}

static int ensure(kvb_pool *pool, uint32_t cells)
{
    return cells > ((apart *)pool)->options.capacity ? -ENOSPC : 0;
}

static signed char *codes_at(const apart *p, uint32_t h, uint32_t c)
{
    return p->codes + ((size_t)h * p->options.capacity + c) * (p->options.dim + PAD);
}

static void scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    apart *p = (apart *)pool;
    const kvb_pool_options *o = &p->options;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < o->n_kv_heads; h++, rows += o->dim) {
            float largest = 0;
            for (uint32_t c = 0; c < o->dim; c++)
                largest = fmaxf(largest, fabsf(rows[c]));
            const float scale = largest / 127;
            p->scales[(size_t)cells[i] * o->n_kv_heads + h] = scale;
            for (uint32_t c = 0; c < o->dim; c++)
                codes_at(p, h, cells[i])[c] = (signed char)(scale > 0 ? rintf(rows[c] / scale) : 0);
        }
}

static void write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    const kvb_pool_options *o = &((apart *)pool)->options;
    for (uint32_t i = 0, c = start; i < n; i++, c++)
        scatter(pool, &c, 1, rows + (size_t)i * o->n_kv_heads * o->dim);
}

static void gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    apart *p = (apart *)pool;
    const size_t heads = p->options.n_kv_heads;
    for (uint32_t i = 0; i < n; i++) {
        memmove(p->scales + (base + i) * heads, p->scales + cells[i] * heads, heads * sizeof(float));
        for (uint32_t h = 0; h < heads; h++)
            memmove(codes_at(p, h, base + i), codes_at(p, h, cells[i]), p->options.dim);
    }
}

static void rows_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    for (uint32_t i = 0; i < n; i++) {
        const signed char *codes = kvb_view_row(view, h, c + i);
        float scale;
        memcpy(&scale, (const char *)view->scales + h * view->scale_head_stride + (c + i) * view->scale_cell_stride,
               sizeof scale);
        for (uint32_t e = 0; e < view->dim; e++)
            *rows++ = (float)codes[e] * scale;
    }
}

static void row_reference(const kvb_format *format, uint32_t dim, const float *row, double *stored, double *size)
{
    float largest = 0;
    (void)format;
    for (uint32_t c = 0; c < dim; c++)
        largest = fmaxf(largest, fabsf(row[c]));
    const float scale = largest / 127;
    for (uint32_t c = 0; c < dim; c++) {
        stored[c] = scale > 0 ? (double)rintf(row[c] / scale) * (double)scale : 0;
        size[c] = fabs(stored[c]);
    }
}

static const kvb_format format = {.name = "apart",
                                  .elem = KVB_OPAQUE,
                                  .axis = KVB_AXIS_CHANNELS,
                                  .group = GROUP,
                                  .scale_elem = KVB_F32,
                                  .read = rows_read,
                                  .reference = row_reference,
                                  .read_roundings = 1};

static void view_of(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    const apart *p = (const apart *)pool;
    *view = (kvb_view){.base = p->codes,
                       .head_stride = (size_t)p->options.capacity * (p->options.dim + PAD),
                       .cell_stride = p->options.dim + PAD,
                       .cells = cells,
                       .dim = p->options.dim,
                       .format = &format,
                       .scales = p->scales,
                       .scale_head_stride = sizeof(float),
                       .scale_cell_stride = p->options.n_kv_heads * sizeof(float)};
}

static size_t reserved(const kvb_pool *pool)
{
    return code_bytes(&((const apart *)pool)->options) + scale_bytes(&((const apart *)pool)->options);
}

static const kvb_pool_type type = {.name = "apart",
                                   .summary = "8 bits, an f32 scale a row in a table apart",
                                   .format = &format,
                                   .row_bytes = row_bytes,
                                   .bytes = bytes,
                                   .open = pool_open,
                                   .close = pool_close,
                                   .ensure = ensure,
                                   .write_run = write_run,
                                   .scatter = scatter,
                                   .gather_into = gather_into,
                                   .view = view_of,
                                   .reserved = reserved};
static const kvb_pool_type *const pools[] = {&type, NULL};
KVB_PLUGIN_EXPORT const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "apart", .pools = pools};
