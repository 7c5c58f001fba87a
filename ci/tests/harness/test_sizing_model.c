/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a config.json gives the layers of the model's code, with the source of each factor; unknown, contradictory or
 * broken configs are refused with a line that names the fault. */
#include "ci/tests/harness/sized.h"

static int read_raw(const char *text, kvb_sized_model **model)
{
    memset(why, 0, sizeof why);
    return kvb_sized_model_read(text, strlen(text), NULL, "F", model, why, sizeof why);
}

/* One group of a model. Fields that its kind does not have are 0. */
typedef struct expected {
    const char *model;
    kvb_sized_kind kind;
    uint32_t n, kv_heads, k_dim, v_dim, window, sinks, latent_dim, rope_dim, index_dim;
    uint64_t state, conv;
    uint32_t every;
} expected;

/* Geometry published elsewhere: DeepSeek-V3's 61 x 576, Zamba2's head_dim of 2 hidden / heads, falcon-mamba's d_inner
 * of intermediate_size, Gemma 3n's 20 layers that own rows … (the traps of sizing). */
static const expected groups[] = {
    {"DeepSeek-V3", KVB_SIZED_LATENT, .n = 61, .v_dim = 128, .latent_dim = 512, .rope_dim = 64},
    {"DeepSeek-V3.2", KVB_SIZED_LATENT, .n = 61, .v_dim = 128, .latent_dim = 512, .rope_dim = 64, .index_dim = 128},
    {"GLM-5.2", KVB_SIZED_LATENT, .n = 21, .v_dim = 256, .latent_dim = 512, .rope_dim = 64, .index_dim = 128},
    {"GLM-5.2", KVB_SIZED_LATENT, .n = 57, .v_dim = 256, .latent_dim = 512, .rope_dim = 64},
    {"Llama-3.1-8B", KVB_SIZED_FULL, .n = 32, .kv_heads = 8, .k_dim = 128, .v_dim = 128},
    {"Llama-3.1-70B", KVB_SIZED_FULL, .n = 80, .kv_heads = 8, .k_dim = 128, .v_dim = 128},
    {"Llama-3.1-405B", KVB_SIZED_FULL, .n = 126, .kv_heads = 8, .k_dim = 128, .v_dim = 128},
    {"gemma-7b", KVB_SIZED_FULL, .n = 28, .kv_heads = 16, .k_dim = 256, .v_dim = 256},
    {"gemma-2-9b", KVB_SIZED_WINDOW, .n = 21, .kv_heads = 8, .k_dim = 256, .v_dim = 256, .window = 4096},
    {"gemma-3-27b-it", KVB_SIZED_FULL, .n = 10, .kv_heads = 16, .k_dim = 128, .v_dim = 128},
    {"gemma-3-27b-it", KVB_SIZED_WINDOW, .n = 52, .kv_heads = 16, .k_dim = 128, .v_dim = 128, .window = 1024},
    {"gemma-3n-E4B", KVB_SIZED_FULL, .n = 4, .kv_heads = 2, .k_dim = 256, .v_dim = 256},
    {"gemma-3n-E4B", KVB_SIZED_WINDOW, .n = 16, .kv_heads = 2, .k_dim = 256, .v_dim = 256, .window = 512},
    {"gemma-3n-E4B", KVB_SIZED_NONE, .n = 15},
    {"gemma-4-26B-A4B", KVB_SIZED_FULL, .n = 5, .kv_heads = 2, .k_dim = 512, .v_dim = 512},
    {"gemma-4-26B-A4B", KVB_SIZED_WINDOW, .n = 25, .kv_heads = 8, .k_dim = 256, .v_dim = 256, .window = 1024},
    {"gpt-oss-20b", KVB_SIZED_FULL, .n = 12, .kv_heads = 8, .k_dim = 64, .v_dim = 64},
    {"gpt-oss-20b", KVB_SIZED_WINDOW, .n = 12, .kv_heads = 8, .k_dim = 64, .v_dim = 64, .window = 128},
    {"mistral_7b", KVB_SIZED_WINDOW, .n = 32, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .window = 4096, .sinks = 4},
    {"MiMo-V2-Flash", KVB_SIZED_FULL, .n = 9, .kv_heads = 4, .k_dim = 192, .v_dim = 128},
    {"MiMo-V2-Flash", KVB_SIZED_WINDOW, .n = 39, .kv_heads = 8, .k_dim = 192, .v_dim = 128, .window = 128},
    {"Llama-4-Scout-17B-16E-Instruct", KVB_SIZED_CHUNK, .n = 36, .kv_heads = 8, .k_dim = 128, .v_dim = 128,
     .window = 8192},
    {"Llama-4-Scout-17B-16E-Instruct", KVB_SIZED_FULL, .n = 12, .kv_heads = 8, .k_dim = 128, .v_dim = 128},
    {"Phi-3.5-mini-instruct", KVB_SIZED_WINDOW, .n = 32, .kv_heads = 32, .k_dim = 96, .v_dim = 96, .window = 262144},
    {"Qwen2.5-72B", KVB_SIZED_FULL, .n = 80, .kv_heads = 8, .k_dim = 128, .v_dim = 128},
    {"falcon-7b", KVB_SIZED_FULL, .n = 32, .kv_heads = 1, .k_dim = 64, .v_dim = 64},
    {"gpt2", KVB_SIZED_FULL, .n = 12, .kv_heads = 12, .k_dim = 64, .v_dim = 64},
    {"chatglm3-6b", KVB_SIZED_FULL, .n = 28, .kv_heads = 2, .k_dim = 128, .v_dim = 128},
    {"Llama-3_3-Nemotron-Super-49B-v1", KVB_SIZED_FULL, .n = 49, .kv_heads = 8, .k_dim = 128, .v_dim = 128},
    {"Llama-3_3-Nemotron-Super-49B-v1", KVB_SIZED_NONE, .n = 31},
    {"MiniMax-M3", KVB_SIZED_FULL, .n = 57, .kv_heads = 4, .k_dim = 128, .v_dim = 128, .index_dim = 128},
    {"Qwen3.5-9B", KVB_SIZED_STATE, .n = 24, .state = 32 * 128 * 128, .conv = 3 * (2 * 16 * 128 + 32 * 128)},
    {"Qwen3.5-9B", KVB_SIZED_FULL, .n = 8, .kv_heads = 4, .k_dim = 256, .v_dim = 256},
    {"Kimi-K3", KVB_SIZED_STATE, .n = 69, .state = 96 * 128 * 128, .conv = 3 * 3 * 96 * 128},
    {"Kimi-K3", KVB_SIZED_LATENT, .n = 24, .v_dim = 128, .latent_dim = 512, .rope_dim = 64},
    {"MiniMax-Text-01", KVB_SIZED_STATE, .n = 70, .state = 64 * 128 * 128},
    {"MiniMax-Text-01", KVB_SIZED_FULL, .n = 10, .kv_heads = 8, .k_dim = 128, .v_dim = 128},
    {"mamba-2.8b", KVB_SIZED_STATE, .n = 64, .state = 5120 * 16, .conv = 3 * 5120},
    {"falcon-mamba-7b", KVB_SIZED_STATE, .n = 64, .state = 8192 * 16, .conv = 3 * 8192},
    {"AI21-Jamba-1.5-Mini", KVB_SIZED_STATE, .n = 28, .state = 8192 * 16, .conv = 3 * 8192},
    {"AI21-Jamba-1.5-Mini", KVB_SIZED_FULL, .n = 4, .kv_heads = 8, .k_dim = 128, .v_dim = 128},
    {"Zamba2-7B", KVB_SIZED_FULL, .n = 13, .kv_heads = 32, .k_dim = 224, .v_dim = 224},
    {"Zamba2-7B", KVB_SIZED_STATE, .n = 81, .state = 112 * 64 * 64, .conv = 3 * (7168 + 2 * 2 * 64)},
    {"Falcon-H1-7B-Instruct", KVB_SIZED_FULL, .n = 44, .kv_heads = 2, .k_dim = 128, .v_dim = 128},
    {"Falcon-H1-7B-Instruct", KVB_SIZED_STATE, .n = 44, .state = 3072 * 256, .conv = 3 * (3072 + 2 * 256)},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B", KVB_SIZED_STATE, .n = 23, .state = 4096 * 128, .conv = 3 * (4096 + 2 * 8 * 128)},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B", KVB_SIZED_FULL, .n = 6, .kv_heads = 2, .k_dim = 128, .v_dim = 128},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B", KVB_SIZED_NONE, .n = 23},
    {"granite-4.0-h-small", KVB_SIZED_STATE, .n = 36, .state = 8192 * 128, .conv = 3 * (8192 + 2 * 128)},
    {"rwkv-5-world-3b", KVB_SIZED_STATE, .n = 32, .state = 2560 * 64, .conv = 2 * 2560},
    {"DeepSeek-V4-Flash", KVB_SIZED_WINDOW, .n = 43, .kv_heads = 1, .k_dim = 512, .window = 128},
    {"DeepSeek-V4-Flash", KVB_SIZED_POOLED, .n = 21, .kv_heads = 1, .k_dim = 512, .index_dim = 128, .every = 4,
     .state = 8 * 4 * (512 + 128)},
    {"DeepSeek-V4-Flash", KVB_SIZED_POOLED, .n = 20, .kv_heads = 1, .k_dim = 512, .every = 128, .state = 128 * 2 * 512},
    {"Laguna-S-2.1", KVB_SIZED_FULL, .n = 12, .kv_heads = 8, .k_dim = 128, .v_dim = 128},
    {"Laguna-S-2.1", KVB_SIZED_WINDOW, .n = 36, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .window = 512},
    {"Step-3.5-Flash", KVB_SIZED_WINDOW, .n = 33, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .window = 512},
    {"Phi-4-mini-flash-reasoning", KVB_SIZED_STATE, .n = 9, .state = 5120 * 16, .conv = 3 * 5120},
    {"Phi-4-mini-flash-reasoning", KVB_SIZED_WINDOW, .n = 8, .kv_heads = 20, .k_dim = 64, .v_dim = 64, .window = 512},
    {"Phi-4-mini-flash-reasoning", KVB_SIZED_FULL, .n = 1, .kv_heads = 20, .k_dim = 64, .v_dim = 64},
    {"Phi-4-mini-flash-reasoning", KVB_SIZED_NONE, .n = 7},
    {"LongCat-Flash-Chat", KVB_SIZED_LATENT, .n = 56, .v_dim = 128, .latent_dim = 512, .rope_dim = 64},
    {"GLM-5-Next", KVB_SIZED_LATENT, .n = 11, .v_dim = 256, .latent_dim = 512},
    {"GLM-5-Next", KVB_SIZED_STATE, .n = 34, .state = 64 * 128 * 128, .conv = 3 * 3 * 64 * 128},
    {"Inkling", KVB_SIZED_WINDOW, .n = 55, .kv_heads = 16, .k_dim = 128, .v_dim = 128, .window = 512},
    {"Inkling", KVB_SIZED_STATE, .n = 11, .conv = 3 * (2 * 8 * 128 + 2 * 6144)},
    {"Qwen3.8-Flash-Next", KVB_SIZED_POOLED, .n = 12, .kv_heads = 1, .k_dim = 128, .every = 1},
    {"Qwen3.8-Flash-Next", KVB_SIZED_STATE, .n = 1, .conv = 3 * 3 * 4 * 2560},
    {"whisper-large-v3", KVB_SIZED_CROSS, .n = 32, .kv_heads = 20, .k_dim = 64, .v_dim = 64, .window = 1500},
};

static bool is_expected(const kvb_sized_group *group, const expected *e)
{
    return group->kind == e->kind && group->n == e->n && group->kv_heads == e->kv_heads && group->k_dim == e->k_dim &&
           group->v_dim == e->v_dim && group->window == e->window && group->sinks == e->sinks &&
           group->latent_dim == e->latent_dim && group->rope_dim == e->rope_dim && group->index_dim == e->index_dim &&
           group->state_elements == e->state && group->conv_elements == e->conv && group->every == e->every;
}

TEST(test_geometry)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        kvb_sized_model *model = built_in(groups[i].model);
        bool found = false;
        for (size_t g = 0; g < model->n_groups; g++)
            found |= is_expected(&model->groups[g], &groups[i]);
        if (!found)
            fail_msg("%s: no group of %u layers of kind %d as expected", groups[i].model, groups[i].n, groups[i].kind);
        kvb_sized_model_free(model);
    }
}

/* Every built-in model is read, has a source, whole notes, and all its layers. */
TEST(test_built_in)
{
    size_t n = 0;

    for (; kvb_sized_model_name(n); n++) {
        kvb_sized_model *model = built_in(kvb_sized_model_name(n));
        uint32_t layers = 0;
        assert_true(model->source && model->source[0]);
        assert_non_null(model->config);
        for (size_t g = 0; g < model->n_groups; g++) {
            bool told = false;
            layers += model->groups[g].n;
            assert_non_null(model->groups[g].name);
            for (size_t i = 0; i < model->n_notes; i++)
                told |= model->notes[i].group == (int)g && strstr(model->notes[i].text, "layers: ");
            assert_true(told);
        }
        assert_true(layers >= model->n_layers);
        for (size_t i = 0; i < n; i++)
            assert_string_not_equal(kvb_sized_model_name(i), kvb_sized_model_name(n));
        kvb_sized_model_free(model);
    }
    assert_true(n >= 40);
}

TEST(test_names)
{
    kvb_sized_model *model = built_in("META-LLAMA/llama-3.1-8b");

    assert_string_equal(model->name, "meta-llama/Llama-3.1-8B");
    kvb_sized_model_free(model);
    assert_int_equal(kvb_sized_model_built_in("Llama-3.1-8", &model, why, sizeof why), -ENOENT);
    assert_contains(why, "meta-llama/Llama-3.1-8B");
    assert_int_equal(kvb_sized_model_built_in("Lama-3.1-70b", &model, why, sizeof why), -ENOENT);
    assert_contains(why, "meta-llama/Llama-3.1-70B");
    assert_int_equal(kvb_sized_model_built_in("", &model, why, sizeof why), -ENOENT);
    assert_null(model);
}

static bool is_noted(const kvb_sized_model *model, const char *text, const char *source)
{
    for (size_t i = 0; i < model->n_notes; i++)
        if (strcmp(model->notes[i].text, text) == 0 && strcmp(model->notes[i].source, source) == 0)
            return true;
    return false;
}

TEST(test_notes)
{
    kvb_sized_model *model = built_in("gpt2");

    assert_true(is_noted(model, "heads = 12", "n_head"));
    assert_true(is_noted(model, "kv_heads = 12", "n_head (num_key_value_heads is absent)"));
    assert_true(is_noted(model, "k_dim = 64", "n_embd / n_head (head_dim is absent)"));
    assert_true(is_noted(model, "12 of 12 layers: 0-11", "GPT2LMHeadModel's code"));
    kvb_sized_model_free(model);
    model = built_in("gemma-3n-E4B");
    assert_true(is_noted(model, "the last 15 layers read the rows of earlier ones", "num_kv_shared_layers"));
    assert_true(is_noted(model, "16 of 35 layers: 0-3, 5-8, 10-13, 15-18", "Gemma3nForConditionalGeneration's code"));
    kvb_sized_model_free(model);
    model = built_in("Phi-3.5-mini-instruct");
    assert_true(is_noted(model, "the window of 262144 tokens limits no context of up to 131072",
                         "sliding_window, max_position_embeddings"));
    kvb_sized_model_free(model);
    model = built_in("Qwen2.5-7B-Instruct");
    assert_true(is_noted(model, "no sliding window", "use_sliding_window is not true"));
    kvb_sized_model_free(model);
}

#define LLAMA(more)                                                                                                    \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4" more "}"
#define GEMMA3(more)                                                                                                   \
    "{\"model_type\":\"gemma3_text\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4" more "}"
#define MLA "{\"model_type\":\"deepseek_v3\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4"

/* Configs with harmless oddities are read. */
TEST(test_tolerated)
{
    static const char *const texts[] = {
        LLAMA(",\"sliding_window\":null,\"rope_scaling\":{\"factor\":8.0},\"eos_token_id\":[1,2]"),
        LLAMA(",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]"),
        LLAMA(",\"time_step_limit\":[0.0,Infinity],\"x\":[NaN,-Infinity],\"y\":\"Infinity \\\" NaN\""),
        LLAMA(",\"sliding_window\":4096,\"use_sliding_window\":false"),
        LLAMA(",\"num_key_value_heads\":null,\"kv_lora_rank\":null"),
        LLAMA(",\"architectures\":[\"FineTunedForCausalLM\"]"),
        "{\"d_model\":2560,\"n_layer\":64,\"vocab_size\":50277,\"ssm_cfg\":{}}",
        "{\"d_model\":2560,\"n_layer\":64,\"vocab_size\":50277,\"ssm_cfg\":{\"layer\":\"Mamba2\"}}",
    };
    kvb_sized_model *model;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (read_raw(texts[i], &model) != 0)
            fail_msg("%s: %s", texts[i], why);
        kvb_sized_model_free(model);
    }
}

/* Configs that are refused, and words of the reason. */
static const struct {
    int error;
    const char *text, *names;
} refused[] = {
    {-EINVAL, "", "line 1"},
    {-EINVAL, "{\n\"a\": 1,\n}", "line 3"},
    {-EINVAL, "[1]", "an object was expected"},
    {-EINVAL, "{\"model_type\": [\"llama\"]}", "model_type: a name was expected"},
    {-EINVAL, "{\"model_type\": \"llama\", \"architectures\": [5]}", "architectures: a list of names was expected"},
    {-EINVAL, "{\"model_type\": \"llama\", \"architectures\": 5}", "architectures: a list of names was expected"},
    {-EINVAL, "\xef\xbb\xbf{\"model_type\": \"llama\"}", "num_hidden_layers"},
    {-EINVAL, "{} {}", "line 1"},
    {-EINVAL, "{\"a\":1,\"a\":2}", "duplicate"},
    {-EINVAL, "{\"hidden_size\":1}", "model_type"},
    {-ENOTSUP, "{\"model_type\":\"martian\"}", "martian"},
    {-ENOTSUP, "{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"martian\"}}", "martian"},
    {-ENOTSUP, "{\"model_type\":\"t5\"}", "encoder"},
    {-EINVAL, "{\"model_type\":\"llama\",\"architectures\":[\"MambaForCausalLM\"]}", "model_type says llama"},
    {-EINVAL, "{\"model_type\":\"llama\",\"text_config\":7}", "text_config"},
    {-EINVAL, "{\"model_type\":\"gemma3\",\"text_config\":{}}", "text_config.num_hidden_layers: missing"},
    {-EINVAL, LLAMA(",\"num_key_value_heads\":3"), "num_key_value_heads"},
    {-EINVAL, LLAMA(",\"num_key_value_heads\":8"), "num_key_value_heads"},
    {-EINVAL, LLAMA(",\"num_key_value_heads\":0"), "num_key_value_heads: 0"},
    {-EINVAL, LLAMA(",\"head_dim\":-4"), "head_dim: -4"},
    {-EINVAL, LLAMA(",\"head_dim\":2147483648"), "head_dim: 2147483648"},
    {-EINVAL, LLAMA(",\"head_dim\":16.5"), "head_dim: 16.5"},
    {-EINVAL, LLAMA(",\"head_dim\":\"16\""), "head_dim: \"16\""},
    {-EINVAL, LLAMA(",\"head_dim\":true"), "head_dim: true"},
    {-EINVAL, LLAMA(",\"head_dim\":99999999999999999999"), "too big"},
    {-EINVAL, LLAMA(",\"n_layer\":5"), "n_layer"},
    {-EINVAL, LLAMA(",\"torch_dtype\":\"int3\""), "int3"},
    {-EINVAL, LLAMA(",\"kv_lora_rank\":512"), "kv_lora_rank"},
    {-EINVAL, LLAMA(",\"sliding_window\":4096"), "sliding_window"},
    {-EINVAL, LLAMA(",\"num_kv_shared_layers\":2"), "num_kv_shared_layers"},
    {-EINVAL,
     "{\"model_type\":\"gemma3n_text\",\"hidden_size\":64,\"num_hidden_layers\":5,\"num_attention_heads\":4,"
     "\"num_kv_shared_layers\":1}",
     "num_kv_shared_layers: no earlier layer has rows for layer 4"},
    {-EINVAL, LLAMA(",\"is_encoder_decoder\":true"), "is_encoder_decoder"},
    {-EINVAL, LLAMA(",\"layer_types\":[\"full_attention\"]"), "layer_types: 1 entries"},
    {-EINVAL, LLAMA(",\"layer_types\":{\"full_attention\":4}"), "layer_types: an array"},
    {-EINVAL, LLAMA(",\"layer_types\":[\"full_attention\",\"full_attention\",\"mamba\",\"full_attention\"]"),
     "layer_types[2]"},
    {-EINVAL, "{\"model_type\":\"llama\",\"hidden_size\":65,\"num_hidden_layers\":4,\"num_attention_heads\":4}",
     "hidden_size: 65"},
    {-EINVAL, "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":0}",
     "num_attention_heads: 0"},
    {-EINVAL, "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":99999,\"num_attention_heads\":4}",
     "num_hidden_layers: 99999"},
    {-EINVAL, GEMMA3(",\"sliding_window\":-1"), "sliding_window: -1"},
    {-EINVAL, GEMMA3(",\"sliding_window\":null"), "sliding_window: missing"},
    {-EINVAL, GEMMA3(",\"sliding_window_pattern\":0"), "sliding_window_pattern: 0"},
    {-EINVAL, MLA ",\"kv_lora_rank\":512}", "qk_rope_head_dim: missing"},
    {-EINVAL, MLA "}", "kv_lora_rank: missing"},
    {-EINVAL,
     "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
     "\"layer_types\":[\"sliding_attention\"],\"sliding_window\":8,\"use_sliding_window\":false}",
     "use_sliding_window"},
    {-EINVAL,
     "{\"model_type\":\"mamba2\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_heads\":3,\"head_dim\":64,"
     "\"state_size\":16,\"n_groups\":1}",
     "num_heads: 3 heads of 64"},
    {-EINVAL,
     "{\"model_type\":\"mamba\",\"hidden_size\":64,\"num_hidden_layers\":4,\"intermediate_size\":2147483647,"
     "\"state_size\":2147483647,\"conv_kernel\":2147483647,\"expand\":2147483647,\"n_layer\":3}",
     "n_layer"},
    {-EINVAL,
     "{\"model_type\":\"kimi_linear\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
     "\"linear_attn_config\":{\"full_attn_layers\":[1],\"kda_layers\":[3]}}",
     "kda_layers[0]"},
    {-EINVAL,
     "{\"model_type\":\"kimi_linear\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
     "\"linear_attn_config\":{\"full_attn_layers\":[1],\"kda_layers\":[]}}",
     "layer 2"},
    {-EINVAL,
     "{\"model_type\":\"nemotron_h\",\"hidden_size\":64,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
     "\"hybrid_override_pattern\":\"M*x\"}",
     "character 3"},
    {-EINVAL,
     "{\"model_type\":\"jamba\",\"hidden_size\":64,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
     "\"attn_layer_period\":2,\"attn_layer_offset\":5}",
     "attn_layer_offset: 5"},
};

TEST(test_refused)
{
    kvb_sized_model *model;

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int error = read_raw(refused[i].text, &model);
        if (error != refused[i].error || !strstr(why, refused[i].names) || strncmp(why, "F: ", 3) != 0 || model)
            fail_msg("%s: %d, \"%s\"", refused[i].text, error, why);
        assert_null(strchr(why, '\n'));
    }
}

/* ---- no input crashes, and every failure has a reason --------------------------------------------------------- */

static uint32_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* Replaces one field, at any depth, by a value of another kind. */
static void field_change(json_t *object, uint64_t *seed)
{
    static const char *const values[] = {
        "0",     "1",     "-1",   "2147483647", "2147483648", "9223372036854775807",  "1.5", "null", "true",
        "false", "\"x\"", "\"\"", "[]",         "[0,0]",      "[\"full_attention\"]", "{}",  "3",    "64",
    };
    size_t k = 0, at = next(seed) % (json_object_size(object) + 1);
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        if (k++ != at)
            continue;
        if (json_is_object(value) && next(seed) % 4)
            return field_change(value, seed);
        json_t *other = json_loads(values[next(seed) % (sizeof values / sizeof *values)], JSON_DECODE_ANY, NULL);
        if (json_is_array(value) && json_array_size(value) > 0 && next(seed) % 2)
            json_array_set_new(value, next(seed) % json_array_size(value), other);
        else
            json_object_set_new(object, key, other);
        return;
    }
}

/* Each engine refuses the model in one line, or its sizes are sums of parts and grow with context and sequences. */
static void sizes_check(const kvb_sized_model *model)
{
    static const kvb_size_engine *const engines[] = {&kvb_size_engine_ideal,     &kvb_size_engine_vllm,
                                                     &kvb_size_engine_llama_cpp, &kvb_size_engine_sglang,
                                                     &kvb_size_engine_trtllm,    &kvb_size_engine_mlx};
    const kvb_size_terms terms = {0};
    uint32_t layers = 0;

    for (size_t g = 0; g < model->n_groups; g++) {
        assert_true(model->groups[g].n > 0 && model->groups[g].n <= model->n_layers && model->groups[g].name);
        layers += kvb_sized_attends(&model->groups[g]) ? model->groups[g].n : 0;
    }
    assert_true(layers <= model->n_layers);
    for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
        uint64_t last = 0;
        for (int k = 0; k < 4; k++) { /* 1 x 100, 1 x 5000, 1 x 70000, 3 x 70000 tokens */
            const kvb_size_ask ask = ask_of((const uint64_t[]){100, 5000, 70000, 70000}[k], k == 3 ? 3 : 1, "bf16");
            kvb_size size;
            int error = kvb_size_compute(model, engines[e], &ask, &terms, &size, why, sizeof why);
            if (error) {
                assert_true((error == -ENOTSUP || error == -EOVERFLOW) && strlen(why) > 5 && !strchr(why, '\n'));
                continue;
            }
            const kvb_size_allocation *h = &size.held;
            assert_true(size.total_bytes == h->kv_bytes + h->state_bytes + size.activation_bytes);
            assert_true(h->kv_bytes + h->state_bytes >= last);
            assert_true(h->bytes_per_token >= 0 && h->bytes_per_token < 0x1p64);
            last = h->kv_bytes + h->state_bytes;
        }
    }
}

static void read_mutated(char *text, size_t n)
{
    kvb_sized_model *model = NULL;

    memset(why, 0, sizeof why);
    int error = kvb_sized_model_read(text, n, NULL, "F", &model, why, sizeof why);
    if (error) {
        assert_null(model);
        assert_true(strlen(why) > 5);
        assert_null(strpbrk(why, "\n\r\033"));
    } else {
        assert_true(model->n_groups > 0);
        sizes_check(model);
    }
    kvb_sized_model_free(model);
}

TEST(test_mutations)
{
    uint64_t seed = 1;

    for (size_t i = 0; kvb_sized_model_name(i); i++) {
        kvb_sized_model *model = built_in(kvb_sized_model_name(i));
        for (int round = 0; round < 120; round++) {
            json_t *config = json_deep_copy(model->config);
            for (uint32_t changes = 1 + next(&seed) % 3; changes > 0; changes--)
                field_change(config, &seed);
            char *text = json_dumps(config, 0);
            size_t n = strlen(text);
            if (round % 4 == 0)
                for (uint32_t bytes = 1 + next(&seed) % 4; bytes > 0; bytes--)
                    text[next(&seed) % n] = (char)next(&seed);
            read_mutated(text, round % 8 == 0 ? next(&seed) % n : n);
            free(text);
            json_decref(config);
        }
        kvb_sized_model_free(model);
    }
}

/* ---- facts collected by others, if the file is here ----------------------------------------------------------- */

TEST(test_collected)
{
    json_t *all = json_load_file("../shared/data/models.json", 0, NULL), *entry;
    size_t i, sized = 0;

    if (!all) {
        print_message("# ../shared/data/models.json is missing\n");
        skip();
    }
    json_array_foreach(all, i, entry)
    {
        json_t *fields = json_object_get(entry, "fields");
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (!json_object_get(fields, "architectures"))
            json_object_set_new(fields, "architectures", json_pack("[O]", json_object_get(entry, "architecture")));
        char *text = json_dumps(fields, 0);
        kvb_sized_model *model = NULL;
        int error = read_raw(text, &model);
        /* lists that were collected as a sentence or as counts */
        if (error && !strstr(why, "layers_block_type") && !strstr(why, "layer_types") && !strstr(why, "attn_type_list"))
            fail_msg("%s: %s", name, why);
        sized += error == 0;
        kvb_sized_model_free(model);
        free(text);
    }
    assert_int_equal(json_array_size(all) - sized, 3);
    json_decref(all);
}
