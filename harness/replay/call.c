/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a kernel: prepared, looked at before, made, timed, looked at after. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/clock.h"
#include "harness/counters/count.h"
#include "harness/replay/checks.h"
#include "harness/replay/heap_watch.h"
#include "harness/replay/scan.h"
#include "harness/replay/traffic.h"
#include "harness/replay/verdict.h"

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
    counts_add(p->options->counts, &p->meter.pending);
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

/* ---- attention --------------------------------------------------------------------------------------------------- */

static int attend_prepare(kvb_pass *p, kvb_made *m)
{
    const kvb_attend_spec *spec = m->spec;
    char why[256] = "";
    /* a witness attends nothing */
    const float *q = p->options->oracle ? kvb_pass_rows(p, KVB_ROWS_Q, m->layer, m->fed->tokens, m->fed->n) : NULL;
    int error = kvb_traffic_add(p, m);
    if (!error)
        error = kvb_kernel_io_fill(&p->io, spec->group, m->fed->n, q);
    if (error)
        return error;
    double started = kvb_pass_clock(p);
    error = kvb_call_prepare(&p->call, spec, p->io.q, m->fed->n, why, sizeof why);
    /* timed as the kernel's: it needs the mask expanded, or rows staged */
    bool turned = p->call.args.mask.kind != spec->mask.kind || p->call.staged_k || p->call.staged_v;
    kvb_pass_charge(p, started, turned ? KVB_IN_KERNEL : KVB_IN_HARNESS);
    return error ? kvb_pass_refuse(p, error, p->who, why) : 0;
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
} kinds[KVB_CALL_KINDS] = {
    [KVB_CALL_ATTENDS] = {"attend()", "in the kernel's attend()", attend_prepare, attend_run},
    [KVB_CALL_SCANS] = {"scan()", "in the kernel's scan()", kvb_scans_prepare, kvb_scans_run},
};

int kvb_pass_call(kvb_pass *p, kvb_made *m)
{
    p->who = m->kind == KVB_CALL_SCANS ? p->options->scan->name : p->options->kernel->name;
    p->what = kinds[m->kind].what;
    p->place->doing = "in the kernel's supports()";
    kvb_threads_forget();
    int error = kinds[m->kind].prepare(p, m);
    for (const kvb_check_row *row = kvb_check_rows; row->name && !error; row++)
        error = row->before[m->kind] ? row->before[m->kind](p, m) : 0;
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
    for (const kvb_check_row *row = kvb_check_rows; row->name; row++)
        if (row->after[m->kind] && (!error || row->always)) {
            const int found = row->after[m->kind](p, m);
            error = error < 0 ? error : found ? found : error;
        }
    return error < 0 ? error : 0;
}
