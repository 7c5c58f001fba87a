/* SPDX-License-Identifier: Apache-2.0 */
/* Powers of two and tanh, a vector at a time. */
#ifndef KVB_VECTOR_EXP2_H
#define KVB_VECTOR_EXP2_H

#include "kernels/vector/vec.h"

#define EXP2_LEAST (-126.0f) /* below, results would be denormal: they are 0 */

/*
 * 2^x for x <= 127; NaN for NaN. x is a whole number and a fraction of at most a half, whose power is the polynomial of
 * degree 6 that errs least relatively there (Remez exchange: 2^-29.0; the rest is the rounding of Horner's rule).
 */
VEC_INLINE vf vf_exp2(vf x)
{
    vf whole = vf_round(x), f = x - whole; /* NaN of -infinity, which is dropped in the end */
    vf p = vf_set(0x1.41d334p-13f);
    p = vf_fma(p, f, vf_set(0x1.5f456ap-10f));
    p = vf_fma(p, f, vf_set(0x1.3b2dbcp-7f));
    p = vf_fma(p, f, vf_set(0x1.c6aed4p-5f));
    p = vf_fma(p, f, vf_set(0x1.ebfbdap-3f));
    p = vf_fma(p, f, vf_set(0x1.62e43p-1f));
    p = vf_fma(p, f, vf_set(1));
    return vf_drop_below(vf_scale2(p, whole), x, EXP2_LEAST);
}

/* (e - 1) / (e + 1) with e = exp(2x). Near 0 the error is small against 1, not against x. */
VEC_INLINE vf vf_tanh(vf x)
{
    vf e = vf_exp2(vf_min(vf_set(126), x * vf_set(0x1.715476p+1f))); /* 2 log2(e) */
    return (e - vf_set(1)) / (e + vf_set(1));
}

#endif
