/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the oracle's history names the tokens each query sees: forks, holes, trees, rewinds, clears. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/history.h"

#define END KVB_TRACE_POS_END
#define U(...)                                                                                                         \
    (sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)), (const uint32_t[])                                         \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define I(...)                                                                                                         \
    (sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), (const int32_t[])                                            \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* Apply the trace's events in turn; stop after the one numbered `last`. */
static kvb_history *replay(const hand *h, size_t last)
{
    kvb_history *history;
    assert_int_equal(kvb_history_open(&history), 0);
    for (size_t e = 0; e <= last; e++)
        assert_int_equal(kvb_history_apply(history, &h->trace.events[e]), 0);
    return history;
}

/* After event `last` of the trace, query i sees exactly these identities in this order. */
static void assert_sees(const hand *h, size_t last, uint32_t i, size_t n, const uint32_t *tokens)
{
    kvb_history *history = replay(h, last);
    const uint64_t *seen;
    int64_t count = kvb_history_visible(history, i, &seen);
    assert_int_equal(count, n);
    for (size_t t = 0; t < n; t++)
        assert_int_equal(seen[t], tokens[t]);
    kvb_history_free(history);
}

static void one_sequence(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 3); /* 0 1 2 */
    hand_extend(&h, KVB_EVENT_STEP, 0, 3, 1);    /* 3 */
    assert_sees(&h, 0, 0, U(0));
    assert_sees(&h, 0, 1, U(0, 1));
    assert_sees(&h, 0, 2, U(0, 1, 2));
    assert_sees(&h, 1, 0, U(0, 1, 2, 3));
    hand_free(&h);
}

static void fill_counts_identities(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_FILL, 5, 0, 4); /* 0..3 */
    hand_extend(&h, KVB_EVENT_STEP, 5, 4, 2); /* 4 5 */
    assert_sees(&h, 1, 0, U(0, 1, 2, 3, 4));
    assert_sees(&h, 1, 1, U(0, 1, 2, 3, 4, 5));
    hand_free(&h);
}

static void sequences_see_themselves_only(void **state)
{
    (void)state;
    hand h = {0};
    hand_step(&h, 5, (const uint32_t[]){0, 0, 1, 1, 2}, (const uint32_t[]){0, 9, 0, 9, 9});
    hand_step(&h, 2, (const uint32_t[]){3, 2}, (const uint32_t[]){9, 0});
    assert_sees(&h, 0, 2, U(0, 2));
    assert_sees(&h, 0, 3, U(1, 3));
    assert_sees(&h, 0, 4, U(1, 3, 4));
    assert_sees(&h, 1, 0, U(1, 3, 4, 5));
    assert_sees(&h, 1, 1, U(0, 2, 6));
    hand_free(&h);
}

static void fork_shares_its_range(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 4); /* 0..3 */
    hand_cp(&h, 0, 1, 0, END);
    hand_cp(&h, 0, 2, 1, 3);
    hand_step(&h, 3, (const uint32_t[]){4, 4, 3}, (const uint32_t[]){0, 1, 2}); /* 4 5 6 */
    assert_sees(&h, 3, 0, U(0, 1, 2, 3, 4));
    assert_sees(&h, 3, 1, U(0, 1, 2, 3, 5));
    assert_sees(&h, 3, 2, U(1, 2, 6));
    hand_cp(&h, 1, 3, 0, END); /* a branch of a branch */
    hand_rm(&h, 1, 0, END);
    hand_extend(&h, KVB_EVENT_STEP, 3, 5, 1); /* 7 */
    assert_sees(&h, 6, 0, U(0, 1, 2, 3, 5, 7));
    hand_extend(&h, KVB_EVENT_STEP, 1, 0, 1); /* 8: an id that died and lives again */
    assert_sees(&h, 7, 0, U(8));
    hand_free(&h);
}

static void holes_and_cut_tails(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 6); /* 0..5 */
    hand_rm(&h, 0, 1, 3);                        /* a hole: 1 2 gone */
    hand_extend(&h, KVB_EVENT_STEP, 0, 6, 1);    /* 6 */
    assert_sees(&h, 2, 0, U(0, 3, 4, 5, 6));
    hand_rm(&h, 0, 4, END);                   /* the tail: 4 5 6 gone */
    hand_extend(&h, KVB_EVENT_STEP, 0, 4, 2); /* 7 8 take positions 4 5 */
    assert_sees(&h, 4, 0, U(0, 3, 7));
    assert_sees(&h, 4, 1, U(0, 3, 7, 8));
    hand_cp(&h, 0, 1, 0, 4); /* a fork takes the hole along */
    hand_extend(&h, KVB_EVENT_STEP, 1, 4, 1);
    assert_sees(&h, 6, 0, U(0, 3, 9));
    hand_free(&h);
}

static void keep_drops_the_others(void **state)
{
    (void)state;
    hand h = {0};
    hand_step(&h, 3, (const uint32_t[]){0, 0, 0}, (const uint32_t[]){0, 1, 2});
    hand_event(&h, KVB_EVENT_SEQ_KEEP)->src = 1;
    hand_step(&h, 3, (const uint32_t[]){0, 1, 0}, (const uint32_t[]){0, 1, 2});
    assert_sees(&h, 2, 0, U(3));
    assert_sees(&h, 2, 1, U(1, 4));
    assert_sees(&h, 2, 2, U(5));
    hand_free(&h);
}

static void rewind_and_clear(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 5);
    hand_event(&h, KVB_EVENT_REWIND)->len = 2;
    hand_extend(&h, KVB_EVENT_STEP, 0, 2, 1); /* 5 */
    assert_sees(&h, 2, 0, U(0, 1, 5));
    hand_event(&h, KVB_EVENT_CLEAR);
    hand_extend(&h, KVB_EVENT_STEP, 0, 0, 1); /* 6 */
    assert_sees(&h, 4, 0, U(6));
    hand_free(&h);
}

static void trees(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 2); /* 0 1 */
    hand_propose(&h, I(-1, -1, 0, 0, 2));        /* 2 3 4 5 6 */
    assert_sees(&h, 1, 0, U(0, 1, 2));
    assert_sees(&h, 1, 1, U(0, 1, 3));
    assert_sees(&h, 1, 2, U(0, 1, 2, 4));
    assert_sees(&h, 1, 3, U(0, 1, 2, 5));
    assert_sees(&h, 1, 4, U(0, 1, 2, 4, 6));
    hand_propose(&h, I(4, 1)); /* 7 8: the same tree goes on */
    assert_sees(&h, 2, 0, U(0, 1, 2, 4, 6, 7));
    assert_sees(&h, 2, 1, U(0, 1, 3, 8));
    hand_commit(&h, U(0, 2, 4)); /* 2 4 6 take positions 2 3 4 */
    hand_extend(&h, KVB_EVENT_STEP, 0, 5, 1);
    assert_sees(&h, 4, 0, U(0, 1, 2, 4, 6, 9));
    hand_propose(&h, I(-1));    /* 10 */
    hand_commit(&h, 0, NULL);   /* nothing kept */
    hand_propose(&h, I(-1, 0)); /* 11 12: numbered from 0 again */
    assert_sees(&h, 7, 1, U(0, 1, 2, 4, 6, 9, 11, 12));
    hand_free(&h);
}

static void long_fill_is_cheap_and_right(void **state)
{
    (void)state;
    hand h = {0};
    const uint64_t *seen;
    hand_extend(&h, KVB_EVENT_FILL, 0, 0, 200000);
    hand_extend(&h, KVB_EVENT_STEP, 0, 200000, 1);
    kvb_history *history = replay(&h, 1);
    assert_int_equal(kvb_history_visible(history, 0, &seen), 200001);
    for (uint64_t t = 0; t <= 200000; t++)
        assert_int_equal(seen[t], t);
    kvb_history_free(history);
    hand_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sequence),
        cmocka_unit_test(fill_counts_identities),
        cmocka_unit_test(fork_shares_its_range),
        cmocka_unit_test(sequences_see_themselves_only),
        cmocka_unit_test(holes_and_cut_tails),
        cmocka_unit_test(keep_drops_the_others),
        cmocka_unit_test(rewind_and_clear),
        cmocka_unit_test(trees),
        cmocka_unit_test(long_fill_is_cheap_and_right),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("oracle/history", tests, NULL, NULL);
}
