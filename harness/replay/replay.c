/* SPDX-License-Identifier: Apache-2.0 */
/* Passes until the median is known well enough or time is up, bandwidth probes in between, then the report. */
#include "harness/replay/replay.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "harness/rounds.h"
#include "harness/replay/pass.h"
#include "harness/replay/meter.h"
#include "harness/replay/verdict.h"
#include "results/statistics.h"

#define FEW_PROBES      5u     /* least number of bandwidth probes, for replays with few passes */
#define SHORTAGE_TOKENS 16384u /* histories of more tokens are not replayed short of memory: filling them is dear */

bool kvb_replay_fits(const kvb_trace *trace, const kvb_cache_type *cache, char *why, size_t why_bytes)
{
    const kvb_trace_needs *needs = &trace->needs;
    const char *lack =
        kvb_cache_lacks(cache, (needs->seq ? KVB_CACHE_SEQ : 0u) | (needs->tree ? KVB_CACHE_TREE : 0u) |
                                   (needs->rewind ? KVB_CACHE_REWIND : 0u) | (needs->reorder ? KVB_CACHE_REORDER : 0u) |
                                   (needs->shift ? KVB_CACHE_SHIFT : 0u) | (needs->divide ? KVB_CACHE_DIVIDE : 0u) |
                                   (needs->slots ? KVB_CACHE_SAVES : 0u) | (needs->full ? KVB_CACHE_EXACT : 0u));
    if (lack)
        snprintf(why, why_bytes, "cache %s cannot do %s", cache->name, lack);
    return !lack && (!cache->serves || cache->serves(&trace->header.model, why, why_bytes));
}

/* The clock's own time in a timed interval, in ns: the median of many empty intervals. */
static double clock_cost(void)
{
    double empty[101];
    for (size_t i = 0; i < 101; i++) {
        double start = kvb_now_ns();
        empty[i] = kvb_now_ns() - start;
    }
    return kvb_quantile(empty, 101, 0.5);
}

/* Passes at the start that do not count. Passes of replays that take turns are compared one by one: each replay leaves
 * out the same number. */
static size_t warmup_passes(const kvb_pass *p, size_t passes)
{
    return p->options->turn ? passes > 1 : kvb_warmup_passes(p->meter.times, passes);
}

/* Is another pass to be made? The first pass, which is not timed, took `first` seconds; the others began at `started`. */
static bool goes_on(const kvb_pass *p, double first, double started)
{
    const kvb_replay_options *o = p->options;
    size_t passes = (size_t)p->number;
    if (o->turn)
        return o->turn(o->turn_ctx);
    return passes == 1 || (first + kvb_now_seconds() - started + first < 1e-3 * (double)o->knobs->sample_ms &&
                           (passes % 4 || kvb_samples_width(&p->meter.times[kvb_kind_main(p->meter.flops)], passes,
                                                            warmup_passes(p, passes)) *
                                                  100 >=
                                              (double)o->knobs->width));
}

/* Runs the passes after the first, with a probe of the bandwidth after each. */
static int passes_run(kvb_pass *p, kvb_roofline *roofline, double first)
{
    memset(p->meter.account_ns, 0, sizeof p->meter.account_ns); /* from here on: without the judged pass */
    p->meter.intervals = 0;
    double started = kvb_now_seconds();
    int error = kvb_roofline_probe(roofline);
    while (!error && goes_on(p, first, started)) {
        error = kvb_pass_run(p);
        if (!error)
            error = kvb_roofline_probe(roofline);
    }
    while (!error && roofline->working_set && roofline->rates.n < FEW_PROBES)
        error = kvb_roofline_probe(roofline);
    return error;
}

static void traffic_report(const kvb_pass *p, const kvb_roofline *roofline, size_t passes, size_t warmup)
{
    kvb_result *result = p->result;
    kvb_step_kind kind = kvb_kind_main(p->meter.flops);
    kvb_samples totals = {0};
    for (size_t i = warmup; i < passes; i++)
        if (kvb_sample_add(&totals, kvb_samples_pass(&p->meter.times[kind], passes, i)))
            break; /* the rates come from fewer passes then */
    double ns = kvb_samples_median(&totals);
    kvb_samples_free(&totals);
    result->traffic.flops = 0;
    for (int k = 0; k < KVB_STEP_KINDS; k++)
        result->traffic.flops += p->meter.flops[k];
    result->traffic.cells_read = (double)p->options->counts->cells_read;
    result->traffic.bytes_read = (double)p->options->counts->bytes_read;
    result->traffic.bytes_walk = (double)p->options->counts->bytes_walk;
    if (p->meter.times[kind].n == 0)
        return; /* nothing was attended */
    snprintf(result->traffic.kind, sizeof result->traffic.kind, "%s", kvb_step_kind_name(kind));
    result->traffic.working_set = floor(kvb_samples_median(&p->meter.step_bytes[kind]));
    if (p->options->untimed)
        return;
    kvb_roofline_report(roofline, p->meter.bytes[kind], p->meter.flops[kind], ns, p->options->peak_gflop_per_s, result);
}

/* Mean bits per element of K or V over all layers. */
static double element_bits(const kvb_replay_options *o, bool is_v)
{
    const kvb_model *m = &o->trace->header.model;
    const kvb_pool_type *pool = is_v ? o->v_pool : o->k_pool;
    double bytes = 0, elements = 0;
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        const kvb_group *g = kvb_model_group(m, layer);
        uint32_t dim = is_v ? g->v_dim : g->k_dim;
        if (is_v && g->latent)
            continue;
        bytes += pool->row_bytes(pool, dim) * g->kv_heads;
        elements += (double)dim * g->kv_heads;
    }
    return elements > 0 ? 8 * bytes / elements : NAN;
}

static void memory_report(const kvb_pass *p)
{
    const kvb_replay_options *o = p->options;
    const kvb_model *m = &o->trace->header.model;
    kvb_result *result = p->result;
    kvb_cache_usage all = {0};
    double peak_bytes = 0, peak = 0;
    struct rusage self;
    getrusage(RUSAGE_SELF, &self);
    result->memory.n_groups = m->n_groups;
    for (uint32_t g = 0; g < m->n_groups; g++) {
        const kvb_cache_usage *u = &p->holdings.usage[g];
        kvb_usage_add(&all, u);
        peak_bytes += u->cells_peak * kvb_cell_bytes(o, g);
        peak += u->cells_peak;
        result->memory.groups[g] = (kvb_group_memory){.layers = kvb_model_layers_of(m, g),
                                                      .cells = u->cells_live,
                                                      .cells_peak = u->cells_peak,
                                                      .high_water = u->high_water};
    }
    double stored = (double)(all.cells_written + all.cells_moved);
    result->memory.allocator_peak = (double)p->allocator.peak_bytes;
    result->memory.allocator_live = (double)p->holdings.allocator_live;
    result->memory.reserved_bytes = (double)p->holdings.reserved_peak;
    result->memory.utilisation = p->holdings.reserved_peak ? peak_bytes / (double)p->holdings.reserved_peak : NAN;
    result->memory.cells = all.cells_live;
    result->memory.cells_peak = all.cells_peak;
    result->memory.high_water = all.high_water;
    result->memory.cells_written = (double)all.cells_written;
    result->memory.cells_moved = (double)all.cells_moved;
    result->memory.cells_reused = fmax(0, stored - all.high_water);
    result->memory.fragmentation = all.high_water ? fmax(0, 1 - peak / all.high_water) : NAN;
    result->memory.growths = (double)all.growths;
    result->memory.prompts_offered = p->holdings.offered;
    result->memory.prompts_found = p->holdings.found;
    result->memory.copied_bytes = (double)all.copied_bytes;
    if (!o->untimed) { /* these are measured, not counted */
        result->memory.resident_peak = (double)self.ru_maxrss * 1024;
        result->memory.copy_ns = (double)all.copy_ns;
    }
    snprintf(result->memory.staged, sizeof result->memory.staged, "%s%s", p->meter.staged_k ? "k" : "",
             p->meter.staged_v ? "v" : "");
    result->memory.staged_bytes = (double)p->call.staged_bytes;
    result->error.bits_k = element_bits(o, false);
    result->error.bits_v = element_bits(o, true);
    result->memory.scratch_bytes =
        (double)(p->call.scratch_bytes + p->call.expanded_bytes + kvb_scans_scratch(p->scans));
}

static int times_report(const kvb_pass *p)
{
    kvb_result *result = p->result;
    size_t passes = (size_t)p->number, warmup = warmup_passes(p, passes);
    kvb_step_kind most = kvb_kind_main(p->meter.flops);
    int error = kvb_samples_report(p->meter.times, most, passes, warmup, result);
    if (!error)
        error = kvb_contexts_report(&p->meter.times[most], &p->meter.cells[most], passes, warmup, result);
    if (error)
        return error;
    double all =
        p->meter.account_ns[KVB_IN_CACHE] + p->meter.account_ns[KVB_IN_KERNEL] + p->meter.account_ns[KVB_IN_HARNESS];
    result->time.harness_share =
        (p->meter.account_ns[KVB_IN_HARNESS] + (double)p->meter.intervals * clock_cost()) / all;
    return 0;
}

static int report(kvb_pass *p, const kvb_roofline *roofline)
{
    kvb_result *result = p->result;
    size_t passes = (size_t)p->number, warmup = warmup_passes(p, passes);
    int error = p->options->untimed ? 0 : times_report(p);
    if (error)
        return error;
    snprintf(result->time.cache_state, sizeof result->time.cache_state, "%s",
             kvb_cache_state_names[p->options->knobs->cache_state]);
    traffic_report(p, roofline, passes, warmup);
    memory_report(p);
    kvb_memory_log_report(&p->holdings.log, result);
    if (p->options->counters)
        kvb_counters_report(p->options->counters, result);
    result->error.witness_queries = p->witness.queries;
    result->error.witness_cells = p->witness.cells;
    result->status = KVB_STATUS_PASS;
    if (p->options->oracle && !p->options->unjudged)
        kvb_checks_report(p, result);
    return 0;
}

/* Replays the history of a witness again, short of memory. The result keeps the counts of the first pass. */
static int shortage_run(kvb_pass *p)
{
    const kvb_pass first = *p;
    p->short_of_memory = true;
    const int error = kvb_pass_run(p);
    p->number = first.number;
    p->allocator = first.allocator;
    p->holdings = first.holdings;
    p->witness.queries = first.witness.queries;
    p->witness.cells = first.witness.cells;
    return error;
}

int kvb_replay_run(const kvb_replay_options *options, kvb_replay_place *place, kvb_result *result)
{
    double started = kvb_now_seconds();
    kvb_pass p;
    kvb_roofline roofline = {0};
    int error = kvb_pass_open(&p, options, place, result);
    if (!error && options->turn)
        options->turn(options->turn_ctx);
    if (!error)
        error = kvb_pass_run(&p);
    const bool judged = !options->unjudged && !options->turn && !options->counters;
    const bool is_short = options->trace->needs.tokens <= SHORTAGE_TOKENS;
    if (!error && judged && is_short && !options->oracle && !kvb_check_is_off(KVB_CHECK_PROTOCOL))
        error = shortage_run(&p);
    if (!error && options->oracle && !options->untimed) { /* a witness is not timed: it computes nothing */
        const double first = kvb_now_seconds() - started;
        error = kvb_roofline_open(&roofline, options->team,
                                  kvb_samples_median(&p.meter.step_bytes[kvb_kind_main(p.meter.flops)]));
        if (!error)
            error = passes_run(&p, &roofline, first);
    }
    if (!error)
        error = report(&p, &roofline);
    if (*p.misdeed && (!error || p.ended))
        kvb_misdeed_judge(p.misdeed, result);
    kvb_roofline_close(&roofline);
    kvb_pass_close(&p);
    return p.ended ? 0 : error;
}
