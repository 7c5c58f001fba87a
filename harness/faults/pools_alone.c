/* SPDX-License-Identifier: Apache-2.0 */
/* Pools that are wrong in what few workloads meet: values, sizes, saving. Caught where a pool is judged by itself. */
#include "harness/faults/fault.h"

#include <math.h>
#include <string.h>

/* Floats that lie half-way between two bf16. */
static void row_ties_up(float *row)
{
    for (uint32_t c = 0; c < kvb_fault_dim; c++) {
        uint32_t bits;
        memcpy(&bits, &row[c], sizeof bits);
        bits += (bits & 0xffff) == 0x8000;
        memcpy(&row[c], &bits, sizeof bits);
    }
}

static void ties_up(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_ties_up);
}

static void row_plus_zero(float *row)
{
    for (uint32_t c = 0; c < kvb_fault_dim; c++)
        row[c] = row[c] == 0 ? 0 : row[c];
}

static void minus_zero_lost(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_plus_zero);
}

static void row_no_subnormals(float *row)
{
    for (uint32_t c = 0; c < kvb_fault_dim; c++)
        row[c] = fabsf(row[c]) < 0x1p-14f ? copysignf(0, row[c]) : row[c];
}

static void subnormals_lost(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_no_subnormals);
}

static void row_no_nans(float *row)
{
    for (uint32_t c = 0; c < kvb_fault_dim; c++)
        row[c] = isnan(row[c]) ? 0 : row[c];
}

static void nans_lost(kvb_pool_type *wrong)
{
    kvb_fault_rows(wrong, row_no_nans);
}

/* Codes of e5m2 for what is too large. */
static void cell_overflow(kvb_pool *pool, uint32_t cell, const float *rows)
{
    kvb_view v;
    kvb_pool_passing.view(pool, cell + 1, &v);
    for (uint32_t h = 0; h < kvb_fault_heads; h++, rows += kvb_fault_dim) {
        unsigned char *codes = (unsigned char *)(uintptr_t)kvb_view_row(&v, h, cell);
        for (uint32_t c = 0; c < kvb_fault_dim; c++)
            if (fabsf(rows[c]) > 57344)
                codes[c] = signbit(rows[c]) ? 0xfc : 0x7c;
    }
}

static void run_overflows(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    kvb_pool_passing.write_run(pool, start, n, rows);
    for (uint32_t i = 0; i < n; i++)
        cell_overflow(pool, start + i, rows + (size_t)i * kvb_fault_heads * kvb_fault_dim);
}

static void saturates_to_infinity(kvb_pool_type *wrong)
{
    wrong->write_run = run_overflows;
}

static int ensure_misplaced(kvb_pool *pool, uint32_t cells)
{
    static const uint32_t second = 1;
    uint64_t growths = pool->growths;
    int error = kvb_pool_passing.ensure(pool, cells);
    if (!error && pool->growths > growths && growths)
        kvb_pool_passing.gather_into(pool, 0, &second, 1);
    return error;
}

static void growth_misplaces(kvb_pool_type *wrong)
{
    wrong->ensure = ensure_misplaced;
}

static void view_rounded(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    kvb_pool_passing.view(pool, cells, view);
    view->cell_stride = (view->cell_stride + 15) / 16 * 16;
}

static void rows_rounded_up(kvb_pool_type *wrong)
{
    wrong->view = view_rounded;
}

static size_t bytes_of_rows(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells)
{
    return kvb_pool_passing.bytes(type, options, cells) - 8;
}

static void bytes_too_few(kvb_pool_type *wrong)
{
    wrong->bytes = bytes_of_rows;
}

static void raw_but_last(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw)
{
    kvb_pool_passing.write_raw(pool, cells, n - 1, raw);
}

static void loads_but_last(kvb_pool_type *wrong)
{
    wrong->write_raw = raw_but_last;
}

static void scatter_next(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    for (uint32_t i = 0; i < n; i++) /* all of one write_run, as if they were neighbours */
        kvb_pool_passing.scatter(pool, cells, 1, rows + (size_t)i * kvb_fault_heads * kvb_fault_dim);
}

static void scatter_to_first(kvb_pool_type *wrong)
{
    wrong->scatter = scatter_next;
}

const kvb_fault kvb_alone_faults[] = {
    {"ties-up", "what lies half-way between two numbers is rounded away from zero", KVB_CHECK_POOL,
     "plain-decode seq bf16 flash", .k_pool = ties_up},
    {"minus-zero-lost", "-0 is stored as 0", KVB_CHECK_POOL,
     "plain-decode seq f16 flash, plain-decode seq e4m3 flash, plain-decode-8x128 seq mxfp4 flash",
     .k_pool = minus_zero_lost},
    {"subnormals-lost", "subnormals are stored as 0", KVB_CHECK_POOL,
     "plain-decode seq f16 flash, plain-decode seq e5m2 flash", .k_pool = subnormals_lost},
    {"nans-lost", "NaN is stored as 0 by a format that has NaN", KVB_CHECK_POOL, "plain-decode seq e4m3 flash",
     .k_pool = nans_lost},
    {"saturates-to-infinity", "what is too large becomes infinity where the format's largest is due", KVB_CHECK_POOL,
     "plain-decode seq e5m2 flash", .k_pool = saturates_to_infinity},
    {"growth-misplaces", "growing moves the second row to the first one's place", KVB_CHECK_POOL,
     "plain-decode seq f32 flash, plain-decode-8x128 seq a4g32 flash", .k_pool = growth_misplaces},
    {"rows-rounded-up", "rows are taken to lie at multiples of 16 bytes", KVB_CHECK_POOL, "plain-decode seq e4m3 flash",
     .k_pool = rows_rounded_up},
    {"bytes-too-few", "bytes() leaves out a pointer", KVB_CHECK_POOL,
     "plain-decode seq f32 flash, plain-decode-8x128 seq kivi4 flash", .k_pool = bytes_too_few},
    {"loads-but-last", "loading loses the last cell", KVB_CHECK_POOL,
     "plain-decode seq f32 flash, plain-decode-8x128 seq kivi4 flash", .k_pool = loads_but_last},
    {"scatter-to-first", "scatter stores all rows in the first one's cell", KVB_CHECK_POOL,
     "plain-decode seq int8 flash, plain-decode-8x128 seq tq4 flash", .k_pool = scatter_to_first},
    {.name = NULL},
};
