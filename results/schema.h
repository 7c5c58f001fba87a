/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema as data: a table of fields for each record. The writer walks it to build JSON, the reader to check and
 * store JSON, so the two cannot differ. Private to results/.
 *
 * A new field is a member of the struct, with a comment, and a row of the table in schema.c. In an empty record REAL and
 * COUNT are NaN, all others 0 or "". A new kind of value is a case of value_encode() and of value_decode().
 */
#ifndef KVB_SCHEMA_H
#define KVB_SCHEMA_H

#include <jansson.h>

#include "results/result.h"

/* JSON has no infinity: numbers from this one on stand for it. rho is infinite when an output was NaN. */
#define KVB_FIELD_INFINITY 1e308

typedef enum kvb_field_kind {
    KVB_FIELD_FIXED,    /* always the string `text`; takes no memory */
    KVB_FIELD_TEXT,     /* char[bytes] */
    KVB_FIELD_NOTE,     /* char[bytes]; null if empty */
    KVB_FIELD_EXTRA,    /* char[bytes]; the key is left out if empty */
    KVB_FIELD_WORDS,    /* char[bytes], words separated by spaces; an array of strings in the file */
    KVB_FIELD_U32,      /* uint32_t */
    KVB_FIELD_U64,      /* uint64_t; above 2^63-1 a string of digits in the file */
    KVB_FIELD_REAL,     /* double; null if NaN */
    KVB_FIELD_COUNT,    /* double with a whole number, written without a point; null if NaN */
    KVB_FIELD_STATUS,   /* kvb_status, by its name */
    KVB_FIELD_OBJECT,   /* the table `fields`, whose offsets are relative to `offset` */
    KVB_FIELD_PLACE,    /* the table `fields`, relative to the record; null unless the bool at `offset` is set */
    KVB_FIELD_OPTIONAL, /* as OBJECT; the key is left out if the uint64_t at `count` behind `offset` is 0 */
    KVB_FIELD_COUNTERS, /* the counters of a kvb_result */
    KVB_FIELD_ARRAY,    /* elements of `each` bytes at `offset`, `bytes` in all: records of the table `fields`; NULL:
                           doubles. `count` is the offset of a uint32_t, the number in use */
    KVB_FIELD_KINDS
} kvb_field_kind;

typedef struct kvb_field {
    const char *key; /* NULL ends a table */
    kvb_field_kind kind;
    size_t offset; /* of the value in its record, in bytes */
    size_t bytes;  /* of a text with its final 0; of a whole array */
    const struct kvb_field *fields;
    const char *text;
    size_t count;
    size_t each; /* bytes of an element */
} kvb_field;

extern const kvb_field kvb_manifest_fields[]; /* of a kvb_manifest */
extern const kvb_field kvb_result_fields[];   /* of a kvb_result */

/* Sets every number that may be null to NaN. The rest of the record must be zero. */
void kvb_fields_clear(const kvb_field *fields, void *record);

/* Makes a JSON object of the record's fields, in the order of the table. NULL: no memory. */
json_t *kvb_fields_encode(const kvb_field *fields, const void *record);

/* Fills in the record. 0, or -EINVAL with "key.key: expected …". The object must have exactly the keys of the table. */
int kvb_fields_decode(const kvb_field *fields, const json_t *object, void *record, char *why, size_t why_bytes);

/* A JSON string of text; bytes that are not UTF-8 become '?'. NULL: no memory. */
json_t *kvb_text_encode(const char *text);

#endif
