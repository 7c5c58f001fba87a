/* SPDX-License-Identifier: Apache-2.0 */
/* The counting allocator. Blocks come from posix_memalign, so a sanitizer still sees their exact ends. */
#include "caches/allocator.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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

/* Counts the request; NULL when it is planned to fail, would pass the limit, or memory is out. */
static void *request(kvb_allocator *a, size_t bytes)
{
    void *block;

    a->requests++;
    if (a->requests == a->fail_request)
        return NULL;
    if (bytes > SIZE_MAX - a->current_bytes)
        return NULL;
    if (a->limit_bytes && a->current_bytes + bytes > a->limit_bytes)
        return NULL;
    block = kvb_memory_take(a->source, "cache memory", bytes);
    if (!block)
        return NULL;
    a->current_bytes += bytes;
    if (a->current_bytes > a->peak_bytes)
        a->peak_bytes = a->current_bytes;
    return block;
}

void *kvb_realloc(kvb_allocator *a, void *block, size_t old_bytes, size_t new_bytes)
{
    void *grown = NULL;

    assert((block == NULL) == (old_bytes == 0));
    assert(old_bytes <= a->current_bytes);
    if (new_bytes) {
        grown = request(a, new_bytes);
        if (!grown)
            return NULL;
        if (block)
            memcpy(grown, block, old_bytes < new_bytes ? old_bytes : new_bytes);
    }
    if (block) {
        kvb_memory_give(a->source, block, old_bytes);
        a->current_bytes -= old_bytes;
    }
    return grown;
}
