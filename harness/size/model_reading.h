/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a config.json to groups of layers: its fields, the architectures as data, and the layers. Private to harness/size.
 */
#ifndef KVB_SIZING_MODEL_READING_H
#define KVB_SIZING_MODEL_READING_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/size/model.h"

/* ---- fields of the config (model_fields.c) ---------------------------------------------------------------- */

/*
 * A field is found under any of its names, checked, and returned with its source. The first failure is kept, and later
 * reads return zeros: a reader asks for all its fields and checks for a failure once.
 *
 * Names are one string with spaces between ("num_hidden_layers n_layer"). A field of an inner object has a point
 * ("linear_attn_config.num_heads"). A field that is null counts as absent.
 */

#define KVB_CONFIG_SOURCE 128u /* bytes of a value's source */

/* A value and its source: "num_key_value_heads", "GemmaConfig's num_key_value_heads". */
typedef struct kvb_config_fact {
    uint64_t value;
    char source[KVB_CONFIG_SOURCE];
} kvb_config_fact;

/* A configuration class. */
typedef struct kvb_config_class {
    const char *names;      /* architectures and model types, separated by spaces */
    const char *class_name; /* "Gemma3TextConfig" */
    /* Fields that a file may leave out, with the values that transformers takes then: "head_dim=256
     * sliding_window|sliding_window_size=4096", where | separates two names of one field. NULL: none */
    const char *defaults;
    const char *inert; /* fields that change memory in other models, but not in this one: its code does not read them */
} kvb_config_class;

/* The class with this architecture or model type; NULL: none. */
const kvb_config_class *kvb_config_class_find(const char *name);

typedef struct kvb_config_json {
    json_t *fields;          /* the text config with the defaults filled in; owned by the model */
    const json_t *given;     /* the text config without the defaults */
    const char *place;       /* stands before field names in messages: "text_config." or "" */
    const char *file;        /* for messages */
    const char *class_name;  /* of these defaults: "Gemma3TextConfig" */
    const char *inert;       /* of the class; or NULL */
    const char *model_class; /* the architecture, for messages */
    json_t *asked;           /* the names of all fields that were read */
    int error;               /* 0, or the first failure, a negative errno */
    char *why;
    size_t why_bytes;
} kvb_config_json;

/* Keeps the first failure: "FILE: message". */
__attribute__((format(printf, 3, 4))) void kvb_config_fail(kvb_config_json *config, int error, const char *format, ...);

/* The value of the first of the names that the object has and that is not null; NULL: none. Reports no failures. */
const json_t *kvb_config_get(const json_t *object, const char *names);

/* The same in the text config; *name, unless NULL, is the name that was found. Two names with different values are a
 * failure. */
const json_t *kvb_config_find(kvb_config_json *config, const char *names, const char **name);
bool kvb_config_has(kvb_config_json *config, const char *names);

/* A count from 1 to 2^31 - 1. Absent is a failure. */
kvb_config_fact kvb_config_count(kvb_config_json *config, const char *names);
/* The same; if absent, the fallback with this source. */
kvb_config_fact kvb_config_count_or(kvb_config_json *config, const char *names, uint64_t fallback, const char *source);
/* A count that may be 0. Absent gives 0. */
uint64_t kvb_config_number(kvb_config_json *config, const char *names);
bool kvb_config_flag(kvb_config_json *config, const char *names, bool fallback);
/* NULL if absent. Anything but a string is a failure. */
const char *kvb_config_text(kvb_config_json *config, const char *names);
/* An array of n entries; n 0: of any number. NULL if absent, or after a failure. */
const json_t *kvb_config_list(kvb_config_json *config, const char *names, size_t n);

/* a times b. More than 64 bits is a failure that names `what`. */
uint64_t kvb_config_times(kvb_config_json *config, uint64_t a, uint64_t b, const char *what);
/* The same for a count: more than 2^31 - 1 is a failure. */
uint32_t kvb_config_product(kvb_config_json *config, uint64_t a, uint64_t b, const char *what);

/* Fills in the fields that the file does not have. A field that is null in the file stays null. NULL: nothing. */
void kvb_config_default_fill(kvb_config_json *config, const char *defaults);
/* Fails if a field that changes memory is set but was not read, as the architecture does not know it. */
void kvb_config_unasked(kvb_config_json *config);

/* ---- architectures (model_families.c) --------------------------------------------------------------------- */

typedef struct kvb_model_reading kvb_model_reading;
typedef struct kvb_layer_shape kvb_layer_shape;

/* Names of the fields of an attention layer's shape. NULL: the family has no such field. */
typedef struct kvb_head_fields {
    const char *heads, *kv_heads, *k_dim, *v_dim;
} kvb_head_fields;

/* Names of the fields of a Mamba mixer. */
typedef struct kvb_mamba_fields {
    const char *inner, *expand, *heads, *head_dim, *state, *groups, *conv;
} kvb_mamba_fields;

/*
 * One row for each architecture: its fields, and the rule of its code for them. A layer is a letter:
 *   F  attention over every token (a latent row if the family has latents)
 *   W  attention over a sliding window    C  over chunks
 *   S  the family's mixer: a state        B  both F and S, side by side
 *   f, w, c  as the capital, but it reads the rows of an earlier such layer    -  feed-forward alone
 */
typedef struct kvb_layer_family {
    const char *names;   /* architectures and model types, separated by spaces */
    const char *refusal; /* why models of this family are not sized; the rest is then unused */

    /* The letters of the family, and the rule for each layer's letter. An explicit list in the file comes first: `lists`
     * are the fields that may hold one. Without a list, layer i is F if i % period == offset, else `other`. */
    const char *letters;
    const char *lists;
    char other;            /* 0: every layer is F */
    uint32_t period;       /* 0: no layer is F */
    const char *period_in; /* field that holds the period; NULL: the code fixes it */
    const char *offset_in; /* the same for the offset */
    int offset;            /* below 0: the last layer of each period */
    bool period_must;      /* the field must be there */
    uint32_t lists_first;  /* the number of the first layer in lists of layer numbers */
    const char *count_in;  /* field with the number of layers; NULL: the usual ones */
    uint32_t count_times;  /* layers of attention in each of them; 0: one */
    const char *layers_in; /* lists with an entry for each layer: their length counts if num_hidden_layers is absent */
    bool window_off;       /* there is a window only if use_sliding_window says so */
    const char *window_from;                 /* layers from this number on have the window */
    bool shares;                             /* num_kv_shared_layers, or cla_share_factor */
    const char *window_in;                   /* field that holds the window; NULL: sliding_window */
    bool last_full;                          /* the last layer is F in any case */
    bool rest_full;                          /* so are the layers after the last whole period */
    void (*lay)(kvb_model_reading *reading); /* the rule, if it is neither a list nor a period */
    const char *local_needed; /* W and C need their size: if it is absent, fail instead of taking F; names the need */

    const kvb_head_fields *heads;                     /* NULL: the usual names */
    const kvb_head_fields *full_heads, *window_heads; /* own fields of F and of W */
    const char *full_kv_flag;                         /* F has its own KV heads only if this flag is true */
    uint32_t head_dim_times;                          /* head_dim / (hidden / heads); 0: 1 */
    const char *multi_query;                          /* flag: all heads share one KV head */
    bool multi_query_else;                            /* the flag's value if it is absent */
    const char *kv_flag;                              /* flag: only if true there are fewer KV heads than heads */
    bool latent;                                      /* F is MLA */
    void (*mixer)(kvb_model_reading *reading, kvb_layer_shape *shape);
    const kvb_mamba_fields *mamba;
    /* The field that tells which layers differ, and the function that changes the shape of one layer (own geometry,
     * indexers). */
    const char *vary_in;
    void (*vary)(kvb_model_reading *reading, uint32_t layer, kvb_layer_shape *shape);
    /* Sets shape to what a layer keeps besides its rows or state; nothing: shape stays zero. rows: of this layer. */
    void (*beside)(kvb_model_reading *reading, uint32_t layer, const kvb_sized_group *rows, kvb_layer_shape *shape);
} kvb_layer_family;

/* The family with this architecture or model type; NULL: none. */
const kvb_layer_family *kvb_layer_family_find(const char *name);

/* ---- layers ------------------------------------------------------------------------------------------------ */

#define KVB_LAYERS_MOST 4096u
#define KVB_SHAPE_FACTS 10u

/* The rows or state of one layer, and the source of each factor. */
struct kvb_layer_shape {
    kvb_sized_group group; /* of this one layer */
    struct {
        const char *what; /* "kv_heads" */
        kvb_config_fact fact;
    } facts[KVB_SHAPE_FACTS];
    uint32_t n_facts;
};

/* A model while it is being read. */
struct kvb_model_reading {
    kvb_config_json config;
    const kvb_layer_family *family;
    const kvb_config_class *class; /* NULL: there are no defaults */
    kvb_sized_model *model;
    uint32_t n_layers;
    char letters[KVB_LAYERS_MOST + 1];
    char letters_source[KVB_CONFIG_SOURCE]; /* "layer_types" */
    int16_t groups[2][KVB_LAYERS_MOST];     /* the groups that each layer is in; -1: none */
};

/* Adds a note of the model (group -1) or of a group. Copies the source. */
__attribute__((format(printf, 4, 5))) void kvb_sized_model_note_add(kvb_model_reading *reading, int group,
                                                                    const char *source, const char *format, ...);

/* model_layers.c: gives each layer a letter; changes letters for windows that are switched off and for shared rows; puts
 * layers of equal memory into groups, with a note for each factor and for each group's layers; refuses fields that change
 * memory but were not read. */
void kvb_layers_read(kvb_model_reading *reading);

/* model_families.c: reads the rows of an attention layer with this letter. */
void kvb_attention_read(kvb_model_reading *reading, char letter, kvb_layer_shape *shape);

#endif
