/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that calibration finds the largest magnitude of each layer and KV head, transformed where the format says so, and
 * finds nothing to do for formats without a fixed scale. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "harness/matrix/ground_truth.h"

enum { LAYERS = 2, HEADS = 3, DIM = 4, TOKENS = 5 };

static const kvb_trace_model model = {.layers = LAYERS, .heads = HEADS, .kv_heads = HEADS, .k_dim = DIM, .v_dim = DIM};
static float rows[LAYERS * TOKENS * HEADS * DIM];

static kvb_values values_of(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        rows[i] = (float)(i % 7) * (i % 2 ? 0.5f : -0.5f);
    kvb_values values = {.tokens = TOKENS, .model = model};
    values.layer[KVB_ROWS_K] = values.layer[KVB_ROWS_V] = rows;
    return values;
}

static float *row_at(uint32_t layer, uint32_t token, uint32_t h)
{
    return rows + (((size_t)layer * TOKENS + token) * HEADS + h) * DIM;
}

static void largest_of_each_head(void **state)
{
    (void)state;
    kvb_values values = values_of();
    kvb_format format = {.name = "x", .elem = KVB_E4M3, .head_scale = KVB_STATIC_HEAD};
    float *amax;
    row_at(0, 4, 1)[3] = -100; /* the last token, the last channel, a negative one */
    row_at(1, 0, 2)[0] = 50;
    row_at(1, 2, 0)[1] = NAN;
    assert_int_equal(kvb_calibrate(&model, &values, KVB_ROWS_K, &format, &amax), 0);
    assert_true(amax[0 * HEADS + 1] == 100);
    assert_true(amax[1 * HEADS + 2] == 50);
    assert_true(amax[0] == 3 && amax[2] == 3 && amax[HEADS] <= 3 && amax[HEADS] > 0);
    free(amax);
}

/* A row of ones becomes (2, 0, 0, 0) behind a Hadamard transform of 4. */
static void after_the_transform(void **state)
{
    (void)state;
    kvb_values values = values_of();
    kvb_format format = {
        .name = "x", .elem = KVB_E4M3, .head_scale = KVB_STATIC_TENSOR, .transform = KVB_TRANSFORM_HADAMARD};
    float *amax;
    for (uint32_t c = 0; c < DIM; c++)
        row_at(1, 3, 1)[c] = 10;
    assert_int_equal(kvb_calibrate(&model, &values, KVB_ROWS_V, &format, &amax), 0);
    assert_true(amax[1 * HEADS + 1] == 20);
    free(amax);
}

static void nothing_to_do(void **state)
{
    (void)state;
    kvb_values values = values_of();
    kvb_format format = {.name = "x", .elem = KVB_E4M3};
    float *amax = rows;
    assert_int_equal(kvb_calibrate(&model, &values, KVB_ROWS_K, &format, &amax), 0);
    assert_null(amax);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_of_each_head),
        cmocka_unit_test(after_the_transform),
        cmocka_unit_test(nothing_to_do),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("calibration", tests, NULL, NULL);
}
