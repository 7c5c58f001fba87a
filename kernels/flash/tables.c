/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of kernels/vector and kernels/half by level. */
#include "kernels/half/half.h"
#include "kernels/vector/table.h"

#if defined(__x86_64__)
extern const kvb_vector kvb_vector_avx2, kvb_vector_avx512, kvb_vector_avx512vnni;
#endif

const kvb_vector *kvb_vector_at(kvb_cpu_level level)
{
    static const kvb_vector *const tables[KVB_CPU_LEVELS] = {
        [KVB_CPU_PORTABLE] = &kvb_vector_portable,
#if defined(__x86_64__)
        [KVB_CPU_AVX2] = &kvb_vector_avx2,
        [KVB_CPU_AVX512] = &kvb_vector_avx512,
        [KVB_CPU_AVX512VNNI] = &kvb_vector_avx512vnni,
        [KVB_CPU_AVX512FP16] = &kvb_vector_avx512vnni, /* whose own are in kernels/half */
#endif
    };
    return tables[level];
}

const kvb_half *kvb_half_at(kvb_cpu_level level)
{
#if defined(__x86_64__)
    return level >= KVB_CPU_AVX512FP16 ? &kvb_half_avx512fp16 : NULL;
#else
    (void)level;
    return NULL;
#endif
}
