/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: from positions to runs of cells, and from runs to the simplest mask. */
#include "caches/bookkeeping/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int kvb_plan_start(kvb_plan *p, uint32_t n)
{
    p->n = n;
    p->n_rows = p->n_runs = p->extent = 0;
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

int kvb_plan_attend_nodes(kvb_plan *p, const kvb_group *g, const kvb_account *account, const kvb_spans *prefix,
                          uint32_t base, uint32_t first, const uint32_t *positions)
{
    int error = 0;
    for (uint32_t node = first; node < account->n_nodes && !error; node++) {
        uint32_t depth = account->node[node].depth, root = positions[node - first] - depth;
        p->seen.n = p->seen.tokens = 0;
        error = kvb_grow(p->allocator, &p->path, &p->path_room, (size_t)depth + 1);
        if (!error)
            error = kvb_spans_reserve(&p->seen, p->allocator, prefix->n + depth + 1);
        if (error)
            return error;
        kvb_spans_add(&p->seen, prefix, 0, KVB_POS_END);
        kvb_account_path(account, node, p->path);
        for (uint32_t i = 0; i <= depth; i++)
            kvb_spans_append(&p->seen, root + i, base + p->path[i]);
        error = kvb_plan_attend(p, g, &p->seen, root + depth);
    }
    return error;
}

/* Does every query see all cells from the first to its own, and are the queries the last cells, in order? */
static bool is_tail(const kvb_plan *p)
{
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
    p->mask = !is_tail(p) ? KVB_MASK_RUNS : p->n == 1 ? KVB_MASK_NONE : KVB_MASK_CAUSAL;
}

kvb_mask kvb_plan_mask(const kvb_plan *p)
{
    kvb_mask mask = {.kind = p->mask};
    if (p->mask == KVB_MASK_RUNS) {
        mask.row_start = p->row_start;
        mask.runs = p->runs;
    }
    return mask;
}
