/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of sequences, free cells between them, and the runs that queries see. */
#include "harness/size/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/size/room.h"
#include "workloads/array.h"

int kvb_size_piece_put(kvb_size_pieces *p, uint64_t pos, uint64_t cell, uint64_t n)
{
    int error = kvb_array_reserve(&p->at, &p->room, p->n + 1, sizeof *p->at);
    if (!error)
        p->at[p->n++] = (kvb_size_piece){pos, cell, n};
    return error;
}

int kvb_size_piece_add(kvb_size_pieces *p, uint64_t pos, uint64_t cell, uint64_t n)
{
    kvb_size_piece *last = p->n ? &p->at[p->n - 1] : NULL;
    if (!last || last->pos + last->n != pos || last->cell + last->n != cell)
        return kvb_size_piece_put(p, pos, cell, n);
    last->n += n;
    return 0;
}

int kvb_size_list_copy(kvb_size_pieces *to, const kvb_size_pieces *from)
{
    int error = 0;
    *to = (kvb_size_pieces){0};
    for (size_t i = 0; i < from->n && !error; i++)
        error = kvb_size_piece_add(to, from->at[i].pos, from->at[i].cell, from->at[i].n);
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
            error = kvb_size_piece_put(&kept, all.pos, all.cell, all.n);
            continue;
        }
        if (low > all.pos)
            error = kvb_size_piece_put(&kept, all.pos, all.cell, low - all.pos);
        if (!error && high < end && high >= low)
            error = kvb_size_piece_put(&kept, high, all.cell + (high - all.pos), end - high);
    }
    if (error) {
        free(kept.at);
        return error;
    }
    free(p->at);
    *p = kept;
    return 0;
}

/* The next cell from this one on that is used, or is free; `end` where there is none below it. */
static uint64_t next_cell(const kvb_size_cells *c, uint64_t from, uint64_t end, bool used)
{
    while (from < end) {
        uint64_t word = from / 64 < c->room ? c->used[from / 64] : 0, wanted = (used ? word : ~word) >> from % 64;
        if (wanted)
            from += (uint64_t)__builtin_ctzll(wanted);
        if (wanted || from / 64 >= c->room)
            return wanted && from < end ? from : end;
        from = (from / 64 + 1) * 64;
    }
    return end;
}

/* Cells cell .. cell+n-1 are used. */
static int cells_use(kvb_size_cells *c, uint64_t cell, uint64_t n)
{
    const size_t had = c->room;
    int error = n ? kvb_array_reserve(&c->used, &c->room, (cell + n) / 64 + 1, sizeof *c->used) : 0;
    if (!error && c->room > had)
        memset(c->used + had, 0, (c->room - had) * sizeof *c->used);
    for (uint64_t end = cell + n; cell < end && !error; cell++)
        c->used[cell / 64] |= UINT64_C(1) << cell % 64;
    return error;
}

int kvb_size_cells_mark(kvb_size_cells *c, const kvb_size_pieces *held, uint64_t from, uint64_t to)
{
    int error = 0;
    for (size_t i = 0; i < held->n && !error; i++) {
        const kvb_size_piece *p = &held->at[i];
        for (uint64_t pos = p->pos; pos < p->pos + p->n && !error; pos++)
            if (pos < from || pos >= to)
                error = cells_use(c, p->cell + (pos - p->pos), 1);
    }
    return error;
}

int kvb_size_cells_take(kvb_size_cells *c, uint64_t n, uint64_t bound, kvb_size_pieces *taken)
{
    bool known = c->run_n && n >= c->run_n && c->run_from > c->first_free;
    uint64_t left = n, run = known ? c->run_from : c->first_free, end = run;
    int error = 0;
    taken->n = 0;
    while (run < bound && (end = next_cell(c, run, run + n < bound ? run + n : bound, true)) - run < n)
        run = next_cell(c, end, bound, false);
    c->run_n = n;
    c->run_from = run;
    if (run == bound)
        run = next_cell(c, c->first_free, bound, false);
    for (; left && !error; run = next_cell(c, end, bound, false)) {
        if (run == bound)
            return -ENOSPC;
        end = next_cell(c, run, run + left < bound ? run + left : bound, true);
        error = kvb_size_piece_add(taken, n - left, run, end - run);
        left -= end - run;
    }
    for (size_t i = 0; i < taken->n && !error; i++)
        error = cells_use(c, taken->at[i].cell, taken->at[i].n);
    c->first_free = next_cell(c, c->first_free, bound, false);
    return error;
}

bool kvb_size_cells_full(const kvb_size_cells *c, uint64_t bound)
{
    return next_cell(c, c->first_free, bound, false) == bound;
}

void kvb_size_cells_give(kvb_size_cells *c, const kvb_size_pieces *held, uint64_t from, uint64_t to)
{
    for (size_t i = 0; i < held->n; i++) {
        const kvb_size_piece *p = &held->at[i];
        uint64_t low = from > p->pos ? from : p->pos, high = to < p->pos + p->n ? to : p->pos + p->n;
        for (uint64_t pos = low; pos < high; pos++) {
            uint64_t cell = p->cell + (pos - p->pos);
            c->used[cell / 64] &= ~(UINT64_C(1) << cell % 64);
            c->first_free = c->first_free < cell ? c->first_free : cell;
            uint64_t joined = cell < c->run_n ? 0 : cell - c->run_n; /* with free cells below it */
            c->run_from = c->run_from < joined ? c->run_from : joined;
        }
    }
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

int64_t kvb_size_queries(uint64_t *runs_room, const kvb_size_pieces *pieces, uint64_t n_spans, const kvb_group *g,
                         uint64_t pos, uint64_t n, uint64_t before)
{
    bool limited = g->window || g->chunk, last_grows = pieces->n && pieces->at[pieces->n - 1].pos <= pos;
    /* each sees all pieces but for the end of the last one, which may meet another at last */
    uint64_t runs = !limited && last_grows ? kvb_size_runs(pieces, g, pos + n - 1) : 0;
    if (runs && runs == kvb_size_runs(pieces, g, pos)) {
        need(runs_room, before + n_spans + 1);
        climb(runs_room, before + n_spans + 1, runs, n - 1);
        return (int64_t)(before + n * runs);
    }
    for (uint64_t i = 0; i < n; i++) {
        need(runs_room, before + n_spans + 1);
        before += kvb_size_runs(pieces, g, pos + i);
    }
    return (int64_t)before;
}

uint64_t kvb_size_kept_from(const kvb_cache_options *o, const kvb_group *g, uint64_t len)
{
    const uint64_t back = len > o->rollback ? len - o->rollback : 0;
    const uint64_t first = g->chunk ? back / g->chunk * g->chunk : back >= g->window ? back - g->window + 1 : 0;
    return first > g->sinks ? first : g->sinks;
}
