/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows what recurrent states cannot do, in words and in every cache: what is refused and changes nothing; what layers
 * are asked for; and which files go into which caches. That each state
 * is the right one after any history: test_random.
 */
#include "saved.h"
#include "states.h"

#define SCAN(ELEM, WIDTH)                                                                                              \
    {                                                                                                                  \
        .kind = KVB_GROUP_SCAN, .scan = { KVB_SCAN_MAMBA2, 2, 1, 4, 8, WIDTH, WIDTH ? 16 : 0, true, ELEM, KVB_F32 }    \
    }
enum { ATTENDS, SCANS }; /* layers: 0 and 2 attend, 1 scans */
enum { SLOT = 2 * 4 * 8 * 4, CONV = 3 * 16 * 4, IDS = 6 };

static void states_open(rig *r, const kvb_cache_type *type, uint32_t depth, kvb_elem elem)
{
    *r = (rig){.n_groups = 2, .groups = {{.window = 10000}, SCAN(elem, 4)}, .state_depth = depth};
    const uint32_t seqs = type->flags & KVB_CACHE_SEQ ? IDS : 1;
    assert_int_equal(rig_try_open(r, type, 400, 100, seqs, 4), 0);
}

/* Every layer of the step in force; what the last fed token leaves. */
static uint64_t states_store(rig *r)
{
    static uint64_t out[RIG_MAX_STEP];
    static uint32_t positions[RIG_MAX_STEP];
    const uint64_t *ordinals;
    const uint32_t n = kvb_cache_feed(r->cache, &ordinals);
    kvb_attend_spec rows;
    kvb_scan_spec states;
    for (uint32_t i = 0; i < n; i++)
        positions[i] = r->pos[ordinals[i]];
    assert_int_equal(rig_fetch(r, 0, r->pos, &rows), 0);
    assert_int_equal(rig_fetch(r, 2, r->pos, &rows), 0);
    assert_int_equal(kvb_cache_fetch_states(r->cache, SCANS, positions, n, &states), 0);
    assert_true(states_scan(&states, SCANS, ordinals, out));
    return out[n - 1];
}

/* n tokens of a sequence; the state behind the last of them. */
static uint64_t feed(rig *r, uint32_t seq, uint32_t n)
{
    static uint32_t ids[RIG_MAX_STEP];
    for (uint32_t i = 0; i < n; i++)
        ids[i] = seq;
    assert_int_equal(rig_step(r, ids, n), 0);
    return states_store(r);
}

/* The state behind tokens of these ordinals, from `first` on, that follow a state. */
static uint64_t behind(uint64_t state, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        state = state_next(state, first + i, SCANS);
    return state;
}

static void assert_why(const rig *r, const char *words)
{
    if (!strstr(kvb_cache_why(r->cache), words))
        fail_msg("\"%s\" does not say \"%s\"", kvb_cache_why(r->cache), words);
}

/* What would need a state that is not there is refused in all layers. */
static void test_refusals(void **state)
{
    (void)state;
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        rig r;
        const bool forgets = type->flags & KVB_CACHE_FORGETS;
        states_open(&r, type, 1, KVB_BF16);
        feed(&r, 0, 10);
        kvb_cache_usage before[2] = {rig_usage_of(&r, ATTENDS), rig_usage_of(&r, SCANS)};
        assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 3, 6), -ENOTSUP);
        assert_why(&r, "a recurrent state lets go of its last tokens or of all: sequence 0 goes on behind 6");
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 2, KVB_POS_END), -ENOTSUP);
        assert_why(&r, "sequence 1 would not hold a beginning of 0");
        if (!forgets) {
            assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 8), -ENOTSUP);
            assert_why(&r, "sequence 0 has no state behind position 7: its states go back by 1 tokens");
            assert_int_equal(kvb_cache_rewind(r.cache, 6), -ENOTSUP);
            assert_why(&r, "sequence 0 cannot be cut back by 4 tokens: its states go back by 1");
        }
        if (type->flags & KVB_CACHE_FREEZES) {
            kvb_frozen *frozen;
            assert_int_equal(kvb_cache_freeze(r.cache, 0, 5, NULL, &frozen), -ENOTSUP);
            assert_why(&r, "a recurrent state cannot be frozen");
        }
        for (uint32_t g = 0; g < 2; g++) {
            const kvb_cache_usage after = rig_usage_of(&r, g);
            rig_assert_same(&before[g], &after);
        }
        assert_int_equal(kvb_cache_length(r.cache, 1), 0);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 9), 0); /* one token back */
        assert_true(feed(&r, 1, 1) == behind(behind(0, 0, 9), 10, 1));
        assert_true(feed(&r, 0, 1) == behind(behind(0, 0, 10), 11, 1));
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 10, KVB_POS_END), -ENOTSUP); /* another beginning */
        assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 9, KVB_POS_END), 0);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 9, KVB_POS_END), 0); /* it goes on as 0 did */
        assert_true(feed(&r, 1, 1) == behind(behind(behind(0, 0, 10), 11, 1), 12, 1));
        rig_close(&r);
    }
}

/* A layer is asked for what it has, with the positions of the plan. */
static void test_fetch(void **state)
{
    const uint32_t pos[] = {0, 1};
    const float rows[64] = {0};
    kvb_attend_spec rows_spec;
    kvb_scan_spec spec;
    rig r;
    (void)state;
    states_open(&r, &kvb_cache_seq, 0, KVB_F32);
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, pos, 2, &spec), -EINVAL);
    assert_why(&r, "there is no plan");
    assert_int_equal(rig_step(&r, NULL, 2), 0);
    assert_int_equal(kvb_cache_fetch_states(r.cache, 0, pos, 2, &spec), -EINVAL);
    assert_why(&r, "layer 0 attends: it has no states");
    assert_int_equal(kvb_cache_update_and_fetch(r.cache, SCANS, pos, rows, rows, 2, &rows_spec), -EINVAL);
    assert_why(&r, "layer 1 scans: it stores no rows");
    assert_int_equal(kvb_cache_fetch_states(r.cache, 3, pos, 2, &spec), -EINVAL);
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, NULL, 2, &spec), -EINVAL);
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, pos, 2, NULL), -EINVAL);
    assert_why(&r, "positions and a spec must be given");
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, pos + 1, 1, &spec), -EINVAL);
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, pos, 2, &spec), 0);
    assert_true(spec.from[0] == KVB_SCAN_ZERO && spec.from[1] == KVB_SCAN_PREVIOUS);
    assert_true(spec.to[0] == KVB_SCAN_NONE && spec.to[1] == 0);
    assert_true(spec.states.slot_bytes == SLOT && spec.conv.slot_bytes == CONV && spec.states.slots == 1);
    assert_int_equal(rig_usage_of(&r, SCANS).reserved_bytes, SLOT + CONV);
    assert_int_equal(rig_step(&r, NULL, 1), 0);
    assert_int_equal(kvb_cache_fetch_states(r.cache, SCANS, (const uint32_t[]){2}, 1, &spec), 0);
    assert_true(spec.from[0] == 0 && spec.to[0] == 0); /* in place */
    rig_close(&r);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A sequence goes from one cache to another, with as many of its states as that one keeps; to another geometry it does
 * not go. */
static void test_files(void **state)
{
    rig r, taker;
    (void)state;
    states_open(&r, &kvb_cache_seq, 5, KVB_F32);
    feed(&r, 3, 10);
    assert_int_equal(kvb_cache_save(r.cache, 3, path), 0);
    static const struct {
        const kvb_cache_type *type;
        uint32_t depth, back; /* tokens */
    } takes[] = {
        {&kvb_cache_seq, 5, 5}, {&kvb_cache_paged, 2, 2}, {&kvb_cache_contiguous, 0, 0}, {&kvb_cache_tree, 9, 5}};
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        states_open(&taker, takes[i].type, takes[i].depth, KVB_F32);
        assert_int_equal(kvb_cache_load(taker.cache, 0, path), 0);
        taker.next = 10;
        if (takes[i].back < 9)
            assert_int_equal(kvb_cache_rewind(taker.cache, 9 - takes[i].back), -ENOTSUP);
        assert_int_equal(kvb_cache_rewind(taker.cache, 10 - takes[i].back), 0);
        assert_true(feed(&taker, 0, 1) == behind(behind(0, 0, 10 - takes[i].back), 10, 1));
        rig_close(&taker);
    }
    const kvb_group groups[] = {SCAN(KVB_BF16, 4), SCAN(KVB_F32, 3), {.window = 0}};
    for (size_t i = 0; i < 3; i++) {
        taker = (rig){.n_groups = 2, .groups = {{.window = 10000}, groups[i]}};
        assert_int_equal(rig_try_open(&taker, &kvb_cache_seq, 40, 40, 2, 4), 0);
        assert_int_equal(kvb_cache_load(taker.cache, 0, path), -EINVAL);
        assert_why(&taker, "was saved with \"group mamba2 heads 2 groups 1 k_dim 4 v_dim 8");
        assert_int_equal(kvb_cache_length(taker.cache, 0), 0);
        rig_close(&taker);
    }
    rig_close(&r);
}

/* A prompt is not found again: a page of rows brings no state. */
static void test_prompts(void **state)
{
    static const int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const uint64_t *ordinals;
    uint32_t found = 1;
    rig r;
    (void)state;
    states_open(&r, &kvb_cache_paged_prefix, 0, KVB_F32);
    r.tokens = tokens;
    feed(&r, 0, 8);
    assert_int_equal(kvb_cache_seq_match(r.cache, 1, tokens, 8, 0, &found, &ordinals), 0);
    assert_int_equal(found, 0);
    assert_true(feed(&r, 1, 8) == behind(0, 8, 8));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals), cmocka_unit_test(test_fetch),
                                       cmocka_unit_test(test_files), cmocka_unit_test(test_prompts)};
    return cmocka_run_group_tests_name("recurrent states", tests, folder_make, folder_remove);
}
