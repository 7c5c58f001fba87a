/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The architectures: what a layer keeps, and a row for each. Unless a row names another source, its rules are those of
 * transformers' configuration_*.py and modeling_*.py. Only architectures with known code have a row.
 */
#include "harness/size/model_reading.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

void kvb_attention_read(kvb_model_reading *reading, char letter, kvb_layer_shape *shape)
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
static void mamba1_read(kvb_model_reading *reading, kvb_layer_shape *shape)
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
static void mamba2_read(kvb_model_reading *reading, kvb_layer_shape *shape)
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
static void delta_net_read(kvb_model_reading *reading, kvb_layer_shape *shape)
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
static void kda_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;

    state_begin(shape, "Kimi delta attention");
    uint64_t heads = shape_fact(shape, "heads", kvb_config_count(c, "linear_attn_config.num_heads"));
    uint64_t dim = shape_fact(shape, "head_dim", kvb_config_count(c, "linear_attn_config.head_dim"));
    uint64_t width = kvb_config_product(c, heads, dim, "heads x head_dim of linear_attn_config");
    shape->group.state_f32 = true;
    heads_tell(shape, heads, heads, dim, dim);
    state_tell(reading, shape, width, dim, "heads x head_dim x head_dim, always f32");
    convolution_read(reading, shape, "linear_attn_config.short_conv_kernel_size", 3 * width,
                     "(conv - 1) x 3 heads x head_dim");
}

/* transformers' modeling_minimax.py, MiniMaxLightningAttention: heads x head_dim x head_dim, no convolution. */
static void lightning_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_layer_shape attention = {0};

    state_begin(shape, "lightning attention");
    kvb_attention_read(reading, 'S', &attention); /* it has the same heads */
    uint64_t heads = shape_fact(shape, "heads", attention.facts[0].fact);
    uint64_t dim = shape_fact(shape, "head_dim", attention.facts[2].fact);
    heads_tell(shape, heads, heads, dim, dim);
    state_tell(reading, shape, heads * dim, dim, "heads x head_dim x head_dim");
}

/* llama.cpp, llama_hparams::n_embd_r and n_embd_s: token_shift_count (2) x n_embd, and n_embd x wkv_head_size. RWKV-4 has
 * five vectors of hidden_size, with the two shifted tokens in the model's dtype (transformers' modeling_rwkv.py). */
static void rwkv_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;

    const char *type = kvb_config_text(c, "model_type");
    uint64_t hidden = shape_fact(shape, "hidden", kvb_config_count(c, hidden_names));

    shape_rule(shape, "shifted tokens", 2, "one before time mixing, one before channel mixing");
    if (type && strcmp(type, "rwkv") == 0 && !kvb_config_has(c, "head_size")) {
        state_begin(shape, "RWKV-4");
        state_tell(reading, shape, hidden, 3, "3 x hidden (model_type is rwkv, without a head_size)");
    } else {
        state_begin(shape, "RWKV");
        uint64_t size = shape_fact(shape, "head_size", kvb_config_count(c, "head_size head_dim"));
        state_tell(reading, shape, hidden, size, "hidden x head_size");
    }
    shape->group.state_f32 = true;
    shape->group.conv_elements = 2 * hidden;
}

/* transformers' modeling_lfm2.py, Lfm2ShortConv: a convolution without a recurrent state. */
static void short_conv_read(kvb_model_reading *reading, kvb_layer_shape *shape)
{
    state_begin(shape, "short convolution");
    uint64_t hidden = shape_fact(shape, "hidden", kvb_config_count(&reading->config, hidden_names));
    convolution_read(reading, shape, "conv_L_cache", hidden, "(conv - 1) x hidden");
}

/* transformers' modeling_recurrent_gemma.py: lru_width in f32, and conv1d_width - 1 columns of it. */
static void rg_lru_read(kvb_model_reading *reading, kvb_layer_shape *shape)
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
static void block_config_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
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
static void indexer_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
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
static void heads_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
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
static void one_row_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
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
static void pooled_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows,
                          kvb_layer_shape *shape)
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
static void pooled_index_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows,
                                kvb_layer_shape *shape)
{
    kvb_config_json *c = &reading->config;
    const uint64_t every = kvb_config_number(c, "index_kpool");
    kvb_layer_shape own = {.group = *rows};

    if (rows->kind != KVB_SIZED_LATENT || !kvb_config_has(c, "index_dsa_use_layernorm")) /* there is no indexer */
        return;
    indexer_vary(reading, layer, &own);
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
static void qsa_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows, kvb_layer_shape *shape)
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
static void short_convs_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows,
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
static void cross_beside(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows,
                         kvb_layer_shape *shape)
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
static void sparse_index_vary(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape)
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

/* microsoft/Phi-4-mini-flash-reasoning, configuration_phi4flash.py and modeling_phi4flash.py: Mamba and windows in turn up
 * to the middle; then one Mamba and one layer of full attention, which all later layers read. */
static void samba_lay(kvb_model_reading *reading)
{
    const uint32_t middle = reading->n_layers / 2;

    if (reading->n_layers % 4)
        return kvb_config_fail(&reading->config, -EINVAL, "%snum_hidden_layers: a multiple of 4 was expected",
                               reading->config.place);
    for (uint32_t i = 0; i < reading->n_layers; i++)
        reading->letters[i] = i < middle ? "SW"[i % 2] : i < middle + 2 ? "SF"[i % 2] : "-f"[i % 2];
    snprintf(reading->letters_source, sizeof reading->letters_source, "%s's code", reading->config.model_class);
}

/* ---- the rows ------------------------------------------------------------------------------------------------ */

#define HEADS_USUAL                                                                                                    \
    .heads = "num_attention_heads n_head n_heads", .kv_heads = "num_key_value_heads", .k_dim = "head_dim"

static const char encoder[] =
    "it is an encoder, or its decoder keeps rows of an input, and no config tells how long that is";

/* attention_head_dim is 2 hidden / heads, as attention reads the hidden state and the embedding. kv_channels is half of
 * it. */
static const kvb_head_fields zamba2_heads = {
    .heads = "num_attention_heads", .kv_heads = "num_key_value_heads", .k_dim = "attention_head_dim"};
static const kvb_head_fields gemma4_global = {
    .kv_heads = "num_global_key_value_heads", .k_dim = "global_head_dim", .v_dim = "global_head_dim"};
static const kvb_head_fields mimo_heads = {HEADS_USUAL, .v_dim = "v_head_dim"};
static const kvb_head_fields mimo_window = {.heads = "swa_num_attention_heads",
                                            .kv_heads = "swa_num_key_value_heads",
                                            .k_dim = "swa_head_dim",
                                            .v_dim = "swa_v_head_dim"};

static const kvb_head_fields swa_heads = {
    .heads = "swa_num_attention_heads", .kv_heads = "swa_num_key_value_heads", .k_dim = "swa_head_dim"};
static const kvb_head_fields step_heads = {
    .heads = "num_attention_heads", .kv_heads = "num_attention_groups num_key_value_heads", .k_dim = "head_dim"};
static const kvb_head_fields step_window = {.heads = "attention_other_setting.num_attention_heads",
                                            .kv_heads = "attention_other_setting.num_attention_groups",
                                            .k_dim = "attention_other_setting.head_dim"};
static const kvb_head_fields decoder_heads = {.heads = "decoder_attention_heads"};

static const kvb_mamba_fields mamba1 = {.inner = "intermediate_size d_inner",
                                        .expand = "expand",
                                        .state = "state_size d_state",
                                        .conv = "conv_kernel d_conv"};
static const kvb_mamba_fields mamba_ssm = {.expand = "ssm_cfg.expand expand",
                                           .heads = "ssm_cfg.nheads",
                                           .head_dim = "ssm_cfg.headdim headdim",
                                           .state = "ssm_cfg.d_state d_state",
                                           .groups = "ssm_cfg.ngroups ngroups",
                                           .conv = "ssm_cfg.d_conv d_conv"};
static const kvb_mamba_fields jamba = {.expand = "mamba_expand", .state = "mamba_d_state", .conv = "mamba_d_conv"};
static const kvb_mamba_fields mamba2 = {.expand = "expand",
                                        .heads = "num_heads",
                                        .head_dim = "head_dim",
                                        .state = "state_size",
                                        .groups = "n_groups",
                                        .conv = "conv_kernel"};
/* The width of Nemotron-H's mixer is mamba_num_heads x mamba_head_dim; its `expand` is not used. */
static const kvb_mamba_fields nemotron_h = {.heads = "mamba_num_heads",
                                            .head_dim = "mamba_head_dim",
                                            .state = "ssm_state_size",
                                            .groups = "n_groups mamba_n_groups",
                                            .conv = "conv_kernel mamba_d_conv"};
static const kvb_mamba_fields bamba = {.inner = "mamba_d_ssm",
                                       .expand = "mamba_expand",
                                       .heads = "mamba_n_heads",
                                       .head_dim = "mamba_d_head",
                                       .state = "mamba_d_state",
                                       .groups = "mamba_n_groups",
                                       .conv = "mamba_d_conv"};
static const kvb_mamba_fields zamba2 = {.expand = "mamba_expand expansion_factor",
                                        .heads = "n_mamba_heads",
                                        .head_dim = "mamba_headdim",
                                        .state = "mamba_d_state state_size",
                                        .groups = "mamba_ngroups",
                                        .conv = "mamba_d_conv conv_dimension"};

/* A row: names, letters, and the other members that are not 0. */
#define FAMILY(NAMES, ...)                                                                                             \
    {                                                                                                                  \
        .names = NAMES, .letters = __VA_ARGS__                                                                         \
    }

static const kvb_layer_family families[] = {
    /* ---- every layer over every token -------------------------------------------------------------------------- */
    FAMILY(
        "LlamaForCausalLM llama GPTNeoXForCausalLM gpt_neox GPT2LMHeadModel gpt2 GPTJForCausalLM gptj OPTForCausalLM "
        "opt BloomForCausalLM bloom PhiForCausalLM phi phi-msft GemmaForCausalLM gemma StableLmForCausalLM stablelm "
        "CohereForCausalLM cohere OlmoForCausalLM olmo Olmo2ForCausalLM olmo2 OlmoeForCausalLM olmoe "
        "GraniteForCausalLM granite GraniteMoeForCausalLM granitemoe GlmForCausalLM glm Glm4ForCausalLM glm4 "
        "Glm4MoeForCausalLM glm4_moe BaichuanForCausalLM baichuan InternLMForCausalLM internlm InternLM2ForCausalLM "
        "internlm2 OrionForCausalLM orion QWenLMHeadModel qwen NemotronForCausalLM nemotron ExaoneForCausalLM exaone "
        "MPTForCausalLM mpt DbrxForCausalLM dbrx DeepseekForCausalLM deepseek SeedOssForCausalLM seed_oss "
        "ArceeForCausalLM arcee Ernie4_5ForCausalLM Ernie4_5_ForCausalLM ernie4_5 Ernie4_5_MoeForCausalLM ernie4_5_moe "
        "ApertusForCausalLM apertus Ernie4_5_VLMoeForConditionalGeneration ernie4_5_vl_moe ernie4_5_vl_moe_text "
        "ernie4_5_moe_vl BailingMoeForCausalLM bailing_moe BailingMoeV2ForCausalLM bailing_moe_v2 "
        "Glm4vForConditionalGeneration glm4v glm4v_text Glm4vMoeForConditionalGeneration glm4v_moe glm4v_moe_text",
        "F"),
    FAMILY("MiniMaxM2ForCausalLM minimax_m2", "F", .lists = "attn_type_list"), /* all ones */
    FAMILY("FalconForCausalLM falcon RefinedWebModel RefinedWeb", "F", .multi_query = "multi_query",
           .multi_query_else = true),
    FAMILY("ChatGLMModel chatglm", "F", .kv_flag = "multi_query_attention"), /* vLLM's models/chatglm.py */
    FAMILY("GPTBigCodeForCausalLM gpt_bigcode", "F", .multi_query = "multi_query", .multi_query_else = true),
    FAMILY(
        "HunYuanDenseV1ForCausalLM hunyuan_v1_dense HunYuanMoEV1ForCausalLM hunyuan_v1_moe HunYuanForCausalLM hunyuan",
        "F", .shares = true),
    FAMILY("DeciLMForCausalLM nemotron-nas", "F", .lists = "block_configs", .vary = block_config_vary),
    FAMILY("MiniMaxM3ForCausalLM MiniMaxM3SparseForCausalLM minimax_m3", "F", .vary_in = "sparse_attention_config",
           .vary = sparse_index_vary),

    /* ---- windows and chunks ------------------------------------------------------------------------------------ */
    FAMILY("MistralForCausalLM mistral", "FW", .other = 'W'),
    FAMILY("MixtralForCausalLM mixtral Phi3ForCausalLM phi3 Phi3VForCausalLM phi3_v Starcoder2ForCausalLM starcoder2 "
           "Ministral3ForCausalLM ministral3 Phi4MMForCausalLM phi4mm Phi4MultimodalForCausalLM phi4_multimodal",
           "FW", .other = 'W'),
    FAMILY("Qwen2ForCausalLM qwen2 Qwen3ForCausalLM qwen3 Qwen2MoeForCausalLM qwen2_moe "
           "Qwen2VLForConditionalGeneration qwen2_vl qwen2_vl_text Qwen2_5_VLForConditionalGeneration qwen2_5_vl "
           "qwen2_5_vl_text Qwen3VLForConditionalGeneration qwen3_vl qwen3_vl_text SmolLM3ForCausalLM smollm3 "
           "MiMoForCausalLM mimo Qwen2_5OmniModel Qwen2_5OmniForConditionalGeneration qwen2_5_omni qwen2_5_omni_text",
           "FW", .other = 'W', .window_off = true, .window_from = "max_window_layers"),
    FAMILY("Qwen3MoeForCausalLM qwen3_moe Qwen3VLMoeForConditionalGeneration qwen3_vl_moe qwen3_vl_moe_text "
           "Qwen3OmniMoeForConditionalGeneration qwen3_omni_moe qwen3_omni_moe_text",
           "FW", .other = 'W', .window_off = true),
    FAMILY("Gemma2ForCausalLM gemma2", "FW", .other = 'W', .period = 2, .offset = -1, .local_needed = "Gemma2Config"),
    FAMILY("Gemma3ForConditionalGeneration gemma3 Gemma3ForCausalLM gemma3_text", "FW",
           .lists = "sliding_window_pattern", .other = 'W', .period = 6, .period_in = "sliding_window_pattern",
           .offset = -1, .local_needed = "Gemma3TextConfig"),
    FAMILY("Gemma3nForConditionalGeneration gemma3n Gemma3nForCausalLM gemma3n_text", "FW", .other = 'W', .period = 5,
           .offset = -1, .local_needed = "Gemma3nTextConfig", .shares = true),
    FAMILY("Gemma4ForConditionalGeneration gemma4 Gemma4ForCausalLM gemma4_text", "FW", .other = 'W', .period = 6,
           .offset = -1, .local_needed = "Gemma4TextConfig", .last_full = true, .full_heads = &gemma4_global,
           .full_kv_flag = "attention_k_eq_v", .shares = true),
    FAMILY("Cohere2ForCausalLM cohere2", "FW", .lists = "sliding_window_pattern", .other = 'W', .period = 4,
           .period_in = "sliding_window_pattern", .offset = -1, .local_needed = "Cohere2Config"),
    FAMILY("GptOssForCausalLM gpt_oss", /* its sinks are learned logits, which store nothing */ "FW", .other = 'W',
           .period = 2, .offset = -1, .local_needed = "GptOssConfig"),
    FAMILY("Olmo3ForCausalLM olmo3", "FW", .other = 'W', .period = 4, .offset = -1, .local_needed = "Olmo3Config"),
    FAMILY("Exaone4ForCausalLM exaone4 Exaone4_5_ForConditionalGeneration exaone4_5 exaone4_5_text", "FW",
           .lists = "sliding_window_pattern", .other = 'W', .period = 4, .period_in = "sliding_window_pattern",
           .offset = -1),
    FAMILY("MiMoV2FlashForCausalLM mimo_v2_flash", "FW", .lists = "hybrid_layer_pattern", .period_must = true,
           .local_needed = "its code", .heads = &mimo_heads, .window_heads = &mimo_window),
    FAMILY("Dots1ForCausalLM dots1", "FW", .other = 'W', .window_from = "max_window_layers"),
    FAMILY("LagunaForCausalLM laguna", "FW", .vary = heads_vary),
    /* vLLM's models/step3p5.py */
    FAMILY("Step3p5ForCausalLM step3p5 Step3p7FlashForCausalLM Step3p7ForConditionalGeneration step3p7 step3p7_text",
           "FW", .period_must = true, .lists = "layer_types", .heads = &step_heads, .window_heads = &step_window),
    FAMILY("InklingForConditionalGeneration inkling_mm_model InklingForCausalLM inkling_text inkling_model", "FW",
           .lists = "local_layer_ids", .other = 'W', .period = 6, .offset = -1, .local_needed = "InklingTextConfig",
           .window_heads = &swa_heads, .beside = short_convs_beside),
    FAMILY("DeepseekV4ForCausalLM deepseek_v4", "W", .other = 'W', .local_needed = "DeepseekV4Config",
           .vary_in = "compress_ratios", .vary = one_row_vary, .beside = pooled_beside),
    FAMILY("Llama4ForConditionalGeneration llama4 Llama4ForCausalLM llama4_text", "FC", .lists = "no_rope_layers",
           .other = 'C', .period = 4, .period_in = "no_rope_layer_interval", .offset = -1),

    /* ---- latents ----------------------------------------------------------------------------------------------- */
    FAMILY("DeepseekV2ForCausalLM deepseek_v2 DeepseekV3ForCausalLM deepseek_v3 kimi_k2 "
           "KimiK25ForConditionalGeneration kimi_k25 Glm4MoeLiteForCausalLM glm4_moe_lite",
           "F", .latent = true),
    FAMILY("LongcatFlashForCausalLM LongcatCausalLM longcat_flash",
           /* num_hidden_layers counts both attentions of a layer */ "F", .count_in = "num_layers", .count_times = 2,
           .latent = true),
    FAMILY("DeepseekV32ForCausalLM deepseek_v32 GlmMoeDsaForCausalLM glm_moe_dsa", "F", .latent = true,
           .vary_in = "indexer_types", .vary = indexer_vary),
    FAMILY("KimiLinearForCausalLM kimi_linear KimiK3ForConditionalGeneration kimi_k3", "FS",
           .lists = "linear_attn_config", .lists_first = 1, .period_must = true, .latent = true, .mixer = kda_read),
    FAMILY("Glm5NextForCausalLM glm5_next", "FS", .lists = "linear_attn_config", .period_must = true, .latent = true,
           .mixer = kda_read, .beside = pooled_index_beside),

    /* ---- recurrent layers -------------------------------------------------------------------------------------- */
    FAMILY("Qwen3NextForCausalLM qwen3_next", "FS", .other = 'S', .period = 4, .period_in = "full_attention_interval",
           .offset = -1, .mixer = delta_net_read),
    FAMILY("Qwen3_5ForConditionalGeneration qwen3_5 Qwen3_5ForCausalLM qwen3_5_text Qwen3_5MoeForConditionalGeneration "
           "qwen3_5_moe Qwen3_5MoeForCausalLM qwen3_5_moe_text",
           "FS", .other = 'S', .period = 4, .period_in = "full_attention_interval", .offset = -1,
           .mixer = delta_net_read),
    FAMILY("Qwen4ExpForConditionalGeneration qwen4_exp Qwen4ExpForCausalLM qwen4_exp_text", "FS", .other = 'S',
           .period = 4, .period_in = "full_attention_interval", .offset = -1, .mixer = delta_net_read,
           .beside = qsa_beside),
    FAMILY("MiniMaxText01ForCausalLM minimax_text_01 MiniMaxM1ForCausalLM minimax_m1 MiniMaxForCausalLM minimax", "FS",
           .lists = "attn_type_list", .period_must = true, .mixer = lightning_read),
    /* inclusionAI's modeling_bailing_moe_linear_v2.py and modeling_bailing_moe_v2_5.py; in the latter F is MLA */
    FAMILY("BailingMoeLinearForCausalLM BailingMoeLinearV2ForCausalLM bailing_moe_linear", "FS", .other = 'S',
           .period_in = "layer_group_size", .offset = -1, .rest_full = true, .mixer = lightning_read),
    FAMILY("BailingMoeV2_5ForCausalLM bailing_hybrid bailing_moe_v2_5", "FS", .other = 'S',
           .period_in = "layer_group_size", .offset = -1, .rest_full = true, .latent = true, .mixer = lightning_read),
    FAMILY("Phi4FlashForCausalLM phi4flash", "FWS-", .lay = samba_lay, .local_needed = "Phi4FlashConfig",
           .mixer = mamba1_read, .mamba = &jamba),
    FAMILY("JambaForCausalLM jamba", "FS", .lists = "layers_block_type", .other = 'S', .period_in = "attn_layer_period",
           .offset_in = "attn_layer_offset", .mixer = mamba1_read, .mamba = &jamba),
    FAMILY("BambaForCausalLM bamba", "FS", .lists = "attn_layer_indices layers_block_type", .period_must = true,
           .mixer = mamba2_read, .mamba = &bamba),
    FAMILY("GraniteMoeHybridForCausalLM granitemoehybrid", "FS", .lists = "layers_block_type", .period_must = true,
           .mixer = mamba2_read, .mamba = &bamba),
    FAMILY("FalconH1ForCausalLM falcon_h1", "B", .other = 'B', .mixer = mamba2_read, .mamba = &bamba),
    FAMILY("Zamba2ForCausalLM zamba2", /* hybrid layers share weights, but each has its own rows and state */ "SB",
           .lists = "layers_block_type", .period_must = true, .heads = &zamba2_heads, .head_dim_times = 2,
           .mixer = mamba2_read, .mamba = &zamba2),
    FAMILY("NemotronHForCausalLM nemotron_h", "FS-", .lists = "layers_block_type hybrid_override_pattern",
           .layers_in = "layers_block_type hybrid_override_pattern", .period_must = true, .mixer = mamba2_read,
           .mamba = &nemotron_h),
    FAMILY("Lfm2ForCausalLM lfm2 Lfm2VlForConditionalGeneration lfm2_vl Lfm2MoeForCausalLM lfm2_moe", "FS",
           .lists = "full_attn_idxs", .period_must = true, .mixer = short_conv_read),
    FAMILY("RecurrentGemmaForCausalLM recurrent_gemma", "WS", .lists = "block_types", .period_must = true,
           .window_in = "attention_window_size", .local_needed = "RecurrentGemmaConfig", .mixer = rg_lru_read),
    FAMILY("MambaForCausalLM mamba FalconMambaForCausalLM falcon_mamba MambaLMHeadModel", "S", .other = 'S',
           .mixer = mamba1_read, .mamba = &mamba1),
    FAMILY("Mamba2ForCausalLM mamba2", "S", .other = 'S', .mixer = mamba2_read, .mamba = &mamba2),
    FAMILY("mamba_ssm_1", /* state-spaces/mamba, mamba_simple.py */ "S", .other = 'S', .mixer = mamba1_read,
           .mamba = &mamba_ssm),
    FAMILY("mamba_ssm_2", /* state-spaces/mamba, mamba2.py */ "S", .other = 'S', .mixer = mamba2_read,
           .mamba = &mamba_ssm),
    FAMILY("RwkvForCausalLM rwkv rwkv5 Rwkv5ForCausalLM rwkv6 Rwkv6ForCausalLM rwkv7 RWKV7ForCausalLM Rwkv7ForCausalLM",
           "S", .other = 'S', .mixer = rwkv_read),

    /* ---- rows of an encoder's output beside the model's own ------------------------------------------------------ */
    FAMILY("WhisperForConditionalGeneration whisper BartForConditionalGeneration bart", "F",
           .count_in = "decoder_layers", .heads = &decoder_heads, .beside = cross_beside),
    FAMILY("T5GemmaForConditionalGeneration t5gemma t5_gemma_module", "FW", .other = 'W', .period = 2, .offset = -1,
           .local_needed = "T5GemmaModuleConfig", .beside = cross_beside),

    /* ---- refused ----------------------------------------------------------------------------------------------- */
    FAMILY("MllamaForConditionalGeneration mllama mllama_text_model", NULL,
           .refusal = "cross-attention layers keep rows of the images, whose number no config tells"),
    FAMILY("T5ForConditionalGeneration t5 BertForMaskedLM BertModel bert RobertaForMaskedLM roberta", NULL,
           .refusal = encoder),
};

const kvb_layer_family *kvb_layer_family_find(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (kvb_names_have(families[i].names, name))
            return &families[i];
    return NULL;
}

/*
 * The defaults of a configuration class for fields that a config.json does not name, and the fields that it does not read.
 * Unless a row names another source, it is transformers' src/transformers/models/MODEL/configuration_MODEL.py. A class
 * that is not here computes its defaults: KV heads = heads, head_dim = hidden / heads (LlamaConfig, PhiConfig,
 * GraniteConfig, CohereConfig …).
 */

#define KV_HEADS(n) "num_key_value_heads=" #n " "
#define HEAD_DIM(n) "head_dim=" #n " "
/* Qwen3-Next's and Qwen3.5's gated DeltaNet. */
#define DELTA_NET                                                                                                      \
    "linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128 linear_num_key_heads=16 "              \
    "linear_num_value_heads=32"

static const kvb_config_class classes[] = {
    /* ---- attention --------------------------------------------------------------------------------------------- */
    {"GemmaForCausalLM gemma", "GemmaConfig", .defaults = KV_HEADS(16) HEAD_DIM(256)},
    {"Gemma2ForCausalLM gemma2", "Gemma2Config",
     .defaults = KV_HEADS(4) HEAD_DIM(256) "sliding_window|sliding_window_size=4096"},
    {"Gemma3ForConditionalGeneration gemma3 Gemma3ForCausalLM gemma3_text", "Gemma3TextConfig",
     .defaults = "num_attention_heads=8 " KV_HEADS(4)
         HEAD_DIM(256) "sliding_window=4096 vocab_size=262208 max_position_embeddings=131072"},
    {"Gemma3nForConditionalGeneration gemma3n Gemma3nForCausalLM gemma3n_text", "Gemma3nTextConfig",
     .defaults = "num_kv_shared_layers=15 sliding_window=512 " KV_HEADS(2) HEAD_DIM(256)},
    {"Gemma4ForConditionalGeneration gemma4 Gemma4ForCausalLM gemma4_text", "Gemma4TextConfig",
     .defaults = KV_HEADS(4) HEAD_DIM(256) "global_head_dim=512 sliding_window=512"},
    {"MistralForCausalLM mistral", "MistralConfig", .defaults = KV_HEADS(8) "sliding_window|sliding_window_size=4096"},
    {"MixtralForCausalLM mixtral", "MixtralConfig", .defaults = KV_HEADS(8)},
    {"Starcoder2ForCausalLM starcoder2", "Starcoder2Config", .defaults = KV_HEADS(2)},
    {"StableLmForCausalLM stablelm", "StableLmConfig", .defaults = KV_HEADS(32)},
    {"Qwen2ForCausalLM qwen2", "Qwen2Config", .defaults = KV_HEADS(32)},
    {"Qwen2MoeForCausalLM qwen2_moe", "Qwen2MoeConfig", .defaults = KV_HEADS(16)},
    {"Qwen3ForCausalLM qwen3", "Qwen3Config", .defaults = KV_HEADS(32) HEAD_DIM(128)},
    {"Qwen3MoeForCausalLM qwen3_moe", "Qwen3MoeConfig", .defaults = KV_HEADS(4)},
    {"SmolLM3ForCausalLM smollm3", "SmolLM3Config", .defaults = KV_HEADS(4),
     .inert = "no_rope_layers"}, /* it chooses windows only if use_sliding_window is true */
    {"Glm4ForCausalLM glm4", "Glm4Config", .defaults = KV_HEADS(2) HEAD_DIM(128)},
    {"Glm4MoeForCausalLM glm4_moe", "Glm4MoeConfig", .defaults = KV_HEADS(8)},
    {"SeedOssForCausalLM seed_oss", "SeedOssConfig", .defaults = KV_HEADS(8) HEAD_DIM(128)},
    {"Ernie4_5ForCausalLM Ernie4_5_ForCausalLM ernie4_5", "Ernie4_5Config", .defaults = KV_HEADS(2) HEAD_DIM(128)},
    {"Ernie4_5_MoeForCausalLM ernie4_5_moe", "Ernie4_5_MoeConfig", .defaults = KV_HEADS(4)},
    {"Dots1ForCausalLM dots1", "Dots1Config", .defaults = KV_HEADS(32) "sliding_window=4096 max_window_layers=62"},
    {"Glm4vForConditionalGeneration glm4v glm4v_text", "Glm4vTextConfig", .defaults = KV_HEADS(2)},
    {"Glm4vMoeForConditionalGeneration glm4v_moe glm4v_moe_text", "Glm4vMoeTextConfig", .defaults = KV_HEADS(8)},
    {"InklingForConditionalGeneration inkling_mm_model InklingForCausalLM inkling_text inkling_model",
     "InklingTextConfig",
     .defaults = KV_HEADS(8) HEAD_DIM(128) "swa_num_attention_heads=64 swa_num_key_value_heads=16 swa_head_dim=128 "
                                           "sliding_window_size|sliding_window=512 "
                                           "conv_kernel_size|sconv_kernel_size=4"},
    {"DeepseekV4ForCausalLM deepseek_v4", "DeepseekV4Config",
     .defaults = KV_HEADS(1) HEAD_DIM(512) "sliding_window=128 index_head_dim=128"},
    {"Glm5NextForCausalLM glm5_next", "Glm5NextTextConfig", .defaults = "first_k_dense_replace|mlp_layer_types=3"},
    {"T5GemmaForConditionalGeneration t5gemma t5_gemma_module", "T5GemmaModuleConfig",
     .defaults = KV_HEADS(4) HEAD_DIM(256) "sliding_window=4096"},
    {"DeepseekV32ForCausalLM deepseek_v32 GlmMoeDsaForCausalLM glm_moe_dsa", "GlmMoeDsaConfig",
     .defaults = "index_skip_topk_offset=2"}, /* vLLM's models/deepseek_v2.py */
    {"MiniMaxM2ForCausalLM minimax_m2", "MiniMaxM2Config", .defaults = KV_HEADS(8) HEAD_DIM(128)},
    {"MiniMaxForCausalLM minimax", "MiniMaxConfig", .defaults = KV_HEADS(8)},
    {"Cohere2ForCausalLM cohere2", "Cohere2Config", .defaults = "sliding_window=4096"},
    {"GptOssForCausalLM gpt_oss", "GptOssConfig", .defaults = KV_HEADS(8) HEAD_DIM(64) "sliding_window=128"},
    {"Olmo3ForCausalLM olmo3", "Olmo3Config", .defaults = "sliding_window=4096"},
    {"Exaone4ForCausalLM exaone4 Exaone4_5_ForConditionalGeneration exaone4_5 exaone4_5_text", "Exaone4Config",
     .defaults = KV_HEADS(32) "sliding_window=4096"},
    {"Llama4ForConditionalGeneration llama4 Llama4ForCausalLM llama4_text", "Llama4TextConfig",
     .defaults = KV_HEADS(8) HEAD_DIM(128) "attention_chunk_size=8192"},
    {"MiMoV2FlashForCausalLM mimo_v2_flash", "MiMoV2FlashConfig",
     .inert = "attention_chunk_size"}, /* modeling_mimo_v2_flash.py masks by sliding_window alone */

    /* ---- recurrent layers -------------------------------------------------------------------------------------- */
    {"Qwen3NextForCausalLM qwen3_next", "Qwen3NextConfig", .defaults = KV_HEADS(2) HEAD_DIM(256) DELTA_NET},
    {"Qwen3_5ForConditionalGeneration qwen3_5 Qwen3_5ForCausalLM qwen3_5_text", "Qwen3_5TextConfig",
     .defaults = KV_HEADS(4) HEAD_DIM(256) DELTA_NET},
    {"Qwen3_5MoeForConditionalGeneration qwen3_5_moe Qwen3_5MoeForCausalLM qwen3_5_moe_text", "Qwen3_5MoeTextConfig",
     .defaults = KV_HEADS(2) HEAD_DIM(256) DELTA_NET},
    {"JambaForCausalLM jamba", "JambaConfig",
     .defaults = KV_HEADS(8) "attn_layer_period=8 attn_layer_offset=4 mamba_expand=2 mamba_d_state=16 mamba_d_conv=4"},
    {"BambaForCausalLM bamba", "BambaConfig", .defaults = "mamba_n_groups=1 mamba_d_conv=4 mamba_expand=2"},
    {"GraniteMoeHybridForCausalLM granitemoehybrid", "GraniteMoeHybridConfig",
     .defaults = "mamba_n_heads=128 mamba_n_groups=1 mamba_d_state=256 mamba_d_conv=4 mamba_expand=2"},
    {"FalconH1ForCausalLM falcon_h1", "FalconH1Config",
     .defaults = KV_HEADS(8) "mamba_d_ssm=1024 mamba_n_heads=128 mamba_d_state=256 mamba_n_groups=1 mamba_d_conv=4"},
    {"Zamba2ForCausalLM zamba2", "Zamba2Config",
     .defaults =
         "mamba_ngroups=1 mamba_d_conv|conv_dimension=4 mamba_expand|expansion_factor=2 mamba_d_state|state_size=64 "},
    {"NemotronHForCausalLM nemotron_h", "NemotronHConfig", .defaults = "head_dim|attention_head_dim=128"},
    {"Phi4FlashForCausalLM phi4flash", "Phi4FlashConfig", .defaults = "mamba_d_state=16 mamba_d_conv=4 mamba_expand=2"},
    {"Lfm2ForCausalLM lfm2 Lfm2VlForConditionalGeneration lfm2_vl", "Lfm2Config",
     .defaults = KV_HEADS(8) "conv_L_cache=3"},
    {"Lfm2MoeForCausalLM lfm2_moe", "Lfm2MoeConfig", .defaults = "conv_L_cache=3"},
    {"RecurrentGemmaForCausalLM recurrent_gemma", "RecurrentGemmaConfig",
     .defaults = "attention_window_size=2048 conv1d_width=4"},
    {"MambaForCausalLM mamba FalconMambaForCausalLM falcon_mamba MambaLMHeadModel", "MambaConfig",
     .defaults = "state_size|d_state=16 expand=2 conv_kernel|d_conv=4"},
    {"Mamba2ForCausalLM mamba2", "Mamba2Config", .defaults = "expand=2 conv_kernel=4"},
    {"mamba_ssm_1", "mamba_ssm", /* state-spaces/mamba, mamba_simple.py */
     .defaults = "d_state|ssm_cfg.d_state=16 expand|ssm_cfg.expand=2 d_conv|ssm_cfg.d_conv=4"},
    {"mamba_ssm_2", "mamba_ssm", /* state-spaces/mamba, mamba2.py */
     .defaults =
         "d_state|ssm_cfg.d_state=128 expand|ssm_cfg.expand=2 d_conv|ssm_cfg.d_conv=4 headdim|ssm_cfg.headdim=64 "
         "ngroups|ssm_cfg.ngroups=1"},
};

const kvb_config_class *kvb_config_class_find(const char *name)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (kvb_names_have(classes[i].names, name))
            return &classes[i];
    return NULL;
}
