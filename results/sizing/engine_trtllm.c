/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorRT-LLM (PyTorch backend). Rows lie in blocks of 32 tokens (llmapi/llm_args.py: KvCacheConfig.tokens_per_block),
 * for MLA one row for all heads (_torch/pyexecutor/resource_manager.py, get_cache_size_per_token). Windows hold every
 * token unless the user names max_attention_window (_resolve_max_attention_window_vec). Of the memory that weights and
 * passes leave free, rows get 0.9 (free_gpu_memory_fraction), so a ninth of them stays free. Its pools for states and
 * for indexers are not sized here.
 */
#include "results/sizing/engines.h"

#include <errno.h>
#include <stdio.h>

enum { BLOCK = 32, TOKENS = 8192 /* llm_args.py: max_num_tokens */, KEPT_FREE = 9 };

static int check(const kvb_sized_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    const char *lack = NULL;

    if (ask->k != ask->v || !kvb_names_have(kvb_size_engine_trtllm.stored, ask->k->name))
        lack = "TensorRT-LLM stores K and V in one of f16, bf16, e4m3 and nvfp4";
    for (size_t i = 0; i < model->n_groups && !lack; i++)
        if (model->groups[i].kind == KVB_SIZED_STATE)
            lack = "TensorRT-LLM's pool for states is not modelled";
        else if (model->groups[i].index_dim)
            lack = "TensorRT-LLM's pool for an indexer's keys is not modelled";
        else if (model->groups[i].sinks)
            lack = "TensorRT-LLM's window that keeps the first tokens is not modelled";
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return lack ? -ENOTSUP : 0;
}

static int trtllm_allocate(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                           size_t why_bytes)
{
    uint64_t cells = ask->context, per_token = 0;
    int error = check(model, ask, why, why_bytes);

    *out = (kvb_size_allocation){0};
    if (!error && kvb_round_up(&cells, ask->block ? ask->block : BLOCK))
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

static int trtllm_beside(const kvb_sized_model *model, const kvb_size_ask *ask, uint64_t *bytes)
{
    kvb_size_allocation held;
    char why[256];

    if (trtllm_allocate(model, ask, &held, why, sizeof why))
        return -EOVERFLOW;
    return kvb_layer_peak(model, &kvb_size_engine_trtllm, ask, bytes) ||
                   kvb_add(bytes, kvb_ceil_div(held.kv_bytes, KEPT_FREE))
               ? -EOVERFLOW
               : 0;
}

const kvb_size_engine kvb_size_engine_trtllm = {
    .name = "trtllm",
    .stored = "f16 bf16 e4m3 nvfp4",
    .summary = "blocks of 32 tokens in 0.9 of what weights and passes leave free; windows hold every token",
    .source = "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/resource_manager.py, llmapi/llm_args.py",
    .batch = TOKENS,
    .beside = trtllm_beside,
    .least = true,
    .allocate = trtllm_allocate,
};
