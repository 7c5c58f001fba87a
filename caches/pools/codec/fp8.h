/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule FP8: elements e4m3 and e5m2 of the OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023; alone,
 * with a fixed head scale, or with one f32 scale a row. And the conversions for any float this small: mx.h uses them
 * too. Rounded to nearest even; subnormals are kept; overflow and infinities saturate; a NaN becomes 0x7f with its
 * sign.
 */
#ifndef KVB_CODEC_FP8_H
#define KVB_CODEC_FP8_H

#include "caches/pools/codec/bounds.h"

/* 2^k whose f32 ulp is the subnormal 2^(1 - bias - mantissa): what is added to it is rounded to subnormals. */
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

static inline void fp8_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim, float head_scale,
                              void *codes, void *scales, void *zeros)
{
    bool wide = format->elem == KVB_E5M2;
    float divisor = head_scale;
    (void)held, (void)zeros;
    if (format->group) {
        float scale = largest_of(row, dim, LIMIT_FLT_MAX) / (wide ? 57344.0f : 448.0f);
        memcpy(scales, &scale, sizeof scale);
        divisor = divisor_of(scale);
    }
    /* every case a loop of its own, without what it does not need */
    if (divisor == 1.0f)
        wide ? fp8_codes(true, row, dim, 1.0f, codes) : fp8_codes(false, row, dim, 1.0f, codes);
    else
        wide ? fp8_codes(true, row, dim, divisor, codes) : fp8_codes(false, row, dim, divisor, codes);
}

static inline void fp8_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                              uint32_t dim, float head_scale, float *row)
{
    const uint8_t *restrict from = codes;
    float *restrict to = row;
    float scale = head_scale; /* no format has both */
    (void)zeros;
    if (format->group)
        memcpy(&scale, scales, sizeof scale);
    if (format->elem == KVB_E5M2)
        for (uint32_t i = 0; i < dim; i++)
            to[i] = e5m2_value(from[i]) * scale;
    else
        for (uint32_t i = 0; i < dim; i++)
            to[i] = e4m3_value(from[i]) * scale;
}

#endif
