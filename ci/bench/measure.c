/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contestants and probes of the limits take turns, sample by sample: what the machine loses to others meanwhile, it
 * loses for all. A sample is several calls where one is short.
 */
#include "ci/bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ci/bench/cycles.h"
#include "harness/clock.h"
#include "harness/machine/peak_kernel.h"
#include "harness/machine/rate.h"
#include "kernels/convert.h"
#include "results/statistics.h"

#define SAMPLE_NS    2e6         /* of a contestant, at least */
#define PROBE_BYTES  (64u << 20) /* that one probe reads, at least */
#define REPEATS      1000u       /* at most */
#define PEAK_SECONDS 0.02        /* of one probe */

/* ---- calls --------------------------------------------------------------------------------------------------- */

void bench_views(const bench_store *store, uint32_t layer, const bench_sight *sight, kvb_view *k, kvb_view *v)
{
    store->type->view(store->k[layer], sight->cells, k);
    *v = *k;
    if (!store->latent)
        store->type->view(store->v[layer], sight->cells, v);
    v->dim = sight->group.v_dim;
}

/* Token t's mask. Only of RUNS. */
static kvb_mask mask_of(const kvb_mask *mask, uint32_t t)
{
    kvb_mask one = *mask;
    one.row_start += t;
    return one;
}

static int tokens_attend(const bench_run *run, bench_contestant *c, uint32_t layer, kvb_mask mask, uint32_t t,
                         uint32_t n_tok)
{
    const bench_scene *s = run->scene;
    const bench_sight *sight = bench_sight_of(s, c->entry->way);
    const size_t row = (size_t)t * s->heads;
    kvb_attend_spec spec = {.group = &sight->group, .mask = mask};
    bench_views(run->store, layer, sight, &spec.k, &spec.v);
    char why[sizeof c->why];
    int error = kvb_call_prepare(&c->call, &spec, s->q + row * sight->group.k_dim, n_tok, why, sizeof why);
    if (error) {
        memcpy(c->why, why, sizeof why);
        return error;
    }
    error = kvb_call_run(&c->call, (char *)c->out + row * sight->group.v_dim * kvb_elem_bytes(sight->out), NULL);
    if (error)
        snprintf(c->why, sizeof c->why, "attend: %s", strerror(-error));
    return error;
}

/* One call. Calls apart go from copy to copy: engines that decode branch after branch read all layers for each. */
static int contestant_attend(const bench_run *run, bench_contestant *c, uint32_t turn)
{
    const bench_scene *s = run->scene;
    uint32_t layers = run->store->layers;
    const kvb_mask *mask = c->entry->way == BENCH_BITS ? &s->bits : &bench_sight_of(s, c->entry->way)->mask;
    if (c->entry->way != BENCH_APART)
        return tokens_attend(run, c, turn % layers, *mask, 0, s->n_tok);
    int error = 0;
    for (uint32_t t = 0; t < s->n_tok && !error; t++)
        error = tokens_attend(run, c, (turn + t) % layers, mask_of(mask, t), t, 1);
    return error;
}

/* Where calls are told in cycles, one thread's are those that it ran: a busy machine changes little. */
static double contestant_sample(const bench_run *run, bench_contestant *c, uint32_t *turn)
{
    double (*clock)(void) = run->scene->work->call && c->team ? now_ns : kvb_now_ns, start = clock();
    for (uint32_t r = 0; r < c->repeats && !c->why[0]; r++)
        contestant_attend(run, c, (*turn)++);
    return (clock() - start) / c->repeats;
}

/* Memory for what it writes, warm-up, and how many calls a sample needs. 0 or -ENOMEM. */
static int contestant_open(const bench_run *run, bench_contestant *c)
{
    const bench_scene *s = run->scene;
    const bench_sight *sight = bench_sight_of(s, c->entry->way);
    size_t bytes = (size_t)s->n_tok * s->heads * sight->group.v_dim * kvb_elem_bytes(sight->out);
    double cell = bench_cell_bytes(s->work);
    uint32_t turn = 0;

    if (c->why[0])
        return 0;
    c->team = c->entry->way == BENCH_ALONE;
    c->bytes = cell * (double)(c->entry->way == BENCH_APART ? sight->pairs : sight->unique);
    c->ops = 2.0 * (double)sight->pairs * s->heads * (sight->group.k_dim + sight->group.v_dim);
    c->call = (kvb_call){.kernel = c->kernel, .team = run->team[c->team], .out_elem = sight->out, .no_staging = true};
    if (!c->call.team) {
        snprintf(c->why, sizeof c->why, "there is but one thread");
        return 0;
    }
    c->out = kvb_memory_take(NULL, "out", bytes);
    if (!c->out)
        return -ENOMEM;
    memset(c->out, 0xff, bytes); /* NaN: an element left unwritten is seen */
    c->repeats = 1;
    contestant_sample(run, c, &turn); /* makes scratch */
    double ns = contestant_sample(run, c, &turn);
    c->repeats = (uint32_t)fmin(1 + SAMPLE_NS / ns, REPEATS);
    return 0;
}

/* ---- probes -------------------------------------------------------------------------------------------------- */

/* GB/s of reading as many bytes as the work has, from as many copies of them. */
static double read_probe(const bench_run *run, uint32_t team, const kvb_probe_memory *copies, double work_bytes,
                         uint32_t *turn)
{
    size_t bytes = (size_t)work_bytes;
    uint32_t layers = run->store->layers, passes = (uint32_t)(PROBE_BYTES / bytes) + 1;
    double ns = 0;
    if (layers == 1)
        ns = kvb_read_pass(run->team[team], copies, bytes, passes);
    for (uint32_t p = 0; p < passes && layers > 1; p++)
        ns += kvb_read_pass(run->team[team], &copies[(*turn)++ % layers], bytes, 1);
    return (double)bytes * passes / ns;
}

/* Gop/s. NaN where it cannot be had. */
static double peak_probe(const kvb_team *team, kvb_peak_kind kind)
{
    char why[96];
    kvb_rate rate;
    return kvb_multiply_add_peak(team, kind, PEAK_SECONDS, &rate, why, sizeof why) ? NAN : rate.median;
}

/* ---- turns --------------------------------------------------------------------------------------------------- */

typedef struct turns {
    bench_run *run;
    kvb_probe_memory copies[BENCH_LAYERS];
    double bytes;                                         /* of one copy */
    uint32_t probe_turn[2], call_turn[BENCH_CONTESTANTS]; /* which copy is next */
} turns;

static bool team_used(const bench_run *run, uint32_t team)
{
    for (uint32_t e = 0; e < run->n; e++)
        if (!run->contestant[e].why[0] && run->contestant[e].team == team)
            return true;
    return false;
}

/* A work that may lie in caches is brought there by a pass or call that does not count: the others were there since. */
static void turn_take(turns *t)
{
    bench_run *run = t->run;
    bool warm = run->scene->work->resident && run->scene->work->limit == BENCH_READ;
    for (uint32_t team = 0; team < 2; team++) {
        if (!team_used(run, team))
            continue;
        if (warm)
            kvb_read_pass(run->team[team], t->copies, (size_t)t->bytes, 1);
        run->read[team][run->turns] = read_probe(run, team, t->copies, t->bytes, &t->probe_turn[team]);
        run->peak[team][run->turns] = peak_probe(run->team[team], run->peak_kind);
    }
    if (run->scene->work->call)
        run->cycle[run->turns] = cycle_ns();
    for (uint32_t e = 0; e < run->n; e++) {
        bench_contestant *c = &run->contestant[e];
        if (c->why[0])
            continue;
        if (warm)
            contestant_attend(run, c, 0);
        c->ns[run->turns] = contestant_sample(run, c, &t->call_turn[e]);
    }
    run->turns++;
}

int bench_run_measure(bench_run *run)
{
    turns t = {.run = run};
    uint32_t layers = run->store->layers, able = 0;
    const kvb_peak_kind wanted = run->scene->work->peak;
    char why[96];
    int error = 0;

    run->peak_kind = kvb_peak_kernel_choose(wanted, why, sizeof why) ? wanted : KVB_PEAK_F32;
    t.bytes = (double)run->scene->own.unique * bench_cell_bytes(run->scene->work);
    for (uint32_t e = 0; e < run->n && !error; e++) {
        error = contestant_open(run, &run->contestant[e]);
        able += !run->contestant[e].why[0];
    }
    for (uint32_t l = 0; l < layers && !error && able; l++)
        error = kvb_probe_memory_open(run->team[0], (size_t)t.bytes, &t.copies[l]);
    double end = kvb_now_ns() + run->seconds * able * 1e9;
    while (!error && able && run->turns < BENCH_TURNS && (run->turns < BENCH_TURNS_MIN || kvb_now_ns() < end))
        turn_take(&t);
    for (uint32_t l = 0; l < layers; l++)
        kvb_probe_memory_close(&t.copies[l]);
    return error;
}

void bench_run_close(bench_run *run)
{
    for (uint32_t e = 0; e < run->n; e++) {
        kvb_call_free(&run->contestant[e].call);
        kvb_memory_give(NULL, run->contestant[e].out, 0);
    }
}

/* ---- figures ------------------------------------------------------------------------------------------------- */

double bench_limit_ns(const bench_run *run, const bench_contestant *c, bench_limit limit, uint32_t i)
{
    double read = c->bytes / run->read[c->team][i], peak = c->ops / run->peak[c->team][i];
    switch (limit) {
    case BENCH_READ:
        return read;
    case BENCH_PEAK:
        return peak;
    case BENCH_LONGER:
        break;
    }
    return fmax(read, peak);
}

bench_figure bench_figure_of(const double *values, uint32_t n)
{
    double some[BENCH_TURNS];
    bench_figure f;
    memcpy(some, values, n * sizeof *some);
    f.median = kvb_quantile(some, n, 0.5);
    for (uint32_t i = 0; i < n; i++)
        some[i] = fabs(values[i] - f.median);
    f.mad = kvb_quantile(some, n, 0.5);
    return f;
}
