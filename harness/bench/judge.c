/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges a few output rows of a contestant: for each sampled query, query heads of one KV head; the last query with the
 * last head is always sampled. Rows of the store repeat (scene.c), so the oracle stores only the distinct ones, and
 * runs of cells are mapped to runs of these.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/bench/bench.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "oracle/single.h"
#include "oracle/oracle.h"
#include "workloads/array.h"

#define SAMPLED 3u /* most sampled queries */
#define HEADS   8u /* most query heads of a KV head */

typedef struct runs {
    kvb_token_run *at;
    size_t n, room, *first;
    uint32_t most; /* cells that one query sees */
} runs;

/* Adds cells begin .. end-1 as cells of the distinct rows. */
static int run_add(runs *r, uint32_t distinct, uint32_t begin, uint32_t end)
{
    int error = 0;
    for (uint32_t c = begin, n; c < end && !error; c += n) {
        const uint32_t at = c % distinct;
        n = end - c < distinct - at ? end - c : distinct - at;
        error = kvb_array_reserve(&r->at, &r->room, r->n + 1, sizeof *r->at);
        if (!error)
            r->at[r->n++] = (kvb_token_run){at, at + n};
    }
    return error;
}

/* Sampled query i of n, in a call of n_tok tokens: at equal distances, the last query included. */
static uint32_t query_of(uint32_t n_tok, uint32_t i, uint32_t n)
{
    return n < 2 ? n_tok - 1 : (uint32_t)((uint64_t)(n_tok - 1) * i / (n - 1));
}

/* Number of sampled queries: fewer if there are many cells. */
static uint32_t samples_of(uint32_t n_tok, uint32_t cells)
{
    const uint32_t few = cells > 32u << 10 ? 1 : cells > 8u << 10 ? 2 : SAMPLED;
    return few < n_tok ? few : n_tok;
}

/* Fills r with the runs of cells that each sampled query sees. from: the scene's token that is the call's first. */
static int runs_make(const kvb_bench_sight *sight, uint32_t distinct, uint32_t scene_tok, uint32_t from, uint32_t n_tok,
                     runs *r)
{
    const uint32_t samples = samples_of(n_tok, sight->cells);
    int error = 0;
    r->first = calloc((size_t)n_tok + 1, sizeof *r->first);
    if (!r->first || kvb_array_reserve(&r->at, &r->room, 1, sizeof *r->at))
        return -ENOMEM;
    for (uint32_t t = 0, i = 0; t < n_tok && !error; t++) {
        uint32_t cursor = 0, seen = 0;
        kvb_run run;
        r->first[t] = r->n;
        if (i == samples || query_of(n_tok, i, samples) != t)
            continue;
        i++;
        while (!error && kvb_mask_next(&sight->mask, scene_tok, sight->cells, from + t, &cursor, &run)) {
            error = run_add(r, distinct, run.begin, run.end);
            seen += run.end - run.begin;
        }
        r->most = seen > r->most ? seen : r->most;
    }
    r->first[n_tok] = r->n;
    return error;
}

static int rows_judge(kvb_bench_contestant *c, kvb_single *truth, uint32_t cells)
{
    const kvb_problem *p = &c->call.args.problem;
    const uint32_t all = p->n_heads / p->n_kv_heads, each = all < HEADS ? all : HEADS;
    const uint32_t samples = samples_of(p->n_tok, cells);
    kvb_diff diff = {0};
    char why[256] = "";
    for (uint32_t i = 0; i < samples; i++) {
        const uint32_t t = query_of(p->n_tok, i, samples);
        const uint32_t head = (query_of(p->n_kv_heads, i, samples) + 1) * all - each;
        const int error = kvb_single_judge(truth, t, head, each, false, &diff, NULL, NULL, why, sizeof why);
        if (error == -ENOMEM)
            return error;
        if (error) {
            c->wrong = true;
            snprintf(c->finding, sizeof c->finding, "%s", why);
            return 0;
        }
        c->rows += each;
    }
    c->rho = diff.rho;
    c->share = c->foreign ? kvb_closeness_share(&diff.close, &c->kernel->tolerance) : NAN;
    c->wrong = c->foreign ? c->share > 1 : diff.any_failed;
    if (c->wrong && c->foreign)
        snprintf(c->finding, sizeof c->finding, "outputs are off by %.3g times what its project tolerates", c->share);
    else if (c->wrong)
        kvb_diff_words(&diff, p->v_dim, c->finding, sizeof c->finding);
    return 0;
}

/* Makes the runs and the rows that sampled queries of the last call see. APART: the last call is the last token's. */
static int seen_make(const kvb_bench_run *run, const kvb_bench_contestant *c, runs *r, kvb_single_rows *rows)
{
    const kvb_bench_store *store = run->store;
    const uint32_t n_tok = c->call.args.problem.n_tok;
    const int error = runs_make(kvb_bench_sight_of(run->scene, c->entry->way), store->distinct, run->scene->n_tok,
                                run->scene->n_tok - n_tok, n_tok, r);
    *rows = (kvb_single_rows){.cells = store->distinct,
                              .k = store->rows[0],
                              .v = store->rows[1],
                              .k_amax = store->amax[0] ? store->amax[0][0] : NULL,
                              .v_amax = store->amax[1] ? store->amax[1][0] : NULL,
                              .runs = r->at,
                              .first = r->first,
                              .most = r->most};
    return error;
}

int kvb_bench_judge(const kvb_bench_run *run, kvb_bench_contestant *c)
{
    const uint32_t cells = kvb_bench_sight_of(run->scene, c->entry->way)->cells;
    kvb_single *truth = NULL;
    kvb_single_rows rows;
    char why[256] = "";
    runs r = {0};
    c->foreign = c->kernel->tolerance.kind != KVB_TOLERANCE_NONE;
    c->rows = 0;
    int error = seen_make(run, c, &r, &rows);
    if (!error)
        error = kvb_single_open(&c->call.args, c->kernel, NULL, &rows, &truth, why, sizeof why);
    if (!error)
        error = rows_judge(c, truth, cells);
    if (error && error != -ENOMEM) {
        snprintf(c->why, sizeof c->why, "%s", why);
        error = 0;
    }
    kvb_single_free(truth);
    free(r.at);
    free(r.first);
    return error;
}

/* ---- the error of a format ------------------------------------------------------------------------------------- */

/* Fills exact [HEADS][v_dim] with the exact outputs of the last query's last *n heads, over rows in the call's formats.
 */
static int exact_solve(const kvb_attend *call, const kvb_single_rows *rows, double *exact, uint32_t *n)
{
    const kvb_problem *p = &call->problem;
    const uint32_t all = p->n_heads / p->n_kv_heads;
    char why[256];
    kvb_single *truth = NULL;
    kvb_diff diff = {0};
    *n = all < HEADS ? all : HEADS;
    int error = kvb_single_open(call, &kvb_kernel_reference, NULL, rows, &truth, why, sizeof why);
    if (!error)
        error = kvb_single_judge(truth, p->n_tok - 1, p->n_heads - *n, *n, false, &diff, exact, NULL, why, sizeof why);
    kvb_single_free(truth);
    return error;
}

int kvb_bench_format_error(const kvb_bench_run *run, const kvb_bench_contestant *c, double *rel_l2)
{
    static const kvb_format f32 = {.name = "f32"};
    const uint32_t v_dim = c->call.args.problem.v_dim;
    kvb_attend plain = c->call.args;
    kvb_single_rows rows;
    runs r = {0};
    double *exact = malloc(2 * (size_t)HEADS * v_dim * sizeof *exact), error2 = 0, exact2 = 0;
    uint32_t n = 0;
    int error = exact ? seen_make(run, c, &r, &rows) : -ENOMEM;
    plain.problem.k_format = plain.problem.v_format = &f32;
    if (!error)
        error = exact_solve(&c->call.args, &rows, exact, &n);
    if (!error)
        error = exact_solve(&plain, &rows, exact + (size_t)HEADS * v_dim, &n);
    for (size_t i = 0; i < (size_t)n * v_dim && !error; i++) {
        const double o = exact[(size_t)HEADS * v_dim + i];
        error2 += (exact[i] - o) * (exact[i] - o);
        exact2 += o * o;
    }
    *rel_l2 = error2 > 0 ? sqrt(error2 / exact2) : 0;
    free(exact);
    free(r.at);
    free(r.first);
    return error;
}
