/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a store puts the tokens of a history, for the prediction of its tables. It keeps a plain list
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

/* One more; joined to the last one where it goes on from it, or not. 0 or -ENOMEM. */
int kvb_size_piece_add(kvb_size_pieces *pieces, uint64_t pos, uint64_t cell, uint64_t n);
int kvb_size_piece_put(kvb_size_pieces *pieces, uint64_t pos, uint64_t cell, uint64_t n);
/* A copy, neighbours joined; to be freed whatever is returned: 0 or -ENOMEM. */
int kvb_size_list_copy(kvb_size_pieces *to, const kvb_size_pieces *from);
/* Lets go of positions from .. to-1. 0 or -ENOMEM. */
int kvb_size_pieces_drop(kvb_size_pieces *pieces, uint64_t from, uint64_t to);

/* Which cells some sequence has. All zero at first; free() used. */
typedef struct kvb_size_cells {
    uint64_t *used; /* [room] words */
    size_t room;
    uint64_t first_free; /* no cell below it is free */
    uint64_t run_n,
        run_from; /* no run_n free cells that lie together begin below run_from; run_n 0: nothing is known */
} kvb_size_cells;

/* Takes n cells below `bound` that no sequence has: the lowest place where n lie together, else the lowest free ones. 0,
 * -ENOSPC or -ENOMEM. */
int kvb_size_cells_take(kvb_size_cells *cells, uint64_t n, uint64_t bound, kvb_size_pieces *taken);
/* Is no cell below `bound` free? */
bool kvb_size_cells_full(const kvb_size_cells *cells, uint64_t bound);
/* Gives back the cells of the positions from .. to-1. */
void kvb_size_cells_give(kvb_size_cells *cells, const kvb_size_pieces *held, uint64_t from, uint64_t to);

/* Marks those of a sequence, but for positions from .. to-1. 0 or -ENOMEM. */
int kvb_size_cells_mark(kvb_size_cells *cells, const kvb_size_pieces *held, uint64_t from, uint64_t to);

/* How many runs of a sequence's cells the mask of a query at position pos of the group has. */
uint64_t kvb_size_runs(const kvb_size_pieces *pieces, const kvb_group *group, uint64_t pos);

/* What n queries of one sequence, from position pos on, make a plan's table of runs grow to; n_spans: of which the cache makes its
 * pieces. Returns the runs of all queries of the step so far, of which `before` were there. */
int64_t kvb_size_queries(uint64_t *runs_room, const kvb_size_pieces *pieces, uint64_t n_spans, const kvb_group *g,
                         uint64_t pos, uint64_t n, uint64_t before);

/* Where what a sequence of that length keeps of a group with limits begins, behind the sinks. */
uint64_t kvb_size_kept_from(const kvb_cache_options *options, const kvb_group *group, uint64_t len);

#endif
