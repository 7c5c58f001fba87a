/* SPDX-License-Identifier: Apache-2.0 */
/* What shifts and defrags allocate: how far cells' tokens have moved, where rows are turned, lists of cells that take others' place. */
#include <errno.h>
#include <stdlib.h>

#include "harness/size/prediction.h"
#include "harness/size/room.h"

enum { TURNED_AT_ONCE = 32 }; /* cells */

/* Room of a list of spans that is made token by token: for one more than there are, each time. */
static void list_make(uint64_t *room, const kvb_size_pieces *made, uint64_t *all)
{
    const uint64_t most = made->n + (made->n && made->at[made->n - 1].n > 1);
    for (uint64_t n = 1; n <= most; n++)
        need_of(room, n, all);
}

static void swap(uint64_t *a, uint64_t *b)
{
    const uint64_t was = *a;
    *a = *b;
    *b = was;
}

uint64_t kvb_size_moves_bytes(const kvb_size_group_tables *t, uint32_t n_ids)
{
    return (t->copies + t->scratch) * CELL + t->turns * TURN + t->pending * DELTA + t->turned * sizeof(float) +
           t->compacts * n_ids * SPANS;
}

int kvb_size_shift_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t seq)
{
    const bool scans = kvb_group_scans(g);
    const bool rows_move = p->subject->cache == &kvb_cache_slab && !scans; /* by a cell, as the token does */
    kvb_size_pieces *held = &t->seq[seq].held;
    uint64_t tokens = 0, cells = 0;
    for (size_t i = 0; i < held->n; i++) {
        held->at[i].pos++;
        held->at[i].cell += rows_move;
        tokens += held->at[i].n;
        cells = cells > held->at[i].cell + held->at[i].n ? cells : held->at[i].cell + held->at[i].n;
    }
    climb(&t->turns, 0, 1, scans ? 0 : tokens);
    if (rows_move) {
        climb(&t->moves, 0, 1, tokens);
    } else {
        need(&t->copies, 0); /* no token is shared */
        list_make(&t->shifted, held, &t->spans);
        swap(&t->shifted, &t->seq[seq].spans);
    }
    if (tokens && !scans)
        need(&t->pending, cells);
    if (tokens && g->rope.dims)
        need(&t->turned, (uint64_t)TURNED_AT_ONCE * g->kv_heads * g->k_dim + g->rope.dims);
    t->turning |= tokens && g->rope.dims;
    return 0;
}

/* Rows that are copied so that cell i comes to hold what lay in from[i] [n]: those that do not lie there, and one more for each
 * circle. from is used up. */
static uint64_t copies_count(uint32_t *from, uint64_t n)
{
    uint64_t copies = 0;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t at = i, first = 1; from[at] != at; first = 0) {
            const uint64_t next = from[at];
            copies += 1 + first;
            from[at] = (uint32_t)at;
            at = next;
        }
    return copies;
}

int kvb_size_defrag_take(kvb_size_prediction *p, kvb_size_group_tables *t)
{
    uint64_t alive = 0, live = 0;
    uint32_t *from = p->subject->cache == &kvb_cache_seq ? malloc((p->tokens + 1) * sizeof *from) : NULL;
    int error = 0;
    if (!from)
        return p->subject->cache == &kvb_cache_seq ? -ENOMEM : 0;
    for (uint32_t q = 0; q < p->n_ids && !error; q++) {
        kvb_size_pieces *held = &t->seq[q].held, made = {0};
        for (size_t i = 0; i < held->n && !error; i++) {
            for (uint64_t j = 0; j < held->at[i].n; j++)
                from[live + j] = (uint32_t)(held->at[i].cell + j);
            error = kvb_size_piece_add(&made, held->at[i].pos, live, held->at[i].n);
            live += held->at[i].n;
        }
        if (!held->n)
            continue;
        alive++;
        list_make(&t->seq[q].compacted, &made, &t->spans);
        swap(&t->seq[q].compacted, &t->seq[q].spans);
        free(held->at);
        *held = made;
    }
    const uint64_t copies = copies_count(from, live);
    t->compacts = true;
    need(&t->scratch, alive + 2 * live); /* none was ever free: so many cells are in use as the highest one says */
    need(&t->refs, live);
    climb(&t->moves, 0, 1, copies);
    if (copies) /* by way of a cell behind them all */
        t->most = t->most > live + 1 ? t->most : live + 1;
    if (copies && t->turning)
        need(&t->pending, live + 1);
    free(from);
    return error;
}
