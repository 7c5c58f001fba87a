/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call by itself, without a history, and the comparison with what a kernel wrote. Attention: exact outputs over
 * decode(encode(row)) of rows that lie in the order of their cells. Scans: exact outputs and states of columns of a head.
 */
#ifndef KVB_SINGLE_H
#define KVB_SINGLE_H

#include "oracle/attention.h"
#include "oracle/filter.h"
#include "oracle/oracle.h"
#include "oracle/recurrence.h"

typedef struct kvb_single kvb_single;

typedef struct kvb_single_rows {
    uint32_t cells;               /* rows of each head, at most the call's cells; runs refer to these rows */
    const float *k, *v;           /* [cells][kv_heads][dim] before storing, cell after cell; v NULL where V is in K */
    const float *k_amax, *v_amax; /* [kv_heads] of formats with a head scale; NULL: scales are 1 */
    /* In place of k and v: rows that another program stored and read back, and their sizes (oracle/storage.h):
     * [kv_heads][cells][dim]. Formats are f32 then. NULL: k and v */
    const double *k_decoded, *k_sizes, *v_decoded, *v_sizes;
    const double *q; /* [n_tok][n_heads][k_dim] the rounded q of a kernel that ran elsewhere; NULL: the call's */
    const kvb_token_run *runs; /* cells that query t sees: runs[first[t]] .. runs[first[t + 1] - 1] */
    uint32_t most;             /* most cells of a query's runs, if runs hold a cell more than once; 0: `cells` */
    const size_t *first;       /* [n_tok + 1] */
} kvb_single_rows;

/* Prepares to judge a call. Problem, q and sinks are the call's; only round_query reads its views. A row is stored when
 * the first query that sees it is judged. Call, kernel and rows must outlive *single. arithmetic: declared;
 * NULL: the kernel's. kernel NULL: it runs elsewhere. 0; -ENOMEM; -ENOTSUP with why: no reference for a format. */
int kvb_single_open(const kvb_attend *call, const kvb_kernel *kernel, const kvb_arithmetic *arithmetic,
                    const kvb_single_rows *rows, kvb_single **single, char *why, size_t why_bytes);
void kvb_single_free(kvb_single *single);

/*
 * Compares `n` query heads of query t, from `head` on and of one KV head, with the call's out and lse (NULL: none). The
 * place's event is 0. glanced: by a second opinion (oracle/opinion.h), at a fraction of the cost, with wider bounds, and
 * without the filter. exact, bounds: [n][v_dim] exact outputs, and their bounds; NULL: not wanted; a second opinion gives no
 * bounds. 0; -ENOMEM; what round_query returned; or -EILSEQ with why: it moves q further than the kernel declares.
 */
int kvb_single_judge(kvb_single *single, uint32_t t, uint32_t head, uint32_t n, bool glanced, kvb_diff *diff,
                     double *exact, double *bounds, char *why, size_t why_bytes);

/*
 * The matched filter (oracle/filter.h) over several calls of one KV head each: the KV heads and sequences of a larger call.
 * Heads are compared within their KV head.
 */
typedef struct kvb_single_filter kvb_single_filter;

/* For up to `units` calls with problem's dims, scale and softcap, at most `cells` cells each, and `heads` query heads in all.
 * 0 or -ENOMEM. */
int kvb_single_filter_open(const kvb_problem *problem, uint32_t units, uint32_t cells, uint32_t heads,
                           kvb_single_filter **filter);
void kvb_single_filter_free(kvb_single_filter *filter);                    /* NULL: nothing */
const kvb_filter *kvb_single_filter_sums(const kvb_single_filter *filter); /* NULL: none */

/* From now on the filter takes the rows that `single` judges, as the next unit: a KV head of a sequence. Units beyond those that
 * the filter was opened for are left out. 0 or -ENOMEM. */
int kvb_single_filter_begin(kvb_single_filter *filter, kvb_single *single, uint32_t sequence, uint32_t kv_head);

/*
 * Repeats the order that the kernel declares for this call (oracle/exact.h), and compares its out and lse with those of one
 * query head as numbers: zeros of either sign are equal. Rows must be plain (kvb_exact_takes). apart: as in
 * kvb_exact_rows. 1: equal; 0 with why: different, or no valid order; -EDOM: rows or outputs are not finite; -ENOMEM.
 */
int kvb_single_exact(kvb_single *single, const kvb_order *order, uint32_t apart, uint32_t t, uint32_t head, char *why,
                     size_t why_bytes);

/* ---- scans ------------------------------------------------------------------------------------------------------- */

/* n columns of a head, from `first` on. */
typedef struct kvb_lane {
    uint32_t head, first, n;
} kvb_lane;

/* Byte offset of the lane's columns: of token t in out; of row i of a slot's state from the states' base. */
size_t kvb_lane_out_at(const kvb_scan *call, const kvb_lane *lane, uint32_t t);
size_t kvb_lane_state_at(const kvb_scan *call, const kvb_lane *lane, uint32_t slot, uint32_t i);

/* Takes the exact values of the lane's elements at a place: in out, or (place->row > 0) in a state. at: byte offset in out,
 * or from the states' base. */
typedef void kvb_lane_take(void *ctx, const kvb_lane *lane, const kvb_diff_place *place,
                           const kvb_recurrence_want *want, size_t at);

/* Follows a lane through the call: takes the outputs of all tokens, then the last state in each slot that the call writes.
 * before: the slots' memory before the call; NULL: zeros. 0 or -ENOMEM. */
int kvb_lane_follow(const kvb_scan *call, const char *before, const kvb_scan_arithmetic *arithmetic,
                    const kvb_lane *lane, kvb_lane_take *take, void *ctx);
/* Follows a lane and compares the call's outputs and states. */
int kvb_lane_judge(const kvb_scan *call, const char *before, const kvb_scan_arithmetic *arithmetic,
                   const kvb_lane *lane, kvb_diff *out, kvb_diff *states);

#endif
