/* SPDX-License-Identifier: Apache-2.0 */
/* What an oracle keeps: where its numbers come from, how they are stored; room to solve rows of views. Inside the oracle only. */
#ifndef KVB_ORACLE_STATE_H
#define KVB_ORACLE_STATE_H

#include "oracle/oracle.h"
#include "oracle/stored_rows.h"

typedef struct kvb_oracle_state {
    const kvb_trace *trace;
    const kvb_values *values;
    const kvb_model *model;  /* the trace's */
    kvb_storages **storages; /* [layers] of [kv_heads] */
    bool has_residuals;      /* a format stores rows together with their neighbours */
    /* of kvb_oracle_solve_views: room for `cells` rows, one row's terms */
    const kvb_group *group;
    uint32_t cells;
    kvb_stored k, v;
    double *scratch;
    kvb_bound_term *terms;
} kvb_oracle_state;

/* 0, -ENOMEM, -ENOTSUP with why: a format that it cannot store. */
int kvb_oracle_state_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                          kvb_oracle_state **state, char *why, size_t why_bytes);
void kvb_oracle_state_free(kvb_oracle_state *state);

/* How K and V of a KV head are stored; of latent rows both are K's. */
const kvb_storages *kvb_state_storages(const kvb_oracle_state *state, uint32_t layer, uint32_t kv_head);

/* The attention of one row, but for what is seen of K and V. */
kvb_attention kvb_state_attention(const kvb_oracle_state *state, const kvb_expect *row);
/* Its K and V. gathered: as in kvb_attention. v is not looked at where rows are latent. */
void kvb_state_take(const kvb_oracle_state *state, const kvb_expect *row, const kvb_stored *k, bool k_gathered,
                    const kvb_stored *v, bool v_gathered, kvb_attention *attention);

#endif
