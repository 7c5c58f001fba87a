/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a series changed its level: binary segmentation (Scott, Knott, Biometrics 30, 1974; Vostrikova, Soviet Mathematics
 * Doklady 24, 1981) over medians. The split that leaves the least sum of distances from the two medians is a step
 * when these differ by more than chance makes it over all splits of all series (the union bound: Bonferroni), and by enough
 * to matter; then each side is looked at by itself. One odd run between others is no step.
 */
#ifndef KVB_CHANGEPOINT_H
#define KVB_CHANGEPOINT_H

#include <stddef.h>

typedef struct kvb_step {
    size_t at;                /* the first value of the new level */
    double change, low, high; /* of the levels' logarithms, with the interval that decided */
} kvb_step;

/* logs: n values; noise: standard deviation of one value at least (from null comparisons; the series' own scatter is used
 * where it is larger), known to `freedom` degrees; tail: how often a step may be seen in a series without one; least: the
 * smallest step that matters. Steps in ascending order, at most `most`; returns how many there are. -ENOMEM. */
long kvb_changepoints_find(const double *logs, size_t n, double noise, unsigned freedom, double tail, double least,
                           kvb_step *steps, size_t most);

#endif
