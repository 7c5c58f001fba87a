/* SPDX-License-Identifier: Apache-2.0 */
/* How a family of models is built, as far as its tensors go: one row of the table in weights_families.c. */
#ifndef KVB_WEIGHTS_FAMILY_H
#define KVB_WEIGHTS_FAMILY_H

#include "results/sizing/weights_sum.h"

/* Feed-forward blocks. Names are fields of the config, as kvb_field takes them. */
typedef struct kvb_weights_feed {
    bool plain;                         /* up and down; otherwise gate, up and down */
    const char *width;                  /* of a dense block */
    unsigned times;                     /* width / hidden where that field is absent; 0: it must be there */
    const char *bias;                   /* of a dense block: a rule, see kvb_flag */
    const char *needs;                  /* a field without which the layers that have experts are not known */
    const char *experts, *expert_width; /* how many, and how wide; NULL: dense blocks only */
    bool expert_bias;                   /* experts and their router have biases */
    const char *correction;             /* rule: a bias per expert for choosing (e_score_correction_bias) */
    const char *shared, *shared_width;  /* how many shared experts (NULL: one), and how wide; NULL: none */
    bool shared_gate;                   /* a gate of 1 x hidden for it */
    bool beside;                        /* each layer has both: a dense block and experts */
    const char *pattern;                /* field: a letter for each layer, E: experts, -: a dense block */
} kvb_weights_feed;

typedef struct kvb_weights_family {
    const char *names; /* values of model_type, then of architectures; each with a blank on both sides */
    bool tied;         /* output and embedding, where tie_word_embeddings is absent */
    unsigned norms;    /* vectors of `hidden` in a layer */
    const char *norm_bias, *qkv_bias, *o_bias, *output_bias; /* rules */
    const char *head_norm, *row_norm;     /* rules: q and k are normalised, with weights for a head or for all heads */
    const char *positions;                /* field: entries of a learned table of positions; NULL: none */
    const kvb_weights_feed *feed;         /* NULL: none */
    void (*mixer)(kvb_weights_sum *sum);  /* of layers with a recurrent state */
    void (*extras)(kvb_weights_sum *sum); /* tensors that no other entry covers */
    bool gated_q;                         /* q_proj gives a gate beside q */
    bool shares_attention;                /* by extras: layers have none of their own */
    const char *k_is_v;                   /* rule: layers that see all tokens have no v_proj */
    const char *unknown;                  /* fields that bring tensors of which no rule is known */
} kvb_weights_family;

const kvb_weights_family *kvb_weights_family_find(const kvb_weights_sum *sum);

void kvb_attention_add(kvb_weights_sum *sum, const kvb_weights_family *family);
void kvb_feed_add(kvb_weights_sum *sum, const kvb_weights_feed *feed);
/* A block: gate, up and down, or up and down. */
void kvb_block_add(kvb_weights_sum *sum, kvb_part part, uint64_t n, uint64_t width, bool plain, bool bias);

void kvb_mamba1_add(kvb_weights_sum *sum);
void kvb_jamba_add(kvb_weights_sum *sum);
void kvb_mamba2_add(kvb_weights_sum *sum);
void kvb_delta_net_add(kvb_weights_sum *sum);
void kvb_kimi_delta_add(kvb_weights_sum *sum);
void kvb_lightning_add(kvb_weights_sum *sum);
void kvb_rwkv4_add(kvb_weights_sum *sum);
void kvb_rwkv5_add(kvb_weights_sum *sum);

void kvb_falcon_extras(kvb_weights_sum *sum);
void kvb_bloom_extras(kvb_weights_sum *sum);
void kvb_gpt_oss_extras(kvb_weights_sum *sum);
void kvb_gemma4_extras(kvb_weights_sum *sum);
void kvb_gemma3n_extras(kvb_weights_sum *sum);
void kvb_zamba2_extras(kvb_weights_sum *sum);
void kvb_deci_extras(kvb_weights_sum *sum);

#endif
