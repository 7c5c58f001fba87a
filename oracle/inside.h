/* SPDX-License-Identifier: Apache-2.0 */
/* What an oracle keeps for itself: where its numbers come from, how they are stored. Inside the oracle only. */
#ifndef KVB_INSIDE_H
#define KVB_INSIDE_H

#include "oracle/oracle.h"
#include "oracle/stored_rows.h"

typedef struct kvb_oracle_inside {
    const kvb_trace *trace;
    const kvb_values *values;
    kvb_stores *stores; /* [layers][kv_heads] */
    float *sinks;       /* [heads], or NULL */
    float softcap;
    /* of kvb_oracle_solve_views: room for `cells` rows, one row's terms */
    uint32_t cells;
    kvb_side k, v;
    double *scratch;
    kvb_bound_term *terms;
} kvb_oracle_inside;

/* 0, -ENOMEM, -ENOTSUP with why: a format that it cannot store. */
int kvb_inside_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                    kvb_oracle_inside **inside, char *why, size_t why_bytes);
void kvb_inside_free(kvb_oracle_inside *inside);

const kvb_stores *kvb_inside_stores(const kvb_oracle_inside *inside, uint32_t layer, uint32_t kv_head);

/* The attention of one row, but for its K, its V and what is seen of them. */
kvb_attention kvb_inside_attention(const kvb_oracle_inside *inside, const kvb_expect *row);

#endif
