/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each kind of field does: encode makes its JSON value (NULL: no memory), decode validates one and stores it.
 * Private to field.c and the field_*.c beside it.
 */
#ifndef KVB_FIELD_KIND_H
#define KVB_FIELD_KIND_H

#include "results/field.h"

/* A fault found while decoding: what, and below which keys. */
typedef struct kvb_fault {
    char path[128];
    char what[256];
} kvb_fault;

typedef struct kvb_field_type {
    json_t *(*encode)(const kvb_field *field, const char *record);
    bool (*decode)(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault);
} kvb_field_type;

extern const kvb_field_type kvb_field_fixed, kvb_field_text, kvb_field_note, kvb_field_words, kvb_field_status;
extern const kvb_field_type kvb_field_u32, kvb_field_u64, kvb_field_real;
extern const kvb_field_type kvb_field_object, kvb_field_place, kvb_field_times, kvb_field_counters, kvb_field_array;

/* Set fault->what; both return false, so that a decoder can end with them. */
bool kvb_fault_set(kvb_fault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool kvb_fault_expected(kvb_fault *fault, const char *what, const json_t *found);

/* Passes good on; when it is false, key is put before the path of the fault. */
bool kvb_fault_below(const char *key, bool good, kvb_fault *fault);

/* Pieces that counters are made of too. */
json_t *kvb_text_encode(const char *text); /* cleaned to valid UTF-8 */
bool kvb_text_decode(const json_t *value, char *text, size_t bytes, kvb_fault *fault);
json_t *kvb_number_encode(double number, bool whole); /* NaN: null */
bool kvb_number_decode(const json_t *value, double *number, kvb_fault *fault);

/* One value, by its kind. */
json_t *kvb_field_encode(const kvb_field *field, const char *record);
bool kvb_field_decode(const kvb_field *field, const json_t *value, char *record, kvb_fault *fault);

bool kvb_object_decode(const kvb_field *fields, const json_t *object, char *record, kvb_fault *fault);

#endif
