/* SPDX-License-Identifier: Apache-2.0 */
/* Times kernels and probes of the limits in rounds. A sample of a short call is several calls. */
#include "harness/bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/program.h"
#include "harness/machine/bandwidth.h"
#include "harness/rounds.h"
#include "kernels/convert.h"
#include "results/statistics.h"

#define SAMPLE_NS    1e6         /* shortest sample of a contestant */
#define PROBE_BYTES  (24u << 20) /* fewest bytes that a probe reads */
#define REPEATS      1000u       /* most calls of a sample */
#define PEAK_SECONDS 0.005       /* of one probe */
#define PATIENCE_NS  5e9         /* a contestant with a longer call is not timed */

/* ---- calls --------------------------------------------------------------------------------------------------- */

/* The views of a copy's rows. */
static void views_of(const kvb_bench_store *store, uint32_t layer, const kvb_bench_sight *sight, kvb_view *k,
                     kvb_view *v)
{
    store->k_type->view(store->k[layer], sight->cells, k);
    *v = *k;
    if (!store->group.latent)
        store->v_type->view(store->v[layer], sight->cells, v);
    v->dim = sight->group.v_dim;
}

static int tokens_attend(const kvb_bench_run *run, kvb_bench_contestant *c, uint32_t layer, kvb_mask mask, uint32_t t,
                         uint32_t n_tok)
{
    const kvb_bench_scene *s = run->scene;
    const kvb_bench_sight *sight = kvb_bench_sight_of(s, c->entry->way);
    const size_t row = (size_t)t * s->heads;
    kvb_attend_spec spec = {.group = &sight->group, .mask = mask};
    views_of(run->store, layer, sight, &spec.k, &spec.v);
    char why[sizeof c->why];
    int error = kvb_call_prepare(&c->call, &spec, s->q + row * sight->group.k_dim, n_tok, why, sizeof why);
    if (error) {
        memcpy(c->why, why, sizeof why);
        return error;
    }
    error =
        kvb_call_run(&c->call, (char *)c->out + row * sight->group.v_dim * kvb_elem_bytes(sight->out), c->lse + row);
    if (error)
        snprintf(c->why, sizeof c->why, "attend: %s", strerror(-error));
    return error;
}

/* Makes one call. APART reads another copy for each token, as an engine reads all layers for each branch. */
static int contestant_attend(const kvb_bench_run *run, kvb_bench_contestant *c, uint32_t turn)
{
    const kvb_bench_scene *s = run->scene;
    uint32_t layers = run->store->layers;
    kvb_mask mask = c->entry->way == KVB_BENCH_BITS ? s->bits : kvb_bench_sight_of(s, c->entry->way)->mask;
    if (c->entry->way != KVB_BENCH_APART)
        return tokens_attend(run, c, turn % layers, mask, 0, s->n_tok);
    int error = 0;
    for (uint32_t t = 0; t < s->n_tok && !error; t++, mask.row_start++) /* runs of the next token */
        error = tokens_attend(run, c, (turn + t) % layers, mask, t, 1);
    return error;
}

/* Nanoseconds of a call. Where the report prints cycles, one thread is timed by its own clock, so a busy machine
 * changes little. */
static double contestant_sample(const kvb_bench_run *run, kvb_bench_contestant *c, uint32_t *turn)
{
    double (*clock)(void) = run->scene->work->call && c->team ? kvb_thread_ns : kvb_now_ns, start = clock();
    for (uint32_t r = 0; r < c->repeats && !c->why[0]; r++)
        contestant_attend(run, c, (*turn)++);
    return (clock() - start) / c->repeats;
}

void kvb_bench_contestant_add(kvb_bench_run *run, const kvb_registry *registry, const kvb_bench_entry *entry,
                              const char *name)
{
    kvb_bench_contestant *c = &run->contestant[run->n++];
    *c = (kvb_bench_contestant){.entry = entry, .name = name, .kernel = kvb_registry_attending(registry, name)};
    if (!c->kernel)
        snprintf(c->why, sizeof c->why, "there is no kernel of this name");
    else if (!c->kernel->available || c->kernel->available(c->why, sizeof c->why))
        c->why[0] = '\0';
}

/* Context of a sample: a contestant, or a probe of a team. */
typedef struct sampling {
    const kvb_bench_run *run;
    kvb_bench_contestant *contestant;
    double bytes; /* of one copy */
    uint32_t team, turn;
} sampling;

/* Does an untimed pass or call bring the work's rows into the CPU's caches before each sample? */
static bool is_warmed(const kvb_bench_run *run)
{
    return run->scene->work->resident && run->scene->work->limit == KVB_BENCH_READ;
}

static double contestant_take(void *ctx)
{
    sampling *s = ctx;
    if (is_warmed(s->run))
        contestant_attend(s->run, s->contestant, 0);
    const double ns = contestant_sample(s->run, s->contestant, &s->turn);
    return s->contestant->why[0] ? NAN : ns;
}

/* Allocates outputs and makes the first call, which takes scratch and is judged. 0 or -ENOMEM. */
static int contestant_open(const kvb_bench_run *run, kvb_bench_contestant *c)
{
    const kvb_bench_scene *s = run->scene;
    const kvb_bench_sight *sight = kvb_bench_sight_of(s, c->entry->way);
    const size_t rows = (size_t)s->n_tok * s->heads, bytes = rows * sight->group.v_dim * kvb_elem_bytes(sight->out);
    double cell = kvb_bench_cell_bytes(s->work);
    uint32_t turn = 0;

    if (c->why[0])
        return 0;
    c->team = c->entry->way == KVB_BENCH_ALONE;
    c->bytes = cell * (double)(c->entry->way == KVB_BENCH_APART ? sight->pairs : sight->unique);
    c->ops = 2.0 * (double)sight->pairs * s->heads * (sight->group.k_dim + sight->group.v_dim);
    c->call = (kvb_call){.kernel = c->kernel, .team = run->team[c->team], .out_elem = sight->out, .no_staging = true};
    if (!c->call.team) {
        snprintf(c->why, sizeof c->why, "there is but one thread");
        return 0;
    }
    c->out = kvb_memory_take(NULL, "out", bytes);
    c->lse = kvb_memory_take(NULL, "lse", rows * sizeof *c->lse);
    if (!c->out || !c->lse)
        return -ENOMEM;
    memset(c->out, 0xff, bytes); /* NaN: the judge finds an unwritten element */
    memset(c->lse, 0xff, rows * sizeof *c->lse);
    c->repeats = 1;
    double ns = contestant_sample(run, c, &turn);
    int error = c->why[0] ? 0 : kvb_bench_judge(run, c);
    if (error || c->why[0] || (c->wrong && !c->foreign))
        return error;
    if (ns < 10 * SAMPLE_NS) /* the first call was the warm-up; a sample is one call if it was slow */
        ns = contestant_sample(run, c, &turn);
    c->repeats = (uint32_t)fmin(1 + SAMPLE_NS / ns, REPEATS);
    if (ns > PATIENCE_NS)
        snprintf(c->why, sizeof c->why, "a call takes %.0f s", ns * 1e-9);
    return 0;
}

/* Is the contestant timed? */
static bool takes_part(const kvb_bench_contestant *c)
{
    return !c->why[0] && (!c->wrong || c->foreign);
}

/* ---- probes -------------------------------------------------------------------------------------------------- */

/* Nanoseconds for each byte: reads as many bytes as the work has, from as many copies. */
static double read_take(void *ctx)
{
    sampling *s = ctx;
    const kvb_bench_store *store = s->run->store;
    const kvb_team *team = s->run->team[s->team];
    const size_t bytes = (size_t)s->bytes, share = bytes / team->n / 64 * 64; /* of each thread's part */
    uint32_t layers = store->layers, passes = (uint32_t)(PROBE_BYTES / bytes) + 1;
    double ns = 0;
    if (is_warmed(s->run))
        kvb_read_pass(team, &store->probed, bytes, 1);
    if (layers == 1)
        ns = kvb_read_pass(team, &store->probed, bytes, passes);
    for (uint32_t p = 0; p < passes && layers > 1; p++) {
        kvb_probe_memory copy = store->probed;
        copy.base += s->turn++ % layers * share;
        ns += kvb_read_pass(team, &copy, bytes, 1);
    }
    return ns / ((double)bytes * passes);
}

/* Nanoseconds for each operation. NAN: not available. */
static double peak_take(void *ctx)
{
    const sampling *s = ctx;
    char why[96];
    kvb_rate rate;
    return kvb_multiply_add_peak(s->run->team[s->team], s->run->peak_kind, PEAK_SECONDS, &rate, why, sizeof why)
               ? NAN
               : 1 / rate.median;
}

/* ---- rounds -------------------------------------------------------------------------------------------------- */

enum { PROBES = 2 + 2 + 1, ALL = PROBES + KVB_BENCH_CONTESTANTS };

static bool team_used(const kvb_bench_run *run, uint32_t team)
{
    for (uint32_t e = 0; e < run->n; e++)
        if (takes_part(&run->contestant[e]) && run->contestant[e].team == team)
            return true;
    return false;
}

/* bytes: of one copy. able: contestants that take part. */
static void rounds_make(kvb_bench_run *run, double bytes, uint32_t able)
{
    sampling sampled[ALL];
    kvb_contestant all[ALL];
    uint32_t n = 0;
    for (uint32_t team = 0; team < 2; team++)
        for (int peak = 0; peak < 2 && team_used(run, team); peak++, n++) {
            sampled[n] = (sampling){.run = run, .bytes = bytes, .team = team};
            all[n] = (kvb_contestant){.take = peak ? peak_take : read_take,
                                      .ctx = &sampled[n],
                                      .samples = peak ? run->peak[team] : run->read[team],
                                      .team = run->team[team],
                                      .limit = true};
        }
    if (run->scene->work->call)
        all[n++] = (kvb_contestant){.take = cycle_take, .samples = run->cycle, .limit = true};
    const uint32_t probes = n;
    for (uint32_t e = 0; e < run->n; e++) {
        kvb_bench_contestant *c = &run->contestant[e];
        if (!takes_part(c))
            continue;
        sampled[n] = (sampling){.run = run, .contestant = c};
        all[n] =
            (kvb_contestant){.take = contestant_take, .ctx = &sampled[n], .samples = c->ns, .team = run->team[c->team]};
        n++;
    }
    const kvb_rounds rounds = {.least = KVB_BENCH_TURNS_MIN, .most = KVB_BENCH_TURNS, .seconds = run->seconds * able};
    run->turns = kvb_rounds_run(&rounds, all, n);
    for (uint32_t i = probes; i < n; i++)
        sampled[i].contestant->turns = all[i].n;
    for (uint32_t team = 0; team < 2; team++)
        for (uint32_t i = 0; i < run->turns; i++) {
            run->read[team][i] = 1 / run->read[team][i];
            run->peak[team][i] = 1 / run->peak[team][i];
        }
}

int kvb_bench_run_measure(kvb_bench_run *run)
{
    kvb_bench_store *store = run->store;
    uint32_t able = 0;
    const kvb_peak_kind wanted = run->scene->work->peak;
    const double bytes = (double)run->scene->own.unique * kvb_bench_cell_bytes(run->scene->work);
    char why[96];
    int error = 0;

    run->peak_kind = kvb_peak_kernel_choose(wanted, why, sizeof why) ? wanted : KVB_PEAK_F32;
    for (uint32_t e = 0; e < run->n && !error && !kvb_stopped; e++) {
        error = contestant_open(run, &run->contestant[e]);
        able += takes_part(&run->contestant[e]);
    }
    if (!error && able &&
        (store->probed.bytes < (size_t)bytes * store->layers || store->probed_by != run->team[0]->n)) {
        kvb_probe_memory_close(&store->probed);
        error = kvb_probe_memory_open(run->team[0], (size_t)bytes * store->layers, &store->probed);
        store->probed_by = run->team[0]->n;
    }
    if (!error && able)
        rounds_make(run, bytes, able);
    return error ? error : kvb_stopped ? -EINTR : 0;
}

void kvb_bench_run_close(kvb_bench_run *run)
{
    for (uint32_t e = 0; e < run->n; e++) {
        kvb_call_free(&run->contestant[e].call);
        kvb_memory_give(NULL, run->contestant[e].out, 0);
        kvb_memory_give(NULL, run->contestant[e].lse, 0);
    }
}

/* ---- figures ------------------------------------------------------------------------------------------------- */

double kvb_bench_limit_ns(const kvb_bench_run *run, const kvb_bench_contestant *c, kvb_bench_limit limit, uint32_t i)
{
    double read = c->bytes / run->read[c->team][i], peak = c->ops / run->peak[c->team][i];
    return limit == KVB_BENCH_READ ? read : limit == KVB_BENCH_PEAK ? peak : fmax(read, peak);
}

kvb_bench_figure kvb_bench_figure_of(const double *values, uint32_t n)
{
    double some[KVB_BENCH_TURNS];
    kvb_bench_figure f;
    memcpy(some, values, n * sizeof *some);
    f.median = kvb_quantile(some, n, 0.5);
    for (uint32_t i = 0; i < n; i++)
        some[i] = fabs(values[i] - f.median);
    f.mad = kvb_quantile(some, n, 0.5);
    return f;
}
