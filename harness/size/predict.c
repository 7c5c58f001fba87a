/* SPDX-License-Identifier: Apache-2.0 */
/* A cache's structs, pools and tables added up, step by step. */
#include "harness/size/predict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/size/fronts.h"
#include "harness/size/pool_bytes.h"
#include "harness/size/prediction.h"
#include "harness/size/room.h"

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static bool has_pages(const kvb_size_prediction *p)
{
    return is(p, &kvb_cache_paged) || is(p, &kvb_cache_paged_prefix);
}

/* Does the cache give back cells of this group? */
static bool drops(const kvb_size_prediction *p, const kvb_group *g)
{
    return (is(p, &kvb_cache_window) || is(p, &kvb_cache_paged)) && (g->window || g->chunk);
}

static uint64_t page_cells(const kvb_size_prediction *p)
{
    return p->subject->options.page_cells ? p->subject->options.page_cells : 16;
}

static uint64_t pages_most(const kvb_size_prediction *p, const kvb_group *g)
{
    return kvb_size_pages_most(&p->subject->options, g, page_cells(p), drops(p, g));
}

static uint64_t pool_cells(const kvb_size_prediction *p, const kvb_group *g)
{
    const kvb_cache_options *o = &p->subject->options;
    uint64_t kept = (uint64_t)g->window + g->chunk + g->sinks + o->rollback - 1; /* of a sequence, before a step */
    if (kvb_group_scans(g))
        return kvb_size_states_slots(p->subject);
    uint64_t bound = o->max_seqs * kept + (o->step ? o->step : o->capacity);
    return is(p, &kvb_cache_slab)               ? (uint64_t)o->max_seqs * o->seq_capacity
           : has_pages(p)                       ? pages_most(p, g) * page_cells(p)
           : drops(p, g) && bound < o->capacity ? bound
                                                : o->capacity;
}

static void plan_start(kvb_size_group_tables *t, uint32_t turn, uint64_t n)
{
    need(&t->cells[turn], n);
    need(&t->row_starts[turn], n + 1);
}

static void cells_ask(kvb_size_group_tables *t, uint64_t cells)
{
    t->most = t->most > cells ? t->most : cells;
}

/* ---- one store's share of a step. Lengths and ordinals are still those before it ----------------------------------- */

/* contiguous, tree: position p in cell p. */
static int contiguous_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    kvb_size_piece all = {0, 0, p->seq[0].len + s->tokens};
    plan_start(t, p->turn, s->tokens);
    kvb_size_queries(&t->runs[p->turn], &(kvb_size_pieces){&all, 1, 1}, 1, g, p->seq[0].len, s->tokens, 0);
    cells_ask(t, all.n);
    return 0;
}

/* Roots only: root i sees the prefix and itself, i cells behind the prefix. */
static int drafts_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t len = p->seq[0].len, runs = 0;
    plan_start(t, p->turn, s->drafts);
    for (uint32_t i = 0; i < s->drafts; i++) {
        kvb_size_piece pieces[2] = {{0, 0, len}, {len, len + i, 1}};
        kvb_size_pieces seen = {pieces + (len == 0), 2 - (len == 0), 2};
        if (len && i == 0) {
            pieces[0].n++;
            seen.n = 1;
        }
        need(&t->path[p->turn], 1);
        need(&t->seen[p->turn], (len > 0) + 1);
        need(&t->runs[p->turn], runs + seen.n + 1);
        runs += kvb_size_runs(&seen, g, len);
    }
    need(&t->moves, s->drafts);
    cells_ask(t, len + s->drafts);
    return 0;
}

/* Each sequence has a row of cells, in the order in which sequences come to life. */
static int slab_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t runs = 0, capacity = p->subject->options.seq_capacity;
    int error = 0;
    plan_start(t, p->turn, (uint64_t)s->n_seqs * s->tokens);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        kvb_size_pieces *held = &t->seq[q].held;
        uint64_t spans = p->seq[q].ordinals.n + !p->seq[q].joins, len = p->seq[q].len;
        uint64_t row = held->n ? held->at[0].cell / capacity : t->rows++;
        error = kvb_size_piece_add(held, len, row * capacity + len, s->tokens);
        need(&t->row_cells, spans);
        runs = (uint64_t)kvb_size_queries(&t->runs[p->turn], held, spans, g, len, s->tokens, runs);
    }
    return error;
}

/* The cells that a step takes, in pieces, into p->scratch. */
static int cells_find(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint64_t n)
{
    p->scratch.n = 0;
    if (!drops(p, g) && !is(p, &kvb_cache_shared_prefix)) /* none is ever free again */
        return kvb_size_piece_add(&p->scratch, 0, p->tokens, n);
    for (int i = 0; i < 2 && drops(p, g); i++)
        for (uint32_t q = p->last[i].first; q < p->last[i].first + p->last[i].n_seqs; q++)
            kvb_size_cells_give(&t->in_use, &t->seq[q].held, g->sinks,
                                kvb_size_kept_from(&p->subject->options, g, p->seq[q].len));
    return kvb_size_cells_take(&t->in_use, n, pool_cells(p, g), &p->scratch);
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

/* The sequences of a step let go of what they keep no more of a group with limits. */
static int step_drop(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    int error = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++)
        error =
            kvb_size_pieces_drop(&t->seq[q].held, g->sinks, kvb_size_kept_from(&p->subject->options, g, p->seq[q].len));
    return error;
}

/* Before that: sinks may be cut off from the rest. */
static void drop_prepare(kvb_size_group_tables *t, const kvb_size_step *s)
{
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        need_of(&t->seq[q].spans, t->seq[q].held.n + 1, &t->spans);
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
    int error = cells_find(p, t, g, n);
    plan_start(t, p->turn, n);
    if (!error) {
        const kvb_size_piece *last = &p->scratch.at[p->scratch.n - 1]; /* cells ascend */
        need(&t->refs, last->cell + last->n);
        cells_ask(t, last->cell + last->n);
    }
    for (size_t i = 0; i < p->scratch.n && !error; i++) /* of one sequence all tokens, of several one each */
        for (uint64_t j = 0, some; j < p->scratch.at[i].n && !error; j += some, at += some) {
            uint32_t q = s->first + (several ? (uint32_t)at : 0);
            some = several ? 1 : p->scratch.at[i].n;
            error = span_add(t, q, p->seq[q].len + (several ? 0 : at), p->scratch.at[i].cell + j, some);
        }
    if (!error)
        error = shared_queries(p, t, g, s);
    if (!drops(p, g))
        return error;
    for (int i = 0; i < 2; i++)
        drop_prepare(t, &p->last[i]);
    drop_prepare(t, s);
    for (int i = 0; i < 2 && !error; i++)
        error = step_drop(p, t, g, &p->last[i]);
    return error ? error : step_drop(p, t, g, s);
}

/* paged: the lowest free page; a group with limits gives back those that it needs no more. */
static int paged_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const uint64_t page = page_cells(p);
    uint64_t changes = 0, queries = 0, entries = 0;
    int error = 0;
    plan_start(t, p->turn, (uint64_t)s->n_seqs * s->tokens);
    for (int i = 0; i < 2; i++)
        for (uint32_t j = 0; j < p->last[i].n_seqs && drops(p, g) && !error; j++)
            error = kvb_size_pages_drop(&t->pages_in_use, &t->seq[p->last[i].first + j].held, g, page,
                                        kvb_size_kept_from(&p->subject->options, g, p->seq[p->last[i].first + j].len),
                                        &changes);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        const uint64_t end = p->seq[q].len + s->tokens;
        if (drops(p, g)) /* sinks, window, and what goes: never more than three spans */
            need_of(&t->seq[q].spans, 3, &t->spans);
        for (uint64_t pos = p->seq[q].len; pos < end && !error; pos++) {
            if (pos % page == 0) {
                need_of(&t->seq[q].pages, pos / page + 1, &t->tables);
                need(&t->changes, ++changes);
                error = kvb_size_page_take(&t->pages_in_use, &t->seq[q].held, pos / page, pages_most(p, g));
            }
            need(&t->pages[p->turn], entries + pos / page + 1);
            need(&t->runs[p->turn], ++queries);
            const kvb_size_pieces *held = &t->seq[q].held;
            cells_ask(t, (held->at[held->n - 1].cell + held->at[held->n - 1].n - 1) * page + pos % page + 1);
        }
        entries += (end - 1) / page + 1;
    }
    if (changes)
        need(&t->changes, changes);
    return error;
}

/* The whole history of the step's sequences is fed again, one sequence after the other, the new tokens last. */
static int recompute_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t n = (uint64_t)s->n_seqs * s->tokens, old = 0, runs = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        old += p->seq[q].len;
    plan_start(t, p->turn, old + n);
    for (int new = 0; new < 2; new ++) /* the queries of old tokens come before those of new ones */
        for (uint64_t i = 0, begin = 0, len; i < s->n_seqs; i++, begin += len) {
            kvb_size_piece at[2];
            len = p->seq[s->first + i].len;
            kvb_size_pieces seen = kvb_size_fed_pieces(len, begin, old + i * s->tokens, s->tokens, at);
            runs = (uint64_t)kvb_size_queries(&t->runs[p->turn], &seen, seen.n, g, new ? len : 0, new ? s->tokens : len,
                                              runs);
        }
    cells_ask(t, old + n);
    return 0;
}

static const struct {
    const kvb_cache_type *cache;
    int (*take)(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s);
} accounts[] = {
    {&kvb_cache_recompute, recompute_take},   {&kvb_cache_slab, slab_take},
    {&kvb_cache_contiguous, contiguous_take}, {&kvb_cache_seq, shared_take},
    {&kvb_cache_window, shared_take},         {&kvb_cache_tree, contiguous_take},
    {&kvb_cache_paged, paged_take},           {&kvb_cache_paged_prefix, paged_take},
    {&kvb_cache_shared_prefix, shared_take},
};
enum { ACCOUNTS = sizeof accounts / sizeof *accounts };

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

/* What sequences and feed need besides the stores. */
static void shared_tables_take(kvb_size_prediction *p, const kvb_size_step *s)
{
    uint64_t fed = s->drafts ? s->drafts : (uint64_t)s->n_seqs * s->tokens;
    need(&p->feed[p->turn], fed);
    if (s->drafts)
        need(&p->nodes, s->drafts);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) {
        kvb_size_sequence *seq = &p->seq[q];
        need_of(&seq->account, seq->ordinals.n + (s->drafts ? s->drafts : 1), &p->spans);
        if (!is(p, &kvb_cache_recompute))
            continue;
        fed += seq->len;
        need_of(&seq->seen[p->turn], 1, &p->spans); /* two pieces at most */
    }
    need(&p->feed[p->turn], fed);
}

/* A shift or a defrag. Ordinals of tokens that have moved are none that new ones could follow. */
static int call_take(kvb_size_prediction *p, const kvb_size_step *s)
{
    const kvb_model *m = &p->subject->model;
    kvb_size_sequence *seq = &p->seq[s->first];
    int error = 0;
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = s->call == KVB_SIZE_SHIFT        ? kvb_size_shift_take(p, &p->group[g], &m->groups[g], s->first)
                : kvb_group_scans(&m->groups[g]) ? 0
                                                 : kvb_size_defrag_take(p, &p->group[g]);
    if (s->call != KVB_SIZE_SHIFT)
        return error;
    need_of(&seq->account, seq->ordinals.n + 2, &p->spans); /* two may be cut in two */
    for (size_t i = 0; i < seq->ordinals.n; i++) {
        seq->ordinals.at[i].pos++;
        seq->ordinals.at[i].cell += UINT64_C(1) << 40;
    }
    seq->len += seq->len > 0;
    return error;
}

static int step_take(kvb_size_prediction *p, const kvb_size_step *s)
{
    const kvb_model *m = &p->subject->model;
    int error = 0;
    size_t a = 0;
    if (s->call == KVB_SIZE_SHARE)
        return kvb_size_share(p, s);
    if (s->call)
        return call_take(p, s);
    while (accounts[a].cache != p->subject->cache)
        a++;
    shared_tables_take(p, s);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) { /* does its first new token follow its last one? */
        const kvb_size_pieces *o = &p->seq[q].ordinals;
        p->seq[q].joins =
            o->n && o->at[o->n - 1].cell + o->at[o->n - 1].n == p->next_ordinal + (uint64_t)(q - s->first) * s->tokens;
    }
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = kvb_group_scans(&m->groups[g]) ? kvb_size_states_take(p, &p->group[g], s)
                : s->drafts                    ? drafts_take(p, &p->group[g], &m->groups[g], s)
                                               : accounts[a].take(p, &p->group[g], &m->groups[g], s);
    for (uint32_t g = 0; g < m->n_groups; g++)
        p->group[g].turning = false;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        uint64_t ordinal = p->next_ordinal + (s->drafts ? s->drafts - 1 : (uint64_t)(q - s->first) * s->tokens);
        error = kvb_size_piece_add(&p->seq[q].ordinals, p->seq[q].len, ordinal, s->tokens);
        p->seq[q].len += s->tokens;
    }
    p->next_ordinal += s->drafts ? s->drafts : (uint64_t)s->n_seqs * s->tokens;
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
    uint64_t cells = pool_cells(p, g);
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
    uint64_t by_id = is(p, &kvb_cache_slab) ? 2 * ID
                     : has_pages(p)         ? PAGE_TABLE + ID + (drops(p, g) ? SPANS + ID : 0)
                     : is(p, &kvb_cache_seq) || is(p, &kvb_cache_window) || is(p, &kvb_cache_shared_prefix) ? SPANS + ID
                                                                                                            : 0;
    uint64_t rows = is(p, &kvb_cache_slab)
                        ? (s->options.max_seqs + 63) / 64 * sizeof(uint64_t) + s->options.max_seqs * ID
                    : has_pages(p) ? cells / page_cells(p) * PAGE
                                   : 0;
    if (is(p, &kvb_cache_shared_prefix))
        rows += kvb_size_front_bytes(p, t);
    if (is(p, &kvb_cache_paged_prefix))
        rows += kvb_size_prefix_bytes(cells / page_cells(p), page_cells(p), p->n_ids);
    if (!error)
        error = kvb_size_add(sum, t->spans, SPAN);
    return error ? error
                 : kvb_size_add(sum, 1,
                                kvb_size_moves_bytes(t, p->n_ids) + t->moves * MOVE + t->refs * REF +
                                    t->row_cells * SPAN + t->tables * PAGE + t->changes * PAGE_CHANGE +
                                    p->n_ids * by_id + rows);
}

/* Bytes now, or -EOVERFLOW. */
static int add_up(const kvb_size_prediction *p, uint64_t *bytes)
{
    const kvb_model *m = &p->subject->model;
    int error = 0;
    *bytes = kvb_cache_struct_bytes(p->subject->cache, m) + p->nodes * NODE;
    for (int turn = 0; turn < 2; turn++)
        *bytes += p->feed[turn] * FEED_ITEM;
    *bytes += p->spans * SPAN + p->n_ids * (SPANS + 5 * ID) + /* the account; both feeds of whole histories */
              (is(p, &kvb_cache_recompute) ? 2 * p->n_ids * SPANS : 0);
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = kvb_group_scans(&m->groups[g]) ? kvb_size_states_add_up(p, g, bytes) : group_add_up(p, g, bytes);
    return error;
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
        p->n_ids > KVB_MAX_SEQS || pool_cells(p, &s->model.groups[0]) > UINT32_MAX) {
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
    for (uint32_t q = 0; q < p->n_ids && p->seq; q++)
        free(p->seq[q].ordinals.at);
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

int kvb_size_predict(const kvb_size_subject *s, const kvb_size_step *steps, size_t n, uint64_t *bytes, char *why,
                     size_t why_bytes)
{
    kvb_size_prediction *p = prediction_begin(s);
    int error = p ? subject_check(p, why, why_bytes) : -ENOMEM;
    if (!error)
        error = add_up(p, &bytes[0]);
    for (size_t i = 0; !error && i < n; i++) {
        error = kvb_size_step_check(s, p->n_ids, &steps[i], p->tokens, why, why_bytes);
        for (uint32_t t = 0; t < steps[i].times && !error; t++)
            error = step_take(p, &steps[i]);
        if (!error)
            error = add_up(p, &bytes[i + 1]);
    }
    if (error == -EOVERFLOW)
        snprintf(why, why_bytes, "more bytes than 64 bits hold");
    if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory for a prediction");
    if (p)
        prediction_free(p);
    return error;
}
