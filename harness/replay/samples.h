/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Step times, kept as they come and told as order statistics. A replay makes several passes over the same events, so
 * the samples of a kind are n / passes for each pass, in order.
 */
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

/* Sum of the times of one pass. */
double kvb_samples_pass(const kvb_samples *samples, size_t passes, size_t pass);

/* The kind of attending step (prefill, decode, fork, verify) with the most operations. It depends on the history alone,
 * so that all combinations are judged by the same steps. */
kvb_step_kind kvb_kind_main(const double flops[KVB_STEP_KINDS]);

/* How many passes at the start were still getting faster. */
size_t kvb_warmup_passes(const kvb_samples times[KVB_STEP_KINDS], size_t passes);

/* Relative width of the 95 % interval of the median of one kind, from its pass medians; INFINITY below 4 passes. */
double kvb_samples_width(const kvb_samples *samples, size_t passes, size_t warmup);

/*
 * Fills the time part of the result, but for harness_share and cache_state, leaving out the warm-up passes. With 4
 * passes or more the median is that of the pass medians, its interval comes from them, and the null comparison is
 * even passes against odd ones, of the kind `most`; with fewer all three come from the steps. 0 or -ENOMEM.
 */
int kvb_samples_report(const kvb_samples times[KVB_STEP_KINDS], kvb_step_kind most, size_t passes, size_t warmup,
                       kvb_result *result);

#endif
