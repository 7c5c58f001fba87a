/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model's weights take. The config gives the shapes of every tensor of an architecture that is known here, so the
 * number of parameters is exact; bytes follow from a dtype, from a number that the user gives, or from how the model
 * is published.
 *
 * Parts of kvb_parameters, named by how tensor parallelism divides them:
 *   embedding, output     by rows of the vocabulary; output is 0 where it is tied to the embedding
 *   attention, mixer      by heads: projections with their biases (mixer: Mamba, DeltaNet, KDA, lightning, RWKV)
 *   dense, experts, shared_experts   by their width
 *   router, norms, other  not divided; router: what scores experts, or an indexer's heads; other: position tables, low-rank
 *                         inputs of MLA (q_a, kv_a), a sparse indexer …
 * total is their sum: the language model alone. Vision and audio towers and layers for multi-token prediction are not in it;
 * `why` of known parameters says which of these the config has, and is "" otherwise.
 */
#ifndef KVB_SIZING_WEIGHTS_H
#define KVB_SIZING_WEIGHTS_H

#include <jansson.h>

#include "results/sizing/model.h"

/* config: the text config's object; model: its layers are read. 0 also for unknown parameters: out->known is false then,
 * and out->why names the missing field or rule. -EINVAL: a field is not what it must be; -EOVERFLOW: more than 64 bits;
 * why says so. Nothing is guessed. */
int kvb_parameters_read(const json_t *config, const kvb_model *model, kvb_parameters *out);

/* Bytes of the weights as published: in the config's dtype (16 bits where it names none), and with quantization_config as
 * that method stores them, scales with them. -ENOTSUP with why: the parameters or the method's exact rule are not known. */
int kvb_weights_published(const json_t *config, const kvb_model *model, uint64_t *bytes, char *why, size_t why_bytes);

/* word: a dtype, that every parameter then takes ("bf16", "q8_0", "a4g64": kvb_weights_words lists them; what a real
 * quantised file leaves in a wider type is not modelled), or a size: a number with an optional KiB … PiB or KB … PB.
 * -EINVAL: neither; -ENOTSUP: a dtype, but the parameters are not known; -EOVERFLOW. */
int kvb_weights_bytes(const kvb_parameters *parameters, const char *word, uint64_t *bytes, char *why, size_t why_bytes);
/* The dtypes, in one line, for messages and help. */
const char *kvb_weights_words(void);

/* The parameters of the fullest rank of tp x pp, by part: an upper limit. Rule and sources in weights_rank.c. -EINVAL: tp or
 * pp is 0, or pp more than the layers; -ENOTSUP: the parameters are not known. */
int kvb_parameters_rank(const kvb_model *model, uint32_t tp, uint32_t pp, kvb_parameters *rank, char *why,
                        size_t why_bytes);
/* The same share of `bytes` (of all weights): of a size given by the user or read from files. */
int kvb_weights_rank(const kvb_model *model, uint64_t bytes, uint32_t tp, uint32_t pp, uint64_t *rank_bytes, char *why,
                     size_t why_bytes);

#endif
