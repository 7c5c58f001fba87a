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
    kvb_kinship_apply(k, &(kvb_event){.kind = KVB_EVENT_SEQ_CP, .src = src, .dst = dst, .p1 = KVB_TRACE_POS_END});
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
}

static void forks(void **state)
{
    (void)state;
    kvb_kinship k = {0};
    copy(&k, 0, 1);
    copy(&k, 1, 63); /* a branch of a branch */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds), cmocka_unit_test(forks)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("step kind", tests, NULL, NULL);
}
