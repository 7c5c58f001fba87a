/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rules with a least and a largest element share: elements made finite, floats compared as integers (so
 * that a reduction is a vector one and gives the same answer in any order), levels, and codes packed into bytes.
 */
#ifndef KVB_CODEC_RANGE_H
#define KVB_CODEC_RANGE_H

#include "caches/pools/codec/bounds.h"

enum { SPAN = 128 }; /* channels worked on at a time: the largest group */

/* x with NaN taken as 0 and magnitudes above what f16 holds, infinities too, as the largest of it. */
static inline float tamed(float x)
{
    return float_of(bits_within(x, LIMIT_F16_MAX));
}

/* Floats as integers of the same order, -0 below +0; and back. */
static inline int32_t order_of(float x)
{
    uint32_t b = bits_of(x);
    return (int32_t)(b ^ (0u - (b >> 31)) >> 1);
}

static inline float float_in_order(int32_t order)
{
    uint32_t b = (uint32_t)order;
    return float_of(b ^ (0u - (b >> 31)) >> 1);
}

/* The least and the largest of n elements; n at least 1. */
static inline void range_of(const float *x, uint32_t n, float *lo, float *hi)
{
    int32_t least = INT32_MAX, largest = INT32_MIN;
    for (uint32_t i = 0; i < n; i++) {
        int32_t order = order_of(x[i]);
        least = order < least ? order : least;
        largest = order > largest ? order : largest;
    }
    *lo = float_in_order(least);
    *hi = float_in_order(largest);
}

/* rint(y) clamped to 0 .. most, most below 2^8: 1.5 2^23 has no bits below 1, so adding it rounds to nearest even. */
static inline uint8_t level_of(float y, float most)
{
    y = y > 0 ? y : 0;
    y = y < most ? y : most;
    return (uint8_t)bits_of(y + 12582912.0f);
}

static inline uint32_t level_bits(const kvb_format *f)
{
    return f->elem == KVB_UINT8 ? 8 : f->elem == KVB_UINT4 ? 4 : 2;
}

/* n codes, one a byte, into n * bits bits, low bits first. Reads (and takes as 0 what pads) up to a multiple of 4. */
static inline void codes_pack(uint8_t *restrict to, const uint8_t *restrict code, uint32_t n, uint32_t bits)
{
    if (bits == 8)
        memcpy(to, code, n);
    else if (bits == 4)
        for (uint32_t i = 0; i < (n + 1) / 2; i++)
            to[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    else
        for (uint32_t i = 0; i < (n + 3) / 4; i++)
            to[i] = (uint8_t)(code[4 * i] | code[4 * i + 1] << 2 | code[4 * i + 2] << 4 | code[4 * i + 3] << 6);
}

/* And back. Writes up to a multiple of 4 codes. */
static inline void codes_unpack(uint8_t *restrict code, const uint8_t *restrict from, uint32_t n, uint32_t bits)
{
    if (bits == 8)
        memcpy(code, from, n);
    else if (bits == 4)
        for (uint32_t i = 0; i < (n + 1) / 2; i++) {
            code[2 * i] = from[i] & 15;
            code[2 * i + 1] = from[i] >> 4;
        }
    else
        for (uint32_t i = 0; i < (n + 3) / 4; i++) {
            code[4 * i] = from[i] & 3;
            code[4 * i + 1] = from[i] >> 2 & 3;
            code[4 * i + 2] = from[i] >> 4 & 3;
            code[4 * i + 3] = from[i] >> 6;
        }
}

#endif
