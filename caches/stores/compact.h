/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compaction of cells that sequences share: sequence by sequence, in the order of ids, cells lie in the order of
 * positions again, from cell 0 on; of a cell that several hold the first one decides. Stored rows are copied as they
 * are.
 */
#ifndef KVB_COMPACT_H
#define KVB_COMPACT_H

#include "caches/store.h"

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
