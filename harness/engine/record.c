/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records inputs and outputs of llama.cpp's attention. The evaluation callback gets the nodes of a decode, for each
 * layer in this order: SET_ROWS writes the new rows to cache_k_lN and cache_v_lN; then FLASH_ATTN_EXT, or MUL_MAT of K
 * and q, SOFT_MAX, MUL_MAT of V and weights. A first decode of one token finds the layers that attend and their shapes.
 */
#include "harness/engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/replay/child.h"
#include "workloads/live/recorder.h"

#define MOST_LAYERS 16u /* sampled layers */
#define MOST_HEADS  64u /* sampled KV heads */
#define OUT         KVB_ROWS_KINDS

/* A layer that attends. */
typedef struct source {
    uint32_t layer, k_dim, v_dim, heads, kv_heads; /* as in the model */
    bool has_v, windowed;
    float scale, softcap, *sinks;      /* sinks: [heads taken]; NULL: none */
    uint32_t taken[KVB_RECORDER_ROWS]; /* rows of each kind that this decode has shown so far */
} source;

typedef struct taker {
    kvb_engine_recording *ask;
    kvb_engine_facts facts;
    source *at;                       /* [n] sampled layers; first decode: all that attend, up to KVB_MODEL_LAYERS */
    uint32_t n, kv[MOST_HEADS], n_kv; /* kv: [n_kv] sampled KV heads */
    kvb_recorder recorder;
    bool first;                              /* the first decode is under way */
    uint64_t base;                           /* identity of the decode's first token */
    uint32_t n_tok, sees[KVB_SHADOW_TOKENS]; /* tokens of the decode; how many cells each sees without a window */
    kvb_engine_token tokens[KVB_SHADOW_TOKENS];
    kvb_engine_step step; /* arrays of the decode's event */
} taker;

__attribute__((format(printf, 3, 4))) static int fail(taker *x, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!x->ask->error)
        vsnprintf(x->ask->why, sizeof x->ask->why, format, args);
    va_end(args);
    x->ask->error = x->ask->error ? x->ask->error : error;
    return x->ask->error;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

typedef enum part { PART_NONE, PART_K, PART_V, PART_SCORES, PART_WEIGHTS, PART_SUMS, PART_FLASH } part;

/* Is the tensor a layer's cache of K ('k') or V ('v'), or a view of it? */
static bool is_cache(const kvb_llama_tensor *t, char side, uint32_t *layer)
{
    char found;
    return t && sscanf(t->name, "cache_%c_l%u", &found, layer) == 2 && found == side;
}

static part part_of(const kvb_llama_tensor *t, uint32_t *layer)
{
    const char *op = kvb_llama_operation(t);
    const kvb_llama_tensor *a = t->src[0], *b = t->src[1];
    if (!strcmp(op, "SET_ROWS"))
        return is_cache(t, 'k', layer) ? PART_K : is_cache(t, 'v', layer) ? PART_V : PART_NONE;
    if (!strcmp(op, "FLASH_ATTN_EXT"))
        return is_cache(b, 'k', layer) ? PART_FLASH : PART_NONE;
    if (!strcmp(op, "SOFT_MAX"))
        return is_cache(a->src[0], 'k', layer) ? PART_WEIGHTS : PART_NONE;
    if (strcmp(op, "MUL_MAT") != 0)
        return PART_NONE;
    if (!strcmp(kvb_llama_operation(b), "SOFT_MAX") && is_cache(b->src[0]->src[0], 'k', layer))
        return PART_SUMS;
    return is_cache(a, 'k', layer) ? PART_SCORES : PART_NONE;
}

/* Axes of a tensor of rows, fastest first: (d, token, head); (d, head, token); or all elements one after the other. */
typedef enum order { BY_TOKEN, BY_HEAD, FLAT } order;

static void rows_take(taker *x, source *s, int kind, const kvb_llama_tensor *t, order by, uint32_t dim)
{
    const uint32_t group = s->heads / s->kv_heads, own = kind == KVB_ROWS_K || kind == KVB_ROWS_V ? 1 : group,
                   all = own * s->kv_heads, layer = (uint32_t)(s - x->at);
    const int64_t elements = t->ne[0] * t->ne[1] * t->ne[2], n = elements / all / dim;
    const size_t floats = kvb_recorder_floats(&x->recorder, layer, kind);
    if (!kvb_llama_is_plain(t) || t->ne[3] != 1 || n * all * dim != elements || s->taken[kind] + n > x->n_tok) {
        fail(x, -ENOTSUP, "layer %u: rows of another shape than expected: %s", s->layer, t->name);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        float *to = x->recorder.rows[kind][layer] + (x->base + s->taken[kind]++) * floats;
        for (uint32_t i = 0; i < x->n_kv * own; i++)
            for (uint32_t d = 0; d < dim; d++) {
                const int64_t h = (int64_t)x->kv[i / own] * own + i % own, flat = (j * all + h) * dim + d;
                *to++ = (float)(by == FLAT      ? kvb_llama_element(t, flat % t->ne[0], flat / t->ne[0], 0, 0)
                                : by == BY_HEAD ? kvb_llama_element(t, d, h, j, 0)
                                                : kvb_llama_element(t, d, j, h, 0));
            }
    }
}

/* Takes a layer's scale and sink logits. Notes whether its mask has a window. */
static void rule_take(taker *x, source *s, const kvb_llama_tensor *t, const kvb_llama_tensor *mask,
                      const kvb_llama_tensor *sinks)
{
    const uint32_t from = s->taken[OUT];
    s->scale = kvb_llama_parameter(t, 0);
    if (kvb_llama_parameter(t, 1) != 0)
        fail(x, -ENOTSUP, "layer %u adds a bias that grows with distance (ALiBi), which a trace does not have",
             s->layer);
    if (!kvb_llama_is_plain(mask) || (sinks && sinks->type != KVB_LLAMA_F32)) {
        fail(x, -ENOTSUP, "layer %u: a mask or sinks of an unexpected type", s->layer);
        return;
    }
    for (int64_t j = 0; j < mask->ne[1] && from + j < x->n_tok && !x->first; j++) {
        uint32_t shown = 0;
        for (int64_t c = 0; c < mask->ne[0]; c++)
            shown += kvb_llama_element(mask, c, j, 0, 0) == 0;
        s->windowed = s->windowed || (x->facts.window && shown < x->sees[from + j]);
    }
    if (!sinks || s->sinks || x->first)
        return;
    const uint32_t group = s->heads / s->kv_heads;
    s->sinks = malloc(x->n_kv * group * sizeof *s->sinks);
    for (uint32_t i = 0; s->sinks && i < x->n_kv * group; i++)
        s->sinks[i] = (float)kvb_llama_element(sinks, x->kv[i / group] * group + i % group, 0, 0, 0);
}

/* First decode: takes the shapes of a layer. */
static void shape_take(source *s, part p, const kvb_llama_tensor *t)
{
    const kvb_llama_tensor *q = p == PART_FLASH ? t->src[0] : t->src[1], *k = p == PART_FLASH ? t->src[1] : t->src[0];
    s->has_v = s->has_v || p == PART_V;
    if (p == PART_FLASH || p == PART_SCORES) {
        s->k_dim = (uint32_t)q->ne[0];
        s->heads = (uint32_t)q->ne[2];
        s->kv_heads = (uint32_t)k->ne[2];
    }
    if (p == PART_FLASH || p == PART_SUMS)
        s->v_dim = (uint32_t)t->ne[0];
}

static bool node_take(void *ctx, const kvb_llama_tensor *t, bool ask)
{
    taker *x = ctx;
    uint32_t layer, i = 0;
    if (!t)
        return !fail(x, -ENOTSUP, "%s: its tensors are not laid out as expected", x->facts.build);
    const part p = part_of(t, &layer);
    if (ask || p == PART_NONE)
        return p != PART_NONE;
    while (i < x->n && x->at[i].layer != layer)
        i++;
    if (i == x->n && (!x->first || x->n == KVB_MODEL_LAYERS))
        return true; /* the layer is not sampled */
    source *s = &x->at[i];
    if (i == x->n)
        x->at[x->n++] = (source){.layer = layer};
    if (x->first)
        shape_take(s, p, t);
    if (p == PART_FLASH) {
        s->softcap = kvb_llama_parameter(t, 2);
        rule_take(x, s, t, t->src[3], t->src[4]);
    }
    if (p == PART_WEIGHTS)
        rule_take(x, s, t, t->src[1], t->src[2]);
    if (x->first)
        return !x->ask->error;
    if (p == PART_K)
        rows_take(x, s, KVB_ROWS_K, t->src[0], FLAT, s->k_dim);
    if (p == PART_V)
        rows_take(x, s, KVB_ROWS_V, t->src[0], FLAT, s->v_dim);
    if (p == PART_SCORES || p == PART_FLASH)
        rows_take(x, s, KVB_ROWS_Q, t->src[p == PART_SCORES], BY_TOKEN, s->k_dim);
    if (p == PART_SUMS || p == PART_FLASH)
        rows_take(x, s, OUT, t, p == PART_SUMS ? BY_TOKEN : BY_HEAD, s->v_dim);
    return !x->ask->error;
}

/* ---- what is sampled --------------------------------------------------------------------------------------------- */

/* Reads a list "0,3" of ascending numbers below `of`. Returns how many; 0: not such a list. text NULL: the first, the
 * middle one if `middle`, the last. */
static uint32_t list_take(const char *text, uint32_t of, bool middle, uint32_t most, uint32_t *list)
{
    uint32_t n = 0;
    if (!text) {
        const uint32_t usual[] = {0, middle ? of / 2 : 0, of - 1};
        for (uint32_t i = 0; i < 3; i++)
            if (!n || usual[i] > list[n - 1])
                list[n++] = usual[i];
        return n;
    }
    for (const char *at = text; *at; n++) {
        char *end;
        const unsigned long number = strtoul(at, &end, 10);
        if (end == at || *at == '-' || number >= of || n == most || (n && number <= list[n - 1]) ||
            (*end && *end != ','))
            return 0;
        list[n] = (uint32_t)number;
        at = end + (*end == ',');
    }
    return n;
}

static int sample_take(taker *x)
{
    uint32_t layers[MOST_LAYERS], kv_heads = x->n ? x->at[0].kv_heads : 0, of = x->n;
    if (!x->n)
        return fail(x, -ENOTSUP, "%s: its evaluation callback shows no attention", x->facts.build);
    if (x->ask->layers) /* the user numbers all layers of the model, `at` only those that attend */
        of = x->at[x->n - 1].layer + 1;
    uint32_t n = list_take(x->ask->layers, of, true, MOST_LAYERS, layers), kept = 0;
    for (uint32_t i = 0, l = 0; i < x->n && l < n; i++)
        if ((x->ask->layers ? x->at[i].layer : i) == layers[l]) {
            x->at[kept++] = x->at[i];
            l++;
        }
    if (!n || kept < n)
        return fail(x, -EINVAL, "--layers: '%s': expected up to %u ascending numbers of layers that attend, of 0 to %u",
                    x->ask->layers, MOST_LAYERS, of - 1);
    x->n = kept;
    for (uint32_t i = 0; i < x->n; i++) {
        const source *s = &x->at[i];
        if (!s->k_dim || !s->v_dim || !s->kv_heads || s->heads % s->kv_heads)
            return fail(x, -ENOTSUP, "layer %u: its scores pass through more than a scale; try --flash on", s->layer);
        kv_heads = s->kv_heads < kv_heads ? s->kv_heads : kv_heads;
    }
    if (!(x->n_kv = list_take(x->ask->heads, kv_heads, false, MOST_HEADS, x->kv)))
        return fail(x, -EINVAL, "--heads: '%s': expected up to %u ascending numbers of KV heads, of 0 to %u",
                    x->ask->heads, MOST_HEADS, kv_heads - 1);
    return 0;
}

static void model_make(const taker *x, kvb_model *m)
{
    *m = (kvb_model){.n_layers = x->n};
    for (uint32_t i = 0; i < x->n; i++) {
        const source *s = &x->at[i];
        const kvb_group g = {.heads = x->n_kv * (s->heads / s->kv_heads),
                             .kv_heads = x->n_kv,
                             .k_dim = s->k_dim,
                             .v_dim = s->v_dim,
                             .latent = !s->has_v,
                             .scale = (double)s->scale,
                             .softcap = s->softcap,
                             .window = s->windowed ? x->facts.window : 0,
                             .sink_logits = s->sinks};
        uint8_t at = 0;
        for (; at < m->n_groups; at++) {
            const kvb_group *o = &m->groups[at];
            if (o->heads == g.heads && o->k_dim == g.k_dim && o->v_dim == g.v_dim && o->latent == g.latent &&
                o->scale == g.scale && o->softcap == g.softcap && o->window == g.window &&
                o->sink_logits == g.sink_logits)
                break;
        }
        m->groups[at] = g;
        m->group_of[i] = at;
        m->n_groups += at == m->n_groups;
    }
}

/* ---- the history ------------------------------------------------------------------------------------------------- */

static int event_add(taker *x, const kvb_event *e)
{
    return kvb_recorder_event(&x->recorder, e) ? fail(x, -ENOMEM, "no memory for the recording") : 0;
}

/* Decodes tokens that were applied to the shadow: of sequences first .. last - 1, one sequence after the other. */
static int decode(taker *x, void *session, const kvb_shadow *shadow, const kvb_engine_call *c, uint32_t first,
                  uint32_t last)
{
    kvb_engine_facts whole = x->facts;
    whole.window = 0;
    const kvb_event e = kvb_engine_step_event(shadow, c, first, last, &x->step);
    x->n_tok = e.n;
    for (uint32_t i = 0; i < e.n; i++) {
        x->sees[i] = kvb_shadow_sees(&shadow->seq[e.seq[i]], &whole, (int32_t)e.pos[i], NULL);
        x->tokens[i] = (kvb_engine_token){.seq = e.seq[i], .id = e.tok[i], .pos = (int32_t)e.pos[i]};
    }
    x->base = x->recorder.n_tokens;
    if (event_add(x, &e))
        return x->ask->error;
    for (uint32_t i = 0; i < x->n; i++)
        memset(x->at[i].taken, 0, sizeof x->at[i].taken);
    const int error = kvb_engine_llama.decode(session, x->tokens, x->n_tok);
    if (error)
        return fail(x, error, "the engine does not decode: %s", strerror(-error));
    for (uint32_t i = 0; i < x->n; i++)
        for (int kind = 0; kind < KVB_RECORDER_ROWS; kind++)
            if (kvb_recorder_floats(&x->recorder, i, kind) && x->at[i].taken[kind] != x->n_tok)
                return fail(x, -ENOTSUP, "%s: layer %u: its evaluation callback shows %u rows of %u", x->facts.build,
                            x->at[i].layer, x->at[i].taken[kind], x->n_tok);
    return 0;
}

/* Makes a call over engine and shadow, and records its event. before: room for a copy of the shadow. */
static int call_play(taker *x, void *session, kvb_shadow *shadow, kvb_shadow *before, const kvb_engine_call *c)
{
    const kvb_event e = kvb_engine_control_event(c);
    const char *why;
    const bool held = c->verb == KVB_ENGINE_LOAD && c->seq != KVB_ENGINE_ALL && shadow->seq[c->seq].n;
    *before = *shadow;
    int error = kvb_shadow_apply(shadow, &x->facts, c, &why);
    if (error)
        return fail(x, -EINVAL, "%s", error == -ENOSPC ? "the engine's cache has no room for the history" : why);
    if (c->verb == KVB_ENGINE_DECODE) {
        /* recurrent layers reorder tokens of several sequences: decode each apart */
        for (uint32_t s = 0; s < KVB_ENGINE_SEQS && x->facts.recurrent && !x->ask->error; s++)
            if (c->n[s])
                decode(x, session, shadow, c, s, s + 1);
        return x->facts.recurrent ? x->ask->error : decode(x, session, shadow, c, 0, KVB_ENGINE_SEQS);
    }
    /* in a trace, load needs an empty sequence */
    if (held && event_add(x, &(kvb_event){.kind = KVB_EVENT_SEQ_RM, .src = e.src, .p1 = KVB_TRACE_POS_END}))
        return x->ask->error;
    error = kvb_engine_control(&kvb_engine_llama, session, c);
    if (error == -ENOTSUP && x->facts.refuses >> c->verb & 1) { /* a refused call changes nothing */
        *shadow = *before;
        return 0;
    }
    return error ? fail(x, error, "the engine refuses a call: %s", strerror(-error)) : event_add(x, &e);
}

static void save(taker *x)
{
    const kvb_engine_recording *ask = x->ask;
    const kvb_engine_config *c = &ask->config;
    const bool f16 = c->flash || !strcmp(c->kv, "f16");
    char from[400], setup[200], history[300], heads[64] = "";
    for (uint32_t i = 0, n = 0; i < x->n && n < sizeof ask->layers_taken - 6; i++)
        n += (uint32_t)sprintf(x->ask->layers_taken + n, "%s%u", i ? "," : "", x->at[i].layer);
    for (uint32_t i = 0, n = 0; i < x->n_kv && n < sizeof heads - 6; i++)
        n += (uint32_t)sprintf(heads + n, "%s%u", i ? "," : "", x->kv[i]);
    kvb_engine_history_print(ask->history, history, sizeof history);
    snprintf(from, sizeof from, "%s, %.60s: %s", x->facts.build, ask->model, history);
    snprintf(setup, sizeof setup, "kv %s, flash attention %s, layers %s of %u, KV heads %s of %u", c->kv,
             c->flash ? "on" : "off", ask->layers_taken, x->facts.layers, heads, x->at[0].kv_heads);
    model_make(x, &x->recorder.model); /* now it is known which layers have windows */
    const kvb_trace_header header = {
        .name = (char *)(uintptr_t)ask->name,
        .source = from,
        .outputs = {.engine = x->facts.build,
                    .model = (char *)(uintptr_t)ask->model,
                    .setup = setup,
                    .rows = f16 ? "f16" : "f32",
                    .arithmetic = c->flash ? "ggml-flash"
                                  : f16    ? "ggml-f16"
                                           : "f32"},
    };
    char why[400];
    const int error = kvb_recorder_save(&x->recorder, ask->directory, &header, why, sizeof why);
    if (error)
        fail(x, -EINVAL, "%s", why);
}

static int play(taker *x, void *session)
{
    const kvb_engine_token token = {.seq = 0};
    kvb_shadow *shadow = calloc(2, sizeof *shadow);
    kvb_model model;
    x->first = true;
    int error = shadow ? kvb_engine_llama.decode(session, &token, 1) : -ENOMEM;
    x->first = false;
    error = error ? fail(x, error, "the engine does not decode: %s", strerror(-error)) : sample_take(x);
    if (!error) {
        model_make(x, &model);
        error = kvb_recorder_open(&x->recorder, &model) ? fail(x, -ENOMEM, "no memory for the recording") : 0;
        x->recorder.has_outputs = true;
        kvb_engine_llama.clear(session);
    }
    for (uint32_t i = 0; i < x->ask->history->n && !error; i++)
        error = call_play(x, session, shadow, shadow + 1, &x->ask->history->at[i]);
    free(shadow);
    return error;
}

static void record_run(void *ctx)
{
    taker *x = ctx;
    kvb_engine_recording *ask = x->ask;
    void *session = NULL;
    const int null = open("/dev/null", O_WRONLY); /* for messages of a dying engine */
    if (null >= 0)
        dup2(null, STDERR_FILENO);
    ask->config.watched = true;
    kvb_llama_show(node_take, x);
    x->at = calloc(KVB_MODEL_LAYERS, sizeof *x->at);
    ask->error = x->at ? kvb_engine_llama.open(&ask->config, &session, &x->facts, ask->why, sizeof ask->why) : -ENOMEM;
    if (!ask->error && !kvb_engine_history_check(ask->history, &x->facts, ask->why, sizeof ask->why)) {
        if (!play(x, session))
            save(x);
    } else if (!ask->error) {
        ask->error = -EINVAL;
    }
    for (uint32_t i = 0; i < x->n; i++)
        free(x->at[i].sinks);
    free(x->at);
    kvb_recorder_close(&x->recorder);
    kvb_engine_llama.close(session);
}

int kvb_engine_record(kvb_engine_recording *ask)
{
    taker *x = calloc(1, sizeof *x);
    if (!x)
        return -ENOMEM;
    x->ask = ask;
    for (uint32_t i = 0; i < ask->history->n; i++)
        if (ask->history->at[i].verb == KVB_ENGINE_SHIFT)
            fail(x, -EINVAL, "call %u moves positions, which is not recorded: the engine rounds the rows that it turns",
                 i + 1);
    const int error = ask->error ? 0 : kvb_apart(record_run, x, 0);
    free(x);
    if (error != -ECHILD)
        return error;
    ask->error = -ECHILD;
    snprintf(ask->why, sizeof ask->why, "the engine crashes or ends itself while it is recorded");
    return 0;
}
