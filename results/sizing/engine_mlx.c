/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLX (mlx-lm). Each sequence has a cache of its own for each layer, which grows by steps of 256 tokens (mlx_lm/models/cache.py:
 * KVCache.step, QuantizedKVCache.step), in the model's dtype or, with --kv-bits, in affine groups. Which layers have another kind
 * of cache is said by each model's make_cache, so windows, MLA and states are not sized here.
 */
#include "results/sizing/engines.h"

#include <errno.h>
#include <stdio.h>

enum { STEP = 256, PREFILL = 2048 }; /* generate.py: prefill_step_size */

static int rows_check(const kvb_sized_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    const char *lack = NULL;

    if (ask->k != ask->v || !kvb_names_have(kvb_size_engine_mlx.stored, ask->k->name))
        lack = "mlx-lm stores K and V in the model's dtype or in affine groups";
    else if (ask->tp > 1 || ask->pp > 1)
        lack = "mlx-lm's ranks are not modelled";
    for (size_t i = 0; i < model->n_groups && !lack; i++)
        if (model->groups[i].kind != KVB_SIZED_NONE && model->groups[i].kind != KVB_SIZED_FULL)
            lack = "what a model's make_cache gives such layers is not modelled";
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return lack ? -ENOTSUP : 0;
}

static int mlx_allocate(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                        size_t why_bytes)
{
    uint64_t cells = ask->context, per_token = 0;
    int error = rows_check(model, ask, why, why_bytes);

    *out = (kvb_size_allocation){0};
    if (!error && kvb_round_up(&cells, STEP))
        error = -EOVERFLOW;
    for (size_t i = 0; i < model->n_groups && !error; i++) {
        uint64_t layers = kvb_layers_held(model, i, ask), row;

        error = kvb_layer_row_bytes(&model->groups[i], ask, &row, why, why_bytes);
        if (!error && (kvb_add(&out->kv_bytes, ask->sequences, cells, layers, row) || kvb_add(&per_token, layers, row)))
            error = -EOVERFLOW;
    }
    out->bytes_per_token = (double)per_token;
    return error == -EOVERFLOW ? kvb_too_large(why, why_bytes) : error;
}

const kvb_size_engine kvb_size_engine_mlx = {
    .name = "mlx",
    .stored = "f32 f16 bf16 a8g32 a8g64 a8g128 a4g32 a4g64 a4g128 a2g32 a2g64 a2g128",
    .summary = "a cache for each sequence and layer, which grows by 256 tokens",
    .source = "ml-explore/mlx-lm mlx_lm/models/cache.py, generate.py",
    .batch = PREFILL,
    .allocate = mlx_allocate,
};
