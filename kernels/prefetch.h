/* SPDX-License-Identifier: Apache-2.0 */
/* How stored rows are read so that memory is kept busy: what was fastest, by the CPU's maker (NOTES.md). */
#ifndef KVB_PREFETCH_H
#define KVB_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

/* Rows are asked for into the first-level cache if they have few enough bytes (wider ones would not fit), for few query rows:
 * on every CPU those of so many, for so many. */
#define KVB_NEAR_BYTES 256u
#define KVB_NEAR_ROWS  4u
/* Lines that are asked for again are so four times, or once where more products than these are made of a line. */
#define KVB_AGAIN_WORK 128u

/* `steadily` is of any number of query rows, the rest of those that are few enough not to be packed. */
typedef struct kvb_prefetch {
    uint32_t places;     /* of a sequence that are read by turns, a run of neighbouring cells at each: a power of two */
    uint32_t near_bytes; /* rows of up to so many, KVB_NEAR_BYTES at least, are asked for into the first-level cache, */
    uint32_t near_rows;  /* for up to so many query rows, KVB_NEAR_ROWS at least, */
    uint32_t near_cells; /* in turns of so many cells: 32 or 64 */
    bool again;          /* lines are asked for more than once: what is asked for too fast is dropped */
    bool by_cells;       /* one or two query rows meet a cell's channels before the next cell's */
    bool steadily;       /* products of integers ask for the next rows all along, not half by half */
} kvb_prefetch;

extern const kvb_prefetch kvb_prefetch_intel, kvb_prefetch_amd;

/* That of this CPU, or of kvb_prefetch_set(). */
const kvb_prefetch *kvb_prefetch_here(void);

/* NULL: of this CPU, as at first. Not while a kernel runs. */
void kvb_prefetch_set(const kvb_prefetch *prefetch);

#endif
