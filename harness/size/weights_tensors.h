/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum over a model's tensors: shapes by part, from fields of the config. A family of models is a row of data, its kinds
 * of modules are functions. Private to harness/size.
 */
#ifndef KVB_SIZING_WEIGHTS_TENSORS_H
#define KVB_SIZING_WEIGHTS_TENSORS_H

#include <jansson.h>

#include "harness/size/weights.h"

/* ---- the sum ------------------------------------------------------------------------------------------ */

struct kvb_weights_sum;
/* Bytes of one published tensor of rows x cols (a vector: 1 x n). */
typedef uint64_t (*kvb_tensor_bytes)(const struct kvb_weights_sum *sum, kvb_weights_part part, uint64_t rows,
                                     uint64_t cols);

/* The form of a part's matrices in a quantisation. */
typedef struct kvb_weights_code {
    uint32_t bits;              /* of an element; 0: the part is not quantised */
    uint32_t group, group_bits; /* group_bits: of scale and zero for `group` elements of a row; 0: none */
    uint32_t block[2];          /* rows and columns that share an f32 scale; 0: none */
    uint32_t row, tensor;       /* extra bytes for each row, and for each tensor */
} kvb_weights_code;

typedef struct kvb_weights_codes {
    uint64_t layers[KVB_WEIGHTS_PARTS], left[KVB_WEIGHTS_PARTS]; /* with such a part; and with it left out */
    kvb_weights_code of[KVB_WEIGHTS_PARTS];
} kvb_weights_codes;

/* The first failure is kept in err and why, and nothing is added after it: no step of the sum checks for failures. */
typedef struct kvb_weights_sum {
    const json_t *config;
    const kvb_sized_model *model;
    uint64_t hidden, layers;
    uint64_t parts[KVB_WEIGHTS_PARTS];
    kvb_tensor_bytes tensor_bytes;
    uint64_t element, bytes; /* element: bytes of the config's dtype */
    kvb_weights_codes codes;
    bool mtp;     /* layers for multi-token prediction count if their tensors are known */
    bool at_most; /* bytes is an upper limit */
    int err;      /* 0; -ENOENT: a field or rule is missing; -EINVAL: a field is wrong; -EOVERFLOW */
    char why[160];
} kvb_weights_sum;

__attribute__((format(printf, 3, 4))) void kvb_sum_stop(kvb_weights_sum *sum, int err, const char *format, ...);

/* A field of the config; names are as in model_reading.h. NULL: absent or null. */
const json_t *kvb_sum_find(const kvb_weights_sum *sum, const char *names);

/* Sums the tensors of the whole model. */
void kvb_sum_run(kvb_weights_sum *sum);

/* ---- families ------------------------------------------------------------------------ */

/*
 * A rule gives a flag: NULL is false, "+" true; "name" is the field's value, or if absent false; "+name" if absent true;
 * "!name" if absent a failure, as models of the family differ.
 */

/* Feed-forward blocks. Strings name fields of the config, or are rules. */
typedef struct kvb_weights_feed {
    bool plain;                         /* up and down; otherwise gate, up and down */
    const char *width;                  /* of a dense block; NULL: intermediate_size */
    unsigned times;                     /* width / hidden if that field is absent; 0: it must be there */
    const char *bias;                   /* rule: of a dense block */
    const char *needs;                  /* field that tells which layers have experts, and must be there */
    const char *experts, *expert_width; /* number of experts (NULL: dense blocks only) and width (NULL:
                                         * moe_intermediate_size) */
    bool expert_bias;                   /* experts and their router have biases */
    const char *latent; /* field: the width of routed experts, with a projection to it and one back; absent: hidden */
    const char *correction;            /* rule: a bias for each expert in the choice (e_score_correction_bias) */
    const char *shared, *shared_width; /* number of shared experts (NULL: one) and their width (NULL: there are none) */
    bool shared_gate;                  /* the shared expert has a gate of 1 x hidden */
    bool beside;                       /* each layer has both a dense block and experts */
    const char *pattern; /* fields: a letter or a word for each layer; E, moe: experts; -, mlp: a dense block */
} kvb_weights_feed;

typedef struct kvb_weights_family {
    const char *names; /* values of model_type, then architectures, separated by spaces */
    bool tied;         /* output and embedding are tied if tie_word_embeddings is absent */
    unsigned norms;    /* vectors of `hidden` in a layer */
    const char *norm_bias, *bias, *qkv_bias, *o_bias, *output_bias; /* rules; bias: of q, k, v and o */
    const char *head_norm, *row_norm; /* rules: q and k are normalised, with weights for one head or for all heads */
    const char *positions;            /* field: entries of a learned table of positions; NULL: none */
    const kvb_weights_feed *feed;     /* NULL: none */
    void (*mixer)(kvb_weights_sum *sum, const kvb_sized_group *group); /* of layers with a recurrent state */
    void (*extras)(kvb_weights_sum *sum);                              /* all other tensors */
    bool gated_q;                                                      /* q_proj yields a gate beside q */
    bool shares_attention; /* layers have no attention of their own; extras add the shared one */
    bool mtp; /* a layer for multi-token prediction is one of the last kind, a projection of 2 hidden, and 3 norms */
    const char *k_is_v;  /* rule: layers that see all tokens have no v_proj */
    const char *unknown; /* fields that bring tensors without a known rule */
} kvb_weights_family;

const kvb_weights_family *kvb_weights_family_find(const kvb_weights_sum *sum);

/* Counts the layers from `from` up to `to` with experts, and those with a dense block. */
void kvb_feed_count(kvb_weights_sum *sum, const kvb_weights_feed *feed, uint64_t from, uint64_t to, uint64_t *sparse,
                    uint64_t *dense);

#endif
