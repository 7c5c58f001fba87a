/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built-in pools: lanes of bytes; rows that are encoded one by one, when they are stored, or together with their
 * neighbours; the list of formats.
 */
#include "caches/pools/rows.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

/*
 * The bytes of a pool lie in up to three lanes (codes, scales, zeros), each head-major [n_kv_heads][units][unit bytes].
 * Lanes grow together, by the policy in the options.
 */

typedef struct pool_lane {
    kvb_lane_shape shape;
    char *base;
    size_t head_stride; /* bytes */
} pool_lane;

typedef struct pool_lanes {
    kvb_pool_options options;
    uint32_t held;   /* room, in cells */
    uint32_t usable; /* largest count of cells ensured */
    pool_lane lane[KVB_LANES];
} pool_lanes;

/* The unit of head h in which cell c lies; NULL: the format has no such lane. Integers, since NULL + 0 is undefined. */
static inline void *lane_at(const pool_lane *lane, uint32_t h, uint32_t c)
{
    size_t at = h * lane->head_stride + (size_t)(c / lane->shape.unit_cells) * lane->shape.unit_bytes;
    return (void *)((uintptr_t)lane->base + at); /* no lane: 0 + 0 */
}

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

/* Allocator bytes after lanes_ensure(cells), the largest so far. Exact. */
static size_t lanes_bytes(const kvb_lane_shape shape[KVB_LANES], const kvb_pool_options *options, uint32_t cells)
{
    uint32_t held = room_for(options, 0, cells);
    size_t bytes = 0;
    for (int l = 0; l < KVB_LANES && shape[l].unit_bytes; l++) /* without scales there are no zeros */
        bytes += lane_bytes(&shape[l], options, held);
    return bytes;
}

/* ---- reserve: address space for all cells, pages counted as cells fill --------------------------------------- */

static size_t space_bytes(const pool_lanes *lanes, const pool_lane *lane)
{
    return lanes->options.n_kv_heads * lane->head_stride;
}

static int spaces_open(pool_lanes *lanes)
{
    const kvb_pool_options *o = &lanes->options;
    for (int l = 0; l < KVB_LANES; l++) {
        pool_lane *lane = &lanes->lane[l];
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
static int spaces_grow(pool_lanes *lanes, uint32_t held, kvb_pool *pool)
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
static int blocks_grow(pool_lanes *lanes, uint32_t held, kvb_pool *pool)
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
        pool_lane *lane = &lanes->lane[l];
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

static void lanes_close(pool_lanes *lanes)
{
    const kvb_pool_options *o = &lanes->options;
    for (int l = 0; l < KVB_LANES; l++) {
        pool_lane *lane = &lanes->lane[l];
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

/* 0 or -ENOMEM, nothing left behind. */
static int lanes_open(pool_lanes *lanes, const kvb_lane_shape shape[KVB_LANES], const kvb_pool_options *options)
{
    *lanes = (pool_lanes){.options = *options};
    for (int l = 0; l < KVB_LANES; l++)
        lanes->lane[l].shape = shape[l];
    int error = kvb_growth_reserves(options->growth) ? spaces_open(lanes) : 0;
    if (error)
        lanes_close(lanes);
    return error;
}

/* As kvb_pool_type.ensure; adds the bytes copied and the time to the pool's counts. */
static int lanes_ensure(pool_lanes *lanes, uint32_t cells, kvb_pool *pool)
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

/* Fills in a view's lanes and format. */
static void lanes_view(const pool_lanes *lanes, const kvb_format *format, uint32_t cells, kvb_view *view)
{
    const pool_lane *codes = &lanes->lane[KVB_LANE_CODES], *scales = &lanes->lane[KVB_LANE_SCALES],
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
typedef struct rows_pool {
    kvb_pool pool;
    const kvb_pool_kind *kind;
    const kvb_codec_isa *isa;
    pool_lanes lanes;
    float *fixed;       /* one block: [n_kv_heads] head scales if any, then [dim] scratch if there is a transform */
    float *head_scales; /* in it, or NULL */
    float *turned;      /* in it, or NULL */
} rows_pool;

enum { SLOTS = 4, CELLS = 32, TILE = 64 }; /* at most: slots, cells of a block; channels encoded at a time */

typedef struct slot_use {
    uint32_t block[SLOTS];   /* the block in each slot, or KVB_SLOT_NONE */
    uint64_t written[SLOTS]; /* `clock` of the last write; 0: never */
    uint64_t clock;          /* counts writes */
} slot_use;

/*
 * Rows encoded together with their neighbours. Cells form blocks of residual_cells. A block that is written gets one of
 * residual_blocks slots, where its rows are f16 (open). If another block needs a slot, the open block least recently
 * written is encoded into the lanes (closed). A closed block that is written again is first decoded into a slot. So
 * memory is bounded, every row can be read at any time, and nothing depends on sequences.
 */
typedef struct residual_pool {
    rows_pool rows;
    char *slots;           /* [residual_blocks][n_kv_heads][residual_cells][dim] f16 */
    uint32_t *recent_slot; /* [blocks] the slot of an open block */
    uint64_t *held;        /* [blocks] bits: its cells that hold a row */
    slot_use use;
} residual_pool;

static rows_pool *rows_of(const kvb_pool *pool)
{
    return (rows_pool *)(uintptr_t)pool;
}

static residual_pool *residual_of(const kvb_pool *pool)
{
    return (residual_pool *)(uintptr_t)pool;
}

static bool kind_supports(const kvb_pool_type *type, uint32_t dim, char *why, size_t why_bytes)
{
    return kvb_format_fits(type->format, dim, why, why_bytes);
}

static double kind_row_bytes(const kvb_pool_type *type, uint32_t dim)
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

static uint32_t blocks_of(const kvb_format *f, uint32_t cells)
{
    return f->residual_cells ? (uint32_t)(((uint64_t)cells + f->residual_cells - 1) / f->residual_cells) : 0;
}

static size_t slots_bytes(const kvb_format *f, const kvb_pool_options *o)
{
    return (size_t)f->residual_blocks * o->n_kv_heads * f->residual_cells * o->dim * sizeof(uint16_t);
}

static size_t struct_bytes(const kvb_format *f)
{
    return f->residual_cells ? sizeof(residual_pool) : sizeof(rows_pool);
}

static size_t rows_bytes(const kvb_pool_type *type, const kvb_pool_options *o, uint32_t cells)
{
    const kvb_format *f = type->format;
    kvb_lane_shape shape[KVB_LANES];
    kvb_lane_shapes(f, o->dim, shape);
    return struct_bytes(f) + fixed_bytes(f, o) + slots_bytes(f, o) +
           blocks_of(f, o->capacity) * (sizeof(uint32_t) + sizeof(uint64_t)) + lanes_bytes(shape, o, cells);
}

static void rows_close(kvb_pool *pool)
{
    rows_pool *r = rows_of(pool);
    const kvb_format *f = &r->kind->format;
    const kvb_pool_options *o = &r->lanes.options;
    kvb_allocator *a = o->allocator;
    kvb_free(a, r->fixed, fixed_bytes(f, o));
    if (f->residual_cells) {
        const residual_pool *p = residual_of(pool);
        kvb_free(a, p->slots, slots_bytes(f, o));
        kvb_free(a, p->recent_slot, blocks_of(f, o->capacity) * sizeof *p->recent_slot);
        kvb_free(a, p->held, blocks_of(f, o->capacity) * sizeof *p->held);
    }
    lanes_close(&r->lanes);
    kvb_free(a, r, struct_bytes(f));
}

/* Takes the memory beside the lanes. */
static int parts_open(rows_pool *r)
{
    const kvb_format *f = &r->kind->format;
    const kvb_pool_options *o = &r->lanes.options;
    const uint32_t blocks = blocks_of(f, o->capacity);
    residual_pool *p = residual_of(&r->pool);
    if (fixed_bytes(f, o) && !(r->fixed = kvb_alloc(o->allocator, fixed_bytes(f, o))))
        return -ENOMEM;
    r->head_scales = f->head_scale ? r->fixed : NULL;
    r->turned = f->transform ? r->fixed + (f->head_scale ? o->n_kv_heads : 0) : NULL;
    if (!f->residual_cells)
        return 0;
    assert(f->residual_blocks <= SLOTS && f->residual_cells <= CELLS &&
           (f->axis == KVB_AXIS_TOKENS || TILE % f->group == 0));
    p->slots = kvb_alloc(o->allocator, slots_bytes(f, o));
    p->recent_slot = kvb_alloc(o->allocator, blocks * sizeof *p->recent_slot);
    p->held = kvb_alloc_zeroed(o->allocator, blocks * sizeof *p->held);
    if (!p->slots || !p->recent_slot || !p->held)
        return -ENOMEM;
    memset(p->recent_slot, 0xff, blocks * sizeof *p->recent_slot); /* KVB_SLOT_NONE */
    memset(p->use.block, 0xff, sizeof p->use.block);
    return 0;
}

static int rows_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    const kvb_format *f = type->format;
    kvb_lane_shape shape[KVB_LANES];
    assert(options->n_kv_heads && options->dim && options->min_chunk && options->allocator);
    rows_pool *r = kvb_alloc_zeroed(options->allocator, struct_bytes(f));
    if (!r)
        return -ENOMEM;
    r->pool.type = type;
    r->kind = kvb_pool_kind_of(type);
    r->isa = kvb_codec_best();
    kvb_lane_shapes(f, options->dim, shape);
    if (lanes_open(&r->lanes, shape, options) || parts_open(r)) {
        rows_close(&r->pool);
        return -ENOMEM;
    }
    r->lanes.options.amax = NULL; /* the caller's, read only here */
    for (uint32_t h = 0; r->head_scales && h < options->n_kv_heads; h++)
        r->head_scales[h] = kvb_head_scale(f, options->amax, options->n_kv_heads, h);
    *pool = &r->pool;
    return 0;
}

static int rows_ensure(kvb_pool *pool, uint32_t cells)
{
    return lanes_ensure(&rows_of(pool)->lanes, cells, pool);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static void rows_view(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    const rows_pool *r = rows_of(pool);
    lanes_view(&r->lanes, pool->type->format, cells, view);
    view->head_scales = r->head_scales;
}

static void residual_view(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    const residual_pool *p = residual_of(pool);
    const kvb_pool_options *o = &p->rows.lanes.options;
    rows_view(pool, cells, view);
    view->recent = p->slots;
    view->recent_slot = p->recent_slot;
    view->recent_head_stride = (size_t)p->rows.kind->format.residual_cells * o->dim * sizeof(uint16_t);
    view->recent_slot_stride = o->n_kv_heads * view->recent_head_stride;
}

static size_t rows_reserved(const kvb_pool *pool)
{
    const rows_pool *r = rows_of(pool);
    const kvb_pool_options *o = &r->lanes.options;
    return slots_bytes(pool->type->format, o) + rows_bytes(pool->type, o, r->lanes.usable) -
           rows_bytes(pool->type, o, 0);
}

/* ---- rows encoded one by one: writing, moving, stored bytes ------------------------------------------------------ */

/* The row as it is encoded: transformed, if the format has a transform. */
static const float *row_turned(const rows_pool *r, const float *row)
{
    const kvb_transform transform = r->kind->format.transform;
    if (!transform)
        return row;
    memcpy(r->turned, row, r->lanes.options.dim * sizeof *row);
    r->isa->rotate(transform, r->lanes.options.dim, false, r->turned);
    return r->turned;
}

static void row_write(rows_pool *r, uint32_t h, uint32_t cell, const float *row)
{
    const pool_lane *lane = r->lanes.lane;
    const kvb_coded to = {r->pool.type->format,
                          lane_at(&lane[KVB_LANE_CODES], h, cell),
                          lane_at(&lane[KVB_LANE_SCALES], h, cell),
                          lane_at(&lane[KVB_LANE_ZEROS], h, cell),
                          r->head_scales ? r->head_scales[h] : 1.0f,
                          1};
    r->isa->encode[r->kind->rule](&to, row_turned(r, row), r->lanes.options.dim);
}

static void rows_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *src)
{
    rows_pool *r = rows_of(pool);
    uint32_t heads = r->lanes.options.n_kv_heads, dim = r->lanes.options.dim;

    assert(start <= r->lanes.usable && n <= r->lanes.usable - start);
    for (uint32_t i = 0; i < n; i++) /* src is read in its own order, not one row of each page of memory */
        for (uint32_t h = 0; h < heads; h++)
            row_write(r, h, start + i, src + ((size_t)i * heads + h) * dim);
}

static void rows_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *src)
{
    const rows_pool *r = rows_of(pool);
    size_t token = (size_t)r->lanes.options.n_kv_heads * r->lanes.options.dim;
    for (uint32_t i = 0; i < n; i++)
        r->kind->type.write_run(pool, cells[i], 1, src + i * token);
}

static void rows_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    rows_pool *r = rows_of(pool);

    assert(base <= r->lanes.usable && n <= r->lanes.usable - base);
    for (int l = 0; l < KVB_LANES; l++) {
        const pool_lane *lane = &r->lanes.lane[l];
        for (uint32_t h = 0; lane->base && h < r->lanes.options.n_kv_heads; h++)
            for (uint32_t i = 0; i < n; i++) {
                assert(cells[i] < r->lanes.usable);
                if (cells[i] != base + i)
                    memcpy(lane_at(lane, h, base + i), lane_at(lane, h, cells[i]), lane->shape.unit_bytes);
            }
    }
}

static size_t rows_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n)
{
    const pool_lanes *lanes = &rows_of(pool)->lanes;
    size_t bytes = 0;
    (void)cells;
    for (int l = 0; l < KVB_LANES; l++)
        bytes += lanes->lane[l].shape.unit_bytes;
    return n * lanes->options.n_kv_heads * bytes;
}

/* Copies cell by cell each lane's units of all heads, out or in. */
static void raw_copy(const pool_lanes *lanes, const uint32_t *cells, uint32_t n, char *raw, bool out)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t cell = cells ? cells[i] : i;
        assert(cell < lanes->usable);
        for (int l = 0; l < KVB_LANES; l++) {
            const size_t bytes = lanes->lane[l].shape.unit_bytes;
            for (uint32_t h = 0; h < lanes->options.n_kv_heads && bytes; h++, raw += bytes) {
                void *stored = lane_at(&lanes->lane[l], h, cell);
                memcpy(out ? raw : stored, out ? stored : raw, bytes);
            }
        }
    }
}

static void rows_read_raw(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw)
{
    raw_copy(&rows_of(pool)->lanes, cells, n, raw, true);
}

static void rows_write_raw(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    raw_copy(&rows_of(pool)->lanes, cells, n, (char *)(uintptr_t)raw, false);
}

/* ---- residual cells: blocks closed and opened ------------------------------------------------------------------ */

static char *slot_row(const residual_pool *p, uint32_t slot, uint32_t h, uint32_t i)
{
    const kvb_pool_options *o = &p->rows.lanes.options;
    return p->slots +
           (((size_t)slot * o->n_kv_heads + h) * p->rows.kind->format.residual_cells + i) * o->dim * sizeof(uint16_t);
}

/* The address of channel `first`, a multiple of TILE, in a cell's unit. */
static char *tile_at(const residual_pool *p, int lane, uint32_t h, uint32_t cell, uint32_t first)
{
    const kvb_format *f = &p->rows.kind->format;
    size_t before = lane == KVB_LANE_CODES       ? kvb_codes_bytes(f, first)
                    : f->axis == KVB_AXIS_TOKENS ? first * sizeof(uint16_t)
                                                 : first / f->group * sizeof(uint16_t);
    return (char *)lane_at(&p->rows.lanes.lane[lane], h, cell) + before;
}

static kvb_coded tile_of(const residual_pool *p, uint32_t h, uint32_t cell, uint32_t first)
{
    return (kvb_coded){&p->rows.kind->format,
                       tile_at(p, KVB_LANE_CODES, h, cell, first),
                       tile_at(p, KVB_LANE_SCALES, h, cell, first),
                       tile_at(p, KVB_LANE_ZEROS, h, cell, first),
                       1.0f,
                       1};
}

/* Encodes one head's rows of a slot, channels first .. first+n-1, into the lanes. */
static void tile_encode(const residual_pool *p, uint32_t slot, uint32_t h, uint32_t first, uint32_t n)
{
    const kvb_format *f = &p->rows.kind->format;
    kvb_encode *encode = p->rows.isa->encode[p->rows.kind->rule];
    uint32_t start = p->use.block[slot] * f->residual_cells;
    uint64_t held = p->held[p->use.block[slot]];
    size_t bytes = kvb_codes_bytes(f, n);
    float rows[CELLS * TILE];
    char codes[CELLS * TILE];

    for (uint32_t i = 0; i < f->residual_cells; i++) {
        char *row = slot_row(p, slot, h, i) + first * sizeof(uint16_t);
        if (!(held >> i & 1))
            continue;
        p->rows.isa->decode[KVB_RULE_F16](&(kvb_coded){.format = f, .codes = row}, n, rows + i * n);
        if (f->axis != KVB_AXIS_TOKENS) {
            const kvb_coded to = tile_of(p, h, start + i, first);
            encode(&to, rows + i * n, n);
        }
    }
    if (f->axis != KVB_AXIS_TOKENS)
        return;
    kvb_coded block = tile_of(p, h, start, first);
    block.codes = codes;
    block.held = held;
    encode(&block, rows, n);
    for (uint32_t i = 0; i < f->residual_cells && start + i < p->rows.lanes.usable;
         i++) /* the lanes may end within the block */
        memcpy(tile_at(p, KVB_LANE_CODES, h, start + i, first), codes + i * bytes, bytes);
}

/* Encodes the block in a slot. Its f16 rows stay in the slot until another block takes it. */
static void slot_close(residual_pool *p, uint32_t slot)
{
    const kvb_pool_options *o = &p->rows.lanes.options;
    for (uint32_t h = 0; h < o->n_kv_heads; h++)
        for (uint32_t first = 0; first < o->dim; first += TILE)
            tile_encode(p, slot, h, first, o->dim - first < TILE ? o->dim - first : TILE);
    p->recent_slot[p->use.block[slot]] = KVB_SLOT_NONE;
    p->use.block[slot] = KVB_SLOT_NONE;
}

/* The slot for a block that is about to be written. opened: the block had none, and its rows are not there yet. */
static uint32_t slot_take(residual_pool *p, uint32_t block, bool *opened)
{
    uint32_t slot = p->recent_slot[block];
    *opened = slot == KVB_SLOT_NONE;
    if (*opened) {
        slot = 0;
        for (uint32_t s = 1; s < p->rows.kind->format.residual_blocks; s++)
            if (p->use.written[s] < p->use.written[slot])
                slot = s;
        if (p->use.block[slot] != KVB_SLOT_NONE)
            slot_close(p, slot);
        p->use.block[slot] = block;
        p->recent_slot[block] = slot;
    }
    p->use.written[slot] = ++p->use.clock;
    return slot;
}

/* Decodes a closed cell's row of one head to f16. */
static void row_decode(const residual_pool *p, uint32_t h, uint32_t cell, char *to)
{
    const kvb_format *f = &p->rows.kind->format;
    kvb_decode *decode = p->rows.isa->decode[kvb_decode_rule(f)];
    uint32_t dim = p->rows.lanes.options.dim;

    for (uint32_t first = 0; first < dim; first += TILE) {
        uint32_t n = dim - first < TILE ? dim - first : TILE;
        uint16_t half[TILE];
        float row[TILE];
        const kvb_coded from = tile_of(p, h, cell, first);
        decode(&from, n, row);
        p->rows.isa->encode[KVB_RULE_F16](&(kvb_coded){.format = f, .codes = half}, row, n);
        for (uint32_t i = 0; i < n; i++) /* the highest level can round to infinity: take 65504 */
            half[i] = (uint16_t)(half[i] - ((half[i] & 0x7fff) == 0x7c00));
        memcpy(to + first * sizeof *half, half, n * sizeof *half);
    }
}

/* Decodes these cells of a closed block into its new slot. */
static void slot_fill(residual_pool *p, uint32_t slot, uint64_t cells)
{
    uint32_t start = p->use.block[slot] * p->rows.kind->format.residual_cells;
    for (uint32_t h = 0; cells && h < p->rows.lanes.options.n_kv_heads; h++)
        for (uint32_t i = 0; i < p->rows.kind->format.residual_cells; i++)
            if (cells >> i & 1)
                row_decode(p, h, start + i, slot_row(p, slot, h, i));
}

/* ---- residual cells: writing, moving, stored bytes --------------------------------------------------------------- */

/* Writes rows [n][n_kv_heads][dim] to cells of one block. */
static void block_write(residual_pool *p, uint32_t start, uint32_t n, const float *src)
{
    const kvb_format *f = &p->rows.kind->format;
    uint32_t heads = p->rows.lanes.options.n_kv_heads, dim = p->rows.lanes.options.dim;
    uint32_t block = start / f->residual_cells, at = start % f->residual_cells;
    uint64_t cells = (UINT64_MAX >> (64 - n)) << at;
    bool opened;
    uint32_t slot = slot_take(p, block, &opened);

    if (opened)
        slot_fill(p, slot, p->held[block] & ~cells);
    p->held[block] |= cells;
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < n; i++) {
            const float *row = row_turned(&p->rows, src + ((size_t)i * heads + h) * dim);
            p->rows.isa->encode[KVB_RULE_F16](&(kvb_coded){.format = f, .codes = slot_row(p, slot, h, at + i)}, row,
                                              dim);
        }
}

static void residual_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    residual_pool *p = residual_of(pool);
    uint32_t w = p->rows.kind->format.residual_cells;
    size_t token = (size_t)p->rows.lanes.options.n_kv_heads * p->rows.lanes.options.dim;

    assert(start <= p->rows.lanes.usable && n <= p->rows.lanes.usable - start);
    for (uint32_t done = 0, part; done < n; done += part) {
        uint32_t cell = start + done, left = w - cell % w;
        part = n - done < left ? n - done : left;
        block_write(p, cell, part, rows + done * token);
    }
}

static void row_move(residual_pool *p, uint32_t to, uint32_t from)
{
    uint32_t w = p->rows.kind->format.residual_cells, was = p->recent_slot[from / w];
    bool opened;
    uint32_t slot = slot_take(p, to / w, &opened);

    for (uint32_t h = 0; h < p->rows.lanes.options.n_kv_heads; h++)
        if (was != KVB_SLOT_NONE) /* the f16 rows are still there, even if the source's block was closed just now */
            memmove(slot_row(p, slot, h, to % w), slot_row(p, was, h, from % w),
                    p->rows.lanes.options.dim * sizeof(uint16_t));
        else
            row_decode(p, h, from, slot_row(p, slot, h, to % w));
    if (opened)
        slot_fill(p, slot, p->held[to / w] & ~(1ull << to % w));
    p->held[to / w] |= 1ull << to % w;
}

static void residual_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    residual_pool *p = residual_of(pool);

    assert(base <= p->rows.lanes.usable && n <= p->rows.lanes.usable - base);
    for (uint32_t i = 0; i < n; i++) {
        assert(cells[i] < p->rows.lanes.usable);
        if (cells[i] != base + i)
            row_move(p, base + i, cells[i]);
    }
}

/* The raw bytes are those of `use`, the blocks' `held`, the lanes and the slots. */
static size_t residual_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n)
{
    const residual_pool *p = residual_of(pool);
    size_t bytes = sizeof p->use + blocks_of(&p->rows.kind->format, n) * sizeof *p->held +
                   slots_bytes(&p->rows.kind->format, &p->rows.lanes.options);
    for (int l = 0; l < KVB_LANES; l++)
        bytes += p->rows.lanes.options.n_kv_heads * units_bytes(&p->rows.lanes.lane[l].shape, n);
    return cells ? 0 : bytes;
}

/* Has this unit of a lane been encoded? Other units hold arbitrary bytes. */
static bool unit_known(const residual_pool *p, const pool_lane *lane, uint32_t cell)
{
    const uint32_t w = p->rows.kind->format.residual_cells, block = cell / w;
    const uint64_t held = p->held[block];
    return p->recent_slot[block] == KVB_SLOT_NONE && (lane->shape.unit_cells > 1 ? held > 0 : held >> cell % w & 1);
}

static void residual_read_raw(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw)
{
    const residual_pool *p = residual_of(pool);
    const kvb_pool_options *o = &p->rows.lanes.options;
    const uint32_t w = p->rows.kind->format.residual_cells;
    const size_t row = o->dim * sizeof(uint16_t), held_bytes = blocks_of(&p->rows.kind->format, n) * sizeof *p->held;
    char *to = raw;
    assert(!cells && n <= p->rows.lanes.usable);
    memset(raw, 0, residual_raw_bytes(pool, NULL, n));
    memcpy(to, &p->use, sizeof p->use);
    memcpy(to + sizeof p->use, p->held, held_bytes);
    to += sizeof p->use + held_bytes;
    for (int l = 0; l < KVB_LANES; l++) {
        const pool_lane *lane = &p->rows.lanes.lane[l];
        for (uint32_t h = 0; h < o->n_kv_heads && lane->shape.unit_bytes; h++)
            for (uint32_t cell = 0; cell < n; cell += lane->shape.unit_cells, to += lane->shape.unit_bytes)
                if (unit_known(p, lane, cell))
                    memcpy(to, lane_at(lane, h, cell), lane->shape.unit_bytes);
    }
    for (uint32_t s = 0; s < p->rows.kind->format.residual_blocks; s++)
        for (uint32_t h = 0; h < o->n_kv_heads; h++)
            for (uint32_t i = 0; i < w; i++, to += row)
                if (p->use.block[s] != KVB_SLOT_NONE && p->held[p->use.block[s]] >> i & 1)
                    memcpy(to, slot_row(p, s, h, i), row);
}

static void residual_write_raw(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    residual_pool *p = residual_of(pool);
    const uint32_t blocks = blocks_of(&p->rows.kind->format, n),
                   most = blocks_of(&p->rows.kind->format, p->rows.lanes.options.capacity);
    const char *from = raw;
    assert(!cells && n <= p->rows.lanes.usable);
    memcpy(&p->use, from, sizeof p->use);
    from += sizeof p->use;
    memset(p->recent_slot, 0xff, most * sizeof *p->recent_slot);
    for (uint32_t s = 0; s < SLOTS; s++)
        if (p->use.block[s] != KVB_SLOT_NONE)
            p->recent_slot[p->use.block[s]] = s;
    memcpy(p->held, from, blocks * sizeof *p->held);
    memset(p->held + blocks, 0, (most - blocks) * sizeof *p->held);
    from += blocks * sizeof *p->held;
    for (int l = 0; l < KVB_LANES; l++) {
        const size_t bytes = units_bytes(&p->rows.lanes.lane[l].shape, n);
        for (uint32_t h = 0; h < p->rows.lanes.options.n_kv_heads && bytes; h++, from += bytes)
            memcpy(lane_at(&p->rows.lanes.lane[l], h, 0), from, bytes);
    }
    memcpy(p->slots, from, slots_bytes(&p->rows.kind->format, &p->rows.lanes.options));
}

/* Every slot in use belongs to an existing block, and no block has two slots. */
static bool residual_check_raw(const kvb_pool *pool, uint32_t n, const void *raw)
{
    const residual_pool *p = residual_of(pool);
    slot_use use;
    bool right = true;
    memcpy(&use, raw, sizeof use);
    for (uint32_t s = 0; s < SLOTS; s++) {
        const uint32_t b = use.block[s];
        right = right && (b == KVB_SLOT_NONE ||
                          (b < blocks_of(&p->rows.kind->format, n) && s < p->rows.kind->format.residual_blocks));
        for (uint32_t other = 0; other < s; other++)
            right = right && (b == KVB_SLOT_NONE || b != use.block[other]);
    }
    return right;
}

/*
 * The formats: one line each, in the order in which they are listed. A line makes two pools, the second with a
 * Walsh-Hadamard transform in front ("+had"), unless the format has a transform of its own.
 */

/* How scales are shared. */
#define PER_ROW     .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32, .zero_elem = KVB_F32
#define CHANNELS(N) .axis = KVB_AXIS_CHANNELS, .group = N, .scale_elem = KVB_F16, .zero_elem = KVB_F16
#define TOKENS(N)   .axis = KVB_AXIS_TOKENS, .group = N, .scale_elem = KVB_F16, .zero_elem = KVB_F16

/* X(identifier, functions, name, summary, rule, format...); ONE: the same without a "+had" form */
#define FORMATS(X, ONE)                                                                                                \
    X(f32, rows, "f32", "IEEE binary32", KVB_RULE_F32, .elem = KVB_F32)                                                \
    X(f16, rows, "f16", "IEEE binary16", KVB_RULE_F16, .elem = KVB_F16)                                                \
    X(bf16, rows, "bf16", "bfloat16", KVB_RULE_BF16, .elem = KVB_BF16)                                                 \
    FP8(X, e4m3, "e4m3", KVB_E4M3)                                                                                     \
    FP8(X, e5m2, "e5m2", KVB_E5M2)                                                                                     \
    X(int8, rows, "int8", "8-bit integers, a scale a row", KVB_RULE_INT8, .elem = KVB_INT8, PER_ROW)                   \
    X(int8_asym, rows, "int8-asym", "8-bit integers, scale and zero a row", KVB_RULE_UINT8, .elem = KVB_UINT8,         \
      PER_ROW)                                                                                                         \
    GGML(X, q8_0, KVB_Q8_0, "8 bits")                                                                                  \
    GGML(X, q5_1, KVB_Q5_1, "5 bits and a least")                                                                      \
    GGML(X, q5_0, KVB_Q5_0, "5 bits")                                                                                  \
    GGML(X, q4_1, KVB_Q4_1, "4 bits and a least")                                                                      \
    GGML(X, q4_0, KVB_Q4_0, "4 bits")                                                                                  \
    GGML(X, iq4_nl, KVB_IQ4_NL, "16 uneven levels")                                                                    \
    AFFINE(X, 8, 32)                                                                                                   \
    AFFINE(X, 8, 64)                                                                                                   \
    AFFINE(X, 8, 128)                                                                                                  \
    AFFINE(X, 4, 32)                                                                                                   \
    AFFINE(X, 4, 64)                                                                                                   \
    AFFINE(X, 4, 128)                                                                                                  \
    AFFINE(X, 2, 32)                                                                                                   \
    AFFINE(X, 2, 64)                                                                                                   \
    AFFINE(X, 2, 128)                                                                                                  \
    KIVI(X, 4)                                                                                                         \
    KIVI(X, 2)                                                                                                         \
    X(mxfp4, rows, "mxfp4", "OCP MXFP4: e2m1, a power of two for 32 channels", KVB_RULE_FP4, .elem = KVB_E2M1,         \
      .axis = KVB_AXIS_CHANNELS, .group = 32, .scale_elem = KVB_E8M0)                                                  \
    X(nvfp4, rows, "nvfp4", "NVFP4: e2m1, an e4m3 scale for 16 channels, one a layer", KVB_RULE_FP4, .elem = KVB_E2M1, \
      .axis = KVB_AXIS_CHANNELS, .group = 16, .scale_elem = KVB_E4M3, .head_scale = KVB_STATIC_TENSOR)                 \
    TURBO(ONE, 4)                                                                                                      \
    TURBO(ONE, 3)

/* e4m3 or e5m2 with each kind of scale. */
#define FP8(X, ID, NAME, ELEM)                                                                                         \
    X(ID, rows, NAME, "OCP FP8 " NAME, KVB_RULE_FP8, .elem = ELEM)                                                     \
    X(ID##_tensor, rows, NAME "-tensor", "OCP FP8 " NAME ", one fixed scale", KVB_RULE_FP8, .elem = ELEM,              \
      .head_scale = KVB_STATIC_TENSOR)                                                                                 \
    X(ID##_head, rows, NAME "-head", "OCP FP8 " NAME ", a fixed scale a KV head", KVB_RULE_FP8, .elem = ELEM,          \
      .head_scale = KVB_STATIC_HEAD)                                                                                   \
    X(ID##_token, rows, NAME "-token", "OCP FP8 " NAME ", a scale a row", KVB_RULE_FP8, .elem = ELEM, PER_ROW)

/* Scales lie inside the blocks; the dims of rows are multiples of group. */
#define GGML(X, ID, ELEM, SUMMARY)                                                                                     \
    X(ID, rows, #ID, "ggml " #ID ": " SUMMARY, KVB_RULE_GGML, .elem = ELEM, .axis = KVB_AXIS_CHANNELS, .group = 32)

#define AFFINE(X, BITS, GROUP)                                                                                         \
    X(a##BITS##g##GROUP, rows, "a" #BITS "g" #GROUP,                                                                   \
      "MLX affine: " #BITS " bits, scale and bias for " #GROUP " channels", KVB_RULE_AFFINE, .elem = KVB_UINT##BITS,   \
      CHANNELS(GROUP))

/* K and V of KIVI, encoded when their block of cells closes. */
#define RESIDUAL .residual_cells = 32, .residual_blocks = 4
#define KIVI(X, BITS)                                                                                                  \
    X(kivi##BITS##_k, residual, "kivi" #BITS "-k", "KIVI keys: " #BITS " bits, scale and zero a channel of 32 rows",   \
      KVB_RULE_CHANNELS, .elem = KVB_UINT##BITS, TOKENS(32), RESIDUAL)                                                 \
    X(kivi##BITS##_v, residual, "kivi" #BITS "-v", "KIVI values: " #BITS " bits, scale and zero for 32 channels",      \
      KVB_RULE_AFFINE, .elem = KVB_UINT##BITS, CHANNELS(32), RESIDUAL)

/* TurboQuant: rotated by definition. */
#define TURBO(ONE, BITS)                                                                                               \
    ONE(tq##BITS, rows, "tq" #BITS, "TurboQuant: rotated, " #BITS "-bit codebook, a scale a row", KVB_RULE_CODEBOOK,   \
        .elem = KVB_CODEBOOK, .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F16,                \
        .transform = KVB_TRANSFORM_SIGNED_HADAMARD, .levels = kvb_levels_##BITS, .level_bits = BITS)

#define rows_check_raw NULL /* every code is a number */
#define TYPE(FUNCTIONS)                                                                                                \
    .supports = kind_supports, .row_bytes = kind_row_bytes, .bytes = rows_bytes, .open = rows_open,                    \
    .close = rows_close, .ensure = rows_ensure, .scatter = rows_scatter, .reserved = rows_reserved,                    \
    .write_run = FUNCTIONS##_write_run, .gather_into = FUNCTIONS##_gather_into, .view = FUNCTIONS##_view,              \
    .raw_bytes = FUNCTIONS##_raw_bytes, .read_raw = FUNCTIONS##_read_raw, .write_raw = FUNCTIONS##_write_raw,          \
    .check_raw = FUNCTIONS##_check_raw

#define KIND(OBJECT, FUNCTIONS, NAME, SUMMARY, RULE, ROTATED, ...)                                                     \
    static const kvb_pool_kind OBJECT = {                                                                              \
        .type = {.name = NAME, .summary = SUMMARY, .format = &OBJECT.format, .rotated = ROTATED, TYPE(FUNCTIONS)},     \
        .format = {.name = NAME, .read = kvb_codec_read, __VA_ARGS__},                                                 \
        .rule = RULE,                                                                                                  \
    };
#define PAIR(ID, FUNCTIONS, NAME, SUMMARY, RULE, ...)                                                                  \
    KIND(rotated_##ID, FUNCTIONS, NAME "+had", SUMMARY ", after a Hadamard transform", RULE, NULL,                     \
         .transform = KVB_TRANSFORM_HADAMARD, __VA_ARGS__)                                                             \
    KIND(plain_##ID, FUNCTIONS, NAME, SUMMARY, RULE, &rotated_##ID.type, __VA_ARGS__)
#define ALONE(ID, FUNCTIONS, NAME, SUMMARY, RULE, ...)                                                                 \
    KIND(plain_##ID, FUNCTIONS, NAME, SUMMARY, RULE, NULL, __VA_ARGS__)
#define ENTRY(ID, ...) &plain_##ID.type,

FORMATS(PAIR, ALONE)

const kvb_pool_type *const kvb_builtin_pools[] = {FORMATS(ENTRY, ENTRY) NULL};
