/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan: the integers of one step, made once and shared by all layers. Which tokens are fed, into
 * which cells their rows go, and which cells each of them may read.
 *
 * A plan is filled on the side and takes the place of the one before only when it is whole; a step that
 * fails half-way leaves no trace. Its arrays do not move while it is valid.
 */
#ifndef KVB_PLAN_H
#define KVB_PLAN_H

#include "caches/allocator.h"
#include "kernels/attend.h"

typedef struct kvb_plan {
    kvb_allocator *allocator;
    bool valid;          /* may be used by update_and_fetch */
    bool stored;         /* a layer's rows have been written under it */
    bool is_run;         /* cells[i] == cells[0] + i for all i */
    kvb_mask_kind mask;  /* NONE, CAUSAL or RUNS */
    uint32_t n;          /* fed tokens; all of them are queries */
    uint32_t window;     /* readable cells: 0 .. window-1 */
    uint32_t n_rows;     /* queries whose runs are complete */
    uint32_t n_runs;     /* of all queries */
    uint32_t *cells;     /* [n] where each fed token is written */
    uint32_t *positions; /* [n] */
    uint64_t *ordinals;  /* [n] */
    uint32_t *row_start; /* [n + 1] */
    kvb_run *runs;       /* [n_runs] */
    size_t cells_room, positions_room, ordinals_room, row_start_room, runs_room; /* items */
} kvb_plan;

void kvb_plan_open(kvb_plan *plan, kvb_allocator *allocator);
void kvb_plan_close(kvb_plan *plan);

/* Begin anew with room for n fed tokens: 0 or -ENOMEM. The arrays are the caller's to fill. */
int kvb_plan_start(kvb_plan *plan, uint32_t n);
/* Let the query at hand also see cells begin .. end-1, which lie at or above those it was given before.
 * Neighbouring runs are joined, an empty one is ignored. 0 or -ENOMEM. */
int kvb_plan_see(kvb_plan *plan, uint32_t begin, uint32_t end);
/* The query at hand is complete. */
void kvb_plan_next_query(kvb_plan *plan);

/* All cells are filled in: say whether they are one run. */
void kvb_plan_cells_finish(kvb_plan *plan);
/* The queries are the tail of a gapless window: no mask for a single one, else CAUSAL. */
void kvb_plan_mask_dense(kvb_plan *plan, uint32_t window);
/* Every query has its runs. */
void kvb_plan_mask_runs(kvb_plan *plan, uint32_t window);
/* The mask as a kernel gets it; it points into the plan. */
kvb_mask kvb_plan_mask(const kvb_plan *plan);

#endif
