/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the tree face by hand-made cases: what nodes see, what a commit moves, which paths are refused. */
#include "rig.h"

#define N(array) (uint32_t)(sizeof(array) / sizeof *(array))

static uint32_t pos_of[256]; /* by ordinal; each test fills what it needs */

static void positions_set(uint32_t first_ordinal, uint32_t n, uint32_t first_pos)
{
    for (uint32_t i = 0; i < n; i++)
        pos_of[first_ordinal + i] = first_pos + i;
}

static int extend(rig *r, uint32_t n)
{
    return kvb_cache_begin_step(r->cache, NULL, n);
}

/* A tree: ancestors and prefix only; a commit closes up the accepted path. */
static void test_tree_commit(void **state)
{
    (void)state;
    const kvb_cache_type *const types[] = {&kvb_cache_recompute, &kvb_cache_tree};
    for (size_t i = 0; i < N(types); i++) {
        rig r;
        kvb_attend_spec spec;
        const int32_t first[] = {-1, -1, 0, 1}, second[] = {2, 3};
        const uint32_t path[] = {1, 3, 5}, wrong[] = {1, 2};
        const uint64_t deepest[] = {0, 1, 3, 5, 7}, after[] = {0, 1, 3, 5, 7, 8};
        bool forgets = types[i] == &kvb_cache_recompute;
        rig_open(&r, types[i], 32, 32, 1, 4);
        const kvb_tree_face *tree = kvb_cache_tree(r.cache);
        positions_set(0, 2, 0);
        memcpy(pos_of + 2, (uint32_t[]){2, 2, 3, 3, 4, 4, 5}, 7 * sizeof *pos_of);
        assert_int_equal(extend(&r, 2), 0);
        rig_store(&r, pos_of, &spec);
        assert_int_equal(tree->propose(r.cache, first, 4), 0);
        rig_store(&r, pos_of, &spec);
        assert_int_equal(tree->propose(r.cache, second, 2), 0);
        assert_int_equal(tree->pending(r.cache), 6);
        rig_assert_sees(&r, pos_of, forgets ? 8 : 2, forgets ? 7 : 1, deepest, N(deepest));
        assert_int_equal(extend(&r, 1), -EINVAL);
        assert_non_null(strstr(r.cache->why, "pending"));
        assert_int_equal(tree->commit(r.cache, wrong, 2), -EINVAL);
        assert_int_equal(tree->pending(r.cache), 6);
        assert_int_equal(tree->commit(r.cache, path, 3), 0);
        assert_int_equal(tree->pending(r.cache), 0);
        assert_int_equal(kvb_cache_length(r.cache, 0), 5);
        assert_int_equal(rig_usage(&r).cells_moved, forgets ? 0 : 3);
        assert_int_equal(rig_usage(&r).cells_live, 5);
        assert_int_equal(extend(&r, 1), 0);
        rig_assert_sees(&r, pos_of, forgets ? 6 : 1, forgets ? 5 : 0, after, N(after));
        assert_int_equal(tree->commit(r.cache, path, 1), -EINVAL); /* nothing is pending */
        rig_close(&r);
    }
}

/* A path that is in place already moves nothing; a chain needs no mask. */
static void test_tree_chain(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    const int32_t chain[] = {-1, 0, 1};
    const uint32_t path[] = {0, 1};
    rig_open(&r, &kvb_cache_tree, 32, 32, 1, 4);
    positions_set(0, 5, 0);
    assert_int_equal(extend(&r, 2), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(kvb_cache_propose(r.cache, chain, 3), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_CAUSAL);
    assert_int_equal(spec.k.cells, 5);
    assert_int_equal(kvb_cache_commit(r.cache, path, 2), 0);
    assert_int_equal(rig_usage(&r).cells_moved, 0);
    assert_int_equal(kvb_cache_propose(r.cache, chain, 1), 0);
    pos_of[5] = 4;
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_NONE);
    assert_int_equal(kvb_cache_commit(r.cache, NULL, 0), 0);
    assert_int_equal(kvb_cache_length(r.cache, 0), 4);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tree_commit), cmocka_unit_test(test_tree_chain)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
