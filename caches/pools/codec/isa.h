/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of one instruction set: included once by each isa_*.c, after KVB_ISA_NAME and KVB_ISA_TABLE are defined
 * and an `available` is; what each compiles for is said in the Makefile.
 */
#include "caches/pools/codec/affine.h"
#include "caches/pools/codec/codebook.h"
#include "caches/pools/codec/codec.h"
#include "caches/pools/codec/floats.h"
#include "caches/pools/codec/fp8.h"
#include "caches/pools/codec/ggml.h"
#include "caches/pools/codec/groups.h"
#include "caches/pools/codec/int8.h"
#include "caches/pools/codec/mx.h"
#include "caches/pools/codec/rotate.h"

#ifdef KVB_ISA_TABLE
extern const kvb_codec_isa KVB_ISA_TABLE;
const kvb_codec_isa KVB_ISA_TABLE = {
    .name = KVB_ISA_NAME,
    .available = available,
    .encode =
        {
            [KVB_RULE_F32] = f32_encode,
            [KVB_RULE_F16] = f16_encode,
            [KVB_RULE_BF16] = bf16_encode,
            [KVB_RULE_FP8] = fp8_encode,
            [KVB_RULE_INT8] = int8_encode,
            [KVB_RULE_UINT8] = uint8_encode,
            [KVB_RULE_GGML] = ggml_encode,
            [KVB_RULE_AFFINE] = affine_encode,
            [KVB_RULE_RANGE] = range_encode,
            [KVB_RULE_CHANNELS] = channels_encode,
            [KVB_RULE_MXFP4] = mxfp4_encode,
            [KVB_RULE_NVFP4] = nvfp4_encode,
            [KVB_RULE_CODEBOOK] = codebook_encode,
        },
    .decode =
        {
            [KVB_RULE_F32] = f32_decode,
            [KVB_RULE_F16] = f16_decode,
            [KVB_RULE_BF16] = bf16_decode,
            [KVB_RULE_FP8] = fp8_decode,
            [KVB_RULE_INT8] = int8_decode,
            [KVB_RULE_UINT8] = uint8_decode,
            [KVB_RULE_GGML] = ggml_decode,
            [KVB_RULE_AFFINE] = affine_decode,
            [KVB_RULE_CHANNELS] = channels_decode,
            [KVB_RULE_MXFP4] = mxfp4_decode,
            [KVB_RULE_NVFP4] = nvfp4_decode,
            [KVB_RULE_CODEBOOK] = codebook_decode,
        },
    .rotate = rotate,
};
#endif
