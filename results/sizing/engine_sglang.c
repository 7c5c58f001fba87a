/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGLang. Pools of token slots hold the rows of all sequences: slots and one page more of them for K and for V, or for MLA's row,
 * in each layer (srt/mem_cache/memory_pool.py: MHATokenToKVPool, MLATokenToKVPool). How much goes where follows from ratios that
 * are set at start, and is shown here at their defaults:
 *   srt/model_executor/pool_configurator.py   some models' windows have a pool of their own, of 0.8 times the slots
 *                                             (swa_full_tokens_ratio); the others' hold every token. Indexers, in every layer
 *   srt/mem_cache/kv_cache_configurator.py    states get 0.9 times the bytes of rows (mamba_full_memory_ratio), and a request
 *                                             needs three of them; calculate_mla_kv_cache_dim: a row of fp8 beside an indexer
 *   srt/configs/mamba_utils.py                states of f32, unless the config says else, with convolutions of bf16
 *   srt/server_args.py                        what is left to passes and CUDA graphs, reserved by rule and not measured
 */
#include "results/sizing/engines.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
enum {
    PAGE = 1,
    PAGE_INDEXED = 64,
    STATES_A_REQUEST = 3, /* MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO */
};

/* Models whose windows have their own pool (srt/configs/model_config.py, is_hybrid_swa_model). */
static const char own_pool[] = "llama4 llama4_text gpt_oss mimo_v2_flash gemma4 gemma4_text";

bool kvb_sglang_is_windowed(const kvb_sized_model *model, const kvb_sized_group *g)
{
    return (g->kind == KVB_SIZED_WINDOW || g->kind == KVB_SIZED_CHUNK) && kvb_names_have(own_pool, model->type);
}

static bool has_rows(const kvb_sized_group *g)
{
    return g->kind != KVB_SIZED_STATE && g->kind != KVB_SIZED_NONE;
}

bool kvb_sglang_knows(const kvb_sized_group *g)
{
    static const char *const mixers[] = {"Mamba-2", "gated DeltaNet", "Kimi delta attention"};

    for (size_t i = 0; i < sizeof mixers / sizeof *mixers; i++)
        if (strcmp(g->name, mixers[i]) == 0)
            return true;
    return g->kind != KVB_SIZED_STATE;
}

uint32_t kvb_sglang_state_element(const kvb_sized_model *model, const kvb_size_ask *ask)
{
    const char *asked = json_string_value(json_object_get(model->config, "mamba_ssm_dtype"));

    return ask->state ? kvb_dtype_bytes(ask->state) : asked && strcmp(asked, "float32") != 0 ? 2 : 4;
}

static int check(const kvb_sized_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    const char *lack = NULL;
    bool rows = false;

    if (ask->k != ask->v || !kvb_names_have(kvb_size_engine_sglang.stored, ask->k->name))
        lack = "SGLang stores K and V in one of f32, f16, bf16, e4m3 and e5m2";
    for (size_t i = 0; i < model->n_groups && !lack; i++) {
        const kvb_sized_group *g = &model->groups[i];

        rows = rows || has_rows(g);
        if (!kvb_sglang_knows(g))
            lack = "SGLang's pool for such states is not modelled";
        else if (g->kind == KVB_SIZED_STATE && ask->spec_depth)
            lack = "SGLang's states of drafts are not modelled";
        else if (g->sinks)
            lack = "SGLang has no window that keeps the first tokens";
        else if (g->index_dim && g->kind != KVB_SIZED_LATENT && ask->k->group_bytes != kvb_dtype_bytes(model->dtype))
            lack = "SGLang's index beside rows of another dtype is not modelled";
    }
    if (!lack && !rows)
        lack = "SGLang's pools for states alone are not modelled";
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return lack ? -ENOTSUP : 0;
}

/* The row of the model's indexer; NULL: it has none. All layers of such a model have one. */
static const kvb_sized_group *indexer_of(const kvb_sized_model *model)
{
    for (size_t i = 0; i < model->n_groups; i++)
        if (model->groups[i].index_dim)
            return &model->groups[i];
    return NULL;
}

static int row_read(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask, uint64_t *row,
                    char *why, size_t why_bytes)
{
    const kvb_sized_group *indexer = indexer_of(model);
    int error = kvb_layer_row_bytes(g, ask, row, why, why_bytes);

    if (error || !indexer)
        return error;
    if (g->kind != KVB_SIZED_LATENT) { /* MiniMax-M3: keys in the model's dtype, in sparse layers alone */
        *row += (uint64_t)g->index_dim * kvb_dtype_bytes(model->dtype);
        return 0;
    }
    if (strcmp(ask->k->name, "e4m3") == 0) /* a scale for each 128, RoPE's part in bf16 */
        *row = g->latent_dim + 4 * (uint64_t)(g->latent_dim / 128) + 2 * (uint64_t)g->rope_dim;
    *row += kvb_index_row_bytes(indexer);
    return 0;
}

/* Slots that each layer has for the asked sequences: of the pool that keeps every token, and of the windows' pool. */
static int slots_count(const kvb_sized_model *model, const kvb_size_ask *ask, uint64_t *whole, uint64_t *windows)
{
    const kvb_sized_group *indexer = indexer_of(model);
    uint64_t page = ask->block ? ask->block : indexer && indexer->kind == KVB_SIZED_LATENT ? PAGE_INDEXED : PAGE;
    uint64_t each = ask->context, window = 0, least = 0, more = 0;

    for (size_t i = 0; i < model->n_groups; i++)
        if (kvb_sglang_is_windowed(model, &model->groups[i]) && model->groups[i].window > window)
            window = model->groups[i].window;
    *whole = *windows = 0;
    if (kvb_round_up(&each, page) || kvb_add(whole, each, ask->sequences))
        return -EOVERFLOW;
    if (window) { /* admission wants more than a window and a page in 0.8 of the slots */
        uint64_t kept = window;

        if (kvb_round_up(&kept, page))
            return -EOVERFLOW;
        kept = kept + page < each ? kept + page : each;
        least = (uint64_t)window + page + 1;
        if (kvb_add(&more, kept, ask->sequences) || kvb_round_up(&least, page))
            return -EOVERFLOW;
        least = more > least ? more : least;
        least = least / 4 * 5 + (least % 4 * 5 + 3) / 4;
        *whole = least > *whole ? least : *whole;
        if (kvb_round_up(whole, page))
            return -EOVERFLOW;
        *windows = (*whole / 5 * 4 + *whole % 5 * 4 / 5) / page * page;
    }
    return kvb_add(whole, page) || kvb_add(windows, page) ? -EOVERFLOW : 0;
}

/* Bytes of one request's states in all layers, on one rank. */
static int state_read(const kvb_sized_model *model, const kvb_size_ask *ask, uint64_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < model->n_groups; i++) {
        uint64_t one;

        if (kvb_state_share(&model->groups[i], ask->tp, 0, kvb_sglang_state_element(model, ask), 2, &one) ||
            kvb_add(bytes, kvb_layers_held(model, i, ask), one))
            return -EOVERFLOW;
    }
    return 0;
}

/* Rows and states share what there is, 10 to 9: what has too much for the asked sequences gives nothing to the other.
 */
static int shares_settle(uint64_t state, const kvb_size_ask *ask, kvb_size_allocation *out)
{
    uint64_t least = 0, share = 0, slots;

    if (!state)
        return 0;
    if (kvb_add(&least, STATES_A_REQUEST, ask->sequences, state) || kvb_add(&share, kvb_ceil_div(least, 9), 10))
        return -EOVERFLOW;
    out->kv_bytes = share > out->kv_bytes ? share : out->kv_bytes;
    slots = (out->kv_bytes / 10 * 9 + out->kv_bytes % 10 * 9 / 10) / state;
    return kvb_add(&out->state_bytes, slots, state) || kvb_add(&out->state_bytes, state) ? -EOVERFLOW : 0;
}

static int sglang_allocate(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                           size_t why_bytes)
{
    uint64_t whole = 0, windows = 0, per_token = 0, per_window_token = 0, state = 0;
    int error = check(model, ask, why, why_bytes);

    *out = (kvb_size_allocation){0};
    if (!error && (slots_count(model, ask, &whole, &windows) || state_read(model, ask, &state)))
        error = -EOVERFLOW;
    for (size_t i = 0; i < model->n_groups && !error; i++) {
        const kvb_sized_group *g = &model->groups[i];
        bool windowed = kvb_sglang_is_windowed(model, g);
        uint64_t layers = kvb_layers_held(model, i, ask), row = 0;

        if (!has_rows(g))
            continue;
        error = row_read(model, g, ask, &row, why, why_bytes);
        if (!error && (kvb_add(&out->kv_bytes, windowed ? windows : whole, layers, row) ||
                       kvb_add(windowed ? &per_window_token : &per_token, layers, row)))
            error = -EOVERFLOW;
    }
    out->bytes_per_token = (double)per_token + 0.8 * (double)per_window_token;
    if (!error && (kvb_add(&out->fixed_bytes_per_sequence, STATES_A_REQUEST, state) || shares_settle(state, ask, out)))
        error = -EOVERFLOW;
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
    .summary = "pools of token slots, shared by ratios; what passes and CUDA graphs get is reserved by rule",
    .source = "sgl-project/sglang python/sglang/srt/model_executor/pool_configurator.py, srt/server_args.py",
    .batch_on = sglang_batch,
    .beside = sglang_beside,
    .allocate = sglang_allocate,
};
