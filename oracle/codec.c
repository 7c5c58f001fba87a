/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs of the float formats. An encoded value is rounded in double, as "the nearest multiple of
 * the spacing there", and not by shifting and masking bits as a pool would.
 */
#include "oracle/codec.h"

#include <math.h>
#include <string.h>

/* A 16-bit float: sign, exponent, `man` mantissa bits. Exponents of normal numbers begin at min_exp. */
typedef struct layout {
    int man;
    int min_exp;
    uint32_t inf; /* bits of +infinity */
} layout;

static const layout layout_f16 = {.man = 10, .min_exp = -14, .inf = 0x7c00};
static const layout layout_bf16 = {.man = 7, .min_exp = -126, .inf = 0x7f80};

/* 2^e for a normal double. */
static double power_of_two(int e)
{
    uint64_t bits = (uint64_t)(1023 + e) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t small_float_encode(const layout *l, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN: the upper payload bits stay, the quiet bit is set */
        return (uint16_t)(sign | l->inf | 1u << (l->man - 1) | (magnitude & 0x7fffff) >> (23 - l->man));
    if (magnitude == 0x7f800000)
        return (uint16_t)(sign | l->inf);

    int e = (int)(magnitude >> 23) - 127; /* -127 for binary32 subnormals: below min_exp in any case */
    if (e < l->min_exp)
        e = l->min_exp;
    /* How many spacings 2^(e - man): exact, then rounded to nearest even. A count of 2^(man + 1) carries into
     * the exponent by itself, and one below 2^man is a subnormal. */
    uint32_t count = (uint32_t)rint(fabs((double)x) * power_of_two(l->man - e));
    uint32_t code = ((uint32_t)(e - l->min_exp) << l->man) + count;
    return (uint16_t)(sign | (code < l->inf ? code : l->inf));
}

static double small_float_decode(const layout *l, uint16_t bits)
{
    double sign = bits & 0x8000 ? -1.0 : 1.0;
    uint32_t magnitude = bits & 0x7fff, field = magnitude >> l->man, man = magnitude & ((1u << l->man) - 1);
    if (magnitude > l->inf)
        return NAN;
    if (magnitude == l->inf)
        return sign * INFINITY;
    if (field == 0)
        return sign * man * power_of_two(l->min_exp - l->man);
    return sign * (man + (1u << l->man)) * power_of_two((int)field - 1 + l->min_exp - l->man);
}

uint16_t kvb_codec_f16(float x)
{
    return small_float_encode(&layout_f16, x);
}
uint16_t kvb_codec_bf16(float x)
{
    return small_float_encode(&layout_bf16, x);
}
double kvb_codec_f16_value(uint16_t bits)
{
    return small_float_decode(&layout_f16, bits);
}
double kvb_codec_bf16_value(uint16_t bits)
{
    return small_float_decode(&layout_bf16, bits);
}

/* ---- rows ------------------------------------------------------------------------------------------- */

static size_t row_bytes_4(uint32_t dim)
{
    return 4 * (size_t)dim;
}
static size_t row_bytes_2(uint32_t dim)
{
    return 2 * (size_t)dim;
}

static void encode_f32(const float *row, uint32_t dim, void *bytes)
{
    memcpy(bytes, row, 4 * (size_t)dim);
}

static void decode_f32(const void *bytes, uint32_t dim, double *row)
{
    for (uint32_t c = 0; c < dim; c++) {
        float x;
        memcpy(&x, (const char *)bytes + 4 * (size_t)c, 4);
        row[c] = (double)x;
    }
}

static void encode_16(const layout *l, const float *row, uint32_t dim, void *bytes)
{
    for (uint32_t c = 0; c < dim; c++) {
        uint16_t code = small_float_encode(l, row[c]);
        memcpy((char *)bytes + 2 * (size_t)c, &code, 2);
    }
}

static void decode_16(const layout *l, const void *bytes, uint32_t dim, double *row)
{
    for (uint32_t c = 0; c < dim; c++) {
        uint16_t code;
        memcpy(&code, (const char *)bytes + 2 * (size_t)c, 2);
        row[c] = small_float_decode(l, code);
    }
}

static void encode_f16(const float *row, uint32_t dim, void *bytes)
{
    encode_16(&layout_f16, row, dim, bytes);
}
static void decode_f16(const void *bytes, uint32_t dim, double *row)
{
    decode_16(&layout_f16, bytes, dim, row);
}
static void encode_bf16(const float *row, uint32_t dim, void *bytes)
{
    encode_16(&layout_bf16, row, dim, bytes);
}
static void decode_bf16(const void *bytes, uint32_t dim, double *row)
{
    decode_16(&layout_bf16, bytes, dim, row);
}

static const kvb_codec codec_f32 = {"f32", row_bytes_4, encode_f32, decode_f32};
static const kvb_codec codec_f16 = {"f16", row_bytes_2, encode_f16, decode_f16};
static const kvb_codec codec_bf16 = {"bf16", row_bytes_2, encode_bf16, decode_bf16};

const kvb_codec *const kvb_codecs[] = {&codec_f32, &codec_f16, &codec_bf16, NULL};

const kvb_codec *kvb_codec_find(const char *format_name)
{
    for (const kvb_codec *const *codec = kvb_codecs; *codec; codec++)
        if (strcmp((*codec)->name, format_name) == 0)
            return *codec;
    return NULL;
}
