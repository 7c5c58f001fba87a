/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files, of which the headers alone are read. */
#ifndef KVB_SIZE_GGUF_H
#define KVB_SIZE_GGUF_H

#include <jansson.h>

#include "harness/size/model.h"

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
