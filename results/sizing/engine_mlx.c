/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLX (mlx-lm). Each sequence has a cache of its own for each layer, which grows by steps of 256 tokens (mlx_lm/models/cache.py:
 * KVCache.step, QuantizedKVCache.step), in the model's dtype or, with --kv-bits, in affine groups. Which layers have another kind
 * of cache is said by each model's make_cache: a rotating one has up to window - 1 tokens and a prompt's chunk beside each other
 * (RotatingKVCache._update_concat), and cannot be quantised; models without make_cache keep every token. MLA's and states' caches
 * differ between versions, and are not sized here.
 */
#include "results/sizing/engines.h"

#include <errno.h>
#include <stdio.h>

enum { STEP = 256, PREFILL = 2048 }; /* generate.py: prefill_step_size */

/* By mlx_lm/models/MODEL.py. */
static const char rotating[] = "gemma3 gemma3_text gemma4 gemma4_text gpt_oss cohere2";
static const char whole[] = "gemma2 phi3 qwen2";

kvb_mlx_windows kvb_mlx_windows_of(const kvb_sized_model *model)
{
    return kvb_names_have(rotating, model->type) ? KVB_MLX_ROTATING
           : kvb_names_have(whole, model->type)  ? KVB_MLX_WHOLE
                                                 : KVB_MLX_UNKNOWN;
}

static int check(const kvb_sized_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    kvb_mlx_windows windows = kvb_mlx_windows_of(model);
    const char *lack = NULL;

    if (ask->k != ask->v || !kvb_names_have(kvb_size_engine_mlx.stored, ask->k->name))
        lack = "mlx-lm stores K and V in the model's dtype or in affine groups";
    else if (ask->tp > 1 || ask->pp > 1)
        lack = "mlx-lm's ranks are not modelled";
    for (size_t i = 0; i < model->n_groups && !lack; i++) {
        const kvb_sized_group *g = &model->groups[i];

        if (g->kind == KVB_SIZED_NONE || (g->kind == KVB_SIZED_FULL && !g->index_dim))
            continue;
        if (g->kind != KVB_SIZED_WINDOW || g->sinks || windows == KVB_MLX_UNKNOWN)
            lack = "what a model's make_cache gives such layers is not modelled";
        else if (windows == KVB_MLX_ROTATING && !kvb_plain_format_bytes(ask->k))
            lack = "mlx-lm cannot quantise the cache of a window";
    }
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
        bool rotates = g->kind == KVB_SIZED_WINDOW && kvb_mlx_windows_of(model) == KVB_MLX_ROTATING;
        uint64_t layers = kvb_layers_held(model, i, ask), row, most = g->window - 1 + chunk;

        error = kvb_layer_row_bytes(g, ask, &row, why, why_bytes);
        if (!error && (kvb_add(&out->kv_bytes, ask->sequences, rotates && most < cells ? most : cells, layers, row) ||
                       kvb_add(rotates ? &out->fixed_bytes_per_sequence : &per_token, layers, row, rotates ? most : 1)))
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
