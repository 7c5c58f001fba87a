/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error bound, from a kernel's declared arithmetic. With p the exact weights and o the exact output
 * (over the decoded stored rows), for channel c:
 *
 *   B_c = F + (((1 + gamma)(1 + u_P) - 1) M + (1 + gamma) R + gamma (|o_c| + F)) / (1 - gamma) + u_out |o_c| + omega
 *   F   = G sum_i p_i |v_ic - o_c| (D_i + eta), at most |o_c| + max_i V_ic      wrong weights
 *   M   = sum_i p_i V_ic                                                        rounding of the sum over cells
 *   R   = raised (L_c + ||min(h p_max V_largest, p_i W_ic)||), h = sums.step/2   weights in steps
 *   D_i = tau ((1 + gamma_d)(1 + u_Q) - 1) A_i + tau (1 + gamma_d) (query.step/2 + query.floor) Q_i
 *         + tau scores.floor max|q| + 2u S_i (+ 4u softcap with a softcap)
 *   A_i = |q|.K_i,  Q_i = max_c |q_c| sum_c K_ic,  S_i = |s_i| + (s_max - s_i) / 2
 *   K_ic, V_ic   |k_ic|, |v_ic|, or the magnitudes that quantised rows are read through: below
 *
 * Sums in a narrow type, as f16 (scores.chain, sums.chain, scores.floor, sums.floor).
 *   Terms are first added in that type, then those sums in the accumulator. A term passes through both chains: 1 + gamma_d
 *   is the product of both chains' 1 + gamma, and 1 + u_P that of the weight's rounding and the narrow chain. (The sum of
 *   the weights is taken in the accumulator: its gamma stays.)
 *   Below the type's normal numbers errors are absolute: scores.floor max|q| for a dot product, and sums.floor times the
 *   largest weight for a cell's product. omega has n' of the latter (n' as in R), over Z.
 *
 * To first order this is sum p |v - o| (D + eta) + (gamma + u_P) M + R + (gamma + u_out) |o| + omega.
 *
 *   tau    |scale|;  u unit roundoff of the accumulator
 *   gamma_d, gamma   from dot_chain and cell_chain + rescales: statistical lambda sqrt(m) u with lambda = 7
 *          (Higham, Mary: A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41,
 *          2019), but never above the worst case m u / (1 - m u) (Higham, Accuracy and Stability, 2nd ed.,
 *          section 3.1), which always holds. Each rescale is one more rounding of a partial sum.
 *   gamma |o_c|      the sum in the denominator rounds too
 *   2u S_i a logit is rounded when it is scaled and, where the exponent is taken in base 2, so is its factor:
 *          2u |s_i|. The subtraction s_i - max rounds by u (s_max - s_i); with a running maximum the parts
 *          s_i - max_1, max_1 - max_2, … telescope to the same.
 *   eta    exp_error + rescales (exp_error + u), as -log(1 - eta)
 *   u_P, u_Q  unit roundoff of what p and q are rounded to (0 when they are not)
 *   u_out  unit roundoff of the output dtype, plus 2u for the division
 *   omega  absolute errors. With Z = sum_i exp(s_i - s_max) and n visible cells: weights dropped below
 *          exp_floor (2 n exp_floor max_i V_ic / Z: both sums lose them), weights that are subnormal in what
 *          p is rounded to (n max_i V_ic / Z halves of its smallest subnormal), products that are subnormal in
 *          the accumulator, and the smallest subnormal of the output dtype
 *   G      makes the first-order D_i hold when they are not small. A weight that is off by a factor
 *          e^d_i, |d_i| <= D_i, moves the output by sum p_i (v_ic - o_c)(e^d_i - 1) / sum p_i e^d_i. There
 *          |e^d - 1| <= D expm1(D_max) / D_max, and by Jensen sum p_i e^d_i >= exp(-sum p_i D_i), so
 *          G = expm1(D_max) / D_max exp(D_mean).  M is at most exp(D_max + D_mean) times its exact value,
 *          and at most max_i V_ic.
 *
 * Numbers in steps, as integers are (query.step, query.floor, sums.step: kernels/attend.h).
 *   Q_i    q is off by |dq_c| <= (query.step/2 + query.floor) max|q|, so q.k_i is off by sum_c |dq_c| |k_ic|, at most
 *          (query.step/2 + query.floor) Q_i. The same dq meets
 *          every cell and may point as k_i does, so both strengths take the 1-norm (lambda times the 2-norm would be
 *          1.2 times less at 128 channels). K_ic, not |k_ic|: where code * scale and zero are multiplied apart, one of
 *          them may meet the rounded q and the other q itself. Roundings made in computing the steps are in dot_chain.
 *   R      Each visible cell's product is off by at most h times the largest weight times V_largest, the largest
 *          V_ic of visible cells and of all channels (a kernel may have one step for several channels). Divided by the
 *          sum of the weights, the largest weight is p_max, of the cells alone: a sink has no V row. A product is also
 *          off by at most itself, since 0 is a multiple of the step: by p_i W_ic, where W_ic is V_ic. If codes have a
 *          zero, a kernel may round the product of the code less the middle one, not of the element; W_ic is then the
 *          largest V_ic of the row's channels, which is at least that product's. Computed weights are up to
 *          raised = exp(D_max + D_mean) times the exact ones, the largest at most 1. The cells' errors are bounded
 *          and, at statistical strength, independent: ||x|| = lambda sqrt(sum x_i^2) (Hoeffding: Probability
 *          inequalities for sums of bounded random variables, J. Amer. Statist. Assoc. 58, 1963). They are dependent
 *          where products below half a step become 0 together, as beside a sink. L_c is the loss there: |sum p_i v_ic|
 *          over the cells with p_i W_ic < h p_max V_largest, or sum p_i W_ic if the element itself is not rounded. R is
 *          never above the worst: no L_c, ||x|| = sum x_i. The sum of the weights is not rounded to steps, so neither
 *          the denominator nor the log-sum-exp has such a term. These sums depend on the step. Made for a step h0 < h,
 *          the worst holds times h / h0; without them R is n' h p_max V_largest, n' = lambda sqrt(n) or n.
 *   Where a kernel gives the q that it rounds to (kvb_kernel.round_query), all sums are made with that q, and query is 0.
 *   A kernel that declares steps declines transforms: Q_i and V_largest belong to rows as they are stored.
 *
 * Log-sum-exp: expm1(D_max) / D_max (D_mean + eta) + gamma / (1 - gamma) + 2u |lse| + 4u log Z
 *              + n exp_floor / Z + smallest subnormal.
 *
 * Decoded rows. An element is code * scale + zero. Kernels round its two parts, the products of either part with q or p
 * (factored out of a sum or not), and sums of those: each rounding is relative to
 *   size_ic = |code * scale| + |zero|, at least |k_ic| and |v_ic|, and much larger where a row is far from 0.
 * size_ic replaces |k_ic| and |v_ic| in A_i, M and max_i V_ic; |v_ic - o_c| stays, since v is exact there. The
 * roundings of decoding are in the declared chains (kvb_format_roundings), as all others are.
 *   A transform is orthogonal, and so is each of its stages: a stage rounds by u in norm, whether it is applied to q or
 * k_i (v_i or out). For K: |q'.dk + dq'.k| <= m u ||q|| ||k_i||, so A_i = ||q|| ||size_i||, never below |q|.|k_i|
 * (Cauchy, Schwarz). For V: channel c is a sum over the block's channels, weighted by +-1 / sqrt(block). Their roundings
 * are independent, so its error is that of the root mean square of their sizes. Stage k of the transform rounds sums over
 * 2^k channels. Channel c gets the root mean square of those sums' errors. It is relative to the root mean square of v
 * over 2^k channels, c among them (each stage keeps the norm): at most
 *   g_k^2 = min(sum v^2, v_c^2 + (2^k - 1) max v^2) / 2^k, whatever the order of the stages.
 * V_ic = the largest of the first root mean square, that of g_k over the stages, and |v_ic|, since sums may run over
 * either side of the transform. At worst V_ic is sqrt(block) times the first (Cauchy, Schwarz): the factor v_mix, which
 * only the worst strength takes.
 *
 * Equal terms. If the same number is added n times, each addition within a binade rounds the same way, so the errors do
 * not average out. If all visible logits are the same to 2^-20, sums over cells therefore take the worst strength with a
 * sink (the weights are equal and not 1), and where V lies in K (the V rows are equal).
 *
 * A sink is one more visible cell with v = 0, A = 0, Q = 0 and s = its logit.
 *
 * All sums but those of R are independent of the kernel, so the oracle computes them once per output element.
 */
#ifndef KVB_BOUND_H
#define KVB_BOUND_H

#include "kernels/attend.h"

/* Per output channel. */
typedef struct kvb_bound_term {
    double o;        /* exact output */
    double spread;   /* sum p_i |v_ic - o_c| */
    double spread_a; /* sum p_i |v_ic - o_c| A_i */
    double spread_q; /* sum p_i |v_ic - o_c| Q_i */
    double spread_s; /* sum p_i |v_ic - o_c| S_i */
    double mass;     /* sum p_i V_ic */
    double v_max;    /* max V_ic over visible cells */
    double steps;    /* sum of min(row.step/2 p_max V_largest, p_i W_ic); 0 without a step */
    double steps2;   /* sum of their squares */
    double lost;     /* L_c */
    /* Distances of o from two wrong outputs (oracle/claim.h): the mean of V over the visible cells, and the output of
     * the row without its heaviest cell. 0: there is no such output. */
    float mean_off, rest_off;
} kvb_bound_term;

/* Per row. */
typedef struct kvb_bound_row {
    uint32_t visible;
    double a_max, q_max, s_max;    /* max A_i, max Q_i, max S_i over visible cells */
    double a_mean, q_mean, s_mean; /* sum p_i A_i, sum p_i Q_i, sum p_i S_i */
    double q_largest;              /* max |q_c| */
    double p_max;                  /* max p_i of the cells, without a sink, which has no V row */
    double v_largest;              /* max V_ic over visible cells and all channels */
    double logit_max;              /* max s_i */
    double weight_sum;             /* Z = sum exp(s_i - logit_max), at least 1 unless nothing is visible */
    double v_mix; /* factor on mass and v_max at worst strength: sqrt(block) of V's transform; 1 without one */
    bool equal;   /* sums over cells have equal terms */
    double step;  /* sums.step for which steps, steps2 and lost of the terms are made; 0: they are not made */
} kvb_bound_row;

typedef enum kvb_bound_strength { KVB_BOUND_STATISTICAL, KVB_BOUND_WORST } kvb_bound_strength;

/* Unit roundoff of an element type, to nearest: 2^-24 f32, 2^-11 f16, 2^-8 bf16. 0: the type does not round. */
double kvb_unit_roundoff(kvb_elem elem);
double kvb_smallest_subnormal(kvb_elem elem); /* 0: the type does not round */

#define KVB_LAMBDA                                                                                                     \
    7.0 /* of statistical bounds: an honest sum exceeds its bound with probability below 2 exp(-lambda^2 / 2) = 5e-11 */

/* The declaration's part in the bound, computed once for all channels of a row. */
typedef struct kvb_bound_factors {
    double a, q, s, flat; /* D_i + eta = a A_i + q Q_i + s S_i + flat */
    double d_max;         /* largest D_i + eta */
    double d_mean;        /* sum p_i (D_i + eta) */
    double growth;        /* G */
    double raised;        /* exp(d_max + d_mean): largest factor by which a weight is too large */
    double steps_max;     /* R is at most this */
    double steps_factor;  /* R is at most this times the terms' steps and lost; 0: the terms have none */
    bool steps_worst;     /* that holds with the worst sum only */
    double gamma;         /* of the sums over cells */
    double u, u_p, u_out;
    double omega_v;     /* part of omega that is relative to max V_ic */
    double omega;       /* the rest of omega */
    double lse_dropped; /* n exp_floor / Z */
    double log_z;
    double v_mix; /* factor on mass and max V_ic */
} kvb_bound_factors;

void kvb_bound_prepare(const kvb_arithmetic *a, kvb_bound_strength strength, const kvb_bound_row *row, double scale,
                       double softcap, kvb_elem out_elem, kvb_bound_factors *factors);
double kvb_bound_channel(const kvb_bound_factors *factors, const kvb_bound_term *term);
double kvb_bound_log(const kvb_bound_factors *factors, double lse);

/* Bound on |computed - exact|, both steps in one call: of one output channel, of the log-sum-exp. */
double kvb_bound_output(const kvb_arithmetic *a, kvb_bound_strength strength, const kvb_bound_row *row,
                        const kvb_bound_term *term, double scale, double softcap, kvb_elem out_elem);
double kvb_bound_lse(const kvb_arithmetic *a, kvb_bound_strength strength, const kvb_bound_row *row, double lse,
                     double scale, double softcap);

#endif
