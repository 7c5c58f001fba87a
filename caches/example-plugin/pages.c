/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An example of a cache: "pages". Cells come in pages of 16. Each sequence has a page table and pages of its own; a
 * fork copies rows. In contrast to slab's long rows, no cells are reserved that no sequence needs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "caches/plugin.h"

#define PAGE 16u /* cells */

/* Of one sequence. */
typedef struct page_table {
    uint32_t *page; /* of positions 16 i .. 16 i + 15, + 1; 0: none */
    size_t room;    /* entries */
    uint32_t adds;  /* scratch of room(): tokens of the step; else 0 */
} page_table;

typedef struct pages_store {
    kvb_store store;
    uint32_t n_pages;
    uint8_t *used;     /* [n_pages] is it in a table? */
    page_table *table; /* [n_ids] */
    kvb_spans cells;   /* of one sequence, for plans */
    struct taken {
        uint32_t seq, entry;
    } * taken; /* entries that the current call has filled */
    size_t n_taken, taken_room;
} pages_store;

/* The pages of `capacity` cells, and one for each sequence, whose last page is partly empty. */
static uint64_t pool_cells(const kvb_store *s)
{
    return ((uint64_t)s->options->capacity + PAGE - 1) / PAGE * PAGE + (uint64_t)PAGE * s->options->max_seqs;
}

static void store_close(kvb_store *s)
{
    pages_store *p = (pages_store *)s;
    for (uint32_t q = 0; q < s->account->n_ids && p->table; q++)
        kvb_free(s->allocator, p->table[q].page, p->table[q].room * sizeof *p->table[q].page);
    kvb_free(s->allocator, p->table, s->account->n_ids * sizeof *p->table);
    kvb_free(s->allocator, p->taken, p->taken_room * sizeof *p->taken);
    kvb_free(s->allocator, p->used, p->n_pages);
    kvb_spans_free(&p->cells, s->allocator);
}

static int store_open(kvb_store *s)
{
    pages_store *p = (pages_store *)s;
    p->n_pages = (uint32_t)(pool_cells(s) / PAGE);
    p->used = kvb_alloc_zeroed(s->allocator, p->n_pages);
    p->table = kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *p->table);
    if (p->used && p->table)
        return 0;
    store_close(s);
    return kvb_store_fail(s, -ENOMEM, "no memory for %u pages", p->n_pages);
}

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    const pages_store *p = (const pages_store *)s;
    *cells = s->account->held;
    *high_water = 0;
    for (uint32_t i = 0; i < p->n_pages; i++)
        if (p->used[i])
            *high_water = (i + 1) * PAGE;
}

static uint32_t pages_free(const pages_store *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_pages; i++)
        n += !p->used[i];
    return n;
}

/* A step gets room for all its tokens, or none. A sequence needs a new page for its next token if its last page is
 * full. */
static uint32_t room(const kvb_store *s, const kvb_change *change)
{
    const pages_store *p = (const pages_store *)s;
    uint32_t wanted = 0, cells, high_water;
    for (uint32_t i = 0; i < change->n; i++)
        p->table[kvb_change_seq(change, i)].adds++;
    for (uint32_t i = 0; i < change->n; i++) {
        uint32_t q = kvb_change_seq(change, i), next = kvb_spans_next(&s->account->seq[q]);
        wanted += (next + p->table[q].adds + PAGE - 1) / PAGE - (next + PAGE - 1) / PAGE;
        p->table[q].adds = 0;
    }
    occupied(s, &cells, &high_water);
    bool fits = wanted <= pages_free(p) && change->n <= s->options->capacity - cells;
    return fits ? change->n : 0;
}

/* Finds the cell of a position; takes a page if the table has none there. 0 or a negative errno. */
static int cell_take(pages_store *p, uint32_t seq, uint32_t pos, uint32_t *cell)
{
    kvb_store *s = &p->store;
    page_table *table = &p->table[seq];
    size_t had = table->room, entry = pos / PAGE;
    int error = kvb_grow(s->allocator, &table->page, &table->room, entry + 1);
    if (error)
        return error;
    memset(table->page + had, 0, (table->room - had) * sizeof *table->page); /* before anything else can fail */
    error = kvb_grow(s->allocator, &p->taken, &p->taken_room, p->n_taken + 1);
    if (error)
        return error;
    if (!table->page[entry]) {
        uint32_t page = 0;
        while (page < p->n_pages && p->used[page])
            page++;
        if (page == p->n_pages)
            return kvb_store_fail(s, -ENOSPC, "no page is free: all %u are in use", p->n_pages);
        p->used[page] = 1;
        table->page[entry] = page + 1;
        p->taken[p->n_taken++] = (struct taken){seq, (uint32_t)entry};
    }
    *cell = (table->page[entry] - 1) * PAGE + pos % PAGE;
    return 0;
}

static void undo(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    pages_store *p = (pages_store *)s;
    (void)change, (void)feed, (void)plan;
    for (; p->n_taken > 0; p->n_taken--) {
        struct taken *t = &p->taken[p->n_taken - 1];
        p->used[p->table[t->seq].page[t->entry] - 1] = 0;
        p->table[t->seq].page[t->entry] = 0;
    }
}

/* Lists the cells of all positions of a sequence in p->cells. */
static int cells_find(pages_store *p, uint32_t seq)
{
    const kvb_spans *held = &p->store.account->seq[seq];
    p->cells.n = p->cells.tokens = 0;
    for (size_t i = 0; i < held->n; i++)
        for (uint32_t j = 0; j < held->span[i].n; j++) {
            uint32_t pos = held->span[i].pos + j, cell;
            int error = cell_take(p, seq, pos, &cell);
            if (!error)
                error = kvb_spans_reserve(&p->cells, p->store.allocator, 1);
            if (error)
                return error;
            kvb_spans_append(&p->cells, pos, cell);
        }
    return 0;
}

static int step_prepare(pages_store *p, const kvb_feed *feed, kvb_plan *plan)
{
    int error = 0;
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        error = cell_take(p, feed->seqs[i], feed->positions[i], &plan->cells[i]);
        if (!error && (i == 0 || feed->seqs[i] != feed->seqs[i - 1]))
            error = cells_find(p, feed->seqs[i]);
        if (!error)
            error = kvb_plan_attend(plan, p->store.group, &p->cells, feed->positions[i]);
    }
    return error;
}

static int copy_prepare(pages_store *p, const kvb_change *change)
{
    const kvb_spans *src = &p->store.account->seq[change->src];
    uint32_t cells, high_water, n = 0, from, to;
    int error = 0;
    for (size_t i = 0; i < src->n; i++)
        n += kvb_span_clip(src->span[i], change->p0, change->p1).n;
    occupied(&p->store, &cells, &high_water);
    if (n > p->store.options->capacity - cells)
        return kvb_store_fail(&p->store, -ENOSPC, "no room to copy %u tokens", n);
    for (size_t i = 0; i < src->n; i++) {
        kvb_span part = kvb_span_clip(src->span[i], change->p0, change->p1);
        for (uint32_t pos = part.pos; pos < part.pos + part.n && !error; pos++) {
            error = cell_take(p, change->src, pos, &from);
            if (!error)
                error = cell_take(p, change->dst, pos, &to);
            if (!error)
                error = kvb_store_move(&p->store, from, to);
        }
    }
    return error;
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    pages_store *p = (pages_store *)s;
    int error = 0;
    p->n_taken = 0;
    if (change->kind == KVB_CHANGE_STEP)
        error = step_prepare(p, feed, plan);
    if (change->kind == KVB_CHANGE_COPY)
        error = copy_prepare(p, change);
    if (error)
        undo(s, change, feed, plan);
    return error;
}

/* Frees the pages in which sequences hold nothing any more after a REMOVE. */
static void adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    pages_store *p = (pages_store *)s;
    (void)feed, (void)plan;
    for (uint32_t c = 0; c < s->account->n_changed && change->kind == KVB_CHANGE_REMOVE; c++) {
        const page_table *table = &p->table[s->account->changed[c]];
        const kvb_spans *left = &s->account->seq[s->account->changed[c]];
        for (size_t entry = 0; entry < table->room; entry++) {
            uint32_t held = 0, first = (uint32_t)entry * PAGE;
            for (size_t i = 0; i < left->n; i++)
                held += kvb_span_clip(left->span[i], first, first + PAGE).n;
            if (held || !table->page[entry])
                continue;
            p->used[table->page[entry] - 1] = 0;
            table->page[entry] = 0;
        }
    }
}

static const kvb_cache_type pages = {
    .name = "pages",
    .summary = "an example: pages of 16 cells, a table for each sequence; a fork copies",
    .flags = KVB_CACHE_SEQ,
    .store_bytes = sizeof(pages_store),
    .open = store_open,
    .close = store_close,
    .pool_cells = pool_cells,
    .occupied = occupied,
    .room = room,
    .prepare = prepare,
    .undo = undo,
    .adopt = adopt,
};

static const kvb_cache_type *const caches[] = {&pages, NULL};
KVB_PLUGIN_EXPORT const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "pages", .caches = caches};
