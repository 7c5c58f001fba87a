/* SPDX-License-Identifier: Apache-2.0 */
/* One row of a call's outputs, judged by the oracle and by the rule of the kernel's own project. */
#include <errno.h>
#include <stdio.h>

#include "harness/replay/checks.h"
#include "oracle/claim.h"

void kvb_pass_tolerate_row(kvb_pass *p, uint32_t query, uint32_t head, const double *exact, size_t step)
{
    const kvb_tolerance *rule = &p->options->kernel->tolerance;
    const kvb_problem *problem = &p->call.args.problem;
    p->judging.foreign.rows++;
    if (rule->kind)
        kvb_closeness_row(&p->judging.foreign.call, rule, problem->out_elem, kvb_kernel_io_row(&p->io, query, head),
                          problem->v_dim, exact, step);
}

int kvb_pass_unheld(kvb_pass *p, uint32_t layer, const kvb_expect *e)
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
    kvb_judged *judged = &m->judged;
    char why[256];
    judged->n = 0;
    kvb_call_arithmetic(&p->call, &judged->arithmetic);
    int error =
        kvb_claim_check(&judged->arithmetic, why, sizeof why) ? kvb_pass_fail(p, KVB_CHECK_DECLARATION, why) : 0;
    if (error)
        return error;
    error = kvb_rounded_rows(p->judging.rounded, &p->call.args, p->place->event, m->layer, &judged->arithmetic,
                             &judged->rows, &judged->n, why, sizeof why);
    if (!error || !*why)
        return error;
    judged->n = 0;
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
        return error == -EILSEQ ? kvb_pass_unheld(p, expect->layer, expect) : error;
    diff->claim.k_dim = problem->k_dim;
    diff->claim.cells = problem->n_cells;
    kvb_diff_row(diff, &actual, problem->v_dim, &m->judged.arithmetic, (double)problem->scale, (double)problem->softcap,
                 problem->out_elem, kvb_kernel_io_row(&p->io, query, expect->head),
                 kvb_kernel_io_lse(&p->io, query, expect->head));
    kvb_pass_tolerate_row(p, query, expect->head, &actual.terms->o, sizeof *actual.terms / sizeof actual.terms->o);
    return 0;
}
