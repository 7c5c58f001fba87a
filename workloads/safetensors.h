/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files: 8 bytes little-endian header length, a JSON header
 * {"name":{"dtype":"F32","shape":[…],"data_offsets":[begin,end]}, "__metadata__":{…strings…}}, then data.
 * Format: https://github.com/huggingface/safetensors (README, "Format").
 *
 * The header is fully validated on open: its length, JSON without duplicate keys, dtype, shape (product
 * without overflow), offsets ordered, inside the file, equal to shape x dtype, without overlap or gap.
 * Errors: -EINVAL with "file: tensor 'name': what was expected" in why, or the error of open.
 */
#ifndef KVB_SAFETENSORS_H
#define KVB_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVB_TENSOR_DIMS 8u

typedef enum kvb_dtype {
    KVB_DTYPE_F64,
    KVB_DTYPE_F32,
    KVB_DTYPE_F16,
    KVB_DTYPE_BF16,
    KVB_DTYPE_E4M3, /* OCP FP8 */
    KVB_DTYPE_E5M2,
    KVB_DTYPE_I8,
    KVB_DTYPE_U8,
    KVB_DTYPE_I16,
    KVB_DTYPE_U16,
    KVB_DTYPE_I32,
    KVB_DTYPE_U32,
    KVB_DTYPE_I64,
    KVB_DTYPE_U64,
    KVB_DTYPE_BOOL,
    KVB_DTYPES
} kvb_dtype;

typedef struct kvb_tensor {
    const char *name;
    kvb_dtype dtype;
    uint32_t n_dims;
    uint64_t dims[KVB_TENSOR_DIMS];
    uint64_t strides[KVB_TENSOR_DIMS]; /* in elements; those of a safetensors file are row-major */
    uint64_t elements, bytes;
    const void *data; /* in the mapped file (read) or the caller's (write); maybe unaligned when read */
} kvb_tensor;

size_t kvb_dtype_bytes(kvb_dtype dtype); /* of one element */
/* Fills strides (row-major, or column-major), elements and bytes from dtype and dims. -EOVERFLOW: too many bytes. */
int kvb_tensor_shape(kvb_tensor *tensor, bool column_major);

/* A mapped file. */
typedef struct kvb_safetensors {
    char *path;
    const uint8_t *map;
    size_t map_bytes;
    kvb_tensor *tensors; /* [n], in the order of their data */
    size_t n;
    struct json_t *header; /* holds the names */
} kvb_safetensors;

/* Maps a whole regular file read-only; the caller unmaps it. An empty file: NULL and 0 bytes. 0, or the error of open
 * or mmap with "path: reason" in why. */
int kvb_file_map(const char *path, const uint8_t **map, size_t *bytes, char *why, size_t why_bytes);

/* Maps the file read-only. */
int kvb_safetensors_open(const char *path, kvb_safetensors **file, char *why, size_t why_bytes);
void kvb_safetensors_close(kvb_safetensors *file);
const kvb_tensor *kvb_safetensors_find(const kvb_safetensors *file, const char *name); /* or NULL */
char *kvb_safetensors_metadata(const kvb_safetensors *file); /* as a JSON text, to be freed; NULL: none, or no memory */

/* Finds `name`, requires exactly this shape, and converts F32, F16 or BF16 data to out (product of shape floats). 0;
 * -ENOENT; -EINVAL: another shape or dtype, or NaN or infinity (why names the place). */
int kvb_safetensors_read_f32(const kvb_safetensors *file, const char *name, const uint64_t *shape, uint32_t n_dims,
                             float *out, char *why, size_t why_bytes);

/* Writes path.tmp, syncs, renames. Data is row-major, in the given order, each tensor 8-byte aligned if the sizes of
 * those before allow it; strides and elements are not read. metadata: pairs key, value, ending with NULL; or NULL. */
int kvb_safetensors_write(const char *path, const kvb_tensor *tensors, size_t n, const char *const *metadata, char *why,
                          size_t why_bytes);

#endif
