/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stores that drop rows keep of a group with a window or chunks. What can be let go of follows from where a
 * sequence may still be cut back to: options->rollback positions behind the next one. Going back further, or copying
 * from further back, is refused as far as it needs what is gone.
 */
#ifndef KVB_KEPT_H
#define KVB_KEPT_H

#include "caches/store.h"

/* Positions from the sinks up to this one, excluded, are needed no more where the next query is at pos. */
uint32_t kvb_needed_from(const kvb_store *store, uint32_t pos);
/* Most positions, sinks aside, that a sequence needs before a step. */
uint64_t kvb_needed_most(const kvb_store *store);

/* next [n_ids]: where the next query of each sequence alive is. Of a step, whose tokens the account holds already, a
 * sequence's first one; feed NULL: there is none. */
void kvb_queries_find(const kvb_store *store, const kvb_feed *feed, uint32_t *next);

/* May it be done? kept [n_ids]: the positions whose rows each sequence still has. 0, or -ENOTSUP of a COPY or REMOVE
 * after which a query would see what is gone. */
int kvb_kept_check(kvb_store *store, const kvb_change *change, const kvb_spans *kept);
/* The same of a SHIFT. kept: the positions whose rows the sequence has afterwards. */
int kvb_kept_shift_check(kvb_store *store, const kvb_change *change, const kvb_spans *kept);

/*
 * Compaction of cells that sequences share: sequence by sequence, in the order of ids, cells lie in the order of
 * positions again, from cell 0 on; of a cell that several hold the first one decides. Stored rows are copied as they
 * are.
 */

typedef struct kvb_compaction {
    kvb_spans *cells; /* [n_ids] where the sequences alive will lie. NULL: nothing was ever compacted */
    uint32_t live;    /* cells that they will hold: 0 .. live-1 */
    uint32_t *scratch;
    size_t scratch_room;
} kvb_compaction;

/* Has rows copied with kvb_store_move(). cells [n_ids]: position -> cell, below high_water. dropped: of a group with
 * limits what no query needs any more is left out. 0; -ENOMEM; -ENOSPC where no cell is free, by which rows trade
 * places. */
int kvb_compact(kvb_store *store, kvb_compaction *compaction, const kvb_spans *cells, uint32_t high_water,
                bool dropped);
void kvb_compaction_close(const kvb_store *store, kvb_compaction *compaction);

#endif
