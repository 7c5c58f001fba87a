/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine could have done: read bandwidth at the working set and thread count of the steps that are judged,
 * measured between the passes so that drift cancels, and the multiply-add peak.
 */
#ifndef KVB_ROOFLINE_H
#define KVB_ROOFLINE_H

#include "harness/machine/bandwidth.h"
#include "harness/replay/samples.h"

typedef struct kvb_roofline {
    const kvb_team *team;
    kvb_probe_memory memory;
    size_t working_set; /* bytes; 0: nothing to probe */
    kvb_samples rates;  /* GB/s */
} kvb_roofline;

/* working_set: bytes that the median step reads. 0 or -ENOMEM. */
int kvb_roofline_open(kvb_roofline *roofline, const kvb_team *team, double working_set);
int kvb_roofline_probe(kvb_roofline *roofline); /* one more sample */
void kvb_roofline_close(kvb_roofline *roofline);

/* Fills the rates of the result's traffic: `bytes` and `flops` of one pass took `ns`. */
void kvb_roofline_report(const kvb_roofline *roofline, double bytes, double flops, double ns, double peak_gflop_per_s,
                         kvb_result *result);

#endif
