/* SPDX-License-Identifier: Apache-2.0 */
/* One row of a call's outputs, judged by the oracle and by the rule of the kernel's own project. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "harness/replay/checks.h"
#include "harness/replay/pass.h"
#include "harness/replay/verdict.h"
#include "oracle/claim.h"
#include "oracle/opinion.h"
#include "oracle/sample.h"

/* The row that was judged last, by the kernel's own project's rule too; its exact outputs are at exact + c * step. */
static void pass_tolerate_row(kvb_pass *p, uint32_t query, uint32_t head, const double *exact, size_t step)
{
    const kvb_tolerance *rule = &p->options->kernel->tolerance;
    const kvb_problem *problem = &p->call.args.problem;
    p->judging.foreign.rows++;
    if (rule->kind)
        kvb_closeness_row(&p->judging.foreign.call, rule, problem->out_elem, kvb_kernel_io_row(&p->io, query, head),
                          problem->v_dim, exact, step);
}

/* Refuses the call: a query sees a cell that holds no row, or not as many as it may. */
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
        return error == -EILSEQ ? pass_unheld(p, expect->layer, expect) : error;
    diff->claim.k_dim = problem->k_dim;
    diff->claim.cells = problem->n_cells;
    kvb_diff_row(diff, &actual, problem->v_dim, &m->judged.arithmetic, (double)problem->scale, (double)problem->softcap,
                 problem->out_elem, kvb_kernel_io_row(&p->io, query, expect->head),
                 kvb_kernel_io_lse(&p->io, query, expect->head));
    pass_tolerate_row(p, query, expect->head, &actual.terms->o, sizeof *actual.terms / sizeof actual.terms->o);
    return 0;
}

/* Second opinions, and a scan for what is not finite. */

/* Can no exact output of this KV head be infinite, as stored or as rounded to the outputs' type? */
static bool is_finite(const kvb_opinion_head *head, kvb_elem out_elem)
{
    return head->finite && head->v_most < (out_elem == KVB_F16 ? 65504 : 0x1p127);
}

/* The first element of a row that is not finite; v_dim: the log-sum-exp; v_dim + 1: all are. */
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

/* Where there is no other judgement. */
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
            p->judging.every.scanned++;
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
    p->judging.every.scanned++;
    pass_tolerate_row(p, query, row->expect.head, row->o, 1);
    return kvb_opinion_diff(&p->judging.every.diff, head, row, problem->v_dim, arithmetic, (double)problem->scale,
                            (double)problem->softcap, problem->out_elem,
                            kvb_kernel_io_row(&p->io, query, row->expect.head),
                            kvb_kernel_io_lse(&p->io, query, row->expect.head));
}

#define MOVED_EACH 32u /* one row of so many is drawn */

/* Over pools whose rows depend on the order of writes: checks the row in full, if it is drawn in this pass. */
static int moved_check(kvb_pass *p, const kvb_expect *place, uint32_t visible, const kvb_attend_of *of,
                       const kvb_arithmetic *arithmetic)
{
    const kvb_problem *problem = &p->call.args.problem;
    uint64_t number = (((uint64_t)place->event << 16 | place->layer) << 16 | place->query) << 12 | place->head;
    kvb_expect wanted = *place, actual;
    if (kvb_sample_bits(p->options->oracle->seed + p->number, number) % MOVED_EACH)
        return 0;
    wanted.visible = visible;
    int error = kvb_window_solve(p->window, &wanted, of, &actual);
    if (error)
        return error;
    p->judging.every.moved++;
    kvb_diff_row(&p->judging.every.diff, &actual, problem->v_dim, arithmetic, (double)problem->scale,
                 (double)problem->softcap, problem->out_elem, kvb_kernel_io_row(&p->io, of->query, place->head),
                 kvb_kernel_io_lse(&p->io, of->query, place->head));
    p->judging.every.diff.rows--; /* its second opinion is counted */
    return 0;
}

/* All rows of a call over pools whose rows depend on the order of writes. */
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
    kvb_arithmetic arithmetic; /* as declared: second opinions are of the workload's own q */
    const kvb_opinions *opinions = p->options->oracle->opinions;
    uint32_t each = m->spec->group->heads / m->spec->group->kv_heads;
    size_t rows;
    int error = 0;
    kvb_call_arithmetic(&p->call, &arithmetic);
    p->judging.every.diff.again = p->judging.diff.again;
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
    result->error.looked.opinion += p->judging.every.diff.rows / p->number;
    result->error.looked.scanned += p->judging.every.scanned / p->number;
    result->error.looked.moved = p->judging.every.moved;
    result->error.looked.seed = p->options->oracle->seed;
    kvb_opinion_judge(&p->judging.every.diff, p->trace, !kvb_is_tolerated(p->options), result);
}
