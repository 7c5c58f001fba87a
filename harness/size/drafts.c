/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of draft trees: of one sequence or of several, in one proposal, of which each sequence accepts the last one of each level. */
#include <errno.h>
#include <stdlib.h>

#include "harness/size/prediction.h"

/* One of them. */
static int node_query(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s,
                      kvb_size_pieces *seen, uint32_t node, const uint64_t *cells, uint64_t left, uint64_t *runs,
                      uint64_t prefix, uint64_t len)
{
    const uint32_t depth = node / s->drafts;
    uint32_t path[KVB_SIZE_DRAFTS];
    int error = 0;
    for (uint32_t i = depth + 1, at = node; i-- > 0; at = i ? (uint32_t)kvb_size_node_parent(s, at) : 0)
        path[i] = at;
    for (uint32_t i = 0; i <= depth && !error; i++)
        error = kvb_size_piece_add(seen, len + i, cells[path[i]], 1);
    need(&t->path[p->turn], (uint64_t)depth + 1);
    need(&t->seen[p->turn], prefix + depth + 1);
    need(&t->runs[p->turn], *runs + seen->n + left + 1);
    *runs += kvb_size_runs(seen, g, len + depth);
    return error;
}

int kvb_size_nodes_query(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s,
                         uint32_t q, const kvb_size_pieces *prefix, kvb_run pieces, const uint64_t *cells,
                         uint64_t *runs)
{
    int error = 0;
    for (uint32_t node = 0; node < kvb_size_brings(s) && !error; node++) {
        kvb_size_pieces seen;
        error = kvb_size_list_copy(&seen, prefix);
        if (!error)
            error =
                node_query(p, t, g, s, &seen, node, cells, pieces.end - pieces.begin, runs, pieces.end, p->seq[q].len);
        free(seen.at);
    }
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
    const uint32_t nodes = kvb_size_brings(s);
    uint64_t runs = 0, cells[KVB_SIZE_DRAFTS];
    for (uint32_t i = 0; i < nodes; i++)
        cells[i] = all.n + i;
    need(&t->moves, nodes);
    kvb_size_cells_ask(t, all.n + nodes);
    return kvb_size_nodes_query(p, t, g, s, 0, &prefix, alike(&prefix), cells, &runs);
}

/* The cells of the nodes of one sequence, from piece *i and its cell *j on. */
static void cells_next(const kvb_size_pieces *taken, size_t *i, uint64_t *j, uint32_t nodes, uint64_t *cells)
{
    for (uint32_t k = 0; k < nodes; k++, ++*j) {
        if (*j == taken->at[*i].n)
            ++*i, *j = 0;
        cells[k] = taken->at[*i].cell + *j;
    }
}

/* seq, window: each takes a cell, as a token does; those of the accepted ones stay. */
static int shared_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const uint32_t nodes = kvb_size_brings(s);
    const uint64_t n = (uint64_t)s->n_seqs * nodes;
    uint64_t runs = 0, cells[KVB_SIZE_DRAFTS], j = 0;
    size_t i = 0;
    int error = kvb_size_cells_find(p, t, g, n);
    if (error)
        return error;
    const kvb_size_piece *last = &p->scratch.at[p->scratch.n - 1];
    need(&t->refs, last->cell + last->n);
    kvb_size_cells_ask(t, last->cell + last->n);
    need(&t->nodes, n);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        need_of(&t->seq[q].spans, t->seq[q].held.n + nodes, &t->spans);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        const kvb_size_pieces *held = &t->seq[q].held;
        cells_next(&p->scratch, &i, &j, nodes, cells);
        error = kvb_size_nodes_query(p, t, g, s, q, held, alike(held), cells, &runs);
    }
    t->gaps = true;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && kvb_size_drops(p, g); q++)
        if (p->seq[q].len) /* else it is not alive yet */
            need_of(&t->seq[q].spans, t->seq[q].held.n + nodes + 1, &t->spans);
    if (kvb_size_drops(p, g))
        kvb_size_drop_prepare(p, t, s);
    error = error ? error : kvb_size_drop(p, t, g, s);
    i = j = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        cells_next(&p->scratch, &i, &j, nodes, cells);
        for (uint32_t k = 0; k < s->tokens && !error; k++)
            error = kvb_size_piece_add(&t->seq[q].held, p->seq[q].len + k, cells[(k + 1) * s->drafts - 1], 1);
    }
    return error;
}

/* recompute: behind all that is fed. */
static int fed_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const uint32_t nodes = kvb_size_brings(s);
    uint64_t at = kvb_size_fed_old(p, s), runs = kvb_size_fed_queries(p, t, g, s), cells[KVB_SIZE_DRAFTS];
    int error = 0;
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        for (uint32_t i = 0; i < nodes; i++)
            cells[i] = at++;
        error = kvb_size_nodes_query(p, t, g, s, q, &p->seq[q].fed, alike(&p->seq[q].fed), cells, &runs);
    }
    kvb_size_cells_ask(t, at);
    return error;
}

int kvb_size_drafts_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const bool feeds = is(p, &kvb_cache_recompute);
    kvb_size_plan_start(t, p->turn, (uint64_t)s->n_seqs * kvb_size_brings(s) + (feeds ? kvb_size_fed_old(p, s) : 0));
    return feeds                    ? fed_take(p, t, g, s)
           : is(p, &kvb_cache_tree) ? tree_take(p, t, g, s)
           : kvb_size_has_pages(p)  ? kvb_size_paged_drafts(p, t, g, s)
                                    : shared_take(p, t, g, s);
}
