/* SPDX-License-Identifier: Apache-2.0 */
/* The table of functions of the level that is being compiled. */
#include "kernels/vector/vec.h"
#include "kernels/vector/vector.h"

#if defined(__AMX_INT8__) || defined(__AMXINT8__) || defined(KVB_TILES_EMULATED)
#define LEVEL KVB_CPU_AMX
#elif defined(__AVX512VNNI__)
#define LEVEL KVB_CPU_AVX512VNNI
#elif defined(__AVX512F__)
#define LEVEL KVB_CPU_AVX512
#elif defined(KVB_AVXVNNI)
#define LEVEL KVB_CPU_AVXVNNI
#elif defined(__AVX2__)
#define LEVEL KVB_CPU_AVX2
#elif defined(__ARM_FEATURE_SVE)
#if defined(__ARM_FEATURE_SVE_MATMUL_INT8)
#define OF_BITS(BITS) KVB_CPU_SVE##BITS##BF16
#else
#define OF_BITS(BITS) KVB_CPU_SVE##BITS
#endif
#define OF(BITS) OF_BITS(BITS)
#define LEVEL    OF(__ARM_FEATURE_SVE_BITS)
#elif defined(__ARM_FEATURE_MATMUL_INT8)
#define LEVEL KVB_CPU_NEONBF16
#elif defined(__ARM_FEATURE_DOTPROD)
#define LEVEL KVB_CPU_NEONDOT
#elif defined(KVB_NEON)
#define LEVEL KVB_CPU_NEON
#else
#define LEVEL KVB_CPU_PORTABLE
#endif

#define FLOATS(f) extern __typeof__(KVB_ISA_NAME(kvb_##f)) KVB_FLOATS_NAME(kvb_##f);
#define ROWS(f)   extern __typeof__(KVB_ISA_NAME(kvb_##f)) KVB_ROWS_NAME(kvb_##f);
#define OWN(f)
KVB_VECTOR_FUNCTIONS(OWN, ROWS, FLOATS)
#undef FLOATS
#undef ROWS
#undef OWN

const kvb_vector KVB_ISA_NAME(kvb_vector) = {.level = LEVEL,
                                             .lanes = VL,
#define OWN(f)    .f = KVB_ISA_NAME(kvb_##f),
#define ROWS(f)   .f = KVB_ROWS_NAME(kvb_##f),
#define FLOATS(f) .f = KVB_FLOATS_NAME(kvb_##f),
                                             KVB_VECTOR_FUNCTIONS(OWN, ROWS, FLOATS)
#undef FLOATS
#undef ROWS
#undef OWN
};
