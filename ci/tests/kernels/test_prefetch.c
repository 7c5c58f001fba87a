/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the settings are those of the CPU's maker, unless others were set; what is prefetched in parts goes on by the
 * parts that were meant, never twice and never past the end; rows are read by the class of how they are spread.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "kernels/flash/flash.h"

/* ---- settings ---- */

/* What Linux says of the maker, not CPUID once more. */
static bool amd_here(void)
{
    char line[256];
    bool amd = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !amd && fgets(line, sizeof line, f))
        amd = strstr(line, "AuthenticAMD");
    if (f)
        fclose(f);
    return amd;
}

static void follows_the_maker(void **state)
{
    (void)state;
    assert_ptr_equal(kvb_prefetch_here(), amd_here() ? &kvb_prefetch_amd : &kvb_prefetch_intel);
}

static void others_may_be_set(void **state)
{
    const kvb_prefetch *own = kvb_prefetch_here();
    (void)state;
    kvb_prefetch_set(own == &kvb_prefetch_amd ? &kvb_prefetch_intel : &kvb_prefetch_amd);
    assert_ptr_not_equal(kvb_prefetch_here(), own);
    kvb_prefetch_set(NULL);
    assert_ptr_equal(kvb_prefetch_here(), own);
}

static void readings_are_by_spread_bytes_and_rows(void **state)
{
    (void)state;
    static kvb_prefetch p;
    static const uint32_t bytes[][2] = {{1, 128}, {129, 256}, {257, 512}, {513, 4096}},
                          rows[][2] = {{1, 1}, {2, 2}, {3, 4}, {5, 10}};
    uint32_t at = 0;
    for (kvb_spread spread = 0; spread < KVB_SPREADS; spread++)
        for (uint32_t b = 0; b < KVB_READING_SIZES; b++)
            for (uint32_t r = 0; r < KVB_READING_ROWS; r++, at++)
                for (uint32_t i = 0; i < 4; i++)
                    assert_ptr_equal(kvb_reading_of(&p, spread, bytes[b][i % 2], rows[r][i / 2]), &p.reading[at]);
}

/* A group is read by its own class, and only turns are read as far ahead as that says. */
static void a_group_is_read_as_its_rows_are_spread(void **state)
{
    (void)state;
    enum { EACH = KVB_READINGS / KVB_SPREADS };
    static kvb_prefetch p;
    static const struct {
        bool turn, neighbours;
        kvb_spread spread;
    } groups[] = {{true, true, KVB_SPREAD_LONG},     /* a long run */
                  {true, false, KVB_SPREAD_LONG},    /* in turns from several places */
                  {false, true, KVB_SPREAD_SHORT},   /* a page */
                  {false, false, KVB_SPREAD_APART}}; /* filled in steps */
    for (uint32_t i = 0; i < KVB_READINGS; i++)
        p.reading[i] = (kvb_reading){
            .ahead = 1 + i, .near = i / EACH == KVB_SPREAD_SHORT, .by_cells = i / EACH == KVB_SPREAD_APART};
    const kvb_flash flash = {.prefetch = &p};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (uint32_t rows = 1; rows <= 8; rows *= 2) {
            const kvb_side side = {.row_bytes = 256, .stride = 1000};
            const kvb_row_group group = {.n_rows = rows,
                                         .turn = groups[g].turn,
                                         .neighbours = groups[g].neighbours,
                                         .ahead = 777,
                                         .runs = 1,
                                         .run = 64};
            const kvb_reading *r = kvb_reading_of(&p, groups[g].spread, 256, rows);
            const kvb_row_ahead ahead = kvb_group_row_ahead(&flash, &group, &side, side.stride);
            assert_int_equal(ahead.bytes, (groups[g].turn ? r->ahead : 777) * side.stride);
            assert_int_equal(ahead.near, r->near);
            assert_int_equal(ahead.by_cells, r->by_cells);
        }
}

/* ---- pages ---- */

/* Rows side by side meet each page once, at the row in which it begins, and wake the page behind. */
static void each_page_is_woken_once(void **state)
{
    (void)state;
    for (size_t bytes = 64; bytes <= 2 * KVB_PAGE_BYTES / 3; bytes += 48) {
        uintptr_t woken = 5 * KVB_PAGE_BYTES;
        for (uintptr_t row = woken - bytes / 2; row < 40 * KVB_PAGE_BYTES; row += bytes) {
            const uintptr_t page = kvb_page_behind(row, bytes);
            const bool begins = (row + bytes - 1) / KVB_PAGE_BYTES != (row - 1) / KVB_PAGE_BYTES;
            assert_int_equal(page != 0, begins);
            if (page) {
                assert_int_equal(page, woken + KVB_PAGE_BYTES);
                woken = page;
            }
        }
    }
    assert_int_equal(kvb_page_behind(4096, 0), 0);
}

/* ---- lookahead ---- */

static char rows[4096];
static const uint32_t cells[16];
static const kvb_view view = {.base = rows, .cell_stride = 16, .scales = rows, .scale_cell_stride = 2};

static kvb_lookahead lookahead_of(uint32_t n, uint32_t run, bool steadily)
{
    return (kvb_lookahead){.view = &view, .cells = cells, .n = n, .run = run, .steadily = steadily};
}

static void runs_in_two_halves(void **state)
{
    kvb_lookahead next = lookahead_of(16, 4, false);
    (void)state;
    kvb_lookahead_step(&next);
    assert_int_equal(next.done, 0);
    kvb_lookahead_until(&next, 1, 2);
    assert_int_equal(next.done, 8);
    kvb_lookahead_until(&next, 2, 2);
    assert_int_equal(next.done, 16);
}

static void one_run_all_along(void **state)
{
    kvb_lookahead next = lookahead_of(1, 64, true);
    (void)state;
    for (uint32_t i = 1; i <= 4; i++) {
        kvb_lookahead_step(&next);
        assert_int_equal(next.done, 8 * i);
    }
    kvb_lookahead_until(&next, 1, 4); /* done already */
    assert_int_equal(next.done, 32);
    for (uint32_t i = 0; i < 20; i++)
        kvb_lookahead_step(&next);
    assert_int_equal(next.done, 64);
}

static void fewer_than_eight(void **state)
{
    kvb_lookahead next = lookahead_of(1, 5, true);
    (void)state;
    kvb_lookahead_step(&next);
    assert_int_equal(next.done, 0);
    kvb_lookahead_until(&next, 1, 2);
    assert_int_equal(next.done, 2);
    kvb_lookahead_until(&next, 2, 2);
    assert_int_equal(next.done, 5);
}

static void nothing_is_nothing(void **state)
{
    (void)state;
    kvb_lookahead_step(NULL);
    kvb_lookahead_until(NULL, 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_maker),
        cmocka_unit_test(others_may_be_set),
        cmocka_unit_test(readings_are_by_spread_bytes_and_rows),
        cmocka_unit_test(a_group_is_read_as_its_rows_are_spread),
        cmocka_unit_test(each_page_is_woken_once),
        cmocka_unit_test(runs_in_two_halves),
        cmocka_unit_test(one_run_all_along),
        cmocka_unit_test(fewer_than_eight),
        cmocka_unit_test(nothing_is_nothing),
    };
    return cmocka_run_group_tests_name("prefetch", tests, NULL, NULL);
}
