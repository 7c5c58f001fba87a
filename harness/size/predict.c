/* SPDX-License-Identifier: Apache-2.0 */
/* A cache's structs, pools and tables added up, step by step. */
#include "harness/size/predict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/size/pool_bytes.h"
#include "harness/size/prediction.h"
#include "harness/size/fronts.h"

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static uint64_t pages_most(const kvb_size_prediction *p, const kvb_group *g)
{
    return kvb_size_pages_most(&p->subject->options, g, kvb_size_page_cells(p), kvb_size_drops(p, g));
}

uint64_t kvb_size_pool_cells(const kvb_size_prediction *p, const kvb_group *g)
{
    const kvb_cache_options *o = &p->subject->options;
    uint64_t kept = (uint64_t)g->window + g->chunk + g->sinks + o->rollback - 1; /* of a sequence, before a step */
    if (kvb_group_scans(g))
        return kvb_size_states_slots(p->subject);
    uint64_t bound = o->max_seqs * kept + (o->step ? o->step : o->capacity);
    return is(p, &kvb_cache_slab)                        ? (uint64_t)o->max_seqs * o->seq_capacity
           : kvb_size_has_pages(p)                       ? pages_most(p, g) * kvb_size_page_cells(p)
           : kvb_size_drops(p, g) && bound < o->capacity ? bound
                                                         : o->capacity;
}

/* ---- one store's share of a step. Lengths and ordinals are still those before it ----------------------------------- */

/* contiguous, tree: position p in cell p. */
static int contiguous_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    kvb_size_piece all = {0, 0, p->seq[0].len + s->tokens};
    kvb_size_plan_start(t, p->turn, s->tokens);
    kvb_size_queries(&t->runs[p->turn], &(kvb_size_pieces){&all, 1, 1}, 1, g, p->seq[0].len, s->tokens, 0);
    kvb_size_cells_ask(t, all.n);
    return 0;
}

/* Each sequence has a row of cells, in the order in which sequences come to life. */
static int slab_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t runs = 0, capacity = p->subject->options.seq_capacity;
    int error = 0;
    kvb_size_plan_start(t, p->turn, (uint64_t)s->n_seqs * s->tokens);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        kvb_size_pieces *held = &t->seq[q].held;
        uint64_t spans = p->seq[q].ordinals.n + !p->seq[q].joins, len = p->seq[q].len;
        uint64_t row = held->n ? held->at[0].cell / capacity : t->gaps ? kvb_size_row_free(p, t) : t->rows++;
        error = kvb_size_piece_add(held, len, row * capacity + len, s->tokens);
        need(&t->row_cells, spans);
        runs = (uint64_t)kvb_size_queries(&t->runs[p->turn], held, spans, g, len, s->tokens, runs);
    }
    return error;
}

/* Cells that are kept when each sequence has let go of what it will, looked up: 0 or -ENOMEM. */
static int cells_kept(const kvb_size_prediction *p, const kvb_size_group_tables *t, const kvb_group *g,
                      kvb_size_cells *cells)
{
    int error = 0;
    for (uint32_t q = 0; q < p->n_ids && !error; q++) {
        const uint64_t from = kvb_size_drops(p, g) ? kvb_size_kept_from(&p->subject->options, g, p->seq[q].len) : 0;
        error = kvb_size_cells_mark(cells, &t->seq[q].held, g->sinks, from);
    }
    return error;
}

int kvb_size_cells_find(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint64_t n)
{
    kvb_size_cells kept = {0};
    p->scratch.n = 0;
    if (t->gaps) {
        int error = cells_kept(p, t, g, &kept);
        if (!error)
            error = kvb_size_cells_take(&kept, n, kvb_size_pool_cells(p, g), &p->scratch);
        free(kept.used);
        return error;
    }
    if (!kvb_size_drops(p, g) && !is(p, &kvb_cache_shared_prefix)) /* none is ever free again */
        return kvb_size_piece_add(&p->scratch, 0, p->tokens, n);
    for (int i = 0; i < 2 && kvb_size_drops(p, g); i++)
        for (uint32_t q = p->last[i].first; q < p->last[i].first + p->last[i].n_seqs; q++)
            kvb_size_cells_give(&t->in_use, &t->seq[q].held, g->sinks,
                                kvb_size_kept_from(&p->subject->options, g, p->seq[q].len));
    return kvb_size_cells_take(&t->in_use, n, kvb_size_pool_cells(p, g), &p->scratch);
}

/* One piece of a sequence's new cells: room is made for each token in turn. */
static int span_add(kvb_size_group_tables *t, uint32_t q, uint64_t pos, uint64_t cell, uint64_t n)
{
    kvb_size_group_sequence *s = &t->seq[q];
    need_of(&s->spans, s->held.n + 1, &t->spans);
    int error = kvb_size_piece_add(&s->held, pos, cell, n);
    if (n > 1)
        need_of(&s->spans, s->held.n + 1, &t->spans);
    return error;
}

/* Sequences that let go of something in a step: its own, and those of the two before it; once others have come by their rows, all. */
static const kvb_size_step *leaving(const kvb_size_prediction *p, const kvb_size_group_tables *t,
                                    const kvb_size_step *s, int i, kvb_size_step *all)
{
    *all = (kvb_size_step){.n_seqs = i ? 0 : p->n_ids};
    return t->gaps ? all : i < 2 ? &p->last[i] : s;
}

int kvb_size_drop(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    kvb_size_step all;
    int error = 0;
    for (int i = 0; i < 3 && kvb_size_drops(p, g); i++) {
        const kvb_size_step *of = leaving(p, t, s, i, &all);
        for (uint32_t q = of->first; q < of->first + of->n_seqs && !error; q++)
            error = kvb_size_pieces_drop(&t->seq[q].held, g->sinks,
                                         kvb_size_kept_from(&p->subject->options, g, p->seq[q].len));
    }
    return error;
}

void kvb_size_drop_prepare(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s)
{
    kvb_size_step all;
    for (int i = 0; i < 3; i++) {
        const kvb_size_step *of = leaving(p, t, s, i, &all);
        for (uint32_t q = of->first; q < of->first + of->n_seqs; q++)
            if (p->seq[q].len || t->seq[q].held.n || !t->gaps)
                need_of(&t->seq[q].spans, t->seq[q].held.n + 1, &t->spans);
    }
}

/* What each sequence of the step sees of its cells; in cache shared-prefix behind the front that some of them have. */
static int shared_queries(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const bool shares = is(p, &kvb_cache_shared_prefix);
    uint64_t runs = 0, front = 0;
    int error = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        front = p->seq[q].front ? t->fronts.cells : front;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        error = shares ? kvb_size_seen(p, t, q, front, &p->scratch) : 0;
        const kvb_size_pieces *seen = shares ? &p->scratch : &t->seq[q].held;
        runs = (uint64_t)kvb_size_queries(&t->runs[p->turn], seen, seen->n, g, p->seq[q].len, s->tokens, runs);
    }
    return error;
}

/* seq, window, shared-prefix: cells that all sequences share, or take in turns. */
static int shared_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t n = (uint64_t)s->n_seqs * s->tokens, at = 0;
    bool several = s->n_seqs > 1;
    int error = kvb_size_cells_find(p, t, g, n);
    kvb_size_plan_start(t, p->turn, n);
    if (!error) {
        const kvb_size_piece *last = &p->scratch.at[p->scratch.n - 1]; /* cells ascend */
        need(&t->refs, last->cell + last->n);
        kvb_size_cells_ask(t, last->cell + last->n);
    }
    for (size_t i = 0; i < p->scratch.n && !error; i++) /* of one sequence all tokens, of several one each */
        for (uint64_t j = 0, some; j < p->scratch.at[i].n && !error; j += some, at += some) {
            uint32_t q = s->first + (several ? (uint32_t)at : 0);
            some = several ? 1 : p->scratch.at[i].n;
            error = span_add(t, q, p->seq[q].len + (several ? 0 : at), p->scratch.at[i].cell + j, some);
        }
    if (!error)
        error = shared_queries(p, t, g, s);
    if (!kvb_size_drops(p, g))
        return error;
    kvb_size_drop_prepare(p, t, s);
    return error ? error : kvb_size_drop(p, t, g, s);
}

static const struct {
    const kvb_cache_type *cache;
    int (*take)(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s);
} accounts[] = {
    {&kvb_cache_recompute, kvb_size_fed_take}, {&kvb_cache_slab, slab_take},
    {&kvb_cache_contiguous, contiguous_take},  {&kvb_cache_seq, shared_take},
    {&kvb_cache_window, shared_take},          {&kvb_cache_tree, contiguous_take},
    {&kvb_cache_paged, kvb_size_paged_take},   {&kvb_cache_paged_prefix, kvb_size_paged_take},
    {&kvb_cache_shared_prefix, shared_take},
};
enum { ACCOUNTS = sizeof accounts / sizeof *accounts };

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

/* What sequences and feed need besides the stores. */
static int shared_tables_take(kvb_size_prediction *p, const kvb_size_step *s)
{
    const bool feeds = is(p, &kvb_cache_recompute);
    const uint64_t n = (uint64_t)s->n_seqs * kvb_size_brings(s);
    need(&p->feed[p->turn], n);
    if (s->drafts)
        need(&p->nodes, n);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) {
        kvb_size_sequence *seq = &p->seq[q];
        need_of(&seq->account, seq->ordinals.n + (s->drafts ? kvb_size_brings(s) : 1), &p->spans);
    }
    if (!feeds)
        return 0;
    if (s->drafts)
        need(&p->fed_nodes[p->turn], n);
    int error = kvb_size_fed_find(p, s);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++)
        kvb_size_list_make(&p->seq[q].seen[p->turn], &p->seq[q].fed, &p->spans);
    need(&p->feed[p->turn], kvb_size_fed_old(p, s) + n);
    return error;
}

static int step_take(kvb_size_prediction *p, const kvb_size_step *s)
{
    const kvb_model *m = &p->subject->model;
    size_t a = 0;
    if (s->call)
        return kvb_size_call_take(p, s);
    while (accounts[a].cache != p->subject->cache)
        a++;
    int error = shared_tables_take(p, s);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) { /* does its first new token follow its last one? */
        const kvb_size_pieces *o = &p->seq[q].ordinals;
        p->seq[q].joins =
            o->n && o->at[o->n - 1].cell + o->at[o->n - 1].n == p->next_ordinal + (uint64_t)(q - s->first) * s->tokens;
    }
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = kvb_group_scans(&m->groups[g]) ? kvb_size_states_take(p, &p->group[g], s)
                : s->drafts                    ? kvb_size_drafts_take(p, &p->group[g], &m->groups[g], s)
                                               : accounts[a].take(p, &p->group[g], &m->groups[g], s);
    for (uint32_t g = 0; g < m->n_groups; g++)
        p->group[g].turning = p->moved = false;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        const uint64_t first = p->next_ordinal + (uint64_t)(q - s->first) * kvb_size_brings(s);
        for (uint32_t i = 0, each = s->drafts ? s->drafts : 1; i < s->tokens && !error;
             i++) /* of nodes a level's last */
            error = kvb_size_piece_add(&p->seq[q].ordinals, p->seq[q].len++, first + (i + (uint64_t)1) * each - 1, 1);
    }
    p->next_ordinal += (uint64_t)s->n_seqs * kvb_size_brings(s);
    p->tokens += (uint64_t)s->n_seqs * s->tokens;
    p->turn = !p->turn;
    p->last[1] = p->last[0];
    p->last[0] = *s;
    return error;
}

/* ---- adding up ------------------------------------------------------------------------------------------------------- */

static int group_add_up(const kvb_size_prediction *p, uint32_t index, uint64_t *sum)
{
    const kvb_size_subject *s = p->subject;
    const kvb_group *g = &s->model.groups[index];
    const kvb_size_group_tables *t = &p->group[index];
    uint64_t cells = kvb_size_pool_cells(p, g);
    int error = 0;
    for (int side = 0; side < 2 && !error; side++) {
        kvb_pool_options o = {
            .n_kv_heads = g->kv_heads,
            .dim = side ? g->v_dim : g->k_dim,
            .min_chunk = s->options.min_chunk < cells ? s->options.min_chunk : (uint32_t)cells,
            .capacity = (uint32_t)cells,
            .growth = s->options.growth,
        };
        const kvb_pool_type *type = side ? s->options.v_pool : s->options.k_pool;
        const uint64_t layers = side && g->latent ? 0 : kvb_model_layers_of(&s->model, index);
        error = kvb_size_add(sum, layers, kvb_size_pool_bytes(type, &o, is(p, &kvb_cache_slab) ? cells : t->most));
        o.min_chunk = o.capacity = (uint32_t)t->fronts.cells;
        if (!error && t->fronts.cells)
            error = kvb_size_add(sum, layers, kvb_size_pool_bytes(type, &o, t->fronts.cells));
        if (!error)
            error = kvb_size_add(sum, 1,
                                 t->cells[side] * CELL + t->row_starts[side] * ROW_START + t->runs[side] * RUN +
                                     t->path[side] * PATH + t->seen[side] * SPAN + t->pages[side] * PAGE);
    }
    uint64_t by_id = is(p, &kvb_cache_slab)  ? 2 * ID
                     : kvb_size_has_pages(p) ? PAGE_TABLE + ID + (kvb_size_drops(p, g) ? SPANS + ID : 0)
                     : is(p, &kvb_cache_seq) || is(p, &kvb_cache_window) || is(p, &kvb_cache_shared_prefix) ? SPANS + ID
                                                                                                            : 0;
    uint64_t rows = is(p, &kvb_cache_slab)
                        ? (s->options.max_seqs + 63) / 64 * sizeof(uint64_t) + s->options.max_seqs * ID
                    : kvb_size_has_pages(p) ? cells / kvb_size_page_cells(p) * PAGE
                                            : 0;
    if (is(p, &kvb_cache_shared_prefix))
        rows += kvb_size_front_bytes(p, t);
    if (is(p, &kvb_cache_paged_prefix))
        rows += kvb_size_prefix_bytes(cells / kvb_size_page_cells(p), kvb_size_page_cells(p), p->n_ids);
    if (!error)
        error = kvb_size_add(sum, t->spans, SPAN);
    return error ? error
                 : kvb_size_add(sum, 1,
                                kvb_size_moves_bytes(t, p->n_ids) + t->moves * MOVE + t->refs * REF +
                                    (t->row_cells + t->page_pieces) * SPAN + t->tables * PAGE +
                                    t->changes * PAGE_CHANGE + t->nodes * 2 * NODE_CELL + t->node_cells * NODE_CELL +
                                    t->keys * ORDINAL + p->n_ids * by_id + rows);
}

/* Bytes now, or -EOVERFLOW. */
static int add_up(const kvb_size_prediction *p, uint64_t *bytes)
{
    const kvb_model *m = &p->subject->model;
    int error = 0;
    *bytes = kvb_cache_struct_bytes(p->subject->cache, m) + p->nodes * NODE + p->matched * ORDINAL;
    for (int turn = 0; turn < 2; turn++)
        *bytes += p->feed[turn] * FEED_ITEM + p->fed_nodes[turn] * NODE_CELL;
    *bytes += p->spans * SPAN + p->n_ids * (SPANS + 5 * ID) + /* the account; both feeds of whole histories */
              (is(p, &kvb_cache_recompute) ? 2 * p->n_ids * SPANS : 0);
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = kvb_group_scans(&m->groups[g]) ? kvb_size_states_add_up(p, g, bytes) : group_add_up(p, g, bytes);
    return error;
}

uint64_t kvb_size_cell_bytes(const kvb_size_subject *s)
{
    double bytes = 0;
    for (uint32_t i = 0; i < s->model.n_groups; i++) {
        const kvb_group *g = &s->model.groups[i];
        const double layer = kvb_group_scans(g) ? 0
                                                : kvb_size_row_bytes(s->options.k_pool, g->k_dim) +
                                                      (g->latent ? 0 : kvb_size_row_bytes(s->options.v_pool, g->v_dim));
        bytes += layer * g->kv_heads * kvb_model_layers_of(&s->model, i);
    }
    return (uint64_t)bytes + ((double)(uint64_t)bytes < bytes);
}

/* Tokens of the sequences that are alive. A cache that keeps prompts needs room for these alone: it gives up the prompts. */
static uint64_t tokens_alive(const kvb_size_prediction *p)
{
    uint64_t n = 0;
    for (uint32_t q = 0; q < p->n_ids; q++)
        n += p->seq[q].len;
    return p->subject->cache->flags & KVB_CACHE_PREFIX ? n : p->tokens;
}

/* ---- checks ---------------------------------------------------------------------------------------------------------- */

static int subject_check(const kvb_size_prediction *p, char *why, size_t why_bytes)
{
    const kvb_size_subject *s = p->subject;
    const kvb_cache_options *o = &s->options;
    size_t a = 0;
    while (a < ACCOUNTS && accounts[a].cache != s->cache)
        a++;
    if (a == ACCOUNTS) {
        snprintf(why, why_bytes, "no account of what cache %s allocates", s->cache->name);
        return -ENOTSUP;
    }
    int error = kvb_model_check(&s->model, why, why_bytes);
    if (error)
        return error;
    if (!kvb_cache_takes(s->cache, o->k_pool, o->v_pool, why, why_bytes) ||
        (s->cache->serves && !s->cache->serves(&s->model, why, why_bytes)))
        return -ENOTSUP;
    if (!o->capacity || !o->seq_capacity || !o->min_chunk || !o->max_seqs || o->max_seqs > p->n_ids ||
        p->n_ids > KVB_MAX_SEQS || kvb_size_pool_cells(p, &s->model.groups[0]) > UINT32_MAX) {
        snprintf(why, why_bytes, "%u cells, %u sequences of up to %u tokens: not what a cache can number", o->capacity,
                 o->max_seqs, o->seq_capacity);
        return -EINVAL;
    }
    for (uint32_t g = 0; g < s->model.n_groups; g++) {
        const kvb_group *group = &s->model.groups[g];
        if (kvb_group_scans(group))
            continue;
        if ((o->k_pool->supports && !o->k_pool->supports(o->k_pool, group->k_dim, why, why_bytes)) ||
            (!group->latent && o->v_pool->supports && !o->v_pool->supports(o->v_pool, group->v_dim, why, why_bytes)))
            return -ENOTSUP;
    }
    return 0;
}

static void prediction_free(kvb_size_prediction *p)
{
    for (uint32_t q = 0; q < p->n_ids && p->seq; q++) {
        free(p->seq[q].ordinals.at);
        free(p->seq[q].fed.at);
        free(p->seq[q].fresh.at);
    }
    for (uint32_t g = 0; g < KVB_MODEL_GROUPS; g++) {
        for (uint32_t q = 0; q < p->n_ids && p->group[g].seq; q++)
            free(p->group[g].seq[q].held.at);
        free(p->group[g].seq);
        free(p->group[g].in_use.used);
        free(p->group[g].states.slot);
        kvb_size_pages_free(&p->group[g].pages_in_use);
    }
    free(p->seq);
    free(p->scratch.at);
    free(p);
}

static kvb_size_prediction *prediction_begin(const kvb_size_subject *s)
{
    kvb_size_prediction *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->subject = s;
    p->n_ids = s->options.seq_ids ? s->options.seq_ids : 64;
    p->seq = calloc(p->n_ids, sizeof *p->seq);
    bool whole = p->seq;
    for (uint32_t g = 0; g < s->model.n_groups && g < KVB_MODEL_GROUPS; g++)
        whole = (p->group[g].seq = calloc(p->n_ids, sizeof *p->group[g].seq)) && whole;
    if (whole)
        return p;
    prediction_free(p);
    return NULL;
}

int kvb_size_predict(const kvb_size_subject *s, const kvb_size_step *steps, size_t n, uint64_t *bytes, bool *refused,
                     char *why, size_t why_bytes)
{
    kvb_size_prediction *p = prediction_begin(s);
    int error = p ? subject_check(p, why, why_bytes) : -ENOMEM;
    if (!error)
        error = add_up(p, &bytes[0]);
    for (size_t i = 0; !error && i < n; i++) {
        error = kvb_size_step_check(s, p->n_ids, &steps[i], tokens_alive(p), why, why_bytes);
        if (!error && p->moved && (steps[i].call == KVB_SIZE_SWAP || steps[i].call == KVB_SIZE_RELOAD)) {
            snprintf(why, why_bytes, "positions have moved: they are saved after the next step");
            error = -EINVAL;
        }
        if (!error)
            p->refused = false;
        for (uint32_t t = 0; t < steps[i].times && !error; t++)
            error = step_take(p, &steps[i]);
        if (!error && refused)
            refused[i] = p->refused;
        if (!error)
            error = add_up(p, &bytes[i + 1]);
    }
    if (error == -EOVERFLOW)
        snprintf(why, why_bytes, "more bytes than 64 bits hold");
    if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory for a prediction");
    if (error == -ENOSPC)
        snprintf(why, why_bytes, "no cell is left for a token");
    if (p)
        prediction_free(p);
    return error;
}
