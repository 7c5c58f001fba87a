/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle: plain double precision, no cache or kernel code. workloads/history.h gives the tokens that a query
 * sees. The oracle answers three questions about a combination and never mixes them:
 *   1. did each query see the right tokens?              kvb_history_visible with the witness kernel
 *   2. did the kernel compute attention of what is stored?   kvb_oracle_* and kvb_diff_*
 *   3. what did the storage format cost?                     kvb_format_error
 * Its work is done once for each (workload, K format, V format) and shared by all kernels. It is repeated for kernels that
 * round q or weights (kvb_rounded).
 */
#ifndef KVB_ORACLE_H
#define KVB_ORACLE_H

#include <signal.h>

#include "kernels/attend.h"
#include "oracle/bound.h"
#include "workloads/history.h"
#include "workloads/trace.h"
#include "workloads/values.h"

/* What is checked. */
typedef struct kvb_oracle_options {
    const kvb_format *k_format, *v_format;
    const float *const *k_amax, *const *v_amax; /* [layers] of [kv_heads] largest magnitudes after the transform, for
                                                 * head scales; NULL: none. Read by open only */
    uint64_t max_pairs; /* budget of (query, head, cell) visits, summed over layers. Above it, or if the results take
                             * more than 256 MiB, a seeded sample is checked. UINT64_MAX: all rows, at any size */
    uint64_t opinion_pairs; /* the same budget for second opinions (oracle/opinion.h) */
    uint64_t seed;          /* of the sample */
    const kvb_team *team;
    const volatile sig_atomic_t *stop; /* set by a signal: end soon, with -EINTR; NULL: never */
} kvb_oracle_options;

/* Exact attention of one (event, layer, query, head) over the decoded stored rows, with sums from which the bound of any
 * declared arithmetic follows as a linear combination. */
typedef struct kvb_expect {
    uint32_t event; /* index in trace->events */
    uint32_t layer, query, head;
    uint32_t visible; /* cells seen */
    double lse;
    const double *q;             /* [k_dim] q in place of the workload's; NULL: the workload's */
    kvb_bound_row row;           /* sums of the whole row; row.step is set before it is solved */
    const kvb_bound_term *terms; /* [v_dim of the layer]: exact output and sums, per channel */
} kvb_expect;

typedef struct kvb_format_error {
    double max_abs;         /* largest |o_stored - o_original| */
    double rel_l2;          /* ||o_stored - o_original|| / ||o_original|| over all checked rows */
    double kl_mean, kl_max; /* KL(original weights || stored weights), nats */
} kvb_format_error;

typedef struct kvb_oracle {
    kvb_expect *rows; /* sorted by event, layer, query, head; then their terms, in a mapping of their own */
    size_t n_rows;
    uint64_t seed;       /* of the sample */
    uint64_t total_rows; /* of the whole trace: n_rows / total_rows is the share checked */
    kvb_format_error format;
    struct kvb_descent *descent;   /* of layers that scan: oracle/descent.h. NULL: there are none */
    struct kvb_opinions *opinions; /* second opinions: oracle/opinion.h. NULL: there are none */
    struct kvb_oracle_state *state;
    struct kvb_filter_truth *filter; /* rows kept for oracle/filter.h; NULL: none */
} kvb_oracle;

/* Returns 0; -ENOMEM; -EINTR when asked to stop; -ENOTSUP when it cannot store a format, and why names that format.
 * Trace and values must outlive the oracle; options, and what they point to, need not. */
int kvb_oracle_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                    kvb_oracle **oracle, char *why, size_t why_bytes);
/*
 * Turns q and K of a trace with rows before rope (kvb_trace_header), since an oracle takes turned rows: each to the position
 * that the trace's events give its token. *turned shares all other rows with `values`, which must outlive it. 0 or
 * -ENOMEM.
 */
int kvb_turned_open(const kvb_trace *trace, const kvb_values *values, kvb_values **turned);
void kvb_turned_free(kvb_values *turned); /* NULL: nothing */
/* Does the oracle know what these formats store after seq_add moves a row? Else why. kvb_oracle_open() checks this, too. */
bool kvb_oracle_follows_shifts(const kvb_format *k, const kvb_format *v, char *why, size_t why_bytes);
void kvb_oracle_free(kvb_oracle *oracle);

/*
 * Does a row's stored value depend on the order of writes? It does in formats with residual cells, and the order differs
 * from cache to cache. Then the expected rows above serve question 3 only: each query's sequence is stored by itself,
 * its residual cells last. Question 2 is answered over the oracle's record of the writes (oracle/window.h).
 */
bool kvb_oracle_needs_writes(const kvb_oracle *oracle);

/* The rows of one (event, layer): *n of them from the returned one on. */
const kvb_expect *kvb_oracle_rows(const kvb_oracle *oracle, uint32_t event, uint32_t layer, size_t *n);

/* ---- diff: measurements, not a verdict; NaN becomes infinity and its place is kept --------------------- */

/* An element of out, a log-sum-exp (channel = v_dim), or an element of a scan. */
typedef struct kvb_diff_place {
    uint32_t event, layer, query, head, channel;
    uint16_t part; /* 1 + kvb_scan_part; 0: attention */
    uint16_t row;  /* of a scan: i + 1: in row i of the state that the token left in a slot; 0: in out */
    double got, want, bound;
} kvb_diff_place;

struct kvb_recurrence_want;

/* Rows that their kernel's declaration says nothing about: oracle/claim.h. */
#define KVB_CLAIM_KINDS 3u
typedef struct kvb_claim {
    uint32_t k_dim, cells;             /* of the call; the caller sets them before each row */
    uint64_t unsaid;                   /* rows for which a wrong output passes */
    uint64_t passing[KVB_CLAIM_KINDS]; /* of these: 0 passes; the mean of V; the row without its heaviest cell */
    uint64_t wide;   /* of these, rows that the declaration, cut to what 8 and 16 bits need, would judge */
    uint32_t fields; /* bits of the fields that were cut for them */
} kvb_claim;

/* Rules by which other projects' tests pass an output (kvb_tolerance of kernels/attend.h), over exact outputs. */
extern const char *const kvb_tolerance_names[]; /* by kind: "none", "nmse", "close" */

/* Sums over the outputs taken so far; begin with {0}. An output is left out if the exact one is not finite. */
typedef struct kvb_closeness {
    double error2, exact2; /* sums of squares */
    double farthest;       /* CLOSE: largest |error| over what the rule allows this output */
    uint64_t elements;
} kvb_closeness;

#define KVB_DIFF_QUERIES 4096u /* first queries of a call, which are noted when they fail */

typedef struct kvb_diff {
    double rho;       /* max of error / bound, statistical bound: > 1 fails */
    double rho_worst; /* the same with the worst-case bound */
    double rho_lse;   /* of the log-sum-exp; part of rho too */
    double max_abs;   /* largest absolute error */
    double rel_l2;    /* sqrt(sum error^2 / sum exact^2), kept as its two sums below */
    double sum_error2, sum_exact2;
    uint64_t rows;   /* compared */
    uint64_t silent; /* rows for which outputs of 0 pass: tiny V, a sink with all the weight, or no visible cell */
    kvb_claim claim;
    kvb_closeness close;  /* of a kernel with a tolerance, by kvb_single_judge() */
    uint64_t not_finite;  /* elements that were NaN or infinite where the exact one is not */
    kvb_diff_place worst; /* where rho was reached */
    /* An element fails if its error is above its bound. `first` is the first that fails. `failed` counts the failing
     * ones of all `elements`, and the first_* fields count those of the first's call (its event and layer). The caller
     * sets `again` when rows come a second time: they are not counted then. */
    bool again, any_failed;
    kvb_diff_place first;
    uint64_t elements, failed;
    uint64_t first_elements, first_failed;
    uint64_t first_heads[KVB_MODEL_WIDTH / 64], first_queries[KVB_DIFF_QUERIES / 64]; /* bits */
} kvb_diff;

/* Element i of outputs of that type; n elements from `first` on. */
double kvb_output_value(kvb_elem elem, const void *out, size_t i);
void kvb_output_values(kvb_elem elem, const void *out, size_t first, uint32_t n, double *values);

/* Compare one row: out [v_dim] of out_elem, lse NULL when not asked for. */
void kvb_diff_row(kvb_diff *diff, const kvb_expect *expect, uint32_t v_dim, const kvb_arithmetic *arithmetic,
                  double scale, double softcap, kvb_elem out_elem, const void *out, const float *lse);

/* Compare n elements that lie side by side, from `first` on, with those that a recurrence wants (oracle/recurrence.h). */
void kvb_diff_take(kvb_diff *diff, const kvb_diff_place *first, const struct kvb_recurrence_want *want, size_t n,
                   kvb_elem elem, const void *got);

/* Describes the first wrong element of attention: "out of query 3, head 1, channel 12 is -0.0789, exact 0.1107, bound
 * 2e-07 (5 of 640 elements wrong)". */
void kvb_diff_words(const kvb_diff *diff, uint32_t v_dim, char *words, size_t bytes);

/* One row of out_elem; exact output c is at exact + c * step doubles. */
void kvb_closeness_row(kvb_closeness *c, const kvb_tolerance *rule, kvb_elem out_elem, const void *out, uint32_t v_dim,
                       const double *exact, size_t step);

/* Adds the sums of another. */
void kvb_closeness_add(kvb_closeness *c, const kvb_closeness *other);

/* The error over what the rule allows: above 1 fails. NaN counts as infinite. */
double kvb_closeness_share(const kvb_closeness *c, const kvb_tolerance *rule);

/*
 * ---- rounded.c ----
 * Rows for a kernel that rounds. An oracle's rows serve every kernel: they are solved for the workload's q, without sums
 * for weights in steps. A kernel that rounds q says to what (kvb_kernel.round_query): its rows are solved once more for
 * that q. So are those of a kernel whose weights are multiples of a step, with the sums for it. This happens at a layer's
 * first call, which brings the problem and the head scales that q is rounded for.
 */

typedef struct kvb_rounded kvb_rounded;

/* Oracle and kernel must outlive it. 0 or -ENOMEM. */
int kvb_rounded_open(kvb_oracle *oracle, const kvb_kernel *kernel, kvb_rounded **rounded);
void kvb_rounded_free(kvb_rounded *rounded);

/*
 * The rows that judge the kernel's `call` of (event, layer): *n of them, those of kvb_oracle_rows() if no other solve is
 * needed; where the stored rows depend on the order of writes, rows for kvb_window_solve() to solve. *arithmetic holds
 * what the kernel declares; what the rows take into account is removed from it. 0, -ENOMEM, what round_query returned, or
 * -EILSEQ and why: it goes further from q than is declared, or gives another q for another call.
 */
int kvb_rounded_rows(kvb_rounded *rounded, const kvb_attend *call, uint32_t event, uint32_t layer,
                     kvb_arithmetic *arithmetic, const kvb_expect **rows, size_t *n, char *why, size_t why_bytes);

/* Checks that `rounded` is no further from `exact`, the q of one query head, than the arithmetic declares, and than codes
 * of 8 bits need (kvb_claim_cut_told()). scale: a factor on q before it was rounded, such as a format's head scale. 0, or
 * -EILSEQ with why, which begins with `what`. */
int kvb_rounded_check(const kvb_problem *problem, const kvb_arithmetic *arithmetic, double scale, const char *what,
                      uint32_t query, uint32_t head, const float *exact, const double *rounded, char *why,
                      size_t why_bytes);

/* Has the kernel round `exact`, the q of one query head, to q [k_dim]. 0, what round_query returned, or -EILSEQ with why:
 * q is further from `exact` than the arithmetic declares, or than codes of 8 bits need (kvb_claim_cut_told()). */
int kvb_rounded_q(const kvb_kernel *kernel, const kvb_attend *call, const kvb_arithmetic *arithmetic, uint32_t query,
                  uint32_t head, const float *exact, double *q, char *why, size_t why_bytes);

#endif
