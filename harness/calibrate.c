/* SPDX-License-Identifier: Apache-2.0 */
/* Largest magnitudes, row by row. */
#include "harness/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/codec/codec.h"

int kvb_calibrate(const kvb_trace_model *m, const kvb_values *values, kvb_rows kind, const kvb_format *format,
                  float **amax)
{
    uint32_t dim = kind == KVB_ROWS_K ? m->k_dim : m->v_dim;
    *amax = NULL;
    if (format->head_scale == KVB_STATIC_NONE)
        return 0;
    float *most = calloc((size_t)m->layers * m->kv_heads, sizeof *most), *row = malloc(dim * sizeof *row);
    for (uint32_t layer = 0; most && row && layer < m->layers; layer++)
        for (uint64_t token = 0; token < values->tokens; token++)
            for (uint32_t h = 0; h < m->kv_heads; h++) {
                float *to = &most[layer * m->kv_heads + h];
                memcpy(row, kvb_values_rows(values, kind, layer, token) + (size_t)h * dim, dim * sizeof *row);
                if (format->transform)
                    kvb_codec_best()->rotate(format->transform, dim, false, row);
                for (uint32_t c = 0; c < dim; c++)
                    *to = fmaxf(*to, fabsf(row[c]));
            }
    free(row);
    if (!row) {
        free(most);
        most = NULL;
    }
    *amax = most;
    return most ? 0 : -ENOMEM;
}
