/* SPDX-License-Identifier: Apache-2.0 */
/* A step of caches paged and paged-prefix: pages taken, copied and given back. Tables are pieces of entries and pages. */
#include <errno.h>
#include <stdlib.h>

#include "harness/size/prediction.h"

static uint64_t pages_most(const kvb_size_prediction *p, const kvb_group *g)
{
    return kvb_size_pool_cells(p, g) / kvb_size_page_cells(p);
}

/* The page of an entry; false: there is none. */
static bool page_find(const kvb_size_pieces *table, uint64_t entry, uint64_t *page)
{
    for (size_t i = 0; i < table->n; i++)
        if (entry >= table->at[i].pos && entry < table->at[i].pos + table->at[i].n) {
            *page = table->at[i].cell + (entry - table->at[i].pos);
            return true;
        }
    return false;
}

uint64_t kvb_size_page_cell(const kvb_size_prediction *p, const kvb_size_group_tables *t, uint32_t seq, uint64_t pos)
{
    const uint64_t n = kvb_size_page_cells(p);
    uint64_t page = 0;
    page_find(&t->seq[seq].held, pos / n, &page);
    return page * n + pos % n;
}

uint64_t kvb_size_page_stretches(const kvb_size_pieces *table)
{
    uint64_t n = table->n > 0;
    for (size_t i = 1; i < table->n; i++)
        n += table->at[i - 1].pos + table->at[i - 1].n != table->at[i].pos;
    return n;
}

int kvb_size_pages_lie(const kvb_size_prediction *p, const kvb_size_group_tables *t, const kvb_group *g, uint32_t seq,
                       kvb_size_pieces *lies, uint64_t *pieces)
{
    const kvb_size_pieces *table = &t->seq[seq].held, *spans = &p->seq[seq].ordinals;
    const uint64_t n = kvb_size_page_cells(p), len = p->seq[seq].len;
    int error = 0;
    *pieces = lies->n = 0;
    for (size_t i = 0; i < table->n; i++)
        for (uint64_t j = 0; j < table->at[i].n && !error; j++) {
            const uint64_t pos = (table->at[i].pos + j) * n, some = pos < len ? len - pos : 0;
            *pieces += some > 0;
            if (some)
                error = kvb_size_piece_add(lies, pos, (table->at[i].cell + j) * n, some < n ? some : n);
        }
    for (size_t i = 1; i < spans->n && !kvb_size_drops(p, g); i++) /* cut where the account's spans are */
        *pieces += spans->at[i].pos % n != 0;
    return error;
}

int kvb_size_pages_key(kvb_size_prediction *p, kvb_size_group_tables *t)
{
    int error = 0;
    for (uint32_t q = 0; q < p->n_ids && is(p, &kvb_cache_paged_prefix) && !error; q++)
        if (!p->seq[q].loaded)
            error = kvb_size_cells_mark(&t->pages_in_use.keyed, &t->seq[q].held, p->seq[q].len / kvb_size_page_cells(p),
                                        UINT64_MAX);
    return error;
}

/* Most pages that stay. */
static uint64_t budget(const kvb_size_prediction *p)
{
    const kvb_cache_options *o = &p->subject->options;
    return o->prefix_bytes ? o->prefix_bytes / (kvb_size_cell_bytes(p->subject) * kvb_size_page_cells(p)) : UINT64_MAX;
}

/* Takes out of a table what another one names, too. */
static int pages_without(kvb_size_pieces *table, const kvb_size_pieces *other)
{
    kvb_size_pieces left = {0};
    int error = 0;
    for (size_t i = 0; i < table->n; i++)
        for (uint64_t j = 0; j < table->at[i].n && !error; j++) {
            const uint64_t page = table->at[i].cell + j;
            bool there = false;
            for (size_t k = 0; k < other->n; k++)
                there = there || (page >= other->at[k].cell && page - other->at[k].cell < other->at[k].n);
            error = there ? 0 : kvb_size_piece_put(&left, table->at[i].pos + j, page, 1);
        }
    free(table->at);
    *table = left;
    return error;
}

int kvb_size_pages_let_go(kvb_size_prediction *p, kvb_size_group_tables *t, kvb_size_pieces *was, uint32_t n)
{
    int error = 0;
    for (uint32_t table = 0; table < n && is(p, &kvb_cache_paged_prefix); table++) {
        for (uint32_t later = table + 1; later < n && !error; later++)
            error = pages_without(&was[table], &was[later]);
        for (size_t i = was[table].n; i-- > 0;)
            for (uint64_t j = was[table].at[i].n; j-- > 0 && !error;)
                if (!kvb_size_cell_holders(p, t, was[table].at[i].cell + j))
                    error = kvb_size_page_leave(&t->pages_in_use, was[table].at[i].cell + j, budget(p));
    }
    return error;
}

int kvb_size_pages_count(kvb_size_prediction *p, kvb_size_group_tables *t)
{
    kvb_size_cells *in_use = &t->pages_in_use.in_use;
    free(in_use->used);
    *in_use = (kvb_size_cells){0};
    const int error = kvb_size_cells_held(p, t, in_use);
    return error ? error : kvb_size_cells_mark(in_use, &t->pages_in_use.stay, 0, 0);
}

/* Are rows stored by themselves, in all groups? */
static bool is_apart(const kvb_size_subject *s)
{
    bool apart = true;
    for (uint32_t g = 0; g < s->model.n_groups; g++)
        for (int v = 0; v < (s->model.groups[g].latent ? 1 : 2) && !kvb_group_scans(&s->model.groups[g]); v++)
            apart = apart && !(v ? s->options.v_pool : s->options.k_pool)->format->residual_cells;
    return apart;
}

int kvb_size_pages_overwrite(kvb_size_prediction *p, kvb_size_group_tables *t)
{
    const bool apart = is_apart(p->subject);
    kvb_size_pages *pages = &t->pages_in_use;
    kvb_size_cells held = {0};
    const int error = kvb_size_cells_held(p, t, &held);
    for (size_t i = 0; i < pages->keyed.room; i++)
        pages->keyed.used[i] &= apart ? ~(i < held.room ? held.used[i] : 0) : 0;
    pages->stay.n = apart ? pages->stay.n : 0;
    free(held.used);
    return error ? error : kvb_size_pages_count(p, t);
}

int kvb_size_pages_leave(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint64_t *changes)
{
    int error = 0;
    for (int i = 0; i < 2; i++) {
        const kvb_size_step all = {.n_seqs = i ? 0 : p->n_ids}, *of = t->gaps ? &all : &p->last[i];
        for (uint32_t q = of->first; q < of->first + of->n_seqs && kvb_size_drops(p, g) && !error; q++)
            error = kvb_size_pages_drop(&t->pages_in_use, &t->seq[q].held, g, kvb_size_page_cells(p),
                                        kvb_size_kept_from(&p->subject->options, g, p->seq[q].len), changes);
    }
    return error || !t->gaps || !kvb_size_drops(p, g) ? error : kvb_size_pages_count(p, t);
}

int kvb_size_page_own(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t seq,
                      uint64_t entry, uint64_t until, uint64_t *changes, uint64_t *copies)
{
    const uint64_t n = kvb_size_page_cells(p);
    kvb_size_pieces *table = &t->seq[seq].held;
    uint64_t page = 0;
    int error = 0;
    const bool there = page_find(table, entry, &page);
    if (there && (!t->gaps || kvb_size_cell_holders(p, t, page) == 1))
        return 0;
    need_of(&t->seq[seq].pages, entry + 1, &t->tables);
    need(&t->changes, ++*changes);
    if (there) { /* it is the last one */
        *copies += until - entry * n;
        error = kvb_size_pieces_drop(table, entry, entry + 1);
    }
    return error ? error : kvb_size_page_take(&t->pages_in_use, table, entry, pages_most(p, g));
}

int kvb_size_paged_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const uint64_t page = kvb_size_page_cells(p);
    uint64_t changes = 0, queries = 0, entries = 0, copies = 0;
    kvb_size_plan_start(t, p->turn, (uint64_t)s->n_seqs * s->tokens);
    for (uint32_t q = 0; q < p->n_ids && t->gaps && kvb_size_drops(p, g); q++)
        if (p->seq[q].len)
            need_of(&t->seq[q].spans, kvb_size_page_stretches(&t->seq[q].held) + 1, &t->spans);
    int error = kvb_size_pages_leave(p, t, g, &changes);
    climb(&t->changes, 0, 1, changes);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        const uint64_t end = p->seq[q].len + s->tokens;
        if (kvb_size_drops(p, g)) /* sinks, window, and what goes: never more than three spans */
            need_of(&t->seq[q].spans, 3, &t->spans);
        for (uint64_t pos = p->seq[q].len; pos < end && !error; pos++) {
            if (pos % page == 0 || pos == p->seq[q].len)
                error = kvb_size_page_own(p, t, g, q, pos / page, pos, &changes, &copies);
            need(&t->pages[p->turn], entries + pos / page + 1);
            need(&t->runs[p->turn], ++queries);
            kvb_size_cells_ask(t, kvb_size_page_cell(p, t, q, pos) + 1);
        }
        entries += (end - 1) / page + 1;
    }
    climb(&t->moves, 0, 1, copies);
    return error;
}

/* The rows that are kept, and those that are pending. */
static void drafts_reserve(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const uint32_t nodes = kvb_size_brings(s);
    need(&t->moves, (uint64_t)s->n_seqs * nodes);
    need(&t->node_cells, (uint64_t)s->n_seqs * nodes);
    for (uint32_t q = 0; q < p->n_ids && kvb_size_drops(p, g); q++) {
        const uint64_t pending = q >= s->first && q - s->first < s->n_seqs ? nodes : 0;
        if (pending || p->seq[q].len)
            need_of(&t->seq[q].spans, kvb_size_page_stretches(&t->seq[q].held) + pending + 1, &t->spans);
    }
}

/* The accepted nodes, so many, move to the end of their sequence; pages in which nothing is left are free. */
static int drafts_commit(kvb_size_prediction *p, kvb_size_group_tables *t, uint32_t seq, uint32_t accepted)
{
    const uint64_t end = (p->seq[seq].len + accepted - 1) / kvb_size_page_cells(p) + 1;
    kvb_size_pieces *table = &t->seq[seq].held;
    kvb_size_cells_give(&t->pages_in_use.in_use, table, end, UINT64_MAX);
    return kvb_size_pieces_drop(table, end, UINT64_MAX);
}

int kvb_size_paged_drafts(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s)
{
    const uint64_t page = kvb_size_page_cells(p), nodes = kvb_size_brings(s);
    uint64_t changes = 0, copies = 0, pieces, runs = 0, cells[KVB_SIZE_DRAFTS];
    kvb_size_pieces lies = {0};
    int error = 0;
    drafts_reserve(p, t, g, s);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) /* with what is let go of just now */
        error = kvb_size_pages_lie(p, t, g, q, &lies, &t->seq[q].left);
    error = error ? error : kvb_size_pages_leave(p, t, g, &changes);
    climb(&t->changes, 0, 1, changes);
    for (uint32_t q = s->first; q < s->first + s->n_seqs; q++)
        for (uint64_t i = 0, pos = p->seq[q].len; i < nodes && !error; i++, pos++) {
            error = kvb_size_page_own(p, t, g, q, pos / page, p->seq[q].len, &changes, &copies);
            kvb_size_cells_ask(t, kvb_size_page_cell(p, t, q, pos) + 1);
        }
    climb(&t->moves, 0, 1, copies);
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++) {
        error = kvb_size_pages_lie(p, t, g, q, &lies, &pieces);
        climb(&t->page_pieces, 0, 1, t->seq[q].left);
        for (uint32_t i = 0; i < nodes; i++)
            cells[i] = kvb_size_page_cell(p, t, q, p->seq[q].len + i);
        if (!error)
            error = kvb_size_nodes_query(p, t, g, s, q, &lies, (kvb_run){(uint32_t)pieces, (uint32_t)t->seq[q].left},
                                         cells, &runs);
    }
    for (uint32_t q = s->first; q < s->first + s->n_seqs && !error; q++)
        error = drafts_commit(p, t, q, s->tokens);
    free(lies.at);
    return error;
}
