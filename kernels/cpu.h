/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The levels of instruction sets that the vector kernels are compiled for, and which of them this CPU has. Each level includes
 * those below it.
 */
#ifndef KVB_CPU_H
#define KVB_CPU_H

#include <stdbool.h>
#include <stddef.h>

typedef enum kvb_cpu_level {
    KVB_CPU_PORTABLE,   /* the compiler's default for the architecture: SSE2 on x86-64 */
    KVB_CPU_AVX2,       /* AVX2, FMA, F16C */
    KVB_CPU_AVX512,     /* AVX-512 F, BW, DQ, VL */
    KVB_CPU_AVX512VNNI, /* and VNNI, VBMI: Ice Lake, Zen 4 */
    KVB_CPU_AVX512BF16, /* and BF16: Zen 4 */
    KVB_CPU_AVX512FP16, /* and FP16: Sapphire Rapids */
    KVB_CPU_LEVELS
} kvb_cpu_level;

extern const char *const kvb_cpu_level_names[KVB_CPU_LEVELS]; /* "portable", "avx2", "avx512", … */

/* The highest level that this CPU, this build and the limit allow. */
kvb_cpu_level kvb_cpu(void);

/* From now on use no level above `most`. At first there is no limit. Not while a kernel runs. */
void kvb_cpu_limit(kvb_cpu_level most);

/* Can this CPU run that level, whatever the limit? If not, why names the instruction set that it lacks. */
bool kvb_cpu_has(kvb_cpu_level level, char *why, size_t why_bytes);

#endif
