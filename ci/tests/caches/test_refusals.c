/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows what calls without their arrays, rows that no pool takes, and an open that memory fails half-way are answered:
 * an error in words, and nothing held; and what an empty cache holds.
 */
#include "rig.h"
#include "caches/call.h"
#include "caches/store.h"

static void refused(const kvb_cache *cache, int got, int want, const char *words)
{
    assert_int_equal(got, want);
    assert_non_null(strstr(kvb_cache_why(cache), words));
}

static void arrays_must_be_given(void **state)
{
    (void)state;
    static rig r;
    rig_open(&r, &kvb_cache_tree, 16, 16, 1, 4);
    refused(r.cache, kvb_cache_propose(r.cache, NULL, NULL, 2), -EINVAL, "parents must be given");
    assert_int_equal(rig_propose(&r, (const int32_t[]){-1, 0}, 2), 0);
    refused(r.cache, kvb_cache_commit(r.cache, 0, NULL, 1), -EINVAL, "accepted nodes must be given");
    refused(r.cache, kvb_cache_begin_step(r.cache, NULL, 1), -EINVAL,
            "2 nodes of sequence 0 are pending: commit first");
    refused(r.cache, kvb_cache_propose(r.cache, NULL, (const int32_t[]){2}, 1), -EINVAL,
            "parent 2 of node 2 is not an earlier node of sequence 0");
    assert_int_equal(kvb_cache_commit(r.cache, 0, NULL, 0), 0);
    rig_close(&r);
    rig_open(&r, &kvb_cache_seq, 16, 16, 1, 4);
    refused(r.cache, kvb_cache_seq_reorder(r.cache, NULL, (const uint32_t[]){0}, 1), -EINVAL, "must be given");
    refused(r.cache, kvb_cache_seq_reorder(r.cache, (const uint32_t[]){0}, NULL, 1), -EINVAL, "must be given");
    refused(r.cache, kvb_cache_seq_reorder(r.cache, (const uint32_t[]){0, 0}, (const uint32_t[]){0, 0}, 2), -EINVAL,
            "sequence 0 is named twice as a destination");
    assert_int_equal(kvb_cache_seq_reorder(r.cache, NULL, NULL, 0), 0);
    rig_close(&r);
}

static int open_with(kvb_allocator *a, const kvb_cache_type *type, const char *pool, kvb_cache **cache, char *why,
                     size_t n)
{
    static const kvb_model model = {
        .n_layers = 1,
        .n_groups = 1,
        .groups = {{.heads = 2, .kv_heads = 1, .k_dim = 48, .v_dim = 40, .scale = 1, .window = 4}}};
    const kvb_pool_type *const *v = kvb_builtin_pools;
    while (strcmp((*v)->name, pool) != 0)
        v++;
    const kvb_cache_options options = {.capacity = 8,
                                       .seq_capacity = 8,
                                       .max_seqs = 2,
                                       .min_chunk = 4,
                                       .k_pool = kvb_builtin_pools[0],
                                       .v_pool = *v,
                                       .allocator = a};
    return kvb_cache_open(type, &model, &options, cache, why, n);
}

static void rows_must_fit(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_cache *cache = NULL;
    char why[200] = "";
    assert_int_equal(open_with(&a, &kvb_cache_seq, "q8_0", &cache, why, sizeof why),
                     -ENOTSUP); /* 40 is no multiple of 32 */
    assert_non_null(strstr(why, "32"));
    assert_null(cache);
    assert_true(a.requests == 0);
}

static void an_open_may_fail_anywhere(void **state)
{
    (void)state;
    EACH_CACHE(type, 0)
    {
        int error = -ENOMEM;
        for (uint64_t fail = 1; error; fail++) {
            kvb_allocator a = {.fail_request = fail};
            kvb_cache *cache = NULL;
            char why[200] = "";
            error = open_with(&a, type, "f32", &cache, why, sizeof why);
            assert_true(error == 0 || (error == -ENOMEM && *why));
            kvb_cache_close(cache);
            assert_true(a.current_bytes == 0);
        }
    }
}

static int unable(kvb_store *s)
{
    return kvb_store_fail(s, -ENODEV, "not today");
}

/* A cache of a plug-in has an open() of its own. */
static void an_open_may_decline(void **state)
{
    (void)state;
    kvb_cache_type type = kvb_cache_contiguous;
    kvb_allocator a = {0};
    kvb_cache *cache = NULL;
    char why[200] = "";
    type.open = unable;
    assert_int_equal(open_with(&a, &type, "f32", &cache, why, sizeof why), -ENODEV);
    assert_string_equal(why, "not today");
    assert_true(!cache && a.current_bytes == 0);
}

/* An empty cache holds its own structs and those of its pools, and nothing else where no cell is preallocated. */
static void structs_are_counted(void **state)
{
    (void)state;
    const kvb_pool_type *f32 = kvb_builtin_pools[0];
    const kvb_pool_options o = {.n_kv_heads = 1, .dim = 1, .min_chunk = 1, .capacity = 1};
    EACH_CACHE(type, 0)
    {
        rig r;
        rig_open(&r, type, 16, 16, 1, 4);
        size_t pools = 2 * RIG_LAYERS * f32->bytes(f32, &o, 0), all = kvb_cache_struct_bytes(type, &r.model) + pools;
        assert_true(r.allocator.current_bytes > all); /* tables by sequence id */
        rig_close(&r);
    }
}

static void staged_rows_are_read_as_they_lie(void **state)
{
    (void)state;
    static const float rows[2][3][2] = {{{1, 2}, {3, 4}, {5, 6}}, {{7, 8}, {9, 10}, {11, 12}}};
    const kvb_view view = {.base = rows,
                           .head_stride = sizeof rows[0],
                           .cell_stride = sizeof rows[0][0],
                           .cells = 3,
                           .dim = 2,
                           .format = &kvb_format_staged};
    float got[4];
    kvb_format_staged.read(&view, 1, 1, 2, got);
    assert_memory_equal(got, rows[1][1], sizeof got);
}

static void what_a_cache_can_do_is_said(void **state)
{
    (void)state;
    char can[200], few[12];
    assert_null(
        kvb_cache_lacks(&kvb_cache_seq, KVB_CACHE_TREE | KVB_CACHE_SHIFT | KVB_CACHE_REWIND)); /* by sequences */
    assert_string_equal(kvb_cache_lacks(&kvb_cache_slab, KVB_CACHE_EXACT | KVB_CACHE_TREE), "propose and commit");
    kvb_cache_can(&kvb_cache_tree, can, sizeof can);
    assert_string_equal(can, ", draft trees, rewind, save and load");
    kvb_cache_can(&kvb_cache_tree, few, sizeof few);
    assert_string_equal(few, ", draft tre");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_cache_can_do_is_said),
        cmocka_unit_test(arrays_must_be_given),
        cmocka_unit_test(rows_must_fit),
        cmocka_unit_test(an_open_may_fail_anywhere),
        cmocka_unit_test(an_open_may_decline),
        cmocka_unit_test(structs_are_counted),
        cmocka_unit_test(staged_rows_are_read_as_they_lie),
    };
    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
