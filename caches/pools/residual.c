/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows encoded together with their neighbours. Cells form blocks of residual_cells. A block that is written gets one of
 * residual_blocks slots, where its rows are f16 (open). If another block needs a slot, the open block least recently
 * written is encoded into the lanes (closed). A closed block that is written again is first decoded into a slot. So
 * memory is bounded, every row can be read at any time, and nothing depends on sequences.
 */
#include "caches/pools/rows.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { SLOTS = 4, CELLS = 32, TILE = 64 }; /* at most: slots, cells of a block; channels encoded at a time */
enum { PART_SLOTS, PART_RECENT, PART_HELD, PART_TURNED, PARTS };

typedef struct residual {
    kvb_pool pool;
    const kvb_pool_kind *kind;
    const kvb_codec_isa *isa;
    kvb_lanes lanes;
    void *part[PARTS];
    char *slots;             /* [residual_blocks][n_kv_heads][residual_cells][dim] f16 */
    uint32_t *recent_slot;   /* [blocks] the slot of an open block */
    uint64_t *held;          /* [blocks] bits: its cells that hold a row */
    float *turned;           /* [dim] a transformed row, if the format has a transform */
    uint32_t block[SLOTS];   /* the block in each slot, or KVB_SLOT_NONE */
    uint64_t written[SLOTS]; /* `clock` of the last write; 0: never */
    uint64_t clock;          /* counts writes */
} residual;

static residual *residual_of(kvb_pool *pool)
{
    return (residual *)(void *)pool;
}

static const residual *const_residual_of(const kvb_pool *pool)
{
    return (const residual *)(const void *)pool;
}

/* ---- opening, growing, closing ------------------------------------------------------------------------------- */

static void part_sizes(const kvb_format *f, const kvb_pool_options *o, size_t bytes[PARTS])
{
    size_t blocks = ((size_t)o->capacity + f->residual_cells - 1) / f->residual_cells;
    bytes[PART_SLOTS] = (size_t)f->residual_blocks * o->n_kv_heads * f->residual_cells * o->dim * sizeof(uint16_t);
    bytes[PART_RECENT] = blocks * sizeof(uint32_t);
    bytes[PART_HELD] = blocks * sizeof(uint64_t);
    bytes[PART_TURNED] = f->transform ? o->dim * sizeof(float) : 0;
}

size_t kvb_residual_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells)
{
    kvb_lane_shape shape[KVB_LANES];
    size_t bytes[PARTS], sum = sizeof(residual);
    part_sizes(type->format, options, bytes);
    for (int i = 0; i < PARTS; i++)
        sum += bytes[i];
    kvb_lane_shapes(type->format, options->dim, shape);
    return sum + kvb_lanes_bytes(shape, options, cells);
}

void kvb_residual_close(kvb_pool *pool)
{
    residual *p = residual_of(pool);
    kvb_allocator *a = p->lanes.options.allocator;
    size_t bytes[PARTS];

    part_sizes(pool->type->format, &p->lanes.options, bytes);
    for (int i = 0; i < PARTS; i++)
        kvb_free(a, p->part[i], p->part[i] ? bytes[i] : 0);
    kvb_lanes_close(&p->lanes);
    kvb_free(a, p, sizeof *p);
}

int kvb_residual_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    const kvb_format *f = type->format;
    kvb_allocator *a = options->allocator;
    kvb_lane_shape shape[KVB_LANES];
    size_t bytes[PARTS];

    assert(options->n_kv_heads && options->dim && options->min_chunk && a);
    assert(f->residual_blocks <= SLOTS && f->residual_cells <= CELLS &&
           (f->axis == KVB_AXIS_TOKENS || TILE % f->group == 0));
    residual *p = kvb_alloc(a, sizeof *p);
    if (!p)
        return -ENOMEM;
    *p = (residual){.pool = {.type = type}, .kind = kvb_pool_kind_of(type), .isa = kvb_codec_best()};
    kvb_lane_shapes(f, options->dim, shape);
    part_sizes(f, options, bytes);
    int error = kvb_lanes_open(&p->lanes, shape, options);
    for (int i = 0; !error && i < PARTS; i++)
        if (bytes[i] && !(p->part[i] = kvb_alloc(a, bytes[i])))
            error = -ENOMEM;
    if (error) {
        kvb_residual_close(&p->pool);
        return error;
    }
    p->lanes.options.amax = NULL; /* the caller's */
    p->slots = p->part[PART_SLOTS];
    p->recent_slot = p->part[PART_RECENT];
    p->held = p->part[PART_HELD];
    p->turned = p->part[PART_TURNED];
    memset(p->recent_slot, 0xff, bytes[PART_RECENT]); /* KVB_SLOT_NONE */
    memset(p->held, 0, bytes[PART_HELD]);
    memset(p->block, 0xff, sizeof p->block);
    *pool = &p->pool;
    return 0;
}

int kvb_residual_ensure(kvb_pool *pool, uint32_t cells)
{
    return kvb_lanes_ensure(&residual_of(pool)->lanes, cells, pool);
}

/* ---- blocks closed and opened -------------------------------------------------------------------------------- */

static char *slot_row(const residual *p, uint32_t slot, uint32_t h, uint32_t i)
{
    const kvb_pool_options *o = &p->lanes.options;
    return p->slots +
           (((size_t)slot * o->n_kv_heads + h) * p->kind->format.residual_cells + i) * o->dim * sizeof(uint16_t);
}

/* The address of channel `first`, a multiple of TILE, in a cell's unit. */
static char *tile_at(const residual *p, int lane, uint32_t h, uint32_t cell, uint32_t first)
{
    const kvb_format *f = &p->kind->format;
    size_t before = lane == KVB_LANE_CODES       ? kvb_codes_bytes(f, first)
                    : f->axis == KVB_AXIS_TOKENS ? first * sizeof(uint16_t)
                                                 : first / f->group * sizeof(uint16_t);
    return (char *)kvb_lane_at(&p->lanes.lane[lane], h, cell) + before;
}

/* Encodes one head's rows of a slot, channels first .. first+n-1, into the lanes. */
static void tile_encode(const residual *p, uint32_t slot, uint32_t h, uint32_t first, uint32_t n)
{
    const kvb_format *f = &p->kind->format;
    kvb_encode *encode = p->isa->encode[p->kind->rule];
    uint32_t start = p->block[slot] * f->residual_cells;
    uint64_t held = p->held[p->block[slot]];
    size_t bytes = kvb_codes_bytes(f, n);
    float rows[CELLS * TILE];
    char codes[CELLS * TILE];

    for (uint32_t i = 0; i < f->residual_cells; i++) {
        char *row = slot_row(p, slot, h, i) + first * sizeof(uint16_t);
        if (!(held >> i & 1))
            continue;
        p->isa->decode[KVB_RULE_F16](f, row, NULL, NULL, n, 1.0f, rows + i * n);
        if (f->axis != KVB_AXIS_TOKENS)
            encode(f, rows + i * n, 1, n, 1.0f, tile_at(p, KVB_LANE_CODES, h, start + i, first),
                   tile_at(p, KVB_LANE_SCALES, h, start + i, first), tile_at(p, KVB_LANE_ZEROS, h, start + i, first));
    }
    if (f->axis != KVB_AXIS_TOKENS)
        return;
    encode(f, rows, held, n, 1.0f, codes, tile_at(p, KVB_LANE_SCALES, h, start, first),
           tile_at(p, KVB_LANE_ZEROS, h, start, first));
    for (uint32_t i = 0; i < f->residual_cells && start + i < p->lanes.usable;
         i++) /* the lanes may end within the block */
        memcpy(tile_at(p, KVB_LANE_CODES, h, start + i, first), codes + i * bytes, bytes);
}

/* Encodes the block in a slot. Its f16 rows stay in the slot until another block takes it. */
static void slot_close(residual *p, uint32_t slot)
{
    const kvb_pool_options *o = &p->lanes.options;
    for (uint32_t h = 0; h < o->n_kv_heads; h++)
        for (uint32_t first = 0; first < o->dim; first += TILE)
            tile_encode(p, slot, h, first, o->dim - first < TILE ? o->dim - first : TILE);
    p->recent_slot[p->block[slot]] = KVB_SLOT_NONE;
    p->block[slot] = KVB_SLOT_NONE;
}

/* The slot for a block that is about to be written. opened: the block had none, and its rows are not there yet. */
static uint32_t slot_take(residual *p, uint32_t block, bool *opened)
{
    uint32_t slot = p->recent_slot[block];
    *opened = slot == KVB_SLOT_NONE;
    if (*opened) {
        slot = 0;
        for (uint32_t s = 1; s < p->kind->format.residual_blocks; s++)
            if (p->written[s] < p->written[slot])
                slot = s;
        if (p->block[slot] != KVB_SLOT_NONE)
            slot_close(p, slot);
        p->block[slot] = block;
        p->recent_slot[block] = slot;
    }
    p->written[slot] = ++p->clock;
    return slot;
}

/* Decodes a closed cell's row of one head to f16. */
static void row_decode(const residual *p, uint32_t h, uint32_t cell, char *to)
{
    const kvb_format *f = &p->kind->format;
    kvb_decode *decode = p->isa->decode[kvb_decode_rule(f)];
    uint32_t dim = p->lanes.options.dim;

    for (uint32_t first = 0; first < dim; first += TILE) {
        uint32_t n = dim - first < TILE ? dim - first : TILE;
        uint16_t half[TILE];
        float row[TILE];
        decode(f, tile_at(p, KVB_LANE_CODES, h, cell, first), tile_at(p, KVB_LANE_SCALES, h, cell, first),
               tile_at(p, KVB_LANE_ZEROS, h, cell, first), n, 1.0f, row);
        p->isa->encode[KVB_RULE_F16](f, row, 1, n, 1.0f, half, NULL, NULL);
        for (uint32_t i = 0; i < n; i++) /* the highest level can round to infinity: take 65504 */
            half[i] = (uint16_t)(half[i] - ((half[i] & 0x7fff) == 0x7c00));
        memcpy(to + first * sizeof *half, half, n * sizeof *half);
    }
}

/* Decodes these cells of a closed block into its new slot. */
static void slot_fill(residual *p, uint32_t slot, uint64_t cells)
{
    uint32_t start = p->block[slot] * p->kind->format.residual_cells;
    for (uint32_t h = 0; cells && h < p->lanes.options.n_kv_heads; h++)
        for (uint32_t i = 0; i < p->kind->format.residual_cells; i++)
            if (cells >> i & 1)
                row_decode(p, h, start + i, slot_row(p, slot, h, i));
}

/* ---- writing and moving -------------------------------------------------------------------------------------- */

/* Writes rows [n][n_kv_heads][dim] to cells of one block. */
static void block_write(residual *p, uint32_t start, uint32_t n, const float *src)
{
    const kvb_format *f = &p->kind->format;
    uint32_t heads = p->lanes.options.n_kv_heads, dim = p->lanes.options.dim;
    uint32_t block = start / f->residual_cells, at = start % f->residual_cells;
    uint64_t cells = (UINT64_MAX >> (64 - n)) << at;
    bool opened;
    uint32_t slot = slot_take(p, block, &opened);

    if (opened)
        slot_fill(p, slot, p->held[block] & ~cells);
    p->held[block] |= cells;
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < n; i++) {
            const float *row = src + ((size_t)i * heads + h) * dim;
            if (f->transform) {
                memcpy(p->turned, row, dim * sizeof *row);
                p->isa->rotate(f->transform, dim, false, p->turned);
                row = p->turned;
            }
            p->isa->encode[KVB_RULE_F16](f, row, 1, dim, 1.0f, slot_row(p, slot, h, at + i), NULL, NULL);
        }
}

void kvb_residual_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    residual *p = residual_of(pool);
    uint32_t w = p->kind->format.residual_cells;
    size_t token = (size_t)p->lanes.options.n_kv_heads * p->lanes.options.dim;

    assert(start <= p->lanes.usable && n <= p->lanes.usable - start);
    for (uint32_t done = 0, part; done < n; done += part) {
        uint32_t cell = start + done, left = w - cell % w;
        part = n - done < left ? n - done : left;
        block_write(p, cell, part, rows + done * token);
    }
}

void kvb_residual_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    size_t token = (size_t)residual_of(pool)->lanes.options.n_kv_heads * residual_of(pool)->lanes.options.dim;
    for (uint32_t i = 0; i < n; i++)
        kvb_residual_write_run(pool, cells[i], 1, rows + i * token);
}

static void row_move(residual *p, uint32_t to, uint32_t from)
{
    uint32_t w = p->kind->format.residual_cells, was = p->recent_slot[from / w];
    bool opened;
    uint32_t slot = slot_take(p, to / w, &opened);

    for (uint32_t h = 0; h < p->lanes.options.n_kv_heads; h++)
        if (was != KVB_SLOT_NONE) /* the f16 rows are still there, even if the source's block was closed just now */
            memmove(slot_row(p, slot, h, to % w), slot_row(p, was, h, from % w),
                    p->lanes.options.dim * sizeof(uint16_t));
        else
            row_decode(p, h, from, slot_row(p, slot, h, to % w));
    if (opened)
        slot_fill(p, slot, p->held[to / w] & ~(1ull << to % w));
    p->held[to / w] |= 1ull << to % w;
}

void kvb_residual_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    residual *p = residual_of(pool);

    assert(base <= p->lanes.usable && n <= p->lanes.usable - base);
    for (uint32_t i = 0; i < n; i++) {
        assert(cells[i] < p->lanes.usable);
        if (cells[i] != base + i)
            row_move(p, base + i, cells[i]);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

void kvb_residual_view(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    const residual *p = const_residual_of(pool);
    const kvb_pool_options *o = &p->lanes.options;

    kvb_lanes_view(&p->lanes, pool->type->format, cells, view);
    view->recent = p->slots;
    view->recent_slot = p->recent_slot;
    view->recent_head_stride = (size_t)p->kind->format.residual_cells * o->dim * sizeof(uint16_t);
    view->recent_slot_stride = o->n_kv_heads * view->recent_head_stride;
}

size_t kvb_residual_reserved(const kvb_pool *pool)
{
    const residual *p = const_residual_of(pool);
    const kvb_pool_options *o = &p->lanes.options;
    size_t bytes[PARTS];
    part_sizes(pool->type->format, o, bytes);
    return bytes[PART_SLOTS] + kvb_residual_bytes(pool->type, o, p->lanes.usable) -
           kvb_residual_bytes(pool->type, o, 0);
}

/* ---- stored bytes -------------------------------------------------------------------------------------------- */

/* Comes before the blocks' `held`, the lanes and the slots. */
typedef struct raw_head {
    uint32_t block[SLOTS];
    uint64_t written[SLOTS], clock;
} raw_head;

static uint32_t blocks_of(const residual *p, uint32_t cells)
{
    return (uint32_t)(((uint64_t)cells + p->kind->format.residual_cells - 1) / p->kind->format.residual_cells);
}

static size_t slots_bytes(const residual *p)
{
    size_t bytes[PARTS];
    part_sizes(&p->kind->format, &p->lanes.options, bytes);
    return bytes[PART_SLOTS];
}

/* Bytes of one head's units of cells 0 .. n-1 in a lane. */
static size_t lane_used(const kvb_pool_lane *lane, uint32_t n)
{
    return ((size_t)n + lane->shape.unit_cells - 1) / lane->shape.unit_cells * lane->shape.unit_bytes;
}

size_t kvb_residual_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n)
{
    const residual *p = const_residual_of(pool);
    size_t bytes = sizeof(raw_head) + blocks_of(p, n) * sizeof *p->held + slots_bytes(p);
    for (int l = 0; l < KVB_LANES; l++)
        bytes += p->lanes.options.n_kv_heads * lane_used(&p->lanes.lane[l], n);
    return cells ? 0 : bytes;
}

/* Has this unit of a lane been encoded? Other units hold arbitrary bytes. */
static bool unit_known(const residual *p, const kvb_pool_lane *lane, uint32_t cell)
{
    const uint32_t w = p->kind->format.residual_cells, block = cell / w;
    const uint64_t held = p->held[block];
    return p->recent_slot[block] == KVB_SLOT_NONE && (lane->shape.unit_cells > 1 ? held > 0 : held >> cell % w & 1);
}

void kvb_residual_read_raw(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw)
{
    const residual *p = const_residual_of(pool);
    const kvb_pool_options *o = &p->lanes.options;
    const uint32_t w = p->kind->format.residual_cells;
    const size_t row = o->dim * sizeof(uint16_t), held_bytes = blocks_of(p, n) * sizeof *p->held;
    raw_head head = {.clock = p->clock};
    char *to = raw;
    assert(!cells && n <= p->lanes.usable);
    memset(raw, 0, kvb_residual_raw_bytes(pool, NULL, n));
    memcpy(head.block, p->block, sizeof head.block);
    memcpy(head.written, p->written, sizeof head.written);
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, p->held, held_bytes);
    to += sizeof head + held_bytes;
    for (int l = 0; l < KVB_LANES; l++) {
        const kvb_pool_lane *lane = &p->lanes.lane[l];
        for (uint32_t h = 0; h < o->n_kv_heads && lane->shape.unit_bytes; h++)
            for (uint32_t cell = 0; cell < n; cell += lane->shape.unit_cells, to += lane->shape.unit_bytes)
                if (unit_known(p, lane, cell))
                    memcpy(to, kvb_lane_at(lane, h, cell), lane->shape.unit_bytes);
    }
    for (uint32_t s = 0; s < p->kind->format.residual_blocks; s++)
        for (uint32_t h = 0; h < o->n_kv_heads; h++)
            for (uint32_t i = 0; i < w; i++, to += row)
                if (p->block[s] != KVB_SLOT_NONE && p->held[p->block[s]] >> i & 1)
                    memcpy(to, slot_row(p, s, h, i), row);
}

void kvb_residual_write_raw(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    residual *p = residual_of(pool);
    const uint32_t blocks = blocks_of(p, n), most = blocks_of(p, p->lanes.options.capacity);
    const char *from = raw;
    raw_head head;
    assert(!cells && n <= p->lanes.usable);
    memcpy(&head, from, sizeof head);
    from += sizeof head;
    memcpy(p->block, head.block, sizeof head.block);
    memcpy(p->written, head.written, sizeof head.written);
    p->clock = head.clock;
    memset(p->recent_slot, 0xff, most * sizeof *p->recent_slot);
    for (uint32_t s = 0; s < SLOTS; s++)
        if (p->block[s] != KVB_SLOT_NONE)
            p->recent_slot[p->block[s]] = s;
    memcpy(p->held, from, blocks * sizeof *p->held);
    memset(p->held + blocks, 0, (most - blocks) * sizeof *p->held);
    from += blocks * sizeof *p->held;
    for (int l = 0; l < KVB_LANES; l++) {
        const size_t bytes = lane_used(&p->lanes.lane[l], n);
        for (uint32_t h = 0; h < p->lanes.options.n_kv_heads && bytes; h++, from += bytes)
            memcpy(kvb_lane_at(&p->lanes.lane[l], h, 0), from, bytes);
    }
    memcpy(p->slots, from, slots_bytes(p));
}

/* Every slot in use belongs to an existing block, and no block has two slots. */
bool kvb_residual_check_raw(const kvb_pool *pool, uint32_t n, const void *raw)
{
    const residual *p = const_residual_of(pool);
    raw_head head;
    bool right = true;
    memcpy(&head, raw, sizeof head);
    for (uint32_t s = 0; s < SLOTS; s++) {
        const uint32_t b = head.block[s];
        right = right && (b == KVB_SLOT_NONE || (b < blocks_of(p, n) && s < p->kind->format.residual_blocks));
        for (uint32_t other = 0; other < s; other++)
            right = right && (b == KVB_SLOT_NONE || b != head.block[other]);
    }
    return right;
}
