/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Architectures as data: one row says which fields one has and which rule its code applies to them. Private to
 * results/sizing.
 *
 * A layer is a letter:
 *   F  attention over every token (a latent row where the family has latents)
 *   W  over a sliding window            C  over chunks
 *   S  the family's mixer: a state      B  both F and S, side by side
 *   R  reads the rows of another layer  -  feed-forward alone
 */
#ifndef KVB_SIZING_FAMILIES_H
#define KVB_SIZING_FAMILIES_H

#include "results/sizing/config.h"
#include "results/sizing/model.h"

/* Names of the fields of an attention layer's shape; NULL: the family has none. */
typedef struct kvb_head_fields {
    const char *heads, *kv_heads, *k_dim, *v_dim;
} kvb_head_fields;

/* Of a Mamba mixer. */
typedef struct kvb_mamba_fields {
    const char *inner, *expand, *heads, *head_dim, *state, *groups, *conv;
} kvb_mamba_fields;

typedef struct kvb_reading kvb_reading;
/* A layer's memory and where each factor came from. */
typedef struct kvb_shape kvb_shape;

typedef struct kvb_layer_family {
    const char *names;      /* architectures and model types, separated by spaces */
    const char *refusal;    /* why no such model is sized; the rest is unused then */
    const char *class_name; /* of transformers, whose defaults these are */
    const kvb_config_default *defaults;

    /* Which letters there are, and which layer has which. An explicit list in the file comes first: `lists` are the
     * fields that hold one; then the rule: layer i is F where i % period == offset, and `other` elsewhere. */
    const char *letters;
    const char *lists;
    char other;            /* 0: all F */
    uint32_t period;       /* 0: none is F */
    const char *period_in; /* fields that hold the period and the offset; NULL: fixed by code */
    const char *offset_in;
    int offset;               /* below 0: the last of each period */
    bool period_must;         /* the field must be there */
    bool window_off;          /* there is a window only where use_sliding_window says so */
    const char *window_from;  /* layers from this number on have the window */
    bool shares;              /* num_kv_shared_layers, or cla_share_factor */
    const char *window_in;    /* NULL: sliding_window */
    const char *local_needed; /* a layer W or C needs its size: absent is a failure, not all F; says where from */

    const kvb_head_fields *heads;                     /* NULL: the usual names */
    const kvb_head_fields *full_heads, *window_heads; /* of F and of W where they have their own */
    const char *full_kv_flag;                         /* F has its own KV heads only where this flag is true */
    uint32_t head_dim_times;                          /* head_dim is this times hidden / heads; 0: once */
    const char *multi_query;                          /* a flag: one KV head for all */
    bool multi_query_else;                            /* where the flag is absent */
    bool latent;                                      /* F is MLA */
    void (*mixer)(kvb_reading *reading, kvb_shape *shape);
    const kvb_mamba_fields *mamba;
    /* Changes the shape of one layer: per-layer geometry, indexers; and the field that says which layers. */
    const char *vary_in;
    void (*vary)(kvb_reading *reading, uint32_t layer, kvb_shape *shape);
} kvb_layer_family;

/* The row with this architecture or model type; NULL: none. */
const kvb_layer_family *kvb_layer_family_find(const char *name);

#endif
