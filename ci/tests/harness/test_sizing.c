/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: bytes of a context are those that papers state and engines report; shares of ranks; limits that fit a budget;
 * refusals. Models are written by hand, not read from a config. */
#include "ci/tests/harness/sized.h"

#define FULL(layers, kv, dim)                                                                                          \
    {                                                                                                                  \
        .n = layers, .kind = KVB_SIZED_FULL, .kv_heads = kv, .k_dim = dim, .v_dim = dim                                \
    }
#define WINDOW(layers, kv, dim, tokens, first)                                                                         \
    {                                                                                                                  \
        .n = layers, .kind = KVB_SIZED_WINDOW, .kv_heads = kv, .k_dim = dim, .v_dim = dim, .window = tokens,           \
        .sinks = first                                                                                                 \
    }
#define LATENT(layers, index)                                                                                          \
    {                                                                                                                  \
        .n = layers, .kind = KVB_SIZED_LATENT, .latent_dim = 512, .rope_dim = 64, .index_dim = index                   \
    }
#define STATE(layers, state, conv)                                                                                     \
    {                                                                                                                  \
        .n = layers, .kind = KVB_SIZED_STATE, .state_elements = state, .conv_elements = conv                           \
    }

#define CHUNK(tokens)                                                                                                  \
    {                                                                                                                  \
        .n = 1, .kind = KVB_SIZED_CHUNK, .kv_heads = 1, .k_dim = 128, .v_dim = 128, .window = tokens                   \
    }
#define GEMMA                                                                                                          \
    {                                                                                                                  \
        FULL(10, 16, 128), WINDOW(52, 16, 128, 1024, 0)                                                                \
    }
#define QWEN                                                                                                           \
    {                                                                                                                  \
        STATE(24, 524288, 24576), FULL(8, 4, 256)                                                                      \
    }
/* A fact without results, of one sequence. */
#define CASE(by, format, tokens, ...)                                                                                  \
    {                                                                                                                  \
        .model = "m", .groups = {__VA_ARGS__}, .engine = by, .kv = format, .context = tokens, .sequences = 1           \
    }

typedef struct fact {
    const char *model;
    kvb_sized_group groups[2];
    const kvb_size_engine *engine;
    const char *kv;
    uint64_t context, sequences;
    double per_token;
    uint64_t fixed, kv_bytes, state_bytes;
} fact;

static const kvb_size_engine *const ideal = &kvb_size_engine_ideal, *const llama = &kvb_size_engine_llama_cpp,
                                    *const vllm = &kvb_size_engine_vllm;

static void model_of(const fact *f, kvb_sized_model *m)
{
    *m =
        (kvb_sized_model){.name = (char *)f->model, .type = "", .groups = (kvb_sized_group *)f->groups, .hidden = 4096};
    snprintf(m->dtype, sizeof m->dtype, "bf16");
    for (m->n_groups = 0; m->n_groups < 2 && f->groups[m->n_groups].n; m->n_groups++)
        m->n_layers += f->groups[m->n_groups].n;
}

static kvb_size_ask asked(const fact *f)
{
    return ask_of(f->context, f->sequences, f->kv);
}

/* Published by papers and their code, or printed by the named engine; more of them in size.t, of built-in models. */
TEST(test_facts)
{
    const fact facts[] = {
        {"DeepSeek-V3", {LATENT(61, 0)}, llama, "bf16", 256, 1, 70272, 0, 256 * 70272, 0},
        {"DeepSeek-V3", {LATENT(61, 0)}, vllm, "fp8_ds_mla", 16, 1, 61 * 656, 0, 16 * 61 * 656, 0},
        {"DeepSeek-V3.2", {LATENT(61, 128)}, vllm, "fp8_ds_mla", 16, 1, 61 * 788, 0, 16 * 61 * 788, 0},
        {"Gemma-3-27B", GEMMA, ideal, "bf16", 4096, 1, 81920, 436207616, 4096 * 81920 + 436207616, 0},
        /* Common mistakes: a window of 4096 with four sinks takes 0.1 % more, and 4-bit formats have scales. */
        {"window", {WINDOW(32, 8, 128, 4096, 4)}, ideal, "bf16", 100000, 1, 0, 131072UL * 4100, 131072UL * 4100, 0},
        {"4 bits", {FULL(1, 1, 128)}, ideal, "a4g64", 1, 1, 2 * 128 * 0.5625, 0, 144, 0},
        {"MHA", {FULL(1, 1, 128)}, ideal, "int8", 1, 1, 264, 0, 264, 0},
        /* vLLM: ceil((1023 + 2 x 8192) / 16) + 1 = 1089 blocks; 52 window layers in six groups of ten. */
        {"Gemma-3-27B", GEMMA, vllm, "bf16", 131072, 1, 81920, 60UL * 1089 * 16 * 8192,
         10UL * 131072 * 8192 + 60UL * 1089 * 16 * 8192, 0},
        {"chunks", {CHUNK(8192)}, vllm, "bf16", 1UL << 20, 2, 0, 24576 * 512, 2UL * 24576 * 512, 0},
        /* Qwen3.5-9B: a state of 1,097,728 B is held by 272 tokens of 4096 B; three groups of eight, each with two
           states. */
        {"Qwen3.5-9B", QWEN, vllm, "bf16", 272, 1, 8 * 4096, 48UL * 272 * 4096, 8UL * 272 * 4096, 48UL * 272 * 4096},
    };

    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const fact *f = &facts[i];
        kvb_sized_model model;
        kvb_size_allocation got;
        kvb_size_ask ask = asked(f);

        model_of(f, &model);
        print_message("# %s, %s, %s\n", f->model, f->engine->name, f->kv);
        assert_int_equal(kvb_size_hold(f->engine, &model, &ask, &got, why, sizeof why), 0);
        assert_true(got.bytes_per_token == f->per_token);
        assert_int_equal(got.fixed_bytes_per_sequence, f->fixed);
        assert_int_equal(got.kv_bytes, f->kv_bytes);
        assert_int_equal(got.state_bytes, f->state_bytes);
    }
}

TEST(test_ranks_and_drafts)
{
    const fact llama8 = {"Llama-3.1-8B", {FULL(32, 8, 128)}, ideal, "bf16", 1000, 1, 0, 0, 0, 0},
               deepseek = {"DeepSeek-V3", {LATENT(61, 0)}, ideal, "bf16", 1, 1, 0, 0, 0, 0},
               mamba = {"mamba", {STATE(64, 5120 * 16, 5120 * 3)}, llama, "f32", 1, 1, 0, 0, 0, 0};
    const struct {
        const fact *f;
        uint32_t tp, pp, depth;
        bool mtp;
        uint64_t bytes; /* KV and states */
    } cases[] = {
        {&llama8, 2, 1, 0, false, 131072000 / 2},       {&llama8, 8, 1, 0, false, 131072000 / 8},
        {&llama8, 16, 1, 0, false, 131072000 / 8}, /* a KV head is on two ranks */
        {&llama8, 1, 3, 0, false, 131072000 / 32 * 11}, {&deepseek, 8, 1, 0, false, 70272},
        {&deepseek, 1, 2, 0, false, 31 * 1152},         {&deepseek, 1, 1, 0, true, 62 * 1152},
        {&mamba, 1, 1, 3, false, 4 * 24903680},         {&mamba, 1, 1, 0, false, 24903680},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_sized_model model;
        kvb_size_allocation got;
        kvb_size_ask ask = asked(cases[i].f);

        model_of(cases[i].f, &model);
        model.mtp_layers = 1;
        ask.tp = cases[i].tp;
        ask.pp = cases[i].pp;
        ask.spec_depth = cases[i].depth;
        ask.mtp = cases[i].mtp;
        assert_int_equal(kvb_size_hold(cases[i].f->engine, &model, &ask, &got, why, sizeof why), 0);
        assert_int_equal(got.kv_bytes + got.state_bytes, cases[i].bytes);
    }
}

TEST(test_refused)
{
    const struct {
        fact f;
        uint32_t tp;
        const char *why;
    } cases[] = {
        {CASE(ideal, "a4g64", 1, FULL(1, 8, 80)), 1, "a4g64 stores groups of 64, which do not divide K rows of 80"},
        {CASE(ideal, "f16", 1, FULL(1, 8, 128)), 3, "8 KV heads are not divided by --tp 3"},
        {CASE(llama, "e4m3", 1, FULL(1, 8, 128)), 1, "llama.cpp has no cache type e4m3"},
        {CASE(llama, "f16", 1, FULL(1, 8, 128)), 2, "llama.cpp divides the cache by layers (--pp), not by heads"},
        {CASE(vllm, "q8_0", 1, FULL(1, 8, 128)), 1, "vLLM has no cache dtype q8_0"},
        {CASE(vllm, "f16", 1, WINDOW(1, 8, 128, 9, 4)), 1, "vLLM has no window that keeps the first tokens"},
        {CASE(vllm, "f16", 1, FULL(2, 8, 96), WINDOW(2, 8, 64, 9, 0)), 1,
         "vLLM cannot unify pages of 32768 and 49152 B"},
        {CASE(ideal, "f16", 1UL << 62, FULL(1, 8, 128)), 1, "a size is above 64 bits"},
        {CASE(llama, "f16", UINT64_MAX, FULL(1, 8, 128)), 1, "a size is above 64 bits"},
        {CASE(vllm, "f16", UINT64_MAX, FULL(1, 8, 128)), 1, "a size is above 64 bits"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_sized_model model;
        kvb_size_allocation got;
        kvb_size_ask ask = asked(&cases[i].f);

        model_of(&cases[i].f, &model);
        ask.tp = cases[i].tp;
        assert_int_equal(kvb_size_hold(cases[i].f.engine, &model, &ask, &got, why, sizeof why),
                         strstr(cases[i].why, "above 64 bits") ? -EOVERFLOW : -ENOTSUP);
        assert_string_equal(why, cases[i].why);
    }
}

/* Limits are the last values that fit: one more token, or sequence, does not. */
TEST(test_budget)
{
    const fact facts[] = {
        {"plain", {FULL(32, 8, 128)}, ideal, "bf16", 4096, 3, 0, 0, 0, 0},
        {"plain", {FULL(32, 8, 128)}, llama, "q8_0", 4096, 3, 0, 0, 0, 0},
        {"windows", GEMMA, vllm, "e4m3", 4096, 2, 0, 0, 0, 0},
        {"hybrid", QWEN, vllm, "bf16", 4096, 1, 0, 0, 0, 0},
    };
    kvb_size_terms terms = {.weights_known = true, .weight_bytes = 1UL << 30, .margin = 5000, .budget = 40UL << 30};

    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        kvb_sized_model model;
        kvb_size size, at;
        kvb_size_ask ask = asked(&facts[i]);

        model_of(&facts[i], &model);
        assert_int_equal(kvb_size_compute(&model, facts[i].engine, &ask, &terms, &size, why, sizeof why), 0);
        assert_true(size.max_context > 1000 && size.max_sequences > 1);
        for (uint64_t more = 0; more < 2; more++) {
            kvb_size_ask longer = ask, wider = ask;

            longer.context = size.max_context + more;
            wider.sequences = size.max_sequences + more;
            assert_int_equal(kvb_size_compute(&model, facts[i].engine, &longer, &terms, &at, why, sizeof why), 0);
            assert_int_equal(at.total_bytes > terms.budget, more);
            assert_int_equal(kvb_size_compute(&model, facts[i].engine, &wider, &terms, &at, why, sizeof why), 0);
            assert_int_equal(at.total_bytes > terms.budget, more);
        }
        uint64_t parts =
            at.held.kv_bytes + at.held.state_bytes + at.weight_bytes + at.activation_bytes + at.runtime_bytes;
        assert_int_equal(at.margin_bytes, (parts + 19) / 20);
        assert_int_equal(at.total_bytes, parts + at.margin_bytes);
        model.max_context = 2000;
        assert_int_equal(kvb_size_compute(&model, facts[i].engine, &ask, &terms, &size, why, sizeof why), 0);
        assert_true(size.at_model_limit && size.max_context == 2000);
    }

    const fact mamba = {"mamba", {STATE(64, 81920, 15360)}, ideal, "f32", 1, 1, 0, 0, 0, 0};
    kvb_size_ask ask = asked(&mamba);
    kvb_sized_model model;
    kvb_size size;

    model_of(&mamba, &model);
    assert_int_equal(kvb_size_compute(&model, mamba.engine, &ask, &terms, &size, why, sizeof why), 0);
    assert_true(size.max_context == KVB_SIZE_UNBOUNDED && size.max_sequences < 1 << 20);
    terms.budget = 1;
    assert_int_equal(kvb_size_compute(&model, mamba.engine, &ask, &terms, &size, why, sizeof why), 0);
    assert_true(size.max_context == 0 && size.max_sequences == 0);
}
