/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An example plug-in: streaming ("online") softmax over f32 rows, one pass, from attend.h alone.
 * Build with make, load with `kvbench run --plugin kernels/example-plugin/online.so`.
 * Cells are taken TILE at a time; when a tile raises the maximum, the sums so far are rescaled.
 * The kernel declines every other format: kvbench then decodes the rows to f32 for it, and counts the time.
 */
#include "attend.h"

#include <math.h>
#include <stdio.h>

#define TILE 64u

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (kvb_format_is_f32(p->k_format) && kvb_format_is_f32(p->v_format) && p->out_elem == KVB_F32)
        return true;
    snprintf(why, why_bytes, "f32 rows and f32 output only");
    return false;
}

/* Every tile may rescale. A term passes through its tile's additions and all later ones. expf: 1 ulp (glibc manual). */
static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.accumulator = KVB_F32, .dot_chain = p->k_dim, .cell_chain = p->n_cells + 1};
    a->rescales = p->n_cells / TILE + 1;
    a->exp_error = 0x1p-23;
    a->exp_floor = 0x1p-126;
}

/* The order of additions in row_attend(). */
static bool order(const kvb_attend *call, kvb_order *order)
{
    (void)call;
    *order = (kvb_order){.softmax = KVB_SOFTMAX_ONLINE, .tile = {.cells = TILE, .dot.n = 1}};
    return true;
}

static void row_attend(const kvb_attend *x, uint32_t t, uint32_t h)
{
    const kvb_problem *p = &x->problem;
    size_t row = (size_t)t * p->n_heads + h;
    const float *q = x->q + row * p->k_dim;
    float *out = (float *)x->out + row * p->v_dim, s[TILE]; /* out holds the sums until the end */
    const float *v[TILE];
    bool sink = p->has_sinks && x->sinks[h] > -INFINITY, more = true;
    float max = sink ? x->sinks[h] : -INFINITY;
    double sum = sink; /* beside a large sink many weights are each too small for a float */
    kvb_walk at = {0};

    for (uint32_t d = 0; d < p->v_dim; d++)
        out[d] = 0.0f;
    while (more) {
        uint32_t n = 0;
        float old = max, rescale;
        for (; n < TILE && (more = kvb_walk_next(x, (uint32_t)row, &at)); n++) { /* the next visible cells */
            const float *k = at.k;
            float dot = 0.0f;
            for (uint32_t d = 0; d < p->k_dim; d++)
                dot += q[d] * k[d];
            s[n] = p->scale * dot;
            if (p->softcap > 0.0f)
                s[n] = p->softcap * tanhf(s[n] / p->softcap);
            v[n] = at.v;
            max = s[n] > max ? s[n] : max;
        }
        rescale = max > old ? expf(old - max) : 1.0f;
        sum *= rescale;
        for (uint32_t d = 0; d < p->v_dim && rescale != 1.0f; d++)
            out[d] *= rescale;
        for (uint32_t i = 0; i < n; i++) {
            float w = expf(s[i] - max);
            sum += w;
            for (uint32_t d = 0; d < p->v_dim; d++)
                out[d] += w * v[i][d];
        }
    }
    for (uint32_t d = 0; d < p->v_dim && sum != 0; d++)
        out[d] = (float)(out[d] / sum);
    if (x->lse)
        x->lse[row] = sum == 0 ? -INFINITY : (float)(max + log(sum));
}

static void part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_attend *x = ctx;
    for (uint32_t row = i; row < x->problem.n_tok * x->problem.n_heads; row += n)
        row_attend(x, row / x->problem.n_heads, row % x->problem.n_heads);
}

static int attend(const kvb_attend *args)
{
    kvb_attend copy = *args;
    args->team->run(args->team, part, &copy);
    return 0;
}

KVB_PLUGIN_KERNEL("online", "example plug-in: streaming softmax, scalar f32", .attend = attend, .supports = supports,
                  .arithmetic = arithmetic, .order = order);
