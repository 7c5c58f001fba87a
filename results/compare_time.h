/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the times of one combination. Private to comparisons, summaries and the history of runs. */
#ifndef KVB_COMPARE_TIME_H
#define KVB_COMPARE_TIME_H

#include "results/compare.h"

/* The noise of a comparison, known before any combination is judged. */
typedef struct kvb_compare_noise {
    double resolution; /* smallest relative difference that the sides can resolve; NaN: unknown */
    size_t nulls;      /* null comparisons of the sides */
    bool known;        /* are there enough null comparisons? */
    double floor;      /* logarithm: least half-width of the interval of one run on each side */
    double between;    /* standard deviation of a logarithm from run to run, over all combinations; paired: 0 */
    double tail;       /* probability that one interval misses */
    double common;     /* standard deviation of a shift that all combinations share; paired: 0 */
    double machine;    /* log(base / new) of the machine's bandwidth; unknown or paired: 0 */
    bool paired;
} kvb_compare_noise;

/* One combination in all runs of the base [0] and of the new build [1]. */
typedef struct kvb_time_runs {
    const kvb_result *of[2][KVB_RUNS];
    size_t n[2];
} kvb_time_runs;

/* The mean square of a combination's times (logarithms) from run to run, about the means of its builds. NaN: one run on
 * each side. */
double kvb_time_scatter(const kvb_time_runs *runs);

/* Takes the noise from several runs instead of null comparisons: the middle of n scatters, which are sorted. */
void kvb_noise_see(kvb_compare_noise *noise, double *scatters, size_t n, const size_t runs[2]);

/* The largest common shift, except with probability tail. common: estimated from so many null comparisons. */
double kvb_common_reach(double common, double tail, size_t nulls);

/* Fills in all members except `machine`. compared: how many times will be judged. runs: of each build; {1, 1} for one
 * side only, with new NULL. 0 or -ENOMEM. */
int kvb_noise_of(const kvb_result *base, size_t n_base, const kvb_result *new, size_t n_new, size_t compared,
                 double confidence, bool paired, const size_t runs[2], kvb_compare_noise *noise);

/* The resolution of a run: the smallest relative difference of one time that a comparison with an equally noisy run can
 * tell from none, at KVB_CONFIDENCE for all times together. NaN: unknown, because fewer than three combinations were
 * compared with themselves, or these differ wildly. 0 or -ENOMEM. */
int kvb_run_resolution(const kvb_result *results, size_t n, double *resolution, size_t *nulls);

/* "32.2 % (437 null comparisons)", "unknown (1 null comparison)". */
#define KVB_RESOLUTION_TEXT 64u
void kvb_resolution_text(double resolution, size_t nulls, char text[KVB_RESOLUTION_TEXT]);

/* How much the machine's bandwidth fell from base to new, as measured beside the combinations: the median logarithm.
 * NaN: few combinations have it, or no memory. */
double kvb_machine_shift(const kvb_finding *findings, size_t n);

/* |a / b - 1| as a distance of logarithms: the larger of two, as it is unknown whether a or b was larger. */
double kvb_null_log(double difference);

/* Are these the very same measurements? Then no interval is needed. */
bool kvb_time_is_same_measurement(const kvb_result *base, const kvb_result *new);

/* Judges a combination that passed on both sides. Fills in verdict, before, after, ratio, low, high and reason.
 * threshold may be infinite. Each side has at least the finding's own run. */
void kvb_time_judge(const kvb_compare_noise *noise, double threshold, const kvb_time_runs *runs, kvb_finding *finding);

/* The verdict on an estimate with its interval (logarithms); threshold is relative. The interval is first widened by
 * faster (<= 0) to slower (>= 0): a change that all combinations share may explain so much. */
kvb_verdict kvb_interval_judge(double estimate, double *low, double *high, double faster, double slower,
                               double threshold);

#endif
