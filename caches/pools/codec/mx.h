/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules MXFP4 and NVFP4: elements e2m1 (0 0.5 1 1.5 2 3 4 6), two a byte, in groups of channels with a small scale.
 * MXFP4: 32 channels, a power of two: OCP Microscaling Formats (MX) Specification v1.0, section 6.3.
 * NVFP4: 16 channels, an e4m3 scale, and one f32 for the whole tensor (here the head scale): NVIDIA, "Introducing
 * NVFP4 for efficient and accurate low-precision inference", 2025; amax / (6 * 448) as in its Transformer Engine.
 * To nearest even, saturating at 6; the sign of a zero is kept; a NaN counts as 0 and infinity as FLT_MAX.
 */
#ifndef KVB_CODEC_MX_H
#define KVB_CODEC_MX_H

#include "caches/pools/codec/fp8.h"

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

/* Loops over a group go to a count that is read from the format: one that the compiler knows it unrolls, and then finds
 * no vectors in it. */
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

static inline void mxfp4_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim,
                                float head_scale, void *codes, void *scales, void *zeros)
{
    uint8_t *to = codes, *scale = scales;
    uint32_t group = format->group;
    float y[MX_SPAN];
    (void)held, (void)head_scale, (void)zeros;
    for (uint32_t first = 0; first < dim; first += MX_SPAN) {
        uint32_t n = dim - first < MX_SPAN ? dim - first : MX_SPAN;
        for (uint32_t i = 0; i < n; i += group) {
            const float *x = row + first + i;
            uint32_t exponent = bits_of(largest_of(x, group, LIMIT_FLT_MAX)) >> 23;
            uint32_t code = exponent > 2 ? exponent - 2 : 0; /* 6 = 1.5 * 2^2 is the largest e2m1 */
            float factor = float_of((254 - code) << 23);
            *scale++ = (uint8_t)code;
            for (uint32_t j = 0; j < group; j++)
                y[i + j] = finite_of(x[j]) * factor;
        }
        e2m1_codes(y, n, to + first / 2);
    }
}

static inline void mxfp4_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                                uint32_t dim, float head_scale, float *row)
{
    const uint8_t *scale = scales;
    uint32_t group = format->group;
    (void)head_scale, (void)zeros;
    e2m1_values(codes, dim, row);
    for (float *end = row + dim; row < end; row += group) {
        float factor = e8m0_value(*scale++);
        for (uint32_t j = 0; j < group; j++)
            row[j] *= factor;
    }
}

static inline void nvfp4_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim,
                                float head_scale, void *codes, void *scales, void *zeros)
{
    uint8_t *to = codes, *scale = scales;
    uint32_t group = format->group;
    float y[MX_SPAN];
    (void)held, (void)zeros;
    for (uint32_t first = 0; first < dim; first += MX_SPAN) {
        uint32_t n = dim - first < MX_SPAN ? dim - first : MX_SPAN;
        for (uint32_t i = 0; i < n; i += group) {
            const float *x = row + first + i;
            uint32_t code = e4m3_of(bits_of(largest_of(x, group, LIMIT_FLT_MAX) / 6.0f / head_scale));
            float divisor = divisor_of(e4m3_value(code) * head_scale);
            *scale++ = (uint8_t)code;
            for (uint32_t j = 0; j < group; j++)
                y[i + j] = finite_of(x[j]) / divisor;
        }
        e2m1_codes(y, n, to + first / 2);
    }
}

static inline void nvfp4_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                                uint32_t dim, float head_scale, float *row)
{
    const uint8_t *scale = scales;
    uint32_t group = format->group;
    (void)zeros;
    e2m1_values(codes, dim, row);
    for (float *end = row + dim; row < end; row += group) {
        float factor = e4m3_value(*scale++);
        for (uint32_t j = 0; j < group; j++)
            row[j] = row[j] * factor * head_scale; /* the first product is exact */
    }
}

#endif
