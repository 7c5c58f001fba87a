/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts calls of malloc, calloc, realloc, free and their aligned kin made anywhere in the process while the watch is
 * on: attend() must make none. It interposes the C library's functions; in a build with a sanitizer it uses the hooks
 * of that runtime.
 */
#ifndef KVB_HEAP_WATCH_H
#define KVB_HEAP_WATCH_H

#include <stddef.h>
#include <stdint.h>

void kvb_heap_watch_start(void);
/* Allocations and frees since start, by any thread. */
uint64_t kvb_heap_watch_stop(void);
/* Calls that come straight from the shared library that holds this address are not counted: OpenBLAS takes memory of
 * its own for some products, which is no kernel's doing. NULL, or an address of this program: all calls count. */
void kvb_heap_watch_excuse(const void *inside);
/* The first of those that stop() has counted, one or more: "malloc of 64 bytes, called by attend (mine.so) > helper
 * (mine.so)", or "mine.so+0x1234" where dladdr() knows no name: static functions (`addr2line -f -e mine.so 0x1234`
 * does). */
void kvb_heap_watch_words(char *text, size_t bytes);

/* Threads that were started by pthread_create or thrd_create, anywhere in the process, since threads_forget(). */
uint64_t kvb_threads_started(void);
void kvb_threads_forget(void);
/* The first of these, in words as above. */
void kvb_threads_words(char *text, size_t bytes);

#endif
