/* SPDX-License-Identifier: Apache-2.0 */
/* The store of caches paged and paged-prefix: tables of pages, saving and loading, nodes behind sequences, and finding
 * pages again (prefix.c). */
#ifndef KVB_PAGED_H
#define KVB_PAGED_H

#include "caches/store.h"
#include "caches/stores/prefix.h"

#define PAGE_NONE KVB_NO_PAGE /* entry of a table: no page */

typedef struct page_table {
    uint32_t *page; /* [room] */
    size_t room;
} page_table;

/* An entry that the current call has changed, and its old page. */
typedef struct entry_change {
    uint32_t seq, entry, was;
} entry_change;

typedef struct paged_store {
    kvb_store store;
    uint32_t n_pages;
    page_table *tables;                    /* [n_ids] */
    uint32_t *refs;                        /* [n_pages] tables that name the page */
    uint32_t *adds;                        /* [n_ids] scratch of room() */
    uint32_t live, first_free, high_water; /* pages that tables name; lowest that can be free; largest named + 1 */
    page_table *reordered;                 /* [n_reordered] REORDER: the sources' tables */
    uint32_t n_reordered;
    kvb_spans_aside kept_reordered;
    uint64_t *keys_reordered; /* [keys_room] their extra keys */
    size_t keys_room;
    entry_change *changes;
    size_t n_changes, changes_room;
    kvb_spans cells; /* of one sequence, for plans */
    /* A group with limits; else NULL: */
    kvb_spans *kept;      /* [n_ids] position -> position: those with rows in the sequence */
    uint32_t *next;       /* [n_ids] position of the next query of each live sequence */
    uint32_t *node_cells; /* [account's n_nodes] of the current sequence */
    size_t node_cells_room;
    bool nodes; /* some are pending */
    kvb_prefix prefix;
    bool finds, undoes; /* prefix is used; undo() is running */
} paged_store;

static inline uint32_t page_cells(const kvb_store *s)
{
    return s->options->page_cells;
}

static inline uint32_t page_at(const paged_store *p, uint32_t seq, size_t entry)
{
    return entry < p->tables[seq].room ? p->tables[seq].page[entry] : PAGE_NONE;
}

/* The positions whose rows a sequence has. */
static inline const kvb_spans *kvb_paged_held(const paged_store *p, uint32_t seq)
{
    return p->kept ? &p->kept[seq] : &p->store.account->seq[seq];
}

static inline void table_free(paged_store *p, page_table *t)
{
    kvb_free(p->store.allocator, t->page, t->room * sizeof *t->page);
    *t = (page_table){0};
}

/* Puts a page in an entry and notes the old page, which undo() puts back: 0 or -ENOMEM. */
int kvb_paged_change(paged_store *store, uint32_t seq, uint32_t entry, uint32_t page);

/* kvb_cache_type.match, and MATCH's part of prepare. */
uint32_t kvb_paged_match(const kvb_store *store, const int32_t *tokens, uint32_t n, uint64_t extra_key,
                         uint64_t *ordinals);
int kvb_paged_match_prepare(paged_store *store, const kvb_change *change);
/* Notes which tokens pages hold after the change (REMOVE is not handled here). feed: of a STEP. */
void kvb_paged_note(paged_store *store, const kvb_change *change, const kvb_feed *feed);

#endif
