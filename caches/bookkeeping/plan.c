/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: from positions to runs of cells, and from runs to the simplest mask. */
#include "caches/bookkeeping/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

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

/* Room for it was made. Neighbours are joined. */
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

/* The runs of the query at hand, ascending and joined. */
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
        const bool seen = entry >= first / page_cells || entry * page_cells < g->sinks; /* else there may be none */
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

/* The same as is_tail() where queries see pages: one table, of the first pages in order, seen from the first on. */
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
