/* SPDX-License-Identifier: Apache-2.0 */
/* Judges the outputs that an engine recorded beside a trace's rows (kvb_trace_outputs), over the trace's history. */
#include "harness/judge/judge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/program.h"
#include "harness/machine/team.h"
#include "harness/replay/verdict.h"
#include "harness/selection/registry.h"
#include "oracle/opinion.h"
#include "workloads/files.h"
#include "workloads/safetensors.h"

typedef struct trial {
    const kvb_judge_options *options;
    kvb_recorded_verdict *judged;
    kvb_trace *trace;
    kvb_values *values;
    kvb_recorded_reading reading; /* has the arithmetic only */
    const kvb_format *format;     /* of the K and V that the engine multiplied */
    float **out;                  /* [layers], each [tokens][heads][v_dim] */
    kvb_oracle *oracle;
    kvb_filter *filter;
    kvb_diff diff, opinion;
} trial;

/* Reads a layer's outputs. NaN and infinity are accepted: they are wrong outputs, not bad input. */
static int layer_read(const kvb_safetensors *file, const kvb_trace *trace, uint32_t layer, float **out, char *why,
                      size_t why_bytes)
{
    const kvb_group *g = kvb_model_group(&trace->header.model, layer);
    const uint64_t shape[3] = {trace->needs.tokens, g->heads, g->v_dim};
    char name[24];
    snprintf(name, sizeof name, "out.%u", layer);
    const kvb_tensor *t = kvb_safetensors_find(file, name);
    if (!t || t->dtype != KVB_DTYPE_F32 || t->n_dims != 3 || memcmp(t->dims, shape, sizeof shape) != 0)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: tensor '%s': expected F32 [%" PRIu64 ", %u, %u]%s",
                           trace->header.tensors, name, shape[0], g->heads, g->v_dim, t ? "" : ", found none");
    *out = malloc(t->bytes + 1);
    if (!*out)
        return -ENOMEM;
    memcpy(*out, t->data, t->bytes);
    return 0;
}

static int inputs_read(trial *t, const char *path, char *why, size_t why_bytes)
{
    char text[512];
    int error = kvb_trace_load(path, 0, &t->trace, why, why_bytes);
    if (error)
        return error;
    const kvb_trace_header *h = &t->trace->header;
    kvb_registry registry;
    kvb_registry_init(&registry);
    if (!h->outputs.engine)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: has no outputs; `kvbench record --engine llama` records some",
                           path);
    const kvb_pool_type *pool = kvb_registry_find(&registry, KVB_POOLS, h->outputs.rows);
    t->format = pool ? pool->format : NULL;
    error = t->format ? kvb_reading_set(&t->reading, "arithmetic", h->outputs.arithmetic, text, sizeof text)
                      : (snprintf(text, sizeof text, "rows: no format '%.40s'", h->outputs.rows), -EINVAL);
    error = error ? error : kvb_reading_arithmetic_check(&t->reading, text, sizeof text);
    if (error)
        return kvb_why_set(error, why, why_bytes, "%s: header: outputs: %s", path, text);
    kvb_safetensors *file = NULL;
    t->out = calloc(h->model.n_layers, sizeof *t->out);
    error = t->out ? kvb_values_open(t->trace, NULL, 0, NULL, NULL, &t->values, why, why_bytes) : -ENOMEM;
    error = error ? error : kvb_safetensors_open(h->tensors, &file, why, why_bytes);
    for (uint32_t layer = 0; layer < h->model.n_layers && !error; layer++)
        if (!kvb_group_scans(kvb_model_group(&h->model, layer)))
            error = layer_read(file, t->trace, layer, &t->out[layer], why, why_bytes);
    kvb_safetensors_close(file);
    return error;
}

static int oracle_open(trial *t, char *why, size_t why_bytes)
{
    const kvb_model *m = &t->trace->header.model;
    const double pairs = t->options->products / (m->groups[0].k_dim + m->groups[0].v_dim + 1.0);
    kvb_threads *threads;
    int error = kvb_threads_start(kvb_cores(), false, &threads);
    if (error)
        return error;
    const kvb_oracle_options options = {.k_format = t->format,
                                        .v_format = t->format,
                                        .max_pairs = pairs < 0x1p63 ? (uint64_t)pairs : UINT64_MAX,
                                        .opinion_pairs = pairs < 0x1p60 ? (uint64_t)(4 * pairs) : UINT64_MAX,
                                        .seed = t->options->seed,
                                        .team = kvb_threads_team(threads),
                                        .stop = &kvb_stopped};
    error = kvb_oracle_open(t->trace, t->values, &options, &t->oracle, why, why_bytes);
    kvb_threads_end(threads);
    return error ? error : kvb_filter_open(t->oracle, &t->filter);
}

static const float *out_of(const trial *t, const kvb_expect *row)
{
    const kvb_group *g = kvb_model_group(&t->trace->header.model, row->layer);
    const uint64_t token = t->trace->events[row->event].first + row->query;
    return t->out[row->layer] + (token * g->heads + row->head) * g->v_dim;
}

/* The declared arithmetic for the cells that the row sees. */
static kvb_arithmetic arithmetic_of(const trial *t, const kvb_group *g, const kvb_expect *row)
{
    kvb_arithmetic a;
    const kvb_problem problem = {
        .k_dim = g->k_dim, .v_dim = g->v_dim, .n_cells = row->visible, .has_sinks = g->sink_logits != NULL};
    kvb_reading_arithmetic(&t->reading, &problem, &a);
    return a;
}

/* Judges the rows of an event in a layer. 0 or -ENOMEM. */
static int call_judge(trial *t, uint32_t event, uint32_t layer)
{
    const kvb_group *g = kvb_model_group(&t->trace->header.model, layer);
    const double softcap = (double)g->softcap;
    double exact[KVB_MODEL_WIDTH];
    size_t n;
    int error = 0;
    const kvb_expect *rows = kvb_oracle_rows(t->oracle, event, layer, &n);
    for (const kvb_expect *row = rows; row < rows + n; row++) {
        const kvb_arithmetic a = arithmetic_of(t, g, row);
        for (uint32_t c = 0; c < g->v_dim; c++)
            exact[c] = row->terms[c].o;
        t->diff.claim.k_dim = g->k_dim;
        t->diff.claim.cells = row->visible;
        kvb_diff_row(&t->diff, row, g->v_dim, &a, g->scale, softcap, KVB_F32, out_of(t, row), NULL);
        kvb_filter_add(t->filter, row, row, &a, KVB_F32, out_of(t, row));
        kvb_usual_take(&t->judged->usual, KVB_F32, out_of(t, row), exact, g->v_dim);
    }
    const kvb_opinions *o = t->oracle->opinions;
    const kvb_opinion_row *more = o ? kvb_opinions_of(o, event, layer, &n) : NULL;
    for (size_t i = 0; more && i < n && !error; i++) {
        const kvb_expect *row = &more[i].expect;
        const kvb_arithmetic a = arithmetic_of(t, g, row);
        error = kvb_opinion_diff(&t->opinion, &o->heads[layer][row->head / (g->heads / g->kv_heads)], &more[i],
                                 g->v_dim, &a, g->scale, softcap, KVB_F32, out_of(t, row), NULL);
    }
    return error;
}

/* Fills in the verdict's words and counts. Words from a file may hold control characters. */
static void words_make(trial *t)
{
    kvb_recorded_verdict *j = t->judged;
    const kvb_trace_outputs *o = &t->trace->header.outputs;
    const kvb_result *r = &j->result;
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    kvb_why_set(0, j->shape, sizeof j->shape, "%.60s, %.40s, %.80s", o->engine, o->model, o->setup);
    if (r->where.line) {
        const kvb_diff_place *first = t->diff.any_failed ? &t->diff.first : &t->opinion.first;
        const kvb_event *e = &t->trace->events[first->event];
        snprintf(j->first, sizeof j->first, "position %u of sequence %u, layer %u, %.120s; %.80s", e->pos[first->query],
                 e->seq[first->query], first->layer, r->where.element, r->where.event);
        snprintf(j->pattern, sizeof j->pattern, "%.250s", r->where.rows);
    }
    kvb_filter_peaks(t->filter, peaks);
    kvb_filter_words(peaks, j->many, sizeof j->many);
    j->rows = t->oracle->total_rows;
    j->judged = t->diff.rows;
    j->glanced = t->opinion.rows;
    j->unsaid = t->diff.claim.unsaid;
}

static int all_judge(trial *t, char *why, size_t why_bytes)
{
    const kvb_trace *trace = t->trace;
    kvb_result *r = &t->judged->result;
    int error = oracle_open(t, why, why_bytes);
    for (uint32_t event = 0; event < trace->n_events && !error; event++)
        for (uint32_t layer = 0; layer < trace->header.model.n_layers && !error; layer++)
            error = t->out[layer] ? call_judge(t, event, layer) : 0;
    if (error)
        return error;
    const char *rows = trace->header.outputs.rows;
    kvb_result_begin(r, trace->header.name, "recorded", rows, rows, "");
    kvb_why_set(0, r->workload, sizeof r->workload, "%s", trace->header.name);
    snprintf(r->kernel, sizeof r->kernel, "recorded-%s", kvb_presets[t->reading.arithmetic - 1].name);
    kvb_diff_judge(&t->diff, t->oracle, t->oracle->n_rows, 1, trace, true, r);
    kvb_opinion_judge(&t->opinion, trace, true, r);
    r->error.looked.opinion = t->opinion.rows;
    kvb_filter_judge(t->filter, true, r);
    kvb_claim_judge(&t->diff.claim, t->diff.rows, true, r);
    words_make(t);
    return 0;
}

int kvb_outputs_judge(const char *path, const kvb_judge_options *options, kvb_recorded_verdict *judged, char *why,
                      size_t why_bytes)
{
    trial *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    *judged = (kvb_recorded_verdict){.rows = 0};
    t->options = options;
    t->judged = judged;
    int error = inputs_read(t, path, why, why_bytes);
    error = error ? error : all_judge(t, why, why_bytes);
    kvb_filter_free(t->filter);
    kvb_oracle_free(t->oracle);
    kvb_values_free(t->values);
    for (uint32_t layer = 0; t->out && layer < t->trace->header.model.n_layers; layer++)
        free(t->out[layer]);
    free(t->out);
    kvb_trace_free(t->trace);
    free(t);
    return error;
}
