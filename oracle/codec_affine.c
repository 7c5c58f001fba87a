/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs whose codes count steps from a zero point, with f16 scales and zeros:
 *
 *   aBgN     MLX affine quantisation, N channels a group: ml-explore/mlx, mlx/backend/cpu/quantized.cpp, quantize() with a
 *            16-bit type. The zero point is that edge of the range which lies farther from 0, the scale such that 0 is a
 *            whole number of steps away; codes are found with the f32 scale and bias before those are rounded to f16.
 *   kiviB-v  KIVI (Liu et al., arXiv 2402.02750, section 3.2 and algorithm 1): 32 channels of one token a group
 *   kiviB-k  the same for one channel of 32 tokens
 *
 * KIVI's rows come in as residual cells held them: rounded to f16.
 */
#include "oracle/codec_parts.h"

#include <math.h>
#include <string.h>

static const float limit = 65504.0f;

static float code_of(float x, float zero, float scale, float top)
{
    float difference = x - zero, steps = rintf(difference / scale);
    return steps < 0 ? 0 : steps > top ? top : steps;
}

static bool below(float a, float b)
{
    return a < b || (a == 0 && b == 0 && signbit(a) && !signbit(b));
}

/* n elements, `stride` apart; least and largest, -0 being below +0. */
static void range_of(const float *x, size_t stride, uint32_t n, float *lo, float *hi)
{
    *lo = *hi = kvb_codec_limited(x[0], limit);
    for (uint32_t i = 1; i < n; i++) {
        float v = kvb_codec_limited(x[i * stride], limit);
        if (below(v, *lo))
            *lo = v;
        if (below(*hi, v))
            *hi = v;
    }
}

static float top_of(const kvb_codec *codec)
{
    return (float)((1 << codec->bits) - 1);
}

/* Groups of channels of one row, or of all of a block's rows together. */
static uint32_t groups(const kvb_codec *codec, uint32_t dim)
{
    return codec->shared ? dim : dim / codec->group;
}

static size_t affine_bytes(const kvb_codec *codec, uint32_t dim, int part)
{
    return part == KVB_CODES ? ((size_t)dim * codec->bits + 7) / 8 : 2 * (size_t)groups(codec, dim);
}

/* ---- MLX -------------------------------------------------------------------------------------------------- */

static void mlx_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                       unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    float top = top_of(codec);
    uint32_t per_row = groups(codec, dim);
    for (uint32_t g = 0; g < n * per_row; g++) {
        const float *x = rows + (size_t)g * codec->group;
        unsigned char *codes = part[KVB_CODES] + g / per_row * affine_bytes(codec, dim, KVB_CODES);
        float lo, hi, bias = 0;
        range_of(x, 1, codec->group, &lo, &hi);
        bool low_edge = fabsf(lo) > fabsf(hi);
        float step = (hi - lo) / top, scale = fmaxf(step, 1e-7f), edge = low_edge ? lo : hi;
        if (!low_edge)
            scale = -scale;
        float steps = rintf(edge / scale);
        if (steps != 0) {
            scale = edge / steps;
            bias = edge;
        }
        kvb_codec_f16_put(part[KVB_SCALES], g, scale);
        kvb_codec_f16_put(part[KVB_ZEROS], g, bias);
        for (uint32_t c = 0; c < codec->group; c++)
            kvb_codec_put(codes, codec->bits, g % per_row * codec->group + c,
                          (unsigned)code_of(kvb_codec_limited(x[c], limit), bias, scale, top));
    }
}

/* ---- KIVI ------------------------------------------------------------------------------------------------- */

/* One group: elements x[i * stride] get the codes `first`, `first` + 1, … of row i (or all of row 0). */
static void range_encode(const kvb_codec *codec, const float *x, size_t stride, uint32_t n, unsigned char *codes,
                         uint32_t first, size_t row_codes, unsigned char *const part[KVB_PARTS], uint32_t group)
{
    float top = top_of(codec), lo, hi;
    range_of(x, stride, n, &lo, &hi);
    float range = hi - lo;
    kvb_codec_f16_put(part[KVB_SCALES], group, range / top);
    kvb_codec_f16_put(part[KVB_ZEROS], group, lo);
    float scale = (float)kvb_codec_f16_get(part[KVB_SCALES], group);
    for (uint32_t i = 0; i < n; i++) {
        float v = kvb_codec_limited(x[i * stride], limit);
        unsigned code = scale > 0 ? (unsigned)code_of(v, lo, scale, top) : 0;
        kvb_codec_put(codes + i * row_codes, codec->bits, row_codes ? first : first + i, code);
    }
}

static void kivi_v_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                          unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    uint32_t per_row = groups(codec, dim);
    for (uint32_t g = 0; g < n * per_row; g++)
        range_encode(codec, rows + (size_t)g * codec->group, 1, codec->group,
                     part[KVB_CODES] + g / per_row * affine_bytes(codec, dim, KVB_CODES), g % per_row * codec->group, 0,
                     part, g);
}

static void kivi_k_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                          unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    memset(part[KVB_CODES], 0, n * affine_bytes(codec, dim, KVB_CODES)); /* the last byte may have room */
    for (uint32_t c = 0; c < dim; c++)
        range_encode(codec, rows + c, dim, n, part[KVB_CODES], c, affine_bytes(codec, dim, KVB_CODES), part, c);
}

/* ---- decoding, the same for all ----------------------------------------------------------------------------- */

static void affine_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                          float head_scale, double *row, double *size)
{
    (void)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        uint32_t g = codec->shared ? c : c / codec->group;
        double product = kvb_codec_get(part[KVB_CODES], codec->bits, c) * kvb_codec_f16_get(part[KVB_SCALES], g);
        double zero = kvb_codec_f16_get(part[KVB_ZEROS], g);
        row[c] = product + zero;
        size[c] = fabs(product) + fabs(zero);
    }
}

#define MLX(NAME, ELEM, BITS, GROUP)                                                                                   \
    {                                                                                                                  \
        NAME, 1, false, ELEM, BITS, GROUP, affine_bytes, mlx_encode, affine_decode                                     \
    }
#define MLX3(B)                                                                                                        \
    MLX("a" #B "g32", KVB_UINT##B, B, 32), MLX("a" #B "g64", KVB_UINT##B, B, 64),                                      \
        MLX("a" #B "g128", KVB_UINT##B, B, 128)

const kvb_codec kvb_codec_affines[KVB_AFFINES] = {
    MLX3(8),
    MLX3(4),
    MLX3(2),
    {"kivi4-v", 32, false, KVB_UINT4, 4, 32, affine_bytes, kivi_v_encode, affine_decode},
    {"kivi2-v", 32, false, KVB_UINT2, 2, 32, affine_bytes, kivi_v_encode, affine_decode},
    {"kivi4-k", 32, true, KVB_UINT4, 4, 0, affine_bytes, kivi_k_encode, affine_decode},
    {"kivi2-k", 32, true, KVB_UINT2, 2, 0, affine_bytes, kivi_k_encode, affine_decode},
};
