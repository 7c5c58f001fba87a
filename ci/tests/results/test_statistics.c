/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: statistics of samples and runs, and changes of level. */
#include "ci/tests/tests.h"
#include "ci/tests/results/synthetic.h"
#include "results/result.h"
#include "results/compare.h"
#include "results/statistics.h"
#include "workloads/array.h"

/* Shows: bootstrap intervals of the median have their nominal coverage and equal those of plain resampling; warm-up,
 * outliers, null differences, quantiles, errors and autocorrelations are right for series with known answers, order
 * statistics for step times; Student's quantiles and the sign test's ranks equal those of printed tables. */

/* ---- intervals of the median --------------------------------------------------------------------------------- */

/* Share of 400 sets of n samples whose interval holds the true median. */
static double coverage(size_t n, double confidence, bool lognormal, uint64_t seed)
{
    double samples[128], low, high;
    double truth = lognormal ? exp(3) : 10;
    int sets = 400, held = 0;
    for (int set = 0; set < sets; set++) {
        for (size_t i = 0; i < n; i++)
            samples[i] = lognormal ? exp(3 + synthetic_normal(&seed)) : 10 + 2 * synthetic_normal(&seed);
        assert_int_equal(kvb_median_interval(samples, n, confidence, 400, (uint64_t)set, &low, &high), 0);
        assert_true(low <= high);
        held += low <= truth && truth <= high;
    }
    return (double)held / sets;
}

TEST(intervals_cover_about_as_often_as_they_say)
{
    static const struct {
        size_t n;
        double confidence;
    } cases[] = {{25, 0.95}, {60, 0.95}, {101, 0.95}, {61, 0.8}, {100, 0.5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int lognormal = 0; lognormal < 2; lognormal++) {
            double want = cases[i].confidence, got = coverage(cases[i].n, want, lognormal, 99 + i);
            /* three standard errors of a share of 400 sets, and 2 % since few samples are discrete */
            if (fabs(got - want) > 3 * sqrt(want * (1 - want) / 400) + 0.02)
                fail_msg("n %zu, confidence %g, %s: covers %g", cases[i].n, want, lognormal ? "lognormal" : "normal",
                         got);
        }
}

/* The interval from fully drawn resamples. */
static void plain_bootstrap(const double *samples, size_t n, double confidence, size_t rounds, double *low,
                            double *high)
{
    uint64_t seed = 4711;
    double *medians = malloc(rounds * sizeof *medians), drawn[64];
    assert_non_null(medians);
    for (size_t r = 0; r < rounds; r++) {
        for (size_t i = 0; i < n; i++)
            drawn[i] = samples[(size_t)(synthetic_uniform(&seed) * (double)n)];
        kvb_doubles_sort(drawn, n);
        medians[r] = (drawn[(n - 1) / 2] + drawn[n / 2]) / 2;
    }
    kvb_doubles_sort(medians, rounds);
    *low = medians[(size_t)((1 - confidence) / 2 * (double)rounds)];
    *high = medians[(size_t)((1 + confidence) / 2 * (double)rounds)];
    free(medians);
}

TEST(intervals_are_those_of_plain_resampling)
{
    static const size_t sizes[] = {1, 2, 3, 4, 5, 8, 15, 16, 40, 41};
    static const double confidences[] = {0.42, 0.65, 0.78};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t c = 0; c < 3; c++) {
            double samples[64], low, high, want_low, want_high;
            size_t n = sizes[s];
            for (size_t i = 0; i < n; i++)
                samples[i] = (double)(i * 11 % n); /* 0 .. n-1, in no order */
            assert_int_equal(kvb_median_interval(samples, n, confidences[c], 20000, 1, &low, &high), 0);
            plain_bootstrap(samples, n, confidences[c], 20000, &want_low, &want_high);
            /* odd sizes: no quantile falls on a step of the median's distribution, so intervals agree to the sample;
             * even sizes: steps are half a sample wide, and intervals may be one step off */
            if (fabs(low - want_low) > 0.5 || fabs(high - want_high) > 0.5)
                fail_msg("n %zu, confidence %g: %g .. %g, plain %g .. %g", n, confidences[c], low, high, want_low,
                         want_high);
        }
}

TEST(an_interval_is_a_function_of_samples_and_seed)
{
    double samples[50], shuffled[50], copy[50], low[4], high[4];
    uint64_t seed = 5;
    for (size_t i = 0; i < 50; i++)
        shuffled[(i * 7) % 50] = samples[i] = synthetic_uniform(&seed);
    memcpy(copy, samples, sizeof copy);
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            kvb_median_interval(i == 1 ? shuffled : samples, 50, 0.9, 200, i == 3 ? 8 : 7, &low[i], &high[i]), 0);
    assert_memory_equal(copy, samples, sizeof copy);
    for (int i = 1; i < 3; i++)
        assert_true(low[i] == low[0] && high[i] == high[0]);
    assert_true(low[3] != low[0] || high[3] != high[0]);
}

TEST(intervals_of_few_or_equal_samples)
{
    double same[9], one = 42, low = 0, high = 0;
    assert_int_equal(kvb_median_interval(NULL, 0, 0.95, 100, 1, &low, &high), 0);
    assert_true(isnan(low) && isnan(high));
    assert_int_equal(kvb_median_interval(&one, 1, 0.95, 100, 1, &low, &high), 0);
    assert_true(low == 42 && high == 42);
    for (size_t i = 0; i < 9; i++)
        same[i] = 5;
    assert_int_equal(kvb_median_interval(same, 9, 0.95, 100, 1, &low, &high), 0);
    assert_true(low == 5 && high == 5);
    /* two samples a, b: the median is a, (a + b) / 2 or b with probability 1/4, 2/4, 1/4 */
    double two[] = {10, 20};
    assert_int_equal(kvb_median_interval(two, 2, 0.95, 2000, 1, &low, &high), 0);
    assert_true(low == 10 && high == 20);
    assert_int_equal(kvb_median_interval(two, 2, 0.4, 2000, 1, &low, &high), 0);
    assert_true(low == 15 && high == 15);
}

TEST(more_samples_narrow_the_interval)
{
    double widths[2];
    for (int many = 0; many < 2; many++) {
        size_t n = many ? 100000 : 1000;
        double *samples = malloc(n * sizeof *samples), low, high;
        uint64_t seed = 17;
        assert_non_null(samples);
        for (size_t i = 0; i < n; i++)
            samples[i] = synthetic_normal(&seed);
        assert_int_equal(kvb_median_interval(samples, n, 0.95, 2000, 3, &low, &high), 0);
        widths[many] = high - low;
        free(samples);
    }
    /* asymptotically 2 * 1.96 * sqrt(pi / 2 / n): 0.155 and 0.0155 */
    assert_true(widths[0] > 0.11 && widths[0] < 0.21);
    assert_true(widths[1] > 0.011 && widths[1] < 0.021);
}

/* ---- warm-up ------------------------------------------------------------------------------------------------- */

/* First length at which the series counts as steady; 0: never. */
static size_t steady_at(const double *passes, size_t n, size_t window, double tolerance)
{
    for (size_t i = 0; i <= n; i++)
        if (kvb_series_steady(passes, i, window, tolerance))
            return i;
    return 0;
}

TEST(a_decaying_series_becomes_steady_when_it_is_flat)
{
    double passes[100];
    uint64_t seed = 3;
    for (size_t i = 0; i < 100; i++)
        passes[i] = 100 + 400 * exp(-(double)i / 4);
    /* medians of windows i-6..i-4 and i-3..i-1 differ by 400 (exp(3/4) - 1) exp(-(i-2)/4): below 2 % of
     * the earlier one first at i = 24 */
    assert_int_equal(steady_at(passes, 100, 3, 0.02), 24);
    assert_true(steady_at(passes, 100, 3, 0.001) > 30);
    for (size_t i = 0; i < 100; i++)
        passes[i] *= 1 + 0.002 * synthetic_normal(&seed);
    assert_in_range(steady_at(passes, 100, 3, 0.02), 22, 27);
    for (size_t i = 0; i < 100; i++)
        passes[i] = 1000 * pow(0.95, (double)i); /* falls forever */
    assert_int_equal(steady_at(passes, 100, 3, 0.02), 0);
}

TEST(steadiness_needs_two_windows)
{
    double flat[] = {5, 5, 5, 5, 5, 5, 5, 5}, rising[] = {1, 2, 3, 4}, spike[] = {9, 9, 9, 9, 90, 9};
    double step[] = {8, 8, 8, 4, 4, 4};
    assert_false(kvb_series_steady(flat, 0, 3, 0.01));
    assert_false(kvb_series_steady(flat, 5, 3, 0.01));
    assert_true(kvb_series_steady(flat, 6, 3, 0.01));
    assert_true(kvb_series_steady(flat, 8, 4, 0.0)); /* not lower */
    assert_true(kvb_series_steady(flat, 2, 1, 0.01));
    assert_false(kvb_series_steady(flat, 1, 1, 0.01));
    assert_true(kvb_series_steady(rising, 4, 2, 0.01));
    assert_true(kvb_series_steady(spike, 6, 3, 0.01));
    assert_false(kvb_series_steady(step, 6, 3, 0.49));
    assert_true(kvb_series_steady(step, 6, 3, 0.51)); /* falls by half */
}

/* ---- outliers, null differences, quantiles ------------------------------------------------------------------- */

static uint64_t outliers_of(const double *samples, size_t n)
{
    double copy[2001]; /* is sorted */
    kvb_time_stats stats;
    memcpy(copy, samples, n * sizeof *copy);
    kvb_time_stats_of(copy, n, &stats);
    return stats.outliers;
}

TEST(outliers_lie_beyond_three_and_a_half_scaled_deviations)
{
    double samples[2001] = {0};
    uint64_t seed = 8;
    assert_int_equal(outliers_of(samples, 0), 0);
    samples[0] = 3;
    assert_int_equal(outliers_of(samples, 1), 0);
    /* -5 .. 5 and two more: median 0, MAD 3, reach 15.567 */
    for (int i = 0; i < 11; i++)
        samples[i] = i - 5;
    samples[11] = 15.5;
    samples[12] = -15.5;
    assert_int_equal(outliers_of(samples, 13), 0);
    samples[11] = 15.6;
    assert_int_equal(outliers_of(samples, 13), 1);
    samples[12] = -1000;
    assert_int_equal(outliers_of(samples, 13), 2);
    /* a normal distribution has 0.047 % of outliers, about one in 2000; all planted ones are found */
    for (size_t i = 0; i < 2001; i++)
        samples[i] = 100 + synthetic_normal(&seed);
    assert_in_range(outliers_of(samples, 2001), 0, 5);
    size_t before = outliers_of(samples, 2001);
    for (size_t i = 0; i < 20; i++)
        samples[i * 100 + 7] = 150;
    assert_in_range(outliers_of(samples, 2001), before + 18, before + 22);
    /* if more than half are equal, every other value is an outlier */
    for (size_t i = 0; i < 10; i++)
        samples[i] = i < 7 ? 4 : 5;
    assert_int_equal(outliers_of(samples, 10), 3);
}

TEST(null_difference_is_paired)
{
    const double drift[] = {10, 11, 20, 22, 40,
                            44, 80, 88, 1}; /* B is always 10 % above A; the last value has no pair */
    const double same[] = {5, 5, 7, 7}, lower[] = {10, 9};
    assert_float_equal(kvb_null_difference(drift, 9), 0.1, 1e-12);
    assert_true(kvb_null_difference(same, 4) == 0);
    assert_float_equal(kvb_null_difference(lower, 2), 0.1, 1e-12);
    assert_true(isnan(kvb_null_difference(same, 1)) && isnan(kvb_null_difference(same, 0)));
}

TEST(quantiles_are_linear_between_order_statistics)
{
    double values[] = {40, 10, 30, 20}, one[] = {7}, signs[] = {-1, 3, -2, INFINITY, -0.0};
    assert_true(isnan(kvb_quantile(values, 0, 0.5)));
    assert_true(kvb_quantile(values, 4, 0) == 10);
    assert_true(values[0] == 10 && values[1] == 20 && values[2] == 30 && values[3] == 40);
    assert_true(kvb_quantile(values, 4, 1) == 40);
    assert_true(kvb_quantile(values, 4, 0.5) == 25);
    assert_float_equal(kvb_quantile(values, 4, 0.25), 17.5, 1e-12);
    assert_float_equal(kvb_quantile(values, 4, 0.9), 37, 1e-12);
    assert_true(kvb_quantile(one, 1, 0) == 7 && kvb_quantile(one, 1, 0.3) == 7 && kvb_quantile(one, 1, 1) == 7);
    assert_true(kvb_quantile(signs, 5, 0.5) == 0 && kvb_quantile(signs, 5, 0.75) == 3);
    assert_true(isinf(kvb_quantile(signs, 5, 1)) && kvb_quantile(signs, 5, 0) == -2);
}

TEST(test_none)
{
    kvb_time_stats stats;

    kvb_time_stats_of(NULL, 0, &stats);
    assert_int_equal(stats.samples, 0);
    assert_true(isnan(stats.median) && isnan(stats.p99) && isnan(stats.mad));
    assert_true(isnan(stats.min) && isnan(stats.max) && isnan(stats.total));
}

TEST(test_few)
{
    double one[] = {7}, two[] = {9, 4}, five[] = {100, 1, 3, 2, 4}, same[] = {5, 5, 5, 5};
    kvb_time_stats stats;

    kvb_time_stats_of(one, 1, &stats);
    assert_true(stats.median == 7 && stats.p99 == 7 && stats.mad == 0 && stats.total == 7 && stats.samples == 1);
    kvb_time_stats_of(two, 2, &stats);
    assert_true(stats.median == 6.5 && stats.p99 == 9 && stats.mad == 2.5 && stats.min == 4 && stats.max == 9);
    kvb_time_stats_of(five, 5, &stats); /* deviations from 3: 0 1 1 2 97 */
    assert_true(stats.median == 3 && stats.p99 == 100 && stats.mad == 1 && stats.total == 110);
    kvb_time_stats_of(same, 4, &stats);
    assert_true(stats.median == 5 && stats.mad == 0);
}

TEST(test_nearest_rank)
{
    double samples[201];
    kvb_time_stats stats;

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

/* The MAD is the middle of the sorted deviations, with ties too. */
TEST(test_mad_by_sorting)
{
    uint32_t seed = 12345;

    for (size_t n = 1; n < 60; n++) {
        double samples[60], deviations[60];
        kvb_time_stats stats;

        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            samples[i] = deviations[i] = seed >> 24; /* few values: ties occur */
        }
        kvb_time_stats_of(samples, n, &stats);
        for (size_t i = 0; i < n; i++)
            deviations[i] = fabs(deviations[i] - stats.median);
        kvb_doubles_sort(deviations, n);
        assert_true(stats.mad == (deviations[(n - 1) / 2] + deviations[n / 2]) / 2);
    }
}

static void near(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%.9g, expected %.9g", got, want);
}

TEST(test_student)
{
    static const struct {
        double tail;
        uint32_t freedom;
        double t;
    } printed[] = {{0.05, 1, 12.7062},   {0.05, 2, 4.30265},     {0.01, 5, 4.03214},
                   {0.05, 10, 2.22814},  {0.001, 7, 5.40788},    {0.002, 60, 3.23171},
                   {0.01, 120, 2.61742}, {0.05, 1000, 1.959964}, {1e-6, 1000, 4.89164}};

    for (size_t i = 0; i < sizeof printed / sizeof *printed; i++)
        near(kvb_student_quantile(printed[i].tail, printed[i].freedom), printed[i].t, 2e-6);
}

TEST(test_sign)
{
    assert_int_equal(kvb_sign_rank(5, 0.05), 0); /* 2 / 32 is more */
    assert_int_equal(kvb_sign_rank(6, 0.05), 1);
    assert_int_equal(kvb_sign_rank(10, 0.05), 2);
    assert_int_equal(kvb_sign_rank(20, 0.05), 6);
    assert_int_equal(kvb_sign_rank(50, 0.01), 16);
    assert_int_equal(kvb_sign_rank(0, 0.05), 0);
}

TEST(test_error)
{
    const synthetic_noise white = {.pass = 1, .passes = 64}, red = {.pass = 1, .follows = 0.7, .passes = 64};
    double series[64], error = 0, white_follows = 0, red_follows = 0;
    uint64_t seed = 3;

    for (int i = 0; i < 100; i++) {
        synthetic_series(&white, 1, series, &seed);
        for (int j = 0; j < 64; j++)
            series[j] = log(series[j]);
        error += kvb_median_error(series, 64, 500) / 100;
        white_follows += kvb_autocorrelation(series, 64) / 100;
        synthetic_series(&red, 1, series, &seed);
        for (int j = 0; j < 64; j++)
            series[j] = log(series[j]);
        red_follows += kvb_autocorrelation(series, 64) / 100;
    }
    near(error, 1.2533 / 8, 0.1); /* sqrt(pi / 2 n) */
    assert_true(white_follows < 0.1);
    near(red_follows, 0.7, 0.05);
    assert_true(kvb_median_error(series, 1, 10) == 0);
    assert_true(kvb_autocorrelation((const double[]){2, 2, 2, 2, 2, 2, 2, 2}, 8) <= 0.125);
}

/* Shows: changes of level are found at their places in series with known answers, and none in series without one; over
 * files, in the order of their dates, for each combination. */

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

/* Fills n values of one level; from `at` on they are higher by `change`. */
static void series_fill(double *logs, size_t n, size_t at, double change, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        logs[i] = 11 + NOISE * synthetic_normal(seed) + (i >= at ? change : 0);
}

TEST(test_no_change)
{
    double logs[30];
    kvb_changepoint changes[4];
    uint64_t seed = 1;
    long alarms = 0;

    for (size_t i = 0; i < 1000; i++) {
        size_t n = 2 + i % 29;
        series_fill(logs, n, n, 0, &seed);
        alarms += find(logs, n, changes) > 0;
    }
    assert_in_range(alarms, 0, 9);
    for (size_t i = 0; i < 1000; i++) { /* the real noise is three times the given one: the scatter shows it */
        series_fill(logs, 30, 30, 0, &seed);
        alarms += find_by(logs, 30, NOISE / 3, 0.01 / 1000, LEAST, changes, 4) > 0;
    }
    assert_in_range(alarms, 0, 9);
    assert_int_equal(find(logs, 1, changes), 0);
    assert_int_equal(find(logs, 0, changes), 0);
}

TEST(test_one_change)
{
    double logs[24];
    kvb_changepoint changes[4];
    uint64_t seed = 2;
    int found = 0, inside = 0;

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

TEST(test_two_changes)
{
    static const double levels[] = {1, 1, 1, 1, 1, 1, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2};
    kvb_changepoint changes[4];

    assert_int_equal(find(levels, 18, changes), 2);
    assert_int_equal(changes[0].at, 6);
    assert_int_equal(changes[1].at, 12);
    assert_true(fabs(changes[0].change - 0.5) < 1e-12 && fabs(changes[1].change + 0.3) < 1e-12);
    assert_int_equal(find_by(levels, 18, NOISE, 1e-5, LEAST, changes, 1), 2); /* counts both, stores one */
}

/* A single odd run is no change, unless it is the last run. A change below `least` does not count. */
TEST(test_odd_run)
{
    double logs[] = {1, 1, 1, 1, 1.6, 1, 1, 1, 1};
    kvb_changepoint changes[4];

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

TEST(test_files)
{
    const synthetic_noise noise = {.pass = 0.01, .process = 0.01, .passes = 12};
    kvb_thresholds thresholds;
    kvb_result_file files[8], *sorted[8];
    kvb_run_history history;
    char why[512];

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

    for (size_t i = 0; i < 60; i++) /* one noisy run of eight does not hide the changes */
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
