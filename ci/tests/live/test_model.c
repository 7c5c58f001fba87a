/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the parts of the live model (RoPE, greedy choice, seeded weights, noise) do what their headers say. */
#include "fixture.h"

#include <math.h>

#include "workloads/live/model.h"
#include "workloads/live/rng.h"

enum { DIM = 16 };

static void row_fill(float *row, uint64_t stream)
{
    for (uint32_t i = 0; i < DIM; i++)
        row[i] = kvb_live_normal(7, stream, i);
}

static double product(const float *a, const float *b)
{
    double sum = 0;
    for (uint32_t i = 0; i < DIM; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void turn(float *x, uint32_t dim, uint32_t position, double theta)
{
    const kvb_rope rope = {.dims = dim, .base = theta};
    float angles[DIM];
    kvb_rope_angles(&rope, position, angles);
    kvb_rope_turn(&rope, angles, x);
}

static void test_rope_pairs_halves(void **state)
{
    (void)state;
    float x[4] = {1, 0, 0, 0};
    turn(x, 4, 1, 10000.0);
    /* pair (0, 2) turns by 1 radian, pair (1, 3) by 1/100 */
    assert_float_equal(x[0], cosf(1.0f), 1e-6);
    assert_float_equal(x[2], sinf(1.0f), 1e-6);
    float y[4] = {0, 1, 0, 0};
    turn(y, 4, 1, 10000.0);
    assert_float_equal(y[1], cosf(0.01f), 1e-6);
    assert_float_equal(y[3], sinf(0.01f), 1e-6);
}

static void test_rope_is_relative(void **state)
{
    (void)state;
    double at[2];
    for (uint32_t shift = 0; shift < 2; shift++) {
        float q[DIM], k[DIM];
        row_fill(q, 1);
        row_fill(k, 2);
        double length = product(q, q);
        turn(q, DIM, 9 + 1000 * shift, 10000.0);
        turn(k, DIM, 4 + 1000 * shift, 10000.0);
        assert_float_equal(product(q, q), length, 1e-4);
        at[shift] = product(q, k);
    }
    assert_float_equal(at[0], at[1], 1e-3);
    float still[DIM], same[DIM];
    row_fill(still, 3);
    memcpy(same, still, sizeof same);
    turn(still, DIM, 0, 10000.0);
    assert_memory_equal(still, same, sizeof same);
}

static void test_best_prefers_low_ids_on_ties(void **state)
{
    (void)state;
    const float logits[] = {1, 5, -2, 5, 3, 5, 3};
    int32_t best[7];
    kvb_model_best(logits, 7, 7, best);
    const int32_t order[] = {1, 3, 5, 4, 6, 0, 2};
    assert_memory_equal(best, order, sizeof order);
    for (uint32_t n = 1; n < 7; n++) {
        kvb_model_best(logits, 7, n, best);
        assert_memory_equal(best, order, n * sizeof *order);
    }
}

static void test_normals_are_normal(void **state)
{
    (void)state;
    enum { N = 100000 };
    double sum = 0, squares = 0, fourth = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = kvb_live_normal(3, 5, i);
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    assert_float_equal(sum / N, 0.0, 0.02);
    assert_float_equal(squares / N, 1.0, 0.02);
    assert_float_equal(fourth / N, 2.925, 0.1); /* 3 - 1.2/16: the sum of 16 uniforms */
}

static void test_weights_follow_the_seed(void **state)
{
    (void)state;
    char why[160];
    kvb_weights *a = weights_new(&kvb_model_config_default), *b = weights_new(&kvb_model_config_default), *c;
    assert_memory_equal(a->block, b->block, a->block_floats * sizeof(float));
    assert_int_equal(kvb_weights_open(&kvb_model_config_default, &c, why, sizeof why), 0);
    kvb_weights_seed(c, SEED + 1);
    size_t equal = 0;
    for (size_t i = 0; i < a->block_floats; i++)
        equal += fabsf(a->block[i] - c->block[i]) <= 0;
    assert_true(equal < a->block_floats / 1000);
    kvb_weights_close(a);
    kvb_weights_close(b);
    kvb_weights_close(c);
}

/* Names and shapes as transformers' LlamaForCausalLM and Qwen3ForCausalLM have them. */
static void test_tensors_are_named_and_shaped_like_llamas(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t shape[2];
        uint32_t n_dims;
    } expected[] = {
        {"model.embed_tokens.weight", {50, 40}, 2},
        {"model.layers.0.input_layernorm.weight", {40, 1}, 1},
        {"model.layers.0.self_attn.q_proj.weight", {24, 40}, 2},
        {"model.layers.0.self_attn.k_proj.weight", {12, 40}, 2},
        {"model.layers.0.self_attn.v_proj.weight", {12, 40}, 2},
        {"model.layers.0.self_attn.q_norm.weight", {6, 1}, 1},
        {"model.layers.0.self_attn.k_norm.weight", {6, 1}, 1},
        {"model.layers.0.self_attn.o_proj.weight", {40, 24}, 2},
        {"model.layers.0.post_attention_layernorm.weight", {40, 1}, 1},
        {"model.layers.0.mlp.gate_proj.weight", {56, 40}, 2},
        {"model.layers.0.mlp.up_proj.weight", {56, 40}, 2},
        {"model.layers.0.mlp.down_proj.weight", {40, 56}, 2},
        {"model.norm.weight", {40, 1}, 1},
        {"lm_head.weight", {50, 40}, 2},
    };
    enum { TENSORS = sizeof expected / sizeof *expected };
    kvb_model_config config = kvb_model_config_default;
    config.layers = 1;
    config.head_dim = 6;
    config.hidden = 40;
    config.ffn = 56;
    config.vocab = 50;
    kvb_weights *weights = weights_new(&config);
    kvb_weight weight;
    for (size_t i = 0; i < TENSORS; i++) {
        assert_true(kvb_weights_at(weights, i, &weight));
        assert_string_equal(weight.name, expected[i].name);
        assert_int_equal(weight.n_dims, expected[i].n_dims);
        assert_int_equal(weight.shape[0], expected[i].shape[0]);
        assert_int_equal(weight.shape[1], expected[i].shape[1]);
    }
    assert_false(kvb_weights_at(weights, TENSORS, &weight));
    kvb_weights_close(weights);
}

static void test_blur_is_relative_noise(void **state)
{
    (void)state;
    kvb_weights *w = weights_new(&kvb_model_config_default), *draft;
    assert_int_equal(kvb_weights_blur(w, 9, 0.1f, &draft), 0);
    kvb_weight from, to;
    for (size_t i = 0; kvb_weights_at(w, i, &from); i++) {
        assert_true(kvb_weights_at(draft, i, &to));
        double difference = 0, squares = 0;
        for (size_t e = 0; e < from.n; e++) {
            difference += ((double)to.data[e] - from.data[e]) * ((double)to.data[e] - from.data[e]);
            squares += (double)from.data[e] * from.data[e];
        }
        if (from.n_dims == 1)
            assert_true(difference <= 0);
        else
            assert_float_equal(sqrt(difference / squares), 0.1, 0.01);
    }
    kvb_weights_close(draft);
    kvb_weights_close(w);
}

static void test_bad_models_are_refused(void **state)
{
    (void)state;
    const struct {
        kvb_model_config config;
        const char *names;
    } bad[] = {
        {{.layers = 0}, "num_hidden_layers"},
        {{.layers = 1, .heads = 3, .kv_heads = 2, .head_dim = 4, .hidden = 8, .ffn = 8, .vocab = 8}, "multiple"},
        {{.layers = 1, .heads = 2, .kv_heads = 2, .head_dim = 5, .hidden = 8, .ffn = 8, .vocab = 8}, "even"},
        {{.layers = 1, .heads = 2, .kv_heads = 2, .head_dim = 4, .hidden = 8, .ffn = 8, .vocab = 8}, "rope_theta"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[160] = "";
        kvb_weights *weights;
        assert_true(kvb_weights_open(&bad[i].config, &weights, why, sizeof why) < 0);
        if (!strstr(why, bad[i].names))
            fail_msg("'%s' does not name %s", why, bad[i].names);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_pairs_halves),
        cmocka_unit_test(test_rope_is_relative),
        cmocka_unit_test(test_best_prefers_low_ids_on_ties),
        cmocka_unit_test(test_normals_are_normal),
        cmocka_unit_test(test_weights_follow_the_seed),
        cmocka_unit_test(test_tensors_are_named_and_shaped_like_llamas),
        cmocka_unit_test(test_blur_is_relative_noise),
        cmocka_unit_test(test_bad_models_are_refused),
    };
    return cmocka_run_group_tests_name("live model", tests, NULL, NULL);
}
