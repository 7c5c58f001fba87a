/* SPDX-License-Identifier: Apache-2.0 */
/* Shows how step times of several passes become a median, its interval, a warm-up and a null comparison. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "harness/replay/samples.h"

/* A pass: one prefill and ten decode steps of about 100 ns, all times `factor`. */
static void pass_add(kvb_samples times[KVB_STEP_KINDS], double factor, double decode)
{
    assert_int_equal(kvb_sample_add(&times[KVB_KIND_PREFILL], 300 * factor), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(kvb_sample_add(&times[KVB_KIND_DECODE], (decode + i) * factor), 0);
    assert_int_equal(kvb_sample_add(&times[KVB_KIND_CONTROL], 7 * factor), 0);
}

static void free_all(kvb_samples times[KVB_STEP_KINDS])
{
    for (int k = 0; k < KVB_STEP_KINDS; k++)
        kvb_samples_free(&times[k]);
}

static void kinds_are_told_apart(void **state)
{
    (void)state;
    kvb_samples times[KVB_STEP_KINDS] = {0};
    kvb_result r;
    kvb_result_init(&r);
    pass_add(times, 1, 100);
    assert_int_equal(kvb_samples_main(times), KVB_KIND_DECODE);
    assert_int_equal(kvb_samples_report(times, 1, 0, &r), 0);
    assert_int_equal(r.time.all.samples, 11); /* control is not attention */
    assert_int_equal(r.time.kinds[KVB_KIND_DECODE].samples, 10);
    assert_true(r.time.kinds[KVB_KIND_DECODE].median == 104.5);
    assert_true(r.time.kinds[KVB_KIND_PREFILL].median == 300);
    assert_true(r.time.kinds[KVB_KIND_CONTROL].total == 7);
    assert_int_equal(r.time.kinds[KVB_KIND_VERIFY].samples, 0);
    assert_true(isnan(r.time.kinds[KVB_KIND_VERIFY].median));
    assert_int_equal(r.time.all.outliers, 1); /* the prefill among decode steps */
    free_all(times);
}

static void slow_first_passes_are_warmup(void **state)
{
    (void)state;
    kvb_samples times[KVB_STEP_KINDS] = {0};
    kvb_result r;
    static const double factors[] = {9, 5, 3, 1, 1.01, 1, 0.99, 1, 1.01, 1, 1, 1};
    size_t passes = sizeof factors / sizeof *factors;
    kvb_result_init(&r);
    for (size_t i = 0; i < passes; i++)
        pass_add(times, factors[i], 100);
    size_t warmup = kvb_warmup_passes(times, passes);
    assert_in_range(warmup, 3, 5);
    assert_int_equal(kvb_samples_report(times, passes, warmup, &r), 0);
    const kvb_time_stats *decode = &r.time.kinds[KVB_KIND_DECODE];
    assert_int_equal(decode->samples, 10 * (passes - warmup));
    assert_true(decode->low > 103 && decode->low <= decode->median && decode->median <= decode->high);
    assert_true(decode->high < 106);
    assert_true(decode->max < 120); /* no step of a warm-up pass is a sample */
    assert_true(r.time.null_difference >= 0 && r.time.null_difference < 0.02);
    assert_true(kvb_samples_width(&times[KVB_KIND_DECODE], passes, warmup) < 0.03);
    free_all(times);
}

static void a_null_comparison_sees_passes_that_differ(void **state)
{
    (void)state;
    kvb_samples times[KVB_STEP_KINDS] = {0};
    kvb_result r;
    kvb_result_init(&r);
    for (int i = 0; i < 8; i++)
        pass_add(times, i % 2 ? 1.5 : 1, 100);
    assert_int_equal(kvb_samples_report(times, 8, 0, &r), 0);
    assert_true(fabs(r.time.null_difference - 0.5) < 1e-9);
    assert_true(kvb_samples_width(&times[KVB_KIND_DECODE], 8, 0) > 0.2);
    free_all(times);
}

static void few_passes_and_none(void **state)
{
    (void)state;
    kvb_samples times[KVB_STEP_KINDS] = {0};
    kvb_result r;
    kvb_result_init(&r);
    assert_int_equal(kvb_samples_report(times, 1, 0, &r), 0); /* nothing was attended */
    assert_int_equal(r.time.all.samples, 0);
    assert_true(isnan(r.time.null_difference));
    pass_add(times, 2, 100);
    pass_add(times, 1, 100);
    assert_int_equal(kvb_warmup_passes(times, 2), 0);
    assert_true(isinf(kvb_samples_width(&times[KVB_KIND_DECODE], 2, 0)));
    assert_true(kvb_samples_pass(&times[KVB_KIND_DECODE], 2, 0) == 2 * 1045);
    assert_true(kvb_samples_pass(&times[KVB_KIND_DECODE], 2, 1) == 1045);
    free_all(times);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_told_apart),
        cmocka_unit_test(slow_first_passes_are_warmup),
        cmocka_unit_test(a_null_comparison_sees_passes_that_differ),
        cmocka_unit_test(few_passes_and_none),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("samples", tests, NULL, NULL);
}
