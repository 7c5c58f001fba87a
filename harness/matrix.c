/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over workloads, values, pools, caches, kernels and thread counts. */
#include "harness/matrix.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/calibrate.h"
#include "harness/replay/child.h"
#include "harness/machine/bandwidth.h"
#include "harness/machine/team.h"
#include "harness/progress.h"
#include "harness/spot.h"
#include "oracle/oracle.h"

#define PEAK_SECONDS 0.1 /* for measuring the multiply-add peak of a thread count */
#define NULL_SECONDS 0.8 /* combinations that took less are run again, for the null comparison */

/* One workload with one choice of values, and what is shared by its combinations. */
typedef struct lane {
    const kvb_matrix_options *options;
    const char *name;    /* of the workload */
    const char *profile; /* NULL: its own values */
    const kvb_trace *trace;
    kvb_values *values; /* for kernels that attend; NULL: values_why says why not */
    kvb_values *tags;   /* for witnesses, likewise */
    char values_why[KVB_REASON], tags_why[KVB_REASON];
    const double *peaks; /* f32 multiply-add, GFLOP/s, for each thread count of the selection */
    const bool *wanted;  /* of each combination of the selection: is it to be run? */
} lane;

/* Whatever is wrong with a file is bad input; having no memory is not. */
static int bad_input(int error)
{
    return error && error != -ENOMEM ? -EINVAL : error;
}

size_t kvb_matrix_count(const kvb_selection *s, const kvb_selection *earlier, size_t n_earlier)
{
    size_t n = 0;
    for (size_t i = 0; i < kvb_matrix_size(s); i++)
        n += !kvb_spot_is_elsewhere(s, kvb_spot_of(s, i), earlier, n_earlier);
    return n;
}

/* Runs part() on the team of `team`, a kvb_team: the form that kvb_values_open takes. */
static void team_parallel(void *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    const kvb_team *t = team;
    t->run(t, part, ctx);
}

/* Opens values with all cores. */
static int values_make(const lane *l, const char *profile, kvb_values **values, char *why, size_t why_bytes)
{
    kvb_threads *threads;
    int error = kvb_threads_start(kvb_cores(), false, &threads);
    if (error)
        return error;
    error = kvb_values_open(l->trace, profile, l->options->seed, team_parallel,
                            (void *)(uintptr_t)kvb_threads_team(threads), values, why, why_bytes);
    kvb_threads_end(threads);
    return error;
}

static int oracle_make(const lane *l, const kvb_pool_pair *pools, const float *k_amax, const float *v_amax,
                       kvb_oracle **oracle, char *why, size_t why_bytes)
{
    kvb_threads *threads;
    int error = kvb_threads_start(kvb_cores(), false, &threads);
    if (error)
        return error;
    kvb_oracle_options options = {
        .k_format = pools->k->format,
        .v_format = pools->v->format,
        .k_amax = k_amax,
        .v_amax = v_amax,
        .max_pairs = l->options->oracle_pairs,
        .seed = l->options->seed,
        .team = kvb_threads_team(threads),
    };
    error = kvb_oracle_open(l->trace, l->values, &options, oracle, why, why_bytes);
    kvb_threads_end(threads);
    return error;
}

/* Does the pair store rows of this model? */
static bool pair_fits(const kvb_pool_pair *pair, const kvb_trace_model *m, char *why, size_t why_bytes)
{
    return (!pair->k->supports || pair->k->supports(pair->k, m->k_dim, why, why_bytes)) &&
           (!pair->v->supports || pair->v->supports(pair->v, m->v_dim, why, why_bytes));
}

/* Why a combination cannot be run at all, if so: no child is made for it. */
static bool is_possible(const lane *l, const kvb_child_options *c, const char *oracle_why, char *why, size_t why_bytes)
{
    const kvb_replay_options *r = &c->replay;
    if (r->kernel->available && !r->kernel->available(why, why_bytes))
        return false;
    if (!kvb_replay_fits(&l->trace->needs, r->cache, why, why_bytes) ||
        !kvb_growth_available(r->growth, why, why_bytes))
        return false;
    if (!pair_fits(&(kvb_pool_pair){r->k_pool, r->v_pool}, &l->trace->header.model, why, why_bytes))
        return false;
    const char *lack = !r->values ? (kvb_is_witness(r->kernel) ? l->tags_why : l->values_why)
                       : !kvb_is_witness(r->kernel) && !r->oracle ? oracle_why
                                                                  : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

/* An empty result with the names of a combination; a stand-in for a kernel is replaced where an earlier run knows by what.
 * Else why says why not. The kernel, or NULL. */
static const kvb_kernel *result_name(const kvb_matrix_options *o, kvb_spot at, kvb_result *r, char why[KVB_REASON])
{
    const kvb_selection *s = o->selection;
    const kvb_kernel *kernel = s->kernels[at.kernel];
    const char *profile = s->values[at.values];
    kvb_result_init(r);
    snprintf(r->workload, sizeof r->workload, "%s%s%s", s->workloads[at.workload].name, profile ? "@" : "",
             profile ? profile : "");
    snprintf(r->cache, sizeof r->cache, "%s", s->caches[at.cache]->name);
    snprintf(r->pool_k, sizeof r->pool_k, "%s", s->pools[at.pools].k->name);
    snprintf(r->pool_v, sizeof r->pool_v, "%s", s->pools[at.pools].v->name);
    snprintf(r->growth, sizeof r->growth, "%s", kvb_growth_names[s->growths[at.growth]]);
    r->threads = s->threads[at.threads];
    if (kernel == &kvb_kernel_best)
        kernel = kvb_best_find(o->best, r, why, KVB_REASON);
    snprintf(r->kernel, sizeof r->kernel, "%s", kernel ? kernel->name : kvb_kernel_best.name);
    return kernel;
}

static int combination_run(const lane *l, const kvb_child_options *options, kvb_spot at, const char *oracle_why,
                           kvb_result *result)
{
    kvb_child_options child = *options;
    char why[KVB_REASON];
    const kvb_kernel *kernel = result_name(l->options, at, result, why);
    if (kernel)
        child.replay.kernel = kernel; /* else the stand-in, of which all but that is asked */
    if (!is_possible(l, &child, oracle_why, result->reason, sizeof result->reason))
        return 0;
    if (!kernel) {
        memcpy(result->reason, why, sizeof why);
        return 0;
    }
    return kvb_child_run(&child, result);
}

/* What all combinations of one pair of pools have in common. */
typedef struct block {
    const lane *lane;
    size_t first; /* its first combination among those of the selection */
    size_t n;     /* caches x kernels x growths x thread counts */
    const kvb_pool_pair *pools;
    float *amax[2][2];  /* of the values' and the tags' K and V rows; NULL: no fixed scales */
    kvb_oracle *oracle; /* NULL: none, for the reason given */
    char oracle_why[KVB_REASON];
    kvb_child_options child;
} block;

static bool is_wanted(const block *b, size_t i)
{
    return b->lane->wanted[b->first + i];
}

/* Sets up the i-th combination in b->child. */
static kvb_spot block_select(block *b, size_t i)
{
    const lane *l = b->lane;
    const kvb_selection *s = l->options->selection;
    kvb_spot at = kvb_spot_of(s, b->first + i);
    bool witness = kvb_is_witness(s->kernels[at.kernel]);
    kvb_replay_options *r = &b->child.replay;
    r->cache = s->caches[at.cache];
    r->kernel = s->kernels[at.kernel];
    r->growth = s->growths[at.growth];
    r->values = witness ? l->tags : l->values;
    r->k_amax = b->amax[witness][0];
    r->v_amax = b->amax[witness][1];
    r->oracle = witness ? NULL : b->oracle;
    r->peak_gflop_per_s = l->peaks[at.threads];
    b->child.threads = s->threads[at.threads];
    return at;
}

/*
 * The null comparison between processes: the same combination again, in a child of its own, some time later. The larger
 * difference counts, this one or that between the passes of one process.
 */
static int null_run(block *b, kvb_spot at, kvb_result *result)
{
    kvb_result again;
    double first = result->time.all.median, inside = result->time.null_difference;
    b->child.replay.timeline = NULL;
    int error = combination_run(b->lane, &b->child, at, b->oracle_why, &again);
    b->child.replay.timeline = b->lane->options->timeline;
    if (!error && again.status == KVB_STATUS_PASS)
        result->time.null_difference = fmax(isnan(inside) ? 0 : inside, fabs(again.time.all.median / first - 1));
    return error;
}

/* Combinations of a block on their way. */
typedef struct course {
    kvb_result *results; /* [block.n] */
    bool *final;         /* [block.n] nothing is to be added to the result */
    size_t taken;        /* those before are with the caller */
} course;

/* Gives the caller what is final, in order: a run that ends early has lost as little as can be. */
static int course_take(const block *b, course *c)
{
    const kvb_matrix_options *o = b->lane->options;
    int error = 0;
    for (; c->taken < b->n && (c->final[c->taken] || !is_wanted(b, c->taken)) && !error; c->taken++)
        if (is_wanted(b, c->taken))
            error = o->take(o->ctx, &c->results[c->taken]);
    return error;
}

/* Each combination once, then those that are quick once more. */
static int course_run(block *b, course *c, char *why, size_t why_bytes)
{
    const kvb_matrix_options *o = b->lane->options;
    int error = 0, taken = 0;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < b->n && !error && !taken && !*o->stop; i++) {
            if (!is_wanted(b, i) || c->final[i])
                continue;
            kvb_spot at = block_select(b, i);
            kvb_result *result = &c->results[i];
            kvb_progress clock;
            kvb_progress_start(&clock, 1);
            error = round ? null_run(b, at, result) : combination_run(b->lane, &b->child, at, b->oracle_why, result);
            bool again = round == 0 && !o->no_null && b->child.replay.oracle && result->status == KVB_STATUS_PASS &&
                         kvb_progress_seconds(&clock) < NULL_SECONDS;
            c->final[i] = !error && !again;
            taken = course_take(b, c);
        }
    if (error)
        snprintf(why, why_bytes, "cannot make a child process: %s", strerror(-error));
    return error ? error : taken ? taken : *o->stop ? -EINTR : 0;
}

static int block_run(block *b, char *why, size_t why_bytes)
{
    course c = {.results = calloc(b->n, sizeof *c.results), .final = calloc(b->n, sizeof *c.final)};
    int error = c.results && c.final ? course_run(b, &c, why, why_bytes) : -ENOMEM;
    free(c.results);
    free(c.final);
    return error;
}

/* Largest magnitudes of K and V rows, of values and tags, for pools that want them. */
static int block_calibrate(block *b)
{
    const kvb_trace_model *m = &b->lane->trace->header.model;
    const kvb_values *of[2] = {b->lane->values, b->lane->tags};
    int error = 0;
    for (int i = 0; i < 2 && !error; i++) {
        if (of[i])
            error = kvb_calibrate(m, of[i], KVB_ROWS_K, b->pools->k->format, &b->amax[i][0]);
        if (of[i] && !error)
            error = kvb_calibrate(m, of[i], KVB_ROWS_V, b->pools->v->format, &b->amax[i][1]);
    }
    return error;
}

/* All caches, kernels, thread counts and growths of one pair of pools. */
static int pools_run(const lane *l, size_t first, char *why, size_t why_bytes)
{
    const kvb_selection *s = l->options->selection;
    const kvb_matrix_options *o = l->options;
    const kvb_pool_pair *pools = &s->pools[kvb_spot_of(s, first).pools];
    block b = {
        .lane = l,
        .first = first,
        .n = kvb_block_size(s),
        .pools = pools,
        .child = {.replay = {.trace = l->trace,
                             .k_pool = pools->k,
                             .v_pool = pools->v,
                             .capacity = o->capacity,
                             .min_chunk = o->min_chunk,
                             .max_pairs = o->max_pairs,
                             .seconds = o->sample_seconds,
                             .width = o->width,
                             .cache_state = o->cache_state,
                             .guarded = !o->unguarded,
                             .no_staging = o->no_staging,
                             .deterministic = o->deterministic,
                             .timeline = o->timeline},
                  .seconds = o->seconds,
                  .unbound = o->unbound,
                  .first_touch = o->first_touch,
                  .events = o->events},
    };
    bool any = false, judged = false; /* anything at all; something that an oracle is for */
    for (size_t i = 0; i < b.n; i++)
        if (is_wanted(&b, i)) {
            any = true;
            judged = judged || !kvb_is_witness(s->kernels[kvb_spot_of(s, first + i).kernel]);
        }
    if (!any)
        return 0;
    int error = block_calibrate(&b);
    if (!error && l->values && judged)
        error = oracle_make(l, pools, b.amax[0][0], b.amax[0][1], &b.oracle, b.oracle_why, sizeof b.oracle_why);
    if (error && error != -ENOTSUP)
        snprintf(why, why_bytes, "%s: oracle: %s", l->name, *b.oracle_why ? b.oracle_why : strerror(-error));
    else
        error = block_run(&b, why, why_bytes);
    kvb_oracle_free(b.oracle);
    for (int i = 0; i < 4; i++)
        free(b.amax[i / 2][i % 2]);
    return error;
}

/* All pairs of pools of one workload and values; `first` is their first combination. A profile or tags that the model does
 * not allow are a reason to skip; the workload's own values must be right. */
static int lane_run(lane *l, size_t first, char *why, size_t why_bytes)
{
    const kvb_selection *s = l->options->selection;
    size_t n = s->n_pools * kvb_block_size(s);
    bool any = false, witness = false;
    for (size_t i = 0; i < n; i++)
        if (l->wanted[first + i]) {
            any = true;
            witness = witness || kvb_is_witness(s->kernels[kvb_spot_of(s, first + i).kernel]);
        }
    if (!any)
        return 0;
    int error = values_make(l, l->profile, &l->values, l->values_why, sizeof l->values_why);
    if (error && !(l->profile && error == -EINVAL)) {
        snprintf(why, why_bytes, "%s", l->values_why);
        return bad_input(error);
    }
    error = witness ? values_make(l, "tags", &l->tags, l->tags_why, sizeof l->tags_why) : 0;
    if (error == -EINVAL)
        error = 0;
    if (error)
        snprintf(why, why_bytes, "%s", l->tags_why);
    for (size_t i = first; i < first + n && !error; i += kvb_block_size(s))
        error = pools_run(l, i, why, why_bytes);
    kvb_values_free(l->values);
    kvb_values_free(l->tags);
    return error;
}

/* The f32 multiply-add peak of n threads; NaN where it cannot be had. */
static int peak_measure(uint32_t n, bool bind, double *peak)
{
    kvb_threads *threads;
    kvb_rate rate;
    char why[128];
    int error = kvb_threads_start(n, bind, &threads);
    if (error)
        return error;
    bool known = !kvb_multiply_add_peak(kvb_threads_team(threads), KVB_PEAK_F32, PEAK_SECONDS, &rate, why, sizeof why);
    *peak = known ? rate.median : NAN;
    kvb_threads_end(threads);
    return 0;
}

static int pools_check(const kvb_selection *s, kvb_trace *const *traces, char *why, size_t why_bytes)
{
    bool fits = s->n_workloads == 0 || s->n_pools == 0;
    for (size_t p = 0; p < s->n_pools && !fits; p++)
        for (size_t w = 0; w < s->n_workloads && !fits; w++)
            fits = pair_fits(&s->pools[p], &traces[w]->header.model, why, why_bytes);
    if (fits)
        why[0] = '\0';
    return fits ? 0 : -EINVAL;
}

/* Asks the caller about each combination. *n: how many are to be run. */
static int wanted_ask(const kvb_matrix_options *o, bool *wanted, size_t *n)
{
    const kvb_selection *s = o->selection;
    size_t number = o->first;
    int answer = 0;
    *n = 0;
    for (size_t i = 0; i < kvb_matrix_size(s) && answer >= 0; i++) {
        kvb_spot at = kvb_spot_of(s, i);
        if (kvb_spot_is_elsewhere(s, at, o->earlier, o->n_earlier))
            continue;
        kvb_result names;
        char why[KVB_REASON];
        result_name(o, at, &names, why);
        answer = o->wants(o->ctx, number++, &names);
        wanted[i] = answer > 0;
        *n += wanted[i];
    }
    return answer < 0 ? answer : 0;
}

static int lanes_run(const kvb_matrix_options *o, kvb_trace *const *traces, const bool *wanted, char *why,
                     size_t why_bytes)
{
    const kvb_selection *s = o->selection;
    double peaks[KVB_MAX_THREAD_COUNTS];
    size_t each = s->n_pools * kvb_block_size(s);
    int error = 0;
    for (size_t t = 0; t < s->n_threads && !error; t++)
        error = peak_measure(s->threads[t], !o->unbound, &peaks[t]);
    for (size_t first = 0; first < kvb_matrix_size(s) && !error; first += each) {
        kvb_spot at = kvb_spot_of(s, first);
        lane l = {.options = o,
                  .name = s->workloads[at.workload].name,
                  .profile = s->values[at.values],
                  .trace = traces[at.workload],
                  .peaks = peaks,
                  .wanted = wanted};
        error = lane_run(&l, first, why, why_bytes);
    }
    return error;
}

int kvb_matrix_run(const kvb_matrix_options *options, char *why, size_t why_bytes)
{
    const kvb_selection *s = options->selection;
    kvb_trace **traces = calloc(s->n_workloads + 1, sizeof *traces);
    bool *wanted = calloc(kvb_matrix_size(s) + 1, sizeof *wanted);
    size_t n = 0;
    int error = traces && wanted ? 0 : -ENOMEM;
    why[0] = '\0';
    for (size_t w = 0; w < s->n_workloads && !error; w++) /* all of them first: bad input costs no work */
        error = bad_input(kvb_trace_load(s->workloads[w].path, options->capacity, &traces[w], why, why_bytes));
    if (!error && options->pools_must_fit)
        error = pools_check(s, traces, why, why_bytes);
    if (!error)
        error = wanted_ask(options, wanted, &n);
    if (!error && n)
        error = lanes_run(options, traces, wanted, why, why_bytes);
    for (size_t w = 0; traces && w < s->n_workloads; w++)
        kvb_trace_free(traces[w]);
    free(traces);
    free(wanted);
    if (error && !why[0])
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}
