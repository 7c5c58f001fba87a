/* SPDX-License-Identifier: Apache-2.0 */
/* Shows how step times of several passes become a median, its interval, a warm-up and a null comparison. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "harness/replay/meter.h"

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

/* Whatever it takes: rates of two kernels are of the same steps. */
static void the_main_kind_has_the_most_operations(void **state)
{
    (void)state;
    double flops[KVB_STEP_KINDS] = {[KVB_KIND_FILL] = 9, [KVB_KIND_PREFILL] = 3, [KVB_KIND_VERIFY] = 4};
    assert_int_equal(kvb_kind_main(flops), KVB_KIND_VERIFY); /* a fill attends to nothing */
    flops[KVB_KIND_PREFILL] = 5;
    assert_int_equal(kvb_kind_main(flops), KVB_KIND_PREFILL);
}

static void kinds_are_told_apart(void **state)
{
    (void)state;
    kvb_samples times[KVB_STEP_KINDS] = {0};
    kvb_result r;
    kvb_result_init(&r);
    pass_add(times, 1, 100);
    assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, 1, 0, &r), 0);
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
    assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, passes, warmup, &r), 0);
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
    assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, 8, 0, &r), 0);
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
    assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, 1, 0, &r), 0); /* nothing was attended */
    assert_int_equal(r.time.all.samples, 0);
    assert_true(isnan(r.time.null_difference));
    pass_add(times, 2, 100);
    pass_add(times, 1, 100);
    assert_int_equal(kvb_warmup_passes(times, 1), 0);
    assert_int_equal(kvb_warmup_passes(times, 2), 1);
    assert_true(isinf(kvb_samples_width(&times[KVB_KIND_DECODE], 2, 0)));
    assert_true(kvb_samples_pass(&times[KVB_KIND_DECODE], 2, 0) == 2 * 1045);
    assert_true(kvb_samples_pass(&times[KVB_KIND_DECODE], 2, 1) == 1045);
    free_all(times);
}

/* Passes of three prefill steps: the pass's number from 1 on is its median. */
static void numbered_passes_add(kvb_samples times[KVB_STEP_KINDS], int n)
{
    for (int i = 1; i <= n; i++)
        for (int j = -1; j <= 1; j++)
            assert_int_equal(kvb_sample_add(&times[KVB_KIND_PREFILL], i + 0.25 * j), 0);
}

static void a_series_is_the_median_of_each_pass(void **state)
{
    (void)state;
    static const struct {
        int passes, warmup, n;
        double first, last;
    } cases[] = {
        {3, 0, 0, 0, 0},          {5, 2, 0, 0, 0},    {4, 0, 4, 1, 4},      {10, 3, 7, 4, 10},
        {64, 0, 64, 1, 64},       {66, 2, 64, 3, 66}, {130, 0, 43, 3, 129}, /* blocks of 3, the first pass left out */
        {129, 1, 64, 2.5, 128.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_samples times[KVB_STEP_KINDS] = {0};
        kvb_result r;
        kvb_result_init(&r);
        numbered_passes_add(times, cases[i].passes);
        assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, cases[i].passes, cases[i].warmup, &r), 0);
        assert_int_equal(r.time.n_series, cases[i].n);
        if (cases[i].n) {
            assert_true(r.time.series[0] == cases[i].first);
            assert_true(r.time.series[cases[i].n - 1] == cases[i].last);
        }
        free_all(times);
    }
}

/* `passes` passes of n steps; step i reads cells[i] and takes 10 ns a cell, the first pass ten times that. */
static void contexts_make(const double *cells, size_t n, size_t passes, kvb_result *r)
{
    kvb_samples times = {0}, read = {0};
    kvb_result_init(r);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(kvb_sample_add(&read, cells[i]), 0);
    for (size_t p = 0; p < passes; p++)
        for (size_t i = 0; i < n; i++)
            assert_int_equal(kvb_sample_add(&times, cells[i] * (p ? 10 : 100)), 0);
    assert_int_equal(kvb_contexts_report(&times, &read, passes, 1, r), 0);
    kvb_samples_free(&times);
    kvb_samples_free(&read);
}

static void contexts_are_told_apart_in_any_order(void **state)
{
    (void)state;
    static const double cells[] = {300, 100, 200, 100, 100};
    kvb_result r;
    contexts_make(cells, 5, 3, &r);
    assert_int_equal(r.time.n_contexts, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(r.time.contexts[i].cells == 100 * (i + 1));
        assert_true(r.time.contexts[i].ns == 1000 * (i + 1)); /* the slow first pass is warm-up */
        assert_int_equal(r.time.contexts[i].samples, i ? 2 : 6);
    }
    contexts_make(cells, 0, 3, &r);
    assert_int_equal(r.time.n_contexts, 0);
}

static void many_contexts_are_joined_evenly(void **state)
{
    (void)state;
    double cells[1000];
    uint64_t samples = 0;
    kvb_result r;
    for (int i = 0; i < 1000; i++)
        cells[i] = 5000 - 5 * i;
    contexts_make(cells, 1000, 2, &r);
    assert_int_equal(r.time.n_contexts, KVB_CONTEXTS);
    for (uint32_t i = 0; i < KVB_CONTEXTS; i++) {
        const kvb_context_point *c = &r.time.contexts[i];
        assert_in_range(c->samples, 31, 32);
        assert_true(c->ns == 10 * c->cells);
        assert_true(i == 0 || c->cells > r.time.contexts[i - 1].cells);
        samples += c->samples;
    }
    assert_int_equal(samples, 1000);
    for (int i = 0; i < 1000; i++) /* one context far more often than all others: they share no point with it */
        cells[i] = i < 900 ? 7 : i;
    contexts_make(cells, 1000, 2, &r);
    assert_in_range(r.time.n_contexts, 4, KVB_CONTEXTS);
    assert_true(r.time.contexts[0].cells == 7 && r.time.contexts[0].samples == 900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_main_kind_has_the_most_operations),
        cmocka_unit_test(kinds_are_told_apart),
        cmocka_unit_test(slow_first_passes_are_warmup),
        cmocka_unit_test(a_null_comparison_sees_passes_that_differ),
        cmocka_unit_test(few_passes_and_none),
        cmocka_unit_test(a_series_is_the_median_of_each_pass),
        cmocka_unit_test(contexts_are_told_apart_in_any_order),
        cmocka_unit_test(many_contexts_are_joined_evenly),
    };
    return cmocka_run_group_tests_name("samples", tests, NULL, NULL);
}
