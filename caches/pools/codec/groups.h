/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules RANGE and CHANNELS: levels spread evenly from the least to the largest element of a group, f16 scale and zero.
 * RANGE groups channels of a row, CHANNELS each channel of neighbouring rows. KIVI, V and K (Liu et al., arXiv
 * 2402.02750, section 3); rows come from a window of f16, so that the zero is exact, and codes are taken with the
 * scale as it is stored.
 */
#ifndef KVB_CODEC_GROUPS_H
#define KVB_CODEC_GROUPS_H

#include "caches/pools/codec/range.h"

static inline void range_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim,
                                float head_scale, void *codes, void *scales, void *zeros)
{
    uint32_t bits = level_bits(format), n = format->group;
    uint16_t *scale_to = scales, *zero_to = zeros;
    uint8_t *to = codes;
    float most = (float)((1u << bits) - 1);

    (void)held, (void)head_scale;
    for (uint32_t left = dim; left; left -= n, row += n, to += n * bits / 8) {
        float x[SPAN], lo, hi;
        uint8_t code[SPAN];
        for (uint32_t i = 0; i < n; i++)
            x[i] = tamed(row[i]);
        range_of(x, n, &lo, &hi);
        uint16_t stored = f16_of((hi - lo) / most);
        float step = stored ? f16_value(stored) : 1.0f, top = stored ? most : 0; /* no step: all codes 0 */
        for (uint32_t i = 0; i < n; i++)
            code[i] = level_of((x[i] - lo) / step, top);
        codes_pack(to, code, n, bits);
        *scale_to++ = stored;
        *zero_to++ = f16_of(lo);
    }
}

/* n channels, at most SPAN, of rows that lie dim apart: scales and zeros, then each held row's codes. */
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

static inline void channels_encode(const kvb_format *format, const float *rows, uint64_t held, uint32_t dim,
                                   float head_scale, void *codes, void *scales, void *zeros)
{
    uint16_t *scale_to = scales, *zero_to = zeros;
    uint8_t *to = codes;

    (void)head_scale;
    memset(codes, 0, format->group * kvb_codes_bytes(format, dim)); /* of empty cells */
    for (uint32_t first = 0; first < dim; first += SPAN)
        channels_span(format, rows + first, held, dim, dim - first < SPAN ? dim - first : SPAN,
                      to + kvb_codes_bytes(format, first), scale_to + first, zero_to + first);
}

static inline void channels_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                                   uint32_t dim, float head_scale, float *row)
{
    uint32_t bits = level_bits(format);
    const uint16_t *scale = scales, *zero = zeros;
    const uint8_t *from = codes;

    (void)head_scale;
    for (uint32_t left = dim, n; left; left -= n, row += n, scale += n, zero += n, from += n * bits / 8) {
        uint8_t code[SPAN];
        n = left < SPAN ? left : SPAN;
        codes_unpack(code, from, n, bits);
        for (uint32_t i = 0; i < n; i++)
            row[i] = (float)code[i] * f16_value(scale[i]) + f16_value(zero[i]);
    }
}

#endif
