/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact counts of what the steps of a replay execute. The program begins itself again under Callgrind, a tool of
 * Valgrind, which emulates the CPU and models its caches: instructions, data reads and writes, misses. Nothing else on
 * the machine changes them. Callgrind runs no AVX-512 and one thread at a time, and sees neither prefetching nor
 * bandwidth.
 */
#ifndef KVB_COUNT_H
#define KVB_COUNT_H

#include <stdbool.h>
#include <sys/types.h>

#include "results/result.h"

/* The highest level of instruction sets (kernels/cpu.h) that can be counted here: "avx2" or "portable". */
const char *kvb_count_level(void);

/* Replaces this process by one that runs the words of the command, argv, under Callgrind. threads: the thread counts
 * asked for, ending with NULL, or NULL. Returns 0 in that process, at once; else, said, KVB_EXIT_USAGE for what cannot
 * be counted anywhere, KVB_EXIT_MACHINE where Callgrind cannot be had. */
int kvb_count_start(char **argv, const char *const *threads);

/* In a child: prepares for counting. What lies between an odd call of kvb_count_turn and the next one is counted.
 * Without Callgrind both do nothing. */
void kvb_count_open(void);
void kvb_count_turn(void);

/* What a child counted, when it has ended: fills counts of a result that passed. Fails it if there are none. Without
 * Callgrind it does nothing. */
void kvb_count_read(pid_t child, kvb_result *result);

#endif
