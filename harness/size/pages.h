/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages the sequences of cache paged have, for the prediction of its tables: a second account, as layout.h. */
#ifndef KVB_SIZE_PAGES_H
#define KVB_SIZE_PAGES_H

#include "harness/size/layout.h"

/* Pages of one group; sequences name theirs as pieces (entries of the table, pages). */
typedef struct kvb_size_pages {
    kvb_size_cells in_use; /* pages */
    kvb_size_cells keyed;  /* paged-prefix: whole pages of known tokens, which stay when they are let go of */
    kvb_size_pieces stay;  /* these, from the one let go of longest ago on: pieces of one page each */
    kvb_size_pieces taken; /* by the call at hand */
} kvb_size_pages;

/* Most pages of the group; drops: they are given back behind its window. */
uint64_t kvb_size_pages_most(const kvb_cache_options *options, const kvb_group *group, uint64_t page_cells, bool drops);

/* A sequence that needs nothing between the sinks and position `needed` lets go of the pages that lie wholly there: *n more. 0 or
 * -ENOMEM. */
int kvb_size_pages_drop(kvb_size_pages *pages, kvb_size_pieces *table, const kvb_group *group, uint64_t page_cells,
                        uint64_t needed, uint64_t *n);

/* The lowest free page, else the one that was let go of longest ago, becomes the table's next entry. 0 or -ENOMEM. */
int kvb_size_page_take(kvb_size_pages *pages, kvb_size_pieces *table, uint64_t entry, uint64_t most);

/* Has a page its key still? */
bool kvb_size_page_keyed(const kvb_size_pages *pages, uint64_t page);
/* A page that nobody holds stays, if it has a key; of those that stay, what is above the budget goes. 0 or -ENOMEM. */
int kvb_size_page_leave(kvb_size_pages *pages, uint64_t page, uint64_t budget);
/* Somebody holds it again. */
void kvb_size_page_find(kvb_size_pages *pages, uint64_t page);

/* What cache paged-prefix has besides for so many pages: keys, tokens, ordinals, buckets, extra keys. */
uint64_t kvb_size_prefix_bytes(uint64_t pages, uint64_t page_cells, uint64_t n_ids);

void kvb_size_pages_free(kvb_size_pages *pages);

#endif
