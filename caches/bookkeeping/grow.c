/* SPDX-License-Identifier: Apache-2.0 */
/* Growable arrays through the counting allocator. */
#include "caches/bookkeeping/grow.h"

enum { FIRST_ITEMS = 16 };

void *kvb_grow(kvb_allocator *allocator, void *block, size_t *have, size_t need, size_t item_bytes)
{
    if (block && need <= *have)
        return block;
    size_t want = *have < FIRST_ITEMS ? FIRST_ITEMS : *have * 2;
    if (want < need)
        want = need;
    void *grown = kvb_realloc(allocator, block, *have * item_bytes, want * item_bytes);
    if (grown)
        *have = want;
    return grown;
}
