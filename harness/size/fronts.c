/* SPDX-License-Identifier: Apache-2.0 */
/* The room that freezing and sharing a beginning takes: caches/stores/shared.c, told a second time. */
#include "harness/size/fronts.h"

#include "caches/front.h"
#include "harness/size/room.h"

enum { HOLDING = 16, SEQUENCE = 8 + SPANS };

/* Bytes of the largest row, of all heads, that is copied. */
static uint64_t row_bytes(const kvb_size_prediction *p, const kvb_group *g)
{
    const kvb_cache_options *o = &p->subject->options;
    double k = o->k_pool->row_bytes(o->k_pool, g->k_dim), v = g->latent ? 0 : o->v_pool->row_bytes(o->v_pool, g->v_dim);
    return (uint64_t)((k > v ? k : v) * g->kv_heads);
}

/* One copy. The first one freezes; the others find what they want in the front. */
static int copy_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t src, uint32_t dst,
                     uint64_t tokens)
{
    uint64_t none = 0;
    int error = 0;
    if (!p->seq[src].front) {
        need_of(&t->seq[src].spans, t->seq[src].held.n + 1, &t->spans);
        need(&t->fronts.raw, row_bytes(p, g));
        need_of(&none, 1, &t->fronts.spans); /* the source's, made on the way */
        t->fronts.cells = tokens;
        kvb_size_cells_give(&t->in_use, &t->seq[src].held, 0, tokens);
        error = kvb_size_pieces_drop(&t->seq[src].held, 0, tokens);
    } else {
        need(&t->fronts.picked, 0);
    }
    need(&t->fronts.holding, 2);
    need_of(&t->seq[dst].spans, 1, &t->spans);
    none = 0;
    need_of(&none, 1, &t->fronts.spans);
    return error;
}

int kvb_size_share(kvb_size_prediction *p, const kvb_size_step *s)
{
    const kvb_model *m = &p->subject->model;
    int error = 0;
    for (uint32_t dst = s->first + 1; dst <= s->first + s->n_seqs && !error; dst++) {
        for (uint32_t g = 0; g < m->n_groups && !error; g++)
            error = kvb_group_scans(&m->groups[g])
                        ? kvb_size_states_share(&p->group[g], s->first, dst)
                        : copy_take(p, &p->group[g], &m->groups[g], s->first, dst, s->tokens);
        need_of(&p->seq[dst].account, p->seq[s->first].ordinals.n, &p->spans);
        if (!error)
            error = kvb_size_piece_add(&p->seq[dst].ordinals, 0, p->seq[s->first].ordinals.at[0].cell, s->tokens);
        p->seq[s->first].front = p->seq[dst].front = p->seq[dst].len = s->tokens;
    }
    return error;
}

int kvb_size_seen(kvb_size_prediction *p, kvb_size_group_tables *t, uint32_t q, uint64_t front, kvb_size_pieces *seen)
{
    const kvb_size_pieces *held = &t->seq[q].held;
    int error = 0;
    seen->n = 0;
    if (p->seq[q].front)
        error = kvb_size_piece_add(seen, 0, 0, p->seq[q].front);
    for (size_t i = 0; i < held->n && !error; i++)
        error = kvb_size_piece_add(seen, held->at[i].pos, front + held->at[i].cell, held->at[i].n);
    need(&t->fronts.seen, held->n + (p->seq[q].front > 0));
    return error;
}

uint64_t kvb_size_front_bytes(const kvb_size_prediction *p, const kvb_size_group_tables *t)
{
    const kvb_size_fronts *f = &t->fronts;
    const uint64_t pools = 2 * (uint64_t)p->subject->model.n_layers;
    const uint64_t front = f->cells ? sizeof(kvb_front) + pools * (sizeof(kvb_pool *) + sizeof(kvb_view)) : 0;
    return front + p->n_ids * SEQUENCE + (f->spans + f->seen) * SPAN + f->raw + f->holding * HOLDING + f->picked * CELL;
}
