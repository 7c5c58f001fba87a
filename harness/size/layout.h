/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a store puts the tokens of a history without forks and removals, for the prediction of its tables. It keeps a plain list
 * of pieces for each sequence, and shares no code with the caches on purpose.
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

/* Finds n cells below `bound` that no sequence of held [64] has: the lowest place where n lie together, else the lowest free
 * ones. 0 or -ENOMEM. */
int kvb_size_cells_take(const kvb_size_pieces *held, uint64_t n, uint64_t bound, kvb_size_pieces *taken);

/* How many runs of a sequence's cells the mask of a query at position pos of the group has. */
uint64_t kvb_size_runs(const kvb_size_pieces *pieces, const kvb_group *group, uint64_t pos);

#endif
