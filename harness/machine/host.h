/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about this machine and this build, for the manifest of a result file. */
#ifndef KVB_HOST_H
#define KVB_HOST_H

#include <stddef.h>

#include "results/result.h"

/* Fill everything but suite, seed and command. Reads /proc/cpuinfo-like files below `root` ("" for this
 * machine), so that recorded machines can serve as fixtures. */
void kvb_host_describe(const char *root, kvb_manifest *manifest);

/* "AuthenticAMD 25 17": maker, family and model of the CPU, from /proc/cpuinfo below `root`; "": they are not there. */
#define KVB_CPU_ID_TEXT 64u
void kvb_cpu_id(const char *root, char text[KVB_CPU_ID_TEXT]);

/* Was this machine busy in the last minute? Then text says so. For the start of a run, when the program itself has made
 * no load yet. */
bool kvb_is_busy(const kvb_host *host, char *text, size_t bytes);

/* If the machine is busy, notes so on stderr (kvb_progress_note). */
void kvb_busy_note(const kvb_host *host);

/* --cpu-mask: the highest level of instruction sets (kernels/cpu.h) that kernels and codecs may use. */

#if defined(__aarch64__)
#define KVB_CPU_MASK_HELP                                                                                              \
    "use no instruction set above this: portable, neon, neondot, neonbf16, or SVE of the CPU's own length, as "        \
    "sve128, sve128bf16"
#else
#define KVB_CPU_MASK_HELP                                                                                              \
    "use no instruction set above this: portable, avx2, avxvnni, avx512, avx512vnni, avx512bf16, avx512fp16, amx"
#endif

/*
 * Limits kernels and codecs of this process and of the children that it makes from now on. word NULL: no limit.
 * 0; -EINVAL for an unknown word, with the known ones in why; -ENOTSUP with the instruction set that this CPU lacks.
 * The probes of harness/machine are not limited: they measure the hardware.
 */
int kvb_cpu_mask_set(const char *word, char *why, size_t why_bytes);

/* The same for a command's option --cpu-mask. 0, or an exit code after a message. */
int kvb_cpu_mask_take(const char *command, const char *word);

#endif
