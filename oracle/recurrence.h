/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The truth of recurrent layers (kernels/scan.h): one head of one sequence, in double, from the sequence's first token on, and
 * beside each element a bound on a kernel's error, from its declared arithmetic. The truth never reads a slot: the states of
 * caches and kernels are compared with it, not fed to it.
 *
 * The bound. e is the error of a computed state. A token with decay d changes it:
 *
 *     e <- d e  for each element                   (MAMBA1, MAMBA2, LIGHTNING)
 *     e <- alpha (I - beta k k^T) e  for each column   (DELTA), so that ||e|| grows at most alpha rho-fold, rho = max(1, |1 - beta k.k|)
 *
 * At the end of a chunk rounding adds, for each element with exact value s,
 *
 *     added = (gamma_state + r) (M + W) + u c X + tiny,  and u_s (|s| + W) when the state is rounded to a narrow type
 *
 *     M     the magnitude that roundings are relative to: |s| at the begin of the chunk, d M + |k v| (with its factors) after a token
 *     X     sum of the terms of M, each times the magnitude of the exponent that it is decayed by: d (X + |log d| M)
 *     c     exponent_chain;  u = 2^-24;  r = exp_error, and (1 + u_o)^2 - 1 where operands are narrow
 *     u_s   unit roundoff of the type of the slots, where the state is written; of `carried` at the end of each chunk
 *     tiny  exp_floor times the terms before their decay, and the accumulator's subnormals
 *     DELTA makes one more error with each token, in beta (v - k^T S): along k by beta ((gamma_solve + r) m + u c x),
 *           where m = |v| + |k|.(M + W), x = |k|.X
 *
 * M starts anew with each chunk: no sum reaches back further. gamma_n is n u / (1 - n u) at worst; there W is the sum of all
 * that was added. The statistical strength, which decides, keeps two numbers: V, a variance, and L, a sum:
 *
 *     |e| <= min(W, L + lambda sqrt(V)),  lambda = 7, as in oracle/bound.h
 *
 * V takes sqrt(n) u (M + W) and u_s (|s| + W): these roundings differ in direction each time. L takes the rest: a constant decay
 * has the same error each time. L also takes the worst of an element that has changed by less than u^(2/3) |s| / 4: such an
 * element rounds the same way again and again. (Let an element shrink by a share x of itself each time, so that memory is 1 / x
 * tokens. It is m >= 1 / 2u units of its last place. The fraction of x m is rounded off, and runs through its period in
 * 1 / (x^2 m) tokens. Errors of one sign then add up to 1 / (8 x^2 m) units, and lambda sqrt(V) is at least 3.5 / sqrt(2x)
 * units: more, as soon as x > (u / 10)^(2/3).)
 * DELTA keeps W, L, V of columns. W and L add the 2-norm over the column, V adds the largest element: a matrix with ||A|| <= 1
 * leaves no direction a larger variance.
 *
 * out = q^T S, with the sum of absolute values Q = |q|.(M + W):
 *
 *     |error| <= |q|.e (DELTA: ||q|| ||e||) + (gamma_read + r) Q + u c |q|.X + tiny |q|_1 + u_out |out|
 *
 * CONV's state is its inputs: e is their rounding in slots. out's error is |a|.e + gamma_read (|a|.|x| + |bias|), with silu times
 * its largest slope, 1.0998, plus silu's own roundings.
 */
#ifndef KVB_RECURRENCE_H
#define KVB_RECURRENCE_H

#include "kernels/scan.h"

typedef struct kvb_recurrence kvb_recurrence;

/* The exact value of an element, and its bounds. */
typedef struct kvb_recurrence_want {
    double value;
    double bound, worst; /* largest honest error: at statistical strength, which decides; at worst. worst >= bound */
} kvb_recurrence_want;

/* A token's inputs to the head, with the same meaning as in kvb_scan. Owned by the caller. */
typedef struct kvb_recurrence_token {
    const float *q, *k; /* [d_k] */
    const float *v;     /* [d_v] */
    const float *gate;  /* MAMBA1 [d_v]; MAMBA2, DELTA: one */
    const float *beta;  /* one */
    const float *a;     /* MAMBA1 [d_k][d_v]; MAMBA2, LIGHTNING: one; CONV [d_k + 1][d_v] */
    const float *bias;  /* [d_v] or NULL */
    size_t a_row;       /* elements from one row of a to the next; 0: d_v */
} kvb_recurrence_token;

/* A head before its first token: zeros. Only kind, d_k, d_v, types and silu of the problem count. NULL: no memory. */
kvb_recurrence *kvb_recurrence_open(const kvb_scan_problem *problem, const kvb_scan_arithmetic *arithmetic);
void kvb_recurrence_close(kvb_recurrence *head);

/* Sets the head to a state [d_k][d_v] that is known exactly. */
void kvb_recurrence_begin(kvb_recurrence *head, const double *state);

/* Sets the arithmetic of the next tokens: a kernel may declare calls of several tokens otherwise than those of one. */
void kvb_recurrence_declare(kvb_recurrence *head, const kvb_scan_arithmetic *arithmetic);

/* Copies the state of `from`, for a fork, a snapshot or a rollback. `to` has the same problem, and keeps its arithmetic. */
void kvb_recurrence_copy(kvb_recurrence *to, const kvb_recurrence *from);

/* Takes a token; fills out [d_v]. */
void kvb_recurrence_step(kvb_recurrence *head, const kvb_recurrence_token *token, kvb_recurrence_want *out);

/* Ends a run of tokens (kvb_scan_run_end()). stored: the state is written to a slot. */
void kvb_recurrence_rest(kvb_recurrence *head, bool stored);

/* The state as a slot must hold it after kvb_recurrence_rest(head, true): [d_k][d_v]. */
void kvb_recurrence_state(const kvb_recurrence *head, kvb_recurrence_want *state);

/* Elements of a call's inputs, in the order of kvb_recurrence_token; 0: the kind has none. */
enum { KVB_SCAN_INPUTS = 7 };
void kvb_scan_inputs(const kvb_scan_problem *problem, size_t n[KVB_SCAN_INPUTS]);

/* The token of head h in a call, for a recurrence of the columns from `first` on. */
kvb_recurrence_token kvb_recurrence_token_of(const kvb_scan *args, uint32_t t, uint32_t h, uint32_t first);

/*
 * The second opinion on layers that scan: exact outputs of lanes that are not followed element by element, and a wider bound.
 * The parent process computes the exact values, which no kernel changes, and the norms that the bound needs, once. Each child
 * process then computes the bound by column, not by element.
 *
 * The bound is the one above, with each element's numbers replaced by the most that its column has:
 *
 *     W, L, M, X    2-norms over the column: ||M|| <= d ||M|| + ||k|| |v|;  sum |q| M <= ||q|| ||M||  (Cauchy, Schwarz)
 *     V             the largest: sum q^2 V <= ||q||^2 max V, made of the largest |s|, and of max M <= d max M + max |k| |v|
 *     elements that round the same way again and again: those that hardly changed in a chunk of one token; all in a longer chunk
 *     decays        MAMBA1: the slowest of the column, and the largest exponent
 *
 * It is a few times wider than the element's own bound, but still finds a row that is NaN, stale, or another token's.
 */

#define KVB_LANE_COLUMNS 16u

/* A token of a lane: numbers by column. */
typedef struct kvb_glance_row {
    double out[KVB_LANE_COLUMNS]; /* exact, before it is rounded to its type */
    /* 2-norm and largest element of the state after the token. CONV: |a|.|x| + |bias|, |a|_1 */
    float norm[KVB_LANE_COLUMNS], most[KVB_LANE_COLUMNS];
    float slow[KVB_LANE_COLUMNS];                          /* norm of the elements that hardly changed */
    float write[KVB_LANE_COLUMNS];                         /* factor of k in the state's update, as a magnitude */
    float v[KVB_LANE_COLUMNS];                             /* DELTA: |v| */
    float decay[KVB_LANE_COLUMNS], size[KVB_LANE_COLUMNS]; /* slowest decay; largest magnitude of an exponent */
    float q_norm, k_norm, k_most;
    float along, grow; /* DELTA: beta ||k||; max(1, |1 - beta k.k|) */
} kvb_glance_row;

/* Exact values: updates the state [d_k][KVB_LANE_COLUMNS] by a token and fills *row. The lane has p->d_v columns. */
void kvb_glance_take(const kvb_scan_problem *p, const kvb_recurrence_token *token, double *state, kvb_glance_row *row);

/* The error bound of a kernel's state. {0}: a sequence before its first token. A copy serves a fork. */
typedef struct kvb_glance {
    const kvb_glance_row *last; /* token of the state */
    uint32_t taken;             /* tokens of the chunk; CONV: since the state was stored */
    bool stored;                /* the state was stored before */
    double bulk;                /* largest element at the begin of the chunk, plus each token's largest product */
    double mass[KVB_LANE_COLUMNS], most[KVB_LANE_COLUMNS], reach[KVB_LANE_COLUMNS];       /* ||M||, max M, X */
    double worst[KVB_LANE_COLUMNS], linear[KVB_LANE_COLUMNS], variance[KVB_LANE_COLUMNS]; /* W, L, V */
} kvb_glance;

/* As kvb_recurrence_step() and kvb_recurrence_rest(). want [p->d_v]; NULL: not wanted. */
void kvb_glance_step(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, const kvb_glance_row *row,
                     kvb_recurrence_want *want);
void kvb_glance_rest(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, bool stored);

#endif
