/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files: 8 bytes little-endian header length, a JSON header
 * {"name":{"dtype":"F32","shape":[…],"data_offsets":[begin,end]}, "__metadata__":{…strings…}}, then data.
 * Format: https://github.com/huggingface/safetensors (README, "Format").
 *
 * The header is fully validated on open: its length, JSON without duplicate keys, dtype, shape (product
 * without overflow), offsets ordered, inside the file, equal to shape x dtype, without overlap or gap.
 * Errors: -EINVAL and "file: tensor 'name': what was expected" in why; what open says otherwise.
 */
#ifndef KVB_SAFETENSORS_H
#define KVB_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVB_TENSOR_MAX_DIMS 8u

typedef enum kvb_tensor_dtype {
    KVB_TENSOR_F64,
    KVB_TENSOR_F32,
    KVB_TENSOR_F16,
    KVB_TENSOR_BF16,
    KVB_TENSOR_I64,
    KVB_TENSOR_I32,
    KVB_TENSOR_I16,
    KVB_TENSOR_I8,
    KVB_TENSOR_U8,
    KVB_TENSOR_BOOL,
    KVB_TENSOR_F8_E4M3,
    KVB_TENSOR_F8_E5M2,
    KVB_TENSOR_DTYPES
} kvb_tensor_dtype;

typedef struct kvb_tensor {
    const char *name;
    kvb_tensor_dtype dtype;
    uint32_t n_dims;
    uint64_t shape[KVB_TENSOR_MAX_DIMS];
    const void *data; /* in the mapped file (read) or the caller's (write); maybe unaligned when read */
    uint64_t bytes;
} kvb_tensor;

typedef struct kvb_safetensors kvb_safetensors;

/* Maps the file read-only. */
int kvb_safetensors_open(const char *path, kvb_safetensors **file, char *why, size_t why_bytes);
void kvb_safetensors_close(kvb_safetensors *file);
size_t kvb_safetensors_count(const kvb_safetensors *file);
const kvb_tensor *kvb_safetensors_at(const kvb_safetensors *file, size_t i);
const kvb_tensor *kvb_safetensors_find(const kvb_safetensors *file, const char *name); /* or NULL */

/* Find `name`, require exactly this shape, and convert F32, F16 or BF16 data to out (product of shape
 * floats). -ENOENT, or -EINVAL for another shape or dtype, or for NaN or infinity in it (place named). */
int kvb_safetensors_read_f32(const kvb_safetensors *file, const char *name, const uint64_t *shape, uint32_t n_dims,
                             float *out, char *why, size_t why_bytes);

/* Writes path.tmp, syncs, renames. Data is laid out in the given order, each tensor 8-byte aligned when
 * the ones before allow. metadata: pairs key, value, ending with NULL; or NULL. */
int kvb_safetensors_write(const char *path, const kvb_tensor *tensors, size_t n, const char *const *metadata, char *why,
                          size_t why_bytes);

size_t kvb_tensor_dtype_bytes(kvb_tensor_dtype dtype);

#endif
