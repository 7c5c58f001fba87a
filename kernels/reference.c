/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference kernel: plain scalar f32, written for reading. Two passes over the visible cells of each
 * query and head: scores and their largest; then weights, their sum and the weighted sum of V rows.
 * Rows of any format are decoded one by one, each time one is needed.
 * Scratch per thread: scores [n_cells], one K row [k_dim], one V row [v_dim], the sums [v_dim], all f32.
 */
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "kernels/softmax.h"

static size_t thread_floats(const kvb_problem *p)
{
    size_t floats = (size_t)p->n_cells + p->k_dim + 2 * (size_t)p->v_dim;
    return (floats + 15) / 16 * 16; /* whole cache lines: threads share none */
}

static size_t scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    return thread_floats(p) * sizeof(float) * n_threads;
}

static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
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

static float dot(const float *a, const float *b, uint32_t n)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void row_attend(const kvb_attend *args, uint32_t t, uint32_t h, float *scratch)
{
    const kvb_problem *p = &args->problem;
    const float *q = args->q + ((size_t)t * p->n_heads + h) * p->k_dim;
    uint32_t kv_head = h / (p->n_heads / p->n_kv_heads), cursor = 0, n = 0, i = 0;
    float *scores = scratch, *k_row = scores + p->n_cells, *acc = k_row + p->k_dim + p->v_dim;
    const kvb_view *v_view = p->v_in_k ? &args->k : &args->v;
    float *v_row = p->v_in_k ? k_row : k_row + p->k_dim;
    float max = kvb_sink_logit(args, h), sum;
    kvb_run run;

    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run))
        for (uint32_t c = run.begin; c < run.end; c++, n++) {
            scores[n] = kvb_logit(p, dot(q, kvb_row_read(&args->k, kv_head, c, k_row), p->k_dim));
            if (scores[n] > max)
                max = scores[n];
        }

    sum = kvb_weights(scores, n, max, kvb_sink_weight(args, h, max));
    for (uint32_t c = 0; c < p->v_dim; c++)
        acc[c] = 0.0f;
    cursor = 0;
    while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run))
        for (uint32_t c = run.begin; c < run.end; c++, i++) {
            const float *v = kvb_row_read(v_view, kv_head, c, v_row);
            for (uint32_t d = 0; d < p->v_dim; d++)
                acc[d] += scores[i] * v[d];
        }
    kvb_row_finish(args, t, h, acc, max, sum);
}

/* Rows (token, head) are dealt out one by one: under CAUSAL later rows cost more. */
static void part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_attend *args = ctx;
    const kvb_problem *p = &args->problem;
    float *scratch = (float *)args->scratch + i * thread_floats(p);
    size_t rows = (size_t)p->n_tok * p->n_heads;

    for (size_t row = i; row < rows; row += n)
        row_attend(args, (uint32_t)(row / p->n_heads), (uint32_t)(row % p->n_heads), scratch);
}

static int attend(const kvb_attend *args)
{
    kvb_attend copy = *args; /* the team's context is not const */
    args->team->run(args->team, part, &copy);
    return 0;
}

const kvb_kernel kvb_kernel_reference = {
    .name = "reference",
    .summary = "plain scalar f32, two passes: the one to read",
    .flags = KVB_KERNEL_FRONTS,
    .masks = KVB_MASKS_ALL,
    .supports = kvb_readable_supports,
    .scratch_bytes = scratch_bytes,
    .arithmetic = arithmetic,
    .attend = attend,
};
