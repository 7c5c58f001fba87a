/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: order statistics of step times (median, nearest-rank p99, MAD, total), and NaN for none. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "results/result.h"

static void test_none(void **state)
{
    kvb_time_stats stats;

    (void)state;
    kvb_time_stats_of(NULL, 0, &stats);
    assert_int_equal(stats.samples, 0);
    assert_true(isnan(stats.median) && isnan(stats.p99) && isnan(stats.mad));
    assert_true(isnan(stats.min) && isnan(stats.max) && isnan(stats.total));
}

static void test_few(void **state)
{
    double one[] = {7}, two[] = {9, 4}, five[] = {100, 1, 3, 2, 4}, same[] = {5, 5, 5, 5};
    kvb_time_stats stats;

    (void)state;
    kvb_time_stats_of(one, 1, &stats);
    assert_true(stats.median == 7 && stats.p99 == 7 && stats.mad == 0 && stats.total == 7 && stats.samples == 1);
    kvb_time_stats_of(two, 2, &stats);
    assert_true(stats.median == 6.5 && stats.p99 == 9 && stats.mad == 2.5 && stats.min == 4 && stats.max == 9);
    kvb_time_stats_of(five, 5, &stats); /* deviations from 3: 0 1 1 2 97 */
    assert_true(stats.median == 3 && stats.p99 == 100 && stats.mad == 1 && stats.total == 110);
    kvb_time_stats_of(same, 4, &stats);
    assert_true(stats.median == 5 && stats.mad == 0);
}

static void test_nearest_rank(void **state)
{
    double samples[201];
    kvb_time_stats stats;

    (void)state;
    for (size_t n = 1; n <= 201; n++) {
        for (size_t i = 0; i < n; i++)
            samples[i] = (double)(n - i); /* 1 .. n, backwards */
        kvb_time_stats_of(samples, n, &stats);
        /* the smallest value that at least 99 % of the samples do not exceed */
        size_t rank = 1;
        while (rank * 100 < 99 * n)
            rank++;
        assert_true(stats.p99 == (double)rank);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The merge from the median outwards against sorting the deviations. */
static void test_mad_by_sorting(void **state)
{
    uint32_t seed = 12345;

    (void)state;
    for (size_t n = 1; n < 60; n++) {
        double samples[60], deviations[60];
        kvb_time_stats stats;

        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            samples[i] = seed >> 24; /* few values: ties occur */
        }
        kvb_time_stats_of(samples, n, &stats);
        for (size_t i = 0; i < n; i++)
            deviations[i] = fabs(samples[i] - stats.median);
        qsort(deviations, n, sizeof *deviations, ascending);
        assert_true(stats.mad == (deviations[(n - 1) / 2] + deviations[n / 2]) / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_few),
        cmocka_unit_test(test_nearest_rank),
        cmocka_unit_test(test_mad_by_sorting),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("order statistics", tests, NULL, NULL);
}
