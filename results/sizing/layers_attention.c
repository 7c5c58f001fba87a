/* SPDX-License-Identifier: Apache-2.0 */
/* What an attention layer keeps: heads and their dimensions, latents, windows. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "results/sizing/layers.h"

/* chatglm calls KV heads groups, MPT and DBRX nest them. */
static const kvb_head_fields usual = {
    .heads = "num_attention_heads n_head n_heads",
    .kv_heads = "num_key_value_heads n_head_kv num_kv_heads multi_query_group_num attn_config.kv_n_heads",
    .k_dim = "head_dim attention_head_dim kv_channels",
};
static const char hidden_names[] = "hidden_size n_embd d_model n_embed";

uint32_t kvb_shape_fact(kvb_shape *shape, const char *what, kvb_fact fact)
{
    if (shape->n_facts < KVB_SHAPE_FACTS) {
        shape->facts[shape->n_facts].what = what;
        shape->facts[shape->n_facts++].fact = fact;
    }
    return (uint32_t)fact.value;
}

void kvb_shape_rule(kvb_shape *shape, const char *what, uint64_t value, const char *source)
{
    kvb_fact fact = {.value = value};

    snprintf(fact.source, sizeof fact.source, "%s", source);
    kvb_shape_fact(shape, what, fact);
}

/* The names of a letter's own fields, each before the usual ones: the first that is there counts. */
static kvb_fact own_or_usual(kvb_config *c, const char *own, const char *names)
{
    return own && kvb_config_has(c, own) ? kvb_config_count(c, own) : kvb_config_count(c, names);
}

static kvb_fact kv_heads_read(kvb_reading *reading, const kvb_head_fields *own, const kvb_head_fields *fields,
                              kvb_fact heads)
{
    kvb_config *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    kvb_fact fact = {.value = heads.value};

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
    snprintf(fact.source, sizeof fact.source, "%.64s (num_key_value_heads is absent)", heads.source);
    return kvb_config_count_or(c, fields->kv_heads, heads.value, fact.source);
}

static kvb_fact head_dim_read(kvb_reading *reading, const kvb_head_fields *own, const kvb_head_fields *fields,
                              kvb_fact heads)
{
    kvb_config *c = &reading->config;
    uint32_t times = reading->family->head_dim_times ? reading->family->head_dim_times : 1;
    kvb_fact fact = {0};

    if (own && own->k_dim && kvb_config_has(c, own->k_dim))
        return kvb_config_count(c, own->k_dim);
    if (kvb_config_has(c, fields->k_dim))
        return kvb_config_count(c, fields->k_dim);
    kvb_fact hidden = kvb_config_count(c, hidden_names);
    if (heads.value && hidden.value * times % heads.value != 0)
        kvb_config_fail(c, -EINVAL, "%s: %ju is no multiple of the %ju heads, and head_dim is absent", hidden.source,
                        (uintmax_t)hidden.value, (uintmax_t)heads.value);
    fact.value = heads.value ? hidden.value * times / heads.value : 0;
    snprintf(fact.source, sizeof fact.source, "%s%.40s / %.40s (head_dim is absent)", times == 2 ? "2 x " : "",
             hidden.source, heads.source);
    return fact;
}

static void heads_read(kvb_reading *reading, char letter, kvb_shape *shape)
{
    kvb_config *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    const kvb_head_fields *fields = family->heads ? family->heads : &usual;
    const kvb_head_fields *own = letter == 'W' ? family->window_heads : letter == 'F' ? family->full_heads : NULL;
    kvb_layer_group *group = &shape->group;
    kvb_fact heads = own_or_usual(c, own ? own->heads : NULL, fields->heads);

    group->heads = kvb_shape_fact(shape, "heads", heads);
    group->kv_heads = kvb_shape_fact(shape, "kv_heads", kv_heads_read(reading, own, fields, heads));
    kvb_fact k_dim = head_dim_read(reading, own, fields, heads), v_dim = k_dim;
    if (own && own->v_dim && kvb_config_has(c, own->v_dim))
        v_dim = kvb_config_count(c, own->v_dim);
    else if (fields->v_dim)
        v_dim = kvb_config_count(c, fields->v_dim);
    group->k_dim = kvb_shape_fact(shape, "k_dim", k_dim);
    group->v_dim = kvb_shape_fact(shape, "v_dim", v_dim);
    if (group->kv_heads && group->heads % group->kv_heads != 0)
        kvb_config_fail(c, -EINVAL, "%s%s: %u KV heads do not divide the %u heads", c->place, "num_key_value_heads",
                        group->kv_heads, group->heads);
}

/* MLA: modeling_deepseek.py of DeepSeek-V2 caches kv_a_proj_with_mqa's output, kv_lora_rank + qk_rope_head_dim. */
static void latent_read(kvb_reading *reading, kvb_shape *shape)
{
    kvb_config *c = &reading->config;
    kvb_layer_group *group = &shape->group;

    group->kind = KVB_LAYER_LATENT;
    group->name = "MLA";
    group->heads = kvb_shape_fact(shape, "heads", kvb_config_count(c, usual.heads));
    group->latent_dim = kvb_shape_fact(shape, "latent_dim", kvb_config_count(c, "kv_lora_rank"));
    group->rope_dim = kvb_shape_fact(shape, "rope_dim", kvb_config_count(c, "qk_rope_head_dim"));
    group->nope_dim = kvb_shape_fact(shape, "nope_dim", kvb_config_count(c, "qk_nope_head_dim"));
    group->v_dim = kvb_shape_fact(shape, "v_dim", kvb_config_count(c, "v_head_dim"));
}

static void local_read(kvb_reading *reading, char letter, kvb_layer_group *group, kvb_shape *shape)
{
    kvb_config *c = &reading->config;
    const char *window = reading->family->window_in;

    if (letter == 'C') {
        group->kind = KVB_LAYER_CHUNK;
        group->name = "chunked attention";
        group->window = kvb_shape_fact(shape, "window", kvb_config_count(c, "attention_chunk_size"));
        return;
    }
    group->kind = KVB_LAYER_WINDOW;
    group->name = "sliding window";
    group->window =
        kvb_shape_fact(shape, "window", kvb_config_count(c, window ? window : "sliding_window sliding_window_size"));
    if (kvb_config_number(c, "attention_sink_size")) /* StreamingLLM; written by MLC */
        group->sinks = kvb_shape_fact(shape, "sinks", kvb_config_count(c, "attention_sink_size"));
}

void kvb_attention_read(kvb_reading *reading, char letter, kvb_shape *shape)
{
    if (letter == 'F' && reading->family->latent)
        return latent_read(reading, shape);
    shape->group.kind = KVB_LAYER_FULL;
    shape->group.name = "full attention";
    heads_read(reading, letter, shape);
    if (letter == 'W' || letter == 'C')
        local_read(reading, letter, &shape->group, shape);
}
