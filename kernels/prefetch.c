/* SPDX-License-Identifier: Apache-2.0 */
/* Settings by the CPU's maker. */
#include "kernels/prefetch.h"

/* Readings, and lists of the readings of a class (kvb_reading_at), without braces, so that they may be joined. */
#define ONE(...)   __VA_ARGS__
#define TWO(...)   __VA_ARGS__, __VA_ARGS__
#define THREE(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
#define FOUR(...)  __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__

/* FAR is also for rows apart: they often fall into the same sets of the first-level cache, which loses them before they
 * are used. */
#define NEAR_32       .ahead = 32, .near = true
#define FAR           .ahead = 64
#define NEAR_BESIDE   .ahead = 5, .near = true, .beside = true
#define NEXT_BESIDE   .ahead = 10, .near = true, .beside = true
#define FAR_BESIDE    .ahead = 64, .beside = true
#define FAR_BY_CELLS  .ahead = 64, .by_cells = true
#define NEAR_BY_CELLS .ahead = 64, .near = true, .by_cells = true
#define AGAIN         .ahead = 64, .near = true, .again = true, .by_cells = true
#define NARROW        THREE({NEAR_32}), ONE({FAR})
#define WIDE          TWO({FAR_BY_CELLS}), TWO({FAR})

/* Measured on Granite Rapids and, before V was read beside K, on Sapphire Rapids; taken for every CPU that is not
 * AMD's. */
const kvb_prefetch kvb_prefetch_intel = {
    .places = 16,
    .group_bytes = 4096,
    .reading = {NARROW, FOUR({NEAR_BESIDE}), FOUR({NEAR_BESIDE}), FOUR({FAR}),      /* long runs */
                FOUR({FAR}), FOUR({NEXT_BESIDE}), FOUR({NEAR_BESIDE}), FOUR({FAR}), /* shorter ones */
                FOUR({FAR}), FOUR({FAR_BESIDE}), FOUR({FAR}), FOUR({FAR})}};        /* rows apart */

/* Measured on Zen 5. */
const kvb_prefetch kvb_prefetch_amd = {
    .places = 1,
    .steadily = true,
    .reading = {THREE(FOUR({AGAIN})), WIDE, THREE(FOUR({NEAR_BY_CELLS})), WIDE, FOUR(FOUR({FAR_BY_CELLS}))}};

/* Measured on Zen 4, by `kvbench tune`; taken for Zen 3, too, which has the same family and is faster with V beside K. */
#define SIDES    .ahead = 64, .by_cells = true, .sums_by_cells = true, .beside = true
#define FAR_SUMS .ahead = 64, .sums_by_cells = true
#define SIDES_32 .ahead = 32, .by_cells = true, .sums_by_cells = true, .beside = true
#define ZEN4(ROW_256)                                                                                                  \
    FOUR({FAR_BY_CELLS}), {ROW_256}, {FAR_BY_CELLS}, TWO({FAR}), TWO({SIDES}), {FAR_SUMS}, {SIDES}, WIDE
const kvb_prefetch kvb_prefetch_zen4 = {
    .places = 1, .steadily = true, .reading = {ZEN4(SIDES_32), ZEN4(FAR_BY_CELLS), FOUR(FOUR({FAR_BY_CELLS}))}};

static const kvb_prefetch *chosen;

const kvb_prefetch *kvb_prefetch_here(void)
{
    if (chosen)
        return chosen;
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd"))
        return __builtin_cpu_is("amdfam19h") ? &kvb_prefetch_zen4 : &kvb_prefetch_amd;
#endif
    return &kvb_prefetch_intel;
}

void kvb_prefetch_set(const kvb_prefetch *prefetch)
{
    chosen = prefetch;
}
