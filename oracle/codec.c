/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs: floats, each family of narrower formats, and the table of all. An encoded float value is rounded in
 * double, as "the nearest multiple of the spacing there", and not by shifting and masking bits as a pool would.
 */
#include "oracle/codec.h"

#include <float.h>
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

/* The values of all 16-bit codes: decoding reads a scale and a zero for every element. */
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

/* ---- helpers --------------------------------------------------------------------------------------------- */

/* x for codes without NaN: NaN becomes 0, and a magnitude beyond the limit, also infinity, becomes the limit. */
static float codec_limited(float x, float limit)
{
    if (isnan(x))
        return 0;
    return fabsf(x) > limit ? copysignf(limit, x) : x;
}

#define F16_LIMIT 65504.0f /* of elements over scales of f16 */

static bool is_below(float a, float b)
{
    return a < b || (a == 0 && b == 0 && signbit(a) && !signbit(b));
}

/* Least and largest of n limited elements that lie `stride` apart; -0 is below +0. */
static void range_of(const float *x, size_t stride, uint32_t n, float limit, float *lo, float *hi)
{
    *lo = *hi = codec_limited(x[0], limit);
    for (uint32_t i = 1; i < n; i++) {
        float v = codec_limited(x[i * stride], limit);
        *lo = is_below(v, *lo) ? v : *lo;
        *hi = is_below(*hi, v) ? v : *hi;
    }
}

/* The largest |x| of n elements after codec_limited(). */
static float codec_amax(const float *x, uint32_t n, float limit)
{
    float amax = 0;
    for (uint32_t i = 0; i < n; i++)
        amax = fmaxf(amax, fabsf(codec_limited(x[i], limit)));
    return amax;
}

/* Index of the nearest to x of n ascending values. A tie goes to the even index. */
static int codec_nearest(const double *values, int n, double x)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        double distance = fabs(x - values[i]), least = fabs(x - values[best]);
        if (distance < least || (distance == least && i % 2 == 0))
            best = i;
    }
    return best;
}

static void codec_put(unsigned char *codes, uint32_t bits, uint32_t i, unsigned code)
{
    size_t at = (size_t)i * bits;
    unsigned shift = at % 8, mask = ((1u << bits) - 1) << shift, placed = code << shift;
    codes += at / 8;
    codes[0] = (unsigned char)((codes[0] & ~mask) | (placed & mask));
    if (shift + bits > 8)
        codes[1] = (unsigned char)((codes[1] & ~(mask >> 8)) | (placed & mask) >> 8);
}

/* Code i of a row. In all formats codes of `bits` bits, at most 8, are one stream, low bits first. */
static unsigned codec_get(const unsigned char *codes, uint32_t bits, uint32_t i)
{
    size_t at = (size_t)i * bits;
    unsigned shift = at % 8, both = codes[at / 8] | (shift + bits > 8 ? (unsigned)codes[at / 8 + 1] << 8 : 0);
    return both >> shift & ((1u << bits) - 1);
}

static void codec_f16_put(unsigned char *table, uint32_t i, float x)
{
    uint16_t bits = kvb_codec_f16(x);
    memcpy(table + 2 * (size_t)i, &bits, 2);
}
static double codec_f16_get(const unsigned char *table, uint32_t i)
{
    uint16_t bits;
    memcpy(&bits, table + 2 * (size_t)i, 2);
    return kvb_codec_f16_value(bits);
}
static void codec_f32_put(unsigned char *table, uint32_t i, float x)
{
    memcpy(table + 4 * (size_t)i, &x, 4);
}
static double codec_f32_get(const unsigned char *table, uint32_t i)
{
    float x;
    memcpy(&x, table + 4 * (size_t)i, 4);
    return (double)x;
}

/* ---- floats ---------------------------------------------------------------------------------------------- */

static void float_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                         unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    const layout *l = codec->elem == KVB_F16 ? &layout_f16 : &layout_bf16;
    if (codec->elem == KVB_F32)
        memcpy(part[KVB_CODES], rows, 4 * (size_t)n * dim);
    for (size_t i = 0; i < (size_t)n * dim && codec->elem != KVB_F32; i++) {
        uint16_t code = small_float_encode(l, rows[i]);
        memcpy(part[KVB_CODES] + 2 * i, &code, 2);
    }
}

static void float_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                         float head_scale, double *row, double *size)
{
    (void)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        uint16_t code;
        memcpy(&code, part[KVB_CODES] + 2 * (size_t)c, 2);
        row[c] = codec->elem == KVB_F32   ? codec_f32_get(part[KVB_CODES], c)
                 : codec->elem == KVB_F16 ? kvb_codec_f16_value(code)
                                          : kvb_codec_bf16_value(code);
        size[c] = fabs(row[c]);
    }
}

static const kvb_codec floats[] = {
    {"f32", 1, false, KVB_F32, 32, 0, 0, 0, float_encode, float_decode},
    {"f16", 1, false, KVB_F16, 16, 0, 0, 0, float_encode, float_decode},
    {"bf16", 1, false, KVB_BF16, 16, 0, 0, 0, float_encode, float_decode},
};

/*
 * Reference codecs of the 8-bit floats: OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023. E4M3: bias 7,
 * largest 448, one NaN, no infinity; E5M2: bias 15, largest 57344. Conversion saturates (section 5.2.1, SAT mode).
 *
 *   e4m3         without scale
 *   -tensor,     divided by a scale that is fixed beforehand
 *   -head
 *   -token       divided by the row's largest magnitude / the largest code, f32
 */

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

static unsigned char codec_fp8(kvb_elem elem, float x)
{
    const int man_bits = elem == KVB_E4M3 ? 3 : 2, least = elem == KVB_E4M3 ? -6 : -14; /* exponent of normal numbers */
    const int sign = signbit(x) ? 0x80 : 0, largest = largest_code(elem);
    if (isnan(x))
        return (unsigned char)(sign | 0x7f);
    if (fabs((double)x) >= kvb_codec_fp8_value(elem, (unsigned char)largest))
        return (unsigned char)(sign | largest);
    int e = x != 0 ? ilogbf(x) : least;
    if (e < least)
        e = least;
    /* As a 16-bit float: spacings 2^(e - man_bits), to nearest even; the count carries into the exponent. */
    const int count = (int)rint(fabs((double)x) * kvb_power_of_two(man_bits - e));
    return (unsigned char)(sign | (((e - least) << man_bits) + count));
}

static void fp8_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                       unsigned char *const part[KVB_PARTS])
{
    float largest = (float)kvb_codec_fp8_value(codec->elem, (unsigned char)largest_code(codec->elem));
    for (uint32_t r = 0; r < n; r++) {
        const float *x = rows + (size_t)r * dim;
        float scale = head_scale;
        if (codec->group) {
            scale = codec_amax(x, dim, FLT_MAX) / largest;
            codec_f32_put(part[KVB_SCALES], r, scale);
        }
        for (uint32_t c = 0; c < dim; c++) {
            float y = isnan(x[c]) ? x[c] : scale > 0 ? x[c] / scale : copysignf(0, x[c]);
            part[KVB_CODES][(size_t)r * dim + c] = codec_fp8(codec->elem, y);
        }
    }
}

static void fp8_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                       float head_scale, double *row, double *size)
{
    double scale = codec->group ? codec_f32_get(part[KVB_SCALES], 0) : (double)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        row[c] = kvb_codec_fp8_value(codec->elem, part[KVB_CODES][c]) * scale;
        size[c] = fabs(row[c]);
    }
}

#define FP8(NAME, ELEM, GROUP)                                                                                         \
    {                                                                                                                  \
        NAME, 1, false, ELEM, 8, GROUP, GROUP ? 4 : 0, 0, fp8_encode, fp8_decode                                       \
    }

static const kvb_codec fp8s[] = {
    FP8("e4m3", KVB_E4M3, 0),      FP8("e4m3-tensor", KVB_E4M3, 0),
    FP8("e4m3-head", KVB_E4M3, 0), FP8("e4m3-token", KVB_E4M3, KVB_GROUP_ROW),
    FP8("e5m2", KVB_E5M2, 0),      FP8("e5m2-tensor", KVB_E5M2, 0),
    FP8("e5m2-head", KVB_E5M2, 0), FP8("e5m2-token", KVB_E5M2, KVB_GROUP_ROW),
};

/*
 * Reference codecs of 8-bit integers with one f32 scale a row, uniform quantisation (Jacob et al., CVPR 2018, section 2.1):
 *
 *   int8        code in -127 .. 127, scale = largest magnitude / 127
 *   int8-asym   code in 0 .. 255, scale = (largest - least) / 255, zero = least, with its sign where it is 0
 */

static const float limit = 0x1p126f; /* so that largest - least is finite */

static void int8_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                        unsigned char *const part[KVB_PARTS])
{
    (void)codec, (void)head_scale;
    for (uint32_t r = 0; r < n; r++) {
        const float *x = rows + (size_t)r * dim;
        float scale = codec_amax(x, dim, limit) / 127.0f;
        codec_f32_put(part[KVB_SCALES], r, scale);
        for (uint32_t c = 0; c < dim; c++) {
            float steps = scale > 0 ? rintf(codec_limited(x[c], limit) / scale) : 0;
            int code = (int)fmaxf(-127.0f, fminf(127.0f, steps));
            part[KVB_CODES][(size_t)r * dim + c] = (unsigned char)(code < 0 ? code + 256 : code);
        }
    }
}

static void int8_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                        float head_scale, double *row, double *size)
{
    (void)codec, (void)head_scale;
    double scale = codec_f32_get(part[KVB_SCALES], 0);
    for (uint32_t c = 0; c < dim; c++) {
        int code = part[KVB_CODES][c];
        row[c] = (code > 127 ? code - 256 : code) * scale;
        size[c] = fabs(row[c]);
    }
}

static void uint8_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                         unsigned char *const part[KVB_PARTS])
{
    (void)codec, (void)head_scale;
    for (uint32_t r = 0; r < n; r++) {
        const float *x = rows + (size_t)r * dim;
        float lo, hi;
        range_of(x, 1, dim, limit, &lo, &hi);
        float scale = (hi - lo) / 255.0f;
        codec_f32_put(part[KVB_SCALES], r, scale);
        codec_f32_put(part[KVB_ZEROS], r, lo);
        for (uint32_t c = 0; c < dim; c++) {
            float steps = scale > 0 ? rintf((codec_limited(x[c], limit) - lo) / scale) : 0;
            part[KVB_CODES][(size_t)r * dim + c] = (unsigned char)fminf(255.0f, steps);
        }
    }
}

static void uint8_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                         float head_scale, double *row, double *size)
{
    (void)codec, (void)head_scale;
    double scale = codec_f32_get(part[KVB_SCALES], 0), zero = codec_f32_get(part[KVB_ZEROS], 0);
    for (uint32_t c = 0; c < dim; c++) {
        row[c] = part[KVB_CODES][c] * scale + zero;
        size[c] = part[KVB_CODES][c] * scale + fabs(zero);
    }
}

static const kvb_codec int8s[] = {
    {"int8", 1, false, KVB_INT8, 8, KVB_GROUP_ROW, 4, 0, int8_encode, int8_decode},
    {"int8-asym", 1, false, KVB_UINT8, 8, KVB_GROUP_ROW, 4, 4, uint8_encode, uint8_decode},
};

/*
 * Reference codecs of ggml's blocks of 32 channels: ggml-org/ggml, src/ggml-quants.c, quantize_row_q8_0_ref and so on
 * (for iq4_nl: quantize_row_iq4_nl_impl with ntry = -1), layouts of ggml-common.h. Beyond what is defined there:
 * elements are limited to +-65504, and a factor 1/d that overflows is 0.
 */

enum { BLOCK = 32, HALF = 16 };

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

/* Scales of a row; shared: of a block of rows. */
static uint32_t groups(const kvb_codec *codec, uint32_t dim)
{
    return codec->shared ? dim : codec->group == KVB_GROUP_ROW ? 1 : codec->group ? dim / codec->group : 0;
}

size_t kvb_codec_bytes(const kvb_codec *codec, uint32_t dim, int part)
{
    if (part != KVB_CODES)
        return (size_t)groups(codec, dim) * (part == KVB_SCALES ? codec->scale_bytes : codec->zero_bytes);
    return codec->bits ? ((size_t)dim * codec->bits + 7) / 8 : dim / BLOCK * block_bytes(shape_of(codec->elem));
}

/* ---- layout ---------------------------------------------------------------------------------------------- */

static void block_put(shape s, float d, float min, const int q[BLOCK], unsigned char *block)
{
    codec_f16_put(block, 0, d);
    block += 2;
    if (s.has_min) {
        codec_f16_put(block, 0, min);
        block += 2;
    }
    if (s.has_fifth) {
        for (uint32_t j = 0; j < BLOCK; j++)
            codec_put(block, 1, j, (unsigned)q[j] / 16);
        block += 4;
    }
    for (int j = 0; j < (s.codes_bits == 8 ? BLOCK : HALF); j++)
        block[j] = (unsigned char)(s.codes_bits == 8 ? q[j] & 0xff : q[j] % 16 + q[j + HALF] % 16 * 16);
}

static void block_get(shape s, const unsigned char *block, double *d, double *min, int q[BLOCK])
{
    *d = codec_f16_get(block, 0);
    *min = s.has_min ? codec_f16_get(block, 1) : 0;
    block += s.has_min ? 4 : 2;
    const unsigned char *fifth = block, *codes = block + (s.has_fifth ? 4 : 0);
    for (int j = 0; j < BLOCK; j++) {
        if (s.codes_bits == 8)
            q[j] = codes[j] < 128 ? codes[j] : codes[j] - 256;
        else
            q[j] = j < HALF ? codes[j] % 16 : codes[j - HALF] / 16;
        if (s.has_fifth)
            q[j] += 16 * (int)codec_get(fifth, 1, (uint32_t)j);
    }
}

/* ---- rules: d, m and codes of one block ------------------------------------------------------------------- */

/* The element of largest magnitude with its sign, the first of several; 0 if all are 0. */
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
        /* A tie goes to the upper level, unlike in codec_nearest(). */
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
            x[j] = codec_limited(rows[b * BLOCK + (size_t)j], F16_LIMIT);
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
        NAME, 1, false, ELEM, 0, BLOCK, 0, 0, ggml_encode, ggml_decode                                                 \
    }

static const kvb_codec ggmls[] = {
    GGML("q8_0", KVB_Q8_0), GGML("q5_1", KVB_Q5_1), GGML("q5_0", KVB_Q5_0),
    GGML("q4_1", KVB_Q4_1), GGML("q4_0", KVB_Q4_0), GGML("iq4_nl", KVB_IQ4_NL),
};

/*
 * Reference codecs whose codes count steps from a zero point, with f16 scales and zeros:
 *
 *   aBgN     MLX affine quantisation, N channels a group: ml-explore/mlx, mlx/backend/cpu/quantized.cpp, quantize() with a
 *            16-bit type. The zero point is the edge of the range that lies farther from 0. The scale puts 0 a whole
 *            number of steps away. Codes are made with the f32 scale and bias, before both are rounded to f16.
 *   kiviB-v  KIVI (Liu et al., arXiv 2402.02750, section 3.2 and algorithm 1): 32 channels of one token a group
 *   kiviB-k  the same for one channel of 32 tokens
 *
 * KIVI's rows come in as residual cells held them: rounded to f16.
 */

static float code_of(float x, float zero, float scale, float top)
{
    float difference = x - zero, steps = rintf(difference / scale);
    return steps < 0 ? 0 : steps > top ? top : steps;
}

static float top_of(const kvb_codec *codec)
{
    return (float)((1 << codec->bits) - 1);
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
        unsigned char *codes = part[KVB_CODES] + g / per_row * kvb_codec_bytes(codec, dim, KVB_CODES);
        float lo, hi, bias = 0;
        range_of(x, 1, codec->group, F16_LIMIT, &lo, &hi);
        bool low_edge = fabsf(lo) > fabsf(hi);
        float step = (hi - lo) / top, scale = fmaxf(step, 1e-7f), edge = low_edge ? lo : hi;
        if (!low_edge)
            scale = -scale;
        float steps = rintf(edge / scale);
        if (steps != 0) {
            scale = edge / steps;
            bias = edge;
        }
        codec_f16_put(part[KVB_SCALES], g, scale);
        codec_f16_put(part[KVB_ZEROS], g, bias);
        for (uint32_t c = 0; c < codec->group; c++)
            codec_put(codes, codec->bits, g % per_row * codec->group + c,
                      (unsigned)code_of(codec_limited(x[c], F16_LIMIT), bias, scale, top));
    }
}

/* ---- KIVI ------------------------------------------------------------------------------------------------- */

/* One group: element x[i * stride] becomes code `first` of row i, rows row_codes bytes apart; 0: code first + i of one
 * row. */
static void range_encode(const kvb_codec *codec, const float *x, size_t stride, uint32_t n, unsigned char *codes,
                         uint32_t first, size_t row_codes, unsigned char *const part[KVB_PARTS], uint32_t group)
{
    float top = top_of(codec), lo, hi;
    range_of(x, stride, n, F16_LIMIT, &lo, &hi);
    float range = hi - lo;
    codec_f16_put(part[KVB_SCALES], group, range / top);
    codec_f16_put(part[KVB_ZEROS], group, lo);
    float scale = (float)codec_f16_get(part[KVB_SCALES], group);
    for (uint32_t i = 0; i < n; i++) {
        float v = codec_limited(x[i * stride], F16_LIMIT);
        unsigned code = scale > 0 ? (unsigned)code_of(v, lo, scale, top) : 0;
        codec_put(codes + i * row_codes, codec->bits, row_codes ? first : first + i, code);
    }
}

static void kivi_v_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                          unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    uint32_t per_row = groups(codec, dim);
    for (uint32_t g = 0; g < n * per_row; g++)
        range_encode(codec, rows + (size_t)g * codec->group, 1, codec->group,
                     part[KVB_CODES] + g / per_row * kvb_codec_bytes(codec, dim, KVB_CODES), g % per_row * codec->group,
                     0, part, g);
}

static void kivi_k_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                          unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    memset(part[KVB_CODES], 0, n * kvb_codec_bytes(codec, dim, KVB_CODES)); /* the last byte may have spare bits */
    for (uint32_t c = 0; c < dim; c++)
        range_encode(codec, rows + c, dim, n, part[KVB_CODES], c, kvb_codec_bytes(codec, dim, KVB_CODES), part, c);
}

/* ---- decoding, the same for all ----------------------------------------------------------------------------- */

static void affine_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                          float head_scale, double *row, double *size)
{
    (void)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        uint32_t g = codec->shared ? c : c / codec->group;
        double product = codec_get(part[KVB_CODES], codec->bits, c) * codec_f16_get(part[KVB_SCALES], g);
        double zero = codec_f16_get(part[KVB_ZEROS], g);
        row[c] = product + zero;
        size[c] = fabs(product) + fabs(zero);
    }
}

#define MLX(NAME, ELEM, BITS, GROUP)                                                                                   \
    {                                                                                                                  \
        NAME, 1, false, ELEM, BITS, GROUP, 2, 2, mlx_encode, affine_decode                                             \
    }
#define MLX3(B)                                                                                                        \
    MLX("a" #B "g32", KVB_UINT##B, B, 32), MLX("a" #B "g64", KVB_UINT##B, B, 64),                                      \
        MLX("a" #B "g128", KVB_UINT##B, B, 128)

static const kvb_codec affines[] = {
    MLX3(8),
    MLX3(4),
    MLX3(2),
    {"kivi4-v", 32, false, KVB_UINT4, 4, 32, 2, 2, kivi_v_encode, affine_decode},
    {"kivi2-v", 32, false, KVB_UINT2, 2, 32, 2, 2, kivi_v_encode, affine_decode},
    {"kivi4-k", 32, true, KVB_UINT4, 4, 0, 2, 2, kivi_k_encode, affine_decode},
    {"kivi2-k", 32, true, KVB_UINT2, 2, 0, 2, 2, kivi_k_encode, affine_decode},
};

/*
 * Reference codecs of 4-bit floats E2M1 (0 0.5 1 1.5 2 3 4 6 and their negatives) in small groups:
 *
 *   mxfp4   OCP Microscaling Formats (MX) Specification v1.0, sections 5.3.3 (E2M1), 5.4 (E8M0) and 6.3 (conversion): 32
 *           channels over 2^e, e = floor(log2(largest magnitude)) - 2, stored as e + 127
 *   nvfp4   NVIDIA's NVFP4: 16 channels over an E4M3 scale, times one f32 for all, chosen so that both ranges are used
 */

static const double mx_levels[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/* Beyond 6 the nearest value is 6. */
static unsigned e2m1(double y)
{
    return (unsigned)codec_nearest(mx_levels, 8, fmin(fabs(y), 6)) + (signbit(y) ? 8 : 0);
}

static double e2m1_value(unsigned code)
{
    return code & 8 ? -mx_levels[code & 7] : mx_levels[code];
}

static void mxfp4_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                         unsigned char *const part[KVB_PARTS])
{
    (void)head_scale;
    for (uint32_t g = 0; g < n * dim / codec->group; g++) {
        const float *x = rows + (size_t)g * codec->group;
        float amax = codec_amax(x, codec->group, FLT_MAX);
        int e = amax > 0 ? ilogbf(amax) - 2 : -127;
        if (e < -127)
            e = -127;
        part[KVB_SCALES][g] = (unsigned char)(e + 127);
        for (uint32_t c = 0; c < codec->group; c++)
            codec_put(part[KVB_CODES], 4, g * codec->group + c,
                      e2m1((double)codec_limited(x[c], FLT_MAX) * kvb_power_of_two(-e)));
    }
}

static void mxfp4_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                         float head_scale, double *row, double *size)
{
    (void)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        int code = part[KVB_SCALES][c / codec->group];
        row[c] = code == 255 ? NAN : e2m1_value(codec_get(part[KVB_CODES], 4, c)) * kvb_power_of_two(code - 127);
        size[c] = fabs(row[c]);
    }
}

static void nvfp4_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                         unsigned char *const part[KVB_PARTS])
{
    for (uint32_t g = 0; g < n * dim / codec->group; g++) {
        const float *x = rows + (size_t)g * codec->group;
        float sixth = codec_amax(x, codec->group, FLT_MAX) / 6.0f;
        unsigned char scale = codec_fp8(KVB_E4M3, sixth / head_scale);
        float step = (float)kvb_codec_fp8_value(KVB_E4M3, scale) * head_scale;
        part[KVB_SCALES][g] = scale;
        for (uint32_t c = 0; c < codec->group; c++) {
            float v = codec_limited(x[c], FLT_MAX), y = step > 0 ? v / step : copysignf(0, v);
            codec_put(part[KVB_CODES], 4, g * codec->group + c, e2m1((double)y));
        }
    }
}

static void nvfp4_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                         float head_scale, double *row, double *size)
{
    for (uint32_t c = 0; c < dim; c++) {
        double scale = kvb_codec_fp8_value(KVB_E4M3, part[KVB_SCALES][c / codec->group]);
        row[c] = e2m1_value(codec_get(part[KVB_CODES], 4, c)) * scale * (double)head_scale;
        size[c] = fabs(row[c]);
    }
}

static const kvb_codec mxs[] = {
    {"mxfp4", 1, false, KVB_E2M1, 4, 32, 1, 0, mxfp4_encode, mxfp4_decode},
    {"nvfp4", 1, false, KVB_E2M1, 4, 16, 1, 0, nvfp4_encode, nvfp4_decode},
};

/*
 * Reference codecs tq4 and tq3: TurboQuant (Zandieh et al., arXiv 2504.19874, algorithm 1, the variant for least mean
 * squared error). A row has been rotated, so that its elements over their root mean square are nearly N(0, 1); each is
 * replaced by the nearest level of the quantiser that is best for N(0, 1), found by J. Max, Quantizing for Minimum
 * Distortion, IRE Trans. Inf. Theory 6, 1960, table I (N = 16 and 8).
 */

static const float max_16[8] = {0.1284f, 0.3881f, 0.6568f, 0.9424f, 1.256f, 1.618f, 2.069f, 2.733f};
static const float max_8[4] = {0.2451f, 0.7560f, 1.344f, 2.152f};

/* The table has the positive half. */
static float level(uint32_t bits, unsigned code)
{
    const float *half = bits == 4 ? max_16 : max_8;
    unsigned n = 1u << (bits - 1);
    return code < n ? -half[n - 1 - code] : half[code - n];
}

/* The order of additions is the format's: 16 sums, folded in halves. */
static double sum_of_squares(const float *x, uint32_t dim)
{
    double sum[16] = {0};
    for (uint32_t c = 0; c < dim; c++) {
        double v = (double)codec_limited(x[c], F16_LIMIT);
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
        codec_f16_put(part[KVB_SCALES], r, fminf(rms, F16_LIMIT));
        float scale = (float)codec_f16_get(part[KVB_SCALES], r);
        for (uint32_t c = 0; c < dim; c++) {
            float y = scale > 0 ? codec_limited(x[c], F16_LIMIT) / scale : 0;
            unsigned code = 0;
            for (unsigned k = 0; k + 1 < 1u << codec->bits; k++) {
                float sum = level(codec->bits, k) + level(codec->bits, k + 1), border = sum * 0.5f;
                code += y > border;
            }
            codec_put(part[KVB_CODES] + r * kvb_codec_bytes(codec, dim, KVB_CODES), codec->bits, c, code);
        }
    }
}

static void codebook_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                            float head_scale, double *row, double *size)
{
    (void)head_scale;
    for (uint32_t c = 0; c < dim; c++) {
        row[c] =
            (double)level(codec->bits, codec_get(part[KVB_CODES], codec->bits, c)) * codec_f16_get(part[KVB_SCALES], 0);
        size[c] = fabs(row[c]);
    }
}

static const kvb_codec codebooks[] = {
    {"tq4", 1, false, KVB_CODEBOOK, 4, KVB_GROUP_ROW, 2, 0, codebook_encode, codebook_decode},
    {"tq3", 1, false, KVB_CODEBOOK, 3, KVB_GROUP_ROW, 2, 0, codebook_encode, codebook_decode},
};

/* ---- the table ------------------------------------------------------------------------------------------- */

#define TWO(F)  F, F + 1
#define FOUR(F) TWO(F), TWO(F + 2)

const kvb_codec *const kvb_codecs[] = {
    TWO(floats),   floats + 2,        FOUR(fp8s),        FOUR(fp8s + 4), TWO(int8s), FOUR(ggmls),    TWO(ggmls + 4),
    FOUR(affines), FOUR(affines + 4), FOUR(affines + 8), affines + 12,   TWO(mxs),   TWO(codebooks), NULL,
};

const kvb_codec *kvb_codec_find(const char *format_name)
{
    size_t n = strcspn(format_name, "+");
    for (const kvb_codec *const *codec = kvb_codecs; *codec; codec++)
        if (strlen((*codec)->name) == n && strncmp((*codec)->name, format_name, n) == 0)
            return *codec;
    return NULL;
}

/* Only the name tells the kind of head scale; nvfp4 has one for the whole tensor. */
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

/*
 * The transform of view.h: Walsh-Hadamard in natural order on blocks of a row, the factor 1/sqrt(block); Fino and
 * Algazi, Unified Matrix Treatment of the Fast Walsh-Hadamard Transform, IEEE Trans. Computers 25, 1976.
 */

static float factor(uint32_t block)
{
    return (float)(1 / sqrt(block));
}

static void signs_flip(kvb_transform transform, uint32_t dim, float *row)
{
    for (uint32_t c = 0; c < dim; c++)
        if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && kvb_sign_flip(c))
            row[c] = -row[c];
}

static void stages(uint32_t dim, float *row)
{
    uint32_t block = kvb_transform_block(dim);
    float f = factor(block);
    for (uint32_t distance = 1; distance < block; distance *= 2)
        for (uint32_t c = 0; c < dim; c++)
            if (c / distance % 2 == 0) {
                float a = row[c], b = row[c + distance];
                row[c] = a + b;
                row[c + distance] = a - b;
            }
    for (uint32_t c = 0; c < dim; c++)
        row[c] *= f;
}

void kvb_codec_rotate(kvb_transform transform, uint32_t dim, float *row)
{
    signs_flip(transform, dim, row);
    if (transform != KVB_TRANSFORM_NONE)
        stages(dim, row);
}

void kvb_codec_unrotate_f32(kvb_transform transform, uint32_t dim, float *row)
{
    if (transform != KVB_TRANSFORM_NONE)
        stages(dim, row);
    signs_flip(transform, dim, row);
}

void kvb_codec_unrotate(kvb_transform transform, uint32_t dim, double *row)
{
    if (transform == KVB_TRANSFORM_NONE)
        return;
    uint32_t block = kvb_transform_block(dim);
    float f = factor(block);
    for (uint32_t distance = 1; distance < block; distance *= 2)
        for (uint32_t c = 0; c < dim; c++)
            if (c / distance % 2 == 0) {
                double a = row[c], b = row[c + distance];
                row[c] = a + b;
                row[c + distance] = a - b;
            }
    for (uint32_t c = 0; c < dim; c++) {
        row[c] *= (double)f;
        if (transform == KVB_TRANSFORM_SIGNED_HADAMARD && kvb_sign_flip(c))
            row[c] = -row[c];
    }
}
