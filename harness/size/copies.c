/* SPDX-License-Identifier: Apache-2.0 */
/* What seq_cp allocates, but for cache shared-prefix's (fronts.c): a destination is cut back first, and then goes on as its source. */
#include <stdlib.h>

#include "harness/size/prediction.h"

/* Of positions from p0 on; all that are neighbours are joined. */
static int list_add(kvb_size_pieces *to, const kvb_size_pieces *from, uint64_t p0, uint64_t *n)
{
    kvb_size_pieces was = *to;
    int error = kvb_size_list_copy(to, &was);
    free(was.at);
    for (size_t i = 0; i < from->n && !error; i++) {
        const kvb_size_piece *part = &from->at[i];
        const uint64_t skip = part->pos < p0 ? p0 - part->pos : 0;
        if (skip < part->n) {
            error = kvb_size_piece_add(to, part->pos + skip, part->cell + skip, part->n - skip);
            *n += part->n - skip;
        }
    }
    return error;
}

static int group_cut(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t dst, uint64_t kept)
{
    const bool scans = kvb_group_scans(g), pages = kvb_size_has_pages(p) && !scans;
    const uint64_t n = kvb_size_page_cells(p);
    kvb_size_group_sequence *seq = &t->seq[dst];
    kvb_size_pieces was;
    int error = pages ? kvb_size_pages_key(p, t) : 0;
    t->gaps = true;
    if (is(p, &kvb_cache_recompute) || error)
        return error;
    error = kvb_size_list_copy(&was, &seq->held);
    if (pages && kvb_size_drops(p, g))
        need_of(&seq->spans, kvb_size_page_stretches(&seq->held) + 1, &t->spans);
    if (!pages && (scans || !is(p, &kvb_cache_slab)))
        need_of(&seq->spans, seq->held.n + 1, &t->spans);
    error = error ? error : kvb_size_pieces_drop(&seq->held, pages ? (kept + n - 1) / n : kept, UINT64_MAX);
    if (pages && !error)
        error = kvb_size_pages_let_go(p, t, &was, 1);
    free(was.at);
    if (pages && !error)
        error = kvb_size_pages_count(p, t);
    return error || !scans ? error : kvb_size_states_count(p, t);
}

/* Pages are shared; where both have rows in one, the destination takes copies into its own. */
static int pages_copy(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t src, uint32_t dst,
                      uint64_t kept)
{
    const kvb_size_pieces *from = &t->seq[src].held;
    const uint64_t n = kvb_size_page_cells(p), end = p->seq[src].len;
    kvb_size_group_sequence *to = &t->seq[dst];
    uint64_t changes = 0, copies = 0;
    int error = 0;
    if (kvb_size_drops(p, g))
        need_of(&to->spans, kvb_size_page_stretches(&to->held) + kvb_size_page_stretches(from), &t->spans);
    for (size_t i = 0; i < from->n; i++)
        for (uint64_t j = 0; j < from->at[i].n && !error; j++) {
            const uint64_t entry = from->at[i].pos + j, last = (entry + 1) * n < end ? (entry + 1) * n : end;
            const bool both = kvb_size_page_cell(p, t, dst, entry * n) == (from->at[i].cell + j) * n;
            if (last <= kept || (entry * n < kept && both)) /* a fork has the page already */
                continue;
            if (entry * n < kept) { /* the destination's last one */
                error = kvb_size_page_own(p, t, g, dst, entry, kept, &changes, &copies);
                copies += last - kept;
                kvb_size_cells_ask(t, kvb_size_page_cell(p, t, dst, last - 1) + 1);
                continue;
            }
            need_of(&to->pages, entry + 1, &t->tables);
            need(&t->changes, ++changes);
            error = kvb_size_piece_add(&to->held, entry, from->at[i].cell + j, 1);
        }
    climb(&t->moves, 0, 1, copies);
    return error ? error : kvb_size_pages_count(p, t);
}

/* Rows are copied into the destination's, which is the lowest free one if it has none. */
static int row_copy(kvb_size_prediction *p, kvb_size_group_tables *t, uint32_t src, uint32_t dst, uint64_t kept)
{
    const uint64_t capacity = p->subject->options.seq_capacity;
    const kvb_size_pieces *from = &t->seq[src].held;
    kvb_size_pieces *to = &t->seq[dst].held;
    const uint64_t row = to->n ? to->at[0].cell / capacity : kvb_size_row_free(p, t);
    uint64_t n = 0;
    kvb_size_pieces wanted = {0};
    int error = list_add(&wanted, from, kept, &n);
    for (size_t i = 0; i < wanted.n && !error; i++) {
        const kvb_size_piece *part = &wanted.at[i];
        const uint64_t cell = row * capacity + part->cell % capacity, high = cell > part->cell ? cell : part->cell;
        error = kvb_size_piece_add(to, part->pos, cell, part->n);
        if (t->turning) /* what is yet to be turned is copied with a row */
            need(&t->pending, high + part->n);
    }
    climb(&t->moves, 0, 1, n);
    free(wanted.at);
    return error;
}

static int group_copy(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t src, uint32_t dst,
                      uint64_t kept)
{
    const bool scans = kvb_group_scans(g);
    kvb_size_group_sequence *to = &t->seq[dst];
    uint64_t n = 0;
    if (is(p, &kvb_cache_recompute))
        return 0;
    if (!scans && kvb_size_has_pages(p))
        return pages_copy(p, t, g, src, dst, kept);
    if (!scans && is(p, &kvb_cache_slab))
        return row_copy(p, t, src, dst, kept);
    need_of(&to->spans, to->held.n + t->seq[src].held.n, &t->spans);
    const int error = list_add(&to->held, &t->seq[src].held, kept, &n);
    return error || !scans ? error : kvb_size_states_count(p, t);
}

static int sequence_copy(kvb_size_prediction *p, uint32_t src, uint32_t dst, uint64_t tokens)
{
    const kvb_model *m = &p->subject->model;
    kvb_size_sequence *to = &p->seq[dst];
    const uint64_t kept = tokens < to->len ? tokens : to->len;
    uint64_t n = 0;
    int error = 0;
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = group_cut(p, &p->group[g], &m->groups[g], dst, kept);
    need_of(&to->account, to->ordinals.n + 1, &p->spans);
    error = error ? error : kvb_size_pieces_drop(&to->ordinals, kept, UINT64_MAX);
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = group_copy(p, &p->group[g], &m->groups[g], src, dst, kept);
    need_of(&to->account, to->ordinals.n + p->seq[src].ordinals.n, &p->spans);
    error = error ? error : list_add(&to->ordinals, &p->seq[src].ordinals, kept, &n);
    const kvb_size_piece *last = to->ordinals.n ? &to->ordinals.at[to->ordinals.n - 1] : NULL;
    to->len = last ? last->pos + last->n : 0; /* positions below may be empty */
    to->loaded = p->seq[src].loaded;
    return error;
}

int kvb_size_copy_take(kvb_size_prediction *p, const kvb_size_step *s)
{
    int error = 0;
    for (uint32_t dst = s->first + 1; dst <= s->first + s->n_seqs && !error; dst++)
        error = sequence_copy(p, s->first, dst, s->tokens);
    return error;
}
