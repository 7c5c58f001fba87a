/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matched filter over the residuals of many rows. It finds mistakes that are smaller than what a kernel may round in any one
 * element (oracle/bound.h), because a mistake points the same way in every row that has it, and rounding does not.
 *
 * The residual of row r (a query and a query head) is e_r = computed - exact output. What a mistake leaves in it is, to first
 * order, a times a known direction t_r:
 *
 *   cell j dropped, a = -1; twice, a = 1; its V another row's, a = -1, and what lies along that row      t_r = p_rj (v_j - o_r)
 *   all outputs too small or too large by the share a (all of them 0: a = -1)                            t_r = o_r
 *   the scale of the logits off by the share a                       t_r = d o_r / d log scale = sum_i p_ri (s_ri - mean s_r) v_i
 *   the output of another head h' in its place, a = 1                                                    t_r = o_r' - o_r
 *
 * e, v, o and t are taken channel by channel in units of V's standard deviation (oracle/filter.h); d channels count.
 *
 *   u_r = sqrt(d) <e_r, t_r> / (|e_r| |t_r|)    what rounding alone makes about N(0, 1)
 *   s_r = sqrt(d) |t_r| / |e_r|                 u_r for |a| = 1, where the residual is little but the mistake
 *   a   = sum s_r u_r / sum s_r^2               least squares, each row in units of its own |e_r|
 *   T   = sum s_r u_r / sqrt(sum s_r^2)         the matched filter: about N(0, 1) under rounding
 *   S   = sum x_r / sqrt(sum x_r^2),  x_r = min(a0 s_r, 1) clip(u_r, -2, 2)
 *                                               a0: a size of a that matters. No row counts alone
 *
 * A direction stands out by z = min(|S|, Z) where |a| is more than an honest one may be; elsewhere by 0.
 *
 * S: no assumption on sizes. Rounding to nearest errs to both sides alike, and rows round apart from each other. So x_r, in
 * which e_r changes no more than the sign, is independent of the others and symmetric, and under rounding
 *
 *   P(|S| >= z) <= 2 exp(-z^2 / 2)
 *
 * (Efron: Student's t-test under symmetry conditions, J. Amer. Statist. Assoc. 64, 1969: given the |x_r|, this is Hoeffding's
 * inequality for random signs.) A run of the full suite tests fewer than 2e9 directions: at z = 8.5 it has a false alarm with
 * probability 1e-6 at most (Bonferroni: 2e9 * 2 exp(-8.5^2 / 2) = 8e-7). |S| is at most the square root of the number of rows:
 * of what fewer than 73 rows see nothing is said.
 *
 * Z: where roundings are not symmetric or not apart. Rows of equal weights round alike, and so does all that is lost beside a
 * sink; and beside a real mistake every other direction has a share of it. Then all cells' T spread alike. With the median of T
 * over the cells, and sigma = 1.4826 times the median absolute deviation from it, at least 1 (both robust: the few cells that
 * are wrong do not move them), n rows are worth n d / sigma^2 independent channels. A direction that is nothing special
 * explains the share q = (T - median)^2 / (n d) of the residuals' squares, and with k channels P(share >= q) is about
 * (1 - q)^(k / 2), so
 *
 *   Z^2 = -n d / sigma^2 log(1 - q)             (T - median)^2 / sigma^2 where that is small
 *
 * a: how large an honest one may be, if the roundings of all rows were alike. |a| must be above that, averaged over the rows as a
 * is, by as much as sizes[] of oracle/filter.c says.
 *   cells     what rounds is the weight: with types, less than 1 %. Weights in steps: of a product p_i max_c |v_ic| the error is
 *             at most half a declared step of the row's largest, its share half / product. Below half a step it may become 0, as
 *             honestly as that of a dropped cell: there a cell does not count.
 *             Errors of logits change a weight too, and those of a token's stored row alike in all rows: by expm1(D_max / 7). D_max is
 *             seven standard deviations of errors that point the same way in all channels (oracle/bound.h); of 16 channels
 *             and more that err apart, a seventh of it is four at least. Where that is 1 and more, as in sums in f16 of logits of
 *             -10,000, the row does not count
 *   outputs   what the declared arithmetic can do to all rows alike. Sums of n terms in the accumulator: u sqrt(n) / 2; twice the
 *             error of exp; rounded weights: u for those that are equal within u, in one row or as logits at the softcap in all
 *             rows, 0.425 u sqrt(sum p^2) for others (each its own way);
 *             weights in steps: half a step, and the weight of all cells below a step, which may become 0 or double; an output
 *             rounded to 16 bits: u sqrt(sum o^4) / sum o^2
 *   scale     weights in steps bend the slope where they are few steps large: a quarter of a step, some 4 times what is measured
 *   heads     1/2: an output that has lost what its head's logits say is the mean of V, half-way between two heads'
 *
 * A row counts if its largest V is a normal number of f16 (scales and products below round alike, to few bits). It counts if cells
 * below half a step have at most a quarter of the weight that lies beside its largest cell, and if that is
 * at least 1 % of all; else one cell makes up the row, and rounding takes the rest. Behind an attention sink few rows of a kernel
 * with steps count; where none does, the filter says nothing. A step is made for the largest channel. Where the root mean squares
 * of a quarter of V's channels are less than 1/8 of the largest one, max_c |v_ic| is made that much smaller: what a step loses
 * beside one channel is rounding, as declared, and most of the channels lose it. The scale counts in rows whose logits spread
 * (standard deviation under the weights) over 8 roundings of a weight, and where no logit lies within 8 roundings of the
 * softcap: there all rows' largest weights round alike.
 *
 * Directions of cells are summed three ways. By token, over the rows of one KV head of one layer: a stale row, a V row taken from
 * a neighbour. By the cell's place among those that a query sees, from the first and from the last on, over all KV heads and
 * layers: a first or last key that is always forgotten, whichever token it is.
 *
 * What is not filtered: but for the size of outputs, rows of up to 4096 cells by kernels that round nothing to less than the
 * accumulator, whose bound sees all of the rest; formats with residual cells (kvb_oracle_needs_writes); passes after the first,
 * which repeat it.
 */
#ifndef KVB_FILTER_H
#define KVB_FILTER_H

#include "oracle/attention.h"
#include "oracle/oracle.h"
#include "oracle/sample.h"
#include "oracle/storage.h"
#include "workloads/array.h"

/*
 * Exact weights, V rows and outputs of the rows that the oracle solved, for the matched filter (oracle/filter.h). The
 * oracle makes them while it solves, and all kernels share them. Inside the oracle only.
 *
 * V, outputs and residuals are divided channel by channel by the standard deviation of V over the tokens, so that a
 * channel with large values does not drown the others.
 */

/* Rows of one KV head of one layer. */
typedef struct kvb_filter_unit {
    uint32_t layer, kv_head, dim;
    bool sequence;   /* of calls by themselves (oracle/single.h): layer is the number of the sequence */
    size_t tokens;   /* rows of V; 0: as many as the truth has */
    bool usable;     /* every V element is finite */
    double *inverse; /* [dim] 1 / standard deviation of V, 0 where that is 0 */
    double *mean;    /* [dim] of V */
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
    kvb_arena arena; /* of all but these and v of the units */
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

/* The direction of a kind with the largest z, among those whose a is what a mistake makes. */
typedef struct kvb_filter_peak {
    double z, a;             /* |z|; 0: none */
    uint32_t layer, kv_head; /* TOKEN */
    bool sequence;           /* TOKEN: as in the unit */
    uint32_t at;             /* token; place, from 0 on; HEADS: the lower head */
    uint32_t other;          /* HEADS: the higher one */
} kvb_filter_peak;

/* Of one replay. */
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
/* The peak that says best what went wrong, in words; "" where no z is above the limit. */
void kvb_filter_words(const kvb_filter_peak peaks[KVB_FILTER_KINDS], char *why, size_t why_bytes);

#endif
