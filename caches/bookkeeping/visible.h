/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From "which token is where" to "what does each query see": rule 2, a query sees the cells of its
 * sequence at positions not above its own.
 *
 * The cells of a sequence are first cut into segments of neighbouring cells with consecutive positions.
 * The part of a segment that a query sees is then a matter of one subtraction, so a query costs its
 * segments and not its cells.
 */
#ifndef KVB_VISIBLE_H
#define KVB_VISIBLE_H

#include "caches/bookkeeping/plan.h"
#include "caches/bookkeeping/seq_lens.h"

typedef struct kvb_segment {
    uint32_t begin, end; /* cells */
    uint32_t pos;        /* of the first cell; the others follow by one */
} kvb_segment;

typedef struct kvb_visible {
    kvb_allocator *allocator;
    kvb_segment *segments; /* of one sequence after the other */
    size_t room, n;
    size_t first[KVB_SEQ_LENS_MAX], last[KVB_SEQ_LENS_MAX]; /* of a sequence: segments first .. last-1 */
} kvb_visible;

void kvb_visible_open(kvb_visible *visible, kvb_allocator *allocator);
void kvb_visible_close(kvb_visible *visible);

/* Cut the wanted sequences of cells 0 .. n_cells-1 into segments: 0 or -ENOMEM. */
int kvb_visible_cut(kvb_visible *visible, const uint32_t *pos, const uint64_t *seqs, uint32_t n_cells, uint64_t wanted);
/* Give the plan's next query, a token of seq at pos, its runs: 0 or -ENOMEM. */
int kvb_visible_see(const kvb_visible *visible, uint32_t seq, uint32_t pos, kvb_plan *plan);

#endif
