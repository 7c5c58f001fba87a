/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second opinion: exact output and log-sum-exp of every row of a trace, where only a sample has all the sums that its own
 * bound is made of (oracle.h). Its bound comes from sums of the row and lies above the row's own. With
 *   W_c      the largest V_ic of all rows that are stored at this layer and KV head
 *   A_i      at most ||q|| ||K_i||                                     (Cauchy, Schwarz)
 * spread is at most W_c + |o_c|; spread_a, _q and _s are at most that times a_mean, q_mean and s_mean; mass and v_max at most W_c
 * (oracle/bound.h). So a row costs one product with K and one with V.
 */
#ifndef KVB_OPINION_H
#define KVB_OPINION_H

#include "oracle/attention.h"
#include "oracle/sample.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"

/* What is known of all rows at one KV head of one layer. */
typedef struct kvb_opinion_head {
    double *v_top;          /* [v_dim] W_c, of finite elements */
    double v_least, v_most; /* of W_c over the channels */
    bool finite;            /* all elements of K and V are: so is every exact output */
} kvb_opinion_head;

typedef struct kvb_opinion_row {
    kvb_expect expect; /* without terms */
    const double *o;   /* [v_dim] exact output */
} kvb_opinion_row;

/* Of a whole trace. */
typedef struct kvb_opinions {
    const kvb_model *model;
    kvb_opinion_head **heads; /* [layers] of [kv_heads] */
    size_t *first;            /* [events * layers + 1] number of a call's first row; calls without opinion have none */
    kvb_opinion_row *rows;    /* by event, layer, query, head */
    size_t n_rows;
    void *arena;
} kvb_opinions;

/* ---- one row ---------------------------------------------------------------------------------------------------- */

int kvb_opinion_head_open(kvb_opinion_head *head, uint32_t v_dim); /* 0 or -ENOMEM */
/* Take stored row `at` into account: of K, of which ||K|| is returned (of its sizes, or of the row itself); of V, or of
 * latent K. */
double kvb_opinion_take_k(kvb_opinion_head *head, const kvb_stored *k, size_t at);
void kvb_opinion_take_v(kvb_opinion_head *head, const kvb_stored *v, size_t at, uint32_t v_dim);

/* Sums of whole rows that see the same, their log-sum-exp and o. k_norm: ||K|| of each row, in the order of k_sum. */
void kvb_opinion_solve(kvb_attention_row *rows, uint32_t n, const kvb_opinion_head *head, const double *k_norm);

/* Compares a row, as kvb_diff_row(). The diff's rho is that of rows which were not seen to be right at a glance. 0 or
 * -ENOMEM. */
int kvb_opinion_diff(kvb_diff *diff, const kvb_opinion_head *head, const kvb_opinion_row *row, uint32_t v_dim,
                     const kvb_arithmetic *arithmetic, double scale, double softcap, kvb_elem out_elem, const void *out,
                     const float *lse);

/* ---- all rows --------------------------------------------------------------------------------------------------- */

/* Chooses calls: all of them where they fit in max_pairs (query, head, cell) visits and memory, else some by the seed.
 * Rows are to be solved. 0 or -ENOMEM. */
int kvb_opinions_open(const kvb_census *census, uint64_t max_pairs, uint64_t seed, kvb_opinions **opinions);
void kvb_opinions_free(kvb_opinions *opinions);
/* The rows of one (event, layer). */
kvb_opinion_row *kvb_opinions_of(const kvb_opinions *opinions, uint32_t event, uint32_t layer, size_t *n);

#endif
