/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step's feed: the tokens whose rows the plan wants. Most caches want the new tokens. A cache that keeps no rows
 * also wants the whole history of the step's sequences, before the new tokens.
 */
#ifndef KVB_PLAN_H
#define KVB_PLAN_H

#include "caches/bookkeeping/account.h"
#include "kernels/view.h"
#include "kernels/model.h"

typedef struct kvb_feed {
    uint32_t n, n_new;   /* tokens; the new ones are the last */
    uint64_t *ordinals;  /* [n] */
    uint32_t *positions; /* [n] */
    uint32_t *seqs;      /* [n] sequence that each is fed for */
    kvb_spans *seen;     /* whole histories: [n_seen] of each sequence in the step, position -> place in the feed */
    uint32_t n_seen;     /* ids */
    uint32_t *node;      /* whole histories: [account's n_nodes] place of each pending node that is fed */
    size_t ordinals_room, positions_room, seqs_room, node_room;
} kvb_feed;

/* A feed of whole histories of n_ids sequences (0: of new tokens only): 0 or -ENOMEM. */
int kvb_feed_open(kvb_feed *feed, kvb_allocator *allocator, uint32_t n_ids);

/* Admits the tokens of a STEP or PROPOSE that the account has reserved for, and lists the tokens to be fed. An old
 * token is fed once, for the lowest of the step's sequences that hold it. 0, or -ENOMEM with nothing admitted. */
int kvb_feed_make(kvb_feed *feed, kvb_account *account, const kvb_change *change);
void kvb_feed_close(kvb_feed *feed, kvb_allocator *allocator);

/* Positions of the new tokens. */
static inline const uint32_t *kvb_feed_new(const kvb_feed *feed)
{
    return feed->positions + (feed->n - feed->n_new);
}

/*
 * A plan: where one group's rows of a step are written, and which cells each query may read; shared by the layers of
 * the group. The next plan is filled beside the one in force and replaces it when it is complete. Arrays of a plan in
 * force do not move.
 */
typedef struct kvb_plan {
    kvb_allocator *allocator;
    uint64_t generation; /* of its mask: no other mask in this process has this number */
    bool is_run;         /* cells[i] == cells[0] + i for all i */
    kvb_mask_kind mask;  /* NONE, CAUSAL, RUNS or PAGES */
    uint32_t n;          /* fed tokens; all of them are queries */
    uint32_t extent;     /* readable cells: 0 .. extent-1 */
    uint32_t n_rows;     /* queries added so far */
    uint32_t n_runs;     /* of all queries */
    uint32_t *cells;     /* [n] where each fed token is written */
    uint32_t *row_start; /* [n + 1] as in kvb_mask */
    kvb_run *runs;       /* [n_runs] */
    uint32_t *path;      /* of the current tree node */
    kvb_spans seen;      /* by that node */
    uint32_t page_cells; /* queries see pages of so many cells; 0: runs, and no page members */
    uint32_t sinks;
    uint32_t *pages; /* [n_pages] tables, one after the other */
    size_t n_pages;
    const uint32_t *table; /* the table last added, in the store */
    size_t cells_room, row_start_room, runs_room, path_room, pages_room;
} kvb_plan;

/* Begins a new plan for n fed tokens. The caller fills in their cells. 0 or -ENOMEM. */
int kvb_plan_start(kvb_plan *plan, uint32_t n);
/*
 * Adds the next query, at position pos of a sequence. The query sees the part of the spans (position -> cell) that the
 * group's limits allow. In a group with limits the runs are in the order of positions, so that dropped rows do not
 * change the order of sums; else ascending by cell, so that memory is passed once. 0 or -ENOMEM.
 */
KVB_HOST int kvb_plan_attend(kvb_plan *plan, const kvb_group *group, const kvb_spans *spans, uint32_t pos);
/*
 * The same for a sequence without holes up to pos that lies in pages: position p in page table[p / page_cells]. All
 * queries of a plan are added this way or none is. Consecutive queries with one table share it. 0 or -ENOMEM.
 */
KVB_HOST int kvb_plan_attend_pages(kvb_plan *plan, const kvb_group *group, const uint32_t *table, uint32_t page_cells,
                                   uint32_t pos);
/* The same for a pending node, account->node[node], at position pos. The node sees its sequence's spans, prefix, and
 * the nodes on its path. Node i lies in cells[i]; cells NULL: in cell base + i. 0 or -ENOMEM. */
int kvb_plan_attend_node(kvb_plan *plan, const kvb_group *group, const kvb_account *account, const kvb_spans *prefix,
                         uint32_t base, const uint32_t *cells, uint32_t node, uint32_t pos);
/* Finds the simplest mask for the plan, when all cells are filled in and all queries added. */
void kvb_plan_finish(kvb_plan *plan);
void kvb_plan_close(kvb_plan *plan);

/* First position that a query at pos sees, sinks aside. */
uint32_t kvb_first_seen(const kvb_group *group, uint32_t pos);

/* The mask as a kernel gets it; it points into the plan. */
kvb_mask kvb_plan_mask(const kvb_plan *plan);

#endif
