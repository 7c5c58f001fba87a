/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts calls of malloc, calloc, realloc, free and their aligned kin made anywhere in the process while the watch is
 * on: attend() must make none. Works by interposing the C library's functions, or through the hooks of the sanitizers'
 * runtime when built with one.
 */
#ifndef KVB_HEAP_WATCH_H
#define KVB_HEAP_WATCH_H

#include <stdint.h>

void kvb_heap_watch_start(void);
/* Allocations and frees since start, by any thread. */
uint64_t kvb_heap_watch_stop(void);

#endif
