/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of a replay. */
#include "harness/replay/meter.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "harness/rounds.h"
#include "harness/counters/counters.h"
#include "harness/replay/pass.h"
#include "results/statistics.h"
#include "workloads/array.h"

/* Growing arrays of step times, and their statistics pass by pass. */

#define CONFIDENCE       0.95
#define BOOTSTRAP_ROUNDS 400u
#define MANY_PASSES      4u   /* with so many passes, passes are compared; with fewer, steps */
#define STEADY_WINDOW    3u   /* passes */
#define STEADY_TOLERANCE 0.05 /* of the median */

/* The steps that attend: the subject of a result's `time`. */
static const kvb_step_kind attending[] = {KVB_KIND_PREFILL, KVB_KIND_DECODE, KVB_KIND_FORK, KVB_KIND_VERIFY};
#define ATTENDING (sizeof attending / sizeof *attending)

int kvb_sample_add(kvb_samples *s, double ns)
{
    int error = kvb_array_reserve(&s->ns, &s->room, s->n + 1, sizeof *s->ns);
    if (!error)
        s->ns[s->n++] = ns;
    return error;
}

void kvb_samples_free(kvb_samples *s)
{
    free(s->ns);
    *s = (kvb_samples){0};
}

double kvb_samples_median(const kvb_samples *s)
{
    double *copy = malloc((s->n + 1) * sizeof *copy), median = NAN;
    if (copy && s->n) {
        memcpy(copy, s->ns, s->n * sizeof *copy);
        median = kvb_quantile(copy, s->n, 0.5);
    }
    free(copy);
    return median;
}

double kvb_samples_pass(const kvb_samples *s, size_t passes, size_t pass)
{
    size_t each = s->n / passes;
    double sum = 0;
    for (size_t i = pass * each; i < (pass + 1) * each; i++)
        sum += s->ns[i];
    return sum;
}

kvb_step_kind kvb_kind_main(const double flops[KVB_STEP_KINDS])
{
    kvb_step_kind most = attending[0];
    for (size_t k = 1; k < ATTENDING; k++)
        if (flops[attending[k]] > flops[most])
            most = attending[k];
    return most;
}

size_t kvb_warmup_passes(const kvb_samples times[KVB_STEP_KINDS], size_t passes)
{
    double *totals = calloc(passes, sizeof *totals);
    size_t warmup = passes / 2;
    if (passes < 2 * STEADY_WINDOW || !totals) {
        free(totals);
        return passes > 1; /* too few to compare: leaves out the first, which was judged and had cold memory */
    }
    for (size_t p = 0; p < passes; p++)
        for (size_t k = 0; k < ATTENDING; k++)
            totals[p] += kvb_samples_pass(&times[attending[k]], passes, p);
    for (size_t n = 2 * STEADY_WINDOW; n <= passes; n++)
        if (kvb_series_steady(totals, n, STEADY_WINDOW, STEADY_TOLERANCE)) {
            warmup = n - STEADY_WINDOW < warmup ? n - STEADY_WINDOW : warmup; /* the later window is steady */
            break;
        }
    free(totals);
    return warmup ? warmup : 1;
}

/* Median of each pass from `warmup` on; the caller frees it. */
static double *pass_medians(const kvb_samples *s, size_t passes, size_t warmup)
{
    size_t each = s->n / passes;
    double *medians = malloc((passes - warmup) * sizeof *medians), *copy = malloc((each + 1) * sizeof *copy);
    for (size_t p = warmup; p < passes && medians && copy; p++) {
        memcpy(copy, s->ns + p * each, each * sizeof *copy);
        medians[p - warmup] = kvb_quantile(copy, each, 0.5);
    }
    if (!copy) {
        free(medians);
        medians = NULL;
    }
    free(copy);
    return medians;
}

double kvb_samples_width(const kvb_samples *s, size_t passes, size_t warmup)
{
    double low, high, width = INFINITY;
    double *medians = passes >= MANY_PASSES + warmup && s->n ? pass_medians(s, passes, warmup) : NULL;
    if (medians && !kvb_median_interval(medians, passes - warmup, CONFIDENCE, BOOTSTRAP_ROUNDS, 1, &low, &high))
        width = (high - low) / low;
    free(medians);
    return width;
}

/* Fills time.series from the pass medians, in blocks of equal size; the earliest passes are left out if there is a rest. */
static int series_fill(const kvb_samples *all, size_t passes, size_t warmup, kvb_result *result)
{
    size_t n = passes - warmup, block = (n + KVB_SERIES - 1) / KVB_SERIES;
    if (n < MANY_PASSES || !all->n)
        return 0;
    double *medians = pass_medians(all, passes, warmup);
    if (!medians)
        return -ENOMEM;
    result->time.n_series = (uint32_t)(n / block);
    for (uint32_t i = 0; i < result->time.n_series; i++)
        result->time.series[i] = kvb_quantile(medians + n % block + i * block, block, 0.5);
    free(medians);
    return 0;
}

/* Statistics of one series. difference NULL: no null comparison. */
static int series_report(const kvb_samples *s, size_t passes, size_t warmup, kvb_time_stats *stats, double *difference)
{
    size_t each = s->n / passes, n = s->n - warmup * each, n_values = n;
    const double *values = s->ns + warmup * each;
    double *medians = NULL, *copy = malloc((n + 1) * sizeof *copy), low, high;
    int error = copy ? 0 : -ENOMEM;
    if (n == 0 || error)
        goto out;
    if (passes - warmup >= MANY_PASSES) {
        values = medians = pass_medians(s, passes, warmup);
        n_values = passes - warmup;
        error = medians ? 0 : -ENOMEM;
    }
    if (!error && difference)
        *difference = kvb_null_difference(values, n_values);
    if (!error)
        error = kvb_median_interval(values, n_values, CONFIDENCE, BOOTSTRAP_ROUNDS, 1, &low, &high);
    if (error)
        goto out;
    memcpy(copy, s->ns + warmup * each, n * sizeof *copy);
    kvb_time_stats_of(copy, n, stats);
    if (medians)
        stats->median = kvb_quantile(medians, n_values, 0.5);
    stats->low = low;
    stats->high = high;
out:
    free(copy);
    free(medians);
    return error;
}

int kvb_samples_report(const kvb_samples times[KVB_STEP_KINDS], kvb_step_kind most, size_t passes, size_t warmup,
                       kvb_result *result)
{
    kvb_samples all = {0};
    int error = 0;
    for (size_t p = 0; p < passes; p++)
        for (size_t k = 0; k < ATTENDING; k++) {
            const kvb_samples *s = &times[attending[k]];
            size_t each = s->n / passes;
            for (size_t i = p * each; i < (p + 1) * each && !error; i++)
                error = kvb_sample_add(&all, s->ns[i]);
        }
    result->time.passes = passes;
    result->time.warmup = warmup;
    if (!error)
        error = series_report(&all, passes, warmup, &result->time.all, NULL);
    if (!error)
        error = series_fill(&all, passes, warmup, result);
    for (int k = 0; k < KVB_STEP_KINDS && !error; k++)
        error = series_report(&times[k], passes, warmup, &result->time.kinds[k],
                              k == (int)most ? &result->time.null_difference : NULL);
    kvb_samples_free(&all);
    return error;
}

/* Step times against context: steps sorted by the cells that they read, cut into points, each with its median time. */

/* A step of a pass. */
typedef struct step {
    double cells;
    size_t number;
} step;

static int step_compare(const void *a, const void *b)
{
    const step *x = a, *y = b;
    return (x->cells > y->cells) - (x->cells < y->cells);
}

/* Makes a point of n steps. values: room for n times of each pass. */
static void point_make(const kvb_samples *times, size_t passes, size_t warmup, const step *steps, size_t n,
                       double *values, kvb_context_point *point)
{
    size_t each = times->n / passes, n_values = 0;
    for (size_t p = warmup; p < passes; p++)
        for (size_t i = 0; i < n; i++)
            values[n_values++] = times->ns[p * each + steps[i].number];
    double middle = (steps[(n - 1) / 2].cells + steps[n / 2].cells) / 2;
    *point = (kvb_context_point){.cells = middle, .ns = kvb_quantile(values, n_values, 0.5), .samples = n_values};
}

int kvb_contexts_report(const kvb_samples *times, const kvb_samples *cells, size_t passes, size_t warmup,
                        kvb_result *result)
{
    size_t n = cells->n, distinct = 0, first = 0;
    step *steps = malloc((n + 1) * sizeof *steps);
    double *values = malloc((times->n + 1) * sizeof *values);
    uint32_t points = 0;
    for (size_t i = 0; i < n && steps; i++)
        steps[i] = (step){cells->ns[i], i};
    if (steps && values) {
        qsort(steps, n, sizeof *steps, step_compare);
        for (size_t i = 0; i < n; i++)
            distinct += i == 0 || steps[i].cells != steps[i - 1].cells;
        /* A point ends where the number of cells changes; if that makes too many points, only once it has its share of
         * steps. */
        for (size_t i = 1; i <= n; i++) {
            bool changes = i == n || steps[i].cells != steps[i - 1].cells;
            bool full = i == n || distinct <= KVB_CONTEXTS || i * KVB_CONTEXTS >= (points + 1) * n;
            if (!changes || !full)
                continue;
            point_make(times, passes, warmup, steps + first, i - first, values, &result->time.contexts[points++]);
            first = i;
        }
        result->time.n_contexts = points;
    }
    int error = steps && values ? 0 : -ENOMEM;
    free(steps);
    free(values);
    return error;
}

/* Bandwidth probes between passes, and the fractions that follow from them. */

#define PROBE_BYTES (4u << 20) /* a probe reads at least so much, so that reading the clock does not matter */
#define PROBE_LINE  64u        /* a thread reads at least so many bytes */

int kvb_roofline_open(kvb_roofline *r, const kvb_team *team, double working_set)
{
    *r = (kvb_roofline){.team = team, .working_set = (size_t)working_set};
    if (r->working_set < (size_t)team->n * PROBE_LINE)
        r->working_set = 0;
    return r->working_set ? kvb_probe_memory_open(team, r->working_set, &r->memory) : 0;
}

int kvb_roofline_probe(kvb_roofline *r)
{
    if (!r->working_set)
        return 0;
    uint32_t passes = (uint32_t)(PROBE_BYTES / r->working_set) + 1;
    kvb_read_pass(r->team, &r->memory, r->working_set, 1); /* the CPU's caches hold other data after a pass */
    double ns = kvb_read_pass(r->team, &r->memory, r->working_set, passes);
    return kvb_sample_add(&r->rates, (double)r->working_set * passes / ns);
}

void kvb_roofline_close(kvb_roofline *r)
{
    kvb_samples_free(&r->rates);
    if (r->working_set)
        kvb_probe_memory_close(&r->memory);
}

void kvb_roofline_report(const kvb_roofline *r, double bytes, double flops, double ns, double peak, kvb_result *result)
{
    const double read = kvb_samples_median(&r->rates);
    result->traffic.gb_per_s = bytes / ns; /* a byte a nanosecond is 1 GB/s */
    result->traffic.gflop_per_s = flops / ns;
    result->traffic.read_gb_per_s = read;
    result->traffic.peak_gflop_per_s = peak;
    result->traffic.of_read = bytes / ns / read;
    result->traffic.of_limit = fmax(bytes / read, flops / peak) / ns;
    if (isnan(read) || isnan(peak))
        result->traffic.of_limit = NAN;
}

/* Cells that a mask lets a step read. */

void kvb_traffic_count(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t *seen, kvb_traffic *traffic)
{
    size_t words = ((size_t)n_cells + 63) / 64;
    memset(seen, 0, words * sizeof *seen);
    *traffic = (kvb_traffic){0};
    if (mask->kind == KVB_MASK_EXPLICIT)
        traffic->mask_words = n_tok * mask->row_words;
    if (mask->kind == KVB_MASK_RUNS) /* the row starts, two to a word, and the runs */
        traffic->mask_words = ((uint64_t)n_tok + 2) / 2 + mask->row_start[n_tok];
    for (uint32_t t = 0; t < n_tok; t++) {
        if (mask->kind ==
            KVB_MASK_PAGES) { /* the query's run, the start of its table, and each table once, two entries to a word */
            bool again = t > 0 && mask->row_start[t] == mask->row_start[t - 1];
            traffic->mask_words += 2 + (again ? 0 : mask->seen[t].end / mask->page_cells / 2);
        }
        uint32_t cursor = 0;
        kvb_run run;
        while (kvb_mask_next(mask, n_tok, n_cells, t, &cursor, &run)) {
            kvb_bits_set(seen, run.begin, run.end);
            traffic->pairs += run.end - run.begin;
        }
    }
    for (size_t w = 0; w < words; w++)
        traffic->unique_cells += (uint64_t)__builtin_popcountll(seen[w]);
}

/* Memory over a replay. */

FILE *kvb_timeline_open(const char *path)
{
    FILE *timeline = fopen(path, "w");
    if (timeline)
        fputs("workload,cache,pool_k,pool_v,kernel,threads,event,line,kind,cells_live,high_water,reserved_bytes,"
              "allocator_bytes,allocator_peak_bytes\n",
              timeline);
    return timeline;
}

void kvb_timeline_print(FILE *timeline, const kvb_result *r, uint32_t number, const kvb_event *event,
                        kvb_step_kind kind, const kvb_cache_usage *usage, const kvb_allocator *allocator)
{
    fprintf(timeline, "%s,%s,%s,%s,%s,%u,%u,%" PRIu64 ",%s,%u,%u,%zu,%zu,%zu\n", r->workload, r->cache, r->pool_k,
            r->pool_v, r->kernel, r->threads, number, event->line, kvb_step_kind_name(kind), usage->cells_live,
            usage->high_water, usage->reserved_bytes, allocator->current_bytes, allocator->peak_bytes);
}

int kvb_memory_log_add(kvb_memory_log *log, kvb_memory_point point)
{
    int error = kvb_array_reserve(&log->at, &log->room, log->n + 1, sizeof *log->at);
    if (!error)
        log->at[log->n++] = point;
    return error;
}

void kvb_memory_log_report(const kvb_memory_log *log, kvb_result *result)
{
    size_t spread = KVB_MEMORY_POINTS - 2, live = 0, held = 0, taken = 0; /* two places are for the highest points */
    for (size_t i = 0; i < log->n; i++) {
        live = log->at[i].live_bytes > log->at[live].live_bytes ? i : live;
        held = log->at[i].held_bytes > log->at[held].held_bytes ? i : held;
    }
    result->memory.n_timeline = 0;
    for (size_t i = 0; i < log->n; i++) {
        bool even = log->n <= KVB_MEMORY_POINTS || i == taken * (log->n - 1) / (spread - 1);
        taken += even;
        if (even || i == live || i == held)
            result->memory.timeline[result->memory.n_timeline++] = log->at[i];
    }
}

void kvb_memory_log_free(kvb_memory_log *log)
{
    free(log->at);
    *log = (kvb_memory_log){0};
}

/* ---- a pass: its clock, and its steps' traffic ------------------------------------------------------------------ */

double kvb_pass_clock(kvb_pass *p)
{
    if (p->number == kvb_pass_counted(p) && p->options->counters)
        kvb_counters_start(p->options->counters);
    kvb_own_counts *counts = p->options->counts, *pending = &p->meter.pending;
    counts->cells_read += pending->cells_read;
    counts->bytes_read += pending->bytes_read;
    counts->bytes_walk += pending->bytes_walk;
    counts->mask_words += pending->mask_words;
    counts->rescales += pending->rescales;
    *pending = (kvb_own_counts){0};
    kvb_count_turn();
    return kvb_now_ns();
}

void kvb_pass_charge(kvb_pass *p, double started, kvb_time_account account)
{
    double ns = kvb_now_ns() - started;
    kvb_count_turn();
    if (p->number == kvb_pass_counted(p) && p->options->counters)
        kvb_counters_stop(p->options->counters);
    p->meter.step_ns += ns;
    p->meter.account_ns[account] += ns;
    p->meter.intervals++;
}

double kvb_cell_bytes(const kvb_replay_options *o, uint32_t group)
{
    const kvb_model *m = &o->trace->header.model;
    const kvb_group *g = &m->groups[group];
    double row = o->k_pool->row_bytes(o->k_pool, g->k_dim);
    if (!g->latent)
        row += o->v_pool->row_bytes(o->v_pool, g->v_dim);
    return row * g->kv_heads * kvb_model_layers_of(m, group);
}

/* Counts the cells that a mask lets its queries read. */
static int mask_count(kvb_pass *p, const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, kvb_traffic *t)
{
    size_t words = ((size_t)n_cells + 63) / 64;
    if (kvb_array_reserve(&p->meter.seen, &p->meter.seen_words, words, sizeof *p->meter.seen))
        return -ENOMEM;
    kvb_traffic_count(mask, n_tok, n_cells, p->meter.seen, t);
    return 0;
}

int kvb_traffic_add(kvb_pass *p, kvb_made *made)
{
    const kvb_attend_spec *spec = made->spec;
    const uint32_t n_tok = made->fed->n;
    kvb_step_traffic *adds = made->traffic;
    const kvb_replay_options *o = p->options;
    const kvb_model *m = &p->trace->header.model;
    uint32_t index = m->group_of[made->layer];
    const kvb_group *g = &m->groups[index];
    kvb_traffic t;
    if (p->number > kvb_pass_counted(p) || adds->counted[index])
        return 0;
    adds->counted[index] = true;
    int error = mask_count(p, &spec->mask, n_tok, spec->k.cells, &t);
    if (error)
        return error;
    if (t.pairs > o->knobs->max_pairs) {
        char why[128];
        snprintf(why, sizeof why,
                 "%u queries would attend %" PRIu64 " cells in a layer, above --set max-pairs=%" PRIu64, n_tok, t.pairs,
                 o->knobs->max_pairs);
        return kvb_pass_refuse(p, -ENOTSUP, "step", why);
    }
    double cell = kvb_cell_bytes(o, index);
    uint64_t unique = (uint64_t)((double)t.unique_cells * cell);
    p->meter.pending.cells_read += (long long)t.unique_cells;
    p->meter.pending.bytes_read += (long long)unique;
    p->meter.pending.bytes_walk += (long long)((double)t.pairs * cell / g->kv_heads * g->heads);
    adds->cells = adds->cells > (double)t.unique_cells ? adds->cells : (double)t.unique_cells;
    adds->bytes += (double)unique;
    adds->flops +=
        2.0 * (double)t.pairs * g->heads * (g->k_dim + g->v_dim) * kvb_model_layers_of(&p->trace->header.model, index);
    return 0;
}

int kvb_traffic_of_call(kvb_pass *p, kvb_made *made)
{
    const kvb_problem *problem = &p->call.args.problem;
    kvb_arithmetic arithmetic;
    kvb_traffic t;
    (void)made;
    if (p->number > kvb_pass_counted(p))
        return 0;
    int error = mask_count(p, &p->call.args.mask, problem->n_tok, problem->n_cells, &t);
    if (error)
        return error;
    kvb_call_arithmetic(&p->call, &arithmetic);
    p->meter.pending.mask_words += (long long)t.mask_words;
    p->meter.pending.rescales += (long long)arithmetic.rescales * problem->n_tok * problem->n_heads;
    p->meter.staged_k |= p->call.staged_k;
    p->meter.staged_v |= p->call.staged_v;
    return 0;
}
