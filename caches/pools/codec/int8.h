/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules INT8 and UINT8: 8-bit integers, one f32 scale a row.
 * INT8 is symmetric: scale = amax / 127, code = x / scale in -127 .. 127.
 * UINT8 spans least to largest: scale = (hi - lo) / 255, zero = lo, code = (x - lo) / scale in 0 .. 255.
 * To nearest even. Elements are kept within 2^126, so that hi - lo is finite. A row without extent has scale 0.
 */
#ifndef KVB_CODEC_INT8_H
#define KVB_CODEC_INT8_H

#include "caches/pools/codec/bounds.h"

static inline void int8_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim,
                               float head_scale, void *codes, void *scales, void *zeros)
{
    const float *restrict from = row;
    int8_t *restrict to = codes;
    float scale = largest_of(row, dim, LIMIT_2P126) / 127.0f, divisor = divisor_of(scale);
    (void)format, (void)held, (void)head_scale, (void)zeros;
    memcpy(scales, &scale, sizeof scale);
    for (uint32_t i = 0; i < dim; i++) {
        int32_t code = whole(float_of(bits_within(from[i], LIMIT_2P126)) / divisor);
        code = code < 127 ? code : 127; /* a subnormal scale may be far too small */
        to[i] = (int8_t)(code > -127 ? code : -127);
    }
}

static inline void int8_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                               uint32_t dim, float head_scale, float *row)
{
    const int8_t *restrict from = codes;
    float *restrict to = row;
    float scale;
    (void)format, (void)head_scale, (void)zeros;
    memcpy(&scale, scales, sizeof scale);
    for (uint32_t i = 0; i < dim; i++)
        to[i] = (float)from[i] * scale;
}

/* Floats as integers of the same order, -0 below +0; and back. */
static inline int32_t ordered(uint32_t b)
{
    return (int32_t)(b ^ ((0u - (b >> 31)) & 0x7fffffffu));
}

static inline void uint8_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim,
                                float head_scale, void *codes, void *scales, void *zeros)
{
    const float *restrict from = row;
    uint8_t *restrict to = codes;
    int32_t least = INT32_MAX, most = INT32_MIN;
    (void)format, (void)held, (void)head_scale;
    for (uint32_t i = 0; i < dim; i++) {
        int32_t x = ordered(bits_within(from[i], LIMIT_2P126));
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    float lo = float_of((uint32_t)ordered((uint32_t)least)), hi = float_of((uint32_t)ordered((uint32_t)most));
    float scale = (hi - lo) / 255.0f, divisor = divisor_of(scale);
    memcpy(scales, &scale, sizeof scale);
    memcpy(zeros, &lo, sizeof lo);
    for (uint32_t i = 0; i < dim; i++) {
        int32_t code = whole((float_of(bits_within(from[i], LIMIT_2P126)) - lo) / divisor);
        to[i] = (uint8_t)(code < 255 ? code : 255); /* never below 0: no x is below lo */
    }
}

static inline void uint8_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                                uint32_t dim, float head_scale, float *row)
{
    const uint8_t *restrict from = codes;
    float *restrict to = row;
    float scale, zero;
    (void)format, (void)head_scale;
    memcpy(&scale, scales, sizeof scale);
    memcpy(&zero, zeros, sizeof zero);
    for (uint32_t i = 0; i < dim; i++)
        to[i] = (float)from[i] * scale + zero;
}

#endif
