/* SPDX-License-Identifier: Apache-2.0 */
/* Pools that encode, write, copy, grow, show, load or count wrongly. The faults with KVB_CHECK_POOL show in few workloads
 * and are caught when a pool is judged by itself. */
#include "harness/faults/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Combinations that many faults are planted in. */
#define FLASH "plain-decode seq f32 flash"
#define INT8  "plain-decode-2x128 seq q8_0 flash-int8"

#define ALL   kvb_pool_passing /* verbs of the honest pool */
#define DIM   kvb_fault_here.dim
#define HEADS kvb_fault_here.heads
#define BY    ((float)kvb_fault_here.by)

static const float nothing[1u << 20]; /* rows of all heads, at most */

/* ---- rows: changed before the honest pool stores them ------------------------------------------------------------ */

/* Multiply channels by `by`: all; the first 32; the last; the middle one. */
KVB_HOOK_OF(float, times, (float value, uint32_t channel), (value * BY))
KVB_HOOK_OF(float, group_times, (float value, uint32_t channel), channel < 32 ? value * BY : value)
KVB_HOOK_OF(float, last_times, (float value, uint32_t channel), channel == DIM - 1 ? value * BY : value)
KVB_HOOK_OF(float, middle_times, (float value, uint32_t channel), channel == DIM / 2 ? value * BY : value)

static void row_turned(float *row)
{
    const float first = *row;
    memmove(row, row + 1, (DIM - 1) * sizeof *row);
    row[DIM - 1] = first;
}

static float cut_to_bf16(float value, uint32_t channel)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0xffff0000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* Floats half-way between two bf16 values are rounded away from zero. */
static float tie_up(float value, uint32_t channel)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits += (bits & 0xffff) == 0x8000;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

KVB_HOOK_OF(float, plus_zero, (float value, uint32_t channel), value == 0 ? 0 : value)
KVB_HOOK_OF(float, no_subnormal, (float value, uint32_t channel), fabsf(value) < 0x1p-14f ? copysignf(0, value) : value)
KVB_HOOK_OF(float, no_nan, (float value, uint32_t channel), isnan(value) ? 0 : value)

/* ---- bytes: changed once the honest pool has stored a row -------------------------------------------------------- */

static char *codes_of(const kvb_view *v, uint32_t h, uint32_t cell)
{
    return (char *)(uintptr_t)v->base + h * v->head_stride + cell * v->cell_stride;
}

static char *scales_of(const kvb_view *v, uint32_t h, uint32_t cell)
{
    return (char *)(uintptr_t)v->scales + h * v->scale_head_stride + cell * v->scale_cell_stride;
}

static char *zeros_of(const kvb_view *v, uint32_t h, uint32_t cell)
{
    return (char *)(uintptr_t)v->zeros + h * v->zero_head_stride + cell * v->zero_cell_stride;
}

KVB_HOOK(last_byte, const kvb_fault_stored *r, codes_of(r->view, r->head, r->cell)[r->view->cell_stride - 1] ^= 0x10)
KVB_HOOK(first_byte, const kvb_fault_stored *r, *codes_of(r->view, r->head, r->cell) ^= 1)

static void half_repeated(char *at, size_t bytes)
{
    memcpy(at + bytes / 2, at, bytes / 2);
}

KVB_HOOK(scales_halved, const kvb_fault_stored *r,
         half_repeated(scales_of(r->view, r->head, r->cell), r->view->scale_cell_stride))
KVB_HOOK(zeros_halved, const kvb_fault_stored *r,
         half_repeated(zeros_of(r->view, r->head, r->cell), r->view->zero_cell_stride))

/* e5m2 stores values that are too large as infinity. */
static void too_large_infinite(const kvb_fault_stored *r)
{
    for (uint32_t c = 0; c < DIM; c++)
        if (fabsf(r->row[c]) > 57344)
            codes_of(r->view, r->head, r->cell)[c] = (char)(signbit(r->row[c]) ? 0xfc : 0x7c);
}

/* ---- cells that are written -------------------------------------------------------------------------------------- */

KVB_HOOK(last_lost, kvb_fault_write *w, w->n -= w->n > 1)

static void fiftieth_lost(kvb_fault_write *w)
{
    static uint32_t writes;
    if (!w->cells && ++writes % 50 == 0)
        w->n = 0;
}

KVB_HOOK_IF(row_before_lost, kvb_fault_write *w, !w->cells && w->start > 0,
            ALL.write_run(w->pool, w->start - 1, 1, nothing))

static void order_turned(kvb_fault_write *w)
{
    static uint32_t cells[1u << 12];
    if (w->cells || w->n > sizeof cells / sizeof *cells)
        return;
    for (uint32_t i = 0; i < w->n; i++)
        cells[i] = w->start + w->n - 1 - i;
    w->cells = cells;
}

static void scatter_to_first(kvb_fault_write *w)
{
    static uint32_t cells[1u << 12];
    for (uint32_t i = 0; w->cells && i < w->n && i < sizeof cells / sizeof *cells; i++)
        cells[i] = w->cells[0];
    w->cells = w->cells ? cells : NULL;
}

/* ---- cells that are copied --------------------------------------------------------------------------------------- */

KVB_HOOK(copy_nothing, const kvb_fault_copy *c, (void)c)
KVB_HOOK(copy_first, const kvb_fault_copy *c, ALL.gather_into(c->pool, c->to, &c->first, 1))

/* A copied row lacks its scales or its zeros. */
static void copy_without(const kvb_fault_copy *c, char *(*of)(const kvb_view *v, uint32_t h, uint32_t cell))
{
    static char left[KVB_MODEL_WIDTH][64];
    kvb_view view;
    ALL.view(c->pool, c->to + 1, &view);
    const size_t bytes = of == scales_of ? view.scale_cell_stride : view.zero_cell_stride;
    for (uint32_t h = 0; h < HEADS; h++)
        memcpy(left[h], of(&view, h, c->to), bytes);
    ALL.gather_into(c->pool, c->to, &c->from, 1);
    for (uint32_t h = 0; h < HEADS; h++)
        memcpy(of(&view, h, c->to), left[h], bytes);
}

KVB_HOOK(copy_without_scales, const kvb_fault_copy *c, copy_without(c, scales_of))
KVB_HOOK(copy_without_zeros, const kvb_fault_copy *c, copy_without(c, zeros_of))

/* Copies the codes alone: the scales of the overwritten row stay. */
static void copy_codes(const kvb_fault_copy *c)
{
    kvb_view view;
    ALL.view(c->pool, (c->to > c->from ? c->to : c->from) + 1, &view);
    for (uint32_t h = 0; h < HEADS; h++) /* codes of 4 bits and more */
        memmove(codes_of(&view, h, c->to), codes_of(&view, h, c->from), DIM / 2);
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

KVB_HOOK(first_row_lost, kvb_pool *pool, ALL.write_run(pool, 0, 1, nothing))

KVB_HOOK_IF(space_halved, kvb_pool_options *o, kvb_growth_reserves(o->growth), o->capacity = (o->capacity + 1) / 2)

/* by: cell 0 or 1, which gets the row of the other one. */
static const uint32_t other_cell[] = {1, 0};
KVB_HOOK(row_misplaced, kvb_pool *pool, ALL.gather_into(pool, (uint32_t)BY, &other_cell[(uint32_t)BY], 1))

/* ---- views ------------------------------------------------------------------------------------------------------- */

KVB_HOOK(rows_late, kvb_view *v, v->base = (const char *)v->base + v->cell_stride)
KVB_HOOK_IF(scales_late, kvb_view *v, v->scales, v->scales = (const char *)v->scales + v->scale_cell_stride)
KVB_HOOK(first_head, kvb_view *v, v->head_stride = 0)
KVB_HOOK(rows_aligned, kvb_view *v, v->cell_stride = (v->cell_stride + 15) / 16 * 16)
KVB_HOOK_IF(zeros_from_scales, kvb_view *v, v->zeros, v->zeros = v->scales)

/* by: the head scale of all heads; 0: the first one's. */
static void head_scales_alike(kvb_view *v)
{
    static float scales[KVB_MODEL_WIDTH];
    for (uint32_t h = 0; h < HEADS && v->head_scales; h++)
        scales[h] = BY > 0 ? BY : v->head_scales[0];
    if (v->head_scales)
        v->head_scales = scales;
}

/* A view shows the address of the rows before the pool grew, once. */
static void before_growth(kvb_view *v)
{
    static struct {
        const kvb_pool *pool;
        const void *base;
    } was[64];
    const kvb_pool *pool = kvb_fault_here.pool;
    size_t i = 0;
    while (i < 63 && was[i].pool && was[i].pool != pool)
        i++;
    const void *now = v->base;
    if (was[i].pool == pool)
        v->base = was[i].base;
    was[i].pool = pool;
    was[i].base = now;
}

/* ---- opening and loading ----------------------------------------------------------------------------------------- */

static void open_as_first(kvb_pool_options *options)
{
    static const float *first;
    first = first ? first : options->amax;
    options->amax = first;
}

static void load_but_last(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    ALL.write_raw(pool, cells, n - 1, raw);
}

/* A load leaves the second half of the bytes unchanged. */
static void load_half(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    const size_t bytes = ALL.raw_bytes(pool, cells, n);
    char *half = malloc(bytes + 1);
    if (!half)
        return;
    ALL.read_raw(pool, cells, n, half);
    memcpy(half, raw, bytes / 2);
    ALL.write_raw(pool, cells, n, half);
    free(half);
}

const kvb_fault kvb_pool_faults[] = {
    {"bytes-short", "bytes() leaves out the pool's own struct", KVB_CHECK_PROTOCOL,
     "plain-decode seq f16 flash, plain-decode seq f32 witness, plain-decode-2x128 seq kivi4 flash",
     .v_pool.bytes = -(int)sizeof(kvb_pool)},
    {"row-bytes-long", "row_bytes() counts 64 bytes that no row has", KVB_CHECK_PROTOCOL,
     "plain-decode seq f16 flash, plain-decode-2x128 seq q8_0 flash", .k_pool.row_bytes = 64},
    {"row-bytes-short", "row_bytes() leaves out 4 bytes of each row", KVB_CHECK_PROTOCOL,
     "plain-decode seq f16 flash, plain-decode-2x128 seq q8_0 flash, plain-decode-2x128 seq a4g64+had flash, "
     "plain-decode-2x128 seq nvfp4 flash",
     .k_pool.row_bytes = -4},
    {"rows-smaller", "every row is stored times 0.6", KVB_CHECK_BOUND,
     FLASH ", plain-decode-2x128 seq q8_0 flash, plain-decode seq e4m3 reference, batched-multi-seq-2x128 slab a4g64 "
           "openblas, plain-decode-2x128 seq kivi4 flash, batched-multi-seq-2x128 slab kivi2 flash",
     .by = 0.6, .v_pool.element = times},
    {"rows-turned", "channels are stored one place off", KVB_CHECK_BOUND,
     "plain-decode seq f16 flash, plain-decode-2x128 seq q4_0 flash", .k_pool.row = row_turned},
    {"sign-lost", "the sign of one channel is lost", KVB_CHECK_BOUND, FLASH ", plain-decode-2x128 seq a8g64 flash",
     .by = -1, .v_pool.element = last_times},
    {"rounded-to-zero", "rows are cut, not rounded", KVB_CHECK_BOUND, "plain-decode seq f16 flash, " FLASH,
     .by = 1 - 0x1p-11, .v_pool.element = times},
    {"cut-to-bf16", "rows are cut to bf16, not rounded", KVB_CHECK_BOUND, "plain-decode seq bf16 flash",
     .k_pool.element = cut_to_bf16},
    {"group-smaller", "the first 32 channels are stored times 0.95", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq iq4_nl flash, plain-decode-2x128 seq nvfp4 flash, plain-decode-2x128 seq a4g64+had "
     "flash, " INT8,
     .by = 0.95, .v_pool.element = group_times},
    {"channel-lost", "one channel is stored as 0", KVB_CHECK_BOUND,
     "plain-decode seq bf16 flash, plain-decode-2x128 seq mxfp4 flash", .by = 0, .k_pool.element = middle_times},
    {"last-lost", "the last row of a write is lost", KVB_CHECK_BOUND, FLASH ", eagle-tree tree f16 flash",
     .v_pool.write = last_lost},
    {"write-lost", "one write of fifty is lost", KVB_CHECK_BOUND, FLASH ", agent-fork seq f16 flash",
     .k_pool.write = fiftieth_lost},
    {"copies-lost", "rows that are to be copied are not", KVB_CHECK_BOUND,
     "agent-fork slab f32 flash, eagle-tree tree int8 flash", .v_pool.copy = copy_nothing},
    {"copies-leave-v", "rows that are copied leave V behind", KVB_CHECK_WITNESS,
     "agent-fork slab f32 witness, eagle-tree tree f16 witness", .v_pool.copy = copy_nothing},
    {"copies-of-first", "rows are copied from the first one's cell", KVB_CHECK_BOUND,
     "agent-fork slab f32 flash, eagle-tree tree f16 flash", .k_pool.copy = copy_first},
    {"growth-forgets", "growing loses the first row", KVB_CHECK_BOUND, FLASH, .v_pool.grown = first_row_lost},
    {"space-halved", "address space is reserved for half of the cells", KVB_CHECK_PROTOCOL,
     "plain-decode seq f16 witness reserve", .k_pool.open = space_halved},
    {"growth-misplaces", "growing puts the first row into the second cell, too", KVB_CHECK_BOUND,
     "two-in-turns seq f16 flash, window-edge paged q8_0 flash", .by = 1, .k_pool.grown = row_misplaced},
    {"view-late", "rows are shown one cell late, and so what lies behind them", KVB_CHECK_CRASH,
     FLASH ", plain-decode-2x128 seq q8_0 flash", .v_pool.view = rows_late},
    {"view-of-first-head", "the first head's rows are shown for all", KVB_CHECK_BOUND, FLASH,
     .k_pool.view = first_head},
    {"scales-late", "scales are shown one cell late, and so what lies behind them", KVB_CHECK_CRASH,
     "plain-decode-2x128 seq a8g64 flash, plain-decode seq int8 flash", .v_pool.view = scales_late},
    {"zeros-lost", "zero points are taken from the scales", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq a8g64 flash, plain-decode seq int8-asym flash", .v_pool.view = zeros_from_scales},
    {"head-scales-lost", "head scales are taken to be 1", KVB_CHECK_BOUND, "plain-decode seq e4m3-head flash", .by = 1,
     .k_pool.view = head_scales_alike},
    {"bit-turned", "a bit of the last stored byte is turned", KVB_CHECK_BOUND,
     "plain-decode seq f16 flash, plain-decode-2x128 seq q8_0 flash, plain-decode-2x128 seq a4g64 flash, plain-decode "
     "seq e4m3 reference, plain-decode-2x128 seq mxfp4 flash, " INT8,
     .v_pool.stored = last_byte},
    {"block-scale-off", "the scale of a row's first block is off by its last bit", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq q8_0 flash, plain-decode-2x128 seq q4_0 flash, plain-decode-2x128 seq iq4_nl flash",
     .v_pool.stored = first_byte},
    {"scales-of-first-half", "the second half of a row has the scales of the first", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq a8g64 flash, plain-decode-2x128 seq mxfp4 flash, plain-decode-2x128 seq nvfp4 flash",
     .k_pool.stored = scales_halved},
    {"zeros-of-first-half", "the second half of a row has the zero points of the first", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq a8g64 flash", .v_pool.stored = zeros_halved},
    {"copies-without-scales", "rows that are copied leave their scales behind", KVB_CHECK_BOUND,
     "agent-fork-8x128 slab a8g64 flash, eagle-tree tree int8 flash", .v_pool.copy = copy_without_scales},
    {"copies-without-zeros", "rows that are copied leave their zero points behind", KVB_CHECK_BOUND,
     "agent-fork-8x128 slab a8g64 flash", .k_pool.copy = copy_without_zeros},
    {"row-before-lost", "a write clears the row before it", KVB_CHECK_BOUND,
     FLASH ", plain-decode-2x128 seq kivi4 flash", .v_pool.write = row_before_lost},
    {"order-turned", "rows that are written together are stored last to first", KVB_CHECK_BOUND,
     FLASH ", plain-decode-2x128 seq kivi4 flash", .k_pool.write = order_turned},
    {"scales-of-first-layer", "head scales are those of the first layer", KVB_CHECK_BOUND,
     "plain-decode seq e4m3-head flash, plain-decode seq e4m3-tensor flash", .k_pool.open = open_as_first},
    {"head-scales-alike", "the head scale of the first KV head is shown for all", KVB_CHECK_BOUND,
     "plain-decode seq e4m3-head flash", .by = 0, .v_pool.view = head_scales_alike},
    {"view-before-growth", "rows are shown where they lay before the pool grew", KVB_CHECK_CRASH, FLASH,
     .v_pool.view = before_growth},
    {"ties-up", "what lies half-way between two numbers is rounded away from zero", KVB_CHECK_POOL,
     "plain-decode seq bf16 flash", .k_pool.element = tie_up},
    {"minus-zero-lost", "-0 is stored as 0", KVB_CHECK_POOL,
     "plain-decode seq f16 flash, plain-decode seq e4m3 flash, plain-decode-2x128 seq mxfp4 flash",
     .k_pool.element = plus_zero},
    {"subnormals-lost", "subnormals are stored as 0", KVB_CHECK_POOL,
     "plain-decode seq f16 flash, plain-decode seq e5m2 flash", .k_pool.element = no_subnormal},
    {"nans-lost", "NaN is stored as 0 by a format that has NaN", KVB_CHECK_POOL, "plain-decode seq e4m3 flash",
     .k_pool.element = no_nan},
    {"saturates-to-infinity", "what is too large becomes infinity where the format's largest is due", KVB_CHECK_POOL,
     "plain-decode seq e5m2 flash", .k_pool.stored = too_large_infinite},
    {"growth-misplaces", "growing moves the second row to the first one's place", KVB_CHECK_POOL,
     FLASH ", plain-decode-2x128 seq a4g32 flash", .by = 0, .k_pool.grown = row_misplaced},
    {"short-forgets", "growing loses the first row where memory is lacking", KVB_CHECK_POOL,
     FLASH ", plain-decode-2x128 seq a4g32 flash", .k_pool.short_of_memory = first_row_lost},
    {"rows-rounded-up", "rows are taken to lie at multiples of 16 bytes", KVB_CHECK_POOL, "plain-decode seq e4m3 flash",
     .k_pool.view = rows_aligned},
    {"bytes-too-few", "bytes() leaves out a pointer", KVB_CHECK_POOL, FLASH ", plain-decode-2x128 seq kivi4 flash",
     .k_pool.bytes = -8},
    {"loads-but-last", "loading loses the last cell", KVB_CHECK_POOL, FLASH ", plain-decode-2x128 seq kivi4 flash",
     .k_pool.load = load_but_last},
    {"scatter-to-first", "scatter stores all rows in the first one's cell", KVB_CHECK_POOL,
     "plain-decode seq int8 flash, plain-decode-2x128 seq tq4 flash", .k_pool.write = scatter_to_first},
    {"defrag-leaves-scales", "of a quantised row that is copied the scales are another's", KVB_CHECK_BOUND,
     "context-shift-8x128 seq a8g64 flash, context-shift seq int8 flash", .k_pool.copy = copy_codes},
    {"load-first-half", "of each row only the first half is loaded", KVB_CHECK_BOUND,
     "save-restore paged f32 flash, preempt-resume slab f16 flash", .v_pool.load = load_half},
    {.name = NULL},
};
