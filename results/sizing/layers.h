/* SPDX-License-Identifier: Apache-2.0 */
/* From fields to layers: which layer is what, and what one of them keeps. Private to results/sizing. */
#ifndef KVB_SIZING_LAYERS_H
#define KVB_SIZING_LAYERS_H

#include "results/sizing/families.h"

#define KVB_LAYERS_MOST 4096u
#define KVB_SHAPE_FACTS 10u

struct kvb_shape {
    kvb_layer_group group; /* of one layer */
    struct {
        const char *what; /* "kv_heads" */
        kvb_fact fact;
    } facts[KVB_SHAPE_FACTS];
    uint32_t n_facts;
};

struct kvb_reading {
    kvb_config config;
    const kvb_layer_family *family;
    kvb_model *model;
    uint32_t n_layers;
    char letters[KVB_LAYERS_MOST + 1];
    char letters_source[KVB_CONFIG_SOURCE]; /* "layer_types" */
    int16_t groups[2][KVB_LAYERS_MOST];     /* that each layer is in; -1: none */
};

/* Adds a factor to what --explain tells of the layer; its value. */
uint32_t kvb_shape_fact(kvb_shape *shape, const char *what, kvb_fact fact);
/* The same, with a source alone. */
void kvb_shape_rule(kvb_shape *shape, const char *what, uint64_t value, const char *source);

/* A letter for each layer (layers_pattern.c), then what windows and sharing make of them (layers_rules.c). */
void kvb_layers_lay(kvb_reading *reading);
void kvb_layers_settle(kvb_reading *reading);

/* What an attention layer with this letter keeps. */
void kvb_attention_read(kvb_reading *reading, char letter, kvb_shape *shape);

/* What a mixer keeps: the `mixer` of a family. */
void kvb_mamba1_read(kvb_reading *reading, kvb_shape *shape);
void kvb_mamba2_read(kvb_reading *reading, kvb_shape *shape);
void kvb_delta_net_read(kvb_reading *reading, kvb_shape *shape);
void kvb_kda_read(kvb_reading *reading, kvb_shape *shape);
void kvb_lightning_read(kvb_reading *reading, kvb_shape *shape);
void kvb_rwkv_read(kvb_reading *reading, kvb_shape *shape);
void kvb_short_conv_read(kvb_reading *reading, kvb_shape *shape);
void kvb_rg_lru_read(kvb_reading *reading, kvb_shape *shape);

/* Per-layer differences: the `vary` of a family. */
void kvb_block_config_vary(kvb_reading *reading, uint32_t layer, kvb_shape *shape);
void kvb_indexer_vary(kvb_reading *reading, uint32_t layer, kvb_shape *shape);
void kvb_sparse_index_vary(kvb_reading *reading, uint32_t layer, kvb_shape *shape);

/* A note of the model (group -1) or of a group; takes nothing over. */
void kvb_model_note_add(kvb_reading *reading, int group, const char *text, const char *source);

#endif
