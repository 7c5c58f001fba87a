/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps memory busy while stored rows are read. Each maker of CPUs has built-in settings, which were measured
 * (kernels/NOTES.md); `kvbench tune` finds others. Rows that are used in place are prefetched line by line, while the
 * loop is at the same line of an earlier row (kvb_row_ahead). Rows that are decoded or packed first are prefetched in
 * bursts between two pieces of work (kvb_lookahead, vector/vector.h).
 *
 * A prefetched address may lie anywhere: nothing is read from it.
 */
#ifndef KVB_PREFETCH_H
#define KVB_PREFETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* A line of at most this many multiply-adds is prefetched again four times, any other line once. */
#define KVB_AGAIN_WORK 128u

/*
 * How rows of floats are read in place. No result depends on it: `kvbench tune` measures which reading is the fastest
 * (harness/tuning/tuning.h).
 */
typedef struct kvb_reading {
    /* Cells, in the order of reading, from the cell that is read to the one that is prefetched: at most 256; with several
     * places, at least two at each. 0: no prefetching. */
    uint32_t ahead;
    bool near;          /* into the first-level cache */
    bool again;         /* each line more than once, if `near`, not `beside`: this CPU drops fast requests */
    bool by_cells;      /* for one or two query rows a cell's row of K is read to its end before the next cell's */
    bool sums_by_cells; /* the same for V and any number of query rows; else strips of channels, over all cells */
    /* Where rows lie side by side: also prefetch the first lines of the next page. This wakes the CPU's own prefetcher,
     * which stops at the end of each page. */
    bool pages;
    bool beside; /* read V of a block beside K of the next, a row or two each: 1 to 4 or 8 query rows, 128 channels */
} kvb_reading;

/*
 * How the rows of a group are spread: in a run of several blocks, in a shorter run (a page, a short sequence), or each by
 * itself (a sequence that was filled in steps). Unless the next rows in memory are read next, as in a long run or in
 * pages without a gap, the next block is prefetched at any distance: `ahead` only says whether.
 */
typedef enum kvb_spread { KVB_SPREAD_LONG, KVB_SPREAD_SHORT, KVB_SPREAD_APART, KVB_SPREADS } kvb_spread;

/* A reading is chosen by spread, by the bytes of a row (up to 128, 256, 512, more), and by the number of query rows that
 * meet it (1, 2, 3 or 4, more). */
enum {
    KVB_READING_SIZES = 4,
    KVB_READING_ROWS = 4,
    KVB_READINGS = KVB_SPREADS * KVB_READING_SIZES * KVB_READING_ROWS,
    KVB_READING_AHEAD = 256
};

typedef struct kvb_prefetch {
    /* Few query rows read a sequence in turns from so many places, a power of two. The order in which cells are added,
     * and so the last bits of results, depend on it. Where V may be read beside K it is one place. */
    uint32_t places;
    /* Of a block that it does not see whole, a token with few query rows attends at once so many bytes of K's rows:
     * 16 cells at least, 64 at most. 0: always up to 64 cells. The last bits of results depend on it, too. */
    uint32_t group_bytes;
    /* These change no result. */
    bool steadily;                     /* block products prefetch in eighths all along, not in two halves */
    kvb_reading reading[KVB_READINGS]; /* kvb_reading_at() */
} kvb_prefetch;

extern const kvb_prefetch kvb_prefetch_intel, kvb_prefetch_amd, kvb_prefetch_zen4;

/* The settings for this CPU, or those of kvb_prefetch_set(). */
const kvb_prefetch *kvb_prefetch_here(void);

/* Keeps the address. NULL: the settings for this CPU, as at first. Not while a kernel runs. */
void kvb_prefetch_set(const kvb_prefetch *prefetch);

/* The place of a class in kvb_prefetch.reading: by spread, then bytes, then query rows. */
static inline uint32_t kvb_reading_at(kvb_spread spread, uint32_t size, uint32_t rows)
{
    return ((uint32_t)spread * KVB_READING_SIZES + size) * KVB_READING_ROWS + rows;
}

static inline const kvb_reading *kvb_reading_of(const kvb_prefetch *prefetch, kvb_spread spread, size_t row_bytes,
                                                uint32_t n_rows)
{
    const uint32_t size = row_bytes <= 128 ? 0 : row_bytes <= 256 ? 1 : row_bytes <= 512 ? 2 : 3;
    return &prefetch->reading[kvb_reading_at(spread, size, n_rows <= 2 ? n_rows - 1 : n_rows <= 4 ? 2 : 3)];
}

/* ---- rows used where they lie ------------------------------------------------------------------------------------ */

/* A loop at some line of a row prefetches the same line of the row `bytes` further on. The rest: as in kvb_reading. */
typedef struct kvb_row_ahead {
    size_t bytes; /* with `again` the distance of a multiple of 8 cells */
    bool near;
    bool again; /* prefetch lines between here and there again, at eighths of the distance */
    bool by_cells, sums_by_cells;
    uint32_t page_row; /* with `pages` the bytes of a row; 0: no page is woken */
} kvb_row_ahead;

enum { KVB_PAGE_BYTES = 4096, KVB_PAGE_LINES = 4 };

/* If a page begins in these bytes, the address of the page behind it, else 0. */
static inline uintptr_t kvb_page_behind(uintptr_t at, size_t bytes)
{
    const uintptr_t to_page = -at % KVB_PAGE_BYTES;
    return to_page < bytes ? at + to_page + KVB_PAGE_BYTES : 0;
}

/* Prefetches the first lines of that page, if there is one (kvb_reading's `pages`). */
static inline void kvb_page_wake(uintptr_t at, size_t bytes)
{
    const uintptr_t page = kvb_page_behind(at, bytes);
    for (uintptr_t i = 0; page && i < KVB_PAGE_LINES; i++)
        __builtin_prefetch((const void *)(page + i * 64), 0, 3);
}

#endif
