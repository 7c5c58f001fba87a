/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a step of two sequences that begin with the same row is a fork; a step of others is not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness/replay/meter.h"
#include "workloads/history.h"

static kvb_history *history;

/* The event, taken. */
static kvb_step_kind kind_of(kvb_event event)
{
    char why[200];
    assert_int_equal(kvb_history_take(history, &event, 0, why, sizeof why), 0);
    return kvb_step_kind_of(&event);
}

/* Of the next tokens of two sequences, or n 1: of the first. */
static kvb_step_kind step(uint32_t n, uint32_t a, uint32_t b)
{
    uint32_t seq[] = {a, b}, pos[] = {kvb_history_next(history, a), kvb_history_next(history, b) + (a == b)};
    return kind_of((kvb_event){.kind = KVB_EVENT_STEP, .n = n, .seq = seq, .pos = pos});
}

static void copy(uint32_t src, uint32_t dst)
{
    kind_of((kvb_event){.kind = KVB_EVENT_SEQ_CP, .src = src, .dst = dst, .p1 = KVB_TRACE_POS_END});
}

static void drop(uint32_t seq, uint32_t p0)
{
    kind_of((kvb_event){.kind = KVB_EVENT_SEQ_RM, .src = seq, .p0 = p0, .p1 = KVB_TRACE_POS_END});
}

static int begin(void **state)
{
    (void)state;
    return kvb_history_open(KVB_TRACE_MAX_CELLS, &history);
}

static int end(void **state)
{
    (void)state;
    kvb_history_free(history);
    return 0;
}

static void kinds(void **state)
{
    (void)state;
    uint32_t seq[] = {7, 7}, pos[] = {0, 1};
    int32_t parents[] = {-1, 0};
    kvb_event event = {.kind = KVB_EVENT_PREFILL, .n = 2, .seq = seq, .pos = pos, .parents = parents};
    assert_int_equal(step(1, 0, 0), KVB_KIND_DECODE);
    assert_int_equal(step(2, 0, 1), KVB_KIND_DECODE);
    assert_int_equal(step(2, 3, 3), KVB_KIND_PREFILL);
    assert_int_equal(kind_of(event), KVB_KIND_PREFILL);
    event.kind = KVB_EVENT_FILL;
    assert_int_equal(kind_of(event), KVB_KIND_FILL);
    event.kind = KVB_EVENT_PROPOSE;
    assert_int_equal(kind_of(event), KVB_KIND_VERIFY);
    assert_int_equal(kind_of((kvb_event){.kind = KVB_EVENT_COMMIT, .src = 7}), KVB_KIND_CONTROL);
    assert_int_equal(kind_of((kvb_event){.kind = KVB_EVENT_SEQ_CP, .dst = 8}), KVB_KIND_CONTROL);
    assert_int_equal(kind_of((kvb_event){.kind = KVB_EVENT_SEQ_ADD, .delta = 1, .p1 = 9}), KVB_KIND_CONTROL);
}

static void forks(void **state)
{
    (void)state;
    copy(0, 5); /* of nothing */
    step(2, 0, 0);
    copy(0, 1);
    step(2, 1, 1);
    copy(1, 63); /* a branch of a branch */
    assert_int_equal(step(2, 0, 1), KVB_KIND_FORK);
    assert_int_equal(step(2, 0, 63), KVB_KIND_FORK);
    assert_int_equal(step(1, 63, 0), KVB_KIND_DECODE); /* alone */
    assert_int_equal(step(2, 5, 63), KVB_KIND_DECODE); /* with a stranger */
    drop(63, 3);                                       /* a suffix */
    assert_int_equal(step(2, 1, 63), KVB_KIND_FORK);
    assert_int_equal(step(2, 63, 63), KVB_KIND_PREFILL);
    drop(63, 0); /* all: the next one of that id is a stranger */
    assert_int_equal(step(2, 1, 63), KVB_KIND_DECODE);
    assert_int_equal(step(2, 0, 1), KVB_KIND_FORK);
    assert_int_equal(kind_of((kvb_event){.kind = KVB_EVENT_SEQ_ADD, .src = 1, .delta = 1, .p1 = KVB_TRACE_POS_END}),
                     KVB_KIND_CONTROL);
    assert_int_equal(step(2, 0, 1), KVB_KIND_DECODE); /* moved rows are its own */
    kind_of((kvb_event){.kind = KVB_EVENT_SEQ_KEEP, .src = 0});
    assert_int_equal(step(2, 0, 1), KVB_KIND_DECODE);
}

/* What is reordered takes its trunk with it. */
static void reordered(void **state)
{
    (void)state;
    kvb_event event = {.kind = KVB_EVENT_REORDER, .n = 3, .dsts = (uint32_t[]){0, 1, 2}, .srcs = (uint32_t[]){1, 1, 0}};
    step(2, 0, 1);
    assert_int_equal(kind_of(event), KVB_KIND_CONTROL);
    assert_int_equal(step(2, 0, 1), KVB_KIND_FORK); /* both of what 1 was */
    assert_int_equal(step(2, 0, 2), KVB_KIND_DECODE);
    event.srcs[0] = 2;
    event.srcs[1] = event.srcs[2] = 0;
    kind_of(event);
    assert_int_equal(step(2, 1, 2), KVB_KIND_FORK);
    assert_int_equal(step(2, 0, 1), KVB_KIND_DECODE);
}

/* Branches of different trunks make no fork, whatever their ids; nor does a trunk that has lost its branches. */
static void many_sequences(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s += 2) {
        step(1, s, s);
        copy(s, s + 1);
    }
    for (uint32_t s = 0; s + 64 < KVB_TRACE_MAX_SEQS; s += 2) {
        assert_int_equal(step(2, s, s + 1), KVB_KIND_FORK);
        assert_int_equal(step(2, s + 1, s + 64), KVB_KIND_DECODE);
    }
    assert_int_equal(step(2, 4095, 4095), KVB_KIND_PREFILL);
    drop(100, 0), drop(101, 0), drop(4094, 0);
    step(1, 101, 101);
    copy(101, 4094); /* a new trunk, which no other one has */
    assert_int_equal(step(2, 101, 4094), KVB_KIND_FORK);
    for (uint32_t s = 0; s < 4094; s++)
        assert_true(s == 101 || step(2, s, 4094) == KVB_KIND_DECODE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(kinds, begin, end),
                                       cmocka_unit_test_setup_teardown(forks, begin, end),
                                       cmocka_unit_test_setup_teardown(reordered, begin, end),
                                       cmocka_unit_test_setup_teardown(many_sequences, begin, end)};
    return cmocka_run_group_tests_name("step kind", tests, NULL, NULL);
}
