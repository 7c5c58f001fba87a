/* SPDX-License-Identifier: Apache-2.0 */
/* Cells that lie in order again: which row goes where, and in which order, so that no row is written over before it is
 * copied. */
#include "caches/stores/compact.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "caches/stores/kept.h"

#define NOWHERE UINT32_MAX

static int by_id(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* A part of a sequence takes the next free numbers. to [old cell], from [new cell]. */
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

/* Along a row of cells, each of which takes the row of the one that it names, up to one that names itself or none. */
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

/* First the cells that are free, and what follows from them; then circles, by way of the free cell `live`. */
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
    qsort(seqs, a->n_alive, sizeof *seqs, by_id);
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
