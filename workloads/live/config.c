/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a checkpoint. */
#include "workloads/live/checkpoint.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/output_file.h"

static const struct {
    const char *key;
    size_t place; /* in kvb_model_config */
    bool required;
} counts[] = {
    {"num_hidden_layers", offsetof(kvb_model_config, layers), true},
    {"num_attention_heads", offsetof(kvb_model_config, heads), true},
    {"num_key_value_heads", offsetof(kvb_model_config, kv_heads), false},
    {"head_dim", offsetof(kvb_model_config, head_dim), false},
    {"hidden_size", offsetof(kvb_model_config, hidden), true},
    {"intermediate_size", offsetof(kvb_model_config, ffn), true},
    {"vocab_size", offsetof(kvb_model_config, vocab), true},
};

/* Keys that change the arithmetic: refused unless absent, null or false. */
static const char *const unsupported[] = {
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "sliding_window",
    "attention_bias",
    "mlp_bias",
    "qkv_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention_multiplier",
    "embedding_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "kv_lora_rank",
    "q_lora_rank",
    "quantization_config",
    "is_encoder_decoder",
    "no_rope_layers",
};

/* Keys that must have one of these values where they are given. */
static const struct {
    const char *key;
    const char *values[5];
} words[] = {
    {"model_type", {"llama", "mistral", "qwen3", NULL}},
    {"hidden_act", {"silu", "swish", NULL}},
};

__attribute__((format(printf, 4, 5))) static int refuse(const char *path, char *why, size_t why_bytes,
                                                        const char *format, ...)
{
    int n = snprintf(why, why_bytes, "%s: ", path);
    if (n < 0 || (size_t)n >= why_bytes)
        return -EINVAL;
    va_list args;
    va_start(args, format);
    vsnprintf(why + n, why_bytes - (size_t)n, format, args);
    va_end(args);
    return -EINVAL;
}

static int read_counts(const json_t *root, const char *path, kvb_model_config *config, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const json_t *value = json_object_get(root, counts[i].key);
        bool absent = !value || json_is_null(value);
        if (absent && !counts[i].required)
            continue;
        if (absent)
            return refuse(path, why, why_bytes, "key \"%s\" is missing", counts[i].key);
        json_int_t count = json_integer_value(value);
        if (!json_is_integer(value) || count < 1 || count > UINT32_MAX)
            return refuse(path, why, why_bytes, "\"%s\" must be a whole number above 0", counts[i].key);
        *(uint32_t *)(void *)((char *)config + counts[i].place) = (uint32_t)count;
    }
    return 0;
}

static int refuse_unsupported(const json_t *root, const char *path, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const json_t *value = json_object_get(root, unsupported[i]);
        if (value && !json_is_null(value) && !json_is_false(value))
            return refuse(path, why, why_bytes, "\"%s\" is set: the live model does not do that", unsupported[i]);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const json_t *value = json_object_get(root, words[i].key);
        if (!value || json_is_null(value))
            continue;
        const char *word = json_string_value(value);
        const char *const *known = words[i].values;
        while (*known && !(word && !strcmp(*known, word)))
            known++;
        if (!*known)
            return refuse(path, why, why_bytes, "\"%s\" is \"%s\": the live model knows %s, %s, ...", words[i].key,
                          word ? word : "no string", words[i].values[0], words[i].values[1]);
    }
    return 0;
}

static int read_number(const json_t *root, const char *path, const char *key, double *number, char *why,
                       size_t why_bytes)
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_number(value))
        return refuse(path, why, why_bytes, "\"%s\" must be a number", key);
    *number = json_number_value(value);
    return 0;
}

static int read_config(const json_t *root, const char *path, kvb_model_config *config, char *why, size_t why_bytes)
{
    if (!json_is_object(root))
        return refuse(path, why, why_bytes, "a JSON object was expected");
    double eps = 1e-6;
    *config = (kvb_model_config){.rope_theta = 10000.0};
    int err = read_counts(root, path, config, why, why_bytes);
    if (!err)
        err = refuse_unsupported(root, path, why, why_bytes);
    if (!err)
        err = read_number(root, path, "rope_theta", &config->rope_theta, why, why_bytes);
    if (!err)
        err = read_number(root, path, "rms_norm_eps", &eps, why, why_bytes);
    if (err)
        return err;
    const json_t *tied = json_object_get(root, "tie_word_embeddings");
    if (tied && !json_is_null(tied) && !json_is_boolean(tied))
        return refuse(path, why, why_bytes, "\"tie_word_embeddings\" must be true or false");
    config->tied = json_is_true(tied);
    config->norm_eps = (float)eps;
    if (!config->kv_heads)
        config->kv_heads = config->heads;
    if (!config->head_dim) {
        if (config->hidden % config->heads)
            return refuse(path, why, why_bytes, "without \"head_dim\", hidden_size must be a multiple of the heads");
        config->head_dim = config->hidden / config->heads;
    }
    char reason[160];
    if (kvb_model_config_check(config, reason, sizeof reason))
        return refuse(path, why, why_bytes, "%s", reason);
    return 0;
}

int kvb_model_config_load(const char *path, kvb_model_config *config, char *why, size_t why_bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        int err = -errno;
        snprintf(why, why_bytes, "%s: %s", path, strerror(-err));
        return err;
    }
    json_error_t error;
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!root) {
        snprintf(why, why_bytes, "%s:%d: column %d: %s", path, error.line, error.column, error.text);
        return -EINVAL;
    }
    int err = read_config(root, path, config, why, why_bytes);
    json_decref(root);
    return err;
}

int kvb_model_config_save(const char *path, const kvb_model_config *config, char *why, size_t why_bytes)
{
    kvb_output_file file;
    char *text = NULL;
    int err = -ENOMEM;
    json_t *root = json_object();
    int failed = json_object_set_new(root, "model_type", json_string(config->qk_norm ? "qwen3" : "llama"));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint32_t count = *(const uint32_t *)(const void *)((const char *)config + counts[i].place);
        failed |= json_object_set_new(root, counts[i].key, json_integer(count));
    }
    failed |= json_object_set_new(root, "rope_theta", json_real(config->rope_theta));
    failed |= json_object_set_new(root, "rms_norm_eps", json_real((double)config->norm_eps));
    failed |= json_object_set_new(root, "tie_word_embeddings", json_boolean(config->tied));
    text = failed ? NULL : json_dumps(root, JSON_INDENT(2));
    if (!text) {
        snprintf(why, why_bytes, "%s: no memory", path);
        goto out;
    }
    err = kvb_output_file_open(path, &file, why, why_bytes);
    if (err)
        goto out;
    fprintf(file.stream, "%s\n", text); /* a failure is found by close */
    err = kvb_output_file_close(&file, true, why, why_bytes);
out:
    free(text);
    json_decref(root);
    return err;
}
