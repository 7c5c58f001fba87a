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
 * Chooses candidates so that pairs of values meet: if a candidate that can run has two values of the dimensions `dims`,
 * some chosen candidate has both, too. Candidates that are chosen already count. The next one chosen is always the one
 * that brings the most new pairs for its cost; among equals the one whose values were chosen least often, then the
 * first. At the end each value that no chosen candidate has gets the first candidate with it. hub: only pairs count of
 * which one dimension is in this set (KVB_PAIRS_ALL: every pair). Returns 0 or -ENOMEM.
 */
int kvb_pairs_cover(kvb_candidate *candidates, size_t n, unsigned dims, unsigned hub);

#endif
