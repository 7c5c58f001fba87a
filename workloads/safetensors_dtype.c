/* SPDX-License-Identifier: Apache-2.0 */
/* The element types of safetensors files that are known here. */
#include "workloads/safetensors.h"

#include <assert.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[KVB_TENSOR_DTYPES] = {
    [KVB_TENSOR_F64] = {"F64", 8},   [KVB_TENSOR_F32] = {"F32", 4},         [KVB_TENSOR_F16] = {"F16", 2},
    [KVB_TENSOR_BF16] = {"BF16", 2}, [KVB_TENSOR_I64] = {"I64", 8},         [KVB_TENSOR_I32] = {"I32", 4},
    [KVB_TENSOR_I16] = {"I16", 2},   [KVB_TENSOR_I8] = {"I8", 1},           [KVB_TENSOR_U8] = {"U8", 1},
    [KVB_TENSOR_BOOL] = {"BOOL", 1}, [KVB_TENSOR_F8_E4M3] = {"F8_E4M3", 1}, [KVB_TENSOR_F8_E5M2] = {"F8_E5M2", 1},
};

size_t kvb_tensor_dtype_bytes(kvb_tensor_dtype dtype)
{
    assert(dtype < KVB_TENSOR_DTYPES);
    return dtypes[dtype].bytes;
}

const char *kvb_tensor_dtype_name(kvb_tensor_dtype dtype)
{
    assert(dtype < KVB_TENSOR_DTYPES);
    return dtypes[dtype].name;
}
