/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the calls of malloc, calloc, realloc, free and the aligned variants in the whole process while the watch is on:
 * attend() must make none. The watch interposes the C library's functions; in a build with a sanitizer it uses the hooks
 * of the sanitizer's runtime.
 */
#ifndef KVB_HEAP_WATCH_H
#define KVB_HEAP_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void kvb_heap_watch_start(void);
/* Allocations and frees since start, by any thread. */
uint64_t kvb_heap_watch_stop(void);
/* Excludes calls made directly by the shared library that holds this address: OpenBLAS allocates for some products, and
 * no kernel is to blame. NULL, or an address of this program: all calls count. */
void kvb_heap_watch_excuse(const void *inside);
/* Describes the first call that was counted (there is one): "malloc of 64 bytes, called by attend (mine.so) > helper
 * (mine.so)". thread: the first call that started a thread. Functions unknown to dladdr(), such as static ones, appear
 * as "mine.so+0x1234"; `addr2line -f -e mine.so 0x1234` names them. */
void kvb_heap_watch_words(bool thread, char *text, size_t bytes);

/* Threads started by pthread_create or thrd_create in the whole process since kvb_threads_forget(). */
uint64_t kvb_threads_started(void);
void kvb_threads_forget(void);

#endif
