/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a pool in closed form, from its format's description and the growth policy alone. */
#ifndef KVB_SIZE_POOL_BYTES_H
#define KVB_SIZE_POOL_BYTES_H

#include "caches/pools/pool.h"
#include "kernels/model.h"

/*
 * What the allocator holds for an open built-in pool when `cells` is the largest count it was asked for. Of the pool's
 * own code only what an empty pool takes is asked; what cells take is worked out here, so that a mistake in how pools
 * grow is a difference.
 */
uint64_t kvb_size_pool_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint64_t cells);

/* Fills in what the pool is of that a group's layer keeps its states in, or those of its convolution: false where it has none. */
bool kvb_size_state_pool(const kvb_group *group, bool conv, const kvb_pool_type **type, kvb_pool_options *options);

/* Bytes of one row, which may share some with others. */
double kvb_size_row_bytes(const kvb_pool_type *type, uint32_t dim);

#endif
