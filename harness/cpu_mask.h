/* SPDX-License-Identifier: Apache-2.0 */
/* --cpu-mask: the highest level of instruction sets (kernels/cpu.h) that kernels and codecs may use. */
#ifndef KVB_CPU_MASK_H
#define KVB_CPU_MASK_H

#include <stddef.h>

#if defined(__aarch64__)
#define KVB_CPU_MASK_HELP                                                                                              \
    "use no instruction set above this: portable, neon, neondot, neonbf16, or SVE of the CPU's own length, as "        \
    "sve128, sve128bf16"
#else
#define KVB_CPU_MASK_HELP                                                                                              \
    "use no instruction set above this: portable, avx2, avx512, avx512vnni, avx512bf16, avx512fp16"
#endif

/*
 * Limits kernels and codecs of this process and of the children that it makes from now on. word NULL: no limit.
 * 0; -EINVAL for an unknown word, with the known ones in why; -ENOTSUP with the instruction set that this CPU lacks.
 * The probes of harness/machine are not limited: what the hardware can do does not depend on what is forbidden.
 */
int kvb_cpu_mask_set(const char *word, char *why, size_t why_bytes);

#endif
