/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seq: cells shared by up to 64 sequences; a fork moves no bytes, and a cell is free when its last sequence has left it.
 * window: the same, but a group with limits lets go of rows that no query can see again, so that its cells are those of its
 * window and not of the whole history.
 *
 * What can be let go of follows from where a sequence may still be cut back to: options->rollback positions behind the next
 * one. Going back further, or copying from further back, is refused as far as it needs what is gone.
 */
#include "caches/cache.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct seq_store {
    kvb_store store;
    kvb_spans cells[KVB_MAX_SEQS]; /* position -> cell */
    uint16_t *refs;                /* [refs_room] sequences that hold a cell; 0: free */
    size_t refs_room;
    uint32_t live;       /* cells held */
    uint32_t high_water; /* largest cell held + 1 */
    uint32_t first_free; /* no cell below it is free */
} seq_store;

static seq_store *seq_of(kvb_store *s)
{
    return (seq_store *)s;
}

static void store_close(kvb_store *s)
{
    seq_store *c = seq_of(s);
    for (uint32_t q = 0; q < KVB_MAX_SEQS; q++)
        kvb_spans_free(&c->cells[q], s->allocator);
    kvb_free(s->allocator, c->refs, c->refs_room * sizeof *c->refs);
}

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    *cells = ((const seq_store *)s)->live;
    *high_water = ((const seq_store *)s)->high_water;
}

/* ---- cells ----------------------------------------------------------------------------------------------- */

static bool is_free(const seq_store *c, uint32_t cell)
{
    return cell >= c->high_water || !c->refs[cell];
}

/* One sequence more, or less, holds the cells of that part of a sequence. */
static void part_hold(seq_store *c, uint32_t seq, uint32_t p0, uint32_t p1, bool more)
{
    for (size_t i = 0; i < c->cells[seq].n; i++) {
        kvb_span part = kvb_span_clip(c->cells[seq].span[i], p0, p1);
        for (uint64_t cell = part.at; cell < part.at + part.n; cell++) {
            assert(more || c->refs[cell] > 0);
            c->live += more && c->refs[cell] == 0;
            c->refs[cell] = (uint16_t)(more ? c->refs[cell] + 1 : c->refs[cell] - 1);
            c->live -= !more && c->refs[cell] == 0;
            if (!more && c->refs[cell] == 0 && cell < c->first_free)
                c->first_free = (uint32_t)cell;
        }
    }
}

static void bounds_settle(seq_store *c)
{
    while (c->high_water > 0 && !c->refs[c->high_water - 1])
        c->high_water--;
    if (c->first_free > c->high_water)
        c->first_free = c->high_water;
    while (c->first_free < c->high_water && c->refs[c->first_free])
        c->first_free++;
}

/* First fit: the lowest run of n free cells; where there is none, the n lowest free ones. picked [n], ascending. */
static void cells_pick(const seq_store *c, uint32_t n, uint32_t *picked)
{
    uint32_t start = c->first_free, cell = start;
    while (cell < c->high_water && cell - start < n) {
        cell++;
        if (!is_free(c, cell - 1))
            start = cell;
    }
    /* A run that touches the high-water mark goes on up to the end of the pools. */
    bool run = start <= c->store.pool_cells && n <= c->store.pool_cells - start;
    for (uint32_t i = 0, next = run ? start : c->first_free; i < n; next++)
        if (is_free(c, next))
            picked[i++] = next;
}

static int refs_reserve(seq_store *c, uint32_t cells)
{
    size_t had = c->refs_room;
    int error = kvb_grow(c->store.allocator, &c->refs, &c->refs_room, cells);
    if (!error)
        memset(c->refs + had, 0, (c->refs_room - had) * sizeof *c->refs);
    return error;
}

/* ---- what can be let go of ---------------------------------------------------------------------------------- */

static bool drops(const kvb_store *s)
{
    return s->type == &kvb_cache_window && kvb_group_limits(s->group);
}

/* Positions from the sinks up to this one, excluded, are needed no more where the next query is at pos. */
static uint32_t needed_from(const kvb_store *s, uint32_t pos)
{
    uint32_t back = pos < s->options->rollback ? 0 : pos - s->options->rollback;
    uint32_t from = drops(s) ? kvb_first_seen(s->group, back) : 0;
    return from > s->group->sinks ? from : s->group->sinks;
}

/* Where the next query of each sequence is; of a step whose tokens the account holds already its first one. */
static void queries_find(const kvb_store *s, const kvb_feed *feed, uint32_t next[KVB_MAX_SEQS])
{
    for (uint32_t q = 0; q < KVB_MAX_SEQS; q++)
        next[q] = kvb_spans_next(&s->account->seq[q]);
    for (uint32_t i = feed ? feed->n : 0; i-- > 0;)
        next[feed->seqs[i]] = feed->positions[i];
}

/* Every sequence lets go of what its next query needs no more, or (back) takes it again; their spans stay as they are. */
static void rows_drop(seq_store *c, const kvb_feed *feed, bool back)
{
    uint32_t next[KVB_MAX_SEQS];
    queries_find(&c->store, feed, next);
    for (uint32_t q = 0; q < KVB_MAX_SEQS && drops(&c->store); q++)
        part_hold(c, q, c->store.group->sinks, needed_from(&c->store, next[q]), back);
}

/* Cells that are free once every sequence has let go of what it will. */
static uint32_t room(const kvb_store *s, const kvb_change *change)
{
    seq_store *c = (seq_store *)(uintptr_t)s; /* tried out, and taken back */
    uint32_t first_free = c->first_free;
    (void)change;
    rows_drop(c, NULL, false);
    uint32_t live = c->live;
    rows_drop(c, NULL, true);
    c->first_free = first_free;
    return live < s->pool_cells ? s->pool_cells - live : 0;
}

static uint32_t tokens_within(const kvb_spans *s, uint32_t p0, uint32_t p1)
{
    uint32_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += kvb_span_clip(s->span[i], p0, p1).n;
    return n;
}

/* Would a sequence that goes on at `next` see tokens of positions p0 .. p1-1 whose rows sequence `from` has let go of? */
static int reach_check(kvb_store *s, uint32_t from, uint32_t next, uint32_t p0, uint32_t p1)
{
    uint32_t first = kvb_first_seen(s->group, next), sinks = s->group->sinks;
    first = first > sinks ? first : sinks;
    first = first > p0 ? first : p0;
    p1 = p1 < next ? p1 : next;
    if (!drops(s) || first >= p1 ||
        tokens_within(&s->account->seq[from], first, p1) == tokens_within(&seq_of(s)->cells[from], first, p1))
        return 0;
    return kvb_store_fail(
        s, -ENOTSUP,
        "a query at position %u would see positions %u .. %u, some of which sequence %u has let go of: "
        "it keeps %u (rollback) behind what is seen",
        next, first, p1 - 1, from, s->options->rollback);
}

/* Largest position p0 <= p < p1 that is held, + 1; 0: none is. */
static uint32_t next_within(const kvb_spans *s, uint32_t p0, uint32_t p1)
{
    uint32_t next = 0;
    for (size_t i = 0; i < s->n; i++) {
        kvb_span part = kvb_span_clip(s->span[i], p0, p1);
        next = part.n ? part.pos + part.n : next;
    }
    return next;
}

/* ---- control calls ------------------------------------------------------------------------------------------ */

static void undo(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    seq_store *c = seq_of(s);
    (void)plan;
    if (change->kind != KVB_CHANGE_STEP)
        return;
    for (uint32_t i = 0; i < feed->n; i++)
        kvb_spans_cut(&c->cells[feed->seqs[i]], feed->positions[i], KVB_POS_END);
    rows_drop(c, feed, true);
    bounds_settle(c);
}

/* Makes room for the spans of the new tokens. Dropping the cells between sinks and window splits a span: one more. */
static int spans_reserve(seq_store *c, const kvb_feed *feed, const kvb_plan *plan)
{
    uint64_t last[KVB_MAX_SEQS];
    size_t more[KVB_MAX_SEQS];
    int error = 0;
    for (uint32_t q = 0; q < KVB_MAX_SEQS; q++) {
        const kvb_spans *held = &c->cells[q];
        last[q] = held->n ? held->span[held->n - 1].at + held->span[held->n - 1].n - 1 : UINT64_MAX - 1;
        more[q] = held->n && drops(&c->store);
    }
    for (uint32_t i = 0; i < feed->n; i++) {
        more[feed->seqs[i]] += plan->cells[i] != last[feed->seqs[i]] + 1;
        last[feed->seqs[i]] = plan->cells[i];
    }
    for (uint32_t q = 0; q < KVB_MAX_SEQS && !error; q++)
        error = more[q] ? kvb_spans_reserve(&c->cells[q], c->store.allocator, more[q]) : 0;
    return error;
}

static int step_prepare(seq_store *c, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_store *s = &c->store;
    rows_drop(c, feed, false);
    cells_pick(c, feed->n, plan->cells);
    int error = spans_reserve(c, feed, plan);
    if (!error)
        error = refs_reserve(c, plan->cells[feed->n - 1] + 1);
    for (uint32_t i = 0; i < feed->n && !error; i++)
        kvb_spans_append(&c->cells[feed->seqs[i]], feed->positions[i], plan->cells[i]);
    for (uint32_t i = 0; i < feed->n && !error; i++)
        error = kvb_plan_attend(plan, s->group, &c->cells[feed->seqs[i]], feed->positions[i]);
    if (error)
        undo(s, change, feed, plan);
    return error;
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    seq_store *c = seq_of(s);
    int error = 0;
    switch (change->kind) {
    case KVB_CHANGE_STEP:
        return step_prepare(c, change, feed, plan);
    case KVB_CHANGE_COPY: {
        uint32_t next = kvb_spans_next(&s->account->seq[change->dst]);
        uint32_t copied = next_within(&s->account->seq[change->src], change->p0, change->p1);
        error = reach_check(s, change->src, next > copied ? next : copied, change->p0, change->p1);
        return error ? error : kvb_spans_reserve(&c->cells[change->dst], s->allocator, c->cells[change->src].n);
    }
    case KVB_CHANGE_REMOVE:
        for (uint32_t q = 0; q < KVB_MAX_SEQS && !error; q++) {
            if ((q == change->src) == change->others || !s->account->seq[q].tokens)
                continue;
            uint32_t next = next_within(&s->account->seq[q], change->p1, KVB_POS_END);
            next = next ? next : next_within(&s->account->seq[q], 0, change->p0);
            error = reach_check(s, q, next, 0, next);
            if (!error)
                error = kvb_spans_reserve(&c->cells[q], s->allocator, 1);
        }
        return error;
    default:
        return 0;
    }
}

static void step_adopt(seq_store *c, const kvb_feed *feed, const kvb_plan *plan)
{
    uint32_t next[KVB_MAX_SEQS];
    queries_find(&c->store, feed, next);
    for (uint32_t q = 0; q < KVB_MAX_SEQS && drops(&c->store); q++)
        kvb_spans_cut(&c->cells[q], c->store.group->sinks, needed_from(&c->store, next[q]));
    for (uint32_t i = 0; i < feed->n; i++) {
        c->refs[plan->cells[i]] = 1;
        c->high_water = c->high_water > plan->cells[i] ? c->high_water : plan->cells[i] + 1;
    }
    c->live += feed->n;
}

static void adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    seq_store *c = seq_of(s);
    if (change->kind == KVB_CHANGE_STEP)
        step_adopt(c, feed, plan);
    if (change->kind == KVB_CHANGE_COPY) {
        part_hold(c, change->src, change->p0, change->p1, true);
        kvb_spans_add(&c->cells[change->dst], &c->cells[change->src], change->p0, change->p1);
    }
    for (uint32_t q = 0; q < KVB_MAX_SEQS && change->kind == KVB_CHANGE_REMOVE; q++) {
        if ((q == change->src) == change->others)
            continue;
        part_hold(c, q, change->p0, change->p1, false);
        kvb_spans_cut(&c->cells[q], change->p0, change->p1);
    }
    bounds_settle(c);
}

/* What each sequence keeps, and a step. */
static uint64_t window_cells(const kvb_store *s)
{
    const kvb_cache_options *o = s->options;
    uint64_t span = s->group->window ? s->group->window - 1 : s->group->chunk - 1;
    uint64_t kept = span + s->group->sinks + o->rollback, step = o->step ? o->step : o->capacity;
    uint64_t cells = drops(s) ? o->max_seqs * kept + step : o->capacity;
    return cells < o->capacity ? cells : o->capacity;
}

static bool window_serves(const kvb_model *model, char *why, size_t why_bytes)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (kvb_group_limits(&model->groups[g]))
            return true;
    snprintf(why, why_bytes, "no layer has a window or chunks: cache window would be cache seq");
    return false;
}

const kvb_cache_type kvb_cache_seq = {
    .name = "seq",
    .summary = "cells shared by up to 64 sequences; a fork copies nothing",
    .flags = KVB_CACHE_SEQ,
    .store_bytes = sizeof(seq_store),
    .close = store_close,
    .occupied = occupied,
    .prepare = prepare,
    .undo = undo,
    .adopt = adopt,
};

const kvb_cache_type kvb_cache_window = {
    .name = "window",
    .summary = "as seq; layers with a window or chunks drop the rows that no query can see again",
    .flags = KVB_CACHE_SEQ,
    .store_bytes = sizeof(seq_store),
    .serves = window_serves,
    .close = store_close,
    .pool_cells = window_cells,
    .occupied = occupied,
    .room = room,
    .prepare = prepare,
    .undo = undo,
    .adopt = adopt,
};
