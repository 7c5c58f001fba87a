/* SPDX-License-Identifier: Apache-2.0 */
/* How engines allocate: the least that is possible, llama.cpp, vLLM. */
#include "results/sizing/engines.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- ideal: every row that a later token may read, and nothing else ------------------------------------------ */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Rows that may still be read after n tokens. A window keeps its sinks too. */
static uint64_t rows_kept(const kvb_sized_group *g, bool grows, uint64_t n)
{
    return grows ? n : least(n, (uint64_t)g->window + g->sinks);
}

static int ideal_allocate(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                          size_t why_bytes)
{
    uint32_t plain = kvb_plain_bytes(model, ask);
    uint64_t per_token = 0;

    *out = (kvb_size_allocation){0};
    for (size_t i = 0; i < model->n_groups; i++) {
        const kvb_sized_group *g = &model->groups[i];
        uint64_t layers = kvb_layers_held(model, i, ask), row, state;
        bool grows = kvb_sized_grows(model, g, ask->context);
        int error = kvb_layer_row_bytes(g, ask, &row, why, why_bytes);

        if (error)
            return error == -EOVERFLOW ? kvb_too_large(why, why_bytes) : error;
        row += kvb_index_row_bytes(g);
        if (kvb_layer_state_bytes(g, ask, ask->state ? kvb_dtype_bytes(ask->state) : plain, plain, &state) ||
            kvb_add(&out->kv_bytes, ask->sequences, layers, rows_kept(g, grows, ask->context), row) ||
            kvb_add(&out->state_bytes, ask->sequences, layers, 1 + (uint64_t)ask->spec_depth, state) ||
            kvb_add(grows ? &per_token : &out->fixed_bytes_per_sequence, layers,
                    grows ? 1 : rows_kept(g, false, UINT64_MAX), row) ||
            kvb_add(&out->fixed_bytes_per_sequence, layers, 1 + (uint64_t)ask->spec_depth, state))
            return kvb_too_large(why, why_bytes);
    }
    out->bytes_per_token = (double)per_token;
    return 0;
}

const kvb_size_engine kvb_size_engine_ideal = {
    .name = "ideal",
    .summary = "every row and state that a later token may read, and nothing else",
    .source = "the definition of each kind of layer",
    .allocate = ideal_allocate,
};

/* ---- llama.cpp --------------------------------------------------------------------------------------------------- */

/*
 * Everything is allocated when the context is made. Each sequence is a stream of its own (what --parallel N gives without
 * --kv-unified), whose length is rounded up to 256 cells (llama_context: n_ctx_seq); unified, one stream has the cells of all of
 * them, as in the server unless --parallel is given (tools/server/server.cpp: 4 slots and kv_unified). Sources:
 *   llama-kv-cache.cpp        K and V of n_embd_{k,v}_gqa for each cell and stream; MLA keeps only K; so does the indexer
 *   llama-kv-cache-iswa.cpp   window layers: pad256(min(n_ctx_seq, n_swa * (unified ? n_seq : 1) + n_ubatch)) cells
 *   llama-memory-recurrent, llama-hparams.cpp   n_embd_r and n_embd_s, in f32 whatever the dtype, a cell for each sequence
 */
enum { PAD = 256, UBATCH = 512 };

/* Cache types of llama.cpp (common/arg.cpp). */
static const char llama_stored[] = "f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1";

/* Models whose windows llama.cpp ignores: their architecture's load_arch_hparams reads none (llama, qwen2, starcoder2
 * …), or switches it off (phi3, pull request 13676). */
static const char windowless[] = "mistral mixtral starcoder2 phi3 phimoe qwen2 qwen2_moe qwen3";

bool kvb_llama_has_windows(const kvb_sized_model *model)
{
    return !kvb_names_have(windowless, model->type);
}

static int llama_check(const kvb_sized_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    const kvb_kv_format *unknown = !kvb_names_have(llama_stored, ask->k->name)   ? ask->k
                                   : !kvb_names_have(llama_stored, ask->v->name) ? ask->v
                                                                                 : NULL;

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

static int llama_cpp_allocate(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_allocation *out,
                              char *why, size_t why_bytes)
{
    uint64_t n = 0, per_token = 0, streams = ask->unified ? 1 : ask->sequences;
    int error = llama_check(model, ask, why, why_bytes);

    *out = (kvb_size_allocation){0};
    if (!error && (kvb_add(&n, ask->context, ask->unified ? ask->sequences : 1) || n >> 62 || kvb_round_up(&n, PAD)))
        error = kvb_too_large(why, why_bytes);
    for (size_t i = 0; i < model->n_groups && !error; i++) {
        const kvb_sized_group *g = &model->groups[i];
        bool grows = kvb_sized_grows(model, g, ask->context) || !kvb_llama_has_windows(model);
        uint64_t layers = kvb_layers_held(model, i, ask), drafts = 1 + (uint64_t)ask->spec_depth, row, state;

        error = kvb_layer_row_bytes(g, ask, &row, why, why_bytes);
        if (error)
            break;
        row += kvb_kv_row_bytes(ask->k, g->index_dim);
        if (kvb_layer_state_bytes(g, ask, 4, 4, &state) ||
            kvb_add(&out->kv_bytes, streams, layers, cells_of(g, grows, ask, n), row) ||
            kvb_add(&out->state_bytes, ask->sequences, layers, drafts, state) ||
            kvb_add(grows ? &per_token : &out->fixed_bytes_per_sequence, layers,
                    grows ? 1 : cells_of(g, grows, ask, UINT64_MAX / 2), row) ||
            kvb_add(&out->fixed_bytes_per_sequence, layers, drafts, state))
            error = -EOVERFLOW;
    }
    out->bytes_per_token = (double)per_token;
    return error == -EOVERFLOW ? kvb_too_large(why, why_bytes) : error;
}

/* The graph is reserved for a micro-batch of which each token has logits (llama_context: n_outputs = n_tokens), in f32:
 * the logs' "compute buffer size = 258.50 MiB" for 512 tokens of Llama-3-8B. With long contexts, or without flash
 * attention, it is more. */
static int llama_cpp_beside(const kvb_sized_model *m, const kvb_size_ask *ask, uint64_t *bytes)
{
    return kvb_add(bytes, kvb_size_batch(&kvb_size_engine_llama_cpp, ask), (uint64_t)m->vocab + m->hidden, 4);
}

const kvb_size_engine kvb_size_engine_llama_cpp = {
    .name = "llama.cpp",
    .stored = llama_stored,
    .summary = "all at start: contexts padded to 256 cells, windows + micro-batch, states in f32",
    .source = "ggml-org/llama.cpp src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-hparams.cpp",
    .batch = UBATCH,
    .beside = llama_cpp_beside,
    .allocate = llama_cpp_allocate,
};

/* ---- vLLM (v1) --------------------------------------------------------------------------------------------------- */

/*
 * Blocks of tokens come from one pool whose pages all have one size. What one sequence takes at most is its
 * max_memory_usage_bytes. Sources, in vllm-project/vllm:
 *   v1/kv_cache_interface.py     pages of each kind of layer, and how many blocks of it a sequence needs
 *   v1/core/kv_cache_utils.py    if kinds differ: layers in groups of one size, the last one padded; longer blocks make page
 *                                sizes equal
 *   platforms/interface.py, _align_hybrid_block_size   with recurrent layers: attention blocks as long as a state needs,
 *                                states padded to that page
 *   config/model.py, is_prefix_caching_supported   beside attention, states are cached with prompts' beginnings (mamba_cache_mode
 *                                align): a sequence has the last one as well. A model of states alone has none
 */
enum {
    BLOCK = 16,
    GROUPS = 1024, /* most layer groups; no model has as many */
};

/* Layers that vLLM holds as one kind (a KVCacheSpec). A group with an indexer makes two of them. */
typedef struct spec {
    const kvb_sized_group *group;
    uint64_t layers, own; /* in the pool, and without padding */
    uint64_t state;       /* bytes of a state, without padding */
    uint64_t states;      /* that a sequence has in a layer, without drafts */
    bool grows;           /* it keeps every token */
    uint64_t token;       /* bytes of a token in a layer; 0: a state */
    uint64_t page;        /* bytes of a block in a layer */
    uint64_t block;       /* tokens of a block */
} spec;

/* --kv-cache-dtype is one word for K and V, and ranks divide the heads. */
static int format_check(const kvb_sized_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    if (ask->k != ask->v) {
        snprintf(why, why_bytes, "vLLM stores K and V in one dtype");
        return -ENOTSUP;
    }
    if (!kvb_names_have(kvb_size_engine_vllm.stored, ask->k->name)) {
        snprintf(why, why_bytes, "vLLM has no cache dtype %s", ask->k->name);
        return -ENOTSUP;
    }
    for (size_t i = 0; i < model->n_groups; i++)
        if (model->groups[i].heads % ask->tp) { /* config/model.py, verify_with_parallel_config */
            snprintf(why, why_bytes, "vLLM wants --tp to divide the %u query heads", model->groups[i].heads);
            return -ENOTSUP;
        } else if (model->groups[i].sinks) {
            snprintf(why, why_bytes, "vLLM has no window that keeps the first tokens");
            return -ENOTSUP;
        }
    return 0;
}

/* Bytes of an element of a recurrent state (--mamba-ssm-cache-dtype auto): what the config asks for
 * (model_executor/models/config.py), else the model's dtype. */
uint32_t kvb_vllm_state_element(const kvb_sized_model *model, const kvb_size_ask *ask)
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

int kvb_state_share(const kvb_sized_group *g, uint32_t tp, uint32_t drafts, uint32_t state_element,
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

/* Makes the specs of a rank, at most two for each group. Pages may still have different sizes. */
static int specs_make(const kvb_sized_model *model, const kvb_size_ask *ask, spec *specs, size_t *n, char *why,
                      size_t why_bytes)
{
    uint64_t block = ask->block ? ask->block : BLOCK, token = 0, state = 0;

    *n = 0;
    for (size_t i = 0; i < model->n_groups; i++) {
        const kvb_sized_group *g = &model->groups[i];
        spec s = {
            .group = g, .layers = kvb_layers_held(model, i, ask), .grows = kvb_sized_grows(model, g, ask->context)};
        int error = kvb_layer_row_bytes(g, ask, &s.token, why, why_bytes);

        if (error)
            return error;
        if (kvb_state_share(g, ask->tp, ask->spec_depth, kvb_vllm_state_element(model, ask),
                            kvb_dtype_bytes(model->dtype), &s.page))
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
        s->states = token ? 2 : 1;
        if (__builtin_mul_overflow(block, s->token ? s->token : token, &state))
            return -EOVERFLOW;
        s->page = state ? state : s->page; /* a state is padded, unless the model has no attention */
    }
    return 0;
}

/* If kinds differ, they share one pool: pages get one size, and groups one number of layers. */
static int pool_unify(spec *specs, size_t n, char *why, size_t why_bytes)
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

/* How many blocks one sequence of n tokens needs in a layer. Scheduling is asynchronous: two batches can be in flight
 * behind a window (config/vllm.py, max_in_flight_tokens; kv_cache_interface.py, max_admission_blocks_per_request). */
static uint64_t blocks_of(const spec *s, const kvb_size_ask *ask, uint64_t n)
{
    uint64_t window = s->group->window, flight = KVB_VLLM_BATCHES * kvb_size_batch(&kvb_size_engine_vllm, ask);

    if (s->grows)
        return kvb_ceil_div(n, s->block);
    switch (s->group->kind) {
    case KVB_SIZED_WINDOW: /* the window may begin inside a block */
        window += flight - 1;
        return kvb_ceil_div(window < n ? window : n, s->block) + 1;
    case KVB_SIZED_CHUNK:
        window += flight;
        return kvb_ceil_div(window < n ? window : n, s->block);
    default:
        return s->states + ask->spec_depth;
    }
}

static int allocate_specs(const spec *specs, size_t n, const kvb_size_ask *ask, kvb_size_allocation *out)
{
    double per_token = 0;

    for (size_t i = 0; i < n; i++) {
        const spec *s = &specs[i];
        uint64_t *bytes = s->group->kind == KVB_SIZED_STATE ? &out->state_bytes : &out->kv_bytes;

        if (kvb_add(bytes, ask->sequences, s->layers, blocks_of(s, ask, ask->context), s->page) ||
            (!s->grows && kvb_add(&out->fixed_bytes_per_sequence, s->layers, blocks_of(s, ask, UINT64_MAX), s->page)))
            return -EOVERFLOW;
        per_token += s->grows ? (double)s->layers * (double)s->page / (double)s->block : 0;
    }
    out->bytes_per_token = per_token;
    return 0;
}

/* The specs as they are in the pool. specs has room for two a group. */
static int specs_settle(const kvb_sized_model *model, const kvb_size_ask *ask, spec *specs, size_t *n, char *why,
                        size_t why_bytes)
{
    int error = format_check(model, ask, why, why_bytes);

    if (!error && model->n_groups > GROUPS) {
        snprintf(why, why_bytes, "more than %d kinds of layers", GROUPS);
        return -ENOTSUP;
    }
    if (!error)
        error = specs_make(model, ask, specs, n, why, why_bytes);
    return error ? error : pool_unify(specs, *n, why, why_bytes);
}

/* A line for each spec: "52 x sliding window: 16 tokens x 8,192 B = a page of 131,072 B, 577 blocks of it; held as 60
 * layers". */
static void vllm_explain(const kvb_sized_model *model, const kvb_size_ask *ask, FILE *out)
{
    spec specs[2 * GROUPS];
    size_t n = 0;
    char why[256], token[KVB_UNIT_TEXT + 8], page[KVB_UNIT_TEXT + 8];
    int error = specs_settle(model, ask, specs, &n, why, sizeof why);

    fprintf(out, "  vllm:%s%s\n", error ? " " : "", error ? why : "");
    for (size_t i = 0; i < n && !error; i++) {
        const spec *s = &specs[i];

        kvb_exact_bytes_text(s->token ? s->token : s->state, token);
        kvb_exact_bytes_text(s->page, page);
        fprintf(out, "    %llu x %s%s: ", (unsigned long long)s->own, s->group->name,
                s->token && s->group->index_dim && s->token == kvb_index_row_bytes(s->group) ? ", its keys" : "");
        if (s->token)
            fprintf(out, "%llu tokens x %s = a page of %s", (unsigned long long)s->block, token, page);
        else
            fprintf(out, "a state of %s in a page of %s", token, page);
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
    size_t n = 0;
    int error = specs_settle(model, ask, specs, &n, why, why_bytes);

    *out = (kvb_size_allocation){0};
    if (!error)
        error = allocate_specs(specs, n, ask, out);
    return error == -EOVERFLOW ? kvb_too_large(why, why_bytes) : error;
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
 * The peak of its profiling run (v1/worker/gpu_worker.py, determine_available_memory): a pass of the largest batch,
 * then the sampler for max_num_seqs sequences (gpu_model_runner.py, profile_run, _dummy_sampler_run). A layer has 4 x
 * hidden, gate, up and their product alive: 2.02 GiB are logged for 32,768 tokens of a model of 1536 and 8960. The
 * sampler has for each logit those in the dtype and in f32, sorted values and 64-bit indices with the sort's own
 * copies, probabilities, sums, a mask and the result (v1/sample/ops/topk_topp_sampler.py): 43 bytes; logs have 38 to 41
 * (1.19 to 1.26 GiB for Llama-3-8B, 1.39 to 1.45 GiB for Qwen2.5-1.5B, with 256 sequences).
 */
static int vllm_beside(const kvb_sized_model *m, const kvb_size_ask *ask, uint64_t *bytes)
{
    uint64_t tokens = kvb_size_batch(&kvb_size_engine_vllm, ask), dtype = kvb_dtype_bytes(m->dtype), sampler = 0;
    uint64_t width = 4 * (uint64_t)m->hidden + 3 * kvb_ceil_div(m->intermediate, ask->tp);
    uint64_t sequences = kvb_vllm_max_seqs(ask);

    if (kvb_add(bytes, tokens, width, dtype) || kvb_add(&sampler, tokens, m->hidden, dtype) ||
        kvb_add(&sampler, sequences, m->vocab, KVB_VLLM_SAMPLER_BYTES))
        return -EOVERFLOW;
    *bytes = *bytes > sampler ? *bytes : sampler;
    return 0;
}

const kvb_size_engine kvb_size_engine_vllm = {
    .name = "vllm",
    .stored = "f32 f16 bf16 e4m3 e5m2 e4m3-token int8 nvfp4 fp8_ds_mla",
    .summary = "blocks of 16 tokens; kinds of layers in groups of one size, pages of one size",
    .source = "vllm-project/vllm vllm/v1/kv_cache_interface.py, vllm/v1/core/kv_cache_utils.py",
    .batch_on = vllm_batch,
    .fraction =
        900, /* config/cache.py: gpu_memory_utilization; 0.92 since it counts CUDA graphs within, which we do not */
    .beside = vllm_beside,
    .explain = vllm_explain,
    .allocate = vllm_allocate,
};
