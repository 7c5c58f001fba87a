/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live runner as an engine: the seeded decoder over cache seq, or window if layers have one, with kernel flash.
 * Fresh decodes have f32 rows in cache slab and the reference kernel.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/pool.h"
#include "harness/engine/engine.h"
#include "kernels/kernels.h"
#include "workloads/files.h"
#include "workloads/live/live.h"
#include "workloads/live/runner.h"

static const struct {
    const char *family;
    uint32_t layers, window;
    const kvb_scenario *scans; /* the model's recurrent layers are this scenario's; NULL: none */
    const kvb_cache_type *cache, *fresh;
} families[] = {
    {"llama", 1, 0, NULL, &kvb_cache_seq, &kvb_cache_slab},
    {"llama-deep", 3, 0, NULL, &kvb_cache_seq, &kvb_cache_slab},
    {"windows", 1, 32, NULL, &kvb_cache_window, &kvb_cache_slab},
    {"hybrid", 2, 0, &kvb_scenario_hybrid_decode, &kvb_cache_seq, &kvb_cache_seq},
};

typedef struct session {
    kvb_runner runner;
    kvb_weights *weights;
    kvb_model model;
} session;

static void engine_close(void *session_)
{
    session *s = session_;
    if (!s)
        return;
    kvb_runner_close(&s->runner);
    kvb_weights_close(s->weights);
    free(s);
}

static int engine_open(const kvb_engine_config *config, void **session_, kvb_engine_facts *facts, char *why,
                       size_t why_bytes)
{
    kvb_model_config shape = kvb_model_config_default;
    uint32_t f = 0, p = 0;
    while (f < sizeof families / sizeof *families && strcmp(families[f].family, config->family) != 0)
        f++;
    while (kvb_builtin_pools[p] && strcmp(kvb_builtin_pools[p]->name, config->kv) != 0)
        p++;
    if (f == sizeof families / sizeof *families || config->split || !kvb_builtin_pools[p])
        return kvb_why_set(-ENOTSUP, why, why_bytes,
                           "the live runner has the families llama, llama-deep, windows and hybrid, and one cache "
                           "for all sequences");
    session *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    if (families[f].scans)
        kvb_scenario_config(families[f].scans, &shape);
    shape.layers = families[f].layers;
    shape.head_dim = 32; /* q8_0 needs groups of 32 */
    shape.attend_every = shape.scan.heads ? 2 : 0;
    int error = kvb_weights_open(&shape, &s->weights, why, why_bytes);
    if (error) {
        free(s);
        return error;
    }
    kvb_weights_seed(s->weights, 1);
    kvb_live_model(NULL, s->weights, &s->model);
    for (uint32_t g = 0; g < s->model.n_groups; g++)
        if (s->model.groups[g].kind != KVB_GROUP_SCAN) {
            s->model.groups[g].rope = kvb_model_config_rope(&shape, 0);
            s->model.groups[g].window = families[f].window;
        }
    const kvb_runner_options o = {.weights = s->weights,
                                  .model = &s->model,
                                  .cache = config->whole ? families[f].fresh : families[f].cache,
                                  .k_pool = kvb_builtin_pools[p],
                                  .v_pool = kvb_builtin_pools[p],
                                  .kernel = config->whole ? &kvb_kernel_reference : &kvb_kernel_flash,
                                  .scan = config->whole ? &kvb_kernel_scan_reference : &kvb_kernel_scan,
                                  .capacity = config->cells,
                                  .seq_capacity =
                                      config->cells > KVB_SHADOW_TOKENS ? config->cells : 2 * KVB_SHADOW_TOKENS,
                                  .max_seqs = config->seqs,
                                  .step = config->cells,
                                  .rollback = config->whole ? 0 : 1};
    error = kvb_runner_open(&s->runner, &o);
    if (error) {
        snprintf(why, why_bytes, "%s", s->runner.why);
        engine_close(s);
        return error;
    }
    const bool recurrent = shape.scan.heads;
    *facts = (kvb_engine_facts){
        .build = "kvbench",
        .number = UINT32_MAX,
        .vocab = shape.vocab,
        .layers = shape.layers,
        .window = families[f].window,
        .cells = config->cells,
        .recurrent = recurrent,
        .depth = recurrent,
        .copies_part = !recurrent,
        .saves_all = true,
        /* decode: cache and shadow may count free cells differently, as loaded rows are shared with live sequences */
        .refuses = 1u << KVB_ENGINE_DECODE | 1u << KVB_ENGINE_SAVE | 1u << KVB_ENGINE_SHIFT |
                   (recurrent || families[f].window ? 1u << KVB_ENGINE_REMOVE | 1u << KVB_ENGINE_COPY : 0),
        .absent = recurrent ? 1u << KVB_ENGINE_SHIFT : 0,
    };
    *session_ = s;
    return 0;
}

static int engine_clear(void *session_)
{
    session *s = session_;
    return KVB_RUNNER_DO(&s->runner, CLEAR, .n = 0);
}

static int engine_decode(void *session_, const kvb_engine_token *tokens, uint32_t n)
{
    session *s = session_;
    uint32_t seq[KVB_SHADOW_TOKENS];
    int32_t tok[KVB_SHADOW_TOKENS], distance = 0;
    if (n > KVB_SHADOW_TOKENS)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++) {
        seq[i] = tokens[i].seq;
        tok[i] = tokens[i].id;
    }
    if (!kvb_cache_length(s->runner.cache, seq[0]))
        distance = tokens[0].pos;
    const int error = kvb_runner_step(&s->runner, KVB_EVENT_STEP, seq, tok, n);
    return error || !distance
               ? error
               : KVB_RUNNER_DO(&s->runner, SEQ_ADD, .src = seq[0], .p1 = KVB_TRACE_POS_END, .delta = distance);
}

static const float *engine_logits(void *session_, uint32_t i)
{
    session *s = session_;
    return s->runner.logits + (size_t)i * s->weights->config.vocab;
}

/* Makes a control call. What a cache rejects with -EINVAL changes nothing: the engine refuses it. */
static int control(void *session_, kvb_engine_call call)
{
    session *s = session_;
    const kvb_event event = kvb_engine_control_event(&call);
    const int error = kvb_runner_control(&s->runner, &event);
    return error == -EINVAL ? -ENOTSUP : error;
}

static int engine_copy(void *session_, uint32_t from, uint32_t to, int32_t p0, int32_t p1)
{
    return control(session_, (kvb_engine_call){.verb = KVB_ENGINE_COPY, .seq = from, .to = to, .p0 = p0, .p1 = p1});
}

static int engine_remove(void *session_, uint32_t seq, int32_t p0, int32_t p1)
{
    const kvb_engine_call call = {.verb = KVB_ENGINE_REMOVE, .seq = seq, .p0 = p0, .p1 = p1};
    return p0 >= p1 ? 0 : control(session_, call);
}

static int engine_keep(void *session_, uint32_t seq)
{
    return control(session_, (kvb_engine_call){.verb = KVB_ENGINE_KEEP, .seq = seq});
}

static int engine_shift(void *session_, uint32_t seq, int32_t p0, int32_t p1, int32_t delta)
{
    return control(session_,
                   (kvb_engine_call){.verb = KVB_ENGINE_SHIFT, .seq = seq, .p0 = p0, .p1 = p1, .delta = delta});
}

static int engine_save(void *session_, uint32_t seq)
{
    return control(session_, (kvb_engine_call){.verb = KVB_ENGINE_SAVE, .seq = seq});
}

static int engine_load(void *session_, uint32_t seq)
{
    const int error = seq == KVB_ENGINE_ALL ? 0 : engine_remove(session_, seq, 0, KVB_ENGINE_END);
    return error ? error : control(session_, (kvb_engine_call){.verb = KVB_ENGINE_LOAD, .seq = seq});
}

static void engine_span(void *session_, uint32_t seq, int32_t *first, int32_t *last)
{
    session *s = session_;
    const uint32_t length = kvb_cache_length(s->runner.cache, seq);
    *last = (int32_t)length - 1;
    *first = length ? KVB_ENGINE_UNKNOWN : -1;
}

const kvb_engine kvb_engine_live = {
    .abi = KVB_ENGINE_ABI,
    .name = "live",
    .summary = "this program's live runner, over its own caches",
    .limits =
        "nothing is saved between a shift and a decode; what layers with a state or a window cannot do is refused",
    .open = engine_open,
    .close = engine_close,
    .clear = engine_clear,
    .decode = engine_decode,
    .logits = engine_logits,
    .copy = engine_copy,
    .remove = engine_remove,
    .keep = engine_keep,
    .shift = engine_shift,
    .save = engine_save,
    .load = engine_load,
    .span = engine_span,
};
