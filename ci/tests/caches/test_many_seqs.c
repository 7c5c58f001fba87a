/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that caches hold up to 4096 sequences: ids up to the last one and none beyond it, all alive at once in one
 * step, thousands forked; what a query sees is its own sequence's.
 */
#include "rig.h"

enum { SEQS = KVB_MAX_SEQS };

static uint32_t pos[4 * SEQS]; /* by ordinal */

/* Each of m sequences gets a token, and sees what it then holds: n tokens, ascending. tokens: [SEQS][n] */
static void step_check(rig *r, const uint32_t *ids, uint32_t m, const uint64_t *tokens, uint32_t n)
{
    uint64_t seen[8];
    assert_int_equal(kvb_cache_begin_step(r->cache, ids, m), 0);
    for (uint32_t i = 0; i < m; i++)
        pos[(n - 1) * SEQS + i] = n - 1;
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        const uint64_t *feed;
        const uint32_t fed = kvb_cache_feed(r->cache, &feed);
        kvb_attend_spec spec;
        assert_int_equal(rig_fetch(r, layer, pos, &spec), 0);
        for (uint32_t q = layer; q < m; q += 137) {
            assert_int_equal(rig_seen(r, &spec, layer, pos, fed, fed - m + q, seen), n);
            assert_memory_equal(seen, tokens + ids[q] * n, n * sizeof *seen);
        }
    }
    for (uint32_t i = 0; i < m; i++)
        assert_int_equal(kvb_cache_length(r->cache, ids[i]), n);
}

/* All in one step, in no order; half of them forked from the other half; half of all once more; and all but one gone. */
static void test_all_alive(void **state)
{
    static uint32_t ids[SEQS];
    static uint64_t own[SEQS], both[SEQS][2];
    const uint32_t beyond = SEQS;
    (void)state;
    for (uint32_t i = 0; i < SEQS; i++) {
        ids[i] = (i * 1021 + 7) % SEQS;
        own[ids[i]] = i;
    }
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        const bool copies = type != &kvb_cache_shared_prefix; /* which reads one front a step */
        rig r = {.n_groups = 2, .groups = {{.window = 0}, {.window = 2, .sinks = 1}}, .seq_ids = SEQS};
        assert_int_equal(rig_try_open(&r, type, 3 * SEQS, 7, SEQS, 64), 0);
        assert_int_equal(kvb_cache_begin_step(r.cache, &beyond, 1), -EINVAL);
        assert_string_equal(kvb_cache_why(r.cache), "sequence 4096 is out of range: 0 .. 4095");
        step_check(&r, ids, SEQS, own, 1);
        for (uint32_t i = 0; i < SEQS; i++) {
            const uint32_t from = copies ? ids[i] & ~1u : ids[i];
            both[ids[i]][0] = own[from];
            both[ids[i]][1] = SEQS + i;
        }
        for (uint32_t s = 1; s < SEQS && copies; s += 2) {
            assert_int_equal(kvb_cache_seq_rm(r.cache, s, 0, KVB_POS_END), 0);
            assert_int_equal(kvb_cache_seq_cp(r.cache, s - 1, s, 0, KVB_POS_END), 0);
        }
        step_check(&r, ids, SEQS / 2, both[0], 2);
        assert_int_equal(kvb_cache_seq_keep(r.cache, SEQS - 1), 0);
        for (uint32_t s = 0; s <= SEQS; s++)
            assert_int_equal(kvb_cache_length(r.cache, s) > 0, s == SEQS - 1);
        assert_int_equal(kvb_cache_clear(r.cache), 0);
        assert_int_equal(rig_usage(&r).cells_live, 0);
        rig_close(&r);
    }
}

/* What a step leaves in the tables by id is cleared again, whether it was made or refused: the same call is answered
 * alike. */
static void test_refused_steps(void **state)
{
    (void)state;
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        rig r = {.n_groups = 1, .groups = {{.window = 100}}, .seq_ids = 9};
        assert_int_equal(rig_try_open(&r, type, 64, 4, 2, 4), 0);
        for (int again = 0; again < 3; again++) {
            static const uint32_t out[] = {8, 8, 9}, long_one[] = {8, 8, 8, 8, 8}, three[] = {1, 8, 2},
                                  fits[] = {8, 1, 8};
            assert_int_equal(kvb_cache_begin_step(r.cache, out, 3), -EINVAL);
            assert_int_equal(kvb_cache_begin_step(r.cache, long_one, 5), -ENOSPC);
            assert_int_equal(kvb_cache_begin_step(r.cache, three, 3), -ENOSPC);
            assert_int_equal(kvb_cache_begin_step(r.cache, fits, 3), 0);
            assert_int_equal(kvb_cache_length(r.cache, 8), 2);
            assert_int_equal(kvb_cache_clear(r.cache), 0);
        }
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_alive), cmocka_unit_test(test_refused_steps)};
    return cmocka_run_group_tests_name("thousands of sequences", tests, NULL, NULL);
}
