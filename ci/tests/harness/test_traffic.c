/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that unique cells and (query, cell) pairs are counted exactly, for every kind of mask. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness/replay/meter.h"

static uint64_t seen[8];

static void count(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t unique, uint64_t pairs)
{
    kvb_traffic t;
    kvb_traffic_count(mask, n_tok, n_cells, seen, &t);
    assert_int_equal(t.unique_cells, unique);
    assert_int_equal(t.pairs, pairs);
}

static void none_and_causal(void **state)
{
    (void)state;
    count(&(kvb_mask){.kind = KVB_MASK_NONE}, 3, 130, 130, 3 * 130);
    count(&(kvb_mask){.kind = KVB_MASK_NONE}, 1, 64, 64, 64);
    count(&(kvb_mask){.kind = KVB_MASK_CAUSAL}, 4, 100, 100, 97 + 98 + 99 + 100);
    count(&(kvb_mask){.kind = KVB_MASK_CAUSAL}, 4, 4, 4, 1 + 2 + 3 + 4);
}

static void runs_overlap(void **state)
{
    (void)state;
    const uint32_t start[] = {0, 2, 3, 3};
    const kvb_run runs[] = {{0, 10}, {60, 70}, {5, 66}}; /* union 0..70; the third query sees nothing */
    count(&(kvb_mask){.kind = KVB_MASK_RUNS, .row_start = start, .runs = runs}, 3, 200, 70, 20 + 61);
}

static void explicit_bits(void **state)
{
    (void)state;
    const uint64_t bits[] = {0x5, 0x1, 0x4, ~(uint64_t)0}; /* two queries, two words each, 70 cells */
    count(&(kvb_mask){.kind = KVB_MASK_EXPLICIT, .bits = bits, .row_words = 2}, 2, 70, 2 + 6, 3 + 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_and_causal),
        cmocka_unit_test(runs_overlap),
        cmocka_unit_test(explicit_bits),
    };
    return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
