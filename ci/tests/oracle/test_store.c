/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: rows through formats with transforms and windows, and what a format costs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"
#include "workloads/special_rows.h"

/*
 * Shows: the transform against its definition (a sum over all channels), rows through formats with transforms and
 * windows, which formats refuse which rows, and formats that bring their own reference.
 */

enum { MAX_DIM = 256, MAX_ROWS = 200 };

static float made[MAX_ROWS][MAX_DIM];
static const float *row_at[MAX_ROWS];
static double stored[MAX_ROWS * MAX_DIM], size[MAX_ROWS * MAX_DIM];
static char reason[200];

static void rows_make(uint32_t n, uint32_t dim, row_kind kind)
{
    uint64_t seed = 1 + kind;
    for (uint32_t r = 0; r < n; r++) {
        row_fill(kind, made[r], dim, &seed);
        row_at[r] = made[r];
    }
}

static void store_rows(const kvb_format *format, uint32_t dim, uint32_t n, double *to, double *to_size)
{
    kvb_storage store;
    assert_int_equal(kvb_storage_init(&store, format, dim, NULL, 1, 0, reason, sizeof reason), 0);
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
            memcpy(turned, made[0], sizeof turned);
            kvb_codec_rotate(transforms[t], dim, turned);
            for (uint32_t i = 0; i < dim; i++) {
                double sum = 0;
                for (uint32_t j = i / block * block; j < i / block * block + block; j++) {
                    bool minus = odd_bits(i % block & j % block) ^ (t == 1 && kvb_sign_flip(j));
                    sum += minus ? -(double)made[0][j] : (double)made[0][j];
                }
                assert_true(fabs((double)turned[i] - sum / sqrt(block)) < 1e-5);
                back[i] = (double)turned[i];
            }
            kvb_codec_unrotate(transforms[t], dim, back);
            for (uint32_t i = 0; i < dim; i++)
                assert_true(fabs(back[i] - (double)made[0][i]) < 2e-6);
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
    assert_int_equal(kvb_storage_init(&store, turned, 4, NULL, 1, 0, reason, sizeof reason), 0);
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
    assert_int_equal(kvb_storage_init(&store, asym, 2, NULL, 1, 0, reason, sizeof reason), 0);
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
        assert_true(stored[i] == (double)made[i / 12][i % 12] && size[i] == fabs(stored[i]));
    store_rows(&turned, 12, 3, stored, size);
    for (uint32_t i = 0; i < 36; i++) {
        const float *block = made[i / 12] + i % 12 / 4 * 4; /* a transform keeps the norm */
        double sum = 0;
        for (int c = 0; c < 4; c++)
            sum += (double)block[c] * (double)block[c];
        assert_true(fabs(stored[i] - (double)made[i / 12][i % 12]) < 1e-6 && fabs(size[i] - sqrt(sum / 4)) < 1e-6);
    }
    made[0][0] = -10, made[0][1] = 245;
    store_rows(&asym, 2, 1, stored, size);
    assert_true(stored[1] == 245 && size[1] == 265 && size[0] == 10);
    sizes_of_v(&turned);
    sizes_centred(&asym);
}

static const kvb_format late_k = {.name = "kivi4-k",
                                  .elem = KVB_UINT4,
                                  .axis = KVB_AXIS_TOKENS,
                                  .group = 32,
                                  .scale_elem = KVB_F16,
                                  .zero_elem = KVB_F16,
                                  .residual_cells = 32,
                                  .residual_blocks = 4};
static const kvb_format late_v = {.name = "kivi2-v",
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
    const kvb_format *const formats[] = {&late_k, &late_v};
    rows_make(MAX_ROWS, 64, ROW_NORMAL);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        uint32_t n = cases[i / 2].n, exact = 0;
        store_rows(formats[i % 2], 64, n, stored, size);
        for (uint32_t r = 0; r < n; r++) {
            bool half = true;
            for (uint32_t c = 0; c < 64; c++)
                half &= stored[r * 64 + c] == kvb_codec_f16_value(kvb_codec_f16(made[r][c]));
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
    store_rows(&late_k, 64, 192, stored, size);
    for (uint32_t b = 0; b < 2; b++)
        for (uint32_t c = 0; c < 64; c++) {
            float lo = INFINITY, hi = -INFINITY;
            for (uint32_t r = b * 32; r < b * 32 + 32; r++) {
                float v = (float)kvb_codec_f16_value(kvb_codec_f16(made[r][c]));
                lo = v < lo ? v : lo, hi = v > hi ? v : hi;
            }
            double step = kvb_codec_f16_value(kvb_codec_f16((hi - lo) / 15));
            for (uint32_t r = b * 32; r < b * 32 + 32; r++) {
                double steps = (stored[r * 64 + c] - (double)lo) / step;
                assert_true(steps == rint(steps) && steps >= 0 && steps <= 15);
                assert_true(fabs(stored[r * 64 + c] - (double)made[r][c]) <= step * 0.52);
            }
        }
}

static void refuses(const kvb_format *format, uint32_t dim)
{
    kvb_storage store;
    reason[0] = 0;
    assert_int_equal(kvb_storage_init(&store, format, dim, NULL, 1, 0, reason, sizeof reason), -ENOTSUP);
    assert_true(reason[0]);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    const kvb_format unknown = {.name = "f17"}, other = {.name = "q8_0", .elem = KVB_Q4_0};
    const kvb_format q8 = {.name = "q8_0", .elem = KVB_Q8_0}, a4 = {.name = "a4g64", .elem = KVB_UINT4};
    const kvb_format had = {.name = "f16+had", .elem = KVB_F16, .transform = KVB_TRANSFORM_HADAMARD};
    const kvb_format tq = {.name = "tq3", .elem = KVB_CODEBOOK, .transform = KVB_TRANSFORM_SIGNED_HADAMARD};
    refuses(&unknown, 64), refuses(&other, 64);
    refuses(&q8, 48), refuses(&a4, 96), refuses(&had, 63), refuses(&tq, 80), refuses(&late_v, 48), refuses(&q8, 0);
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
        assert_true(stored[i] == (double)made[i / DIM][i % DIM] / 2 && size[i] == 3);
    own.residual_cells = 32;
    assert_int_equal(kvb_storage_init(&store, &own, DIM, NULL, 1, 0, reason, sizeof reason), -ENOTSUP);
    assert_non_null(strstr(reason, "'own' is opaque"));
    own = (kvb_format){.name = "own", .elem = KVB_OPAQUE};
    assert_int_equal(kvb_storage_init(&store, &own, DIM, NULL, 1, 0, reason, sizeof reason), -ENOTSUP);
    assert_non_null(strstr(reason, "'own' brings no reference"));
}

/* Shows: the cost of a format is 0 for f32, closed-form in a known case, and smaller for f16 than for bf16. */

static kvb_format_error cost(const hand *h, const kvb_values *values, const kvb_format *k, const kvb_format *v)
{
    kvb_oracle_options options = {.k_format = k, .v_format = v, .max_pairs = UINT64_MAX, .seed = 1};
    kvb_oracle *oracle;
    char why[128];
    assert_int_equal(kvb_oracle_open(&h->trace, values, &options, &oracle, why, sizeof why), 0);
    kvb_format_error format = oracle->format;
    kvb_oracle_free(oracle);
    return format;
}

static void ordered_by_precision(void **state)
{
    (void)state;
    hand h = {0};
    kvb_values values;
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 60);
    const kvb_group group = {.heads = 4, .kv_heads = 2, .k_dim = 16, .v_dim = 8, .scale = 0.25};
    hand_values(&h, hand_model(2, group), 1, &values);
    kvb_format_error none = cost(&h, &values, &f32, &f32), half = cost(&h, &values, &f16, &f16),
                     brain = cost(&h, &values, &bf16, &bf16), only_v = cost(&h, &values, &f32, &f16),
                     only_k = cost(&h, &values, &f16, &f32);
    assert_true(none.max_abs == 0 && none.rel_l2 == 0 && none.kl_mean == 0 && none.kl_max == 0);
    assert_true(half.max_abs > 0 && half.max_abs * 4 < brain.max_abs);
    assert_true(half.rel_l2 > 1e-5 && half.rel_l2 * 4 < brain.rel_l2 && brain.rel_l2 < 1e-2);
    assert_true(half.kl_mean > 0 && half.kl_mean * 16 < brain.kl_mean); /* goes with the square */
    assert_true(half.kl_max >= half.kl_mean && brain.kl_max >= brain.kl_mean);
    assert_true(only_v.kl_max == 0 && only_v.rel_l2 > 0);
    assert_true(only_k.kl_max == half.kl_max && only_k.rel_l2 > 0);
    hand_free(&h);
}

/* One channel, scale 1, q = 1; keys 0 and `key`, values 0 and 1. The second query sees both. */
static void two_tokens(hand *h, float key, kvb_values *values)
{
    const float rows[KVB_ROWS_ATTENDED][2] = {{1, 1}, {0, key}, {0, 1}};
    hand_extend(h, KVB_EVENT_PREFILL, 0, 0, 2);
    hand_values(h, hand_model(1, (kvb_group){.heads = 1, .kv_heads = 1, .k_dim = 1, .v_dim = 1, .scale = 1}), 1,
                values);
    for (int kind = 0; kind < KVB_ROWS_ATTENDED; kind++)
        memcpy(values->block[kind], rows[kind], sizeof rows[kind]);
}

/* 1 + 2^-9, which bf16 stores as 1: o = sigmoid(1 + 2^-9) becomes sigmoid(1). The first query has no error. */
static void closed_case(void **state)
{
    (void)state;
    hand h = {0};
    kvb_values values;
    two_tokens(&h, 1 + 0x1p-9f, &values);
    double p = 1 / (1 + exp(-(1 + 0x1p-9))), r = 1 / (1 + exp(-1.0));
    double kl = p * log(p / r) + (1 - p) * log((1 - p) / (1 - r));
    kvb_format_error brain = cost(&h, &values, &bf16, &bf16);
    assert_true(fabs(brain.max_abs - (p - r)) < 1e-15);
    assert_true(fabs(brain.rel_l2 - (p - r) / p) < 1e-14);
    assert_true(fabs(brain.kl_max - kl) < 1e-14 && kl > 1e-7);
    assert_true(fabs(brain.kl_mean - kl / 2) < 1e-14);
    kvb_format_error half = cost(&h, &values, &f16, &f16); /* f16 holds 1 + 2^-9 exactly */
    assert_true(half.max_abs == 0 && half.rel_l2 == 0 && half.kl_max == 0);
    hand_free(&h);
}

/* A key that f16 cannot hold: the cost is infinite, not a crash and not 0. */
static void overflow_costs_infinity(void **state)
{
    (void)state;
    hand h = {0};
    kvb_values values;
    two_tokens(&h, 70000, &values);
    kvb_format_error half = cost(&h, &values, &f16, &f16);
    assert_true(isinf(half.max_abs) && isinf(half.kl_max));
    assert_true(cost(&h, &values, &bf16, &bf16).max_abs == 0);
    hand_free(&h);
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
        cmocka_unit_test(ordered_by_precision),
        cmocka_unit_test(closed_case),
        cmocka_unit_test(overflow_costs_infinity),
    };
    return cmocka_run_group_tests_name("storage", tests, NULL, NULL);
}
