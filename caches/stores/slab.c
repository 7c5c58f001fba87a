/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab: max_seqs rows of seq_capacity cells, all allocated at open. A live sequence has a row of its own; position p
 * lies in cell p of that row. A fork copies cells, and no two sequences share one. In a reordering the first
 * destination of a source that is itself overwritten takes over its row; the others get copies.
 */
#include "caches/cache.h"

#include <errno.h>

typedef struct slab_store {
    kvb_store store;
    uint32_t *row;   /* [n_ids] a sequence's row + 1; 0: none */
    uint32_t *to;    /* [n_ids] REORDER: the destinations' rows afterwards, as `row` */
    uint32_t *owner; /* [max_seqs] the sequence of a row in use */
    uint64_t *taken; /* set of rows in use */
    kvb_spans cells; /* of one sequence, for masks */
} slab_store;

static uint64_t pool_cells(const kvb_store *s)
{
    return (uint64_t)s->options->max_seqs * s->options->seq_capacity;
}

static size_t taken_words(const kvb_store *s)
{
    return ((size_t)s->options->max_seqs + 63) / 64;
}

static void store_close(kvb_store *s)
{
    slab_store *slab = (slab_store *)s;
    kvb_free(s->allocator, slab->row, s->account->n_ids * sizeof *slab->row);
    kvb_free(s->allocator, slab->to, s->account->n_ids * sizeof *slab->to);
    kvb_free(s->allocator, slab->owner, s->options->max_seqs * sizeof *slab->owner);
    kvb_free(s->allocator, slab->taken, taken_words(s) * sizeof *slab->taken);
    kvb_spans_free(&slab->cells, s->allocator);
}

static int store_open(kvb_store *s)
{
    slab_store *slab = (slab_store *)s;
    slab->row = kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *slab->row);
    slab->to = kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *slab->to);
    slab->owner = kvb_alloc_zeroed(s->allocator, s->options->max_seqs * sizeof *slab->owner);
    slab->taken = kvb_alloc_zeroed(s->allocator, taken_words(s) * sizeof *slab->taken);
    if (slab->row && slab->to && slab->owner && slab->taken)
        return 0;
    store_close(s);
    return -ENOMEM;
}

/* The cell of a position; row: number of the row + 1. */
static uint32_t cell_in(const slab_store *slab, uint32_t row, uint32_t pos)
{
    return (row - 1) * slab->store.options->seq_capacity + pos;
}

static uint32_t cell_of(const slab_store *slab, uint32_t seq, uint32_t pos)
{
    return cell_in(slab, slab->row[seq], pos);
}

/* The high-water mark lies in the last row in use. */
static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    const slab_store *slab = (const slab_store *)s;
    size_t words = taken_words(s);
    *cells = s->account->held;
    *high_water = 0;
    while (words > 0 && !slab->taken[words - 1])
        words--;
    if (words > 0) {
        uint32_t seq = slab->owner[64 * words - 1 - (size_t)__builtin_clzll(slab->taken[words - 1])];
        *high_water = cell_of(slab, seq, kvb_spans_next(&s->account->seq[seq]));
    }
}

/* Takes the lowest free row; returns it + 1. There is one, since at most max_seqs sequences are alive. */
static uint32_t row_find(slab_store *slab)
{
    size_t word = 0;
    while (!~slab->taken[word])
        word++;
    uint32_t row = (uint32_t)(64 * word) + (uint32_t)__builtin_ctzll(~slab->taken[word]);
    slab->taken[word] |= (uint64_t)1 << row % 64;
    return row + 1;
}

/* Takes a row for a new sequence. */
static void row_take(slab_store *slab, uint32_t seq)
{
    slab->row[seq] = row_find(slab);
    slab->owner[slab->row[seq] - 1] = seq;
}

/* Marks a row (+ 1; 0 is nothing) as taken or free. */
static void row_mark(slab_store *slab, uint32_t row, bool taken)
{
    uint64_t bit = row ? (uint64_t)1 << (row - 1) % 64 : 0;
    if (taken && row)
        slab->taken[(row - 1) / 64] |= bit;
    else if (row)
        slab->taken[(row - 1) / 64] &= ~bit;
}

static void row_give(slab_store *slab, uint32_t seq)
{
    row_mark(slab, slab->row[seq], false);
    slab->row[seq] = 0;
}

/* Lists the cells of a sequence in slab->cells. */
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

/* Requests copies of a sequence's cells in row `to` (+ 1). */
static int rows_copy(slab_store *slab, uint32_t src, uint32_t to)
{
    const kvb_spans *held = &slab->store.account->seq[src];
    int error = 0;
    for (size_t i = 0; i < held->n; i++)
        for (uint32_t p = held->span[i].pos, end = p + held->span[i].n; p < end && !error; p++)
            error = kvb_store_move(&slab->store, cell_of(slab, src, p), cell_in(slab, to, p));
    return error;
}

/* A row whose sequence is overwritten goes to the first destination of that sequence; if there is none, it is free for
 * copies. No copy reads a row that is written, so the order of copies does not matter. */
static int reorder_prepare(slab_store *slab, const kvb_change *change)
{
    const kvb_account *a = slab->store.account;
    uint64_t held = a->held;
    int error = 0;
    for (uint32_t i = 0; i < change->n; i++) {
        held += (uint64_t)a->seq[change->srcs[i]].tokens - a->seq[change->dsts[i]].tokens;
        row_mark(slab, slab->row[change->dsts[i]], false);
        slab->to[change->dsts[i]] = 0;
    }
    for (uint32_t i = 0; i < change->n; i++) {
        const uint32_t row = slab->row[change->srcs[i]];
        if (!row || slab->taken[(row - 1) / 64] >> (row - 1) % 64 & 1)
            continue;
        slab->to[change->dsts[i]] = row;
        row_mark(slab, row, true);
    }
    if (held > slab->store.options->capacity)
        return kvb_store_fail(&slab->store, -ENOSPC, "no room to reorder: %llu cells are wanted of %u",
                              (unsigned long long)held, slab->store.options->capacity);
    for (uint32_t i = 0; i < change->n && !error; i++) {
        uint32_t *to = &slab->to[change->dsts[i]];
        if (*to || !slab->row[change->srcs[i]])
            continue;
        *to = row_find(slab);
        error = rows_copy(slab, change->srcs[i], *to);
    }
    return error;
}

static int lies(kvb_store *s, uint32_t seq, kvb_spans *cells)
{
    slab_store *slab = (slab_store *)s;
    if (!slab->row[seq])
        return 0;
    int error = cells_find(slab, seq);
    if (!error)
        error = kvb_spans_reserve(cells, s->allocator, slab->cells.n);
    if (!error)
        kvb_spans_add(cells, &slab->cells, 0, KVB_POS_END);
    return error;
}

/* Copies rows to the cells of their new positions; those that move up from the last one backwards, so that none is
 * overwritten before it is copied. */
static int shift_prepare(slab_store *slab, const kvb_change *change)
{
    kvb_store *s = &slab->store;
    const kvb_spans *held = &s->account->seq[change->src];
    int error = 0;
    for (size_t i = 0; i < held->n; i++) {
        const kvb_span part =
            kvb_span_clip(held->span[change->delta < 0 ? i : held->n - 1 - i], change->p0, change->p1);
        for (uint32_t j = 0; j < part.n && !error; j++) {
            const uint32_t pos = part.pos + (change->delta < 0 ? j : part.n - 1 - j);
            const uint32_t to = cell_of(slab, change->src, pos + (uint32_t)change->delta);
            error = kvb_store_move(s, cell_of(slab, change->src, pos), to);
            if (!error)
                error = kvb_store_turn(s, to, change->delta);
        }
    }
    return error;
}

/* The row in which a sequence of a whole saved cache lay; UINT32_MAX: its cells are not in one row. */
static uint32_t row_lay(const kvb_store *s, const kvb_spans *rows)
{
    const uint32_t length = s->options->seq_capacity;
    uint32_t row = UINT32_MAX;
    for (size_t i = 0; i < rows->n; i++) {
        const kvb_span *span = &rows->span[i];
        const uint64_t first = span->at - span->pos; /* wraps where it is no row */
        if (span->at < span->pos || first % length || first / length >= s->options->max_seqs ||
            (i && first / length != row))
            return UINT32_MAX;
        row = (uint32_t)(first / length);
    }
    return row;
}

static int whole_check(kvb_store *s, const kvb_account *loaded)
{
    for (uint32_t i = 0; i < loaded->n_alive; i++) {
        bool right = row_lay(s, &s->load->rows[i]) != UINT32_MAX;
        for (uint32_t other = 0; other < i && right; other++)
            right = row_lay(s, &s->load->rows[other]) != row_lay(s, &s->load->rows[i]);
        if (!right)
            return kvb_store_fail(s, -EINVAL, "sequence %u does not lie in a row of its own", loaded->alive[i]);
    }
    return 0;
}

static int load_prepare(slab_store *slab, const kvb_change *change)
{
    kvb_store *s = &slab->store;
    const bool whole = change->src == KVB_SEQ_ALL;
    const uint32_t used = whole ? 0 : s->account->held, n = change->loaded->held;
    int error = whole ? whole_check(s, change->loaded) : 0;
    if (!error && n > s->options->capacity - used)
        error =
            kvb_store_fail(s, -ENOSPC, "no room for %u rows: %u of %u cells are in use", n, used, s->options->capacity);
    if (error || whole || !n)
        return error;
    row_take(slab, change->src);
    for (size_t i = 0; i < s->load->rows->n; i++) {
        const kvb_span *span = &s->load->rows->span[i];
        for (uint32_t j = 0; j < span->n && !error; j++)
            error = kvb_store_move(s, (uint32_t)span->at + j, cell_of(slab, change->src, span->pos + j));
    }
    return error;
}

static void reorder_adopt(slab_store *slab, const kvb_change *change)
{
    for (uint32_t i = 0; i < change->n; i++) {
        const uint32_t dst = change->dsts[i], row = slab->to[dst];
        slab->row[dst] = row;
        if (row)
            slab->owner[row - 1] = dst;
    }
}

/* Gives each loaded sequence the row that it had. */
static void whole_adopt(slab_store *slab, const kvb_account *loaded)
{
    const kvb_store *s = &slab->store;
    for (uint32_t i = 0; i < s->account->n_changed; i++)
        row_give(slab, s->account->changed[i]);
    for (uint32_t i = 0; i < loaded->n_alive; i++) {
        const uint32_t row = row_lay(s, &s->load->rows[i]);
        slab->taken[row / 64] |= (uint64_t)1 << row % 64;
        slab->row[loaded->alive[i]] = row + 1;
        slab->owner[row] = loaded->alive[i];
    }
}

/* Gives back the rows that the change has taken. */
static void undo(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    (void)plan;
    for (uint32_t i = 0; i < (feed ? feed->n : 0); i++)
        if (feed->positions[i] == 0)
            row_give((slab_store *)s, feed->seqs[i]);
    if (change->kind == KVB_CHANGE_COPY && !s->account->seq[change->dst].tokens)
        row_give((slab_store *)s, change->dst);
    for (uint32_t i = 0; i < change->n && change->kind == KVB_CHANGE_REORDER; i++)
        row_mark((slab_store *)s, ((slab_store *)s)->to[change->dsts[i]], false);
    for (uint32_t i = 0; i < change->n && change->kind == KVB_CHANGE_REORDER; i++)
        row_mark((slab_store *)s, ((slab_store *)s)->row[change->dsts[i]], true);
    if (change->kind == KVB_CHANGE_LOAD && change->src != KVB_SEQ_ALL)
        row_give((slab_store *)s, change->src);
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    slab_store *slab = (slab_store *)s;
    int error = change->kind == KVB_CHANGE_STEP      ? step_prepare(slab, feed, plan)
                : change->kind == KVB_CHANGE_COPY    ? copy_prepare(slab, change)
                : change->kind == KVB_CHANGE_REORDER ? reorder_prepare(slab, change)
                : change->kind == KVB_CHANGE_SHIFT   ? shift_prepare(slab, change)
                : change->kind == KVB_CHANGE_LOAD    ? load_prepare(slab, change)
                                                     : 0;
    if (error)
        undo(s, change, feed, plan);
    return error;
}

static void adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    (void)feed, (void)plan;
    if (change->kind == KVB_CHANGE_REORDER)
        reorder_adopt((slab_store *)s, change);
    if (change->kind == KVB_CHANGE_LOAD && change->src == KVB_SEQ_ALL)
        whole_adopt((slab_store *)s, change->loaded);
    for (uint32_t i = 0; i < s->account->n_changed; i++)
        if (!s->account->seq[s->account->changed[i]].tokens)
            row_give((slab_store *)s, s->account->changed[i]);
}

const kvb_cache_type kvb_cache_slab = {
    .name = "slab",
    .summary = "one preallocated row for each sequence; a fork copies",
    .flags = KVB_CACHE_SEQ | KVB_CACHE_REORDER | KVB_CACHE_PREALLOCATES | KVB_CACHE_SHIFT | KVB_CACHE_SAVES,
    .store_bytes = sizeof(slab_store),
    .open = store_open,
    .close = store_close,
    .pool_cells = pool_cells,
    .occupied = occupied,
    .lies = lies,
    .prepare = prepare,
    .undo = undo,
    .adopt = adopt,
};
