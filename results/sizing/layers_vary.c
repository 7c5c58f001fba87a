/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that differ one by one: DeciLM's blocks, DeepSeek's and MiniMax's indexers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "results/sizing/layers.h"

/* A count in an object of a list; 0: null or absent. */
static uint32_t entry_count(kvb_config *c, const json_t *object, const char *field, uint32_t layer)
{
    const json_t *value = json_object_get(object, field);

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > INT32_MAX) {
        kvb_config_fail(c, -EINVAL, "%sblock_configs[%u].attention.%s: a count was expected", c->place, layer, field);
        return 0;
    }
    return (uint32_t)json_integer_value(value);
}

/* Nemotron-NAS: KV heads are heads / n_heads_in_group, or there is no attention at all (modeling_decilm.py). */
void kvb_block_config_vary(kvb_reading *reading, uint32_t layer, kvb_shape *shape)
{
    kvb_config *c = &reading->config;
    const json_t *blocks = kvb_config_find(c, "block_configs", NULL);
    const json_t *attention = json_object_get(json_array_get(blocks, layer), "attention");
    kvb_layer_group *group = &shape->group;
    char source[KVB_CONFIG_SOURCE];

    if (!json_is_object(attention))
        return kvb_config_fail(c, -EINVAL, "%sblock_configs[%u].attention: an object was expected", c->place, layer);
    if (json_is_true(json_object_get(attention, "no_op")) ||
        json_is_true(json_object_get(attention, "replace_with_linear"))) {
        memset(shape, 0, sizeof *shape);
        group->kind = KVB_LAYER_NONE;
        group->name = "no attention";
        return kvb_shape_rule(shape, "rows", 0, "block_configs: attention.no_op or replace_with_linear");
    }
    uint32_t share = entry_count(c, attention, "n_heads_in_group", layer);
    if (share == 0 || group->heads % share != 0)
        return kvb_config_fail(c, -EINVAL,
                               "%sblock_configs[%u].attention.n_heads_in_group: %u does not divide %u heads", c->place,
                               layer, share, group->heads);
    shape->n_facts = 1; /* heads stay */
    group->kv_heads = group->heads / share;
    kvb_shape_rule(shape, "kv_heads", group->kv_heads, "num_attention_heads / block_configs: n_heads_in_group");
    kvb_shape_rule(shape, "k_dim, v_dim", group->k_dim, "head_dim, or hidden_size / num_attention_heads");
    group->window = entry_count(c, attention, "window_length", layer);
    if (group->window == 0)
        return;
    group->kind = KVB_LAYER_WINDOW;
    group->name = "sliding window";
    group->sinks = entry_count(c, attention, "num_sink_tokens", layer);
    kvb_shape_rule(shape, "window", group->window, "block_configs: window_length");
    snprintf(source, sizeof source, "block_configs: num_sink_tokens");
    kvb_shape_rule(shape, "sinks", group->sinks, source);
}

/* DeepSeek-V3.2's indexer has a key per token; a layer that is "shared" takes what an earlier one chose and has none
 * (transformers' configuration_glm_moe_dsa.py). */
void kvb_indexer_vary(kvb_reading *reading, uint32_t layer, kvb_shape *shape)
{
    kvb_config *c = &reading->config;
    const json_t *types = kvb_config_list(c, "indexer_types", reading->n_layers);
    const char *type = json_string_value(json_array_get(types, layer));

    if (!types && kvb_config_number(c, "index_topk_freq") > 1)
        return kvb_config_fail(c, -EINVAL, "%sindexer_types: missing, which index_topk_freq above 1 needs", c->place);
    if (types && (!type || (strcmp(type, "full") != 0 && strcmp(type, "shared") != 0)))
        return kvb_config_fail(c, -EINVAL, "%sindexer_types[%u]: \"full\" or \"shared\" was expected", c->place, layer);
    if (type && strcmp(type, "shared") == 0) {
        shape->group.name = "MLA, indexer shared";
        return kvb_shape_rule(shape, "index_dim", 0, "indexer_types: \"shared\"");
    }
    shape->group.name = "MLA with indexer";
    shape->group.index_dim = kvb_shape_fact(shape, "index_dim", kvb_config_count(c, "index_head_dim"));
}

/* MiniMax-M3: a key per token and sparse layer (TensorRT-LLM's MiniMaxM3SparseIndexCache: [slots, 1, sparse_index_dim]). A
 * layer that is not in sparse_disable_index_value has an index value too, whose width no public config shows. */
void kvb_sparse_index_vary(kvb_reading *reading, uint32_t layer, kvb_shape *shape)
{
    kvb_config *c = &reading->config;
    static const char frequency[] = "sparse_attention_config.sparse_attention_freq";
    const json_t *sparse = kvb_config_list(c, frequency, reading->n_layers);
    const json_t *keys = kvb_config_list(c, "sparse_attention_config.sparse_disable_index_value", reading->n_layers);

    if (!sparse || !keys)
        return kvb_config_fail(c, -EINVAL, "%s%s, sparse_disable_index_value: missing", c->place, frequency);
    if (json_integer_value(json_array_get(sparse, layer)) == 0)
        return;
    if (json_integer_value(json_array_get(keys, layer)) == 0)
        return kvb_config_fail(c, -ENOTSUP,
                               "%ssparse_attention_config.sparse_disable_index_value[%u]: 0: the width of "
                               "an index value is not known",
                               c->place, layer);
    shape->group.name = "full attention with index";
    shape->group.index_dim =
        kvb_shape_fact(shape, "index_dim", kvb_config_count(c, "sparse_attention_config.sparse_index_dim"));
}
