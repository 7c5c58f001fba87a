/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of kernels/vector, kernels/bf16 and kernels/half by level. */
#include "kernels/bf16/bf16.h"
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
        [KVB_CPU_AVX512BF16] = &kvb_vector_avx512vnni, /* whose own are in kernels/bf16 */
        [KVB_CPU_AVX512FP16] = &kvb_vector_avx512vnni, /* and in kernels/half */
#endif
    };
    return tables[level];
}

#if defined(__x86_64__)
#define FROM(LEAST, TABLE) (level >= (LEAST) ? &TABLE : NULL)
#else
#define FROM(LEAST, TABLE) ((void)level, NULL)
#endif

const kvb_block_products *kvb_bf16_at(kvb_cpu_level level)
{
    return FROM(KVB_CPU_AVX512BF16, kvb_bf16_avx512bf16);
}

const kvb_half *kvb_bf16_few_at(kvb_cpu_level level)
{
    return FROM(KVB_CPU_AVX512BF16, kvb_bf16_few_avx512bf16);
}

const kvb_half *kvb_half_at(kvb_cpu_level level)
{
    return FROM(KVB_CPU_AVX512FP16, kvb_half_avx512fp16);
}
