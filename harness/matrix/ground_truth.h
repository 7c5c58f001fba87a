/* SPDX-License-Identifier: Apache-2.0 */
/* What all combinations of one workload and one pair of pools are judged by: fixed scales and the oracle. */
#ifndef KVB_GROUND_TRUTH_H
#define KVB_GROUND_TRUTH_H

#include "harness/selection/registry.h"
#include "oracle/oracle.h"
#include "results/result.h"

typedef struct kvb_truth_options {
    const kvb_trace *trace;
    const kvb_values *values, *tags; /* NULL: there are none */
    kvb_pool_pair pools;
    bool oracle;            /* one is wanted */
    uint64_t max_pairs;     /* of the oracle, in (query, head, cell) visits */
    uint64_t opinion_pairs; /* of its second opinions */
    uint64_t seed;          /* of its sample */
} kvb_truth_options;

typedef struct kvb_truth {
    const float **amax[2][2]; /* of the values' and the tags' K and V rows; NULL: no fixed scales */
    kvb_oracle *oracle;       /* NULL: none, for the reason given */
    char oracle_why[KVB_REASON];
} kvb_truth;

/* 0, also where no oracle can be had; -ENOMEM; else a negative errno with why. The caller has no threads running. */
int kvb_truth_open(const kvb_truth_options *options, kvb_truth *truth, char *why, size_t why_bytes);
void kvb_truth_close(kvb_truth *truth);

#endif
