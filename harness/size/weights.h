/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much a model's weights take. For an architecture that is known here, the config gives the shape of every tensor, so the
 * number of parameters is exact. Bytes follow from a dtype, from a number that the user gives, or from how the model is
 * published.
 *
 * Parts of kvb_sized_parameters, by how tensor parallelism divides them:
 *   embedding, output     by rows of the vocabulary; output is 0 if it is tied to the embedding
 *   attention, mixer      by heads: projections with their biases (mixer: Mamba, DeltaNet, KDA, lightning, RWKV)
 *   dense, experts, shared_experts   by their width
 *   router, norms, other  not at all; router: what scores experts, heads or pools; other: position tables, low-rank
 *                         inputs of MLA (q_a, kv_a), a sparse indexer …
 * total is their sum, for the language model alone. It leaves out vision and audio towers and layers for multi-token prediction;
 * `why` of known parameters says which of these the config has.
 */
#ifndef KVB_SIZING_WEIGHTS_H
#define KVB_SIZING_WEIGHTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/size/model.h"

/* config: the text config. model: its layers must have been read. 0 also if the parameters cannot be known: then
 * out->known is false, and out->why names the missing field or rule. -EINVAL: a field has a wrong value; -EOVERFLOW:
 * more than 64 bits; out->why says so. */
int kvb_sized_parameters_read(const json_t *config, const kvb_sized_model *model, kvb_sized_parameters *out);

/* Bytes of the weights as published, with a vision tower whose tensors are known, and with `mtp` layers for multi-token prediction, where theirs are: in the config's dtype (16 bits if it names none), or with a quantization_config as
 * that method stores them, with scales. why also says if they are an upper limit, and what is left out; else it is "". -ENOTSUP with why: the parameters or
 * the method's exact rule are not known. */
int kvb_weights_published(const json_t *config, const kvb_sized_model *model, bool mtp, uint64_t *bytes, char *why,
                          size_t why_bytes);

/* word: a dtype ("bf16", "q8_0", "a4g64"; weights_words lists them) or a size: a number, perhaps with KiB … PiB or
 * KB … PB. A dtype is taken for every parameter, although a real quantised file leaves some in a wider type. -EINVAL:
 * neither; -ENOTSUP: a dtype, but the parameters are not known; -EOVERFLOW. */
int kvb_weights_bytes(const kvb_sized_parameters *parameters, const char *word, uint64_t *bytes, char *why,
                      size_t why_bytes);

/* "int4", "4bit": bits of a number, and not how its scales are stored. */
bool kvb_is_bits_alone(const char *word);

/* The parameters of the fullest rank of tp, in a stage that has `part` of `parts` of the layers, by part: an upper limit
 * (weights.c gives rule and sources). -EINVAL: a number is 0, part is above parts, or the stage has no layer; -ENOTSUP: the
 * parameters are not known. */
int kvb_sized_parameters_rank(const kvb_sized_model *model, uint32_t tp, uint32_t part, uint32_t parts,
                              kvb_sized_parameters *rank, char *why, size_t why_bytes);
/* The same share of `bytes`, the size of all weights that the user gave or that was read from files. */
int kvb_weights_rank(const kvb_sized_model *model, uint64_t bytes, uint32_t tp, uint32_t part, uint32_t parts,
                     uint64_t *rank_bytes, char *why, size_t why_bytes);

/* Bytes of weights as files hold them: from the headers of safetensors and GGUF files, whose data is not read. */

/* Is this word of --weights the name of such a file: does it end in .safetensors, .safetensors.index.json or .gguf? */
bool kvb_weights_is_file(const char *word);

/* path: FILE.safetensors, FILE.gguf, an index (its shards lie beside it; if none is there, its total_size counts), or
 * several of these with commas between. A part of many, NAME-00001-of-00002.gguf or .safetensors, stands for all of them.
 * Sum of the bytes of all tensors, which is not 0. Negative errno with "file: what was expected"
 * in why: a shard is missing, a header is cut, not JSON, contradicts the file's length or lacks a tensor that the index
 * names; -EOVERFLOW. */
int kvb_weights_file(const char *path, uint64_t *bytes, char *why, size_t why_bytes);

/* ---- GGUF files, of which the headers alone are read ---- */

/* Adds the bytes of all tensors of the file, of whatever type, without padding between them. 0; -EINVAL with "file:
 * what was expected" in why: cannot be read, is cut, is no GGUF of version 2 or 3 in little-endian order, or has a type
 * without known size; -EOVERFLOW. */
int kvb_gguf_add(const char *path, uint64_t *bytes, char *why, size_t why_bytes);

/* Writes the metadata as a config.json, which the caller frees. The errors of kvb_gguf_add; -ENOTSUP: an architecture, or
 * a key of attention and states, that is not known; -ENOMEM. */
int kvb_gguf_config(const char *path, char **text, char *why, size_t why_bytes);

/* Fills two objects: keys of the metadata with numbers, words and lists of integers; tensors with [type, offset in the file, elements of the
 * fastest axis, all elements]. The errors of kvb_gguf_add. */
int kvb_gguf_read(const char *path, json_t *metadata, json_t *tensors, char *why, size_t why_bytes);

#endif
