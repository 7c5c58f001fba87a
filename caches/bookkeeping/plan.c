/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: filling them, and reading them as a mask. */
#include "caches/bookkeeping/plan.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "caches/bookkeeping/grow.h"

void kvb_plan_open(kvb_plan *plan, kvb_allocator *allocator)
{
    memset(plan, 0, sizeof *plan);
    plan->allocator = allocator;
}

void kvb_plan_close(kvb_plan *plan)
{
    kvb_allocator *a = plan->allocator;
    kvb_free(a, plan->cells, plan->cells_room * sizeof *plan->cells);
    kvb_free(a, plan->positions, plan->positions_room * sizeof *plan->positions);
    kvb_free(a, plan->ordinals, plan->ordinals_room * sizeof *plan->ordinals);
    kvb_free(a, plan->row_start, plan->row_start_room * sizeof *plan->row_start);
    kvb_free(a, plan->runs, plan->runs_room * sizeof *plan->runs);
    kvb_plan_open(plan, a);
}

int kvb_plan_start(kvb_plan *plan, uint32_t n)
{
    kvb_allocator *a = plan->allocator;
    plan->valid = plan->stored = plan->is_run = false;
    plan->n = n;
    plan->n_rows = plan->n_runs = plan->window = 0;
    void *p = kvb_grow(a, plan->cells, &plan->cells_room, n, sizeof *plan->cells);
    if (!p)
        return -ENOMEM;
    plan->cells = p;
    p = kvb_grow(a, plan->positions, &plan->positions_room, n, sizeof *plan->positions);
    if (!p)
        return -ENOMEM;
    plan->positions = p;
    p = kvb_grow(a, plan->ordinals, &plan->ordinals_room, n, sizeof *plan->ordinals);
    if (!p)
        return -ENOMEM;
    plan->ordinals = p;
    p = kvb_grow(a, plan->row_start, &plan->row_start_room, (size_t)n + 1, sizeof *plan->row_start);
    if (!p)
        return -ENOMEM;
    plan->row_start = p;
    plan->row_start[0] = 0;
    return 0;
}

int kvb_plan_see(kvb_plan *plan, uint32_t begin, uint32_t end)
{
    if (begin >= end)
        return 0;
    if (plan->n_runs > plan->row_start[plan->n_rows]) {
        kvb_run *last = &plan->runs[plan->n_runs - 1];
        assert(last->end <= begin);
        if (last->end == begin) {
            last->end = end;
            return 0;
        }
    }
    if (plan->n_runs == UINT32_MAX)
        return -ENOMEM;
    void *p = kvb_grow(plan->allocator, plan->runs, &plan->runs_room, (size_t)plan->n_runs + 1, sizeof *plan->runs);
    if (!p)
        return -ENOMEM;
    plan->runs = p;
    plan->runs[plan->n_runs++] = (kvb_run){begin, end};
    return 0;
}

void kvb_plan_next_query(kvb_plan *plan)
{
    assert(plan->n_rows < plan->n);
    plan->row_start[++plan->n_rows] = plan->n_runs;
}

void kvb_plan_cells_finish(kvb_plan *plan)
{
    plan->is_run = true;
    for (uint32_t i = 1; i < plan->n && plan->is_run; i++)
        plan->is_run = plan->cells[i] == plan->cells[i - 1] + 1;
}

void kvb_plan_mask_dense(kvb_plan *plan, uint32_t window)
{
    plan->mask = plan->n == 1 ? KVB_MASK_NONE : KVB_MASK_CAUSAL;
    plan->window = window;
}

void kvb_plan_mask_runs(kvb_plan *plan, uint32_t window)
{
    assert(plan->n_rows == plan->n);
    plan->mask = KVB_MASK_RUNS;
    plan->window = window;
}

kvb_mask kvb_plan_mask(const kvb_plan *plan)
{
    kvb_mask mask = {.kind = plan->mask};
    if (plan->mask == KVB_MASK_RUNS) {
        mask.row_start = plan->row_start;
        mask.runs = plan->runs;
    }
    return mask;
}
