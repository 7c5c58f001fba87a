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
    uint64_t live = 0;
    int error = 0;
    *n = 0;
    for (size_t i = 0; i < held->n && t->gaps; i++)
        for (uint64_t j = 0; j < held->at[i].n; j++)
            *n += moves(s, held->at[i].pos + j) && kvb_size_cell_holders(p, t, held->at[i].cell + j) > 1;
    if (*n)
        error = kvb_size_cells_held(p, t, &used);
    for (size_t i = 0; i < used.room && !error; i++)
        live += (uint64_t)__builtin_popcountll(used.used[i]);
    p->refused = *n > kvb_size_pool_cells(p, g) - live;
    if (!p->refused)
        need(&t->copies, *n);
    if (*n && !p->refused && !error)
        error = kvb_size_cells_take(&used, *n, kvb_size_pool_cells(p, g), &p->scratch);
    free(used.used);
    if (error || !*n || p->refused)
        return error;
    const kvb_size_piece *last = &p->scratch.at[p->scratch.n - 1];
    need(&t->refs, last->cell + last->n);
    return 0;
}

/* The list of what the sequence will hold; *most: the largest cell that is turned, copied or copied to, + 1. */
static int shifted_make(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s,
                        kvb_size_pieces *made, uint64_t *turned, uint64_t *most, uint64_t *copied)
{
    const kvb_size_pieces *held = &t->seq[s->first].held;
    const bool slab = is(p, &kvb_cache_slab) && !kvb_group_scans(g);
    uint64_t copies = 0, at = 0, left = 0;
    int error = slab ? 0 : copies_pick(p, t, g, s, &copies);
    for (size_t i = 0; i < held->n && !p->refused; i++)
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
                raise(copied, cell + 1);
            }
            error = kvb_size_piece_add(made, kvb_size_moved(s, pos), cell, 1);
        }
    if (p->refused)
        return error;
    climb(&t->moves, 0, 1, slab ? *turned : copies);
    t->gaps |= copies > 0 || kvb_size_drops(p, g);
    return error;
}

/* Tokens of a list at positions from .. to-1. */
static uint64_t tokens_within(const kvb_size_pieces *list, uint64_t from, uint64_t to)
{
    uint64_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        const uint64_t begin = list->at[i].pos, end = begin + list->at[i].n;
        const uint64_t low = from > begin ? from : begin, high = to < end ? to : end;
        n += low < high ? high - low : 0;
    }
    return n;
}

/* Of a sequence that has moved up by one: would its next query see a row that the group has let go of? */
static bool comes_into_sight(const kvb_size_prediction *p, const kvb_size_group_tables *t, const kvb_group *g,
                             uint32_t q)
{
    const kvb_size_pieces *tokens = &p->seq[q].ordinals, *held = &t->seq[q].held;
    const uint64_t pos = p->seq[q].len + (p->seq[q].len > 0);
    const uint64_t first = g->chunk ? pos / g->chunk * g->chunk : pos >= g->window ? pos + 1 - g->window : 0;
    const uint64_t was = first ? first - 1 : 0, end = pos ? pos - 1 : 0, sinks = g->sinks ? g->sinks - 1 : 0;
    return tokens_within(tokens, was, end) != tokens_within(held, was, end) ||
           tokens_within(tokens, 0, sinks) != tokens_within(held, 0, sinks);
}

/* What a group's store does before any of them has its way; `made`: what the sequence is to hold. */
static int group_prepare(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s,
                         kvb_size_pieces *made, uint64_t *turned)
{
    const bool scans = kvb_group_scans(g), slab = is(p, &kvb_cache_slab) && !scans;
    uint64_t most = 0, copied = 0; /* the largest cell of any, of those that copies go to, + 1 */
    int error = shifted_make(p, t, g, s, made, turned, &most, &copied);
    if (error || p->refused)
        return error;
    if (!slab)
        kvb_size_list_make(&t->shifted, made, &t->spans);
    if (!scans)
        climb(&t->turns, 0, 1, *turned);
    p->refused = !scans && kvb_size_drops(p, g) && comes_into_sight(p, t, g, s->first);
    if (p->refused)
        return 0;
    kvb_size_cells_ask(t, copied);
    if (*turned && !scans)
        need(&t->pending, most);
    if (*turned && !scans && g->rope.dims)
        need(&t->turned, (uint64_t)TURNED_AT_ONCE * g->kv_heads * g->k_dim + g->rope.dims);
    return 0;
}

static int group_adopt(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s,
                       kvb_size_pieces *made, uint64_t turned)
{
    const bool scans = kvb_group_scans(g);
    const kvb_size_pieces was = t->seq[s->first].held;
    t->seq[s->first].held = *made;
    *made = was;
    if (scans || !is(p, &kvb_cache_slab))
        swap(&t->shifted, &t->seq[s->first].spans);
    t->turning |= turned && !scans && g->rope.dims;
    return scans ? kvb_size_states_count(p, t) : 0;
}

int kvb_size_shift_take(kvb_size_prediction *p, const kvb_size_step *s)
{
    const kvb_model *m = &p->subject->model;
    kvb_size_pieces made[KVB_MODEL_GROUPS] = {{0}};
    uint64_t turned[KVB_MODEL_GROUPS] = {0};
    int error = 0;
    for (uint32_t g = 0; g < m->n_groups && !error && !p->refused; g++)
        error = group_prepare(p, &p->group[g], &m->groups[g], s, &made[g], &turned[g]);
    for (uint32_t g = 0; g < m->n_groups; g++) {
        if (!error && !p->refused)
            error = group_adopt(p, &p->group[g], &m->groups[g], s, &made[g], turned[g]);
        free(made[g].at);
    }
    return error;
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
