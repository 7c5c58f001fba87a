/* SPDX-License-Identifier: Apache-2.0 */
/* Settings by the CPU's maker. */
#include "kernels/prefetch.h"

/* Measured on Sapphire Rapids; taken for every CPU that is not AMD's. */
const kvb_prefetch kvb_prefetch_intel = {
    .places = 16, .near_bytes = KVB_NEAR_BYTES, .near_rows = KVB_NEAR_ROWS, .near_cells = 32};
/* Measured on Zen 5. */
const kvb_prefetch kvb_prefetch_amd = {.places = 1,
                                       .near_bytes = 512,
                                       .near_rows = 8,
                                       .near_cells = 64,
                                       .again = true,
                                       .by_cells = true,
                                       .steadily = true};

static const kvb_prefetch *chosen;

const kvb_prefetch *kvb_prefetch_here(void)
{
    if (chosen)
        return chosen;
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd"))
        return &kvb_prefetch_amd;
#endif
    return &kvb_prefetch_intel;
}

void kvb_prefetch_set(const kvb_prefetch *prefetch)
{
    chosen = prefetch;
}
