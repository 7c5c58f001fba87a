/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/replay/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/codec/codec.h"

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
