/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as sizing sees it: layers in groups of equal memory, each with what it keeps of the past. Read from a Hugging
 * Face config.json or from the built-in facts (models.jsonl). Nothing is guessed: a field that is missing,
 * contradictory or of an architecture without an entry is refused, naming the field.
 */
#ifndef KVB_SIZING_MODEL_H
#define KVB_SIZING_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t; /* of jansson.h */

/* What a layer keeps of the tokens it has seen. */
typedef enum kvb_layer_kind {
    KVB_LAYER_FULL,   /* K and V rows of every token */
    KVB_LAYER_WINDOW, /* of the last `window` tokens, and of the first `sinks` */
    KVB_LAYER_CHUNK,  /* of the tokens since the last multiple of `window` (chunked local attention) */
    KVB_LAYER_LATENT, /* one row of latent_dim + rope_dim for all heads, of every token (MLA) */
    KVB_LAYER_STATE,  /* a recurrent state and the inputs of a convolution, whatever the length */
    KVB_LAYER_NONE,   /* nothing: a feed-forward layer, a no-op, or one that reads rows which another layer owns */
} kvb_layer_kind;

/* `n` layers of equal memory. Fields that the kind does not use are 0. */
typedef struct kvb_layer_group {
    uint32_t n;
    kvb_layer_kind kind;
    const char *name; /* static: "full attention", "sliding window", "MLA", "Mamba-2", "gated DeltaNet" … */
    uint32_t heads, kv_heads;
    uint32_t k_dim, v_dim;  /* elements of one head's row */
    uint32_t window, sinks; /* tokens */
    uint32_t latent_dim, nope_dim,
        rope_dim;            /* MLA: kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim; v_dim is v_head_dim */
    uint32_t index_dim;      /* of a sparse indexer's key, one row per token beside the layer's own; 0: none */
    uint64_t state_elements; /* of the recurrent state of one sequence and layer */
    uint64_t conv_elements;  /* of the convolution's stored inputs (conv - 1 columns) */
    uint32_t conv_width; /* columns of the convolution's kernel; mamba_ssm stores all of them, others one less. 0: no
                                convolution; conv_elements are then the shifted tokens of RWKV, if any */
    bool state_f32;      /* the recurrent state is f32 whatever the dtype (KDA, RWKV, RG-LRU) */
} kvb_layer_group;

/* One line of the derivation: "8 KV heads", "num_key_value_heads". */
typedef struct kvb_model_note {
    int group;    /* index of the layer group; -1: of the whole model */
    char *text;   /* "kv_heads = 8" */
    char *source; /* "num_key_value_heads", "num_attention_heads (num_key_value_heads is absent)", "layer_types" … */
} kvb_model_note;

/* Parameters (elements), by part; exact where known. */
typedef struct kvb_parameters {
    bool known;
    char why[160]; /* not known: which field or rule is missing */
    uint64_t embedding, output, attention, mixer, dense, experts, shared_experts, router, norms, other, total;
} kvb_parameters;

typedef struct kvb_model {
    char *name;         /* of the built-in fact, the file, or "stdin" */
    char *architecture; /* "LlamaForCausalLM" */
    char *type;         /* model_type, or "" */
    char *source;       /* where built-in facts come from; NULL for a file */
    char dtype[16];     /* of the weights: "bf16", "f16", "f32"; "": not named, 16 bits are taken */
    uint32_t
        n_layers; /* num_hidden_layers. A layer that keeps two things (attention beside a mixer: Zamba2, Falcon-H1) is
                           in two groups, so that the sum of the groups' n may be larger */
    uint32_t hidden, intermediate, vocab;
    uint64_t max_context; /* tokens; 0: not stated */
    uint32_t mtp_layers;  /* extra layers for multi-token prediction, when it is served; not in groups */
    kvb_layer_group *groups;
    size_t n_groups;
    kvb_model_note *notes;
    size_t n_notes;
    kvb_parameters parameters;
    struct json_t
        *config; /* the text config: what the file says, beside it what an enclosing config says of dtype, tying
                              and quantization, and the defaults of the model's class; owned by the model */
} kvb_model;

/* Reads one config.json of n bytes. 0 with *model (free it), or -EINVAL with one line in why that names line or field and
 * what was expected; -ENOTSUP: an architecture that sizing refuses, with the reason; -ENOMEM. `name` is for messages. */
int kvb_model_read(const char *text, size_t n, const char *name, kvb_model **model, char *why, size_t why_bytes);
/* A built-in model by its name: whole ("meta-llama/Llama-3.1-8B") or the part after "/", in any case. -ENOENT: none such,
 * why names near ones. */
int kvb_model_built_in(const char *name, kvb_model **model, char *why, size_t why_bytes);
/* Names of the built-in models, in order; NULL at the end of them. */
const char *kvb_model_name(size_t i);
void kvb_model_free(kvb_model *model);

#endif
