/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts calls of malloc, calloc, realloc, free and their aligned kin made anywhere in the process while the watch is
 * on: attend() must make none. It interposes the C library's functions; in a build with a sanitizer it uses the hooks of that
 * runtime.
 */
#ifndef KVB_HEAP_WATCH_H
#define KVB_HEAP_WATCH_H

#include <stdint.h>

void kvb_heap_watch_start(void);
/* Allocations and frees since start, by any thread. */
uint64_t kvb_heap_watch_stop(void);

#endif
