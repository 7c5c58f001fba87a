/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a field that a config.json lacks has the default of the configuration class in transformers; a field that a
 * class does not read is inert only for that class; published files give the same layers as the built-in facts. */
#include "ci/tests/harness/sized.h"

/* The first group that keeps rows. */
static const kvb_sized_group *rows_of(const kvb_sized_model *model)
{
    for (size_t i = 0; i < model->n_groups; i++)
        if (model->groups[i].k_dim)
            return &model->groups[i];
    fail_msg("%s: no layer keeps rows", model->name);
    return NULL;
}

/* A config of this type with 8 layers, hidden_size 4096, these heads, and more fields in single quotes. */
#define HIDDEN 4096u
static json_t *config_of(const char *type, uint32_t heads, const char *more)
{
    char text[512];
    snprintf(text, sizeof text,
             "{'model_type': '%s', 'hidden_size': %u, 'num_hidden_layers': 8, 'num_attention_heads': %u%s%s}", type,
             HIDDEN, heads, *more ? ", " : "", more);
    return unquoted(text);
}

/* What transformers' classes take for fields that are left out: src/transformers/models/MODEL/configuration_MODEL.py at
 * 008e5743 (mistral 001f85b3, gpt_oss 02b8f42b, glm4_moe 008c726d, stablelm 05cd1ec1, falcon_h1 020a37d2, jamba 008f5c8c).
 * ChatGLM follows vLLM's chatglm.py: with multi_query_attention there are multi_query_group_num KV heads, else
 * num_attention_heads.
 * kv_heads 0: as many as heads. head_dim 0: hidden / heads. */
static const struct {
    const char *type, *class_name; /* class_name: a note names it; NULL: none */
    uint32_t heads, kv_heads, head_dim;
    const char *more;
} defaults[] = {
    {"gemma", "GemmaConfig", 16, 16, 256, ""},
    {"gemma2", "Gemma2Config", 8, 4, 256, ""},
    {"gemma4_text", "Gemma4TextConfig", 8, 4, 256, ""},
    {"qwen2", "Qwen2Config", 32, 32, 0, ""},
    {"qwen3", "Qwen3Config", 64, 32, 128, ""},
    {"qwen3_moe", "Qwen3MoeConfig", 32, 4, 0, ""},
    {"qwen2_moe", "Qwen2MoeConfig", 16, 16, 0, ""},
    {"qwen3_5_text", "Qwen3_5TextConfig", 16, 4, 256, ""},
    {"qwen3_5_moe_text", "Qwen3_5MoeTextConfig", 16, 2, 256, ""},
    {"qwen3_next", "Qwen3NextConfig", 16, 2, 256, ""},
    {"mistral", "MistralConfig", 32, 8, 0, ""},
    {"mistral", NULL, 32, 0, 0, "'num_key_value_heads': null"}, /* null is not absent: the class computes the value */
    {"mixtral", "MixtralConfig", 32, 8, 0, ""},
    {"starcoder2", "Starcoder2Config", 32, 2, 0, ""},
    {"smollm3", "SmolLM3Config", 16, 4, 0, ""},
    {"glm4", "Glm4Config", 32, 2, 128, ""},
    {"glm4_moe", "Glm4MoeConfig", 64, 8, 0, ""},
    {"seed_oss", "SeedOssConfig", 80, 8, 128, ""},
    {"minimax_m2", "MiniMaxM2Config", 48, 8, 128, ""},
    {"gpt_oss", "GptOssConfig", 64, 8, 64, ""},
    {"exaone4", "Exaone4Config", 32, 32, 0, ""},
    {"llama4_text", "Llama4TextConfig", 40, 8, 128, ""},
    {"jamba", "JambaConfig", 32, 8, 0, ""},
    {"stablelm", "StableLmConfig", 64, 32, 0, ""},
    {"llama", NULL, 32, 0, 0, ""},
    {"chatglm", NULL, 32, 0, 0, "'multi_query_group_num': 2"},
    {"chatglm", NULL, 32, 0, 0, "'multi_query_group_num': 2, 'multi_query_attention': false"},
    {"chatglm", NULL, 32, 2, 0, "'multi_query_group_num': 2, 'multi_query_attention': true"},
};

TEST(test_defaults)
{
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        json_t *config = config_of(defaults[i].type, defaults[i].heads, defaults[i].more);
        kvb_sized_model *model = read_json(defaults[i].type, config);
        const kvb_sized_group *g = rows_of(model);
        uint32_t kv = defaults[i].kv_heads ? defaults[i].kv_heads : defaults[i].heads;
        uint32_t dim = defaults[i].head_dim ? defaults[i].head_dim : HIDDEN / defaults[i].heads;
        bool told = !defaults[i].class_name;

        for (size_t n = 0; n < model->n_notes && !told; n++)
            told = strstr(model->notes[n].source, defaults[i].class_name);
        if (g->kv_heads != kv || g->k_dim != dim || g->v_dim != dim || !told)
            fail_msg("%s: %u KV heads of %u, but the class says %u of %u", defaults[i].type, g->kv_heads, g->k_dim, kv,
                     dim);
        kvb_sized_model_free(model);
        json_decref(config);
    }
}

/* A default that does not divide the heads is refused; a field that one class does not read is unknown to another. */
TEST(test_refused)
{
    static const struct {
        const char *type, *more, *reason;
        uint32_t heads;
    } cases[] = {
        {"glm4_moe", "", "8 KV heads do not divide the 4 heads", 4},
        {"llama", "'attention_chunk_size': 128", "attention_chunk_size: set, but llama has no such field", 32},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_sized_model *model;
        json_t *config = config_of(cases[i].type, cases[i].heads, cases[i].more);
        char *text = json_dumps(config, 0);
        tests_refused(kvb_sized_model_read(text, strlen(text), NULL, "F", &model, why, sizeof why), -EINVAL, why,
                      cases[i].reason);
        free(text);
        json_decref(config);
    }
}

/* Gemma4TextConfig: "Forcing last layer to full_attention". */
TEST(test_last_full)
{
    json_t *config = config_of("gemma4_text", 8, "");
    kvb_sized_model *model = read_json("gemma4_text", config);

    assert_int_equal(model->n_groups, 2);
    assert_int_equal(model->groups[1].kind, KVB_SIZED_FULL);
    assert_int_equal(model->groups[1].n, 2);
    assert_int_equal(model->groups[1].k_dim, 512);
    kvb_sized_model_free(model);
    json_decref(config);
}

/* Files as they are published (published.jsonl, with sources) give the layers of the built-in facts. */
TEST(test_published)
{
    FILE *file = fopen("ci/tests/harness/published.jsonl", "r");
    size_t n = 0;
    json_t *line;

    assert_non_null(file);
    for (; (line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)); n++) {
        const char *name = json_string_value(json_object_get(line, "name"));
        kvb_sized_model *own = read_json(name, json_object_get(line, "config")), *model = built_in(name);

        assert_non_null(json_string_value(json_object_get(line, "source")));
        assert_int_equal(own->n_groups, model->n_groups);
        for (size_t g = 0; g < own->n_groups; g++)
            if (memcmp(&own->groups[g], &model->groups[g], sizeof *own->groups) != 0)
                fail_msg("%s: group %zu differs from the built-in facts", name, g);
        assert_int_equal(own->parameters.total, model->parameters.total);
        kvb_sized_model_free(own);
        kvb_sized_model_free(model);
        json_decref(line);
    }
    assert_int_equal(n, 12);
    fclose(file);
}

/* Other spellings in published files: Nemotron-3-Ultra lists its layers and has no count, GLM-5.2 has a frequency
 * beside its list, Gemma 3n a width for each layer, granite-4.0-micro a mixer's fields but no such layer. */
TEST(test_spelled)
{
    static const struct {
        const char *model, *drop, *field;
        size_t entries; /* length of a list of equal values; 0: a plain value */
        const char *value;
    } cases[] = {
        {"NVIDIA-Nemotron-3-Nano-30B-A3B", "num_hidden_layers hybrid_override_pattern", "layers_block_type", 0, NULL},
        {"NVIDIA-Nemotron-3-Nano-30B-A3B", "num_hidden_layers", NULL, 0, NULL},
        {"GLM-5.2", "", "index_topk_freq", 0, "4"},
        {"GLM-5.2", "indexer_types", "index_topk_pattern", 0,
         "\"FFFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSS\""},
        {"gemma-3n-E4B", "", "intermediate_size", 35, "16384"},
        {"granite-4.0-h-small", "", "layer_types", 40, "\"attention\""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_sized_model *model = built_in(cases[i].model), *own;
        json_t *config = json_deep_copy(model->config), *list = json_array();
        const char *pattern = json_string_value(json_object_get(config, "hybrid_override_pattern"));
        for (; pattern && *pattern; pattern++)
            json_array_append_new(list, json_string(*pattern == 'M' ? "mamba" : *pattern == '*' ? "attention" : "moe"));
        for (size_t e = 0; e < cases[i].entries; e++)
            json_array_append_new(list, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        for (const char *name = cases[i].drop; *name; name += strcspn(name, " "), name += *name == ' ') {
            char word[64];
            snprintf(word, sizeof word, "%.*s", (int)strcspn(name, " "), name);
            assert_int_equal(json_object_del(config, word), 0);
        }
        if (cases[i].field)
            json_object_set_new(config, cases[i].field,
                                json_array_size(list) ? json_incref(list)
                                                      : json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        if (!json_object_get(config, "model_type")) /* it stands outside the text part */
            json_object_set_new(config, "model_type", json_string(model->type));
        own = read_json(cases[i].model, config);
        bool attends = strcmp(cases[i].model, "granite-4.0-h-small") == 0;
        assert_int_equal(own->n_groups, attends ? 1 : model->n_groups);
        assert_int_equal(own->groups[0].n, attends ? 40 : model->groups[0].n);
        assert_int_equal(own->intermediate, model->intermediate);
        if (!attends)
            assert_int_equal(own->parameters.total, model->parameters.total);
        json_decref(list);
        json_decref(config);
        kvb_sized_model_free(own);
        kvb_sized_model_free(model);
    }
}

/* What a sequence keeps, by architecture: bytes per token, fixed bytes. 4 layers of 16 heads, 4 KV heads of 128. */
TEST(test_families)
{
#define MLA                                                                                                            \
    "'kv_lora_rank': 512, 'q_lora_rank': 128, 'qk_rope_head_dim': 64, 'qk_nope_head_dim': 128, "                       \
    "'v_head_dim': 128"
#define ROW    (2 * 4 * 128 * 2)
#define LATENT ((512 + 64) * 2)
#define KDA(k, f)                                                                                                      \
    "'linear_attn_config': {'num_heads': 2, 'head_dim': 8, 'short_conv_kernel_size': 4, 'kda_layers': " k              \
    ", 'full_attn_layers': " f "}"
    static const struct {
        const char *type, *fields;
        double token;
        uint64_t fixed;
    } cases[] = {
        {"ernie4_5", "", 4 * ROW, 0},
        {"ernie4_5_moe", "", 4 * ROW, 0},
        {"ernie4_5_vl_moe_text", "", 4 * ROW, 0},
        {"bailing_moe", "", 4 * ROW, 0},
        {"bailing_moe_v2", "", 4 * ROW, 0},
        {"bailing_moe_linear", "'layer_group_size': 3", 2 * ROW,
         2 * 16 * 128 * 128 * 2}, /* the others are full layers */
        {"bailing_hybrid", "'layer_group_size': 3, " MLA, 2 * LATENT, 2 * 16 * 128 * 128 * 2},
        {"apertus", "", 4 * ROW, 0},
        {"dots1", "'sliding_window': 8, 'max_window_layers': 3", 3 * ROW, 8 * ROW},
        {"longcat_flash", "'num_layers': 28, " MLA, 56 * LATENT, 0},
        {"mimo", "'use_sliding_window': false, 'sliding_window': 8, 'max_window_layers': 2", 4 * ROW, 0},
        {"phi4mm", "'sliding_window': 262144", 0, 4UL * 262144 * ROW},
        {"glm4v_text", "", 4 * ROW, 0},
        {"glm4v_moe_text", "", 4 * ROW, 0},
        {"qwen3_omni_moe_text", "", 4 * ROW, 0},
        {"step3p7",
         "'sliding_window': 8, 'num_nextn_predict_layers': 1, 'layer_types': ['full_attention', "
         "'sliding_attention', 'full_attention', 'sliding_attention', 'sliding_attention'], "
         "'attention_other_setting': {'num_attention_heads': 24, 'num_attention_groups': 8, 'head_dim': 128}",
         2 * ROW, 2 * 8 * 2 * ROW},
        {"laguna",
         "'sliding_window': 8, 'layer_types': ['full_attention', 'full_attention', 'full_attention', "
         "'sliding_attention'], 'num_attention_heads_per_layer': [16, 16, 16, 24]",
         3 * ROW, 8 * ROW},
        {"deepseek_v4",
         "'compress_ratios': [0, 4, 128, 0], 'sliding_window': 8, 'num_key_value_heads': 1, 'head_dim': 512",
         (1024 + 132) / 4. + 1024 / 128., 4 * 8 * 1024 + 4 * (8 * 4 * 640 + 128 * 2 * 512)},
        {"deepseek_v4",
         "'layer_types': ['sliding_attention', 'compressed_sparse_attention', 'heavily_compressed_attention', "
         "'sliding_attention'], 'sliding_window': 8, 'num_key_value_heads': 1, 'head_dim': 512",
         (1024 + 132) / 4. + 1024 / 128., 4 * 8 * 1024 + 4 * (8 * 4 * 640 + 128 * 2 * 512)},
        {"glm_moe_dsa", MLA ", 'index_head_dim': 128, 'index_topk_freq': 2, 'index_skip_topk_offset': 1",
         4 * LATENT + 2 * 132, 0},
        {"glm_moe_dsa", MLA ", 'index_head_dim': 128, 'index_topk_freq': 2", 4 * LATENT + 3 * 132, 0},
        {"glm5_next",
         MLA ", " KDA("[0, 1, 2]", "[3]") ", 'index_dsa_use_layernorm': true, 'index_head_dim': 128, 'index_kpool': 4",
         LATENT + 132 / 4., 3 * (2 * 8 * 8 * 4 + 3 * 3 * 16 * 2)},
        {"kimi_linear", MLA ", " KDA("[1, 2, 3]", "[4]"), LATENT, 3 * (2 * 8 * 8 * 4 + 3 * 3 * 16 * 2)},
        {"inkling_text",
         "'local_layer_ids': [0, 1, 2], 'sliding_window_size': 8, 'swa_num_attention_heads': 16, "
         "'swa_num_key_value_heads': 8, 'conv_kernel_size': 4",
         ROW, 3 * 8 * 2 * ROW + 3 * 2 * (3 * (2 * 1024 + 2 * 2048) + 2 * 512 + 2 * 2048)},
        {"bart", "'decoder_layers': 2, 'decoder_attention_heads': 16, 'is_encoder_decoder': true", 2 * 4 * ROW,
         2UL * 1048576 * 4 * ROW},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        const kvb_size_ask ask = ask_of(4096, 1, "bf16");
        kvb_size_allocation got;

        snprintf(text, sizeof text,
                 "{'model_type': '%s', 'hidden_size': 2048, %s'num_attention_heads': 16, %s %s 'vocab_size': 99, "
                 "'torch_dtype': 'bfloat16', 'max_position_embeddings': 1048576%s%s}",
                 cases[i].type,
                 strstr(cases[i].fields, "_layers': 2,") || strstr(cases[i].fields, "num_layers")
                     ? ""
                     : "'num_hidden_layers': 4, ",
                 strstr(cases[i].fields, "num_key_value_heads': 1") ? "" : "'num_key_value_heads': 4, ",
                 strstr(cases[i].fields, "head_dim': 512") ? "" : "'head_dim': 128, ", *cases[i].fields ? ", " : "",
                 cases[i].fields);
        kvb_sized_model *model = read_text(text);
        assert_int_equal(kvb_size_hold(&kvb_size_engine_ideal, model, &ask, &got, why, sizeof why), 0);
        if (got.bytes_per_token != cases[i].token || got.fixed_bytes_per_sequence != cases[i].fixed)
            fail_msg("%s: %g B a token and %ju B a sequence, expected %g and %ju", cases[i].type, got.bytes_per_token,
                     (uintmax_t)got.fixed_bytes_per_sequence, cases[i].token, (uintmax_t)cases[i].fixed);
        kvb_sized_model_free(model);
    }
}
