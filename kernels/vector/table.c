/* SPDX-License-Identifier: Apache-2.0 */
/* The table of functions of the level that is being compiled. */
#include "kernels/vector/vector.h"

#if defined(__AVX512VNNI__)
#define LEVEL KVB_CPU_AVX512VNNI
#elif defined(__AVX512F__)
#define LEVEL KVB_CPU_AVX512
#elif defined(__AVX2__)
#define LEVEL KVB_CPU_AVX2
#else
#define LEVEL KVB_CPU_PORTABLE
#endif

const kvb_vector KVB_ISA_NAME(kvb_vector) = {.level = LEVEL,
#define ENTRY(f) .f = KVB_ISA_NAME(kvb_##f),
                                             KVB_VECTOR_FUNCTIONS(ENTRY)
#undef ENTRY
};
