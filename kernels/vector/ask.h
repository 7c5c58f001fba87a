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

static inline void kvb_ask_lane(const kvb_ask *ask, const void *base, size_t stride)
{
    const uintptr_t line = 64;
    for (uint32_t i = 0; i < ask->n; i++) {
        uintptr_t at = (uintptr_t)base + (ask->cells[i] + ask->ahead) * stride, end = at + ask->run * stride;
        for (at &= -line; at < end; at += line)
            __builtin_prefetch((const void *)at, 0, 2);
    }
}

/* The i-th of `of` shares: of several runs some, of one a piece. NULL asks for nothing. */
static inline void kvb_ask_share(const kvb_ask *ask, uint32_t i, uint32_t of)
{
    if (!ask)
        return;
    const kvb_view *v = ask->view;
    const uint32_t all = ask->n > 1 ? ask->n : ask->run, first = all * i / of, some = all * (i + 1) / of - first;
    kvb_ask share = *ask;
    if (ask->n > 1) {
        share.cells += first;
        share.n = some;
    } else {
        share.ahead += first;
        share.run = some;
    }
    kvb_ask_lane(&share, (const char *)v->base + ask->h * v->head_stride, v->cell_stride);
    if (v->scales)
        kvb_ask_lane(&share, (const char *)v->scales + ask->h * v->scale_head_stride, v->scale_cell_stride);
    if (v->zeros)
        kvb_ask_lane(&share, (const char *)v->zeros + ask->h * v->zero_head_stride, v->zero_cell_stride);
}

#endif
