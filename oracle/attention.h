/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact attention of one query row, in double: the output and every sum that an error bound is made of
 * (oracle/bound.h). Inside the oracle only.
 */
#ifndef KVB_ATTENTION_H
#define KVB_ATTENTION_H

#include "kernels/attend.h"
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

/* Doubles of scratch that solve and kvb_format_row_compare need. */
size_t kvb_attention_scratch(uint32_t visible, uint32_t v_dim);

/* Logits s_i [visible]; reach[i] = A_i and shift[i] = Q_i (oracle/bound.h) unless they are NULL, together. Returns the
 * log-sum-exp (-infinity when nothing is seen and there is no sink). */
double kvb_attention_weigh(const kvb_attention *a, double *logits, double *reach, double *shift);

/* Everything. terms: [v_dim]. The first `visible` doubles of scratch are left holding the logits. */
void kvb_attention_solve(const kvb_attention *a, double *scratch, kvb_bound_row *row, double *lse,
                         kvb_bound_term *terms);

/* The sums of the whole row alone, and its output o [v_dim]. size_norm: the 2-norm of each row of k_size, in the order of k_sum:
 * a_max and a_mean are those of ||q|| size_norm, which lies above A_i. row->v_largest is left at 0. */
void kvb_attention_glance(const kvb_attention *a, const double *size_norm, double *scratch, kvb_bound_row *row,
                          double *lse, double *o);

/* What storing did to one row. */
typedef struct kvb_format_row {
    double max_abs;        /* largest |o_stored - o_original| */
    double error2, exact2; /* sums of squares of that difference and of o_original */
    double kl;             /* KL(original weights || stored weights), nats */
} kvb_format_row;

/* original: the same query over the original rows. Of the stored side: logits, log-sum-exp, terms. */
void kvb_format_row_compare(const kvb_attention *original, const double *stored_logits, double stored_lse,
                            const kvb_bound_term *stored_terms, double *scratch, kvb_format_row *result);

#endif
