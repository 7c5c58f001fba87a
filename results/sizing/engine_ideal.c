/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a model's past can take: every row that a later token may read, and nothing else. */
#include <errno.h>

#include "results/sizing/share.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Rows that may still be read once there are n tokens. A window keeps its sinks beside itself. */
static uint64_t rows_kept(const kvb_layer_group *g, uint64_t n)
{
    return kvb_layer_grows(g->kind) ? n : least(n, (uint64_t)g->window + g->sinks);
}

/* The key of a sparse indexer, as DeepSeek-V3.2's model code keeps it: e4m3, and an f32 scale for each 128. */
static uint64_t index_bytes(const kvb_layer_group *g)
{
    return g->index_dim + 4 * kvb_ceil_div(g->index_dim, 128);
}

static int allocate(const kvb_model *model, const kvb_size_ask *ask, kvb_allocation *out, char *why, size_t why_bytes)
{
    uint32_t plain = kvb_plain_bytes(model, ask);
    uint64_t per_token = 0;

    *out = (kvb_allocation){0};
    for (size_t i = 0; i < model->n_groups; i++) {
        const kvb_layer_group *g = &model->groups[i];
        uint64_t layers = kvb_layers_held(model, i, ask), row, state;
        int error = kvb_layer_row_bytes(g, ask, &row, why, why_bytes);

        if (error)
            return error == -EOVERFLOW ? kvb_too_large(why, why_bytes) : error;
        row += index_bytes(g);
        if (kvb_layer_state_bytes(g, ask, ask->state ? kvb_dtype_bytes(ask->state) : plain, plain, &state) ||
            kvb_add(&out->kv_bytes, ask->sequences, layers, rows_kept(g, ask->context), row) ||
            kvb_add(&out->state_bytes, ask->sequences, layers, 1 + (uint64_t)ask->spec_depth, state) ||
            kvb_add(kvb_layer_grows(g->kind) ? &per_token : &out->fixed_bytes_per_sequence, layers,
                    kvb_layer_grows(g->kind) ? 1 : rows_kept(g, UINT64_MAX), row) ||
            kvb_add(&out->fixed_bytes_per_sequence, layers, 1 + (uint64_t)ask->spec_depth, state))
            return kvb_too_large(why, why_bytes);
    }
    out->bytes_per_token = (double)per_token;
    return 0;
}

const kvb_engine kvb_engine_ideal = {
    .name = "ideal",
    .summary = "every row and state that a later token may read, and nothing else",
    .source = "the definition of each kind of layer",
    .allocate = allocate,
};
