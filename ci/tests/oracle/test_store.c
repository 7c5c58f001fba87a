/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the transform against its definition (a sum over all channels), rows through formats with transforms and
 * windows, which formats refuse which rows, and formats that bring their own reference.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/special_rows.h"
#include "oracle/storage.h"

enum { MAX_DIM = 256, MAX_ROWS = 200 };

static float rows[MAX_ROWS][MAX_DIM];
static const float *row_at[MAX_ROWS];
static double stored[MAX_ROWS * MAX_DIM], size[MAX_ROWS * MAX_DIM];
static char why[200];

static void rows_make(uint32_t n, uint32_t dim, row_kind kind)
{
    uint64_t seed = 1 + kind;
    for (uint32_t r = 0; r < n; r++) {
        row_fill(kind, rows[r], dim, &seed);
        row_at[r] = rows[r];
    }
}

static void store_rows(const kvb_format *format, uint32_t dim, uint32_t n, double *to, double *to_size)
{
    kvb_storage store;
    assert_int_equal(kvb_storage_init(&store, format, dim, NULL, 1, 0, why, sizeof why), 0);
    void *scratch = malloc(kvb_storage_scratch(&store)); /* its exact size: a sanitiser sees what lies beyond */
    assert_non_null(scratch);
    kvb_storage_rows(&store, row_at, n, scratch, to, to_size);
    free(scratch);
}

static bool odd_bits(uint32_t x)
{
    bool odd = false;
    for (; x; x /= 2)
        odd ^= x & 1;
    return odd;
}

/* H[i][j] = (-1)^(bits that i and j share) / sqrt(block). */
static void transform_is_walshs(void **state)
{
    (void)state;
    static const uint32_t dims[] = {1, 2, 6, 7, 12, 64, 80, 96, 128, 256};
    static const kvb_transform transforms[] = {KVB_TRANSFORM_HADAMARD, KVB_TRANSFORM_SIGNED_HADAMARD};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int t = 0; t < 2; t++) {
            uint32_t dim = dims[d], block = kvb_transform_block(dim);
            float turned[MAX_DIM];
            double back[MAX_DIM];
            rows_make(1, dim, ROW_NORMAL);
            memcpy(turned, rows[0], sizeof turned);
            kvb_codec_rotate(transforms[t], dim, turned);
            for (uint32_t i = 0; i < dim; i++) {
                double sum = 0;
                for (uint32_t j = i / block * block; j < i / block * block + block; j++) {
                    bool minus = odd_bits(i % block & j % block) ^ (t == 1 && kvb_sign_flip(j));
                    sum += minus ? -(double)rows[0][j] : (double)rows[0][j];
                }
                assert_true(fabs((double)turned[i] - sum / sqrt(block)) < 1e-5);
                back[i] = (double)turned[i];
            }
            kvb_codec_unrotate(transforms[t], dim, back);
            for (uint32_t i = 0; i < dim; i++)
                assert_true(fabs(back[i] - (double)rows[0][i]) < 2e-6);
        }
}

/* Additions of f32 in the order that is prescribed: 2^24 + 1 is 2^24. */
static void transform_rounds_in_order(void **state)
{
    (void)state;
    float row[4] = {0x1p24f, 1, 1, 1}, none[4] = {1, 2, 3, 4};
    kvb_codec_rotate(KVB_TRANSFORM_HADAMARD, 4, row);
    assert_true(row[0] == 0x1.000002p23f && row[1] == 0x1.fffffep22f && row[2] == 0x1.fffffcp22f && row[3] == row[1]);
    kvb_codec_rotate(KVB_TRANSFORM_NONE, 4, none);
    assert_true(none[1] == 2);
}

/* V, a block of 4: one channel of 3 among zeros meets its pair as +-3 / sqrt(2), and all four as +-3/2; the mean of the
 * squares is (9/2 + 9/4) / 2. Equal channels have one size in both stages. */
static void sizes_of_v(const kvb_format *turned)
{
    const float giant[4] = {0, 3, 0, 0}, equal[4] = {2, -2, 2, 2};
    const float *row = giant;
    double scratch[64];
    kvb_storage store;
    assert_int_equal(kvb_storage_init(&store, turned, 4, NULL, 1, 0, why, sizeof why), 0);
    store.is_v = true;
    kvb_storage_rows(&store, &row, 1, scratch, stored, size);
    for (int c = 0; c < 4; c++)
        assert_true(fabs(size[c] - sqrt((9.0 / 2 + 9.0 / 4) / 2)) < 1e-6);
    row = equal;
    kvb_storage_rows(&store, &row, 1, scratch, stored, size);
    for (int c = 0; c < 4; c++)
        assert_true(fabs(size[c] - 2) < 1e-6);
}

/* Read with codes less the middle one: -10 and 245 are 117.5 and 127.5 on either side of it. */
static void sizes_centred(const kvb_format *asym)
{
    const float range[2] = {-10, 245};
    const float *row = range;
    double scratch[64];
    kvb_storage store;
    assert_int_equal(kvb_storage_init(&store, asym, 2, NULL, 1, 0, why, sizeof why), 0);
    store.centred = true;
    kvb_storage_rows(&store, &row, 1, scratch, stored, size);
    assert_true(size[0] == 127.5 + 117.5 && size[1] == 265);
}

/* size is the root mean square of the magnitudes within a block of the transform. */
static void sizes(void **state)
{
    (void)state;
    const kvb_format plain = {.name = "f32", .elem = KVB_F32};
    const kvb_format turned = {.name = "f32+had", .elem = KVB_F32, .transform = KVB_TRANSFORM_HADAMARD};
    const kvb_format asym = {.name = "int8-asym", .elem = KVB_UINT8, .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW};
    rows_make(3, 12, ROW_NORMAL);
    store_rows(&plain, 12, 3, stored, size);
    for (uint32_t i = 0; i < 36; i++)
        assert_true(stored[i] == (double)rows[i / 12][i % 12] && size[i] == fabs(stored[i]));
    store_rows(&turned, 12, 3, stored, size);
    for (uint32_t i = 0; i < 36; i++) {
        const float *block = rows[i / 12] + i % 12 / 4 * 4; /* a transform keeps the norm */
        double sum = 0;
        for (int c = 0; c < 4; c++)
            sum += (double)block[c] * (double)block[c];
        assert_true(fabs(stored[i] - (double)rows[i / 12][i % 12]) < 1e-6 && fabs(size[i] - sqrt(sum / 4)) < 1e-6);
    }
    rows[0][0] = -10, rows[0][1] = 245;
    store_rows(&asym, 2, 1, stored, size);
    assert_true(stored[1] == 245 && size[1] == 265 && size[0] == 10);
    sizes_of_v(&turned);
    sizes_centred(&asym);
}

static const kvb_format kivi_k = {.name = "kivi4-k",
                                  .elem = KVB_UINT4,
                                  .axis = KVB_AXIS_TOKENS,
                                  .group = 32,
                                  .scale_elem = KVB_F16,
                                  .zero_elem = KVB_F16,
                                  .residual_cells = 32,
                                  .residual_blocks = 4};
static const kvb_format kivi_v = {.name = "kivi2-v",
                                  .elem = KVB_UINT2,
                                  .axis = KVB_AXIS_CHANNELS,
                                  .group = 32,
                                  .scale_elem = KVB_F16,
                                  .zero_elem = KVB_F16,
                                  .residual_cells = 32,
                                  .residual_blocks = 4};

/* Blocks before the last four are encoded, and a row counts with its block. */
static void windows_close_by_blocks(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, encoded;
    } cases[] = {{1, 0}, {128, 0}, {129, 32}, {160, 32}, {161, 64}};
    const kvb_format *const formats[] = {&kivi_k, &kivi_v};
    rows_make(MAX_ROWS, 64, ROW_NORMAL);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        uint32_t n = cases[i / 2].n, exact = 0;
        store_rows(formats[i % 2], 64, n, stored, size);
        for (uint32_t r = 0; r < n; r++) {
            bool half = true;
            for (uint32_t c = 0; c < 64; c++)
                half &= stored[r * 64 + c] == kvb_codec_f16_value(kvb_codec_f16(rows[r][c]));
            assert_true(half == (r >= cases[i / 2].encoded));
            exact += half;
        }
        assert_int_equal(exact, n - cases[i / 2].encoded);
    }
}

/* kivi-k: channels share over the block's 32 tokens; its rows are f16 before that. */
static void closed_blocks_are_the_codecs(void **state)
{
    (void)state;
    rows_make(MAX_ROWS, 64, ROW_NORMAL);
    store_rows(&kivi_k, 64, 192, stored, size);
    for (uint32_t b = 0; b < 2; b++)
        for (uint32_t c = 0; c < 64; c++) {
            float lo = INFINITY, hi = -INFINITY;
            for (uint32_t r = b * 32; r < b * 32 + 32; r++) {
                float v = (float)kvb_codec_f16_value(kvb_codec_f16(rows[r][c]));
                lo = v < lo ? v : lo, hi = v > hi ? v : hi;
            }
            double step = kvb_codec_f16_value(kvb_codec_f16((hi - lo) / 15));
            for (uint32_t r = b * 32; r < b * 32 + 32; r++) {
                double steps = (stored[r * 64 + c] - (double)lo) / step;
                assert_true(steps == rint(steps) && steps >= 0 && steps <= 15);
                assert_true(fabs(stored[r * 64 + c] - (double)rows[r][c]) <= step * 0.52);
            }
        }
}

static void refuses(const kvb_format *format, uint32_t dim)
{
    kvb_storage store;
    why[0] = 0;
    assert_int_equal(kvb_storage_init(&store, format, dim, NULL, 1, 0, why, sizeof why), -ENOTSUP);
    assert_true(why[0]);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    const kvb_format unknown = {.name = "f17"}, other = {.name = "q8_0", .elem = KVB_Q4_0};
    const kvb_format q8 = {.name = "q8_0", .elem = KVB_Q8_0}, a4 = {.name = "a4g64", .elem = KVB_UINT4};
    const kvb_format had = {.name = "f16+had", .elem = KVB_F16, .transform = KVB_TRANSFORM_HADAMARD};
    const kvb_format tq = {.name = "tq3", .elem = KVB_CODEBOOK, .transform = KVB_TRANSFORM_SIGNED_HADAMARD};
    refuses(&unknown, 64), refuses(&other, 64);
    refuses(&q8, 48), refuses(&a4, 96), refuses(&had, 63), refuses(&tq, 80), refuses(&kivi_v, 48), refuses(&q8, 0);
    rows_make(1, 96, ROW_NORMAL);
    store_rows(&q8, 96, 1, stored, size);
    store_rows(&a4, 64, 1, stored, size);
    store_rows(&had, 62, 1, stored, size);
    store_rows(&tq, 96, 1, stored, size);
}

static void halved(const kvb_format *format, uint32_t dim, const float *row, double *to, double *to_size)
{
    (void)format;
    for (uint32_t c = 0; c < dim; c++) {
        to[c] = (double)row[c] / 2;
        to_size[c] = 3;
    }
}

/* A plug-in's format brings what is stored along, and nothing is done to its rows. */
static void formats_of_others(void **state)
{
    (void)state;
    enum { DIM = 7 };
    kvb_format own = {.name = "own", .elem = KVB_OPAQUE, .reference = halved};
    kvb_storage store;
    rows_make(3, DIM, ROW_NORMAL);
    store_rows(&own, DIM, 3, stored, size);
    for (uint32_t i = 0; i < 3 * DIM; i++)
        assert_true(stored[i] == (double)rows[i / DIM][i % DIM] / 2 && size[i] == 3);
    own.residual_cells = 32;
    assert_int_equal(kvb_storage_init(&store, &own, DIM, NULL, 1, 0, why, sizeof why), -ENOTSUP);
    assert_non_null(strstr(why, "'own' is opaque"));
    own = (kvb_format){.name = "own", .elem = KVB_OPAQUE};
    assert_int_equal(kvb_storage_init(&store, &own, DIM, NULL, 1, 0, why, sizeof why), -ENOTSUP);
    assert_non_null(strstr(why, "'own' brings no reference"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transform_is_walshs),
        cmocka_unit_test(transform_rounds_in_order),
        cmocka_unit_test(sizes),
        cmocka_unit_test(windows_close_by_blocks),
        cmocka_unit_test(closed_blocks_are_the_codecs),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(formats_of_others),
    };
    return cmocka_run_group_tests_name("oracle/store", tests, NULL, NULL);
}
