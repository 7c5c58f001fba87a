/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab: max_seqs rows of seq_capacity cells, all reserved at open. A sequence alive has a row of its own and its position p lies
 * in cell p of it: a fork copies rows, and no two sequences ever share a cell.
 */
#include "caches/cache.h"

#include <errno.h>

typedef struct slab_store {
    kvb_store store;
    uint64_t taken;             /* set of rows in use */
    uint32_t row[KVB_MAX_SEQS]; /* of sequences alive */
    uint64_t next_taken;        /* as they will be: prepared */
    uint32_t next_row[KVB_MAX_SEQS];
    kvb_spans cells; /* of one sequence, for masks */
} slab_store;

static uint64_t pool_cells(const kvb_store *s)
{
    return (uint64_t)s->options->max_seqs * s->options->seq_capacity;
}

static void store_close(kvb_store *s)
{
    kvb_spans_free(&((slab_store *)s)->cells, s->allocator);
}

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    const slab_store *slab = (const slab_store *)s;
    *cells = *high_water = 0;
    for (uint32_t q = 0; q < KVB_MAX_SEQS; q++) {
        const kvb_spans *held = &s->account->seq[q];
        uint32_t end = slab->row[q] * s->options->seq_capacity + kvb_spans_next(held);
        *cells += held->tokens;
        if (held->tokens && *high_water < end)
            *high_water = end;
    }
}

/* A row for a sequence that comes to life: the lowest free one. There is one, since no more than max_seqs are alive. */
static void row_take(slab_store *slab, uint32_t seq)
{
    slab->next_row[seq] = (uint32_t)__builtin_ctzll(~slab->next_taken);
    slab->next_taken |= (uint64_t)1 << slab->next_row[seq];
}

static uint32_t cell_of(const slab_store *slab, uint32_t seq, uint32_t pos)
{
    return slab->next_row[seq] * slab->store.options->seq_capacity + pos;
}

/* The cells of a sequence: its positions, moved to its row. */
static int cells_find(slab_store *slab, uint32_t seq)
{
    const kvb_spans *held = &slab->store.account->seq[seq];
    slab->cells.n = 0;
    int error = kvb_spans_reserve(&slab->cells, slab->store.allocator, held->n);
    for (size_t i = 0; i < held->n && !error; i++)
        slab->cells.span[slab->cells.n++] =
            (kvb_span){cell_of(slab, seq, held->span[i].pos), held->span[i].pos, held->span[i].n};
    return error;
}

static int step_prepare(slab_store *slab, const kvb_feed *feed, kvb_plan *plan)
{
    int error = 0;
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        uint32_t seq = feed->seqs[i], pos = feed->positions[i];
        if (pos == 0) /* its first token */
            row_take(slab, seq);
        plan->cells[i] = cell_of(slab, seq, pos);
        if (i == 0 || seq != feed->seqs[i - 1])
            error = cells_find(slab, seq);
        if (!error)
            error = kvb_plan_attend(plan, slab->store.group, &slab->cells, pos);
    }
    return error;
}

static int copy_prepare(slab_store *slab, const kvb_change *change)
{
    kvb_store *s = &slab->store;
    const kvb_spans *src = &s->account->seq[change->src];
    uint32_t used, high_water, n = 0;
    int error = 0;
    for (size_t i = 0; i < src->n; i++)
        n += kvb_span_clip(src->span[i], change->p0, change->p1).n;
    occupied(s, &used, &high_water);
    if (n > s->options->capacity - used)
        return kvb_store_fail(s, -ENOSPC, "no room to clone %u tokens: %u of %u cells are in use", n, used,
                              s->options->capacity);
    if (n && !s->account->seq[change->dst].tokens)
        row_take(slab, change->dst);
    for (size_t i = 0; i < src->n; i++) {
        kvb_span part = kvb_span_clip(src->span[i], change->p0, change->p1);
        for (uint32_t p = part.pos; p < part.pos + part.n && !error; p++)
            error = kvb_store_move(s, cell_of(slab, change->src, p), cell_of(slab, change->dst, p));
    }
    return error;
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    slab_store *slab = (slab_store *)s;
    slab->next_taken = slab->taken;
    for (uint32_t q = 0; q < KVB_MAX_SEQS; q++)
        slab->next_row[q] = slab->row[q];
    return change->kind == KVB_CHANGE_STEP   ? step_prepare(slab, feed, plan)
           : change->kind == KVB_CHANGE_COPY ? copy_prepare(slab, change)
                                             : 0;
}

static void adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    slab_store *slab = (slab_store *)s;
    (void)change, (void)feed, (void)plan;
    slab->taken = 0;
    for (uint32_t q = 0; q < KVB_MAX_SEQS; q++) {
        slab->row[q] = slab->next_row[q];
        if (s->account->seq[q].tokens)
            slab->taken |= (uint64_t)1 << slab->row[q];
    }
}

const kvb_cache_type kvb_cache_slab = {
    .name = "slab",
    .summary = "one preallocated row for each sequence; a fork copies",
    .flags = KVB_CACHE_SEQ | KVB_CACHE_PREALLOCATES,
    .store_bytes = sizeof(slab_store),
    .close = store_close,
    .pool_cells = pool_cells,
    .occupied = occupied,
    .prepare = prepare,
    .adopt = adopt,
};
