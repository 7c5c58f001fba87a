/* SPDX-License-Identifier: Apache-2.0 */
/* Pools that leave other bytes behind than they should: of codes, of scales and zero points, of rows beside. */
#include "harness/faults/fault.h"

#include <string.h>

/* ---- stored bytes: changed once the honest pool has written a row ------------------------------------------------ */

static void (*bytes_change)(const kvb_view *view, uint32_t head, uint32_t cell);

static void cell_change(const kvb_pool *pool, uint32_t cell)
{
    kvb_view view;
    kvb_pool_passing.view(pool, cell + 1, &view);
    for (uint32_t h = 0; h < kvb_fault_heads; h++)
        bytes_change(&view, h, cell);
}

static void run_spoilt(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    kvb_pool_passing.write_run(pool, start, n, rows);
    for (uint32_t i = 0; i < n; i++)
        cell_change(pool, start + i);
}

static void cells_spoilt(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    kvb_pool_passing.scatter(pool, cells, n, rows);
    for (uint32_t i = 0; i < n; i++)
        cell_change(pool, cells[i]);
}

static void spoil(kvb_pool_type *wrong, void (*how)(const kvb_view *view, uint32_t head, uint32_t cell))
{
    bytes_change = how;
    wrong->write_run = run_spoilt;
    wrong->scatter = cells_spoilt;
}

static char *codes_of(const kvb_view *view, uint32_t h, uint32_t cell)
{
    return (char *)(uintptr_t)view->base + h * view->head_stride + cell * view->cell_stride;
}

static char *scales_of(const kvb_view *view, uint32_t h, uint32_t cell)
{
    return (char *)(uintptr_t)view->scales + h * view->scale_head_stride + cell * view->scale_cell_stride;
}

static char *zeros_of(const kvb_view *view, uint32_t h, uint32_t cell)
{
    return (char *)(uintptr_t)view->zeros + h * view->zero_head_stride + cell * view->zero_cell_stride;
}

static void last_byte(const kvb_view *view, uint32_t h, uint32_t cell)
{
    codes_of(view, h, cell)[view->cell_stride - 1] ^= 0x10;
}

static void first_byte(const kvb_view *view, uint32_t h, uint32_t cell)
{
    *codes_of(view, h, cell) ^= 1;
}

static void scales_halved(const kvb_view *view, uint32_t h, uint32_t cell)
{
    size_t half = view->scale_cell_stride / 2;
    memcpy(scales_of(view, h, cell) + half, scales_of(view, h, cell), half);
}

static void zeros_halved(const kvb_view *view, uint32_t h, uint32_t cell)
{
    size_t half = view->zero_cell_stride / 2;
    memcpy(zeros_of(view, h, cell) + half, zeros_of(view, h, cell), half);
}

static void bit_turned(kvb_pool_type *wrong)
{
    spoil(wrong, last_byte);
}

static void block_scale_off(kvb_pool_type *wrong)
{
    spoil(wrong, first_byte);
}

static void scales_of_first_half(kvb_pool_type *wrong)
{
    spoil(wrong, scales_halved);
}

static void zeros_of_first_half(kvb_pool_type *wrong)
{
    spoil(wrong, zeros_halved);
}

/* ---- rows that are moved: their scales or zero points stay ------------------------------------------------------- */

static char *(*left_of)(const kvb_view *view, uint32_t h, uint32_t cell);

static void gather_by_half(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    static char left[KVB_MODEL_WIDTH][64];
    for (uint32_t i = 0; i < n; i++) {
        kvb_view view;
        kvb_pool_passing.view(pool, base + i + 1, &view);
        size_t bytes = left_of == scales_of ? view.scale_cell_stride : view.zero_cell_stride;
        for (uint32_t h = 0; h < kvb_fault_heads; h++)
            memcpy(left[h], left_of(&view, h, base + i), bytes);
        kvb_pool_passing.gather_into(pool, base + i, &cells[i], 1);
        for (uint32_t h = 0; h < kvb_fault_heads; h++)
            memcpy(left_of(&view, h, base + i), left[h], bytes);
    }
}

static void copies_without_scales(kvb_pool_type *wrong)
{
    left_of = scales_of;
    wrong->gather_into = gather_by_half;
}

static void copies_without_zeros(kvb_pool_type *wrong)
{
    left_of = zeros_of;
    wrong->gather_into = gather_by_half;
}

/* ---- rows beside, and the order of rows -------------------------------------------------------------------------- */

static void run_and_before(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    static const float nothing[1u << 16];
    kvb_pool_passing.write_run(pool, start, n, rows);
    if (start > 0 && (size_t)kvb_fault_heads * kvb_fault_dim <= 1u << 16)
        kvb_pool_passing.write_run(pool, start - 1, 1, nothing);
}

static void row_before_lost(kvb_pool_type *wrong)
{
    wrong->write_run = run_and_before;
}

static void run_turned(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    for (uint32_t i = 0; i < n; i++)
        kvb_pool_passing.write_run(pool, start + n - 1 - i, 1, rows + (size_t)i * kvb_fault_heads * kvb_fault_dim);
}

static void order_turned(kvb_pool_type *wrong)
{
    wrong->write_run = run_turned;
}

/* ---- head scales ------------------------------------------------------------------------------------------------- */

static int open_as_first(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    static const float *first;
    kvb_pool_options o = *options;
    first = first ? first : o.amax;
    o.amax = first;
    return kvb_fault_pool_open(type, &o, pool);
}

static void scales_of_first_layer(kvb_pool_type *wrong)
{
    wrong->open = open_as_first;
}

static void view_one_scale(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    static float scales[KVB_MODEL_WIDTH];
    kvb_pool_passing.view(pool, cells, view);
    for (uint32_t h = 0; h < kvb_fault_heads; h++)
        scales[h] = view->head_scales[0];
    view->head_scales = scales;
}

static void head_scales_alike(kvb_pool_type *wrong)
{
    wrong->view = view_one_scale;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Where rows lay before the pool grew: shown once more. */
static void view_before_growth(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    static struct {
        const kvb_pool *pool;
        const void *base;
    } was[64];
    size_t i = 0;
    kvb_pool_passing.view(pool, cells, view);
    while (i < 63 && was[i].pool && was[i].pool != pool)
        i++;
    const void *now = view->base;
    if (was[i].pool == pool)
        view->base = was[i].base;
    was[i].pool = pool;
    was[i].base = now;
}

static void view_stale(kvb_pool_type *wrong)
{
    wrong->view = view_before_growth;
}

const kvb_fault kvb_byte_faults[] = {
    {"bit-turned", "a bit of the last stored byte is turned", KVB_CHECK_BOUND,
     "plain-decode seq f16 flash, plain-decode-8x128 seq q8_0 flash, plain-decode-8x128 seq a4g64 flash, "
     "plain-decode seq e4m3 reference, plain-decode-8x128 seq mxfp4 flash, plain-decode-8x128 seq q8_0 flash-int8",
     .v_pool = bit_turned},
    {"block-scale-off", "the scale of a row's first block is off by its last bit", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq q8_0 flash, plain-decode-8x128 seq q4_0 flash, plain-decode-8x128 seq iq4_nl flash",
     .v_pool = block_scale_off},
    {"scales-of-first-half", "the second half of a row has the scales of the first", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq a8g64 flash, plain-decode-8x128 seq mxfp4 flash, plain-decode-8x128 seq nvfp4 flash",
     .k_pool = scales_of_first_half},
    {"zeros-of-first-half", "the second half of a row has the zero points of the first", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq a8g64 flash", .v_pool = zeros_of_first_half},
    {"copies-without-scales", "rows that are copied leave their scales behind", KVB_CHECK_BOUND,
     "agent-fork-8x128 slab a8g64 flash, eagle-tree-8x128 tree int8 flash", .v_pool = copies_without_scales},
    {"copies-without-zeros", "rows that are copied leave their zero points behind", KVB_CHECK_BOUND,
     "agent-fork-8x128 slab a8g64 flash", .k_pool = copies_without_zeros},
    {"row-before-lost", "a write clears the row before it", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode-8x128 seq kivi4 flash", .v_pool = row_before_lost},
    {"order-turned", "rows that are written together are stored last to first", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode-8x128 seq kivi4 flash", .k_pool = order_turned},
    {"scales-of-first-layer", "head scales are those of the first layer", KVB_CHECK_BOUND,
     "plain-decode seq e4m3-head flash, plain-decode seq e4m3-tensor flash", .k_pool = scales_of_first_layer},
    {"head-scales-alike", "the head scale of the first KV head is shown for all", KVB_CHECK_BOUND,
     "plain-decode seq e4m3-head flash", .v_pool = head_scales_alike},
    {"view-before-growth", "rows are shown where they lay before the pool grew", KVB_CHECK_CRASH,
     "plain-decode seq f32 flash", .v_pool = view_stale},
    {.name = NULL},
};
