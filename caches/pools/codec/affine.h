/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule AFFINE: f16 scale and bias for each group of channels, the bias an end of the group's range and the scale made
 * so that 0 is a level. MLX's affine quantisation (github.com/ml-explore/mlx, mlx/backend/cpu/quantized.cpp,
 * quantize()) with f16 as the type of the tensor: it takes its codes from scale and bias before these are rounded.
 */
#ifndef KVB_CODEC_AFFINE_H
#define KVB_CODEC_AFFINE_H

#include "caches/pools/codec/range.h"

/* Scale and bias that a range is given. */
static inline void affine_choose(float lo, float hi, float most, float *scale, float *bias)
{
    bool below = fabsf(lo) > fabsf(hi); /* the end of larger magnitude is met exactly */
    float step = (hi - lo) / most, edge = below ? lo : hi;
    step = step > 1e-7f ? step : 1e-7f;
    step = below ? step : -step;
    float levels = rintf(edge / step);
    *scale = levels != 0 ? edge / levels : step;
    *bias = levels != 0 ? edge : 0;
}

static inline void affine_encode(const kvb_format *format, const float *row, uint64_t held, uint32_t dim,
                                 float head_scale, void *codes, void *scales, void *zeros)
{
    uint32_t bits = level_bits(format), n = format->group;
    uint16_t *scale_to = scales, *zero_to = zeros;
    uint8_t *to = codes;
    float most = (float)((1u << bits) - 1);

    (void)held, (void)head_scale;
    for (uint32_t left = dim; left; left -= n, row += n, to += n * bits / 8) {
        float x[SPAN], lo, hi, scale, bias;
        uint8_t code[SPAN];
        for (uint32_t i = 0; i < n; i++)
            x[i] = tamed(row[i]);
        range_of(x, n, &lo, &hi);
        affine_choose(lo, hi, most, &scale, &bias);
        for (uint32_t i = 0; i < n; i++)
            code[i] = level_of((x[i] - bias) / scale, most);
        codes_pack(to, code, n, bits);
        *scale_to++ = f16_of(scale);
        *zero_to++ = f16_of(bias);
    }
}

/* Also of rule RANGE. */
static inline void affine_decode(const kvb_format *format, const void *codes, const void *scales, const void *zeros,
                                 uint32_t dim, float head_scale, float *row)
{
    uint32_t bits = level_bits(format), n = format->group;
    const uint16_t *scale_from = scales, *zero_from = zeros;
    const uint8_t *from = codes;

    (void)head_scale;
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

#endif
