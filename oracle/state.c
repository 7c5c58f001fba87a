/* SPDX-License-Identifier: Apache-2.0 */
/* What an oracle keeps; and expected rows over what a cache's views hold now. */
#include "oracle/state.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Where one side's rows are read from the cache's view, the other side's must be legible there. */
static int sides_check(const kvb_storages *s, char *why, size_t why_bytes)
{
    bool views = kvb_storage_has_residual(&s->k) || kvb_storage_has_residual(&s->v);
    if (!views || (s->k.codec && s->v.codec))
        return 0;
    snprintf(why, why_bytes, "an opaque format cannot be judged beside one whose rows depend on their neighbours");
    return -ENOTSUP;
}

static int layer_open(kvb_oracle_state *state, const kvb_oracle_options *o, uint32_t layer, char *why, size_t why_bytes)
{
    const kvb_group *g = kvb_model_group(state->model, layer);
    kvb_storages *storages = calloc(g->kv_heads, sizeof *storages);
    int err = storages ? 0 : -ENOMEM;
    state->storages[layer] = storages;
    for (uint32_t h = 0; !err && h < g->kv_heads; h++) {
        err = kvb_storage_init(&storages[h].k, o->k_format, g->k_dim, o->k_amax ? o->k_amax[layer] : NULL, g->kv_heads,
                               h, why, why_bytes);
        if (!err && g->latent)
            storages[h].v = storages[h].k;
        else if (!err)
            err = kvb_storage_init(&storages[h].v, o->v_format, g->v_dim, o->v_amax ? o->v_amax[layer] : NULL,
                                   g->kv_heads, h, why, why_bytes);
    }
    if (!err)
        err = sides_check(&storages[0], why, why_bytes);
    if (!err)
        state->has_residuals |= kvb_storage_has_residual(&storages[0].k) || kvb_storage_has_residual(&storages[0].v);
    return err;
}

int kvb_oracle_state_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                          kvb_oracle_state **state, char *why, size_t why_bytes)
{
    const kvb_model *m = &trace->header.model;
    kvb_oracle_state *st = calloc(1, sizeof *st);
    int err = -ENOMEM;
    if (!st)
        goto out;
    *st = (kvb_oracle_state){.trace = trace, .values = values, .model = m};
    st->storages = calloc(m->n_layers, sizeof *st->storages);
    if (!st->storages)
        goto out;
    err = 0;
    for (uint32_t layer = 0; !err && layer < m->n_layers; layer++)
        err = layer_open(st, options, layer, why, why_bytes);
out:
    if (err) {
        kvb_oracle_state_free(st);
        st = NULL;
    }
    *state = st;
    return err;
}

void kvb_oracle_state_free(kvb_oracle_state *st)
{
    if (!st)
        return;
    for (uint32_t layer = 0; st->storages && layer < st->model->n_layers; layer++)
        free(st->storages[layer]);
    free(st->storages);
    kvb_stored_close(&st->k);
    kvb_stored_close(&st->v);
    free(st->scratch);
    free(st->terms);
    free(st);
}

const kvb_storages *kvb_state_storages(const kvb_oracle_state *st, uint32_t layer, uint32_t kv_head)
{
    return &st->storages[layer][kv_head];
}

kvb_attention kvb_state_attention(const kvb_oracle_state *st, const kvb_expect *row)
{
    const kvb_group *g = kvb_model_group(st->model, row->layer);
    uint64_t token = st->trace->events[row->event].first + row->query;
    return (kvb_attention){
        .q = kvb_values_rows(st->values, KVB_ROWS_Q, row->layer, token) + (size_t)row->head * g->k_dim,
        .k_dim = g->k_dim,
        .v_dim = g->v_dim,
        .scale = (double)(float)g->scale, /* as kvb_problem has it */
        .softcap = (double)g->softcap,
        .sink = g->sink_logits ? &g->sink_logits[row->head] : NULL,
    };
}

void kvb_state_take(const kvb_oracle_state *st, const kvb_expect *row, const kvb_stored *k, bool k_gathered,
                    const kvb_stored *v, bool v_gathered, kvb_attention *attention)
{
    const kvb_group *g = kvb_model_group(st->model, row->layer);
    const kvb_storages *storages = kvb_state_storages(st, row->layer, row->head / (g->heads / g->kv_heads));
    kvb_attention_take_k(attention, &storages->k, k, k_gathered);
    kvb_attention_take_v(attention, &storages->v, g->latent ? k : v, g->latent ? k_gathered : v_gathered);
    attention->v_dim = g->v_dim;
}

/* ---- rows of views --------------------------------------------------------------------------------------------- */

bool kvb_oracle_reads_views(const kvb_oracle *oracle)
{
    return oracle->state->has_residuals;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Room for that many rows of the layer's group, whose old content is of no use. */
static int room_make(kvb_oracle_state *st, const kvb_group *g, const kvb_storages *storages, uint32_t cells)
{
    if (st->group == g && cells <= st->cells && st->terms)
        return 0;
    if (st->group == g)
        cells = (uint32_t)larger(cells, (size_t)st->cells + st->cells / 2);
    kvb_stored_close(&st->k);
    kvb_stored_close(&st->v);
    free(st->scratch);
    free(st->terms);
    st->cells = 0;
    st->group = g;
    st->scratch =
        malloc(larger(kvb_attention_scratch(cells, g->v_dim), larger(g->k_dim, g->v_dim)) * sizeof *st->scratch);
    st->terms = malloc(g->v_dim * sizeof *st->terms);
    bool no_rows = kvb_stored_open(&st->k, &storages->k, cells) || kvb_stored_open(&st->v, &storages->v, cells);
    if (no_rows || !st->scratch || !st->terms)
        return -ENOMEM;
    st->cells = cells;
    return 0;
}

int kvb_oracle_solve_views(kvb_oracle *oracle, const kvb_expect *expect, const kvb_view *k, const kvb_view *v,
                           const kvb_mask *mask, uint32_t n_tok, uint32_t query, kvb_expect *actual)
{
    kvb_oracle_state *st = oracle->state;
    const kvb_group *g = kvb_model_group(st->model, expect->layer);
    uint32_t kv_head = expect->head / (g->heads / g->kv_heads), visible = 0, cursor = 0;
    const kvb_storages *storages = kvb_state_storages(st, expect->layer, kv_head);
    kvb_run run;

    while (kvb_mask_next(mask, n_tok, k->cells, query, &cursor, &run))
        visible += run.end - run.begin;
    int err = room_make(st, g, storages, visible);
    if (err)
        return err;
    uint32_t at = 0;
    for (cursor = 0; kvb_mask_next(mask, n_tok, k->cells, query, &cursor, &run);)
        for (uint32_t c = run.begin; c < run.end; c++, at++) {
            kvb_stored_read(&st->k, &storages->k, at, k, kv_head, c, st->scratch);
            if (!g->latent)
                kvb_stored_read(&st->v, &storages->v, at, v, kv_head, c, st->scratch);
        }

    kvb_token_run all = {0, visible};
    kvb_attention attention = kvb_state_attention(st, expect);
    kvb_state_take(st, expect, &st->k, true, &st->v, true, &attention);
    attention.runs = &all;
    attention.n_runs = 1;
    attention.visible = visible;
    *actual = *expect;
    actual->visible = visible;
    actual->terms = st->terms;
    kvb_attention_solve(&attention, st->scratch, &actual->row, &actual->lse, st->terms);
    return 0;
}
