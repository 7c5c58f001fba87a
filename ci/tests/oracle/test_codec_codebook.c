/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the levels of tq4 and tq3 are the fixed point of Lloyd's iteration for N(0, 1), found here by integrals in
 * closed form; rows stored with them, transform included, lose no more than TurboQuant's bound (arXiv 2504.19874,
 * theorem 1): |x - stored|^2 <= sqrt(3) pi / 2 4^-b |x|^2, in the mean.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/special_rows.h"
#include "ci/tests/oracle/stored_row.h"
#include "oracle/storage.h"

static const double pi = 3.14159265358979323846;

/* The codec's levels, off a row stored with scale 1. */
static void levels_read(const kvb_codec *codec, double *levels)
{
    unsigned char codes[16] = {0}, one[2] = {0x00, 0x3c}; /* 1 as f16 */
    const unsigned char *part[KVB_PARTS] = {codes, one, NULL};
    double row[32], size[32];
    uint32_t n = 1u << codec->bits;
    for (uint32_t code = 0; code < n; code++)
        for (uint32_t b = 0; b < codec->bits; b++) {
            uint32_t at = code * codec->bits + b;
            codes[at / 8] = (unsigned char)(codes[at / 8] | (code >> b & 1) << at % 8);
        }
    codec->decode(codec, part, 32, 1, row, size);
    memcpy(levels, row, n * sizeof *levels);
}

static double density(double x)
{
    return exp(-x * x / 2) / sqrt(2 * pi);
}
static double below(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

/* One step of Lloyd: each level becomes the mean of N(0, 1) over what is nearest to it. */
static double lloyd(double *levels, int n)
{
    double border[17], moved = 0;
    border[0] = -INFINITY, border[n] = INFINITY;
    for (int k = 1; k < n; k++)
        border[k] = (levels[k - 1] + levels[k]) / 2;
    for (int k = 0; k < n; k++) {
        double mean = (density(border[k]) - density(border[k + 1])) / (below(border[k + 1]) - below(border[k]));
        moved = fmax(moved, fabs(mean - levels[k]));
        levels[k] = mean;
    }
    return moved;
}

static void levels_are_lloyds(void **state)
{
    (void)state;
    static const char *const names[] = {"tq4", "tq3"};
    for (int i = 0; i < 2; i++) {
        const kvb_codec *codec = kvb_codec_find(names[i]);
        double levels[16], best[16];
        int n = 1 << codec->bits;
        levels_read(codec, levels);
        for (int k = 0; k < n; k++)
            best[k] = (k - (n - 1) / 2.0) * 6 / n; /* from anywhere: here evenly spread */
        while (lloyd(best, n) > 1e-9)
            ;
        for (int k = 0; k < n; k++)
            if (fabs(levels[k] - best[k]) > 1e-3)
                fail_msg("%s: level %d is %g, Lloyd's is %g", names[i], k, levels[k], best[k]);
    }
}

typedef enum rows_of { GAUSSIAN, SIGNS, OUTLIER } rows_of;

static void row_make(rows_of kind, float *x, uint32_t dim, uint64_t *seed)
{
    row_fill(ROW_NORMAL, x, dim, seed);
    for (uint32_t c = 0; c < dim; c++)
        x[c] = kind == SIGNS ? copysignf(0.7f, x[c]) : kind == OUTLIER ? x[c] * 0x1p-10f : x[c];
    if (kind == OUTLIER)
        x[row_random(seed) % dim] = 1000;
}

/* The share of |x|^2 that is lost. */
static double loss(uint32_t bits, rows_of kind, uint32_t dim)
{
    enum { ROWS = 64 };
    const kvb_format format = {.name = bits == 4 ? "tq4" : "tq3",
                               .elem = KVB_CODEBOOK,
                               .axis = KVB_AXIS_CHANNELS,
                               .group = KVB_GROUP_ROW,
                               .scale_elem = KVB_F16,
                               .transform = KVB_TRANSFORM_SIGNED_HADAMARD};
    float x[256];
    const float *row = x;
    double stored[256], size[256], lost = 0, all = 0;
    kvb_storage store;
    char why[200];
    uint64_t seed = dim;

    assert_int_equal(kvb_storage_init(&store, &format, dim, NULL, 1, 0, why, sizeof why), 0);
    void *scratch = malloc(kvb_storage_scratch(&store));
    assert_non_null(scratch);
    for (int r = 0; r < ROWS; r++) {
        row_make(kind, x, dim, &seed);
        kvb_storage_rows(&store, &row, 1, scratch, stored, size);
        for (uint32_t c = 0; c < dim; c++) {
            lost += ((double)x[c] - stored[c]) * ((double)x[c] - stored[c]);
            all += (double)x[c] * (double)x[c];
        }
    }
    free(scratch);
    return lost / all;
}

/*
 * The theorem speaks of the mean over random rotations. Gaussian rows are a mean over rotations by themselves, rows of
 * one magnitude and random signs the mean of a constant row over all signs that the transform could have had. A block
 * of 64 or less makes few different numbers of those, and with 4 bits the loss is up to 0.0121, above 0.0106: not
 * asserted.
 */
static void loss_is_below_the_papers_bound(void **state)
{
    (void)state;
    static const uint32_t dims[] = {64, 96, 128, 256};
    for (uint32_t bits = 3; bits <= 4; bits++)
        for (int d = 0; d < 4; d++) {
            double bound = sqrt(3) * pi / 2 * pow(4, -(double)bits), gaussian = loss(bits, GAUSSIAN, dims[d]);
            assert_true(gaussian <= bound);
            assert_true(dims[d] < 128 || loss(bits, SIGNS, dims[d]) <= bound);
            assert_true(gaussian > (bits == 3 ? 0.030 : 0.0080)); /* Max, table I: 0.03454 and 0.009497 for N(0, 1) */
        }
}

/*
 * Where one element is nearly all of a row, a Hadamard transform makes it +-1 everywhere, whatever its signs are: this
 * is not what the theorem's rotations do, and with 3 bits the loss is above its bound. It is the nearest level's
 * distance.
 */
static void an_outlier_is_two_levels(void **state)
{
    (void)state;
    static const uint32_t dims[] = {64, 128, 256};
    for (int d = 0; d < 3; d++) {
        assert_true(fabs(loss(3, OUTLIER, dims[d]) - (1 - 0.756) * (1 - 0.756)) < 2e-3);
        assert_true(fabs(loss(4, OUTLIER, dims[d]) - (1 - 0.9424) * (1 - 0.9424)) < 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_lloyds),
        cmocka_unit_test(loss_is_below_the_papers_bound),
        cmocka_unit_test(an_outlier_is_two_levels),
    };
    return cmocka_run_group_tests_name("oracle/codec codebook", tests, NULL, NULL);
}
