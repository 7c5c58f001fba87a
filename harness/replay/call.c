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
