/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The levels of instruction sets that the vector kernels are compiled for, and which of them this CPU has. All levels of
 * a CPU belong to one architecture. On x86-64 each level includes those below it, except AVX-VNNI, which some CPUs with
 * AVX-512 lack. On AArch64 code for SVE is compiled for one vector length, which belongs to the level: a CPU has only the
 * levels of its own length, and SVE does not include the products above NEON.
 */
#ifndef KVB_CPU_H
#define KVB_CPU_H

#include <stdbool.h>
#include <stddef.h>

typedef enum kvb_cpu_level {
    KVB_CPU_PORTABLE, /* the compiler's default for the architecture: SSE2 on x86-64, NEON by the compiler on AArch64 */
    KVB_CPU_AVX2,     /* AVX2, FMA, F16C */
    KVB_CPU_AVXVNNI,  /* and AVX-VNNI: Alder Lake, Lunar Lake, Zen 5 */
    KVB_CPU_AVX512,   /* AVX2 and AVX-512 F, BW, DQ, VL */
    KVB_CPU_AVX512VNNI, /* and VNNI, VBMI: Ice Lake, Zen 4 */
    KVB_CPU_AVX512BF16, /* and BF16: Zen 4 */
    KVB_CPU_AVX512FP16, /* and FP16: Sapphire Rapids */
    KVB_CPU_AMX,        /* and AMX of bf16 and int8, where the system lets the process use tiles: the same CPUs */
    KVB_CPU_NEON,       /* of every AArch64: Cortex-A72 */
    KVB_CPU_NEONDOT,    /* and DotProd: Neoverse N1, Apple M1 */
    KVB_CPU_NEONBF16,   /* and BF16, I8MM: Apple M2 */
    KVB_CPU_SVE128,     /* SVE in vectors of 128 bits */
    KVB_CPU_SVE128BF16, /* and its BF16, I8MM: Neoverse N2, V2 */
    KVB_CPU_SVE256,
    KVB_CPU_SVE256BF16, /* Neoverse V1 */
    KVB_CPU_SVE512,     /* A64FX */
    KVB_CPU_SVE512BF16,
    KVB_CPU_LEVELS
} kvb_cpu_level;

extern const char *const kvb_cpu_level_names[KVB_CPU_LEVELS]; /* "portable", "avx2", "avx512", … */

/* The highest level that this CPU, this build and the limit allow. */
kvb_cpu_level kvb_cpu(void);

/* Sets the highest level to use from now on; at first there is no limit. Not while a kernel runs. */
void kvb_cpu_limit(kvb_cpu_level most);

/* Lists this CPU's features that kernels ask for, in the words of /proc/cpuinfo. The list is empty on x86-64, where the
 * system offers no other source than that file. */
void kvb_cpu_features(char *words, size_t bytes);

/* Can this CPU run that level, whatever the limit? If not, why names the instruction set that it lacks. */
bool kvb_cpu_has(kvb_cpu_level level, char *why, size_t why_bytes);

#endif
