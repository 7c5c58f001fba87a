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

/* Flushes a table of n units for each of n_kv_heads heads, if there is one. */
static void table_flush(const void *base, size_t head_stride, size_t n, size_t unit_bytes, uint32_t n_kv_heads)
{
    for (uint32_t h = 0; h < n_kv_heads && base && n; h++)
        kvb_block_flush((const char *)base + h * head_stride, n * unit_bytes);
}

static void region_flush(const kvb_view *v, uint32_t n_kv_heads)
{
    const kvb_format *f = v->format;
    size_t groups = f->axis == KVB_AXIS_TOKENS ? (v->cells + (size_t)f->group - 1) / f->group : v->cells;
    size_t windows = f->residual_cells ? (v->cells + (size_t)f->residual_cells - 1) / f->residual_cells : 0;

    table_flush(v->base, v->head_stride, v->cells, v->cell_stride, n_kv_heads);
    table_flush(v->scales, v->scale_head_stride, groups, v->scale_cell_stride, n_kv_heads);
    table_flush(v->zeros, v->zero_head_stride, groups, v->zero_cell_stride, n_kv_heads);
    if (v->head_scales)
        kvb_block_flush(v->head_scales, n_kv_heads * sizeof *v->head_scales);
    if (windows)
        kvb_block_flush(v->recent_slot, windows * sizeof *v->recent_slot);
    for (size_t w = 0; w < windows && v->recent; w++)
        if (v->recent_slot[w] != KVB_SLOT_NONE)
            table_flush((const char *)v->recent + v->recent_slot[w] * v->recent_slot_stride, v->recent_head_stride,
                        f->residual_cells, v->dim * sizeof(uint16_t), n_kv_heads);
}

void kvb_view_flush(const kvb_view *v, uint32_t n_kv_heads)
{
    const kvb_view own = kvb_view_own(v);
    if (v->front)
        region_flush(v->front, n_kv_heads);
    region_flush(&own, n_kv_heads);
}
