/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of the tensors of a GGUF file, from its header alone (ggml-org/ggml docs/gguf.md). */
#ifndef KVB_SIZE_GGUF_H
#define KVB_SIZE_GGUF_H

#include <stddef.h>
#include <stdint.h>

/* Adds the bytes of all tensors of the file, of whatever type, without padding between them. 0; -EINVAL with "file: what was
 * expected" in why: cannot be read, is cut, is no GGUF of version 2 or 3 in little-endian order, or has a type without known size;
 * -EOVERFLOW. */
int kvb_gguf_bytes_add(const char *path, uint64_t *bytes, char *why, size_t why_bytes);

#endif
