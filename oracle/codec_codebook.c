/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs tq4 and tq3: TurboQuant (Zandieh et al., arXiv 2504.19874, algorithm 1, the variant for least mean
 * squared error). A row has been rotated, so that its elements over their root mean square are nearly N(0, 1); each is
 * replaced by the nearest level of the quantiser that is best for N(0, 1), found by J. Max, Quantizing for Minimum
 * Distortion, IRE Trans. Inf. Theory 6, 1960, table I (N = 16 and 8).
 */
#include "oracle/codec_parts.h"

#include <math.h>

static const float limit = 65504.0f;
static const float max_16[8] = {0.1284f, 0.3881f, 0.6568f, 0.9424f, 1.256f, 1.618f, 2.069f, 2.733f};
static const float max_8[4] = {0.2451f, 0.7560f, 1.344f, 2.152f};

/* The table has the positive half. */
static float level(uint32_t bits, unsigned code)
{
    const float *half = bits == 4 ? max_16 : max_8;
    unsigned n = 1u << (bits - 1);
    return code < n ? -half[n - 1 - code] : half[code - n];
}

static size_t codebook_bytes(const kvb_codec *codec, uint32_t dim, int part)
{
    return part == KVB_CODES ? (size_t)dim * codec->bits / 8 : part == KVB_SCALES ? 2 : 0;
}

/* The order of additions is the format's: 16 sums, folded in halves. */
static double sum_of_squares(const float *x, uint32_t dim)
{
    double sum[16] = {0};
    for (uint32_t c = 0; c < dim; c++) {
        double v = (double)kvb_codec_limited(x[c], limit);
        sum[c % 16] += v * v;
    }
    for (int half = 8; half >= 1; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

static void codebook_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                            unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    for (uint32_t r = 0; r < n; r++) {
        const float *x = rows + (size_t)r * dim;
        float rms = (float)sqrt(sum_of_squares(x, dim) / dim);
        kvb_codec_f16_put(part[KVB_SCALES], r, fminf(rms, limit));
        float scale = (float)kvb_codec_f16_get(part[KVB_SCALES], r);
        for (uint32_t c = 0; c < dim; c++) {
            float y = scale > 0 ? kvb_codec_limited(x[c], limit) / scale : 0;
            unsigned code = 0;
            for (unsigned k = 0; k + 1 < 1u << codec->bits; k++) {
                float sum = level(codec->bits, k) + level(codec->bits, k + 1), border = sum * 0.5f;
                code += y > border;
            }
            kvb_codec_put(part[KVB_CODES] + r * codebook_bytes(codec, dim, KVB_CODES), codec->bits, c, code);
        }
    }
}

static void codebook_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                            float head_scale, double *row, double *size)
{
    (void)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        row[c] = (double)level(codec->bits, kvb_codec_get(part[KVB_CODES], codec->bits, c)) *
                 kvb_codec_f16_get(part[KVB_SCALES], 0);
        size[c] = fabs(row[c]);
    }
}

const kvb_codec kvb_codec_codebooks[KVB_CODEBOOKS] = {
    {"tq4", 1, false, KVB_CODEBOOK, 4, KVB_GROUP_ROW, codebook_bytes, codebook_encode, codebook_decode},
    {"tq3", 1, false, KVB_CODEBOOK, 3, KVB_GROUP_ROW, codebook_bytes, codebook_encode, codebook_decode},
};
