/* SPDX-License-Identifier: Apache-2.0 */
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
#ifndef KVB_GLANCE_H
#define KVB_GLANCE_H

#include "oracle/recurrence.h"

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

/* As kvb_recurrence_step() and kvb_recurrence_rest(). want [p->d_v]; NULL: nobody asks. */
void kvb_glance_step(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, const kvb_glance_row *row,
                     kvb_recurrence_want *want);
void kvb_glance_rest(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, bool stored);

#endif
