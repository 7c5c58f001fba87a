/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A single call of a kernel is a point in a space: one value on each axis (head dim, tokens, softcap, format of K, …).
 * The tables of axes are in attend_axes.c and scan_axes.c. Choice, shrinking, `kvbench list axes` and the report of
 * coverage read these tables, so that a new axis is one row.
 */
#ifndef KVB_CALLS_SPACE_H
#define KVB_CALLS_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    /* Texts of points, as "tokens=33,cells=129": calls that are made first, and from which others that fit are looked
     * for; ends with NULL. */
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

#endif
