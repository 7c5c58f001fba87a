/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs of 8-bit integers with one f32 scale a row, uniform quantisation (Jacob et al., CVPR 2018, section 2.1):
 *
 *   int8        code in -127 .. 127, scale = largest magnitude / 127
 *   int8-asym   code in 0 .. 255, scale = (largest - least) / 255, zero = least, with its sign where it is 0
 */
#include "oracle/codec_parts.h"

#include <math.h>

static const float limit = 0x1p126f; /* so that largest - least is finite */

static size_t int8_bytes(const kvb_codec *codec, uint32_t dim, int part)
{
    if (part == KVB_ZEROS && codec->elem == KVB_INT8)
        return 0;
    return part == KVB_CODES ? dim : 4;
}

static void int8_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                        unsigned char *const part[KVB_PARTS])
{
    (void)codec, (void)head_scale;
    for (uint32_t r = 0; r < n; r++) {
        const float *x = rows + (size_t)r * dim;
        float scale = kvb_codec_amax(x, dim, limit) / 127.0f;
        kvb_codec_f32_put(part[KVB_SCALES], r, scale);
        for (uint32_t c = 0; c < dim; c++) {
            float steps = scale > 0 ? rintf(kvb_codec_limited(x[c], limit) / scale) : 0;
            int code = (int)fmaxf(-127.0f, fminf(127.0f, steps));
            part[KVB_CODES][(size_t)r * dim + c] = (unsigned char)(code < 0 ? code + 256 : code);
        }
    }
}

static void int8_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                        float head_scale, double *row, double *size)
{
    (void)codec, (void)head_scale;
    double scale = kvb_codec_f32_get(part[KVB_SCALES], 0);
    for (uint32_t c = 0; c < dim; c++) {
        int code = part[KVB_CODES][c];
        row[c] = (code > 127 ? code - 256 : code) * scale;
        size[c] = fabs(row[c]);
    }
}

static bool below(float a, float b)
{
    return a < b || (a == 0 && b == 0 && signbit(a) && !signbit(b));
}

static void uint8_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                         unsigned char *const part[KVB_PARTS])
{
    (void)codec, (void)head_scale;
    for (uint32_t r = 0; r < n; r++) {
        const float *x = rows + (size_t)r * dim;
        float lo = kvb_codec_limited(x[0], limit), hi = lo;
        for (uint32_t c = 1; c < dim; c++) {
            float v = kvb_codec_limited(x[c], limit);
            lo = below(v, lo) ? v : lo;
            hi = below(hi, v) ? v : hi;
        }
        float scale = (hi - lo) / 255.0f;
        kvb_codec_f32_put(part[KVB_SCALES], r, scale);
        kvb_codec_f32_put(part[KVB_ZEROS], r, lo);
        for (uint32_t c = 0; c < dim; c++) {
            float steps = scale > 0 ? rintf((kvb_codec_limited(x[c], limit) - lo) / scale) : 0;
            part[KVB_CODES][(size_t)r * dim + c] = (unsigned char)fminf(255.0f, steps);
        }
    }
}

static void uint8_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                         float head_scale, double *row, double *size)
{
    (void)codec, (void)head_scale;
    double scale = kvb_codec_f32_get(part[KVB_SCALES], 0), zero = kvb_codec_f32_get(part[KVB_ZEROS], 0);
    for (uint32_t c = 0; c < dim; c++) {
        row[c] = part[KVB_CODES][c] * scale + zero;
        size[c] = part[KVB_CODES][c] * scale + fabs(zero);
    }
}

const kvb_codec kvb_codec_int8s[KVB_INT8S] = {
    {"int8", 1, false, KVB_INT8, 8, KVB_GROUP_ROW, int8_bytes, int8_encode, int8_decode},
    {"int8-asym", 1, false, KVB_UINT8, 8, KVB_GROUP_ROW, int8_bytes, uint8_encode, uint8_decode},
};
