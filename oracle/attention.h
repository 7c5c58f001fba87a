/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact attention of one query row, in double: the output and every sum that an error bound is made of
 * (oracle/bound.h). Inside the oracle only.
 */
#ifndef KVB_ATTENTION_H
#define KVB_ATTENTION_H

#include "kernels/view.h"
#include "oracle/bound.h"

/* Token identities begin .. end-1. */
typedef struct kvb_token_run {
    uint32_t begin, end;
} kvb_token_run;

typedef struct kvb_attention {
    const double *q;      /* [k_dim] */
    const double *k;      /* rows of one KV head by token identity: [tokens][k_dim] */
    const double *k_size; /* what reading those rounds relative to (oracle/storage.h): [tokens][k_dim]; NULL: |k| */
    const double *k_sum;  /* the sum of each row of k_size: [tokens] */
    const double *v;      /* [tokens][v_row], of which the first v_dim count */
    const double *v_size; /* likewise; where it is less than |v|, |v| counts */
    bool k_gathered;      /* rows, sizes and sums of K are those of the runs alone, one after the other: [visible]… */
    bool v_gathered;
    bool k_turned; /* K is stored transformed */
    bool v_offset; /* V's codes have a zero: W_ic is the largest size of the row (oracle/bound.h) */
    double v_mix;  /* kvb_bound_row.v_mix */
    double step;   /* kvb_bound_row.step */
    uint32_t k_dim, v_dim;
    uint32_t v_row; /* v_dim; k_dim where V is the beginning of K's rows */
    double scale;
    double softcap;            /* 0: none */
    const float *sink;         /* one more logit, or NULL */
    const kvb_token_run *runs; /* what the query sees, in the order of its positions */
    size_t n_runs;
    uint32_t visible; /* tokens in those runs */
} kvb_attention;

/* Doubles of scratch that a row needs. */
size_t kvb_attention_scratch(uint32_t visible, uint32_t v_dim);

/* One of some rows that see the same at one KV head: all of `a` but q and sink is the same for all of them. So they
 * meet each cell while it is in the first-level cache. */
#define KVB_ATTENTION_ROWS     8u /* at most */
#define KVB_ATTENTION_CELLS    5u /* arrays by visible cell that a row works in */
#define KVB_ATTENTION_CHANNELS 11u
typedef struct kvb_attention_row {
    kvb_attention a;
    double *scratch; /* kvb_attention_scratch(). The first `visible` doubles become the logits, the next the weights */
    kvb_bound_row *row;    /* sums of the whole row */
    double *lse;           /* -infinity when nothing is seen and there is no sink */
    kvb_bound_term *terms; /* [v_dim] of solve */
    double *o;             /* [v_dim] of glance */
    /* while it is worked out */
    double *cells[KVB_ATTENTION_CELLS], *channels[KVB_ATTENTION_CHANNELS]; /* in scratch */
    double logit_max, q_norm, q_largest;
    uint32_t heaviest; /* the visible cell of p_max */
    const struct kvb_products *products;
} kvb_attention_row;

/* Everything. */
void kvb_attention_solve_rows(kvb_attention_row *rows, uint32_t n);
void kvb_attention_solve(const kvb_attention *a, double *scratch, kvb_bound_row *row, double *lse,
                         kvb_bound_term *terms); /* of one row */

/* Sums of whole rows alone, and outputs o. size_norm: the 2-norm of each row of k_size, in the order of k_sum: a_max
 * and a_mean are those of ||q|| size_norm, which lies above A_i. row->v_largest is left at 0. */
void kvb_attention_glance(kvb_attention_row *rows, uint32_t n, const double *size_norm);

/* What storing did to one row. */
typedef struct kvb_format_row {
    double max_abs;        /* largest |o_stored - o_original| */
    double error2, exact2; /* sums of squares of that difference and of o_original */
    double kl;             /* KL(original weights || stored weights), nats */
} kvb_format_row;

/* originals: the same queries over the original rows (of these a and scratch count); stored: as solved. */
void kvb_format_rows_compare(kvb_attention_row *originals, const kvb_attention_row *stored, uint32_t n,
                             kvb_format_row *const *results);

#endif
