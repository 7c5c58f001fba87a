/* SPDX-License-Identifier: Apache-2.0 */
/* Flushing what a kernel is about to read. */
#include "harness/replay/cache_state.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define LINE 64u /* bytes */

const char *const kvb_cache_state_names[KVB_CACHE_STATES] = {"natural", "hot", "cold"};

bool kvb_cache_state_parse(const char *word, kvb_cache_state *state)
{
    for (int i = 0; i < KVB_CACHE_STATES; i++)
        if (!strcmp(word, kvb_cache_state_names[i])) {
            *state = (kvb_cache_state)i;
            return true;
        }
    return false;
}

#if defined(__x86_64__)
bool kvb_flush_available(char *why, size_t why_bytes)
{
    (void)why, (void)why_bytes;
    return true; /* clflush came with SSE2 */
}

void kvb_block_flush(const void *block, size_t bytes)
{
    const char *at = (const char *)((uintptr_t)block & ~(uintptr_t)(LINE - 1)), *end = (const char *)block + bytes;
    for (; at < end; at += LINE)
        _mm_clflush(at);
    _mm_mfence();
}
#else
bool kvb_flush_available(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "no instruction to flush a cache line is known for this processor");
    return false;
}

void kvb_block_flush(const void *block, size_t bytes)
{
    (void)block, (void)bytes;
}
#endif

void kvb_view_flush(const kvb_view *view, uint32_t n_kv_heads)
{
    const char *base = view->base;
    for (uint32_t h = 0; h < n_kv_heads && view->cells; h++)
        kvb_block_flush(base + h * view->head_stride, view->cells * view->cell_stride);
}
