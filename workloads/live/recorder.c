/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/live/recorder.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/files.h"
#include "workloads/live/live.h"
#include "workloads/rng.h"
#include "workloads/safetensors.h"

size_t kvb_recorder_floats(const kvb_recorder *r, uint32_t layer, int kind)
{
    const kvb_group *g = kvb_model_group(&r->model, layer);
    if (kind < KVB_ROWS_KINDS)
        return kvb_values_floats(g, (kvb_rows)kind);
    return r->has_outputs && !kvb_group_scans(g) ? (size_t)g->heads * g->v_dim : 0;
}

int kvb_recorder_open(kvb_recorder *r, const kvb_model *model)
{
    *r = (kvb_recorder){.model = *model};
    for (int kind = 0; kind < KVB_RECORDER_ROWS; kind++)
        r->rows[kind] = kvb_arena_take(&r->arena, model->n_layers + 1u, sizeof *r->rows[kind]);
    for (int c = 0; c < KVB_CONSTANTS; c++)
        r->constant[c] = kvb_arena_take(&r->arena, model->n_layers + 1u, sizeof *r->constant[c]);
    if (!r->arena.failed)
        return 0;
    kvb_recorder_close(r);
    return -ENOMEM;
}

void kvb_recorder_close(kvb_recorder *r)
{
    for (size_t i = 0; i < r->n_events; i++)
        kvb_event_clear(&r->events[i]);
    free(r->events);
    for (int kind = 0; kind < KVB_RECORDER_ROWS; kind++)
        for (uint32_t layer = 0; r->rows[kind] && layer < r->model.n_layers; layer++)
            free(r->rows[kind][layer]);
    kvb_arena_free(&r->arena);
    *r = (kvb_recorder){0};
}

/* Makes room for rows of n tokens in every layer. */
static int reserve_tokens(kvb_recorder *r, uint64_t n)
{
    size_t grown = r->max_tokens;
    for (int kind = 0; kind < KVB_RECORDER_ROWS; kind++)
        for (uint32_t layer = 0; layer < r->model.n_layers; layer++) {
            const size_t row = kvb_recorder_floats(r, layer, kind);
            size_t room = r->max_tokens;
            if (row && kvb_array_reserve(&r->rows[kind][layer], &room, n, row * sizeof(float)))
                return -ENOMEM;
            grown = row ? room : grown;
        }
    r->max_tokens = grown;
    return 0;
}

int kvb_recorder_event(kvb_recorder *r, const kvb_event *event)
{
    const uint32_t tokens = event->kind <= KVB_EVENT_PROPOSE ? event->n : 0;
    if (kvb_array_reserve(&r->events, &r->max_events, r->n_events + 1, sizeof *r->events) ||
        reserve_tokens(r, r->n_tokens + tokens) || kvb_event_copy(&r->events[r->n_events], event))
        return -ENOMEM;
    r->events[r->n_events++].first = r->n_tokens;
    r->n_tokens += tokens;
    return 0;
}

void kvb_recorder_rows(kvb_recorder *r, uint32_t layer, const uint64_t *ordinals, uint32_t n, uint32_t n_new,
                       const float *const from[KVB_ROWS_KINDS])
{
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++) {
        size_t row = kvb_recorder_floats(r, layer, kind);
        for (uint32_t i = n - n_new; row && from[kind] && i < n; i++) {
            assert(ordinals[i] < r->n_tokens);
            memcpy(r->rows[kind][layer] + ordinals[i] * row, from[kind] + i * row, row * sizeof(float));
        }
    }
}

#define LAYER_TENSORS (KVB_RECORDER_ROWS + KVB_CONSTANTS)

/* Tensor number i of a layer, if the layer has it. */
static bool tensor_of(const kvb_recorder *r, uint32_t layer, int i, char name[16], kvb_tensor *t)
{
    const kvb_group *g = kvb_model_group(&r->model, layer);
    const int c = i - KVB_RECORDER_ROWS;
    *t = (kvb_tensor){.name = name, .dtype = KVB_DTYPE_F32, .n_dims = 3};
    if (c < 0) {
        const bool out = i == KVB_ROWS_KINDS;
        const uint64_t shape[] = {r->n_tokens, out ? g->heads : kvb_rows_heads(g, (kvb_rows)i),
                                  out ? g->v_dim : kvb_rows_dim(g, (kvb_rows)i)};
        memcpy(t->dims, shape, sizeof shape);
        t->data = r->rows[i][layer];
    } else {
        t->n_dims = kvb_constant_shape(g, (kvb_constant)c, t->dims);
        t->data = r->constant[c][layer];
    }
    snprintf(name, 16, "%s.%u",
             c >= 0                ? kvb_constant_name((kvb_constant)c)
             : i == KVB_ROWS_KINDS ? "out"
                                   : kvb_rows_name((kvb_rows)i),
             layer);
    return t->data && t->n_dims && !kvb_tensor_shape(t, false);
}

static int save_tensors(const kvb_recorder *r, const char *path, const char *source, char *why, size_t why_bytes)
{
    uint32_t layers = r->model.n_layers, n = 0;
    kvb_tensor *tensors = calloc(LAYER_TENSORS * (size_t)layers, sizeof *tensors);
    char(*names)[16] = calloc(LAYER_TENSORS * (size_t)layers, sizeof *names);
    int err = tensors && names ? 0 : kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory for its header", path);
    for (uint32_t layer = 0; layer < layers && !err; layer++)
        for (int i = 0; i < LAYER_TENSORS; i++)
            n += tensor_of(r, layer, i, names[n], &tensors[n]);
    const char *metadata[] = {"source", source, NULL};
    err = err ? err : kvb_safetensors_write(path, tensors, n, metadata, why, why_bytes);
    free(names);
    free(tensors);
    return err;
}

/* Writes directory/NAME.jsonl, a header and the events. with_tok: with the vocabulary ids. */
static int save_events(const kvb_recorder *r, const char *directory, const kvb_trace_header *header, bool with_tok,
                       char *why, size_t why_bytes)
{
    char *path;
    if (asprintf(&path, "%s/%s.jsonl", directory, header->name) < 0)
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory");
    kvb_output_file file;
    int err = kvb_trace_create(path, header, &file, why, why_bytes);
    free(path);
    for (size_t i = 0; !err && i < r->n_events; i++) {
        kvb_event e = r->events[i];
        if (!with_tok)
            e.tok = NULL;
        kvb_event_print(file.stream, &e);
    }
    return err ? err : kvb_output_file_close(&file, true, why, why_bytes);
}

/* A string for a header that only borrows it; the members are not const because a reader owns its header's. */
static char *borrow(const char *s)
{
    return (char *)(uintptr_t)s;
}

int kvb_recorder_save(const kvb_recorder *r, const char *directory, const kvb_trace_header *said, char *why,
                      size_t why_bytes)
{
    kvb_trace_header header = *said;
    header.model = r->model;
    if (asprintf(&header.tensors, "%s/%s.safetensors", directory, said->name) < 0)
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory");
    int err = save_tensors(r, header.tensors, said->source, why, why_bytes);
    if (!err)
        err = save_events(r, directory, &header, true, why, why_bytes);
    free(header.tensors);
    return err;
}

/* ---- from a scenario to the workload files that ship --------------------------------------------------------------- */

/* Heads and dims of Llama 3 8B, one layer: the cost of a layer's attention does not depend on their number. */
static const kvb_model llama = {
    .n_layers = 1,
    .n_groups = 1,
    .groups =
        {{.heads = 32, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .scale = 0.08838834764831845 /* 1/sqrt(128) */}},
};
const kvb_group kvb_live_rank = {.heads = 8, .kv_heads = 2, .k_dim = 128, .v_dim = 128, .scale = 0.08838834764831845};
static const kvb_rope llama_rope = {.known = true, .base = 500000, .dims = 128};

#define TWIN_SINKS 0x73696e6b73u /* stream of the twin's sink logits: "sinks" */
#define MOST_KINDS 2u            /* of layers: with limits and without */

enum { LONG_FILL = 32768, LONG_DECODE = 17 }; /* the last cell begins a page of 16 */

/* Heads, dims and scale of twin 0 or 1. NULL: there is no such twin. */
static const kvb_group *twin_attends(const kvb_scenario *scenario, unsigned twin)
{
    const kvb_group *first = scenario->real ? scenario->real : llama.groups;
    return twin == 0 ? first : twin == 1 ? scenario->small : NULL;
}

/* The realistic geometry: one layer of each kind that the scenario has. Makes sink logits in `sinks` if its model has
 * them. */
static void realistic_make(const kvb_scenario *scenario, const kvb_group *attends, uint64_t seed,
                           float sinks[MOST_KINDS][KVB_MODEL_WIDTH], kvb_model *model)
{
    kvb_scenario two = *scenario;
    two.full_every = scenario->full_every ? MOST_KINDS : 0;
    kvb_model_config config;
    kvb_scenario_config(scenario, &config);
    const bool both = scenario->full_every || (config.scan.heads && config.attend_every);
    kvb_model_config few = {.layers = both ? MOST_KINDS : 1, .scan = config.scan};
    few.attend_every = config.attend_every ? MOST_KINDS : 0;
    kvb_live_model(&two, &(kvb_weights){.config = few}, model);
    for (uint32_t g = 0; g < model->n_groups; g++) {
        if (kvb_group_scans(&model->groups[g])) {
            model->groups[g].scan = *scenario->real_scan;
            continue;
        }
        kvb_group *group = &model->groups[g], limits = *group;
        *group = *attends;
        group->rope = (scenario->needs & KVB_CACHE_SHIFT) ? llama_rope : (kvb_rope){.known = false};
        group->window = limits.window;
        group->sinks = limits.sinks;
        group->chunk = limits.chunk;
        for (uint32_t h = 0; config.sink_logits && h < group->heads; h++)
            sinks[g][h] = kvb_live_normal(seed, TWIN_SINKS + g, h);
        group->sink_logits = config.sink_logits ? sinks[g] : NULL;
    }
}

/* The model of options->twin: its layers, with the usual scale, and with rope if the scenario moves positions. */
static void twin_make(const kvb_model *layers, bool moves, kvb_model *model)
{
    *model = *layers;
    for (uint32_t g = 0; g < model->n_groups; g++) {
        kvb_group *group = &model->groups[g];
        const uint32_t first = group->latent ? group->v_dim : 0;
        if (kvb_group_scans(group))
            continue;
        group->scale = 1 / sqrt(group->k_dim);
        group->rope = llama_rope;
        group->rope.first = first;
        group->rope.dims = (group->k_dim - first) / 2 * 2;
        group->rope.known = moves;
    }
}

bool kvb_live_twin_suffix(const kvb_scenario *scenario, unsigned twin, char *suffix, size_t bytes)
{
    const kvb_group *attends = twin_attends(scenario, twin);
    const kvb_group_scan *scan = scenario->real_scan;
    if (attends && !scan)
        snprintf(suffix, bytes, "-%ux%u", attends->kv_heads, attends->k_dim);
    else if (attends)
        snprintf(suffix, bytes, "-%ux%ux%u", scan->heads, scan->d_k, scan->d_v);
    return attends;
}

/* The header of a trace with another model and seeded values. */
static kvb_trace_header seeded(const char *name, const char *source, const char *note, const kvb_model *model,
                               const kvb_live_options *options)
{
    return (kvb_trace_header){.name = borrow(name),
                              .source = borrow(source),
                              .note = borrow(note),
                              .model = *model,
                              .profile = borrow("llama"),
                              .seed = options->seed};
}

/* Writes the events with seeded values of another model, as NAME and the suffix. */
static int twin_save(const kvb_scenario *scenario, const kvb_recorder *recorder, const kvb_live_options *options,
                     const char *directory, const char *suffix, const kvb_model *model, char *why, size_t why_bytes)
{
    char name[192], source[256];
    snprintf(name, sizeof name, "%s%s", scenario->name, suffix);
    snprintf(source, sizeof source, "events of %s, seeded values", scenario->name);
    bool with_tok = false; /* only prompts that a cache may find need ids */
    for (size_t i = 0; i < recorder->n_events; i++)
        with_tok = with_tok || recorder->events[i].reuse;
    const kvb_trace_header twin = seeded(name, source, scenario->note, model, options);
    return save_events(recorder, directory, &twin, with_tok, why, why_bytes);
}

static int save(const kvb_scenario *scenario, const kvb_recorder *recorder, const kvb_live_options *options,
                const char *directory, char *why, size_t why_bytes)
{
    const kvb_trace_header header = {
        .name = borrow(scenario->name), .source = borrow(scenario->summary), .note = borrow(scenario->note)};
    int err = kvb_recorder_save(recorder, directory, &header, why, why_bytes);
    char suffix[96];
    kvb_model model;
    float sinks[MOST_KINDS][KVB_MODEL_WIDTH];
    for (unsigned i = 0; !err && !options->twin && kvb_live_twin_suffix(scenario, i, suffix, sizeof suffix); i++) {
        realistic_make(scenario, twin_attends(scenario, i), options->seed, sinks, &model);
        err = twin_save(scenario, recorder, options, directory, suffix, &model, why, why_bytes);
    }
    if (err || !options->twin)
        return err;
    snprintf(suffix, sizeof suffix, "-%s", options->twin_name);
    twin_make(options->twin, scenario->needs & KVB_CACHE_SHIFT, &model);
    return twin_save(scenario, recorder, options, directory, suffix, &model, why, why_bytes);
}

/* Compares the generated tokens with plain greedy decoding: 0, or -EPROTO if they differ. */
static int greedy_compare(const kvb_scenario *scenario, const kvb_live_options *recording, const kvb_live_outcome *said,
                          char *why, size_t why_bytes)
{
    kvb_live_options options = *recording;
    kvb_live_outcome greedy;
    options.recorder = NULL;
    options.n_greedy = (uint32_t)said->n;
    int err = kvb_live_play(scenario->greedy, &options, &greedy, why, why_bytes);
    for (size_t i = 0; i < said->n && !err; i++)
        if (i >= greedy.n || greedy.tokens[i] != said->tokens[i]) {
            snprintf(why, why_bytes, "%s: token %zu is another than greedy decoding says", scenario->name, i);
            err = -EPROTO;
        }
    kvb_live_outcome_free(&greedy);
    return err;
}

int kvb_live_record(const kvb_scenario *scenario, const kvb_live_options *options, const char *directory,
                    kvb_live_outcome *outcome, char *why, size_t why_bytes)
{
    *outcome = (kvb_live_outcome){0};
    kvb_live_options recording = *options;
    kvb_weights *seeded = NULL;
    int err = options->weights ? 0 : kvb_scenario_weights(scenario, options->seed, &seeded, why, why_bytes);
    if (err)
        return err;
    if (seeded)
        recording.weights = seeded;
    kvb_model model;
    kvb_live_model(scenario, recording.weights, &model);
    kvb_recorder recorder;
    err = kvb_recorder_open(&recorder, &model);
    if (err)
        snprintf(why, why_bytes, "%s: no memory for the recorder", scenario->name);
    recording.recorder = &recorder;
    if (!err)
        err = kvb_live_play(scenario, &recording, outcome, why, why_bytes);
    if (!err && scenario->greedy)
        err = greedy_compare(scenario, &recording, outcome, why, why_bytes);
    if (!err)
        err = save(scenario, &recorder, options, directory, why, why_bytes);
    kvb_recorder_close(&recorder);
    kvb_weights_close(seeded);
    return err;
}

static int long_decode_write(const kvb_live_options *options, const char *name, const kvb_model *model,
                             const char *directory, char *why, size_t why_bytes)
{
    kvb_recorder recorder;
    const kvb_trace_header header =
        seeded(name, "synthetic: one sequence, 32768 cells filled, 17 decode steps", NULL, model, options);
    int err = kvb_recorder_open(&recorder, &(kvb_model){.n_layers = 0});
    uint32_t *pos = calloc(LONG_FILL, sizeof *pos), *seq = calloc(LONG_FILL, sizeof *seq);
    if (err || !pos || !seq) {
        err = -ENOMEM;
        snprintf(why, why_bytes, "%s: no memory", KVB_LONG_DECODE);
        goto out;
    }
    for (uint32_t i = 0; i < LONG_FILL; i++)
        pos[i] = i;
    err = kvb_recorder_event(&recorder, &(kvb_event){.kind = KVB_EVENT_FILL, .n = LONG_FILL, .pos = pos, .seq = seq});
    for (uint32_t i = 0; !err && i < LONG_DECODE; i++) {
        uint32_t at = LONG_FILL + i;
        err = kvb_recorder_event(&recorder, &(kvb_event){.kind = KVB_EVENT_STEP, .n = 1, .pos = &at, .seq = seq});
    }
    if (err)
        snprintf(why, why_bytes, "%s: no memory", KVB_LONG_DECODE);
    else
        err = save_events(&recorder, directory, &header, false, why, why_bytes);
out:
    free(pos);
    free(seq);
    kvb_recorder_close(&recorder);
    return err;
}

int kvb_live_write_long_decode(const kvb_live_options *options, const char *directory, char *why, size_t why_bytes)
{
    kvb_model model = llama;
    char name[192];
    if (options->twin) {
        snprintf(name, sizeof name, KVB_LONG_DECODE "-%s", options->twin_name);
        twin_make(options->twin, false, &model);
        return long_decode_write(options, name, &model, directory, why, why_bytes);
    }
    int err = long_decode_write(options, KVB_LONG_DECODE, &model, directory, why, why_bytes);
    model.groups[0] = kvb_live_rank;
    return err ? err : long_decode_write(options, KVB_LONG_DECODE_RANK, &model, directory, why, why_bytes);
}
