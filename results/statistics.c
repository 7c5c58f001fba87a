/* SPDX-License-Identifier: Apache-2.0 */
#include "results/statistics.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

/* ---- order statistics --------------------------------------------------------------------------------- */

static double sorted_quantile(const double *sorted, size_t n, double p)
{
    assert(p >= 0 && p <= 1);
    if (!n)
        return NAN;
    double place = p * (double)(n - 1);
    size_t below = (size_t)place;
    double part = place - (double)below;
    /* no multiplication if the place is exactly a sample: 0 * infinity would be NaN */
    return part > 0 ? sorted[below] + part * (sorted[below + 1] - sorted[below]) : sorted[below];
}

double kvb_quantile(double *values, size_t n, double p)
{
    if (n)
        kvb_doubles_sort(values, n);
    return sorted_quantile(values, n, p);
}

static double window_median(const double *passes, size_t n)
{
    double copy[KVB_STEADY_WINDOW];
    assert(n > 0 && n <= KVB_STEADY_WINDOW);
    memcpy(copy, passes, n * sizeof *copy);
    return kvb_quantile(copy, n, 0.5);
}

bool kvb_series_steady(const double *passes, size_t n, size_t window, double tolerance)
{
    if (n / 2 < window)
        return false;
    double before = window_median(passes + n - 2 * window, window);
    double last = window_median(passes + n - window, window);
    return last >= before || before - last < tolerance * before;
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

/* A standard normal number, by Marsaglia's polar method. The method's second number is dropped. */
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

/* A gamma variable of shape >= 1 (Marsaglia, Tsang: A simple method for generating gamma variables, 2000). */
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

/*
 * Median of one resample of n sorted samples. The resample itself is not drawn: its k-th smallest member (from 1) is
 * sorted[floor(n u)], where u is the k-th smallest of n uniform numbers and follows Beta(k, n - k + 1) (David,
 * Nagaraja: Order Statistics, 2003, 2.3). For even n, the member below it is at u w, where w is the largest of k - 1
 * uniform numbers.
 */
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
    kvb_doubles_sort(sorted, n);
    for (uint32_t i = 0; i < rounds; i++)
        medians[i] = resample_median(sorted, n, &seed);
    *low = kvb_quantile(medians, rounds, (1 - confidence) / 2);
    *high = sorted_quantile(medians, rounds, (1 + confidence) / 2);
    free(sorted);
    return 0;
}

double kvb_median_error(const double *samples, size_t n, uint32_t rounds)
{
    uint64_t seed = 1;
    double *sorted = n > 1 ? malloc(n * sizeof *sorted) : NULL, mean = 0, squares = 0;
    if (!sorted)
        return n > 1 ? NAN : 0;
    memcpy(sorted, samples, n * sizeof *sorted);
    kvb_doubles_sort(sorted, n);
    for (uint32_t i = 0; i < rounds; i++) { /* Welford */
        double median = resample_median(sorted, n, &seed), off = median - mean;
        mean += off / (i + 1);
        squares += off * (median - mean);
    }
    free(sorted);
    return sqrt(squares / rounds);
}

/* ---- distributions --------------------------------------------------------------------------------------- */

/* P(|T| > t): Abramowitz, Stegun, Handbook of Mathematical Functions, 1964, 26.7.3 and 26.7.4. */
static double student_tail(double t, uint32_t freedom)
{
    double angle = atan(t / sqrt(freedom)), c = cos(angle), sum = 0, term = freedom % 2 ? c : 1;

    for (uint32_t k = freedom % 2 ? 1 : 0; k + 2 <= freedom; k += 2) {
        sum += term;
        term *= c * c * (k + 1) / (k + 2);
    }
    sum *= sin(angle);
    return 1 - (freedom % 2 ? (angle + sum) / acos(0) : sum);
}

double kvb_student_quantile(double tail, uint32_t freedom)
{
    double low = 0, high = 1e9;

    for (int i = 0; i < 200 && high - low > 1e-10 * high; i++) {
        double t = (low + high) / 2;

        if ((freedom > 200 ? erfc(t / sqrt(2)) : student_tail(t, freedom)) > tail)
            low = t;
        else
            high = t;
    }
    return (low + high) / 2;
}

size_t kvb_sign_rank(size_t n, double tail)
{
    double term = pow(0.5, (double)n), below = term; /* P(exactly k heads), P(at most k heads) of n fair coins */
    size_t k = 0;

    while (k < n / 2 && 2 * below <= tail) {
        term *= (double)(n - k) / (double)(k + 1);
        below += term;
        k++;
    }
    return k;
}

/* ---- changes of level ------------------------------------------------------------------------------------ */

#define MEDIAN_LOSS 1.2533141373155 /* sqrt(pi / 2): the median's standard error over the mean's, of normal values */
#define FEW         6               /* fewest values of a series that show its scatter */

typedef struct search {
    const double *logs, *noise;
    double *scratch;
    bool *begins;                 /* [n] a level begins here */
    double scatter, reach, least; /* reach: a difference of so many standard errors is not chance */
} search;

static double level_of(const search *s, size_t first, size_t end)
{
    memcpy(s->scratch, s->logs + first, (end - first) * sizeof *s->scratch);
    return kvb_quantile(s->scratch, end - first, 0.5);
}

/* Standard deviation of a value, from differences of neighbours: a change of level affects only one of these. */
static double scatter_of(const double *logs, size_t n, double *scratch)
{
    if (n < FEW)
        return 0;
    for (size_t i = 0; i + 1 < n; i++)
        scratch[i] = fabs(logs[i + 1] - logs[i]);
    return 1.4826 * kvb_quantile(scratch, n - 1, 0.5) / sqrt(2);
}

/* Standard error of a level. The median of one or two values is their mean, with its standard error. */
static double level_error(const search *s, size_t first, size_t end)
{
    size_t n = end - first;

    memcpy(s->scratch, s->noise + first, n * sizeof *s->scratch);
    double noise = fmax(s->scatter, kvb_quantile(s->scratch, n, n > 2 ? 0.5 : 1));
    return noise * (n > 2 ? MEDIAN_LOSS : 1) / sqrt((double)n);
}

/* The change of level from [first, at) to [at, end). */
static kvb_changepoint change_of(const search *s, size_t first, size_t at, size_t end)
{
    double change = level_of(s, at, end) - level_of(s, first, at);
    double reach = s->reach * hypot(level_error(s, first, at), level_error(s, at, end));

    return (kvb_changepoint){.at = at, .change = change, .low = change - reach, .high = change + reach};
}

static bool is_change(const search *s, const kvb_changepoint *c)
{
    return (c->low > 0 || c->high < 0) && fabs(c->change) >= s->least;
}

/* Sum of the distances from the level. A good split makes it smaller. */
static double distances(const search *s, size_t first, size_t end)
{
    double level = level_of(s, first, end), sum = 0;

    for (size_t i = first; i < end; i++)
        sum += fabs(s->logs[i] - level);
    return sum;
}

static void segment_search(search *s, size_t first, size_t end)
{
    double least = INFINITY;
    size_t best = first;

    for (size_t at = first + 1; at < end; at++) {
        double sum = distances(s, first, at) + distances(s, at, end);

        if (sum < least) {
            least = sum;
            best = at;
        }
    }
    if (best == first)
        return;
    kvb_changepoint change = change_of(s, first, best, end);
    if (!is_change(s, &change))
        return;
    s->begins[best] = true;
    segment_search(s, first, best);
    segment_search(s, best, end);
}

/* Takes the changes when all levels are known: each between the levels on its two sides. */
static size_t changes_take(const search *s, size_t n, kvb_changepoint *changes, size_t most)
{
    size_t found = 0, first = 0;

    for (size_t at = 1, end; at < n; at = end) {
        for (end = at + 1; end < n && !s->begins[end];)
            end++;
        if (!s->begins[at])
            continue; /* the first level */
        kvb_changepoint change = change_of(s, first, at, end);
        if (!is_change(s, &change))
            continue;
        if (found < most)
            changes[found] = change;
        found++;
        first = at;
    }
    return found;
}

long kvb_changepoints_find(const double *logs, size_t n, const double *noise, unsigned freedom, double tail,
                           double least, kvb_changepoint *changes, size_t most)
{
    if (n < 2)
        return 0;
    search s = {.logs = logs,
                .noise = noise,
                .scratch = malloc(n * sizeof *s.scratch),
                .begins = calloc(n, sizeof *s.begins),
                .least = least};
    long found = -ENOMEM;
    if (s.scratch && s.begins) {
        s.scatter = scatter_of(logs, n, s.scratch);
        s.reach = kvb_student_quantile(tail / (double)(n - 1), freedom);
        segment_search(&s, 0, n);
        found = (long)changes_take(&s, n, changes, most);
    }
    free(s.scratch);
    free(s.begins);
    return found;
}
