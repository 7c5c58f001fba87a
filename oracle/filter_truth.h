/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact weights, V rows and outputs of the rows that the oracle solved, for the matched filter (oracle/filter.h). The
 * oracle makes them while it solves, and all kernels share them. Inside the oracle only.
 *
 * V, outputs and residuals are divided channel by channel by the standard deviation of V over the tokens, so that a
 * channel with large values does not drown the others.
 */
#ifndef KVB_FILTER_TRUTH_H
#define KVB_FILTER_TRUTH_H

#include "oracle/attention.h"
#include "oracle/census.h"
#include "oracle/oracle.h"
#include "oracle/stored_rows.h"

/* Rows of one KV head of one layer. */
typedef struct kvb_filter_unit {
    uint32_t layer, kv_head, dim;
    bool usable;     /* every V element is finite */
    double *inverse; /* [dim] 1 / standard deviation of V, 0 where that is 0 */
    double *mean;    /* [dim] of V; part of inverse's block */
    float *v;        /* [tokens][dim] V rows times inverse */
    float *norm2;    /* [tokens] of a row of v: the sum of its squares */
    float
        *magnitude; /* [tokens] largest |element| of the V row itself; where one channel drowns the others, of these */
} kvb_filter_unit;

typedef struct kvb_filter_row {
    uint32_t unit, visible;
    kvb_token_run *runs; /* what the query sees, in the order of its positions */
    size_t n_runs;
    float *p;      /* [visible] exact weights */
    float *o;      /* [dim] exact output times inverse */
    double weight; /* sum of p: 1, but for a sink's */
    double apart;  /* root of the sum of p^2: what errors of one relative size come to where each weight has its own */
    double cap;    /* weight of a logit at the softcap; infinity without one */
    double
        alike[KVB_BF16 + 1]; /* [KVB_F16], [KVB_BF16]: the same of weights within a rounding of each other, less that */
    double spread;           /* standard deviation of the d logit / d log scale under the weights */
    float *slope;            /* [dim] d output / d log scale, times inverse */
} kvb_filter_row;

typedef struct kvb_filter_truth {
    size_t tokens; /* of the trace */
    uint32_t n_units, most_visible;
    kvb_filter_unit *units;
    uint32_t *number; /* [rows of the oracle] index in rows, UINT32_MAX: not kept */
    kvb_filter_row *rows;
    size_t n_rows;
    kvb_token_run *runs;
    float *weights, *outputs;
} kvb_filter_truth;

/* Chooses which of the oracle's rows are kept: of as many units as give at least 256 rows each within the budget,
 * queries spread evenly over the trace. *truth is NULL where none is. 0 or -ENOMEM. */
int kvb_filter_truth_open(const kvb_oracle *oracle, const kvb_model *model, const kvb_census *census, size_t tokens,
                          kvb_filter_truth **truth);
void kvb_filter_truth_free(kvb_filter_truth *truth);

/* Takes the stored V rows of a KV head of a layer, before its rows are solved. v: by token identity, rows of v_row
 * elements. */
void kvb_filter_truth_v(kvb_filter_truth *truth, uint32_t layer, uint32_t kv_head, const double *v, uint32_t v_row);
/* Takes row r of the oracle, solved: logits and weights [visible]. Rows may be taken by several threads at once. */
void kvb_filter_truth_row(kvb_filter_truth *truth, size_t r, const kvb_attention *a, const double *logits,
                          const double *weights, double lse, const kvb_bound_term *terms);

#endif
