/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a config.json. */
#include "harness/size/model_reading.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MOST 0x7fffffff

/* Fields that change the memory of rows and states. If one is set that the architecture does not know, the model is
 * refused: to ignore it would be a guess. */
static const char memory_fields[] =
    "kv_lora_rank qk_rope_head_dim v_head_dim index_head_dim indexer_types index_topk_freq "
    "index_topk_pattern index_kpool sparse_attention_config compress_ratios sliding_window "
    "sliding_window_size sliding_window_pattern attention_window_size attention_chunk_size "
    "attention_sink_size swa_num_key_value_heads swa_head_dim global_head_dim num_global_key_value_heads "
    "num_kv_shared_layers cla_share_factor block_configs linear_attn_config full_attention_interval "
    "hybrid_override_pattern hybrid_layer_pattern attn_type_list layers_block_type block_types "
    "full_attn_idxs attn_layer_indices attn_layer_period attn_layer_idx no_rope_layers "
    "linear_num_value_heads mamba_d_state mamba_num_heads ssm_state_size state_size d_state ssm_cfg "
    "conv_L_cache lru_width local_layer_ids indexer_head_dim ple_layer_ids layer_group_size "
    "attention_other_setting cross_attention_layers is_encoder_decoder";

void kvb_config_fail(kvb_config_json *config, int error, const char *format, ...)
{
    if (config->error)
        return;
    config->error = error;
    int n = snprintf(config->why, config->why_bytes, "%s: ", config->file);
    if (n < 0 || (size_t)n >= config->why_bytes)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(config->why + n, config->why_bytes - (size_t)n, format, args);
    va_end(args);
}

const char *kvb_names_next(const char *names, char name[KVB_NAME_BYTES])
{
    size_t n = strcspn(names, " ");

    snprintf(name, KVB_NAME_BYTES, "%.*s", (int)n, names);
    return names + n + strspn(names + n, " ");
}

static void asked_note(kvb_config_json *config, const char *name)
{
    char outer[KVB_NAME_BYTES];

    snprintf(outer, sizeof outer, "%.*s", (int)strcspn(name, "."), name);
    if (json_object_set_new(config->asked, outer, json_true()))
        kvb_config_fail(config, -ENOMEM, "no memory");
}

static const json_t *field_get(const json_t *object, const char *name)
{
    char part[KVB_NAME_BYTES];

    while (*name && object) {
        size_t n = strcspn(name, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, name);
        object = json_object_get(object, part);
        name += n + (name[n] == '.');
    }
    return object;
}

void kvb_config_default_fill(kvb_config_json *config, const char *defaults)
{
    char text[KVB_NAME_BYTES];

    while (defaults && *defaults) {
        defaults = kvb_names_next(defaults, text);
        char *number = strchr(text, '='), *rest = text, *name;
        bool there = false;

        *number++ = '\0';
        while ((name = strsep(&rest, "|"))) /* the first name stays in text */
            there |= field_get(config->fields, name) != NULL;
        if (!there && json_object_set_new(config->fields, text, json_integer(atoi(number))) != 0)
            kvb_config_fail(config, -ENOMEM, "no memory");
    }
}

const json_t *kvb_config_get(const json_t *object, const char *names)
{
    char name[KVB_NAME_BYTES];

    while (*names) {
        names = kvb_names_next(names, name);
        const json_t *value = field_get(object, name);
        if (value && !json_is_null(value))
            return value;
    }
    return NULL;
}

const json_t *kvb_config_find(kvb_config_json *config, const char *names, const char **name)
{
    static _Thread_local char found_name[KVB_NAME_BYTES];
    char next[KVB_NAME_BYTES];
    const json_t *found = NULL;

    for (const char *rest = names; rest && *rest;) {
        rest = kvb_names_next(rest, next);
        asked_note(config, next);
        const json_t *value = field_get(config->fields, next);
        if (!value || json_is_null(value))
            continue;
        if (found && !json_equal(found, value))
            kvb_config_fail(config, -EINVAL, "%s%s and %s%s differ, but are two names of one field", config->place,
                            found_name, config->place, next);
        if (!found) {
            found = value;
            memcpy(found_name, next, sizeof next);
        }
    }
    if (!found)
        kvb_names_next(names ? names : "", found_name);
    if (name)
        *name = found_name;
    return found;
}

bool kvb_config_has(kvb_config_json *config, const char *names)
{
    return kvb_config_find(config, names, NULL) != NULL;
}

/* A count of at least `least`; 0 after a failure. */
static uint64_t count_read(kvb_config_json *config, const json_t *value, const char *name, int64_t least)
{
    if (!json_is_integer(value)) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        kvb_config_fail(config, -EINVAL, "%s%s: %.40s is not a whole number", config->place, name,
                        text ? text : "this");
        free(text);
        return 0;
    }
    json_int_t n = json_integer_value(value);
    if (n < least || n > COUNT_MOST) {
        kvb_config_fail(config, -EINVAL, "%s%s: %" JSON_INTEGER_FORMAT " is not within %d to 2^31 - 1", config->place,
                        name, n, (int)least);
        return 0;
    }
    return (uint64_t)n;
}

static void source_tell(kvb_config_json *config, const char *name, char source[KVB_CONFIG_SOURCE])
{
    if (field_get(config->given, name))
        snprintf(source, KVB_CONFIG_SOURCE, "%s%s", config->place, name);
    else
        snprintf(source, KVB_CONFIG_SOURCE, "%s's default (%s is absent)", config->class_name, name);
}

static kvb_config_fact fact_read(kvb_config_json *config, const json_t *value, const char *name)
{
    kvb_config_fact fact = {.value = count_read(config, value, name, 1)};

    source_tell(config, name, fact.source);
    return fact;
}

kvb_config_fact kvb_config_count(kvb_config_json *config, const char *names)
{
    const char *name;
    const json_t *value = kvb_config_find(config, names, &name);

    if (value)
        return fact_read(config, value, name);
    kvb_config_fail(config, -EINVAL, "%s%s: missing, which %s needs", config->place, name, config->model_class);
    return (kvb_config_fact){0};
}

kvb_config_fact kvb_config_count_or(kvb_config_json *config, const char *names, uint64_t fallback, const char *source)
{
    const char *name;
    const json_t *value = kvb_config_find(config, names, &name);
    kvb_config_fact fact = {.value = fallback};

    if (value)
        return fact_read(config, value, name);
    snprintf(fact.source, sizeof fact.source, "%s", source);
    return fact;
}

uint64_t kvb_config_number(kvb_config_json *config, const char *names)
{
    const char *name;
    const json_t *value = kvb_config_find(config, names, &name);

    return value ? count_read(config, value, name, 0) : 0;
}

/* A value of one of these types of JSON, a set of bits. NULL if absent, or after a failure. */
static const json_t *typed_find(kvb_config_json *config, const char *names, unsigned types, const char *expected)
{
    const char *name;
    const json_t *value = kvb_config_find(config, names, &name);

    if (!value || types >> json_typeof(value) & 1)
        return value;
    kvb_config_fail(config, -EINVAL, "%s%s: %s was expected", config->place, name, expected);
    return NULL;
}

bool kvb_config_flag(kvb_config_json *config, const char *names, bool fallback)
{
    const json_t *value = typed_find(config, names, 1 << JSON_TRUE | 1 << JSON_FALSE, "true or false");

    return value ? json_is_true(value) : fallback;
}

const char *kvb_config_text(kvb_config_json *config, const char *names)
{
    return json_string_value(typed_find(config, names, 1 << JSON_STRING, "a string"));
}

const json_t *kvb_config_list(kvb_config_json *config, const char *names, size_t n)
{
    const json_t *value = typed_find(config, names, 1 << JSON_ARRAY, "an array");
    const char *name;

    if (!value || n == 0 || json_array_size(value) == n)
        return value;
    kvb_config_find(config, names, &name);
    kvb_config_fail(config, -EINVAL, "%s%s: %zu entries, but the model has %zu layers", config->place, name,
                    json_array_size(value), n);
    return NULL;
}

uint64_t kvb_config_times(kvb_config_json *config, uint64_t a, uint64_t b, const char *what)
{
    uint64_t product;

    if (__builtin_mul_overflow(a, b, &product)) {
        kvb_config_fail(config, -EINVAL, "%s: %ju x %ju is more than 64 bits hold", what, (uintmax_t)a, (uintmax_t)b);
        return 0;
    }
    return product;
}

uint32_t kvb_config_product(kvb_config_json *config, uint64_t a, uint64_t b, const char *what)
{
    uint64_t product = kvb_config_times(config, a, b, what);

    if (product > COUNT_MOST) {
        kvb_config_fail(config, -EINVAL, "%s: %ju x %ju is more than 2^31 - 1", what, (uintmax_t)a, (uintmax_t)b);
        return 0;
    }
    return (uint32_t)product;
}

static bool is_neutral(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_integer(value) && json_integer_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

void kvb_config_unasked(kvb_config_json *config)
{
    char name[KVB_NAME_BYTES];

    for (const char *rest = memory_fields; *rest;) {
        rest = kvb_names_next(rest, name);
        if (!json_object_get(config->asked, name) && !(config->inert && kvb_names_have(config->inert, name)) &&
            !is_neutral(json_object_get(config->given, name)))
            kvb_config_fail(config, -EINVAL, "%s%s: set, but %s has no such field, so its meaning is not known",
                            config->place, name, config->model_class);
    }
}
