/* SPDX-License-Identifier: Apache-2.0 */
/* Rows encoded one by one: lanes, a codec and, where the format has them, head scales and a transform. */
#include "caches/pools/rows.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "caches/pools/lanes.h"

typedef struct rows {
    kvb_pool pool;
    const kvb_pool_kind *kind;
    const kvb_codec_isa *isa;
    kvb_lanes lanes;
    float *fixed;       /* one block: head scales [n_kv_heads] if any, then a row in the making [dim] if transformed */
    float *head_scales; /* in it, or NULL */
    float *turned;      /* in it, or NULL */
} rows;

static rows *rows_of(kvb_pool *pool)
{
    return (rows *)(void *)pool;
}

static const rows *const_rows_of(const kvb_pool *pool)
{
    return (const rows *)(const void *)pool;
}

bool kvb_kind_supports(const kvb_pool_type *type, uint32_t dim, char *why, size_t why_bytes)
{
    return kvb_format_fits(type->format, dim, why, why_bytes);
}

double kvb_kind_row_bytes(const kvb_pool_type *type, uint32_t dim)
{
    kvb_lane_shape shape[KVB_LANES];
    double bytes = 0;
    kvb_lane_shapes(type->format, dim, shape);
    for (int l = 0; l < KVB_LANES; l++)
        bytes += (double)shape[l].unit_bytes / shape[l].unit_cells;
    return bytes;
}

/* ---- opening, growing, closing ------------------------------------------------------------------------------- */

static size_t fixed_bytes(const kvb_format *f, const kvb_pool_options *o)
{
    size_t floats = (f->head_scale ? o->n_kv_heads : 0) + (f->transform ? o->dim : 0);
    return floats * sizeof(float);
}

size_t kvb_rows_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells)
{
    kvb_lane_shape shape[KVB_LANES];
    kvb_lane_shapes(type->format, options->dim, shape);
    return sizeof(rows) + fixed_bytes(type->format, options) + kvb_lanes_bytes(shape, options, cells);
}

int kvb_rows_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    const kvb_format *f = type->format;
    kvb_allocator *a = options->allocator;
    kvb_lane_shape shape[KVB_LANES];
    size_t fixed = fixed_bytes(f, options);

    assert(options->n_kv_heads && options->dim && options->min_chunk && a);
    rows *r = kvb_alloc(a, sizeof *r);
    if (!r)
        return -ENOMEM;
    *r = (rows){.pool = {.type = type}, .kind = kvb_pool_kind_of(type), .isa = kvb_codec_best()};
    kvb_lane_shapes(f, options->dim, shape);
    r->fixed = fixed ? kvb_alloc(a, fixed) : NULL;
    if ((fixed && !r->fixed) || kvb_lanes_open(&r->lanes, shape, options)) {
        kvb_free(a, r->fixed, r->fixed ? fixed : 0);
        kvb_free(a, r, sizeof *r);
        return -ENOMEM;
    }
    r->lanes.options.amax = NULL; /* the caller's, and read */
    r->head_scales = f->head_scale ? r->fixed : NULL;
    r->turned = f->transform ? r->fixed + (f->head_scale ? options->n_kv_heads : 0) : NULL;
    for (uint32_t h = 0; r->head_scales && h < options->n_kv_heads; h++)
        r->head_scales[h] = kvb_head_scale(f, options->amax, options->n_kv_heads, h);
    *pool = &r->pool;
    return 0;
}

void kvb_rows_close(kvb_pool *pool)
{
    rows *r = rows_of(pool);
    kvb_allocator *a = r->lanes.options.allocator;

    kvb_free(a, r->fixed, r->fixed ? fixed_bytes(pool->type->format, &r->lanes.options) : 0);
    kvb_lanes_close(&r->lanes);
    kvb_free(a, r, sizeof *r);
}

int kvb_rows_ensure(kvb_pool *pool, uint32_t cells)
{
    return kvb_lanes_ensure(&rows_of(pool)->lanes, cells, pool);
}

/* ---- writing and moving -------------------------------------------------------------------------------------- */

static void row_write(rows *r, uint32_t h, uint32_t cell, const float *row)
{
    const kvb_pool_lane *lane = r->lanes.lane;
    const kvb_format *f = r->pool.type->format;
    uint32_t dim = r->lanes.options.dim;

    if (f->transform) {
        memcpy(r->turned, row, dim * sizeof *row);
        r->isa->rotate(f->transform, dim, false, r->turned);
        row = r->turned;
    }
    r->isa->encode[r->kind->rule](
        f, row, 1, dim, r->head_scales ? r->head_scales[h] : 1.0f, kvb_lane_at(&lane[KVB_LANE_CODES], h, cell),
        kvb_lane_at(&lane[KVB_LANE_SCALES], h, cell), kvb_lane_at(&lane[KVB_LANE_ZEROS], h, cell));
}

void kvb_rows_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *src)
{
    rows *r = rows_of(pool);
    uint32_t heads = r->lanes.options.n_kv_heads, dim = r->lanes.options.dim;

    assert(start <= r->lanes.usable && n <= r->lanes.usable - start);
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < n; i++)
            row_write(r, h, start + i, src + ((size_t)i * heads + h) * dim);
}

void kvb_rows_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *src)
{
    size_t token = (size_t)rows_of(pool)->lanes.options.n_kv_heads * rows_of(pool)->lanes.options.dim;
    for (uint32_t i = 0; i < n; i++)
        kvb_rows_write_run(pool, cells[i], 1, src + i * token);
}

void kvb_rows_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    rows *r = rows_of(pool);

    assert(base <= r->lanes.usable && n <= r->lanes.usable - base);
    for (int l = 0; l < KVB_LANES; l++) {
        const kvb_pool_lane *lane = &r->lanes.lane[l];
        for (uint32_t h = 0; lane->base && h < r->lanes.options.n_kv_heads; h++)
            for (uint32_t i = 0; i < n; i++) {
                assert(cells[i] < r->lanes.usable);
                if (cells[i] != base + i)
                    memcpy(kvb_lane_at(lane, h, base + i), kvb_lane_at(lane, h, cells[i]), lane->shape.unit_bytes);
            }
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

void kvb_rows_view(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    const rows *r = const_rows_of(pool);

    kvb_lanes_view(&r->lanes, pool->type->format, cells, view);
    view->head_scales = r->head_scales;
}

size_t kvb_rows_reserved(const kvb_pool *pool)
{
    const rows *r = const_rows_of(pool);
    return kvb_rows_bytes(pool->type, &r->lanes.options, r->lanes.usable) -
           kvb_rows_bytes(pool->type, &r->lanes.options, 0);
}

/* ---- as it lies ---------------------------------------------------------------------------------------------- */

size_t kvb_rows_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n)
{
    const kvb_lanes *lanes = &const_rows_of(pool)->lanes;
    size_t bytes = 0;
    (void)cells;
    for (int l = 0; l < KVB_LANES; l++)
        bytes += lanes->lane[l].shape.unit_bytes;
    return n * lanes->options.n_kv_heads * bytes;
}

/* Cell by cell: each lane's units of all heads, out or in. */
static void raw_copy(const kvb_lanes *lanes, const uint32_t *cells, uint32_t n, char *raw, bool out)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t cell = cells ? cells[i] : i;
        assert(cell < lanes->usable);
        for (int l = 0; l < KVB_LANES; l++) {
            const size_t bytes = lanes->lane[l].shape.unit_bytes;
            for (uint32_t h = 0; h < lanes->options.n_kv_heads && bytes; h++, raw += bytes) {
                void *stored = kvb_lane_at(&lanes->lane[l], h, cell);
                memcpy(out ? raw : stored, out ? stored : raw, bytes);
            }
        }
    }
}

void kvb_rows_read_raw(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw)
{
    raw_copy(&const_rows_of(pool)->lanes, cells, n, raw, true);
}

void kvb_rows_write_raw(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    raw_copy(&rows_of(pool)->lanes, cells, n, (char *)(uintptr_t)raw, false);
}
