/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with sums in double over f32 rows. */
#include "workloads/live/exact.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

static bool exact_supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    bool plain = p->k_format->elem == KVB_F32 && p->v_format->elem == KVB_F32 && p->out_elem == KVB_F32;
    plain = plain && p->k_format->transform == KVB_TRANSFORM_NONE && p->v_format->transform == KVB_TRANSFORM_NONE;
    plain = plain && !(p->softcap > 0);
    if (!plain)
        snprintf(why, why_bytes, "exact: f32 rows and output, no softcap");
    return plain;
}

/* Scores of one row [n_cells] and one output row [v_dim], in double. */
static size_t exact_scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    (void)n_threads;
    return ((size_t)p->n_cells + p->v_dim) * sizeof(double);
}

/* Far better than f32 declares; chains of one rounding are the least a declaration can say. */
static void exact_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    (void)p;
    *a = (kvb_arithmetic){.accumulator = KVB_F32, .dot_chain = 1, .cell_chain = 1, .exp_error = DBL_EPSILON};
}

static void attend_row(const kvb_attend *args, uint32_t t, uint32_t head)
{
    const kvb_problem *p = &args->problem;
    uint32_t kv_head = head / (p->n_heads / p->n_kv_heads), cursor = 0;
    size_t row = (size_t)t * p->n_heads + head;
    const float *q = args->q + row * p->k_dim;
    double *score = args->scratch, *sum = score + p->n_cells,
           max = p->has_sinks ? (double)args->sinks[head] : -INFINITY;
    kvb_run run;

    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run))
        for (uint32_t c = run.begin; c < run.end; c++) {
            const float *k = kvb_view_row(&args->k, kv_head, c);
            double s = 0;
            for (uint32_t i = 0; i < p->k_dim; i++)
                s += (double)q[i] * k[i];
            score[c] = s * p->scale;
            max = fmax(max, score[c]);
        }
    double total = p->has_sinks ? exp((double)args->sinks[head] - max) : 0;
    for (uint32_t i = 0; i < p->v_dim; i++)
        sum[i] = 0;
    cursor = 0;
    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run))
        for (uint32_t c = run.begin; c < run.end; c++) {
            const float *v = kvb_view_row(&args->v, kv_head, c);
            double weight = exp(score[c] - max);
            total += weight;
            for (uint32_t i = 0; i < p->v_dim; i++)
                sum[i] += weight * v[i];
        }
    float *out = (float *)args->out + row * p->v_dim;
    for (uint32_t i = 0; i < p->v_dim; i++)
        out[i] = total > 0 ? (float)(sum[i] / total) : 0.0f;
    if (args->lse)
        args->lse[row] = total > 0 ? (float)(max + log(total)) : -INFINITY;
}

static int exact_attend(const kvb_attend *args)
{
    for (uint32_t t = 0; t < args->problem.n_tok; t++)
        for (uint32_t h = 0; h < args->problem.n_heads; h++)
            attend_row(args, t, h);
    return 0;
}

const kvb_kernel kvb_live_kernel_exact = {
    .name = "exact",
    .summary = "sums in double, rounded to f32 once: for recording",
    .masks = KVB_MASKS_ALL,
    .supports = exact_supports,
    .scratch_bytes = exact_scratch_bytes,
    .arithmetic = exact_arithmetic,
    .attend = exact_attend,
};
