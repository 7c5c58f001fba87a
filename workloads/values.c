/* SPDX-License-Identifier: Apache-2.0 */
/* All rows of a trace in memory: recorded tensors, or a profile's rows made once. */
#include "workloads/values.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/scan.h"
#include "workloads/files.h"
#include "workloads/safetensors.h"

const char *kvb_rows_name(kvb_rows kind)
{
    static const char *const names[KVB_ROWS_KINDS] = {"q", "k", "v", "gate", "beta", "x"};
    return names[kind];
}

uint32_t kvb_rows_heads(const kvb_group *g, kvb_rows kind)
{
    const uint32_t attends[KVB_ROWS_KINDS] = {g->heads, g->kv_heads, g->kv_heads};
    const uint32_t scans[KVB_ROWS_KINDS] = {g->scan.groups, g->scan.groups, g->scan.heads,
                                            g->scan.heads,  g->scan.heads,  1};
    return kvb_group_scans(g) ? scans[kind] : attends[kind];
}

uint32_t kvb_rows_dim(const kvb_group *g, kvb_rows kind)
{
    const kvb_group_scan *s = &g->scan;
    const bool mamba = s->kind == KVB_SCAN_MAMBA1 || s->kind == KVB_SCAN_MAMBA2, delta = s->kind == KVB_SCAN_DELTA;
    const uint32_t attends[KVB_ROWS_KINDS] = {g->k_dim, g->k_dim, g->latent ? 0 : g->v_dim};
    const uint32_t scans[KVB_ROWS_KINDS] = {
        s->d_k, s->d_k, s->d_v, s->kind == KVB_SCAN_MAMBA1 ? s->d_v : mamba || delta, delta, s->conv_channels};
    return kvb_group_scans(g) ? scans[kind] : attends[kind];
}

size_t kvb_values_floats(const kvb_group *group, kvb_rows kind)
{
    return (size_t)kvb_rows_heads(group, kind) * kvb_rows_dim(group, kind);
}

const char *kvb_constant_name(kvb_constant constant)
{
    static const char *const names[KVB_CONSTANTS] = {"a", "taps", "bias"};
    return names[constant];
}

uint32_t kvb_constant_shape(const kvb_group *g, kvb_constant constant, uint64_t shape[3])
{
    const kvb_group_scan *s = &g->scan;
    const bool has = constant == KVB_CONSTANT_A ? s->kind != KVB_SCAN_DELTA : s->conv_width > 0;
    const bool each = constant == KVB_CONSTANT_A && s->kind == KVB_SCAN_MAMBA1;
    shape[0] = constant == KVB_CONSTANT_A ? s->heads : constant == KVB_CONSTANT_TAPS ? s->conv_width : s->conv_channels;
    shape[1] = each ? s->d_k : constant == KVB_CONSTANT_TAPS ? s->conv_channels : 1;
    shape[2] = each ? s->d_v : 1;
    return !kvb_group_scans(g) || !has ? 0 : each ? 3 : constant == KVB_CONSTANT_TAPS ? 2 : 1;
}

/* The rows of one token. */
static float *rows_at(const kvb_values *v, kvb_rows kind, uint32_t layer, uint64_t token)
{
    return v->block[kind] + v->layer_at[kind][layer] +
           token * kvb_values_floats(kvb_model_group(v->model, layer), kind);
}

const float *kvb_values_rows(const kvb_values *v, kvb_rows kind, uint32_t layer, uint64_t token)
{
    assert(layer < v->model->n_layers && token < v->tokens);
    return kvb_values_floats(kvb_model_group(v->model, layer), kind) ? rows_at(v, kind, layer, token) : NULL;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Lays out one kind's block. *token_floats: floats of a token in all layers. */
static int layers_lay(kvb_values *v, kvb_rows kind, size_t *token_floats, char *why, size_t why_bytes)
{
    size_t floats = 0;
    v->layer_at[kind] = calloc(v->model->n_layers, sizeof *v->layer_at[kind]);
    if (!v->layer_at[kind])
        return kvb_why_set(-ENOMEM, why, why_bytes, "values: no memory");
    *token_floats = 0;
    for (uint32_t layer = 0; layer < v->model->n_layers; layer++) {
        size_t row = kvb_values_floats(kvb_model_group(v->model, layer), kind), rows;
        v->layer_at[kind][layer] = floats;
        *token_floats += row;
        if (__builtin_mul_overflow(row, v->tokens, &rows) || __builtin_add_overflow(floats, rows, &floats))
            return kvb_why_set(-ENOMEM, why, why_bytes, "values: sizes overflow");
    }
    if (__builtin_mul_overflow(floats ? floats : 1, sizeof(float), &v->block_bytes[kind]))
        return kvb_why_set(-ENOMEM, why, why_bytes, "values: sizes overflow");
    return 0;
}

/* Maps zero pages for each kind, so that rows that are not written cost nothing. `queries` tokens have q rows. */
static int blocks_map(kvb_values *v, uint64_t queries, char *why, size_t why_bytes)
{
    double touched = 0, memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    for (unsigned kind = 0; kind < KVB_ROWS_KINDS; kind++) {
        size_t token_floats = 0;
        int err = layers_lay(v, (kvb_rows)kind, &token_floats, why, why_bytes);
        if (err)
            return err;
        touched += (double)token_floats * sizeof(float) * (double)(kind == KVB_ROWS_Q ? queries : v->tokens);
    }
    if (touched > memory)
        return kvb_why_set(-ENOMEM, why, why_bytes, "values need %.1f GB, this machine has %.1f GB", touched / 1e9,
                           memory / 1e9);
    for (unsigned kind = 0; kind < KVB_ROWS_KINDS; kind++) {
        void *map = mmap(NULL, v->block_bytes[kind], PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED)
            return kvb_why_set(-ENOMEM, why, why_bytes, "values need %.1f GB: %s", (double)v->block_bytes[kind] / 1e9,
                               strerror(errno));
        v->block[kind] = map; /* aligned to a page */
    }
    return 0;
}

/* Makes the layers' constants from the seed; recorded values are then written over them. */
static int constants_make(kvb_values *v, uint64_t seed, char *why, size_t why_bytes)
{
    for (unsigned c = 0; c < KVB_CONSTANTS; c++) {
        v->constant[c] = calloc(v->model->n_layers, sizeof *v->constant[c]);
        for (uint32_t layer = 0; layer < v->model->n_layers; layer++) {
            uint64_t shape[3];
            if (v->constant[c] && !kvb_constant_shape(kvb_model_group(v->model, layer), (kvb_constant)c, shape))
                continue;
            if (v->constant[c])
                v->constant[c][layer] = malloc(shape[0] * shape[1] * shape[2] * sizeof(float));
            if (!v->constant[c] || !v->constant[c][layer])
                return kvb_why_set(-ENOMEM, why, why_bytes, "values: no memory");
            kvb_scan_constant_make(v->model, seed, (kvb_constant)c, layer, v->constant[c][layer]);
        }
    }
    return 0;
}

/* ---- recorded ------------------------------------------------------------------------------------------ */

static int recorded_read(kvb_values *v, const char *path, char *why, size_t why_bytes)
{
    kvb_safetensors *file = NULL;
    int err = kvb_safetensors_open(path, &file, why, why_bytes);
    for (uint32_t layer = 0; layer < v->model->n_layers && !err; layer++) {
        const kvb_group *group = kvb_model_group(v->model, layer);
        for (unsigned kind = 0; kind < KVB_ROWS_KINDS && !err; kind++) {
            char name[24];
            if (kvb_values_floats(group, (kvb_rows)kind) == 0)
                continue;
            snprintf(name, sizeof name, "%s.%u", kvb_rows_name((kvb_rows)kind), layer);
            uint64_t shape[3] = {v->tokens, kvb_rows_heads(group, (kvb_rows)kind), kvb_rows_dim(group, (kvb_rows)kind)};
            err = kvb_safetensors_read_f32(file, name, shape, 3, rows_at(v, (kvb_rows)kind, layer, 0), why, why_bytes);
        }
        for (unsigned c = 0; c < KVB_CONSTANTS && !err; c++) {
            char name[24];
            uint64_t shape[3];
            uint32_t dims = kvb_constant_shape(group, (kvb_constant)c, shape);
            snprintf(name, sizeof name, "%s.%u", kvb_constant_name((kvb_constant)c), layer);
            if (dims)
                err = kvb_safetensors_read_f32(file, name, shape, dims, v->constant[c][layer], why, why_bytes);
        }
        if (!err && kvb_group_scans(group))
            err = kvb_scan_values_check(v, layer, path, why, why_bytes);
    }
    kvb_safetensors_close(file);
    return err;
}

/* ---- seeded -------------------------------------------------------------------------------------------- */

/* A task is this many tokens of one event in one layer. */
#define TASK_TOKENS 256u

typedef struct generation {
    const kvb_trace *trace;
    const kvb_profile *profile;
    uint64_t seed;
    kvb_values *values;
} generation;

static void tokens_make(const generation *g, const kvb_event *e, uint32_t layer, uint32_t begin, uint32_t end)
{
    const kvb_model *model = g->values->model;
    const bool scans = kvb_group_scans(kvb_model_group(model, layer));
    if (scans && g->profile->needs == KVB_PROFILE_TAGS) /* tags are no numbers to scan */
        return;
    for (uint32_t i = begin; i < end; i++) {
        const uint64_t token = g->trace->like ? g->trace->like[e->first + i] : e->first + i;
        for (unsigned kind = e->kind == KVB_EVENT_FILL ? KVB_ROWS_K : KVB_ROWS_Q; kind < KVB_ROWS_KINDS; kind++) {
            float *rows = rows_at(g->values, (kvb_rows)kind, layer, e->first + i);
            if (!kvb_values_floats(kvb_model_group(model, layer), (kvb_rows)kind))
                continue;
            if (scans)
                kvb_scan_rows_make(model, g->seed, (kvb_rows)kind, layer, token, rows);
            else
                kvb_profile_rows(g->profile, model, g->seed, (kvb_rows)kind, layer, token, e->pos[i], rows);
        }
    }
}

/* Makes every n-th task, from number `part` on. */
static void part_make(void *ctx, uint32_t part, uint32_t n)
{
    const generation *g = ctx;
    uint64_t task = 0;
    for (size_t e = 0; e < g->trace->n_events; e++) {
        const kvb_event *event = &g->trace->events[e];
        if (event->kind > KVB_EVENT_PROPOSE) /* brings no tokens */
            continue;
        for (uint32_t begin = 0; begin < event->n; begin += TASK_TOKENS) {
            uint32_t end = event->n - begin < TASK_TOKENS ? event->n : begin + TASK_TOKENS;
            for (uint32_t layer = 0; layer < g->values->model->n_layers; layer++, task++)
                if (task % n == part)
                    tokens_make(g, event, layer, begin, end);
        }
    }
}

/* The profile of that name, if it supports this trace. */
static int profile_admit(const kvb_trace *trace, const char *name, const kvb_profile **profile, char *why,
                         size_t why_bytes)
{
    const kvb_model *model = &trace->header.model;
    int err = kvb_profile_choose(name, profile, why, why_bytes);
    err = err ? err : kvb_profile_supports(*profile, model, why, why_bytes);
    if (err)
        return err;
    const uint64_t most =
        (*profile)->needs == KVB_PROFILE_TAGS ? UINT64_C(1) << kvb_tag_of(model).token_bits : UINT64_MAX;
    if (trace->needs.tokens > most)
        return kvb_why_set(
            -ENOTSUP, why, why_bytes,
            "profile tags has bits for %llu tokens beside the model's layers and heads, the trace has %llu",
            (unsigned long long)most, (unsigned long long)trace->needs.tokens);
    return 0;
}

/* ---- open and free ------------------------------------------------------------------------------------- */

int kvb_values_open(const kvb_trace *trace, const char *profile, uint64_t seed,
                    void (*parallel)(void *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx),
                    void *team, kvb_values **values, char *why, size_t why_bytes)
{
    *values = NULL;
    const kvb_trace_header *header = &trace->header;
    generation g = {.trace = trace, .seed = seed ? seed : header->seed};
    bool recorded = !profile && header->tensors;
    int err = 0;
    if (!recorded)
        err = profile_admit(trace, profile ? profile : header->profile, &g.profile, why, why_bytes);
    if (err)
        return err;
    kvb_values *v = calloc(1, sizeof *v);
    if (!v)
        return kvb_why_set(-ENOMEM, why, why_bytes, "values: no memory");
    v->tokens = trace->needs.tokens;
    v->model = &header->model;
    v->profile = recorded ? "recorded" : g.profile->name;
    err = blocks_map(v, trace->needs.queries, why, why_bytes);
    if (!err)
        err = constants_make(v, g.seed, why, why_bytes);
    if (err)
        goto out;
    if (recorded) {
        err = recorded_read(v, header->tensors, why, why_bytes);
    } else {
        g.values = v;
        if (parallel)
            parallel(team, part_make, &g);
        else
            part_make(&g, 0, 1);
    }
out:
    if (err)
        kvb_values_free(v);
    else
        *values = v;
    return err;
}

void kvb_values_free(kvb_values *values)
{
    if (!values)
        return;
    for (unsigned kind = 0; kind < KVB_ROWS_KINDS; kind++) {
        if (values->block[kind])
            munmap(values->block[kind], values->block_bytes[kind]);
        free(values->layer_at[kind]);
    }
    for (unsigned c = 0; c < KVB_CONSTANTS; c++) {
        for (uint32_t layer = 0; values->constant[c] && layer < values->model->n_layers; layer++)
            free(values->constant[c][layer]);
        free(values->constant[c]);
    }
    free(values);
}
