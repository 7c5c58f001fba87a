/* SPDX-License-Identifier: Apache-2.0 */
/* Common functions of engines: one rank's part of a layer, and sums that do not wrap. Private to harness/size. */
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

/* Layers of the asked stage of a pipeline, out of n; rounded up. */
uint64_t kvb_stage_layers(uint64_t n, const kvb_size_ask *ask);

/* Layers of the group on the fullest rank. The layers of each group are spread evenly over the stages, rounded up. Layers
 * for multi-token prediction, if served, belong to the last group with attention. */
uint64_t kvb_layers_held(const kvb_sized_model *model, const kvb_sized_group *group, const kvb_size_ask *ask);

/* Bytes of one token's K and V rows in one layer of the group on one rank, without a sparse indexer's keys. -ENOTSUP with
 * why: the format or --tp does not divide the rows. */
int kvb_layer_row_bytes(const kvb_sized_group *group, const kvb_size_ask *ask, uint64_t *bytes, char *why,
                        size_t why_bytes);

/* Why the engine cannot hold the model in the asked formats; NULL: it can. text: for a reason with names or numbers. */
const char *kvb_size_lack(const kvb_size_engine *engine, const kvb_sized_model *model, const kvb_size_ask *ask,
                          char text[KVB_LACK_TEXT]);

/* Sums what engine->layer() keeps of each group. The errors of kvb_size_hold, but -EOVERFLOW without why. */
int kvb_layers_sum(const kvb_size_engine *engine, const kvb_sized_model *model, const kvb_size_ask *ask,
                   kvb_size_allocation *out, char *why, size_t why_bytes);

/* Bytes of one key of a sparse indexer: e4m3 with an f32 scale for each 128 elements, as in DeepSeek-V3.2's model code and
 * in vLLM (DeepseekV32IndexerCache). */
uint64_t kvb_index_row_bytes(const kvb_sized_group *group);

/* Bytes of a recurrent layer's state for one sequence on one rank, without drafts. 0 or -EOVERFLOW. */
int kvb_layer_state_bytes(const kvb_sized_group *group, const kvb_size_ask *ask, uint32_t state_element,
                          uint32_t conv_element, uint64_t *bytes);

/* Bytes of an element of a dtype ("f32", "bf16", "f16"): 4 or 2. */
uint32_t kvb_config_dtype_bytes(const char *dtype);
/* Bytes of an element that is kept as computed: in K's format if that is a plain float, else in the model's dtype. */
uint32_t kvb_plain_bytes(const kvb_sized_model *model, const kvb_size_ask *ask);

/* Bytes of an element of a plain float format; 0: another format. */
uint32_t kvb_plain_format_bytes(const kvb_kv_format *format);

/* Adds the least memory that one layer needs at once during a pass. 0 or -EOVERFLOW. */
int kvb_layer_peak(const kvb_sized_model *model, const kvb_size_engine *engine, const kvb_size_ask *ask,
                   uint64_t *bytes);

/* SGLang: does the layer's window have a pool of its own; does SGLang have a pool for the layer; bytes of an element of a
 * state. */
bool kvb_sglang_is_windowed(const kvb_sized_model *model, const kvb_sized_group *group, const kvb_size_ask *ask);
bool kvb_sglang_knows(const kvb_sized_group *group);
uint32_t kvb_sglang_state_element(const kvb_sized_model *model, const kvb_size_ask *ask);
/* mlx-lm: the kinds of the model's layers with known caches. WHOLE, ROTATING: windows that keep all rows, or a window's. */
enum { KVB_MLX_WHOLE = 1, KVB_MLX_ROTATING = 2, KVB_MLX_LATENT = 4, KVB_MLX_STATES = 8 };
uint32_t kvb_mlx_caches_of(const kvb_sized_model *model);

/* Does llama.cpp keep only the window's tokens in the model's window layers? */
bool kvb_llama_has_windows(const kvb_sized_model *model);
/* llama.cpp's compute buffer: the most f32 elements of a token that are alive at once, in a feed-forward block (engines.c
 * explains the sum), and in attention: the residual, q and what is computed from q; in MLA q is twice as wide as the rows. */
uint64_t kvb_llama_feed_width(const kvb_sized_model *model);
uint64_t kvb_llama_heads_width(const kvb_sized_model *model);
/* Copies of the tensors that the devices of a pipeline pass on. */
uint64_t kvb_llama_copies(const kvb_size_ask *ask);
/* vLLM: bytes of an element of a recurrent state; sequences of the sampler's buffers, with KVB_VLLM_SAMPLER_BYTES for each
 * logit; states of a sequence in a model that also attends; batches of a sequence that can be in flight. */
uint32_t kvb_vllm_state_element(const kvb_sized_model *model, const kvb_size_ask *ask);
uint64_t kvb_vllm_max_seqs(const kvb_size_ask *ask);
uint64_t kvb_vllm_states(const kvb_size_ask *ask);
uint64_t kvb_vllm_batches(const kvb_size_ask *ask);
enum { KVB_VLLM_SAMPLER_BYTES = 43 };

#endif
