/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of one KV head of one layer at a time are encoded, decoded into doubles, and its queries are solved on the
 * team. So the memory beside the results is at most six doubles (rows, sizes and originals of K and V) for each element
 * of one head. If rows depend on their neighbours, the rows that a query sees are stored as a sequence of their own,
 * once for all its query heads.
 */
#include "oracle/solve.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/filter.h"
#include "oracle/opinion.h"
#include "workloads/array.h"

/* ---- the state -------------------------------------------------------------------------------------------------- */

static int layer_open(kvb_oracle_state *state, const kvb_oracle_options *o, uint32_t layer, char *why, size_t why_bytes)
{
    const kvb_group *g = kvb_model_group(state->model, layer);
    if (kvb_group_scans(g)) /* it stores no rows */
        return 0;
    kvb_storages *storages = calloc(g->kv_heads, sizeof *storages);
    int err = storages ? 0 : -ENOMEM;
    state->storages[layer] = storages;
    for (uint32_t h = 0; !err && h < g->kv_heads; h++) {
        err = kvb_storage_init(&storages[h].k, o->k_format, g->k_dim, o->k_amax ? o->k_amax[layer] : NULL, g->kv_heads,
                               h, why, why_bytes);
        storages[h].k.is_v = g->latent;
        if (!err && g->latent)
            storages[h].v = storages[h].k;
        else if (!err)
            err = kvb_storage_init(&storages[h].v, o->v_format, g->v_dim, o->v_amax ? o->v_amax[layer] : NULL,
                                   g->kv_heads, h, why, why_bytes);
        storages[h].v.is_v = true;
    }
    if (!err)
        state->has_residuals |= kvb_storage_has_residual(&storages[0].k) || kvb_storage_has_residual(&storages[0].v);
    return err;
}

int kvb_oracle_state_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                          kvb_oracle_state **state, char *why, size_t why_bytes)
{
    const kvb_model *m = &trace->header.model;
    kvb_oracle_state *st = calloc(1, sizeof *st);
    int err = -ENOMEM;
    if (!st)
        goto out;
    *st = (kvb_oracle_state){.trace = trace, .values = values, .model = m};
    st->storages = calloc(m->n_layers, sizeof *st->storages);
    if (!st->storages)
        goto out;
    err = 0;
    for (uint32_t layer = 0; !err && layer < m->n_layers; layer++)
        err = layer_open(st, options, layer, why, why_bytes);
out:
    if (err) {
        kvb_oracle_state_free(st);
        st = NULL;
    }
    *state = st;
    return err;
}

void kvb_oracle_state_free(kvb_oracle_state *st)
{
    if (!st)
        return;
    for (uint32_t layer = 0; st->storages && layer < st->model->n_layers; layer++)
        free(st->storages[layer]);
    free(st->storages);
    kvb_census_free(&st->census);
    free(st);
}

const float *kvb_state_q(const kvb_oracle_state *st, const kvb_expect *row)
{
    const kvb_group *g = kvb_model_group(st->model, row->layer);
    uint64_t token = st->trace->events[row->event].first + row->query;
    return kvb_values_rows(st->values, KVB_ROWS_Q, row->layer, token) + (size_t)row->head * g->k_dim;
}

kvb_attention kvb_state_attention(const kvb_oracle_state *st, const kvb_expect *row, double *q)
{
    const kvb_group *g = kvb_model_group(st->model, row->layer);
    const float *values = kvb_state_q(st, row);
    for (uint32_t c = 0; c < g->k_dim; c++)
        q[c] = row->q ? row->q[c] : (double)values[c];
    return (kvb_attention){
        .q = q,
        .k_dim = g->k_dim,
        .v_dim = g->v_dim,
        .scale = (double)(float)g->scale, /* as kvb_problem has it */
        .softcap = (double)g->softcap,
        .step = row->row.step,
        .sink = g->sink_logits ? &g->sink_logits[row->head] : NULL,
    };
}

void kvb_state_take(const kvb_oracle_state *st, const kvb_expect *row, const kvb_stored *k, bool k_gathered,
                    const kvb_stored *v, bool v_gathered, kvb_attention *attention)
{
    const kvb_group *g = kvb_model_group(st->model, row->layer);
    const kvb_storages *storages = &st->storages[row->layer][row->head / (g->heads / g->kv_heads)];
    kvb_attention_take_k(attention, &storages->k, k, k_gathered);
    kvb_attention_take_v(attention, &storages->v, g->latent ? k : v, g->latent ? k_gathered : v_gathered);
    attention->v_dim = g->v_dim;
}

bool kvb_oracle_needs_writes(const kvb_oracle *oracle)
{
    return oracle->state->has_residuals;
}

/* Memory of one thread. */
typedef struct worker {
    double *q;          /* [row_set][k_dim] */
    double *scratch;    /* [row_set][scratch] */
    kvb_stored k, v;    /* gathered rows, of the sides with residual cells */
    const float **seen; /* [visible_max] the gathered rows before storing */
} worker;

typedef struct work {
    kvb_oracle *oracle;
    const kvb_oracle_state *state;
    const kvb_census *census;
    const kvb_model *model;
    const kvb_group *group; /* of the layer that is solved */
    const kvb_team *team;
    const volatile sig_atomic_t *stop; /* NULL: never */
    kvb_format_row *format_rows;
    uint32_t visible_max;
    bool lossless; /* both formats hold every f32 exactly, or their cost is not wanted */
    worker *workers;
    uint32_t n_workers;
    uint32_t row_set; /* rows that are solved together, at most: heads of one query that share a KV head */
    size_t scratch;   /* doubles of one row */
    /* of the current layer and KV head */
    uint32_t layer, kv_head;
    kvb_storages stores;
    kvb_stored k, v;                 /* stored rows by number, of the sides without residual cells */
    double *k_original, *v_original; /* [rows][dim] before storing; NULL when lossless */
    float *moved;                    /* [moved rows][k_dim] before storing; NULL: there are none */
    float *moved_original;           /* the same, moved without being stored before; NULL when lossless */
    size_t *order;                   /* [n_order] the oracle's rows of this head */
    size_t n_order;
    double *k_norm;     /* [rows] for second opinions; NULL: there are none */
    atomic_size_t next; /* to be solved: index in order, or an event for second opinions */
    kvb_arena arena;    /* of all but scratch and stored rows */
} work;

/* ---- storing ------------------------------------------------------------------------------------------------ */

static const float *row_of(const work *w, kvb_rows kind, uint64_t token, uint32_t dim)
{
    return kvb_values_rows(w->state->values, kind, w->layer, token) + (size_t)w->kv_head * dim;
}

static void side_store(const work *w, kvb_rows kind, uint64_t token, const kvb_storage *store, const kvb_stored *side,
                       double *original, double *scratch)
{
    const float *row = row_of(w, kind, token, store->dim);
    if (side->rows)
        kvb_stored_put(side, store, token, &row, 1, scratch);
    for (uint32_t c = 0; original && c < store->dim; c++)
        original[token * store->dim + c] = (double)row[c];
}

static bool is_stopped(const work *w)
{
    return w->stop && *w->stop;
}

/* Part i of n: stores every token's K and V row. */
static void rows_store(void *ctx, uint32_t i, uint32_t n)
{
    const work *w = ctx;
    uint64_t tokens = w->state->values->tokens;
    double *scratch = w->workers[i].scratch;
    for (uint64_t t = tokens * i / n; t < tokens * (i + 1) / n && !is_stopped(w); t++) {
        side_store(w, KVB_ROWS_K, t, &w->stores.k, &w->k, w->k_original, scratch);
        if (!w->group->latent)
            side_store(w, KVB_ROWS_V, t, &w->stores.v, &w->v, w->v_original, scratch);
    }
}

/* A K row before storing; original: as if it had never been stored before a move. */
static const float *k_given(const work *w, uint64_t row, bool original)
{
    uint64_t tokens = w->state->values->tokens;
    return row < tokens ? row_of(w, KVB_ROWS_K, row, w->group->k_dim)
                        : (original ? w->moved_original : w->moved) + (row - tokens) * w->group->k_dim;
}

/* Stores a K row and reads it back. */
static void k_read(const work *w, uint64_t row, double *scratch, float *back)
{
    const kvb_storage *store = &w->stores.k;
    const uint32_t dim = store->dim;
    double *decoded = scratch, *sizes = scratch + dim, *coding = scratch + 2 * (size_t)dim;
    kvb_storage_turn(store, k_given(w, row, false), (float *)(void *)coding);
    kvb_storage_code(store, 1, coding, decoded, sizes);
    kvb_storage_read(store, decoded, back);
}

/* Makes the rows of shifts, each from an earlier row: K is read back, turned and stored again; V does not change. */
static void moved_store(const work *w)
{
    const kvb_census *census = w->census;
    const uint64_t tokens = w->state->values->tokens;
    const uint32_t dim = w->group->k_dim, v_dim = w->group->v_dim;
    double *scratch = w->workers[0].scratch;
    for (size_t m = 0; m < census->n_moved && !is_stopped(w); m++) {
        const kvb_moved_row *of = &census->moved[m];
        float *row = w->moved + m * dim, *original = w->moved_original ? w->moved_original + m * dim : NULL;
        if (of->delta)
            k_read(w, of->of, scratch, row);
        else
            memcpy(row, k_given(w, of->of, false), dim * sizeof *row);
        kvb_storage_shift(&w->group->rope, of->delta, row, 1, dim);
        kvb_stored_put(&w->k, &w->stores.k, tokens + m, (const float *[]){row}, 1, scratch);
        if (!w->group->latent) {
            const float *v = row_of(w, KVB_ROWS_V, of->token, v_dim);
            kvb_stored_put(&w->v, &w->stores.v, tokens + m, &v, 1, scratch);
        }
        if (!original)
            continue;
        memcpy(original, k_given(w, of->of, true), dim * sizeof *original);
        kvb_storage_shift(&w->group->rope, of->delta, original, 1, dim);
        for (uint32_t c = 0; c < dim; c++)
            w->k_original[(tokens + m) * dim + c] = (double)original[c];
        for (uint32_t c = 0; !w->group->latent && c < v_dim; c++)
            w->v_original[(tokens + m) * v_dim + c] = w->v_original[of->token * v_dim + c];
    }
}

/* Stores the rows that a query sees, in order of position, as a sequence of its own. */
static void side_gather(const work *w, const worker *me, kvb_rows kind, size_t number, const kvb_storage *store,
                        const kvb_stored *side)
{
    const kvb_census *census = w->census;
    size_t place = kvb_census_place(census, number, w->layer);
    uint32_t n = 0;
    for (size_t r = census->run_first[place]; r < census->run_first[place + 1]; r++)
        for (uint32_t t = census->runs[r].begin; t < census->runs[r].end; t++)
            me->seen[n++] = row_of(w, kind, t, store->dim);
    kvb_stored_put(side, store, 0, me->seen, n, me->scratch);
}

/* ---- solving ------------------------------------------------------------------------------------------------ */

static size_t query_number(const work *w, size_t r)
{
    const kvb_expect *row = &w->oracle->rows[r];
    return w->census->first[row->event] + row->query;
}

/* A row of the query at `place` of the census, the i-th of those that are solved together. k, v: gathered where the
 * worker has them. */
static kvb_attention_row row_begin(const work *w, kvb_expect *expect, size_t place, uint32_t i, const worker *me)
{
    const kvb_census *census = w->census;
    double *q = me->q + (size_t)i * w->group->k_dim;
    kvb_attention_row row = {.a = kvb_state_attention(w->state, expect, q),
                             .scratch = me->scratch + i * w->scratch,
                             .row = &expect->row,
                             .lse = &expect->lse};
    kvb_state_take(w->state, expect, w->k.rows ? &w->k : &me->k, !w->k.rows, w->v.rows ? &w->v : &me->v, !w->v.rows,
                   &row.a);
    row.a.runs = census->runs + census->run_first[place];
    row.a.n_runs = census->run_first[place + 1] - census->run_first[place];
    row.a.visible = expect->visible = census->visible[place];
    return row;
}

/* Solves n rows of one query. */
static void rows_solve_set(work *w, const size_t *numbers, uint32_t n, const worker *me)
{
    kvb_attention_row rows[KVB_ATTENTION_ROWS], originals[KVB_ATTENTION_ROWS];
    kvb_format_row *costs[KVB_ATTENTION_ROWS];
    const size_t place = kvb_census_place(w->census, query_number(w, *numbers), w->layer);
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = row_begin(w, &w->oracle->rows[numbers[i]], place, i, me);
        rows[i].terms = (kvb_bound_term *)w->oracle->rows[numbers[i]].terms; /* of this oracle's arena */
    }
    kvb_attention_solve_rows(rows, n);
    for (uint32_t i = 0; i < n; i++)
        kvb_filter_truth_row(w->oracle->filter, numbers[i], &rows[i].a, rows[i].scratch,
                             rows[i].scratch + rows[i].a.visible, *rows[i].lse, rows[i].terms,
                             rows[i].scratch + 2 * (size_t)rows[i].a.visible);
    for (uint32_t i = 0; i < n && !w->lossless; i++) {
        costs[i] = &w->format_rows[numbers[i]];
        originals[i] = rows[i];
        originals[i].scratch += kvb_attention_scratch(w->visible_max, w->group->v_dim);
        originals[i].a.k = w->k_original;
        originals[i].a.v = w->group->latent ? w->k_original : w->v_original;
        originals[i].a.k_gathered = originals[i].a.v_gathered = false;
    }
    if (!w->lossless)
        kvb_format_rows_compare(originals, rows, n, costs);
}

/* Part of the team: takes queries until there are none. Results do not depend on which part takes a query. */
static void rows_solve(void *ctx, uint32_t i, uint32_t n)
{
    (void)n;
    work *w = ctx;
    const worker *me = &w->workers[i];
    bool latent = w->group->latent;
    for (size_t at; (at = atomic_fetch_add(&w->next, 1)) < w->n_order && !is_stopped(w);) {
        size_t number = query_number(w, w->order[at]), end = at + 1;
        if (at > 0 && query_number(w, w->order[at - 1]) == number)
            continue; /* solved with the query's first row */
        while (end < w->n_order && query_number(w, w->order[end]) == number)
            end++;
        if (!w->k.rows)
            side_gather(w, me, KVB_ROWS_K, number, &w->stores.k, &me->k);
        if (!latent && !w->v.rows)
            side_gather(w, me, KVB_ROWS_V, number, &w->stores.v, &me->v);
        for (size_t some; at < end; at += some) {
            some = end - at < w->row_set ? end - at : w->row_set;
            rows_solve_set(w, w->order + at, (uint32_t)some, me);
        }
    }
}

/* The second opinion of a call, for the heads that share the current KV head. */
static void call_opine(const work *w, kvb_opinion_row *rows, size_t n, const worker *me)
{
    const kvb_census *census = w->census;
    const kvb_opinion_head *head = &w->oracle->opinions->heads[w->layer][w->kv_head];
    const uint32_t each = w->group->heads / w->group->kv_heads;
    kvb_attention_row set[KVB_ATTENTION_ROWS];
    for (kvb_opinion_row *query = rows; query < rows + n; query += w->group->heads)
        for (uint32_t first = 0, some; first < each; first += some) {
            kvb_opinion_row *row = query + w->kv_head * each + first;
            size_t place = kvb_census_place(census, census->first[row->expect.event] + row->expect.query, w->layer);
            some = each - first < w->row_set ? each - first : w->row_set;
            for (uint32_t i = 0; i < some; i++) {
                set[i] = row_begin(w, &row[i].expect, place, i, me);
                set[i].o = (double *)row[i].o;
            }
            kvb_opinion_solve(set, some, head, w->k_norm);
        }
}

/* Part of the team: takes the calls of events. */
static void opinions_solve(void *ctx, uint32_t i, uint32_t n)
{
    (void)n;
    work *w = ctx;
    for (size_t event; (event = atomic_fetch_add(&w->next, 1)) < w->census->n_events && !is_stopped(w);) {
        size_t rows;
        kvb_opinion_row *first = kvb_opinions_of(w->oracle->opinions, (uint32_t)event, w->layer, &rows);
        call_opine(w, first, rows, &w->workers[i]);
    }
}

static void opinions_prepare(const work *w)
{
    kvb_opinion_head *head = &w->oracle->opinions->heads[w->layer][w->kv_head];
    for (uint64_t t = 0; t < kvb_state_rows(w->state); t++) {
        w->k_norm[t] = kvb_opinion_take_k(head, &w->k, t);
        kvb_opinion_take_v(head, w->group->latent ? &w->k : &w->v, t, w->group->v_dim);
    }
}

static void team_run(work *w, void (*part)(void *ctx, uint32_t i, uint32_t n))
{
    if (w->team)
        w->team->run(w->team, part, w);
    else
        part(w, 0, 1);
}

/* Solves all layers of the current group. */
static void heads_solve(work *w)
{
    uint32_t each = w->group->heads / w->group->kv_heads;
    for (w->layer = 0; w->layer < w->model->n_layers; w->layer++)
        for (w->kv_head = 0; kvb_model_group(w->model, w->layer) == w->group && w->kv_head < w->group->kv_heads;
             w->kv_head++) {
            w->stores = w->state->storages[w->layer][w->kv_head];
            w->stores.k.centred = w->stores.v.centred = w->oracle->n_rows > 0 && w->oracle->rows->row.step > 0;
            w->n_order = 0;
            for (size_t r = 0; r < w->oracle->n_rows; r++)
                if (w->oracle->rows[r].layer == w->layer && w->oracle->rows[r].head / each == w->kv_head)
                    w->order[w->n_order++] = r;
            if (w->n_order == 0 && !w->k_norm)
                continue;
            team_run(w, rows_store);
            if (w->moved)
                moved_store(w);
            if (w->oracle->filter)
                kvb_filter_truth_v(w->oracle->filter, w->layer, w->kv_head, w->group->latent ? w->k.rows : w->v.rows,
                                   w->group->latent ? w->k.dim : w->v.dim);
            atomic_store(&w->next, 0);
            team_run(w, rows_solve);
            if (!w->k_norm || is_stopped(w))
                continue;
            opinions_prepare(w);
            atomic_store(&w->next, 0);
            team_run(w, opinions_solve);
        }
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

static int worker_open(work *w, const kvb_storages *stores, worker *me, size_t scratch)
{
    int err = 0;
    me->q = kvb_arena_take(&w->arena, w->row_set * (size_t)stores->k.dim, sizeof *me->q);
    me->scratch = kvb_pages_alloc(scratch * sizeof *me->scratch);
    me->seen = kvb_arena_take(&w->arena, (size_t)w->visible_max + 1, sizeof *me->seen);
    if (kvb_storage_has_residual(&stores->k))
        err = kvb_stored_open(&me->k, &stores->k, w->visible_max);
    if (!err && kvb_storage_has_residual(&stores->v))
        err = kvb_stored_open(&me->v, &stores->v, w->visible_max);
    return !err && me->scratch ? 0 : -ENOMEM;
}

/* For the current group. stores: of one of its KV heads. */
static int buffers_open(work *w, const kvb_storages *stores)
{
    size_t rows = kvb_state_rows(w->state), moved = w->census->n_moved * (size_t)w->group->k_dim;
    const uint32_t each = w->group->heads / w->group->kv_heads;
    size_t scratch;
    size_t k_scratch = kvb_stored_scratch(&stores->k), v_scratch = kvb_stored_scratch(&stores->v);
    int err = 0;

    w->row_set = each < KVB_ATTENTION_ROWS ? each : KVB_ATTENTION_ROWS;
    w->scratch = 2 * kvb_attention_scratch(w->visible_max, w->group->v_dim);
    scratch = w->row_set * w->scratch;
    k_scratch += 2 * (size_t)stores->k.dim; /* moved_store() */
    scratch = scratch > k_scratch ? scratch : k_scratch;
    scratch = scratch > v_scratch ? scratch : v_scratch;
    w->lossless = !w->format_rows || (kvb_storage_is_exact(&stores->k) && kvb_storage_is_exact(&stores->v));
    w->order = kvb_arena_take(&w->arena, w->oracle->n_rows + 1, sizeof *w->order);
    w->workers = kvb_arena_take(&w->arena, w->n_workers, sizeof *w->workers);
    w->k_norm = w->oracle->opinions ? kvb_arena_take(&w->arena, rows + 1, sizeof *w->k_norm) : NULL;
    w->moved = moved ? kvb_arena_take(&w->arena, moved, sizeof *w->moved) : NULL;
    w->moved_original = moved && !w->lossless ? kvb_arena_take(&w->arena, moved, sizeof *w->moved_original) : NULL;
    for (uint32_t i = 0; !err && w->workers && i < w->n_workers; i++)
        err = worker_open(w, stores, &w->workers[i], scratch);
    if (!err && !kvb_storage_has_residual(&stores->k))
        err = kvb_stored_open(&w->k, &stores->k, rows);
    if (!err && !w->group->latent && !kvb_storage_has_residual(&stores->v))
        err = kvb_stored_open(&w->v, &stores->v, rows);
    w->k_original = w->lossless ? NULL : kvb_pages_alloc((rows * w->group->k_dim + 1) * sizeof *w->k_original);
    w->v_original = w->lossless ? NULL : kvb_pages_alloc((rows * w->group->v_dim + 1) * sizeof *w->v_original);
    return err || w->arena.failed || (!w->lossless && (!w->k_original || !w->v_original)) ? -ENOMEM : 0;
}

static void buffers_close(work *w)
{
    for (uint32_t i = 0; w->workers && i < w->n_workers; i++) {
        kvb_pages_free(w->workers[i].scratch);
        kvb_stored_close(&w->workers[i].k);
        kvb_stored_close(&w->workers[i].v);
    }
    kvb_stored_close(&w->k);
    kvb_stored_close(&w->v);
    kvb_pages_free(w->k_original);
    kvb_pages_free(w->v_original);
    kvb_arena_free(&w->arena);
}

int kvb_solve(kvb_oracle *oracle, const kvb_oracle_options *options, kvb_format_row *format_rows)
{
    work w = {
        .oracle = oracle,
        .state = oracle->state,
        .census = &oracle->state->census,
        .model = oracle->state->model,
        .team = options->team,
        .stop = options->stop,
        .format_rows = format_rows,
        .visible_max = oracle->state->visible_max,
        .n_workers = options->team ? options->team->n : 1,
    };
    int err = 0;
    for (uint32_t g = 0; !err && g < w.model->n_groups; g++) {
        uint32_t layer = 0;
        while (w.model->group_of[layer] != g)
            layer++;
        w.group = &w.model->groups[g];
        if (kvb_group_scans(w.group))
            continue;
        err = buffers_open(&w, w.state->storages[layer]);
        if (!err)
            heads_solve(&w);
        buffers_close(&w);
        if (!err && is_stopped(&w))
            err = -EINTR;
    }
    return err;
}
