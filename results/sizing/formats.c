/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of K and V rows by their bytes alone. The pools that store them are caches/pools; the numbers are the formats'
 * own definitions: ggml-common.h's blocks, MLX's affine groups (16-bit scale and bias), OCP MX, NVFP4, vLLM's
 * per-token-head types and flashmla_sparse.py. */
#include <string.h>

#include "results/sizing/sizing.h"

static const kvb_kv_format formats[] = {
    {"f32", "float32", "IEEE binary32", 1, 4, 0},
    {"f16", "float16", "IEEE binary16", 1, 2, 0},
    {"bf16", "bfloat16", "bfloat16", 1, 2, 0},
    {"e4m3", "fp8_e4m3", "OCP FP8 e4m3", 1, 1, 0},
    {"e5m2", "fp8_e5m2", "OCP FP8 e5m2", 1, 1, 0},
    {"e4m3-token", "fp8-token", "OCP FP8 e4m3, an f32 scale a row", 1, 1, 4},
    {"e5m2-token", NULL, "OCP FP8 e5m2, an f32 scale a row", 1, 1, 4},
    {"int8", "int8-token", "8-bit integers, an f32 scale a row", 1, 1, 4},
    {"int8-asym", NULL, "8-bit integers, f32 scale and zero a row", 1, 1, 8},
    {"q8_0", NULL, "ggml: 8 bits, an f16 scale for 32", 32, 34, 0},
    {"q5_1", NULL, "ggml: 5 bits, f16 scale and least for 32", 32, 24, 0},
    {"q5_0", NULL, "ggml: 5 bits, an f16 scale for 32", 32, 22, 0},
    {"q4_1", NULL, "ggml: 4 bits, f16 scale and least for 32", 32, 20, 0},
    {"q4_0", NULL, "ggml: 4 bits, an f16 scale for 32", 32, 18, 0},
    {"iq4_nl", NULL, "ggml: 16 uneven levels, an f16 scale for 32", 32, 18, 0},
    {"a8g32", NULL, "MLX affine: 8 bits, scale and bias for 32", 32, 36, 0},
    {"a8g64", NULL, "MLX affine: 8 bits, scale and bias for 64", 64, 68, 0},
    {"a8g128", NULL, "MLX affine: 8 bits, scale and bias for 128", 128, 132, 0},
    {"a4g32", NULL, "MLX affine: 4 bits, scale and bias for 32", 32, 20, 0},
    {"a4g64", NULL, "MLX affine: 4 bits, scale and bias for 64", 64, 36, 0},
    {"a4g128", NULL, "MLX affine: 4 bits, scale and bias for 128", 128, 68, 0},
    {"a2g32", NULL, "MLX affine: 2 bits, scale and bias for 32", 32, 12, 0},
    {"a2g64", NULL, "MLX affine: 2 bits, scale and bias for 64", 64, 20, 0},
    {"a2g128", NULL, "MLX affine: 2 bits, scale and bias for 128", 128, 36, 0},
    {"mxfp4", NULL, "OCP MXFP4: e2m1, a power of two for 32", 32, 17, 0},
    {"nvfp4", NULL, "NVFP4: e2m1, an e4m3 scale for 16 (one f32 a tensor is not counted)", 16, 9, 0},
    {"tq4", NULL, "TurboQuant: 4-bit codebook, an f16 scale a row", 2, 1, 2},
    {"tq3", NULL, "TurboQuant: 3-bit codebook, an f16 scale a row", 8, 3, 2},
    {"fp8_ds_mla", NULL, "MLA of 512 + 64: 512 of e4m3, 4 f32 scales, 64 of bf16", 576, 656, 0},
};

const kvb_kv_format *kvb_kv_format_at(size_t i)
{
    return i < sizeof formats / sizeof *formats ? &formats[i] : NULL;
}

const kvb_kv_format *kvb_kv_format_find(const char *name)
{
    const kvb_kv_format *f;

    for (size_t i = 0; (f = kvb_kv_format_at(i)); i++)
        if (strcmp(f->name, name) == 0 || (f->also && strcmp(f->also, name) == 0))
            return f;
    return NULL;
}

uint64_t kvb_kv_row_bytes(const kvb_kv_format *f, uint64_t elements)
{
    return elements && elements % f->group == 0 ? elements / f->group * f->group_bytes + f->extra_bytes : 0;
}
