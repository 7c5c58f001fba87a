/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs of 4-bit floats E2M1 (0 0.5 1 1.5 2 3 4 6 and their negatives) in small groups:
 *
 *   mxfp4   OCP Microscaling Formats (MX) Specification v1.0, sections 5.3.3 (E2M1), 5.4 (E8M0) and 6.3 (conversion): 32
 *           channels over 2^e, e = floor(log2(largest magnitude)) - 2, stored as e + 127
 *   nvfp4   NVIDIA's NVFP4: 16 channels over an E4M3 scale, times one f32 for all, chosen so that both ranges are used
 */
#include "oracle/codec_parts.h"

#include <float.h>
#include <math.h>

static const double levels[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/* Beyond 6 the nearest value is 6. */
static unsigned e2m1(double y)
{
    return (unsigned)kvb_codec_nearest(levels, 8, fmin(fabs(y), 6)) + (signbit(y) ? 8 : 0);
}

static double e2m1_value(unsigned code)
{
    return code & 8 ? -levels[code & 7] : levels[code];
}

static size_t mx_bytes(const kvb_codec *codec, uint32_t dim, int part)
{
    return part == KVB_CODES ? dim / 2 : part == KVB_SCALES ? dim / codec->group : 0;
}

static void mxfp4_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                         unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    for (uint32_t g = 0; g < n * dim / codec->group; g++) {
        const float *x = rows + (size_t)g * codec->group;
        float amax = kvb_codec_amax(x, codec->group, FLT_MAX);
        int e = amax > 0 ? ilogbf(amax) - 2 : -127;
        if (e < -127)
            e = -127;
        part[KVB_SCALES][g] = (unsigned char)(e + 127);
        for (uint32_t c = 0; c < codec->group; c++)
            kvb_codec_put(part[KVB_CODES], 4, g * codec->group + c,
                          e2m1((double)kvb_codec_limited(x[c], FLT_MAX) * kvb_power_of_two(-e)));
    }
}

static void mxfp4_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                         float head_scale, double *row, double *size)
{
    (void)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        int code = part[KVB_SCALES][c / codec->group];
        row[c] = code == 255 ? NAN : e2m1_value(kvb_codec_get(part[KVB_CODES], 4, c)) * kvb_power_of_two(code - 127);
        size[c] = fabs(row[c]);
    }
}

static void nvfp4_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                         unsigned char *const part[KVB_PARTS])
{
    for (uint32_t g = 0; g < n * dim / codec->group; g++) {
        const float *x = rows + (size_t)g * codec->group;
        float sixth = kvb_codec_amax(x, codec->group, FLT_MAX) / 6.0f;
        unsigned char scale = kvb_codec_fp8(KVB_E4M3, sixth / head_scale);
        float step = (float)kvb_codec_fp8_value(KVB_E4M3, scale) * head_scale;
        part[KVB_SCALES][g] = scale;
        for (uint32_t c = 0; c < codec->group; c++) {
            float v = kvb_codec_limited(x[c], FLT_MAX), y = step > 0 ? v / step : copysignf(0, v);
            kvb_codec_put(part[KVB_CODES], 4, g * codec->group + c, e2m1((double)y));
        }
    }
}

static void nvfp4_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                         float head_scale, double *row, double *size)
{
    for (uint32_t c = 0; c < dim; c++) {
        double scale = kvb_codec_fp8_value(KVB_E4M3, part[KVB_SCALES][c / codec->group]);
        row[c] = e2m1_value(kvb_codec_get(part[KVB_CODES], 4, c)) * scale * (double)head_scale;
        size[c] = fabs(row[c]);
    }
}

const kvb_codec kvb_codec_mxs[KVB_MXS] = {
    {"mxfp4", 1, false, KVB_E2M1, 4, 32, mx_bytes, mxfp4_encode, mxfp4_decode},
    {"nvfp4", 1, false, KVB_E2M1, 4, 16, mx_bytes, nvfp4_encode, nvfp4_decode},
};
