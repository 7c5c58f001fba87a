/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Few calls in which every two values of different axes meet. A greedy choice: each call takes two values that have not
 * met yet, then on each other axis the value that brings most new pairs for its cost. The same arguments give the same
 * calls.
 */
#ifndef KVB_CALLS_PAIRWISE_H
#define KVB_CALLS_PAIRWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/rng.h"

/*
 * A single call of a kernel is a point in a space: one value on each axis (head dim, tokens, softcap, format of K, …).
 * The tables of axes are in attend_axes.c and scan_axes.c. Choice, shrinking, `kvbench list axes` and the report of
 * coverage read these tables, so that a new axis is one row.
 */

#define KVB_CALL_AXES   32u   /* most axes of a space */
#define KVB_CALL_VALUES 255u  /* most values of an axis */
#define KVB_CALL_TEXT   1024u /* bytes that a point's text needs at most */

typedef struct kvb_call_axis {
    const char *name; /* what --call takes: "tokens" */
    const char *what; /* one line for `kvbench list axes` */
    /* Words, simplest first; ends with NULL. A call that does not name the axis has the first one. Shrinking goes
     * towards it. */
    const char *const *values;
} kvb_call_axis;

typedef struct kvb_space {
    const char *name; /* "attention" */
    const kvb_call_axis *axes;
    uint32_t n_axes;
    /* Points as text, "tokens=33,cells=129": these calls are made first, and the choice of others begins with them. Ends
     * with NULL. */
    const char *const *bases;
} kvb_space;

/* at[axis]: index of the axis' value. All 0: the simplest call. */
typedef struct kvb_point {
    uint8_t at[KVB_CALL_AXES];
} kvb_point;

uint32_t kvb_axis_values(const kvb_call_axis *axis); /* how many */

/* The word of a point's value on an axis; the number that it begins with. */
const char *kvb_point_word(const kvb_space *space, const kvb_point *point, uint32_t axis);
double kvb_point_number(const kvb_space *space, const kvb_point *point, uint32_t axis);

/* "tokens=7,cells=65": the values other than the first ones. "" for the simplest call. */
void kvb_point_text(const kvb_space *space, const kvb_point *point, char text[KVB_CALL_TEXT]);
/* The reverse. -EINVAL with why, which names what is known. */
int kvb_point_parse(const kvb_space *space, const char *text, kvb_point *point, char *why, size_t why_bytes);

/* A number that depends on the point's words alone, so that plug-ins, which add values, change no call. */
uint64_t kvb_point_key(const kvb_space *space, const kvb_point *point, uint64_t seed);

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

/* Draws of whole numbers, each from the state that the draw before it left. */

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
