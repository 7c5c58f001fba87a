/* SPDX-License-Identifier: Apache-2.0 */
/* The ground truth of a replay: scales fixed before it begins, and the oracle. */
#ifndef KVB_GROUND_TRUTH_H
#define KVB_GROUND_TRUTH_H

#include "harness/selection/registry.h"
#include "kernels/view.h"
#include "oracle/oracle.h"
#include "results/result.h"
#include "workloads/values.h"

/*
 * Calibration: the largest magnitudes of a workload's K or V rows, for formats with a fixed scale (of the layer, or of
 * each KV head). Engines use a calibration set; here the set is the workload itself, the best case for a fixed scale.
 * *amax: [layers] of [kv_heads], over all tokens' rows (KVB_ROWS_K or KVB_ROWS_V) after the format's transform; one block
 * that the caller frees; NULL if the format fixes no scale. NaN counts as 0. 0 or -ENOMEM.
 */
int kvb_calibrate(const kvb_model *model, const kvb_values *values, kvb_rows kind, const kvb_format *format,
                  const float ***amax);

/* kvb_values_open() with all cores. -EINTR after a signal. */
int kvb_values_make(const kvb_trace *trace, const char *profile, uint64_t seed, kvb_values **values, char *why,
                    size_t why_bytes);

/* The truth is the same for all combinations of one workload and one pair of pools. */
typedef struct kvb_truth_options {
    const kvb_trace *trace;
    const kvb_values *values, *tags; /* NULL: there are none */
    kvb_pool_pair pools;
    bool oracle;            /* make an oracle */
    uint64_t max_pairs;     /* of the oracle, in (query, head, cell) visits */
    uint64_t opinion_pairs; /* of its second opinions */
    uint64_t seed;          /* of its sample */
} kvb_truth_options;

typedef struct kvb_truth {
    const float **amax[2][2]; /* of the values' and the tags' K and V rows; NULL: no fixed scales */
    kvb_oracle *oracle;       /* NULL: there is none, for the reason in oracle_why */
    char oracle_why[KVB_REASON];
} kvb_truth;

/* The caller has no threads running. 0, also if no oracle is possible; -ENOMEM; else a negative errno with why. */
int kvb_truth_open(const kvb_truth_options *options, kvb_truth *truth, char *why, size_t why_bytes);
void kvb_truth_close(kvb_truth *truth);

#endif
