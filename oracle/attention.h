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
    const double *k_size; /* [tokens][k_dim] magnitudes for the bound (oracle/storage.h); NULL: |k| */
    const double *k_sum;  /* [tokens] sum of each row of k_size */
    const double *v;      /* [tokens][v_row]; the first v_dim elements of a row count */
    const double *v_size; /* [tokens][v_row] magnitudes for the bound; one below |v| counts as |v|. NULL: |v| */
    bool k_gathered;      /* k, k_size and k_sum hold the rows of the runs only, one after the other: [visible]… */
    bool v_gathered;      /* the same for v and v_size */
    bool k_turned;        /* K is stored transformed */
    bool v_offset;        /* V's codes have a zero: W_ic is the largest size of the row (oracle/bound.h) */
    double v_mix;         /* kvb_bound_row.v_mix */
    double step;          /* kvb_bound_row.step */
    uint32_t k_dim, v_dim;
    uint32_t v_row; /* elements of a row at v: v_dim; k_dim where V is the beginning of K's rows */
    double scale;
    double softcap;            /* 0: none */
    const float *sink;         /* one more logit; NULL: none */
    const kvb_token_run *runs; /* what the query sees, in the order of its positions */
    size_t n_runs;
    uint32_t visible; /* tokens in those runs */
} kvb_attention;

/* Doubles of scratch that a row needs. */
size_t kvb_attention_scratch(uint32_t visible, uint32_t v_dim);

/* One of several rows that see the same cells of one KV head: their `a` differ in q and sink only. Rows that are solved
 * together read each cell while it is in the first-level cache. */
#define KVB_ATTENTION_ROWS     8u  /* most rows that are solved together */
#define KVB_ATTENTION_CELLS    5u  /* scratch arrays of a row, by visible cell */
#define KVB_ATTENTION_CHANNELS 11u /* the same by channel */
typedef struct kvb_attention_row {
    kvb_attention a;
    /* kvb_attention_scratch(). The first `visible` doubles become the logits, the next the weights; the next are free once
     * the row is solved. */
    double *scratch;
    kvb_bound_row *row;    /* sums of the whole row */
    double *lse;           /* -infinity when nothing is seen and there is no sink */
    kvb_bound_term *terms; /* [v_dim] filled by solve */
    double *o;             /* [v_dim] filled by glance */
    /* used while the row is solved */
    double *cells[KVB_ATTENTION_CELLS], *channels[KVB_ATTENTION_CHANNELS]; /* in scratch */
    double logit_max, q_norm, q_largest;
    uint32_t heaviest; /* the visible cell of p_max */
    const struct kvb_products *products;
} kvb_attention_row;

/* Fill row, lse and terms: of n rows, of one. */
void kvb_attention_solve_rows(kvb_attention_row *rows, uint32_t n);
void kvb_attention_solve(const kvb_attention *a, double *scratch, kvb_bound_row *row, double *lse,
                         kvb_bound_term *terms);

/* Fills row, lse and o, no terms. size_norm: 2-norm of each row of k_size, in the order of k_sum. a_max and a_mean are
 * made from ||q|| size_norm, which is at least A_i. row->v_largest stays 0. */
void kvb_attention_glance(kvb_attention_row *rows, uint32_t n, const double *size_norm);

/* What storing did to one row. */
typedef struct kvb_format_row {
    double max_abs;        /* largest |o_stored - o_original| */
    double error2, exact2; /* sums of squares of that difference and of o_original */
    double kl;             /* KL(original weights || stored weights), nats */
} kvb_format_row;

/* originals: the queries over the original rows, of which a and scratch are used. stored: the same queries, solved. */
void kvb_format_rows_compare(kvb_attention_row *originals, const kvb_attention_row *stored, uint32_t n,
                             kvb_format_row *const *results);

#endif
