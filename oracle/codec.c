/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs of the float formats, and the table of all. An encoded value is rounded in double, as "the nearest
 * multiple of the spacing there", and not by shifting and masking bits as a pool would.
 */
#include "oracle/codec_parts.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* A 16-bit float: sign, exponent, `man` mantissa bits. Exponents of normal numbers begin at min_exp. */
typedef struct layout {
    int man;
    int min_exp;
    uint32_t inf; /* bits of +infinity */
} layout;

static const layout layout_f16 = {.man = 10, .min_exp = -14, .inf = 0x7c00};
static const layout layout_bf16 = {.man = 7, .min_exp = -126, .inf = 0x7f80};

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
    uint32_t count = (uint32_t)rint(fabs((double)x) * kvb_power_of_two(l->man - e));
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
        return sign * man * kvb_power_of_two(l->min_exp - l->man);
    return sign * (man + (1u << l->man)) * kvb_power_of_two((int)field - 1 + l->min_exp - l->man);
}

uint16_t kvb_codec_f16(float x)
{
    return small_float_encode(&layout_f16, x);
}
uint16_t kvb_codec_bf16(float x)
{
    return small_float_encode(&layout_bf16, x);
}

/* All of them: scales and zeros are read for every element. */
static double f16_values[1 << 16];
static pthread_once_t f16_values_once = PTHREAD_ONCE_INIT;
static void f16_values_make(void)
{
    for (uint32_t bits = 0; bits < 1 << 16; bits++)
        f16_values[bits] = small_float_decode(&layout_f16, (uint16_t)bits);
}
double kvb_codec_f16_value(uint16_t bits)
{
    pthread_once(&f16_values_once, f16_values_make);
    return f16_values[bits];
}
double kvb_codec_bf16_value(uint16_t bits)
{
    return small_float_decode(&layout_bf16, bits);
}

/* ---- rows ------------------------------------------------------------------------------------------- */

/* Bytes of a row of plain elements; there are no scales. */
static size_t bytes_4(const kvb_codec *codec, uint32_t dim, int part)
{
    (void)codec;
    return part == KVB_CODES ? 4 * (size_t)dim : 0;
}
static size_t bytes_2(const kvb_codec *codec, uint32_t dim, int part)
{
    (void)codec;
    return part == KVB_CODES ? 2 * (size_t)dim : 0;
}

static void encode_f32(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                       unsigned char *const part[KVB_PARTS])
{
    (void)codec, (void)head_scale;
    memcpy(part[KVB_CODES], rows, 4 * (size_t)n * dim);
}

static void decode_f32(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                       float head_scale, double *row, double *size)
{
    (void)codec, (void)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        float x;
        memcpy(&x, part[KVB_CODES] + 4 * (size_t)c, 4);
        row[c] = (double)x;
        size[c] = fabs(row[c]);
    }
}

static void encode_16(const layout *l, const float *rows, size_t n, unsigned char *codes)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t code = small_float_encode(l, rows[i]);
        memcpy(codes + 2 * i, &code, 2);
    }
}

static void decode_16(const layout *l, const unsigned char *codes, uint32_t dim, double *row, double *size)
{
    for (uint32_t c = 0; c < dim; c++) {
        uint16_t code;
        memcpy(&code, codes + 2 * (size_t)c, 2);
        row[c] = small_float_decode(l, code);
        size[c] = fabs(row[c]);
    }
}

static void encode_f16(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                       unsigned char *const part[KVB_PARTS])
{
    (void)codec, (void)head_scale;
    encode_16(&layout_f16, rows, (size_t)n * dim, part[KVB_CODES]);
}
static void decode_f16(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                       float head_scale, double *row, double *size)
{
    (void)codec, (void)head_scale;
    decode_16(&layout_f16, part[KVB_CODES], dim, row, size);
}
static void encode_bf16(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                        unsigned char *const part[KVB_PARTS])
{
    (void)codec, (void)head_scale;
    encode_16(&layout_bf16, rows, (size_t)n * dim, part[KVB_CODES]);
}
static void decode_bf16(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                        float head_scale, double *row, double *size)
{
    (void)codec, (void)head_scale;
    decode_16(&layout_bf16, part[KVB_CODES], dim, row, size);
}

static const kvb_codec floats[] = {
    {"f32", 1, false, KVB_F32, 32, 0, bytes_4, encode_f32, decode_f32},
    {"f16", 1, false, KVB_F16, 16, 0, bytes_2, encode_f16, decode_f16},
    {"bf16", 1, false, KVB_BF16, 16, 0, bytes_2, encode_bf16, decode_bf16},
};

/* ---- the table ------------------------------------------------------------------------------------------- */

#define TWO(F)  F, F + 1
#define FOUR(F) TWO(F), TWO(F + 2)

const kvb_codec *const kvb_codecs[] = {
    TWO(floats),
    floats + 2,
    FOUR(kvb_codec_fp8s),
    FOUR(kvb_codec_fp8s + 4),
    TWO(kvb_codec_int8s),
    FOUR(kvb_codec_ggmls),
    TWO(kvb_codec_ggmls + 4),
    FOUR(kvb_codec_affines),
    FOUR(kvb_codec_affines + 4),
    FOUR(kvb_codec_affines + 8),
    kvb_codec_affines + 12,
    TWO(kvb_codec_mxs),
    TWO(kvb_codec_codebooks),
    NULL,
};

const kvb_codec *kvb_codec_find(const char *format_name)
{
    size_t n = strcspn(format_name, "+");
    for (const kvb_codec *const *codec = kvb_codecs; *codec; codec++)
        if (strlen((*codec)->name) == n && strncmp((*codec)->name, format_name, n) == 0)
            return *codec;
    return NULL;
}

/* Kinds of head scales are told by names alone: nvfp4 has one of the whole tensor. */
static kvb_static_scale head_scale_of(const kvb_codec *codec)
{
    return strstr(codec->name, "-head")                                          ? KVB_STATIC_HEAD
           : strstr(codec->name, "-tensor") || strcmp(codec->name, "nvfp4") == 0 ? KVB_STATIC_TENSOR
                                                                                 : KVB_STATIC_NONE;
}

const kvb_codec *kvb_codec_alike(const kvb_format *f)
{
    for (const kvb_codec *const *codec = kvb_codecs; *codec; codec++) {
        const kvb_codec *c = *codec;
        const bool grouped =
            c->shared ? f->axis == KVB_AXIS_TOKENS : f->axis != KVB_AXIS_TOKENS && f->group == c->group;
        if (c->elem == f->elem && grouped && c->block == (f->residual_cells ? f->residual_cells : 1) &&
            head_scale_of(c) == f->head_scale && (f->elem != KVB_CODEBOOK || c->bits == f->level_bits))
            return c;
    }
    return NULL;
}

float kvb_codec_head_scale(const kvb_format *format, const float *amax, uint32_t n_kv_heads, uint32_t h)
{
    if (format->head_scale == KVB_STATIC_NONE || !amax)
        return 1.0f;
    float most = amax[h];
    if (format->head_scale == KVB_STATIC_TENSOR)
        for (uint32_t other = 0; other < n_kv_heads; other++)
            most = fmaxf(most, amax[other]);
    float largest = format->elem == KVB_E4M3 ? 448.0f : format->elem == KVB_E5M2 ? 57344.0f : 6.0f * 448.0f;
    float scale = most / largest;
    return scale > 0 && isfinite(scale) ? scale : 1.0f;
}

/* ---- helpers --------------------------------------------------------------------------------------------- */

float kvb_codec_limited(float x, float limit)
{
    if (isnan(x))
        return 0;
    return fabsf(x) > limit ? copysignf(limit, x) : x;
}

float kvb_codec_amax(const float *x, uint32_t n, float limit)
{
    float amax = 0;
    for (uint32_t i = 0; i < n; i++)
        amax = fmaxf(amax, fabsf(kvb_codec_limited(x[i], limit)));
    return amax;
}

int kvb_codec_nearest(const double *values, int n, double x)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        double distance = fabs(x - values[i]), least = fabs(x - values[best]);
        if (distance < least || (distance == least && i % 2 == 0))
            best = i;
    }
    return best;
}

void kvb_codec_put(unsigned char *codes, uint32_t bits, uint32_t i, unsigned code)
{
    size_t at = (size_t)i * bits;
    unsigned shift = at % 8, mask = ((1u << bits) - 1) << shift, placed = code << shift;
    codes += at / 8;
    codes[0] = (unsigned char)((codes[0] & ~mask) | (placed & mask));
    if (shift + bits > 8)
        codes[1] = (unsigned char)((codes[1] & ~(mask >> 8)) | (placed & mask) >> 8);
}

unsigned kvb_codec_get(const unsigned char *codes, uint32_t bits, uint32_t i)
{
    size_t at = (size_t)i * bits;
    unsigned shift = at % 8, both = codes[at / 8] | (shift + bits > 8 ? (unsigned)codes[at / 8 + 1] << 8 : 0);
    return both >> shift & ((1u << bits) - 1);
}

void kvb_codec_f16_put(unsigned char *table, uint32_t i, float x)
{
    uint16_t bits = kvb_codec_f16(x);
    memcpy(table + 2 * (size_t)i, &bits, 2);
}
double kvb_codec_f16_get(const unsigned char *table, uint32_t i)
{
    uint16_t bits;
    memcpy(&bits, table + 2 * (size_t)i, 2);
    return kvb_codec_f16_value(bits);
}
void kvb_codec_f32_put(unsigned char *table, uint32_t i, float x)
{
    memcpy(table + 4 * (size_t)i, &x, 4);
}
double kvb_codec_f32_get(const unsigned char *table, uint32_t i)
{
    float x;
    memcpy(&x, table + 4 * (size_t)i, 4);
    return (double)x;
}
