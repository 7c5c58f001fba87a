/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counting allocator: all memory of a cache comes through one, so that peak, limit and planned
 * failure are facts and not estimates. One function does everything and takes old sizes (Lua's way).
 * Not thread-safe: one cache, one allocator, one thread at a time.
 */
#ifndef KVB_ALLOCATOR_H
#define KVB_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A function that the program exports, for plug-ins: see caches/plugin.h. */
#define KVB_HOST __attribute__((visibility("default")))

#define KVB_ALIGNMENT 64u               /* bytes; of every block */
#define KVB_HUGE_PAGE ((size_t)2 << 20) /* bytes; of x86-64 and of arm64 with 4 KiB pages */

/* Where memory comes from, when not from the C library: guarded or placed memory. `name` says what it is for. */
typedef struct kvb_memory_source {
    void *(*take)(const char *name, size_t bytes); /* aligned to KVB_ALIGNMENT; NULL: none left */
    void (*give)(void *block, size_t bytes);
} kvb_memory_source;

/* Uncounted memory of a source; NULL: the C library. */
void *kvb_memory_take(const kvb_memory_source *source, const char *name, size_t bytes);
void kvb_memory_give(const kvb_memory_source *source, void *block, size_t bytes);

typedef struct kvb_allocator {
    size_t current_bytes;            /* held now */
    size_t peak_bytes;               /* most ever held at once, during a copying growth both blocks */
    size_t limit_bytes;              /* a request that would pass it fails; 0: no limit */
    uint64_t requests;               /* requests for memory so far (frees not counted) */
    uint64_t fail_request;           /* this request (1-based) fails on purpose; 0: none does */
    const kvb_memory_source *source; /* NULL: the C library. Set before the first request, never changed */
} kvb_allocator;

/*
 * Grows, shrinks or frees a block. old_bytes is its exact present size (0 with block NULL); new_bytes 0 frees it and
 * returns NULL. The first min(old, new) bytes are kept; bytes past them are arbitrary. Returns NULL on failure, and
 * then the old block is untouched.
 */
KVB_HOST void *kvb_realloc(kvb_allocator *a, void *block, size_t old_bytes, size_t new_bytes);

/*
 * Reserves address space in whole pages, read-write, all zero. The bytes are not counted, the request is. huge: aligned
 * to huge pages, which the system is asked to use (else it is asked not to). NULL on failure.
 */
KVB_HOST void *kvb_reserve(kvb_allocator *a, size_t bytes, bool huge);
/* Counts `bytes` more of reserved space, which the caller is going to touch. A request, which may fail: false. */
KVB_HOST bool kvb_commit(kvb_allocator *a, size_t bytes);
/* Releases reserved space, of which `committed` bytes were counted. NULL with 0 is nothing. */
KVB_HOST void kvb_unreserve(kvb_allocator *a, void *block, size_t bytes, size_t committed);

/*
 * Makes room for `need` items of item_bytes in *block, a pointer to an array with room for *room items: 0, or -ENOMEM
 * with both unchanged. Old items are kept, new ones are arbitrary. The array at least doubles when it grows, so that a
 * long run rarely asks for memory, and is allocated even for 0 items, so that it is never NULL.
 */
KVB_HOST int kvb_grow_items(kvb_allocator *a, void *block, size_t *room, size_t need, size_t item_bytes);
/* The room to which an array with room for `room` items grows to hold `need`. */
size_t kvb_grown(size_t room, size_t need);
#define kvb_grow(allocator, array, room, need) kvb_grow_items(allocator, array, room, need, sizeof **(array))

static inline void *kvb_alloc(kvb_allocator *a, size_t bytes)
{
    return kvb_realloc(a, NULL, 0, bytes);
}

static inline void *kvb_alloc_zeroed(kvb_allocator *a, size_t bytes)
{
    void *block = kvb_alloc(a, bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

static inline void kvb_free(kvb_allocator *a, void *block, size_t bytes) /* NULL is nothing */
{
    kvb_realloc(a, block, block ? bytes : 0, 0);
}

#endif
