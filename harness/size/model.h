/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model for sizing: groups of layers of equal memory, and the rows or states that each layer keeps. It is read from a
 * Hugging Face config.json or from the built-in facts (models.jsonl). Nothing is guessed: a missing or contradictory
 * field, or an unknown architecture, is refused by name.
 */
#ifndef KVB_SIZING_MODEL_H
#define KVB_SIZING_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/files.h"

struct json_t; /* of jansson.h */

/* What a layer keeps. */
typedef enum kvb_sized_kind {
    KVB_SIZED_FULL,   /* K and V rows of every token */
    KVB_SIZED_WINDOW, /* rows of the last `window` tokens, and of the first `sinks` */
    KVB_SIZED_CHUNK,  /* rows of the tokens since the last multiple of `window` (chunked local attention) */
    KVB_SIZED_LATENT, /* for every token, one row of latent_dim + rope_dim for all heads (MLA) */
    KVB_SIZED_POOLED, /* one row for each `every` tokens, and a state for the incomplete rest */
    KVB_SIZED_CROSS,  /* rows of an encoder's `window` tokens, from the first token on */
    KVB_SIZED_STATE,  /* a recurrent state and the inputs of a convolution; they do not grow */
    KVB_SIZED_NONE,   /* nothing: a feed-forward layer, a no-op, or a layer that reads the rows of another layer */
} kvb_sized_kind;

/* n layers of equal memory. Fields that the kind does not use are 0. */
typedef struct kvb_sized_group {
    uint32_t n;
    uint32_t readers; /* further layers of this shape that read the rows of these; they are in groups of kind NONE */
    kvb_sized_kind kind;
    const char *name; /* static: "full attention", "sliding window", "MLA", "Mamba-2", "gated DeltaNet" … */
    uint32_t heads, kv_heads;
    uint32_t k_dim, v_dim;  /* elements of one head's row */
    uint32_t window, sinks; /* tokens */
    uint32_t every;         /* tokens of a POOLED row */
    /* MLA: kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim; v_dim is v_head_dim */
    uint32_t latent_dim, nope_dim, rope_dim;
    uint32_t index_dim;      /* of a sparse indexer's key, one for each token besides the layer's row; 0: none */
    uint64_t state_elements; /* of the recurrent state, for one sequence and layer */
    uint32_t state_heads, state_groups, state_k, state_v; /* heads of the state, heads of q and k (B and C), a head's
                                                           * rows and columns; 0: RWKV, RG-LRU */
    uint64_t conv_elements; /* of the stored inputs of the convolution (conv_width - 1 columns) */
    /* Columns of the convolution's kernel; mamba_ssm stores all of them, others one less. 0: there is no convolution,
     * and conv_elements are the shifted tokens of RWKV, if any. */
    uint32_t conv_width;
    uint32_t conv_groups, conv_group_width; /* Mamba-2: its groups, and the channels of each in the convolution */
    bool conv_drafts;                       /* vLLM's convolution has one more column for each drafted token */
    bool state_f32;                         /* the recurrent state is f32 for any dtype (KDA, RWKV, RG-LRU) */
} kvb_sized_group;

/* One line of the derivation. */
typedef struct kvb_sized_model_note {
    int group;    /* index of the group; -1: of the whole model */
    char *text;   /* "kv_heads = 8" */
    char *source; /* "num_key_value_heads", "num_attention_heads (num_key_value_heads is absent)", "layer_types" … */
} kvb_sized_model_note;

/* Parts of the weights (weights.h says which tensors each has). */
typedef enum kvb_weights_part {
    KVB_WEIGHTS_EMBEDDING,
    KVB_WEIGHTS_OUTPUT,
    KVB_WEIGHTS_ATTENTION,
    KVB_WEIGHTS_MIXER,
    KVB_WEIGHTS_DENSE,
    KVB_WEIGHTS_EXPERTS,
    KVB_WEIGHTS_SHARED,
    KVB_WEIGHTS_ROUTER,
    KVB_WEIGHTS_NORMS,
    KVB_WEIGHTS_OTHER,
    KVB_WEIGHTS_PARTS
} kvb_weights_part;

/* Exact numbers of parameters. */
typedef struct kvb_sized_parameters {
    bool known;
    char why[160]; /* not known: the missing field or rule; known: the parts that are left out, or "" */
    uint64_t part[KVB_WEIGHTS_PARTS], total;
} kvb_sized_parameters;

typedef struct kvb_sized_model {
    char *name;         /* of the built-in model, the file, or "stdin" */
    char *architecture; /* "LlamaForCausalLM" */
    char *type;         /* model_type, or "" */
    char *source;       /* of built-in facts; NULL for a file */
    char dtype[16];     /* of the weights: "bf16", "f16", "f32"; "": not named, counted as 16 bits */
    /* num_hidden_layers. A layer with attention beside a mixer (Zamba2, Falcon-H1) is in two groups, so the sum of the
     * groups' n can be larger. */
    uint32_t n_layers;
    uint32_t hidden, intermediate, vocab;
    uint64_t max_context; /* tokens; 0: not stated */
    uint32_t mtp_layers;  /* extra layers for multi-token prediction; not in groups */
    kvb_sized_group *groups;
    size_t n_groups;
    kvb_sized_model_note *notes;
    size_t n_notes;
    kvb_sized_parameters parameters;
    /* The text config: the file's fields, an enclosing config's dtype, tying and quantization, and the defaults of the
     * model's class. Owned by the model. */
    struct json_t *config;
} kvb_sized_model;

/* Reads one config.json: n bytes of text or, with text NULL, an object. 0 with *model, which the caller frees; -EINVAL
 * with why, which names the line or field and what was expected; -ENOTSUP with why for an architecture that sizing
 * refuses; -ENOMEM. name is for messages. */
int kvb_sized_model_read(const char *text, size_t n, struct json_t *config, const char *name, kvb_sized_model **model,
                         char *why, size_t why_bytes);
/* Finds a built-in model by its name ("meta-llama/Llama-3.1-8B") or the part after "/", in upper or lower case.
 * -ENOENT: why names similar ones. */
int kvb_sized_model_built_in(const char *name, kvb_sized_model **model, char *why, size_t why_bytes);
/* Name of the i-th built-in model; NULL after the last. */
const char *kvb_sized_model_name(size_t i);
void kvb_sized_model_free(kvb_sized_model *model);

/* Names are one string with spaces between. Copies the first name and returns the others. */
#define KVB_NAME_BYTES 96u
const char *kvb_names_next(const char *names, char name[KVB_NAME_BYTES]);

/* Does the layer attend, with one row for each of the model's own tokens? */
static inline bool kvb_sized_attends(const kvb_sized_group *group)
{
    return group->kind < KVB_SIZED_POOLED;
}

/* Does a layer of the group keep a row for every token of this context? Also true for a window that is at least as long
 * as the context and the model's longest context. */
bool kvb_sized_grows(const kvb_sized_model *model, const kvb_sized_group *group, uint64_t context);

#endif
