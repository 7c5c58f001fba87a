/* SPDX-License-Identifier: Apache-2.0 */
/* What both bounds of recurrences are made of: oracle/recurrence.h has the formulas. */
#ifndef KVB_RECURRENCE_PARTS_H
#define KVB_RECURRENCE_PARTS_H

#include <math.h>

#include "kernels/scan.h"
#include "oracle/bound.h"
#include "oracle/recurrence.h"

#define U          0x1p-24
#define TINY       0x1p-149
#define SILU_SLOPE 1.0998 /* largest |derivative| of z / (1 + exp(-z)): 1.09984, at z = 2.3994 */

static inline double gamma_worst(double chain)
{
    return chain * U / (1 - chain * U);
}

/* r: what is off by a share of itself, whichever way sums are taken. */
static inline double relative_of(const kvb_scan_arithmetic *a)
{
    const double u_o = a->operands == KVB_F32 ? 0 : kvb_unit_roundoff(a->operands);
    return a->exp_error + 2 * u_o + u_o * u_o;
}

/* How little an element of magnitude 1 changes that rounds the same way again and again: u^(2/3) / 4. */
static inline double slow_of(kvb_elem elem)
{
    return elem == KVB_F32 ? 0x1p-18 : cbrt(kvb_unit_roundoff(elem) * kvb_unit_roundoff(elem)) / 4;
}

/* Out is rounded to its type. */
static inline void want_round(kvb_elem elem, kvb_recurrence_want *w)
{
    const double u = elem == KVB_F32 ? 0 : kvb_unit_roundoff(elem), tiny = kvb_smallest_subnormal(elem);
    w->bound += u * (fabs(w->value) + w->bound) + tiny;
    w->worst += u * (fabs(w->value) + w->worst) + tiny;
}

/* Behind act(): z is at most `size`. */
static inline void want_silu(const kvb_scan_arithmetic *a, double size, kvb_recurrence_want *w)
{
    const double own = a->exp_error + 2 * U, more = a->exp_floor * size + own * fabs(w->value);
    w->bound = SILU_SLOPE * (1 + own) * w->bound + more;
    w->worst = SILU_SLOPE * (1 + own) * w->worst + more;
}

#endif
