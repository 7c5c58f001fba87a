/* SPDX-License-Identifier: Apache-2.0 */
/* A lane's part of a layer's problem and values (oracle/descent.h). */
#ifndef KVB_LANE_H
#define KVB_LANE_H

#include "oracle/descent.h"

/* The part's heads, d_k, d_v and types, as in a call of it. */
kvb_scan_problem kvb_lane_problem(const kvb_group_scan *scan, kvb_scan_part part);

/* What the layer has of its own, the lane's columns of it; each NULL where it has none. */
typedef struct kvb_lane_own {
    float *a, *bias;
} kvb_lane_own;

/* p: of the whole part. 0 or -ENOMEM. */
int kvb_lane_own_take(const kvb_values *values, const kvb_scan_problem *p, uint32_t layer, const kvb_scan_lane *lane,
                      kvb_lane_own *own);
void kvb_lane_own_free(kvb_lane_own *own);

/* The lane's inputs of a token. */
kvb_recurrence_token kvb_lane_token(const kvb_values *values, const kvb_scan_problem *p, uint32_t layer,
                                    const kvb_scan_lane *lane, const kvb_lane_own *own, uint64_t token);

/* The first token with the same rows. */
static inline uint32_t kvb_alike(const kvb_trace *trace, uint64_t token)
{
    return trace->like ? trace->like[token] : (uint32_t)token;
}

#endif
