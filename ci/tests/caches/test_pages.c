/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: cache paged shares pages, copies a shared one before writing it, frees what nobody holds, and refuses what
 * finds none. */
#include "rig.h"

/* A fork of pages takes none. Who writes a page that another one holds, too, takes a copy of what is its own there, and
 * the last to hold it writes it as it is. */
static void pages_are_shared_until_written(void **state)
{
    (void)state;
    rig r = {.page_cells = 4};
    assert_int_equal(rig_try_open(&r, &kvb_cache_paged, 32, 32, 3, 4), 0);
    assert_int_equal(rig_step(&r, NULL, 6), 0); /* pages 0 and 1, the latter half empty */
    rig_store(&r);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, KVB_POS_END), 0);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 2, 0, 5), 0);
    assert_int_equal(rig_usage(&r).cells_live, 8);
    assert_int_equal(rig_step(&r, IDS(0, 1, 2)), 0);
    rig_sees(&r, 0, TOKENS(0, 1, 2, 3, 4, 5, 6));
    rig_sees(&r, 1, TOKENS(0, 1, 2, 3, 4, 5, 7));
    rig_sees(&r, 2, TOKENS(0, 1, 2, 3, 4, 8));
    assert_int_equal(rig_usage(&r).cells_live, 16); /* sequence 2 writes page 1 itself */
    assert_int_equal(rig_usage(&r).cells_moved, 2 + 2);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 0, KVB_POS_END), 0);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 2, 0, 4), 0);
    assert_int_equal(rig_usage(&r).cells_live, 12); /* page 0 is sequence 1's alone */
    assert_int_equal(rig_step(&r, IDS(2, 1)), 0);
    rig_sees(&r, 0, TOKENS(4, 8, 9)); /* with a hole: runs */
    rig_sees(&r, 1, TOKENS(0, 1, 2, 3, 4, 5, 7, 10));
    assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 0, KVB_POS_END), 0);
    assert_int_equal(rig_usage(&r).cells_live, 4);
    rig_close(&r);
}

/* Is refused for want of a page, and has changed nothing: counts, lengths, and the plan in force, which sees what it
 * saw. */
static void unchanged_check(rig *r, int got, const kvb_cache_usage *before, uint32_t length, uint32_t fed)
{
    const kvb_cache_usage after = rig_usage(r);
    const uint64_t *feed;
    assert_int_equal(got, -ENOSPC);
    rig_assert_same(before, &after);
    assert_int_equal(kvb_cache_length(r->cache, 0), length);
    assert_int_equal(kvb_cache_feed(r->cache, &feed), fed);
}

/* 3 pages of 4 cells and two for each of 2 sequences. What finds no page is refused whole. */
static void no_page_is_free(void **state)
{
    (void)state;
    EACH_CACHE(type, 0)
    {
        rig r = {.page_cells = 4};
        if (type != &kvb_cache_paged && type != &kvb_cache_paged_prefix)
            continue;
        assert_int_equal(rig_try_open(&r, type, 12, 32, 2, 4), 0);
        assert_int_equal(rig_step(&r, NULL, 26), 0); /* 7 pages: all */
        rig_store(&r);
        assert_true(kvb_cache_can_extend(r.cache, NULL, 2) && !kvb_cache_can_extend(r.cache, NULL, 3));
        kvb_cache_usage before = rig_usage(&r);
        unchanged_check(&r, kvb_cache_begin_step(r.cache, NULL, 3), &before, 26, 26);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, KVB_POS_END), 0); /* takes none */
        assert_false(kvb_cache_can_extend(r.cache, NULL, 1));                 /* a copy of the last page */
        before = rig_usage(&r);
        unchanged_check(&r, kvb_cache_begin_step(r.cache, NULL, 1), &before, 26, 0);
        assert_non_null(strstr(kvb_cache_why(r.cache), "no room"));
        assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 24, KVB_POS_END), 0);
        assert_int_equal(rig_usage(&r).cells_live, 28);
        assert_int_equal(rig_step(&r, IDS(1)), 0); /* its own again */
        assert_int_equal(rig_usage(&r).cells_moved, 0);
        assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 3, 5), 0);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 3, 5), 0); /* into the pages that both name */
        assert_int_equal(rig_usage(&r).cells_live, 28);
        rig_close(&r);
        /* a copy into a page that another one names, too */
        assert_int_equal(rig_try_open(&r, type, 12, 32, 3, 4), 0); /* nine */
        r.next = 0;
        assert_int_equal(rig_step(&r, IDS(1, 1)), 0);
        rig_store(&r);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 1, 2, 0, KVB_POS_END), 0);
        assert_int_equal(rig_step(&r, NULL, 32), 0);
        rig_store(&r);
        before = rig_usage(&r);
        unchanged_check(&r, kvb_cache_seq_cp(r.cache, 0, 1, 2, 4), &before, 32, 32);
        assert_int_equal(kvb_cache_length(r.cache, 1), 2);
        rig_close(&r);
    }
}

/* Behind a window whole pages go, but not that of the first tokens; pools are bounded by what is kept. */
static void pages_behind_a_window_go(void **state)
{
    (void)state;
    rig r = {.page_cells = 4, .rollback = 1, .step = 2, .n_groups = 1, .groups = {{.window = 6, .sinks = 1}}};
    assert_int_equal(rig_try_open(&r, &kvb_cache_paged, 400, 400, 2, 4), 0);
    assert_int_equal(rig_step(&r, NULL, 8), 0);
    rig_store(&r);
    for (uint32_t pos = 8; pos < 14; pos++) {
        assert_int_equal(rig_step(&r, NULL, 1), 0);
        rig_store(&r);
    }
    assert_int_equal(rig_usage(&r).cells_live, 4 * 4); /* query 13, or 12 again, needs 0 and 7 .. 13: page 1 yet */
    rig_sees(&r, 0, TOKENS(0, 8, 9, 10, 11, 12, 13));
    assert_int_equal(rig_step(&r, NULL, 1), 0);
    assert_int_equal(rig_usage(&r).cells_live, 3 * 4);
    assert_int_equal(kvb_cache_rewind(r.cache, 13), 0);
    assert_int_equal(kvb_cache_rewind(r.cache, 12), -ENOTSUP); /* would see 7 */
    assert_int_equal(rig_usage(&r).cells_live, 3 * 4);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, KVB_POS_END), 0); /* what is there of it */
    assert_int_equal(rig_step(&r, IDS(1, 0)), 0);
    rig_sees(&r, 0, TOKENS(0, 8, 9, 10, 11, 12, 15));
    for (uint32_t pos = 14; pos < 300; pos++) /* 2 sequences of 1 + 3 pages, and a step of 2 tokens: 10 pages */
        assert_int_equal(rig_step(&r, IDS(1, 0)), 0);
    assert_true(rig_usage(&r).high_water <= 10 * 4);
    rig_close(&r);
}

static void more_cells_than_have_numbers(void **state)
{
    (void)state;
    rig r = {.page_cells = 256};
    assert_int_equal(rig_try_open(&r, &kvb_cache_paged, UINT32_MAX, 32, 64, 4), -EINVAL);
    assert_int_equal(r.allocator.current_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_cells_than_have_numbers),
                                       cmocka_unit_test(pages_are_shared_until_written),
                                       cmocka_unit_test(pages_behind_a_window_go), cmocka_unit_test(no_page_is_free)};
    return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
