/* SPDX-License-Identifier: Apache-2.0 */
/* Scores to weights, and the end of a row, in plain f32. */
#include "kernels/softmax.h"
#include "kernels/convert.h"

#include <math.h>

void kvb_softmax_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){
        .accumulator = KVB_F32,
        .dot_chain = p->k_dim,
        .cell_chain = p->n_cells + p->has_sinks,
        .exp_error = KVB_EXPF_ERROR,
        .exp_floor = KVB_EXPF_FLOOR,
    };
    kvb_arithmetic_add_decoding(p, a);
}

float kvb_logit(const kvb_problem *p, float dot)
{
    float s = p->scale * dot;
    return p->softcap > 0.0f ? p->softcap * tanhf(s / p->softcap) : s;
}

float kvb_weights(float *s, uint32_t n, float max, float sum)
{
    double total = (double)sum;
    for (uint32_t i = 0; i < n; i++) {
        s[i] = expf(s[i] - max);
        total += (double)s[i];
    }
    return (float)total;
}

float kvb_sink_logit(const kvb_attend *args, uint32_t h)
{
    return args->problem.has_sinks ? args->sinks[h] : -INFINITY;
}

float kvb_sink_weight(const kvb_attend *args, uint32_t h, float max)
{
    float sink = kvb_sink_logit(args, h);
    return sink == -INFINITY ? 0.0f : expf(sink - max); /* max too may be -infinity, and their difference NaN */
}

void kvb_row_finish(const kvb_attend *args, uint32_t t, uint32_t h, float *acc, float max, float sum)
{
    const kvb_problem *p = &args->problem;
    size_t row = (size_t)t * p->n_heads + h;
    char *out = (char *)args->out + row * p->v_dim * kvb_elem_bytes(p->out_elem);

    for (uint32_t c = 0; c < p->v_dim; c++)
        acc[c] = sum == 0.0f ? 0.0f : acc[c] / sum;
    kvb_elems_encode(p->out_elem, out, acc, p->v_dim);
    if (args->lse)
        args->lse[row] = sum == 0.0f ? -INFINITY : max + logf(sum);
}
