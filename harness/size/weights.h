/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a model's weights. For a known architecture the config gives the shape of every tensor, so the number of
 * parameters is exact. Bytes follow from a dtype, from a number that the user gives, or from the published form.
 *
 * Parts, by their division in tensor parallelism:
 *   embedding, output     by rows of the vocabulary; output is 0 if it is tied to the embedding
 *   attention, mixer      by heads: projections with their biases (mixer: Mamba, DeltaNet, KDA, lightning, RWKV)
 *   dense, experts, shared   by their width
 *   router, norms, other  not divided; router: scores of experts, heads or pools; other: position tables, low-rank
 *                         inputs of MLA (q_a, kv_a), a sparse indexer …
 * total is their sum, for the language model alone, without vision and audio towers and layers for multi-token prediction;
 * `why` of known parameters names those that the config has.
 */
#ifndef KVB_SIZING_WEIGHTS_H
#define KVB_SIZING_WEIGHTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/size/model.h"

/* Counts the parameters. config: the text config. model: its layers must have been read. 0, also if the parameters cannot
 * be known: then out->known is false, and out->why names the missing field or rule. -EINVAL: a field has a wrong value;
 * -EOVERFLOW: more than 64 bits; out->why says so. */
int kvb_sized_parameters_read(const json_t *config, const kvb_sized_model *model, kvb_sized_parameters *out);

/* Bytes of the weights as published: in the config's dtype (16 bits if it names none), or as the method of a
 * quantization_config stores them, with scales. Vision towers and, with `mtp`, layers for multi-token prediction count if
 * their tensors are known. why says if the bytes are an upper limit, and names the parts that are left out; else it is "".
 * -ENOTSUP with why: the parameters or the method's exact rule are unknown. */
int kvb_weights_published(const json_t *config, const kvb_sized_model *model, bool mtp, uint64_t *bytes, char *why,
                          size_t why_bytes);

/* Bytes of the weights by a word: a dtype ("bf16", "q8_0", "a4g64"), or a size, which is a number
 * with an optional unit KiB … PiB or KB … PB. A dtype applies to every parameter, although a real quantised file leaves
 * some in a wider type. -EINVAL: neither; -ENOTSUP: a dtype, but the parameters are unknown; -EOVERFLOW. */
int kvb_weights_bytes(const kvb_sized_parameters *parameters, const char *word, uint64_t *bytes, char *why,
                      size_t why_bytes);

/* Does the word give only the bits of an element, such as "int4" or "4bit", but no form of scales? */
bool kvb_is_bits_alone(const char *word);

/* The parameters of the fullest rank of tp, by part, in a stage that has `part` of `parts` shares of the layers: an upper
 * limit (weights.c gives rule and sources). -EINVAL: a number is 0, part is above parts, or the stage has no layer;
 * -ENOTSUP: the parameters are unknown. */
int kvb_sized_parameters_rank(const kvb_sized_model *model, uint64_t tp, uint64_t part, uint64_t parts,
                              kvb_sized_parameters *rank, char *why, size_t why_bytes);
/* The same share of `bytes`, the size of all weights, given by the user or read from files. */
int kvb_weights_rank(const kvb_sized_model *model, uint64_t bytes, uint64_t tp, uint64_t part, uint64_t parts,
                     uint64_t *rank_bytes, char *why, size_t why_bytes);

/* ---- files of weights: only the headers of safetensors and GGUF files are read ---- */

/* Is this word of --weights the name of such a file: does it end in .safetensors, .safetensors.index.json or .gguf? */
bool kvb_weights_is_file(const char *word);

/* Sums the bytes of all tensors, which is not 0. path: FILE.safetensors, FILE.gguf, an index (its shards lie beside it; if
 * none is there, its total_size counts), or several of these, separated by commas. One of several parts,
 * NAME-00001-of-00002.gguf or .safetensors, stands for all of them. Negative errno with "file: what was expected" in why: a
 * shard is missing; a header is cut, not JSON, contradicts the file's length or lacks a tensor that the index names;
 * -EOVERFLOW. */
int kvb_weights_file(const char *path, uint64_t *bytes, char *why, size_t why_bytes);

/* Adds the bytes of all tensors of a GGUF file, without padding between them. Fills two objects, unless NULL: metadata,
 * keys with numbers, words and lists of integers; tensors, names with [type, offset in the file, elements of the fastest
 * axis, all elements]. 0; -EINVAL with "file: what was expected" in why: the file cannot be read, is cut, is no GGUF of
 * version 2 or 3 in little-endian order, or has a type of unknown size; -EOVERFLOW. */
int kvb_gguf_read(const char *path, json_t *metadata, json_t *tensors, uint64_t *bytes, char *why, size_t why_bytes);

/* The metadata as a config.json, which the caller frees in any case. The errors of kvb_gguf_read; -ENOTSUP: an unknown
 * architecture, or an unknown key of attention or states; -ENOMEM. */
int kvb_gguf_config(const char *path, json_t **config, char *why, size_t why_bytes);

#endif
