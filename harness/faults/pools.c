/* SPDX-License-Identifier: Apache-2.0 */
/* Pools that encode, write, copy or show wrongly. */
#include "harness/faults/fault.h"

#include <math.h>
#include <string.h>

#define MOST (1u << 20) /* floats of changed rows */

/* ---- rows: changed before the honest pool stores them --------------------------------------------------------- */

static void (*row_change)(float *row);

static const float *rows_changed(uint32_t n, const float *rows)
{
    static float changed[MOST];
    size_t row = (size_t)kvb_fault_heads * kvb_fault_dim;
    if (n * row > MOST)
        return rows;
    memcpy(changed, rows, n * row * sizeof *rows);
    for (uint32_t i = 0; i < n * kvb_fault_heads; i++)
        row_change(changed + (size_t)i * kvb_fault_dim);
    return changed;
}

static void run_changed(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    kvb_pool_passing.write_run(pool, start, n, rows_changed(n, rows));
}

static void cells_changed(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    kvb_pool_passing.scatter(pool, cells, n, rows_changed(n, rows));
}

void kvb_fault_rows(kvb_pool_type *wrong, void (*how)(float *row))
{
    row_change = how;
    wrong->write_run = run_changed;
    wrong->scatter = cells_changed;
}

static void row_smaller(float *row)
{
    for (uint32_t c = 0; c < kvb_fault_dim; c++)
        row[c] *= 0.6f;
}

static void row_turned(float *row)
{
    float first = *row;
    memmove(row, row + 1, (kvb_fault_dim - 1) * sizeof *row);
    row[kvb_fault_dim - 1] = first;
}

static void row_sign(float *row)
{
    row[kvb_fault_dim - 1] = -row[kvb_fault_dim - 1];
}

static void row_toward_zero(float *row)
{
    for (uint32_t c = 0; c < kvb_fault_dim; c++)
        row[c] *= 1 - 0x1p-11f;
}

static void row_one_channel(float *row)
{
    row[kvb_fault_dim / 2] = 0;
}

static void row_to_bf16(float *row)
{
    for (uint32_t c = 0; c < kvb_fault_dim; c++) {
        uint32_t bits;
        memcpy(&bits, &row[c], sizeof bits);
        bits &= 0xffff0000u;
        memcpy(&row[c], &bits, sizeof bits);
    }
}

static void row_one_group(float *row)
{
    for (uint32_t c = 0; c < kvb_fault_dim && c < 32; c++)
        row[c] *= 0.95f;
}

static void rows_smaller(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_smaller);
}

static void rows_turned(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_turned);
}

static void sign_lost(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_sign);
}

static void rounded_to_zero(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_toward_zero);
}

static void cut_to_bf16(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_to_bf16);
}

static void group_smaller(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_one_group);
}

static void channel_lost(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_one_channel);
}

/* ---- cells ----------------------------------------------------------------------------------------------------- */

static void run_but_last(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    kvb_pool_passing.write_run(pool, start, n > 1 ? n - 1 : n, rows);
}

static void cells_but_last(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    kvb_pool_passing.scatter(pool, cells, n > 1 ? n - 1 : n, rows);
}

static void last_lost(kvb_pool_type *wrong)
{
    wrong->write_run = run_but_last;
    wrong->scatter = cells_but_last;
}

static void run_now_and_then(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    static uint32_t writes;
    if (++writes % 50)
        kvb_pool_passing.write_run(pool, start, n, rows);
}

static void write_lost(kvb_pool_type *wrong)
{
    wrong->write_run = run_now_and_then;
}

static void gather_nothing(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    (void)pool;
    (void)base;
    (void)cells;
    (void)n;
}

static void copies_lost(kvb_pool_type *wrong)
{
    wrong->gather_into = gather_nothing;
}

static void gather_first(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) /* each from the first one's cell */
        kvb_pool_passing.gather_into(pool, base + i, cells, 1);
}

static void copies_of_first(kvb_pool_type *wrong)
{
    wrong->gather_into = gather_first;
}

static int ensure_anew(kvb_pool *pool, uint32_t cells)
{
    static float nothing[MOST];
    uint64_t growths = pool->growths;
    int error = kvb_pool_passing.ensure(pool, cells);
    if (!error && pool->growths > growths && growths && (size_t)kvb_fault_heads * kvb_fault_dim <= MOST)
        kvb_pool_passing.write_run(pool, 0, 1, nothing);
    return error;
}

static void growth_forgets(kvb_pool_type *wrong)
{
    wrong->ensure = ensure_anew;
}

/* Rows that the growth carries over lie one cell further. */
static int ensure_shifted(kvb_pool *pool, uint32_t cells)
{
    static const uint32_t first[] = {0};
    uint64_t growths = pool->growths;
    int error = kvb_pool_passing.ensure(pool, cells);
    if (!error && pool->growths > growths && growths)
        kvb_pool_passing.gather_into(pool, 1, first, 1);
    return error;
}

static void growth_misplaces(kvb_pool_type *wrong)
{
    wrong->ensure = ensure_shifted;
}

/* ---- views ----------------------------------------------------------------------------------------------------- */

static void view_one_late(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    kvb_pool_passing.view(pool, cells, view);
    view->base = (const char *)view->base + view->cell_stride;
}

static void view_late(kvb_pool_type *wrong)
{
    wrong->view = view_one_late;
}

static void view_one_head(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    kvb_pool_passing.view(pool, cells, view);
    view->head_stride = 0;
}

static void view_of_first_head(kvb_pool_type *wrong)
{
    wrong->view = view_one_head;
}

static void view_scales_late(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    kvb_pool_passing.view(pool, cells, view);
    if (view->scales)
        view->scales = (const char *)view->scales + view->scale_cell_stride;
}

static void scales_late(kvb_pool_type *wrong)
{
    wrong->view = view_scales_late;
}

static void view_no_zeros(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    kvb_pool_passing.view(pool, cells, view);
    if (view->zeros)
        view->zeros = view->scales;
}

static void zeros_lost(kvb_pool_type *wrong)
{
    wrong->view = view_no_zeros;
}

static void view_no_head_scales(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    static float ones[64];
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    kvb_pool_passing.view(pool, cells, view);
    if (view->head_scales)
        view->head_scales = ones;
}

static void head_scales_lost(kvb_pool_type *wrong)
{
    wrong->view = view_no_head_scales;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static size_t bytes_without_struct(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells)
{
    return kvb_pool_passing.bytes(type, options, cells) - kvb_pool_passing.bytes(type, options, 0);
}

static void bytes_short(kvb_pool_type *wrong)
{
    wrong->bytes = bytes_without_struct;
}

static double row_and_more(const kvb_pool_type *type, uint32_t dim)
{
    return kvb_pool_passing.row_bytes(type, dim) + 64;
}

static double row_and_less(const kvb_pool_type *type, uint32_t dim)
{
    return kvb_pool_passing.row_bytes(type, dim) - 4;
}

static void row_bytes_short(kvb_pool_type *wrong)
{
    wrong->row_bytes = row_and_less;
}

static void row_bytes_long(kvb_pool_type *wrong)
{
    wrong->row_bytes = row_and_more;
}

const kvb_fault kvb_pool_faults[] = {
    {"bytes-short", "bytes() leaves out the pool's own struct", KVB_CHECK_PROTOCOL,
     "plain-decode seq f16 flash, plain-decode seq f32 witness, plain-decode-8x128 seq kivi4 flash",
     .v_pool = bytes_short},
    {"row-bytes-long", "row_bytes() counts 64 bytes that no row has", KVB_CHECK_PROTOCOL,
     "plain-decode seq f16 flash, plain-decode-8x128 seq q8_0 flash", .k_pool = row_bytes_long},
    {"row-bytes-short", "row_bytes() leaves out 4 bytes of each row", KVB_CHECK_PROTOCOL,
     "plain-decode seq f16 flash, plain-decode-8x128 seq q8_0 flash, plain-decode-8x128 seq a4g64+had flash, "
     "plain-decode-8x128 seq nvfp4 flash",
     .k_pool = row_bytes_short},
    {"rows-smaller", "every row is stored times 0.6", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode-8x128 seq q8_0 flash, plain-decode seq e4m3 reference, "
     "agent-fork-8x128 slab a4g64 openblas, plain-decode-8x128 seq kivi4 flash, agent-fork-8x128 slab kivi2 flash",
     .v_pool = rows_smaller},
    {"rows-turned", "channels are stored one place off", KVB_CHECK_BOUND,
     "plain-decode seq f16 flash, plain-decode-8x128 seq q4_0 flash", .k_pool = rows_turned},
    {"sign-lost", "the sign of one channel is lost", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode-8x128 seq a8g64 flash", .v_pool = sign_lost},
    {"rounded-to-zero", "rows are cut, not rounded", KVB_CHECK_BOUND,
     "plain-decode seq f16 flash, plain-decode seq f32 flash", .v_pool = rounded_to_zero},
    {"cut-to-bf16", "rows are cut to bf16, not rounded", KVB_CHECK_BOUND, "plain-decode seq bf16 flash",
     .k_pool = cut_to_bf16},
    {"group-smaller", "the first 32 channels are stored times 0.95", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq iq4_nl flash, plain-decode-8x128 seq nvfp4 flash, "
     "plain-decode-8x128 seq a4g64+had flash, plain-decode-8x128 seq q8_0 flash-int8",
     .v_pool = group_smaller},
    {"channel-lost", "one channel is stored as 0", KVB_CHECK_BOUND,
     "plain-decode seq bf16 flash, plain-decode-8x128 seq mxfp4 flash", .k_pool = channel_lost},
    {"last-lost", "the last row of a write is lost", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, eagle-tree tree f16 flash", .v_pool = last_lost},
    {"write-lost", "one write of fifty is lost", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, agent-fork seq f16 flash", .k_pool = write_lost},
    {"copies-lost", "rows that are to be copied are not", KVB_CHECK_BOUND,
     "agent-fork slab f32 flash, eagle-tree-8x128 tree q8_0 flash", .v_pool = copies_lost},
    {"copies-leave-v", "rows that are copied leave V behind", KVB_CHECK_WITNESS,
     "agent-fork slab f32 witness, eagle-tree tree f16 witness", .v_pool = copies_lost},
    {"copies-of-first", "rows are copied from the first one's cell", KVB_CHECK_BOUND,
     "agent-fork slab f32 flash, eagle-tree tree f16 flash", .k_pool = copies_of_first},
    {"growth-forgets", "growing loses the first row", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .v_pool = growth_forgets},
    {"growth-misplaces", "growing puts the first row into the second cell, too", KVB_CHECK_BOUND,
     "two-in-turns seq f16 flash, window-edge paged q8_0 flash", .k_pool = growth_misplaces},
    {"view-late", "rows are shown one cell late, and so what lies behind them", KVB_CHECK_CRASH,
     "plain-decode seq f32 flash, plain-decode-8x128 seq q8_0 flash", .v_pool = view_late},
    {"view-of-first-head", "the first head's rows are shown for all", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .k_pool = view_of_first_head},
    {"scales-late", "scales are shown one cell late, and so what lies behind them", KVB_CHECK_CRASH,
     "plain-decode-8x128 seq a8g64 flash, plain-decode seq int8 flash", .v_pool = scales_late},
    {"zeros-lost", "zero points are taken from the scales", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq a8g64 flash, plain-decode seq int8-asym flash", .v_pool = zeros_lost},
    {"head-scales-lost", "head scales are taken to be 1", KVB_CHECK_BOUND, "plain-decode seq e4m3-head flash",
     .k_pool = head_scales_lost},
    {.name = NULL},
};
