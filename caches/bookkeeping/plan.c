/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds, of new tokens and of whole histories; plans. */
#include "caches/bookkeeping/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int kvb_feed_open(kvb_feed *f, kvb_allocator *a, uint32_t n_ids)
{
    f->seen = n_ids ? kvb_alloc_zeroed(a, n_ids * sizeof *f->seen) : NULL;
    f->n_seen = f->seen ? n_ids : 0;
    return n_ids && !f->seen ? -ENOMEM : 0;
}

static int room_make(kvb_feed *f, kvb_allocator *a, size_t n)
{
    int error = kvb_grow(a, &f->ordinals, &f->ordinals_room, n);
    if (!error)
        error = kvb_grow(a, &f->positions, &f->positions_room, n);
    return error ? error : kvb_grow(a, &f->seqs, &f->seqs_room, n);
}

void kvb_feed_close(kvb_feed *f, kvb_allocator *a)
{
    kvb_free(a, f->ordinals, f->ordinals_room * sizeof *f->ordinals);
    kvb_free(a, f->positions, f->positions_room * sizeof *f->positions);
    kvb_free(a, f->seqs, f->seqs_room * sizeof *f->seqs);
    kvb_free(a, f->node, f->node_room * sizeof *f->node);
    for (uint32_t s = 0; s < f->n_seen; s++)
        kvb_spans_free(&f->seen[s], a);
    kvb_free(a, f->seen, f->n_seen * sizeof *f->seen);
    *f = (kvb_feed){0};
}

/* ---- whole histories ------------------------------------------------------------------------------------ */

typedef struct history {
    kvb_feed *feed;
    kvb_allocator *allocator;
    uint64_t first_new; /* ordinal */
    uint32_t n_old;     /* old tokens counted, or fed, so far */
    int error;
} history;

/* How many of these tokens with consecutive ordinals are not new. */
static uint32_t old_of(const history *h, kvb_span tokens)
{
    uint64_t old = tokens.at < h->first_new ? h->first_new - tokens.at : 0;
    return old < tokens.n ? (uint32_t)old : tokens.n;
}

static void tokens_count(void *ctx, uint32_t seq, uint32_t holder, kvb_span tokens)
{
    history *h = ctx;
    h->n_old += holder == seq ? old_of(h, tokens) : 0;
}

/* The place in the feed of the token at that position of another sequence. */
static uint64_t place_of(const kvb_spans *s, uint32_t pos)
{
    size_t i = 0;
    while (s->span[i].pos + s->span[i].n <= pos)
        i++;
    return s->span[i].at + (pos - s->span[i].pos);
}

static void tokens_feed(void *ctx, uint32_t seq, uint32_t holder, kvb_span tokens)
{
    history *h = ctx;
    kvb_feed *f = h->feed;
    for (uint32_t i = 0, old = old_of(h, tokens); i < tokens.n; i++) {
        uint32_t pos = tokens.pos + i;
        uint64_t at = f->n - f->n_new + (tokens.at + i - h->first_new);
        if (!h->error)
            h->error = kvb_spans_reserve(&f->seen[seq], h->allocator, 1);
        if (h->error)
            return;
        if (holder != seq) {
            at = place_of(&f->seen[holder], pos);
        } else if (i < old) {
            at = h->n_old++;
            f->ordinals[at] = tokens.at + i;
            f->positions[at] = pos;
            f->seqs[at] = seq;
        }
        kvb_spans_append(&f->seen[seq], pos, at);
    }
}

static bool is_changed(const kvb_account *a, uint32_t seq)
{
    uint32_t i = 0;
    while (i < a->n_changed && a->changed[i] != seq)
        i++;
    return i < a->n_changed;
}

/* Places in the feed of the nodes of the proposal's sequences: those pending before begin at `at`, the new ones are the
 * last of the feed. Returns the number of those pending before. */
static uint32_t nodes_place(kvb_feed *f, const kvb_account *a, uint32_t n_new, uint32_t at)
{
    const uint32_t first = at, before = a->n_nodes - n_new;
    for (uint32_t i = 0; i < before; i++)
        f->node[i] = is_changed(a, a->node[i].seq) ? at++ : UINT32_MAX;
    for (uint32_t i = before; i < a->n_nodes; i++)
        f->node[i] = at + (i - before);
    return at - first;
}

/* Puts the old tokens in front of the new ones, which are admitted already. */
static int history_make(kvb_feed *f, kvb_account *account, const kvb_change *change)
{
    history h = {.feed = f, .allocator = account->allocator, .first_new = account->next_ordinal - change->n};
    const bool proposes = change->kind == KVB_CHANGE_PROPOSE;
    int error = proposes ? kvb_grow(account->allocator, &f->node, &f->node_room, account->n_nodes) : 0;
    if (error)
        return error;
    kvb_ids_sort(account->changed, account->n_changed);
    for (uint32_t i = 0; i < account->n_changed; i++)
        f->seen[account->changed[i]].n = f->seen[account->changed[i]].tokens = 0;
    kvb_account_visit(account, account->changed, account->n_changed, tokens_count, &h);
    const uint32_t nodes = proposes ? nodes_place(f, account, change->n, h.n_old) : 0, old = h.n_old + nodes;
    error = room_make(f, account->allocator, (size_t)old + change->n);
    if (error)
        return error;
    f->n = old + change->n;
    memmove(f->positions + old, f->positions, change->n * sizeof *f->positions);
    h.n_old = 0;
    kvb_account_visit(account, account->changed, account->n_changed, tokens_feed, &h);
    for (uint32_t i = 0; proposes && i < account->n_nodes - change->n; i++) {
        const kvb_node *node = &account->node[i];
        const uint32_t at = f->node[i];
        if (at == UINT32_MAX)
            continue;
        f->ordinals[at] = node->ordinal;
        f->positions[at] = kvb_spans_next(&account->seq[node->seq]) + node->depth;
        f->seqs[at] = node->seq;
    }
    return h.error;
}

int kvb_feed_make(kvb_feed *f, kvb_account *account, const kvb_change *change)
{
    uint64_t first = account->next_ordinal;
    uint32_t n = change->n;
    int error = room_make(f, account->allocator, n);
    if (error)
        return error;
    f->n = f->n_new = n;
    kvb_account_admit(account, change, f->positions);
    if (f->seen)
        error = history_make(f, account, change);
    if (error)
        kvb_account_withdraw(account, change, kvb_feed_new(f));
    for (uint32_t i = 0; i < n && !error; i++) {
        f->ordinals[f->n - n + i] = first + i;
        f->seqs[f->n - n + i] = kvb_change_seq(change, i);
    }
    return error;
}

/* ---- plans: from positions to runs of cells, and from runs to the simplest mask ------------------------------ */

int kvb_plan_start(kvb_plan *p, uint32_t n)
{
    p->n = n;
    p->n_rows = p->n_runs = p->extent = p->page_cells = 0;
    p->n_pages = 0;
    p->table = NULL;
    int error = kvb_grow(p->allocator, &p->cells, &p->cells_room, n);
    if (!error)
        error = kvb_grow(p->allocator, &p->row_start, &p->row_start_room, (size_t)n + 1);
    if (!error)
        p->row_start[0] = 0;
    return error;
}

void kvb_plan_close(kvb_plan *p)
{
    kvb_free(p->allocator, p->cells, p->cells_room * sizeof *p->cells);
    kvb_free(p->allocator, p->row_start, p->row_start_room * sizeof *p->row_start);
    kvb_free(p->allocator, p->runs, p->runs_room * sizeof *p->runs);
    kvb_free(p->allocator, p->path, p->path_room * sizeof *p->path);
    kvb_free(p->allocator, p->pages, p->pages_room * sizeof *p->pages);
    kvb_spans_free(&p->seen, p->allocator);
    *p = (kvb_plan){.allocator = p->allocator};
}

uint32_t kvb_first_seen(const kvb_group *g, uint32_t pos)
{
    if (g->window)
        return pos < g->window ? 0 : pos + 1 - g->window;
    return g->chunk ? pos / g->chunk * g->chunk : 0;
}

/* Adds a run, for which there is room; joins neighbours. */
static void run_add(kvb_plan *p, kvb_span cells)
{
    uint32_t begin = (uint32_t)cells.at, end = begin + cells.n;
    if (cells.n == 0)
        return;
    if (p->n_runs > p->row_start[p->n_rows] && p->runs[p->n_runs - 1].end == begin)
        p->runs[p->n_runs - 1].end = end;
    else
        p->runs[p->n_runs++] = (kvb_run){begin, end};
}

static int run_compare(const void *a, const void *b)
{
    const kvb_run *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Sorts the runs of the current query and joins neighbours. */
static void runs_settle(kvb_plan *p)
{
    uint32_t first = p->row_start[p->n_rows], kept = first;
    bool ascending = true;
    for (uint32_t i = first + 1; i < p->n_runs; i++)
        ascending = ascending && p->runs[i - 1].end < p->runs[i].begin;
    if (ascending)
        return;
    qsort(p->runs + first, p->n_runs - first, sizeof *p->runs, run_compare);
    for (uint32_t i = first; i < p->n_runs; i++) {
        if (kept > first && p->runs[kept - 1].end == p->runs[i].begin)
            p->runs[kept - 1].end = p->runs[i].end;
        else
            p->runs[kept++] = p->runs[i];
    }
    p->n_runs = kept;
}

int kvb_plan_attend(kvb_plan *p, const kvb_group *g, const kvb_spans *spans, uint32_t pos)
{
    uint32_t first = kvb_first_seen(g, pos), sinks = g->sinks < first ? g->sinks : first;
    assert(p->n_rows < p->n);
    if (p->n_runs > UINT32_MAX - 1 - spans->n) /* row_start counts in 32 bits */
        return -ENOMEM;
    int error = kvb_grow(p->allocator, &p->runs, &p->runs_room, p->n_runs + spans->n + 1);
    if (error)
        return error;
    for (size_t i = 0; i < spans->n && spans->span[i].pos <= pos; i++) {
        run_add(p, kvb_span_clip(spans->span[i], 0, sinks));
        run_add(p, kvb_span_clip(spans->span[i], first, pos + 1));
    }
    if (!kvb_group_limits(g))
        runs_settle(p);
    p->row_start[++p->n_rows] = p->n_runs;
    return 0;
}

int kvb_plan_attend_node(kvb_plan *p, const kvb_group *g, const kvb_account *account, const kvb_spans *prefix,
                         uint32_t base, const uint32_t *cells, uint32_t node, uint32_t pos)
{
    const uint32_t depth = account->node[node].depth, root = pos - depth;
    p->seen.n = p->seen.tokens = 0;
    int error = kvb_grow(p->allocator, &p->path, &p->path_room, (size_t)depth + 1);
    if (!error)
        error = kvb_spans_reserve(&p->seen, p->allocator, prefix->n + depth + 1);
    if (error)
        return error;
    kvb_spans_add(&p->seen, prefix, 0, KVB_POS_END);
    kvb_account_path(account, node, p->path);
    for (uint32_t i = 0; i <= depth; i++)
        kvb_spans_append(&p->seen, root + i, cells ? cells[p->path[i]] : base + p->path[i]);
    return kvb_plan_attend(p, g, &p->seen, pos);
}

int kvb_plan_attend_pages(kvb_plan *p, const kvb_group *g, const uint32_t *table, uint32_t page_cells, uint32_t pos)
{
    const uint32_t n = pos / page_cells + 1,
                   had = p->n_rows && p->table == table ? p->row_start[p->n_rows - 1] : UINT32_MAX;
    const size_t start = had == UINT32_MAX ? p->n_pages : had;
    assert(p->n_rows < p->n && (p->page_cells || !p->n_rows));
    int error = start + n < UINT32_MAX ? kvb_grow(p->allocator, &p->pages, &p->pages_room, start + n) : -ENOMEM;
    if (!error)
        error = kvb_grow(p->allocator, &p->runs, &p->runs_room, (size_t)p->n_rows + 1);
    if (error)
        return error;
    p->page_cells = page_cells;
    p->sinks = g->sinks;
    p->table = table;
    const uint32_t first = kvb_first_seen(g, pos);
    for (; p->n_pages < start + n; p->n_pages++) {
        const uint32_t entry = (uint32_t)(p->n_pages - start), page = table[entry];
        const bool seen = entry >= first / page_cells || entry * page_cells < g->sinks; /* else a page may be missing */
        const uint32_t end = seen && entry + 1 < n ? (page + 1) * page_cells : 0;
        p->pages[p->n_pages] = page;
        p->extent = p->extent > end ? p->extent : end;
    }
    const uint32_t last = table[n - 1] * page_cells + pos % page_cells + 1;
    p->extent = p->extent > last ? p->extent : last;
    p->runs[p->n_rows] = (kvb_run){first, pos + 1};
    p->row_start[p->n_rows++] = (uint32_t)start;
    return 0;
}

/* As is_tail() for queries that see pages: one table, of the first pages in order, seen from the first cell on. */
static bool is_tail_of_pages(const kvb_plan *p)
{
    for (uint32_t i = 0; i < p->n_pages; i++)
        if (p->pages[i] != i)
            return false;
    for (uint32_t t = 0; t < p->n; t++)
        if (p->row_start[t] != 0 || p->runs[t].begin > p->sinks || p->runs[t].end + (p->n - 1 - t) != p->extent)
            return false;
    return true;
}

/* Does every query see all cells from the first to its own, and are the queries the last cells, in order? */
static bool is_tail(const kvb_plan *p)
{
    if (p->page_cells)
        return is_tail_of_pages(p);
    for (uint32_t t = 0; t < p->n; t++) {
        uint32_t at = p->row_start[t];
        if (p->row_start[t + 1] != at + 1 || p->runs[at].begin != 0 || p->runs[at].end + (p->n - 1 - t) != p->extent)
            return false;
    }
    return true;
}

void kvb_plan_finish(kvb_plan *p)
{
    assert(p->n_rows == p->n);
    p->is_run = true;
    for (uint32_t i = 1; i < p->n && p->is_run; i++)
        p->is_run = p->cells[i] == p->cells[i - 1] + 1;
    for (uint32_t i = 0; i < p->n_runs; i++)
        p->extent = p->extent > p->runs[i].end ? p->extent : p->runs[i].end;
    p->mask = is_tail(p)      ? (p->n == 1 ? KVB_MASK_NONE : KVB_MASK_CAUSAL)
              : p->page_cells ? KVB_MASK_PAGES
                              : KVB_MASK_RUNS;
}

kvb_mask kvb_plan_mask(const kvb_plan *p)
{
    kvb_mask mask = {.kind = p->mask};
    if (p->mask == KVB_MASK_RUNS) {
        mask.row_start = p->row_start;
        mask.runs = p->runs;
    }
    if (p->mask == KVB_MASK_PAGES) {
        mask.row_start = p->row_start;
        mask.pages = p->pages;
        mask.seen = p->runs;
        mask.page_cells = p->page_cells;
        mask.sinks = p->sinks;
    }
    return mask;
}
