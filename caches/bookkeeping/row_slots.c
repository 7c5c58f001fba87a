/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a slab: taking, filling, cutting. */
#include "caches/bookkeeping/row_slots.h"

#include <assert.h>
#include <string.h>

void kvb_row_slots_open(kvb_row_slots *slots, uint32_t n_rows, uint32_t row_cells)
{
    memset(slots, 0, sizeof *slots);
    slots->n_rows = n_rows;
    slots->row_cells = row_cells;
}

uint32_t kvb_row_slots_add(kvb_row_slots *slots, uint32_t seq)
{
    if (!(slots->lens.alive & kvb_seq_bit(seq))) {
        slots->row[seq] = (uint32_t)__builtin_ctzll(~slots->taken);
        assert(slots->row[seq] < slots->n_rows);
        slots->taken |= (uint64_t)1 << slots->row[seq];
    }
    uint32_t pos = slots->lens.next[seq];
    assert(pos < slots->row_cells);
    kvb_seq_lens_add(&slots->lens, kvb_seq_bit(seq), pos);
    slots->live++;
    return kvb_row_slots_base(slots, seq) + pos;
}

void kvb_row_slots_cut(kvb_row_slots *slots, uint32_t seq, uint32_t len)
{
    if (len >= slots->lens.next[seq])
        return;
    slots->live -= slots->lens.next[seq] - len;
    slots->lens.next[seq] = slots->lens.count[seq] = len;
    if (len == 0) {
        slots->lens.alive &= ~kvb_seq_bit(seq);
        slots->taken &= ~((uint64_t)1 << slots->row[seq]);
    }
}

uint32_t kvb_row_slots_base(const kvb_row_slots *slots, uint32_t seq)
{
    assert(slots->lens.alive & kvb_seq_bit(seq) || slots->taken & (uint64_t)1 << slots->row[seq]);
    return slots->row[seq] * slots->row_cells;
}

uint32_t kvb_row_slots_high_water(const kvb_row_slots *slots)
{
    uint32_t high_water = 0;
    for (uint64_t left = slots->lens.alive; left; left &= left - 1) {
        uint32_t seq = kvb_seq_lowest(left);
        uint32_t end = kvb_row_slots_base(slots, seq) + slots->lens.next[seq];
        if (high_water < end)
            high_water = end;
    }
    return high_water;
}
