/* SPDX-License-Identifier: Apache-2.0 */
/* The store of caches seq and window: cells that sequences share, and how they are saved and loaded.
 * Slots of recurrent states are shared alike (state.c). */
#ifndef KVB_SEQ_H
#define KVB_SEQ_H

#include "caches/store.h"
#include "caches/stores/kept.h"

/* No n free cells that lie together begin below `from`. */
typedef struct kvb_seq_run {
    uint32_t n, from;
} kvb_seq_run;

typedef struct seq_store {
    kvb_store store;
    kvb_spans *cells; /* [n_ids] position -> cell */
    uint32_t *next;   /* [n_ids] where the next query of each sequence alive is */
    uint16_t *refs;   /* [refs_room] sequences that hold a cell; 0: free */
    size_t refs_room;
    uint32_t live;       /* cells held */
    uint32_t high_water; /* largest cell held + 1 */
    uint32_t first_free; /* no cell below it is free */
    kvb_seq_run run[2];  /* of the last two lengths of steps */
    kvb_spans_aside reordered;
    uint32_t *nodes;    /* [n_nodes] cells of the pending nodes, as account->node */
    uint32_t *resolved; /* COMMIT: cells of the n_left nodes that stay, of those accepted, of those dropped */
    uint32_t n_nodes, n_left;
    size_t nodes_room, resolved_room;
    kvb_compaction compaction;
    bool drops; /* rows that no query can see again */
    /* Where it drops: sequences that have changed since they last let go of rows; the others have none to let go of. */
    uint32_t n_unsettled;
    uint32_t *unsettled; /* [n_unsettled of n_ids], then [n_ids] 1 where it is one of them */
    kvb_spans shifted;   /* what a sequence's cells will be */
    uint32_t *copies;    /* cells that take copies of shared ones */
    size_t copies_room;
} seq_store;

static inline bool kvb_seq_is_free(const seq_store *store, uint32_t cell)
{
    return cell >= store->high_water || !store->refs[cell];
}

int kvb_seq_open(kvb_store *store); /* kvb_cache_type.open */
/* One sequence or node more, or less, holds a cell. */
void kvb_seq_hold_cell(seq_store *store, uint32_t cell, bool more);
void kvb_seq_settle(seq_store *store); /* cells have been let go of: high_water and first_free again */
/* One sequence more, or less, holds the cells of that part of a sequence. */
void kvb_seq_hold(seq_store *store, uint32_t seq, uint32_t p0, uint32_t p1, bool more);
/* It frees them. */
void kvb_seq_drop(seq_store *store, uint32_t seq, uint32_t p0, uint32_t p1);
/* STEP: the new tokens' cells, which their sequences come to hold: 0 or -ENOMEM, to be undone as well. */
int kvb_seq_place(seq_store *store, const kvb_feed *feed, kvb_plan *plan);
/* Free cells: picked [n], ascending. There are so many. */
void kvb_seq_pick(seq_store *store, uint32_t n, uint32_t *picked);
int kvb_seq_reserve(seq_store *store, uint32_t cells); /* room to count the holders of each: 0 or -ENOMEM */
/* Bytes of that room, which grows from `first` cells to `cells` in steps that never double it at once. */
uint64_t kvb_seq_holders_bytes(uint32_t first, uint32_t cells);

/* kvb_cache_type.lies; LOAD: what prepare and adopt do. */
int kvb_seq_lies(kvb_store *store, uint32_t seq, kvb_spans *cells);
int kvb_seq_load_prepare(seq_store *store, const kvb_change *change);

#endif
