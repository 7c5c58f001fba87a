/* SPDX-License-Identifier: Apache-2.0 */
/* What shifts, divisions and defrags allocate: how far cells' tokens have moved, where rows are turned, copies of cells that others
 * hold, too, and lists of cells that take others' place. */
#include <errno.h>
#include <stdlib.h>

#include "harness/size/prediction.h"

enum { TURNED_AT_ONCE = 32 }; /* cells */

static void swap(uint64_t *a, uint64_t *b)
{
    const uint64_t was = *a;
    *a = *b;
    *b = was;
}

static void raise(uint64_t *most, uint64_t n)
{
    *most = *most > n ? *most : n;
}

uint64_t kvb_size_moves_bytes(const kvb_size_group_tables *t, uint32_t n_ids)
{
    return (t->copies + t->scratch) * CELL + t->turns * TURN + t->pending * DELTA + t->turned * sizeof(float) +
           t->compacts * n_ids * SPANS;
}

uint64_t kvb_size_moved(const kvb_size_step *s, uint64_t pos)
{
    return s->call == KVB_SIZE_SHIFT ? pos + 1 : pos < KVB_SIZE_DIVIDED ? pos / KVB_SIZE_DIVISOR : pos;
}

static bool moves(const kvb_size_step *s, uint64_t pos)
{
    return s->call == KVB_SIZE_SHIFT || pos < KVB_SIZE_DIVIDED;
}

/* Cells of the sequence that others hold, too, and that a call moves: *n; where copies of them go, into p->scratch. */
static int copies_pick(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s,
                       uint64_t *n)
{
    const kvb_size_pieces *held = &t->seq[s->first].held;
    kvb_size_cells used = {0};
    int error = 0;
    *n = 0;
    for (size_t i = 0; i < held->n && t->gaps; i++)
        for (uint64_t j = 0; j < held->at[i].n; j++)
            *n += moves(s, held->at[i].pos + j) && kvb_size_cell_holders(p, t, held->at[i].cell + j) > 1;
    need(&t->copies, *n);
    if (!*n)
        return 0;
    error = kvb_size_cells_held(p, t, &used);
    if (!error)
        error = kvb_size_cells_take(&used, *n, kvb_size_pool_cells(p, g), &p->scratch);
    free(used.used);
    if (error)
        return error;
    const kvb_size_piece *last = &p->scratch.at[p->scratch.n - 1];
    need(&t->refs, last->cell + last->n);
    kvb_size_cells_ask(t, last->cell + last->n);
    return 0;
}

/* The list of what the sequence will hold; *most: the largest cell that is turned, copied or copied to, + 1. */
static int shifted_make(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s,
                        kvb_size_pieces *made, uint64_t *turned, uint64_t *most)
{
    const kvb_size_pieces *held = &t->seq[s->first].held;
    const bool slab = is(p, &kvb_cache_slab) && !kvb_group_scans(g);
    uint64_t copies = 0, at = 0, left = 0;
    int error = slab ? 0 : copies_pick(p, t, g, s, &copies);
    for (size_t i = 0; i < held->n; i++)
        for (uint64_t j = 0; j < held->at[i].n && !error; j++) {
            const uint64_t pos = held->at[i].pos + j;
            uint64_t cell = held->at[i].cell + j + slab;
            if (moves(s, pos)) {
                raise(most, cell + 1);
                ++*turned;
            }
            if (copies && moves(s, pos) && kvb_size_cell_holders(p, t, cell) > 1) {
                left = left ? left : p->scratch.at[at].n;
                cell = p->scratch.at[at].cell + p->scratch.at[at].n - left;
                at += --left == 0;
                raise(most, cell + 1);
            }
            error = kvb_size_piece_add(made, kvb_size_moved(s, pos), cell, 1);
        }
    climb(&t->moves, 0, 1, slab ? *turned : copies);
    t->gaps |= copies > 0 || kvb_size_drops(p, g);
    return error;
}

int kvb_size_shift_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const bool scans = kvb_group_scans(g), slab = is(p, &kvb_cache_slab) && !scans;
    kvb_size_pieces *held = &t->seq[s->first].held, made = {0};
    uint64_t turned = 0, most = 0;
    int error = shifted_make(p, t, g, s, &made, &turned, &most);
    free(held->at);
    *held = made;
    if (!slab) {
        kvb_size_list_make(&t->shifted, held, &t->spans);
        swap(&t->shifted, &t->seq[s->first].spans);
    }
    if (error || scans)
        return error ? error : kvb_size_states_count(p, t);
    climb(&t->turns, 0, 1, turned);
    if (turned)
        need(&t->pending, most);
    if (turned && g->rope.dims)
        need(&t->turned, (uint64_t)TURNED_AT_ONCE * g->kv_heads * g->k_dim + g->rope.dims);
    t->turning |= turned && g->rope.dims;
    return 0;
}

/* Cell i is to hold what lies in from[i]; to[] says the same the other way round, or NOWHERE. */
typedef struct order {
    uint64_t *from, *to, high_water, live;
    uint64_t copies, most; /* rows; the largest cell that one comes from or goes to, + 1 */
} order;

#define NOWHERE UINT64_MAX

static void chain_move(order *o, uint64_t at)
{
    for (uint64_t source; at < o->live && o->from[at] != at; at = source) {
        source = o->from[at];
        o->from[at] = at;
        o->copies++;
        raise(&o->most, (at > source ? at : source) + 1);
    }
}

/* Into free cells first, then in circles, by way of the one behind them all. */
static void rows_move(order *o)
{
    for (uint64_t at = 0; at < o->live; at++)
        if (o->to[at] == NOWHERE)
            chain_move(o, at);
    for (uint64_t at = 0; at < o->live; at++)
        if (o->from[at] != at) {
            o->copies++;
            raise(&o->most, o->live + 1);
            o->from[o->to[at]] = o->live;
            chain_move(o, at);
        }
}

/* The cells of a sequence, in order of positions: those that no sequence before it has come next. */
static int sequence_place(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t q, order *o)
{
    const uint64_t kept = kvb_size_drops(p, g) ? kvb_size_kept_from(&p->subject->options, g, p->seq[q].len) : 0;
    kvb_size_pieces *held = &t->seq[q].held, made = {0};
    int error = kvb_size_pieces_drop(held, g->sinks, kept);
    for (size_t i = 0; i < held->n; i++)
        for (uint64_t j = 0; j < held->at[i].n && !error; j++) {
            const uint64_t cell = held->at[i].cell + j;
            if (o->to[cell] == NOWHERE) {
                o->from[o->live] = cell;
                o->to[cell] = o->live++;
            }
            error = kvb_size_piece_add(&made, held->at[i].pos + j, o->to[cell], 1);
        }
    kvb_size_list_make(&t->seq[q].compacted, &made, &t->spans);
    swap(&t->seq[q].compacted, &t->seq[q].spans);
    free(held->at);
    *held = made;
    return error;
}

int kvb_size_defrag_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g)
{
    order o = {0};
    uint64_t alive = 0;
    int error = 0;
    if (!is(p, &kvb_cache_seq) && !is(p, &kvb_cache_window))
        return 0;
    for (uint32_t q = 0; q < p->n_ids; q++)
        for (size_t i = 0; i < t->seq[q].held.n; i++)
            raise(&o.high_water, t->seq[q].held.at[i].cell + t->seq[q].held.at[i].n);
    o.from = calloc(o.high_water + 1, sizeof *o.from);
    o.to = malloc((o.high_water + 1) * sizeof *o.to);
    error = o.from && o.to ? 0 : -ENOMEM;
    for (uint64_t i = 0; i <= o.high_water && !error; i++)
        o.to[i] = NOWHERE;
    for (uint32_t q = 0; q < p->n_ids && !error; q++) {
        alive += p->seq[q].len > 0;
        error = p->seq[q].len ? sequence_place(p, t, g, q, &o) : 0;
    }
    if (!error)
        rows_move(&o);
    t->compacts = true;
    need(&t->scratch, alive + 2 * o.high_water);
    need(&t->refs, o.live);
    climb(&t->moves, 0, 1, o.copies);
    if (o.copies)
        kvb_size_cells_ask(t, o.most);
    if (o.copies && t->turning)
        need(&t->pending, o.most);
    t->gaps = true;
    free(o.from);
    free(o.to);
    return error;
}
