/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growth policies: how many cells a pool reserves when it must hold more. A policy of its own, so that
 * policies can be measured against each other. Integers only.
 */
#ifndef KVB_GROWTH_H
#define KVB_GROWTH_H

#include <stdint.h>

/*
 * Doubling: min_chunk cells at first, then twice what is held until `needed` fit, never more than
 * capacity. held: cells reserved now, 0 at first. Needs needed <= capacity and min_chunk >= 1.
 * Never less than held.
 */
uint32_t kvb_growth_double(uint32_t held, uint32_t needed, uint32_t min_chunk, uint32_t capacity);

#endif
