/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files, of which the headers alone are read. Private to harness/size. */
#ifndef KVB_SIZE_GGUF_H
#define KVB_SIZE_GGUF_H

#include "harness/size/model.h"

/* Adds the bytes of all tensors of the file, of whatever type, without padding between them. 0; -EINVAL with "file:
 * what was expected" in why: cannot be read, is cut, is no GGUF of version 2 or 3 in little-endian order, or has a type
 * without known size; -EOVERFLOW. */
int kvb_gguf_add(const char *path, uint64_t *bytes, char *why, size_t why_bytes);

/* Writes the metadata as a config.json, which the caller frees. The errors of kvb_gguf_add; -ENOTSUP: an architecture, or
 * a key of attention and states, that is not known; -ENOMEM. */
int kvb_gguf_config(const char *path, char **text, char *why, size_t why_bytes);

#endif
