/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built-in pools: one line a format, in the order in which they are listed. A line makes two pools, the second
 * with a Walsh-Hadamard transform in front ("+had"), unless the format has a transform of its own.
 */
#include "caches/pools/rows.h"

/* How scales are shared. */
#define PER_ROW     .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32, .zero_elem = KVB_F32
#define CHANNELS(N) .axis = KVB_AXIS_CHANNELS, .group = N, .scale_elem = KVB_F16, .zero_elem = KVB_F16
#define TOKENS(N)   .axis = KVB_AXIS_TOKENS, .group = N, .scale_elem = KVB_F16, .zero_elem = KVB_F16

/* X(identifier, functions, name, summary, rule, format...); ONE: the same without a "+had" form */
#define FORMATS(X, ONE)                                                                                                \
    X(f32, kvb_rows, "f32", "IEEE binary32", KVB_RULE_F32, .elem = KVB_F32)                                            \
    X(f16, kvb_rows, "f16", "IEEE binary16", KVB_RULE_F16, .elem = KVB_F16)                                            \
    X(bf16, kvb_rows, "bf16", "bfloat16", KVB_RULE_BF16, .elem = KVB_BF16)                                             \
    FP8(X, e4m3, "e4m3", KVB_E4M3)                                                                                     \
    FP8(X, e5m2, "e5m2", KVB_E5M2)                                                                                     \
    X(int8, kvb_rows, "int8", "8-bit integers, a scale a row", KVB_RULE_INT8, .elem = KVB_INT8, PER_ROW)               \
    X(int8_asym, kvb_rows, "int8-asym", "8-bit integers, scale and zero a row", KVB_RULE_UINT8, .elem = KVB_UINT8,     \
      PER_ROW)                                                                                                         \
    GGML(X, q8_0, KVB_Q8_0, "8 bits")                                                                                  \
    GGML(X, q5_1, KVB_Q5_1, "5 bits and a least")                                                                      \
    GGML(X, q5_0, KVB_Q5_0, "5 bits")                                                                                  \
    GGML(X, q4_1, KVB_Q4_1, "4 bits and a least")                                                                      \
    GGML(X, q4_0, KVB_Q4_0, "4 bits")                                                                                  \
    GGML(X, iq4_nl, KVB_IQ4_NL, "16 uneven levels")                                                                    \
    AFFINE(X, 8, 32)                                                                                                   \
    AFFINE(X, 8, 64)                                                                                                   \
    AFFINE(X, 8, 128)                                                                                                  \
    AFFINE(X, 4, 32)                                                                                                   \
    AFFINE(X, 4, 64)                                                                                                   \
    AFFINE(X, 4, 128)                                                                                                  \
    AFFINE(X, 2, 32)                                                                                                   \
    AFFINE(X, 2, 64)                                                                                                   \
    AFFINE(X, 2, 128)                                                                                                  \
    KIVI(X, 4)                                                                                                         \
    KIVI(X, 2)                                                                                                         \
    X(mxfp4, kvb_rows, "mxfp4", "OCP MXFP4: e2m1, a power of two for 32 channels", KVB_RULE_FP4, .elem = KVB_E2M1,     \
      .axis = KVB_AXIS_CHANNELS, .group = 32, .scale_elem = KVB_E8M0)                                                  \
    X(nvfp4, kvb_rows, "nvfp4", "NVFP4: e2m1, an e4m3 scale for 16 channels, one a layer", KVB_RULE_FP4,               \
      .elem = KVB_E2M1, .axis = KVB_AXIS_CHANNELS, .group = 16, .scale_elem = KVB_E4M3,                                \
      .head_scale = KVB_STATIC_TENSOR)                                                                                 \
    TURBO(ONE, 4)                                                                                                      \
    TURBO(ONE, 3)

/* e4m3 or e5m2 with each kind of scale. */
#define FP8(X, ID, NAME, ELEM)                                                                                         \
    X(ID, kvb_rows, NAME, "OCP FP8 " NAME, KVB_RULE_FP8, .elem = ELEM)                                                 \
    X(ID##_tensor, kvb_rows, NAME "-tensor", "OCP FP8 " NAME ", one fixed scale", KVB_RULE_FP8, .elem = ELEM,          \
      .head_scale = KVB_STATIC_TENSOR)                                                                                 \
    X(ID##_head, kvb_rows, NAME "-head", "OCP FP8 " NAME ", a fixed scale a KV head", KVB_RULE_FP8, .elem = ELEM,      \
      .head_scale = KVB_STATIC_HEAD)                                                                                   \
    X(ID##_token, kvb_rows, NAME "-token", "OCP FP8 " NAME ", a scale a row", KVB_RULE_FP8, .elem = ELEM, PER_ROW)

/* Scales lie inside the blocks; the dims of rows are multiples of group. */
#define GGML(X, ID, ELEM, SUMMARY)                                                                                     \
    X(ID, kvb_rows, #ID, "ggml " #ID ": " SUMMARY, KVB_RULE_GGML, .elem = ELEM, .axis = KVB_AXIS_CHANNELS, .group = 32)

#define AFFINE(X, BITS, GROUP)                                                                                         \
    X(a##BITS##g##GROUP, kvb_rows, "a" #BITS "g" #GROUP,                                                               \
      "MLX affine: " #BITS " bits, scale and bias for " #GROUP " channels", KVB_RULE_AFFINE, .elem = KVB_UINT##BITS,   \
      CHANNELS(GROUP))

/* K and V of KIVI, encoded when their block of cells closes. */
#define RESIDUAL .residual_cells = 32, .residual_blocks = 4
#define KIVI(X, BITS)                                                                                                  \
    X(kivi##BITS##_k, kvb_residual, "kivi" #BITS "-k",                                                                 \
      "KIVI keys: " #BITS " bits, scale and zero a channel of 32 rows", KVB_RULE_CHANNELS, .elem = KVB_UINT##BITS,     \
      TOKENS(32), RESIDUAL)                                                                                            \
    X(kivi##BITS##_v, kvb_residual, "kivi" #BITS "-v", "KIVI values: " #BITS " bits, scale and zero for 32 channels",  \
      KVB_RULE_AFFINE, .elem = KVB_UINT##BITS, CHANNELS(32), RESIDUAL)

/* TurboQuant: rotated by definition. */
#define TURBO(ONE, BITS)                                                                                               \
    ONE(tq##BITS, kvb_rows, "tq" #BITS, "TurboQuant: rotated, " #BITS "-bit codebook, a scale a row",                  \
        KVB_RULE_CODEBOOK, .elem = KVB_CODEBOOK, .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW,                    \
        .scale_elem = KVB_F16, .transform = KVB_TRANSFORM_SIGNED_HADAMARD, .levels = kvb_levels_##BITS,                \
        .level_bits = BITS)

#define kvb_rows_check_raw NULL /* every code is a number */
#define TYPE(FUNCTIONS)                                                                                                \
    .supports = kvb_kind_supports, .row_bytes = kvb_kind_row_bytes, .bytes = FUNCTIONS##_bytes,                        \
    .open = FUNCTIONS##_open, .close = FUNCTIONS##_close, .ensure = FUNCTIONS##_ensure,                                \
    .write_run = FUNCTIONS##_write_run, .scatter = FUNCTIONS##_scatter, .gather_into = FUNCTIONS##_gather_into,        \
    .view = FUNCTIONS##_view, .reserved = FUNCTIONS##_reserved, .raw_bytes = FUNCTIONS##_raw_bytes,                    \
    .read_raw = FUNCTIONS##_read_raw, .write_raw = FUNCTIONS##_write_raw, .check_raw = FUNCTIONS##_check_raw

#define KIND(OBJECT, FUNCTIONS, NAME, SUMMARY, RULE, ROTATED, ...)                                                     \
    static const kvb_pool_kind OBJECT = {                                                                              \
        .type = {.name = NAME, .summary = SUMMARY, .format = &OBJECT.format, .rotated = ROTATED, TYPE(FUNCTIONS)},     \
        .format = {.name = NAME, .read = kvb_codec_read, __VA_ARGS__},                                                 \
        .rule = RULE,                                                                                                  \
    };
#define PAIR(ID, FUNCTIONS, NAME, SUMMARY, RULE, ...)                                                                  \
    KIND(rotated_##ID, FUNCTIONS, NAME "+had", SUMMARY ", after a Hadamard transform", RULE, NULL,                     \
         .transform = KVB_TRANSFORM_HADAMARD, __VA_ARGS__)                                                             \
    KIND(plain_##ID, FUNCTIONS, NAME, SUMMARY, RULE, &rotated_##ID.type, __VA_ARGS__)
#define ALONE(ID, FUNCTIONS, NAME, SUMMARY, RULE, ...)                                                                 \
    KIND(plain_##ID, FUNCTIONS, NAME, SUMMARY, RULE, NULL, __VA_ARGS__)
#define ENTRY(ID, ...) &plain_##ID.type,

FORMATS(PAIR, ALONE)

const kvb_pool_type *const kvb_builtin_pools[] = {FORMATS(ENTRY, ENTRY) NULL};
