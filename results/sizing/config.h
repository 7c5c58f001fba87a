/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of a model's config.json: found under any of their names, checked, and with the place each value came from. The
 * first failure is kept and later reads give zeros quietly, so that a reader asks for all it needs and looks once.
 * Private to results/sizing.
 *
 * Names are one string: the names of one field separated by spaces ("num_hidden_layers n_layer"), a field of an object
 * inside behind a point ("linear_attn_config.num_heads"). null is as good as absent.
 */
#ifndef KVB_SIZING_CONFIG_H
#define KVB_SIZING_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVB_CONFIG_SOURCE 128u /* bytes of a value's source */

/* A value and where it came from: "num_key_value_heads", "GemmaConfig's num_key_value_heads". */
typedef struct kvb_fact {
    uint64_t value;
    char source[KVB_CONFIG_SOURCE];
} kvb_fact;

/* A field that the model's class in transformers fills in where the file lacks it. */
typedef struct kvb_config_default {
    const char *names;
    uint32_t value;
} kvb_config_default;

typedef struct kvb_config {
    json_t *fields;          /* the text config with the defaults filled in; owned by the model */
    const json_t *given;     /* as in the file */
    const char *place;       /* in front of a field's name in messages: "text_config." or "" */
    const char *file;        /* for messages */
    const char *class_name;  /* whose defaults: "Gemma3TextConfig" */
    const char *model_class; /* the architecture, for messages */
    uint64_t asked;          /* bits of the fields that change memory: those that somebody asked for */
    int error;               /* 0 or the first failure, a negative errno */
    char *why;
    size_t why_bytes;
} kvb_config;

/* Keeps the first failure: "FILE: message". */
__attribute__((format(printf, 3, 4))) void kvb_config_fail(kvb_config *config, int error, const char *format, ...);

/* Fills in the fields that the file does not name at all; one that is null there stays null. Ended by {NULL, 0}. */
void kvb_config_default_fill(kvb_config *config, const kvb_config_default *defaults);

/* The first of the names that is there, or NULL; *name, unless NULL, is the one. Two that differ are a failure. */
const json_t *kvb_config_find(kvb_config *config, const char *names, const char **name);
bool kvb_config_has(kvb_config *config, const char *names);

/* A count, 1 to 2^31 - 1: absent is a failure. */
kvb_fact kvb_config_count(kvb_config *config, const char *names);
/* The same; absent gives the fallback, whose source is told as it is. */
kvb_fact kvb_config_count_or(kvb_config *config, const char *names, uint64_t fallback, const char *source);
/* A count that may be 0, or 0 where it is absent. */
uint64_t kvb_config_number(kvb_config *config, const char *names);
bool kvb_config_flag(kvb_config *config, const char *names, bool fallback);
/* NULL: absent, or no string, which is a failure. */
const char *kvb_config_text(kvb_config *config, const char *names);
/* An array of n entries, n 0 any number; NULL: absent, or a failure. */
const json_t *kvb_config_list(kvb_config *config, const char *names, size_t n);

/* a times b; more than 64 bits is a failure that names what was to be counted. */
uint64_t kvb_config_times(kvb_config *config, uint64_t a, uint64_t b, const char *what);
/* The same for a count: more than 2^31 - 1 is a failure. */
uint32_t kvb_config_product(kvb_config *config, uint64_t a, uint64_t b, const char *what);

/* Fails if a field that changes memory is set and nobody asked for it: the architecture does not know it. */
void kvb_config_unasked(kvb_config *config);

#endif
