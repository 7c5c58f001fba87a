/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that are saved and loaded. */
#include "caches/stores/paged.h"

#include <errno.h>

int kvb_paged_lies(kvb_store *s, uint32_t seq, kvb_spans *cells)
{
    paged_store *p = (paged_store *)s;
    int error = kvb_paged_cells(p, seq);
    if (!error)
        error = kvb_spans_reserve(cells, s->allocator, p->cells.n);
    for (size_t i = 0; i < p->cells.n && !error; i++) {
        cells->span[cells->n++] = p->cells.span[i];
        cells->tokens += p->cells.span[i].n;
    }
    return error;
}

/* Of the whole cache: do the cells of a sequence lie in pages, each entry in one? */
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

/* A sequence gets pages of its own; of the whole cache tables are as they were. */
int kvb_paged_load_prepare(paged_store *p, const kvb_change *change)
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
            error = error ? error : kvb_paged_reserve(p, seq, kvb_spans_next(rows) / n + 1);
            continue;
        }
        const kvb_run gone =
            p->kept ? kvb_paged_unneeded(s, kvb_spans_next(&change->loaded->seq[seq])) : (kvb_run){0, 0};
        for (size_t j = 0; j < rows->n; j++)
            for (uint32_t k = 0, pos = rows->span[j].pos; k < rows->span[j].n && !error; k++, pos++) {
                if (pos >= gone.begin && pos < gone.end)
                    continue;
                if (p->kept)
                    kvb_spans_append(&p->kept[seq], pos, pos);
                error = kvb_paged_own(p, seq, pos / n, pos);
                if (!error)
                    error = kvb_store_move(s, (uint32_t)rows->span[j].at + k, page_at(p, seq, pos / n) * n + pos % n);
            }
    }
    return error;
}

void kvb_paged_load(paged_store *p, const kvb_account *loaded)
{
    const kvb_store *s = &p->store;
    const uint32_t n = page_cells(s);
    for (uint32_t i = 0; i < s->account->n_changed; i++) {
        const uint32_t seq = s->account->changed[i];
        for (size_t entry = p->tables[seq].room; entry-- > 0;) /* the last one first */
            kvb_paged_put(p, seq, (uint32_t)entry, PAGE_NONE);
        if (p->kept)
            kvb_spans_cut(&p->kept[seq], 0, KVB_POS_END);
    }
    for (uint32_t i = 0; i < loaded->n_alive; i++)
        for (size_t j = 0; j < s->load->rows[i].n; j++) {
            const kvb_span *span = &s->load->rows[i].span[j];
            for (uint32_t k = 0, pos = span->pos; k < span->n; k++, pos++) {
                if (page_at(p, loaded->alive[i], pos / n) == PAGE_NONE)
                    kvb_paged_put(p, loaded->alive[i], pos / n, (uint32_t)((span->at + k) / n));
                if (p->kept)
                    kvb_spans_append(&p->kept[loaded->alive[i]], pos, pos);
            }
        }
}
