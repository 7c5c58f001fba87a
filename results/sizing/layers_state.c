/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recurrent layers keep of a sequence, whatever its length: a state, and the columns of their convolution that the
 * next token needs (one less than its kernel has).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "results/sizing/layers.h"

static const char hidden_names[] = "hidden_size n_embd d_model n_embed";

static void state_begin(kvb_shape *shape, const char *name)
{
    shape->group.kind = KVB_LAYER_STATE;
    shape->group.name = name;
}

/* rows x columns elements; how: their factors by name, for --explain. */
static void state_tell(kvb_reading *reading, kvb_shape *shape, uint64_t rows, uint64_t columns, const char *how)
{
    shape->group.state_elements = kvb_config_times(&reading->config, rows, columns, "the state");
    kvb_shape_rule(shape, "state elements", shape->group.state_elements, how);
}

/* (conv - 1) columns of `channels`. */
static void convolution_read(kvb_reading *reading, kvb_shape *shape, const char *names, uint64_t channels,
                             const char *how)
{
    kvb_layer_group *group = &shape->group;

    group->conv_width = kvb_shape_fact(shape, "conv", kvb_config_count(&reading->config, names));
    if (group->conv_width > 0)
        group->conv_elements =
            kvb_config_times(&reading->config, group->conv_width - 1, channels, "the convolution's columns");
    kvb_shape_rule(shape, "convolution elements", group->conv_elements, how);
}

/* The width inside the mixer: its own field, else expand x hidden. falcon-mamba's expand is 16 and wrong; its
 * intermediate_size is right (transformers' configuration_falcon_mamba.py reads that). 0: neither is there. */
static kvb_fact inner_read(kvb_reading *reading)
{
    kvb_config *c = &reading->config;
    const kvb_mamba_fields *fields = reading->family->mamba;
    bool expands = fields->expand && kvb_config_has(c, fields->expand);
    kvb_fact inner = {0};

    if (fields->inner && kvb_config_has(c, fields->inner))
        return kvb_config_count(c, fields->inner);
    if (!expands)
        return inner;
    kvb_fact expand = kvb_config_count(c, fields->expand), hidden = kvb_config_count(c, hidden_names);
    inner.value = kvb_config_product(c, expand.value, hidden.value, "expand x hidden_size");
    snprintf(inner.source, sizeof inner.source, "%.60s x %.60s", expand.source, hidden.source);
    return inner;
}

/* state-spaces/mamba, mamba_simple.py: d_inner x d_state, and d_conv columns of d_inner. */
void kvb_mamba1_read(kvb_reading *reading, kvb_shape *shape)
{
    kvb_config *c = &reading->config;
    const kvb_mamba_fields *fields = reading->family->mamba;
    kvb_fact inner = inner_read(reading);

    state_begin(shape, "Mamba-1");
    if (inner.value == 0)
        kvb_config_fail(c, -EINVAL, "%s%s: missing, which %s needs", c->place, fields->expand, c->model_class);
    kvb_shape_fact(shape, "d_inner", inner);
    uint64_t state = kvb_shape_fact(shape, "d_state", kvb_config_count(c, fields->state));
    state_tell(reading, shape, inner.value, state, "d_inner x d_state");
    convolution_read(reading, shape, fields->conv, inner.value, "(conv - 1) x d_inner");
}

/* state-spaces/mamba, mamba2.py: heads x head_dim x d_state, and columns of d_inner + 2 groups x d_state. */
void kvb_mamba2_read(kvb_reading *reading, kvb_shape *shape)
{
    kvb_config *c = &reading->config;
    const kvb_mamba_fields *fields = reading->family->mamba;
    kvb_fact inner = inner_read(reading), heads = {0}, head_dim = {0};
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
    kvb_shape_fact(shape, "mixer heads", heads);
    kvb_shape_fact(shape, "mixer head_dim", head_dim);
    uint64_t state = kvb_shape_fact(shape, "d_state", kvb_config_count(c, fields->state));
    uint64_t groups = kvb_shape_fact(shape, "groups", kvb_config_count(c, fields->groups));
    uint64_t sides = kvb_config_product(c, 2 * groups, state, "2 x groups x d_state");
    state_tell(reading, shape, width, state, "mixer heads x mixer head_dim x d_state");
    convolution_read(reading, shape, fields->conv, width + sides,
                     "(conv - 1) x (mixer heads x mixer head_dim + 2 groups x d_state)");
}

/* transformers' modeling_qwen3_next.py, Qwen3NextGatedDeltaNet: conv_dim = 2 key_dim + value_dim. */
void kvb_delta_net_read(kvb_reading *reading, kvb_shape *shape)
{
    kvb_config *c = &reading->config;

    state_begin(shape, "gated DeltaNet");
    uint64_t k_heads = kvb_shape_fact(shape, "key heads", kvb_config_count(c, "linear_num_key_heads"));
    uint64_t v_heads = kvb_shape_fact(shape, "value heads", kvb_config_count(c, "linear_num_value_heads"));
    uint64_t k_dim = kvb_shape_fact(shape, "key dim", kvb_config_count(c, "linear_key_head_dim"));
    uint64_t v_dim = kvb_shape_fact(shape, "value dim", kvb_config_count(c, "linear_value_head_dim"));
    uint64_t keys = kvb_config_product(c, k_heads, k_dim, "key heads x dim");
    uint64_t values = kvb_config_product(c, v_heads, v_dim, "value heads x dim");
    state_tell(reading, shape, values, k_dim, "value heads x value dim x key dim");
    convolution_read(reading, shape, "linear_conv_kernel_dim", 2 * keys + values,
                     "(conv - 1) x (2 key heads x key dim + value heads x value dim)");
}

/* Kimi Linear: as gated DeltaNet with equal heads for q, k and v; the state is f32 (vLLM's MambaStateDtypeCalculator). */
void kvb_kda_read(kvb_reading *reading, kvb_shape *shape)
{
    kvb_config *c = &reading->config;

    state_begin(shape, "Kimi delta attention");
    uint64_t heads = kvb_shape_fact(shape, "heads", kvb_config_count(c, "linear_attn_config.num_heads"));
    uint64_t dim = kvb_shape_fact(shape, "head_dim", kvb_config_count(c, "linear_attn_config.head_dim"));
    uint64_t width = kvb_config_product(c, heads, dim, "heads x head_dim of linear_attn_config");
    shape->group.state_f32 = true;
    state_tell(reading, shape, width, dim, "heads x head_dim x head_dim, always f32");
    convolution_read(reading, shape, "linear_attn_config.short_conv_kernel_size", 3 * width,
                     "(conv - 1) x 3 heads x head_dim");
}

/* transformers' modeling_minimax.py, MiniMaxLightningAttention: heads x head_dim x head_dim, no convolution. */
void kvb_lightning_read(kvb_reading *reading, kvb_shape *shape)
{
    kvb_shape attention = {0};

    state_begin(shape, "lightning attention");
    kvb_attention_read(reading, 'S', &attention); /* of the same heads */
    uint64_t heads = kvb_shape_fact(shape, "heads", attention.facts[0].fact);
    uint64_t dim = kvb_shape_fact(shape, "head_dim", attention.facts[2].fact);
    state_tell(reading, shape, heads * dim, dim, "heads x head_dim x head_dim");
}

/* RWKV-4, transformers' modeling_rwkv.py: five vectors of hidden_size; the two shifted tokens in the model's dtype. */
static void rwkv4_read(kvb_reading *reading, kvb_shape *shape, uint64_t hidden)
{
    state_begin(shape, "RWKV-4");
    state_tell(reading, shape, hidden, 3, "3 x hidden (model_type is rwkv, without a head_size)");
}

/* llama.cpp, llama_hparams::n_embd_r and n_embd_s: token_shift_count (2) x n_embd, and n_embd x wkv_head_size. */
void kvb_rwkv_read(kvb_reading *reading, kvb_shape *shape)
{
    kvb_config *c = &reading->config;

    const char *type = kvb_config_text(c, "model_type");
    uint64_t hidden = kvb_shape_fact(shape, "hidden", kvb_config_count(c, hidden_names));

    kvb_shape_rule(shape, "shifted tokens", 2, "one before time mixing, one before channel mixing");
    if (type && strcmp(type, "rwkv") == 0 && !kvb_config_has(c, "head_size")) {
        rwkv4_read(reading, shape, hidden);
    } else {
        state_begin(shape, "RWKV");
        uint64_t size = kvb_shape_fact(shape, "head_size", kvb_config_count(c, "head_size head_dim"));
        state_tell(reading, shape, hidden, size, "hidden x head_size");
    }
    shape->group.state_f32 = true;
    shape->group.conv_elements = 2 * hidden;
}

/* transformers' modeling_lfm2.py, Lfm2ShortConv: a convolution without a recurrent state. */
void kvb_short_conv_read(kvb_reading *reading, kvb_shape *shape)
{
    state_begin(shape, "short convolution");
    uint64_t hidden = kvb_shape_fact(shape, "hidden", kvb_config_count(&reading->config, hidden_names));
    convolution_read(reading, shape, "conv_L_cache", hidden, "(conv - 1) x hidden");
}

/* transformers' modeling_recurrent_gemma.py: lru_width in f32, and conv1d_width - 1 columns of it. */
void kvb_rg_lru_read(kvb_reading *reading, kvb_shape *shape)
{
    kvb_config *c = &reading->config;

    state_begin(shape, "RG-LRU");
    uint64_t width = kvb_shape_fact(shape, "width", kvb_config_count(c, "lru_width"));
    shape->group.state_f32 = true;
    state_tell(reading, shape, width, 1, "width");
    convolution_read(reading, shape, "conv1d_width", width, "(conv - 1) x width");
}
