/* SPDX-License-Identifier: Apache-2.0 */
/* For loops that the compiler turns into vectors itself: compiles them for wider ones as well. (Loops that need help
 * are in products.c.) Products and sums are never contracted, so the bits are the same. Which one runs is chosen before
 * main(), which sanitizers cannot follow. */
#ifndef KVB_WIDE_H
#define KVB_WIDE_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define WIDE
#else
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

#endif
