/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle: plain double precision, no SIMD, no cache or kernel code, its own list of tokens for each
 * sequence. It answers three questions about a combination and never mixes them:
 *   1. did each query see the right tokens?              kvb_history_* with the witness kernel
 *   2. did the kernel compute attention of what is stored?   kvb_oracle_* and kvb_diff_*
 *   3. what did the storage format cost?                     kvb_format_error
 * Its work is done once for each (workload, K format, V format) and shared by all kernels.
 */
#ifndef KVB_ORACLE_H
#define KVB_ORACLE_H

#include <signal.h>

#include "kernels/attend.h"
#include "oracle/bound.h"
#include "oracle/history.h"
#include "workloads/trace.h"
#include "workloads/values.h"

/* What is checked. */
typedef struct kvb_oracle_options {
    const kvb_format *k_format, *v_format;
    const float *const *k_amax, *const *v_amax; /* [layers] of [kv_heads]: what head scales are made from, after the
                                                 * transform; NULL: none. Read by open only */
    uint64_t max_pairs; /* budget of (query, head, cell) visits, summed over layers; above it, or where the results
                         * would take more than 256 MiB, a seeded sample is checked */
    uint64_t seed;      /* of the sample */
    const kvb_team *team;
    const volatile sig_atomic_t *stop; /* set by a signal: end soon, with -EINTR; NULL: never */
} kvb_oracle_options;

/* Exact attention of one (event, layer, query, head) over the decoded stored rows, with the sums that any
 * declared arithmetic's bound is a linear combination of. */
typedef struct kvb_expect {
    uint32_t event; /* index in trace->events */
    uint32_t layer, query, head;
    uint32_t visible; /* cells seen */
    double lse;
    kvb_bound_row row;           /* sums of the whole row */
    const kvb_bound_term *terms; /* [v_dim of the layer]: exact output and sums, per channel */
} kvb_expect;

typedef struct kvb_format_error {
    double max_abs;         /* largest |o_stored - o_original| */
    double rel_l2;          /* ||o_stored - o_original|| / ||o_original|| over all checked rows */
    double kl_mean, kl_max; /* KL(original weights || stored weights), nats */
} kvb_format_error;

typedef struct kvb_oracle {
    kvb_expect *rows; /* sorted by event, layer, query, head */
    size_t n_rows;
    uint64_t total_rows; /* of the whole trace: n_rows / total_rows is the share checked */
    kvb_format_error format;
    void *arena; /* its own mapping */
    size_t arena_bytes;
    struct kvb_oracle_state *state;
} kvb_oracle;

/* 0, -ENOMEM, -EINTR when asked to stop, -ENOTSUP when it cannot store a format (why names it). Trace and values must outlive the oracle;
 * options and what they point to need not. */
int kvb_oracle_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                    kvb_oracle **oracle, char *why, size_t why_bytes);
void kvb_oracle_free(kvb_oracle *oracle);

/*
 * Formats with residual cells (kvb_format.residual_cells) store a row according to what was written near it, which differs from
 * cache to cache: their expected rows above serve question 3 alone (a sequence stored by itself, its residual cells ending at
 * each query), and for question 2 the stored rows are read from the cache's view, row by row.
 */
bool kvb_oracle_reads_views(const kvb_oracle *oracle);

/*
 * What expect's row must be over the rows that are in the views now, where query `query` of n_tok sees the cells of
 * mask. *actual is filled; its terms live in the oracle until the next call (one thread at a time). 0 or -ENOMEM.
 */
int kvb_oracle_solve_views(kvb_oracle *oracle, const kvb_expect *expect, const kvb_view *k, const kvb_view *v,
                           const kvb_mask *mask, uint32_t n_tok, uint32_t query, kvb_expect *actual);

/* The rows of one (event, layer): *n of them from the returned one on. */
const kvb_expect *kvb_oracle_rows(const kvb_oracle *oracle, uint32_t event, uint32_t layer, size_t *n);

/* ---- diff: measurements, not a verdict; NaN becomes infinity and its place is kept --------------------- */

/* An element of out, or (channel = v_dim) a log-sum-exp. */
typedef struct kvb_diff_place {
    uint32_t event, layer, query, head, channel;
    double got, want, bound;
} kvb_diff_place;

#define KVB_DIFF_QUERIES 4096u /* of a call that are told apart */

typedef struct kvb_diff {
    double rho;       /* max of error / bound, statistical bound: > 1 fails */
    double rho_worst; /* the same with the worst-case bound */
    double rho_lse;   /* of the log-sum-exp; part of rho too */
    double max_abs;   /* largest absolute error */
    double rel_l2;    /* sqrt(sum error^2 / sum exact^2), kept as its two sums below */
    double sum_error2, sum_exact2;
    uint64_t rows;        /* compared */
    uint64_t not_finite;  /* elements that were NaN or infinite where the exact one is not */
    kvb_diff_place worst; /* where rho was reached */
    /* Elements whose error is above its bound: the first of all; and how many, of how many, in all and in the first's call (event
     * and layer), until the caller sets `again`: rows that were compared before are not counted once more. */
    bool again, any_failed;
    kvb_diff_place first;
    uint64_t elements, failed;
    uint64_t first_elements, first_failed;
    uint64_t first_heads[KVB_MODEL_WIDTH / 64], first_queries[KVB_DIFF_QUERIES / 64]; /* bits */
} kvb_diff;

/* Compare one row: out [v_dim] of out_elem, lse NULL when not asked for. */
void kvb_diff_row(kvb_diff *diff, const kvb_expect *expect, uint32_t v_dim, const kvb_arithmetic *arithmetic,
                  double scale, double softcap, kvb_elem out_elem, const void *out, const float *lse);

#endif
