/* SPDX-License-Identifier: Apache-2.0 */
/* The cell table: who is where, first-fit allocation, and leaving. */
#include "caches/bookkeeping/cells.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "caches/bookkeeping/grow.h"

void kvb_cells_open(kvb_cells *cells, kvb_allocator *allocator, uint32_t capacity)
{
    memset(cells, 0, sizeof *cells);
    cells->allocator = allocator;
    cells->capacity = capacity;
}

void kvb_cells_close(kvb_cells *cells)
{
    kvb_free(cells->allocator, cells->pos, cells->pos_room * sizeof *cells->pos);
    kvb_free(cells->allocator, cells->seqs, cells->seqs_room * sizeof *cells->seqs);
    kvb_cells_open(cells, cells->allocator, cells->capacity);
}

static bool is_free(const kvb_cells *cells, uint32_t c)
{
    return c >= cells->high_water || !cells->seqs[c];
}

void kvb_cells_pick(const kvb_cells *cells, uint32_t n, uint32_t *picked)
{
    assert(n <= cells->capacity - cells->live);
    uint32_t start = cells->first_free, c = start;
    while (c < cells->high_water && c - start < n) {
        c++;
        if (!is_free(cells, c - 1))
            start = c;
    }
    /* A run that touches the high-water mark goes on up to capacity. */
    bool run = n <= cells->capacity - start;
    for (uint32_t i = 0, next = run ? start : cells->first_free; i < n; next++)
        if (is_free(cells, next))
            picked[i++] = next;
}

int kvb_cells_reserve(kvb_cells *cells, uint32_t n)
{
    void *p = kvb_grow(cells->allocator, cells->pos, &cells->pos_room, n, sizeof *cells->pos);
    if (!p)
        return -ENOMEM;
    cells->pos = p;
    size_t had = cells->seqs_room;
    p = kvb_grow(cells->allocator, cells->seqs, &cells->seqs_room, n, sizeof *cells->seqs);
    if (!p)
        return -ENOMEM;
    cells->seqs = p;
    memset(cells->seqs + had, 0, (cells->seqs_room - had) * sizeof *cells->seqs);
    return 0;
}

static void first_free_advance(kvb_cells *cells)
{
    while (cells->first_free < cells->high_water && cells->seqs[cells->first_free])
        cells->first_free++;
}

void kvb_cells_occupy(kvb_cells *cells, const uint32_t *picked, const uint32_t *seq_ids, const uint32_t *positions,
                      uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = picked[i];
        assert(is_free(cells, c) && c < cells->seqs_room && c < cells->pos_room);
        cells->pos[c] = positions[i];
        cells->seqs[c] = kvb_seq_bit(seq_ids ? seq_ids[i] : 0);
        kvb_seq_lens_add(&cells->lens, cells->seqs[c], positions[i]);
        if (cells->high_water <= c)
            cells->high_water = c + 1;
    }
    cells->live += n;
    first_free_advance(cells);
}

void kvb_cells_vacate(kvb_cells *cells, const kvb_cells *before, const uint32_t *picked, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        cells->seqs[picked[i]] = 0;
    *cells = *before;
}

/* After members came or left: everything that follows from the table. */
static void recount(kvb_cells *cells)
{
    uint32_t end = cells->high_water;
    memset(&cells->lens, 0, sizeof cells->lens);
    cells->live = cells->high_water = cells->first_free = 0;
    for (uint32_t c = 0; c < end; c++) {
        if (!cells->seqs[c])
            continue;
        kvb_seq_lens_add(&cells->lens, cells->seqs[c], cells->pos[c]);
        cells->live++;
        cells->high_water = c + 1;
    }
    first_free_advance(cells);
}

void kvb_cells_share(kvb_cells *cells, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    for (uint32_t c = 0; c < cells->high_water; c++)
        if (cells->seqs[c] & kvb_seq_bit(src) && cells->pos[c] >= p0 && cells->pos[c] < p1)
            cells->seqs[c] |= kvb_seq_bit(dst);
    recount(cells);
}

void kvb_cells_leave(kvb_cells *cells, uint32_t seq, uint32_t p0, uint32_t p1)
{
    for (uint32_t c = 0; c < cells->high_water; c++)
        if (cells->seqs[c] && cells->pos[c] >= p0 && cells->pos[c] < p1)
            cells->seqs[c] &= ~kvb_seq_bit(seq);
    recount(cells);
}

void kvb_cells_keep(kvb_cells *cells, uint32_t seq)
{
    for (uint32_t c = 0; c < cells->high_water; c++)
        cells->seqs[c] &= kvb_seq_bit(seq);
    recount(cells);
}

void kvb_cells_clear(kvb_cells *cells)
{
    if (cells->high_water > 0)
        memset(cells->seqs, 0, cells->high_water * sizeof *cells->seqs);
    recount(cells);
}

bool kvb_cells_in_order(const kvb_cells *cells, uint32_t seq)
{
    if (cells->live != cells->high_water || cells->lens.count[seq] != cells->live)
        return false;
    for (uint32_t c = 1; c < cells->high_water; c++)
        if (cells->pos[c] <= cells->pos[c - 1])
            return false;
    return true;
}
