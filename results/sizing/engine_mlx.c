/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLX (mlx-lm). Each sequence has a cache of its own for each layer, which grows by steps of 256 tokens
 * (mlx_lm/models/cache.py: KVCache.step, QuantizedKVCache.step), in the model's dtype or, with --kv-bits, in affine
 * groups. Which layers have another kind of cache is said by each model's make_cache: a rotating one has up to window -
 * 1 tokens and a prompt's chunk beside each other (RotatingKVCache._update_concat), and cannot be quantised; models
 * without make_cache keep every token. Latent rows are stored as they are, and their rotary part is read in place, so
 * that it cannot be quantised (deepseek_v3.py, glm4_moe_lite.py; before 2026 heads were stored). A gated DeltaNet has
 * its convolution's columns in the model's dtype and a state in f32 (qwen3_5.py, gated_delta.py). Other states, and an
 * indexer's rows, are not sized: how long what they are slices of stays is not said.
 */
#include "results/sizing/engines.h"

#include <errno.h>
#include <stdio.h>

enum { STEP = 256, PREFILL = 2048 }; /* generate.py: prefill_step_size */

/* By mlx_lm/models/MODEL.py; kimi_k2 is read as deepseek_v3 (utils.py, MODEL_REMAPPING). */
static const struct {
    const char *types;
    uint32_t caches;
} by_model[] = {
    {"gemma3 gemma3_text gemma4 gemma4_text gpt_oss cohere2", KVB_MLX_ROTATING},
    {"gemma2 phi3 qwen2", KVB_MLX_WHOLE},
    {"deepseek_v3 kimi_k2 kimi_k25 glm4_moe_lite", KVB_MLX_LATENT},
    {"qwen3_next qwen3_5 qwen3_5_moe qwen3_5_text qwen3_5_moe_text", KVB_MLX_STATES},
};

uint32_t kvb_mlx_caches_of(const kvb_sized_model *model)
{
    for (size_t i = 0; i < sizeof by_model / sizeof *by_model; i++)
        if (kvb_names_have(by_model[i].types, model->type))
            return by_model[i].caches;
    return 0;
}

/* Why the layers of a group are not sized; NULL: they are. */
static const char *lack_of(const kvb_sized_group *g, uint32_t caches, const kvb_size_ask *ask)
{
    bool plain = kvb_plain_format_bytes(ask->k);
    uint32_t known = g->kind == KVB_SIZED_WINDOW   ? KVB_MLX_WHOLE | KVB_MLX_ROTATING
                     : g->kind == KVB_SIZED_LATENT ? KVB_MLX_LATENT
                     : g->kind == KVB_SIZED_STATE  ? KVB_MLX_STATES
                                                   : 0;

    if (g->kind == KVB_SIZED_NONE || (g->kind == KVB_SIZED_FULL && !g->index_dim))
        return NULL;
    if (!(caches & known) || g->sinks || g->index_dim)
        return "what a model's make_cache gives such layers is not modelled";
    if (g->kind == KVB_SIZED_WINDOW && caches & KVB_MLX_ROTATING && !plain)
        return "mlx-lm cannot quantise the cache of a window";
    if (g->kind == KVB_SIZED_LATENT && !plain)
        return "mlx-lm cannot quantise latent rows";
    return g->kind == KVB_SIZED_STATE && ask->spec_depth ? "mlx-lm's states of drafts are not modelled" : NULL;
}

static int check(const kvb_sized_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    const char *lack = NULL;

    if (ask->k != ask->v || !kvb_names_have(kvb_size_engine_mlx.stored, ask->k->name))
        lack = "mlx-lm stores K and V in the model's dtype or in affine groups";
    else if (ask->tp > 1 || ask->pp > 1)
        lack = "mlx-lm's ranks are not modelled";
    for (size_t i = 0; i < model->n_groups && !lack; i++)
        lack = lack_of(&model->groups[i], kvb_mlx_caches_of(model), ask);
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return lack ? -ENOTSUP : 0;
}

static int mlx_allocate(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                        size_t why_bytes)
{
    uint64_t cells = ask->context, chunk = kvb_size_batch(&kvb_size_engine_mlx, ask), per_token = 0;
    int error = check(model, ask, why, why_bytes);

    *out = (kvb_size_allocation){0};
    if (!error && kvb_round_up(&cells, STEP))
        error = -EOVERFLOW;
    for (size_t i = 0; i < model->n_groups && !error; i++) {
        const kvb_sized_group *g = &model->groups[i];
        bool rotates = g->kind == KVB_SIZED_WINDOW && kvb_mlx_caches_of(model) & KVB_MLX_ROTATING;
        uint64_t layers = kvb_layers_held(model, i, ask), row, state, most = g->window - 1 + chunk;

        error = kvb_layer_row_bytes(g, ask, &row, why, why_bytes);
        if (!error &&
            (kvb_add(&out->kv_bytes, ask->sequences, rotates && most < cells ? most : cells, layers, row) ||
             kvb_add(rotates ? &out->fixed_bytes_per_sequence : &per_token, layers, row, rotates ? most : 1) ||
             kvb_layer_state_bytes(g, ask, 4, kvb_dtype_bytes(model->dtype), &state) ||
             kvb_add(&out->state_bytes, ask->sequences, layers, state) ||
             kvb_add(&out->fixed_bytes_per_sequence, layers, state, 1)))
            error = -EOVERFLOW;
    }
    out->bytes_per_token = (double)per_token;
    return error == -EOVERFLOW ? kvb_too_large(why, why_bytes) : error;
}

const kvb_size_engine kvb_size_engine_mlx = {
    .name = "mlx",
    .stored = "f32 f16 bf16 a8g32 a8g64 a8g128 a4g32 a4g64 a4g128 a2g32 a2g64 a2g128",
    .summary = "a cache for each sequence and layer, which grows by 256 tokens; windows + a prompt's chunk",
    .source = "ml-explore/mlx-lm mlx_lm/models/cache.py, generate.py",
    .batch = PREFILL,
    .allocate = mlx_allocate,
};
