/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Few calls in which every two values of different axes meet. A greedy choice: each call takes two values that have not
 * met yet, then on each other axis the value that brings most new pairs for its cost. The same arguments give the same
 * calls.
 */
#ifndef KVB_CALLS_PAIRWISE_H
#define KVB_CALLS_PAIRWISE_H

#include "harness/calls/space.h"

/* Which points are calls at all, and what they cost. */
typedef struct kvb_point_rules {
    bool (*fits)(const void *ctx, const kvb_point *point);
    double (*cost)(const void *ctx, const kvb_point *point); /* about, in nanoseconds; above 0 */
    /* Axes whose values make zeros the right output, as bits: such a call shows nothing about its other values, and
     * covers none of them. NULL: there are none. */
    uint32_t (*mutes)(const void *ctx, const kvb_point *point);
    const void *ctx;
} kvb_point_rules;

/* What is covered, counted by values and pairs of values that fit in some call. */
typedef struct kvb_point_cover {
    kvb_point *points; /* [n], the first ones bring most; owned */
    size_t n;
    uint32_t values, values_of;
    uint64_t pairs, pairs_of;
    /* [n_axes][KVB_CALL_VALUES] by value: 0 no call can have it, 1 no chosen call has it, 2 covered */
    uint8_t state[KVB_CALL_AXES][KVB_CALL_VALUES];
} kvb_point_cover;

/* Chooses at most `most` calls (0: as many as it takes): every value, then pairs whose calls are cheap, then, unless
 * only_cheap, the others. 0 or -ENOMEM; free points in any case. */
int kvb_points_choose(const kvb_space *space, const kvb_point_rules *rules, uint64_t seed, size_t most, bool only_cheap,
                      kvb_point_cover *cover);

/* A point of random values that fits; false: none was found. state: of a generator of numbers. */
bool kvb_point_draw(const kvb_space *space, const kvb_point_rules *rules, uint64_t *state, kvb_point *point);

#endif
