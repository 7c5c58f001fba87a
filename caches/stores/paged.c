/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paged: cells come in pages of options->page_cells, and a sequence is a table of pages. Position p lies in the page of
 * entry p / page_cells, at cell p % page_cells of the page. Tables that name a page are counted. A page that several
 * name is never written: a sequence that has to write it first copies its own rows to a new page (copy on write). So a
 * fork copies table entries and no rows. Kwon et al., "Efficient Memory Management for Large Language Model Serving
 * with PagedAttention", SOSP 2023, section 4.
 *
 * A page is free when no table names it. A table names no page in which its sequence holds nothing. In a group with a
 * window or chunks each step frees, in all sequences, the pages of which no query can see any row again (kept.h).
 *
 * The pools hold the pages of `capacity` cells, and two more for each sequence that may be alive: its last page may be
 * partly empty, and the page in which it parted from a fork is held twice. The pools hold fewer pages if the group's
 * limits bound the rows that sequences keep.
 *
 * paged-prefix: a prompt finds the pages that hold its first tokens (prefix.h). Pages behind a window are kept, since
 * they can be the beginning of another prompt: so all groups have the same pages.
 */
#include "caches/stores/paged.h"

#include <errno.h>
#include <string.h>

#include "caches/cache.h"
#include "caches/stores/kept.h"

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static bool is_free(const paged_store *p, uint32_t page)
{
    return !p->refs[page] && !(p->finds && p->prefix.pages[page].cached);
}

/* Counts a table that names the page (by 1), or names it no more (by -1). PAGE_NONE is nothing. */
static void paged_count(paged_store *p, uint32_t page, int by)
{
    if (page == PAGE_NONE)
        return;
    if (p->finds && !p->refs[page])
        kvb_prefix_take(&p->prefix, page);
    p->live -= p->refs[page] > 0;
    p->refs[page] += (uint32_t)by;
    p->live += p->refs[page] > 0;
    p->high_water = p->high_water > page ? p->high_water : page + 1;
    if (p->finds && !p->refs[page]) { /* no table names the page any more: it is cached if it is keyed */
        p->undoes ? kvb_prefix_untake(&p->prefix, page) : kvb_prefix_release(&p->prefix, page);
        for (uint32_t gone; (gone = kvb_prefix_trim(&p->prefix)) != KVB_NO_PAGE;)
            p->first_free = gone < p->first_free ? gone : p->first_free;
    }
    p->first_free = is_free(p, page) && page < p->first_free ? page : p->first_free;
    while (p->high_water > 0 && !p->refs[p->high_water - 1])
        p->high_water--;
    while (p->first_free < p->n_pages && !is_free(p, p->first_free))
        p->first_free++;
}

/* Puts a page in an entry, for which there is room; the old page loses a reference. */
static void paged_put(paged_store *p, uint32_t seq, uint32_t entry, uint32_t page)
{
    paged_count(p, page, 1);
    paged_count(p, p->tables[seq].page[entry], -1);
    p->tables[seq].page[entry] = page;
}

/* Makes room for so many entries in a table: 0 or -ENOMEM. */
static int paged_reserve(paged_store *p, uint32_t seq, size_t entries)
{
    page_table *t = &p->tables[seq];
    const size_t had = t->room;
    int error = kvb_grow(p->store.allocator, &t->page, &t->room, entries);
    if (!error)
        memset(t->page + had, 0xff, (t->room - had) * sizeof *t->page);
    return error;
}

int kvb_paged_change(paged_store *p, uint32_t seq, uint32_t entry, uint32_t page)
{
    page_table *t = &p->tables[seq];
    int error = paged_reserve(p, seq, (size_t)entry + 1);
    if (!error)
        error = kvb_grow(p->store.allocator, &p->changes, &p->changes_room, p->n_changes + 1);
    if (error)
        return error;
    p->changes[p->n_changes++] = (entry_change){seq, entry, t->page[entry]};
    paged_put(p, seq, entry, page);
    return 0;
}

/* Requests copies of a sequence's rows at positions p0 .. p1-1 of one entry, from one page to another. */
static int rows_move(paged_store *p, uint32_t seq, uint32_t p0, uint32_t p1, uint32_t from, uint32_t to)
{
    const kvb_spans *held = kvb_paged_held(p, seq);
    const uint32_t n = page_cells(&p->store);
    int error = 0;
    for (size_t i = 0; i < held->n; i++) {
        const kvb_span part = kvb_span_clip(held->span[i], p0, p1);
        for (uint32_t pos = part.pos; pos < part.pos + part.n && !error; pos++)
            error = kvb_store_move(&p->store, from * n + pos % n, to * n + pos % n);
    }
    return error;
}

/* Makes sure that an entry has a page of the sequence's own, to be written: a free page if it has none; if other tables
 * name its page, too, a copy of the sequence's rows below position `until`. 0, -ENOSPC or -ENOMEM. */
static int paged_own(paged_store *p, uint32_t seq, uint32_t entry, uint32_t until)
{
    const uint32_t page = page_at(p, seq, entry);
    /* a free page, else the cached one to be evicted */
    const uint32_t to = p->first_free < p->n_pages ? p->first_free
                        : p->finds                 ? kvb_prefix_oldest(&p->prefix)
                                                   : PAGE_NONE;
    if (page != PAGE_NONE && p->refs[page] == 1)
        return 0;
    if (to == PAGE_NONE)
        return kvb_store_fail(&p->store, -ENOSPC, "no page is free: all %u are in use", p->n_pages);
    int error = kvb_paged_change(p, seq, entry, to);
    if (!error && page != PAGE_NONE)
        error = rows_move(p, seq, entry * page_cells(&p->store), until, page, to);
    return error;
}

/* Lists the cells of the sequence's positions, page by page, in p->cells: 0 or -ENOMEM. */
static int paged_cells(paged_store *p, uint32_t seq)
{
    const kvb_spans *held = kvb_paged_held(p, seq);
    const uint32_t n = page_cells(&p->store);
    p->cells.n = 0;
    for (size_t i = 0; i < held->n; i++)
        for (uint32_t pos = held->span[i].pos, end = pos + held->span[i].n, some; pos < end; pos += some) {
            some = n - pos % n < end - pos ? n - pos % n : end - pos;
            if (kvb_spans_reserve(&p->cells, p->store.allocator, 1))
                return -ENOMEM;
            p->cells.span[p->cells.n++] = (kvb_span){page_at(p, seq, pos / n) * n + pos % n, pos, some};
        }
    return 0;
}

static bool finds(const kvb_store *s)
{
    return s->type->flags & KVB_CACHE_PREFIX;
}

static bool drops(const kvb_store *s)
{
    return kvb_group_limits(s->group) && !finds(s);
}

/* The positions that a sequence with its next query at pos does not need: whole pages behind the sinks. */
static kvb_run paged_unneeded(const kvb_store *s, uint32_t pos)
{
    const uint32_t n = page_cells(s), sinks = s->group->sinks, from = kvb_needed_from(s, pos) / n * n;
    const uint64_t begin = ((uint64_t)sinks + n - 1) / n * n;
    return begin < from ? (kvb_run){(uint32_t)begin, from} : (kvb_run){0, 0};
}

static uint64_t pages_most(const kvb_store *s)
{
    const kvb_cache_options *o = s->options;
    const uint64_t n = page_cells(s), aside = n > 1 ? 2 * (uint64_t)o->max_seqs : 0;
    const uint64_t pages = (o->capacity + n - 1) / n + aside;
    if (!drops(s))
        return pages;
    /* Pages of a sequence's sinks and of its needed positions, which begin anywhere in a page; pages that a step
     * begins. */
    const uint64_t kept = (s->group->sinks + n - 1) / n + (kvb_needed_most(s) + 2 * n - 2) / n;
    const uint64_t step = o->step ? o->step : o->capacity, begun = step < o->max_seqs ? step : o->max_seqs;
    const uint64_t needed = o->max_seqs * kept + begun + (step - begun) / n;
    return needed < pages ? needed : pages;
}

static uint64_t pool_cells(const kvb_store *s)
{
    return pages_most(s) * page_cells(s);
}

/* ---- REORDER ----------------------------------------------------------------------------------------------------- */

static void paged_reordered_free(paged_store *p)
{
    for (uint32_t i = 0; i < p->n_reordered; i++)
        table_free(p, &p->reordered[i]);
    kvb_free(p->store.allocator, p->reordered, p->n_reordered * sizeof *p->reordered);
    p->reordered = NULL;
    p->n_reordered = 0;
}

/* Copies the sources' tables aside: 0 or -ENOMEM. */
static int paged_reorder_prepare(paged_store *p, const kvb_change *change)
{
    const uint32_t n = change->n;
    paged_reordered_free(p);
    p->reordered = n ? kvb_alloc_zeroed(p->store.allocator, n * sizeof *p->reordered) : NULL;
    p->n_reordered = p->reordered ? n : 0;
    int error = n && !p->reordered ? -ENOMEM : 0;
    for (uint32_t i = 0; i < n && !error; i++) {
        const page_table *src = &p->tables[change->srcs[i]];
        page_table *t = &p->reordered[i];
        error = src->room ? kvb_grow(p->store.allocator, &t->page, &t->room, src->room) : 0;
        if (!error && src->room)
            memcpy(t->page, src->page, src->room * sizeof *t->page);
    }
    if (!error && p->finds)
        error = kvb_grow(p->store.allocator, &p->keys_reordered, &p->keys_room, n);
    for (uint32_t i = 0; i < n && !error && p->finds; i++)
        p->keys_reordered[i] = p->prefix.extra_keys[change->srcs[i]];
    if (!error && p->kept)
        error = kvb_spans_gather(&p->kept_reordered, p->store.allocator, p->kept, change->srcs, n);
    if (error)
        paged_reordered_free(p);
    return error;
}

/* First counts the destinations' new pages, then uncounts the old ones, so that no page is free meanwhile. */
static void paged_reorder(paged_store *p, const kvb_change *change)
{
    for (uint32_t i = 0; i < change->n; i++)
        for (size_t entry = 0; entry < p->reordered[i].room; entry++)
            paged_count(p, p->reordered[i].page[entry], 1);
    for (uint32_t i = 0; i < change->n; i++) {
        page_table *t = &p->tables[change->dsts[i]], old = *t;
        for (size_t entry = old.room; entry-- > 0;) /* the last one first */
            paged_count(p, old.page[entry], -1);
        if (p->finds)
            p->prefix.extra_keys[change->dsts[i]] = p->keys_reordered[i];
        *t = p->reordered[i];
        p->reordered[i] = old;
    }
    paged_reordered_free(p);
    if (p->kept)
        kvb_spans_scatter(&p->kept_reordered, p->store.allocator, p->kept, change->dsts);
}

/* ---- saving and loading ------------------------------------------------------------------------------------------ */

static int paged_lies(kvb_store *s, uint32_t seq, kvb_spans *cells)
{
    paged_store *p = (paged_store *)s;
    int error = paged_cells(p, seq);
    if (!error)
        error = kvb_spans_reserve(cells, s->allocator, p->cells.n);
    if (!error)
        kvb_spans_add(cells, &p->cells, 0, KVB_POS_END);
    return error;
}

/* Do the cells of a saved sequence, of a whole cache, lie in pages, one for each entry? */
static bool lies_in_pages(const kvb_store *s, const kvb_spans *rows)
{
    const uint32_t n = page_cells(s);
    uint64_t last = UINT64_MAX, page = 0;
    bool right = true;
    for (size_t i = 0; i < rows->n; i++)
        for (uint32_t j = 0; j < rows->span[i].n && right; j++) {
            const uint64_t cell = rows->span[i].at + j, pos = rows->span[i].pos + j;
            right = cell % n == pos % n && (pos / n != last || cell / n == page);
            last = pos / n;
            page = cell / n;
        }
    return right;
}

/* A single sequence gets pages of its own; of a whole cache the tables are restored. */
static int paged_load_prepare(paged_store *p, const kvb_change *change)
{
    kvb_store *s = &p->store;
    const uint32_t n = page_cells(s);
    int error = 0;
    for (uint32_t i = 0; i < change->loaded->n_alive && !error; i++) {
        const kvb_spans *rows = &s->load->rows[i];
        const uint32_t seq = change->loaded->alive[i];
        if (change->src == KVB_SEQ_ALL && !lies_in_pages(s, rows))
            return kvb_store_fail(s, -EINVAL, "sequence %u does not lie in pages of %u cells", seq, n);
        if (p->kept)
            error = kvb_spans_reserve(&p->kept[seq], s->allocator, rows->n + 1);
        if (change->src == KVB_SEQ_ALL) {
            error = error ? error : paged_reserve(p, seq, kvb_spans_next(rows) / n + 1);
            continue;
        }
        const kvb_run gone = p->kept ? paged_unneeded(s, kvb_spans_next(&change->loaded->seq[seq])) : (kvb_run){0, 0};
        for (size_t j = 0; j < rows->n; j++)
            for (uint32_t k = 0, pos = rows->span[j].pos; k < rows->span[j].n && !error; k++, pos++) {
                if (pos >= gone.begin && pos < gone.end)
                    continue;
                if (p->kept)
                    kvb_spans_append(&p->kept[seq], pos, pos);
                error = paged_own(p, seq, pos / n, pos);
                if (!error)
                    error = kvb_store_move(s, (uint32_t)rows->span[j].at + k, page_at(p, seq, pos / n) * n + pos % n);
            }
    }
    return error;
}

/* Restores the tables of a whole cache. */
static void paged_load(paged_store *p, const kvb_account *loaded)
{
    const kvb_store *s = &p->store;
    const uint32_t n = page_cells(s);
    for (uint32_t i = 0; i < s->account->n_changed; i++) {
        const uint32_t seq = s->account->changed[i];
        for (size_t entry = p->tables[seq].room; entry-- > 0;) /* the last one first */
            paged_put(p, seq, (uint32_t)entry, PAGE_NONE);
        if (p->kept)
            kvb_spans_cut(&p->kept[seq], 0, KVB_POS_END);
    }
    for (uint32_t i = 0; i < loaded->n_alive; i++)
        for (size_t j = 0; j < s->load->rows[i].n; j++) {
            const kvb_span *span = &s->load->rows[i].span[j];
            for (uint32_t k = 0, pos = span->pos; k < span->n; k++, pos++) {
                if (page_at(p, loaded->alive[i], pos / n) == PAGE_NONE)
                    paged_put(p, loaded->alive[i], pos / n, (uint32_t)((span->at + k) / n));
                if (p->kept)
                    kvb_spans_append(&p->kept[loaded->alive[i]], pos, pos);
            }
        }
}

/*
 * Nodes of draft trees. Node i of a sequence takes the place of position length + i, in the sequence's pages. A commit
 * copies the rows of the accepted path down to the committed end, and frees pages that hold nothing any more.
 */

static uint32_t node_cell(const paged_store *p, uint32_t seq, uint32_t length, uint32_t number)
{
    const uint32_t n = page_cells(&p->store), slot = length + number;
    return page_at(p, seq, slot / n) * n + slot % n;
}

/* Finds the cells of a sequence's nodes: node_cells [index in account->node]. */
static void node_cells_find(paged_store *p, uint32_t seq)
{
    const kvb_account *a = p->store.account;
    for (uint32_t i = 0; i < a->n_nodes; i++)
        if (a->node[i].seq == seq)
            p->node_cells[i] = node_cell(p, seq, kvb_spans_next(&a->seq[seq]), a->node[i].number);
}

static int paged_propose_prepare(paged_store *p, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_store *s = &p->store;
    const kvb_account *a = s->account;
    const uint32_t before = a->n_nodes - feed->n;
    /* Room for the moves and the kept rows of a commit of all nodes, so that commits cannot fail. */
    int error = kvb_grow(s->allocator, &s->moves, &s->moves_room, s->n_moves + (size_t)a->n_nodes);
    if (!error)
        error = kvb_grow(s->allocator, &p->node_cells, &p->node_cells_room, a->n_nodes);
    for (uint32_t i = 0; i < a->n_changed && p->kept && !error; i++)
        error = kvb_spans_reserve(&p->kept[a->changed[i]], s->allocator, a->pending[a->changed[i]] + (size_t)1);
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        const uint32_t seq = feed->seqs[i], length = kvb_spans_next(&a->seq[seq]), number = a->node[before + i].number;
        error = paged_own(p, seq, (length + number) / page_cells(s), length);
        if (!error)
            plan->cells[i] = node_cell(p, seq, length, number);
    }
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        const uint32_t seq = feed->seqs[i];
        if (i == 0 || seq != feed->seqs[i - 1]) {
            node_cells_find(p, seq);
            error = paged_cells(p, seq);
        }
        if (!error)
            error =
                kvb_plan_attend_node(plan, s->group, a, &p->cells, 0, p->node_cells, before + i, feed->positions[i]);
    }
    return error;
}

static int paged_commit_prepare(paged_store *p, const kvb_change *change)
{
    const uint32_t seq = change->src, length = kvb_spans_next(&p->store.account->seq[seq]);
    int error = 0;
    for (uint32_t i = 0; i < change->n && !error; i++) /* numbers ascend: no row is overwritten before it is copied */
        if (change->accepted[i] != i)
            error =
                kvb_store_move(&p->store, node_cell(p, seq, length, change->accepted[i]), node_cell(p, seq, length, i));
    return error;
}

/* Drops the entries of positions p0 .. p1-1 in which the sequence holds nothing any more. */
static void paged_entries_drop(paged_store *p, uint32_t seq, uint32_t p0, uint32_t p1)
{
    const kvb_spans *held = kvb_paged_held(p, seq);
    const uint32_t n = page_cells(&p->store);
    uint64_t entry = ((uint64_t)p1 + n - 1) / n;
    for (entry = entry < p->tables[seq].room ? entry : p->tables[seq].room;
         entry-- > p0 / n;) { /* the last one first */
        uint32_t left = 0;
        for (size_t i = 0; i < held->n && !left; i++)
            left = kvb_span_clip(held->span[i], (uint32_t)entry * n, (uint32_t)(entry + 1) * n).n;
        if (!left)
            paged_put(p, seq, (uint32_t)entry, PAGE_NONE);
    }
}

/* The account has already added the accepted nodes to the sequence. */
static void paged_commit(paged_store *p, const kvb_change *change)
{
    const uint32_t end = kvb_spans_next(&p->store.account->seq[change->src]);
    for (uint32_t pos = end - change->n; p->kept && pos < end; pos++)
        kvb_spans_append(&p->kept[change->src], pos, pos);
    paged_entries_drop(p, change->src, end, KVB_POS_END);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void store_close(kvb_store *s)
{
    paged_store *p = (paged_store *)s;
    const uint32_t n_ids = s->account->n_ids;
    for (uint32_t q = 0; q < n_ids && p->tables; q++)
        table_free(p, &p->tables[q]);
    paged_reordered_free(p);
    kvb_spans_aside_free(&p->kept_reordered, s->allocator);
    kvb_free(s->allocator, p->tables, n_ids * sizeof *p->tables);
    kvb_free(s->allocator, p->adds, n_ids * sizeof *p->adds);
    kvb_free(s->allocator, p->changes, p->changes_room * sizeof *p->changes);
    kvb_free(s->allocator, p->refs, p->n_pages * sizeof *p->refs);
    kvb_spans_free(&p->cells, s->allocator);
    for (uint32_t q = 0; q < n_ids && p->kept; q++)
        kvb_spans_free(&p->kept[q], s->allocator);
    kvb_free(s->allocator, p->kept, n_ids * sizeof *p->kept);
    kvb_free(s->allocator, p->next, n_ids * sizeof *p->next);
    kvb_free(s->allocator, p->node_cells, p->node_cells_room * sizeof *p->node_cells);
    kvb_free(s->allocator, p->keys_reordered, p->keys_room * sizeof *p->keys_reordered);
    if (p->finds)
        kvb_prefix_close(&p->prefix, s->allocator);
}

static int store_open(kvb_store *s)
{
    paged_store *p = (paged_store *)s;
    const uint64_t pages = pages_most(s);
    if (pages * page_cells(s) > UINT32_MAX)
        return kvb_store_fail(s, -EINVAL, "%llu pages of %u cells are more than cells have numbers",
                              (unsigned long long)pages, page_cells(s));
    p->n_pages = (uint32_t)pages;
    p->refs = kvb_alloc_zeroed(s->allocator, pages * sizeof *p->refs);
    p->tables = kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *p->tables);
    p->adds = kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *p->adds);
    p->kept = drops(s) ? kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *p->kept) : NULL;
    p->next = drops(s) ? kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *p->next) : NULL;
    p->finds = finds(s);
    const uint64_t budget = s->options->prefix_bytes / (s->cell_bytes * page_cells(s));
    const bool bounded = s->options->prefix_bytes && budget < pages;
    int error = p->finds ? kvb_prefix_open(&p->prefix, s->allocator, p->n_pages, page_cells(s), s->account->n_ids,
                                           (uint32_t)(bounded ? budget : pages), s->options->hash_bits)
                         : 0;
    if (!error && p->refs && p->tables && p->adds && (!drops(s) || (p->kept && p->next)))
        return 0;
    store_close(s);
    return kvb_store_fail(s, -ENOMEM, "no memory for the tables of %llu pages", (unsigned long long)pages);
}

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    const paged_store *p = (const paged_store *)s;
    *cells = p->live * page_cells(s);
    *high_water = p->high_water * page_cells(s);
}

/* ---- control calls ----------------------------------------------------------------------------------------------- */

/* Finds the lowest entry from *entry on in which one of these positions is held. */
static bool entry_find(const kvb_spans *held, uint32_t n, kvb_run positions, uint32_t *entry)
{
    for (size_t i = 0; i < held->n; i++) {
        const uint32_t begin = positions.begin > *entry * n ? positions.begin : *entry * n;
        const kvb_span part = kvb_span_clip(held->span[i], begin, positions.end);
        if (part.n) {
            *entry = part.pos / n;
            return true;
        }
    }
    return false;
}

/* Uncounts (by -1) the pages that the next queries of live sequences do not need, or counts them again (by 1). Tables
 * do not change. */
static void pages_release(paged_store *p, int by)
{
    const kvb_account *a = p->store.account;
    for (uint32_t i = 0; i < a->n_alive && p->kept; i++) {
        const kvb_run gone = paged_unneeded(&p->store, kvb_spans_next(&a->seq[a->alive[i]]));
        for (uint32_t entry = 0; entry_find(&p->kept[a->alive[i]], page_cells(&p->store), gone, &entry); entry++)
            paged_count(p, page_at(p, a->alive[i], entry), by);
    }
}

#define COPIES 0x80000000u /* in p->adds: the sequence's first new token needs a copy of a page */

/* The position whose place a sequence's next token or node takes. */
static uint32_t next_slot(const kvb_store *s, uint32_t seq)
{
    return kvb_spans_next(&s->account->seq[seq]) + s->account->pending[seq];
}

/* A step gets room for all its tokens, or none: counts the pages that they begin, and those that it copies. */
static uint32_t room(const kvb_store *s, const kvb_change *change)
{
    paged_store *p = (paged_store *)(uintptr_t)s; /* counts are changed, and restored */
    const uint32_t n = page_cells(s);
    uint32_t wanted = 0;
    if (change->n > s->pool_cells) /* may be absurd */
        return 0;
    pages_release(p, -1);
    for (uint32_t i = 0; i < change->n; i++) {
        const uint32_t seq = kvb_change_seq(change, i), next = next_slot(s, seq);
        const uint32_t added = p->adds[seq]++ & ~COPIES, page = page_at(p, seq, next / n);
        if (page == PAGE_NONE || added) {
            wanted += (next + added) % n == 0 || !added;
        } else if (p->refs[page] > 1) {
            p->refs[page]--;
            p->adds[seq] |= COPIES;
            wanted++;
        }
    }
    for (uint32_t i = 0; i < change->n; i++) {
        const uint32_t seq = kvb_change_seq(change, i);
        if (p->adds[seq] & COPIES)
            p->refs[page_at(p, seq, next_slot(s, seq) / n)]++;
        p->adds[seq] = 0;
    }
    const bool fits = wanted <= p->n_pages - p->live;
    pages_release(p, 1);
    return fits ? change->n : 0;
}

static void undo(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    paged_store *p = (paged_store *)s;
    (void)plan;
    for (uint32_t i = 0; p->kept && change->kind == KVB_CHANGE_STEP && i < feed->n; i++)
        kvb_spans_cut(&p->kept[feed->seqs[i]], feed->positions[i], KVB_POS_END);
    if (p->kept && change->kind == KVB_CHANGE_LOAD && change->src != KVB_SEQ_ALL)
        kvb_spans_cut(&p->kept[change->src], 0, KVB_POS_END);
    p->undoes = true;
    for (; p->n_changes; p->n_changes--) {
        const entry_change *c = &p->changes[p->n_changes - 1];
        paged_put(p, c->seq, c->entry, c->was);
    }
    p->undoes = false;
}

/* In a group with limits: drops from tables the pages that no query needs any more, and adds the new tokens to the kept
 * rows. Nodes are no tokens yet. */
static int kept_prepare(paged_store *p, const kvb_feed *feed, bool nodes)
{
    const kvb_account *a = p->store.account;
    int error = 0;
    if (!p->kept)
        return 0;
    kvb_queries_find(&p->store, nodes ? NULL : feed, p->store.account->alive, p->store.account->n_alive, p->next);
    for (uint32_t i = 0; i < a->n_alive && !error; i++) {
        const kvb_run gone = paged_unneeded(&p->store, p->next[a->alive[i]]);
        kvb_spans *kept = &p->kept[a->alive[i]];
        for (uint32_t entry = 0; !error && entry_find(kept, page_cells(&p->store), gone, &entry); entry++)
            error = kvb_paged_change(p, a->alive[i], entry, PAGE_NONE);
    }
    for (uint32_t i = 0; i < feed->n && !nodes && !error; i++) {
        kvb_spans *kept = &p->kept[feed->seqs[i]];
        error = kvb_spans_reserve(kept, p->store.allocator, 1);
        if (!error)
            kvb_spans_append(kept, feed->positions[i], feed->positions[i]);
    }
    for (uint32_t i = 0; i < a->n_alive && !error; i++) /* dropping rows may split a span */
        error = kvb_spans_reserve(&p->kept[a->alive[i]], p->store.allocator, a->pending[a->alive[i]] + (size_t)1);
    return error;
}

/* Queries see page tables if no sequence of the step has holes, else runs. */
static int step_prepare(paged_store *p, const kvb_feed *feed, kvb_plan *plan)
{
    const kvb_store *s = &p->store;
    const uint32_t n = page_cells(s);
    bool whole = true;
    int error = 0;
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        const uint32_t seq = feed->seqs[i], pos = feed->positions[i];
        error = paged_own(p, seq, pos / n, pos);
        if (!error)
            plan->cells[i] = page_at(p, seq, pos / n) * n + pos % n;
        whole = whole && s->account->seq[seq].tokens == kvb_spans_next(&s->account->seq[seq]);
    }
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        const uint32_t seq = feed->seqs[i], pos = feed->positions[i];
        if (whole)
            error = kvb_plan_attend_pages(plan, s->group, p->tables[seq].page, n, pos);
        if (!whole && (i == 0 || seq != feed->seqs[i - 1]))
            error = paged_cells(p, seq);
        if (!whole && !error)
            error = kvb_plan_attend(plan, s->group, &p->cells, pos);
    }
    return error;
}

/* Shares a page if the destination's entry is empty; else copies rows into the destination's own page. */
static int copy_prepare(paged_store *p, const kvb_change *change)
{
    const kvb_spans *src = kvb_paged_held(p, change->src);
    const uint32_t n = page_cells(&p->store);
    int error = p->kept ? kvb_spans_reserve(&p->kept[change->dst], p->store.allocator, src->n) : 0;
    for (size_t i = 0; i < src->n; i++) {
        const kvb_span part = kvb_span_clip(src->span[i], change->p0, change->p1);
        for (uint32_t pos = part.pos, end = pos + part.n, some; pos < end && !error; pos += some) {
            const uint32_t entry = pos / n, page = page_at(p, change->src, entry), to = page_at(p, change->dst, entry);
            some = n - pos % n < end - pos ? n - pos % n : end - pos;
            if (to == page)
                continue;
            if (to == PAGE_NONE) {
                error = kvb_paged_change(p, change->dst, entry, page);
                continue;
            }
            error = paged_own(p, change->dst, entry, (entry + 1) * n);
            if (!error)
                error = rows_move(p, change->src, pos, pos + some, page, page_at(p, change->dst, entry));
        }
    }
    return error;
}

/* ---- all kinds of changes ---------------------------------------------------------------------------------------- */

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    paged_store *p = (paged_store *)s;
    int error = 0;
    p->n_changes = 0;
    if (p->kept)
        error = kvb_kept_check(s, change, p->kept);
    for (uint32_t i = 0; i < s->account->n_changed && p->kept && change->kind == KVB_CHANGE_REMOVE && !error; i++)
        error = kvb_spans_reserve(&p->kept[s->account->changed[i]], s->allocator, 1);
    if (feed && !error)
        error = kept_prepare(p, feed, change->kind == KVB_CHANGE_PROPOSE);
    if (change->kind == KVB_CHANGE_STEP && !error)
        error = step_prepare(p, feed, plan);
    if (change->kind == KVB_CHANGE_PROPOSE && !error)
        error = paged_propose_prepare(p, feed, plan);
    if (change->kind == KVB_CHANGE_COMMIT && !error)
        error = paged_commit_prepare(p, change);
    if (change->kind == KVB_CHANGE_COPY && !error)
        error = copy_prepare(p, change);
    if (change->kind == KVB_CHANGE_MATCH && !error)
        error = kvb_paged_match_prepare(p, change);
    if (change->kind == KVB_CHANGE_REORDER && !error)
        error = paged_reorder_prepare(p, change);
    if (change->kind == KVB_CHANGE_LOAD && !error)
        error = paged_load_prepare(p, change);
    if (error)
        undo(s, change, feed, plan);
    return error;
}

static void adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    paged_store *p = (paged_store *)s;
    const kvb_account *a = s->account;
    (void)plan;
    if (p->finds)
        kvb_paged_note(p, change, feed);
    if (p->kept && feed)
        for (uint32_t i = 0; i < a->n_alive; i++) {
            const kvb_run gone = paged_unneeded(s, p->next[a->alive[i]]);
            kvb_spans_cut(&p->kept[a->alive[i]], gone.begin, gone.end);
        }
    if (p->kept && change->kind == KVB_CHANGE_COPY)
        kvb_spans_add(&p->kept[change->dst], &p->kept[change->src], change->p0, change->p1);
    for (uint32_t i = 0; i < a->n_changed && change->kind == KVB_CHANGE_REMOVE; i++) {
        if (p->kept)
            kvb_spans_cut(&p->kept[a->changed[i]], change->p0, change->p1);
        paged_entries_drop(p, a->changed[i], change->p0, change->p1);
        if (p->finds && !a->seq[a->changed[i]].tokens)
            p->prefix.extra_keys[a->changed[i]] = 0;
    }
    if (change->kind == KVB_CHANGE_COMMIT)
        paged_commit(p, change);
    for (uint32_t q = 0; change->drops_nodes && p->nodes && q < a->n_ids; q++) /* a sequence may have only nodes */
        paged_entries_drop(p, q, 0, KVB_POS_END);
    p->nodes = a->n_nodes > 0;
    if (change->kind == KVB_CHANGE_REORDER)
        paged_reorder(p, change);
    if (change->kind == KVB_CHANGE_LOAD && change->src == KVB_SEQ_ALL)
        paged_load(p, change->loaded);
}

/* What both caches have. */
#define PAGED                                                                                                          \
    .store_bytes = sizeof(paged_store), .open = store_open, .close = store_close, .pool_cells = pool_cells,            \
    .occupied = occupied, .room = room, .lies = paged_lies, .prepare = prepare, .undo = undo, .adopt = adopt

const kvb_cache_type kvb_cache_paged = {
    .name = "paged",
    .summary =
        "pages that sequences share, counted; copied when one writes what others hold, too; dropped behind a window",
    .flags = KVB_CACHE_SEQ | KVB_CACHE_REORDER | KVB_CACHE_TREE | KVB_CACHE_SAVES | KVB_CACHE_PAGES,
    PAGED,
};

const kvb_cache_type kvb_cache_paged_prefix = {
    .name = "paged-prefix",
    .summary = "as paged; pages of a prompt are found again by what they hold, the least recently used go first",
    .flags = KVB_CACHE_SEQ | KVB_CACHE_REORDER | KVB_CACHE_PREFIX | KVB_CACHE_SAVES | KVB_CACHE_PAGES,
    .match = kvb_paged_match,
    PAGED,
};
