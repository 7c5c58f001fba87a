/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/matrix/ground_truth.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"
#include "harness/program.h"
#include "harness/machine/team.h"
#include "workloads/files.h"

/* The largest magnitudes of one layer's rows, by KV head. */
static void layer_calibrate(const kvb_group *g, const kvb_values *values, kvb_rows kind, uint32_t layer,
                            kvb_transform transform, float *row, float *most)
{
    uint32_t dim = kind == KVB_ROWS_K ? g->k_dim : g->v_dim;
    for (uint64_t token = 0; token < values->tokens; token++)
        for (uint32_t h = 0; h < g->kv_heads; h++) {
            memcpy(row, kvb_values_rows(values, kind, layer, token) + (size_t)h * dim, dim * sizeof *row);
            if (transform)
                kvb_codec_best()->rotate(transform, dim, false, row);
            for (uint32_t c = 0; c < dim; c++)
                most[h] = fmaxf(most[h], fabsf(row[c]));
        }
}

int kvb_calibrate(const kvb_model *m, const kvb_values *values, kvb_rows kind, const kvb_format *format,
                  const float ***amax)
{
    size_t floats = 0;
    *amax = NULL;
    if (format->head_scale == KVB_STATIC_NONE)
        return 0;
    for (uint32_t layer = 0; layer < m->n_layers; layer++)
        floats += kvb_model_group(m, layer)->kv_heads;
    const float **most = calloc(1, m->n_layers * sizeof *most + floats * sizeof **most);
    float *row = malloc(KVB_MODEL_WIDTH * sizeof *row), *at = (float *)(most + m->n_layers);
    for (uint32_t layer = 0; most && row && layer < m->n_layers; layer++) {
        const kvb_group *g = kvb_model_group(m, layer);
        if (!kvb_values_floats(g, kind))
            continue;
        layer_calibrate(g, values, kind, layer, format->transform, row, at);
        most[layer] = at;
        at += g->kv_heads;
    }
    free(row);
    if (!row) {
        free(most);
        most = NULL;
    }
    *amax = most;
    return most ? 0 : -ENOMEM;
}

static int oracle_make(const kvb_truth_options *o, kvb_truth *t)
{
    kvb_threads *threads;
    int error = kvb_threads_start(kvb_cores(), false, &threads);
    if (error)
        return error;
    kvb_oracle_options options = {
        .k_format = o->pools.k->format,
        .v_format = o->pools.v->format,
        .k_amax = t->amax[0][0],
        .v_amax = t->amax[0][1],
        .max_pairs = o->max_pairs,
        .opinion_pairs = o->opinion_pairs,
        .seed = o->seed,
        .team = kvb_threads_team(threads),
        .stop = &kvb_stopped,
    };
    error = kvb_oracle_open(o->trace, o->values, &options, &t->oracle, t->oracle_why, sizeof t->oracle_why);
    kvb_threads_end(threads);
    return error;
}

/* Calibrates K and V of values and tags, for pools that fix scales. */
static int calibrate(const kvb_truth_options *o, kvb_truth *t)
{
    const kvb_model *m = &o->trace->header.model;
    const kvb_values *of[2] = {o->values, o->tags};
    int error = 0;
    for (int i = 0; i < 2 && !error; i++) {
        if (of[i])
            error = kvb_calibrate(m, of[i], KVB_ROWS_K, o->pools.k->format, &t->amax[i][0]);
        if (of[i] && !error)
            error = kvb_calibrate(m, of[i], KVB_ROWS_V, o->pools.v->format, &t->amax[i][1]);
    }
    return error;
}

int kvb_truth_open(const kvb_truth_options *options, kvb_truth *truth, char *why, size_t why_bytes)
{
    *truth = (kvb_truth){.oracle = NULL};
    int error = calibrate(options, truth);
    if (!error && options->values && options->oracle)
        error = oracle_make(options, truth);
    if (error == -ENOTSUP)
        error = 0;
    if (error)
        snprintf(why, why_bytes, "oracle: %s", *truth->oracle_why ? truth->oracle_why : strerror(-error));
    return error;
}

void kvb_truth_close(kvb_truth *truth)
{
    kvb_oracle_free(truth->oracle);
    for (int i = 0; i < 4; i++)
        free(truth->amax[i / 2][i % 2]);
    *truth = (kvb_truth){.oracle = NULL};
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

#define SLICES 32u /* of each thread's work: it looks at kvb_stopped between them */

typedef struct sliced {
    void (*part)(void *ctx, uint32_t i, uint32_t n);
    void *ctx;
} sliced;

static void slices_run(void *ctx, uint32_t i, uint32_t n)
{
    const sliced *s = ctx;
    for (uint32_t slice = 0; slice < SLICES && !kvb_stopped; slice++)
        s->part(s->ctx, slice * n + i, SLICES * n);
}

/* Runs part() on the team of `team`, a kvb_team: the form that kvb_values_open takes. */
static void team_parallel(void *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    const kvb_team *t = team;
    t->run(t, slices_run, &(sliced){part, ctx});
}

int kvb_values_make(const kvb_trace *trace, const char *profile, uint64_t seed, kvb_values **values, char *why,
                    size_t why_bytes)
{
    kvb_threads *threads;
    int error = kvb_threads_start(kvb_cores(), false, &threads);
    if (error)
        return kvb_why_set(error, why, why_bytes, "threads: %s", strerror(-error));
    error = kvb_values_open(trace, profile, seed, team_parallel, (void *)(uintptr_t)kvb_threads_team(threads), values,
                            why, why_bytes);
    kvb_threads_end(threads);
    return error ? error : kvb_stopped ? -EINTR : 0;
}
