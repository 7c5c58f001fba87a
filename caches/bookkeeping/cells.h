/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cell table: the position of the token in each cell and the set of sequences it belongs to. A cell
 * is free when that set is empty: forking adds a member, and the last one to leave frees the cell.
 * Integers only; no cell here has bytes.
 */
#ifndef KVB_CELLS_H
#define KVB_CELLS_H

#include <stdbool.h>

#include "caches/allocator.h"
#include "caches/bookkeeping/seq_lens.h"

typedef struct kvb_cells {
    kvb_allocator *allocator;
    uint32_t capacity;   /* cells there may be */
    uint32_t live;       /* occupied */
    uint32_t high_water; /* largest occupied index + 1 */
    uint32_t first_free; /* no cell below it is free */
    kvb_seq_lens lens;
    uint32_t *pos;  /* of occupied cells */
    uint64_t *seqs; /* set of sequences */
    size_t pos_room, seqs_room;
} kvb_cells;

void kvb_cells_open(kvb_cells *cells, kvb_allocator *allocator, uint32_t capacity);
void kvb_cells_close(kvb_cells *cells);

/* First fit: the lowest run of n free cells; where there is none, the n lowest free cells. Changes
 * nothing. n is at most capacity - live. picked: [n], ascending. */
void kvb_cells_pick(const kvb_cells *cells, uint32_t n, uint32_t *picked);
/* Room in the table for cells 0 .. n-1: 0 or -ENOMEM. */
int kvb_cells_reserve(kvb_cells *cells, uint32_t n);
/* Occupy n free cells, within the room reserved. seq_ids as in kvb_step_check. */
void kvb_cells_occupy(kvb_cells *cells, const uint32_t *picked, const uint32_t *seq_ids, const uint32_t *positions,
                      uint32_t n);
/* Take an occupy back; `before` is the table as it was just before it. */
void kvb_cells_vacate(kvb_cells *cells, const kvb_cells *before, const uint32_t *picked, uint32_t n);

/* Positions p0 <= p < p1. Arguments were checked. */
void kvb_cells_share(kvb_cells *cells, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1);
void kvb_cells_leave(kvb_cells *cells, uint32_t seq, uint32_t p0, uint32_t p1);
void kvb_cells_keep(kvb_cells *cells, uint32_t seq); /* every other sequence leaves */
void kvb_cells_clear(kvb_cells *cells);

/* Are cells 0 .. high_water-1 all of this sequence, in the order of their positions? Then a query at the
 * end sees all of them, and those before it a shorter head of them. */
bool kvb_cells_in_order(const kvb_cells *cells, uint32_t seq);

#endif
