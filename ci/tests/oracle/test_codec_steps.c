/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: decode(encode(x)) is within half a step of x, element by element, the step derived for each format from the
 * row alone; beyond the range it is the end of the range; whatever comes in, what comes out is finite where codes have
 * no NaN.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "workloads/special_rows.h"
#include "ci/tests/oracle/stored_row.h"
#include "oracle/codec.h"

#define F32 0x1p-24 /* unit roundoffs */
#define F16 0x1p-11

static stored_row s;

/* x as the codec takes it. */
static double limited(float x, double limit)
{
    return isnan(x) ? 0 : fmax(-limit, fmin(limit, (double)x));
}

/* An f16 near x, and by how much it may be off. */
static double f16_error(double x)
{
    return fmax(fabs(x) * F16, 0x1p-25);
}

/* ---- the largest error that each family may make on element c of a row ------------------------------------------ */

typedef double allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c);

static void range(const float *x, uint32_t n, double limit, double *lo, double *hi)
{
    *lo = INFINITY, *hi = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        *lo = fmin(*lo, limited(x[i], limit));
        *hi = fmax(*hi, limited(x[i], limit));
    }
}

static double peak(const float *x, uint32_t n, double limit)
{
    double lo, hi;
    range(x, n, limit, &lo, &hi);
    return fmax(-lo, hi);
}

/* Half of 2^-man of the binade; at least half a subnormal. Beyond the largest: the way to it. */
static double fp8_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    bool e4m3 = codec->elem == KVB_E4M3;
    double largest = e4m3 ? 448 : 57344, y = fabs((double)x[c]), scale = 0.5;
    if (codec->group) {
        scale = peak(x, dim, FLT_MAX) / largest;
        y = fmin(y, FLT_MAX);
    }
    if (scale < 0x1p-126) /* the scale itself is a subnormal, or 0 */
        return y;
    double half = fmax(y * (e4m3 ? 0x1p-4 : 0x1p-3), scale * (e4m3 ? 0x1p-10 : 0x1p-17));
    return y > largest * scale ? y - largest * scale + 4 * F32 * y : half + 4 * F32 * y;
}

static double int8_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    double lo, hi, v = limited(x[c], 0x1p126);
    range(x, dim, 0x1p126, &lo, &hi);
    bool symmetric = codec->elem == KVB_INT8;
    double reach = symmetric ? fmax(-lo, hi) : hi - lo, step = reach / (symmetric ? 127 : 255);
    /* A subnormal step is off by up to half of 2^-149, times the code. */
    return 0.5 * step + 4 * F32 * (reach + fabs(v)) + 256 * 0x1p-150;
}

static double ggml_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    (void)dim;
    const float *block = x + c / 32 * 32;
    double lo, hi, v = limited(x[c], 65504);
    range(block, 32, 65504, &lo, &hi);
    double most = fmax(-lo, hi), slack = 8 * F32 * (hi - lo), d;
    switch (codec->elem) {
    case KVB_Q8_0:
        d = most / 127;
        return 0.5 * d + 127 * f16_error(d) + slack;
    case KVB_Q5_1:
    case KVB_Q4_1:
        d = (hi - lo) / (codec->elem == KVB_Q5_1 ? 31 : 15);
        return 0.5 * d + (codec->elem == KVB_Q5_1 ? 31 : 15) * f16_error(d) + f16_error(lo) + slack;
    case KVB_Q5_0:
    case KVB_Q4_0: /* the code that would be opposite to the peak's is missing */
        d = most / (codec->elem == KVB_Q5_0 ? 16 : 8);
        return (fabs(v) > most - d / 2 ? 1 : 0.5) * d + 16 * f16_error(d) + slack;
    default: /* iq4_nl: half of the widest gap or the way from 113 to 127; least squares move d by up to that share */
        d = most / 127;
        return (fabs(v) > 113 * d ? 14 : 12) * d + 127 * (0.12 * d + f16_error(d)) + slack;
    }
}

/* The scale is such that a whole number of steps lies between the far edge and 0: between 2/3 and 2 of the plain one.
 */
static double mlx_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    (void)dim;
    double lo, hi, top = (1 << codec->bits) - 1, v = limited(x[c], 65504);
    range(x + c / codec->group * codec->group, codec->group, 65504, &lo, &hi);
    double edge = -lo > hi ? lo : hi, plain = fmax((hi - lo) / top, (double)1e-7f), steps = rint(fabs(edge) / plain);
    double scale = steps > 0 ? fabs(edge) / steps : plain, away = fabs(v - (steps > 0 ? edge : 0)) / scale;
    double excess = away > top ? away - top : 0; /* a code that is not there */
    return fmax(0.5, excess) * scale + top * f16_error(scale) + f16_error(edge) + 8 * F32 * (hi - lo + fabs(edge)) +
           (fabs(fabs(edge) / plain - steps) > 0.4999 ? scale : 0); /* rounded either way */
}

/* x: the 32 elements of a group. */
static double kivi_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    double lo, hi, top = (1 << codec->bits) - 1;
    x = codec->shared ? x : x + c / 32 * 32;
    (void)dim;
    range(x, 32, 65504, &lo, &hi);
    double scale = (hi - lo) / top, error = f16_error(scale);
    /* Clamped where the scale was rounded down; all codes are 0 where it was rounded to 0. */
    return 0.5 * (scale + error) + top * error + 8 * F32 * (hi - lo) + (scale < 0x1p-24 ? hi - lo : 0);
}

/* Half of the gap where y lies; above 6 the way to it. */
static double e2m1_half(double y)
{
    return y > 6 ? fmax(y - 6, 1) : y > 4 ? 1 : y > 2 ? 0.5 : 0.25;
}

static double mx_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    (void)dim;
    double v = fabs(limited(x[c], FLT_MAX)), amax = peak(x + c / codec->group * codec->group, codec->group, FLT_MAX);
    double scale = fmax(ldexp(1, amax > 0 ? ilogb(amax) - 2 : -127), 0x1p-127);
    if (codec->group == 16) { /* 448 at most, and rounded like every E4M3 */
        scale = kvb_codec_fp8_value(KVB_E4M3, s.bytes[KVB_SCALES][c / 16]);
        double exact = fmin(amax / 6 / 0.5, 448);
        assert_true(fabs(scale - exact) <= fmax(exact * (0x1p-4 + 4 * F32), 0x1.00001p-10));
        scale *= 0.5;
    }
    return scale > 0 ? (e2m1_half(v / scale) + 32 * F32) * scale + 8 * F32 * v : v;
}

static double codebook_allowance(const kvb_codec *codec, const float *x, uint32_t dim, uint32_t c)
{
    double sum = 0, outer = codec->bits == 4 ? 2.733 : 2.152, half = codec->bits == 4 ? 0.332 : 0.404;
    for (uint32_t i = 0; i < dim; i++)
        sum += limited(x[i], 65504) * limited(x[i], 65504);
    double rms = sqrt(sum / dim), error = f16_error(rms), v = fabs(limited(x[c], 65504));
    if (rms <= 0x1p-25)
        return v;
    return fmax(half * (rms + error), v - outer * (rms - error)) + 4 * F32 * v;
}

static allowance *allowance_of(const kvb_codec *codec)
{
    switch (codec->elem) {
    case KVB_E4M3:
    case KVB_E5M2:
        return fp8_allowance;
    case KVB_INT8:
        return int8_allowance;
    case KVB_E2M1:
        return mx_allowance;
    case KVB_CODEBOOK:
        return codebook_allowance;
    case KVB_UINT8:
    case KVB_UINT4:
    case KVB_UINT2:
        return codec->group == KVB_GROUP_ROW ? int8_allowance : codec->block > 1 ? kivi_allowance : mlx_allowance;
    default:
        return ggml_allowance;
    }
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

enum { DIM = 256, ROWS = 32 };
static float rows[ROWS][DIM];
static double stored[DIM], size[DIM];

static bool has_codes_for_nan(const kvb_codec *codec)
{
    return codec->elem == KVB_E4M3 || codec->elem == KVB_E5M2;
}

static void row_check(const kvb_codec *codec, uint32_t r, row_kind kind)
{
    for (uint32_t c = r % 3; c < DIM; c += 3) { /* allowances look at whole groups: a third of them each time */
        float x = rows[r][c], column[ROWS];
        if (isnan(x) && has_codes_for_nan(codec)) {
            assert_true(isnan(stored[c]));
            continue;
        }
        for (uint32_t i = 0; i < ROWS; i++)
            column[i] = rows[i][c];
        double most =
            codec->shared ? allowance_of(codec)(codec, column, ROWS, r) : allowance_of(codec)(codec, rows[r], DIM, c);
        double v = limited(x, FLT_MAX), limit = codec->elem == KVB_E2M1 || has_codes_for_nan(codec)            ? FLT_MAX
                                                : codec->group == KVB_GROUP_ROW && codec->elem != KVB_CODEBOOK ? 0x1p126
                                                                                                               : 65504;
        double error = fabs(stored[c] - limited((float)v, limit));
        if (!isfinite(stored[c]) || !isfinite(size[c]) || size[c] < fabs(stored[c]) || !(error <= most))
            fail_msg("%s, row kind %d, element %u: %a is stored as %a, off by %g of %g", codec->name, (int)kind, c,
                     (double)x, stored[c], error, most);
    }
}

/* Rows of every kind, through every format. */
static void within_half_a_step(void **state)
{
    (void)state;
    for (const kvb_codec *const *at = kvb_codecs + 3; *at; at++)
        for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
            const kvb_codec *codec = *at;
            uint64_t seed = kind;
            for (uint32_t r = 0; r < ROWS; r++) {
                row_fill(kind, rows[r], DIM, &seed);
                for (uint32_t c = 0; codec->block > 1 && c < DIM; c++)
                    rows[r][c] = (float)kvb_codec_f16_value(kvb_codec_f16(rows[r][c]));
            }
            for (uint32_t first = 0; first < ROWS; first += codec->block) {
                stored_encode(&s, codec, rows[first], codec->block, DIM, 0.5f);
                for (uint32_t i = 0; i < codec->block; i++) {
                    stored_decode(&s, i, stored, size);
                    row_check(codec, first + i, kind);
                }
            }
        }
}

/* What a format can say exactly stays as it is, signs of zeros included, when it is stored again. */
static void stored_rows_stay(void **state)
{
    (void)state;
    static const char *const names[] = {"f16", "bf16", "e4m3", "e5m2", "mxfp4", "e4m3-head", "e5m2-tensor"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        uint64_t seed = 7;
        for (int i = 0; i < 50; i++) {
            double again[DIM];
            row_fill(ROW_NORMAL, rows[0], DIM, &seed);
            stored_encode(&s, kvb_codec_find(names[n]), rows[0], 1, DIM, 4);
            stored_decode(&s, 0, stored, size);
            for (uint32_t c = 0; c < DIM; c++)
                rows[0][c] = (float)stored[c];
            stored_encode(&s, kvb_codec_find(names[n]), rows[0], 1, DIM, 4);
            stored_decode(&s, 0, again, size);
            assert_memory_equal(stored, again, sizeof again);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_half_a_step),
        cmocka_unit_test(stored_rows_stay),
    };
    return cmocka_run_group_tests_name("oracle/codec steps", tests, NULL, NULL);
}
