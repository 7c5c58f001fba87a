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

#define RULES(X)                                                                                                       \
    X(F32, f32)                                                                                                        \
    X(F16, f16)                                                                                                        \
    X(BF16, bf16)                                                                                                      \
    X(FP8, fp8)                                                                                                        \
    X(INT8, int8)                                                                                                      \
    X(UINT8, uint8) X(GGML, ggml) X(AFFINE, affine) X(CHANNELS, channels) X(FP4, fp4) X(CODEBOOK, codebook)
#define ENCODE(RULE, FUNCTIONS) [KVB_RULE_##RULE] = FUNCTIONS##_encode,
#define DECODE(RULE, FUNCTIONS) [KVB_RULE_##RULE] = FUNCTIONS##_decode,

extern const kvb_codec_isa TABLE(KVB_ISA);
const kvb_codec_isa TABLE(KVB_ISA) = {
    .name = NAME(KVB_ISA),
    .available = available,
    .encode = {RULES(ENCODE)},
    .decode = {RULES(DECODE)},
    .rotate = rotate,
};
