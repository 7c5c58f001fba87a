/* SPDX-License-Identifier: Apache-2.0 */
/* Step times, kept as they come and told as order statistics. */
#ifndef KVB_SAMPLES_H
#define KVB_SAMPLES_H

#include "results/result.h"

/* Times of one kind of step, in ns. Zero at first. */
typedef struct kvb_samples {
    double *ns;
    size_t n, room;
} kvb_samples;

int kvb_sample_add(kvb_samples *samples, double ns); /* 0 or -ENOMEM */
void kvb_samples_free(kvb_samples *samples);

/* Fills the time part of the result, and its GB/s from the bytes that are there. Sorts the samples. 0 or -ENOMEM. */
int kvb_samples_report(kvb_samples times[KVB_STEP_KINDS], kvb_result *result);

#endif
