/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The truth of recurrent layers (kernels/scan.h): one head of one sequence, in double, from the sequence's first token on, and
 * beside each element a bound on what a kernel may err, from its declared arithmetic. Never reads a slot: what a cache or kernel
 * makes of states is compared with it, not fed to it.
 *
 * The bound. e is what a computed state is off by. A token with decay d makes of it
 *
 *     e <- d e  for each element                   (MAMBA1, MAMBA2, LIGHTNING)
 *     e <- alpha (I - beta k k^T) e  for each column   (DELTA), so that ||e|| grows at most alpha rho-fold, rho = max(1, |1 - beta k.k|)
 *
 * and at the end of a chunk what rounding adds is, for each element with exact value s,
 *
 *     added = (gamma_state + r) (M + W) + u c X + tiny,  and u_s (|s| + W) when the state is rounded to a narrow type
 *
 *     M     what is rounded relative to: |s| at the begin of the chunk, and d M + |k v| (with its factors) for each token since
 *     X     sum of the terms of M, each times the magnitude of the exponent that it is decayed by: d (X + |log d| M)
 *     c     exponent_chain;  u = 2^-24;  r = exp_error, and (1 + u_o)^2 - 1 where operands are narrow
 *     u_s   unit roundoff of the type of the slots, where the state is written; of `carried` at the end of each chunk
 *     tiny  exp_floor times the terms before their decay, and the accumulator's subnormals
 *     DELTA makes one more error with each token, in u = beta (v - k^T S): along k by beta ((gamma_solve + r) m + u c x),
 *           where m = |v| + |k|.(M + W), x = |k|.X
 *
 * M starts anew with each chunk: no sum reaches back further. gamma_n is n u / (1 - n u) at worst; there W is the sum of all
 * that was added. The statistical strength, which decides, keeps two numbers: V, a variance, and L, a sum:
 *
 *     |e| <= min(W, L + lambda sqrt(V)),  lambda = 7, as in oracle/bound.h
 *
 * V takes sqrt(n) u (M + W) and u_s (|s| + W): roundings that point elsewhere each time. L takes the rest: a decay that is always the
 * same is off by the same each time. It also takes the worst of an element that has hardly changed, by less than u^(2/3) |s| / 4:
 * it rounds the same way again and again. (Let an element shrink by a share x of itself each time, so that memory is 1 / x tokens.
 * It is m >= 1 / 2u units of its last place, and what is rounded off is the fraction of x m, which runs through its period in
 * 1 / (x^2 m) tokens. Errors of one sign then add up to 1 / (8 x^2 m) units, and lambda sqrt(V) is at least 3.5 / sqrt(2x)
 * units: more, as soon as x > (u / 10)^(2/3).)
 * DELTA keeps W, L, V of columns: of an addition the 2-norm over the column, for V the largest element, since a matrix with
 * ||A|| <= 1 leaves no direction a larger variance.
 *
 * out = q^T S, of a sum of absolute values Q = |q|.(M + W):
 *
 *     |error| <= |q|.e (DELTA: ||q|| ||e||) + (gamma_read + r) Q + u c |q|.X + tiny |q|_1 + u_out |out|
 *
 * CONV's state is its inputs: e is their rounding in slots; out's error is |a|.e + gamma_read (|a|.|x| + |bias|), times the largest slope of
 * silu, 1.0998, and silu's own roundings.
 */
#ifndef KVB_RECURRENCE_H
#define KVB_RECURRENCE_H

#include "kernels/scan.h"

typedef struct kvb_recurrence kvb_recurrence;

/* What an element must be. */
typedef struct kvb_recurrence_want {
    double value;
    double bound,
        worst; /* largest honest error: at the strength that decides; whatever way roundings point. worst >= bound */
} kvb_recurrence_want;

/* What the head is given at a token, all of the same meaning as in kvb_scan. Owned by the caller. */
typedef struct kvb_recurrence_token {
    const float *q, *k; /* [d_k] */
    const float *v;     /* [d_v] */
    const float *gate;  /* MAMBA1 [d_v]; MAMBA2, DELTA: one */
    const float *beta;  /* one */
    const float *a;     /* MAMBA1 [d_k][d_v]; MAMBA2, LIGHTNING: one; CONV [d_k + 1][d_v] */
    const float *bias;  /* [d_v] or NULL */
} kvb_recurrence_token;

/* A head before its first token: zeros. Of the problem only kind, d_k, d_v, types and silu count. NULL: no memory. */
kvb_recurrence *kvb_recurrence_open(const kvb_scan_problem *problem, const kvb_scan_arithmetic *arithmetic);
void kvb_recurrence_close(kvb_recurrence *head);

/* The head goes on from a state that it did not make, known exactly: [d_k][d_v]. */
void kvb_recurrence_begin(kvb_recurrence *head, const double *state);

/* From here on a kernel computes so: it may declare calls of several tokens otherwise than those of one. */
void kvb_recurrence_declare(kvb_recurrence *head, const kvb_scan_arithmetic *arithmetic);

/* A fork, a snapshot, a rollback: `to`, of the same problem, becomes what `from` is. What was declared of `to` stays.
 */
void kvb_recurrence_copy(kvb_recurrence *to, const kvb_recurrence *from);

/* A token comes: out [d_v]. */
void kvb_recurrence_step(kvb_recurrence *head, const kvb_recurrence_token *token, kvb_recurrence_want *out);

/* A run of tokens ends here (kvb_scan_run_end()). stored: the state is written to a slot. */
void kvb_recurrence_rest(kvb_recurrence *head, bool stored);

/* The state as a slot must hold it after kvb_recurrence_rest(head, true): [d_k][d_v]. */
void kvb_recurrence_state(const kvb_recurrence *head, kvb_recurrence_want *state);

/* The token of head h in a call. */
kvb_recurrence_token kvb_recurrence_token_of(const kvb_scan *args, uint32_t t, uint32_t h);

/* The largest error / bound of n elements at `got` [n] of a plain type; what is no number where a number is due is
 * infinite. *at: its index (untouched when rho is 0). */
double kvb_recurrence_rho(const kvb_recurrence_want *want, kvb_elem elem, const void *got, size_t n, size_t *at);

/*
 * The second opinion on layers that scan: exact outputs of lanes that are not followed element by element, and a bound from above.
 * The parent computes exact values once, since no kernel changes them, and the norms that the bound needs. Each child then computes
 * the bound of a column, not of each element.
 *
 * The bound is that of oracle/recurrence.h with each element's numbers replaced by what its column has at most:
 *
 *     W, L, M, X    2-norms over the column: ||M|| <= d ||M|| + ||k|| |v|;  sum |q| M <= ||q|| ||M||  (Cauchy, Schwarz)
 *     V             the largest: sum q^2 V <= ||q||^2 max V, made of the largest |s|, and of max M <= d max M + max |k| |v|
 *     what rounds the same way again and again: elements that changed by so little with the chunk's one token; of a longer chunk all
 *     decays        MAMBA1: the slowest of the column, and the largest exponent
 *
 * which lies some times above the element's own: enough to find a row that is NaN, stale, or another's.
 */

#define KVB_LANE_COLUMNS 16u

/* Of a token, in a lane. */
typedef struct kvb_glance_row {
    double out[KVB_LANE_COLUMNS]; /* exact, before it is rounded to its type */
    float norm[KVB_LANE_COLUMNS],
        most[KVB_LANE_COLUMNS];    /* of a column of the state after it. CONV: |a|.|x| + |bias|, |a|_1 */
    float slow[KVB_LANE_COLUMNS];  /* norm of the elements that hardly changed */
    float write[KVB_LANE_COLUMNS]; /* what k is multiplied with */
    float v[KVB_LANE_COLUMNS];     /* DELTA: |v| */
    float decay[KVB_LANE_COLUMNS], size[KVB_LANE_COLUMNS]; /* slowest; its exponent's largest magnitude */
    float q_norm, k_norm, k_most;
    float along, grow; /* DELTA: beta ||k||; max(1, |1 - beta k.k|) */
} kvb_glance_row;

/* Exact: a token comes to the state [d_k][KVB_LANE_COLUMNS], of which p->d_v columns are the lane's; fills *row. */
void kvb_glance_take(const kvb_scan_problem *p, const kvb_recurrence_token *token, double *state, kvb_glance_row *row);

/* What a kernel's state may be off by. All 0: a sequence before its first token. May be copied: a fork. */
typedef struct kvb_glance {
    const kvb_glance_row *last; /* token of the state */
    uint32_t taken;             /* tokens of the chunk; CONV: since the state was stored */
    bool stored;                /* it was, before */
    double bulk;                /* as of a recurrence */
    double mass[KVB_LANE_COLUMNS], most[KVB_LANE_COLUMNS], reach[KVB_LANE_COLUMNS];
    double worst[KVB_LANE_COLUMNS], linear[KVB_LANE_COLUMNS], variance[KVB_LANE_COLUMNS];
} kvb_glance;

/* As kvb_recurrence_step() and kvb_recurrence_rest(). want [p->d_v]; NULL: it is not wanted. */
void kvb_glance_step(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, const kvb_glance_row *row,
                     kvb_recurrence_want *want);
void kvb_glance_rest(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, bool stored);

#endif
