/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules f32, f16, bf16. Rounded to nearest even; overflow becomes infinity; subnormals are kept; a NaN stays a
 * NaN, made quiet, with the upper bits of its payload (IEEE 754; what F16C's vcvtps2ph does).
 */
#ifndef KVB_CODEC_FLOATS_H
#define KVB_CODEC_FLOATS_H

#include "caches/pools/codec/codec.h"

#include <string.h>

static inline uint32_t bits_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static inline float float_of(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* a where the condition holds, else b; without a branch, so that a loop of them is a vector one. */
static inline uint32_t pick(bool condition, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

static inline uint16_t f16_of(float x)
{
    uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
    uint32_t nan = 0x7e00u | (a >> 13 & 0x3ffu);
    uint32_t small = bits_of(float_of(a) + 0.5f) - bits_of(0.5f); /* an ulp of 0.5f is the f16 subnormal 2^-24 */
    uint32_t normal = (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
    uint32_t code = pick(a < 0x38800000u, small, normal); /* below 2^-14 */
    code = pick(a >= 0x477ff000u, 0x7c00u, code);         /* 65520 and above */
    return (uint16_t)(sign | pick(a > 0x7f800000u, nan, code));
}

static inline float f16_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7fffu;
    uint32_t finite = bits_of(float_of(a << 13) * 0x1p112f); /* the exponent bias corrected by an exact product */
    uint32_t special = 0x7f800000u | a << 13 | pick(a > 0x7c00u, 0x400000u, 0);
    return float_of(sign | pick(a >= 0x7c00u, special, finite));
}

static inline void f32_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim, float head_scale,
                              void *codes, void *scales, void *zeros)
{
    (void)format, (void)held, (void)head_scale, (void)scales, (void)zeros;
    memcpy(codes, row, dim * sizeof *row);
}

static inline void f32_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                              uint32_t dim, float head_scale, float *row)
{
    (void)format, (void)head_scale, (void)scales, (void)zeros;
    memcpy(row, codes, dim * sizeof *row);
}

static inline void f16_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim, float head_scale,
                              void *codes, void *scales, void *zeros)
{
    uint16_t *to = codes;
    (void)format, (void)held, (void)head_scale, (void)scales, (void)zeros;
    for (uint32_t i = 0; i < dim; i++)
        to[i] = f16_of(row[i]);
}

static inline void f16_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                              uint32_t dim, float head_scale, float *row)
{
    const uint16_t *from = codes;
    (void)format, (void)head_scale, (void)scales, (void)zeros;
    for (uint32_t i = 0; i < dim; i++)
        row[i] = f16_value(from[i]);
}

static inline void bf16_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim,
                               float head_scale, void *codes, void *scales, void *zeros)
{
    uint16_t *to = codes;
    (void)format, (void)held, (void)head_scale, (void)scales, (void)zeros;
    for (uint32_t i = 0; i < dim; i++) {
        uint32_t b = bits_of(row[i]), rounded = (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
        /* a NaN: rounding could carry it into infinity */
        to[i] = (uint16_t)pick((b & 0x7fffffffu) > 0x7f800000u, b >> 16 | 0x40u, rounded);
    }
}

static inline void bf16_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                               uint32_t dim, float head_scale, float *row)
{
    const uint16_t *from = codes;
    (void)format, (void)head_scale, (void)scales, (void)zeros;
    for (uint32_t i = 0; i < dim; i++)
        row[i] = float_of((uint32_t)from[i] << 16);
}

#endif
