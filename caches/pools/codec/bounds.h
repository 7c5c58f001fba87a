/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rules of integers and small floats share: elements kept within limits, the largest of a row, rounding and
 * packing. Magnitudes are compared as integers, which order as the floats do: so a largest is the same in
 * whatever order it is looked for, and the loops are vector ones.
 */
#ifndef KVB_CODEC_BOUNDS_H
#define KVB_CODEC_BOUNDS_H

#include "caches/pools/codec/floats.h"

#include <math.h>

#define LIMIT_FLT_MAX 0x7f7fffffu /* bits of FLT_MAX, 2^126, 65504 */
#define LIMIT_2P126   0x7e800000u
#define LIMIT_F16_MAX 0x477fe000u

/* The bits of x, a NaN taken as +0 and a magnitude above the limit (its bits) as the limit. */
static inline uint32_t bits_within(float x, uint32_t limit)
{
    uint32_t b = bits_of(x), a = b & 0x7fffffffu;
    return pick(a > 0x7f800000u, 0, (b & 0x80000000u) | (a < limit ? a : limit));
}

/* Largest magnitude of n elements, NaN left out, at most the limit. */
static inline float largest_of(const float *x, uint32_t n, uint32_t limit)
{
    int32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t a = (int32_t)(bits_of(x[i]) & 0x7fffffffu);
        a = a > 0x7f800000 ? 0 : a;
        most = a > most ? a : most;
    }
    return float_of((uint32_t)most < limit ? (uint32_t)most : limit);
}

/* What to divide by: dividing a finite x by infinity is the x * 0 that a row without a scale asks for. */
static inline float divisor_of(float scale)
{
    return scale > 0 ? scale : INFINITY;
}

/* rint(x) for |x| < 2^22: ulps of 1.5 * 2^23 are ones. */
static inline int32_t whole(float x)
{
    return (int32_t)(bits_of(x + 0x1.8p23f) - 0x4b400000u);
}

/* n codes, an even number, into nibbles: the first in the low one. */
static inline void nibbles_pack(const uint8_t *code, uint32_t n, uint8_t *to)
{
    for (uint32_t j = 0; j < n / 2; j++)
        to[j] = (uint8_t)(code[2 * j] | code[2 * j + 1] << 4);
}

static inline void nibbles_unpack(const uint8_t *from, uint32_t n, uint8_t *code)
{
    for (uint32_t j = 0; j < n / 2; j++) {
        code[2 * j] = from[j] & 15u;
        code[2 * j + 1] = from[j] >> 4;
    }
}

#endif
