/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs of ggml's blocks of 32 channels: ggml-org/ggml, src/ggml-quants.c, quantize_row_q8_0_ref and so on
 * (for iq4_nl: quantize_row_iq4_nl_impl with ntry = -1), layouts of ggml-common.h. Beyond what is defined there:
 * elements are limited to +-65504, and a factor 1/d that overflows is 0.
 */
#include "oracle/codec_parts.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 32, HALF = 16 };

static const float limit = 65504.0f;
static const double levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* What a block of one kind is made of: f16 d, f16 m, fifth bits, then codes. */
typedef struct shape {
    int codes_bits; /* in the last part: 8, or 4 with code j and code j + 16 in byte j */
    bool has_min, has_fifth;
    int middle; /* code that stands for 0, where there is no m */
} shape;

static shape shape_of(kvb_elem elem)
{
    switch (elem) {
    case KVB_Q8_0:
        return (shape){8, false, false, 0};
    case KVB_Q5_1:
        return (shape){4, true, true, 0};
    case KVB_Q5_0:
        return (shape){4, false, true, 16};
    case KVB_Q4_1:
        return (shape){4, true, false, 0};
    case KVB_Q4_0:
        return (shape){4, false, false, 8};
    default:
        return (shape){4, false, false, 0};
    }
}

static size_t block_bytes(shape s)
{
    return 2 + (s.has_min ? 2 : 0) + (s.has_fifth ? 4 : 0) + BLOCK * (size_t)s.codes_bits / 8;
}

static size_t ggml_bytes(const kvb_codec *codec, uint32_t dim, int part)
{
    return part == KVB_CODES ? dim / BLOCK * block_bytes(shape_of(codec->elem)) : 0;
}

/* ---- layout ---------------------------------------------------------------------------------------------- */

static void block_put(shape s, float d, float min, const int q[BLOCK], unsigned char *block)
{
    kvb_codec_f16_put(block, 0, d);
    block += 2;
    if (s.has_min) {
        kvb_codec_f16_put(block, 0, min);
        block += 2;
    }
    if (s.has_fifth) {
        for (uint32_t j = 0; j < BLOCK; j++)
            kvb_codec_put(block, 1, j, (unsigned)q[j] / 16);
        block += 4;
    }
    for (int j = 0; j < (s.codes_bits == 8 ? BLOCK : HALF); j++)
        block[j] = (unsigned char)(s.codes_bits == 8 ? q[j] & 0xff : q[j] % 16 + q[j + HALF] % 16 * 16);
}

static void block_get(shape s, const unsigned char *block, double *d, double *min, int q[BLOCK])
{
    *d = kvb_codec_f16_get(block, 0);
    *min = s.has_min ? kvb_codec_f16_get(block, 1) : 0;
    block += s.has_min ? 4 : 2;
    const unsigned char *fifth = block, *codes = block + (s.has_fifth ? 4 : 0);
    for (int j = 0; j < BLOCK; j++) {
        if (s.codes_bits == 8)
            q[j] = codes[j] < 128 ? codes[j] : codes[j] - 256;
        else
            q[j] = j < HALF ? codes[j] % 16 : codes[j - HALF] / 16;
        if (s.has_fifth)
            q[j] += 16 * (int)kvb_codec_get(fifth, 1, (uint32_t)j);
    }
}

/* ---- rules: d, m and codes of one block ------------------------------------------------------------------- */

/* The element of largest magnitude with its sign, the first of several; 0 if all are. */
static float peak(const float x[BLOCK])
{
    float most = 0;
    for (int j = 0; j < BLOCK; j++)
        if (fabsf(x[j]) > fabsf(most))
            most = x[j];
    return most;
}

static float inverse(float d)
{
    float id = 1.0f / d;
    return d != 0 && isfinite(id) ? id : 0.0f;
}

static int at_most(int code, int most)
{
    return code < most ? code : most;
}

static void q8_0(const float x[BLOCK], float *d, int q[BLOCK])
{
    *d = fabsf(peak(x)) / 127.0f;
    float id = inverse(*d);
    for (int j = 0; j < BLOCK; j++)
        q[j] = (int)roundf(x[j] * id);
}

/* Codes 0 .. 2 middle - 1 about a middle: the peak gets code 0. */
static void symmetric(const float x[BLOCK], int middle, float *d, int q[BLOCK])
{
    *d = peak(x) / (float)-middle;
    float id = inverse(*d);
    for (int j = 0; j < BLOCK; j++) {
        float steps = x[j] * id;
        q[j] = at_most((int)(steps + ((float)middle + 0.5f)), 2 * middle - 1);
    }
}

/* Codes 0 .. top from the least element up. */
static void from_least(const float x[BLOCK], int top, float *d, float *min, int q[BLOCK])
{
    float max = -FLT_MAX;
    *min = FLT_MAX;
    for (int j = 0; j < BLOCK; j++) {
        if (x[j] < *min)
            *min = x[j];
        if (x[j] > max)
            max = x[j];
    }
    *d = (max - *min) / (float)top;
    float id = inverse(*d);
    for (int j = 0; j < BLOCK; j++) {
        float steps = (x[j] - *min) * id;
        q[j] = at_most((int)(steps + 0.5f), top);
    }
}

/* Codes by the scale that maps the peak to the first level; then d of least squares, weighted by x^2. */
static void iq4_nl(const float x[BLOCK], float *d, int q[BLOCK])
{
    float most = peak(x), sum_qx = 0, sum_q2 = 0;
    *d = 0;
    memset(q, 0, BLOCK * sizeof *q);
    if (fabsf(most) < 1e-15f)
        return;
    float first = most / (float)levels[0], id = 1.0f / first;
    for (int j = 0; j < BLOCK; j++) {
        float y = id * x[j];
        /* Of two levels at the same distance the upper one: not kvb_codec_nearest's rule. */
        while (q[j] < 15 && (double)y - levels[q[j]] >= levels[q[j] + 1] - (double)y)
            q[j]++;
        float level = (float)levels[q[j]], weight = x[j] * x[j], wq = weight * level;
        float qx = wq * x[j], q2 = wq * level;
        sum_qx += qx;
        sum_q2 += q2;
    }
    float best = sum_qx / sum_q2;
    *d = isfinite(best) ? best : 0;
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

static void ggml_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                        unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    shape s = shape_of(codec->elem);
    for (size_t b = 0; b < (size_t)n * dim / BLOCK; b++) {
        float x[BLOCK], d, min = 0;
        int q[BLOCK];
        for (int j = 0; j < BLOCK; j++)
            x[j] = kvb_codec_limited(rows[b * BLOCK + (size_t)j], limit);
        if (codec->elem == KVB_Q8_0)
            q8_0(x, &d, q);
        else if (codec->elem == KVB_IQ4_NL)
            iq4_nl(x, &d, q);
        else if (s.has_min)
            from_least(x, s.has_fifth ? 31 : 15, &d, &min, q);
        else
            symmetric(x, s.middle, &d, q);
        block_put(s, d, min, q, part[KVB_CODES] + b * block_bytes(s));
    }
}

static void ggml_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                        float head_scale, double *row, double *size)
{
    (void)head_scale;
    shape s = shape_of(codec->elem);
    for (uint32_t b = 0; b < dim / BLOCK; b++) {
        double d, min;
        int q[BLOCK];
        block_get(s, part[KVB_CODES] + b * block_bytes(s), &d, &min, q);
        for (int j = 0; j < BLOCK; j++) {
            double product = d * (codec->elem == KVB_IQ4_NL ? levels[q[j]] : q[j] - s.middle);
            row[b * BLOCK + (uint32_t)j] = product + min;
            size[b * BLOCK + (uint32_t)j] = fabs(product) + fabs(min);
        }
    }
}

#define GGML(NAME, ELEM)                                                                                               \
    {                                                                                                                  \
        NAME, 1, false, ELEM, 0, BLOCK, ggml_bytes, ggml_encode, ggml_decode                                           \
    }

const kvb_codec kvb_codec_ggmls[KVB_GGMLS] = {
    GGML("q8_0", KVB_Q8_0), GGML("q5_1", KVB_Q5_1), GGML("q5_0", KVB_Q5_0),
    GGML("q4_1", KVB_Q4_1), GGML("q4_0", KVB_Q4_0), GGML("iq4_nl", KVB_IQ4_NL),
};
