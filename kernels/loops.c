/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of kernels/vector by level. */
#include "kernels/vector/vector.h"

/* Levels with loops of their own, and levels with bf16 loops besides: X(level, names of these loops). */
#if defined(__x86_64__)
#define LEVELS(X)      X(AVX2, avx2) X(AVXVNNI, avxvnni) X(AVX512, avx512) X(AVX512VNNI, avx512vnni)
#define BF16_LEVELS(X) X(AVX512BF16, avx512vnni, avx512bf16)
#elif defined(__aarch64__)
#define LEVELS(X) X(NEON, neon) X(NEONDOT, neondot) X(SVE128, sve128) X(SVE256, sve256) X(SVE512, sve512)
#define BF16_LEVELS(X)                                                                                                 \
    X(NEONBF16, neonbf16, neonbf16)                                                                                    \
    X(SVE128BF16, sve128bf16, sve128bf16)                                                                              \
    X(SVE256BF16, sve256bf16, sve256bf16) X(SVE512BF16, sve512bf16, sve512bf16)
#else
#define LEVELS(X)
#define BF16_LEVELS(X)
#endif

#define DECLARE(LEVEL, NAME) extern const kvb_vector kvb_vector_##NAME;
#define DECLARE_BF16(LEVEL, VECTOR, BF16)                                                                              \
    extern const kvb_vector kvb_vector_##VECTOR;                                                                       \
    extern const kvb_bf16_loops kvb_bf16_##BF16;
DECLARE(PORTABLE, portable)
LEVELS(DECLARE)
BF16_LEVELS(DECLARE_BF16)
#if defined(__x86_64__)
extern const kvb_f16_loops kvb_f16_avx512fp16;
#if defined(KVB_AVXVNNI) /* a test's build: cpu.c */
extern const kvb_vector kvb_vector_emulated;
extern const kvb_amx_loops kvb_tiles_emulated;
#define AMX_LOOPS                                                                                                      \
    {                                                                                                                  \
        &kvb_vector_emulated, &kvb_bf16_avx512bf16, NULL, &kvb_tiles_emulated                                          \
    }
#else
extern const kvb_vector kvb_vector_amx;
extern const kvb_amx_loops kvb_tiles_amx;
#define AMX_LOOPS                                                                                                      \
    {                                                                                                                  \
        &kvb_vector_amx, &kvb_bf16_avx512bf16, &kvb_f16_avx512fp16, &kvb_tiles_amx                                     \
    }
#endif
#endif

const kvb_loops *kvb_loops_at(kvb_cpu_level level)
{
    static const kvb_loops loops[KVB_CPU_LEVELS] = {
        [KVB_CPU_PORTABLE] = {.vector = &kvb_vector_portable},
#define LOOPS(LEVEL, NAME)              [KVB_CPU_##LEVEL] = {.vector = &kvb_vector_##NAME},
#define LOOPS_BF16(LEVEL, VECTOR, NAME) [KVB_CPU_##LEVEL] = {&kvb_vector_##VECTOR, &kvb_bf16_##NAME, NULL, NULL},
        LEVELS(LOOPS) BF16_LEVELS(LOOPS_BF16)
#if defined(__x86_64__)
            [KVB_CPU_AVX512FP16] = {&kvb_vector_avx512vnni, &kvb_bf16_avx512bf16, &kvb_f16_avx512fp16, NULL},
        [KVB_CPU_AMX] = AMX_LOOPS,
#endif
    };
    return loops[level].vector ? &loops[level] : NULL;
}
