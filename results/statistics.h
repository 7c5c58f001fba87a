/* SPDX-License-Identifier: Apache-2.0 */
/* Robust statistics of step times: medians with bootstrap intervals, warm-up, outliers, null comparison. */
#ifndef KVB_STATISTICS_H
#define KVB_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Percentile bootstrap interval of the median (Efron, Tibshirani: An Introduction to the Bootstrap, 1993, ch. 13): low
 * and high at the given confidence, by `rounds` seeded resamples. n = 0: NaN; n = 1: the sample itself. samples need
 * not be sorted. 0 or -ENOMEM. */
int kvb_median_interval(const double *samples, size_t n, double confidence, uint32_t rounds, uint64_t seed, double *low,
                        double *high);

/* Standard error of the median by the same resampling; 0 for n below 2, NaN without memory. */
double kvb_median_error(const double *samples, size_t n, uint32_t rounds, uint64_t seed);

/* First-order autocorrelation of n values in their order, corrected for its bias (Kendall, Biometrika 41, 1954), within
 * 0 .. 0.9. Values that follow each other so count as n (1 - r) / (1 + r) independent ones. */
double kvb_autocorrelation(const double *values, size_t n);

/* Has a series of pass times become steady? True when the medians of its last two windows of `window` passes differ
 * by less than `tolerance` (relative), or the later one is not lower. */
bool kvb_series_steady(const double *passes, size_t n, size_t window, double tolerance);

/* Samples further than 3.5 scaled MADs from the median (Iglewicz, Hoaglin, 1993): counted, never dropped. */
size_t kvb_outliers_count(const double *samples, size_t n);

/* Null comparison: n values of the same thing, taken in turn as A, B, A, B …; |median of B / A - 1| over the pairs, so
 * that drift cancels. NaN below one pair. -ENOMEM is told as NaN too. */
double kvb_null_difference(const double *values, size_t n);

/* The p-quantile (0..1) of n values, linear between order statistics; sorts in place. NaN for n = 0. */
double kvb_quantile(double *values, size_t n, double p);

#endif
