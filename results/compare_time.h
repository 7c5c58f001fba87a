/* SPDX-License-Identifier: Apache-2.0 */
/* The time of one combination, then and now. Private to the comparison. */
#ifndef KVB_COMPARE_TIME_H
#define KVB_COMPARE_TIME_H

#include "results/compare.h"

/* What is known of all combinations before one is judged. */
typedef struct kvb_noise {
    double resolution; /* the larger 99 % quantile of the two runs' null differences, relative; NaN: none was made */
    double floor;      /* no half-width of an interval (log) may be below it */
    double tail;       /* how often one interval may miss */
    double machine;    /* log(base / new) of the machine's own bandwidth; 0 where it is not known, or paired */
    bool paired;
} kvb_noise;

/* All but machine. compared: combinations whose time will be judged. */
int kvb_noise_of(const kvb_result *base, size_t n_base, const kvb_result *new, size_t n_new, size_t compared,
                 double confidence, bool paired, kvb_noise *noise);

/* By how much the machine's bandwidth, as measured beside the combinations of both runs, fell: the median, as a logarithm.
 * NaN where few have it, or without memory. */
double kvb_machine_shift(const kvb_finding *findings, size_t n);

/* |a / b - 1| as a distance of logarithms. Which one was larger is not known: the larger distance of the two. */
double kvb_null_log(double difference);

/* Are these the very same measurements? Such need no interval. */
bool kvb_time_is_same_measurement(const kvb_result *base, const kvb_result *new);

/* Both passed. Fills verdict, before, after, ratio, low, high and reason. threshold may be infinite. */
void kvb_time_judge(const kvb_noise *noise, double threshold, kvb_finding *finding);

/* "+4.2 %" of a ratio. */
#define KVB_CHANGE_TEXT 32u
void kvb_change_text(double ratio, char text[KVB_CHANGE_TEXT]);

/* estimate and its interval are logarithms, threshold is relative. What the machine changed speaks for as much of it: the
 * interval is widened by that. */
kvb_verdict kvb_interval_judge(double estimate, double *low, double *high, double machine, double threshold);

#endif
