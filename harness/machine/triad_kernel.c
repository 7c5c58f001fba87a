/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STREAM's triad, one source for every ISA: the loop is inlined into functions of different targets and vectorised
 * there. Plain stores: no non-temporal ones, so that hardware moves 32 bytes where STREAM counts 24 (the store first
 * reads its line), as ordinary code does.
 */
#include "harness/machine/read_kernel.h"

static inline __attribute__((always_inline)) void triad(double *restrict a, const double *restrict b,
                                                        const double *restrict c, double s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + s * c[i];
}

static void triad_portable(double *a, const double *b, const double *c, double s, size_t n)
{
    triad(a, b, c, s, n);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void triad_avx512(double *a, const double *b, const double *c, double s,
                                                            size_t n)
{
    triad(a, b, c, s, n);
}

__attribute__((target("avx2"))) static void triad_avx2(double *a, const double *b, const double *c, double s, size_t n)
{
    triad(a, b, c, s, n);
}
#endif

const kvb_triad_kernel kvb_triad_kernels[] = {
#if defined(__x86_64__)
    {"avx512", KVB_CPU_AVX512, triad_avx512},
    {"avx2", KVB_CPU_AVX2, triad_avx2},
#endif
    {"portable", KVB_CPU_PORTABLE, triad_portable},
    {NULL, KVB_CPU_PORTABLE, NULL},
};

const kvb_triad_kernel *kvb_triad_kernel_choose(void)
{
    const kvb_triad_kernel *kernel = kvb_triad_kernels;
    char why[64];
    while (!kvb_cpu_has(kernel->level, why, sizeof why))
        kernel++;
    return kernel;
}
