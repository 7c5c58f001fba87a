/* SPDX-License-Identifier: Apache-2.0 */
/* Shows rule 1 of caches/cache.h for every cache: one plan for all layers of a step, good for its own rows alone; which
 * calls put it out of force: test_random. And what caches can do, and that they refuse what they cannot. */
#include "rig.h"

/* For all layers, in any order and again; its arrays stay where they are. */
static void test_one_plan(void **state)
{
    (void)state;
    EACH_CACHE(type, 0)
    {
        rig r;
        kvb_attend_spec a, b;
        const uint64_t *before, *after;
        rig_open(&r, type, 32, 32, 4, 4);
        assert_int_equal(rig_step(&r, NULL, 5), 0);
        assert_int_equal(kvb_cache_feed(r.cache, &before), 5);
        assert_int_equal(rig_fetch(&r, 2, r.pos, &a), 0);
        rig_store(&r);
        assert_int_equal(rig_fetch(&r, 2, r.pos, &b), 0);
        assert_int_equal(kvb_cache_feed(r.cache, &after), 5);
        assert_ptr_equal(before, after);
        assert_ptr_equal(a.k.base, b.k.base);
        assert_int_equal(a.mask.kind, b.mask.kind);
        assert_true(a.mask.row_start == b.mask.row_start && a.mask.runs == b.mask.runs && a.mask.bits == b.mask.bits);
        assert_int_equal(a.generation, b.generation);
        assert_int_equal(rig_usage(&r).cells_written, 5);
        rig_close(&r);
    }
}

static void test_rows_are_the_plans(void **state)
{
    (void)state;
    static const float rows[64];
    static const uint32_t good[] = {0, 1}, bad[] = {0, 2};
    static const struct {
        uint32_t layer, n;
        const uint32_t *positions;
        const float *k, *v;
        const char *why;
    } calls[] = {
        {RIG_LAYERS, 2, good, rows, rows, "layer 3"},  {0, 1, good, rows, rows, "1 tokens are given"},
        {0, 2, bad, rows, rows, "position 2"},         {0, 2, NULL, rows, rows, "must be given"},
        {0, 2, good, NULL, rows, "must be given"},     {0, 2, good, rows, NULL, "V rows of layer 0"},
        {1, 2, good, rows, rows, "layer 1 is latent"},
    };
    EACH_CACHE(type, 0)
    {
        rig r = {.n_groups = 2, .groups = {{.window = 9}, {.latent = true}}};
        assert_int_equal(rig_try_open(&r, type, 32, 32, 4, 4), 0);
        assert_int_equal(rig_step(&r, NULL, 2), 0);
        for (size_t i = 0; i < N(calls); i++) {
            kvb_attend_spec spec;
            int error = kvb_cache_update_and_fetch(r.cache, calls[i].layer, calls[i].positions, calls[i].k, calls[i].v,
                                                   calls[i].n, &spec);
            assert_int_equal(error, -EINVAL);
            assert_non_null(strstr(kvb_cache_why(r.cache), calls[i].why));
        }
        rig_sees(&r, 1, TOKENS(0, 1));
        rig_close(&r);
    }
}

static int call_make(kvb_cache *c, uint32_t which)
{
    static const uint32_t zero[] = {0}, one[] = {1};
    static const int32_t root[] = {-1};
    const uint64_t *ordinals;
    uint32_t found;
    switch (which) {
    case 0:
        return kvb_cache_begin_step(c, one, 1);
    case 1:
        return kvb_cache_seq_cp(c, 0, 1, 0, 2);
    case 2:
        return kvb_cache_seq_rm(c, 0, 0, 2);
    case 3:
        return kvb_cache_seq_keep(c, 0);
    case 4:
        return kvb_cache_rewind(c, 2);
    case 5:
        return kvb_cache_seq_reorder(c, one, zero, 1);
    case 6:
        return kvb_cache_propose(c, zero, root, 1);
    case 7:
        return kvb_cache_commit(c, 0, NULL, 0);
    default:
        return kvb_cache_seq_match(c, 1, root, 1, 0, &found, &ordinals);
    }
}

/* A call that a cache lacks is refused, and leaves the plan in force. */
static void test_what_a_cache_lacks(void **state)
{
    static const uint32_t needs[] = {
        KVB_CACHE_SEQ,     KVB_CACHE_SEQ,  KVB_CACHE_SEQ,  KVB_CACHE_SEQ,   KVB_CACHE_SEQ | KVB_CACHE_REWIND,
        KVB_CACHE_REORDER, KVB_CACHE_TREE, KVB_CACHE_TREE, KVB_CACHE_PREFIX};
    (void)state;
    EACH_CACHE(type, 0)
    for (uint32_t which = 0; which < N(needs); which++) {
        const bool can = type->flags & needs[which];
        const uint64_t *feed;
        rig r;
        rig_open(&r, type, 16, 16, 4, 4);
        assert_int_equal(rig_step(&r, NULL, 4), 0);
        assert_int_equal(call_make(r.cache, which), can ? 0 : -ENOTSUP);
        assert_true(can || (kvb_cache_why(r.cache)[0] && kvb_cache_feed(r.cache, &feed) == 4));
        assert_true(type->flags & KVB_CACHE_TREE || !kvb_cache_can_propose(r.cache, NULL, 1));
        rig_close(&r);
    }
}

/* What differs from cache to cache is what they can do. */
static void test_caches(void **state)
{
    (void)state;
    enum {
        S = KVB_CACHE_SEQ | KVB_CACHE_REORDER,
        T = KVB_CACHE_TREE,
        R = KVB_CACHE_REWIND,
        E = KVB_CACHE_EXACT,
        P = KVB_CACHE_SHIFT,
        V = KVB_CACHE_SAVES
    };
    static const struct {
        const kvb_cache_type *type;
        const char *name;
        uint32_t flags;
    } want[] = {
        {&kvb_cache_recompute, "recompute", S | T | E | KVB_CACHE_FORGETS | V},
        {&kvb_cache_slab, "slab", S | P | KVB_CACHE_PREALLOCATES | V},
        {&kvb_cache_contiguous, "contiguous", R | E | V},
        {&kvb_cache_seq, "seq", S | T | E | P | KVB_CACHE_DIVIDE | V},
        {&kvb_cache_window, "window", S | T | P | V},
        {&kvb_cache_paged, "paged", S | T | V | KVB_CACHE_PAGES},
        {&kvb_cache_paged_prefix, "paged-prefix", S | KVB_CACHE_PREFIX | V | KVB_CACHE_PAGES},
        {&kvb_cache_shared_prefix, "shared-prefix", KVB_CACHE_SEQ | KVB_CACHE_FREEZES},
        {&kvb_cache_tree, "tree", T | R | E | V},
    };
    for (size_t i = 0; i < N(want); i++) {
        assert_ptr_equal(kvb_builtin_caches[i], want[i].type);
        assert_string_equal(want[i].type->name, want[i].name);
        assert_int_equal(want[i].type->flags, want[i].flags);
    }
    assert_null(kvb_builtin_caches[N(want)]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_caches),
        cmocka_unit_test(test_one_plan),
        cmocka_unit_test(test_rows_are_the_plans),
        cmocka_unit_test(test_what_a_cache_lacks),
    };
    return cmocka_run_group_tests_name("plans of steps", tests, NULL, NULL);
}
