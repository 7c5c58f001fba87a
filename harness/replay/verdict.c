/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/replay/verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/replay/guard.h"
#include "harness/replay/heap_watch.h"
#include "harness/replay/pass.h"
#include "oracle/claim.h"
#include "oracle/opinion.h"
#include "workloads/values.h"

#define WORST "; the worst: " /* begins a reason's part on the worst error */

__attribute__((format(printf, 2, 3))) static void add(kvb_result *result, const char *format, ...)
{
    size_t used = strlen(result->reason);
    va_list list;
    va_start(list, format);
    vsnprintf(result->reason + used, sizeof result->reason - used, format, list);
    va_end(list);
}

/* The first failing check is the result's. */
static void fail(kvb_check check, kvb_result *result)
{
    if (result->status != KVB_STATUS_FAIL)
        result->check = check;
    result->status = KVB_STATUS_FAIL;
}

/* "query 3, head 0, channel 5: got 1, exact 2, bound 1e-6" */
static void element_words(const kvb_diff_place *at, const kvb_trace *trace, char *words, size_t bytes)
{
    char where[48] = "log-sum-exp";
    const char *const parts[] = {"query", "recurrence, token", "convolution, token"};
    if (at->part || at->channel < kvb_model_group(&trace->header.model, at->layer)->v_dim)
        snprintf(where, sizeof where, "channel %u", at->channel);
    if (at->row)
        snprintf(where, sizeof where, "row %u of the state in its slot, channel %u", at->row - 1u, at->channel);
    snprintf(words, bytes, "%s %u, head %u, %s: got %.9g, exact %.9g, bound %.3g", parts[at->part], at->query, at->head,
             where, at->got, at->want, at->bound);
}

void kvb_reason_add(const char *words, kvb_result *result)
{
    char before[sizeof result->reason];
    const char *worst = strstr(result->reason, WORST);
    const size_t first = worst ? (size_t)(worst - result->reason) : strlen(result->reason);
    memcpy(before, result->reason, sizeof before);
    snprintf(result->reason + first, sizeof result->reason - first, "%s%s", words, before + first);
}

void kvb_event_add(const kvb_event *event, kvb_result *result)
{
    char words[384];
    kvb_event_words(event, words, sizeof words);
    add(result, "; %s", words);
    if (!result->where.line)
        result->where.line = event->line;
}

void kvb_misdeed_judge(const char *misdeed, kvb_result *result)
{
    char besides[KVB_REASON];
    snprintf(besides, sizeof besides, "; besides, %s", misdeed);
    if (result->status != KVB_STATUS_PASS)
        return kvb_reason_add(besides, result);
    if (kvb_check_is_off(KVB_CHECK_ALLOCATIONS))
        return;
    fail(KVB_CHECK_ALLOCATIONS, result);
    add(result, "%s; what it wrote is right", misdeed);
}

void kvb_filter_judge(const kvb_filter *filter, bool decides, kvb_result *result)
{
    char words[192], more[sizeof words + 2];
    kvb_filter_peak peaks[KVB_FILTER_KINDS];
    result->error.filter_rows = kvb_filter_rows(filter);
    result->error.filter_z = kvb_filter_peaks(filter, peaks);
    kvb_filter_words(peaks, words, sizeof words);
    if (!*words || !decides || kvb_check_is_off(KVB_CHECK_FILTER))
        return;
    snprintf(more, sizeof more, "%s%s", result->status == KVB_STATUS_FAIL ? "; " : "", words);
    kvb_reason_add(more, result);
    fail(KVB_CHECK_FILTER, result);
}

/* Error / bound. */
static double rho_at(const kvb_diff_place *at)
{
    return isfinite(at->got) && isfinite(at->want) && at->bound > 0 ? fabs(at->got - at->want) / at->bound : INFINITY;
}

/* Adds a failing element and its event to the reason. */
static void element_add(double rho, const kvb_diff_place *at, const kvb_trace *trace, kvb_result *result)
{
    char words[256];
    element_words(at, trace, words, sizeof words);
    add(result, "rho %.3g at line %" PRIu64 ", layer %u, %s", rho, trace->events[at->event].line, at->layer, words);
    kvb_event_add(&trace->events[at->event], result);
}

/* Describes the first failing element in words. Failing rows have a pattern only if all rows of the call were compared. */
static void where_note(const kvb_diff *d, const char *rows, const kvb_trace *trace, kvb_result *result)
{
    const kvb_event *event = &trace->events[d->first.event];
    const kvb_group *group = kvb_model_group(&trace->header.model, d->first.layer);
    kvb_where *w = &result->where;
    *w = (kvb_where){.line = event->line, .layer = d->first.layer};
    kvb_event_words(event, w->event, sizeof w->event);
    element_words(&d->first, trace, w->element, sizeof w->element);
    snprintf(w->rows, sizeof w->rows, "%s", rows);
    if (d->first.part || event->n > KVB_DIFF_QUERIES ||
        d->first_elements < (uint64_t)event->n * group->heads * group->v_dim)
        return;
    char queries[60], heads[60];
    kvb_set_pattern("query", d->first_queries, event->n, queries, sizeof queries);
    kvb_set_pattern("head", d->first_heads, group->heads, heads, sizeof heads);
    snprintf(w->pattern, sizeof w->pattern, "%s, %s", queries, heads);
}

/* Adds the first failing element, the other failures of its call, and the worst element. The finding of a second look
 * goes before the worst. */
static void failure_add(const kvb_diff *d, const kvb_trace *trace, kvb_result *result)
{
    char heads[192], queries[192], rows[400];
    if (!d->first_failed) {
        element_add(d->rho, &d->worst, trace, result);
        return add(result, "; not in the first pass: the same call gave other results");
    }
    element_add(rho_at(&d->first), &d->first, trace, result);
    kvb_set_words("head", d->first_heads, KVB_MODEL_WIDTH, heads, sizeof heads);
    kvb_set_words(d->first.part ? "token" : "query", d->first_queries, KVB_DIFF_QUERIES, queries, sizeof queries);
    snprintf(rows, sizeof rows, "%s, %s", heads, queries);
    where_note(d, rows, trace, result);
    add(result, "; in its call %" PRIu64 " of %" PRIu64 " elements fail: %s; in all %" PRIu64 " of %" PRIu64,
        d->first_failed, d->first_elements, rows, d->failed, d->elements);
    add(result, WORST);
    if (!memcmp(&d->first, &d->worst, sizeof d->first))
        return add(result, "the first");
    element_add(d->rho, &d->worst, trace, result);
}

void kvb_worst_note(const kvb_diff *d, kvb_result *result)
{
    result->rho = d->rho;
    result->error.event = d->worst.event;
    result->error.layer = d->worst.layer;
    result->error.query = d->worst.query;
    result->error.head = d->worst.head;
    result->error.channel = d->worst.channel;
    result->error.got = d->worst.got;
    result->error.want = d->worst.want;
    result->error.bound = d->worst.bound;
}

/* Fails a passed result by one more check. */
static void more_judge(const kvb_diff *d, kvb_check check, const char *words, const kvb_trace *trace, bool decides,
                       kvb_result *result)
{
    result->error.not_finite += d->not_finite;
    if (d->rho <= 1 || !decides || result->status != KVB_STATUS_PASS || kvb_check_is_off(check))
        return;
    fail(check, result);
    kvb_worst_note(d, result);
    add(result, "%s", words);
    failure_add(d, trace, result);
}

void kvb_opinion_judge(const kvb_diff *d, const kvb_trace *trace, bool decides, kvb_result *result)
{
    more_judge(d, KVB_CHECK_OPINION, "second opinion: ", trace, decides, result);
}

void kvb_scan_judge(const kvb_diff *d, const kvb_diff *attended, size_t rows, const kvb_trace *trace,
                    kvb_result *result)
{
    const double error2 = d->sum_error2 + attended->sum_error2;
    result->error.checked_rows += d->rows;
    result->error.has_place |= d->rows > 0;
    result->error.rho_worst = fmax(result->error.rho_worst, d->rho_worst);
    result->error.max_abs = fmax(result->error.max_abs, d->max_abs);
    result->error.rel_l2 = error2 > 0 ? sqrt(error2 / (d->sum_exact2 + attended->sum_exact2)) : 0;
    if (d->rows != rows) {
        result->status = KVB_STATUS_FAIL;
        add(result, "%s%" PRIu64 " rows of scans were compared, %zu expected", *result->reason ? "; " : "", d->rows,
            rows);
        return;
    }
    more_judge(d, KVB_CHECK_BOUND, "", trace, true, result);
    if (result->status == KVB_STATUS_PASS && d->rho > result->rho)
        kvb_worst_note(d, result);
}

void kvb_states_judge(const kvb_diff *d, const kvb_trace *trace, kvb_result *result)
{
    more_judge(d, KVB_CHECK_STATE, "", trace, true, result);
    if (result->status == KVB_STATUS_PASS && d->rho > result->rho)
        kvb_worst_note(d, result);
}

void kvb_diff_judge(const kvb_diff *d, const kvb_oracle *oracle, size_t rows, uint64_t passes, const kvb_trace *trace,
                    bool decides, kvb_result *result)
{
    result->error.rho_worst = d->rho_worst;
    result->error.rho_lse = d->rho_lse;
    result->error.max_abs = d->max_abs;
    result->error.rel_l2 = d->rel_l2;
    result->error.not_finite = d->not_finite;
    result->error.checked_rows = d->rows / passes;
    result->error.total_rows =
        oracle->total_rows + (oracle->descent ? oracle->descent->total * trace->needs.tokens : 0);
    result->error.has_place = d->rows > 0;
    kvb_worst_note(d, result);
    result->error.format_max_abs = oracle->format.max_abs;
    result->error.format_rel_l2 = oracle->format.rel_l2;
    result->error.format_kl_mean = oracle->format.kl_mean;
    result->error.format_kl_max = oracle->format.kl_max;
    result->status = KVB_STATUS_FAIL;
    if (d->rows != rows * passes)
        snprintf(result->reason, sizeof result->reason,
                 "%" PRIu64 " rows were compared in %" PRIu64 " passes, %zu expected in each", d->rows, passes, rows);
    else if (!(d->rho <= 1) && decides && !kvb_check_is_off(KVB_CHECK_BOUND)) {
        result->check = KVB_CHECK_BOUND;
        failure_add(d, trace, result);
    } else
        result->status = KVB_STATUS_PASS;
}

void kvb_claim_judge(const kvb_claim *claim, uint64_t rows, bool decides, kvb_result *result)
{
    char words[192];
    const double share = 100 / (double)rows;
    result->error.unsaid_rows = claim->unsaid;
    result->error.unsaid_of = rows;
    if (!rows || (double)claim->wide <= KVB_CLAIM_LIMIT * (double)rows || !decides ||
        kvb_check_is_off(KVB_CHECK_DECLARATION))
        return;
    kvb_claim_words(claim->fields, words, sizeof words);
    add(result,
        "%sthe declaration says nothing about %.3g %% of the rows: outputs of 0 would pass in %.3g %%, the mean of V "
        "in "
        "%.3g %%, the row without its heaviest cell in %.3g %%; too wide: %s",
        result->status == KVB_STATUS_FAIL ? "; " : "", share * (double)claim->unsaid, share * (double)claim->passing[0],
        share * (double)claim->passing[1], share * (double)claim->passing[2], words);
    fail(KVB_CHECK_DECLARATION, result);
}

void kvb_foreign_judge(const kvb_foreign_calls *calls, const kvb_kernel *kernel, const kvb_trace *trace,
                       kvb_result *result)
{
    const kvb_tolerance *rule = &kernel->tolerance;
    const double parts = kvb_closeness_share(&calls->parts, rule), share = fmax(parts, calls->share);
    char found[KVB_FOREIGN_TEXT] = "";
    if (kernel->flags & KVB_KERNEL_FOREIGN && kernel->available)
        kernel->available(found, sizeof found);
    snprintf(result->foreign.engine, sizeof result->foreign.engine, "%s", found);
    result->foreign.calls = calls->calls;
    result->foreign.allocations = calls->allocations;
    snprintf(result->foreign.rule, sizeof result->foreign.rule, "%s", kvb_tolerance_names[rule->kind]);
    if (!rule->kind)
        return;
    snprintf(result->foreign.source, sizeof result->foreign.source, "%s", rule->source);
    result->foreign.limit = rule->limit;
    result->foreign.relative = rule->relative;
    result->foreign.share = share;
    result->foreign.outputs = calls->elements;
    if (share <= 1 || result->status != KVB_STATUS_PASS || kvb_check_is_off(KVB_CHECK_TOLERANCE))
        return;
    fail(KVB_CHECK_TOLERANCE, result);
    add(result, "%.3g times what its own project tolerates (%s %g)", share, kvb_tolerance_names[rule->kind],
        rule->limit);
    if (share > calls->share) {
        add(result, " over the rows that are known of all calls");
    } else {
        add(result, " at line %" PRIu64 ", layer %u", trace->events[calls->event].line, calls->layer);
        kvb_event_add(&trace->events[calls->event], result);
    }
    add(result, WORST "rho %.3g", result->rho);
}

/* ---- the end of a pass ------------------------------------------------------------------------------------------- */

int kvb_pass_refuse(kvb_pass *p, int error, const char *what, const char *why)
{
    const kvb_event *event = &p->trace->events[p->place->event];
    p->ended = true;
    p->result->status = error == -ENOTSUP ? KVB_STATUS_SKIP : KVB_STATUS_FAIL;
    p->result->check = KVB_CHECK_PROTOCOL;
    snprintf(p->result->reason, sizeof p->result->reason, "line %" PRIu64 ": %s: %s%s", event->line, what,
             p->short_of_memory ? "memory ran short: " : "", why && *why ? why : strerror(-error));
    if (p->result->status == KVB_STATUS_FAIL)
        kvb_event_add(event, p->result);
    return error;
}

int kvb_pass_fail(kvb_pass *p, kvb_check check, const char *why)
{
    if (kvb_check_is_off(check))
        return 0;
    int error = kvb_pass_refuse(p, -EILSEQ, check == KVB_CHECK_WITNESS ? "visible set" : p->callee, why);
    p->result->check = check;
    return error;
}

static void misdeed_note(kvb_pass *p, uint64_t allocations, uint64_t threads)
{
    const uint64_t n = threads ? threads : allocations;
    char what[320], did[64], times[48] = "";
    kvb_heap_watch_words(threads, what, sizeof what);
    if (threads)
        snprintf(did, sizeof did, "a thread was started in %s or before it", p->what);
    else
        snprintf(did, sizeof did, "%s allocated or freed memory", p->what);
    if (n > 1)
        snprintf(times, sizeof times, " %" PRIu64 " times; the first", n);
    snprintf(p->misdeed, sizeof p->misdeed, "line %" PRIu64 ": %.64s: %s%s: %s", p->trace->events[p->place->event].line,
             p->callee, did,
             n > 1     ? times
             : threads ? ""
                       : " once",
             what);
}

int kvb_pass_conduct(kvb_pass *p, kvb_made *m)
{
    const bool foreign = p->options->kernel->flags & KVB_KERNEL_FOREIGN,
               counts = foreign && m->kind == KVB_CALL_ATTENDS && p->number == 0;
    char why[256];
    p->judging.foreign.calls += counts;
    p->judging.foreign.allocations += counts ? m->allocations : 0;
    /* An engine's threads can tidy up later, when a scan runs. */
    if (!foreign && (m->allocations || m->threads) && !*p->misdeed)
        misdeed_note(p, m->allocations, m->threads);
    if (!m->returned)
        return 0;
    const char *name = m->returned < 0 ? strerrorname_np(-m->returned) : NULL;
    snprintf(why, sizeof why, "%s returned %d%s%s%s%s%s", p->what, m->returned, name ? " (-" : "", name ? name : "",
             name ? ", " : "", name ? strerror(-m->returned) : "",
             name ? ")" : ": it is to return 0 or a negative errno");
    return kvb_pass_fail(p, KVB_CHECK_RETURN, why);
}

int kvb_pass_margins(kvb_pass *p, kvb_made *m)
{
    char why[256];
    (void)m;
    return !p->options->knobs->no_guard && p->number == 0 && !kvb_guard_check(why, sizeof why)
               ? kvb_pass_fail(p, KVB_CHECK_MARGINS, why)
               : 0;
}

static void angles_make(kvb_feeding *f, const kvb_group *g, const kvb_fed *fed)
{
    for (uint32_t i = 0; i < fed->n; i++)
        kvb_rope_angles(&g->rope, f->offset[fed->tokens[i]], f->angles + (size_t)i * g->rope.dims);
    f->angles_of = g;
}

const float *kvb_pass_rows(kvb_pass *p, kvb_rows kind, uint32_t layer, const kvb_fed *fed)
{
    const uint64_t *tokens = fed->tokens;
    const kvb_group *g = kvb_model_group(&p->model, layer);
    const size_t row = kvb_values_floats(g, kind);
    const bool turned = p->feeding.offset && kind <= KVB_ROWS_K && g->rope.dims;
    bool together = !turned;
    for (uint32_t i = 1; i < fed->n && together; i++)
        together = tokens[i] == tokens[0] + i;
    if (together || !row)
        return kvb_values_rows(p->options->values, kind, layer, tokens[0]);
    if (turned && p->feeding.angles_of != g)
        angles_make(&p->feeding, g, fed);
    for (uint32_t i = 0; i < fed->n; i++) {
        float *at = p->feeding.rows[kind] + i * row;
        memcpy(at, kvb_values_rows(p->options->values, kind, layer, tokens[i]), row * sizeof *at);
        for (size_t head = 0; turned && head < row; head += kvb_rows_dim(g, kind))
            kvb_rope_turn(&g->rope, p->feeding.angles + (size_t)i * g->rope.dims, at + head);
    }
    return p->feeding.rows[kind];
}

/* Judges a row by the tolerance of the kernel's own project. The exact output of channel c is exact[c * step]. */
static void pass_tolerate_row(kvb_pass *p, uint32_t query, uint32_t head, const double *exact, size_t step)
{
    const kvb_tolerance *rule = &p->options->kernel->tolerance;
    const kvb_problem *problem = &p->call.args.problem;
    p->judging.foreign.rows++;
    if (rule->kind)
        kvb_closeness_row(&p->judging.foreign.call, rule, problem->out_elem, kvb_kernel_io_row(&p->io, query, head),
                          problem->v_dim, exact, step);
}

/* Refuses the call: a query sees a cell without a row, or fewer or more rows than it may. */
static int pass_unheld(kvb_pass *p, uint32_t layer, const kvb_expect *e)
{
    char why[128];
    snprintf(why, sizeof why,
             "layer %u, query %u, head %u: a cell that is seen holds no row, or they are not as many "
             "as are to be seen",
             layer, e->query, e->head);
    int error = kvb_pass_refuse(p, -EILSEQ, p->options->cache->name, why);
    p->result->check = KVB_CHECK_STORED;
    return error;
}

int kvb_pass_judged(kvb_pass *p, kvb_made *m)
{
    char why[256];
    m->n_rows = 0;
    kvb_call_arithmetic(&p->call, &m->arithmetic);
    int error = kvb_claim_check(&m->arithmetic, why, sizeof why) ? kvb_pass_fail(p, KVB_CHECK_DECLARATION, why) : 0;
    if (error)
        return error;
    error = kvb_rounded_rows(p->judging.rounded, &p->call.args, p->place->event, m->layer, &m->arithmetic, &m->rows,
                             &m->n_rows, why, sizeof why);
    if (!error || !*why)
        return error;
    m->n_rows = 0;
    return kvb_pass_fail(p, KVB_CHECK_DECLARATION, why);
}

int kvb_pass_judge_row(kvb_pass *p, const kvb_made *m, const kvb_expect *expect, kvb_diff *diff)
{
    const kvb_problem *problem = &p->call.args.problem;
    const kvb_attend_spec *spec = m->spec;
    const uint32_t query = problem->n_tok - m->fed->judged + expect->query;
    kvb_expect actual = *expect;
    int error = 0;
    if (p->window)
        error = kvb_window_solve(p->window, expect, &(kvb_attend_of){&spec->mask, spec->k.cells, problem->n_tok, query},
                                 &actual);
    if (error)
        return error == -EILSEQ ? pass_unheld(p, expect->layer, expect) : error;
    diff->claim.k_dim = problem->k_dim;
    diff->claim.cells = problem->n_cells;
    kvb_diff_row(diff, &actual, problem->v_dim, &m->arithmetic, (double)problem->scale, (double)problem->softcap,
                 problem->out_elem, kvb_kernel_io_row(&p->io, query, expect->head),
                 kvb_kernel_io_lse(&p->io, query, expect->head));
    pass_tolerate_row(p, query, expect->head, &actual.terms->o, sizeof *actual.terms / sizeof actual.terms->o);
    return 0;
}

/* Second opinions, and a scan for NaN and infinity. */

/* Is every exact output of this KV head finite, also when rounded to the outputs' type? */
static bool is_finite(const kvb_opinion_head *head, kvb_elem out_elem)
{
    return head->finite && head->v_most < (out_elem == KVB_F16 ? 65504 : 0x1p127);
}

/* The first element of a row that is not finite; v_dim: the log-sum-exp; v_dim + 1: all are finite. */
static uint32_t not_finite_find(const kvb_pass *p, uint32_t query, uint32_t head)
{
    const kvb_problem *problem = &p->call.args.problem;
    const void *row = kvb_kernel_io_row(&p->io, query, head);
    uint32_t c = 0;
    while (c < problem->v_dim && isfinite(kvb_output_value(problem->out_elem, row, c)))
        c++;
    const float *lse = kvb_kernel_io_lse(&p->io, query, head);
    return c + (c == problem->v_dim && (!lse || isfinite(*lse)));
}

/* Scans a call without other judgement for NaN and infinity. */
static int call_scan(kvb_pass *p, const kvb_opinion_head *heads, const kvb_made *m)
{
    const uint32_t n = m->fed->judged, layer = m->layer;
    const kvb_problem *problem = &p->call.args.problem;
    uint32_t each = problem->n_heads / problem->n_kv_heads;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < problem->n_heads; h++) {
            char why[160], where[32] = "the log-sum-exp";
            if (!kvb_pass_asks(p, n, i) || !is_finite(&heads[h / each], problem->out_elem))
                continue;
            p->judging.scanned++;
            uint32_t c = not_finite_find(p, problem->n_tok - n + i, h);
            if (c > problem->v_dim)
                continue;
            if (c < problem->v_dim)
                snprintf(where, sizeof where, "channel %u", c);
            snprintf(why, sizeof why, "the output is not finite, as it must be, at layer %u, query %u, head %u, %s",
                     layer, i, h, where);
            return kvb_pass_fail(p, KVB_CHECK_FINITE, why);
        }
    return 0;
}

static int row_check(kvb_pass *p, const kvb_opinion_head *head, const kvb_opinion_row *row, uint32_t n,
                     const kvb_arithmetic *arithmetic)
{
    const kvb_problem *problem = &p->call.args.problem;
    uint32_t query = problem->n_tok - n + row->expect.query;
    if (!kvb_pass_asks(p, n, row->expect.query))
        return 0;
    p->judging.scanned++;
    pass_tolerate_row(p, query, row->expect.head, row->o, 1);
    return kvb_opinion_diff(&p->judging.opinions, head, row, problem->v_dim, arithmetic, (double)problem->scale,
                            (double)problem->softcap, problem->out_elem,
                            kvb_kernel_io_row(&p->io, query, row->expect.head),
                            kvb_kernel_io_lse(&p->io, query, row->expect.head));
}

#define MOVED_EACH 32u /* one in so many rows is drawn */

/* Checks the row in full if this pass draws it, over pools in which rows depend on the order of writes. */
static int moved_check(kvb_pass *p, const kvb_expect *place, uint32_t visible, const kvb_attend_of *of,
                       const kvb_arithmetic *arithmetic)
{
    const kvb_problem *problem = &p->call.args.problem;
    uint64_t number = (((uint64_t)place->event << 16 | place->layer) << 16 | place->query) << 12 | place->head;
    kvb_expect wanted = *place, actual;
    if (kvb_rng_bits(p->options->oracle->seed + p->number, number) % MOVED_EACH)
        return 0;
    wanted.visible = visible;
    int error = kvb_window_solve(p->window, &wanted, of, &actual);
    if (error)
        return error;
    p->judging.moved++;
    kvb_diff_row(&p->judging.opinions, &actual, problem->v_dim, arithmetic, (double)problem->scale,
                 (double)problem->softcap, problem->out_elem, kvb_kernel_io_row(&p->io, of->query, place->head),
                 kvb_kernel_io_lse(&p->io, of->query, place->head));
    p->judging.opinions.rows--; /* row_check() has counted the row */
    return 0;
}

/* Checks all rows of a call over pools in which rows depend on the order of writes. */
static int windowed_check(kvb_pass *p, const kvb_made *m, const kvb_arithmetic *arithmetic)
{
    const kvb_attend_spec *spec = m->spec;
    const uint32_t n = m->fed->judged, layer = m->layer;
    uint32_t n_tok = p->call.args.problem.n_tok;
    int error = 0;
    for (uint32_t i = 0; i < n && !error; i++) {
        const kvb_attend_of of = {&spec->mask, spec->k.cells, n_tok, n_tok - n + i};
        kvb_expect place = {.event = p->place->event, .layer = layer, .query = i};
        if (!kvb_pass_asks(p, n, i))
            continue;
        error = kvb_window_look(p->window, layer, &of);
        if (error == -EILSEQ)
            return pass_unheld(p, layer, &place);
        for (; place.head < spec->group->heads && !error; place.head++) {
            kvb_opinion_row row;
            const kvb_opinion_head *head = kvb_window_opinion(p->window, &place, &row);
            error = row_check(p, head, &row, n, arithmetic);
            error = error ? error : moved_check(p, &place, row.expect.visible, &of, arithmetic);
        }
    }
    return error;
}

int kvb_every_row_check(kvb_pass *p, kvb_made *m)
{
    const uint32_t layer = m->layer, n = m->fed->judged;
    kvb_arithmetic arithmetic; /* as declared: second opinions use the workload's own q */
    const kvb_opinions *opinions = p->options->oracle->opinions;
    uint32_t each = m->spec->group->heads / m->spec->group->kv_heads;
    size_t rows;
    int error = 0;
    kvb_call_arithmetic(&p->call, &arithmetic);
    p->judging.opinions.again = p->judging.diff.again;
    if (p->window)
        return windowed_check(p, m, &arithmetic);
    if (!opinions)
        return 0;
    const kvb_opinion_row *row = kvb_opinions_of(opinions, p->place->event, layer, &rows);
    if (!rows)
        return call_scan(p, opinions->heads[layer], m);
    for (size_t i = 0; i < rows && !error; i++)
        error = row_check(p, &opinions->heads[layer][row[i].expect.head / each], &row[i], n, &arithmetic);
    return error;
}

void kvb_every_row_judge(kvb_pass *p, kvb_result *result)
{
    result->error.looked.opinion += p->judging.opinions.rows / p->number;
    result->error.looked.scanned += p->judging.scanned / p->number;
    result->error.looked.moved = p->judging.moved;
    result->error.looked.seed = p->options->oracle->seed;
    kvb_opinion_judge(&p->judging.opinions, p->trace, !kvb_is_tolerated(p->options), result);
}
