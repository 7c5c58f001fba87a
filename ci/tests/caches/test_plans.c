/* SPDX-License-Identifier: Apache-2.0 */
/* Shows rule 1 of caches/cache.h for every cache and every call: one plan for all layers of a step, good for its own
 * rows alone, put out of force by each control call that succeeds and by none that fails. */
#include "calls.h"

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

/* Four tokens are stored, and two pending nodes behind them (nodes); then the call is made. What succeeds puts the plan
 * out of force, what fails leaves it and all counts as they were. A cache that cannot do a call says so. */
static const struct {
    uint32_t flags; /* of caches that can do it: any of them; 0: every cache */
    bool nodes, plans;
    int want;
    call call;
} changes[] = {
    {0, false, true, 0, {.kind = EXTEND, .n = 1}},
    {0, false, true, 0, {.kind = EXTEND, .n = 12}},
    {0, false, true, 0, {.kind = STEP, .n = 2}},
    {0, false, false, 0, {.kind = CLEAR}},
    {0, false, false, -EINVAL, {.kind = EXTEND, .n = 0}},
    {0, false, false, -ENOSPC, {.kind = EXTEND, .n = 13}},
    {0, false, false, -ENOSPC, {.kind = EXTEND, .n = UINT32_MAX}},
    {KVB_CACHE_SEQ, false, true, 0, {.kind = STEP, .n = 3, .ids = {0, 63, 0}}},
    {KVB_CACHE_SEQ, false, false, -EINVAL, {.kind = STEP, .n = 2, .ids = {0, 64}}},
    {KVB_CACHE_SEQ, false, false, -ENOSPC, {.kind = STEP, .n = 4, .ids = {1, 2, 3, 4}}},
    {KVB_CACHE_SEQ, false, false, 0, {.kind = COPY, .src = 0, .dst = 1, .p1 = KVB_POS_END}},
    {KVB_CACHE_SEQ, false, false, 0, {.kind = COPY, .src = 0, .dst = 1, .p0 = 2, .p1 = 2}}, /* nothing */
    {KVB_CACHE_SEQ, false, false, 0, {.kind = COPY, .src = 0, .dst = 0, .p0 = 4, .p1 = 9}}, /* nothing */
    {KVB_CACHE_SEQ, false, false, -EINVAL, {.kind = COPY, .src = 0, .dst = 0, .p0 = 3, .p1 = 4}},
    {KVB_CACHE_SEQ, false, false, 0, {.kind = COPY, .src = 1, .dst = 0, .p1 = KVB_POS_END}}, /* nothing */
    {KVB_CACHE_SEQ, false, false, -EINVAL, {.kind = COPY, .src = 0, .dst = 64, .p1 = KVB_POS_END}},
    {KVB_CACHE_SEQ, false, false, -EINVAL, {.kind = COPY, .src = 0, .dst = 1, .p0 = 3, .p1 = 2}},
    {KVB_CACHE_SEQ, false, false, 0, {.kind = REMOVE, .src = 0, .p0 = 2, .p1 = 3}},
    {KVB_CACHE_SEQ, false, false, 0, {.kind = REMOVE, .src = 0, .p0 = 9, .p1 = 9}},  /* nothing */
    {KVB_CACHE_SEQ, false, false, 0, {.kind = REMOVE, .src = 1, .p1 = KVB_POS_END}}, /* nothing */
    {KVB_CACHE_SEQ, false, false, -EINVAL, {.kind = REMOVE, .src = 64, .p1 = KVB_POS_END}},
    {KVB_CACHE_SEQ, false, false, -EINVAL, {.kind = REMOVE, .src = 0, .p0 = 3, .p1 = 2}},
    {KVB_CACHE_SEQ, false, false, 0, {.kind = KEEP, .src = 0}},
    {KVB_CACHE_SEQ, false, false, 0, {.kind = KEEP, .src = 1}},
    {KVB_CACHE_SEQ, false, false, -EINVAL, {.kind = KEEP, .src = 64}},
    {KVB_CACHE_REORDER, false, false, 0, {.kind = REORDER, .n = 0}},
    {KVB_CACHE_REORDER, false, false, 0, {.kind = REORDER, .n = 3, .ids = {2, 0, 1}, .srcs = {0, 1, 0}}},
    {KVB_CACHE_REORDER, false, false, 0, {.kind = REORDER, .n = 1, .ids = {0}, .srcs = {1}}}, /* emptied */
    {KVB_CACHE_REORDER, false, false, -EINVAL, {.kind = REORDER, .n = 2, .ids = {1, 1}, .srcs = {0, 0}}},
    {KVB_CACHE_REORDER, false, false, -EINVAL, {.kind = REORDER, .n = 1, .ids = {64}, .srcs = {0}}},
    {KVB_CACHE_REORDER, false, false, -EINVAL, {.kind = REORDER, .n = 1, .ids = {0}, .srcs = {64}}},
    {KVB_CACHE_REORDER, false, false, -ENOSPC, {.kind = REORDER, .n = 4, .ids = {1, 2, 3, 4}}}, /* of four at most */
    {KVB_CACHE_SEQ | KVB_CACHE_REWIND, false, false, 0, {.kind = REWIND, .p0 = 2}},
    {KVB_CACHE_SEQ | KVB_CACHE_REWIND, false, false, 0, {.kind = REWIND, .p0 = 4}}, /* nothing */
    {KVB_CACHE_SEQ | KVB_CACHE_REWIND, false, false, -EINVAL, {.kind = REWIND, .p0 = 5}},
    {KVB_CACHE_TREE, false, true, 0, {.kind = PROPOSE, .n = 12, .parents = {-1, 0, 1, -1}}},
    {KVB_CACHE_TREE, false, false, -ENOSPC, {.kind = PROPOSE, .n = 13, .parents = {-1}}},
    {KVB_CACHE_TREE, false, false, -EINVAL, {.kind = PROPOSE, .n = 0}},
    {KVB_CACHE_TREE, false, false, -EINVAL, {.kind = PROPOSE, .n = 1, .parents = {0}}},
    {KVB_CACHE_TREE, false, false, 0, {.kind = COMMIT, .n = 0}},
    {KVB_CACHE_TREE, false, false, -EINVAL, {.kind = COMMIT, .n = 1}},
    {KVB_CACHE_TREE, true, true, 0, {.kind = PROPOSE, .n = 2, .parents = {1, -1}}},
    {KVB_CACHE_TREE, true, false, -EINVAL, {.kind = PROPOSE, .n = 1, .parents = {2}}},
    {KVB_CACHE_TREE, true, false, 0, {.kind = COMMIT, .n = 0}},
    {KVB_CACHE_TREE, true, false, 0, {.kind = COMMIT, .n = 1, .ids = {0}}}, /* in place */
    {KVB_CACHE_TREE, true, false, 0, {.kind = COMMIT, .n = 1, .ids = {1}}}, /* moved */
    {KVB_CACHE_TREE, true, false, -EINVAL, {.kind = COMMIT, .n = 2, .ids = {0, 1}}},
    {KVB_CACHE_TREE, true, false, -EINVAL, {.kind = COMMIT, .n = 1, .ids = {2}}},
    {KVB_CACHE_TREE, true, false, -EINVAL, {.kind = COMMIT, .n = 2, .ids = {0, 0}}},
    {KVB_CACHE_TREE, true, false, 0, {.kind = CLEAR}},
    {KVB_CACHE_TREE, true, false, -EINVAL, {.kind = EXTEND, .n = 1}},
    {KVB_CACHE_SEQ, true, false, -EINVAL, {.kind = COPY, .src = 0, .dst = 1, .p1 = KVB_POS_END}},
    {KVB_CACHE_SEQ, true, false, -EINVAL, {.kind = REMOVE, .src = 0, .p1 = KVB_POS_END}},
    {KVB_CACHE_SEQ, true, false, -EINVAL, {.kind = KEEP, .src = 0}},
    {KVB_CACHE_REORDER, true, false, -EINVAL, {.kind = REORDER, .n = 1, .ids = {1}, .srcs = {0}}},
    {KVB_CACHE_SEQ | KVB_CACHE_REWIND, true, false, -EINVAL, {.kind = REWIND, .p0 = 2}},
};

static int change_answer(const kvb_cache_type *type, size_t i)
{
    const call *c = &changes[i].call;
    bool other_ids = c->kind == STEP && c->ids[1] != 0;
    bool can = !changes[i].flags || type->flags & changes[i].flags || (c->kind == STEP && !other_ids);
    return can ? changes[i].want : -ENOTSUP;
}

static void test_stale_plans(void **state)
{
    (void)state;
    EACH_CACHE(type, 0)
    for (size_t i = 0; i < N(changes); i++) {
        static const float rows[32 * RIG_KV_HEADS * 8];
        rig r;
        kvb_attend_spec spec;
        const uint64_t *feed;
        int want = change_answer(type, i);
        if (changes[i].nodes && !(type->flags & KVB_CACHE_TREE))
            continue;
        rig_open(&r, type, 16, 16, 4, 4);
        assert_int_equal(kvb_cache_feed(r.cache, &feed), 0);
        assert_int_equal(kvb_cache_update_and_fetch(r.cache, 0, r.pos, rows, rows, 1, &spec), -EINVAL);
        assert_int_equal(rig_step(&r, NULL, 4), 0);
        rig_store(&r);
        if (changes[i].nodes)
            assert_int_equal(rig_propose(&r, PARENTS(-1, -1)), 0);
        rig_store(&r);
        const uint32_t n = kvb_cache_feed(r.cache, &feed),
                       *positions = changes[i].nodes && !(type->flags & KVB_CACHE_FORGETS) ? r.pos + 4 : r.pos;
        kvb_cache_usage before = rig_usage(&r);
        int got = cache_call(r.cache, &changes[i].call);
        if (got != want)
            print_message("# %s, change %zu: %s\n", type->name, i, kvb_cache_why(r.cache));
        assert_int_equal(got, want);
        uint32_t fed = kvb_cache_feed(r.cache, &feed);
        int again = kvb_cache_update_and_fetch(r.cache, 0, positions, rows, rows, n, &spec);
        if (again != (want ? 0 : -EINVAL))
            fail_msg("%s, change %zu: the plan before it is %s", type->name, i, again ? "lost" : "in force");
        if (want) {
            kvb_cache_usage after = rig_usage(&r);
            rig_assert_same(&before, &after);
            assert_int_equal(fed, n);
        } else {
            assert_int_equal(fed > 0, changes[i].plans);
        }
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
        cmocka_unit_test(test_stale_plans),
    };
    return cmocka_run_group_tests_name("plans of steps", tests, NULL, NULL);
}
