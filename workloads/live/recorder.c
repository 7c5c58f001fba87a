/* SPDX-License-Identifier: Apache-2.0 */
/* Growing lists of events and rows, and their way into files. */
#include "workloads/live/recorder.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/safetensors.h"
#include "workloads/array.h"

static size_t row_floats(const kvb_recorder *r, uint32_t layer, int kind)
{
    return kvb_values_floats(kvb_model_group(&r->model, layer), (kvb_rows)kind);
}

int kvb_recorder_open(kvb_recorder *r, const kvb_model *model)
{
    *r = (kvb_recorder){.model = *model};
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++)
        if (!(r->rows[kind] = calloc(model->n_layers + 1u, sizeof *r->rows[kind]))) {
            kvb_recorder_close(r);
            return -ENOMEM;
        }
    for (int c = 0; c < KVB_CONSTANTS; c++)
        if (!(r->constant[c] = calloc(model->n_layers + 1u, sizeof *r->constant[c]))) {
            kvb_recorder_close(r);
            return -ENOMEM;
        }
    return 0;
}

void kvb_recorder_close(kvb_recorder *r)
{
    for (size_t i = 0; i < r->n_events; i++)
        kvb_event_clear(&r->events[i]);
    free(r->events);
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++) {
        for (uint32_t layer = 0; r->rows[kind] && layer < r->model.n_layers; layer++)
            free(r->rows[kind][layer]);
        free(r->rows[kind]);
    }
    for (int c = 0; c < KVB_CONSTANTS; c++)
        free(r->constant[c]);
    *r = (kvb_recorder){0};
}

/* Room for rows of n tokens in every layer. */
static int reserve_tokens(kvb_recorder *r, uint64_t n)
{
    if (n <= r->max_tokens)
        return 0;
    uint64_t max = r->max_tokens ? r->max_tokens : 256;
    while (max < n)
        max *= 2;
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++) {
        for (uint32_t layer = 0; layer < r->model.n_layers; layer++) {
            size_t row = row_floats(r, layer, kind);
            if (!row)
                continue;
            float *rows = realloc(r->rows[kind][layer], max * row * sizeof *rows);
            if (!rows)
                return -ENOMEM;
            r->rows[kind][layer] = rows;
        }
    }
    r->max_tokens = max;
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
        size_t row = row_floats(r, layer, kind);
        for (uint32_t i = n - n_new; row && from[kind] && i < n; i++) {
            assert(ordinals[i] < r->n_tokens);
            memcpy(r->rows[kind][layer] + ordinals[i] * row, from[kind] + i * row, row * sizeof(float));
        }
    }
}

#define LAYER_TENSORS (KVB_ROWS_KINDS + KVB_CONSTANTS)

/* Tensor number i of a layer, if it has it. */
static bool tensor_of(const kvb_recorder *r, uint32_t layer, int i, char name[16], kvb_tensor *t)
{
    const kvb_group *g = kvb_model_group(&r->model, layer);
    const int c = i - KVB_ROWS_KINDS;
    *t = (kvb_tensor){.name = name, .dtype = KVB_TENSOR_F32, .n_dims = 3};
    if (c < 0) {
        const uint64_t shape[] = {r->n_tokens, kvb_rows_heads(g, (kvb_rows)i), kvb_rows_dim(g, (kvb_rows)i)};
        memcpy(t->shape, shape, sizeof shape);
        t->data = r->rows[i][layer];
    } else {
        t->n_dims = kvb_constant_shape(g, (kvb_constant)c, t->shape);
        t->data = r->constant[c][layer];
    }
    snprintf(name, 16, "%s.%u", c < 0 ? kvb_rows_name((kvb_rows)i) : kvb_constant_name((kvb_constant)c), layer);
    t->bytes = sizeof(float);
    for (uint32_t d = 0; d < t->n_dims; d++)
        t->bytes *= t->shape[d];
    return t->data && t->n_dims;
}

static int save_tensors(const kvb_recorder *r, const char *path, const char *source, char *why, size_t why_bytes)
{
    uint32_t layers = r->model.n_layers, n = 0;
    kvb_tensor *tensors = calloc(LAYER_TENSORS * (size_t)layers, sizeof *tensors);
    char(*names)[16] = calloc(LAYER_TENSORS * (size_t)layers, sizeof *names);
    int err = -ENOMEM;
    if (!tensors || !names) {
        snprintf(why, why_bytes, "%s: no memory for its header", path);
        goto out;
    }
    for (uint32_t layer = 0; layer < layers; layer++)
        for (int i = 0; i < LAYER_TENSORS; i++)
            n += tensor_of(r, layer, i, names[n], &tensors[n]);
    const char *metadata[] = {"source", source, NULL};
    err = kvb_safetensors_write(path, tensors, n, metadata, why, why_bytes);
out:
    free(names);
    free(tensors);
    return err;
}

/* Write the events below a header; with_tok: keep the vocabulary ids. */
static int save_events(const kvb_recorder *r, const char *path, const kvb_trace_header *header, bool with_tok,
                       char *why, size_t why_bytes)
{
    kvb_trace_writer *writer = NULL;
    int err = kvb_trace_create(path, header, &writer, why, why_bytes);
    if (err)
        return err;
    for (size_t i = 0; !err && i < r->n_events; i++) {
        kvb_event e = r->events[i];
        if (!with_tok)
            e.tok = NULL;
        err = kvb_trace_write(writer, &e, why, why_bytes);
    }
    char ignored[8];
    int closed = kvb_trace_writer_close(writer, !err, err ? ignored : why, err ? sizeof ignored : why_bytes);
    return err ? err : closed;
}

static char *path_of(const char *directory, const char *name, const char *suffix)
{
    size_t bytes = strlen(directory) + strlen(name) + strlen(suffix) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s%s", directory, name, suffix);
    return path;
}

/* The header only borrows its strings; its fields are not const because a reader owns them. */
static char *borrow(const char *s)
{
    return (char *)(uintptr_t)s;
}

int kvb_recorder_save(const kvb_recorder *r, const char *directory, const char *name, const char *source,
                      const char *note, char *why, size_t why_bytes)
{
    char *trace = path_of(directory, name, ".jsonl"), *tensors = path_of(directory, name, ".safetensors");
    kvb_trace_header header = {
        .name = borrow(name), .source = borrow(source), .note = borrow(note), .model = r->model, .tensors = tensors};
    int err = -ENOMEM;
    snprintf(why, why_bytes, "no memory");
    if (trace && tensors)
        err = save_tensors(r, tensors, source, why, why_bytes);
    if (!err)
        err = save_events(r, trace, &header, true, why, why_bytes);
    free(trace);
    free(tensors);
    return err;
}

int kvb_recorder_save_seeded(const kvb_recorder *r, const char *directory, const char *name, const char *source,
                             const char *note, const kvb_model *model, const char *profile, uint64_t seed, char *why,
                             size_t why_bytes)
{
    char *trace = path_of(directory, name, ".jsonl");
    kvb_trace_header header = {.name = borrow(name),
                               .source = borrow(source),
                               .note = borrow(note),
                               .model = *model,
                               .profile = borrow(profile),
                               .seed = seed};
    int err = -ENOMEM;
    snprintf(why, why_bytes, "no memory");
    bool with_tok = false; /* only prompts that are found again need to be known */
    for (size_t i = 0; i < r->n_events; i++)
        with_tok = with_tok || r->events[i].reuse;
    if (trace)
        err = save_events(r, trace, &header, with_tok, why, why_bytes);
    free(trace);
    return err;
}
