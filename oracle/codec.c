/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference codecs. A format is a row of a table: how a scale and a zero are fitted to a group of elements, how an element
 * is coded with them, and what a code stands for. A float is rounded in double, as "the nearest multiple of the spacing
 * there", and not by shifting and masking bits as a pool would.
 */
#include "oracle/codec.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/model.h"
#include "workloads/array.h"

/* ---- floats ---------------------------------------------------------------------------------------------- */

/*
 * A float of few bits: sign, exponent, `man` mantissa bits. Exponents of normal numbers begin at min_exp. IEEE 754; OCP 8-bit
 * Floating Point Specification (OFP8), revision 1.0, 2023: E4M3 has one NaN and no infinity, and conversion saturates
 * (section 5.2.1, SAT mode); E2M1: OCP Microscaling Formats (MX) Specification v1.0, section 5.3.3.
 */
typedef struct layout {
    int man, min_exp;
    uint32_t bits;
    uint32_t finite, inf, nan; /* codes of the largest number, of infinity and of NaN; 0: there is none */
} layout;

static const layout layouts[] = {
    [KVB_F16] = {10, -14, 16, 0x7bff, 0x7c00, 0x7e00},
    [KVB_BF16] = {7, -126, 16, 0x7f7f, 0x7f80, 0x7fc0},
    [KVB_E4M3] = {3, -6, 8, 0x7e, 0, 0x7f},
    [KVB_E5M2] = {2, -14, 8, 0x7b, 0x7c, 0x7f},
    [KVB_E2M1] = {1, 0, 4, 7, 0, 0},
};

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t float_code(const layout *l, float x)
{
    const uint32_t bits = bits_of(x), payload = bits & 0x7fffff, sign = bits >> 31 << (l->bits - 1);
    const uint32_t most = l->bits < 16 ? l->finite : l->inf;
    const int exponent = (int)(bits >> 23 & 0xff) - 127; /* -127 for subnormals: below min_exp in any case */
    const int e = exponent < l->min_exp ? l->min_exp : exponent;
    /* How many spacings 2^(e - man): exact, then rounded to nearest even. A count of 2^(man + 1) carries into
     * the exponent by itself, and one below 2^man is a subnormal. */
    const double size = exponent == 128 ? 0 : fabs((double)x);
    const int count = (int)rint(size * kvb_power_of_two(l->man - e));
    const uint32_t code = ((uint32_t)(e - l->min_exp) << l->man) + (uint32_t)count;
    const uint32_t special = payload ? l->nan | payload >> (23 - l->man) : most; /* the upper payload bits stay */
    return sign | (exponent == 128 ? special : code < most ? code : most);
}

/* Without branches, so that loops of it are compiled to vectors. */
static inline double float_value(const layout *l, uint32_t code)
{
    const double sign = 1.0 - 2.0 * (code >> (l->bits - 1) & 1);
    const uint32_t magnitude = code & ((1u << (l->bits - 1)) - 1), field = magnitude >> l->man, normal = field > 0;
    const int count = (int)((magnitude & ((1u << l->man) - 1)) | normal << l->man),
              exponent = (int)(field + 1 - normal);
    const double beyond = magnitude <= l->finite ? 0 : magnitude == l->inf ? (double)INFINITY : (double)NAN;
    return sign * (count * kvb_power_of_two(exponent - 1 + l->min_exp - l->man) + beyond);
}

uint16_t kvb_codec_code(kvb_elem elem, float x)
{
    return (uint16_t)(elem == KVB_E8M0 ? bits_of(x) >> 23 & 0xff : float_code(&layouts[elem], x));
}

double kvb_codec_value(kvb_elem elem, uint32_t code)
{
    if (elem == KVB_F32)
        return (double)float_of(code);
    if (elem == KVB_E8M0)
        return code == 255 ? NAN : kvb_power_of_two((int)code - 127);
    return float_value(&layouts[elem], code);
}

KVB_WIDE static void halves_value(const layout *of, const uint16_t *restrict codes, uint32_t n, double *restrict values)
{
    const layout l = *of;
    for (uint32_t i = 0; i < n; i++)
        values[i] = float_value(&l, codes[i]);
}

/* The nearest multiple of the spacing there; beyond the largest number infinity. */
KVB_WIDE static void row_round(const layout *of, float *row, uint32_t n)
{
    const layout l = *of;
    const double most = float_value(of, l.finite);
    for (uint32_t i = 0; i < n; i++) {
        const int exponent = (int)(bits_of(row[i]) >> 23 & 0xff) - 127, e = exponent < l.min_exp ? l.min_exp : exponent;
        const double size = rint(fabs((double)row[i]) * kvb_power_of_two(l.man - e)) * kvb_power_of_two(e - l.man);
        const float beyond = size > most ? INFINITY : 0;
        row[i] = copysignf((float)size + beyond, row[i]);
    }
}

void kvb_codec_values(kvb_elem elem, const uint16_t *codes, uint32_t n, double *values)
{
    halves_value(&layouts[elem], codes, n, values);
}

void kvb_codec_round(kvb_elem elem, float *row, uint32_t n)
{
    row_round(&layouts[elem], row, n);
}

/* ---- the elements of a group ------------------------------------------------------------------------------ */

/* Elements that share a scale. */
typedef struct kvb_codec_group {
    const float *x; /* [n] */
    uint32_t n;
    float head_scale;
} group;

#define F16_LIMIT 65504.0f /* of elements over scales of f16 */

/* elements[i] = x[i * stride]. Formats with a limit have no codes for NaN and infinity: NaN becomes 0, and a magnitude
 * beyond the limit becomes the limit. limit 0: unchanged. */
KVB_WIDE static void elements_take(const float *x, size_t stride, uint32_t n, float limit, float *restrict elements)
{
    for (uint32_t i = 0; i < n; i++) {
        const float v = x[i * stride], within = fabsf(v) > limit ? copysignf(limit, v) : v == v ? v : 0;
        elements[i] = limit > 0 ? within : v;
    }
}

/* Integers in the order of floats, -0 below +0. Applied twice, it gives the float's bits back. */
static inline int32_t order(int32_t bits)
{
    return bits ^ (bits < 0 ? INT32_MAX : 0);
}

/* The least and the largest element; -0 is below +0. None is NaN. */
KVB_WIDE static void range_of(const group *g, float *lo, float *hi)
{
    const float *x = g->x;
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (uint32_t i = 0; i < g->n; i++) {
        const int32_t at = order((int32_t)bits_of(x[i]));
        least = at < least ? at : least;
        most = at > most ? at : most;
    }
    *lo = float_of((uint32_t)order(least));
    *hi = float_of((uint32_t)order(most));
}

/* The largest magnitude. NaN counts as 0, infinity as the largest float. Magnitudes are in the order of their bits. */
KVB_WIDE static float largest_of(const group *g)
{
    const float *x = g->x;
    uint32_t largest = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const uint32_t magnitude = bits_of(x[i]) & INT32_MAX, counts = magnitude > 0x7f800000 ? 0 : magnitude;
        largest = counts > largest ? counts : largest;
    }
    return float_of(largest < 0x7f7fffff ? largest : 0x7f7fffff);
}

/* ---- scale and zero of a group ----------------------------------------------------------------------------- */

/* Scale and zero are stored. Elements are coded with the scale `by`: the stored one, or the one that it was rounded from. */
typedef struct kvb_codec_fit {
    float scale, zero, by;
} fit;

static float top_of(const kvb_codec *codec)
{
    return (float)((1 << codec->bits) - 1);
}

/* No scale, or only one that is fixed beforehand. */
static fit fit_none(const kvb_codec *codec, const group *g)
{
    return (fit){.by = codec->head_scale ? g->head_scale : 1};
}

/* The largest magnitude gets the largest code: rows of 8-bit floats; int8, uniform quantisation (Jacob et al., CVPR 2018,
 * section 2.1); q8_0. */
static fit fit_largest(const kvb_codec *codec, const group *g)
{
    const bool is_float = codec->elem == KVB_E4M3 || codec->elem == KVB_E5M2;
    const float scale =
        largest_of(g) / (is_float ? (float)kvb_codec_value(codec->elem, layouts[codec->elem].finite) : 127.0f);
    return (fit){.scale = scale, .by = scale};
}

/*
 * Codes count steps from the least element. int8-asym: uniform quantisation, as int8. KIVI (Liu et al., arXiv
 * 2402.02750, section 3.2 and algorithm 1): a group is 32 channels of one token (-v), or one channel of 32 tokens (-k);
 * rows come in as residual cells held them, rounded to f16.
 */
static fit fit_range(const kvb_codec *codec, const group *g)
{
    float lo, hi;
    range_of(g, &lo, &hi);
    const float range = hi - lo, scale = range / top_of(codec);
    return (fit){scale, lo, (float)kvb_codec_rounded(codec->scale_elem, scale)};
}

/*
 * MLX affine quantisation: ml-explore/mlx, mlx/backend/cpu/quantized.cpp, quantize() with a 16-bit type. The zero point is the
 * edge of the range that lies farther from 0. The scale puts 0 a whole number of steps away. Codes are made with the f32 scale
 * and bias, before both are rounded to f16.
 */
static fit fit_mlx(const kvb_codec *codec, const group *g)
{
    float lo, hi, bias = 0;
    range_of(g, &lo, &hi);
    bool low_edge = fabsf(lo) > fabsf(hi);
    float step = (hi - lo) / top_of(codec), scale = fmaxf(step, 1e-7f), edge = low_edge ? lo : hi;
    if (!low_edge)
        scale = -scale;
    float steps = rintf(edge / scale);
    if (steps != 0) {
        scale = edge / steps;
        bias = edge;
    }
    return (fit){scale, bias, scale};
}

/*
 * ggml's blocks of 32 channels: ggml-org/ggml, src/ggml-quants.c, quantize_row_q8_0_ref and so on (for iq4_nl:
 * quantize_row_iq4_nl_impl with ntry = -1), layouts of ggml-common.h. Beyond what is defined there: elements are limited to
 * +-65504, and a factor 1/d that overflows is 0.
 */

static const double iq4_nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* The element of largest magnitude with its sign, the first of several; 0 if all are 0. */
static float peak_of(const group *g)
{
    float most = 0;
    for (uint32_t i = 0; i < g->n; i++)
        if (fabsf(g->x[i]) > fabsf(most))
            most = g->x[i];
    return most;
}

/* Codes about a middle one: the peak gets code 0. */
static fit fit_peak(const kvb_codec *codec, const group *g)
{
    const float scale = peak_of(g) / (float)-(1 << (codec->bits - 1));
    return (fit){.scale = scale, .by = scale};
}

/* Codes from the least element up; of zeros the first is the least. */
static fit fit_least(const kvb_codec *codec, const group *g)
{
    float min = FLT_MAX, max = -FLT_MAX;
    for (uint32_t i = 0; i < g->n; i++) {
        const float x = g->x[i];
        min = x < min ? x : min;
        max = x > max ? x : max;
    }
    const float scale = (max - min) / top_of(codec);
    return (fit){scale, min, scale};
}

#define LOT 64u /* codes that are made, or read, at a time */

KVB_WIDE static void codes_make(const kvb_codec *codec, const float *x, uint32_t n, fit f, uint32_t *codes);

/* Codes by the scale that maps the peak to the first level; then d of least squares, weighted by x^2. */
static fit fit_iq4_nl(const kvb_codec *codec, const group *g)
{
    fit f = {.by = peak_of(g) / (float)iq4_nl_levels[0]};
    if (fabsf(peak_of(g)) < 1e-15f)
        return (fit){0};
    float sum_qx = 0, sum_q2 = 0;
    uint32_t codes[LOT];
    codes_make(codec, g->x, g->n, f, codes);
    for (uint32_t i = 0; i < g->n; i++) {
        const float x = g->x[i], level = (float)iq4_nl_levels[codes[i]];
        float weight = x * x, wq = weight * level, qx = wq * x, q2 = wq * level;
        sum_qx += qx;
        sum_q2 += q2;
    }
    const float best = sum_qx / sum_q2;
    f.scale = isfinite(best) ? best : 0;
    return f;
}

/* mxfp4: OCP Microscaling Formats (MX) Specification v1.0, sections 5.4 (E8M0) and 6.3 (conversion): 32 channels over 2^e,
 * e = floor(log2(largest magnitude)) - 2. */
static fit fit_mxfp4(const kvb_codec *codec, const group *g)
{
    (void)codec;
    const float largest = largest_of(g);
    const int e = largest > 0 ? ilogbf(largest) - 2 : -127;
    const float scale = (float)kvb_power_of_two(e < -127 ? -127 : e);
    return (fit){.scale = scale, .by = scale};
}

/* NVIDIA's NVFP4: 16 channels over an E4M3 scale, times one f32 for all, chosen so that both ranges are used. */
static fit fit_nvfp4(const kvb_codec *codec, const group *g)
{
    const float sixth = largest_of(g) / 6.0f, scale = sixth / g->head_scale;
    return (fit){.scale = scale, .by = (float)kvb_codec_rounded(codec->scale_elem, scale) * g->head_scale};
}

/*
 * tq4 and tq3: TurboQuant (Zandieh et al., arXiv 2504.19874, algorithm 1, the variant for least mean squared error). A row has
 * been rotated, so that its elements over their root mean square are nearly N(0, 1); each is replaced by the nearest level of
 * the quantiser that is best for N(0, 1), found by J. Max, Quantizing for Minimum Distortion, IRE Trans. Inf. Theory 6, 1960,
 * table I (N = 16 and 8).
 */

static const float max_16[8] = {0.1284f, 0.3881f, 0.6568f, 0.9424f, 1.256f, 1.618f, 2.069f, 2.733f};
static const float max_8[4] = {0.2451f, 0.7560f, 1.344f, 2.152f};

/* The table has the positive half. */
static float level(uint32_t bits, uint32_t code)
{
    const float *half = bits == 4 ? max_16 : max_8;
    uint32_t n = 1u << (bits - 1);
    return code < n ? -half[n - 1 - code] : half[code - n];
}

/* The order of additions is the format's: 16 sums, folded in halves. */
static fit fit_rms(const kvb_codec *codec, const group *g)
{
    double sum[16] = {0};
    for (uint32_t c = 0; c < g->n; c++)
        sum[c % 16] += (double)g->x[c] * (double)g->x[c];
    for (int half = 8; half >= 1; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    const float rms = fminf((float)sqrt(sum[0] / g->n), F16_LIMIT);
    return (fit){.scale = rms, .by = (float)kvb_codec_rounded(codec->scale_elem, rms)};
}

/* ---- codes --------------------------------------------------------------------------------------------------- */

static float inverse(float d)
{
    float id = 1.0f / d;
    return d != 0 && isfinite(id) ? id : 0.0f;
}

/* A step as a code of 0 .. top. */
static inline uint32_t step_code(float step, uint32_t top)
{
    return step > 0 ? step < (float)top ? (uint32_t)(int)step : top : 0;
}

/* x[0..n-1], at most LOT, as codes. */
KVB_WIDE static void codes_make(const kvb_codec *codec, const float *restrict x, uint32_t n, fit f,
                                uint32_t *restrict codes)
{
    const uint32_t top = (1u << codec->bits % 32) - 1;
    const float by = inverse(f.by);
    float steps[LOT];
    switch (codec->elem) {
    case KVB_F32:
        memcpy(codes, x, n * sizeof *x);
        break;
    case KVB_INT8:
        for (uint32_t i = 0; i < n; i++) {
            const float step = f.by > 0 ? rintf(x[i] / f.by) : 0;
            codes[i] = (uint8_t)(int)(step > 127 ? 127 : step < -127 ? -127 : step);
        }
        break;
    case KVB_UINT8:
    case KVB_UINT4:
    case KVB_UINT2:
        for (uint32_t i = 0; i < n; i++)
            codes[i] = step_code(f.by != 0 ? rintf((x[i] - f.zero) / f.by) : 0, top);
        break;
    case KVB_Q8_0: /* ties away from 0 */
        for (uint32_t i = 0; i < n; i++) {
            const int whole = (int)(x[i] * by);
            const float rest = x[i] * by - (float)whole;
            codes[i] = (uint8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
        }
        break;
    case KVB_Q5_0:
    case KVB_Q4_0:
        for (uint32_t i = 0; i < n; i++)
            codes[i] = step_code(x[i] * by + ((float)(top / 2 + 1) + 0.5f), top);
        break;
    case KVB_Q5_1:
    case KVB_Q4_1:
        for (uint32_t i = 0; i < n; i++)
            codes[i] = step_code((x[i] - f.zero) * by + 0.5f, top);
        break;
    case KVB_IQ4_NL: /* a tie goes to the upper level */
        memset(codes, 0, n * sizeof *codes);
        for (uint32_t k = 0; f.by != 0 && k < top; k++)
            for (uint32_t i = 0; i < n; i++) {
                const double step = (double)(by * x[i]);
                codes[i] += step - iq4_nl_levels[k] >= iq4_nl_levels[k + 1] - step;
            }
        break;
    case KVB_CODEBOOK:
        memset(codes, 0, n * sizeof *codes);
        for (uint32_t i = 0; i < n; i++)
            steps[i] = f.by > 0 ? x[i] / f.by : 0;
        for (uint32_t k = 0; k < top; k++) {
            const float sum = level(codec->bits, k) + level(codec->bits, k + 1), border = sum * 0.5f;
            for (uint32_t i = 0; i < n; i++)
                codes[i] += steps[i] > border;
        }
        break;
    default:
        for (uint32_t i = 0; i < n; i++) {
            const float step = f.by > 0 ? x[i] / f.by : copysignf(0, x[i]);
            codes[i] = float_code(&layouts[codec->elem], x[i] == x[i] ? step : x[i]);
        }
    }
}

/* What codes stand for, before scale and zero. */
KVB_WIDE static void codes_value(const kvb_codec *codec, const uint32_t *restrict codes, uint32_t n,
                                 double *restrict values)
{
    const int middle = codec->elem == KVB_Q5_0 ? 16 : codec->elem == KVB_Q4_0 ? 8 : 0;
    const layout l = layouts[codec->elem < sizeof layouts / sizeof *layouts ? codec->elem : 0];
    switch (codec->elem) {
    case KVB_F32:
        for (uint32_t i = 0; i < n; i++)
            values[i] = (double)float_of(codes[i]);
        break;
    case KVB_INT8:
    case KVB_Q8_0:
        for (uint32_t i = 0; i < n; i++)
            values[i] = (int)codes[i] - (codes[i] < 128 ? 0 : 256);
        break;
    case KVB_UINT8:
    case KVB_UINT4:
    case KVB_UINT2:
    case KVB_Q5_1:
    case KVB_Q5_0:
    case KVB_Q4_1:
    case KVB_Q4_0:
        for (uint32_t i = 0; i < n; i++)
            values[i] = (int)codes[i] - middle;
        break;
    case KVB_IQ4_NL:
        for (uint32_t i = 0; i < n; i++)
            values[i] = iq4_nl_levels[codes[i]];
        break;
    case KVB_CODEBOOK:
        for (uint32_t i = 0; i < n; i++)
            values[i] = (double)level(codec->bits, codes[i]);
        break;
    default:
        for (uint32_t i = 0; i < n; i++)
            values[i] = float_value(&l, codes[i]);
    }
}

/* ---- layout -------------------------------------------------------------------------------------------------- */

/* Codes first … of a stream, low bits first: `bits` is at most 8, or 16 or 32. Where codes are written, the stream is 0. */
static void bits_write(unsigned char *stream, uint32_t bits, size_t first, const uint32_t *codes, uint32_t n)
{
    uint32_t have = first * bits % 8;
    uint64_t wait = 0;
    stream += first * bits / 8;
    for (uint32_t i = 0; bits == 8 && i < n; i++)
        stream[i] = (unsigned char)codes[i];
    for (uint32_t i = 0; bits == 16 && i < n; i++)
        stream[2 * i] = (unsigned char)codes[i], stream[2 * i + 1] = (unsigned char)(codes[i] >> 8);
    if (bits == 8 || bits == 16)
        return;
    for (uint32_t i = 0; i < n; i++) {
        wait |= (uint64_t)codes[i] << have;
        for (have += bits; have >= 8; have -= 8, wait >>= 8)
            *stream++ |= (unsigned char)wait;
    }
    if (have)
        *stream |= (unsigned char)wait;
}

static void bits_read(const unsigned char *stream, uint32_t bits, size_t first, uint32_t *codes, uint32_t n)
{
    uint32_t have = 8 - first * bits % 8;
    stream += first * bits / 8;
    for (uint32_t i = 0; bits == 8 && i < n; i++)
        codes[i] = stream[i];
    for (uint32_t i = 0; bits == 16 && i < n; i++)
        codes[i] = stream[2 * i] | (uint32_t)stream[2 * i + 1] << 8;
    if (bits == 8 || bits == 16)
        return;
    uint64_t wait = n ? *stream++ >> (8 - have) : 0;
    for (uint32_t i = 0; i < n; i++) {
        for (; have < bits; have += 8)
            wait |= (uint64_t)*stream++ << have;
        codes[i] = (uint32_t)(wait & ((UINT64_C(1) << bits) - 1));
        wait >>= bits;
        have -= bits;
    }
}

enum { BLOCK = 32 };

/* A block of ggml has 32 codes: f16 d, f16 m if it has zeros, fifth bits if codes have 5 bits, then the codes: bytes, or
 * nibbles of which j and j + 16 share a byte. */
static size_t block_bytes(const kvb_codec *codec)
{
    return 2 + (codec->zeros ? 2 : 0) + 4 * (size_t)codec->bits;
}

/* Scales of a row; shared: of a block of rows. */
static uint32_t groups_of(const kvb_codec *codec, uint32_t dim)
{
    return codec->shared ? dim : codec->group == KVB_GROUP_ROW ? 1 : codec->group ? dim / codec->group : 0;
}

static uint32_t scale_bits(const kvb_codec *codec)
{
    return codec->scale_elem == KVB_F32 ? 32 : codec->scale_elem == KVB_F16 ? 16 : 8;
}

size_t kvb_codec_bytes(const kvb_codec *codec, uint32_t dim, int part)
{
    const bool blocks = kvb_elem_is_block(codec->elem), none = blocks || (part == KVB_ZEROS && !codec->zeros);
    if (part == KVB_CODES)
        return blocks ? groups_of(codec, dim) * block_bytes(codec) : ((size_t)dim * codec->bits + 7) / 8;
    return none ? 0 : groups_of(codec, dim) * scale_bits(codec) / 8;
}

/* A scale or zero lies in its own part, or in its block. */
static size_t number_at(const kvb_codec *codec, int *part, uint32_t g)
{
    if (!kvb_elem_is_block(codec->elem))
        return g * (size_t)scale_bits(codec) / 8;
    const size_t in_block = *part == KVB_ZEROS ? 2 : 0;
    *part = KVB_CODES;
    return g * block_bytes(codec) + in_block;
}

static void number_put(const kvb_codec *codec, unsigned char *const parts[KVB_PARTS], int part, uint32_t g, float x)
{
    const size_t at = number_at(codec, &part, g);
    const uint16_t code = codec->scale_elem == KVB_F32 ? 0 : kvb_codec_code(codec->scale_elem, x);
    memcpy(parts[part] + at, codec->scale_elem == KVB_F32 ? (const void *)&x : &code, scale_bits(codec) / 8);
}

static double number_get(const kvb_codec *codec, const unsigned char *const parts[KVB_PARTS], int part, uint32_t g)
{
    const size_t at = number_at(codec, &part, g);
    uint32_t code = 0;
    memcpy(&code, parts[part] + at, scale_bits(codec) / 8);
    return kvb_codec_value(codec->scale_elem, code);
}

/* Codes first … of a row; of a format with blocks, those of one block. */
static void codes_write(const kvb_codec *codec, unsigned char *row, uint32_t first, const uint32_t *codes, uint32_t n)
{
    unsigned char *block = row + first / BLOCK * block_bytes(codec) + (codec->zeros ? 4 : 2);
    if (!kvb_elem_is_block(codec->elem) || codec->bits == 8) {
        const bool in_block = kvb_elem_is_block(codec->elem);
        bits_write(in_block ? block : row, codec->bits, in_block ? 0 : first, codes, n);
        return;
    }
    uint32_t nibbles[BLOCK], fifths[BLOCK];
    for (uint32_t j = 0; j < BLOCK; j++) {
        nibbles[j % 16 * 2 + j / 16] = codes[j] & 15;
        fifths[j] = codes[j] >> 4;
    }
    bits_write(block, codec->bits - 4, 0, fifths, codec->bits > 4 ? BLOCK : 0);
    bits_write(block + 4 * (codec->bits - 4), 4, 0, nibbles, BLOCK);
}

static void codes_read(const kvb_codec *codec, const unsigned char *row, uint32_t first, uint32_t *codes, uint32_t n)
{
    const unsigned char *block = row + first / BLOCK * block_bytes(codec) + (codec->zeros ? 4 : 2);
    if (!kvb_elem_is_block(codec->elem) || codec->bits == 8) {
        const bool in_block = kvb_elem_is_block(codec->elem);
        bits_read(in_block ? block : row, codec->bits, in_block ? 0 : first, codes, n);
        return;
    }
    uint32_t nibbles[BLOCK], fifths[BLOCK];
    bits_read(block, codec->bits - 4, 0, fifths, BLOCK); /* of 0 bits: zeros */
    bits_read(block + 4 * (codec->bits - 4), 4, 0, nibbles, BLOCK);
    for (uint32_t j = 0; j < BLOCK; j++)
        codes[j] = fifths[j] << 4 | nibbles[j % 16 * 2 + j / 16];
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

/* Elements and their sizes from the values of codes. adds: a product of -0 becomes 0. */
KVB_WIDE static void elements_put(const double *restrict values, uint32_t n, double scale, double head, double zero,
                                  bool adds, double *restrict row, double *restrict size)
{
    for (uint32_t i = 0; i < n; i++) {
        const double product = values[i] * scale * head;
        row[i] = adds ? product + zero : product;
        size[i] = fabs(product) + fabs(zero);
    }
}

void kvb_codec_encode(const kvb_codec *codec, const float *rows, uint32_t n, uint32_t dim, float head_scale,
                      unsigned char *const part[KVB_PARTS])
{
    const bool shared = codec->shared;
    const uint32_t groups = groups_of(codec, dim), per_row = groups ? groups : 1, each = dim / per_row;
    const size_t bytes = kvb_codec_bytes(codec, dim, KVB_CODES);
    memset(part[KVB_CODES], 0, n * bytes);
    for (uint32_t at = 0; at < (shared ? dim : n * per_row); at++) {
        const uint32_t row = shared ? 0 : at / per_row, first = at % per_row * each;
        float x[KVB_MODEL_WIDTH];
        const group g = {.x = x, .n = shared ? n : each, .head_scale = head_scale};
        assert(g.n <= KVB_MODEL_WIDTH);
        elements_take(rows + (size_t)row * dim + first, shared ? dim : 1, g.n, codec->limit, x);
        const fit f = codec->fit(codec, &g);
        if (groups)
            number_put(codec, part, KVB_SCALES, at, f.scale);
        if (codec->zeros)
            number_put(codec, part, KVB_ZEROS, at, f.zero);
        for (uint32_t i = 0, some; i < g.n; i += some) {
            uint32_t codes[LOT];
            some = g.n - i < LOT ? g.n - i : LOT;
            codes_make(codec, x + i, some, f, codes);
            for (uint32_t r = 0; shared && r < some; r++)
                codes_write(codec, part[KVB_CODES] + (i + r) * bytes, first, codes + r, 1);
            if (!shared)
                codes_write(codec, part[KVB_CODES] + row * bytes, first + i, codes, some);
        }
    }
}

void kvb_codec_decode(const kvb_codec *codec, const unsigned char *const part[KVB_PARTS], uint32_t dim,
                      float head_scale, double *row, double *size)
{
    const bool adds = codec->zeros || kvb_elem_is_block(codec->elem);
    const double head = codec->head_scale ? (double)head_scale : 1;
    const uint32_t groups = groups_of(codec, dim), each = groups ? dim / groups : dim;
    for (uint32_t g = 0, c = 0, some; c < dim; g++) {
        const double scale = groups ? number_get(codec, part, KVB_SCALES, g) : 1;
        const double zero = codec->zeros ? number_get(codec, part, KVB_ZEROS, g) : 0;
        for (const uint32_t end = c + each; c < end; c += some) {
            uint32_t codes[LOT];
            double values[LOT];
            some = end - c < LOT ? end - c : LOT;
            codes_read(codec, part[KVB_CODES], c, codes, some);
            codes_value(codec, codes, some, values);
            elements_put(values, some, scale, head, zero, adds, row + c, size + c);
        }
    }
}

/* ---- the table ------------------------------------------------------------------------------------------- */

#define ROW KVB_GROUP_ROW

const kvb_codec kvb_codecs[] = {
    {"f32", KVB_F32, 32, 1, 0, KVB_F32, .fit = fit_none},
    {"f16", KVB_F16, 16, 1, 0, KVB_F32, .fit = fit_none},
    {"bf16", KVB_BF16, 16, 1, 0, KVB_F32, .fit = fit_none},
    {"e4m3", KVB_E4M3, 8, 1, 0, KVB_F32, .fit = fit_none},
    {"e4m3-tensor", KVB_E4M3, 8, 1, 0, KVB_F32, .fit = fit_none, .head_scale = KVB_STATIC_TENSOR},
    {"e4m3-head", KVB_E4M3, 8, 1, 0, KVB_F32, .fit = fit_none, .head_scale = KVB_STATIC_HEAD},
    {"e4m3-token", KVB_E4M3, 8, 1, ROW, KVB_F32, .fit = fit_largest},
    {"e5m2", KVB_E5M2, 8, 1, 0, KVB_F32, .fit = fit_none},
    {"e5m2-tensor", KVB_E5M2, 8, 1, 0, KVB_F32, .fit = fit_none, .head_scale = KVB_STATIC_TENSOR},
    {"e5m2-head", KVB_E5M2, 8, 1, 0, KVB_F32, .fit = fit_none, .head_scale = KVB_STATIC_HEAD},
    {"e5m2-token", KVB_E5M2, 8, 1, ROW, KVB_F32, .fit = fit_largest},
    /* 2^126: so that the distance of two elements is finite */
    {"int8", KVB_INT8, 8, 1, ROW, KVB_F32, .fit = fit_largest, .limit = 0x1p126f},
    {"int8-asym", KVB_UINT8, 8, 1, ROW, KVB_F32, .fit = fit_range, .limit = 0x1p126f, .zeros = true},
    {"q8_0", KVB_Q8_0, 8, 1, BLOCK, KVB_F16, .fit = fit_largest, .limit = F16_LIMIT},
    {"q5_1", KVB_Q5_1, 5, 1, BLOCK, KVB_F16, .fit = fit_least, .limit = F16_LIMIT, .zeros = true},
    {"q5_0", KVB_Q5_0, 5, 1, BLOCK, KVB_F16, .fit = fit_peak, .limit = F16_LIMIT},
    {"q4_1", KVB_Q4_1, 4, 1, BLOCK, KVB_F16, .fit = fit_least, .limit = F16_LIMIT, .zeros = true},
    {"q4_0", KVB_Q4_0, 4, 1, BLOCK, KVB_F16, .fit = fit_peak, .limit = F16_LIMIT},
    {"iq4_nl", KVB_IQ4_NL, 4, 1, BLOCK, KVB_F16, .fit = fit_iq4_nl, .limit = F16_LIMIT},
    {"a8g32", KVB_UINT8, 8, 1, 32, KVB_F16, .fit = fit_mlx, .limit = F16_LIMIT, .zeros = true},
    {"a8g64", KVB_UINT8, 8, 1, 64, KVB_F16, .fit = fit_mlx, .limit = F16_LIMIT, .zeros = true},
    {"a8g128", KVB_UINT8, 8, 1, 128, KVB_F16, .fit = fit_mlx, .limit = F16_LIMIT, .zeros = true},
    {"a4g32", KVB_UINT4, 4, 1, 32, KVB_F16, .fit = fit_mlx, .limit = F16_LIMIT, .zeros = true},
    {"a4g64", KVB_UINT4, 4, 1, 64, KVB_F16, .fit = fit_mlx, .limit = F16_LIMIT, .zeros = true},
    {"a4g128", KVB_UINT4, 4, 1, 128, KVB_F16, .fit = fit_mlx, .limit = F16_LIMIT, .zeros = true},
    {"a2g32", KVB_UINT2, 2, 1, 32, KVB_F16, .fit = fit_mlx, .limit = F16_LIMIT, .zeros = true},
    {"a2g64", KVB_UINT2, 2, 1, 64, KVB_F16, .fit = fit_mlx, .limit = F16_LIMIT, .zeros = true},
    {"a2g128", KVB_UINT2, 2, 1, 128, KVB_F16, .fit = fit_mlx, .limit = F16_LIMIT, .zeros = true},
    {"kivi4-v", KVB_UINT4, 4, 32, 32, KVB_F16, .fit = fit_range, .limit = F16_LIMIT, .zeros = true},
    {"kivi2-v", KVB_UINT2, 2, 32, 32, KVB_F16, .fit = fit_range, .limit = F16_LIMIT, .zeros = true},
    {"kivi4-k", KVB_UINT4, 4, 32, 0, KVB_F16, .fit = fit_range, .limit = F16_LIMIT, .zeros = true, .shared = true},
    {"kivi2-k", KVB_UINT2, 2, 32, 0, KVB_F16, .fit = fit_range, .limit = F16_LIMIT, .zeros = true, .shared = true},
    {"mxfp4", KVB_E2M1, 4, 1, 32, KVB_E8M0, .fit = fit_mxfp4, .limit = FLT_MAX},
    {"nvfp4", KVB_E2M1, 4, 1, 16, KVB_E4M3, .fit = fit_nvfp4, .limit = FLT_MAX, .head_scale = KVB_STATIC_TENSOR},
    {"tq4", KVB_CODEBOOK, 4, 1, ROW, KVB_F16, .fit = fit_rms, .limit = F16_LIMIT},
    {"tq3", KVB_CODEBOOK, 3, 1, ROW, KVB_F16, .fit = fit_rms, .limit = F16_LIMIT},
    {.name = NULL},
};

const kvb_codec *kvb_codec_find(const char *format_name)
{
    size_t n = strcspn(format_name, "+");
    for (const kvb_codec *codec = kvb_codecs; codec->name; codec++)
        if (strlen(codec->name) == n && strncmp(codec->name, format_name, n) == 0)
            return codec;
    return NULL;
}

const kvb_codec *kvb_codec_alike(const kvb_format *f)
{
    for (const kvb_codec *c = kvb_codecs; c->name; c++) {
        const bool grouped =
            c->shared ? f->axis == KVB_AXIS_TOKENS : f->axis != KVB_AXIS_TOKENS && f->group == c->group;
        if (c->elem == f->elem && grouped && c->block == (f->residual_cells ? f->residual_cells : 1) &&
            c->head_scale == f->head_scale && (f->elem != KVB_CODEBOOK || c->bits == f->level_bits))
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
