/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that steps of sequences that stem from one trunk are told from those of strangers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness/replay/step_kind.h"

static kvb_step_kind step(const kvb_kinship *k, uint32_t n, uint32_t a, uint32_t b)
{
    uint32_t seq[] = {a, b};
    return kvb_step_kind_of(k, &(kvb_event){.kind = KVB_EVENT_STEP, .n = n, .seq = seq});
}

static void copy(kvb_kinship *k, uint32_t src, uint32_t dst)
{
    kvb_kinship_apply(k,
                      &(kvb_event){.kind = KVB_EVENT_SEQ_CP, .n = 1, .src = src, .dst = dst, .p1 = KVB_TRACE_POS_END});
}

static void drop(kvb_kinship *k, uint32_t seq, uint32_t p0)
{
    kvb_kinship_apply(k, &(kvb_event){.kind = KVB_EVENT_SEQ_RM, .src = seq, .p0 = p0, .p1 = KVB_TRACE_POS_END});
}

static void kinds(void **state)
{
    (void)state;
    kvb_kinship k = {0};
    assert_int_equal(step(&k, 1, 0, 0), KVB_KIND_DECODE);
    assert_int_equal(step(&k, 2, 0, 1), KVB_KIND_DECODE);
    assert_int_equal(step(&k, 2, 3, 3), KVB_KIND_PREFILL);
    assert_int_equal(kvb_step_kind_of(&k, &(kvb_event){.kind = KVB_EVENT_PROPOSE}), KVB_KIND_VERIFY);
    assert_int_equal(kvb_step_kind_of(&k, &(kvb_event){.kind = KVB_EVENT_FILL}), KVB_KIND_FILL);
    assert_int_equal(kvb_step_kind_of(&k, &(kvb_event){.kind = KVB_EVENT_PREFILL}), KVB_KIND_PREFILL);
    assert_int_equal(kvb_step_kind_of(&k, &(kvb_event){.kind = KVB_EVENT_COMMIT}), KVB_KIND_CONTROL);
    assert_int_equal(kvb_step_kind_of(&k, &(kvb_event){.kind = KVB_EVENT_SEQ_CP}), KVB_KIND_CONTROL);
    assert_int_equal(kvb_step_kind_of(&k, &(kvb_event){.kind = KVB_EVENT_SEQ_ADD}), KVB_KIND_CONTROL);
}

static void forks(void **state)
{
    (void)state;
    kvb_kinship k = {0};
    copy(&k, 0, 1);
    copy(&k, 1, 63);                                                                   /* a branch of a branch */
    kvb_kinship_apply(&k, &(kvb_event){.kind = KVB_EVENT_SEQ_CP, .src = 0, .dst = 5}); /* of nothing */
    assert_int_equal(step(&k, 2, 0, 1), KVB_KIND_FORK);
    assert_int_equal(step(&k, 2, 0, 63), KVB_KIND_FORK);
    assert_int_equal(step(&k, 1, 63, 0), KVB_KIND_DECODE); /* alone */
    assert_int_equal(step(&k, 2, 5, 63), KVB_KIND_DECODE); /* with a stranger */
    drop(&k, 63, 8);                                       /* a suffix: still kin */
    assert_int_equal(step(&k, 2, 1, 63), KVB_KIND_FORK);
    drop(&k, 63, 0); /* gone: whoever gets the id is a stranger */
    assert_int_equal(step(&k, 2, 1, 63), KVB_KIND_DECODE);
    assert_int_equal(step(&k, 2, 0, 1), KVB_KIND_FORK);
    kvb_kinship_apply(&k, &(kvb_event){.kind = KVB_EVENT_SEQ_KEEP, .src = 0});
    assert_int_equal(step(&k, 2, 0, 1), KVB_KIND_DECODE);
}

/* What is reordered takes its kin with it. */
static void reordered(void **state)
{
    (void)state;
    kvb_kinship k = {0};
    kvb_event event = {.kind = KVB_EVENT_REORDER, .n = 3, .dsts = (uint32_t[]){0, 1, 2}, .srcs = (uint32_t[]){1, 1, 0}};
    assert_int_equal(kvb_step_kind_of(&k, &event), KVB_KIND_CONTROL);
    kvb_kinship_apply(&k, &event);
    assert_int_equal(step(&k, 2, 0, 1), KVB_KIND_FORK); /* both of what 1 was */
    assert_int_equal(step(&k, 2, 0, 2), KVB_KIND_DECODE);
    event.srcs[0] = 2;
    event.srcs[1] = event.srcs[2] = 0;
    kvb_kinship_apply(&k, &event);
    assert_int_equal(step(&k, 2, 1, 2), KVB_KIND_FORK);
    assert_int_equal(step(&k, 2, 0, 1), KVB_KIND_DECODE);
}

/* Families are told apart whatever their members' ids, and again once one has died out. */
static void many_sequences(void **state)
{
    (void)state;
    static kvb_kinship k;
    for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s += 2)
        copy(&k, s, s + 1);
    for (uint32_t s = 0; s + 64 < KVB_TRACE_MAX_SEQS; s += 2) {
        assert_int_equal(step(&k, 2, s, s + 1), KVB_KIND_FORK);
        assert_int_equal(step(&k, 2, s + 1, s + 64), KVB_KIND_DECODE);
    }
    assert_int_equal(step(&k, 2, 4095, 4095), KVB_KIND_PREFILL);
    drop(&k, 100, 0), drop(&k, 101, 0), drop(&k, 4094, 0);
    copy(&k, 101, 4094); /* a new family, of whom no other one is */
    assert_int_equal(step(&k, 2, 101, 4094), KVB_KIND_FORK);
    for (uint32_t s = 0; s < 4094; s++)
        assert_true(s == 101 || step(&k, 2, s, 4094) == KVB_KIND_DECODE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds), cmocka_unit_test(forks), cmocka_unit_test(reordered),
                                       cmocka_unit_test(many_sequences)};
    return cmocka_run_group_tests_name("step kind", tests, NULL, NULL);
}
