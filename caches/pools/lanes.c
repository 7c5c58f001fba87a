/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of bytes and the ways in which they grow. */
#include "caches/pools/lanes.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "caches/pools/codec/codec.h"

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

/* Bytes of one lane with room for `held` cells: counted by the allocator. */
static size_t lane_bytes(const kvb_lane_shape *shape, const kvb_pool_options *o, uint32_t held)
{
    size_t head = units_bytes(shape, held), grain = kvb_growth_grain(o->growth);
    return kvb_growth_reserves(o->growth) ? o->n_kv_heads * round_up(head, grain)
                                          : round_up(o->n_kv_heads * head, grain);
}

/* The cells that there is room for when `cells` are wanted. */
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

/* ---- reserving: address space for all, pages counted as cells fill ------------------------------------------- */

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

/* More cells often lie in pages that are counted already: that is no growth. */
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

/* ---- doubling: new blocks, then a copy of every head -------------------------------------------------------- */

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

/* Every head's units move to another place: a fresh block, not a longer one. All lanes or none. */
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

/* ---- either ------------------------------------------------------------------------------------------------- */

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
        lanes->usable = cells; /* rows above a lower count must survive a later growth */
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
