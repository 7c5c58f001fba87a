/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a slab: each sequence alive owns one row of row_cells cells, and its position p lies in cell
 * row * row_cells + p. A plain value: copy it to try something, assign it back to make it so.
 */
#ifndef KVB_ROW_SLOTS_H
#define KVB_ROW_SLOTS_H

#include "caches/bookkeeping/seq_lens.h"

typedef struct kvb_row_slots {
    uint32_t n_rows;                /* 1 .. 64 */
    uint32_t row_cells;             /* cells of a row */
    uint64_t taken;                 /* set of rows in use */
    uint32_t live;                  /* cells in use */
    uint32_t row[KVB_SEQ_LENS_MAX]; /* of sequences alive */
    kvb_seq_lens lens;              /* positions 0 .. next-1 are all there */
} kvb_row_slots;

void kvb_row_slots_open(kvb_row_slots *slots, uint32_t n_rows, uint32_t row_cells);
/* Add the next token of a sequence and return its cell; the first one takes the lowest free row.
 * Rows and room were checked. */
uint32_t kvb_row_slots_add(kvb_row_slots *slots, uint32_t seq);
/* Cut a sequence down to positions 0 .. len-1; its row is free again when nothing is left. */
void kvb_row_slots_cut(kvb_row_slots *slots, uint32_t seq, uint32_t len);
/* First cell of the row of a sequence alive. */
uint32_t kvb_row_slots_base(const kvb_row_slots *slots, uint32_t seq);
/* Largest cell in use + 1. */
uint32_t kvb_row_slots_high_water(const kvb_row_slots *slots);

#endif
