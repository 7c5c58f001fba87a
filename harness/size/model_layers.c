/* SPDX-License-Identifier: Apache-2.0 */
/* The letter and the shape of each layer, and groups of layers of equal memory. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/size/model_reading.h"

/* ---- attention ----------------------------------------------------------------------------------------------- */

/* ChatGLM calls KV heads groups; MPT and DBRX nest them. */
static const kvb_head_fields usual = {
    .heads = "num_attention_heads n_head n_heads",
    .kv_heads = "num_key_value_heads n_head_kv num_kv_heads multi_query_group_num attn_config.kv_n_heads",
    .k_dim = "head_dim attention_head_dim kv_channels",
};
static const char hidden_names[] = "hidden_size n_embd d_model n_embed";

/* Adds a factor of a layer for --explain. Returns its value. */
static uint32_t shape_fact(kvb_layer_shape *shape, const char *what, kvb_config_fact fact)
{
    if (shape->n_facts < KVB_SHAPE_FACTS) {
        shape->facts[shape->n_facts].what = what;
        shape->facts[shape->n_facts++].fact = fact;
    }
    return (uint32_t)fact.value;
}

/* The same for a factor without a field. */
static void shape_rule(kvb_layer_shape *shape, const char *what, uint64_t value, const char *source)
{
    kvb_config_fact fact = {.value = value};

    snprintf(fact.source, sizeof fact.source, "%s", source);
    shape_fact(shape, what, fact);
}

/* The count in the letter's own field if the file has it, else in the usual one. */
static kvb_config_fact own_or_usual(kvb_config_json *c, const char *own, const char *names)
{
    return own && kvb_config_has(c, own) ? kvb_config_count(c, own) : kvb_config_count(c, names);
}

static kvb_config_fact kv_heads_read(kvb_model_reading *reading, const kvb_head_fields *own,
                                     const kvb_head_fields *fields, kvb_config_fact heads)
{
    kvb_config_json *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    kvb_config_fact fact = {.value = heads.value};

    if (own && own->kv_heads && kvb_config_has(c, own->kv_heads) &&
        (!family->full_kv_flag || kvb_config_flag(c, family->full_kv_flag, false)))
        return kvb_config_count(c, own->kv_heads);
    if (family->multi_query) { /* Falcon, GPTBigCode: transformers' modeling_falcon.py, FalconAttention */
        bool grouped = kvb_config_flag(c, "new_decoder_architecture", false);
        if (!grouped && kvb_config_flag(c, family->multi_query, family->multi_query_else)) {
            snprintf(fact.source, sizeof fact.source, "%s is%s true", family->multi_query,
                     kvb_config_has(c, family->multi_query) ? "" : " absent, by default");
            fact.value = 1;
            return fact;
        }
        if (!grouped) {
            snprintf(fact.source, sizeof fact.source, "%.64s (%s is false)", heads.source, family->multi_query);
            return fact;
        }
    }
    if (family->kv_flag && !kvb_config_flag(c, family->kv_flag, false)) {
        snprintf(fact.source, sizeof fact.source, "%.64s (%s is not true)", heads.source, family->kv_flag);
        return fact;
    }
    snprintf(fact.source, sizeof fact.source, "%.64s (num_key_value_heads is absent)", heads.source);
    return kvb_config_count_or(c, fields->kv_heads, heads.value, fact.source);
}

static kvb_config_fact head_dim_read(kvb_model_reading *reading, const kvb_head_fields *own,
                                     const kvb_head_fields *fields, kvb_config_fact heads)
{
    kvb_config_json *c = &reading->config;
    uint32_t times = reading->family->head_dim_times ? reading->family->head_dim_times : 1;
    kvb_config_fact fact = {0};

    if (own && own->k_dim && kvb_config_has(c, own->k_dim))
        return kvb_config_count(c, own->k_dim);
    if (kvb_config_has(c, fields->k_dim))
        return kvb_config_count(c, fields->k_dim);
    kvb_config_fact hidden = kvb_config_count(c, hidden_names);
    if (heads.value && hidden.value * times % heads.value != 0)
        kvb_config_fail(c, -EINVAL, "%s: %ju is not a multiple of the %ju heads, and head_dim is absent", hidden.source,
                        (uintmax_t)hidden.value, (uintmax_t)heads.value);
    fact.value = heads.value ? hidden.value * times / heads.value : 0;
    snprintf(fact.source, sizeof fact.source, "%s%.40s / %.40s (head_dim is absent)", times == 2 ? "2 x " : "",
             hidden.source, heads.source);
    return fact;
}

static void heads_read(kvb_model_reading *reading, char letter, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    const kvb_head_fields *fields = family->heads ? family->heads : &usual;
    const kvb_head_fields *own = letter == 'W' ? family->window_heads : letter == 'F' ? family->full_heads : NULL;
    kvb_sized_group *group = &shape->group;
    kvb_config_fact heads = own_or_usual(c, own ? own->heads : NULL, fields->heads);

    group->heads = shape_fact(shape, "heads", heads);
    group->kv_heads = shape_fact(shape, "kv_heads", kv_heads_read(reading, own, fields, heads));
    kvb_config_fact k_dim = head_dim_read(reading, own, fields, heads), v_dim = k_dim;
    if (own && own->v_dim && kvb_config_has(c, own->v_dim))
        v_dim = kvb_config_count(c, own->v_dim);
    else if (fields->v_dim)
        v_dim = kvb_config_count(c, fields->v_dim);
    group->k_dim = shape_fact(shape, "k_dim", k_dim);
    group->v_dim = shape_fact(shape, "v_dim", v_dim);
    if (group->kv_heads && group->heads % group->kv_heads != 0)
        kvb_config_fail(c, -EINVAL, "%s%s: %u KV heads do not divide the %u heads", c->place, "num_key_value_heads",
                        group->kv_heads, group->heads);
}

/* MLA: modeling_deepseek.py of DeepSeek-V2 caches kv_a_proj_with_mqa's output, kv_lora_rank + qk_rope_head_dim. */
static void latent_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    kvb_sized_group *group = &shape->group;

    group->kind = KVB_SIZED_LATENT;
    group->name = "MLA";
    group->heads = shape_fact(shape, "heads", kvb_config_count(c, usual.heads));
    group->latent_dim = shape_fact(shape, "latent_dim", kvb_config_count(c, "kv_lora_rank"));
    if (!kvb_config_has(c, "qk_rope_head_dim") || kvb_config_number(c, "qk_rope_head_dim") > 0) /* GLM-5-Next: 0 */
        group->rope_dim = shape_fact(shape, "rope_dim", kvb_config_count(c, "qk_rope_head_dim"));
    group->nope_dim = shape_fact(shape, "nope_dim", kvb_config_count(c, "qk_nope_head_dim"));
    group->v_dim = shape_fact(shape, "v_dim", kvb_config_count(c, "v_head_dim"));
}

static void local_read(kvb_model_reading *reading, char letter, kvb_sized_group *group, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const char *window = reading->family->window_in;

    if (letter == 'C') {
        group->kind = KVB_SIZED_CHUNK;
        group->name = "chunked attention";
        group->window = shape_fact(shape, "window", kvb_config_count(c, "attention_chunk_size"));
        return;
    }
    group->kind = KVB_SIZED_WINDOW;
    group->name = "sliding window";
    group->window =
        shape_fact(shape, "window", kvb_config_count(c, window ? window : "sliding_window sliding_window_size"));
    if (kvb_config_number(c, "attention_sink_size")) /* StreamingLLM; written by MLC */
        group->sinks = shape_fact(shape, "sinks", kvb_config_count(c, "attention_sink_size"));
}

/* Reads the rows of an attention layer with this letter. */
static void attention_read(kvb_model_reading *reading, char letter, kvb_layer_shape *shape)
{
    if (letter == 'F' && reading->family->latent)
        return latent_read(reading, shape);
    shape->group.kind = KVB_SIZED_FULL;
    shape->group.name = "full attention";
    heads_read(reading, letter, shape);
    if (letter == 'W' || letter == 'C')
        local_read(reading, letter, &shape->group, shape);
}

/* ---- recurrent layers ---------------------------------------------------------------------------------------- */

/* They keep a state, and the columns of their convolution that the next token needs: one less than the kernel's. */

static void state_begin(kvb_layer_shape *shape, const char *name)
{
    shape->group.kind = KVB_SIZED_STATE;
    shape->group.name = name;
}

/* Sets the state to rows x columns elements. how: the factors by name, for --explain. */
static void state_tell(kvb_model_reading *reading, kvb_layer_shape *shape, uint64_t rows, uint64_t columns,
                       const char *how)
{
    shape->group.state_elements = kvb_config_times(&reading->config, rows, columns, "the state");
    shape_rule(shape, "state elements", shape->group.state_elements, how);
}

/* Sets the state's heads, for a recurrence with equal ones. Numbers above 32 bits are refused elsewhere. */
static void heads_tell(kvb_layer_shape *shape, uint64_t heads, uint64_t groups, uint64_t k, uint64_t v)
{
    kvb_sized_group *g = &shape->group;
    g->state_heads = (uint32_t)heads, g->state_groups = (uint32_t)groups;
    g->state_k = (uint32_t)k, g->state_v = (uint32_t)v;
}

/* Sets the convolution's stored inputs to (conv - 1) columns of `channels`. */
static void convolution_read(kvb_model_reading *reading, kvb_layer_shape *shape, const char *names, uint64_t channels,
                             const char *how)
{
    kvb_sized_group *group = &shape->group;

    group->conv_width = shape_fact(shape, "conv", kvb_config_count(&reading->config, names));
    if (group->conv_width > 0)
        group->conv_elements =
            kvb_config_times(&reading->config, group->conv_width - 1, channels, "the convolution's columns");
    shape_rule(shape, "convolution elements", group->conv_elements, how);
}

/* The width inside the mixer: its own field, else expand x hidden. 0: neither is there. falcon-mamba's expand is 16,
 * which is wrong; transformers' configuration_falcon_mamba.py reads its intermediate_size too. */
static kvb_config_fact inner_read(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    const kvb_mamba_fields *fields = reading->family->mamba;
    bool expands = fields->expand && kvb_config_has(c, fields->expand);
    kvb_config_fact inner = {0};

    if (fields->inner && kvb_config_has(c, fields->inner))
        return kvb_config_count(c, fields->inner);
    if (!expands)
        return inner;
    kvb_config_fact expand = kvb_config_count(c, fields->expand), hidden = kvb_config_count(c, hidden_names);
    inner.value = kvb_config_product(c, expand.value, hidden.value, "expand x hidden_size");
    snprintf(inner.source, sizeof inner.source, "%.60s x %.60s", expand.source, hidden.source);
    return inner;
}

/* state-spaces/mamba, mamba_simple.py: d_inner x d_state, and d_conv columns of d_inner. */
void kvb_mamba1_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const kvb_mamba_fields *fields = reading->family->mamba;
    kvb_config_fact inner = inner_read(reading);

    state_begin(shape, "Mamba-1");
    if (inner.value == 0)
        kvb_config_fail(c, -EINVAL, "%s%s: missing, which %s needs", c->place, fields->expand, c->model_class);
    shape_fact(shape, "d_inner", inner);
    uint64_t state = shape_fact(shape, "d_state", kvb_config_count(c, fields->state));
    heads_tell(shape, 1, 1, state, inner.value);
    state_tell(reading, shape, inner.value, state, "d_inner x d_state");
    convolution_read(reading, shape, fields->conv, inner.value, "(conv - 1) x d_inner");
}

/* state-spaces/mamba, mamba2.py: heads x head_dim x d_state, and columns of d_inner + 2 groups x d_state. */
void kvb_mamba2_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const kvb_mamba_fields *fields = reading->family->mamba;
    kvb_config_fact inner = inner_read(reading), heads = {0}, head_dim = {0};
    const json_t *dim = kvb_config_find(c, fields->head_dim, NULL);
    const char *word = json_string_value(dim);
    bool dim_told = dim && (!word || strcmp(word, "auto") != 0), heads_told = kvb_config_has(c, fields->heads);

    state_begin(shape, "Mamba-2");
    if (heads_told || !inner.value)
        heads = kvb_config_count(c, fields->heads);
    if (dim_told || !inner.value || !heads_told)
        head_dim = kvb_config_count(c, fields->head_dim);
    if (!heads_told && head_dim.value) {
        heads.value = inner.value / head_dim.value;
        snprintf(heads.source, sizeof heads.source, "d_inner / head_dim (%.40s is absent)", fields->heads);
    }
    if (!head_dim.value && heads.value) {
        head_dim.value = inner.value / heads.value;
        snprintf(head_dim.source, sizeof head_dim.source, "d_inner / heads (%.40s is absent or \"auto\")",
                 fields->head_dim);
    }
    uint64_t width = kvb_config_product(c, heads.value, head_dim.value, "heads x head_dim of the mixer");
    if (inner.value && width != inner.value)
        kvb_config_fail(c, -EINVAL, "%s%s: %ju heads of %ju are not the %ju of %s", c->place, fields->heads,
                        (uintmax_t)heads.value, (uintmax_t)head_dim.value, (uintmax_t)inner.value, inner.source);
    shape_fact(shape, "mixer heads", heads);
    shape_fact(shape, "mixer head_dim", head_dim);
    uint64_t state = shape_fact(shape, "d_state", kvb_config_count(c, fields->state));
    uint64_t groups = shape_fact(shape, "groups", kvb_config_count(c, fields->groups));
    uint64_t sides = kvb_config_product(c, 2 * groups, state, "2 x groups x d_state");
    shape->group.conv_groups = (uint32_t)groups;
    shape->group.conv_group_width = kvb_config_product(c, 2, state, "2 x d_state");
    shape->group.conv_drafts = true;
    heads_tell(shape, heads.value, groups, state, head_dim.value);
    state_tell(reading, shape, width, state, "mixer heads x mixer head_dim x d_state");
    convolution_read(reading, shape, fields->conv, width + sides,
                     "(conv - 1) x (mixer heads x mixer head_dim + 2 groups x d_state)");
}

/* transformers' modeling_qwen3_next.py, Qwen3NextGatedDeltaNet: conv_dim = 2 key_dim + value_dim. */
void kvb_delta_net_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;

    state_begin(shape, "gated DeltaNet");
    shape->group.conv_drafts = true;
    uint64_t k_heads = shape_fact(shape, "key heads", kvb_config_count(c, "linear_num_key_heads"));
    uint64_t v_heads = shape_fact(shape, "value heads", kvb_config_count(c, "linear_num_value_heads"));
    uint64_t k_dim = shape_fact(shape, "key dim", kvb_config_count(c, "linear_key_head_dim"));
    uint64_t v_dim = shape_fact(shape, "value dim", kvb_config_count(c, "linear_value_head_dim"));
    uint64_t keys = kvb_config_product(c, k_heads, k_dim, "key heads x dim");
    uint64_t values = kvb_config_product(c, v_heads, v_dim, "value heads x dim");
    heads_tell(shape, v_heads, k_heads, k_dim, v_dim);
    state_tell(reading, shape, values, k_dim, "value heads x value dim x key dim");
    convolution_read(reading, shape, "linear_conv_kernel_dim", 2 * keys + values,
                     "(conv - 1) x (2 key heads x key dim + value heads x value dim)");
}

/* Kimi Linear: as gated DeltaNet with equal heads for q, k and v; the state is f32 (vLLM's MambaStateDtypeCalculator).
 */
void kvb_kda_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;

    state_begin(shape, "Kimi delta attention");
    uint64_t heads = shape_fact(shape, "heads", kvb_config_count(c, "linear_attn_config.num_heads"));
    uint64_t dim = shape_fact(shape, "head_dim", kvb_config_count(c, "linear_attn_config.head_dim"));
    uint64_t width = kvb_config_product(c, heads, dim, "heads x head_dim of linear_attn_config");
    shape->group.state_f32 = true;
    state_tell(reading, shape, width, dim, "heads x head_dim x head_dim, always f32");
    convolution_read(reading, shape, "linear_attn_config.short_conv_kernel_size", 3 * width,
                     "(conv - 1) x 3 heads x head_dim");
}

/* transformers' modeling_minimax.py, MiniMaxLightningAttention: heads x head_dim x head_dim, no convolution. */
void kvb_lightning_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_layer_shape attention = {0};

    state_begin(shape, "lightning attention");
    attention_read(reading, 'S', &attention); /* it has the same heads */
    uint64_t heads = shape_fact(shape, "heads", attention.facts[0].fact);
    uint64_t dim = shape_fact(shape, "head_dim", attention.facts[2].fact);
    heads_tell(shape, heads, heads, dim, dim);
    state_tell(reading, shape, heads * dim, dim, "heads x head_dim x head_dim");
}

/* RWKV-4, transformers' modeling_rwkv.py: five vectors of hidden_size; the two shifted tokens in the model's dtype. */
static void rwkv4_read(kvb_model_reading *reading, kvb_layer_shape *shape, uint64_t hidden)
{
    state_begin(shape, "RWKV-4");
    state_tell(reading, shape, hidden, 3, "3 x hidden (model_type is rwkv, without a head_size)");
}

/* llama.cpp, llama_hparams::n_embd_r and n_embd_s: token_shift_count (2) x n_embd, and n_embd x wkv_head_size. */
void kvb_rwkv_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;

    const char *type = kvb_config_text(c, "model_type");
    uint64_t hidden = shape_fact(shape, "hidden", kvb_config_count(c, hidden_names));

    shape_rule(shape, "shifted tokens", 2, "one before time mixing, one before channel mixing");
    if (type && strcmp(type, "rwkv") == 0 && !kvb_config_has(c, "head_size")) {
        rwkv4_read(reading, shape, hidden);
    } else {
        state_begin(shape, "RWKV");
        uint64_t size = shape_fact(shape, "head_size", kvb_config_count(c, "head_size head_dim"));
        state_tell(reading, shape, hidden, size, "hidden x head_size");
    }
    shape->group.state_f32 = true;
    shape->group.conv_elements = 2 * hidden;
}

/* transformers' modeling_lfm2.py, Lfm2ShortConv: a convolution without a recurrent state. */
void kvb_short_conv_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    state_begin(shape, "short convolution");
    uint64_t hidden = shape_fact(shape, "hidden", kvb_config_count(&reading->config, hidden_names));
    convolution_read(reading, shape, "conv_L_cache", hidden, "(conv - 1) x hidden");
}

/* transformers' modeling_recurrent_gemma.py: lru_width in f32, and conv1d_width - 1 columns of it. */
void kvb_rg_lru_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;

    state_begin(shape, "RG-LRU");
    uint64_t width = shape_fact(shape, "width", kvb_config_count(c, "lru_width"));
    shape->group.state_f32 = true;
    state_tell(reading, shape, width, 1, "width");
    convolution_read(reading, shape, "conv1d_width", width, "(conv - 1) x width");
}

/* ---- layers that differ one by one --------------------------------------------------------------------------- */

/* The count in a field of an entry. 0: null or absent. */
static uint32_t entry_count(kvb_config_json *c, const json_t *object, const char *field, uint32_t layer)
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
void kvb_block_config_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const json_t *blocks = kvb_config_find(c, "block_configs", NULL);
    const json_t *attention = json_object_get(json_array_get(blocks, layer), "attention");
    kvb_sized_group *group = &shape->group;
    char source[KVB_CONFIG_SOURCE];

    if (!json_is_object(attention))
        return kvb_config_fail(c, -EINVAL, "%sblock_configs[%u].attention: an object was expected", c->place, layer);
    if (json_is_true(json_object_get(attention, "no_op")) ||
        json_is_true(json_object_get(attention, "replace_with_linear"))) {
        memset(shape, 0, sizeof *shape);
        group->kind = KVB_SIZED_NONE;
        group->name = "no attention";
        return shape_rule(shape, "rows", 0, "block_configs: attention.no_op or replace_with_linear");
    }
    uint32_t share = entry_count(c, attention, "n_heads_in_group", layer);
    if (share == 0 || group->heads % share != 0)
        return kvb_config_fail(c, -EINVAL,
                               "%sblock_configs[%u].attention.n_heads_in_group: %u does not divide %u heads", c->place,
                               layer, share, group->heads);
    shape->n_facts = 1; /* keeps the heads, drops the other facts */
    group->kv_heads = group->heads / share;
    shape_rule(shape, "kv_heads", group->kv_heads, "num_attention_heads / block_configs: n_heads_in_group");
    shape_rule(shape, "k_dim, v_dim", group->k_dim, "head_dim, or hidden_size / num_attention_heads");
    group->window = entry_count(c, attention, "window_length", layer);
    if (group->window == 0)
        return;
    group->kind = KVB_SIZED_WINDOW;
    group->name = "sliding window";
    group->sinks = entry_count(c, attention, "num_sink_tokens", layer);
    shape_rule(shape, "window", group->window, "block_configs: window_length");
    snprintf(source, sizeof source, "block_configs: num_sink_tokens");
    shape_rule(shape, "sinks", group->sinks, source);
}

/* DeepSeek-V3.2's indexer has a key for each token. A "shared" layer takes the choice of an earlier layer and has no
 * keys (transformers' configuration_glm_moe_dsa.py). */
void kvb_indexer_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const json_t *types = kvb_config_list(c, "indexer_types", reading->n_layers);
    const json_t *pattern = types ? NULL : kvb_config_find(c, "index_topk_pattern", NULL);
    const char *letters = json_string_value(pattern), *source = types ? "indexer_types" : "index_topk_pattern";
    const char *type = json_string_value(json_array_get(types ? types : pattern, layer));
    const uint64_t every = kvb_config_number(c, "index_topk_freq");

    if (letters && strlen(letters) == reading->n_layers && strchr("FS", letters[layer]))
        type = letters[layer] == 'S' ? "shared" : "full";
    else if (!types && !pattern &&
             every > 1) { /* vllm-project/vllm, models/deepseek_v2.py: skip_topk; lists come first */
        source = "index_topk_freq, index_skip_topk_offset";
        const uint64_t from = kvb_config_count(c, "index_skip_topk_offset").value;
        type = layer + 1 > from && (layer + 1 - from) % every ? "shared" : "full";
    }
    if (pattern && !type)
        return kvb_config_fail(c, -EINVAL, "%sindex_topk_pattern: F or S for each of %u layers was expected", c->place,
                               reading->n_layers);
    if (types && (!type || (strcmp(type, "full") != 0 && strcmp(type, "shared") != 0)))
        return kvb_config_fail(c, -EINVAL, "%sindexer_types[%u]: \"full\" or \"shared\" was expected", c->place, layer);
    if (type && strcmp(type, "shared") == 0) {
        shape->group.name = "MLA, indexer shared";
        return shape_rule(shape, "index_dim", 0, source);
    }
    shape->group.name = "MLA with indexer";
    shape->group.index_dim = shape_fact(shape, "index_dim", kvb_config_count(c, "index_head_dim"));
}

/* Query heads of each layer: vLLM's models/laguna.py. */
void kvb_heads_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const json_t *list = kvb_config_list(c, "num_attention_heads_per_layer", reading->n_layers);
    const json_int_t heads = json_integer_value(json_array_get(list, layer));

    if (!list)
        return;
    if (heads < 1 || heads > INT32_MAX || heads % shape->group.kv_heads)
        return kvb_config_fail(c, -EINVAL, "%snum_attention_heads_per_layer[%u]: a multiple of %u was expected",
                               c->place, layer, shape->group.kv_heads);
    shape->group.heads = (uint32_t)heads;
    snprintf(shape->facts[0].fact.source, KVB_CONFIG_SOURCE, "num_attention_heads_per_layer");
    shape->facts[0].fact.value = (uint64_t)heads;
}

/* DeepSeek-V4 has one row for K and V (transformers' modeling_deepseek_v4.py, DeepseekV4HCACache). */
void kvb_one_row_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
{
    (void)layer;
    kvb_config_number(&reading->config, "qk_rope_head_dim"); /* a part of the row */
    shape->group.v_dim = 0;
    shape->facts[3].what = "v_dim (the row of K is V's)";
    shape->facts[3].fact.value = 0;
}

/* DeepSeek-V4 (the same file, DeepseekV4CSACache; vLLM's models/deepseek_v4/compressor.py): one row of head_dim for each 4
 * or 128 tokens. With 4, windows overlap, and each row has an indexer's key. Tokens that are not yet pooled are kept in
 * f32: for each of the last 4 (twice, as they overlap) or 128 tokens a row and its gate, for both halves of an overlap. */
void kvb_pooled_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    static const struct {
        const char *word, *rate;
        json_int_t every;
    } types[] = {
        {"sliding_attention", "", 0},
        {"compressed_sparse_attention", "compress_rates.compressed_sparse_attention compress_rate_csa", 4},
        {"heavily_compressed_attention", "compress_rates.heavily_compressed_attention compress_rate_hca", 128}};
    const json_t *ratios = kvb_config_list(c, "compress_ratios", 0);
    const char *type = json_string_value(json_array_get(kvb_config_find(c, "layer_types", NULL), layer));
    json_int_t every = json_integer_value(json_array_get(ratios, layer));
    for (size_t i = 0; i < sizeof types / sizeof *types && !ratios && type; i++)
        if (strcmp(types[i].word, type) == 0)
            every = kvb_config_has(c, types[i].rate) ? (json_int_t)kvb_config_number(c, types[i].rate) : types[i].every;
    const uint64_t index = kvb_config_count(c, "index_head_dim").value;
    const bool overlaps = every == 4;
    kvb_sized_group *g = &shape->group;

    if (!type && json_array_size(ratios) != reading->n_layers &&
        json_array_size(ratios) != reading->n_layers + (size_t)reading->model->mtp_layers)
        return kvb_config_fail(c, -EINVAL, "%scompress_ratios: an entry for each of %u layers was expected", c->place,
                               reading->n_layers);
    if ((ratios && !json_is_integer(json_array_get(ratios, layer))) || (every != 0 && every != 4 && every != 128))
        return kvb_config_fail(c, -EINVAL, "%scompress_ratios[%u]: 0, 4 or 128 was expected", c->place, layer);
    if (every == 0)
        return;
    *g = (kvb_sized_group){.kind = KVB_SIZED_POOLED, .name = overlaps ? "pooled rows with index" : "pooled rows"};
    g->heads = rows->heads;
    g->kv_heads = rows->kv_heads;
    g->every = (uint32_t)every;
    g->k_dim = rows->k_dim;
    g->state_f32 = true;
    g->index_dim = overlaps ? (uint32_t)index : 0;
    shape_rule(shape, "tokens of a row", g->every, "compress_ratios");
    shape_rule(shape, "k_dim (the row of K is V's)", g->k_dim, "head_dim");
    if (overlaps)
        shape_rule(shape, "index_dim", index, "index_head_dim");
    state_tell(reading, shape, (overlaps ? 8 : 128) * (uint64_t)(overlaps ? 4 : 2), (uint64_t)g->k_dim + g->index_dim,
               "tokens not yet pooled x row and gate, in f32");
}

/* GLM-5-Next: an indexer's key for each index_kpool tokens (transformers' configuration_glm5_next.py). */
void kvb_pooled_index_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows,
                             kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const uint64_t every = kvb_config_number(c, "index_kpool");
    kvb_layer_shape own = {.group = *rows};

    if (rows->kind != KVB_SIZED_LATENT || !kvb_config_has(c, "index_dsa_use_layernorm")) /* there is no indexer */
        return;
    kvb_indexer_vary(reading, layer, &own);
    if (!own.group.index_dim)
        return;
    shape->group =
        (kvb_sized_group){.kind = KVB_SIZED_POOLED, .name = "an indexer's keys", .every = every ? (uint32_t)every : 1};
    shape->group.heads = shape->group.kv_heads = 1; /* for the division among ranks */
    shape->group.index_dim = shape_fact(shape, "index_dim", kvb_config_count(c, "index_head_dim"));
    shape_rule(shape, "tokens of a key", shape->group.every, "index_kpool");
}

/* Qwen3.8-Flash-Next: an indexer's key for each token of full attention, and the columns of a convolution in layers with
 * embeddings of their own, counted from 1 (SGLang's and tokenspeed's configuration of qwen4_exp: short_conv_state_shape). */
void kvb_qsa_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const json_t *own = kvb_config_list(c, "ple_layer_ids", 0), *id;
    const bool keys = rows->kind == KVB_SIZED_FULL && kvb_config_has(c, "indexer_head_dim");
    size_t i;
    bool found = false;

    json_array_foreach(own, i, id) found = found || json_integer_value(id) == (json_int_t)layer + 1;
    if (keys && found)
        return kvb_config_fail(c, -ENOTSUP, "%sple_layer_ids: layer %u has full attention too, which is not sized",
                               c->place, layer + 1);
    if (keys) {
        shape->group = (kvb_sized_group){.kind = KVB_SIZED_POOLED, .name = "an indexer's keys", .every = 1};
        shape->group.heads = shape->group.kv_heads =
            shape_fact(shape, "kv_heads", kvb_config_count(c, "indexer_kv_heads"));
        shape->group.k_dim = shape_fact(shape, "k_dim", kvb_config_count(c, "indexer_head_dim"));
    } else if (found) {
        const uint64_t width = kvb_config_product(c, kvb_config_count(c, "hc_count").value,
                                                  kvb_config_count(c, hidden_names).value, "hc_count x hidden_size");
        state_begin(shape, "embeddings' convolution");
        convolution_read(reading, shape, "ple_conv_kernel_size", width * kvb_config_count(c, "ngram_size").value,
                         "(conv - 1) x ngram_size x hc_count x hidden");
    }
}

/* Inkling: convolutions over K, V, and the outputs of attention and feed-forward (transformers' modeling_inkling.py,
 * InklingShortConvolution, kept in f32). */
void kvb_short_convs_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows,
                            kvb_layer_shape *shape)
{
    const uint64_t hidden = kvb_config_count(&reading->config, hidden_names).value;
    (void)layer;
    state_begin(shape, "short convolutions");
    convolution_read(reading, shape, "conv_kernel_size sconv_kernel_size",
                     2 * (uint64_t)rows->kv_heads * rows->k_dim + 2 * hidden,
                     "(conv - 1) x (2 KV heads x dim + 2 hidden)");
}

/* Decoders of BART and Whisper: K and V of each token of the encoder's output, computed once. T5Gemma's encoder has a
 * config of its own. */
void kvb_cross_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows, kvb_layer_shape *shape)
{
    static const char *const lengths[] = {"max_source_positions", "encoder.text_config.max_position_embeddings",
                                          "encoder.max_position_embeddings", "max_position_embeddings"};
    size_t i = 0;
    (void)layer;
    kvb_config_has(&reading->config, "is_encoder_decoder");
    while (i < 3 && !kvb_config_has(&reading->config, lengths[i]))
        i++;
    shape->group = (kvb_sized_group){.kind = KVB_SIZED_CROSS,
                                     .name = "cross attention",
                                     .heads = rows->heads,
                                     .kv_heads = rows->kv_heads,
                                     .k_dim = rows->k_dim,
                                     .v_dim = rows->v_dim};
    kvb_config_fact most = kvb_config_count(&reading->config, lengths[i]);
    if (strncmp(lengths[i], "encoder.", 8) == 0) /* it is beside the decoder's config */
        snprintf(most.source, sizeof most.source, "%s", lengths[i]);
    shape->group.window = shape_fact(shape, "the encoder's tokens, at most", most);
}

/* MiniMax-M3: a key for each token and sparse layer (TensorRT-LLM's MiniMaxM3SparseIndexCache: [slots, 1,
 * sparse_index_dim]). A layer outside sparse_disable_index_value has an index value too; no public config shows its
 * width. */
void kvb_sparse_index_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
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
        shape_fact(shape, "index_dim", kvb_config_count(c, "sparse_attention_config.sparse_index_dim"));
}

/* ---- letters of layers: a list in the config, else the rule of the family --------------------------------- */

/* Words in layer_types and similar lists. */
static const struct {
    const char *word;
    char letter;
} words[] = {
    {"full_attention", 'F'},
    {"attention", 'F'},
    {"deepseek_sparse_attention", 'F'},
    {"qwen_sparse_attention", 'F'},
    {"sliding_attention", 'W'},
    {"chunked_attention", 'C'},
    {"linear_attention", 'S'},
    {"mamba", 'S'},
    {"mamba2", 'S'},
    {"recurrent", 'S'},
    {"conv", 'S'},
    {"hybrid_sliding", 'W'},
    {"compressed_sparse_attention", 'W'},
    {"heavily_compressed_attention", 'W'},
    {"hybrid", 'B'},
    {"moe", '-'},
    {"mlp", '-'},
};

/* The letter of a word, if the family has it. "attention" means the only kind of attention that the family has. */
static char letter_of_word(const kvb_layer_family *family, const char *word)
{
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0) {
            if (strchr(family->letters, words[i].letter))
                return words[i].letter;
            if (strcmp(word, "hybrid") == 0 && family->beside) /* Inkling: each layer also has convolutions */
                return 'F';
            if (strcmp(word, "attention") == 0 && strchr(family->letters, 'W'))
                return 'W';
        }
    return 0;
}

/* The letter of a list's entry: a word or a number. 0: unknown. */
static char letter_of_entry(const kvb_model_reading *reading, const char *field, const json_t *entry)
{
    bool flags = strcmp(field, "attn_type_list") == 0;         /* MiniMax: 1 softmax, 0 lightning */
    bool windows = strcmp(field, "hybrid_layer_pattern") == 0; /* MiMo: 1 window, 0 full */
    bool ropes = strcmp(field, "no_rope_layers") == 0;         /* Llama 4: 1 rope and chunks, 0 neither */

    if (!flags && !windows && !ropes)
        return letter_of_word(reading->family, json_string_value(entry));
    if (!json_is_integer(entry) || (json_integer_value(entry) != 0 && json_integer_value(entry) != 1))
        return 0;
    bool one = json_integer_value(entry) == 1;
    char letter = 'F';

    if (flags)
        letter = one ? 'F' : 'S';
    else if (one)
        letter = windows ? 'W' : 'C';
    return strchr(reading->family->letters, letter) ? letter : 0;
}

/* Lays a list with an entry for each layer; block_types repeats. */
static void list_lay(kvb_model_reading *reading, const char *field, const json_t *list)
{
    kvb_config_json *c = &reading->config;
    size_t n = json_array_size(list);

    if (n != reading->n_layers && n != reading->n_layers + (size_t)reading->model->mtp_layers &&
        (strcmp(field, "block_types") != 0 || n == 0)) {
        kvb_config_fail(c, -EINVAL, "%s%s: %zu entries, but num_hidden_layers is %u", c->place, field, n,
                        reading->n_layers);
        return;
    }
    for (uint32_t i = 0; i < reading->n_layers; i++) {
        const json_t *entry = json_array_get(list, i % n);
        reading->letters[i] = letter_of_entry(reading, field, entry);
        if (!reading->letters[i]) {
            char *text = json_dumps(entry, JSON_ENCODE_ANY | JSON_COMPACT);
            kvb_config_fail(c, -EINVAL, "%s%s[%zu]: %.40s is not a layer of %s", c->place, field, i % n,
                            text ? text : "this", c->model_class);
            free(text);
            return;
        }
    }
}

/* Lays a string with a character for each layer (Nemotron-H: "M-M*E"), or one that repeats (EXAONE 4: "LLLG"). */
static void string_lay(kvb_model_reading *reading, const char *field, const char *pattern)
{
    static const struct {
        char sign, letter;
    } signs[] = {{'M', 'S'}, {'*', 'F'}, {'-', '-'}, {'E', '-'}, {'L', 'W'}, {'G', 'F'}};
    kvb_config_json *c = &reading->config;
    size_t n = strlen(pattern);

    if (n == 0 || (n != reading->n_layers && strcmp(field, "hybrid_override_pattern") == 0)) {
        kvb_config_fail(c, -EINVAL, "%s%s: %zu layers, but num_hidden_layers is %u", c->place, field, n,
                        reading->n_layers);
        return;
    }
    for (uint32_t i = 0; i < reading->n_layers; i++) {
        char letter = 0;
        for (size_t s = 0; s < sizeof signs / sizeof *signs; s++)
            if (signs[s].sign == pattern[i % n] && strchr(reading->family->letters, signs[s].letter))
                letter = signs[s].letter;
        if (!letter) {
            kvb_config_fail(c, -EINVAL, "%s%s: character %zu is not a layer of %s", c->place, field, i % n + 1,
                            c->model_class);
            return;
        }
        reading->letters[i] = letter;
    }
}

/* Lays a list of the numbers of layers with this letter, counted from `first`. The other layers keep their letters. */
static void indices_lay(kvb_model_reading *reading, const char *field, const json_t *list, uint32_t first, char letter,
                        bool once)
{
    kvb_config_json *c = &reading->config;

    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *entry = json_array_get(list, k);
        json_int_t i = json_is_integer(entry) ? json_integer_value(entry) - first : -1;
        if (i < 0 || i >= reading->n_layers || (once && reading->letters[i])) {
            kvb_config_fail(c, -EINVAL, "%s%s[%zu]: the number of a layer, from %u to %u and only once, was expected",
                            c->place, field, k, first, reading->n_layers - 1 + first);
            return;
        }
        reading->letters[i] = letter;
    }
}

/* Kimi and GLM-5-Next: two lists of numbers that together name every layer once. */
static void two_lists_lay(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    static const char full[] = "linear_attn_config.full_attn_layers", kda[] = "linear_attn_config.kda_layers";

    indices_lay(reading, full, kvb_config_list(c, full, 0), reading->family->lists_first, 'F', true);
    indices_lay(reading, kda, kvb_config_list(c, kda, 0), reading->family->lists_first, 'S', true);
    for (uint32_t i = 0; i < reading->n_layers; i++)
        if (!reading->letters[i])
            kvb_config_fail(c, -EINVAL, "%slinear_attn_config: layer %u is in neither full_attn_layers nor kda_layers",
                            c->place, i + reading->family->lists_first);
}

/* Lays objects for each layer, which kvb_block_config_vary reads: all layers are F. */
static void objects_lay(kvb_model_reading *reading, const char *field)
{
    if (kvb_config_list(&reading->config, field, reading->n_layers))
        memset(reading->letters, 'F', reading->n_layers);
}

/* Lays the list of the file. False: it has none of the family's lists. */
static bool explicit_lay(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    char lists[192];
    bool laid = false;

    snprintf(lists, sizeof lists, "layer_types %s", reading->family->lists ? reading->family->lists : "");
    char *rest = NULL;
    for (char *field = strtok_r(lists, " ", &rest); field; field = strtok_r(NULL, " ", &rest)) {
        const json_t *value = kvb_config_find(c, field, NULL);
        if (!value || laid || json_is_integer(value)) /* a sliding_window_pattern that is a number is a period */
            continue;
        if (json_is_array(value) && json_array_size(value) == 0 && strcmp(field, "layer_types") != 0)
            continue; /* as in transformers: "list or default" */
        laid = true;
        snprintf(reading->letters_source, sizeof reading->letters_source, "%s%s", c->place, field);
        if (json_is_string(value))
            string_lay(reading, field, json_string_value(value));
        else if (strcmp(field, "linear_attn_config") == 0)
            two_lists_lay(reading);
        else if (!kvb_config_list(c, field, 0))
            break;
        else if (strcmp(field, "block_configs") == 0)
            objects_lay(reading, field);
        else if (strcmp(field, "full_attn_idxs") == 0 || strcmp(field, "attn_layer_indices") == 0) {
            memset(reading->letters, 'S', reading->n_layers);
            indices_lay(reading, field, value, 0, 'F', false);
        } else if (strcmp(field, "local_layer_ids") == 0) {
            memset(reading->letters, 'F', reading->n_layers);
            indices_lay(reading, field, value, 0, 'W', false);
        } else
            list_lay(reading, field, value);
    }
    return laid;
}

static void rule_lay(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    kvb_config_fact period = {.value = family->period};

    snprintf(period.source, sizeof period.source, "%s's code", c->model_class);
    if (family->period_must && kvb_config_has(c, family->period_in))
        period = kvb_config_count(c, family->period_in);
    else if (family->period_must) /* names the list, which users know better than the period */
        kvb_config_fail(c, -EINVAL, "%slayer_types (or one of: %s): missing, which %s needs", c->place, family->lists,
                        c->model_class);
    else if (family->period_in)
        period = kvb_config_count_or(c, family->period_in, family->period, period.source);
    uint64_t offset = period.value - 1;
    if (family->offset_in)
        offset = kvb_config_number(c, family->offset_in);
    else if (family->offset >= 0)
        offset = (uint64_t)family->offset;
    if (period.value && offset >= period.value)
        kvb_config_fail(c, -EINVAL, "%s%s: %ju, but the period is %ju", c->place, family->offset_in, (uintmax_t)offset,
                        (uintmax_t)period.value);
    for (uint32_t i = 0; i < reading->n_layers; i++) {
        bool full = !family->other || (period.value && i % period.value == offset) ||
                    (family->rest_full && period.value && i >= reading->n_layers / period.value * period.value);
        reading->letters[i] = full ? 'F' : family->other;
    }
    snprintf(reading->letters_source, sizeof reading->letters_source, "%s", period.source);
}

/* microsoft/Phi-4-mini-flash-reasoning, configuration_phi4flash.py and modeling_phi4flash.py: Mamba and windows in turn up
 * to the middle; then one Mamba and one layer of full attention, which all later layers read. */
void kvb_samba_lay(kvb_model_reading *reading)
{
    const uint32_t middle = reading->n_layers / 2;

    if (reading->n_layers % 4)
        return kvb_config_fail(&reading->config, -EINVAL, "%snum_hidden_layers: a multiple of 4 was expected",
                               reading->config.place);
    for (uint32_t i = 0; i < reading->n_layers; i++)
        reading->letters[i] = i < middle ? "SW"[i % 2] : i < middle + 2 ? "SF"[i % 2] : "-f"[i % 2];
    snprintf(reading->letters_source, sizeof reading->letters_source, "%s's code", reading->config.model_class);
}

void kvb_layers_lay(kvb_model_reading *reading)
{
    const kvb_layer_family *family = reading->family;

    /* the family knows these fields, even if a list comes first, or gives no layer a mixer */
    kvb_config_has(&reading->config, family->period_in);
    kvb_config_has(&reading->config, family->mamba ? family->mamba->state : NULL);
    if (!explicit_lay(reading))
        (family->lay ? family->lay : rule_lay)(reading);
    if (family->last_full && !reading->config.error)
        reading->letters[reading->n_layers - 1] = 'F';
}

/* ---- windows that are switched off, and shared rows ----------------------------------------------------------- */

static uint32_t letters_replace(kvb_model_reading *reading, uint32_t from, char old, char letter)
{
    uint32_t n = 0;

    for (uint32_t i = from; i < reading->n_layers; i++)
        if (reading->letters[i] == old) {
            reading->letters[i] = letter;
            n++;
        }
    return n;
}

/* Turns layers with their window switched off into F. */
static void window_settle(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    const char *names = family->window_in ? family->window_in : "sliding_window sliding_window_size", *name;
    bool listed = strstr(reading->letters_source, "layer_types") != NULL;
    bool on = kvb_config_flag(c, "use_sliding_window", !family->window_off);
    const json_t *window = NULL;
    char text[KVB_CONFIG_SOURCE];

    if (!on) /* every family knows a sliding_window that is switched off */
        kvb_config_has(c, "sliding_window");
    if (!strchr(family->letters, 'W'))
        return;
    window = kvb_config_find(c, names, &name);
    if (!strchr(reading->letters, 'W'))
        return;
    snprintf(text, sizeof text, "%s", name);
    if (listed && (!on || !window))
        return kvb_config_fail(c, -EINVAL, "%slayer_types: has sliding layers, but %s", c->place,
                               on ? "sliding_window is missing" : "use_sliding_window is false");
    if (!window && family->local_needed)
        return kvb_config_fail(c, -EINVAL, "%s%s: missing, which %s needs", c->place, name, c->model_class);
    if (!window || !on) {
        letters_replace(reading, 0, 'W', 'F');
        return kvb_sized_model_note_add(reading, -1,
                                        on ? "sliding_window is absent or null" : "use_sliding_window is not true",
                                        "no sliding window");
    }
    uint64_t n = kvb_config_number(c, names);
    if (n == 0)
        return kvb_config_fail(c, -EINVAL, "%s%s: 0 tokens: a window of at least 1 was expected", c->place, text);
    if (reading->model->max_context && n >= reading->model->max_context)
        kvb_sized_model_note_add(reading, -1, "sliding_window, max_position_embeddings",
                                 "the window of %ju tokens limits no context of up to %ju", (uintmax_t)n,
                                 (uintmax_t)reading->model->max_context);
    if (family->window_from && !listed) {
        uint64_t from = kvb_config_count(c, family->window_from).value;
        for (uint32_t i = 0; i < reading->n_layers && i < from; i++)
            reading->letters[i] = reading->letters[i] == 'W' ? 'F' : reading->letters[i];
    }
}

static void chunk_settle(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;

    if (!strchr(reading->family->letters, 'C'))
        return;
    if (!kvb_config_has(c, "attention_chunk_size") && letters_replace(reading, 0, 'C', 'F') > 0)
        kvb_sized_model_note_add(reading, -1, "attention_chunk_size is null", "no chunks");
}

/* Gemma 3n and 4: the last layers read the rows of earlier layers of their kind. Hunyuan: the layers of a group read
 * the rows of its first layer. */
static void sharing_settle(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;

    if (!reading->family->shares)
        return;
    uint64_t last = kvb_config_number(c, "num_kv_shared_layers");
    uint64_t factor = kvb_config_number(c, "cla_share_factor");
    bool cla = kvb_config_flag(c, "use_cla", false);
    if (last >= reading->n_layers)
        return kvb_config_fail(c, -EINVAL, "%snum_kv_shared_layers: %ju of %u layers leave none that has rows",
                               c->place, (uintmax_t)last, reading->n_layers);
    if (cla && factor == 0)
        return kvb_config_fail(c, -EINVAL, "%scla_share_factor: missing, which use_cla needs", c->place);
    for (uint32_t i = 0; i < reading->n_layers; i++)
        if (i >= reading->n_layers - last || (cla && i % factor != 0)) {
            if (!memchr(reading->letters, reading->letters[i], i))
                return kvb_config_fail(c, -EINVAL, "%snum_kv_shared_layers: no earlier layer has rows for layer %u",
                                       c->place, i);
            reading->letters[i] = (char)tolower((unsigned char)reading->letters[i]);
        }
    if (last)
        kvb_sized_model_note_add(reading, -1, "num_kv_shared_layers",
                                 "the last %ju layers read the rows of earlier ones", (uintmax_t)last);
    else if (cla && factor > 1)
        kvb_sized_model_note_add(reading, -1, "cla_share_factor", "one layer of %ju has rows, the others read them",
                                 (uintmax_t)factor);
}

void kvb_layers_settle(kvb_model_reading *reading)
{
    window_settle(reading);
    chunk_settle(reading);
    sharing_settle(reading);
}

/* ---- groups of equal layers --------------------------------------------------------------------------------- */

#define RUNS_MOST 5u /* runs of layer numbers in a note; more are "…" */

void kvb_sized_model_note_add(kvb_model_reading *reading, int group, const char *source, const char *format, ...)
{
    kvb_sized_model *model = reading->model;
    kvb_sized_model_note *notes = realloc(model->notes, (model->n_notes + 1) * sizeof *notes);
    va_list args;

    if (!notes)
        return kvb_config_fail(&reading->config, -ENOMEM, "no memory");
    model->notes = notes;
    notes += model->n_notes++;
    *notes = (kvb_sized_model_note){.group = group, .source = strdup(source)};
    va_start(args, format);
    if (vasprintf(&notes->text, format, args) < 0)
        notes->text = NULL;
    va_end(args);
    if (!notes->text || !notes->source)
        kvb_config_fail(&reading->config, -ENOMEM, "no memory");
}

/* memcmp is right: shapes are zeroed before they are filled, so their padding is equal. */
static bool is_same(const kvb_sized_group *a, const kvb_sized_group *b)
{
    size_t from = offsetof(kvb_sized_group, kind);

    return memcmp((const char *)a + from, (const char *)b + from, sizeof *a - from) == 0;
}

/* Finds the group of such layers, or makes it. */
static int group_find(kvb_model_reading *reading, const kvb_layer_shape *shape)
{
    kvb_sized_model *model = reading->model;

    for (size_t g = 0; g < model->n_groups; g++)
        if (is_same(&model->groups[g], &shape->group))
            return (int)g;
    kvb_sized_group *groups = realloc(model->groups, (model->n_groups + 1) * sizeof *groups);
    if (!groups) {
        kvb_config_fail(&reading->config, -ENOMEM, "no memory");
        return -1;
    }
    model->groups = groups;
    memcpy(&groups[model->n_groups], &shape->group, sizeof *groups);
    int group = (int)model->n_groups++;
    for (uint32_t f = 0; f < shape->n_facts; f++)
        kvb_sized_model_note_add(reading, group, shape->facts[f].fact.source, "%s = %ju", shape->facts[f].what,
                                 (uintmax_t)shape->facts[f].fact.value);
    return group;
}

static void layer_add(kvb_model_reading *reading, uint32_t layer, const kvb_layer_shape *shape, int member)
{
    int group = group_find(reading, shape);

    if (group >= 0)
        reading->model->groups[group].n++;
    reading->groups[member][layer] = (int16_t)group;
}

/* "0-4, 6-10, 12, …, 47" */
static void layers_tell(const kvb_model_reading *reading, int group, char *text, size_t bytes)
{
    uint32_t runs = 0, last = 0;
    size_t used = 0;

    for (uint32_t i = 0; i < reading->n_layers; i++) {
        uint32_t from = i;
        while (i < reading->n_layers && (reading->groups[0][i] == group || reading->groups[1][i] == group))
            i++;
        if (i == from)
            continue;
        last = i - 1;
        if (runs++ >= RUNS_MOST)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%u", runs > 1 ? ", " : "", from);
        if (last > from)
            used += (size_t)snprintf(text + used, bytes - used, "-%u", last);
    }
    if (runs > RUNS_MOST)
        snprintf(text + used, bytes - used, ", \xe2\x80\xa6, %u", last);
}

static void members_note(kvb_model_reading *reading)
{
    kvb_sized_model *model = reading->model;
    const char *vary_in = reading->family->vary_in;
    char layers[160];

    if (vary_in && kvb_config_has(&reading->config, vary_in))
        snprintf(reading->letters_source, sizeof reading->letters_source, "%s%s", reading->config.place, vary_in);
    for (size_t g = 0; g < model->n_groups; g++) {
        layers_tell(reading, (int)g, layers, sizeof layers);
        kvb_sized_model_note_add(reading, (int)g, reading->letters_source, "%u of %u layers: %s", model->groups[g].n,
                                 reading->n_layers, layers);
    }
}

/* Reads the shape of a layer with this letter. A layer B has two: attention (member 0) and a mixer (member 1). */
static void shape_read(kvb_model_reading *reading, char letter, int member, kvb_layer_shape *shape)
{
    memset(shape, 0, sizeof *shape);
    if (letter == 'R' || letter == '-') {
        shape->group.kind = KVB_SIZED_NONE;
        shape->group.name = letter == 'R' ? "reads another layer's rows" : "feed-forward";
    } else if (letter == 'S' || member == 1)
        reading->family->mixer(reading, shape);
    else
        attention_read(reading, letter, shape);
}

void kvb_layers_group(kvb_model_reading *reading)
{
    static const char all[] = "FWCSBR-";
    const kvb_layer_family *family = reading->family;
    kvb_layer_shape shapes[sizeof all - 1], second, varied;
    bool known[sizeof all - 1] = {false};

    memset(reading->groups, 0xff, sizeof reading->groups); /* -1 */
    for (uint32_t i = 0; i < reading->n_layers && !reading->config.error; i++) {
        bool reads = islower((unsigned char)reading->letters[i]);
        if (reads)
            reading->model
                ->groups[reading->groups[0][strchr(reading->letters, toupper(reading->letters[i])) - reading->letters]]
                .readers++;
        char letter = reads ? 'R' : reading->letters[i];
        size_t l = (size_t)(strchr(all, letter) - all);
        if (!known[l]) {
            shape_read(reading, letter, 0, &shapes[l]);
            known[l] = true;
            if (letter == 'B')
                shape_read(reading, letter, 1, &second);
        }
        memcpy(&varied, &shapes[l], sizeof varied);
        if (family->vary && strchr("FW", letter) && !reading->config.error)
            family->vary(reading, i, &varied);
        layer_add(reading, i, &varied, 0);
        bool two = letter == 'B';
        if (family->beside && strchr("FWS", letter) && !reading->config.error) {
            memset(&second, 0, sizeof second);
            family->beside(reading, i, &varied.group, &second);
            two = second.group.name != NULL;
        }
        if (two)
            layer_add(reading, i, &second, 1);
    }
    if (!reading->config.error)
        members_note(reading);
}
