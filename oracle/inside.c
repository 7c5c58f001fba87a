/* SPDX-License-Identifier: Apache-2.0 */
/* What an oracle keeps for itself. */
#include "oracle/inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int stores_init(const kvb_trace_model *m, const kvb_oracle_options *o, kvb_stores *stores, char *why,
                       size_t why_bytes)
{
    int err = 0;
    for (size_t i = 0; !err && i < (size_t)m->layers * m->kv_heads; i++) {
        uint32_t h = (uint32_t)(i % m->kv_heads);
        const float *k_amax = o->k_amax ? o->k_amax + (i - h) : NULL, *v_amax = o->v_amax ? o->v_amax + (i - h) : NULL;
        err = kvb_store_init(&stores[i].k, o->k_format, m->k_dim, k_amax, m->kv_heads, h, why, why_bytes);
        if (!err)
            err = kvb_store_init(&stores[i].v, o->v_format, m->v_dim, v_amax, m->kv_heads, h, why, why_bytes);
    }
    return err;
}

int kvb_inside_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                    kvb_oracle_inside **inside, char *why, size_t why_bytes)
{
    const kvb_trace_model *m = &trace->header.model;
    kvb_oracle_inside *in = calloc(1, sizeof *in);
    int err = -ENOMEM;
    if (!in)
        goto out;
    *in = (kvb_oracle_inside){.trace = trace, .values = values, .softcap = options->softcap};
    in->stores = calloc((size_t)m->layers * m->kv_heads, sizeof *in->stores);
    if (options->sinks)
        in->sinks = malloc(m->heads * sizeof *in->sinks);
    if (!in->stores || (options->sinks && !in->sinks))
        goto out;
    if (options->sinks)
        memcpy(in->sinks, options->sinks, m->heads * sizeof *in->sinks);
    err = stores_init(m, options, in->stores, why, why_bytes);
out:
    if (err) {
        kvb_inside_free(in);
        in = NULL;
    }
    *inside = in;
    return err;
}

void kvb_inside_free(kvb_oracle_inside *in)
{
    if (!in)
        return;
    free(in->stores);
    free(in->sinks);
    kvb_side_close(&in->k);
    kvb_side_close(&in->v);
    free(in->scratch);
    free(in->terms);
    free(in);
}

const kvb_stores *kvb_inside_stores(const kvb_oracle_inside *in, uint32_t layer, uint32_t kv_head)
{
    return &in->stores[(size_t)layer * in->trace->header.model.kv_heads + kv_head];
}

kvb_attention kvb_inside_attention(const kvb_oracle_inside *in, const kvb_expect *row)
{
    const kvb_trace_model *m = &in->trace->header.model;
    uint64_t token = in->trace->events[row->event].first + row->query;
    return (kvb_attention){
        .q = kvb_values_rows(in->values, KVB_ROWS_Q, row->layer, token) + (size_t)row->head * m->k_dim,
        .k_dim = m->k_dim,
        .v_dim = m->v_dim,
        .scale = (double)(float)m->scale, /* as kvb_problem has it */
        .softcap = (double)in->softcap,
        .sink = in->sinks ? &in->sinks[row->head] : NULL,
    };
}
