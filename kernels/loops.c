/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of kernels/vector by level. */
#include "kernels/vector/vector.h"

#if defined(__x86_64__)
extern const kvb_vector kvb_vector_avx2, kvb_vector_avx512, kvb_vector_avx512vnni;
extern const kvb_bf16_loops kvb_bf16_avx512bf16;
extern const kvb_f16_loops kvb_f16_avx512fp16;
#endif

const kvb_loops *kvb_loops_at(kvb_cpu_level level)
{
    static const kvb_loops loops[KVB_CPU_LEVELS] = {
        [KVB_CPU_PORTABLE] = {&kvb_vector_portable, NULL, NULL},
#if defined(__x86_64__)
        [KVB_CPU_AVX2] = {&kvb_vector_avx2, NULL, NULL},
        [KVB_CPU_AVX512] = {&kvb_vector_avx512, NULL, NULL},
        [KVB_CPU_AVX512VNNI] = {&kvb_vector_avx512vnni, NULL, NULL},
        [KVB_CPU_AVX512BF16] = {&kvb_vector_avx512vnni, &kvb_bf16_avx512bf16, NULL},
        [KVB_CPU_AVX512FP16] = {&kvb_vector_avx512vnni, &kvb_bf16_avx512bf16, &kvb_f16_avx512fp16},
#endif
    };
    return loops[level].vector ? &loops[level] : NULL;
}
