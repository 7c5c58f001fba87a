/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growth policies: how a pool gets memory for more cells. A policy of its own, so that policies can be
 * measured against each other.
 *
 *   double        cells reserved are min_chunk, then twice as many whenever more are needed, at most capacity;
 *                 every growth copies
 *   reserve       address space for capacity cells from the start, pages counted (and touched) as cells
 *                 fill; nothing ever moves, the stride from head to head is fixed
 *   +thp          either, in whole huge pages that the kernel is asked to back with such
 *   exact         exactly the cells that are needed; every growth copies, so that a token a step copies all cells at each
 *                 step: concatenation, as tutorials grow a cache
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
/* Does this machine have it? Huge pages may be turned off. */
bool kvb_growth_available(kvb_growth growth, char *why, size_t why_bytes);
/* Bytes that memory is counted in: 1 (double, exact), a page, a huge page. */
size_t kvb_growth_grain(kvb_growth growth);

/*
 * Doubling: min_chunk cells at first, then twice what is held until `needed` fit, never more than
 * capacity. held: cells reserved now, 0 at first. Needs needed <= capacity and min_chunk >= 1.
 * Never less than held.
 */
uint32_t kvb_growth_double(uint32_t held, uint32_t needed, uint32_t min_chunk, uint32_t capacity);

#endif
