/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Robust statistics of times. All are medians and other order statistics, so a late timer tick or a stolen core changes
 * little.
 */
#ifndef KVB_STATISTICS_H
#define KVB_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The p-quantile (0..1) of n values, by linear interpolation between order statistics. Sorts the values. NaN for n = 0.
 */
double kvb_quantile(double *values, size_t n, double p);

/* Percentile bootstrap interval of the median (Efron, Tibshirani: An Introduction to the Bootstrap, 1993, ch. 13) at
 * the given confidence, from `rounds` seeded resamples. NaN for n = 0, the sample itself for n = 1. samples need not be
 * sorted. 0 or -ENOMEM. */
int kvb_median_interval(const double *samples, size_t n, double confidence, uint32_t rounds, uint64_t seed, double *low,
                        double *high);

/* Standard error of the median, by the same resampling from one seed. 0 for n below 2; NaN without memory. */
double kvb_median_error(const double *samples, size_t n, uint32_t rounds);

/* First-order autocorrelation of n values in their order, corrected for its bias (Kendall, Biometrika 41, 1954) and
 * limited to 0 .. 0.9. n values with autocorrelation r are worth n (1 - r) / (1 + r) independent ones. */
double kvb_autocorrelation(const double *values, size_t n);

#define KVB_STEADY_WINDOW 32u /* most passes of a window */
/* Has a series of pass times become steady: is the median of its last `window` passes at most `tolerance` (relative)
 * lower than that of the `window` passes before? */
bool kvb_series_steady(const double *passes, size_t n, size_t window, double tolerance);

/* Null comparison: n values of one build count in turn as A, B, A, B, …. Returns |median of B / A - 1| over the pairs,
 * in which drift cancels. No pair, or no memory: NaN. */
double kvb_null_difference(const double *values, size_t n);

/* ---- distributions ------------------------------------------------------------------------------------- */

#define KVB_NORMAL_50 0.6744897501960817 /* half of a standard normal distribution lies within +- this */
#define KVB_NORMAL_99 2.5758293035489004 /* 99 % of it lies within +- this */

/* The t for which P(|T| > t) = tail. T has Student's distribution with `freedom` degrees; above 200, the normal one. */
double kvb_student_quantile(double tail, uint32_t freedom);

/* The rank k of a median's interval by the sign test (Conover, Practical Nonparametric Statistics, 1999, 3.2): the
 * interval from the k-th smallest to the k-th largest of n values misses the median with probability `tail` at most. k
 * counts from 1; 0: n is too small. */
size_t kvb_sign_rank(size_t n, double tail);

/* ---- changes of level ---------------------------------------------------------------------------------- */

/*
 * Finds where a series changed its level, by binary segmentation (Scott, Knott, Biometrics 30, 1974; Vostrikova, Soviet
 * Mathematics Doklady 24, 1981) over medians. The series is split where the distances from the two medians have the
 * least sum. The split is a change of level if the medians differ by more than chance explains over all splits of all
 * series (Bonferroni's bound), and by enough to matter. Then both sides are searched. A single odd run is not a change.
 */
typedef struct kvb_changepoint {
    size_t at;                /* index of the first value of the new level */
    double change, low, high; /* logarithms: new minus old level, and the interval that decided */
} kvb_changepoint;

/*
 * logs: the logarithms of n values. noise [n]: least standard deviation of each value, from the null comparisons of its
 * run, known to `freedom` degrees; the scatter of the series is used if it is larger. A level of at least three values
 * is as noisy as its middle value, a shorter one as its noisiest, so one noisy run hides no change that others show.
 * tail: probability of finding a change in a series without one. least: smallest change that matters. Writes at most
 * `most` changes in ascending order; returns how many there are, or -ENOMEM.
 */
long kvb_changepoints_find(const double *logs, size_t n, const double *noise, unsigned freedom, double tail,
                           double least, kvb_changepoint *changes, size_t most);

#endif
