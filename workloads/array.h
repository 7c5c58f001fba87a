/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for arrays that grow, for arrays that are freed together, and for large ones; loops over arrays. Every folder may
 * include this header. Memory that a cache counts comes from caches/allocator.h instead. */
#ifndef KVB_ARRAY_H
#define KVB_ARRAY_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Makes room for n elements. array: the address of its pointer; room: elements that it has memory for, which doubles;
 * bytes: of one element. 0, or -ENOMEM with the array unchanged. */
static inline int kvb_array_reserve(void *array, size_t *room, size_t n, size_t bytes)
{
    size_t more = *room ? *room : 32;
    void *old;

    if (n <= *room)
        return 0;
    while (more < n)
        more *= 2;
    memcpy(&old, array, sizeof old);
    void *grown = realloc(old, more * bytes);
    if (!grown)
        return -ENOMEM;
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return 0;
}

static inline int kvb_doubles_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts in ascending order. No element is NaN. */
static inline void kvb_doubles_sort(double *x, size_t n)
{
    qsort(x, n, sizeof *x, kvb_doubles_compare);
}

/* Arrays that are freed together. Zero at first. */
typedef struct kvb_arena {
    struct kvb_arena_block *last;
    bool failed; /* there was no memory for an array */
} kvb_arena;

struct kvb_arena_block {
    struct kvb_arena_block *before;
    max_align_t array[];
};

/* n elements that are zero. NULL: no memory. The arena notes that, so that a caller tests `failed` once, at the end. */
static inline void *kvb_arena_take(kvb_arena *arena, size_t n, size_t bytes)
{
    struct kvb_arena_block *block =
        n < (SIZE_MAX - sizeof *block) / bytes ? calloc(1, sizeof *block + n * bytes) : NULL;
    if (!block) {
        arena->failed = true;
        return NULL;
    }
    block->before = arena->last;
    arena->last = block;
    return block->array;
}

static inline void kvb_arena_free(kvb_arena *arena)
{
    for (struct kvb_arena_block *block = arena->last, *before; block; block = before) {
        before = block->before;
        free(block);
    }
    *arena = (kvb_arena){NULL, false};
}

/* Compiles a function's loops for wider vectors as well, where the compiler can vectorise them. Products and sums are never
 * contracted, so the bits are the same. The version is chosen before main(), which sanitizers cannot follow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define KVB_WIDE
#else
#define KVB_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

#define KVB_PAGES_HEAD 64u /* bytes before the memory, which keep its size */

/* Large memory in a mapping of its own: zeros, aligned to 64 bytes, in huge pages where the system has them. Unlike a
 * block of the heap, it shares no page with children that still run, so writing to it copies none. Free it with
 * kvb_pages_free(). NULL: no memory. */
static inline void *kvb_pages_alloc(size_t bytes)
{
    bytes += KVB_PAGES_HEAD;
    char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    madvise(pages, bytes, MADV_HUGEPAGE); /* failure is harmless */
    memcpy(pages, &bytes, sizeof bytes);
    return pages + KVB_PAGES_HEAD;
}

/* NULL: nothing. */
static inline void kvb_pages_free(void *memory)
{
    size_t bytes;
    if (!memory)
        return;
    char *pages = (char *)memory - KVB_PAGES_HEAD;
    memcpy(&bytes, pages, sizeof bytes);
    munmap(pages, bytes);
}

#endif
