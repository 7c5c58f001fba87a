/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How memory is kept busy while stored rows are read: settings by the CPU's maker, measured (kernels/NOTES.md), and
 * two ways of prefetching. Rows that are used where they lie are prefetched line by line while the loop is at the same line
 * of an earlier row (kvb_row_ahead). Rows that are decoded or packed first are prefetched in bursts between two
 * pieces of work (kvb_lookahead).
 *
 * A prefetched address may lie anywhere: nothing is read from it.
 */
#ifndef KVB_PREFETCH_H
#define KVB_PREFETCH_H

#include "kernels/attend.h"

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/*
 * Narrow rows that few query rows use are prefetched into the first-level cache: wider ones would not fit. These limits hold
 * on every CPU, and settings may raise them. They are constants so that the compiler can leave a branch out.
 */
#define KVB_NEAR_BYTES 256u
#define KVB_NEAR_ROWS  4u
/* A line that takes part in at most so many multiply-adds is prefetched again four times, any other once. */
#define KVB_AGAIN_WORK 128u

typedef struct kvb_prefetch {
    uint32_t places;     /* places of a sequence that are read in turns by few query rows: a power of two */
    uint32_t near_bytes; /* rows up to this go into the first-level cache … */
    uint32_t near_rows;  /* … for up to so many query rows … */
    uint32_t near_cells; /* … in turns of so many cells: 32 or 64 */
    bool again;          /* prefetch a line more than once: this CPU drops requests that come too fast */
    bool by_cells;       /* for one or two query rows a cell's row is read to its end before the next cell's */
    bool steadily;       /* block products prefetch in eighths all along, not in two halves */
} kvb_prefetch;

extern const kvb_prefetch kvb_prefetch_intel, kvb_prefetch_amd;

/* The settings for this CPU, or those of kvb_prefetch_set(). */
const kvb_prefetch *kvb_prefetch_here(void);

/* NULL: those for this CPU, as at first. Not while a kernel runs. */
void kvb_prefetch_set(const kvb_prefetch *prefetch);

/* ---- rows used where they lie -------------------------------------------------------------------------------------- */

/* A loop that is at some line of a row prefetches the same line of the row `bytes` further on. */
typedef struct kvb_row_ahead {
    size_t bytes; /* with `again` the distance of a multiple of 8 cells */
    bool again;   /* prefetch lines between here and there again, at eighths of the distance */
} kvb_row_ahead;

/* ---- rows decoded or packed first ------------------------------------------------------------------------------------ */

/* The rows, scales and zeros of KV head h that the next turn will read: `run` cells, `ahead` further on than each of n cells. */
typedef struct kvb_lookahead {
    const kvb_view *view;
    const uint32_t *cells; /* [n] */
    uint32_t h, n, ahead, run;
    bool steadily; /* kvb_lookahead_step() prefetches too */
    uint32_t done; /* prefetched so far: of the n cells, or, if n is 1, of its run */
} kvb_lookahead;

static inline uint32_t kvb_lookahead_all(const kvb_lookahead *next)
{
    return next->n > 1 ? next->n : next->run;
}

/* The lines of one table: codes, scales or zeros. */
static inline void kvb_lookahead_lines(const kvb_lookahead *next, const void *base, size_t stride)
{
    const uintptr_t line = 64;
    for (uint32_t i = 0; i < next->n; i++) {
        uintptr_t at = (uintptr_t)base + (next->cells[i] + next->ahead) * stride, end = at + next->run * stride;
        for (at &= -line; at < end; at += line)
            __builtin_prefetch((const void *)at, 0, 2);
    }
}

/* Prefetch the part of the first `end` that has not been prefetched yet. */
static inline void kvb_lookahead_to(kvb_lookahead *next, uint32_t end)
{
    const kvb_view *v = next->view;
    const uint32_t first = next->done;
    kvb_lookahead part = *next;
    if (first >= end)
        return;
    next->done = end;
    if (next->n > 1) {
        part.cells += first;
        part.n = end - first;
    } else {
        part.ahead += first;
        part.run = end - first;
    }
    kvb_lookahead_lines(&part, (const char *)v->base + next->h * v->head_stride, v->cell_stride);
    if (v->scales)
        kvb_lookahead_lines(&part, (const char *)v->scales + next->h * v->scale_head_stride, v->scale_cell_stride);
    if (v->zeros)
        kvb_lookahead_lines(&part, (const char *)v->zeros + next->h * v->zero_head_stride, v->zero_cell_stride);
}

/* Prefetch up to i of `of` equal parts. NULL: nothing. */
static inline void kvb_lookahead_until(kvb_lookahead *next, uint32_t i, uint32_t of)
{
    if (next)
        kvb_lookahead_to(next, kvb_lookahead_all(next) * i / of);
}

/* Prefetch the next eighth, if `steadily`. NULL: nothing. */
static inline void kvb_lookahead_step(kvb_lookahead *next)
{
    if (!next || !next->steadily)
        return;
    const uint32_t all = kvb_lookahead_all(next), end = next->done + all / 8;
    kvb_lookahead_to(next, end < all ? end : all);
}

#endif
