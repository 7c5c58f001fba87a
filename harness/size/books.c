/* SPDX-License-Identifier: Apache-2.0 */
/* What each step of a history asks of the tables of each cache. No cell is freed in such a history. */
#include "harness/size/books.h"

/* Bytes of an item: cells, positions, ordinals; where a query's runs begin; begin and end of a run. */
static const uint64_t plan_item[KVB_BOOKS_OF_PLAN] = {4 + 4 + 8, 4, 4 + 4};
static const uint64_t own_item[KVB_BOOKS_OF_CACHE] = {
    [KVB_BOOK_LEDGER] = 8 + 4 + 8,   /* ordinal, position, set of sequences */
    [KVB_BOOK_FED_SEQS] = 8,         /* set of sequences */
    [KVB_BOOK_CELLS] = 4 + 8,        /* position, set of sequences */
    [KVB_BOOK_SEGMENTS] = 4 + 4 + 4, /* begin, end, position */
    [KVB_BOOK_NODES] = 4 + 4 + 4,    /* parent, depth, path */
    [KVB_BOOK_MOVES] = 4,
};

uint64_t kvb_books_bytes(const kvb_books *b)
{
    uint64_t bytes = 0;
    for (int i = 0; i < KVB_BOOKS_OF_PLAN; i++)
        bytes += (b->plan[0][i] + b->plan[1][i]) * plan_item[i];
    for (int i = 0; i < KVB_BOOKS_OF_CACHE; i++)
        bytes += b->own[i] * own_item[i];
    return bytes;
}

/* ---- how a table grows -------------------------------------------------------------------------------------- */

/* Room for from + stride, from + 2 stride, … to items, asked for in turn: 16 at first, then twice what there was, or as
 * much as is asked. */
static void reach(uint64_t *room, uint64_t from, uint64_t to, uint64_t stride)
{
    while (*room < to) {
        uint64_t need = *room < from ? from + stride : from + (*room - from) / stride * stride + stride;
        uint64_t want = *room < 16 ? 16 : *room * 2;
        *room = want < need ? need : want;
    }
}

static void need(uint64_t *room, uint64_t n)
{
    reach(room, 0, n, n);
}

static void append(uint64_t *room, uint64_t n)
{
    reach(room, 0, n, 1);
}

/* Equal plans for n fed tokens each; runs: of the mask, 0 where it is dense. */
static void plans_take(kvb_books *b, uint64_t n, uint64_t runs, uint64_t times)
{
    for (uint64_t i = 0; i < times && i < 2; i++) {
        uint64_t *room = b->plan[(b->turn + i) % 2];
        need(&room[KVB_BOOK_FED], n);
        need(&room[KVB_BOOK_ROW_STARTS], n + 1);
        append(&room[KVB_BOOK_RUNS], runs);
    }
    b->turn = (b->turn + times) % 2;
}

static void cells_ask(kvb_books *b, uint64_t cells)
{
    b->cells = b->cells < cells ? cells : b->cells;
}

/* ---- one sequence in order: contiguous, tree ------------------------------------------------------------------ */

static void contiguous_take(kvb_books *b, const kvb_size_step *s, uint64_t times)
{
    plans_take(b, s->tokens, 0, times);
    b->tokens += s->tokens * times;
    cells_ask(b, b->tokens);
}

static void tree_take(kvb_books *b, const kvb_size_step *s, uint64_t times)
{
    uint64_t n = s->drafts;
    if (!n) {
        contiguous_take(b, s, times);
        return;
    }
    /* A single root is a chain. Else each root sees the prefix and itself; the first one's cell follows the prefix. */
    plans_take(b, n, n == 1 ? 0 : b->tokens ? 2 * n - 1 : n, times);
    need(&b->own[KVB_BOOK_NODES], n);
    need(&b->own[KVB_BOOK_MOVES], n);
    cells_ask(b, b->tokens + n);
    b->tokens++;
}

/* ---- several sequences ---------------------------------------------------------------------------------------- */

/* A row each: dense where the only sequence of a step owns the first row, else a run for each query. */
static void slab_take(kvb_books *b, const kvb_size_step *s, uint64_t times)
{
    uint64_t n = (uint64_t)s->n_seqs * s->tokens;
    if (!b->tokens)
        b->oldest = s->first;
    plans_take(b, n, s->n_seqs == 1 && s->first == b->oldest ? 0 : n, times);
    b->tokens += n * times;
}

/* Cells one after the other: what a sequence gets in one go is a segment, joined to the last if it follows it. A query
 * sees all segments of its sequence, a run each. */
static void seq_take(kvb_books *b, const kvb_size_step *s, uint64_t times)
{
    uint64_t n = (uint64_t)s->n_seqs * s->tokens, start = b->tokens, segments = 0;
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        uint32_t seq = s->first + i;
        uint64_t cell = start + (uint64_t)i * s->tokens;
        if (!b->seq[seq].tokens || b->seq[seq].end != cell)
            b->seq[seq].segments++;
        b->seq[seq].tokens += s->tokens * times;
        b->seq[seq].end = cell + s->tokens * times;
        segments += b->seq[seq].segments;
    }
    b->tokens += n * times;
    cells_ask(b, b->tokens);
    reach(&b->own[KVB_BOOK_CELLS], start, b->tokens, n);
    bool alone = s->n_seqs == 1 && b->seq[s->first].tokens == b->tokens;
    if (!alone)
        append(&b->own[KVB_BOOK_SEGMENTS], segments);
    plans_take(b, n, alone ? 0 : segments * s->tokens, times);
}

/* The whole history of the step's sequences is fed again, one sequence after the other, the new tokens last. An old token
 * sees one run, a new one also its own cell, unless that follows its sequence. */
static void recompute_take(kvb_books *b, const kvb_size_step *s, uint64_t times)
{
    uint64_t n = (uint64_t)s->n_seqs * s->tokens, old = 0, segments = 0, runs, end = 0;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        old += b->seq[s->first + i].tokens;
    runs = old;
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        uint64_t had = b->seq[s->first + i].tokens;
        end += had;
        uint64_t pieces = had && end != old + i ? 2 : 1;
        segments += pieces;
        runs += pieces;
        b->seq[s->first + i].tokens += s->tokens * times;
    }
    need(&b->own[KVB_BOOK_FED_SEQS], old + n);
    need(&b->own[KVB_BOOK_LEDGER], b->tokens + n);
    if (s->n_seqs > 1)
        append(&b->own[KVB_BOOK_SEGMENTS], segments);
    plans_take(b, old + n, s->n_seqs > 1 ? runs : 0, times);
    b->tokens += n * times;
    cells_ask(b, old + n);
}

const kvb_bookkeeping kvb_bookkeepings[] = {
    {&kvb_cache_recompute, .take = recompute_take},
    {&kvb_cache_slab, .take = slab_take, .at_once = true, .preallocated = true},
    {&kvb_cache_contig, .take = contiguous_take, .at_once = true},
    {&kvb_cache_seq_cells, .take = seq_take, .at_once = true},
    {&kvb_cache_tree_nodes, .take = tree_take, .at_once = true},
    {.cache = NULL},
};
