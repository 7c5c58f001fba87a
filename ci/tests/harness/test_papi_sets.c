/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that any PAPI user of the process sees the harness's own counts, and that sets of PAPI events take turns. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <papi.h>

#include "counting.h"
#include "harness/counters/source.h"

/* Every field by another amount, so that no two can be mistaken for one another. */
static void own_add(kvb_own_counts *own, long long n)
{
    own->cells_read += n;
    own->bytes_read += 1000000007 * n;
    own->bytes_walk += 4000000063 * n;
    own->mask_words += 13 * n;
    own->rescales += 101 * n;
}

/* As another PAPI tool in the process would: by name, with a set of its own. */
static void another_tool_sees_own_counts(void **state)
{
    (void)state;
    kvb_own_counts own = {0};
    char why[96];
    int set = PAPI_NULL;
    long long got = -1;
    assert_int_equal(kvb_papi_init(), 0);
    assert_int_equal(kvb_sde_publish(&own, why, sizeof why), 0);
    kvb_own_counts second = {0};
    assert_int_equal(kvb_sde_publish(&second, why, sizeof why), -EBUSY);
    assert_int_equal(PAPI_create_eventset(&set), PAPI_OK);
    assert_int_equal(PAPI_add_named_event(set, "sde:::kvbench::mask_words"), PAPI_OK);
    assert_int_equal(PAPI_start(set), PAPI_OK);
    own_add(&own, 3);
    assert_int_equal(PAPI_read(set, &got), PAPI_OK);
    assert_int_equal(got, 39);
    own_add(&own, 1); /* while it runs */
    assert_int_equal(PAPI_stop(set, &got), PAPI_OK);
    assert_int_equal(got, 52);
    PAPI_cleanup_eventset(set);
    PAPI_destroy_eventset(&set);
    kvb_sde_retract(&own);
}

/* Three sets of software-defined events, of two, two and one, on a component that counts one set at a time. */
static void events_that_do_not_fit_take_turns(void **state)
{
    (void)state;
    kvb_own_counts own = {0};
    char why[96];
    uint32_t events[5];
    double got, share, shares = 0;
    assert_int_equal(kvb_papi_init(), 0);
    assert_int_equal(kvb_sde_publish(&own, why, sizeof why), 0);
    kvb_papi_sets *sets = kvb_papi_sets_new(2);
    assert_non_null(sets);
    for (int i = 0; i < 5; i++)
        assert_int_equal(kvb_papi_sets_add(sets, kvb_sde_events[i], &events[i]), PAPI_OK);
    kvb_papi_sets_begin(sets);
    kvb_papi_sets_start(sets);
    own_add(&own, 1);
    kvb_papi_sets_stop(sets);
    assert_int_equal(kvb_papi_sets_value(sets, events[4], &got, &share), PAPI_OK);
    assert_true(share == 0); /* its turn is still to come */
    for (int i = 1; i < 300; i++) {
        kvb_papi_sets_start(sets);
        own_add(&own, 1);
        milliseconds_spin(0.05);
        kvb_papi_sets_stop(sets);
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kvb_papi_sets_value(sets, events[i], &got, &share), PAPI_OK);
        long long truth[] = {own.cells_read, own.bytes_read, own.bytes_walk, own.mask_words, own.rescales};
        assert_true(share > 0 && share < 1);
        /* Every set was on in 100 of 300 regions: unscaled, the value is exact. */
        assert_true(fabs(got * share / (double)truth[i] * 3 - 1) < 1e-9);
        shares += i % 2 ? 0 : share;
    }
    assert_true(fabs(shares - 1) < 1e-9);
    kvb_papi_sets_free(sets);
    kvb_sde_retract(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_tool_sees_own_counts),
        cmocka_unit_test(events_that_do_not_fit_take_turns),
    };
    return cmocka_run_group_tests_name("PAPI sets", tests, NULL, NULL);
}
