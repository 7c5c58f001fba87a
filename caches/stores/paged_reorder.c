/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that take each other's places. */
#include "caches/stores/paged.h"

#include <errno.h>
#include <string.h>

void kvb_paged_reordered_free(paged_store *p)
{
    for (uint32_t i = 0; i < p->n_reordered; i++)
        table_free(p, &p->reordered[i]);
    kvb_free(p->store.allocator, p->reordered, p->n_reordered * sizeof *p->reordered);
    p->reordered = NULL;
    p->n_reordered = 0;
}

/* Copies of the sources' tables. */
int kvb_paged_reorder_prepare(paged_store *p, const kvb_change *change)
{
    const uint32_t n = change->n;
    kvb_paged_reordered_free(p);
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
        kvb_paged_reordered_free(p);
    return error;
}

/* Pages are counted for their destinations before any is let go of. */
void kvb_paged_reorder(paged_store *p, const kvb_change *change)
{
    for (uint32_t i = 0; i < change->n; i++)
        for (size_t entry = 0; entry < p->reordered[i].room; entry++)
            kvb_paged_count(p, p->reordered[i].page[entry], 1);
    for (uint32_t i = 0; i < change->n; i++) {
        page_table *t = &p->tables[change->dsts[i]], old = *t;
        for (size_t entry = old.room; entry-- > 0;) /* the last one first */
            kvb_paged_count(p, old.page[entry], -1);
        if (p->finds)
            p->prefix.extra_keys[change->dsts[i]] = p->keys_reordered[i];
        *t = p->reordered[i];
        p->reordered[i] = old;
    }
    kvb_paged_reordered_free(p);
    if (p->kept)
        kvb_spans_scatter(&p->kept_reordered, p->store.allocator, p->kept, change->dsts);
}
