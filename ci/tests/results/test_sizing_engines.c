/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: engines' own rules by numbers that they logged: what passes need beside the context, unified caches, ranks and drafts of
 * recurrent layers, device defaults, and what each refuses. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "results/sizing/sizing.h"

static char why[512];

static kvb_sized_model *built_in(const char *name)
{
    kvb_sized_model *model;

    if (kvb_sized_model_built_in(name, &model, why, sizeof why) != 0)
        fail_msg("%s", why);
    return model;
}

static kvb_size_ask ask_of(uint64_t context, uint64_t sequences, const char *kv)
{
    const kvb_kv_format *format = kvb_kv_format_find(kv);

    return (kvb_size_ask){.context = context, .sequences = sequences, .k = format, .v = format, .tp = 1, .pp = 1};
}

static kvb_size computed(const kvb_sized_model *model, const kvb_size_engine *engine, const kvb_size_ask *ask)
{
    kvb_size size;

    if (kvb_size_compute(model, engine, ask, &(kvb_size_terms){0}, &size, why, sizeof why) != 0)
        fail_msg("%s: %s: %s", model->name, engine->name, why);
    return size;
}

#define GIB 1073741824.0
#define MIB 1048576.0

/* Peaks that engines logged: ours is never below, and at most `above` times as much. Qwen2-1.5B has the shapes of Qwen2.5-1.5B. */
static const struct {
    const char *model;
    const kvb_size_engine *engine;
    uint32_t batch, max_seqs;
    double logged, above;
} peaks[] = {
    {"Meta-Llama-3-8B", &kvb_size_engine_vllm, 8192, 256, 1.19 * GIB, 1.20},
    {"Meta-Llama-3-8B", &kvb_size_engine_vllm, 8192, 256, 1.24 * GIB, 1.20},
    {"Meta-Llama-3-8B", &kvb_size_engine_vllm, 8192, 256, 1.26 * GIB, 1.20},
    {"Qwen2-1.5B-Instruct", &kvb_size_engine_vllm, 2048, 256, 1.39 * GIB, 1.20},
    {"Qwen2-1.5B-Instruct", &kvb_size_engine_vllm, 8192, 256, 1.45 * GIB, 1.20},
    {"Qwen2-1.5B-Instruct", &kvb_size_engine_vllm, 32768, 256, 2.015 * GIB, 1.01},
    {"Meta-Llama-3-8B", &kvb_size_engine_llama_cpp, 512, 0, 258.50 * MIB, 1.0},
};

static void test_peaks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        kvb_sized_model *model = built_in(peaks[i].model);
        kvb_size_ask ask = ask_of(1024, 1, "f16");

        ask.batch = peaks[i].batch;
        ask.max_seqs = peaks[i].max_seqs;
        double bytes = (double)computed(model, peaks[i].engine, &ask).activation_bytes;
        if (bytes < peaks[i].logged || bytes > peaks[i].logged * peaks[i].above)
            fail_msg("%s, %s: %.0f bytes, but %.0f are logged", peaks[i].model, peaks[i].engine->name, bytes,
                     peaks[i].logged);
        kvb_sized_model_free(model);
    }
}

/* vLLM's buffers are for max_num_seqs, more on large devices; and for all sequences that are asked for. */
static void test_devices(void **state)
{
    kvb_sized_model *model = built_in("Llama-3.1-8B");
    kvb_size_ask ask = ask_of(1024, 1, "f16");
    uint64_t usual = computed(model, &kvb_size_engine_vllm, &ask).activation_bytes;

    (void)state;
    ask.device = kvb_device_find("h100-80gb");
    assert_non_null(ask.device);
    assert_int_equal(kvb_size_batch(&kvb_size_engine_vllm, &ask), 8192);
    kvb_size large = computed(model, &kvb_size_engine_vllm, &ask);
    assert_true(large.activation_bytes > 3 * usual);
    assert_int_equal(large.budget_bytes, ask.device->memory / 1000 * 900);
    assert_int_equal(computed(model, &kvb_size_engine_ideal, &ask).budget_bytes, ask.device->memory);
    /* 512 + 1.5 x 8192 + 2 x 256 + 128 MiB: server_args.py */
    assert_int_equal(computed(model, &kvb_size_engine_sglang, &ask).activation_bytes, 13440UL << 20);
    ask.utilization = 500;
    assert_int_equal(computed(model, &kvb_size_engine_vllm, &ask).budget_bytes, ask.device->memory / 1000 * 500);
    assert_int_equal(computed(model, &kvb_size_engine_sglang, &ask).budget_bytes, ask.device->memory);
    ask.device = kvb_device_find("A100-80GB");
    assert_int_equal(kvb_size_batch(&kvb_size_engine_vllm, &ask), 2048);
    assert_true(computed(model, &kvb_size_engine_vllm, &ask).activation_bytes <= usual);
    ask.device = kvb_device_find("L4"); /* 512 + 1.5 x 2048 + 2 x 24 + 128 */
    assert_int_equal(computed(model, &kvb_size_engine_sglang, &ask).activation_bytes, 3760UL << 20);
    assert_null(kvb_device_find("H1000"));
    for (size_t i = 0; kvb_device_at(i); i++)
        assert_true(kvb_device_find(kvb_device_at(i)->name) == kvb_device_at(i));
    kvb_sized_model_free(model);
}

/* llama-kv-cache-iswa.cpp: pad256(min(n_ctx, n_swa * n_seq + n_ubatch)) cells of one stream. A row of a layer has 2048 bytes. */
static void test_unified(void **state)
{
    kvb_sized_model *model = built_in("gpt-oss-20b");
    kvb_size_ask ask = ask_of(8192, 4, "f16");

    (void)state;
    assert_int_equal(computed(model, &kvb_size_engine_llama_cpp, &ask).held.kv_bytes, 12 * 2048UL * 4 * (8192 + 768));
    ask.unified = true;
    assert_int_equal(computed(model, &kvb_size_engine_llama_cpp, &ask).held.kv_bytes, 12 * 2048UL * (4 * 8192 + 1024));
    ask.context = 100; /* 400 cells become 512 */
    assert_int_equal(computed(model, &kvb_size_engine_llama_cpp, &ask).held.kv_bytes, 24 * 2048UL * 512);
    kvb_sized_model_free(model);
}

/* mamba_utils.py: one group for each of 4 ranks, and a column for each drafted token, which keep a state each. */
static void test_states_on_ranks(void **state)
{
    static const char text[] =
        "{\"model_type\":\"mamba2\",\"hidden_size\":1024,\"num_hidden_layers\":2,\"num_heads\":32,"
        "\"head_dim\":64,\"state_size\":128,\"n_groups\":1,\"conv_kernel\":4,\"expand\":2,"
        "\"torch_dtype\":\"bfloat16\"}";
    kvb_sized_model *model;
    kvb_size_ask ask = ask_of(1024, 1, "bf16");

    (void)state;
    assert_int_equal(kvb_sized_model_read(text, strlen(text), "F", &model, why, sizeof why), 0);
    for (uint32_t tp = 1; tp <= 4; tp *= 4)
        for (uint32_t drafts = 0; drafts <= 3; drafts += 3) {
            uint64_t channels = (2048 + 2UL * tp * 128) / tp, state_of_one = 32UL * 64 * 128 / tp;

            ask.tp = tp;
            ask.spec_depth = drafts;
            assert_int_equal(computed(model, &kvb_size_engine_vllm, &ask).held.state_bytes,
                             2UL * (1 + drafts) * 2 * (state_of_one + channels * (3 + drafts)));
        }
    kvb_sized_model_free(model);
}

static void test_pools(void **state)
{
    kvb_sized_model *model = built_in("Llama-3.1-8B");
    kvb_size_ask ask = ask_of(1100, 3, "bf16");

    (void)state;
    assert_int_equal(computed(model, &kvb_size_engine_mlx, &ask).held.kv_bytes, 131072UL * 3 * 1280);
    assert_int_equal(computed(model, &kvb_size_engine_sglang, &ask).held.kv_bytes, 131072UL * (3 * 1100 + 1));
    ask.block = 64;
    assert_int_equal(computed(model, &kvb_size_engine_sglang, &ask).held.kv_bytes, 131072UL * (3 * 1152 + 64));
    ask.k = ask.v = kvb_kv_format_find("fp8");
    assert_int_equal(computed(model, &kvb_size_engine_sglang, &ask).held.kv_bytes, 65536UL * (3 * 1152 + 64));
    ask.k = ask.v = kvb_kv_format_find("a4g64");
    assert_int_equal(computed(model, &kvb_size_engine_mlx, &ask).held.kv_bytes, 36864UL * 3 * 1280);
    kvb_sized_model_free(model);
}

static void test_refused(void **state)
{
    static const struct {
        const char *model;
        const kvb_size_engine *engine;
        const char *kv;
        uint32_t tp;
        const char *why;
    } cases[] = {
        {"falcon-7b", &kvb_size_engine_vllm, "bf16", 2, "vLLM wants --tp to divide the 71 query heads"},
        {"DeepSeek-V3", &kvb_size_engine_vllm, "bf16", 3, "vLLM wants --tp to divide the 128 query heads"},
        {"Llama-3.1-8B", &kvb_size_engine_sglang, "q8_0", 1,
         "SGLang stores K and V in one of f32, f16, bf16, e4m3 and e5m2"},
        {"gpt-oss-20b", &kvb_size_engine_sglang, "bf16", 1,
         "SGLang's ratio of windows to tokens (swa_full_tokens_ratio) is not modelled"},
        {"Qwen3.5-9B", &kvb_size_engine_sglang, "bf16", 1,
         "SGLang's ratio of states to tokens (mamba_full_memory_ratio) is not modelled"},
        {"Llama-3.1-8B", &kvb_size_engine_mlx, "e4m3", 1,
         "mlx-lm stores K and V in the model's dtype or in affine groups"},
        {"gpt-oss-20b", &kvb_size_engine_mlx, "bf16", 1, "what a model's make_cache gives such layers is not modelled"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_sized_model *model = built_in(cases[i].model);
        kvb_size_ask ask = ask_of(1024, 1, cases[i].kv);
        kvb_size_allocation got;

        ask.tp = cases[i].tp;
        assert_int_equal(cases[i].engine->allocate(model, &ask, &got, why, sizeof why), -ENOTSUP);
        assert_string_equal(why, cases[i].why);
        kvb_sized_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peaks),           cmocka_unit_test(test_devices), cmocka_unit_test(test_unified),
        cmocka_unit_test(test_states_on_ranks), cmocka_unit_test(test_pools),   cmocka_unit_test(test_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
