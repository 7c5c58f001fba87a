/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: changes of level in series with known answers are found where they are, and none in series without one; over
 * files, in the order of their dates, each combination by itself. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "results/run_history.h"
#include "synthetic.h"

#define NOISE 0.03
#define LEAST 0.0488 /* 5 % */

static long find_by(const double *logs, size_t n, double noise, double tail, double least, kvb_changepoint *changes,
                    size_t most)
{
    double of[64];

    for (size_t i = 0; i < n; i++)
        of[i] = noise;
    return kvb_changepoints_find(logs, n, of, 200, tail, least, changes, most);
}

static long find(const double *logs, size_t n, kvb_changepoint *changes)
{
    return find_by(logs, n, NOISE, 0.01 / 1000, LEAST, changes, 4);
}

/* n values of one level; from `at` on they are higher by `change`. */
static void series_fill(double *logs, size_t n, size_t at, double change, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        logs[i] = 11 + NOISE * synthetic_normal(seed) + (i >= at ? change : 0);
}

static void test_no_change(void **state)
{
    double logs[30];
    kvb_changepoint changes[4];
    uint64_t seed = 1;
    long alarms = 0;

    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        size_t n = 2 + i % 29;
        series_fill(logs, n, n, 0, &seed);
        alarms += find(logs, n, changes) > 0;
    }
    assert_in_range(alarms, 0, 9);
    for (size_t i = 0; i < 1000; i++) { /* three times the given noise, which the scatter shows */
        series_fill(logs, 30, 30, 0, &seed);
        alarms += find_by(logs, 30, NOISE / 3, 0.01 / 1000, LEAST, changes, 4) > 0;
    }
    assert_in_range(alarms, 0, 9);
    assert_int_equal(find(logs, 1, changes), 0);
    assert_int_equal(find(logs, 0, changes), 0);
}

static void test_one_change(void **state)
{
    double logs[24];
    kvb_changepoint changes[4];
    uint64_t seed = 2;
    int found = 0, inside = 0;

    (void)state;
    for (int i = 0; i < 500; i++) {
        series_fill(logs, 24, 10, 0.15, &seed);
        if (find(logs, 24, changes) != 1 || changes[0].at < 9 || changes[0].at > 11)
            continue;
        found++;
        inside += changes[0].low < 0.15 && changes[0].high > 0.15;
        assert_true(changes[0].low > 0);
    }
    assert_in_range(found, 475, 500);
    assert_true(inside >= found - 2);
}

static void test_two_changes(void **state)
{
    static const double levels[] = {1, 1, 1, 1, 1, 1, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2};
    kvb_changepoint changes[4];

    (void)state;
    assert_int_equal(find(levels, 18, changes), 2);
    assert_int_equal(changes[0].at, 6);
    assert_int_equal(changes[1].at, 12);
    assert_true(fabs(changes[0].change - 0.5) < 1e-12 && fabs(changes[1].change + 0.3) < 1e-12);
    assert_int_equal(find_by(levels, 18, NOISE, 1e-5, LEAST, changes, 1), 2); /* counts both, stores one */
}

/* One odd run among others is no change, but the last run may be. A change that is too small to matter is none. */
static void test_odd_run(void **state)
{
    double logs[] = {1, 1, 1, 1, 1.6, 1, 1, 1, 1};
    kvb_changepoint changes[4];

    (void)state;
    assert_int_equal(find(logs, 9, changes), 0);
    logs[4] = 1;
    logs[8] = 1.6;
    assert_int_equal(find(logs, 9, changes), 1);
    assert_int_equal(changes[0].at, 8);
    for (int i = 0; i < 9; i++)
        logs[i] = i < 5 ? 1 : 1.04;
    assert_int_equal(find_by(logs, 9, 1e-4, 1e-5, LEAST, changes, 4), 0);
    assert_int_equal(find_by(logs, 9, 1e-4, 1e-5, 0.03, changes, 4), 1);
}

/* ---- over files ------------------------------------------------------------------------------------------- */

static void test_files(void **state)
{
    const synthetic_noise noise = {.pass = 0.01, .process = 0.01, .passes = 12};
    kvb_thresholds thresholds;
    kvb_result_file files[8], *sorted[8];
    kvb_run_history history;
    char why[512];

    (void)state;
    kvb_thresholds_init(&thresholds);
    for (size_t i = 0; i < 8; i++) {
        memset(&files[i], 0, sizeof files[i]);
        snprintf(files[i].manifest.date, sizeof files[i].manifest.date, "2025-01-%02zuT00:00:00Z", i + 1);
        files[i].n = 60;
        files[i].results = synthetic_run(60, 3, i < 5 ? 1 : 1.4, &noise, i + 1);
        sorted[7 - i] = &files[i];
    }
    kvb_run_history_sort(sorted, 8);
    for (size_t i = 0; i < 8; i++)
        assert_ptr_equal(sorted[i], &files[i]);
    assert_int_equal(kvb_run_history_find(sorted, 8, &thresholds, &history, why, sizeof why), 0);
    assert_int_equal(history.series, 60);
    assert_int_equal(history.n, 20);
    for (size_t i = 0; i < history.n; i++) {
        assert_string_equal(history.changes[i].to->kernel, "gamma");
        assert_int_equal(history.changes[i].from_file, 4);
        assert_int_equal(history.changes[i].to_file, 5);
        assert_int_equal(history.changes[i].verdict, KVB_VERDICT_SLOWER);
    }
    double resolution = history.resolution;
    kvb_run_history_free(&history);

    for (size_t i = 0; i < 60; i++) /* one noisy run hides nothing that seven show */
        files[2].results[i].time.null_difference = 0.5;
    assert_int_equal(kvb_run_history_find(sorted, 8, &thresholds, &history, why, sizeof why), 0);
    assert_int_equal(history.n, 20);
    assert_true(history.resolution < 2 * resolution);
    kvb_run_history_free(&history);

    files[2].results[7] = files[2].results[8];
    assert_int_equal(kvb_run_history_find(sorted, 8, &thresholds, &history, why, sizeof why), -EINVAL);
    assert_string_equal(why,
                        "the run of 2025-01-03T00:00:00Z holds a combination twice: work-00/seq/pool-2/gamma/1/double");
    for (size_t i = 0; i < 8; i++)
        free(files[i].results);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_change), cmocka_unit_test(test_one_change), cmocka_unit_test(test_two_changes),
        cmocka_unit_test(test_odd_run),   cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
