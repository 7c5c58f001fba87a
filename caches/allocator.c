/* SPDX-License-Identifier: Apache-2.0 */
/* The counting allocator. Blocks come from posix_memalign, so a sanitizer still sees their exact ends. */
#include "caches/allocator.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *kvb_memory_take(const kvb_memory_source *source, const char *name, size_t bytes)
{
    void *block = NULL;

    if (source)
        return source->take(name, bytes);
    return posix_memalign(&block, KVB_ALIGNMENT, bytes) ? NULL : block;
}

void kvb_memory_give(const kvb_memory_source *source, void *block, size_t bytes)
{
    if (source && block)
        source->give(block, bytes);
    else
        free(block);
}

/* Counts a request; false: it is planned to fail, or exceeds the limit. */
static bool allowed(kvb_allocator *a, size_t bytes)
{
    a->requests++;
    if (a->requests == a->fail_request || bytes > SIZE_MAX - a->current_bytes)
        return false;
    return !a->limit_bytes || a->current_bytes + bytes <= a->limit_bytes;
}

static void count(kvb_allocator *a, size_t bytes)
{
    a->current_bytes += bytes;
    if (a->current_bytes > a->peak_bytes)
        a->peak_bytes = a->current_bytes;
}

void *kvb_realloc(kvb_allocator *a, void *block, size_t old_bytes, size_t new_bytes)
{
    void *grown = NULL;

    assert((block == NULL) == (old_bytes == 0));
    assert(old_bytes <= a->current_bytes);
    if (new_bytes) {
        grown = allowed(a, new_bytes) ? kvb_memory_take(a->source, "cache memory", new_bytes) : NULL;
        if (!grown)
            return NULL;
        count(a, new_bytes);
        if (block)
            memcpy(grown, block, old_bytes < new_bytes ? old_bytes : new_bytes);
    }
    if (block) {
        kvb_memory_give(a->source, block, old_bytes);
        a->current_bytes -= old_bytes;
    }
    return grown;
}

/* ---- address space ------------------------------------------------------------------------------------------ */

/* Maps bytes at a multiple of align: maps align bytes more and unmaps what lies outside. */
static void *map_aligned(size_t bytes, size_t align)
{
    char *all = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t before = (align - (uintptr_t)all % align) % align;
    if (before)
        munmap(all, before);
    munmap(all + before + bytes, align - before);
    return all + before;
}

void *kvb_reserve(kvb_allocator *a, size_t bytes, bool huge)
{
    if (!allowed(a, 0) || bytes > SIZE_MAX - KVB_HUGE_PAGE)
        return NULL;
    void *block = map_aligned(bytes, KVB_HUGE_PAGE);
    if (block)
        madvise(block, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* failure is harmless */
    return block;
}

bool kvb_commit(kvb_allocator *a, size_t bytes)
{
    if (!allowed(a, bytes))
        return false;
    count(a, bytes);
    return true;
}

void kvb_unreserve(kvb_allocator *a, void *block, size_t bytes, size_t committed)
{
    assert(committed <= a->current_bytes);
    if (block)
        munmap(block, bytes);
    a->current_bytes -= committed;
}

enum { FIRST_ITEMS = 16 };

size_t kvb_grown(size_t room, size_t need)
{
    const size_t twice = room < FIRST_ITEMS ? FIRST_ITEMS : room * 2;
    return twice < need ? need : twice;
}

int kvb_grow_items(kvb_allocator *a, void *block, size_t *room, size_t need, size_t item_bytes)
{
    void *old;
    memcpy(&old, block, sizeof old); /* an array of any type */
    if (old && need <= *room)
        return 0;
    const size_t want = kvb_grown(*room, need);
    void *grown = kvb_realloc(a, old, *room * item_bytes, want * item_bytes);
    if (!grown)
        return -ENOMEM;
    memcpy(block, &grown, sizeof grown);
    *room = want;
    return 0;
}
