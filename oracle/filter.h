/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matched filter over the residuals of many rows. It finds mistakes that are smaller than what a kernel may round in any one
 * element (oracle/bound.h), because a mistake points the same way in every row that has it, and rounding does not.
 *
 * The residual of row r (a query and a query head) is e_r = computed - exact output. To first order a mistake adds a t_r to it,
 * with an amplitude a and a known direction t_r:
 *
 *   cell j dropped: a = -1; twice: a = 1; with another row's V: a = -1, plus a part along that row       t_r = p_rj (v_j - o_r)
 *   all outputs too small or too large by the share a (all of them 0: a = -1)                            t_r = o_r
 *   the scale of the logits off by the share a                       t_r = d o_r / d log scale = sum_i p_ri (s_ri - mean s_r) v_i
 *   the output of another head h' in its place: a = 1                                                    t_r = o_r' - o_r
 *
 * e, v, o and t are taken channel by channel in units of V's standard deviation; d channels count.
 *
 *   u_r = sqrt(d) <e_r, t_r> / (|e_r| |t_r|)    about N(0, 1) under rounding alone
 *   s_r = sqrt(d) |t_r| / |e_r|                 u_r for |a| = 1, if the residual is mostly the mistake
 *   a   = sum s_r u_r / sum s_r^2               least squares, each row in units of its own |e_r|
 *   T   = sum s_r u_r / sqrt(sum s_r^2)         the matched filter: about N(0, 1) under rounding
 *   S   = sum x_r / sqrt(sum x_r^2),  x_r = min(a0 s_r, 1) clip(u_r, -2, 2)
 *                                               a0: a size of a that matters. No row decides alone
 *
 * A direction stands out by z = min(|S|, Z) if |a| is larger than honest rounding can make it; else by 0.
 *
 * S assumes nothing about sizes. Rounding to nearest errs to both sides alike, and rows round independently. So, given |x_r|,
 * the sign of x_r is random and independent of other rows, and under rounding
 *
 *   P(|S| >= z) <= 2 exp(-z^2 / 2)
 *
 * (Efron: Student's t-test under symmetry conditions, J. Amer. Statist. Assoc. 64, 1969: given the |x_r|, this is Hoeffding's
 * inequality for random signs.) A run of the full suite tests fewer than 2e9 directions: at z = 8.5 it has a false alarm with
 * probability 1e-6 at most (Bonferroni: 2e9 * 2 exp(-8.5^2 / 2) = 8e-7). |S| is at most the square root of the number of rows:
 * a direction with fewer than 73 rows never fails.
 *
 * Z covers roundings that are not symmetric or not independent. Rows of equal weights round alike, and so do all losses beside
 * a sink; and a real mistake shows in every other direction too. T then spreads over all cells alike. With the median of T
 * over the cells, and sigma = 1.4826 times the median absolute deviation from it, at least 1 (both robust: a few wrong cells
 * do not move them), n rows are worth n d / sigma^2 independent channels. An ordinary direction explains the share
 * q = (T - median)^2 / (n d) of the residuals' squares, and with k channels P(share >= q) is about (1 - q)^(k / 2), so
 *
 *   Z^2 = -n d / sigma^2 log(1 - q)             (T - median)^2 / sigma^2 where that is small
 *
 * |a| must exceed what honest rounding can reach if all rows round alike. That limit is averaged over the rows as a is, and
 * sizes[] of oracle/filter.c is added. The limit of a row, by kind of direction:
 *   cells     The weight is rounded: to a type, by less than 1 %. Weights in steps: a product p_i max_c |v_ic| is off by at most
 *             half a declared step of the row's largest product, a share of half / product. A product below half a step may
 *             honestly become 0, like that of a dropped cell: such a cell does not count.
 *             Errors of logits change a weight too, and errors in a token's stored row do so alike in all rows: by
 *             expm1(D_max / 7). D_max is seven standard deviations of errors that point the same way in all channels
 *             (oracle/bound.h); for 16 or more independent channels, a seventh of it is at least four standard deviations. If the
 *             change is 1 or more, as in f16 sums of logits of -10,000, the row does not count
 *   outputs   The effects of the declared arithmetic that all rows may share. Sums of n terms in the accumulator: u sqrt(n) / 2;
 *             twice the error of exp; rounded weights: u for those that are equal within u, in one row or as logits at the
 *             softcap in all rows, 0.425 u sqrt(sum p^2) for others, which round independently;
 *             weights in steps: half a step, and the weight of all cells below a step, which may become 0 or double; an output
 *             rounded to 16 bits: u sqrt(sum o^4) / sum o^2
 *   scale     Weights of few steps bend the slope: a quarter of a step, some 4 times the measured effect
 *   heads     1/2: an output that ignores its head's logits is the mean of V, half-way between two heads' outputs
 *
 * A row counts if its largest V is a normal number of f16 (smaller scales and products round alike, to few bits), and if the
 * weight beside its largest cell is at least 1 % of all, at most a quarter of it in cells below half a step. Otherwise one cell
 * makes up the row, and rounding takes the rest. Behind an attention sink few rows of a kernel with steps count; if none does,
 * the filter says nothing. A step is made for the largest channel. If the root mean squares of a quarter of V's channels are
 * less than 1/8 of the largest one, max_c |v_ic| is made that much smaller: the loss beside one large channel is declared
 * rounding, and most channels have it. The scale counts in rows whose logits spread (standard deviation under the weights) over
 * 8 roundings of a weight, unless a logit lies within 8 roundings of the softcap: there all rows' largest weights round alike.
 *
 * Directions of cells are summed three ways. By token, over the rows of one KV head of one layer: a stale row, a V row taken from
 * a neighbour. By the cell's place among those that a query sees, from the first and from the last on, over all KV heads and
 * layers: a first or last key that is always forgotten, whichever token it is.
 *
 * Not filtered: formats with residual cells (kvb_oracle_needs_writes); passes after the first, which repeat it; and rows of up
 * to 4096 cells by kernels that round nothing to less than the accumulator, except for the size of outputs: the bound of such
 * rows finds all other mistakes.
 */
#ifndef KVB_FILTER_H
#define KVB_FILTER_H

#include "oracle/attention.h"
#include "oracle/oracle.h"
#include "oracle/sample.h"
#include "oracle/storage.h"
#include "workloads/array.h"

/*
 * Exact weights, V rows and outputs of the rows that the oracle solved, for the matched filter. The oracle makes them
 * while it solves, and all kernels share them. Inside the oracle only.
 *
 * V, outputs and residuals are divided channel by channel by the standard deviation of V over the tokens, so that a
 * channel with large values does not drown the others.
 */

/* Rows of one KV head of one layer. */
typedef struct kvb_filter_unit {
    uint32_t layer, kv_head, dim;
    bool sequence;    /* rows of single calls (oracle/single.h): `layer` is the number of a sequence */
    size_t tokens;    /* rows of V; 0: as many as the truth has */
    bool usable;      /* every V element is finite */
    double *inverse;  /* [dim] 1 / standard deviation of V, 0 where that is 0 */
    double *mean;     /* [dim] of V */
    float *v;         /* [tokens][dim] V rows times inverse */
    float *norm2;     /* [tokens] sum of squares of a row of v */
    float *magnitude; /* [tokens] largest |element| of the unscaled V row; less where one channel drowns the rest */
} kvb_filter_unit;

typedef struct kvb_filter_row {
    uint32_t unit, visible;
    kvb_token_run *runs; /* what the query sees, in the order of its positions */
    size_t n_runs;
    float *p;      /* [visible] exact weights */
    float *o;      /* [dim] exact output times inverse */
    double weight; /* sum of p: 1 less the sink's weight */
    double apart;  /* sqrt(sum p^2): the sum of the weights' independent errors, in units of their relative error */
    double cap;    /* weight of a logit at the softcap; infinity without one */
    /* [KVB_F16], [KVB_BF16]: sqrt(sum p_i p_j), i != j, of weights within a rounding of each other */
    double alike[KVB_BF16 + 1];
    double spread; /* standard deviation of d logit / d log scale under the weights */
    float *slope;  /* [dim] d output / d log scale, times inverse */
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
    kvb_arena arena; /* of all but weights, outputs and v of the units */
} kvb_filter_truth;

/* Chooses the oracle's rows to keep: as many units as can have at least 256 rows each within the budget, their queries
 * spread evenly over the trace. *truth is NULL if there are no rows. 0 or -ENOMEM. */
int kvb_filter_truth_open(const kvb_oracle *oracle, kvb_filter_truth **truth);
void kvb_filter_truth_free(kvb_filter_truth *truth);

/* Takes the stored V rows of a KV head of a layer, before its rows are solved. v: by token identity, rows of v_row
 * elements. */
void kvb_filter_truth_v(kvb_filter_truth *truth, uint32_t layer, uint32_t kv_head, const double *v, uint32_t v_row);
/* Takes row r of the oracle, solved: logits and weights [visible]; slopes [visible] is room. Rows may be taken by several
 * threads at once. */
void kvb_filter_truth_row(kvb_filter_truth *truth, size_t r, const kvb_attention *a, const double *logits,
                          const double *weights, double lse, const kvb_bound_term *terms, double *slopes);

#define KVB_FILTER_LIMIT 8.5 /* a larger z fails */

typedef enum kvb_filter_kind {
    KVB_FILTER_HEADS,
    KVB_FILTER_SIZE,
    KVB_FILTER_TOKEN,
    KVB_FILTER_FROM_FIRST,
    KVB_FILTER_FROM_LAST,
    KVB_FILTER_SCALE,
    KVB_FILTER_KINDS
} kvb_filter_kind;

/* The direction of a kind with the largest z, among those with an |a| that honest rounding cannot make. */
typedef struct kvb_filter_peak {
    double z, a;             /* |z|; 0: none */
    uint32_t layer, kv_head; /* TOKEN */
    bool sequence;           /* TOKEN: as in the unit */
    uint32_t at;             /* TOKEN: token; FROM_FIRST, FROM_LAST: place, from 0; HEADS: the lower head */
    uint32_t other;          /* HEADS: the higher one */
} kvb_filter_peak;

/* The sums of one replay. */
typedef struct kvb_filter kvb_filter;

/* *filter is NULL where the oracle keeps no rows for it; the calls below then do nothing. 0 or -ENOMEM. */
int kvb_filter_open(const kvb_oracle *oracle, kvb_filter **filter);
void kvb_filter_free(kvb_filter *filter);

/* Takes one row's output. expect: one of the oracle's rows; actual: what the output is compared with (its terms' o). */
void kvb_filter_add(kvb_filter *filter, const kvb_expect *expect, const kvb_expect *actual,
                    const kvb_arithmetic *arithmetic, kvb_elem out_elem, const void *out);

/* Rows that were judged. */
uint64_t kvb_filter_rows(const kvb_filter *filter);
/* Fills peaks. Returns the largest z of them all; NaN: no row could be judged. */
double kvb_filter_peaks(const kvb_filter *filter, kvb_filter_peak peaks[KVB_FILTER_KINDS]);
/* Describes the mistake by the peak that fits it best; "" if no z is above the limit. */
void kvb_filter_words(const kvb_filter_peak peaks[KVB_FILTER_KINDS], char *why, size_t why_bytes);

#endif
