/* SPDX-License-Identifier: Apache-2.0 */
/* What an oracle keeps, and how its rows are worked out. Inside the oracle only. */
#ifndef KVB_SOLVE_H
#define KVB_SOLVE_H

#include "oracle/oracle.h"
#include "oracle/sample.h"
#include "oracle/storage.h"

/* What an oracle keeps: where its numbers come from and how they are stored. Inside the oracle only. */

typedef struct kvb_oracle_state {
    const kvb_trace *trace;
    const kvb_values *values;
    const kvb_model *model;  /* the trace's */
    kvb_storages **storages; /* [layers] of [kv_heads] */
    bool has_residuals;      /* a format stores rows together with their neighbours */
    kvb_census census;       /* what the queries of the oracle's rows see, … */
    uint32_t visible_max;    /* … at most so many tokens */
} kvb_oracle_state;

/* Rows that are stored in all: a row for each token, and those that shifts make. */
static inline uint64_t kvb_state_rows(const kvb_oracle_state *state)
{
    return state->values->tokens + state->census.n_moved;
}

/* 0, -ENOMEM, -ENOTSUP with why: a format that it cannot store. */
int kvb_oracle_state_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                          kvb_oracle_state **state, char *why, size_t why_bytes);
void kvb_oracle_state_free(kvb_oracle_state *state);

/* How K and V of a KV head are stored; of latent rows both are K's. */
const kvb_storages *kvb_state_storages(const kvb_oracle_state *state, uint32_t layer, uint32_t kv_head);

/* The workload's q of a row: [k_dim]. */
const float *kvb_state_q(const kvb_oracle_state *state, const kvb_expect *row);
/* The attention of one row, but for what is seen of K and V. q: room [k_dim]. */
kvb_attention kvb_state_attention(const kvb_oracle_state *state, const kvb_expect *row, double *q);
/* Its K and V. gathered: as in kvb_attention. v is not looked at where rows are latent. */
void kvb_state_take(const kvb_oracle_state *state, const kvb_expect *row, const kvb_stored *k, bool k_gathered,
                    const kvb_stored *v, bool v_gathered, kvb_attention *attention);

/* Works out the rows of an oracle: one KV head of one layer at a time, on the team. Inside the oracle only. */

/* Fills oracle->rows (places, q, row.step and terms are set) and, unless it is NULL, format_rows [n_rows]. visible_max:
 * of the gathered queries. 0, -ENOMEM, or -EINTR: options->stop. */
int kvb_solve(kvb_oracle *oracle, const kvb_census *census, uint32_t visible_max, const kvb_oracle_options *options,
              kvb_format_row *format_rows);

#endif
