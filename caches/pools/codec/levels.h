/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of integers: evenly spaced levels, and ggml's blocks. */
#ifndef KVB_CODEC_LEVELS_H
#define KVB_CODEC_LEVELS_H

#include "caches/pools/codec/floats.h"

/*
 * Rules INT8 and UINT8: 8-bit integers, an f32 scale for each row.
 * INT8 is symmetric: scale = amax / 127, code = x / scale in -127 .. 127.
 * UINT8 spans least to largest: scale = (hi - lo) / 255, zero = lo, code = (x - lo) / scale in 0 .. 255.
 * Rounded to nearest even. Elements are kept within 2^126, so that hi - lo is finite. A row with hi = lo has scale 0.
 */

static inline void int8_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    const float *restrict from = row;
    int8_t *restrict to = c->codes;
    float scale = largest_of(row, dim, LIMIT_2P126) / 127.0f, divisor = divisor_of(scale);
    memcpy(c->scales, &scale, sizeof scale);
    for (uint32_t i = 0; i < dim; i++) {
        int32_t code = whole(float_of(bits_within(from[i], LIMIT_2P126)) / divisor);
        code = code < 127 ? code : 127; /* a subnormal scale can be far too small */
        to[i] = (int8_t)(code > -127 ? code : -127);
    }
}

static inline void int8_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    const int8_t *restrict from = c->codes;
    float *restrict to = row;
    float scale;
    memcpy(&scale, c->scales, sizeof scale);
    for (uint32_t i = 0; i < dim; i++)
        to[i] = (float)from[i] * scale;
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

static inline void uint8_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    const float *restrict from = row;
    uint8_t *restrict to = c->codes;
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (uint32_t i = 0; i < dim; i++) {
        int32_t x = order_of(float_of(bits_within(from[i], LIMIT_2P126)));
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    float lo = float_in_order(least), hi = float_in_order(most);
    float scale = (hi - lo) / 255.0f, divisor = divisor_of(scale);
    memcpy(c->scales, &scale, sizeof scale);
    memcpy(c->zeros, &lo, sizeof lo);
    for (uint32_t i = 0; i < dim; i++) {
        int32_t code = whole((float_of(bits_within(from[i], LIMIT_2P126)) - lo) / divisor);
        to[i] = (uint8_t)(code < 255 ? code : 255); /* never below 0: no x is below lo */
    }
}

static inline void uint8_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    const uint8_t *restrict from = c->codes;
    float *restrict to = row;
    float scale, zero;
    memcpy(&scale, c->scales, sizeof scale);
    memcpy(&zero, c->zeros, sizeof zero);
    for (uint32_t i = 0; i < dim; i++)
        to[i] = (float)from[i] * scale + zero;
}

/*
 * For the rules with a least and a largest element: elements made finite, floats compared as integers (so that
 * reductions are vectorised and do not depend on the order), levels, and codes packed into bytes.
 */

enum { SPAN = 128 }; /* channels worked on at a time: the largest group */

/* x; 0 for a NaN, the largest f16 of that sign for a larger magnitude or infinity. */
static inline float tamed(float x)
{
    return float_of(bits_within(x, LIMIT_F16_MAX));
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

/* Packs n codes, one a byte, into n * bits bits, low bits first. Reads up to a multiple of 4 codes (8 codes if bits is
 * 3); padding is 0. */
static inline void codes_pack(uint8_t *restrict to, const uint8_t *restrict code, uint32_t n, uint32_t bits)
{
    if (bits == 8)
        memcpy(to, code, n);
    else if (bits == 4)
        for (uint32_t i = 0; i < (n + 1) / 2; i++)
            to[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    else if (bits == 3)
        for (uint32_t i = 0; i < n; i += 8, to += 3) {
            uint32_t low = code[i] | code[i + 1] << 3 | code[i + 2] << 6 | code[i + 3] << 9;
            uint32_t high = code[i + 4] | code[i + 5] << 3 | code[i + 6] << 6 | code[i + 7] << 9,
                     all = low | high << 12;
            to[0] = (uint8_t)all;
            to[1] = (uint8_t)(all >> 8);
            to[2] = (uint8_t)(all >> 16);
        }
    else
        for (uint32_t i = 0; i < (n + 3) / 4; i++)
            to[i] = (uint8_t)(code[4 * i] | code[4 * i + 1] << 2 | code[4 * i + 2] << 4 | code[4 * i + 3] << 6);
}

/* Unpacks codes. Writes up to a multiple of 4 codes (8 codes if bits is 3). */
static inline void codes_unpack(uint8_t *restrict code, const uint8_t *restrict from, uint32_t n, uint32_t bits)
{
    if (bits == 8)
        memcpy(code, from, n);
    else if (bits == 4)
        for (uint32_t i = 0; i < (n + 1) / 2; i++) {
            code[2 * i] = from[i] & 15;
            code[2 * i + 1] = from[i] >> 4;
        }
    else if (bits == 3)
        for (uint32_t i = 0; i < n; i += 8, from += 3) {
            uint32_t all = from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16;
            for (uint32_t j = 0; j < 8; j++)
                code[i + j] = all >> 3 * j & 7u;
        }
    else
        for (uint32_t i = 0; i < (n + 3) / 4; i++) {
            code[4 * i] = from[i] & 3;
            code[4 * i + 1] = from[i] >> 2 & 3;
            code[4 * i + 2] = from[i] >> 4 & 3;
            code[4 * i + 3] = from[i] >> 6;
        }
}

/*
 * Rule AFFINE: f16 scale and zero for each group of channels.
 *
 * MLX's affine quantisation (github.com/ml-explore/mlx, mlx/backend/cpu/quantized.cpp, quantize()) of a tensor of f16:
 * the zero is an end of the group's range; the scale is chosen so that 0 is a level. Codes are computed with scale and
 * zero before these are rounded.
 *
 * Rows with residual cells, KIVI's V (Liu et al., arXiv 2402.02750, section 3): levels evenly spaced from the least to
 * the largest element. Rows come from a window of f16, so the zero is exact. Codes use the stored scale.
 */

/* Chooses scale and bias for a range. */
static inline void affine_choose(float lo, float hi, float most, float *scale, float *bias)
{
    bool below = fabsf(lo) > fabsf(hi); /* the end of larger magnitude is exactly a level */
    float step = (hi - lo) / most, edge = below ? lo : hi;
    step = step > 1e-7f ? step : 1e-7f;
    step = below ? step : -step;
    float levels = rintf(edge / step);
    *scale = levels != 0 ? edge / levels : step;
    *bias = levels != 0 ? edge : 0;
}

static inline void affine_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    uint32_t bits = level_bits(c->format), n = c->format->group;
    uint16_t *scale_to = c->scales, *zero_to = c->zeros;
    uint8_t *to = c->codes;
    float most = (float)((1u << bits) - 1);
    for (uint32_t left = dim; left; left -= n, row += n, to += n * bits / 8) {
        float x[SPAN], lo, hi, scale, zero, top = most;
        uint8_t code[SPAN];
        for (uint32_t i = 0; i < n; i++)
            x[i] = tamed(row[i]);
        range_of(x, n, &lo, &hi);
        if (c->format->residual_cells) {
            zero = lo;
            *scale_to = f16_of((hi - lo) / most);
            scale = f16_value(*scale_to);
            top = scale > 0 ? most : 0; /* no step: all codes 0 */
            scale = scale > 0 ? scale : 1.0f;
        } else {
            affine_choose(lo, hi, most, &scale, &zero);
            *scale_to = f16_of(scale);
        }
        for (uint32_t i = 0; i < n; i++)
            code[i] = level_of((x[i] - zero) / scale, top);
        codes_pack(to, code, n, bits);
        *zero_to++ = f16_of(zero);
        scale_to++;
    }
}

static inline void affine_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    uint32_t bits = level_bits(c->format), n = c->format->group;
    const uint16_t *scale_from = c->scales, *zero_from = c->zeros;
    const uint8_t *from = c->codes;
    for (uint32_t left = dim, span; left; left -= span, from += span * bits / 8) {
        uint8_t code[SPAN];
        span = left < SPAN ? left : SPAN;
        codes_unpack(code, from, span, bits);
        for (uint32_t g = 0; g < span; g += n, row += n) {
            float scale = f16_value(*scale_from++), zero = f16_value(*zero_from++);
            for (uint32_t i = 0; i < n; i++)
                row[i] = (float)code[g + i] * scale + zero;
        }
    }
}

/*
 * Rule CHANNELS, KIVI's K: as for V, but levels, scale and zero are those of one channel of the group's rows.
 */

/* Encodes n channels, at most SPAN, of rows that lie dim apart: scales and zeros, then the codes of each held row. */
static inline void channels_span(const kvb_format *format, const float *restrict rows, uint64_t held, uint32_t dim,
                                 uint32_t n, uint8_t *codes, uint16_t *restrict scales, uint16_t *restrict zeros)
{
    uint32_t bits = level_bits(format);
    size_t row_bytes = kvb_codes_bytes(format, dim);
    float lo[SPAN], step[SPAN], top[SPAN], most = (float)((1u << bits) - 1);
    int32_t least[SPAN], largest[SPAN];
    uint8_t code[SPAN] = {0};

    for (uint32_t i = 0; i < n; i++) {
        least[i] = INT32_MAX;
        largest[i] = INT32_MIN;
    }
    for (uint64_t left = held; left; left &= left - 1) {
        const float *row = rows + (size_t)__builtin_ctzll(left) * dim;
        for (uint32_t i = 0; i < n; i++) {
            int32_t order = order_of(tamed(row[i]));
            least[i] = order < least[i] ? order : least[i];
            largest[i] = order > largest[i] ? order : largest[i];
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        lo[i] = float_in_order(least[i]);
        scales[i] = f16_of((float_in_order(largest[i]) - lo[i]) / most);
        zeros[i] = f16_of(lo[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        float stored = f16_value(scales[i]);
        step[i] = stored > 0 ? stored : 1.0f; /* no step: all codes 0 */
        top[i] = stored > 0 ? most : 0;
    }
    for (uint64_t left = held; left; left &= left - 1) {
        uint32_t cell = (uint32_t)__builtin_ctzll(left);
        const float *row = rows + (size_t)cell * dim;
        for (uint32_t i = 0; i < n; i++)
            code[i] = level_of((tamed(row[i]) - lo[i]) / step[i], top[i]);
        codes_pack(codes + cell * row_bytes, code, n, bits);
    }
}

static inline void channels_encode(const kvb_coded *c, const float *rows, uint32_t dim)
{
    uint16_t *scale_to = c->scales, *zero_to = c->zeros;
    uint8_t *to = c->codes;
    memset(c->codes, 0, c->format->group * kvb_codes_bytes(c->format, dim)); /* of empty cells */
    for (uint32_t first = 0; first < dim; first += SPAN)
        channels_span(c->format, rows + first, c->held, dim, dim - first < SPAN ? dim - first : SPAN,
                      to + kvb_codes_bytes(c->format, first), scale_to + first, zero_to + first);
}

static inline void channels_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    uint32_t bits = level_bits(c->format);
    const uint16_t *scale = c->scales, *zero = c->zeros;
    const uint8_t *from = c->codes;
    for (uint32_t left = dim, n; left; left -= n, row += n, scale += n, zero += n, from += n * bits / 8) {
        uint8_t code[SPAN];
        n = left < SPAN ? left : SPAN;
        codes_unpack(code, from, n, bits);
        for (uint32_t i = 0; i < n; i++)
            row[i] = (float)code[i] * f16_value(scale[i]) + f16_value(zero[i]);
    }
}

/*
 * Rule GGML: blocks of 32 channels with their scales inside. github.com/ggml-org/ggml, src/ggml-quants.c: functions
 * quantize_row_{q8_0,q5_1,q5_0,q4_1,q4_0,iq4_nl}_ref; structs in ggml-common.h. The bytes are the same for every row
 * for which ggml defines them. Otherwise: 1/d that overflows is 0, elements beyond f16 are its largest, NaN is 0.
 */

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

/* The first element of largest magnitude; +0 if all are 0. */
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

/* ggml finds the ends with < and > in order: of several zeros the first one stays. A stored least shows its sign. */
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

/* (x - from) * id + half, truncated, at most top; never below 0. */
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
    for (uint32_t j = 0; j < BLOCK; j++) { /* rounds half away from zero; size - full is exact */
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

/* q4_1 and q5_1: levels 0 .. top, level 0 is the least element. */
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

/* Chooses levels with the largest element on the first level; the stored scale is then the least-squares fit. */
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
    for (uint32_t j = 0; j < BLOCK; j++) { /* sums in this order */
        sumqx += wqx[j];
        sumq2 += wqq[j];
    }
    float d = sumqx / (some && sumq2 > 0 ? sumq2 : 1.0f);
    to = f16_put(to, some && sumq2 > 0 && (bits_of(d) & 0x7fffffffu) < 0x7f800000u ? d : 0);
    return nibbles_put(to, q);
}

static inline void ggml_encode(const kvb_coded *c, const float *row, uint32_t dim)
{
    uint8_t *to = c->codes;
    for (uint32_t left = dim; left; left -= BLOCK, row += BLOCK) {
        float x[BLOCK];
        for (uint32_t j = 0; j < BLOCK; j++)
            x[j] = tamed(row[j]);
        to = c->format->elem == KVB_Q8_0   ? q8_0_put(to, x)
             : c->format->elem == KVB_Q5_1 ? ranged_put(to, x, 31)
             : c->format->elem == KVB_Q5_0 ? centred_put(to, x, 16)
             : c->format->elem == KVB_Q4_1 ? ranged_put(to, x, 15)
             : c->format->elem == KVB_Q4_0 ? centred_put(to, x, 8)
                                           : iq4_nl_put(to, x);
    }
}

static inline void ggml_decode(const kvb_coded *c, uint32_t dim, float *row)
{
    kvb_elem elem = c->format->elem;
    bool fifth = elem == KVB_Q5_1 || elem == KVB_Q5_0, ranged = elem == KVB_Q5_1 || elem == KVB_Q4_1;
    float middle = elem == KVB_Q5_0 ? 16.0f : elem == KVB_Q4_0 ? 8.0f : 0;
    const uint8_t *from = c->codes;
    for (uint32_t left = dim; left; left -= BLOCK, row += BLOCK) {
        float d = f16_get(from), m = -0.0f; /* adding it changes nothing */
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
        uint8_t low[HALF]; /* a copy: a compiler must assume that bytes alias row */
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
