/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a KV head is stored once, when the first query that sees it is judged. */
#include "oracle/single.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/codec.h"
#include "oracle/exact.h"
#include "oracle/opinion.h"
#include "oracle/oracle.h"
#include "oracle/solve.h"
#include "oracle/storage.h"
#include "workloads/array.h"

/* One KV head. */
typedef struct head_rows {
    kvb_storages stores;
    kvb_stored k, v;  /* by cell; v: empty where V is in K */
    uint64_t *stored; /* bits of cells; NULL: none is stored yet */
    bool all;         /* every row is stored */
    bool finite;      /* the stored rows, of a format that kvb_exact_takes() */
    kvb_opinion_head opinion;
    double *k_norm; /* ||K|| of each cell; NULL: no second opinion yet */
} head_rows;

struct kvb_single {
    const kvb_attend *call;
    const kvb_kernel *kernel;
    const kvb_single_rows *rows;
    kvb_arithmetic arithmetic; /* without `query` if the rows have the rounded q */
    kvb_arithmetic declared;
    head_rows *heads;          /* [n_kv_heads] */
    double *q, *scratch, *o;   /* [KVB_ATTENTION_ROWS] of each */
    double *store_scratch;     /* of kvb_stored_put() */
    const float **at;          /* [cells] rows to be stored */
    kvb_single_filter *filter; /* the caller's; NULL: none */
    kvb_bound_term *terms;
    size_t row_scratch;
    kvb_arena arena;
};

/* Stores the rows of cells [from, to) of one side and KV head. Are they finite? */
static bool side_put(const kvb_single *s, const float *rows, uint32_t h, const kvb_storage *store, kvb_stored *side,
                     uint32_t from, uint32_t to)
{
    bool finite = true;
    for (uint32_t c = from; c < to; c++)
        s->at[c - from] = rows + ((size_t)c * s->call->problem.n_kv_heads + h) * store->dim;
    kvb_stored_put(side, store, from, s->at, to - from, s->store_scratch);
    for (uint32_t c = from; c < to; c++)
        finite &= isfinite(side->sums[c]) != 0; /* of magnitudes: floats do not overflow them */
    return finite;
}

/* Rows that are decoded already: they stay where they are. */
static int side_take(uint32_t dim, const kvb_single_rows *r, uint32_t h, const double *rows, const double *sizes,
                     kvb_stored *side)
{
    const size_t first = (size_t)h * r->cells * dim;
    *side = (kvb_stored){.rows = (double *)rows + first,
                         .sizes = (double *)sizes + first,
                         .sums = calloc((size_t)r->cells + 1, sizeof(double)),
                         .dim = dim};
    for (uint32_t c = 0; side->sums && c < r->cells; c++)
        for (uint32_t i = 0; i < dim; i++)
            side->sums[c] += side->sizes[(size_t)c * dim + i];
    return side->sums ? 0 : -ENOMEM;
}

static int head_open(kvb_single *s, uint32_t h, char *why, size_t why_bytes)
{
    const kvb_problem *p = &s->call->problem;
    const kvb_single_rows *r = s->rows;
    head_rows *head = &s->heads[h];
    int error = kvb_storage_init(&head->stores.k, p->k_format, p->k_dim, r->k_amax, p->n_kv_heads, h, why, why_bytes);
    head->stores.k.is_v = p->v_in_k;
    head->stores.k.centred = s->declared.sums.step > 0;
    if (!error && p->v_in_k)
        head->stores.v = head->stores.k;
    else if (!error)
        error = kvb_storage_init(&head->stores.v, p->v_format, p->v_dim, r->v_amax, p->n_kv_heads, h, why, why_bytes);
    head->stores.v.is_v = true;
    head->stores.v.centred = s->declared.sums.step > 0;
    return error;
}

static void cells_put(kvb_single *s, uint32_t h, uint32_t from, uint32_t to)
{
    head_rows *head = &s->heads[h];
    head->finite &= side_put(s, s->rows->k, h, &head->stores.k, &head->k, from, to);
    if (!s->call->problem.v_in_k)
        head->finite &= side_put(s, s->rows->v, h, &head->stores.v, &head->v, from, to);
}

static int head_begin(kvb_single *s, uint32_t h)
{
    const kvb_problem *p = &s->call->problem;
    const kvb_single_rows *r = s->rows;
    head_rows *head = &s->heads[h];
    size_t k = 0, v = 0;
    int error = 0;
    head->stored = kvb_arena_take(&s->arena, (size_t)r->cells / 64 + 1, sizeof *head->stored);
    if (!head->stored)
        return -ENOMEM;
    if (r->k_decoded) {
        head->all = true;
        error = side_take(p->k_dim, r, h, r->k_decoded, r->k_sizes, &head->k);
        return error || p->v_in_k ? error : side_take(p->v_dim, r, h, r->v_decoded, r->v_sizes, &head->v);
    }
    k = kvb_stored_scratch(&head->stores.k);
    v = p->v_in_k ? 0 : kvb_stored_scratch(&head->stores.v);
    if (!s->at) { /* all heads have the same formats */
        s->at = kvb_arena_take(&s->arena, (size_t)r->cells + 1, sizeof *s->at);
        s->store_scratch = kvb_arena_take(&s->arena, (k > v ? k : v) + 1, sizeof *s->store_scratch);
    }
    error = s->arena.failed ? -ENOMEM : kvb_stored_open(&head->k, &head->stores.k, r->cells);
    if (!error && !p->v_in_k)
        error = kvb_stored_open(&head->v, &head->stores.v, r->cells);
    head->finite = !error;
    return error;
}

/* Stores all rows of a KV head. */
static int head_store(kvb_single *s, uint32_t h)
{
    head_rows *head = &s->heads[h];
    const int error = head->stored ? 0 : head_begin(s, h);
    if (!error && !head->all)
        cells_put(s, h, 0, s->rows->cells);
    head->all = true;
    return error;
}

/* Stores the rows of a KV head that query t sees: all where rows depend on each other. */
static int seen_store(kvb_single *s, uint32_t h, uint32_t t)
{
    const kvb_single_rows *r = s->rows;
    head_rows *head = &s->heads[h];
    const int error = head->stored ? 0 : head_begin(s, h);
    if (error || head->all)
        return error;
    if (kvb_storage_has_residual(&head->stores.k) || kvb_storage_has_residual(&head->stores.v))
        return head_store(s, h);
    for (size_t n = r->first[t]; n < r->first[t + 1]; n++)
        for (uint32_t c = r->runs[n].begin, end; c < r->runs[n].end; c = end) {
            const bool is_stored = head->stored[c / 64] >> c % 64 & 1;
            for (end = c; end < r->runs[n].end && (head->stored[end / 64] >> end % 64 & 1) == is_stored; end++)
                head->stored[end / 64] |= UINT64_C(1) << end % 64;
            if (!is_stored)
                cells_put(s, h, c, end);
        }
    return 0;
}

int kvb_single_open(const kvb_attend *call, const kvb_kernel *kernel, const kvb_arithmetic *arithmetic,
                    const kvb_single_rows *rows, kvb_single **single, char *why, size_t why_bytes)
{
    const kvb_problem *p = &call->problem;
    kvb_single *s = calloc(1, sizeof *s);
    int error = s ? 0 : -ENOMEM;
    *single = s;
    if (error)
        return error;
    *s = (kvb_single){.call = call, .kernel = kernel, .rows = rows};
    if (arithmetic)
        s->declared = *arithmetic;
    else
        kernel->arithmetic(p, &s->declared);
    s->arithmetic = s->declared;
    if (rows->q || (kernel && kernel->round_query))
        s->arithmetic.query = (kvb_rounding){.step = 0};
    s->row_scratch = kvb_attention_scratch(rows->most ? rows->most : rows->cells, p->v_dim);
    s->heads = kvb_arena_take(&s->arena, p->n_kv_heads, sizeof *s->heads);
    s->q = kvb_arena_take(&s->arena, (size_t)KVB_ATTENTION_ROWS * p->k_dim, sizeof *s->q);
    s->scratch = kvb_arena_take(&s->arena, KVB_ATTENTION_ROWS * s->row_scratch, sizeof *s->scratch);
    s->terms = kvb_arena_take(&s->arena, (size_t)KVB_ATTENTION_ROWS * p->v_dim, sizeof *s->terms);
    s->o = kvb_arena_take(&s->arena, (size_t)KVB_ATTENTION_ROWS * p->v_dim, sizeof *s->o);
    error = s->arena.failed ? -ENOMEM : 0;
    for (uint32_t h = 0; h < p->n_kv_heads && !error; h++)
        error = head_open(s, h, why, why_bytes);
    if (error) {
        kvb_single_free(s);
        *single = NULL;
    }
    return error;
}

void kvb_single_free(kvb_single *s)
{
    if (!s)
        return;
    for (uint32_t h = 0; s->heads && h < s->call->problem.n_kv_heads; h++) {
        if (s->rows->k_decoded) { /* all but the sums are the caller's */
            s->heads[h].k = (kvb_stored){.sums = s->heads[h].k.sums};
            s->heads[h].v = (kvb_stored){.sums = s->heads[h].v.sums};
        }
        kvb_stored_close(&s->heads[h].k);
        kvb_stored_close(&s->heads[h].v);
    }
    kvb_arena_free(&s->arena);
    free(s);
}

/* The q that one row multiplies. */
static int q_take(const kvb_single *s, uint32_t t, uint32_t head, double *q, char *why, size_t why_bytes)
{
    const kvb_problem *p = &s->call->problem;
    const size_t at = ((size_t)t * p->n_heads + head) * p->k_dim;
    const float *exact = s->call->q + at;
    if (s->rows->q) {
        memcpy(q, s->rows->q + at, p->k_dim * sizeof *q);
        return kvb_rounded_check(p, &s->declared, 1, "q_rounded", t, head, exact, q, why, why_bytes);
    }
    if (s->kernel && s->kernel->round_query)
        return kvb_rounded_q(s->kernel, s->call, &s->declared, t, head, exact, q, why, why_bytes);
    for (uint32_t c = 0; c < p->k_dim; c++)
        q[c] = (double)exact[c];
    return 0;
}

/* The row of query t's head `head`, the i-th of those that are solved together. */
static kvb_attention_row row_begin(const kvb_single *s, uint32_t t, uint32_t head, uint32_t i, kvb_expect *expect)
{
    const kvb_problem *p = &s->call->problem;
    const head_rows *rows = &s->heads[head / (p->n_heads / p->n_kv_heads)];
    const kvb_single_rows *r = s->rows;
    kvb_attention_row row = {.scratch = s->scratch + i * s->row_scratch,
                             .row = &expect->row,
                             .lse = &expect->lse,
                             .terms = s->terms + (size_t)i * p->v_dim,
                             .o = s->o + (size_t)i * p->v_dim};
    row.a = (kvb_attention){.q = s->q + (size_t)i * p->k_dim,
                            .scale = (double)p->scale,
                            .softcap = (double)p->softcap,
                            .step = s->declared.sums.step,
                            .sink = p->has_sinks ? &s->call->sinks[head] : NULL,
                            .runs = r->runs + r->first[t],
                            .n_runs = r->first[t + 1] - r->first[t]};
    kvb_attention_take_k(&row.a, &rows->stores.k, &rows->k, false);
    kvb_attention_take_v(&row.a, &rows->stores.v, p->v_in_k ? &rows->k : &rows->v, false);
    row.a.v_dim = p->v_dim;
    for (size_t n = 0; n < row.a.n_runs; n++)
        row.a.visible += row.a.runs[n].end - row.a.runs[n].begin;
    *expect = (kvb_expect){.query = t, .head = head, .visible = row.a.visible, .terms = row.terms};
    expect->row.step = s->declared.sums.step;
    return row;
}

/* A row's out and log-sum-exp as the kernel wrote them. */
static const void *out_of(const kvb_single *s, const kvb_expect *expect, const float **lse)
{
    const kvb_attend *call = s->call;
    const kvb_problem *p = &call->problem;
    const size_t row = (size_t)expect->query * p->n_heads + expect->head;
    *lse = call->lse ? &call->lse[row] : NULL;
    return (const char *)call->out + row * p->v_dim * (p->out_elem == KVB_F32 ? sizeof(float) : sizeof(uint16_t));
}

static void row_bounds(const kvb_single *s, const kvb_expect *expect, double *bounds)
{
    const kvb_problem *p = &s->call->problem;
    kvb_bound_factors factors;
    kvb_bound_prepare(&s->arithmetic, KVB_BOUND_STATISTICAL, &expect->row, (double)p->scale, (double)p->softcap,
                      p->out_elem, &factors);
    for (uint32_t c = 0; c < p->v_dim; c++)
        bounds[c] = kvb_bound_channel(&factors, &expect->terms[c]);
}

/* ---- the matched filter ------------------------------------------------------------------------------------------ */

/* An oracle of the rows that are solved together, filled anew for each set of rows. The filter's sums stay. */
struct kvb_single_filter {
    kvb_model model; /* one layer: scale and softcap */
    kvb_oracle_state state;
    kvb_oracle oracle;
    kvb_filter_truth truth;
    kvb_filter_row rows[KVB_ATTENTION_ROWS];
    kvb_expect expect[KVB_ATTENTION_ROWS];
    uint32_t number[KVB_ATTENTION_ROWS];
    kvb_filter *filter;
    kvb_filter_unit *now; /* current unit; NULL: none is left */
    kvb_arena of_now;     /* its V rows and norms, freed when the next unit begins */
    uint32_t begun;       /* units begun so far */
};

int kvb_single_filter_open(const kvb_problem *problem, uint32_t units, uint32_t cells, uint32_t heads,
                           kvb_single_filter **filter)
{
    kvb_single_filter *f = *filter = calloc(1, sizeof *f);
    const uint32_t dim = problem->v_dim;
    if (!f)
        return -ENOMEM;
    f->model = (kvb_model){.n_layers = 1, .n_groups = 1};
    f->model.groups[0] = (kvb_group){.heads = heads,
                                     .kv_heads = 1,
                                     .k_dim = problem->k_dim,
                                     .v_dim = dim,
                                     .scale = (double)problem->scale,
                                     .softcap = problem->softcap};
    f->state.model = &f->model;
    f->truth = (kvb_filter_truth){.tokens = cells,
                                  .n_units = units,
                                  .most_visible = cells,
                                  .number = f->number,
                                  .rows = f->rows,
                                  .n_rows = KVB_ATTENTION_ROWS};
    f->truth.units = kvb_arena_take(&f->truth.arena, units + 1u, sizeof *f->truth.units);
    f->truth.weights = kvb_arena_take(&f->truth.arena, KVB_ATTENTION_ROWS * ((size_t)cells + 1), sizeof(float));
    f->truth.outputs = kvb_arena_take(&f->truth.arena, 2 * KVB_ATTENTION_ROWS * (size_t)dim, sizeof(float));
    f->oracle = (kvb_oracle){.rows = f->expect, .state = &f->state, .filter = &f->truth};
    const bool have = !f->truth.arena.failed && !kvb_filter_open(&f->oracle, &f->filter);
    for (uint32_t u = 0; u < units && have; u++)
        f->truth.units[u].layer = UINT32_MAX; /* of no sequence yet */
    for (uint32_t i = 0; i < KVB_ATTENTION_ROWS && have; i++) {
        f->number[i] = i;
        f->rows[i].p = f->truth.weights + (size_t)i * cells;
        f->rows[i].o = f->truth.outputs + 2 * (size_t)i * dim;
        f->rows[i].slope = f->rows[i].o + dim;
    }
    if (have)
        return 0;
    kvb_single_filter_free(f);
    *filter = NULL;
    return -ENOMEM;
}

void kvb_single_filter_free(kvb_single_filter *f)
{
    if (!f)
        return;
    kvb_filter_free(f->filter);
    kvb_arena_free(&f->of_now);
    kvb_arena_free(&f->truth.arena);
    free(f);
}

const kvb_filter *kvb_single_filter_sums(const kvb_single_filter *f)
{
    return f ? f->filter : NULL;
}

int kvb_single_filter_begin(kvb_single_filter *f, kvb_single *s, uint32_t sequence, uint32_t kv_head)
{
    const kvb_problem *p = &s->call->problem;
    const size_t cells = s->rows->cells, dim = p->v_dim;
    if (f->now) {
        f->now->inverse = f->now->mean = NULL;
        f->now->v = f->now->norm2 = f->now->magnitude = NULL;
    }
    kvb_arena_free(&f->of_now);
    f->now = NULL;
    s->filter = NULL;
    if (f->begun == f->truth.n_units)
        return 0;
    int error = head_store(s, 0);
    kvb_filter_unit *unit = f->now = &f->truth.units[f->begun];
    *unit = (kvb_filter_unit){.layer = sequence,
                              .kv_head = kv_head,
                              .dim = p->v_dim,
                              .sequence = true,
                              .tokens = cells,
                              .inverse = kvb_arena_take(&f->of_now, dim, sizeof *unit->inverse),
                              .mean = kvb_arena_take(&f->of_now, dim, sizeof *unit->mean),
                              .v = kvb_arena_take(&f->of_now, cells * dim + 1, sizeof *unit->v),
                              .norm2 = kvb_arena_take(&f->of_now, cells + 1, sizeof *unit->norm2),
                              .magnitude = kvb_arena_take(&f->of_now, cells + 1, sizeof *unit->magnitude)};
    if (error || f->of_now.failed)
        return -ENOMEM;
    const kvb_stored *v = p->v_in_k ? &s->heads[0].k : &s->heads[0].v;
    kvb_filter_truth_v(&f->truth, sequence, kv_head, v->rows, v->dim);
    for (uint32_t i = 0; i < KVB_ATTENTION_ROWS; i++)
        f->rows[i].unit = f->begun;
    f->begun++;
    s->filter = f;
    return 0;
}

/* Adds rows of one query, solved together, to the filter. */
static void rows_filter(const kvb_single *s, const kvb_attention_row *rows, const kvb_expect *expect, uint32_t n)
{
    kvb_single_filter *f = s->filter;
    const kvb_problem *p = &s->call->problem;
    f->oracle.n_rows = n;
    for (uint32_t i = 0; i < n; i++) {
        kvb_filter_row *row = &f->rows[i];
        row->visible = rows[i].a.visible;
        row->runs = (kvb_token_run *)rows[i].a.runs;
        row->n_runs = rows[i].a.n_runs;
        f->expect[i] = expect[i];
        f->expect[i].head += f->now->kv_head * p->n_heads;
        kvb_filter_truth_row(&f->truth, i, &rows[i].a, rows[i].scratch, rows[i].scratch + rows[i].a.visible,
                             expect[i].lse, expect[i].terms, rows[i].scratch + 2 * (size_t)rows[i].a.visible);
    }
    for (uint32_t i = 0; i < n; i++) {
        const float *lse;
        kvb_filter_add(f->filter, &f->expect[i], &f->expect[i], &s->arithmetic, p->out_elem,
                       out_of(s, &expect[i], &lse));
    }
}

/* Prepares a KV head for second opinions. */
static int opinion_open(kvb_single *s, head_rows *head)
{
    const kvb_problem *p = &s->call->problem;
    if (head->k_norm)
        return 0;
    head->k_norm = kvb_arena_take(&s->arena, (size_t)s->rows->cells + 1, sizeof *head->k_norm);
    kvb_opinion_head_open(&head->opinion, p->v_dim, &s->arena);
    if (s->arena.failed)
        return -ENOMEM;
    for (uint32_t c = 0; c < s->rows->cells; c++) {
        head->k_norm[c] = kvb_opinion_take_k(&head->opinion, &head->k, c);
        kvb_opinion_take_v(&head->opinion, p->v_in_k ? &head->k : &head->v, c, p->v_dim);
    }
    return 0;
}

int kvb_single_judge(kvb_single *s, uint32_t t, uint32_t head, uint32_t n, bool glanced, kvb_diff *diff, double *exact,
                     double *bounds, char *why, size_t why_bytes)
{
    const kvb_problem *p = &s->call->problem;
    const uint32_t h = head / (p->n_heads / p->n_kv_heads);
    kvb_attention_row rows[KVB_ATTENTION_ROWS];
    kvb_expect expect[KVB_ATTENTION_ROWS];
    int error = glanced ? head_store(s, h) : seen_store(s, h, t);
    error = error || !glanced ? error : opinion_open(s, &s->heads[h]);
    for (uint32_t begin = 0, some; begin < n && !error; begin += some) {
        some = n - begin < KVB_ATTENTION_ROWS ? n - begin : KVB_ATTENTION_ROWS; /* solved together */
        for (uint32_t i = 0; i < some && !error; i++) {
            error = q_take(s, t, head + begin + i, s->q + (size_t)i * p->k_dim, why, why_bytes);
            rows[i] = row_begin(s, t, head + begin + i, i, &expect[i]);
        }
        if (error)
            break;
        if (glanced)
            kvb_opinion_solve(rows, some, &s->heads[h].opinion, s->heads[h].k_norm);
        else
            kvb_attention_solve_rows(rows, some);
        if (s->filter && !glanced)
            rows_filter(s, rows, expect, some);
        for (uint32_t i = 0; i < some && !error; i++) {
            const size_t at = (size_t)(begin + i) * p->v_dim;
            const float *lse;
            const void *out = out_of(s, &expect[i], &lse);
            if (glanced)
                error = kvb_opinion_diff(diff, &s->heads[h].opinion,
                                         &(kvb_opinion_row){.expect = expect[i], .o = rows[i].o}, p->v_dim,
                                         &s->arithmetic, (double)p->scale, (double)p->softcap, p->out_elem, out, lse);
            else
                kvb_diff_row(diff, &expect[i], p->v_dim, &s->arithmetic, (double)p->scale, (double)p->softcap,
                             p->out_elem, out, lse);
            if (s->kernel && s->kernel->tolerance.kind && !glanced)
                kvb_closeness_row(&diff->close, &s->kernel->tolerance, p->out_elem, out, p->v_dim, &rows[i].terms->o,
                                  sizeof *rows[i].terms / sizeof rows[i].terms->o);
            if (bounds)
                row_bounds(s, &expect[i], bounds + at);
            for (uint32_t c = 0; exact && c < p->v_dim; c++)
                exact[at + c] = glanced ? rows[i].o[c] : rows[i].terms[c].o;
        }
    }
    return error;
}

/* ---- the declared order ------------------------------------------------------------------------------------------- */

int kvb_single_exact(kvb_single *s, const kvb_order *order, uint32_t apart, uint32_t t, uint32_t head, char *why,
                     size_t why_bytes)
{
    const kvb_problem *p = &s->call->problem;
    const kvb_single_rows *r = s->rows;
    const uint32_t h = head / (p->n_heads / p->n_kv_heads), v_width = p->v_in_k ? p->k_dim : p->v_dim;
    const size_t row = (size_t)t * p->n_heads + head;
    float lse, *out = malloc(p->v_dim * sizeof *out);
    int error = out ? seen_store(s, h, t) : -ENOMEM;
    const kvb_stored *k = &s->heads[h].k, *v = p->v_in_k ? k : &s->heads[h].v;
    if (!error && !s->heads[h].finite)
        error = -EDOM;
    const kvb_exact_rows rows = {.k = k->rows,
                                 .v = v->rows,
                                 .k_width = p->k_dim,
                                 .v_width = v_width,
                                 .cells = r->cells,
                                 .apart = apart,
                                 .runs = r->runs + r->first[t],
                                 .n_runs = r->first[t + 1] - r->first[t]};
    error = error ? error : kvb_exact_row(s->call, order, &rows, t, head, out, &lse, why, why_bytes);
    for (uint32_t c = 0; c < p->v_dim && !error; c++)
        error = isfinite(out[c]) ? 0 : -EDOM;
    int alike = 1;
    for (uint32_t c = 0; c <= p->v_dim && !error && alike; c++) {
        const bool of_lse = c == p->v_dim;
        if (of_lse && !s->call->lse)
            break;
        const double got = of_lse ? (double)s->call->lse[row]
                                  : kvb_output_value(p->out_elem, s->call->out, row * p->v_dim + c),
                     want = of_lse ? (double)lse : kvb_codec_rounded(p->out_elem, out[c]);
        alike = got == want;
        char channel[32] = "";
        if (!of_lse)
            snprintf(channel, sizeof channel, ", channel %u", c);
        if (!alike)
            snprintf(why, why_bytes, "%s of query %u, head %u%s is %a, in the declared order %a",
                     of_lse ? "lse" : "out", t, head, channel, got, want);
    }
    free(out);
    return error == -EILSEQ ? 0 : error ? error : alike;
}

/* ---- scans ------------------------------------------------------------------------------------------------------- */

size_t kvb_lane_out_at(const kvb_scan *call, const kvb_lane *l, uint32_t t)
{
    const kvb_scan_problem *p = &call->problem;
    return (((size_t)t * p->heads + l->head) * p->d_v + l->first) * (p->out_elem == KVB_F32 ? 4 : 2);
}

size_t kvb_lane_state_at(const kvb_scan *call, const kvb_lane *l, uint32_t slot, uint32_t i)
{
    const kvb_scan_problem *p = &call->problem;
    return slot * call->states.slot_bytes +
           (((size_t)l->head * p->d_k + i) * p->d_v + l->first) * (p->state_elem == KVB_F32 ? 4 : 2);
}

/* A lane on its way through a call. */
typedef struct walk {
    const kvb_scan *call;
    const char *before;
    const kvb_lane *lane;
    const kvb_scan_arithmetic *arithmetic;
    kvb_scan_problem problem;    /* with the lane's columns */
    kvb_recurrence *now, **left; /* left: [slots] state that the call left there so far; NULL: none */
    uint32_t *writer;            /* [slots] token that left it */
    double *given;               /* [d_k][n] */
    kvb_recurrence_want *want;   /* [d_k + 1][n] */
    kvb_arena arena;
} walk;

static int walk_open(walk *w)
{
    const size_t slots = w->call->states.slots, d_k = w->call->problem.d_k, n = w->lane->n;
    w->problem = w->call->problem;
    w->problem.d_v = w->lane->n;
    w->now = kvb_recurrence_open(&w->problem, w->arithmetic);
    w->left = kvb_arena_take(&w->arena, slots, sizeof(kvb_recurrence *));
    w->writer = kvb_arena_take(&w->arena, slots, sizeof *w->writer);
    w->given = kvb_arena_take(&w->arena, d_k * n, sizeof *w->given);
    w->want = kvb_arena_take(&w->arena, (d_k + 1) * n, sizeof *w->want);
    return w->now && !w->arena.failed ? 0 : -ENOMEM;
}

static void walk_close(walk *w)
{
    for (uint32_t slot = 0; w->left && slot < w->call->states.slots; slot++)
        kvb_recurrence_close(w->left[slot]);
    kvb_recurrence_close(w->now);
    kvb_arena_free(&w->arena);
}

/* Begins a run with this slot: the state that the call left there, or the one from before the call. */
static void walk_begin(walk *w, uint32_t slot)
{
    const uint32_t n = w->lane->n;
    const bool zero = slot == KVB_SCAN_ZERO || !w->before;
    if (slot != KVB_SCAN_ZERO && w->left[slot]) {
        kvb_recurrence_copy(w->now, w->left[slot]);
        return;
    }
    for (uint32_t i = 0; i < w->problem.d_k; i++)
        for (uint32_t c = 0; c < n; c++)
            w->given[(size_t)i * n + c] =
                zero ? 0
                     : kvb_output_value(w->problem.state_elem, w->before + kvb_lane_state_at(w->call, w->lane, slot, i),
                                        c);
    kvb_recurrence_begin(w->now, w->given);
}

static int walk_leave(walk *w, uint32_t slot, uint32_t t)
{
    if (!w->left[slot])
        w->left[slot] = kvb_recurrence_open(&w->problem, w->arithmetic);
    if (!w->left[slot])
        return -ENOMEM;
    kvb_recurrence_copy(w->left[slot], w->now);
    w->writer[slot] = t;
    return 0;
}

int kvb_lane_follow(const kvb_scan *call, const char *before, const kvb_scan_arithmetic *arithmetic,
                    const kvb_lane *lane, kvb_lane_take *take, void *ctx)
{
    walk w = {.call = call, .before = before, .lane = lane, .arithmetic = arithmetic};
    kvb_diff_place place = {.head = lane->head, .channel = lane->first};
    int error = walk_open(&w);
    for (uint32_t t = 0, end; t < call->problem.n_tok && !error; t = end) {
        end = kvb_scan_run_end(call, t);
        walk_begin(&w, kvb_scan_source(call, t));
        for (uint32_t u = t; u < end; u++) {
            const kvb_recurrence_token token = kvb_recurrence_token_of(call, u, lane->head, lane->first);
            kvb_recurrence_step(w.now, &token, w.want);
            place.query = u;
            take(ctx, lane, &place, w.want, kvb_lane_out_at(call, lane, u));
        }
        const uint32_t to = call->to[end - 1];
        kvb_recurrence_rest(w.now, to != KVB_SCAN_NONE);
        if (to != KVB_SCAN_NONE)
            error = walk_leave(&w, to, end - 1);
    }
    for (uint32_t slot = 0; slot < call->states.slots && !error; slot++) {
        if (!w.left[slot])
            continue;
        kvb_recurrence_state(w.left[slot], w.want);
        place.query = w.writer[slot];
        for (uint32_t i = 0; i < call->problem.d_k; i++) {
            place.row = (uint16_t)(i + 1);
            take(ctx, lane, &place, w.want + (size_t)i * lane->n, kvb_lane_state_at(call, lane, slot, i));
        }
    }
    walk_close(&w);
    return error;
}

/* What a lane's elements are compared into. */
typedef struct judging {
    const kvb_scan *call;
    kvb_diff *out, *states;
} judging;

static void lane_compare(void *ctx, const kvb_lane *l, const kvb_diff_place *place, const kvb_recurrence_want *want,
                         size_t at)
{
    const judging *j = ctx;
    const kvb_scan_problem *p = &j->call->problem;
    if (place->row)
        kvb_diff_take(j->states, place, want, l->n, p->state_elem, (const char *)j->call->states.base + at);
    else
        kvb_diff_take(j->out, place, want, l->n, p->out_elem, (const char *)j->call->out + at);
}

int kvb_lane_judge(const kvb_scan *call, const char *before, const kvb_scan_arithmetic *arithmetic,
                   const kvb_lane *lane, kvb_diff *out, kvb_diff *states)
{
    return kvb_lane_follow(call, before, arithmetic, lane, lane_compare, &(judging){call, out, states});
}
