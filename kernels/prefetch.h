/* SPDX-License-Identifier: Apache-2.0 */
/* How stored rows are read so that memory is kept busy: what was fastest, by the CPU's maker (NOTES.md). */
#ifndef KVB_PREFETCH_H
#define KVB_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

/* Rows are asked for into the first-level cache if they have at most so many bytes (wider ones would not fit), for few query
 * rows: on every CPU for so many. */
#define KVB_NEAR_BYTES 256u
#define KVB_NEAR_ROWS  4u

/* `steadily` is of any number of query rows, the rest of those that are few enough not to be packed. */
typedef struct kvb_prefetch {
    uint32_t places;     /* of a sequence that are read by turns, a run of neighbouring cells at each: a power of two */
    uint32_t near_rows;  /* up to so many, KVB_NEAR_ROWS at least, rows are asked for into the first-level cache, */
    uint32_t near_cells; /* in turns of so many cells: 32 or 64 */
    bool by_cells;       /* one or two query rows meet a cell's channels before the next cell's */
    bool steadily;       /* products of integers ask for the next rows all along, not half by half */
} kvb_prefetch;

extern const kvb_prefetch kvb_prefetch_intel, kvb_prefetch_amd;

/* That of this CPU, or of kvb_prefetch_set(). */
const kvb_prefetch *kvb_prefetch_here(void);

/* NULL: of this CPU, as at first. Not while a kernel runs. */
void kvb_prefetch_set(const kvb_prefetch *prefetch);

#endif
