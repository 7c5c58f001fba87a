/* SPDX-License-Identifier: Apache-2.0 */
/* Draws of whole numbers, each from the state that the draw before it left. */
#ifndef KVB_CALLS_DRAW_H
#define KVB_CALLS_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "workloads/rng.h"

/* Below n; 0 for n = 0. */
static inline uint32_t kvb_draw_below(uint64_t *state, uint32_t n)
{
    *state = kvb_rng_key(*state, n);
    return n ? (uint32_t)(*state >> 33) % n : 0;
}

/* The numbers below n, in any order. */
static inline void kvb_draw_order(uint64_t *state, bool shuffled, uint32_t n, uint32_t *order)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1 && shuffled; i--) {
        const uint32_t k = kvb_draw_below(state, i), last = order[i - 1];
        order[i - 1] = order[k];
        order[k] = last;
    }
}

#endif
