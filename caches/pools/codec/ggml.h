/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule GGML: blocks of 32 channels with their scales inside. github.com/ggml-org/ggml, src/ggml-quants.c: functions
 * quantize_row_{q8_0,q5_1,q5_0,q4_1,q4_0,iq4_nl}_ref; structs in ggml-common.h. The same bytes for every row that they
 * define: where 1/d overflows it is taken as 0, elements beyond f16 as its largest, NaN as 0.
 */
#ifndef KVB_CODEC_GGML_H
#define KVB_CODEC_GGML_H

#include "caches/pools/codec/range.h"

enum { BLOCK = 32, HALF = 16 };

#define IQ4_NL_VALUES(X)                                                                                               \
    X(-127) X(-104) X(-83) X(-65) X(-49) X(-35) X(-22) X(-10) X(1) X(13) X(25) X(38) X(53) X(69) X(89) X(113)
#define IQ4_NL_ONE(V) V,
static const float iq4_nl_values[16] = {IQ4_NL_VALUES(IQ4_NL_ONE)};

static inline uint8_t *f16_put(uint8_t *to, float x)
{
    uint16_t h = f16_of(x);
    memcpy(to, &h, sizeof h);
    return to + sizeof h;
}

static inline float f16_get(const uint8_t *from)
{
    uint16_t h;
    memcpy(&h, from, sizeof h);
    return f16_value(h);
}

static inline float inverse_of(float d)
{
    float id = 1.0f / (d != 0 ? d : 1.0f);
    return d != 0 && (bits_of(id) & 0x7fffffffu) < 0x7f800000u ? id : 0;
}

/* The element of largest magnitude, the first such; +0 when all are 0. */
static inline float first_largest(const float x[BLOCK])
{
    int32_t most = 0, first = 2 * BLOCK;
    for (int32_t j = 0; j < BLOCK; j++) {
        int32_t a = (int32_t)(bits_of(x[j]) & 0x7fffffffu);
        most = a > most ? a : most;
    }
    for (int32_t j = 0; j < BLOCK; j++) { /* its place and sign in one number */
        uint32_t b = bits_of(x[j]);
        int32_t place = (int32_t)(b & 0x7fffffffu) == most ? 2 * j + (int32_t)(b >> 31) : 2 * BLOCK;
        first = place < first ? place : first;
    }
    return float_of((uint32_t)most | (most ? (uint32_t)(first & 1) << 31 : 0));
}

/* ggml finds ends with < and >, in order: of zeros the first one stays. Only a stored least can show that. */
static inline void ends_of(const float x[BLOCK], float *lo, float *hi)
{
    range_of(x, BLOCK, lo, hi);
    for (uint32_t j = 0; *lo == 0; j++)
        if (x[j] == 0) {
            *lo = x[j];
            break;
        }
}

/* Low nibbles: channel j below, channel j + 16 above. */
static inline uint8_t *nibbles_put(uint8_t *restrict to, const uint8_t q[BLOCK])
{
    for (uint32_t j = 0; j < HALF; j++)
        to[j] = (uint8_t)((q[j] & 15) | q[j + HALF] << 4);
    return to + HALF;
}

static inline uint8_t *fifths_put(uint8_t *to, const uint8_t q[BLOCK])
{
    uint32_t fifths = 0;
    for (uint32_t j = 0; j < BLOCK; j++)
        fifths |= (uint32_t)(q[j] >> 4 & 1) << j;
    for (uint32_t j = 0; j < 4; j++)
        to[j] = (uint8_t)(fifths >> 8 * j);
    return to + 4;
}

/* (x - from) * id + half, cut off, at most top: never below 0. */
static inline void levels_of(uint8_t q[BLOCK], const float x[BLOCK], float from, float id, float half, int32_t top)
{
    for (uint32_t j = 0; j < BLOCK; j++) {
        int32_t level = (int32_t)((x[j] - from) * id + half);
        q[j] = (uint8_t)(level < top ? level : top);
    }
}

static inline uint8_t *q8_0_put(uint8_t *restrict to, const float x[BLOCK])
{
    float largest = first_largest(x), d = float_of(bits_of(largest) & 0x7fffffffu) / 127.0f, id = inverse_of(d);
    to = f16_put(to, d);
    for (uint32_t j = 0; j < BLOCK; j++) { /* half away from zero: the magnitude's rest is exact */
        float y = x[j] * id, size = float_of(bits_of(y) & 0x7fffffffu);
        int32_t full = (int32_t)size, rest = size - (float)full >= 0.5f;
        to[j] = (uint8_t)(y < 0 ? -(full + rest) : full + rest);
    }
    return to + BLOCK;
}

/* q4_0 and q5_0: levels around 0, 2 * middle of them. */
static inline uint8_t *centred_put(uint8_t *to, const float x[BLOCK], int32_t middle)
{
    uint8_t q[BLOCK];
    float d = first_largest(x) / (float)-middle;
    levels_of(q, x, 0, inverse_of(d), (float)middle + 0.5f, 2 * middle - 1);
    to = f16_put(to, d);
    return nibbles_put(middle == 16 ? fifths_put(to, q) : to, q);
}

/* q4_1 and q5_1: levels 0 .. top from the least element on. */
static inline uint8_t *ranged_put(uint8_t *to, const float x[BLOCK], int32_t top)
{
    uint8_t q[BLOCK];
    float lo, hi;
    ends_of(x, &lo, &hi);
    float d = (hi - lo) / (float)top;
    levels_of(q, x, lo, inverse_of(d), 0.5f, top);
    to = f16_put(f16_put(to, d), lo);
    return nibbles_put(top == 31 ? fifths_put(to, q) : to, q);
}

/* Levels are chosen with the largest element on the first one; the scale stored is then that of least squares. */
static inline uint8_t *iq4_nl_put(uint8_t *to, const float x[BLOCK])
{
    uint8_t q[BLOCK];
    float wqx[BLOCK], wqq[BLOCK], sumqx = 0, sumq2 = 0, largest = first_largest(x);
    bool some = float_of(bits_of(largest) & 0x7fffffffu) >= 1e-15f;
    float id = some ? 1.0f / (largest / iq4_nl_values[0]) : 0;

    for (uint32_t j = 0; j < BLOCK; j++) {
        float y = id * x[j], w = x[j] * x[j];
        uint32_t level = 0;
        for (uint32_t l = 1; l < 16; l++) /* half-way goes up */
            level += y >= (iq4_nl_values[l - 1] + iq4_nl_values[l]) * 0.5f;
        float value = iq4_nl_values[level];
        q[j] = (uint8_t)(some ? level : 0);
        wqx[j] = w * value * x[j];
        wqq[j] = w * value * value;
    }
    for (uint32_t j = 0; j < BLOCK; j++) { /* in this order */
        sumqx += wqx[j];
        sumq2 += wqq[j];
    }
    float d = sumqx / (some && sumq2 > 0 ? sumq2 : 1.0f);
    to = f16_put(to, some && sumq2 > 0 && (bits_of(d) & 0x7fffffffu) < 0x7f800000u ? d : 0);
    return nibbles_put(to, q);
}

static inline void ggml_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim,
                               float head_scale, void *codes, void *scales, void *zeros)
{
    uint8_t *to = codes;

    (void)held, (void)head_scale, (void)scales, (void)zeros;
    for (uint32_t left = dim; left; left -= BLOCK, row += BLOCK) {
        float x[BLOCK];
        for (uint32_t j = 0; j < BLOCK; j++)
            x[j] = tamed(row[j]);
        to = format->elem == KVB_Q8_0   ? q8_0_put(to, x)
             : format->elem == KVB_Q5_1 ? ranged_put(to, x, 31)
             : format->elem == KVB_Q5_0 ? centred_put(to, x, 16)
             : format->elem == KVB_Q4_1 ? ranged_put(to, x, 15)
             : format->elem == KVB_Q4_0 ? centred_put(to, x, 8)
                                        : iq4_nl_put(to, x);
    }
}

static inline void ggml_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                               uint32_t dim, float head_scale, float *row)
{
    kvb_elem elem = format->elem;
    bool fifth = elem == KVB_Q5_1 || elem == KVB_Q5_0, ranged = elem == KVB_Q5_1 || elem == KVB_Q4_1;
    float middle = elem == KVB_Q5_0 ? 16.0f : elem == KVB_Q4_0 ? 8.0f : 0;
    const uint8_t *from = codes;

    (void)head_scale, (void)scales, (void)zeros;
    for (uint32_t left = dim; left; left -= BLOCK, row += BLOCK) {
        float d = f16_get(from), m = -0.0f; /* added, it changes nothing */
        uint32_t high = 0;
        from += 2;
        if (elem == KVB_Q8_0) {
            for (uint32_t j = 0; j < BLOCK; j++)
                row[j] = (float)(int8_t)from[j] * d;
            from += BLOCK;
            continue;
        }
        if (ranged) {
            m = f16_get(from);
            from += 2;
        }
        if (fifth) {
            high = from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
            from += 4;
        }
        uint8_t low[HALF]; /* a copy: bytes might be what row points to, for all that a compiler knows */
        memcpy(low, from, HALF);
        if (elem == KVB_IQ4_NL)
            for (uint32_t j = 0; j < HALF; j++) {
                row[j] = iq4_nl_values[low[j] & 15] * d;
                row[j + HALF] = iq4_nl_values[low[j] >> 4] * d;
            }
        else
            for (uint32_t j = 0; j < HALF; j++) {
                uint32_t below = (low[j] & 15u) | (high >> j & 1) << 4;
                uint32_t above = (uint32_t)low[j] >> 4 | (high >> (j + HALF) & 1) << 4;
                row[j] = ((float)(int32_t)below - middle) * d + m;
                row[j + HALF] = ((float)(int32_t)above - middle) * d + m;
            }
        from += HALF;
    }
}

#endif
