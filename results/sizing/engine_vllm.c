/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vLLM (v1): blocks of tokens out of one pool whose pages are all of one size. What one sequence takes at most, as its
 * max_memory_usage_bytes has it. Sources, in vllm-project/vllm:
 *   v1/kv_cache_interface.py     pages of each kind of layer, and how many blocks of it a sequence needs
 *   v1/core/kv_cache_utils.py    where kinds differ: layers in groups of one size, the last one padded; page sizes unified
 *                                by longer blocks
 *   platforms/interface.py, _align_hybrid_block_size   with recurrent layers: attention blocks as long as a state needs,
 *                                states padded to that page (without prefix caching)
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "results/sizing/share.h"

enum {
    BLOCK = 16,
    BATCH =
        8192, /* of `vllm serve` on devices of 70 GiB and more: engine/arg_utils.py, get_batch_defaults; else 2048 */
    GROUPS = 1024, /* layer groups at most: more than any model has layers */
};

/* Layers that vLLM holds as one kind (a KVCacheSpec). A group of ours with an indexer makes two of them. */
typedef struct spec {
    const kvb_layer_group *group;
    uint64_t layers;
    uint64_t token; /* bytes of a token in a layer; 0: a state */
    uint64_t page;  /* bytes of a block in a layer */
    uint64_t block; /* tokens of a block */
} spec;

/* --kv-cache-dtype: one word for K and V. */
static int format_check(const kvb_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    static const char *const stored[] = {"f32",        "f16",  "bf16",  "e4m3",      "e5m2",
                                         "e4m3-token", "int8", "nvfp4", "fp8_ds_mla"};
    bool known = ask->k == ask->v;

    for (size_t i = 0; known && i < sizeof stored / sizeof *stored; i++)
        if (strcmp(ask->k->name, stored[i]) == 0)
            goto good;
    if (known)
        snprintf(why, why_bytes, "vLLM has no cache dtype %s", ask->k->name);
    else
        snprintf(why, why_bytes, "vLLM stores K and V in one dtype");
    return -ENOTSUP;
good:
    for (size_t i = 0; i < model->n_groups; i++)
        if (model->groups[i].sinks) {
            snprintf(why, why_bytes, "vLLM has no window that keeps the first tokens");
            return -ENOTSUP;
        }
    return 0;
}

/* Of recurrent states (--mamba-ssm-cache-dtype auto): what the config asks for (model_executor/models/config.py), else the
 * model's dtype. */
static uint32_t state_element_bytes(const kvb_model *model, const kvb_size_ask *ask)
{
    static const char *const keys[] = {"mamba_ssm_dtype", "mamba_ssm_cache_dtype"}; /* Qwen3.5, Nemotron-H */

    if (ask->state)
        return kvb_dtype_bytes(ask->state);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *asked = json_string_value(json_object_get(model->config, keys[i]));

        if (asked)
            return strcmp(asked, "float32") == 0 ? 4 : 2;
    }
    return strcmp(model->type, "nemotron_h") == 0 ? 4 : kvb_dtype_bytes(model->dtype);
}

/* Bytes of one indexer row: head_dim of e4m3 and an f32 scale for each 128 (DeepseekV32IndexerCache). */
static uint64_t index_bytes(const kvb_layer_group *g)
{
    return g->index_dim + 4 * kvb_ceil_div(g->index_dim, 128);
}

/* The specs of a rank; at most two a group. Pages are not unified yet. */
static int specs_make(const kvb_model *model, const kvb_size_ask *ask, spec *specs, size_t *n, char *why,
                      size_t why_bytes)
{
    uint32_t plain = kvb_dtype_bytes(model->dtype);
    uint64_t block = ask->block ? ask->block : BLOCK, token = 0, state = 0;

    *n = 0;
    for (size_t i = 0; i < model->n_groups; i++) {
        const kvb_layer_group *g = &model->groups[i];
        spec s = {.group = g, .layers = kvb_layers_held(model, i, ask)};
        int error = kvb_layer_row_bytes(g, ask, &s.token, why, why_bytes);

        if (error)
            return error;
        if (kvb_layer_state_bytes(g, ask, state_element_bytes(model, ask), plain, &s.page))
            return -EOVERFLOW;
        if (s.token || s.page)
            specs[(*n)++] = s;
        if (g->index_dim)
            specs[(*n)++] = (spec){.group = g, .layers = s.layers, .token = index_bytes(g)};
        token = token ? token : s.token;
        state = s.page > state ? s.page : state;
    }
    if (state && token) { /* the attention block grows until a state fits into a page of it */
        uint64_t align = block > BLOCK ? block : BLOCK, least = 0;

        if (kvb_add(&least, align, kvb_ceil_div(state, align * token)))
            return -EOVERFLOW;
        block = least > block ? least : block;
    }
    for (size_t i = 0; i < *n; i++) {
        spec *s = &specs[i];

        s->block = block;
        if (__builtin_mul_overflow(block, s->token ? s->token : token, &state))
            return -EOVERFLOW;
        s->page = state ? state : s->page; /* of a state: padded; alone in its model it is not */
    }
    return 0;
}

/* Different kinds share one pool: pages of one size, and groups of one number of layers. */
static int pool_unify(spec *specs, size_t n, char *why, size_t why_bytes)
{
    uint64_t page = 0, fewest = UINT64_MAX, most = 0;
    bool uniform = true; /* all of them keep every token, or there is one kind only */

    for (size_t i = 0; i < n; i++) {
        uniform = uniform && kvb_layer_grows(specs[i].group->kind);
        page = specs[i].page > page ? specs[i].page : page;
        fewest = specs[i].layers < fewest ? specs[i].layers : fewest;
        most = specs[i].layers > most ? specs[i].layers : most;
    }
    if (uniform || n < 2)
        return 0;
    uint64_t size = most < fewest + kvb_ceil_div(fewest, 4) ? most : fewest; /* most < 1.25 fewest */

    for (size_t i = 0; i < n; i++) {
        spec *s = &specs[i];

        if (page % s->page) {
            snprintf(why, why_bytes, "vLLM cannot unify pages of %llu and %llu B", (unsigned long long)s->page,
                     (unsigned long long)page);
            return -ENOTSUP;
        }
        if (__builtin_mul_overflow(s->block, page / s->page, &s->block) || kvb_round_up(&s->layers, size))
            return -EOVERFLOW;
        s->page = page;
    }
    return 0;
}

/* Blocks that one sequence of n tokens needs in a layer. */
static uint64_t blocks_of(const spec *s, const kvb_size_ask *ask, uint64_t n)
{
    uint64_t window = s->group->window, batch = ask->batch ? ask->batch : BATCH;

    switch (s->group->kind) {
    case KVB_LAYER_WINDOW: /* the window may begin inside a block */
        window += batch - 1;
        return kvb_ceil_div(window < n ? window : n, s->block) + 1;
    case KVB_LAYER_CHUNK:
        window += batch;
        return kvb_ceil_div(window < n ? window : n, s->block);
    case KVB_LAYER_STATE:
        return 1 + (uint64_t)ask->spec_depth;
    default:
        return kvb_ceil_div(n, s->block);
    }
}

static int allocate_specs(const spec *specs, size_t n, const kvb_size_ask *ask, kvb_allocation *out)
{
    double per_token = 0;

    for (size_t i = 0; i < n; i++) {
        const spec *s = &specs[i];
        bool grows = kvb_layer_grows(s->group->kind);
        uint64_t *bytes = s->group->kind == KVB_LAYER_STATE ? &out->state_bytes : &out->kv_bytes;

        if (kvb_add(bytes, ask->sequences, s->layers, blocks_of(s, ask, ask->context), s->page) ||
            (!grows && kvb_add(&out->fixed_bytes_per_sequence, s->layers, blocks_of(s, ask, UINT64_MAX), s->page)))
            return -EOVERFLOW;
        per_token += grows ? (double)s->layers * (double)s->page / (double)s->block : 0;
    }
    out->bytes_per_token = per_token;
    return 0;
}

static int allocate(const kvb_model *model, const kvb_size_ask *ask, kvb_allocation *out, char *why, size_t why_bytes)
{
    spec specs[2 * GROUPS];
    size_t n;
    int error = format_check(model, ask, why, why_bytes);

    *out = (kvb_allocation){0};
    if (!error && model->n_groups > GROUPS) {
        snprintf(why, why_bytes, "more than %d kinds of layers", GROUPS);
        return -ENOTSUP;
    }
    if (!error)
        error = specs_make(model, ask, specs, &n, why, why_bytes);
    if (!error)
        error = pool_unify(specs, n, why, why_bytes);
    if (!error)
        error = allocate_specs(specs, n, ask, out);
    return error == -EOVERFLOW ? kvb_too_large(why, why_bytes) : error;
}

const kvb_engine kvb_engine_vllm = {
    .name = "vllm",
    .summary = "blocks of 16 tokens; kinds of layers in groups of one size, pages of one size",
    .source = "vllm-project/vllm vllm/v1/kv_cache_interface.py, vllm/v1/core/kv_cache_utils.py",
    .batch = BATCH,
    .allocate = allocate,
};
