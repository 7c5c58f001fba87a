/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second opinion: exact output and log-sum-exp of every row of a trace. Only a sample of the rows has all sums that its own
 * bound needs (oracle.h). A second opinion's bound needs sums of the whole row only, and lies above the row's own. With
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
#include "workloads/array.h"

/* Facts about all stored rows at one KV head of one layer. */
typedef struct kvb_opinion_head {
    double *v_top;          /* [v_dim] W_c, of finite elements */
    double v_least, v_most; /* least and largest W_c of all channels */
    bool finite;            /* all elements of K and V are finite, and so is every exact output */
} kvb_opinion_head;

typedef struct kvb_opinion_row {
    kvb_expect expect; /* without terms */
    const double *o;   /* [v_dim] exact output */
} kvb_opinion_row;

/* The second opinions of a trace. */
typedef struct kvb_opinions {
    const kvb_model *model;
    kvb_opinion_head **heads; /* [layers] of [kv_heads] */
    size_t *first;            /* [events * layers + 1] each call's first row; a call may have no rows */
    kvb_opinion_row *rows;    /* by event, layer, query, head */
    size_t n_rows;
    kvb_arena arena; /* of all but rows */
} kvb_opinions;

/* ---- one row ---------------------------------------------------------------------------------------------------- */

void kvb_opinion_head_open(kvb_opinion_head *head, uint32_t v_dim, kvb_arena *arena); /* no memory: arena->failed */
/* Take stored row `at` into account. K: returns ||K||, of its sizes if there are any. V, or latent K: v_dim channels. */
double kvb_opinion_take_k(kvb_opinion_head *head, const kvb_stored *k, size_t at);
void kvb_opinion_take_v(kvb_opinion_head *head, const kvb_stored *v, size_t at, uint32_t v_dim);

/* Fills row, lse and o of n rows that see the same cells. k_norm: ||K|| of each K row, in the order of k_sum. */
void kvb_opinion_solve(kvb_attention_row *rows, uint32_t n, const kvb_opinion_head *head, const double *k_norm);

/* Compares a row as kvb_diff_row() does. A row with all elements within the least bound is only counted: it does not
 * enter the diff's rho. 0 or -ENOMEM. */
int kvb_opinion_diff(kvb_diff *diff, const kvb_opinion_head *head, const kvb_opinion_row *row, uint32_t v_dim,
                     const kvb_arithmetic *arithmetic, double scale, double softcap, kvb_elem out_elem, const void *out,
                     const float *lse);

/* ---- all rows --------------------------------------------------------------------------------------------------- */

/* Chooses calls: all of them if they fit in max_pairs (query, head, cell) visits and in memory, else some by the seed.
 * kvb_solve() fills their rows. 0 or -ENOMEM. */
int kvb_opinions_open(const kvb_census *census, uint64_t max_pairs, uint64_t seed, kvb_opinions **opinions);
void kvb_opinions_free(kvb_opinions *opinions);
/* The rows of one (event, layer). */
kvb_opinion_row *kvb_opinions_of(const kvb_opinions *opinions, uint32_t event, uint32_t layer, size_t *n);

#endif
