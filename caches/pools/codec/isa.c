/* SPDX-License-Identifier: Apache-2.0 */
/* The table of one instruction set. Compiled once for each: KVB_ISA, with flags in the Makefile. */
#include "caches/pools/codec/codec.h"
#include "caches/pools/codec/floats.h"
#include "caches/pools/codec/levels.h"
#include "caches/pools/codec/rotate.h"

static bool available(void)
{
#if defined(__AVX512VL__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

#define PASTE(ISA) kvb_codec_##ISA
#define TABLE(ISA) PASTE(ISA)
#define QUOTE(ISA) #ISA
#define NAME(ISA)  QUOTE(ISA)

extern const kvb_codec_isa TABLE(KVB_ISA);
const kvb_codec_isa TABLE(KVB_ISA) = {
    .name = NAME(KVB_ISA),
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
            [KVB_RULE_CHANNELS] = channels_encode,
            [KVB_RULE_FP4] = fp4_encode,
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
            [KVB_RULE_FP4] = fp4_decode,
            [KVB_RULE_CODEBOOK] = codebook_decode,
        },
    .rotate = rotate,
};
