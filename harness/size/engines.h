/* SPDX-License-Identifier: Apache-2.0 */
/* What engines share: one rank's part of a layer, and sums that do not wrap. Private to harness/size. */
#ifndef KVB_SIZING_ENGINES_H
#define KVB_SIZING_ENGINES_H

#include "harness/size/sizing.h"

#define KVB_COUNT(...) (sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
/* Adds the product of the factors to *sum. 0 or -EOVERFLOW. */
#define kvb_add(sum, ...) kvb_add_product(sum, (uint64_t[]){__VA_ARGS__}, KVB_COUNT(__VA_ARGS__))
int kvb_add_product(uint64_t *sum, const uint64_t *factors, size_t n);

static inline uint64_t kvb_ceil_div(uint64_t x, uint64_t by)
{
    return x / by + (x % by != 0);
}
int kvb_round_up(uint64_t *x, uint64_t to); /* 0 or -EOVERFLOW */

/* Of n layers, those of the asked stage of a pipeline. */
uint64_t kvb_stage_layers(uint64_t n, const kvb_size_ask *ask);

/* Layers of group i on the fullest rank. Each kind of layer counts as spread evenly over the stages, rounded up. Layers
 * for multi-token prediction, if served, are of the last kind of attention. */
uint64_t kvb_layers_held(const kvb_sized_model *model, size_t i, const kvb_size_ask *ask);

/* Bytes of one token's K and V rows in one layer of the group, on one rank, without a sparse indexer's. -ENOTSUP with
 * why: the format or --tp does not divide them. */
int kvb_layer_row_bytes(const kvb_sized_group *group, const kvb_size_ask *ask, uint64_t *bytes, char *why,
                        size_t why_bytes);

/* Bytes of one key of a sparse indexer as DeepSeek-V3.2's model code and vLLM (DeepseekV32IndexerCache) keep it: e4m3,
 * and an f32 scale for each 128. */
uint64_t kvb_index_row_bytes(const kvb_sized_group *group);

/* Bytes of a recurrent layer's state for one sequence on one rank, without drafts. 0 or -EOVERFLOW. */
int kvb_layer_state_bytes(const kvb_sized_group *group, const kvb_size_ask *ask, uint32_t state_element,
                          uint32_t conv_element, uint64_t *bytes);

/* Bytes of an element of a dtype ("f32", "bf16", "f16"): 4 or 2. */
uint32_t kvb_config_dtype_bytes(const char *dtype);
/* The same for a value that is kept as it was computed: of K's format if that is a plain float, else of the model's
 * dtype. */
uint32_t kvb_plain_bytes(const kvb_sized_model *model, const kvb_size_ask *ask);

/* The same of a format that is a plain float; 0: it is not. */
uint32_t kvb_plain_format_bytes(const kvb_kv_format *format);

/* What one layer has alive at once, at least. 0 or -EOVERFLOW. */
int kvb_layer_peak(const kvb_sized_model *model, const kvb_size_engine *engine, const kvb_size_ask *ask,
                   uint64_t *bytes);

/* SGLang: has the layer's window a pool of its own; is this a layer that it has a pool for; bytes of an element of a
 * state. */
bool kvb_sglang_is_windowed(const kvb_sized_model *model, const kvb_sized_group *group, const kvb_size_ask *ask);
bool kvb_sglang_knows(const kvb_sized_group *group);
uint32_t kvb_sglang_state_element(const kvb_sized_model *model, const kvb_size_ask *ask);
/* mlx-lm: the kinds of layers of this model of which it is known what they keep; of windows, all rows or a window's. */
enum { KVB_MLX_WHOLE = 1, KVB_MLX_ROTATING = 2, KVB_MLX_LATENT = 4, KVB_MLX_STATES = 8 };
uint32_t kvb_mlx_caches_of(const kvb_sized_model *model);

/* Does llama.cpp keep less than all tokens in the model's windows? */
bool kvb_llama_has_windows(const kvb_sized_model *model);
/* llama.cpp's compute buffer: the most f32 elements that a token has at once. In a feed-forward block: the residual, gate,
 * up and their product, or those of all experts that it uses, or their outputs. In attention: the residual, q and what
 * comes of it, in MLA q twice as wide as the rows. */
uint64_t kvb_llama_feed_width(const kvb_sized_model *model);
uint64_t kvb_llama_heads_width(const kvb_sized_model *model);
/* Copies of what a pipeline hands on. */
uint64_t kvb_llama_copies(const kvb_size_ask *ask);
/* Bytes of an element of a recurrent state in vLLM; and the sequences that its buffers are for, of so many bytes a
 * logit; and the batches of a sequence that can be in flight. */
uint32_t kvb_vllm_state_element(const kvb_sized_model *model, const kvb_size_ask *ask);
uint64_t kvb_vllm_max_seqs(const kvb_size_ask *ask);
uint64_t kvb_vllm_states(const kvb_size_ask *ask);
uint64_t kvb_vllm_batches(const kvb_size_ask *ask);
enum { KVB_VLLM_SAMPLER_BYTES = 43 };

/* Writes "a size is above 64 bits". Returns -EOVERFLOW. */
int kvb_too_large(char *why, size_t why_bytes);

#endif
