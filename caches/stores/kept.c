/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows are kept, and compaction. */
#include "caches/stores/kept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t kvb_needed_from(const kvb_store *s, uint32_t pos)
{
    uint32_t back = pos < s->options->rollback ? 0 : pos - s->options->rollback;
    uint32_t from = kvb_first_seen(s->group, back);
    return from > s->group->sinks ? from : s->group->sinks;
}

uint64_t kvb_needed_most(const kvb_store *s)
{
    const uint64_t span = s->group->window ? s->group->window - 1 : s->group->chunk - 1;
    return span + s->options->rollback;
}

void kvb_queries_find(const kvb_store *s, const kvb_feed *feed, const uint32_t *seqs, uint32_t n, uint32_t *next)
{
    for (uint32_t i = 0; i < n; i++)
        next[seqs[i]] = kvb_spans_next(&s->account->seq[seqs[i]]);
    for (uint32_t i = feed ? feed->n : 0; i-- > 0;)
        next[feed->seqs[i]] = feed->positions[i];
}

/* Largest held position p0 <= p < p1, + 1; 0: none. */
static uint32_t next_within(const kvb_spans *s, uint32_t p0, uint32_t p1)
{
    uint32_t next = 0;
    for (size_t i = 0; i < s->n; i++) {
        kvb_span part = kvb_span_clip(s->span[i], p0, p1);
        next = part.n ? part.pos + part.n : next;
    }
    return next;
}

/* Checks that sequence `from` still has the rows of all tokens at positions p0 .. p1-1 that a query at `next` sees. */
static int reach_check(kvb_store *s, const kvb_spans *kept, uint32_t from, uint32_t next, uint32_t p0, uint32_t p1)
{
    uint32_t first = kvb_first_seen(s->group, next), sinks = s->group->sinks;
    first = first > sinks ? first : sinks;
    first = first > p0 ? first : p0;
    p1 = p1 < next ? p1 : next;
    if (first >= p1 || kvb_spans_within(&s->account->seq[from], first, p1) == kvb_spans_within(&kept[from], first, p1))
        return 0;
    return kvb_store_fail(s, -ENOTSUP,
                          "a query at position %u would see positions %u .. %u, some of which sequence %u has dropped: "
                          "it keeps %u (rollback) behind those that queries see",
                          next, first, p1 - 1, from, s->options->rollback);
}

int kvb_kept_check(kvb_store *s, const kvb_change *change, const kvb_spans *kept)
{
    const kvb_account *a = s->account;
    int error = 0;
    if (change->kind == KVB_CHANGE_COPY) {
        uint32_t next = kvb_spans_next(&a->seq[change->dst]);
        uint32_t copied = next_within(&a->seq[change->src], change->p0, change->p1);
        return reach_check(s, kept, change->src, next > copied ? next : copied, change->p0, change->p1);
    }
    for (uint32_t i = 0; i < a->n_changed && change->kind == KVB_CHANGE_REMOVE && !error; i++) {
        const uint32_t q = a->changed[i];
        uint32_t next = next_within(&a->seq[q], change->p1, KVB_POS_END);
        next = next ? next : next_within(&a->seq[q], 0, change->p0);
        error = reach_check(s, kept, q, next, 0, next);
    }
    return error;
}

/* Tokens that will be at positions p0 .. p1-1 after the SHIFT. */
static uint32_t shifted_within(const kvb_spans *held, const kvb_change *change, uint32_t p0, uint32_t p1)
{
    const int64_t begin = (int64_t)p0 - change->delta, end = (int64_t)p1 - change->delta;
    const int64_t from = begin > change->p0 ? begin : change->p0, to = end < change->p1 ? end : change->p1;
    const uint32_t low = p0 > change->p0 ? p0 : change->p0, high = p1 < change->p1 ? p1 : change->p1;
    return kvb_spans_within(held, p0, p1) - (low < high ? kvb_spans_within(held, low, high) : 0) +
           (from < to ? kvb_spans_within(held, (uint32_t)from, (uint32_t)to) : 0);
}

int kvb_kept_shift_check(kvb_store *s, const kvb_change *change, const kvb_spans *kept)
{
    const kvb_spans *held = &s->account->seq[change->src];
    const uint32_t next = kvb_spans_next(held), moved = next_within(held, change->p0, change->p1);
    const uint32_t pos = next && moved == next ? next + (uint32_t)change->delta : next;
    const uint32_t first = kvb_first_seen(s->group, pos), sinks = s->group->sinks;
    if (shifted_within(held, change, first, pos) == kvb_spans_within(kept, first, pos) &&
        shifted_within(held, change, 0, sinks) == kvb_spans_within(kept, 0, sinks))
        return 0;
    return kvb_store_fail(s, -ENOTSUP, "a query at position %u would see tokens that sequence %u has dropped", pos,
                          change->src);
}

/* ---- compaction: which row goes where, in an order in which no row is overwritten before it is copied ------------ */

#define NOWHERE UINT32_MAX

/* Gives the cells of a part of a sequence the next new cells. to [old cell], from [new cell]. */
static int part_place(const kvb_store *s, kvb_compaction *k, uint32_t seq, kvb_span part, uint32_t *to, uint32_t *from)
{
    int error = 0;
    for (uint32_t i = 0; i < part.n && !error; i++) {
        uint32_t *place = &to[part.at + i];
        if (*place == NOWHERE) {
            from[k->live] = (uint32_t)part.at + i;
            *place = k->live++;
        }
        error = kvb_spans_reserve(&k->cells[seq], s->allocator, 1);
        if (!error)
            kvb_spans_append(&k->cells[seq], part.pos + i, *place);
    }
    return error;
}

static int sequence_place(const kvb_store *s, kvb_compaction *k, uint32_t seq, const kvb_spans *cells, bool dropped,
                          uint32_t *to, uint32_t *from)
{
    const uint32_t sinks = s->group->sinks, next = kvb_spans_next(&s->account->seq[seq]);
    const uint32_t kept = dropped ? kvb_needed_from(s, next) : 0;
    int error = 0;
    k->cells[seq].n = k->cells[seq].tokens = 0;
    for (size_t i = 0; i < cells->n && !error; i++) {
        if (dropped)
            error = part_place(s, k, seq, kvb_span_clip(cells->span[i], 0, sinks), to, from);
        if (!error)
            error = part_place(s, k, seq, kvb_span_clip(cells->span[i], kept, KVB_POS_END), to, from);
    }
    return error;
}

/* Copies along a chain: cell `at` takes the row of cell from[at], that one the row of its own source, and so on, up to
 * a cell that keeps its row or takes none. */
static int chain_move(kvb_store *s, uint32_t live, uint32_t at, uint32_t *from)
{
    int error = 0;
    while (at < live && from[at] != at && !error) {
        const uint32_t source = from[at];
        error = kvb_store_move(s, source, at);
        from[at] = at;
        at = source;
    }
    return error;
}

/* Copies first the chains that begin at free cells, then circles, through the free cell `live`. */
static int rows_move(kvb_store *s, uint32_t live, const uint32_t *to, uint32_t high_water, uint32_t *from)
{
    int error = 0;
    for (uint32_t at = 0; at < live && !error; at++)
        if (at >= high_water || to[at] == NOWHERE)
            error = chain_move(s, live, at, from);
    for (uint32_t at = 0; at < live && !error; at++) {
        if (from[at] == at)
            continue;
        error = kvb_store_move(s, at, live);
        from[to[at]] = live;
        if (!error)
            error = chain_move(s, live, at, from);
    }
    return error;
}

int kvb_compact(kvb_store *s, kvb_compaction *k, const kvb_spans *cells, uint32_t high_water, bool dropped)
{
    const kvb_account *a = s->account;
    k->live = 0;
    if (!k->cells && !(k->cells = kvb_alloc_zeroed(s->allocator, a->n_ids * sizeof *k->cells)))
        return -ENOMEM;
    int error = kvb_grow(s->allocator, &k->scratch, &k->scratch_room, (size_t)a->n_alive + 2 * (size_t)high_water);
    if (error || a->n_alive == 0)
        return error;
    uint32_t *seqs = k->scratch, *to = seqs + a->n_alive, *from = to + high_water;
    memcpy(seqs, a->alive, a->n_alive * sizeof *seqs);
    kvb_ids_sort(seqs, a->n_alive);
    for (uint32_t cell = 0; cell < high_water; cell++)
        to[cell] = NOWHERE;
    for (uint32_t i = 0; i < a->n_alive && !error; i++)
        error = sequence_place(s, k, seqs[i], &cells[seqs[i]], dropped, to, from);
    if (!error && k->live == s->pool_cells)
        return kvb_store_fail(s, -ENOSPC, "none of %u cells is free, by which rows could trade places", s->pool_cells);
    return error ? error : rows_move(s, k->live, to, high_water, from);
}

void kvb_compaction_close(const kvb_store *s, kvb_compaction *k)
{
    for (uint32_t q = 0; q < s->account->n_ids && k->cells; q++)
        kvb_spans_free(&k->cells[q], s->allocator);
    kvb_free(s->allocator, k->cells, s->account->n_ids * sizeof *k->cells);
    kvb_free(s->allocator, k->scratch, k->scratch_room * sizeof *k->scratch);
}
