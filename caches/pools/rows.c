/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of bytes, and pools that encode each row when it is stored. */
#include "caches/pools/rows.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

void kvb_lane_shapes(const kvb_format *f, uint32_t dim, kvb_lane_shape shape[KVB_LANES])
{
    bool tables = f->group > 0 && !kvb_elem_is_block(f->elem);
    uint32_t cells = f->axis == KVB_AXIS_TOKENS ? f->group : 1;
    size_t n = f->axis == KVB_AXIS_TOKENS ? dim : f->group == KVB_GROUP_ROW ? 1 : tables ? dim / f->group : 0;
    shape[KVB_LANE_CODES] = (kvb_lane_shape){kvb_codes_bytes(f, dim), 1};
    shape[KVB_LANE_SCALES] = (kvb_lane_shape){tables ? n * kvb_scale_bytes(f->scale_elem) : 0, cells};
    shape[KVB_LANE_ZEROS] =
        (kvb_lane_shape){tables && kvb_format_has_zeros(f) ? n * kvb_scale_bytes(f->zero_elem) : 0, cells};
}

static size_t units_bytes(const kvb_lane_shape *shape, uint32_t cells)
{
    return ((size_t)cells + shape->unit_cells - 1) / shape->unit_cells * shape->unit_bytes;
}

static size_t round_up(size_t bytes, size_t grain)
{
    return (bytes + grain - 1) / grain * grain;
}

/* Bytes of one lane with room for `held` cells, as the allocator counts them. */
static size_t lane_bytes(const kvb_lane_shape *shape, const kvb_pool_options *o, uint32_t held)
{
    size_t head = units_bytes(shape, held), grain = kvb_growth_grain(o->growth);
    return kvb_growth_reserves(o->growth) ? o->n_kv_heads * round_up(head, grain)
                                          : round_up(o->n_kv_heads * head, grain);
}

/* The room, in cells, after `cells` are ensured. */
static uint32_t room_for(const kvb_pool_options *o, uint32_t held, uint32_t cells)
{
    if (cells <= held || kvb_growth_reserves(o->growth) || o->growth == KVB_GROWTH_EXACT)
        return cells > held ? cells : held;
    return kvb_growth_double(held, cells, o->min_chunk, o->capacity);
}

size_t kvb_lanes_bytes(const kvb_lane_shape shape[KVB_LANES], const kvb_pool_options *options, uint32_t cells)
{
    uint32_t held = room_for(options, 0, cells);
    size_t bytes = 0;
    for (int l = 0; l < KVB_LANES; l++)
        bytes += lane_bytes(&shape[l], options, held);
    return bytes;
}

/* ---- reserve: address space for all cells, pages counted as cells fill --------------------------------------- */

static size_t space_bytes(const kvb_lanes *lanes, const kvb_pool_lane *lane)
{
    return lanes->options.n_kv_heads * lane->head_stride;
}

static int spaces_open(kvb_lanes *lanes)
{
    const kvb_pool_options *o = &lanes->options;
    for (int l = 0; l < KVB_LANES; l++) {
        kvb_pool_lane *lane = &lanes->lane[l];
        lane->head_stride = round_up(units_bytes(&lane->shape, o->capacity), kvb_growth_grain(o->growth));
        if (lane->head_stride == 0)
            continue;
        lane->base = kvb_reserve(o->allocator, space_bytes(lanes, lane), o->growth == KVB_GROWTH_RESERVE_THP);
        if (!lane->base)
            return -ENOMEM;
    }
    return 0;
}

/* Counts the pages of more cells. Cells in pages that are counted already are no growth. */
static int spaces_grow(kvb_lanes *lanes, uint32_t held, kvb_pool *pool)
{
    const kvb_pool_options *o = &lanes->options;
    size_t more = 0;
    for (int l = 0; l < KVB_LANES; l++)
        more += lane_bytes(&lanes->lane[l].shape, o, held) - lane_bytes(&lanes->lane[l].shape, o, lanes->held);
    if (more && !kvb_commit(o->allocator, more))
        return -ENOMEM;
    pool->growths += more > 0;
    lanes->held = held;
    return 0;
}

/* ---- double and exact: new blocks, then a copy of every head ------------------------------------------------ */

static char *block_take(const kvb_pool_options *o, size_t bytes)
{
    char *block;
    if (o->growth != KVB_GROWTH_DOUBLE_THP)
        return kvb_alloc(o->allocator, bytes);
    block = kvb_reserve(o->allocator, bytes, true);
    if (block && !kvb_commit(o->allocator, bytes)) {
        kvb_unreserve(o->allocator, block, bytes, 0);
        block = NULL;
    }
    return block;
}

static void block_give(const kvb_pool_options *o, char *block, size_t bytes)
{
    if (o->growth != KVB_GROWTH_DOUBLE_THP)
        kvb_free(o->allocator, block, block ? bytes : 0);
    else
        kvb_unreserve(o->allocator, block, bytes, bytes);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Copies every head's units to new blocks, since the stride from head to head changes. All lanes or none. */
static int blocks_grow(kvb_lanes *lanes, uint32_t held, kvb_pool *pool)
{
    const kvb_pool_options *o = &lanes->options;
    char *grown[KVB_LANES] = {NULL};
    for (int l = 0; l < KVB_LANES; l++) {
        size_t bytes = lane_bytes(&lanes->lane[l].shape, o, held);
        if (bytes && !(grown[l] = block_take(o, bytes))) {
            while (l-- > 0)
                if (grown[l])
                    block_give(o, grown[l], lane_bytes(&lanes->lane[l].shape, o, held));
            return -ENOMEM;
        }
    }
    uint64_t started = now_ns();
    for (int l = 0; l < KVB_LANES; l++) {
        kvb_pool_lane *lane = &lanes->lane[l];
        size_t stride = units_bytes(&lane->shape, held), used = units_bytes(&lane->shape, lanes->usable);
        for (uint32_t h = 0; used && h < o->n_kv_heads; h++)
            memcpy(grown[l] + h * stride, lane->base + h * lane->head_stride, used);
        pool->copied_bytes += o->n_kv_heads * used;
        if (lane->base)
            block_give(o, lane->base, lane_bytes(&lane->shape, o, lanes->held));
        lane->base = grown[l];
        lane->head_stride = stride;
    }
    if (lanes->usable)
        pool->copy_ns += now_ns() - started;
    pool->growths++;
    lanes->held = held;
    return 0;
}

/* ---- all policies ------------------------------------------------------------------------------------------- */

int kvb_lanes_open(kvb_lanes *lanes, const kvb_lane_shape shape[KVB_LANES], const kvb_pool_options *options)
{
    *lanes = (kvb_lanes){.options = *options};
    for (int l = 0; l < KVB_LANES; l++)
        lanes->lane[l].shape = shape[l];
    int error = kvb_growth_reserves(options->growth) ? spaces_open(lanes) : 0;
    if (error)
        kvb_lanes_close(lanes);
    return error;
}

void kvb_lanes_close(kvb_lanes *lanes)
{
    const kvb_pool_options *o = &lanes->options;
    for (int l = 0; l < KVB_LANES; l++) {
        kvb_pool_lane *lane = &lanes->lane[l];
        size_t held = lane_bytes(&lane->shape, o, lanes->held);
        if (!lane->base)
            continue;
        if (kvb_growth_reserves(o->growth))
            kvb_unreserve(o->allocator, lane->base, space_bytes(lanes, lane), held);
        else
            block_give(o, lane->base, held);
        lane->base = NULL;
    }
}

int kvb_lanes_ensure(kvb_lanes *lanes, uint32_t cells, kvb_pool *pool)
{
    const kvb_pool_options *o = &lanes->options;
    int error = 0;
    if (cells > o->capacity)
        return -ENOSPC;
    uint32_t held = room_for(o, lanes->held, cells);
    if (held > lanes->held)
        error = kvb_growth_reserves(o->growth) ? spaces_grow(lanes, held, pool) : blocks_grow(lanes, held, pool);
    if (!error && cells > lanes->usable)
        lanes->usable = cells; /* never lowered: rows above a lower count must survive a later growth */
    return error;
}

void kvb_lanes_view(const kvb_lanes *lanes, const kvb_format *format, uint32_t cells, kvb_view *view)
{
    const kvb_pool_lane *codes = &lanes->lane[KVB_LANE_CODES], *scales = &lanes->lane[KVB_LANE_SCALES],
                        *zeros = &lanes->lane[KVB_LANE_ZEROS];
    assert(cells <= lanes->usable);
    *view = (kvb_view){
        .base = codes->base,
        .head_stride = codes->head_stride,
        .cell_stride = codes->shape.unit_bytes,
        .cells = cells,
        .dim = lanes->options.dim,
        .format = format,
        .scales = scales->base,
        .scale_head_stride = scales->head_stride,
        .scale_cell_stride = scales->shape.unit_bytes,
        .zeros = zeros->base,
        .zero_head_stride = zeros->head_stride,
        .zero_cell_stride = zeros->shape.unit_bytes,
    };
}

/* Rows encoded one by one: lanes, a codec and, where the format has them, head scales and a transform. */
typedef struct rows {
    kvb_pool pool;
    const kvb_pool_kind *kind;
    const kvb_codec_isa *isa;
    kvb_lanes lanes;
    float *fixed;       /* one block: [n_kv_heads] head scales if any, then [dim] scratch if there is a transform */
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
    r->lanes.options.amax = NULL; /* the caller's, read only here */
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

/* ---- stored bytes -------------------------------------------------------------------------------------------- */

size_t kvb_rows_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n)
{
    const kvb_lanes *lanes = &const_rows_of(pool)->lanes;
    size_t bytes = 0;
    (void)cells;
    for (int l = 0; l < KVB_LANES; l++)
        bytes += lanes->lane[l].shape.unit_bytes;
    return n * lanes->options.n_kv_heads * bytes;
}

/* Copies cell by cell each lane's units of all heads, out or in. */
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
