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
} lane;

/* Whatever is wrong with a file is bad input; having no memory is not. */
static int bad_input(int error)
{
    return error && error != -ENOMEM ? -EINVAL : error;
}

static bool is_witness(const kvb_kernel *kernel)
{
    return kernel->flags & KVB_KERNEL_WITNESS;
}

/* A witness sees tags, whatever the profile: it runs with the first values only. */
static bool is_covered(const kvb_kernel *kernel, size_t values)
{
    return !is_witness(kernel) || values == 0;
}

/* Is this combination left to others: to the first values, or to an earlier selection? */
static bool is_elsewhere(const kvb_selection *s, const kvb_selection *earlier, size_t n_earlier, size_t workload,
                         size_t values, const kvb_pool_pair *pools, const kvb_cache_type *cache,
                         const kvb_kernel *kernel)
{
    bool elsewhere = !is_covered(kernel, values);
    for (size_t e = 0; e < n_earlier && !elsewhere; e++)
        elsewhere =
            kvb_selection_covers(&earlier[e], s->workloads[workload].path, s->values[values], pools, cache, kernel);
    return elsewhere;
}

size_t kvb_matrix_count(const kvb_selection *s, const kvb_selection *earlier, size_t n_earlier)
{
    size_t n = 0;
    for (size_t w = 0; w < s->n_workloads; w++)
        for (size_t v = 0; v < s->n_values; v++)
            for (size_t p = 0; p < s->n_pools; p++)
                for (size_t c = 0; c < s->n_caches; c++)
                    for (size_t k = 0; k < s->n_kernels; k++)
                        n += !is_elsewhere(s, earlier, n_earlier, w, v, &s->pools[p], s->caches[c], s->kernels[k]);
    return n * s->n_threads * s->n_growths;
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
    const char *lack = !r->values                             ? (is_witness(r->kernel) ? l->tags_why : l->values_why)
                       : !is_witness(r->kernel) && !r->oracle ? oracle_why
                                                              : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

static int combination_run(const lane *l, const kvb_child_options *options, const char *oracle_why, kvb_result *result)
{
    kvb_child_options child = *options, *c = &child; /* the kernel may be another */
    kvb_replay_options *r = &child.replay;
    kvb_result_init(result);
    snprintf(result->workload, sizeof result->workload, "%s%s%s", l->name, l->profile ? "@" : "",
             l->profile ? l->profile : "");
    snprintf(result->cache, sizeof result->cache, "%s", r->cache->name);
    snprintf(result->pool_k, sizeof result->pool_k, "%s", r->k_pool->name);
    snprintf(result->pool_v, sizeof result->pool_v, "%s", r->v_pool->name);
    snprintf(result->kernel, sizeof result->kernel, "%s", r->kernel->name);
    snprintf(result->growth, sizeof result->growth, "%s", kvb_growth_names[r->growth]);
    result->threads = c->threads;
    if (r->kernel == &kvb_kernel_best) {
        char why[KVB_REASON];
        const kvb_kernel *found = kvb_best_find(l->options->best, result, why, sizeof why);
        if (!found && is_possible(l, c, oracle_why, result->reason, sizeof result->reason))
            memcpy(result->reason, why, sizeof why);
        if (!found)
            return 0;
        r->kernel = found;
        snprintf(result->kernel, sizeof result->kernel, "%s", found->name);
    }
    if (!is_possible(l, c, oracle_why, result->reason, sizeof result->reason))
        return 0;
    return kvb_child_run(c, result);
}

/* What all combinations of one pair of pools have in common. */
typedef struct block {
    const lane *lane;
    size_t workload, values;
    const kvb_pool_pair *pools;
    float *amax[2][2];  /* of the values' and the tags' K and V rows; NULL: no fixed scales */
    kvb_oracle *oracle; /* NULL: none, for the reason given */
    char oracle_why[KVB_REASON];
    kvb_child_options child;
    size_t n; /* caches x kernels x thread counts x growths */
} block;

/* Sets up the i-th combination in b->child; false: it is not covered. */
static bool block_select(block *b, size_t i)
{
    const lane *l = b->lane;
    const kvb_selection *s = l->options->selection;
    size_t threads = i % s->n_threads, growth = i / s->n_threads % s->n_growths;
    size_t rest = i / s->n_threads / s->n_growths;
    const kvb_kernel *kernel = s->kernels[rest % s->n_kernels];
    bool witness = is_witness(kernel);
    kvb_replay_options *r = &b->child.replay;
    r->cache = s->caches[rest / s->n_kernels];
    r->kernel = kernel;
    r->growth = s->growths[growth];
    r->values = witness ? l->tags : l->values;
    r->k_amax = b->amax[witness][0];
    r->v_amax = b->amax[witness][1];
    r->oracle = witness ? NULL : b->oracle;
    r->peak_gflop_per_s = l->peaks[threads];
    b->child.threads = s->threads[threads];
    return !is_elsewhere(s, l->options->earlier, l->options->n_earlier, b->workload, b->values, b->pools, r->cache,
                         kernel);
}

/*
 * The null comparison between processes: the same combination again, in a child of its own, some time later. The larger
 * difference counts, this one or that between the passes of one process.
 */
static int null_run(block *b, kvb_result *result)
{
    kvb_result again;
    double first = result->time.all.median, inside = result->time.null_difference;
    b->child.replay.timeline = NULL;
    int error = combination_run(b->lane, &b->child, b->oracle_why, &again);
    b->child.replay.timeline = b->lane->options->timeline;
    if (!error && again.status == KVB_STATUS_PASS)
        result->time.null_difference = fmax(isnan(inside) ? 0 : inside, fabs(again.time.all.median / first - 1));
    return error;
}

static int block_run(block *b, char *why, size_t why_bytes)
{
    const kvb_matrix_options *o = b->lane->options;
    kvb_result *results = calloc(b->n, sizeof *results);
    double *seconds = calloc(b->n, sizeof *seconds);
    int error = results && seconds ? 0 : -ENOMEM;
    for (size_t i = 0; i < b->n && !error && !*o->stop; i++) {
        kvb_progress clock;
        kvb_progress_start(&clock, 1);
        if (block_select(b, i))
            error = combination_run(b->lane, &b->child, b->oracle_why, &results[i]);
        seconds[i] = kvb_progress_seconds(&clock);
    }
    for (size_t i = 0; i < b->n && !error && !*o->stop && !o->no_null; i++)
        if (block_select(b, i) && b->child.replay.oracle && results[i].status == KVB_STATUS_PASS &&
            seconds[i] < NULL_SECONDS)
            error = null_run(b, &results[i]);
    if (error)
        snprintf(why, why_bytes, "cannot make a child process: %s", strerror(-error));
    for (size_t i = 0; i < b->n && !error; i++)
        if (results[i].kernel[0])
            error = o->take(o->ctx, &results[i]);
    free(results);
    free(seconds);
    return error ? error : *o->stop ? -EINTR : 0;
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
static int pools_run(const lane *l, size_t workload, size_t values, const kvb_pool_pair *pools, char *why,
                     size_t why_bytes)
{
    const kvb_selection *s = l->options->selection;
    const kvb_matrix_options *o = l->options;
    block b = {
        .lane = l,
        .workload = workload,
        .values = values,
        .pools = pools,
        .n = s->n_caches * s->n_kernels * s->n_threads * s->n_growths,
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
    bool wanted = false, any = false; /* an oracle; anything at all */
    for (size_t i = 0; i < b.n; i++)
        if (block_select(&b, i)) {
            any = true;
            wanted = wanted || !is_witness(b.child.replay.kernel);
        }
    if (!any)
        return 0;
    int error = block_calibrate(&b);
    if (!error && l->values && wanted)
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

/* A profile or tags that the model does not allow are a reason to skip; the workload's own values must be right. */
static int lane_run(lane *l, size_t workload, size_t values, char *why, size_t why_bytes)
{
    const kvb_selection *s = l->options->selection;
    bool witness = false;
    l->profile = s->values[values];
    for (size_t k = 0; k < s->n_kernels; k++)
        witness = witness || (is_witness(s->kernels[k]) && is_covered(s->kernels[k], values));
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
    for (size_t p = 0; p < s->n_pools && !error; p++)
        error = pools_run(l, workload, values, &s->pools[p], why, why_bytes);
    kvb_values_free(l->values);
    kvb_values_free(l->tags);
    l->values = l->tags = NULL;
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

int kvb_matrix_run(const kvb_matrix_options *options, char *why, size_t why_bytes)
{
    const kvb_selection *s = options->selection;
    double peaks[KVB_MAX_THREAD_COUNTS];
    kvb_trace **traces = calloc(s->n_workloads + 1, sizeof *traces);
    int error = traces ? 0 : -ENOMEM;
    why[0] = '\0';
    for (size_t w = 0; w < s->n_workloads && !error; w++) /* all of them first: bad input costs no work */
        error = bad_input(kvb_trace_load(s->workloads[w].path, options->capacity, &traces[w], why, why_bytes));
    if (!error && options->pools_must_fit)
        error = pools_check(s, traces, why, why_bytes);
    for (size_t t = 0; t < s->n_threads && !error; t++)
        error = peak_measure(s->threads[t], !options->unbound, &peaks[t]);
    for (size_t i = 0; i < s->n_workloads * s->n_values && !error; i++) {
        size_t w = i / s->n_values;
        lane l = {.options = options, .name = s->workloads[w].name, .trace = traces[w], .peaks = peaks};
        error = lane_run(&l, w, i % s->n_values, why, why_bytes);
    }
    for (size_t w = 0; traces && w < s->n_workloads; w++)
        kvb_trace_free(traces[w]);
    free(traces);
    if (error && !why[0])
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}
