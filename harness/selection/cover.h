/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of pairs alone: few candidates of five dimensions, so that any two values meet. */
#ifndef KVB_COVER_H
#define KVB_COVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The dimensions, as bits of a set. */
#define KVB_PAIRS_DIMS    5u
#define KVB_PAIRS_HISTORY 1u
#define KVB_PAIRS_SHAPE   2u
#define KVB_PAIRS_POOLS   4u
#define KVB_PAIRS_CACHE   8u
#define KVB_PAIRS_KERNEL  16u
#define KVB_PAIRS_ALL     31u

typedef struct kvb_candidate {
    uint32_t at[KVB_PAIRS_DIMS]; /* its value in each dimension, from 0 */
    double cost;                 /* of running it; NaN: it cannot run */
    bool chosen;
} kvb_candidate;

/*
 * Chooses candidates until every two values of these dimensions that are together in one that can run are
 * together in a chosen one, those that were chosen before among them. Greedy: whichever brings most new pairs for its cost; of
 * equals that whose values were chosen least so far, then the first. Then, for each value that nobody chosen has, the first
 * candidate that has it. 0 or -ENOMEM.
 */
int kvb_pairs_cover(kvb_candidate *candidates, size_t n, unsigned dims);

#endif
