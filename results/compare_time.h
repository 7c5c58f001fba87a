/* SPDX-License-Identifier: Apache-2.0 */
/* The time of one combination, before and after. Private to comparisons, summaries and the history of runs. */
#ifndef KVB_COMPARE_TIME_H
#define KVB_COMPARE_TIME_H

#include "results/compare.h"

/* What is known before any combination is judged. */
typedef struct kvb_compare_noise {
    double resolution; /* smallest relative difference that the sides can resolve; NaN: not known */
    size_t nulls;      /* null comparisons that say so */
    bool known;        /* do they say anything? */
    double floor;      /* the least half-width of the interval of one run a side, as a logarithm */
    double between;    /* standard deviation of a logarithm from run to run, for combinations at large; 0 if paired */
    double tail;       /* how often one interval may miss */
    double common;     /* what moves all combinations of one difference alike: a standard deviation. 0 if paired */
    double machine;    /* log(base / new) of the machine's own bandwidth; 0 if it is not known, or if paired */
    bool paired;
} kvb_compare_noise;

/* The same combination in all runs of the base [0], and of the new build [1]. */
typedef struct kvb_time_runs {
    const kvb_result *of[2][KVB_RUNS];
    size_t n[2];
} kvb_time_runs;

/* The mean square from run to run of one combination, about the means of its builds. NaN: one run a side. */
double kvb_time_scatter(const kvb_time_runs *runs);

/* Several runs show how runs differ: takes the middle of n scatters, which it sorts, in place of the null comparisons.
 */
void kvb_noise_see(kvb_compare_noise *noise, double *scatters, size_t n, const size_t runs[2]);

/* How far `common`, which that many null comparisons tell, reaches but with probability tail. */
double kvb_common_reach(double common, double tail, size_t nulls);

/* Fills in everything but `machine`. compared: how many times will be judged. runs: of each build; {1, 1} for one side
 * alone, where new may be NULL. 0 or -ENOMEM. */
int kvb_noise_of(const kvb_result *base, size_t n_base, const kvb_result *new, size_t n_new, size_t compared,
                 double confidence, bool paired, const size_t runs[2], kvb_compare_noise *noise);

/* The one figure for what a run can resolve: the smallest relative difference of one time that a comparison with
 * another run as noisy tells from none, at KVB_CONFIDENCE for all times together. NaN: not known, because fewer than
 * three combinations were compared with themselves, or these differ wildly. 0 or -ENOMEM. */
int kvb_run_resolution(const kvb_result *results, size_t n, double *resolution, size_t *nulls);

/* "32.2 % (437 null comparisons)", "unknown (1 null comparison)". */
#define KVB_RESOLUTION_TEXT 64u
void kvb_resolution_text(double resolution, size_t nulls, char text[KVB_RESOLUTION_TEXT]);

/* By how much the machine's bandwidth, measured beside the combinations of both runs, fell: the median, as a logarithm.
 * NaN if few combinations have it, or without memory. */
double kvb_machine_shift(const kvb_finding *findings, size_t n);

/* |a / b - 1| as a distance of logarithms. It is not known whether a or b was larger; this is the larger of both
 * distances. */
double kvb_null_log(double difference);

/* Are these the very same measurements? Then no interval is needed. */
bool kvb_time_is_same_measurement(const kvb_result *base, const kvb_result *new);

/* For a combination that passed on both sides. Fills in verdict, before, after, ratio, low, high and reason. threshold
 * may be infinite. Each side has at least the finding's own run. */
void kvb_time_judge(const kvb_compare_noise *noise, double threshold, const kvb_time_runs *runs, kvb_finding *finding);

/* estimate and interval are logarithms, threshold is relative. What is common to all combinations, as a change of the
 * machine, may explain a change of faster (<= 0) to slower (>= 0); the interval is widened by that. */
kvb_verdict kvb_interval_judge(double estimate, double *low, double *high, double faster, double slower,
                               double threshold);

#endif
