/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be asked of memory ahead, while something else is worked on: a part at a time. */
#ifndef KVB_VECTOR_ASK_H
#define KVB_VECTOR_ASK_H

#include "kernels/attend.h"

/* `run` cells from `ahead` of each of n cells of KV head h: their rows, scales and zeros. They may lie past the end, or be
 * others where there is a block table: nothing is read. */
typedef struct kvb_ask {
    const kvb_view *view;
    const uint32_t *cells;
    uint32_t h, n, ahead, run;
    bool steadily;  /* by kvb_ask_step(), too */
    uint32_t asked; /* so far: runs, or cells of a single run */
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

static inline uint32_t kvb_ask_all(const kvb_ask *ask)
{
    return ask->n > 1 ? ask->n : ask->run;
}

/* What was not asked for of the first `end`: of several runs some, of one a piece. */
static inline void kvb_ask_to(kvb_ask *ask, uint32_t end)
{
    const kvb_view *v = ask->view;
    const uint32_t first = ask->asked;
    kvb_ask part = *ask;
    if (first >= end)
        return;
    ask->asked = end;
    if (ask->n > 1) {
        part.cells += first;
        part.n = end - first;
    } else {
        part.ahead += first;
        part.run = end - first;
    }
    kvb_ask_lane(&part, (const char *)v->base + ask->h * v->head_stride, v->cell_stride);
    if (v->scales)
        kvb_ask_lane(&part, (const char *)v->scales + ask->h * v->scale_head_stride, v->scale_cell_stride);
    if (v->zeros)
        kvb_ask_lane(&part, (const char *)v->zeros + ask->h * v->zero_head_stride, v->zero_cell_stride);
}

/* What was not asked for of the first i of `of` equal parts. NULL asks for nothing. */
static inline void kvb_ask_until(kvb_ask *ask, uint32_t i, uint32_t of)
{
    if (ask)
        kvb_ask_to(ask, kvb_ask_all(ask) * i / of);
}

/* The next eighth, where it is asked steadily. */
static inline void kvb_ask_step(kvb_ask *ask)
{
    if (!ask || !ask->steadily)
        return;
    const uint32_t all = kvb_ask_all(ask), end = ask->asked + all / 8;
    kvb_ask_to(ask, end < all ? end : all);
}

#endif
