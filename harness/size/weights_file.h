/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of weights as files hold them: from the headers of safetensors and GGUF files, whose data is not read. */
#ifndef KVB_WEIGHTS_FILE_H
#define KVB_WEIGHTS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is this word of --weights the name of such a file: does it end in .safetensors, .safetensors.index.json or .gguf? */
bool kvb_weights_is_file(const char *word);

/* path: FILE.safetensors, FILE.gguf, an index (its shards lie beside it; if none is there, its total_size counts), or
 * several of these with commas between. Sum of the bytes of all tensors. Negative errno with "file: what was expected"
 * in why: a shard is missing, a header is cut, not JSON, contradicts the file's length or lacks a tensor that the index
 * names; -EOVERFLOW. */
int kvb_weights_file(const char *path, uint64_t *bytes, char *why, size_t why_bytes);

#endif
