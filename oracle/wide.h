/* SPDX-License-Identifier: Apache-2.0 */
/* For loops over channels: compiled for wider vectors as well. Each element goes through the same operations (products and sums are never
 * contracted), so the bits are the same. Sanitizers cannot run before main(), where one is chosen. */
#ifndef KVB_WIDE_H
#define KVB_WIDE_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define WIDE
#else
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

#endif
