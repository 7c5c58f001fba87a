/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a trace and works out what every checked row must be.
 *
 * What is seen is gathered first, as runs of token identities; then one KV head of one layer at a time is
 * taken through the reference codec into doubles, and its rows are solved on the team. So the memory beside
 * the results is two (with a lossy format four) doubles for each element of one head, at most
 * 4 / (layers x KV heads) of what the values themselves take.
 */
#include "oracle/oracle.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/attention.h"
#include "oracle/codec.h"
#include "oracle/census.h"
#include "oracle/sample.h"

/* Results are kept below this by sampling, whatever the budget of pairs. */
#define ARENA_MAX_BYTES ((uint64_t)256 << 20)

typedef struct work {
    const kvb_trace *trace;
    const kvb_values *values;
    const kvb_oracle_options *options;
    const kvb_codec *k_codec, *v_codec;
    bool lossless; /* both formats hold every f32 exactly */
    kvb_oracle *oracle;
    kvb_census census;
    kvb_sample sample;
    uint32_t visible_max;
    kvb_format_row *format_rows; /* [n_rows] */
    uint32_t n_workers;
    double *scratch; /* [n_workers][scratch_each] */
    size_t scratch_each;
    unsigned char *bytes; /* [n_workers][bytes_each] one encoded row */
    size_t bytes_each;
    /* of the layer and KV head in hand */
    uint32_t layer, kv_head;
    double *k, *v;                   /* stored rows [tokens][dim] */
    double *k_original, *v_original; /* the same before storing; NULL when lossless */
    size_t *order;                   /* its rows */
    size_t n_order;
    atomic_size_t next; /* of order, to be solved */
} work;

/* The runs of tokens that the sampled queries see. */
static int sample_gather(work *w)
{
    const kvb_census *census = &w->census;
    bool *wanted = calloc(census->first[census->n_events] + 1, sizeof *wanted);
    if (!wanted)
        return -ENOMEM;
    for (size_t i = 0; i < w->sample.n; i++) {
        size_t number = census->first[w->sample.rows[i].event] + w->sample.rows[i].query;
        wanted[number] = true;
        if (census->visible[number] > w->visible_max)
            w->visible_max = census->visible[number];
    }
    int err = kvb_census_gather(w->trace, wanted, &w->census);
    free(wanted);
    return err;
}

/* ---- rows of one KV head ------------------------------------------------------------------------------ */

static void team_run(const work *w, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    if (w->options->team)
        w->options->team->run(w->options->team, part, ctx);
    else
        part(ctx, 0, 1);
}

static void row_store(const kvb_codec *codec, const float *row, uint32_t dim, unsigned char *bytes, double *stored,
                      double *original)
{
    codec->encode(row, dim, bytes);
    codec->decode(bytes, dim, stored);
    for (uint32_t c = 0; original && c < dim; c++)
        original[c] = (double)row[c];
}

/* Part i of n: every token's K and V row through the codec. */
static void rows_store(void *ctx, uint32_t i, uint32_t n)
{
    work *w = ctx;
    const kvb_trace_model *m = &w->trace->header.model;
    unsigned char *bytes = w->bytes + i * w->bytes_each;
    uint64_t tokens = w->values->tokens;
    for (uint64_t t = tokens * i / n; t < tokens * (i + 1) / n; t++) {
        const float *k = kvb_values_rows(w->values, KVB_ROWS_K, w->layer, t) + (size_t)w->kv_head * m->k_dim;
        const float *v = kvb_values_rows(w->values, KVB_ROWS_V, w->layer, t) + (size_t)w->kv_head * m->v_dim;
        row_store(w->k_codec, k, m->k_dim, bytes, w->k + t * m->k_dim,
                  w->lossless ? NULL : w->k_original + t * m->k_dim);
        row_store(w->v_codec, v, m->v_dim, bytes, w->v + t * m->v_dim,
                  w->lossless ? NULL : w->v_original + t * m->v_dim);
    }
}

static void row_solve(work *w, size_t r, double *scratch)
{
    const kvb_trace_model *m = &w->trace->header.model;
    kvb_expect *expect = &w->oracle->rows[r];
    const kvb_census *census = &w->census;
    size_t number = census->first[expect->event] + expect->query;
    uint64_t token = w->trace->events[expect->event].first + expect->query;
    kvb_attention attention = {
        .q = kvb_values_rows(w->values, KVB_ROWS_Q, w->layer, token) + (size_t)expect->head * m->k_dim,
        .k = w->k,
        .v = w->v,
        .k_dim = m->k_dim,
        .v_dim = m->v_dim,
        .scale = (double)(float)m->scale, /* as kvb_problem has it */
        .softcap = (double)w->options->softcap,
        .sink = w->options->sinks ? &w->options->sinks[expect->head] : NULL,
        .runs = census->runs + census->run_first[number],
        .n_runs = census->run_first[number + 1] - census->run_first[number],
        .visible = census->visible[number],
    };
    kvb_bound_term *terms = (kvb_bound_term *)expect->terms; /* of this oracle's arena */
    expect->visible = census->visible[number];
    kvb_attention_solve(&attention, scratch, &expect->row, &expect->lse, terms);
    if (w->lossless)
        return;
    attention.k = w->k_original;
    attention.v = w->v_original;
    kvb_format_row_compare(&attention, scratch, expect->lse, terms,
                           scratch + kvb_attention_scratch(w->visible_max, m->v_dim), &w->format_rows[r]);
}

/* Part of the team: takes rows until there are none; which part takes which row changes nothing. */
static void rows_solve(void *ctx, uint32_t i, uint32_t n)
{
    (void)n;
    work *w = ctx;
    for (size_t at; (at = atomic_fetch_add(&w->next, 1)) < w->n_order;)
        row_solve(w, w->order[at], w->scratch + i * w->scratch_each);
}

static int buffers_open(work *w)
{
    const kvb_trace_model *m = &w->trace->header.model;
    size_t tokens = w->values->tokens + 1, dim_max = m->k_dim > m->v_dim ? m->k_dim : m->v_dim;
    size_t k_bytes = w->k_codec->row_bytes((uint32_t)dim_max), v_bytes = w->v_codec->row_bytes((uint32_t)dim_max);

    w->n_workers = w->options->team ? w->options->team->n : 1;
    w->bytes_each = k_bytes > v_bytes ? k_bytes : v_bytes;
    w->bytes = malloc(w->n_workers * w->bytes_each);
    w->scratch_each = 2 * kvb_attention_scratch(w->visible_max, m->v_dim);
    w->scratch = malloc(w->n_workers * w->scratch_each * sizeof *w->scratch);
    w->format_rows = calloc(w->sample.n + 1, sizeof *w->format_rows);
    w->order = malloc((w->sample.n + 1) * sizeof *w->order);
    w->k = malloc(tokens * m->k_dim * sizeof *w->k);
    w->v = malloc(tokens * m->v_dim * sizeof *w->v);
    if (!w->lossless) {
        w->k_original = malloc(tokens * m->k_dim * sizeof *w->k);
        w->v_original = malloc(tokens * m->v_dim * sizeof *w->v);
    }
    bool all = w->bytes && w->scratch && w->format_rows && w->order && w->k && w->v &&
               (w->lossless || (w->k_original && w->v_original));
    return all ? 0 : -ENOMEM;
}

static void work_solve(work *w)
{
    const kvb_trace_model *m = &w->trace->header.model;
    uint32_t group = m->heads / m->kv_heads;
    for (w->layer = 0; w->layer < m->layers; w->layer++)
        for (w->kv_head = 0; w->kv_head < m->kv_heads; w->kv_head++) {
            w->n_order = 0;
            for (size_t r = 0; r < w->oracle->n_rows; r++)
                if (w->oracle->rows[r].layer == w->layer && w->oracle->rows[r].head / group == w->kv_head)
                    w->order[w->n_order++] = r;
            if (w->n_order == 0)
                continue;
            team_run(w, rows_store, w);
            atomic_store(&w->next, 0);
            team_run(w, rows_solve, w);
        }
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static int results_open(work *w)
{
    kvb_oracle *oracle = w->oracle;
    size_t n = w->sample.n, v_dim = w->trace->header.model.v_dim;
    oracle->arena = malloc(n * (sizeof(kvb_expect) + v_dim * sizeof(kvb_bound_term)) + 1);
    if (!oracle->arena)
        return -ENOMEM;
    oracle->rows = oracle->arena;
    oracle->n_rows = n;
    oracle->total_rows = w->sample.total_rows;
    oracle->v_dim = (uint32_t)v_dim;
    kvb_bound_term *terms = (kvb_bound_term *)(oracle->rows + n);
    for (size_t r = 0; r < n; r++) {
        const kvb_sample_row *row = &w->sample.rows[r];
        oracle->rows[r] = (kvb_expect){.event = row->event,
                                       .layer = row->layer,
                                       .query = row->query,
                                       .head = row->head,
                                       .terms = terms + r * v_dim};
    }
    return 0;
}

/* In the order of rows, so that the sums do not depend on the team. */
static void format_reduce(const work *w, kvb_format_error *format)
{
    double error2 = 0, exact2 = 0, kl = 0;
    *format = (kvb_format_error){0};
    for (size_t r = 0; r < w->oracle->n_rows; r++) {
        const kvb_format_row *row = &w->format_rows[r];
        double row_kl = isnan(row->kl) ? INFINITY : row->kl;
        format->max_abs = fmax(format->max_abs, row->max_abs);
        format->kl_max = fmax(format->kl_max, row_kl);
        error2 += row->error2;
        exact2 += row->exact2;
        kl += row_kl;
    }
    format->rel_l2 = error2 > 0 ? sqrt(error2 / exact2) : 0;
    format->kl_mean = w->oracle->n_rows ? kl / (double)w->oracle->n_rows : 0;
}

static void work_close(work *w)
{
    kvb_census_free(&w->census);
    kvb_sample_free(&w->sample);
    free(w->format_rows);
    free(w->scratch);
    free(w->bytes);
    free(w->k);
    free(w->v);
    free(w->k_original);
    free(w->v_original);
    free(w->order);
}

int kvb_oracle_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                    kvb_oracle **oracle, char *why, size_t why_bytes)
{
    const kvb_trace_model *m = &trace->header.model;
    work w = {.trace = trace, .values = values, .options = options};
    int err = -ENOTSUP;

    *oracle = NULL;
    w.k_codec = kvb_codec_find(options->k_format->name);
    w.v_codec = kvb_codec_find(options->v_format->name);
    if (!w.k_codec || !w.v_codec) {
        snprintf(why, why_bytes, "no reference codec for format '%s'",
                 (w.k_codec ? options->v_format : options->k_format)->name);
        goto out;
    }
    w.lossless = options->k_format->elem == KVB_F32 && options->v_format->elem == KVB_F32;

    kvb_sample_options sample = {
        .layers = m->layers,
        .heads = m->heads,
        .max_pairs = options->max_pairs,
        .max_rows = ARENA_MAX_BYTES / (sizeof(kvb_expect) + m->v_dim * sizeof(kvb_bound_term)),
        .seed = options->seed,
    };
    err = -ENOMEM;
    w.oracle = calloc(1, sizeof *w.oracle);
    if (w.oracle)
        err = kvb_census_take(trace, &w.census);
    if (!err)
        err = kvb_sample_choose(&w.census, &sample, &w.sample);
    if (!err)
        err = sample_gather(&w);
    if (!err)
        err = buffers_open(&w);
    if (!err)
        err = results_open(&w);
    if (err) {
        snprintf(why, why_bytes, "not enough memory for the oracle");
        goto out;
    }
    work_solve(&w);
    format_reduce(&w, &w.oracle->format);
    *oracle = w.oracle;
out:
    work_close(&w);
    if (err)
        kvb_oracle_free(w.oracle);
    return err;
}

void kvb_oracle_free(kvb_oracle *oracle)
{
    if (!oracle)
        return;
    free(oracle->arena);
    free(oracle);
}

/* First row at or after (event, layer). */
static size_t rows_begin(const kvb_oracle *oracle, uint64_t event, uint64_t layer)
{
    size_t low = 0, high = oracle->n_rows;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const kvb_expect *row = &oracle->rows[middle];
        if (row->event < event || (row->event == event && row->layer < layer))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const kvb_expect *kvb_oracle_rows(const kvb_oracle *oracle, uint32_t event, uint32_t layer, size_t *n)
{
    size_t begin = rows_begin(oracle, event, layer);
    *n = rows_begin(oracle, event, (uint64_t)layer + 1) - begin;
    return oracle->rows + begin;
}
