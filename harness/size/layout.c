/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of sequences, free cells between them, and the runs that queries see. */
#include "harness/size/layout.h"

#include <errno.h>
#include <stdlib.h>

#include "workloads/array.h"

int kvb_size_piece_add(kvb_size_pieces *p, uint64_t pos, uint64_t cell, uint64_t n)
{
    kvb_size_piece *last = p->n ? &p->at[p->n - 1] : NULL;
    if (last && last->pos + last->n == pos && last->cell + last->n == cell) {
        last->n += n;
        return 0;
    }
    int error = kvb_array_reserve(&p->at, &p->room, p->n + 1, sizeof *p->at);
    if (!error)
        p->at[p->n++] = (kvb_size_piece){pos, cell, n};
    return error;
}

int kvb_size_pieces_drop(kvb_size_pieces *p, uint64_t from, uint64_t to)
{
    kvb_size_pieces kept = {0};
    int error = 0;
    for (size_t i = 0; i < p->n && !error; i++) {
        kvb_size_piece all = p->at[i];
        uint64_t end = all.pos + all.n, low = from < end ? from : end, high = to > all.pos ? to : all.pos;
        if (from >= to) {
            error = kvb_size_piece_add(&kept, all.pos, all.cell, all.n);
            continue;
        }
        if (low > all.pos)
            error = kvb_size_piece_add(&kept, all.pos, all.cell, low - all.pos);
        if (!error && high < end && high >= low)
            error = kvb_size_piece_add(&kept, high, all.cell + (high - all.pos), end - high);
    }
    if (error) {
        free(kept.at);
        return error;
    }
    free(p->at);
    *p = kept;
    return 0;
}

static int by_cell(const void *a, const void *b)
{
    const kvb_size_piece *x = a, *y = b;
    return (x->cell > y->cell) - (x->cell < y->cell);
}

int kvb_size_cells_take(const kvb_size_pieces *held, uint64_t n, uint64_t bound, kvb_size_pieces *taken)
{
    kvb_size_pieces all = {0};
    uint64_t free_from = 0, left = n;
    int error = 0;
    taken->n = 0;
    for (size_t s = 0; s < KVB_SIZE_SEQUENCES; s++)
        for (size_t i = 0; i < held[s].n && !error; i++) /* neighbours in no order: positions keep them apart */
            error = kvb_size_piece_add(&all, 2 * all.n + 1, held[s].at[i].cell, held[s].at[i].n);
    if (!error && all.n)
        qsort(all.at, all.n, sizeof *all.at, by_cell);
    for (int together = 1; together >= 0 && !error && left; together--) {
        free_from = 0;
        for (size_t i = 0; i <= all.n && !error && left; i++) {
            uint64_t end = i < all.n ? all.at[i].cell : bound, gap = end > free_from ? end - free_from : 0;
            uint64_t some = together ? (gap >= left ? left : 0) : gap < left ? gap : left;
            if (some)
                error = kvb_size_piece_add(taken, n - left, free_from, some);
            left -= some;
            free_from = i < all.n ? all.at[i].cell + all.at[i].n : free_from;
        }
    }
    free(all.at);
    return error;
}

uint64_t kvb_size_runs(const kvb_size_pieces *p, const kvb_group *g, uint64_t pos)
{
    bool limited = g->window || g->chunk;
    uint64_t first = g->window && pos >= g->window ? pos - g->window + 1 : g->chunk ? pos - pos % g->chunk : 0;
    uint64_t runs = 0, end = UINT64_MAX;
    if (!limited) { /* runs ascend by cell: a piece that begins where another ends makes no run of its own */
        for (size_t i = 0; i < p->n && p->at[i].pos <= pos; i++) {
            bool joins = false;
            for (size_t j = 0; j < p->n && p->at[j].pos <= pos && !joins; j++)
                joins = p->at[j].cell + p->at[j].n == p->at[i].cell && p->at[j].pos + p->at[j].n <= pos + 1;
            runs += !joins;
        }
        return runs;
    }
    for (size_t i = 0; i < p->n && p->at[i].pos <= pos; i++)
        for (int part = 0; part < 2; part++) { /* of the sinks, of what follows first */
            uint64_t from = part ? first : 0, to = part ? pos + 1 : g->sinks < first ? g->sinks : first;
            uint64_t low = from > p->at[i].pos ? from : p->at[i].pos, all = p->at[i].pos + p->at[i].n;
            uint64_t high = to < all ? to : all, cell = p->at[i].cell + (low - p->at[i].pos);
            if (low >= high)
                continue;
            runs += cell != end;
            end = cell + (high - low);
        }
    return runs;
}
