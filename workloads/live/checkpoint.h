/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama-style checkpoints: a safetensors file with tensors named as transformers names them, and a
 * config.json. A checkpoint that the live model would compute differently from what its authors meant is
 * refused, naming the key or tensor.
 *
 * Keys of config.json: num_hidden_layers, num_attention_heads, hidden_size, intermediate_size, vocab_size;
 * num_key_value_heads (default: num_attention_heads), head_dim (hidden_size / num_attention_heads),
 * rope_theta (10000), rms_norm_eps (1e-6), tie_word_embeddings (false). Other keys are ignored, unless they
 * ask for arithmetic that this model does not have.
 */
#ifndef KVB_LIVE_CHECKPOINT_H
#define KVB_LIVE_CHECKPOINT_H

#include "workloads/live/weights.h"

/* 0 or a negative errno with "path: what was expected". qk_norm is left false: the tensors tell. */
int kvb_model_config_load(const char *path, kvb_model_config *config, char *why, size_t why_bytes);
/* Writes path.tmp, syncs, renames. */
int kvb_model_config_save(const char *path, const kvb_model_config *config, char *why, size_t why_bytes);

/* config_path NULL: config.json beside the weights. Every tensor of the model must be there in its shape,
 * and no other. */
int kvb_weights_load(const char *path, const char *config_path, kvb_weights **weights, char *why, size_t why_bytes);
/* Writes the weights and config.json beside them. */
int kvb_weights_save(const kvb_weights *weights, const char *path, char *why, size_t why_bytes);

#endif
