/* SPDX-License-Identifier: Apache-2.0 */
/* Growth by doubling: n cells written one by one are copied fewer than 2n times in all. */
#include "caches/pools/growth.h"

#include <assert.h>

uint32_t kvb_growth_double(uint32_t held, uint32_t needed, uint32_t min_chunk, uint32_t capacity)
{
    uint64_t cells = held; /* 64 bits: twice 2^31 must not wrap */

    assert(needed <= capacity && held <= capacity && min_chunk >= 1);
    if (needed <= held)
        return held;
    if (cells == 0)
        cells = min_chunk;
    while (cells < needed)
        cells *= 2;
    return cells < capacity ? (uint32_t)cells : capacity;
}
