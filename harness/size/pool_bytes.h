/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a pool in closed form, from its format's description and the growth policy alone. */
#ifndef KVB_SIZE_POOL_BYTES_H
#define KVB_SIZE_POOL_BYTES_H

#include "caches/pools/pool.h"

/*
 * What the allocator holds for an open built-in pool when `cells` is the largest count it was asked for. Of the pool's
 * own code only what an empty pool takes is asked; what cells take is worked out here, so that a mistake in how pools
 * grow is a difference.
 */
uint64_t kvb_size_pool_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint64_t cells);

#endif
