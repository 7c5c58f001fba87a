/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema as data: one table of fields a record, which the writer walks to build JSON and the reader walks to
 * validate it, so that the two cannot differ. Private to results/.
 */
#ifndef KVB_FIELD_H
#define KVB_FIELD_H

#include <jansson.h>

#include "results/result.h"

/* JSON has no infinity, and rho is infinite when an output was NaN: numbers from here on stand for it. */
#define KVB_FIELD_INFINITY 1e308

typedef enum kvb_field_kind {
    KVB_FIELD_FIXED,    /* always the string `text`; no place in memory */
    KVB_FIELD_TEXT,     /* char[bytes] */
    KVB_FIELD_NOTE,     /* char[bytes]; empty is null */
    KVB_FIELD_WORDS,    /* char[bytes], separated by spaces; an array of strings in the file */
    KVB_FIELD_U32,      /* uint32_t */
    KVB_FIELD_U64,      /* uint64_t; above 2^63-1 a string of digits in the file */
    KVB_FIELD_REAL,     /* double; NaN is null */
    KVB_FIELD_COUNT,    /* double that holds a whole number, written without a point; NaN is null */
    KVB_FIELD_STATUS,   /* kvb_status, by name */
    KVB_FIELD_OBJECT,   /* `fields`, relative to `offset` */
    KVB_FIELD_PLACE,    /* likewise, or null unless the bool at `offset` is set; relative to the record */
    KVB_FIELD_TIMES,    /* kvb_time_stats[KVB_STEP_KINDS], an object by kind; kinds without samples are left out */
    KVB_FIELD_COUNTERS, /* of a kvb_result */
    KVB_FIELD_ARRAY,    /* `fields` is one element, which repeats every element->bytes up to `bytes`; how many there are
                           is the uint32_t at `count` */
    KVB_FIELD_KINDS
} kvb_field_kind;

typedef struct kvb_field {
    const char *key; /* NULL ends a table */
    kvb_field_kind kind;
    size_t offset; /* of the value in its record, bytes */
    size_t bytes;  /* of a text, its final 0 included; of an array, all of it */
    const struct kvb_field *fields;
    const char *text;
    size_t count;
} kvb_field;

extern const kvb_field kvb_manifest_fields[]; /* of a kvb_manifest */
extern const kvb_field kvb_result_fields[];   /* of a kvb_result */
extern const kvb_field kvb_times_fields[];    /* of one kvb_time_stats in "kinds" */

/* A new JSON object of the record's fields, in the table's order; NULL: no memory. */
json_t *kvb_fields_encode(const kvb_field *fields, const void *record);

/* Fill the record. All keys must be there, and no other: -EINVAL with "key.key: expected …". */
int kvb_fields_decode(const kvb_field *fields, const json_t *object, void *record, char *why, size_t why_bytes);

#endif
