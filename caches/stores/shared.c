/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared-prefix: a sequence is a frozen front, which other sequences can read, too, and a tail of its own. If a part of
 * a sequence is copied and neither sequence has a front, the part is frozen: its rows are copied once into pools that
 * are not written again (front.h), the source frees its own rows, and both read the front. Otherwise both read the rows
 * that lie in a front, and the destination copies the tail's rows. A front is freed with its last reader. A sequence
 * that is cut back into its front reads less of it.
 *
 * A call sees the cells of the front first and those of the tails' pools behind them: two regions (view.h). So all
 * sequences of a step that have a front must have the same one. Tails are kept as in cache seq.
 */
#include "caches/cache.h"
#include "caches/stores/shared.h"

#include <errno.h>

static shared_store *shared_of(kvb_store *s)
{
    return (shared_store *)(void *)s;
}

/* ---- readers of fronts ------------------------------------------------------------------------------------------- */

static holding *holding_of(const shared_store *c, const kvb_front *front)
{
    size_t i = 0;
    while (i < c->n_holding && c->holding[i].front != front)
        i++;
    return i < c->n_holding ? &c->holding[i] : NULL;
}

/* The sequence begins to read a front. There is room for one more holding. */
static void front_take(shared_store *c, uint32_t seq, kvb_front *front)
{
    holding *h = holding_of(c, front);
    if (!h) {
        h = &c->holding[c->n_holding++];
        *h = (holding){kvb_front_hold(front), 0};
        c->frozen += front->cells;
        c->tails.store.frozen_bytes += front->reserved_bytes;
    }
    h->sequences++;
    c->of[seq].front = front;
}

/* The sequence stops reading its front. */
static void front_leave(shared_store *c, uint32_t seq)
{
    kvb_front *front = c->of[seq].front;
    holding *h = holding_of(c, front);
    c->of[seq].front = NULL;
    c->of[seq].cells.n = c->of[seq].cells.tokens = 0;
    if (!h || --h->sequences)
        return;
    c->frozen -= front->cells;
    c->tails.store.frozen_bytes -= front->reserved_bytes;
    *h = c->holding[--c->n_holding];
    kvb_front_release(front);
}

static void store_close(kvb_store *s)
{
    shared_store *c = shared_of(s);
    for (uint32_t q = 0; q < s->account->n_ids && c->of; q++) {
        front_leave(c, q);
        kvb_spans_free(&c->of[q].cells, s->allocator);
    }
    kvb_free(s->allocator, c->of, s->account->n_ids * sizeof *c->of);
    kvb_free(s->allocator, c->holding, c->holding_room * sizeof *c->holding);
    kvb_spans_free(&c->lies, s->allocator);
    kvb_spans_free(&c->seen, s->allocator);
    kvb_free(s->allocator, c->raw, c->raw_room);
    kvb_free(s->allocator, c->picked, c->picked_room * sizeof *c->picked);
    kvb_cache_seq.close(s);
}

static int store_open(kvb_store *s)
{
    shared_store *c = shared_of(s);
    int error = kvb_cache_seq.open(s);
    if (error)
        return error;
    c->of = kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *c->of);
    if (!c->of)
        kvb_cache_seq.close(s);
    return c->of ? 0 : -ENOMEM;
}

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    const shared_store *c = (const shared_store *)(const void *)s;
    *cells = c->tails.live + c->frozen;
    *high_water = c->tails.high_water + c->frozen;
}

/* ---- freezing ---------------------------------------------------------------------------------------------------- */

static uint32_t room(const shared_store *c)
{
    return c->tails.store.options->capacity - c->tails.live - c->frozen;
}

static bool lies_add(shared_store *c, uint32_t pos, uint32_t cell)
{
    const bool fits = !kvb_spans_reserve(&c->lies, c->tails.store.allocator, 1);
    if (fits)
        kvb_spans_append(&c->lies, pos, cell);
    return fits;
}

/* Copies the rows at positions p0 .. p1-1 of a sequence without a front to a new front. Takes no further cells. */
static int freeze_prepare(shared_store *c, uint32_t seq, uint32_t p0, uint32_t p1, kvb_allocator *allocator)
{
    kvb_store *s = &c->tails.store;
    const kvb_spans *tail = &c->tails.cells[seq];
    uint32_t to = 0;
    c->lies.n = c->lies.tokens = 0;
    int error = kvb_spans_reserve(&c->tails.cells[seq], s->allocator, 1);
    if (!error)
        error = kvb_grow(s->allocator, &c->raw, &c->raw_room, kvb_front_row_bytes(s));
    if (!error)
        error = kvb_front_open(s, kvb_spans_within(tail, p0, p1), allocator, &c->made);
    for (size_t i = 0; i < tail->n && !error; i++) {
        const kvb_span part = kvb_span_clip(tail->span[i], p0, p1);
        kvb_front_fill(c->made, to, s->pools, (uint32_t)part.at, part.n, c->raw);
        for (uint32_t j = 0; j < part.n && !error; j++)
            error = lies_add(c, part.pos + j, to++) ? 0 : -ENOMEM;
    }
    return error;
}

static void freeze_adopt(shared_store *c, uint32_t seq, uint32_t p0, uint32_t p1)
{
    const kvb_spans was = c->of[seq].cells;
    c->tails.store.cells_moved += c->made->cells;
    front_take(c, seq, c->made);
    c->of[seq].cells = c->lies;
    c->lies = was;
    kvb_seq_drop(&c->tails, seq, p0, p1);
    kvb_front_release(c->made);
    c->made = NULL;
}

/* Requests copies of a tail's rows at positions p0 .. p1-1 in free cells. */
static int tail_copy(shared_store *c, uint32_t seq, uint32_t p0, uint32_t p1)
{
    kvb_store *s = &c->tails.store;
    const kvb_spans *tail = &c->tails.cells[seq];
    const uint32_t n = kvb_spans_within(tail, p0, p1);
    uint32_t copied = 0;
    c->lies.n = c->lies.tokens = 0;
    if (n > room(c))
        return kvb_store_fail(s, -ENOSPC, "no room for copies of %u rows: there is room for %u", n, room(c));
    int error = kvb_grow(s->allocator, &c->picked, &c->picked_room, n);
    if (error || !n)
        return error;
    kvb_seq_pick(&c->tails, n, c->picked);
    error = kvb_seq_reserve(&c->tails, c->picked[n - 1] + 1);
    for (size_t i = 0; i < tail->n && !error; i++) {
        const kvb_span part = kvb_span_clip(tail->span[i], p0, p1);
        for (uint32_t j = 0; j < part.n && !error; j++, copied++) {
            error = kvb_store_move(s, (uint32_t)part.at + j, c->picked[copied]);
            if (!error && !lies_add(c, part.pos + j, c->picked[copied]))
                error = -ENOMEM;
        }
    }
    return error;
}

static int copy_prepare(shared_store *c, const kvb_change *change)
{
    kvb_store *s = &c->tails.store;
    const shared_sequence *src = &c->of[change->src], *dst = &c->of[change->dst];
    if (!kvb_spans_within(&s->account->seq[change->src], change->p0, change->p1))
        return 0;
    if (dst->front && dst->front != src->front && kvb_spans_within(&src->cells, change->p0, change->p1))
        return kvb_store_fail(s, -ENOTSUP, "a sequence reads one front, and sequences %u and %u have not the same",
                              change->src, change->dst);
    int error = src->front || dst->front ? tail_copy(c, change->src, change->p0, change->p1)
                                         : freeze_prepare(c, change->src, change->p0, change->p1, s->allocator);
    if (!error)
        error = kvb_grow(s->allocator, &c->holding, &c->holding_room, c->n_holding + 1);
    if (!error)
        error = kvb_spans_reserve(&c->of[change->dst].cells, s->allocator, src->cells.n + c->lies.n);
    return error ? error : kvb_spans_reserve(&c->tails.cells[change->dst], s->allocator, c->lies.n);
}

/* Adds the cells with the copies to the sequence's tail. */
static void tail_add(shared_store *c, uint32_t seq)
{
    const kvb_spans had = c->tails.cells[seq];
    c->tails.cells[seq] = c->lies;
    kvb_seq_hold(&c->tails, seq, 0, KVB_POS_END, true);
    c->tails.cells[seq] = had;
    kvb_spans_add(&c->tails.cells[seq], &c->lies, 0, KVB_POS_END);
}

static void copy_adopt(shared_store *c, const kvb_change *change)
{
    const shared_sequence *src = &c->of[change->src];
    if (!kvb_spans_within(&c->tails.store.account->seq[change->src], change->p0, change->p1))
        return;
    if (c->made)
        freeze_adopt(c, change->src, change->p0, change->p1);
    else
        tail_add(c, change->dst);
    if (!kvb_spans_within(&src->cells, change->p0, change->p1))
        return;
    if (!c->of[change->dst].front)
        front_take(c, change->dst, src->front);
    kvb_spans_add(&c->of[change->dst].cells, &src->cells, change->p0, change->p1);
}

/* FREEZE: the sequence's front already holds the whole prefix; else the sequence, without a front, makes one. */
static int prefix_prepare(shared_store *c, const kvb_change *change)
{
    kvb_store *s = &c->tails.store;
    const uint32_t held = kvb_spans_within(&c->of[change->src].cells, 0, change->p1);
    if (held && held < change->p1)
        return kvb_store_fail(s, -ENOTSUP, "of sequence %u %u positions are frozen: a longer prefix would be two",
                              change->src, held);
    int error = kvb_grow(s->allocator, &c->holding, &c->holding_room, c->n_holding + 1);
    return error || held ? error : freeze_prepare(c, change->src, 0, change->p1, change->frozen->allocator);
}

/* The sequence begins with a prefix, which may come from another cache. */
static int match_prepare(shared_store *c, const kvb_change *change)
{
    kvb_store *s = &c->tails.store;
    const kvb_front *front = change->frozen->front[s->number];
    int error =
        kvb_front_fits(front, s) ? 0 : kvb_store_fail(s, -EINVAL, "the prefix belongs to another model, pool or scale");
    const uint32_t more = holding_of(c, front) ? 0 : front->cells;
    if (!error && more > room(c))
        error = kvb_store_fail(s, -ENOSPC, "no room for %u frozen rows: there is room for %u", more, room(c));
    if (!error)
        error = kvb_grow(s->allocator, &c->holding, &c->holding_room, c->n_holding + 1);
    return error ? error : kvb_spans_reserve(&c->of[change->src].cells, s->allocator, 1);
}

static void match_adopt(shared_store *c, const kvb_change *change)
{
    kvb_spans *cells = &c->of[change->src].cells;
    front_take(c, change->src, change->frozen->front[c->tails.store.number]);
    cells->span[cells->n++] = (kvb_span){0, 0, change->n};
    cells->tokens = change->n;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Finds the front of a step's sequences, at most one: 0 or -ENOTSUP. */
static int front_find(shared_store *c, const kvb_feed *feed)
{
    kvb_store *s = &c->tails.store;
    uint32_t reader = 0;
    s->front_next = NULL;
    for (uint32_t i = 0; i < feed->n; i++) {
        const kvb_front *front = c->of[feed->seqs[i]].front;
        if (front && s->front_next && front != s->front_next)
            return kvb_store_fail(s, -ENOTSUP, "a call reads one front, and sequences %u and %u have not the same",
                                  reader, feed->seqs[i]);
        reader = front ? feed->seqs[i] : reader;
        s->front_next = front ? front : s->front_next;
    }
    return 0;
}

/* Lists in c->seen the cells of a sequence for the mask: in the front, or behind all of it. */
static int seen_make(shared_store *c, uint32_t seq)
{
    const kvb_spans *front = &c->of[seq].cells, *tail = &c->tails.cells[seq];
    const uint32_t behind = c->tails.store.front_next ? c->tails.store.front_next->cells : 0;
    c->seen.n = c->seen.tokens = 0;
    int error = kvb_spans_reserve(&c->seen, c->tails.store.allocator, front->n + tail->n);
    if (error)
        return error;
    kvb_spans_add(&c->seen, front, 0, KVB_POS_END);
    for (size_t i = 0; i < tail->n; i++) {
        kvb_span part = tail->span[i];
        part.at += behind;
        kvb_spans_add(&c->seen, &(kvb_spans){.span = &part, .n = 1, .tokens = part.n}, 0, KVB_POS_END);
    }
    return 0;
}

static int step_prepare(shared_store *c, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_store *s = &c->tails.store;
    int error = front_find(c, feed);
    if (error)
        return error;
    error = kvb_seq_place(&c->tails, feed, plan);
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        if (i == 0 || feed->seqs[i] != feed->seqs[i - 1])
            error = seen_make(c, feed->seqs[i]);
        if (!error)
            error = kvb_plan_attend(plan, s->group, &c->seen, feed->positions[i]);
    }
    if (error)
        kvb_cache_seq.undo(s, change, feed, plan);
    return error;
}

/* ---- all kinds of changes ---------------------------------------------------------------------------------------- */

static void undo(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    shared_store *c = shared_of(s);
    kvb_front_release(c->made);
    c->made = NULL;
    kvb_cache_seq.undo(s, change, feed, plan);
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    shared_store *c = shared_of(s);
    int error = 0;
    switch (change->kind) {
    case KVB_CHANGE_STEP:
        return step_prepare(c, change, feed, plan);
    case KVB_CHANGE_COPY:
        error = copy_prepare(c, change);
        break;
    case KVB_CHANGE_FREEZE:
        error = prefix_prepare(c, change);
        break;
    case KVB_CHANGE_MATCH:
        return match_prepare(c, change);
    case KVB_CHANGE_REMOVE:
        for (uint32_t i = 0; i < s->account->n_changed && !error; i++)
            error = kvb_spans_reserve(&c->of[s->account->changed[i]].cells, s->allocator, 1);
        return error ? error : kvb_cache_seq.prepare(s, change, feed, plan);
    default:
        return kvb_cache_seq.prepare(s, change, feed, plan);
    }
    if (error)
        undo(s, change, feed, plan);
    return error;
}

static void adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    shared_store *c = shared_of(s);
    switch (change->kind) {
    case KVB_CHANGE_COPY:
        copy_adopt(c, change);
        return;
    case KVB_CHANGE_FREEZE:
        if (c->made)
            freeze_adopt(c, change->src, 0, change->p1);
        change->frozen->front[s->number] = kvb_front_hold(c->of[change->src].front);
        return;
    case KVB_CHANGE_MATCH:
        match_adopt(c, change);
        return;
    default:
        kvb_cache_seq.adopt(s, change, feed, plan);
    }
    for (uint32_t i = 0; i < s->account->n_changed && change->kind == KVB_CHANGE_REMOVE; i++) {
        shared_sequence *of = &c->of[s->account->changed[i]];
        kvb_spans_cut(&of->cells, change->p0, change->p1);
        if (!of->cells.tokens)
            front_leave(c, s->account->changed[i]);
    }
}

const kvb_cache_type kvb_cache_shared_prefix = {
    .name = "shared-prefix",
    .summary = "frozen beginnings, counted, that sequences and other caches read before rows of their own",
    .flags = KVB_CACHE_SEQ | KVB_CACHE_FREEZES,
    .store_bytes = sizeof(shared_store),
    .open = store_open,
    .close = store_close,
    .occupied = occupied,
    .prepare = prepare,
    .undo = undo,
    .adopt = adopt,
};
