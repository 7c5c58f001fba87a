/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama.cpp: everything is allocated when the context is made. Each sequence is a stream of its own (what --parallel N
 * gives without --kv-unified), of a length rounded up to 256 cells (llama_context: n_ctx_seq). Sources:
 *   llama-kv-cache.cpp        K and V of n_embd_{k,v}_gqa for each cell and stream; MLA keeps K alone; so does the indexer
 *   llama-kv-cache-iswa.cpp   window layers: pad256(min(n_ctx_seq, n_swa * (unified ? n_seq : 1) + n_ubatch)) cells
 *   llama-memory-recurrent, llama-hparams.cpp   n_embd_r and n_embd_s, in f32 whatever the dtype, a cell for each sequence
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "results/sizing/share.h"

enum { PAD = 256, UBATCH = 512 };

/* Its cache types (common/arg.cpp). */
static const char *const stored[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"};

/* Models whose windows it does not keep: their architecture's load_arch_hparams reads none (llama, qwen2, starcoder2 …), or
 * switches it off (phi3, its pull request 13676). */
static const char *const windowless[] = {"mistral", "mixtral", "starcoder2", "phi3",
                                         "phimoe",  "qwen2",   "qwen2_moe",  "qwen3"};

static bool is_in(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}
#define IS_IN(word, words) is_in(word, words, sizeof words / sizeof *words)

static int check(const kvb_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    const kvb_kv_format *unknown = !IS_IN(ask->k->name, stored) ? ask->k : !IS_IN(ask->v->name, stored) ? ask->v : NULL;

    if (unknown) {
        snprintf(why, why_bytes, "llama.cpp has no cache type %s", unknown->name);
        return -ENOTSUP;
    }
    if (ask->tp > 1) {
        snprintf(why, why_bytes, "llama.cpp divides the cache by layers (--pp), not by heads");
        return -ENOTSUP;
    }
    for (size_t i = 0; i < model->n_groups; i++)
        if (model->groups[i].sinks) {
            snprintf(why, why_bytes, "llama.cpp has no window that keeps the first tokens");
            return -ENOTSUP;
        }
    return 0;
}

/* Cells of one layer and sequence. n is below 2^63. */
static uint64_t cells_of(const kvb_model *model, const kvb_layer_group *g, const kvb_size_ask *ask, uint64_t n)
{
    uint64_t cells = n;

    if (!kvb_layer_grows(g->kind) && !IS_IN(model->type, windowless)) {
        cells = (uint64_t)g->window + (ask->batch ? ask->batch : UBATCH);
        cells = cells < n ? cells : n;
    }
    return kvb_round_up(&cells, PAD) ? UINT64_MAX : cells;
}

static int allocate(const kvb_model *model, const kvb_size_ask *ask, kvb_allocation *out, char *why, size_t why_bytes)
{
    uint64_t n = ask->context, per_token = 0;
    int error = check(model, ask, why, why_bytes);

    *out = (kvb_allocation){0};
    if (!error && kvb_round_up(&n, PAD))
        error = kvb_too_large(why, why_bytes);
    for (size_t i = 0; i < model->n_groups && !error; i++) {
        const kvb_layer_group *g = &model->groups[i];
        bool grows = kvb_layer_grows(g->kind) || IS_IN(model->type, windowless);
        uint64_t layers = kvb_layers_held(model, i, ask), drafts = 1 + (uint64_t)ask->spec_depth, row, state;

        error = kvb_layer_row_bytes(g, ask, &row, why, why_bytes);
        if (error)
            break;
        row += kvb_kv_row_bytes(ask->k, g->index_dim);
        if (kvb_layer_state_bytes(g, ask, 4, 4, &state) ||
            kvb_add(&out->kv_bytes, ask->sequences, layers, cells_of(model, g, ask, n), row) ||
            kvb_add(&out->state_bytes, ask->sequences, layers, drafts, state) ||
            kvb_add(grows ? &per_token : &out->fixed_bytes_per_sequence, layers,
                    grows ? 1 : cells_of(model, g, ask, UINT64_MAX / 2), row) ||
            kvb_add(&out->fixed_bytes_per_sequence, layers, drafts, state))
            error = -EOVERFLOW;
    }
    out->bytes_per_token = (double)per_token;
    return error == -EOVERFLOW ? kvb_too_large(why, why_bytes) : error;
}

const kvb_engine kvb_engine_llama_cpp = {
    .name = "llama.cpp",
    .summary = "all at start: contexts padded to 256 cells, windows + micro-batch, states in f32",
    .source = "ggml-org/llama.cpp src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-hparams.cpp",
    .batch = UBATCH,
    .allocate = allocate,
};
