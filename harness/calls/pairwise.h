/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses few calls in which every two values of different axes meet. The choice is greedy: each call takes two values
 * that have not met yet, then on each other axis the value with most new pairs for its cost. The same arguments give
 * the same calls.
 */
#ifndef KVB_CALLS_PAIRWISE_H
#define KVB_CALLS_PAIRWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/rng.h"

/*
 * A single call of a kernel is a point in a space: one value on each axis (head dim, tokens, softcap, format of K, …).
 * The tables of axes are in attend_axes.c and scan_judge.c. Choice, shrinking, `kvbench list axes` and the report of
 * coverage read these tables, so a new axis is one row.
 */

#define KVB_CALL_AXES   32u   /* most axes of a space */
#define KVB_CALL_VALUES 255u  /* most values of an axis */
#define KVB_CALL_TEXT   1024u /* most bytes of a point's text */

typedef struct kvb_call_axis {
    const char *name; /* "tokens", as in --call tokens=7 */
    const char *what; /* one line for `kvbench list axes` */
    /* Words, simplest first; ends with NULL. A call that does not name the axis has the first one. Shrinking tries the
     * simplest first. */
    const char *const *values;
} kvb_call_axis;

typedef struct kvb_space {
    const char *name; /* "attention" */
    const kvb_call_axis *axes;
    uint32_t n_axes;
    /* Points as text, "tokens=33,cells=129". These calls are chosen first, and the search for others starts from them.
     * Ends with NULL. */
    const char *const *bases;
} kvb_space;

/* at[axis]: index of the axis' value. All 0: the simplest call. */
typedef struct kvb_point {
    uint8_t at[KVB_CALL_AXES];
} kvb_point;

uint32_t kvb_axis_values(const kvb_call_axis *axis); /* how many */

/* The word of a point's value on an axis; the number at the start of that word. */
const char *kvb_point_word(const kvb_space *space, const kvb_point *point, uint32_t axis);
double kvb_point_number(const kvb_space *space, const kvb_point *point, uint32_t axis);

/* Writes "tokens=7,cells=65": all values but the simplest. The simplest call: "". */
void kvb_point_text(const kvb_space *space, const kvb_point *point, char text[KVB_CALL_TEXT]);
/* Parses such a text. 0; -EINVAL with why, which lists the known words; -ENOMEM. */
int kvb_point_parse(const kvb_space *space, const char *text, kvb_point *point, char *why, size_t why_bytes);

/* A key of the point's words and the seed. Values that plug-ins add do not change the key of other calls. */
uint64_t kvb_point_key(const kvb_space *space, const kvb_point *point, uint64_t seed);

/* A kernel with its space of calls. */
typedef struct kvb_call_subject {
    const kvb_space *space;
    const struct kvb_kernel *kernel;
    const struct kvb_trial_kind *kind; /* attention or scan: how its calls are made and judged (subject.h) */
    const void *shapes;                /* for the functions below */
    /* Does the kernel take the point's call? Else why. */
    bool (*fits)(const struct kvb_call_subject *subject, const kvb_point *point, char *why, size_t why_bytes);
    /* About, in nanoseconds; above 0. */
    double (*cost)(const struct kvb_call_subject *subject, const kvb_point *point);
    /* Axes whose values make zeros the right output, as bits. Such a call tests no value of another axis and covers
     * none. NULL: no axis does. */
    uint32_t (*mutes)(const struct kvb_call_subject *subject, const kvb_point *point);
} kvb_call_subject;

/* The chosen calls and their coverage. */
typedef struct kvb_point_cover {
    kvb_point *points; /* [n] cheapest first; owned */
    size_t n;
    uint32_t values, values_of; /* values that are covered, and that some call can have */
    uint64_t pairs, pairs_of;   /* the same for pairs of values */
    /* [n_axes][KVB_CALL_VALUES] of each value: 0 no call can have it, 1 no chosen call has it, 2 covered */
    uint8_t state[KVB_CALL_AXES][KVB_CALL_VALUES];
} kvb_point_cover;

/* Chooses at most `most` calls (0: enough for all): for every value, then for pairs with cheap calls, then, unless
 * only_cheap, for the other pairs. 0 or -ENOMEM. The caller frees cover->points, also after an error. */
int kvb_points_choose(const kvb_call_subject *subject, uint64_t seed, size_t most, bool only_cheap,
                      kvb_point_cover *cover);

/* Draws a random point that fits; costly ones are rare. False: none was found. state: of a random number generator. */
bool kvb_point_draw(const kvb_call_subject *subject, uint64_t *state, kvb_point *point);

/* A random whole number below n; the state moves on. n = 0: 0. */
static inline uint32_t kvb_draw_below(uint64_t *state, uint32_t n)
{
    *state = kvb_rng_key(*state, n);
    return n ? (uint32_t)(*state >> 33) % n : 0;
}

/* Fills order[n] with the numbers below n, shuffled or ascending. */
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
