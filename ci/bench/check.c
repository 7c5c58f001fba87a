/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at what was written, so that a fast kernel that is wrong does not score: a few rows, in double over what
 * format->read gives, loosely. Tests prove kernels right; this does not.
 */
#include "ci/bench/bench.h"

#include <math.h>

#include "kernels/convert.h"

#define TOLERANCE         0.01 /* relative L2 of a row */
#define TOLERANCE_INTEGER 0.03 /* of kernels that round q to steps: in 8 bits that moves each logit by some 0.007 */
#define SOME              64u  /* cells read at a time */

typedef struct looking {
    const bench_run *run;
    const bench_sight *sight;
    double want[BENCH_PROBED][BENCH_LATENT_V];
} looking;

/* Row i of those looked at: from the first token and head to the last. */
static uint32_t token_of(const bench_scene *s, uint32_t i)
{
    return (s->n_tok - 1) * i / (BENCH_PROBED - 1);
}

static uint32_t head_of(const bench_scene *s, uint32_t i)
{
    return (s->heads - 1) * i / (BENCH_PROBED - 1);
}

/* Attention of one row, cell after cell: sums are scaled down whenever a larger logit comes. */
static void row_attend(const bench_run *run, const bench_sight *sight, uint32_t t, uint32_t h, double *out)
{
    const bench_scene *s = run->scene;
    const kvb_group *g = &sight->group;
    const float *q = s->q + ((size_t)t * s->heads + h) * g->k_dim;
    const double cap = (double)g->softcap;
    float k[SOME * BENCH_LATENT_K], v[SOME * BENCH_LATENT_K];
    double max = g->sink_logits ? (double)g->sink_logits[h] : -INFINITY, sum = g->sink_logits ? 1 : 0;
    uint32_t cursor = 0, kv_head = h / s->work->group;
    kvb_view k_view, v_view;
    kvb_run cells;

    bench_views(run->store, 0, sight, &k_view, &v_view);
    v_view.dim = g->latent ? g->k_dim : g->v_dim; /* a row is read whole */
    for (uint32_t d = 0; d < g->v_dim; d++)
        out[d] = 0;
    while (kvb_mask_next(&sight->mask, s->n_tok, sight->cells, t, &cursor, &cells))
        for (uint32_t c = cells.begin, n; c < cells.end; c += n) {
            n = cells.end - c < SOME ? cells.end - c : SOME;
            k_view.format->read(&k_view, kv_head, c, n, k);
            v_view.format->read(&v_view, kv_head, c, n, v);
            for (uint32_t i = 0; i < n; i++) {
                double logit = 0;
                for (uint32_t d = 0; d < g->k_dim; d++)
                    logit += (double)q[d] * k[i * g->k_dim + d];
                logit *= g->scale;
                if (cap > 0)
                    logit = cap * tanh(logit / cap);
                if (logit > max) {
                    double less = exp(max - logit);
                    sum *= less;
                    for (uint32_t d = 0; d < g->v_dim; d++)
                        out[d] *= less;
                    max = logit;
                }
                double weight = exp(logit - max);
                sum += weight;
                for (uint32_t d = 0; d < g->v_dim; d++)
                    out[d] += weight * v[i * v_view.dim + d];
            }
        }
    for (uint32_t d = 0; d < g->v_dim; d++)
        out[d] /= sum;
}

static void part_attend(void *ctx, uint32_t i, uint32_t n)
{
    looking *l = ctx;
    for (uint32_t r = i; r < BENCH_PROBED; r += n)
        row_attend(l->run, l->sight, token_of(l->run->scene, r), head_of(l->run->scene, r), l->want[r]);
}

/* NaN counts as infinite. */
static double row_error(const float *got, const double *want, uint32_t dim)
{
    double off = 0, all = 0;
    for (uint32_t d = 0; d < dim; d++) {
        off += (got[d] - want[d]) * (got[d] - want[d]);
        all += want[d] * want[d];
    }
    return isnan(off) ? INFINITY : sqrt(off / all);
}

static double tolerance(const bench_contestant *c)
{
    kvb_arithmetic a;
    if (c->kernel->tolerance.kind == KVB_TOLERANCE_NMSE)
        return sqrt(c->kernel->tolerance.limit);
    kvb_call_arithmetic(&c->call, &a);
    return a.query.step > 0 ? TOLERANCE_INTEGER : TOLERANCE;
}

static void contestant_check(const looking *l, bench_contestant *c)
{
    const bench_scene *s = l->run->scene;
    const uint32_t dim = l->sight->group.v_dim;
    float got[BENCH_LATENT_V];
    c->error = 0;
    for (uint32_t r = 0; r < BENCH_PROBED; r++) {
        const size_t at = ((size_t)token_of(s, r) * s->heads + head_of(s, r)) * dim;
        kvb_elems_decode(l->sight->out, got, (char *)c->out + at * kvb_elem_bytes(l->sight->out), dim);
        c->error = fmax(c->error, row_error(got, l->want[r], dim));
    }
    c->allowed = tolerance(c);
    c->wrong = c->error > c->allowed;
}

void bench_run_check(bench_run *run)
{
    static looking l; /* large for a stack */
    for (uint32_t e = 0; e < run->n && run->turns; e++) {
        bench_contestant *c = &run->contestant[e];
        const bench_sight *sight = bench_sight_of(run->scene, c->entry->way);
        if (c->why[0])
            continue;
        if (l.sight != sight) {
            l.run = run;
            l.sight = sight;
            run->team[0]->run(run->team[0], part_attend, &l);
        }
        contestant_check(&l, c);
    }
    l.sight = NULL; /* scenes may lie where others lay */
}
