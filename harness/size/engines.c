/* SPDX-License-Identifier: Apache-2.0 */
/* How engines allocate: mlx-lm, SGLang, TensorRT-LLM, llama.cpp, vLLM. */
#include "harness/size/engines.h"
#include "harness/size/model_reading.h"
#include "workloads/files.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a state on a rank in vLLM (model_executor/layers/mamba/mamba_utils.py) and SGLang (srt/configs/mamba_utils.py).
 * If the ranks do not divide Mamba-2's groups, each rank has a group of its own. Drafts widen the convolutions of Mamba-2
 * and of gated DeltaNet. */
static int state_share(const kvb_sized_group *g, uint64_t tp, uint64_t drafts, uint32_t state_element,
                       uint32_t conv_element, uint64_t *bytes)
{
    uint64_t columns = g->conv_width > 1 ? g->conv_width - 1 : 1, channels = g->conv_elements / columns;
    uint64_t copies = g->conv_groups && g->conv_groups % tp && g->conv_groups < tp ? tp - g->conv_groups : 0;

    *bytes = 0;
    return kvb_add(&channels, copies, g->conv_group_width) ||
                   kvb_add(bytes, kvb_ceil_div(g->state_elements, tp), g->state_f32 ? 4 : state_element) ||
                   kvb_add(bytes, kvb_ceil_div(channels, tp), columns + (g->conv_drafts ? drafts : 0), conv_element)
               ? -EOVERFLOW
               : 0;
}

/*
 * MLX (mlx-lm). Each sequence has a cache of its own for each layer, which grows by steps of 256 tokens
 * (mlx_lm/models/cache.py: KVCache.step, QuantizedKVCache.step), in the model's dtype or, with --kv-bits, in affine
 * groups. A model's make_cache gives some layers another kind of cache; models without make_cache keep every token. A
 * rotating cache holds up to window - 1 tokens and a prompt's chunk beside each other (RotatingKVCache._update_concat),
 * and cannot be quantised. Latent rows are stored unchanged and cannot be quantised, as their rotary part is read in place
 * (deepseek_v3.py, glm4_moe_lite.py; before 2026 heads were stored). A gated DeltaNet has its convolution's columns in the
 * model's dtype and a state in f32 (qwen3_5.py, gated_delta.py). Other states, and an indexer's rows, are not sized: they
 * are slices of arrays with an unknown lifetime.
 */

enum { STEP = 256, PREFILL = 2048 }; /* generate.py: prefill_step_size */
#define MLX_STORES "mlx-lm stores K and V in the model's dtype or in affine groups"

/* From mlx_lm/models/MODEL.py; kimi_k2 is read as deepseek_v3 (utils.py, MODEL_REMAPPING). */
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

static const char *mlx_lack(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask, char *text)
{
    const bool plain = kvb_plain_format_bytes(ask->k);
    const uint32_t caches = kvb_mlx_caches_of(model);
    const uint32_t known = g->kind == KVB_SIZED_WINDOW   ? KVB_MLX_WHOLE | KVB_MLX_ROTATING
                           : g->kind == KVB_SIZED_LATENT ? KVB_MLX_LATENT
                           : g->kind == KVB_SIZED_STATE  ? KVB_MLX_STATES
                                                         : 0;

    (void)text;
    if (ask->tp > 1 || ask->pp > 1)
        return "mlx-lm's ranks are not modelled";
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

static int mlx_layer(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask,
                     kvb_size_layer *layer)
{
    const uint64_t most = g->window - 1 + kvb_size_batch(&kvb_size_engine_mlx, ask);

    if (kvb_round_up(&layer->cells, STEP))
        return -EOVERFLOW;
    if (g->kind == KVB_SIZED_WINDOW && kvb_mlx_caches_of(model) & KVB_MLX_ROTATING) {
        layer->cells = most < layer->cells ? most : layer->cells;
        layer->tokens = 0;
        layer->fixed_cells = most;
    }
    layer->states = 1;
    return kvb_layer_state_bytes(g, ask, 4, kvb_config_dtype_bytes(model->dtype), &layer->state);
}

const kvb_size_engine kvb_size_engine_mlx = {
    .name = "mlx",
    .weights = "a8g64 a4g64",
    .stored = "f32 f16 bf16 a8g32 a8g64 a8g128 a4g32 a4g64 a4g128 a2g32 a2g64 a2g128",
    .source = "ml-explore/mlx-lm mlx_lm/models/cache.py, generate.py",
    .stored_why = MLX_STORES,
    .alike_why = MLX_STORES,
    .batch = PREFILL,
    .lack = mlx_lack,
    .layer = mlx_layer,
};

/*
 * SGLang. Pools of token slots hold the rows of all sequences: the slots and one more page, for K and V or for MLA's row, in
 * each layer (srt/mem_cache/memory_pool.py: MHATokenToKVPool, MLATokenToKVPool). Ratios that are set at start divide the
 * memory; here they have their defaults:
 *   srt/mem_cache/memory_pool.py              layer_num counts all layers: layers that read the rows of others have slots, too
 *   srt/model_executor/pool_configurator.py   windows of some models have a pool of their own with 0.8 times the slots
 *                                             (swa_full_tokens_ratio), the others keep every token; indexers in every layer
 *   srt/mem_cache/kv_cache_configurator.py    states get 0.9 times the bytes of rows (mamba_full_memory_ratio), and a request
 *                                             needs three; calculate_mla_kv_cache_dim: a row of fp8 beside an indexer
 *   srt/configs/mamba_utils.py                states in f32, unless the config has another dtype; convolutions in bf16
 *   srt/server_args.py                        memory for passes and CUDA graphs, reserved by rule and not measured
 */

#define MIB           ((uint64_t)1 << 20)
#define SGLANG_STORES "SGLang stores K and V in one of f32, f16, bf16, e4m3 and e5m2"
enum {
    PAGE = 1,
    PAGE_INDEXED = 64,
    STATES_A_REQUEST = 3, /* MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO */
};

/* Models with a pool of their own for windows (srt/configs/model_config.py, is_hybrid_swa_model), unless
 * disable_hybrid_swa_memory is set. */
static const char own_pool[] = "llama4 llama4_text gpt_oss mimo_v2_flash gemma4 gemma4_text";

bool kvb_sglang_is_windowed(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask)
{
    return !ask->whole && (g->kind == KVB_SIZED_WINDOW || g->kind == KVB_SIZED_CHUNK) &&
           kvb_names_have(own_pool, model->type);
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

    return ask->state ? kvb_config_dtype_bytes(ask->state) : asked && strcmp(asked, "float32") != 0 ? 2 : 4;
}

static const char *sglang_lack(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask,
                               char *text)
{
    bool rows = false;

    (void)text;
    for (size_t i = 0; i < model->n_groups; i++)
        rows = rows || (model->groups[i].kind != KVB_SIZED_STATE && model->groups[i].kind != KVB_SIZED_NONE);
    if (!kvb_sglang_knows(g))
        return "SGLang's pool for such states is not modelled";
    if (g->kind == KVB_SIZED_STATE && ask->spec_depth)
        return "SGLang's states of drafts are not modelled";
    if (g->sinks)
        return "SGLang has no window that keeps the first tokens";
    if (g->index_dim && g->kind != KVB_SIZED_LATENT && ask->k->group_bytes != kvb_config_dtype_bytes(model->dtype))
        return "SGLang's index beside rows of another dtype is not modelled";
    return rows ? NULL : "SGLang's pools for states alone are not modelled";
}

/* The group of the model's indexer, which all its layers have; NULL: no indexer. */
static const kvb_sized_group *indexer_of(const kvb_sized_model *model)
{
    for (size_t i = 0; i < model->n_groups; i++)
        if (model->groups[i].index_dim)
            return &model->groups[i];
    return NULL;
}

/* Adds the indexer's keys to a row. */
static void row_index(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask, uint64_t *row)
{
    const kvb_sized_group *indexer = indexer_of(model);

    if (!indexer)
        return;
    if (g->kind != KVB_SIZED_LATENT) { /* MiniMax-M3: keys in the model's dtype, in sparse layers alone */
        *row += (uint64_t)g->index_dim * kvb_config_dtype_bytes(model->dtype);
        return;
    }
    if (strcmp(ask->k->name, "e4m3") == 0) /* a scale for each 128, RoPE's part in bf16 */
        *row = g->latent_dim + 4 * (uint64_t)(g->latent_dim / 128) + 2 * (uint64_t)g->rope_dim;
    *row += kvb_index_row_bytes(indexer);
}

/* Slots of each layer for the asked sequences: in the pool that keeps every token, and in the windows' pool. */
static int slots_count(const kvb_sized_model *model, const kvb_size_ask *ask, uint64_t *whole, uint64_t *windows)
{
    const kvb_sized_group *indexer = indexer_of(model);
    uint64_t page = ask->block ? ask->block : indexer && indexer->kind == KVB_SIZED_LATENT ? PAGE_INDEXED : PAGE;
    uint64_t each = ask->context, window = 0, least = 0, more = 0;

    for (size_t i = 0; i < model->n_groups; i++)
        if (kvb_sglang_is_windowed(model, &model->groups[i], ask) && model->groups[i].window > window)
            window = model->groups[i].window;
    *whole = *windows = 0;
    if (kvb_round_up(&each, page) || kvb_add(whole, each, ask->sequences))
        return -EOVERFLOW;
    if (window) { /* admission needs more than a window and a page in 0.8 of the slots */
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

static int sglang_layer(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask,
                        kvb_size_layer *layer)
{
    const bool windowed = kvb_sglang_is_windowed(model, g, ask);
    uint64_t whole, windows;

    row_index(model, g, ask, &layer->row);
    layer->layers += kvb_stage_layers(g->readers, ask);
    layer->streams = 1;
    layer->tokens = windowed ? 1.25 : 1;
    layer->states = STATES_A_REQUEST;
    if (slots_count(model, ask, &whole, &windows))
        return -EOVERFLOW;
    layer->cells = windowed ? windows : whole;
    return state_share(g, ask->tp, 0, kvb_sglang_state_element(model, ask), 2, &layer->state);
}

/* Divides memory between rows and states, 10 to 9. A share that is larger than the sequences need is not moved to the
 * other. */
static int sglang_allocate(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                           size_t why_bytes)
{
    int error = kvb_layers_sum(&kvb_size_engine_sglang, model, ask, out, why, why_bytes);
    const uint64_t state = out->fixed_bytes_per_sequence / STATES_A_REQUEST; /* of a request, in all layers */
    uint64_t share = 0, slots;

    if (error || !state)
        return error;
    if (kvb_add(&share, kvb_ceil_div(out->state_bytes, 9), 10))
        return -EOVERFLOW;
    out->kv_bytes = share > out->kv_bytes ? share : out->kv_bytes;
    slots = (out->kv_bytes / 10 * 9 + out->kv_bytes % 10 * 9 / 10) / state;
    out->state_bytes = 0;
    return kvb_add(&out->state_bytes, slots + 1, state);
}

/* chunked_prefill_size and cuda_graph_max_bs by the device's memory in MiB; the last row is for unknown memory. */
static const struct {
    uint64_t below, chunk;
    uint64_t graphs[2]; /* with fewer than 4 ranks, with 4 or more */
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
    uint64_t chunk = kvb_size_batch(&kvb_size_engine_sglang, ask), ranks = ask->tp * ask->pp, least;
    uint64_t mib = 512 + 2 * defaults[row_on(ask->device)].graphs[ask->tp >= 4] + (ask->spec_depth ? 2048 : 0);

    (void)model;
    chunk = chunk > 2048 ? chunk : 2048;
    mib += kvb_ceil_div(3 * chunk, 2) + kvb_ceil_div(ranks * 1024, 8);
    least = ask->device && ask->device->memory / MIB > 60 << 10 ? 10 << 10 : 0;
    return kvb_add(bytes, mib > least ? mib : least, MIB);
}

const kvb_size_engine kvb_size_engine_sglang = {
    .name = "sglang",
    .weights = "fp8 nvfp4 a4g128",
    .stored = "f32 f16 bf16 e4m3 e5m2",
    .pooled_why = "public versions of its DSV4PoolConfigurator divide memory in four ways, and name no release",
    .source = "sgl-project/sglang python/sglang/srt/model_executor/pool_configurator.py, srt/server_args.py",
    .draft_why = "SGLang serves no draft model in a pipeline", /* srt/server_args.py */
    .stored_why = SGLANG_STORES,
    .alike_why = SGLANG_STORES,
    .batch_on = sglang_batch,
    .beside = sglang_beside,
    .lack = sglang_lack,
    .layer = sglang_layer,
    .allocate = sglang_allocate,
};

/*
 * TensorRT-LLM (PyTorch backend). Rows lie in blocks of 32 tokens (llmapi/llm_args.py: KvCacheConfig.tokens_per_block),
 * for MLA one row for all heads (_torch/pyexecutor/resource_manager.py, get_cache_size_per_token). Windows hold every
 * token unless the user names max_attention_window (_resolve_max_attention_window_vec). Weights and passes leave
 * memory free. Rows get 0.9 of it (free_gpu_memory_fraction), and a tenth stays free. Pools for states and for indexers
 * are not sized here.
 */

enum { TRTLLM_BLOCK = 32, TOKENS = 8192 /* llm_args.py: max_num_tokens */, KEPT_FREE = 9 };
#define TRTLLM_STORES "TensorRT-LLM stores K and V in one of f16, bf16, e4m3 and nvfp4"

static const char *trtllm_lack(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask,
                               char *text)
{
    (void)model, (void)ask, (void)text;
    return g->kind == KVB_SIZED_STATE ? "TensorRT-LLM's pool for states is not modelled"
           : g->index_dim             ? "TensorRT-LLM's pool for an indexer's keys is not modelled"
           : g->sinks                 ? "TensorRT-LLM's window that keeps the first tokens is not modelled"
                                      : NULL;
}

static int trtllm_layer(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask,
                        kvb_size_layer *layer)
{
    (void)model, (void)g;
    return kvb_round_up(&layer->cells, ask->block ? ask->block : TRTLLM_BLOCK);
}

static int trtllm_beside(const kvb_sized_model *model, const kvb_size_ask *ask, uint64_t *bytes)
{
    kvb_size_allocation held;
    char why[256];

    if (kvb_size_hold(&kvb_size_engine_trtllm, model, ask, &held, why, sizeof why))
        return -EOVERFLOW;
    return kvb_layer_peak(model, &kvb_size_engine_trtllm, ask, bytes) ||
                   kvb_add(bytes, kvb_ceil_div(held.kv_bytes, KEPT_FREE))
               ? -EOVERFLOW
               : 0;
}

const kvb_size_engine kvb_size_engine_trtllm = {
    .name = "trtllm",
    .weights = "fp8 nvfp4 a4g128",
    .stored = "f16 bf16 e4m3 nvfp4",
    .source = "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/resource_manager.py, llmapi/llm_args.py",
    .batch = TOKENS,
    .beside = trtllm_beside,
    .least = true,
    .stored_why = TRTLLM_STORES,
    .alike_why = TRTLLM_STORES,
    .lack = trtllm_lack,
    .layer = trtllm_layer,
};

/* ---- llama.cpp --------------------------------------------------------------------------------------------------- */

/*
 * Everything is allocated when the context is made. Each sequence has a stream of its own (--parallel N without
 * --kv-unified), with its length rounded up to 256 cells (llama_context: n_ctx_seq). Unified, one stream has the cells of
 * all sequences, as in the server without --parallel (tools/server/server.cpp: 4 slots and kv_unified). Sources:
 *   llama-kv-cache.cpp        K and V of n_embd_{k,v}_gqa for each cell and stream; MLA keeps only K; so does the indexer
 *   llama-kv-cache-iswa.cpp   window layers: pad256(min(n_ctx_seq, n_swa * (unified ? n_seq : 1) + n_ubatch)) cells; with
 *                             --swa-full as many as the others
 *   llama-memory-recurrent, llama-hparams.cpp   n_embd_r and n_embd_s, in f32 for any dtype, a cell for each sequence
 */
enum { PAD = 256, UBATCH = 512, COPIES = 4 };

/* Models with windows that llama.cpp ignores: load_arch_hparams of their architecture reads none (llama, qwen2, starcoder2
 * …), or switches it off (phi3, pull request 13676). */
static const char windowless[] = "mistral mixtral starcoder2 phi3 phimoe qwen2 qwen2_moe qwen3";

bool kvb_llama_has_windows(const kvb_sized_model *model)
{
    return !kvb_names_have(windowless, model->type);
}

static const char *llama_cpp_lack(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask,
                                  char *text)
{
    (void)model, (void)text;
    return ask->tp > 1    ? "llama.cpp divides the cache by layers (--pp), not by heads"
           : g->sinks     ? "llama.cpp has no window that keeps the first tokens"
           : g->every > 1 ? "how llama.cpp holds rows of several tokens is not modelled"
                          : NULL;
}

/* Cells of one layer for a sequence of n tokens. n must be below 2^63. */
static uint64_t cells_of(const kvb_sized_group *g, bool grows, const kvb_size_ask *ask, uint64_t n)
{
    uint64_t cells = n;

    if (!grows) {
        cells =
            (uint64_t)g->window * (ask->unified ? ask->sequences : 1) + kvb_size_batch(&kvb_size_engine_llama_cpp, ask);
        cells = cells < n ? cells : n;
    }
    return kvb_round_up(&cells, PAD) ? UINT64_MAX : cells;
}

/* Cells of a stream that keeps every token. */
static int cells_whole(const kvb_size_ask *ask, uint64_t *n)
{
    *n = 0;
    return kvb_add(n, ask->context, ask->unified ? ask->sequences : 1) || *n >> 62 || kvb_round_up(n, PAD) ? -EOVERFLOW
                                                                                                           : 0;
}

static bool grows_in_llama(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask)
{
    return kvb_sized_grows(model, g, ask->context) || ask->whole || !kvb_llama_has_windows(model);
}

static int llama_cpp_layer(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask,
                           kvb_size_layer *layer)
{
    const bool grows = grows_in_llama(model, g, ask);
    uint64_t n;

    if (cells_whole(ask, &n))
        return -EOVERFLOW;
    layer->row += kvb_kv_row_bytes(ask->k, g->index_dim);
    layer->streams = ask->unified ? 1 : ask->sequences;
    layer->cells = cells_of(g, grows, ask, n);
    layer->tokens = grows;
    layer->fixed_cells = grows ? 0 : cells_of(g, grows, ask, UINT64_MAX / 2);
    layer->states = 1 + ask->spec_depth;
    return kvb_layer_state_bytes(g, ask, 4, 4, &layer->state);
}

/*
 * Floats of a token in the widest part of a layer without its heads. ggml-alloc puts a tensor into the smallest hole with
 * room for it, else behind all others: tensors that fit no hole add up (checked against llama.cpp 0.5.0's buffers):
 *   feed-forward   the input before and after the norm, then gate, up and their product. None of the three fits into the
 *                  hole of an input. The experts' outputs fit only if they are no wider than gate and up, which are free
 *                  by then.
 *   gated DeltaNet the input before and after the norm, then the convolution's channels three times (models/qwen35.cpp):
 *                  projected, with the columns before them, and convolved. The third does not fit into the hole of the
 *                  first, as the recurrent state has taken a piece of it by then.
 */
uint64_t kvb_llama_feed_width(const kvb_sized_model *m)
{
    const json_t *used = kvb_config_get(m->config, "num_experts_per_tok num_experts_per_token moe_topk moe_top_k");
    const json_t *expert = kvb_config_get(m->config, "moe_intermediate_size expert_ffn_hidden_size");
    const uint64_t experts = (uint64_t)json_integer_value(used) & UINT16_MAX;
    const uint64_t feed = expert ? (uint64_t)json_integer_value(expert) & UINT32_MAX : m->intermediate;
    const uint64_t routed = experts * (3 * feed + (m->hidden > 2 * feed ? m->hidden : 0));
    const uint64_t dense = 3 * (uint64_t)m->intermediate;
    uint64_t most = routed > dense ? routed : dense;

    for (const kvb_sized_group *g = m->groups; g < m->groups + m->n_groups; g++) {
        if (g->conv_drafts && !g->conv_groups && g->conv_width > 1) { /* a gated DeltaNet */
            const uint64_t channels = g->conv_elements / (g->conv_width - 1) & UINT32_MAX;

            most = 3 * channels > most ? 3 * channels : most;
        }
    }
    return 2 * (uint64_t)m->hidden + most;
}

uint64_t kvb_llama_heads_width(const kvb_sized_model *m)
{
    uint64_t most = 0;

    for (const kvb_sized_group *g = m->groups; g < m->groups + m->n_groups; g++) {
        const uint64_t wide = g->kind == KVB_SIZED_LATENT ? 2 * (uint64_t)g->heads * (g->latent_dim + g->rope_dim)
                                                          : 3 * (uint64_t)g->heads * g->k_dim;

        most = kvb_sized_attends(g) && wide > most ? wide : most;
    }
    return m->hidden + most;
}

uint64_t kvb_llama_copies(const kvb_size_ask *ask)
{
    return ask->copies ? ask->copies : ask->pp > 1 ? COPIES : 1;
}

/*
 * The compute buffer that llama_context reserves on each device for a graph of one micro-batch (sched_reserve). It has
 * room for the larger of two things. The first, on the last device, are the f32 logits: the server has them for each
 * sequence and its drafts (server_output_limits), llama-bench and llama-perplexity for every token. The second is the
 * widest part of a layer, plus masks. The widest part is the feed-forward block, or the heads with an indexer's f32 scores
 * and its mask. One f16 mask of cells serves all layers with a window, another one all other layers. Without flash
 * attention masks are f32, and the scores of all heads are added. A pipeline keeps four copies of masks, positions and the
 * tensors that a device passes on (GGML_SCHED_MAX_COPIES).
 */
static int llama_cpp_beside(const kvb_sized_model *m, const kvb_size_ask *ask, uint64_t *bytes)
{
    const uint64_t copies = kvb_llama_copies(ask), mask = ask->no_flash ? 4 : 2;
    uint64_t tokens = kvb_size_batch(&kvb_size_engine_llama_cpp, ask), outputs = ask->outputs, n, logits = 0;
    uint64_t masks[2] = {0}, scores = 0, indexed = 0, heads = 0, feed = 0;

    if (cells_whole(ask, &n) || (!outputs && kvb_add(&outputs, ask->sequences, 1 + ask->spec_depth)))
        return -EOVERFLOW;
    tokens = tokens < n ? tokens : n;
    outputs = outputs < tokens ? outputs : tokens;
    for (const kvb_sized_group *g = m->groups; g < m->groups + m->n_groups; g++) {
        const bool grows = grows_in_llama(m, g, ask);
        const uint64_t cells = cells_of(g, grows, ask, n);

        if (!kvb_sized_attends(g))
            continue;
        masks[grows] = cells > masks[grows] ? cells : masks[grows];
        indexed = g->index_dim ? cells : indexed;
        scores = ask->no_flash && g->heads * cells > scores ? g->heads * cells : scores;
    }
    if (kvb_add(&logits, ask->before_last ? 0 : outputs, (uint64_t)m->vocab + m->hidden, 4) ||
        kvb_add(&feed, tokens, kvb_llama_feed_width(m), 4) || kvb_add(&heads, tokens, kvb_llama_heads_width(m), 4) ||
        kvb_add(&heads, tokens, scores, 4) || kvb_add(&heads, tokens, indexed, mask + 4) ||
        kvb_add(bytes, heads > feed ? heads : feed) || kvb_add(bytes, tokens, masks[0] + masks[1], mask, copies) ||
        kvb_add(bytes, tokens, 4, copies) || kvb_add(bytes, tokens, copies > 1 ? copies : 0, m->hidden, 4))
        return -EOVERFLOW;
    *bytes = *bytes > logits ? *bytes : logits;
    return 0;
}

const kvb_size_engine kvb_size_engine_llama_cpp = {
    .name = "llama.cpp",
    .weights = "q8_0 q6_K q5_K_M q4_K_M q3_K_S q2_K",
    .stored = "f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1", /* common/arg.cpp */
    .stored_why = "llama.cpp has no cache type ",
    .source = "ggml-org/llama.cpp src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-hparams.cpp",
    .batch = UBATCH,
    .beside = llama_cpp_beside,
    .apart = true,
    .knows = 1 << KVB_SIZED_POOLED, /* of one token: an indexer's keys */
    .beside_source = "ggml-org/llama.cpp src/llama-context.cpp, sched_reserve; tools/server/server-context.cpp",
    .lack = llama_cpp_lack,
    .layer = llama_cpp_layer,
};

/* ---- vLLM (v1) --------------------------------------------------------------------------------------------------- */

/*
 * Blocks of tokens come from one pool with pages of one size. A sequence takes at most its max_memory_usage_bytes. Sources,
 * in vllm-project/vllm:
 *   v1/kv_cache_interface.py     pages of each kind of layer, and the number of blocks that a sequence needs
 *   v1/core/kv_cache_utils.py    if kinds differ: layers in groups of one size, the last one padded; longer blocks make page
 *                                sizes equal
 *                                (unify_hybrid_kv_cache_specs: without the hybrid manager windows keep every token)
 *   platforms/interface.py, _align_hybrid_block_size   with recurrent layers: attention blocks as long as a state needs,
 *                                states padded to that page
 *   config/model.py, is_prefix_caching_supported   if the model also attends, states are cached with the beginnings of
 *                                prompts (mamba_cache_mode align): a sequence has one such state besides its last one.
 *                                A model of states alone caches none
 */
enum {
    BLOCK = 16,
    GROUPS = 1024, /* most layer groups; no model has as many */
};

/* Layers of one kind in vLLM (a KVCacheSpec). A group with an indexer makes two of them. */
typedef struct spec {
    const kvb_sized_group *group;
    uint64_t layers, own; /* in the pool; without padding */
    uint64_t state;       /* bytes of a state, without padding */
    uint64_t states;      /* of a sequence in a layer, without drafts */
    bool grows;           /* keeps every token */
    uint64_t token;       /* bytes of a token in a layer; 0: a state */
    uint64_t page;        /* bytes of a block in a layer */
    uint64_t block;       /* tokens of a block */
} spec;

static const char *vllm_lack(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask,
                             char *text)
{
    (void)model;
    if (g->heads % ask->tp == 0)
        return g->sinks ? "vLLM has no window that keeps the first tokens" : NULL;
    snprintf(text, KVB_LACK_TEXT, "vLLM wants --tp to divide the %u query heads", g->heads);
    return text; /* config/model.py, verify_with_parallel_config */
}

/* --mamba-ssm-cache-dtype auto: the dtype that the config asks for (model_executor/models/config.py), else the model's. */
uint32_t kvb_vllm_state_element(const kvb_sized_model *model, const kvb_size_ask *ask)
{
    static const char *const keys[] = {"mamba_ssm_dtype", "mamba_ssm_cache_dtype"}; /* Qwen3.5, Nemotron-H */

    if (ask->state)
        return kvb_config_dtype_bytes(ask->state);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *asked = json_string_value(json_object_get(model->config, keys[i]));

        if (asked)
            return strcmp(asked, "float32") == 0 ? 4 : 2;
    }
    return strcmp(model->type, "nemotron_h") == 0 ? 4 : kvb_config_dtype_bytes(model->dtype);
}

/* Makes the specs of a rank, at most two for each group. Pages may still have different sizes. */
static int specs_make(const kvb_sized_model *model, const kvb_size_ask *ask, spec *specs, size_t *n, char *why,
                      size_t why_bytes)
{
    uint64_t block = ask->block ? ask->block : BLOCK, token = 0, state = 0;
    bool whole = false;

    for (size_t i = 0; i < model->n_groups; i++)
        whole = whole || (ask->whole && kvb_sized_grows(model, &model->groups[i], ask->context));
    for (const kvb_sized_group *g = model->groups; g < model->groups + model->n_groups; g++) {
        spec s = {.group = g,
                  .layers = kvb_layers_held(model, g, ask),
                  .grows = kvb_sized_grows(model, g, ask->context) ||
                           (whole && (g->kind == KVB_SIZED_WINDOW || g->kind == KVB_SIZED_CHUNK))};
        int error = kvb_layer_row_bytes(g, ask, &s.token, why, why_bytes);

        if (error)
            return error;
        if (state_share(g, ask->tp, ask->spec_depth, kvb_vllm_state_element(model, ask),
                        kvb_config_dtype_bytes(model->dtype), &s.page))
            return -EOVERFLOW;
        s.own = s.layers;
        s.state = s.page;
        if (s.token || s.page)
            specs[(*n)++] = s;
        if (g->index_dim)
            specs[(*n)++] =
                (spec){.group = g, .layers = s.layers, .own = s.layers, .grows = true, .token = kvb_index_row_bytes(g)};
        token = token ? token : s.token;
        state = s.page > state ? s.page : state;
    }
    if (state && token) { /* the attention block grows until a state fits into one of its pages */
        uint64_t align = block > BLOCK ? block : BLOCK, least = 0;

        if (kvb_add(&least, align, kvb_ceil_div(state, align * token)))
            return -EOVERFLOW;
        block = least > block ? least : block;
    }
    for (size_t i = 0; i < *n; i++) {
        spec *s = &specs[i];

        s->block = block;
        s->states = token ? kvb_vllm_states(ask) : 1;
        if (__builtin_mul_overflow(block, s->token ? s->token : token, &state))
            return -EOVERFLOW;
        s->page = state ? state : s->page; /* a state is padded, unless the model has no attention */
    }
    return 0;
}

/* Lets different kinds share one pool: their pages get one size, and their groups one number of layers. */
static int pool_unify(spec *specs, size_t n, bool whole, char *why, size_t why_bytes)
{
    uint64_t page = 0, fewest = UINT64_MAX, most = 0;
    bool uniform = true; /* all kinds keep every token */

    for (size_t i = 0; i < n; i++) {
        uniform = uniform && specs[i].grows;
        page = specs[i].page > page ? specs[i].page : page;
        fewest = specs[i].layers < fewest ? specs[i].layers : fewest;
        most = specs[i].layers > most ? specs[i].layers : most;
    }
    if (uniform || n < 2)
        return 0;
    if (whole)
        return kvb_why_set(-ENOTSUP, why, why_bytes,
                           "vLLM needs its hybrid manager for these kinds of layers (--whole-windows)");
    uint64_t size = most < fewest + kvb_ceil_div(fewest, 4) ? most : fewest; /* most < 1.25 fewest */

    for (size_t i = 0; i < n; i++) {
        spec *s = &specs[i];

        if (page % s->page)
            return kvb_why_set(-ENOTSUP, why, why_bytes, "vLLM cannot unify pages of %llu and %llu B",
                               (unsigned long long)s->page, (unsigned long long)page);
        if (__builtin_mul_overflow(s->block, page / s->page, &s->block) || kvb_round_up(&s->layers, size))
            return -EOVERFLOW;
        s->page = page;
    }
    return 0;
}

/* The last state, and the state of the prompt's beginning if beginnings are cached. That is the default since 0.27 (pull
 * request 50991); before, models with states were served without. */
uint64_t kvb_vllm_states(const kvb_size_ask *ask)
{
    return ask->prefix || !ask->version || ask->version >= KVB_VERSION(0, 27) ? 2 : 1;
}

/* Since 0.26 scheduling is asynchronous: two batches can be in flight after a window (config/vllm.py, max_in_flight_tokens;
 * kv_cache_interface.py, max_admission_blocks_per_request). */
uint64_t kvb_vllm_batches(const kvb_size_ask *ask)
{
    return ask->version && ask->version < KVB_VERSION(0, 26) ? 1 : 2;
}

/* Blocks that a sequence of n tokens needs in a layer. */
static uint64_t blocks_of(const spec *s, const kvb_size_ask *ask, uint64_t n)
{
    uint64_t window = s->group->window, flight = kvb_vllm_batches(ask) * kvb_size_batch(&kvb_size_engine_vllm, ask);

    if (s->grows)
        return kvb_ceil_div(n, s->block);
    switch (s->group->kind) {
    case KVB_SIZED_WINDOW: /* the window may begin inside a block */
        window += flight - 1;
        return kvb_ceil_div(window < n ? window : n, s->block) + 1;
    case KVB_SIZED_CHUNK:
        window += flight;
        return kvb_ceil_div(window < n ? window : n, s->block);
    case KVB_SIZED_CROSS: /* CrossAttentionSpec: max_num_encoder_input_tokens, a whole batch of them */
        flight = kvb_size_batch(&kvb_size_engine_vllm, ask);
        return kvb_ceil_div(window > flight ? window : flight, s->block);
    default:
        return s->states + ask->spec_depth;
    }
}

/* Makes the specs and unifies them for the pool. specs: room for two per group. */
static int specs_settle(const kvb_sized_model *model, const kvb_size_ask *ask, spec *specs, size_t *n, char *why,
                        size_t why_bytes)
{
    *n = 0;
    if (model->n_groups > GROUPS)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "more than %d kinds of layers", GROUPS);
    int error = specs_make(model, ask, specs, n, why, why_bytes);
    return error ? error : pool_unify(specs, *n, ask->whole, why, why_bytes);
}

/* Prints a line for each spec: "52 x sliding window: 16 tokens x 8,192 B = a page of 131,072 B, 577 of them a sequence;
 * held as 60 layers, in groups of one size". */
static void vllm_explain(const kvb_sized_model *model, const kvb_size_ask *ask, FILE *out)
{
    spec specs[2 * GROUPS];
    size_t n = 0;
    char text[KVB_LACK_TEXT], why[256] = "";
    const char *lack = kvb_size_lack(&kvb_size_engine_vllm, model, ask, text);
    int error = lack ? -ENOTSUP : specs_settle(model, ask, specs, &n, why, sizeof why);

    fprintf(out, "%s%s\n", error ? " " : "", lack ? lack : error ? why : "");
    for (size_t i = 0; i < n && !error; i++) {
        const spec *s = &specs[i];
        const kvb_number token = kvb_whole_text(s->token ? s->token : s->state), page = kvb_whole_text(s->page);

        fprintf(out, "    %llu x %s%s: ", (unsigned long long)s->own, s->group->name,
                s->token && s->group->index_dim && s->token == kvb_index_row_bytes(s->group) ? ", its keys" : "");
        if (s->token)
            fprintf(out, "%llu tokens x %s B = a page of %s B", (unsigned long long)s->block, token.text, page.text);
        else
            fprintf(out, "a state of %s B in a page of %s B", token.text, page.text);
        fprintf(out, ", %llu of them a sequence", (unsigned long long)blocks_of(s, ask, ask->context));
        if (s->layers != s->own)
            fprintf(out, "; held as %llu layers, in groups of one size", (unsigned long long)s->layers);
        fputc('\n', out);
    }
}

static int vllm_allocate(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                         size_t why_bytes)
{
    spec specs[2 * GROUPS];
    size_t n;
    int error = specs_settle(model, ask, specs, &n, why, why_bytes);

    for (size_t i = 0; i < n && !error; i++) {
        const spec *s = &specs[i];
        uint64_t *bytes = s->group->kind == KVB_SIZED_STATE ? &out->state_bytes : &out->kv_bytes;

        if (kvb_add(bytes, ask->sequences, s->layers, blocks_of(s, ask, ask->context), s->page) ||
            (!s->grows && kvb_add(&out->fixed_bytes_per_sequence, s->layers, blocks_of(s, ask, UINT64_MAX), s->page)))
            error = -EOVERFLOW;
        out->bytes_per_token += s->grows ? (double)s->layers * (double)s->page / (double)s->block : 0;
    }
    return error;
}

/* Defaults of `vllm serve`: engine/arg_utils.py, get_batch_defaults. */
static uint64_t vllm_batch(const kvb_device *device)
{
    return device && !device->large ? 2048 : 8192;
}

uint64_t kvb_vllm_max_seqs(const kvb_size_ask *ask)
{
    uint64_t most = ask->max_seqs ? ask->max_seqs : ask->device && ask->device->large ? 1024 : 256;

    return most > ask->sequences ? most : ask->sequences;
}

/*
 * The peak of its profiling run (v1/worker/gpu_worker.py, determine_available_memory): a pass of the largest batch, then,
 * on the last rank of a pipeline, the sampler for max_num_seqs sequences (gpu_model_runner.py, profile_run,
 * _dummy_sampler_run). A layer has 4 x hidden, gate, up and their product alive: logs show 2.02 GiB for 32,768 tokens of a
 * model of 1536 and 8960. For each logit the sampler has its value in the dtype and in f32, sorted values and 64-bit
 * indices with the sort's own copies, probabilities, sums, a mask and the result (v1/sample/ops/topk_topp_sampler.py): 43
 * bytes; logs have 38 to 41 (1.19 to 1.26 GiB for Llama-3-8B, 1.39 to 1.45 GiB for Qwen2.5-1.5B, with 256 sequences).
 */
static int vllm_beside(const kvb_sized_model *m, const kvb_size_ask *ask, uint64_t *bytes)
{
    uint64_t tokens = kvb_size_batch(&kvb_size_engine_vllm, ask), dtype = kvb_config_dtype_bytes(m->dtype), sampler = 0;
    uint64_t width = 4 * (uint64_t)m->hidden + 3 * kvb_ceil_div(m->intermediate, ask->tp);
    uint64_t sequences = kvb_vllm_max_seqs(ask);

    if (kvb_add(bytes, tokens, width, dtype) || kvb_add(&sampler, tokens, m->hidden, dtype) ||
        kvb_add(&sampler, ask->before_last ? 0 : sequences, m->vocab, KVB_VLLM_SAMPLER_BYTES))
        return -EOVERFLOW;
    *bytes = *bytes > sampler ? *bytes : sampler;
    return 0;
}

const kvb_size_engine kvb_size_engine_vllm = {
    .name = "vllm",
    .since = "0.26",
    .states_since = "0.27",
    .pooled_why =
        "its groups of pages for them differ by version, and no public log fixes one (vllm-project/vllm 51041)",
    .weights = "fp8 nvfp4 a4g128",
    .stored = "f32 f16 bf16 e4m3 e5m2 e4m3-token int8 nvfp4 fp8_ds_mla",
    .source = "vllm-project/vllm vllm/v1/kv_cache_interface.py, vllm/v1/core/kv_cache_utils.py",
    .batch_on = vllm_batch,
    .fraction =
        900, /* config/cache.py: gpu_memory_utilization; 0.92 since it counts CUDA graphs within, which we do not */
    .beside = vllm_beside,
    .beside_source = "vllm-project/vllm vllm/v1/worker/gpu_worker.py, determine_available_memory",
    .explain = vllm_explain,
    .stored_why = "vLLM has no cache dtype ",
    .alike_why = "vLLM stores K and V in one dtype",
    .lack = vllm_lack,
    .knows = 1 << KVB_SIZED_CROSS,
    .allocate = vllm_allocate,
};
