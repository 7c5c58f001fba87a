/* SPDX-License-Identifier: Apache-2.0 */
/* The store of caches seq and window: cells that sequences share, saving and loading. Slots of recurrent states are
 * shared in the same way (state.c). */
#ifndef KVB_SEQ_H
#define KVB_SEQ_H

#include "caches/store.h"
#include "caches/stores/kept.h"

/* No run of n free cells begins below `from`. */
typedef struct kvb_seq_run {
    uint32_t n, from;
} kvb_seq_run;

typedef struct seq_store {
    kvb_store store;
    kvb_spans *cells; /* [n_ids] position -> cell */
    uint32_t *next;   /* [n_ids] position of the next query of each live sequence */
    uint16_t *refs;   /* [refs_room] sequences that hold a cell; 0: free */
    size_t refs_room;
    uint32_t live;       /* cells held */
    uint32_t high_water; /* largest cell held + 1 */
    uint32_t first_free; /* no cell below it is free */
    kvb_seq_run run[2];  /* for the last two lengths of steps */
    kvb_spans_aside reordered;
    uint32_t *nodes;    /* [n_nodes] cells of the pending nodes, as account->node */
    uint32_t *resolved; /* COMMIT: cells of the n_left nodes of other sequences, of accepted nodes, of dropped ones */
    uint32_t n_nodes, n_left;
    size_t nodes_room, resolved_room;
    kvb_compaction compaction;
    bool drops; /* frees rows that no query can see again */
    /* If it drops: sequences that have changed since they last dropped rows. All others have no rows to drop. */
    uint32_t n_unsettled;
    uint32_t *unsettled; /* [n_unsettled of n_ids], then [n_ids] 1: in that list */
    kvb_spans shifted;   /* SHIFT: the sequence's cells afterwards */
    uint32_t *copies;    /* SHIFT: cells for copies of shared ones */
    size_t copies_room;
} seq_store;

static inline bool kvb_seq_is_free(const seq_store *store, uint32_t cell)
{
    return cell >= store->high_water || !store->refs[cell];
}

int kvb_seq_open(kvb_store *store); /* kvb_cache_type.open */
/* Counts one holder, a sequence or node, of a cell more or less. */
void kvb_seq_hold_cell(seq_store *store, uint32_t cell, bool more);
void kvb_seq_settle(seq_store *store); /* sets high_water and first_free after cells were freed */
/* The same as hold_cell for all cells at positions p0 .. p1-1 of a sequence. */
void kvb_seq_hold(seq_store *store, uint32_t seq, uint32_t p0, uint32_t p1, bool more);
/* The sequence loses positions p0 .. p1-1, and its hold on their cells. */
void kvb_seq_drop(seq_store *store, uint32_t seq, uint32_t p0, uint32_t p1);
/* STEP: picks cells for the new tokens and adds them to their sequences: 0, or -ENOMEM: to be undone as well. */
int kvb_seq_place(seq_store *store, const kvb_feed *feed, kvb_plan *plan);
/* Picks n free cells, of which there are enough: picked [n], ascending. */
void kvb_seq_pick(seq_store *store, uint32_t n, uint32_t *picked);
int kvb_seq_reserve(seq_store *store, uint32_t cells); /* room to count the holders of each: 0 or -ENOMEM */
/* Bytes of that room after it has grown from `first` cells to `cells`, by less than its size at a time. */
uint64_t kvb_seq_holders_bytes(uint32_t first, uint32_t cells);

/* kvb_cache_type.lies; prepare() of a LOAD. */
int kvb_seq_lies(kvb_store *store, uint32_t seq, kvb_spans *cells);
int kvb_seq_load_prepare(seq_store *store, const kvb_change *change);

#endif
