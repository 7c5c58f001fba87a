/* SPDX-License-Identifier: Apache-2.0 */
/* Settings by the CPU's maker. */
#include "kernels/prefetch.h"

/* A short turn is 32 cells, any other 64: what is prefetched is the next turn. */
#define NEAR_TURN                                                                                                      \
    {                                                                                                                  \
        .ahead = 32, .near = true                                                                                      \
    }
#define FAR_TURN                                                                                                       \
    {                                                                                                                  \
        .ahead = 64                                                                                                    \
    }
#define FAR_BY_CELLS                                                                                                   \
    {                                                                                                                  \
        .ahead = 64, .by_cells = true                                                                                  \
    }
#define NEAR_BY_CELLS                                                                                                  \
    {                                                                                                                  \
        .ahead = 64, .near = true, .by_cells = true                                                                    \
    }
#define AGAIN                                                                                                          \
    {                                                                                                                  \
        .ahead = 64, .near = true, .again = true, .by_cells = true                                                     \
    }
#define EACH_OF_FOUR(...)                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__                                                             \
    }

/* Rows apart go into the second-level cache: in the first they often fall into the same sets (kernels/NOTES.md). */
#define FEW_NEAR                                                                                                       \
    {                                                                                                                  \
        NEAR_TURN, NEAR_TURN, NEAR_TURN, FAR_TURN                                                                      \
    }
#define INTEL                                                                                                          \
    {                                                                                                                  \
        FEW_NEAR, FEW_NEAR, EACH_OF_FOUR(FAR_TURN), EACH_OF_FOUR(FAR_TURN)                                             \
    }
#define WIDE                                                                                                           \
    {                                                                                                                  \
        FAR_BY_CELLS, FAR_BY_CELLS, FAR_TURN, FAR_TURN                                                                 \
    }
#define AMD(X)                                                                                                         \
    {                                                                                                                  \
        EACH_OF_FOUR(X), EACH_OF_FOUR(X), EACH_OF_FOUR(X), WIDE                                                        \
    }

/* Measured on Sapphire Rapids; taken for every CPU that is not AMD's. */
const kvb_prefetch kvb_prefetch_intel = {.places = 16,
                                         .short_bytes = 256,
                                         .short_rows = 4,
                                         .short_cells = 32,
                                         .reading = {INTEL, INTEL, EACH_OF_FOUR(EACH_OF_FOUR(FAR_TURN))}};

/* Measured on Zen 5. */
const kvb_prefetch kvb_prefetch_amd = {
    .places = 1,
    .short_cells = 64,
    .steadily = true,
    .reading = {AMD(AGAIN), AMD(NEAR_BY_CELLS), EACH_OF_FOUR(EACH_OF_FOUR(FAR_BY_CELLS))}};

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
