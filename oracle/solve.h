/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's state, and solving its rows. Inside the oracle only. */
#ifndef KVB_SOLVE_H
#define KVB_SOLVE_H

#include "oracle/oracle.h"
#include "oracle/sample.h"
#include "oracle/storage.h"

typedef struct kvb_oracle_state {
    const kvb_trace *trace;
    const kvb_values *values;
    const kvb_model *model;  /* the trace's */
    kvb_storages **storages; /* [layers] of [kv_heads]; latent rows: K's for both */
    bool has_residuals;      /* a format stores rows together with their neighbours */
    kvb_census census;       /* with the runs that the queries of the oracle's rows see */
    uint32_t visible_max;    /* most tokens that one of these queries sees */
} kvb_oracle_state;

/* Stored rows of a KV head: one for each token, and those that shifts make. */
static inline uint64_t kvb_state_rows(const kvb_oracle_state *state)
{
    return state->values->tokens + state->census.n_moved;
}

/* 0, -ENOMEM, -ENOTSUP with why: a format that it cannot store. */
int kvb_oracle_state_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                          kvb_oracle_state **state, char *why, size_t why_bytes);
void kvb_oracle_state_free(kvb_oracle_state *state);

/* The workload's q of a row: [k_dim]. */
const float *kvb_state_q(const kvb_oracle_state *state, const kvb_expect *row);
/* The attention of one row, without K, V and runs. q: room [k_dim]. */
kvb_attention kvb_state_attention(const kvb_oracle_state *state, const kvb_expect *row, double *q);
/* Sets its K and V. gathered: as in kvb_attention. v is not read if rows are latent. */
void kvb_state_take(const kvb_oracle_state *state, const kvb_expect *row, const kvb_stored *k, bool k_gathered,
                    const kvb_stored *v, bool v_gathered, kvb_attention *attention);

/* Solves oracle->rows, one KV head of one layer at a time, on the team. Their places, q, row.step and room for terms are
 * set before. Fills format_rows [n_rows], too, unless NULL. 0, -ENOMEM, or -EINTR:
 * options->stop. */
int kvb_solve(kvb_oracle *oracle, const kvb_oracle_options *options, kvb_format_row *format_rows);

#endif
