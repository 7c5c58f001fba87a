/* SPDX-License-Identifier: Apache-2.0 */
/* Growable arrays through the counting allocator: doubling, so that a long run asks for memory rarely. */
#ifndef KVB_GROW_H
#define KVB_GROW_H

#include "caches/allocator.h"

/*
 * Room for `need` items of item_bytes in a block that has room for *have. Returns the block, perhaps
 * moved, with *have raised; what it held is kept, what is new is arbitrary. NULL when there is no
 * memory: then the block and *have are as they were. need 0 asks for one item, so that NULL means failure.
 */
void *kvb_grow(kvb_allocator *allocator, void *block, size_t *have, size_t need, size_t item_bytes);

#endif
