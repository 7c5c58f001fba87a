/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of draft trees: roots of one sequence or of several, in one proposal, of which each sequence accepts its last one. */
#include <errno.h>
#include <stdlib.h>

#include "harness/size/prediction.h"

int kvb_size_node_query(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g,
                        const kvb_size_pieces *prefix, kvb_run pieces, uint64_t cell, uint64_t len, uint64_t *runs)
{
    kvb_size_pieces seen = {0};
    int error = 0;
    for (size_t i = 0; i < prefix->n && !error; i++)
        error = kvb_size_piece_add(&seen, prefix->at[i].pos, prefix->at[i].cell, prefix->at[i].n);
    if (!error)
        error = kvb_size_piece_add(&seen, len, cell, 1);
    need(&t->path[p->turn], 1);
    need(&t->seen[p->turn], (uint64_t)pieces.end + 1);
    need(&t->runs[p->turn], *runs + seen.n + (pieces.end - pieces.begin) + 1);
    *runs += kvb_size_runs(&seen, g, len);
    free(seen.at);
    return error;
}

static kvb_run alike(const kvb_size_pieces *prefix)
{
    return (kvb_run){(uint32_t)prefix->n, (uint32_t)prefix->n};
}

/* tree: i cells behind the prefix. */
static int tree_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    kvb_size_piece all = {0, 0, p->seq[0].len};
    const kvb_size_pieces prefix = {&all, all.n > 0, 1};
    uint64_t runs = 0;
    int error = 0;
    for (uint32_t i = 0; i < s->drafts && !error; i++)
        error = kvb_size_node_query(p, t, g, &prefix, alike(&prefix), all.n + i, all.n, &runs);
    need(&t->moves, s->drafts);
    kvb_size_cells_ask(t, all.n + s->drafts);
    return error;
}

/* seq, window: each takes a cell, as a token does; those of the accepted ones stay. */
static int shared_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const uint64_t n = (uint64_t)s->n_seqs * s->drafts;
    uint64_t runs = 0, node = 0;
    int error = kvb_size_cells_find(p, t, g, n);
    if (error)
        return error;
    const kvb_size_piece *last = &p->scratch.at[p->scratch.n - 1];
    need(&t->refs, last->cell + last->n);
    kvb_size_cells_ask(t, last->cell + last->n);
    need(&t->nodes, n);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        need_of(&t->seq[q].spans, t->seq[q].held.n + s->drafts, &t->spans);
    for (size_t i = 0; i < p->scratch.n && !error; i++)
        for (uint64_t j = 0; j < p->scratch.at[i].n && !error; j++, node++) {
            const uint32_t q = s->first + (uint32_t)(node / s->drafts);
            const kvb_size_pieces *held = &t->seq[q].held;
            error = kvb_size_node_query(p, t, g, held, alike(held), p->scratch.at[i].cell + j, p->seq[q].len, &runs);
        }
    t->gaps = true;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && kvb_size_drops(p, g); q++)
        if (p->seq[q].len) /* else it is not alive yet */
            need_of(&t->seq[q].spans, t->seq[q].held.n + s->drafts + 1, &t->spans);
    if (kvb_size_drops(p, g))
        kvb_size_drop_prepare(p, t, s);
    error = error ? error : kvb_size_drop(p, t, g, s);
    node = 0;
    for (size_t i = 0; i < p->scratch.n; i++)
        for (uint64_t j = 0; j < p->scratch.at[i].n && !error; j++)
            if (++node % s->drafts == 0) {
                const uint32_t q = s->first + (uint32_t)(node / s->drafts) - 1;
                error = kvb_size_piece_add(&t->seq[q].held, p->seq[q].len, p->scratch.at[i].cell + j, 1);
            }
    return error;
}

/* recompute: behind all that is fed. */
static int fed_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    uint64_t at = kvb_size_fed_old(p, s), runs = 0;
    int error = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++) {
        const kvb_size_sequence *seq = &p->seq[q];
        runs = (uint64_t)kvb_size_queries(&t->runs[p->turn], &seq->fed, seq->fed.n, g, seq->len - seq->fresh,
                                          seq->fresh, runs);
    }
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        for (uint32_t i = 0; i < s->drafts && !error; i++, at++)
            error = kvb_size_node_query(p, t, g, &p->seq[q].fed, alike(&p->seq[q].fed), at, p->seq[q].len, &runs);
    kvb_size_cells_ask(t, at);
    return error;
}

int kvb_size_drafts_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const bool feeds = is(p, &kvb_cache_recompute);
    kvb_size_plan_start(t, p->turn, (uint64_t)s->n_seqs * s->drafts + (feeds ? kvb_size_fed_old(p, s) : 0));
    return feeds                    ? fed_take(p, t, g, s)
           : is(p, &kvb_cache_tree) ? tree_take(p, t, g, s)
           : kvb_size_has_pages(p)  ? kvb_size_paged_drafts(p, t, g, s)
                                    : shared_take(p, t, g, s);
}
