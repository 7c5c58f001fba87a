/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in caches, in the order in which they are listed. */
#include "caches/cache.h"

const kvb_cache_type *const kvb_builtin_caches[] = {
    &kvb_cache_recompute, &kvb_cache_slab, &kvb_cache_contig, &kvb_cache_seq_cells, &kvb_cache_tree_nodes, NULL,
};
