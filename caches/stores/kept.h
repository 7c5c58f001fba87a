/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows that a store keeps in a group with a window or chunks, if it drops rows. A row can be dropped when no query
 * sees it, even if the sequence is cut back by options->rollback positions. Cutting back further, or copying from
 * further back, is refused if it needs dropped rows.
 */
#ifndef KVB_KEPT_H
#define KVB_KEPT_H

#include "caches/store.h"

/* First position behind the sinks that a query at pos still needs: rows between the sinks and it can be dropped. */
uint32_t kvb_needed_from(const kvb_store *store, uint32_t pos);
/* Most positions behind the sinks that a sequence needs before a step. */
uint64_t kvb_needed_most(const kvb_store *store);

/* Finds the position of the next query of each of these sequences [n]: next [n_ids]. feed: a step whose tokens the
 * account already holds, of which a sequence's first one counts; NULL: no step. */
void kvb_queries_find(const kvb_store *store, const kvb_feed *feed, const uint32_t *seqs, uint32_t n, uint32_t *next);

/* Is the change possible? kept [n_ids]: the positions whose rows each sequence still has. 0, or -ENOTSUP: a COPY or
 * REMOVE after which a query would see dropped rows. */
int kvb_kept_check(kvb_store *store, const kvb_change *change, const kvb_spans *kept);
/* The same for a SHIFT. kept: the positions whose rows the sequence has afterwards. */
int kvb_kept_shift_check(kvb_store *store, const kvb_change *change, const kvb_spans *kept);

/*
 * Compaction of cells that sequences share. From cell 0 on, sequence by sequence in the order of ids, rows lie in the
 * order of positions again. The first sequence that holds a shared cell decides its place. Rows are copied as stored.
 */

typedef struct kvb_compaction {
    kvb_spans *cells; /* [n_ids] position -> new cell, of live sequences. NULL: nothing was ever compacted */
    uint32_t live;    /* new cells: 0 .. live-1 */
    uint32_t *scratch;
    size_t scratch_room;
} kvb_compaction;

/* Requests the copies with kvb_store_move(). cells [n_ids]: position -> old cell, below high_water. dropped: leaves out
 * rows that no query of a group with limits needs any more. 0; -ENOMEM; -ENOSPC: rows trade places through a free cell,
 * and none is free. */
int kvb_compact(kvb_store *store, kvb_compaction *compaction, const kvb_spans *cells, uint32_t high_water,
                bool dropped);
void kvb_compaction_close(const kvb_store *store, kvb_compaction *compaction);

#endif
