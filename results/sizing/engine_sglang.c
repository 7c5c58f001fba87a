/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGLang. One pool of token slots holds the rows of all sequences: size + page_size of them for K and for V, or for MLA's row, in
 * each layer (srt/mem_cache/memory_pool.py: MHATokenToKVPool, MLATokenToKVPool; page_size is 1). What is left to passes and CUDA
 * graphs is reserved by rule and not measured (srt/server_args.py, where mem_fraction_static is None). How much windows and states
 * get of the pool follows from ratios that are set at start, so they are not sized here.
 */
#include "results/sizing/engines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
enum { PAGE = 1 };

static int rows_check(const kvb_sized_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    const char *lack = NULL;

    if (ask->k != ask->v || !kvb_names_have(kvb_size_engine_sglang.stored, ask->k->name))
        lack = "SGLang stores K and V in one of f32, f16, bf16, e4m3 and e5m2";
    for (size_t i = 0; i < model->n_groups && !lack; i++) {
        const kvb_sized_group *g = &model->groups[i];

        if (g->kind == KVB_SIZED_STATE)
            lack = "SGLang's ratio of states to tokens (mamba_full_memory_ratio) is not modelled";
        else if (g->index_dim)
            lack = "SGLang's pool for an indexer's keys is not modelled";
        else if (g->kind != KVB_SIZED_NONE && !kvb_sized_grows(model, g, ask->context))
            lack = "SGLang's ratio of windows to tokens (swa_full_tokens_ratio) is not modelled";
    }
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return lack ? -ENOTSUP : 0;
}

static int sglang_allocate(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                           size_t why_bytes)
{
    uint64_t page = ask->block ? ask->block : PAGE, each = ask->context, slots, per_token = 0;
    int error = rows_check(model, ask, why, why_bytes);

    *out = (kvb_size_allocation){0};
    slots = page; /* the first page takes what has no place */
    if (!error && (kvb_round_up(&each, page) || kvb_add(&slots, each, ask->sequences)))
        error = -EOVERFLOW;
    for (size_t i = 0; i < model->n_groups && !error; i++) {
        uint64_t layers = kvb_layers_held(model, i, ask), row;

        error = kvb_layer_row_bytes(&model->groups[i], ask, &row, why, why_bytes);
        if (!error && (kvb_add(&out->kv_bytes, slots, layers, row) || kvb_add(&per_token, layers, row)))
            error = -EOVERFLOW;
    }
    out->bytes_per_token = (double)per_token;
    return error == -EOVERFLOW ? kvb_too_large(why, why_bytes) : error;
}

/* chunked_prefill_size and cuda_graph_max_bs by the device's memory in MiB; the last row where it is not known. */
static const struct {
    uint64_t below, chunk;
    uint64_t graphs[2]; /* with fewer than 4 ranks, with more */
} defaults[] = {
    {20 << 10, 2048, {8, 8}},      {35 << 10, 2048, {24, 80}},      {60 << 10, 4096, {32, 160}},
    {160 << 10, 8192, {256, 512}}, {UINT64_MAX, 16384, {512, 512}}, {0, 4096, {160, 160}},
};
enum { UNKNOWN = sizeof defaults / sizeof *defaults - 1 };

static size_t row_on(const kvb_device *device)
{
    size_t i = 0;

    while (device && device->memory / MIB >= defaults[i].below)
        i++;
    return device ? i : UNKNOWN;
}

static uint64_t sglang_batch(const kvb_device *device)
{
    return defaults[row_on(device)].chunk;
}

static int sglang_beside(const kvb_sized_model *model, const kvb_size_ask *ask, uint64_t *bytes)
{
    uint64_t chunk = kvb_size_batch(&kvb_size_engine_sglang, ask), ranks = (uint64_t)ask->tp * ask->pp, least;
    uint64_t mib = 512 + 2 * defaults[row_on(ask->device)].graphs[ask->tp >= 4] + (ask->spec_depth ? 2048 : 0);

    (void)model;
    chunk = chunk > 2048 ? chunk : 2048;
    mib += kvb_ceil_div(3 * chunk, 2) + kvb_ceil_div(ranks * 1024, 8);
    least = ask->device && ask->device->memory / MIB > 60 << 10 ? 10 << 10 : 0;
    return kvb_add(bytes, mib > least ? mib : least, MIB);
}

const kvb_size_engine kvb_size_engine_sglang = {
    .name = "sglang",
    .stored = "f32 f16 bf16 e4m3 e5m2",
    .summary = "one pool of token slots; what passes and CUDA graphs get is reserved by rule",
    .source = "sgl-project/sglang python/sglang/srt/mem_cache/memory_pool.py, srt/server_args.py",
    .batch_on = sglang_batch,
    .beside = sglang_beside,
    .allocate = sglang_allocate,
};
