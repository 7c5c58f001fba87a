/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs of the 8-bit floats: OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023. E4M3: bias 7,
 * largest 448, one NaN, no infinity; E5M2: bias 15, largest 57344. Conversion saturates (section 5.2.1, SAT mode).
 *
 *   e4m3         as it is
 *   -tensor,     over a scale fixed beforehand
 *   -head
 *   -token       over its row's largest magnitude / the largest code, f32
 */
#include "oracle/codec_parts.h"

#include <float.h>
#include <math.h>

static int largest_code(kvb_elem elem)
{
    return elem == KVB_E4M3 ? 0x7e : 0x7b;
}

double kvb_codec_fp8_value(kvb_elem elem, unsigned char code)
{
    int man_bits = elem == KVB_E4M3 ? 3 : 2, bias = elem == KVB_E4M3 ? 7 : 15;
    int magnitude = code & 0x7f, field = magnitude >> man_bits, man = magnitude - (field << man_bits);
    double value;

    if (elem == KVB_E4M3 ? magnitude == 0x7f : magnitude > 0x7c)
        return NAN;
    if (elem == KVB_E5M2 && magnitude == 0x7c)
        value = INFINITY;
    else if (field == 0)
        value = man * kvb_power_of_two(1 - bias - man_bits);
    else
        value = ((1 << man_bits) + man) * kvb_power_of_two(field - bias - man_bits);
    return code & 0x80 ? -value : value;
}

unsigned char kvb_codec_fp8(kvb_elem elem, float x)
{
    const int man_bits = elem == KVB_E4M3 ? 3 : 2, bias = elem == KVB_E4M3 ? 7 : 15;
    int sign = signbit(x) ? 0x80 : 0, low = 0, high = largest_code(elem), exponent = 0;
    if (isnan(x))
        return (unsigned char)(sign | 0x7f);

    /* Magnitudes ascend with their codes: the last one not above |x|, and the next. |x|'s exponent leaves few to look
     * among. */
    double size = fabs((double)x);
    if (size >= kvb_codec_fp8_value(elem, (unsigned char)high))
        return (unsigned char)(sign | high);
    frexp(size, &exponent); /* 2^(exponent - 1) <= size */
    if (size > 0 && exponent - 1 + bias > 0)
        low = (exponent - 1 + bias) << man_bits;
    high = high < low + (1 << man_bits) ? high : low + (1 << man_bits);
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (kvb_codec_fp8_value(elem, (unsigned char)middle) <= size)
            low = middle;
        else
            high = middle;
    }
    double below = size - kvb_codec_fp8_value(elem, (unsigned char)low);
    double above = kvb_codec_fp8_value(elem, (unsigned char)high) - size;
    if (below > above || (below == above && low % 2))
        low = high;
    return (unsigned char)(sign | low);
}

static size_t fp8_bytes(const kvb_codec *codec, uint32_t dim, int part)
{
    return part == KVB_CODES ? dim : part == KVB_SCALES && codec->group ? 4 : 0;
}

static void fp8_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                       unsigned char *const part[KVB_PARTS])
{
    float largest = (float)kvb_codec_fp8_value(codec->elem, (unsigned char)largest_code(codec->elem));
    for (uint32_t r = 0; r < n; r++) {
        const float *x = rows + (size_t)r * dim;
        float scale = head_scale;
        if (codec->group) {
            scale = kvb_codec_amax(x, dim, FLT_MAX) / largest;
            kvb_codec_f32_put(part[KVB_SCALES], r, scale);
        }
        for (uint32_t c = 0; c < dim; c++) {
            float y = isnan(x[c]) ? x[c] : scale > 0 ? x[c] / scale : copysignf(0, x[c]);
            part[KVB_CODES][(size_t)r * dim + c] = kvb_codec_fp8(codec->elem, y);
        }
    }
}

static void fp8_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                       float head_scale, double *row, double *size)
{
    double scale = codec->group ? kvb_codec_f32_get(part[KVB_SCALES], 0) : (double)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        row[c] = kvb_codec_fp8_value(codec->elem, part[KVB_CODES][c]) * scale;
        size[c] = fabs(row[c]);
    }
}

#define FP8(NAME, ELEM, GROUP)                                                                                         \
    {                                                                                                                  \
        NAME, 1, false, ELEM, 8, GROUP, fp8_bytes, fp8_encode, fp8_decode                                              \
    }

const kvb_codec kvb_codec_fp8s[KVB_FP8S] = {
    FP8("e4m3", KVB_E4M3, 0),      FP8("e4m3-tensor", KVB_E4M3, 0),
    FP8("e4m3-head", KVB_E4M3, 0), FP8("e4m3-token", KVB_E4M3, KVB_GROUP_ROW),
    FP8("e5m2", KVB_E5M2, 0),      FP8("e5m2-tensor", KVB_E5M2, 0),
    FP8("e5m2-head", KVB_E5M2, 0), FP8("e5m2-token", KVB_E5M2, KVB_GROUP_ROW),
};
