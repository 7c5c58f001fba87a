/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays that another program wrote: .npy and .npz (numpy.lib.format, versions 1 to 3), .safetensors, a folder of .npy.
 * Each claim of a header is checked before data is handed out. Dtypes, dims and strides: workloads/safetensors.h.
 *
 * Errors: a negative errno, and in why one line that names file, array and what was expected.
 */
#ifndef KVB_JUDGE_TENSORS_H
#define KVB_JUDGE_TENSORS_H

#include "workloads/safetensors.h"

typedef struct kvb_tensors {
    const char *path;
    kvb_tensor *list; /* [n], by name; data of any alignment: read it with kvb_tensor_value or memcpy */
    uint32_t n;
    const char *metadata; /* __metadata__ of a safetensors file, a JSON text; or NULL */
} kvb_tensors;

/* path: FILE.npy (one array, named after the file), FILE.npz, FILE.safetensors, or a folder, of which the .npy files
 * are read. Files are mapped; deflated members of a .npz are inflated and their CRC is checked. */
int kvb_tensors_open(const char *path, kvb_tensors **tensors, char *why, size_t why_bytes);
void kvb_tensors_close(kvb_tensors *tensors);                                     /* NULL: nothing */
const kvb_tensor *kvb_tensors_find(const kvb_tensors *tensors, const char *name); /* or NULL */

/* The element at offset i of data, counted in elements as strides are. Exact, except for 64-bit integers above 2^53,
 * which are rounded. */
double kvb_tensor_value(const kvb_tensor *tensor, uint64_t i);
const char *kvb_dtype_name(kvb_dtype dtype); /* "f16", "bf16", "e4m3", … */

/* Writes a safetensors file, whole or not at all. Strides that are all 0 mean row-major; other orders become row-major.
 * elements and bytes are not read. metadata: a JSON object of strings, or NULL. */
int kvb_tensors_write(const char *path, const kvb_tensor *list, uint32_t n, const char *metadata, char *why,
                      size_t why_bytes);

#endif
