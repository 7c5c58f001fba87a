/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the cost of a format is 0 for f32, closed-form in a known case, and smaller for f16 than for bf16. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/oracle.h"

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
        cmocka_unit_test(ordered_by_precision),
        cmocka_unit_test(closed_case),
        cmocka_unit_test(overflow_costs_infinity),
    };
    return cmocka_run_group_tests_name("oracle/format_error", tests, NULL, NULL);
}
