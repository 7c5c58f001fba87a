/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be asked of memory ahead, while something else is worked on: a share at a time. */
#ifndef KVB_VECTOR_ASK_H
#define KVB_VECTOR_ASK_H

#include "kernels/attend.h"

/* `run` cells from `ahead` of each of n cells of KV head h: their rows, scales and zeros. They may lie past the end, or be
 * others where there is a block table: nothing is read. */
typedef struct kvb_ask {
    const kvb_view *view;
    const uint32_t *cells;
    uint32_t h, n, ahead, run;
} kvb_ask;

static inline void kvb_ask_lane(const void *base, size_t stride, const uint32_t *cells, uint32_t n, uint32_t ahead,
                                uint32_t run)
{
    const uintptr_t line = 64;
    for (uint32_t i = 0; i < n; i++) {
        uintptr_t at = (uintptr_t)base + (cells[i] + ahead) * stride, end = at + run * stride;
        for (at &= -line; at < end; at += line)
            __builtin_prefetch((const void *)at, 0, 2);
    }
}

/* The i-th of `of` shares; NULL asks for nothing. */
static inline void kvb_ask_share(const kvb_ask *ask, uint32_t i, uint32_t of)
{
    if (!ask)
        return;
    const kvb_view *v = ask->view;
    const uint32_t *cells = ask->cells + ask->n * i / of;
    uint32_t n = ask->n * (i + 1) / of - ask->n * i / of;

    kvb_ask_lane((const char *)v->base + ask->h * v->head_stride, v->cell_stride, cells, n, ask->ahead, ask->run);
    if (v->scales)
        kvb_ask_lane((const char *)v->scales + ask->h * v->scale_head_stride, v->scale_cell_stride, cells, n,
                     ask->ahead, ask->run);
    if (v->zeros)
        kvb_ask_lane((const char *)v->zeros + ask->h * v->zero_head_stride, v->zero_cell_stride, cells, n, ask->ahead,
                     ask->run);
}

#endif
