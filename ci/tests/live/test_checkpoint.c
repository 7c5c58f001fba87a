/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: weights saved as a Llama-style checkpoint load back and say the same; a checkpoint that would be computed
 * wrongly is refused, naming the key or tensor. */
#include "fixture.h"

#include "workloads/live/weights.h"
#include "workloads/safetensors.h"

static void round_trip(const kvb_model_config *config)
{
    char directory[4096], path[8192], why[320] = "";
    directory_new(directory);
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    kvb_weights *saved = weights_new(config), *loaded = NULL;
    if (kvb_weights_save(saved, path, why, sizeof why) || kvb_weights_load(path, NULL, &loaded, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(saved->block_floats, loaded->block_floats);
    assert_memory_equal(saved->block, loaded->block, saved->block_floats * sizeof(float));
    assert_int_equal(loaded->config.qk_norm, config->qk_norm);
    assert_int_equal(loaded->config.tied, config->tied);

    kvb_live_options one = options_of(saved, &kvb_cache_contiguous), other = options_of(loaded, &kvb_cache_contiguous);
    kvb_live_outcome a = play(&kvb_scenario_plain_decode, &one), b = play(&kvb_scenario_plain_decode, &other);
    assert_true(says_the_same(&a, &b));
    kvb_live_outcome_free(&a);
    kvb_live_outcome_free(&b);
    kvb_weights_close(saved);
    kvb_weights_close(loaded);
    directory_remove(directory);
}

static void test_saved_weights_say_the_same(void **state)
{
    (void)state;
    round_trip(&kvb_model_config_default);
}

static void test_tied_without_qk_norm(void **state)
{
    (void)state;
    kvb_model_config config = kvb_model_config_default;
    config.tied = true;
    config.qk_norm = false;
    config.rope_theta = 500000.5;
    config.norm_eps = 3e-6f;
    round_trip(&config);
}

/* config.json with `extra` put in after the opening brace, and what the refusal must name. */
static void test_configs_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
    } bad[] = {
        {"", "column"},
        {"[]", "object"},
        {"{\"num_hidden_layers\":1", "column"},
        {"{}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":\"two\"}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":1.5}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":-1}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":99999999999}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":1,\"num_hidden_layers\":1}", "num_hidden_layers"},
#define GOOD                                                                                                           \
    "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"hidden_size\":16,\"intermediate_size\":8,\"vocab_size\":32"
        {"{" GOOD ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", "rope_scaling"},
        {"{" GOOD ",\"rope_parameters\":{\"rope_theta\":1}}", "rope_parameters"},
        {"{" GOOD ",\"attention_bias\":true}", "attention_bias"},
        {"{" GOOD ",\"sliding_window\":4096}", "sliding_window"},
        {"{" GOOD ",\"num_local_experts\":8}", "num_local_experts"},
        {"{" GOOD ",\"quantization_config\":{}}", "quantization_config"},
        {"{" GOOD ",\"model_type\":\"gpt2\"}", "gpt2"},
        {"{" GOOD ",\"hidden_act\":\"gelu\"}", "gelu"},
        {"{" GOOD ",\"num_key_value_heads\":3}", "multiple"},
        {"{" GOOD ",\"head_dim\":5}", "head_dim"},
        {"{" GOOD ",\"rope_theta\":\"many\"}", "rope_theta"},
        {"{" GOOD ",\"rope_theta\":0}", "rope_theta"},
        {"{" GOOD ",\"rms_norm_eps\":-1}", "rms_norm_eps"},
        {"{" GOOD ",\"tie_word_embeddings\":1}", "tie_word_embeddings"},
    };
    char directory[4096], path[8192];
    directory_new(directory);
    snprintf(path, sizeof path, "%s/config.json", directory);
    kvb_model_config config;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[320] = "";
        file_write(path, bad[i].text);
        if (!kvb_model_config_load(path, &config, why, sizeof why))
            fail_msg("taken: %s", bad[i].text);
        if (!strstr(why, bad[i].names) || !strstr(why, path))
            fail_msg("%s: '%s' does not name %s", bad[i].text, why, bad[i].names);
        assert_null(strchr(why, '\n'));
    }
    char why[320] = "";
    file_write(path, "{" GOOD ",\"rope_scaling\":null,\"attention_bias\":false,\"model_type\":\"llama\","
                     "\"torch_dtype\":\"bfloat16\"}");
    if (kvb_model_config_load(path, &config, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(config.kv_heads, 4);
    assert_int_equal(config.head_dim, 4);
    assert_true(!config.tied && config.rope_theta == 10000.0);
    snprintf(path, sizeof path, "%s/missing.json", directory);
    assert_true(kvb_model_config_load(path, &config, why, sizeof why) < 0);
    assert_non_null(strstr(why, "missing.json"));
    directory_remove(directory);
}

/* Write the default model's checkpoint with one tensor changed. */
static void save_changed(const char *path, const char *tensor, const char *renamed, uint64_t rows)
{
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    char why[320] = "";
    kvb_weight weight[64];
    kvb_tensor tensors[64];
    size_t n = 0;
    for (; kvb_weights_at(weights, n, &weight[n]); n++) {
        bool change = !strcmp(weight[n].name, tensor);
        uint64_t shape0 = change && rows ? rows : weight[n].shape[0];
        tensors[n] = (kvb_tensor){.name = change && renamed ? renamed : weight[n].name,
                                  .dtype = KVB_DTYPE_F32,
                                  .n_dims = weight[n].n_dims,
                                  .dims = {shape0, weight[n].shape[1]},
                                  .data = weight[n].data,
                                  .bytes = shape0 * weight[n].shape[1] * sizeof(float)};
    }
    if (kvb_safetensors_write(path, tensors, n, NULL, why, sizeof why))
        fail_msg("%s", why);
    kvb_weights_close(weights);
}

static void test_tensors_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *tensor, *renamed;
        uint64_t rows;
        const char *names;
    } bad[] = {
        {"model.layers.1.mlp.up_proj.weight", NULL, 127, "model.layers.1.mlp.up_proj.weight"},
        {"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.bias", 0, "up_proj.bias"},
        {"model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.q_proj.bias", 0, "model.layers.0"},
        {"lm_head.weight", "model.layers.2.mlp.up_proj.weight", 0, "model.layers.2"},
    };
    char directory[4096], path[8192], config[8192], why[320] = "";
    directory_new(directory);
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    snprintf(config, sizeof config, "%s/other.json", directory);
    if (kvb_model_config_save(config, &kvb_model_config_default, why, sizeof why))
        fail_msg("%s", why);
    kvb_weights *weights = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        save_changed(path, bad[i].tensor, bad[i].renamed, bad[i].rows);
        assert_true(kvb_weights_load(path, config, &weights, why, sizeof why) < 0);
        assert_null(weights);
        if (!strstr(why, bad[i].names))
            fail_msg("'%s' does not name %s", why, bad[i].names);
    }
    save_changed(path, "", NULL, 0);
    if (kvb_weights_load(path, config, &weights, why, sizeof why))
        fail_msg("%s", why);
    kvb_weights_close(weights);
    assert_true(kvb_weights_load(path, NULL, &weights, why, sizeof why) < 0); /* no config.json beside it */
    assert_non_null(strstr(why, "config.json"));
    directory_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_weights_say_the_same),
        cmocka_unit_test(test_tied_without_qk_norm),
        cmocka_unit_test(test_configs_that_are_refused),
        cmocka_unit_test(test_tensors_that_are_refused),
    };
    return cmocka_run_group_tests_name("live checkpoints", tests, NULL, NULL);
}
