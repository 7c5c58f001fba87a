/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of engines: patterns of lines with sizes and settings, and the comparison. */
#include "harness/size/logged.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/files.h"

/* ---- lines ------------------------------------------------------------------------------------------------------- */

typedef enum repeat { LAST, SUM, MOST } repeat; /* for several matches; SUM leaves out repeated texts */

/* A pattern holds one of: % a number, & a size (a number and its unit), $ a word, perhaps in quotes. * is any text, ? any
 * character, a blank one or more blanks. Units are binary, however an engine spells them. */
static const struct line {
    const char *engine;
    kvb_logged_key key;
    repeat repeat;
    const char *pattern;
} lines[] = {
    /* vllm/v1/worker/gpu_worker.py, gpu_model_runner.py, v1/core/kv_cache_utils.py, v1/engine/core.py; worker/worker.py */
    {"vllm", KVB_LOGGED_WEIGHTS, LAST, "odel loading took &"},
    {"vllm", KVB_LOGGED_WEIGHTS, LAST, "oading model weights took &"},
    {"vllm", KVB_LOGGED_WEIGHTS, LAST, "model weights take &"},
    {"vllm", KVB_LOGGED_WEIGHTS, LAST, "weights memory: &"},
    {"vllm", KVB_LOGGED_KV, LAST, "Available KV cache memory: &"},
    {"vllm", KVB_LOGGED_KV, LAST, "reserved for KV Cache is &"},
    {"vllm", KVB_LOGGED_ACTIVATIONS, LAST, "activation peak memory takes &"},
    {"vllm", KVB_LOGGED_ACTIVATIONS, LAST, "torch peak memory increase: &"},
    {"vllm", KVB_LOGGED_ACTIVATIONS, LAST, "for weight, & for peak activation"},
    {"vllm", KVB_LOGGED_GRAPHS, LAST, "Graph capturing finished in*took &"},
    {"vllm", KVB_LOGGED_GRAPHS, LAST, "CUDA graph pool memory: & (actual)"},
    {"vllm", KVB_LOGGED_RUNTIME, LAST, "non_torch_memory takes &"},
    {"vllm", KVB_LOGGED_RUNTIME, LAST, "for peak activation, & for non-torch memory"},
    {"vllm", KVB_LOGGED_TOKENS, LAST, "GPU KV cache size: % tokens"},
    {"vllm", KVB_LOGGED_CONTEXT, LAST, "max_seq_len=%"},
    {"vllm", KVB_LOGGED_CONTEXT, LAST, "Maximum concurrency for % tokens per request"},
    {"vllm", KVB_LOGGED_REQUESTS, LAST, "tokens per request: %x"},
    {"vllm", KVB_LOGGED_TP, LAST, "tensor_parallel_size=%"},
    {"vllm", KVB_LOGGED_PP, LAST, "pipeline_parallel_size=%"},
    {"vllm", KVB_LOGGED_BATCH, LAST, "max_num_batched_tokens=%"},
    {"vllm", KVB_LOGGED_K, LAST, "kv_cache_dtype=$"},
    {"vllm", KVB_LOGGED_CONTEXT, LAST, "'max_model_len': %"}, /* entrypoints/utils.py, log_non_default_args */
    {"vllm", KVB_LOGGED_TP, LAST, "'tensor_parallel_size': %"},
    {"vllm", KVB_LOGGED_PP, LAST, "'pipeline_parallel_size': %"},
    {"vllm", KVB_LOGGED_BATCH, LAST, "'max_num_batched_tokens': %"},
    {"vllm", KVB_LOGGED_K, LAST, "'kv_cache_dtype': $"},
    {"vllm", KVB_LOGGED_PREFIX, LAST, "'enable_prefix_caching': $"},
    {"vllm", KVB_LOGGED_PREFIX, LAST, "enable_prefix_caching=$"},
    {"vllm", KVB_LOGGED_MODEL, LAST, "'model_tag': $"},
    {"vllm", KVB_LOGGED_MODEL, LAST, "with config: model=$"},
    {"vllm", KVB_LOGGED_VERSION, LAST, "LLM engine (v$"},
    /* src/llama-model.cpp, llama-kv-cache.cpp, llama-memory-recurrent.cpp, llama-context.cpp */
    {"llama.cpp", KVB_LOGGED_WEIGHTS, SUM, "load_tensors:*model buffer size = &"},
    {"llama.cpp", KVB_LOGGED_KV, SUM, "llama_kv_cache*: size = & ("},
    {"llama.cpp", KVB_LOGGED_KV, SUM, "KV self size = &"},
    {"llama.cpp", KVB_LOGGED_STATES, SUM, "llama_memory_recurrent: size = &"},
    {"llama.cpp", KVB_LOGGED_ACTIVATIONS, MOST, "compute buffer size = &"},
    {"llama.cpp", KVB_LOGGED_LOGITS, LAST, "output buffer size = &"},
    {"llama.cpp", KVB_LOGGED_TOKENS, MOST, "n_ctx = %"},
    {"llama.cpp", KVB_LOGGED_CONTEXT, MOST, "MiB (% cells,"},
    {"llama.cpp", KVB_LOGGED_SEQUENCES, LAST, "n_seq_max = %"},
    {"llama.cpp", KVB_LOGGED_BATCH, LAST, "n_ubatch = %"},
    {"llama.cpp", KVB_LOGGED_OUTPUTS, LAST, "n_outputs_max = %"},
    {"llama.cpp", KVB_LOGGED_COPIES, LAST, "n_copies=%"},
    {"llama.cpp", KVB_LOGGED_COPIES, LAST, "sched copies = %"},
    {"llama.cpp", KVB_LOGGED_FLASH, LAST, "flash_attn = $"},
    {"llama.cpp", KVB_LOGGED_FLASH, LAST, "Flash Attention was auto, set to $"},
    {"llama.cpp", KVB_LOGGED_UNIFIED, LAST, "kv_unified = $"},
    {"llama.cpp", KVB_LOGGED_K, LAST, "K ($)"},
    {"llama.cpp", KVB_LOGGED_V, LAST, "V ($)"},
    /* srt/model_executor/model_runner.py, mem_cache/memory_pool.py, managers/scheduler.py */
    {"sglang", KVB_LOGGED_WEIGHTS, LAST, "Load weight end*mem usage=&"},
    {"sglang", KVB_LOGGED_KV, SUM, "KV Cache is allocated*K size: &"},
    {"sglang", KVB_LOGGED_KV, SUM, "KV Cache is allocated*V size: &"}, /* also matches "KV size", of latent rows */
    {"sglang", KVB_LOGGED_STATES, SUM, "Mamba Cache is allocated*conv_state size: &"},
    {"sglang", KVB_LOGGED_STATES, SUM, "Mamba Cache is allocated*ssm_state size: &"},
    {"sglang", KVB_LOGGED_GRAPHS, LAST, "Capture cuda graph end*mem usage=&"},
    {"sglang", KVB_LOGGED_TOKENS, MOST, "KV Cache is allocated*?tokens: %"},
    {"sglang", KVB_LOGGED_TOKENS, MOST, "full_layer_tokens=%"},
    {"sglang", KVB_LOGGED_TP, LAST, "tp_size=%"},
    {"sglang", KVB_LOGGED_PP, LAST, "pp_size=%"},
    {"sglang", KVB_LOGGED_BATCH, LAST, "chunked_prefill_size=%"},
    {"sglang", KVB_LOGGED_BLOCK, LAST, "page_size=%"},
    {"sglang", KVB_LOGGED_K, LAST, "kv_cache_dtype=$"},
    {"sglang", KVB_LOGGED_MODEL, LAST, "ServerArgs(model_path=$"},
    /* cpp/tensorrt_llm: batch_manager/kvCacheManager.cpp, runtime/tllmRuntime.cpp; _torch/pyexecutor/_util.py */
    {"trtllm", KVB_LOGGED_WEIGHTS, LAST, "Loaded engine size: &"},
    {"trtllm", KVB_LOGGED_WEIGHTS, LAST, "after loading model weights (inside torch)*: &"},
    {"trtllm", KVB_LOGGED_RUNTIME, LAST, "after loading model weights (outside torch)*: &"},
    {"trtllm", KVB_LOGGED_KV, LAST, "Allocated & for max tokens in paged KV cache"},
    {"trtllm", KVB_LOGGED_KV, LAST, "Allocate % bytes for k/v cache"},
    {"trtllm", KVB_LOGGED_TOKENS, LAST, "Using % tokens in paged KV cache"},
    {"trtllm", KVB_LOGGED_ACTIVATIONS, LAST, "Allocated & for execution context memory"},
    {"trtllm", KVB_LOGGED_TOKENS, LAST, "for max tokens in paged KV cache (%)"},
    {"trtllm", KVB_LOGGED_BATCH, LAST, "max_num_tokens=%"},
    {"trtllm", KVB_LOGGED_BLOCK, LAST, "Number of tokens per block: %"},
};
enum { LINES = sizeof lines / sizeof *lines, SAID_MOST = 256 };

typedef struct capture {
    double value, step;
    char word[sizeof((kvb_logged *)0)->at->word];
} capture;

/* Reads "1,234.50", and for a size its unit. Returns the end; NULL: no number, or no unit. */
static const char *amount_take(const char *at, bool size, capture *c)
{
    static const char units[] = "KMGTP";
    double scale = 1;
    bool decimals = false;

    c->value = 0;
    c->step = 1;
    if (*at < '0' || *at > '9')
        return NULL;
    for (; (*at >= '0' && *at <= '9') || ((*at == ',' || (*at == '.' && !decimals)) && at[1] >= '0' && at[1] <= '9');
         at++) {
        decimals = decimals || *at == '.';
        if (*at == ',' || *at == '.')
            continue;
        c->value = 10 * c->value + (*at - '0');
        c->step /= decimals ? 10 : 1;
    }
    c->value *= c->step;
    if (!(c->value <= 0x1p62)) /* too large, or NaN from too many digits */
        return NULL;
    if (!size)
        return at;
    at += strspn(at, " ");
    for (const char *unit = *at ? strchr(units, *at) : NULL; unit && unit >= units; unit--)
        scale *= 1024;
    at += scale > 1;
    at += scale > 1 && *at == 'i';
    c->value *= scale;
    c->step *= scale;
    return *at == 'B' && c->value <= 0x1p62 ? at + 1 : NULL;
}

/* Matches the beginning of a text. Returns the end of the match; NULL: no match. */
static const char *match(const char *at, const char *pattern, capture *c)
{
    for (; *pattern; pattern++) {
        if (*pattern == '*') {
            for (const char *end; *at; at++)
                if ((end = match(at, pattern + 1, c)))
                    return end;
            return NULL;
        }
        if (*pattern == '%' || *pattern == '&') {
            if (!(at = amount_take(at, *pattern == '&', c)))
                return NULL;
        } else if (*pattern == '$') {
            at += *at == '\'' || *at == '"';
            const size_t n = strcspn(at, " ,;()'\"\r\n");
            if (!n || n >= sizeof c->word)
                return NULL;
            snprintf(c->word, sizeof c->word, "%.*s", (int)n, at);
            at += n;
        } else if (*pattern == ' ') {
            if (*at != ' ')
                return NULL;
            at += strspn(at, " ");
        } else if (!*at || (*pattern != '?' && *at != *pattern)) {
            return NULL;
        } else {
            at++;
        }
    }
    return at;
}

/* ---- a log ------------------------------------------------------------------------------------------------------- */

typedef struct reading {
    kvb_logged of[4]; /* by engine */
    uint32_t sizes[4];
    uint64_t said[SAID_MOST]; /* hashes of the texts that were added */
    size_t n_said;
} reading;

static const char *const engines[] = {"vllm", "llama.cpp", "sglang", "trtllm"};

/* Has the pattern added this text before? Ranks print the same line. */
static bool said_again(reading *r, size_t pattern, const char *from, const char *to)
{
    uint64_t hash = 14695981039346656037u ^ pattern; /* FNV-1a */

    for (; from < to; from++)
        hash = (hash ^ (unsigned char)*from) * 1099511628211u;
    for (size_t i = 0; i < r->n_said; i++)
        if (r->said[i] == hash)
            return true;
    if (r->n_said < SAID_MOST)
        r->said[r->n_said++] = hash;
    return false;
}

static void line_read(reading *r, const char *text)
{
    for (size_t i = 0; i < LINES; i++) {
        const struct line *l = &lines[i];
        const size_t literal = strcspn(l->pattern, "%&$*? ");
        char begin[32];
        capture c = {0};
        size_t e = 0;

        snprintf(begin, sizeof begin, "%.*s", (int)literal, l->pattern);
        while (strcmp(engines[e], l->engine) != 0)
            e++;
        for (const char *at = text, *end; (at = strstr(at, begin)); at++) {
            if (!(end = match(at, l->pattern, &c)))
                continue;
            kvb_logged *log = &r->of[e];
            double *value = &log->at[l->key].value, *step = &log->at[l->key].step;

            if (l->repeat == SUM && said_again(r, i, at, end))
                break;
            *value = l->repeat == SUM ? *value + c.value : l->repeat == MOST && *value > c.value ? *value : c.value;
            *step = l->repeat == SUM ? *step + c.step : c.step;
            memcpy(log->at[l->key].word, c.word, sizeof c.word);
            log->at[l->key].there = true;
            r->sizes[e] += l->key < KVB_LOGGED_PARTS;
            break;
        }
    }
}

int kvb_logged_read(const char *path, kvb_logged *log, char *why, size_t why_bytes)
{
    FILE *file = fopen(path, "r");
    reading r = {.n_said = 0};
    char *line = NULL;
    size_t bytes = 0, best = 0;

    if (!file)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: %s", path, strerror(errno));
    while (getline(&line, &bytes, file) >= 0)
        line_read(&r, line);
    free(line);
    bool broken = ferror(file);
    fclose(file);
    for (size_t e = 1; e < sizeof engines / sizeof *engines; e++)
        best = r.sizes[e] > r.sizes[best] ? e : best;
    *log = r.of[best];
    log->engine = engines[best];
    return broken ? kvb_why_set(-EINVAL, why, why_bytes, "%s: cannot be read", path)
           : r.sizes[best] > 0
               ? 0
               : kvb_why_set(-EINVAL, why, why_bytes,
                             "%s: no size of a log of vllm, llama.cpp, sglang or trtllm: expected a line like "
                             "\"Available KV cache memory: 3.81 GiB\"",
                             path);
}

/* Sets an option that has its usual value to the logged one. */
static void number_take(const kvb_logged *log, kvb_logged_key key, uint64_t usual, double most, uint64_t *option)
{
    const double value = log->at[key].value;

    if (*option == usual && value >= 1 && value <= most)
        *option = (uint64_t)value;
}

static bool is_word(const kvb_logged *log, kvb_logged_key key, const char *word)
{
    return strcmp(log->at[key].word, word) == 0;
}

void kvb_logged_options_make(const kvb_logged *log, kvb_logged_options *o, kvb_size_ask *ask)
{
    const bool llama = strcmp(log->engine, "llama.cpp") == 0, vllm = strcmp(log->engine, "vllm") == 0;
    const char *k = log->at[KVB_LOGGED_K].word, *v = log->at[KVB_LOGGED_V].word;
    const double sequences = llama && log->at[KVB_LOGGED_SEQUENCES].value > 1 ? log->at[KVB_LOGGED_SEQUENCES].value : 1;
    const double pool = log->at[KVB_LOGGED_TOKENS].value;
    unsigned major, minor;

    memset(o, 0, sizeof *o);
    snprintf(o->engine, sizeof o->engine, "%s", log->engine);
    if (vllm && sscanf(log->at[KVB_LOGGED_VERSION].word, "%3u.%3u", &major, &minor) == 2)
        snprintf(o->engine, sizeof o->engine, "vllm@%u.%u", major, minor);
    /* A pool counts as one long sequence, unless the log has the number of requests of a context. */
    double context = vllm && log->at[KVB_LOGGED_REQUESTS].there ? log->at[KVB_LOGGED_CONTEXT].value
                     : pool > 0                                 ? floor(pool / sequences)
                                                                : log->at[KVB_LOGGED_CONTEXT].value;
    if (context >= 1)
        snprintf(o->context, sizeof o->context, "%.0f", context);
    snprintf(o->sequences, sizeof o->sequences, "%.0f", sequences);
    if (*k && strcmp(k, "auto") != 0)
        snprintf(o->kv, sizeof o->kv, *v && strcmp(k, v) != 0 ? "%.30s:%.30s" : "%.30s",
                 strncmp(k, "torch.", 6) ? k : k + 6, v);
    number_take(log, KVB_LOGGED_TP, 1, 65536, &ask->tp);
    number_take(log, KVB_LOGGED_PP, 1, 65536, &ask->pp);
    number_take(log, KVB_LOGGED_BATCH, 0, 1 << 30, &ask->batch);
    number_take(log, KVB_LOGGED_BLOCK, 0, 1 << 20, &ask->block);
    number_take(log, KVB_LOGGED_OUTPUTS, 0, 1 << 30, &ask->outputs);
    /* Versions without n_outputs_max in the log reserve logits for every token. */
    if (llama && !log->at[KVB_LOGGED_OUTPUTS].there && !ask->outputs)
        ask->outputs = 1 << 30;
    ask->copies = (uint32_t)(fmin(log->at[KVB_LOGGED_COPIES].value, 64));
    ask->unified = ask->unified || is_word(log, KVB_LOGGED_UNIFIED, "true");
    ask->prefix = ask->prefix || is_word(log, KVB_LOGGED_PREFIX, "True");
    ask->no_flash = ask->no_flash || is_word(log, KVB_LOGGED_FLASH, "0") || is_word(log, KVB_LOGGED_FLASH, "disabled");
}

/* ---- the comparison ---------------------------------------------------------------------------------------------- */

/* The predicted size of a part (below 0: no rule predicts it), the rounding of its basis, and the rule or its source. */
typedef struct prediction {
    double bytes, step;
    const char *rule;
} prediction;

static prediction predict(const kvb_logged *log, const kvb_size_row *row, kvb_logged_key part)
{
    const bool vllm = strcmp(log->engine, "vllm") == 0;
    const double requests = vllm && log->at[KVB_LOGGED_REQUESTS].there ? log->at[KVB_LOGGED_REQUESTS].value : 1;
    const double rows = (double)row->size.held.kv_bytes, states = (double)row->size.held.state_bytes;
    prediction p = {-1, 0, "no rule"};

    switch (row->error ? KVB_LOGGED_PARTS : part) {
    case KVB_LOGGED_WEIGHTS:
        p.bytes = row->terms.weights_known ? (double)row->size.weight_bytes : -1;
        p.rule = *row->terms.weights_why ? row->terms.weights_why
                                         : "tensors of the config as published; --weights FILE for others";
        break;
    case KVB_LOGGED_KV:
        p.bytes = vllm ? (rows + states) * requests : rows;
        p.step = requests != 1 ? (rows + states) * log->at[KVB_LOGGED_REQUESTS].step : 0;
        p.rule = row->engine->source;
        break;
    case KVB_LOGGED_STATES:
        p.bytes = vllm ? -1 : states;
        p.rule = row->engine->source;
        break;
    case KVB_LOGGED_ACTIVATIONS: /* SGLang: a reserve */
        p.bytes = strcmp(log->engine, "sglang") == 0 ? -1 : (double)row->size.activation_bytes;
        p.rule = row->engine->beside_source ? row->engine->beside_source : "at least what one layer needs";
        break;
    case KVB_LOGGED_LOGITS: /* llama-context.cpp, output_reserve: a token of each sequence, or n_outputs_max */
        p.bytes = 4.0 * row->model->vocab *
                  (log->at[KVB_LOGGED_OUTPUTS].there ? log->at[KVB_LOGGED_OUTPUTS].value : (double)row->ask.sequences);
        p.rule = "ggml-org/llama.cpp src/llama-context.cpp, output_reserve";
        break;
    case KVB_LOGGED_RUNTIME:
        p.bytes = row->size.runtime_bytes ? (double)row->size.runtime_bytes : -1;
        p.rule = "not counted, unless --runtime says it";
        break;
    default:
        p.rule = row->error ? row->why : p.rule;
    }
    return p;
}

int kvb_logged_print(const kvb_logged *log, const kvb_size_row *row, kvb_table_format format, FILE *out)
{
    static const char *const names[] = {"weights", "KV", "states", "activations", "logits", "graphs", "runtime"};
    const bool people = kvb_table_is_for_people(format);
    kvb_table *table = kvb_table_new(people ? (const char *const[]){"part", ">predicted", ">logged", "is", "rule", NULL}
                                            : (const char *const[]){"model", "engine", "part", ">predicted_bytes",
                                                                    ">logged_bytes", "is", "rule", NULL});
    char kv[KVB_KV_TEXT];
    int error = table ? 0 : -ENOMEM;

    kvb_kv_text(&row->ask, kv);
    if (people)
        fprintf(out,
                "%s by %s: context %" PRIu64 ", sequences %" PRIu64 ", KV in %s, one of %" PRIu64 " x %" PRIu64
                " ranks\n\n",
                row->model->name, row->engine->name, row->ask.context, row->ask.sequences, kv, row->ask.tp,
                row->ask.pp);
    for (int part = 0; part < KVB_LOGGED_PARTS && !error; part++) {
        const prediction p = predict(log, row, (kvb_logged_key)part);
        const double ours = p.bytes, theirs = log->at[part].there ? log->at[part].value : -1;
        kvb_number texts[2] = {{""}, {""}};
        char is[32] = "";
        const double both[2] = {ours, theirs};

        if (theirs < 0)
            continue;
        for (size_t i = 0; i < 2; i++)
            if (both[i] >= 0 && people)
                texts[i] = kvb_bytes_text(both[i]);
            else if (both[i] >= 0)
                snprintf(texts[i].text, sizeof texts[i].text, "%.0f", both[i]);
        const bool same = ours >= 0 && fabs(ours - theirs) <= (log->at[part].step + p.step) / 2;
        if (same)
            snprintf(is, sizeof is, "as logged");
        else if (ours >= 0 && theirs > 0)
            snprintf(is, sizeof is, "%+.1f %%", 100 * (ours - theirs) / theirs);
        else
            snprintf(is, sizeof is, "not predicted");
        const char *const cells[] = {
            row->model->name,  row->engine->name, names[part], *texts[0].text ? texts[0].text : NULL, texts[1].text, is,
            same ? "" : p.rule};
        error = kvb_table_row(table, people ? cells + 2 : cells);
    }
    if (!error && people)
        kvb_table_fold(table);
    int printed = kvb_table_end(table, format, out);
    error = error ? error : printed;
    return error ? error : ferror(out) ? -EIO : 0;
}
