/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of floats: f32, f16, bf16; FP8; MXFP4 and NVFP4. */
#ifndef KVB_CODEC_FLOATS_H
#define KVB_CODEC_FLOATS_H

#include <math.h>
#include <string.h>

#include "caches/pools/codec/codec.h"

/*
 * Rules f32, f16, bf16. Rounded to nearest even; overflow becomes infinity; subnormals are kept; a NaN stays a
 * NaN, made quiet, with the upper bits of its payload (IEEE 754; what F16C's vcvtps2ph does).
 */

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

/* condition ? a : b without a branch, so that loops are vectorised. */
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

static inline void f32_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    memcpy(c->codes, row, dim * sizeof *row);
}

static inline void f32_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    memcpy(row, c->codes, dim * sizeof *row);
}

static inline void f16_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    uint16_t *to = c->codes;
    for (uint32_t i = 0; i < dim; i++)
        to[i] = f16_of(row[i]);
}

static inline void f16_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    const uint16_t *from = c->codes;
    for (uint32_t i = 0; i < dim; i++)
        row[i] = f16_value(from[i]);
}

static inline void bf16_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    uint16_t *to = c->codes;
    for (uint32_t i = 0; i < dim; i++) {
        uint32_t b = bits_of(row[i]), rounded = (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
        /* a NaN: rounding could carry it into infinity */
        to[i] = (uint16_t)pick((b & 0x7fffffffu) > 0x7f800000u, b >> 16 | 0x40u, rounded);
    }
}

static inline void bf16_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    const uint16_t *from = c->codes;
    for (uint32_t i = 0; i < dim; i++)
        row[i] = float_of((uint32_t)from[i] << 16);
}

/*
 * For the rules of integers and small floats: limits, the largest element of a row, and rounding. Magnitudes
 * are compared as integers, which have the same order as the floats: so the largest does not depend on the order of
 * comparisons, and loops are vectorised.
 */

#define LIMIT_FLT_MAX 0x7f7fffffu /* bits of FLT_MAX, 2^126, 65504 */
#define LIMIT_2P126   0x7e800000u
#define LIMIT_F16_MAX 0x477fe000u

/* The bits of x; +0 for a NaN, the limit (given as bits) for a larger magnitude. */
static inline uint32_t bits_within(float x, uint32_t limit)
{
    uint32_t b = bits_of(x), a = b & 0x7fffffffu;
    return pick(a > 0x7f800000u, 0, (b & 0x80000000u) | (a < limit ? a : limit));
}

/* Largest magnitude of n elements without NaNs, at most the limit. */
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

/* The divisor for a scale. For scale 0 infinity: a finite x divided by it is x * 0. */
static inline float divisor_of(float scale)
{
    return scale > 0 ? scale : INFINITY;
}

/* rint(x) for |x| < 2^22: the ulp of 1.5 * 2^23 is 1. */
static inline int32_t whole(float x)
{
    return (int32_t)(bits_of(x + 0x1.8p23f) - 0x4b400000u);
}

/*
 * Rule FP8: elements e4m3 and e5m2 of the OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023; alone,
 * with a fixed head scale, or with an f32 scale for each row. Rounded to nearest even; subnormals are kept; overflow
 * and infinities saturate; a NaN becomes 0x7f with its sign. The rules below also use the conversions for small floats.
 */

/* The power of two at which f32 numbers are as far apart as the type's subnormals: adding it to a smaller number rounds
 * that to a subnormal of the type. */
static inline uint32_t carrier_bits(int mantissa, int bias)
{
    return (uint32_t)(127 + 24 - mantissa - bias) << 23;
}

/* Code of a magnitude, given as the bits of an f32, at most `largest`. */
static inline uint32_t minifloat_of(uint32_t a, int mantissa, int bias, uint32_t largest)
{
    int shift = 23 - mantissa;
    uint32_t carrier = carrier_bits(mantissa, bias), half = 1u << (shift - 1);
    uint32_t small = bits_of(float_of(a) + float_of(carrier)) - carrier;
    uint32_t normal = (a + (half - 1) + (a >> shift & 1u) - ((uint32_t)(127 - bias) << 23)) >> shift;
    uint32_t code = pick(a < (uint32_t)(128 - bias) << 23, small, normal);
    return code < largest ? code : largest;
}

/* The magnitude of a finite code, as the bits of an f32. */
static inline uint32_t minifloat_bits(uint32_t code, int mantissa, int bias)
{
    uint32_t carrier = carrier_bits(mantissa, bias);
    uint32_t small = bits_of(float_of(carrier + code) - float_of(carrier));
    uint32_t normal = (code << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);
    return pick(code < 1u << mantissa, small, normal);
}

static inline uint32_t e4m3_of(uint32_t magnitude)
{
    return minifloat_of(magnitude, 3, 7, 0x7e); /* 448 */
}

static inline uint32_t e5m2_of(uint32_t magnitude)
{
    return minifloat_of(magnitude, 2, 15, 0x7b); /* 57344 */
}

static inline float e4m3_value(uint32_t code)
{
    uint32_t a = code & 0x7fu;
    return float_of((code & 0x80u) << 24 | pick(a == 0x7f, 0x7fc00000u, minifloat_bits(a, 3, 7)));
}

static inline float e5m2_value(uint32_t code)
{
    uint32_t a = code & 0x7fu, special = 0x7f800000u | (a & 3u) << 21; /* infinity, NaN */
    return float_of((code & 0x80u) << 24 | pick(a >= 0x7c, special, minifloat_bits(a, 2, 15)));
}

static inline void fp8_codes(bool wide, const float *restrict row, uint32_t dim, float divisor, uint8_t *restrict to)
{
    for (uint32_t i = 0; i < dim; i++) {
        uint32_t b = bits_of(row[i]), a = bits_of(row[i] / divisor) & 0x7fffffffu;
        uint32_t code = pick((b & 0x7fffffffu) > 0x7f800000u, 0x7f, wide ? e5m2_of(a) : e4m3_of(a));
        to[i] = (uint8_t)(b >> 24 & 0x80u) | (uint8_t)code;
    }
}

static inline void fp8_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    bool wide = c->format->elem == KVB_E5M2;
    float divisor = c->head_scale;
    if (c->format->group) {
        float scale = largest_of(row, dim, LIMIT_FLT_MAX) / (wide ? 57344.0f : 448.0f);
        memcpy(c->scales, &scale, sizeof scale);
        divisor = divisor_of(scale);
    }
    /* each case has a loop of its own */
    if (divisor == 1.0f)
        wide ? fp8_codes(true, row, dim, 1.0f, c->codes) : fp8_codes(false, row, dim, 1.0f, c->codes);
    else
        wide ? fp8_codes(true, row, dim, divisor, c->codes) : fp8_codes(false, row, dim, divisor, c->codes);
}

static inline void fp8_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    const uint8_t *restrict from = c->codes;
    float *restrict to = row;
    float scale = c->head_scale; /* no format has both */
    if (c->format->group)
        memcpy(&scale, c->scales, sizeof scale);
    if (c->format->elem == KVB_E5M2)
        for (uint32_t i = 0; i < dim; i++)
            to[i] = e5m2_value(from[i]) * scale;
    else
        for (uint32_t i = 0; i < dim; i++)
            to[i] = e4m3_value(from[i]) * scale;
}

/*
 * Rule FP4, formats mxfp4 and nvfp4: elements e2m1 (0 0.5 1 1.5 2 3 4 6), two a byte, in groups of channels with a
 * small scale.
 * MXFP4: 32 channels, a power of two: OCP Microscaling Formats (MX) Specification v1.0, section 6.3.
 * NVFP4: 16 channels, an e4m3 scale, and one f32 for the whole tensor (here the head scale): NVIDIA, "Introducing
 * NVFP4 for efficient and accurate low-precision inference", 2025; amax / (6 * 448) as in its Transformer Engine.
 * To nearest even, saturating at 6; the sign of a zero is kept; a NaN counts as 0 and infinity as FLT_MAX.
 */

static inline float finite_of(float x)
{
    return float_of(bits_within(x, LIMIT_FLT_MAX));
}

static inline uint32_t e2m1_of(float x)
{
    uint32_t b = bits_of(x);
    return (b >> 28 & 8u) | minifloat_of(b & 0x7fffffffu, 1, 1, 7);
}

static inline float e2m1_value(uint32_t code)
{
    return float_of((code & 8u) << 28 | minifloat_bits(code & 7u, 1, 1));
}

/* 2^(code - 127): the least is a subnormal; 255 is NaN. */
static inline float e8m0_value(uint32_t code)
{
    return float_of(code << 23 | pick(code == 0 || code == 255, 0x400000u, 0));
}

/* Loops over a group take their count from the format: compilers unroll a constant count and do not vectorise. */
enum { MX_SPAN = 256 }; /* channels worked on at a time */

static inline void e2m1_codes(const float *restrict y, uint32_t n, uint8_t *restrict to)
{
    for (uint32_t j = 0; j < n / 2; j++)
        to[j] = (uint8_t)(e2m1_of(y[2 * j]) | e2m1_of(y[2 * j + 1]) << 4);
}

static inline void e2m1_values(const uint8_t *restrict from, uint32_t n, float *restrict y)
{
    for (uint32_t j = 0; j < n / 2; j++) {
        y[2 * j] = e2m1_value(from[j]);
        y[2 * j + 1] = e2m1_value(from[j] >> 4);
    }
}

static inline void fp4_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    uint8_t *to = c->codes, *scale = c->scales;
    uint32_t group = c->format->group;
    float y[MX_SPAN];
    for (uint32_t first = 0; first < dim; first += MX_SPAN) {
        uint32_t n = dim - first < MX_SPAN ? dim - first : MX_SPAN;
        for (uint32_t i = 0; i < n; i += group) {
            const float *x = row + first + i;
            float largest = largest_of(x, group, LIMIT_FLT_MAX);
            if (c->format->scale_elem == KVB_E4M3) {
                uint32_t code = e4m3_of(bits_of(largest / 6.0f / c->head_scale));
                float divisor = divisor_of(e4m3_value(code) * c->head_scale);
                *scale++ = (uint8_t)code;
                for (uint32_t j = 0; j < group; j++)
                    y[i + j] = finite_of(x[j]) / divisor;
            } else {
                uint32_t exponent = bits_of(largest) >> 23;
                uint32_t code = exponent > 2 ? exponent - 2 : 0; /* 6 = 1.5 * 2^2 is the largest e2m1 */
                float factor = float_of((254 - code) << 23);
                *scale++ = (uint8_t)code;
                for (uint32_t j = 0; j < group; j++)
                    y[i + j] = finite_of(x[j]) * factor;
            }
        }
        e2m1_codes(y, n, to + first / 2);
    }
}

static inline void fp4_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    const uint8_t *scale = c->scales;
    const uint32_t group = c->format->group;
    const float head_scale = c->head_scale;
    e2m1_values(c->codes, dim, row);
    for (float *end = row + dim; row < end; row += group)
        if (c->format->scale_elem == KVB_E4M3) {
            float factor = e4m3_value(*scale++);
            for (uint32_t j = 0; j < group; j++)
                row[j] = row[j] * factor * head_scale; /* the first product is exact */
        } else {
            float factor = e8m0_value(*scale++);
            for (uint32_t j = 0; j < group; j++)
                row[j] *= factor;
        }
}

#endif
