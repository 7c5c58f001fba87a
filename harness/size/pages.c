/* SPDX-License-Identifier: Apache-2.0 */
/* Pages, taken and given back. */
#include "harness/size/pages.h"

#include <stdlib.h>

uint64_t kvb_size_pages_most(const kvb_cache_options *o, const kvb_group *g, uint64_t page, bool drops)
{
    const uint64_t all = ((uint64_t)o->capacity + page - 1) / page + (page > 1 ? 2 * (uint64_t)o->max_seqs : 0);
    const uint64_t needed = (uint64_t)g->window + g->chunk - 1 + o->rollback, step = o->step ? o->step : o->capacity;
    /* With the end of the page before and the beginning of the one after; the sinks lie at a page's beginning. */
    const uint64_t kept = (needed + 2 * (page - 1)) / page + (g->sinks + page - 1) / page;
    const uint64_t firsts = o->max_seqs < step ? o->max_seqs : step;
    const uint64_t bound = o->max_seqs * kept + firsts + (step - firsts) / page;
    return drops && bound < all ? bound : all;
}

int kvb_size_pages_drop(kvb_size_pages *pages, kvb_size_pieces *table, const kvb_group *g, uint64_t page,
                        uint64_t needed, uint64_t *n)
{
    const uint64_t from = (g->sinks + page - 1) / page, to = needed / page;
    for (size_t i = 0; i < table->n; i++)
        for (uint64_t entry = table->at[i].pos; entry < table->at[i].pos + table->at[i].n; entry++)
            *n += entry >= from && entry < to;
    kvb_size_cells_give(&pages->in_use, table, from, to);
    return kvb_size_pieces_drop(table, from, to);
}

bool kvb_size_page_keyed(const kvb_size_pages *pages, uint64_t page)
{
    return page / 64 < pages->keyed.room && pages->keyed.used[page / 64] >> page % 64 & 1;
}

/* It is to hold something else, or nothing. */
static void page_forget(kvb_size_pages *pages, uint64_t page)
{
    if (page / 64 < pages->keyed.room)
        pages->keyed.used[page / 64] &= ~(UINT64_C(1) << page % 64);
}

void kvb_size_page_find(kvb_size_pages *pages, uint64_t page)
{
    kvb_size_pieces *stay = &pages->stay;
    size_t kept = 0;
    for (size_t i = 0; i < stay->n; i++)
        if (stay->at[i].cell != page)
            stay->at[kept++] = stay->at[i];
    stay->n = kept;
}

int kvb_size_page_leave(kvb_size_pages *pages, uint64_t page, uint64_t budget)
{
    if (!kvb_size_page_keyed(pages, page))
        return 0;
    const int error = kvb_size_piece_put(&pages->stay, 0, page, 1);
    for (; pages->stay.n > budget && !error; kvb_size_page_find(pages, pages->stay.at[0].cell))
        page_forget(pages, pages->stay.at[0].cell);
    return error;
}

int kvb_size_page_take(kvb_size_pages *pages, kvb_size_pieces *table, uint64_t entry, uint64_t most)
{
    const bool none = pages->stay.n && kvb_size_cells_full(&pages->in_use, most);
    uint64_t page = none ? pages->stay.at[0].cell : 0;
    int error = none ? 0 : kvb_size_cells_take(&pages->in_use, 1, most, &pages->taken);
    if (error)
        return error;
    page = none ? page : pages->taken.at[0].cell;
    kvb_size_page_find(pages, page);
    page_forget(pages, page);
    return kvb_size_piece_add(table, entry, page, 1);
}

uint64_t kvb_size_prefix_bytes(uint64_t pages, uint64_t page_cells, uint64_t n_ids)
{
    enum { KEY = 2 * 8 + 5 * 4 + 4, TOKEN = 4, ORDINAL = 8, BUCKET = 4, EXTRA_KEY = 8 };
    uint64_t buckets = 16;
    while (buckets < pages && buckets < UINT64_C(1) << 31)
        buckets *= 2;
    return (pages + 1) * KEY + pages * page_cells * (TOKEN + ORDINAL) + buckets * BUCKET + n_ids * EXTRA_KEY;
}

void kvb_size_pages_free(kvb_size_pages *pages)
{
    free(pages->in_use.used);
    free(pages->keyed.used);
    free(pages->stay.at);
    free(pages->taken.at);
}
