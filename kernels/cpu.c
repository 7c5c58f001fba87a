/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's level, from CPUID, and the limit on it. */
#include "kernels/cpu.h"

#include <stdio.h>

const char *const kvb_cpu_level_names[KVB_CPU_LEVELS] = {
    [KVB_CPU_PORTABLE] = "portable",     [KVB_CPU_AVX2] = "avx2",
    [KVB_CPU_AVX512] = "avx512",         [KVB_CPU_AVX512VNNI] = "avx512vnni",
    [KVB_CPU_AVX512BF16] = "avx512bf16", [KVB_CPU_AVX512FP16] = "avx512fp16",
};

static kvb_cpu_level limit = KVB_CPU_LEVELS - 1;

#if defined(__x86_64__)
#include <cpuid.h>

static bool f16c_here(void) /* clang 14 has no name for it */
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool bf16_here(void) /* clang 14 has no name for this either */
{
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}

static bool fp16_here(void) /* gcc 11 has no name for it */
{
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 23);
}

/* What each level needs that the one below does not have. */
#define NEED(LEVEL, NAME, HERE)                                                                                        \
    if (level >= LEVEL && !HERE) {                                                                                     \
        snprintf(why, why_bytes, "the CPU has no %s", NAME);                                                           \
        return false;                                                                                                  \
    }
#define NEED_NAMED(LEVEL, NAME) NEED(LEVEL, NAME, __builtin_cpu_supports(NAME)) /* which takes literals only */

bool kvb_cpu_has(kvb_cpu_level level, char *why, size_t why_bytes)
{
    NEED_NAMED(KVB_CPU_AVX2, "avx2")
    NEED_NAMED(KVB_CPU_AVX2, "fma")
    NEED(KVB_CPU_AVX2, "f16c", f16c_here())
    NEED_NAMED(KVB_CPU_AVX512, "avx512f")
    NEED_NAMED(KVB_CPU_AVX512, "avx512bw")
    NEED_NAMED(KVB_CPU_AVX512, "avx512dq")
    NEED_NAMED(KVB_CPU_AVX512, "avx512vl")
    NEED_NAMED(KVB_CPU_AVX512VNNI, "avx512vnni")
    NEED_NAMED(KVB_CPU_AVX512VNNI, "avx512vbmi")
    NEED(KVB_CPU_AVX512BF16, "avx512bf16", bf16_here())
    NEED(KVB_CPU_AVX512FP16, "avx512fp16", fp16_here())
    return true;
}
#else
bool kvb_cpu_has(kvb_cpu_level level, char *why, size_t why_bytes)
{
    if (level == KVB_CPU_PORTABLE)
        return true;
    snprintf(why, why_bytes, "built for another architecture than x86-64");
    return false;
}
#endif

kvb_cpu_level kvb_cpu(void)
{
    static _Atomic int known = -1; /* CPUID traps in a virtual machine: asked once; threads that race find the same */
    char why[64];
    if (known < 0) {
        int level = KVB_CPU_LEVELS - 1;
        while (!kvb_cpu_has((kvb_cpu_level)level, why, sizeof why))
            level--;
        known = level;
    }
    return known < (int)limit ? (kvb_cpu_level)known : limit;
}

void kvb_cpu_limit(kvb_cpu_level most)
{
    limit = most;
}
