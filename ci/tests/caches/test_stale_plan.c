/* SPDX-License-Identifier: Apache-2.0 */
/* Shows rule 1: after each control call that takes effect, the plan made before it is refused. */
#include "rig.h"

static const uint32_t zero_id[1] = {0};

static int call_clear(kvb_cache *c)
{
    return kvb_cache_clear(c);
}
static int call_begin(kvb_cache *c)
{
    return kvb_cache_begin_step(c, NULL, 1);
}
static int call_seq_begin(kvb_cache *c)
{
    return kvb_cache_type_of(c)->flags & KVB_CACHE_SEQ ? kvb_cache_begin_step(c, zero_id, 1) : -ENOSYS;
}
static int call_cp(kvb_cache *c)
{
    return kvb_cache_type_of(c)->flags & KVB_CACHE_SEQ ? kvb_cache_seq_cp(c, 0, 1, 0, KVB_POS_END) : -ENOSYS;
}
static int call_rm(kvb_cache *c)
{
    return kvb_cache_type_of(c)->flags & KVB_CACHE_SEQ ? kvb_cache_seq_rm(c, 0, 2, KVB_POS_END) : -ENOSYS;
}
static int call_keep(kvb_cache *c)
{
    return kvb_cache_type_of(c)->flags & KVB_CACHE_SEQ ? kvb_cache_seq_keep(c, 0) : -ENOSYS;
}
static int call_rewind(kvb_cache *c)
{
    return kvb_cache_type_of(c)->flags & (KVB_CACHE_REWIND | KVB_CACHE_SEQ) ? kvb_cache_rewind(c, 2) : -ENOSYS;
}
static int call_propose(kvb_cache *c)
{
    const int32_t parents[1] = {-1};
    return kvb_cache_type_of(c)->flags & KVB_CACHE_TREE ? kvb_cache_propose(c, parents, 1) : -ENOSYS;
}
static int call_commit(kvb_cache *c)
{
    return kvb_cache_type_of(c)->flags & KVB_CACHE_TREE ? kvb_cache_commit(c, NULL, 0) : -ENOSYS;
}

static const struct {
    const char *name;
    int (*call)(kvb_cache *cache); /* -ENOSYS: the cache lacks the face */
    bool plans;                    /* it makes a plan of its own */
} calls[] = {
    {"clear", call_clear, false},   {"begin_step", call_begin, true}, {"seq begin_step", call_seq_begin, true},
    {"seq_cp", call_cp, false},     {"seq_rm", call_rm, false},       {"seq_keep", call_keep, false},
    {"rewind", call_rewind, false}, {"propose", call_propose, true},  {"commit", call_commit, false},
};

/* The arguments of the step before are handed in again after the call. */
static void test_stale(void **state)
{
    (void)state;
    static const float rows[4 * RIG_KV_HEADS * RIG_K_DIM];
    const uint32_t positions[] = {0, 1, 2, 3};
    for (const kvb_cache_type *const *type = kvb_builtin_caches; *type; type++) {
        uint32_t done = 0;
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            rig r;
            kvb_attend_spec spec;
            const uint64_t *feed;
            rig_open(&r, *type, 32, 32, 4, 4);
            const kvb_byte_face *bytes = kvb_cache_bytes(r.cache);
            assert_int_equal(bytes->update_and_fetch(r.cache, 0, positions, rows, rows, 4, &spec), -EINVAL);
            assert_int_equal(kvb_cache_begin_step(r.cache, NULL, 4), 0);
            assert_int_equal(bytes->update_and_fetch(r.cache, 0, positions, rows, rows, 4, &spec), 0);
            int error = calls[i].call(r.cache);
            if (error != -ENOSYS) {
                assert_int_equal(error, 0);
                error = bytes->update_and_fetch(r.cache, 1, positions, rows, rows, 4, &spec);
                if (error != -EINVAL)
                    print_message("# %s survives %s\n", (*type)->name, calls[i].name);
                assert_int_equal(error, -EINVAL);
                assert_int_equal(bytes->feed(r.cache, &feed) > 0, calls[i].plans);
                done++;
            }
            rig_close(&r);
        }
        assert_true(done >= 3);
    }
}

/* A commit with accepted nodes, in place and moved, likewise. */
static void test_stale_after_commit(void **state)
{
    (void)state;
    const kvb_cache_type *const types[] = {&kvb_cache_recompute, &kvb_cache_tree};
    const int32_t parents[] = {-1, -1};
    const uint32_t pos_of[] = {0, 0};
    for (uint32_t i = 0; i < 4; i++) {
        rig r;
        kvb_attend_spec spec;
        const uint64_t *feed;
        const uint32_t accepted[] = {i / 2};
        static const float rows[2 * RIG_KV_HEADS * RIG_K_DIM];
        rig_open(&r, types[i % 2], 8, 8, 1, 4);
        assert_int_equal(kvb_cache_propose(r.cache, parents, 2), 0);
        rig_store(&r, pos_of, &spec);
        assert_int_equal(kvb_cache_commit(r.cache, accepted, 1), 0);
        assert_int_equal(kvb_cache_feed(r.cache, &feed), 0);
        assert_int_equal(kvb_cache_update_and_fetch(r.cache, 0, pos_of, rows, rows, 2, &spec), -EINVAL);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stale), cmocka_unit_test(test_stale_after_commit)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("stale plans", tests, NULL, NULL);
}
