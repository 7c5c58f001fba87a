/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a store puts the tokens of a history in which no sequence is forked or cut back: for the prediction of its tables.
 * A plain list of pieces for each sequence, found anew in whatever order cells lie: not the code of the caches.
 */
#ifndef KVB_SIZE_LAYOUT_H
#define KVB_SIZE_LAYOUT_H

#include "harness/size/predict.h"

/* Positions pos .. pos+n-1 in cells cell .. cell+n-1. */
typedef struct kvb_size_piece {
    uint64_t pos, cell, n;
} kvb_size_piece;

/* What one sequence holds, ascending by position. All zero at first; free() at. */
typedef struct kvb_size_pieces {
    kvb_size_piece *at;
    size_t n, room;
} kvb_size_pieces;

int kvb_size_piece_add(kvb_size_pieces *pieces, uint64_t pos, uint64_t cell, uint64_t n); /* 0 or -ENOMEM */
/* Lets go of positions from .. to-1. 0 or -ENOMEM. */
int kvb_size_pieces_drop(kvb_size_pieces *pieces, uint64_t from, uint64_t to);

/* The first n cells of those below `bound` that no sequence of held [64] has: together where there is such a place, lowest
 * first, else scattered. 0 or -ENOMEM. */
int kvb_size_cells_take(const kvb_size_pieces *held, uint64_t n, uint64_t bound, kvb_size_pieces *taken);

/* Runs of cells that a query at position pos of the group sees of a sequence, as its mask has them. */
uint64_t kvb_size_runs(const kvb_size_pieces *pieces, const kvb_group *group, uint64_t pos);

#endif
