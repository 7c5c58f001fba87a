/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a kernel in a replay: its traffic counted, its inputs guarded, its time taken, its outputs checked. */
#include "harness/replay/attend.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/clock.h"
#include "harness/counters/count.h"
#include "harness/replay/dump.h"
#include "harness/replay/guard.h"
#include "harness/replay/heap_watch.h"
#include "harness/replay/traffic.h"
#include "harness/replay/verdict.h"
#include "oracle/claim.h"

/* Adds the pending counts to those that counters see. */
static void counts_add(kvb_own_counts *counts, kvb_own_counts *pending)
{
    counts->cells_read += pending->cells_read;
    counts->bytes_read += pending->bytes_read;
    counts->bytes_walk += pending->bytes_walk;
    counts->mask_words += pending->mask_words;
    counts->rescales += pending->rescales;
    *pending = (kvb_own_counts){0};
}

double kvb_pass_clock(kvb_pass *p)
{
    if (p->number == kvb_pass_counted(p) && p->options->counters)
        kvb_counters_start(p->options->counters);
    counts_add(p->options->counts, &p->pending);
    kvb_count_turn();
    return kvb_now_ns();
}

void kvb_pass_charge(kvb_pass *p, double started, kvb_time_account account)
{
    double ns = kvb_now_ns() - started;
    kvb_count_turn();
    if (p->number == kvb_pass_counted(p) && p->options->counters)
        kvb_counters_stop(p->options->counters);
    p->step_ns += ns;
    p->account_ns[account] += ns;
    p->intervals++;
}

int kvb_pass_refuse(kvb_pass *p, int error, const char *what, const char *why)
{
    const kvb_event *event = &p->trace->events[p->place->event];
    p->ended = true;
    p->result->status = error == -ENOTSUP ? KVB_STATUS_SKIP : KVB_STATUS_FAIL;
    p->result->check = KVB_CHECK_PROTOCOL;
    snprintf(p->result->reason, sizeof p->result->reason, "line %" PRIu64 ": %s: %s", event->line, what,
             why && *why ? why : strerror(-error));
    if (p->result->status == KVB_STATUS_FAIL)
        kvb_event_add(event, p->result);
    return error;
}

int kvb_pass_fail(kvb_pass *p, kvb_check check, const char *why)
{
    if (kvb_check_is_off(check))
        return 0;
    int error = kvb_pass_refuse(p, -EILSEQ, check == KVB_CHECK_WITNESS ? "visible set" : p->who, why);
    p->result->check = check;
    return error;
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

/* Counts what a mask lets its queries read. */
static int mask_count(kvb_pass *p, const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, kvb_traffic *t)
{
    size_t words = ((size_t)n_cells + 63) / 64;
    if (words > p->seen_words) {
        free(p->seen);
        p->seen = malloc(words * sizeof *p->seen);
        p->seen_words = p->seen ? words : 0;
        if (!p->seen)
            return -ENOMEM;
    }
    kvb_traffic_count(mask, n_tok, n_cells, p->seen, t);
    return 0;
}

/* Until counters have run, at the first layer of a group: adds what all layers of the group will read. Refuses a step
 * that is too large to attend. */
static int traffic_add(kvb_pass *p, uint32_t layer, const kvb_attend_spec *spec, uint32_t n_tok, kvb_step_traffic *step)
{
    const kvb_replay_options *o = p->options;
    const kvb_model *m = &p->trace->header.model;
    uint32_t index = m->group_of[layer];
    const kvb_group *g = &m->groups[index];
    kvb_traffic t;
    if (p->number > kvb_pass_counted(p) || step->counted[index])
        return 0;
    step->counted[index] = true;
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
    p->pending.cells_read += (long long)t.unique_cells;
    p->pending.bytes_read += (long long)unique;
    p->pending.bytes_walk += (long long)((double)t.pairs * cell / g->kv_heads * g->heads);
    step->cells = step->cells > (double)t.unique_cells ? step->cells : (double)t.unique_cells;
    step->bytes += (double)unique;
    step->flops +=
        2.0 * (double)t.pairs * g->heads * (g->k_dim + g->v_dim) * kvb_model_layers_of(&p->trace->header.model, index);
    return 0;
}

/* Words of the mask as the kernel gets it, and rescales as it declares them. */
static int call_count(kvb_pass *p)
{
    const kvb_problem *problem = &p->call.args.problem;
    kvb_arithmetic arithmetic;
    kvb_traffic t;
    if (p->number > kvb_pass_counted(p))
        return 0;
    int error = mask_count(p, &p->call.args.mask, problem->n_tok, problem->n_cells, &t);
    if (error)
        return error;
    kvb_call_arithmetic(&p->call, &arithmetic);
    p->pending.mask_words += (long long)t.mask_words;
    p->pending.rescales += (long long)arithmetic.rescales * problem->n_tok * problem->n_heads;
    p->staged_k |= p->call.staged_k;
    p->staged_v |= p->call.staged_v;
    return 0;
}

int kvb_pass_judged(kvb_pass *p, uint32_t layer, kvb_judged *judged)
{
    char why[256];
    judged->n = 0;
    kvb_call_arithmetic(&p->call, &judged->arithmetic);
    int error =
        kvb_claim_check(&judged->arithmetic, why, sizeof why) ? kvb_pass_fail(p, KVB_CHECK_DECLARATION, why) : 0;
    if (error)
        return error;
    error = kvb_rounded_rows(p->rounded, &p->call.args, p->place->event, layer, &judged->arithmetic, &judged->rows,
                             &judged->n, why, sizeof why);
    if (!error || !*why)
        return error;
    judged->n = 0;
    return kvb_pass_fail(p, KVB_CHECK_DECLARATION, why);
}

void kvb_pass_tolerate_row(kvb_pass *p, uint32_t query, uint32_t head, const double *exact, size_t step)
{
    const kvb_tolerance *rule = &p->options->kernel->tolerance;
    const kvb_problem *problem = &p->call.args.problem;
    p->foreign.rows++;
    if (rule->kind)
        kvb_closeness_row(&p->foreign.call, rule, problem->out_elem, kvb_kernel_io_row(&p->io, query, head),
                          problem->v_dim, exact, step);
}

/* All rows that the oracle knows of a call of n queries are judged. */
static void tolerance_note(kvb_pass *p, uint32_t n, uint32_t layer)
{
    kvb_foreign_calls *f = &p->foreign;
    const double share = kvb_closeness_share(&f->call, &p->options->kernel->tolerance);
    f->elements += f->call.elements;
    if (f->rows < (uint64_t)n * p->call.args.problem.n_heads) {
        kvb_closeness_add(&f->parts, &f->call);
    } else if (share > f->share) {
        f->share = share;
        f->event = p->place->event;
        f->layer = layer;
    }
}

int kvb_pass_judge_row(kvb_pass *p, const kvb_attend_spec *spec, uint32_t n, const kvb_judged *judged,
                       const kvb_expect *expect, kvb_diff *diff)
{
    const kvb_problem *problem = &p->call.args.problem;
    const uint32_t query = problem->n_tok - n + expect->query;
    kvb_expect actual = *expect;
    int error = 0;
    if (p->window)
        error = kvb_window_solve(p->window, expect, &(kvb_attend_of){&spec->mask, spec->k.cells, problem->n_tok, query},
                                 &actual);
    if (error)
        return error == -EILSEQ ? kvb_every_row_unheld(p, expect->layer, expect) : error;
    diff->claim.k_dim = problem->k_dim;
    diff->claim.cells = problem->n_cells;
    kvb_diff_row(diff, &actual, problem->v_dim, &judged->arithmetic, (double)problem->scale, (double)problem->softcap,
                 problem->out_elem, kvb_kernel_io_row(&p->io, query, expect->head),
                 kvb_kernel_io_lse(&p->io, query, expect->head));
    kvb_pass_tolerate_row(p, query, expect->head, &actual.terms->o, sizeof *actual.terms / sizeof actual.terms->o);
    return 0;
}

/* Residuals of the first pass, for what no row shows alone. */
static void filter_add(kvb_pass *p, uint32_t layer, const kvb_judged *judged, uint32_t n)
{
    const kvb_problem *problem = &p->call.args.problem;
    size_t rows;
    const kvb_expect *own = kvb_oracle_rows(p->options->oracle, p->place->event, layer, &rows); /* the same rows */
    for (size_t i = 0; i < judged->n && p->number == 0 && !p->window; i++)
        if (kvb_pass_asks(p, n, own[i].query))
            kvb_filter_add(p->filter, &own[i], &judged->rows[i], &judged->arithmetic, problem->out_elem,
                           kvb_kernel_io_row(&p->io, problem->n_tok - n + own[i].query, own[i].head));
}

/* Compares the outputs of the event's n tokens, the last ones of the call, with the oracle. */
static int outputs_check(kvb_pass *p, const kvb_attend_spec *spec, uint32_t n, uint32_t layer)
{
    const kvb_replay_options *o = p->options;
    const kvb_problem *problem = &p->call.args.problem;
    char why[256];
    int failed = 0;
    p->foreign.call = (kvb_closeness){0};
    p->foreign.rows = 0;
    if (!kvb_kernel_io_written(&p->io, why, sizeof why))
        failed = kvb_pass_fail(p, KVB_CHECK_WRITTEN, why);
    if (!failed && !o->knobs->no_guard && p->number == 0 && !kvb_guard_check(why, sizeof why))
        failed = kvb_pass_fail(p, KVB_CHECK_MARGINS, why);
    if (failed)
        return failed;
    if (!o->oracle) {
        int found = kvb_witness_check_step(&p->witness, p->history, spec->group, problem, p->call.scratch, n, layer,
                                           why, sizeof why);
        return found > 0 ? kvb_pass_fail(p, KVB_CHECK_WITNESS, why) : found;
    }
    if (o->unjudged && !p->window) /* whose passes are all judged */
        return 0;
    kvb_written *written = &p->written[(size_t)p->place->event * p->trace->header.model.n_layers + layer];
    const uint32_t n_asked = n < problem->n_tok ? n : problem->n_tok;
    const uint64_t digest =
        o->untimed ? 0 : kvb_kernel_io_digest(&p->io, n_asked, KVB_DIGEST_START); /* for passes to come */
    if (p->number == 0)
        p->digest = kvb_kernel_io_digest(&p->io, n_asked, p->digest);
    /* Over windowed pools each pass looks at other rows. */
    if (p->number > 0 && !p->window && digest == written->digest) {
        p->diff.rows += written->rows;
        p->every.diff.rows += written->opinions;
        p->every.scanned += written->scanned;
        return 0;
    }
    const kvb_written before = {digest, p->diff.rows, p->every.diff.rows, p->every.scanned};
    kvb_judged judged;
    kvb_arithmetic arithmetic; /* as declared: second opinions are of the workload's own q */
    int error = kvb_pass_judged(p, layer, &judged);
    for (size_t i = 0; i < judged.n && !error; i++) {
        bool asked = kvb_pass_asks(p, n, judged.rows[i].query);
        p->not_asked += !asked && p->number == 0;
        error = asked ? kvb_pass_judge_row(p, spec, n, &judged, &judged.rows[i], &p->diff) : 0;
    }
    filter_add(p, layer, &judged, n);
    kvb_call_arithmetic(&p->call, &arithmetic);
    if (!error && !p->ended)
        error = kvb_every_row_check(p, spec, n, layer, &arithmetic);
    if (o->kernel->tolerance.kind)
        tolerance_note(p, n_asked, layer);
    if (p->number == 0)
        *written = (kvb_written){digest, p->diff.rows - before.rows, p->every.diff.rows - before.opinions,
                                 p->every.scanned - before.scanned};
    return error;
}

/* Brings the processor's caches into the state asked for. */
static void caches_prepare(kvb_pass *p, const kvb_attend_spec *spec, uint32_t fed)
{
    const kvb_group *g = spec->group;
    if (p->options->knobs->cache_state == KVB_STATE_HOT)
        kvb_call_run(&p->call, p->io.out, p->io.lse);
    if (p->options->knobs->cache_state == KVB_STATE_COLD) {
        kvb_view_flush(&spec->k, g->kv_heads);
        kvb_view_flush(&spec->v, g->kv_heads);
        kvb_view_flush(&p->call.args.k, g->kv_heads); /* staged rows, if there are any */
        kvb_view_flush(&p->call.args.v, g->kv_heads);
        kvb_block_flush(p->io.q, (size_t)fed * g->heads * g->k_dim * sizeof *p->io.q);
    }
}

/* In the first pass K and V may not be written while the kernel has them. */
static void rows_protect(const kvb_pass *p, const kvb_attend_spec *spec, bool read_only)
{
    if (p->options->knobs->no_guard || p->number > 0)
        return;
    const kvb_attend *got = &p->call.args; /* rows as the kernel gets them: staged, or the same */
    const kvb_view *const views[] = {&spec->k, &spec->v, spec->k.front, spec->v.front, &got->k, &got->v};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        for (size_t lane = 0; views[i] && lane < 4; lane++) {
            const void *const lanes[] = {views[i]->base, views[i]->scales, views[i]->zeros, views[i]->recent};
            if (lanes[lane])
                kvb_guard_protect(lanes[lane], read_only);
        }
}

/* Is the pass judged and not timed? */
static bool is_judged_only(const kvb_pass *p)
{
    const kvb_replay_options *o = p->options;
    return o->oracle && !o->unjudged && (o->untimed || p->number == 0);
}

/* Has some output been judged wrong? */
static bool has_failed(const kvb_pass *p)
{
    return kvb_is_tolerated(p->options) ? kvb_closeness_share(&p->foreign.call, &p->options->kernel->tolerance) > 1
                                        : p->diff.any_failed || p->every.diff.any_failed;
}

static void misdeed_note(kvb_pass *p, uint64_t allocations, uint64_t threads)
{
    const uint64_t n = threads ? threads : allocations;
    char what[320], did[64], times[48] = "";
    (threads ? kvb_threads_words : kvb_heap_watch_words)(what, sizeof what);
    if (threads)
        snprintf(did, sizeof did, "a thread was started in %s or before it", p->what);
    else
        snprintf(did, sizeof did, "%s allocated or freed memory", p->what);
    if (n > 1)
        snprintf(times, sizeof times, " %" PRIu64 " times; the first", n);
    snprintf(p->misdeed, sizeof p->misdeed, "line %" PRIu64 ": %.64s: %s%s: %s", p->trace->events[p->place->event].line,
             p->who, did,
             n > 1     ? times
             : threads ? ""
                       : " once",
             what);
}

int kvb_pass_returned(kvb_pass *p, int error, uint64_t allocations, uint64_t threads)
{
    char why[256];
    if ((allocations || threads) && !*p->misdeed)
        misdeed_note(p, allocations, threads);
    if (!error)
        return 0;
    const char *name = error < 0 ? strerrorname_np(-error) : NULL;
    snprintf(why, sizeof why, "%s returned %d%s%s%s%s%s", p->what, error, name ? " (-" : "", name ? name : "",
             name ? ", " : "", name ? strerror(-error) : "", name ? ")" : ": it is to return 0 or a negative errno");
    return kvb_pass_fail(p, KVB_CHECK_RETURN, why);
}

/* What the call left behind. */
static int call_judge(kvb_pass *p, uint32_t layer, const kvb_attend_spec *spec, const float *q, uint32_t fed,
                      uint32_t n, int error)
{
    if (!error && q && memcmp(p->io.q, q, (size_t)fed * spec->group->heads * spec->group->k_dim * sizeof *q))
        error = kvb_pass_fail(p, KVB_CHECK_INPUTS, "attend() wrote to q");
    return error ? error : outputs_check(p, spec, n, layer);
}

/* Makes the prepared call again with hidden cells poisoned, where there are any. */
static int hidden_check(kvb_pass *p, uint32_t layer, const kvb_attend_spec *spec, uint32_t n)
{
    const bool finite = p->options->kernel->flags & KVB_KERNEL_FINITE_CELLS && !p->options->knobs->strict;
    bool planned = false;
    int error = finite || kvb_check_is_off(KVB_CHECK_POISON) ? 0 : kvb_poison_plan(p, layer, n, &planned);
    if (error || !planned)
        return error;
    return kvb_poison_run(p, layer, spec, n);
}

int kvb_pass_attend(kvb_pass *p, uint32_t layer, const kvb_attend_spec *spec, const float *q, uint32_t fed, uint32_t n,
                    kvb_step_traffic *step)
{
    char why[256] = "";
    p->who = p->options->kernel->name;
    p->what = "attend()";
    int error = traffic_add(p, layer, spec, fed, step);
    if (!error)
        error = kvb_kernel_io_fill(&p->io, spec->group, fed, q);
    if (error)
        return error;
    p->place->doing = "in the kernel's supports()";
    kvb_threads_forget();
    double started = kvb_pass_clock(p);
    error = kvb_call_prepare(&p->call, spec, p->io.q, fed, why, sizeof why);
    /* timed as the kernel's: it needs the mask expanded, or rows staged */
    bool turned = p->call.args.mask.kind != spec->mask.kind || p->call.staged_k || p->call.staged_v;
    kvb_pass_charge(p, started, turned ? KVB_IN_KERNEL : KVB_IN_HARNESS);
    if (error)
        return kvb_pass_refuse(p, error, p->options->kernel->name, why);
    error = call_count(p);
    if (error)
        return error;
    caches_prepare(p, spec, fed);
    kvb_kernel_io_poison(&p->io);
    rows_protect(p, spec, true);
    p->place->doing = "in the kernel's attend()";
    if (p->options->only && p->options->only->text)
        kvb_only_stop();
    kvb_guard_null(p->call.args.scratch ? NULL
                   : p->options->kernel->scratch_bytes
                       ? "scratch is NULL, as the kernel's scratch_bytes() asked for 0 bytes"
                       : "scratch is NULL, as the kernel has no scratch_bytes()");
    kvb_heap_watch_start();
    started = kvb_pass_clock(p);
    error = kvb_call_run(&p->call, p->io.out, p->io.lse);
    kvb_pass_charge(p, started, KVB_IN_KERNEL);
    uint64_t allocations = kvb_heap_watch_stop();
    kvb_guard_null(NULL);
    p->place->doing = "in the check";
    const bool foreign = p->options->kernel->flags & KVB_KERNEL_FOREIGN;
    p->foreign.calls += foreign && p->number == 0;
    p->foreign.allocations += foreign && p->number == 0 ? allocations : 0;
    rows_protect(p, spec, false);
    error = kvb_pass_returned(p, error, foreign ? 0 : allocations, foreign ? 0 : kvb_threads_started());
    error = call_judge(p, layer, spec, q, fed, n, error);
    if (!error && is_judged_only(p) && !has_failed(p) && p->options->deterministic)
        error = kvb_team_check_run(p, layer);
    if (!error && is_judged_only(p) && !has_failed(p))
        error = hidden_check(p, layer, spec, n);
    if (p->options->dump && (p->ended || has_failed(p) || *p->misdeed))
        kvb_dump(p, spec, layer, n);
    return error;
}
