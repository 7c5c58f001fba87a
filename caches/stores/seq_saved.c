/* SPDX-License-Identifier: Apache-2.0 */
/* Cells that sequences share, saved and loaded. */
#include "caches/stores/kept.h"
#include "caches/stores/seq.h"

#include <errno.h>

int kvb_seq_lies(kvb_store *s, uint32_t seq, kvb_spans *cells)
{
    const kvb_spans *held = &((seq_store *)s)->cells[seq];
    if (kvb_spans_reserve(cells, s->allocator, held->n))
        return -ENOMEM;
    kvb_spans_add(cells, held, 0, KVB_POS_END);
    return 0;
}

/* The cell of a token's row, bit by bit that of the file, that some sequence alive holds; no cell: none does. */
static uint32_t cell_shared(const seq_store *c, kvb_span token, uint32_t row)
{
    const kvb_account *a = c->store.account;
    const bool states = kvb_group_scans(c->store.group); /* those of the last tokens */
    for (uint32_t i = 0; i < a->n_alive; i++) {
        const kvb_spans *tokens = &a->seq[a->alive[i]], *cells = &c->cells[a->alive[i]];
        kvb_spans_cursor lies = {0}, at = kvb_spans_from(tokens, states ? tokens->tokens - cells->tokens : 0);
        kvb_span same, cell;
        do { /* tokens of one position lie in the order in which they are held */
            same = kvb_spans_next_at(tokens, &at, token.pos);
            cell = kvb_spans_next_at(cells, &lies, token.pos);
        } while (same.n && same.at != token.at);
        if (same.n && cell.n && kvb_store_holds(&c->store, row, (uint32_t)cell.at))
            return (uint32_t)cell.at;
    }
    return UINT32_MAX;
}

typedef struct placed {
    uint32_t pos, row, cell; /* of a token that is loaded */
} placed;

/* Rows that are still there are shared, those that no query can see again stay away, for the others cells are taken. */
static int rows_place(seq_store *c, const kvb_spans *tokens, uint32_t dst, placed *all, uint32_t *picked)
{
    kvb_store *s = &c->store;
    const kvb_spans *rows = s->load->rows;
    const uint32_t needed = ((seq_store *)s)->drops ? kvb_needed_from(s, kvb_spans_next(tokens)) : 0;
    uint32_t n = 0, fresh = 0;
    kvb_spans_cursor cursor = kvb_spans_from(tokens, kvb_group_scans(s->group) ? tokens->tokens - rows->tokens : 0);
    int error = 0;
    for (size_t i = 0; i < rows->n; i++)
        for (uint32_t pos = rows->span[i].pos, row = (uint32_t)rows->span[i].at;
             pos < rows->span[i].pos + rows->span[i].n; pos++, row++) {
            const kvb_span token = kvb_spans_next_at(tokens, &cursor, pos);
            if (pos >= s->group->sinks && pos < needed)
                continue;
            all[n] = (placed){pos, row, cell_shared(c, token, row)};
            fresh += all[n++].cell == UINT32_MAX;
        }
    if (fresh > s->pool_cells - c->live)
        return kvb_store_fail(s, -ENOSPC, "no room for %u rows: %u of %u cells are in use", fresh, c->live,
                              s->pool_cells);
    kvb_seq_pick(c, fresh, picked);
    for (uint32_t i = 0, next = 0; i < n && !error; i++) {
        if (all[i].cell == UINT32_MAX) {
            all[i].cell = picked[next++];
            error = kvb_store_move(s, all[i].row, all[i].cell);
        }
        if (!error)
            error = kvb_spans_reserve(&c->cells[dst], s->allocator, 1);
        if (!error)
            kvb_spans_append(&c->cells[dst], all[i].pos, all[i].cell);
    }
    return error ? error : kvb_seq_reserve(c, fresh ? picked[fresh - 1] + 1 : 0);
}

int kvb_seq_load_prepare(seq_store *c, const kvb_change *change)
{
    kvb_store *s = &c->store;
    const kvb_account *loaded = change->loaded;
    const uint32_t n = s->load->n_rows;
    int error = 0;
    if (change->src == KVB_SEQ_ALL) {
        for (uint32_t i = 0; i < loaded->n_alive && !error; i++)
            error = kvb_spans_reserve(&c->cells[loaded->alive[i]], s->allocator, s->load->rows[i].n);
        return error || !n ? error : kvb_seq_reserve(c, s->load->cell[n - 1] + 1);
    }
    if (!loaded->n_alive)
        return 0;
    placed *all = kvb_alloc(s->allocator, (n + 1) * sizeof *all);
    uint32_t *picked = kvb_alloc(s->allocator, (n + 1) * sizeof *picked);
    error = all && picked ? rows_place(c, &loaded->seq[change->src], change->src, all, picked) : -ENOMEM;
    kvb_free(s->allocator, all, (n + 1) * sizeof *all);
    kvb_free(s->allocator, picked, (n + 1) * sizeof *picked);
    return error;
}

/* Of one sequence the spans are there already. */
void kvb_seq_load(seq_store *c, const kvb_change *change, bool whole)
{
    const kvb_account *a = c->store.account, *loaded = change->loaded;
    for (uint32_t i = 0; i < a->n_changed && whole; i++) {
        kvb_seq_hold(c, a->changed[i], 0, KVB_POS_END, false);
        kvb_spans_cut(&c->cells[a->changed[i]], 0, KVB_POS_END);
    }
    for (uint32_t i = 0; i < loaded->n_alive; i++) {
        kvb_spans *cells = &c->cells[loaded->alive[i]];
        if (whole)
            kvb_spans_add(cells, &c->store.load->rows[i], 0, KVB_POS_END);
        kvb_seq_hold(c, loaded->alive[i], 0, KVB_POS_END, true);
        for (size_t j = 0; j < cells->n; j++) {
            const uint32_t end = (uint32_t)cells->span[j].at + cells->span[j].n;
            c->high_water = c->high_water > end ? c->high_water : end;
        }
    }
}
