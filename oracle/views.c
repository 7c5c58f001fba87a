/* SPDX-License-Identifier: Apache-2.0 */
/* Expected rows over what a cache's views hold now. */
#include "oracle/inside.h"

#include <errno.h>
#include <stdlib.h>

bool kvb_oracle_reads_views(const kvb_oracle *oracle)
{
    const kvb_stores *stores = kvb_inside_stores(oracle->inside, 0, 0);
    return kvb_store_has_window(&stores->k) || kvb_store_has_window(&stores->v);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Room for that many rows, whose old content is of no use. */
static int room_make(kvb_oracle_inside *in, const kvb_stores *stores, uint32_t cells)
{
    uint32_t k_dim = stores->k.dim, v_dim = stores->v.dim;
    if (cells <= in->cells && in->terms)
        return 0;
    cells = (uint32_t)larger(cells, (size_t)in->cells + in->cells / 2);
    kvb_side_close(&in->k);
    kvb_side_close(&in->v);
    free(in->scratch);
    free(in->terms);
    in->cells = 0;
    in->scratch = malloc(larger(kvb_attention_scratch(cells, v_dim), larger(k_dim, v_dim)) * sizeof *in->scratch);
    in->terms = malloc(v_dim * sizeof *in->terms);
    bool no_sides = kvb_side_open(&in->k, &stores->k, cells) || kvb_side_open(&in->v, &stores->v, cells);
    if (no_sides || !in->scratch || !in->terms)
        return -ENOMEM;
    in->cells = cells;
    return 0;
}

int kvb_oracle_solve_views(kvb_oracle *oracle, const kvb_expect *expect, const kvb_view *k, const kvb_view *v,
                           const kvb_mask *mask, uint32_t n_tok, uint32_t query, kvb_expect *actual)
{
    kvb_oracle_inside *in = oracle->inside;
    const kvb_trace_model *m = &in->trace->header.model;
    uint32_t kv_head = expect->head / (m->heads / m->kv_heads), visible = 0, cursor = 0;
    const kvb_stores *stores = kvb_inside_stores(in, expect->layer, kv_head);
    kvb_run run;

    while (kvb_mask_next(mask, n_tok, k->cells, query, &cursor, &run))
        visible += run.end - run.begin;
    int err = room_make(in, stores, visible);
    if (err)
        return err;
    uint32_t at = 0;
    for (cursor = 0; kvb_mask_next(mask, n_tok, k->cells, query, &cursor, &run);)
        for (uint32_t c = run.begin; c < run.end; c++, at++) {
            kvb_side_read(&in->k, &stores->k, at, k, kv_head, c, in->scratch);
            kvb_side_read(&in->v, &stores->v, at, v, kv_head, c, in->scratch);
        }

    kvb_token_run all = {0, visible};
    kvb_attention attention = kvb_inside_attention(in, expect);
    kvb_attention_take_k(&attention, &stores->k, &in->k, true);
    kvb_attention_take_v(&attention, &stores->v, &in->v, true);
    attention.runs = &all;
    attention.n_runs = 1;
    attention.visible = visible;
    *actual = *expect;
    actual->visible = visible;
    actual->terms = in->terms;
    kvb_attention_solve(&attention, in->scratch, &actual->row, &actual->lse, in->terms);
    return 0;
}
