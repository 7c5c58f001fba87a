/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights of the live model: a decoder-only transformer of the Llama family. All f32, matrices
 * [out][in] row-major as checkpoints hold them, everything in one block.
 */
#ifndef KVB_LIVE_WEIGHTS_H
#define KVB_LIVE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/model.h"
#include "kernels/scan.h"

/* Model facts, as config.json of a checkpoint states them. */
typedef struct kvb_model_config {
    uint32_t layers;
    uint32_t heads;    /* query heads, a multiple of kv_heads */
    uint32_t kv_heads; /* key and value heads */
    uint32_t head_dim; /* elements of a q, K or V row; even, because RoPE rotates pairs */
    uint32_t hidden;   /* elements of the residual stream */
    uint32_t ffn;      /* elements inside the SwiGLU */
    uint32_t vocab;
    double rope_theta;
    float norm_eps;
    bool tied;              /* the lm head is the embedding */
    bool qk_norm;           /* RMSNorm of each q and K head before RoPE */
    bool sink_logits;       /* one more logit for each query head, learned (gpt-oss) */
    uint32_t no_rope_every; /* one layer of so many has no positions (Llama 4); 0: none */
    /* Latent attention (DeepSeek's MLA): K and V of all heads are made from one row of kv_lora_rank elements; the last
     * rope_dim elements of a q head meet a K row with positions, which all heads share. 0: none. */
    uint32_t kv_lora_rank, rope_dim;
    uint32_t v_dim; /* latent attention: elements of a V row */
    /* Layers that scan: all, except one of attend_every layers, which attends; attend_every 0: all. scan.heads 0: no
     * layer scans. The convolution's channels are those of v, k and q. */
    kvb_group_scan scan;
    uint32_t attend_every;
    uint32_t dt_rank; /* mamba1: elements between the channels and Delta */
    bool expanded;    /* the cache holds K and V of each head, not the latent row: the same model, for comparison */
} kvb_model_config;

/* The model of the shipped workloads. */
extern const kvb_model_config kvb_model_config_default;

/* Does the layer scan? */
static inline bool kvb_model_config_scans(const kvb_model_config *c, uint32_t layer)
{
    return c->scan.heads && (!c->attend_every || (layer + 1) % c->attend_every);
}

/* Channels of a token's convolution: those of v and, except in mamba1, of k and q. */
static inline uint32_t kvb_scan_channels(const kvb_group_scan *s)
{
    return s->heads * s->d_v + (s->kind == KVB_SCAN_MAMBA1 ? 0 : 2 * s->groups * s->d_k);
}

/* Outputs of a layer's first projection of a token: channels, the gate z of the outputs, and for each head Delta
 * (mamba2), or Delta and beta (the delta rule). */
static inline uint32_t kvb_scan_projected(const kvb_group_scan *s)
{
    const uint32_t each = s->kind == KVB_SCAN_MAMBA2 ? 1 : s->kind == KVB_SCAN_DELTA ? 2 : 0;
    return kvb_scan_channels(s) + s->heads * s->d_v + each * s->heads;
}

/* Rows and scale of a layer that attends, as the cache gets them; without limits and rope. */
kvb_group kvb_model_config_group(const kvb_model_config *config);
/* The positional part of a layer's K rows. */
kvb_rope kvb_model_config_rope(const kvb_model_config *config, uint32_t layer);

/* 0, or -EINVAL with what was expected. */
int kvb_model_config_check(const kvb_model_config *config, char *why, size_t why_bytes);

typedef struct kvb_layer_weights {
    float *attn_norm; /* [hidden] */
    float *q;         /* [heads * head_dim][hidden] */
    float *k, *v;     /* [kv_heads * head_dim][hidden] */
    float *q_norm;    /* [head_dim], NULL without qk_norm */
    float *k_norm;
    float *o;         /* [hidden][heads * elements of a V row] */
    float *mlp_norm;  /* [hidden] */
    float *gate, *up; /* [ffn][hidden] */
    float *down;      /* [hidden][ffn] */
    /* of latent attention, in place of k and v: */
    float *kv_a;      /* [kv_lora_rank + rope_dim][hidden] */
    float *kv_a_norm; /* [kv_lora_rank] */
    float *kv_b;      /* for each head [head_dim - rope_dim of K, then v_dim of V][kv_lora_rank] */
    float *sinks;     /* [heads], NULL without sink_logits */
    /* of a layer that scans, in place of q, k, v and o: */
    float *in;        /* [kvb_scan_projected()][hidden] */
    float *taps;      /* [conv_width][channels] */
    float *bias;      /* [channels] */
    float *a;         /* as in kernels/scan.h: mamba1 [d_k][d_v], else [heads]; delta rule: only used by the model */
    float *dt_bias;   /* of Delta: mamba1 [d_v], else [heads] */
    float *select;    /* mamba1: [dt_rank + 2 d_k][d_v], the projection to Delta, k and q */
    float *dt;        /* mamba1: [d_v][dt_rank] */
    float *skip;      /* D: mamba1 [d_v], mamba2 [heads] */
    float *scan_norm; /* [heads * d_v] */
    float *out;       /* [hidden][heads * d_v] */
} kvb_layer_weights;

/* One tensor under its checkpoint name, for code that treats all tensors alike. */
typedef struct kvb_weight {
    char name[96];
    float *data;
    uint64_t shape[2];
    uint32_t n_dims; /* 1: a norm's gains */
    size_t n;        /* elements */
    size_t number;   /* among the tensors of all models: the stream of its seeded values */
    size_t layer;    /* SIZE_MAX: outside of layers */
    const struct kvb_tensor_kind *kind;
} kvb_weight;

typedef struct kvb_weights {
    kvb_model_config config;
    float *embed;              /* [vocab][hidden] */
    float *norm;               /* [hidden] */
    float *lm_head;            /* [vocab][hidden]; embed when tied */
    kvb_layer_weights *layers; /* [layers] */
    kvb_weight *tensors;       /* [n_tensors] in checkpoint order; without a tied lm head */
    size_t n_tensors;
    float *block; /* [block_floats] of all tensors */
    size_t block_floats;
} kvb_weights;

/* 0, -EINVAL (why), -ENOMEM. Values are 0. */
int kvb_weights_open(const kvb_model_config *config, kvb_weights **weights, char *why, size_t why_bytes);
void kvb_weights_close(kvb_weights *weights);

/* Fills the weights with seeded values, scaled so that greedy decoding does not fall into short cycles. */
void kvb_weights_seed(kvb_weights *weights, uint64_t seed);

/* Makes a draft model: a copy in which every matrix has noise of `amount` times its root mean square. 0 or -ENOMEM. */
int kvb_weights_blur(const kvb_weights *weights, uint64_t seed, float amount, kvb_weights **draft);

/*
 * Llama-style checkpoints: a safetensors file with tensors named as in transformers, and a config.json. A checkpoint
 * that the live model would compute differently from what its authors meant is refused; why names the key or tensor.
 *
 * Keys of config.json: num_hidden_layers, num_attention_heads, hidden_size, intermediate_size, vocab_size;
 * num_key_value_heads (default: num_attention_heads), head_dim (hidden_size / num_attention_heads), rope_theta (10000),
 * rms_norm_eps (1e-6), tie_word_embeddings (false). Other keys are ignored, unless they ask for arithmetic that this
 * model does not have.
 */

/* 0 or a negative errno with "path: what was expected". qk_norm is left false: the tensors decide it. */
int kvb_model_config_load(const char *path, kvb_model_config *config, char *why, size_t why_bytes);
/* Writes path.tmp, syncs, renames. */
int kvb_model_config_save(const char *path, const kvb_model_config *config, char *why, size_t why_bytes);

/* config_path NULL: config.json beside the weights. Every tensor of the model must be there in its shape,
 * and no other. */
int kvb_weights_load(const char *path, const char *config_path, kvb_weights **weights, char *why, size_t why_bytes);
/* Writes the weights and config.json beside them. */
int kvb_weights_save(const kvb_weights *weights, const char *path, char *why, size_t why_bytes);

#endif
