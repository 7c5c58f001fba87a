/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growth policies: how a pool gets memory for more cells.
 *
 *   double        room for min_chunk cells, then twice as many whenever more are needed, at most capacity; every growth
 *                 copies
 *   reserve       address space for capacity cells from the start; its pages are counted (and touched) as cells fill;
 *                 nothing ever moves, the stride from head to head is fixed
 *   +thp          either of these in whole huge pages, which the system is asked to use
 *   exact         room for exactly the needed cells; every growth copies, so with a token a step each step copies all
 *                 cells: concatenation, as in tutorials
 */
#ifndef KVB_GROWTH_H
#define KVB_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum kvb_growth {
    KVB_GROWTH_DOUBLE,
    KVB_GROWTH_DOUBLE_THP,
    KVB_GROWTH_RESERVE,
    KVB_GROWTH_RESERVE_THP,
    KVB_GROWTH_EXACT,
    KVB_GROWTHS
} kvb_growth;

extern const char *const kvb_growth_names[KVB_GROWTHS]; /* "double", "double+thp", "reserve", "reserve+thp", "exact" */
bool kvb_growth_reserves(kvb_growth growth);
/* Does this machine support the policy? Huge pages may be turned off. */
bool kvb_growth_available(kvb_growth growth, char *why, size_t why_bytes);
/* Unit in which memory is counted, in bytes: 1 (double, exact), a page, or a huge page. */
size_t kvb_growth_grain(kvb_growth growth);

/*
 * Doubling: the cells to make room for. min_chunk at first, then twice what is held until `needed` fit, at most
 * capacity, at least held. held: current room in cells, 0 at first. Needs needed <= capacity and min_chunk >= 1.
 */
uint32_t kvb_growth_double(uint32_t held, uint32_t needed, uint32_t min_chunk, uint32_t capacity);

#endif
