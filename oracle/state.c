/* SPDX-License-Identifier: Apache-2.0 */
/* What an oracle keeps. */
#include "oracle/state.h"

#include <errno.h>
#include <stdlib.h>

static int layer_open(kvb_oracle_state *state, const kvb_oracle_options *o, uint32_t layer, char *why, size_t why_bytes)
{
    const kvb_group *g = kvb_model_group(state->model, layer);
    if (kvb_group_scans(g)) /* which stores no rows */
        return 0;
    kvb_storages *storages = calloc(g->kv_heads, sizeof *storages);
    int err = storages ? 0 : -ENOMEM;
    state->storages[layer] = storages;
    for (uint32_t h = 0; !err && h < g->kv_heads; h++) {
        err = kvb_storage_init(&storages[h].k, o->k_format, g->k_dim, o->k_amax ? o->k_amax[layer] : NULL, g->kv_heads,
                               h, why, why_bytes);
        storages[h].k.is_v = g->latent;
        if (!err && g->latent)
            storages[h].v = storages[h].k;
        else if (!err)
            err = kvb_storage_init(&storages[h].v, o->v_format, g->v_dim, o->v_amax ? o->v_amax[layer] : NULL,
                                   g->kv_heads, h, why, why_bytes);
        storages[h].v.is_v = true;
    }
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
    kvb_census_free(&st->census);
    free(st);
}

const kvb_storages *kvb_state_storages(const kvb_oracle_state *st, uint32_t layer, uint32_t kv_head)
{
    return &st->storages[layer][kv_head];
}

const float *kvb_state_q(const kvb_oracle_state *st, const kvb_expect *row)
{
    const kvb_group *g = kvb_model_group(st->model, row->layer);
    uint64_t token = st->trace->events[row->event].first + row->query;
    return kvb_values_rows(st->values, KVB_ROWS_Q, row->layer, token) + (size_t)row->head * g->k_dim;
}

kvb_attention kvb_state_attention(const kvb_oracle_state *st, const kvb_expect *row, double *q)
{
    const kvb_group *g = kvb_model_group(st->model, row->layer);
    const float *values = kvb_state_q(st, row);
    for (uint32_t c = 0; c < g->k_dim; c++)
        q[c] = row->q ? row->q[c] : (double)values[c];
    return (kvb_attention){
        .q = q,
        .k_dim = g->k_dim,
        .v_dim = g->v_dim,
        .scale = (double)(float)g->scale, /* as kvb_problem has it */
        .softcap = (double)g->softcap,
        .step = row->row.step,
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

bool kvb_oracle_needs_writes(const kvb_oracle *oracle)
{
    return oracle->state->has_residuals;
}
