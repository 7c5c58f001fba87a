/* SPDX-License-Identifier: Apache-2.0 */
/* Robust statistics: all from order statistics, so that a late timer tick or a stolen core moves them little. */
#include "results/statistics.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- order statistics --------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sorted_quantile(const double *sorted, size_t n, double p)
{
    assert(p >= 0 && p <= 1);
    if (!n)
        return NAN;
    double place = p * (double)(n - 1);
    size_t below = (size_t)place;
    double part = place - (double)below;
    /* not by multiplication when it falls on a sample: 0 * infinity is no number */
    return part > 0 ? sorted[below] + part * (sorted[below + 1] - sorted[below]) : sorted[below];
}

double kvb_quantile(double *values, size_t n, double p)
{
    if (n)
        qsort(values, n, sizeof *values, ascending);
    return sorted_quantile(values, n, p);
}

/* The bits of a double in an order that unsigned comparison knows. */
static uint64_t key_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

static double value_of(uint64_t key)
{
    uint64_t bits = key >> 63 ? key & ~((uint64_t)1 << 63) : ~key;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* What an order statistic is taken of: the samples, or their distances from a centre. */
static double as_is(double x, double centre)
{
    (void)centre;
    return x;
}

static double distance(double x, double centre)
{
    return fabs(x - centre);
}

/* The k-th smallest (from 0) of n values of(sample), samples untouched and no memory taken: its key is built from
 * the top bit down, counting the values below it. 64 passes. */
static double kth_smallest(const double *samples, size_t n, size_t k, double (*of)(double, double), double centre)
{
    uint64_t key = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t tried = key | (uint64_t)1 << bit;
        size_t below = 0;
        for (size_t i = 0; i < n; i++)
            below += key_of(of(samples[i], centre)) < tried;
        if (below <= k)
            key = tried;
    }
    return value_of(key);
}

static double median_of(const double *samples, size_t n, double (*of)(double, double), double centre)
{
    double low = kth_smallest(samples, n, (n - 1) / 2, of, centre);
    return n % 2 ? low : (low + kth_smallest(samples, n, n / 2, of, centre)) / 2;
}

bool kvb_series_steady(const double *passes, size_t n, size_t window, double tolerance)
{
    assert(window > 0);
    if (n / 2 < window)
        return false;
    double before = median_of(passes + n - 2 * window, window, as_is, 0);
    double last = median_of(passes + n - window, window, as_is, 0);
    return last >= before || before - last < tolerance * before;
}

size_t kvb_outliers_count(const double *samples, size_t n)
{
    if (!n)
        return 0;
    /* 1.4826: the standard deviation of a normal distribution in units of its MAD */
    double median = median_of(samples, n, as_is, 0);
    double reach = 3.5 * 1.4826 * median_of(samples, n, distance, median);
    size_t outliers = 0;
    for (size_t i = 0; i < n; i++)
        outliers += fabs(samples[i] - median) > reach;
    return outliers;
}

double kvb_null_difference(const double *values, size_t n)
{
    size_t pairs = n / 2;
    double *ratios = pairs ? malloc(pairs * sizeof *ratios) : NULL, difference = NAN;
    for (size_t i = 0; i < pairs && ratios; i++)
        ratios[i] = values[2 * i + 1] / values[2 * i];
    if (ratios)
        difference = fabs(kvb_quantile(ratios, pairs, 0.5) - 1);
    free(ratios);
    return difference;
}

double kvb_autocorrelation(const double *values, size_t n)
{
    double mean = 0, squares = 0, products = 0;
    for (size_t i = 0; i < n; i++)
        mean += values[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        squares += (values[i] - mean) * (values[i] - mean);
        products += i ? (values[i] - mean) * (values[i - 1] - mean) : 0;
    }
    double r = squares > 0 ? products / squares : 0;
    return fmin(fmax(r + (1 + 3 * r) / (double)n, 0), 0.9);
}

/* ---- bootstrap -------------------------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), as a number in (0, 1). */
static double uniform_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return ((double)(z >> 12) + 0.5) * 0x1p-52;
}

/* Standard normal: Marsaglia's polar method; its second number is not kept. */
static double normal_next(uint64_t *state)
{
    double x, y, r;
    do {
        x = 2 * uniform_next(state) - 1;
        y = 2 * uniform_next(state) - 1;
        r = x * x + y * y;
    } while (r >= 1 || r == 0);
    return x * sqrt(-2 * log(r) / r);
}

/* Gamma of shape >= 1 (Marsaglia, Tsang: A simple method for generating gamma variables, 2000). */
static double gamma_next(double shape, uint64_t *state)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal_next(state), v = 1 + c * x;
        v = v * v * v;
        if (v > 0 && log(uniform_next(state)) < x * x / 2 + d - d * v + d * log(v))
            return d * v;
    }
}

/* Median of one resample of n sorted samples, without drawing the resample: its k-th smallest member (from 1) is
 * sorted[floor(n u)], where u, the k-th smallest of n uniform numbers, follows Beta(k, n - k + 1) (David, Nagaraja:
 * Order Statistics, 2003, 2.3). For even n the member below it is at u w, w the largest of k - 1 uniform numbers. */
static double resample_median(const double *sorted, size_t n, uint64_t *state)
{
    size_t k = n / 2 + 1;
    double below = gamma_next((double)k, state), above = gamma_next((double)(n - k + 1), state);
    double u = below / (below + above), last = (double)(n - 1);
    double upper = sorted[(size_t)fmin((double)n * u, last)];
    if (n % 2)
        return upper;
    double w = pow(uniform_next(state), 1 / (double)(k - 1));
    return (upper + sorted[(size_t)fmin((double)n * u * w, last)]) / 2;
}

int kvb_median_interval(const double *samples, size_t n, double confidence, uint32_t rounds, uint64_t seed, double *low,
                        double *high)
{
    assert(rounds > 0 && confidence > 0 && confidence < 1);
    *low = *high = NAN;
    if (!n)
        return 0;
    if (n > SIZE_MAX / sizeof(double) - rounds)
        return -ENOMEM;
    double *sorted = malloc((n + rounds) * sizeof *sorted);
    if (!sorted)
        return -ENOMEM;
    double *medians = sorted + n;
    memcpy(sorted, samples, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    for (uint32_t i = 0; i < rounds; i++)
        medians[i] = resample_median(sorted, n, &seed);
    *low = kvb_quantile(medians, rounds, (1 - confidence) / 2);
    *high = sorted_quantile(medians, rounds, (1 + confidence) / 2);
    free(sorted);
    return 0;
}

double kvb_median_error(const double *samples, size_t n, uint32_t rounds, uint64_t seed)
{
    double *sorted = n > 1 ? malloc(n * sizeof *sorted) : NULL, mean = 0, squares = 0;
    if (!sorted)
        return n > 1 ? NAN : 0;
    memcpy(sorted, samples, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    for (uint32_t i = 0; i < rounds; i++) { /* Welford */
        double median = resample_median(sorted, n, &seed), off = median - mean;
        mean += off / (i + 1);
        squares += off * (median - mean);
    }
    free(sorted);
    return sqrt(squares / rounds);
}
