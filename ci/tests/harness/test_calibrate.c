/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that calibration finds the largest magnitude of each layer and KV head, whatever their groups, transformed
 * where the format says so, and finds nothing to do for formats without a fixed scale. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "harness/matrix/ground_truth.h"

enum { TOKENS = 5 };

/* Layers 0 and 2 are alike; layer 1 has rows of another shape, of which V's are part of K's. */
static const kvb_model model = {
    .n_layers = 3,
    .n_groups = 2,
    .group_of = {0, 1, 0},
    .groups = {{.heads = 3, .kv_heads = 3, .k_dim = 4, .v_dim = 2, .scale = 1},
               {.heads = 2, .kv_heads = 1, .k_dim = 8, .v_dim = 4, .latent = true, .scale = 1}},
};
static float rows[2][TOKENS * (12 + 8 + 12)]; /* K, V */
static size_t at[2][3] = {{0, TOKENS * 12, TOKENS *(12 + 8)}, {0, TOKENS * 6, TOKENS * 6}};
static const kvb_values values = {.tokens = TOKENS,
                                  .model = &model,
                                  .block = {[KVB_ROWS_K] = rows[0], [KVB_ROWS_V] = rows[1]},
                                  .layer_at = {[KVB_ROWS_K] = at[0], [KVB_ROWS_V] = at[1]}};

static int rows_reset(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows[0] / sizeof *rows[0]; i++)
        rows[0][i] = rows[1][i] = (float)(i % 7) * (i % 2 ? 0.5f : -0.5f);
    return 0;
}

static float *row_at(kvb_rows kind, uint32_t layer, uint32_t token, uint32_t h)
{
    uint32_t dim =
        kind == KVB_ROWS_K ? model.groups[model.group_of[layer]].k_dim : model.groups[model.group_of[layer]].v_dim;
    return (float *)(uintptr_t)kvb_values_rows(&values, kind, layer, token) + h * dim;
}

static const float **calibrated(kvb_rows kind, kvb_format format)
{
    const float **amax = (const float **)rows;
    assert_int_equal(kvb_calibrate(&model, &values, kind, &format, &amax), 0);
    return amax;
}

static void largest_of_each_head(void **state)
{
    (void)state;
    for (kvb_rows kind = KVB_ROWS_K; kind <= KVB_ROWS_V; kind++) {
        row_at(kind, 0, 4, 1)[1] = -100; /* the last token, a negative one */
        row_at(kind, 2, 0, 2)[0] = 50;
        row_at(kind, 2, 4, 2)[0] = 49;
        row_at(kind, 2, 2, 0)[1] = NAN;
        if (kind == KVB_ROWS_K)
            row_at(kind, 1, 4, 0)[7] = 70; /* the last channel */
        const float **amax =
            calibrated(kind, (kvb_format){.name = "x", .elem = KVB_E4M3, .head_scale = KVB_STATIC_HEAD});
        assert_true(amax[0][1] == 100 && amax[2][2] == 50);
        assert_true(amax[0][0] <= 3 && amax[0][0] > 0 && amax[0][2] <= 3 && amax[2][0] <= 3 && amax[2][0] > 0 &&
                    amax[2][1] <= 3);
        if (kind == KVB_ROWS_K)
            assert_true(amax[1][0] == 70);
        else
            assert_null(amax[1]); /* no rows of its own */
        free(amax);
    }
}

/* A row of tens becomes (20, 0, 0, 0) behind a Hadamard transform of 4, one of 8 its first by sqrt(8). */
static void after_the_transform(void **state)
{
    (void)state;
    const kvb_format format = {
        .name = "x", .elem = KVB_E4M3, .head_scale = KVB_STATIC_TENSOR, .transform = KVB_TRANSFORM_HADAMARD};
    for (uint32_t c = 0; c < 8; c++)
        row_at(KVB_ROWS_K, 2, 3, 1)[c % 4] = row_at(KVB_ROWS_K, 1, 3, 0)[c] = 10;
    const float **amax = calibrated(KVB_ROWS_K, format);
    assert_true(amax[2][1] == 20);
    assert_true(fabsf(amax[1][0] - 10 * sqrtf(8)) < 1e-5f);
    free(amax);
}

static void nothing_to_do(void **state)
{
    (void)state;
    assert_null(calibrated(KVB_ROWS_K, (kvb_format){.name = "x", .elem = KVB_E4M3}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(largest_of_each_head, rows_reset),
        cmocka_unit_test_setup(after_the_transform, rows_reset),
        cmocka_unit_test_setup(nothing_to_do, rows_reset),
    };
    return cmocka_run_group_tests_name("calibration", tests, NULL, NULL);
}
