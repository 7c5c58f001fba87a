/* SPDX-License-Identifier: Apache-2.0 */
/* The table of checks, and the checks of attention that have no file of their own. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/replay/guard.h"
#include "harness/replay/heap_watch.h"
#include "harness/replay/meter.h"
#include "harness/replay/pass.h"
#include "harness/replay/verdict.h"
#include "kernels/convert.h"

/* Prepares the processor's caches: the knob cache-state. */
static int caches_prepare(kvb_pass *p, kvb_made *m)
{
    const kvb_attend_spec *spec = m->spec;
    const kvb_group *g = spec->group;
    if (p->options->knobs->cache_state == KVB_STATE_HOT)
        kvb_call_run(&p->call, p->io.out, p->io.lse);
    if (p->options->knobs->cache_state == KVB_STATE_COLD) {
        kvb_view_flush(&spec->k, g->kv_heads);
        kvb_view_flush(&spec->v, g->kv_heads);
        kvb_view_flush(&p->call.args.k, g->kv_heads); /* staged rows, if there are any */
        kvb_view_flush(&p->call.args.v, g->kv_heads);
        kvb_block_flush(p->io.q, (size_t)m->fed->n * g->heads * g->k_dim * sizeof *p->io.q);
    }
    return 0;
}

/* ---- what the kernel must not write, and must write -------------------------------------------------------------- */

/* In the first pass K and V are read-only while the kernel runs. */
static void rows_protect(const kvb_pass *p, const kvb_attend_spec *spec, bool read_only)
{
    if (p->options->knobs->no_guard || p->number > 0)
        return;
    kvb_view_protect(&spec->k, read_only);
    kvb_view_protect(&spec->v, read_only);
    kvb_view_protect(&p->call.args.k, read_only); /* staged rows, or the same */
    kvb_view_protect(&p->call.args.v, read_only);
}

static int inputs_guard(kvb_pass *p, kvb_made *m)
{
    rows_protect(p, m->spec, true);
    kvb_guard_null(p->call.args.scratch ? NULL
                   : p->options->kernel->scratch_bytes
                       ? "scratch is NULL, as the kernel's scratch_bytes() asked for 0 bytes"
                       : "scratch is NULL, as the kernel has no scratch_bytes()");
    return 0;
}

static int inputs_release(kvb_pass *p, kvb_made *m)
{
    kvb_guard_null(NULL);
    rows_protect(p, m->spec, false);
    return 0;
}

static int inputs_compare(kvb_pass *p, kvb_made *m)
{
    const kvb_group *g = m->spec->group;
    return m->q && memcmp(p->io.q, m->q, (size_t)m->fed->n * g->heads * g->k_dim * sizeof *m->q)
               ? kvb_pass_fail(p, KVB_CHECK_INPUTS, "attend() wrote to q")
               : 0;
}

static int outputs_fill(kvb_pass *p, kvb_made *m)
{
    (void)m;
    kvb_kernel_io_poison(&p->io);
    return 0;
}

static int outputs_written(kvb_pass *p, kvb_made *m)
{
    char why[256];
    (void)m;
    return kvb_kernel_io_written(&p->io, why, sizeof why) ? 0 : kvb_pass_fail(p, KVB_CHECK_WRITTEN, why);
}

/* ---- what each query saw ----------------------------------------------------------------------------------------- */

static int witness_ask(kvb_pass *p, kvb_made *m)
{
    char why[256];
    if (p->options->oracle)
        return 0;
    const int found = kvb_witness_check_step(&p->witness, p->history, m->spec->group, &p->call.args.problem,
                                             p->call.scratch, m->fed->judged, m->layer, why, sizeof why);
    const int error = found > 0 ? kvb_pass_fail(p, KVB_CHECK_WITNESS, why) : found;
    return error ? error : KVB_ENOUGH;
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

static kvb_written *written_of(kvb_pass *p, const kvb_made *m)
{
    return &p->judging.written[(size_t)p->place->event * p->trace->header.model.n_layers + m->layer];
}

/* The number of judged queries, the call's last ones. */
static uint32_t asked_of(const kvb_pass *p, const kvb_made *m)
{
    const uint32_t n_tok = p->call.args.problem.n_tok;
    return m->fed->judged < n_tok ? m->fed->judged : n_tok;
}

/* KVB_ENOUGH if the call is not to be judged, or has the bits that were judged in the first pass. */
static int digest_compare(kvb_pass *p, kvb_made *m)
{
    const kvb_replay_options *o = p->options;
    kvb_judging *j = &p->judging;
    j->foreign.call = (kvb_closeness){0};
    j->foreign.rows = 0;
    if (o->unjudged && !p->window) /* over windowed pools all passes are judged */
        return KVB_ENOUGH;
    const kvb_written *written = written_of(p, m);
    const uint32_t n = asked_of(p, m);
    const uint64_t digest = o->untimed ? 0 : kvb_kernel_io_digest(&p->io, n, KVB_DIGEST_START); /* for passes to come */
    if (p->number == 0)
        j->digest = kvb_kernel_io_digest(&p->io, n, j->digest);
    m->before = (kvb_written){digest, j->diff.rows, j->opinions.rows, j->scanned};
    /* Over windowed pools each pass examines other rows. */
    if (p->number == 0 || p->window || digest != written->digest)
        return 0;
    j->diff.rows += written->rows;
    j->opinions.rows += written->opinions;
    j->scanned += written->scanned;
    return KVB_ENOUGH;
}

static int digest_note(kvb_pass *p, kvb_made *m)
{
    const kvb_judging *j = &p->judging;
    if (p->number == 0)
        *written_of(p, m) = (kvb_written){m->before.digest, j->diff.rows - m->before.rows,
                                          j->opinions.rows - m->before.opinions, j->scanned - m->before.scanned};
    return 0;
}

/* ---- the oracle's rows ------------------------------------------------------------------------------------------- */

static int bound_check(kvb_pass *p, kvb_made *m)
{
    int error = kvb_pass_judged(p, m);
    for (size_t i = 0; i < m->n_rows && !error; i++) {
        const kvb_expect *row = &m->rows[i];
        const bool asked = kvb_pass_asks(p, m->fed->judged, row->query);
        p->judging.not_asked += !asked && p->number == 0;
        error = asked ? kvb_pass_judge_row(p, m, row, &p->judging.diff) : 0;
    }
    return error;
}

/* Rows of attention that each pass must compare. */
static size_t rows_due(const kvb_pass *p)
{
    const kvb_replay_options *o = p->options;
    size_t due = 0;
    for (size_t i = 0; o->only && i < o->oracle->n_rows; i++)
        due += kvb_only_has(o->only, o->trace, o->oracle->rows[i].event, o->oracle->rows[i].layer);
    return (o->only ? due : o->oracle->n_rows) - p->judging.not_asked;
}

/* ---- errors that no single row shows ----------------------------------------------------------------------------- */

/* Adds the residuals of the first pass. */
static int filter_add(kvb_pass *p, kvb_made *m)
{
    const kvb_problem *problem = &p->call.args.problem;
    const uint32_t n = m->fed->judged;
    size_t rows;
    const kvb_expect *own = kvb_oracle_rows(p->options->oracle, p->place->event, m->layer, &rows); /* the same rows */
    for (size_t i = 0; i < m->n_rows && p->number == 0 && !p->window; i++)
        if (kvb_pass_asks(p, n, own[i].query))
            kvb_filter_add(p->judging.filter, &own[i], &m->rows[i], &m->arithmetic, problem->out_elem,
                           kvb_kernel_io_row(&p->io, problem->n_tok - n + own[i].query, own[i].head));
    return 0;
}

/* ---- the rule of a kernel's own project -------------------------------------------------------------------------- */

/* Notes the call's share, after all of its rows that the oracle knows are judged. */
static int tolerance_note(kvb_pass *p, kvb_made *m)
{
    kvb_foreign_calls *f = &p->judging.foreign;
    const uint32_t n = asked_of(p, m);
    if (!p->options->kernel->tolerance.kind)
        return 0;
    const double share = kvb_closeness_share(&f->call, &p->options->kernel->tolerance);
    f->elements += f->call.elements;
    if (f->rows < (uint64_t)n * p->call.args.problem.n_heads) {
        kvb_closeness_add(&f->parts, &f->call);
    } else if (share > f->share) {
        f->share = share;
        f->event = p->place->event;
        f->layer = m->layer;
    }
    return 0;
}

/* ---- the call made again ----------------------------------------------------------------------------------------- */

/* Has some output been judged wrong? */
static bool has_failed(const kvb_pass *p)
{
    return kvb_is_tolerated(p->options)
               ? kvb_closeness_share(&p->judging.foreign.call, &p->options->kernel->tolerance) > 1
               : p->judging.diff.any_failed || p->judging.opinions.any_failed;
}

/* Is the pass judged and not timed, and all right so far? */
static bool goes_on(const kvb_pass *p)
{
    return (p->options->untimed || p->number == 0) && !p->options->unjudged && !has_failed(p);
}

/*
 * Under --deterministic a kernel must give the same bits for any size of its team. A judged call is repeated with teams
 * of other sizes. These run their parts one after the other, as kvb_team allows, and need no threads.
 */

static void parts_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    for (uint32_t i = 0; i < team->n; i++)
        part(ctx, i, team->n);
}

/* Index of the first of n bytes that differs, or n. */
static size_t first_unlike(const char *a, const char *b, size_t n)
{
    size_t i = memcmp(a, b, n) ? 0 : n;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Repeats the call with a team of n and compares its bits with those of the judged call. */
static int team_judge(kvb_pass *p, uint32_t layer, uint32_t n)
{
    const kvb_team team = {.n = n, .run = parts_run};
    const kvb_problem *problem = &p->call.args.problem;
    const kvb_kernel *kernel = p->options->kernel;
    const size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(problem, n) : 0;
    const uint32_t threads = p->call.args.team->n;
    kvb_attend args = p->call.args;
    char why[256];
    args.team = &team;
    args.scratch = bytes ? kvb_buffer_fit(&p->team_scratch, p->call.source, "scratch", bytes) : NULL;
    if (bytes && !args.scratch)
        return -ENOMEM;
    p->place->doing = "in the kernel's attend(), for a team of another size";
    int error = kernel->attend(&args);
    p->place->doing = "in the check";
    if (error) {
        snprintf(why, sizeof why, "--deterministic: attend() returns %d for %u threads, and 0 for %u", error, n,
                 threads);
        return kvb_pass_fail(p, KVB_CHECK_DETERMINISTIC, why);
    }
    const size_t elem = kvb_elem_bytes(problem->out_elem), row = problem->v_dim * elem;
    const size_t rows = (size_t)problem->n_tok * problem->n_heads, out = rows * row, lse = rows * sizeof(float);
    size_t at = first_unlike(p->io.out, p->io.kept, out);
    if (at < out) {
        snprintf(why, sizeof why,
                 "--deterministic: other bits with %u threads than with %u: layer %u, query %zu, head %zu, channel %zu",
                 n, threads, layer, at / row / problem->n_heads, at / row % problem->n_heads, at % row / elem);
        return kvb_pass_fail(p, KVB_CHECK_DETERMINISTIC, why);
    }
    at = args.lse ? first_unlike((const char *)args.lse, p->io.kept + out, lse) : lse;
    if (at == lse)
        return 0;
    snprintf(why, sizeof why,
             "--deterministic: other bits with %u threads than with %u: layer %u, query %zu, head %zu, log-sum-exp", n,
             threads, layer, at / sizeof(float) / problem->n_heads, at / sizeof(float) % problem->n_heads);
    return kvb_pass_fail(p, KVB_CHECK_DETERMINISTIC, why);
}

/* Repeats the call with other teams; outputs are restored. */
static int team_ask(kvb_pass *p, kvb_made *m)
{
    static const uint32_t sizes[] = {1, 3};
    if (!goes_on(p) || !p->options->deterministic)
        return 0;
    int error = kvb_kernel_io_keep(&p->io);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !error; i++)
        if (sizes[i] != p->call.args.team->n)
            error = team_judge(p, m->layer, sizes[i]);
    if (!error) /* else a dump shows what was wrong */
        kvb_kernel_io_restore(&p->io);
    return error;
}

static int poison_ask(kvb_pass *p, kvb_made *m)
{
    const bool finite = p->options->kernel->flags & KVB_KERNEL_FINITE_CELLS && !p->options->knobs->strict;
    return goes_on(p) && !finite && !kvb_check_is_off(KVB_CHECK_POISON) ? kvb_poison_check_run(p, m) : 0;
}

static int dump_call(kvb_pass *p, kvb_made *m)
{
    if (p->options->dump && (p->ended || has_failed(p) || *p->misdeed))
        kvb_dump(p, m);
    return 0;
}

/* Compares rope's positions with the trace's: attention is the same if all of a sequence is off by the same distance. */
static void positions_judge(const kvb_pass *p, kvb_result *result)
{
    const kvb_feeding *f = &p->feeding;
    char words[192];
    const kvb_event *e = p->trace->events, *end = e + p->trace->n_events;
    uint32_t t = 0;
    for (; f->offset && e < end; e++) {
        const uint32_t n = e->kind <= KVB_EVENT_PROPOSE ? e->n : 0;
        for (t = 0; t < n && f->offset[e->first + t] == f->position[e->first + t];)
            t++;
        if (t < n)
            break;
    }
    if (!f->offset || e == end || kvb_check_is_off(KVB_CHECK_PROTOCOL))
        return;
    snprintf(words, sizeof words,
             "%srope took token %u of line %" PRIu64 " to position %u, and the trace has it at %u (sequence %u)",
             result->status == KVB_STATUS_FAIL ? "; " : "", t, e->line, f->offset[e->first + t], e->pos[t], e->seq[t]);
    kvb_reason_add(words, result);
    if (result->status == KVB_STATUS_FAIL)
        return;
    result->status = KVB_STATUS_FAIL;
    result->check = KVB_CHECK_PROTOCOL;
    kvb_event_add(e, result);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const kvb_check_row attend_rows[] = {
    {"traffic", .before = kvb_traffic_of_call},
    {"cache-state", .before = caches_prepare},
    {"conduct", .after = kvb_pass_conduct},
    {"guards", .before = inputs_guard, .after = inputs_release, .always = true},
    {"inputs", .after = inputs_compare},
    {"written", .before = outputs_fill, .after = outputs_written},
    {"margins", .after = kvb_pass_margins},
    {"witness", .after = witness_ask},
    {"digest", .after = digest_compare},
    {"bound", .after = bound_check},
    {"opinion", .after = kvb_every_row_check},
    {"filter", .after = filter_add},
    {"tolerance", .after = tolerance_note},
    {"bits", .after = digest_note},
    {"team", .after = team_ask},
    {"poison", .after = poison_ask},
    {"dump", .after = dump_call, .always = true},
    {.name = NULL},
};

int kvb_checks_open(kvb_pass *p)
{
    const kvb_replay_options *o = p->options;
    const kvb_trace *t = p->trace;
    kvb_judging *j = &p->judging;
    if (!o->oracle)
        return kvb_witness_check_open(&p->witness, &t->header.model, t->needs.tokens);
    j->written = calloc(t->n_events * t->header.model.n_layers + 1, sizeof *j->written);
    int error = j->written ? kvb_rounded_open(o->oracle, o->kernel, &j->rounded) : -ENOMEM;
    return error ? error : kvb_filter_open(o->oracle, &j->filter);
}

void kvb_checks_report(kvb_pass *p, kvb_result *result)
{
    const kvb_replay_options *o = p->options;
    const kvb_judging *j = &p->judging;
    const bool decides = !kvb_is_tolerated(o);
    snprintf(result->out_digest, sizeof result->out_digest, "%016" PRIx64, j->digest);
    kvb_diff_judge(&j->diff, o->oracle, rows_due(p), p->number, p->trace, decides, result);
    kvb_scans_judge(p->scans, &j->diff, result);
    kvb_every_row_judge(p, result);
    kvb_filter_judge(j->filter, decides, result);
    positions_judge(p, result);
    /* a kernel with a tolerance declares nothing of its own */
    kvb_claim_judge(&j->diff.claim, j->diff.rows, o->kernel->tolerance.kind == KVB_TOLERANCE_NONE, result);
    kvb_foreign_judge(&j->foreign, o->kernel, p->trace, result);
}

void kvb_checks_close(kvb_pass *p)
{
    for (int kind = 0; kind < KVB_STEP_KINDS; kind++) {
        kvb_samples_free(&p->meter.times[kind]);
        kvb_samples_free(&p->meter.cells[kind]);
        kvb_samples_free(&p->meter.step_bytes[kind]);
    }
    free(p->meter.seen);
    kvb_witness_check_close(&p->witness);
    free(p->judging.written);
    kvb_rounded_free(p->judging.rounded);
    kvb_filter_free(p->judging.filter);
    kvb_buffer_free(&p->team_scratch, p->call.source);
    kvb_poison_check_free(&p->poison);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static int attend_prepare(kvb_pass *p, kvb_made *m)
{
    const kvb_attend_spec *spec = m->spec;
    char why[256] = "";
    m->q = p->options->oracle ? kvb_pass_rows(p, KVB_ROWS_Q, m->layer, m->fed) : NULL;
    int error = kvb_traffic_add(p, m);
    if (!error)
        error = kvb_kernel_io_fill(&p->io, spec->group, m->fed->n, m->q);
    if (error)
        return error;
    double started = kvb_pass_clock(p);
    error = kvb_call_prepare(&p->call, spec, p->io.q, m->fed->n, why, sizeof why);
    /* charged to the kernel if it needs the mask expanded, or rows staged */
    bool turned = p->call.args.mask.kind != spec->mask.kind || p->call.staged_k || p->call.staged_v;
    kvb_pass_charge(p, started, turned ? KVB_IN_KERNEL : KVB_IN_HARNESS);
    return error ? kvb_pass_refuse(p, error, p->callee, why) : 0;
}

static int attend_run(kvb_pass *p)
{
    return kvb_call_run(&p->call, p->io.out, p->io.lse);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *what, *doing;
    int (*prepare)(kvb_pass *pass, kvb_made *made);
    int (*run)(kvb_pass *pass);
    const kvb_check_row *rows;
} kinds[] = {
    [KVB_CALL_ATTENDS] = {"attend()", "in the kernel's attend()", attend_prepare, attend_run, attend_rows},
    [KVB_CALL_SCANS] = {"scan()", "in the kernel's scan()", kvb_scans_prepare, kvb_scans_run, kvb_scan_rows},
};

int kvb_pass_call(kvb_pass *p, kvb_made *m)
{
    p->callee = m->kind == KVB_CALL_SCANS ? p->options->scan->name : p->options->kernel->name;
    p->what = kinds[m->kind].what;
    p->place->doing = "in the kernel's supports()";
    kvb_threads_forget();
    int error = kinds[m->kind].prepare(p, m);
    for (const kvb_check_row *row = kinds[m->kind].rows; row->name && !error; row++)
        error = row->before ? row->before(p, m) : 0;
    if (error)
        return error;
    p->place->doing = kinds[m->kind].doing;
    if (p->options->only && p->options->only->text &&
        kvb_only_has(p->options->only, p->trace, p->place->event, m->layer))
        kvb_only_stop();
    kvb_heap_watch_start();
    const double started = kvb_pass_clock(p);
    m->returned = kinds[m->kind].run(p);
    kvb_pass_charge(p, started, KVB_IN_KERNEL);
    m->allocations = kvb_heap_watch_stop();
    m->threads = kvb_threads_started();
    p->place->doing = "in the check";
    for (const kvb_check_row *row = kinds[m->kind].rows; row->name; row++)
        if (row->after && (!error || row->always)) {
            const int found = row->after(p, m);
            error = error < 0 ? error : found ? found : error;
        }
    return error < 0 ? error : 0;
}
