/* SPDX-License-Identifier: Apache-2.0 */
/* What calls other than steps allocate: sequences that leave and come again, trade places, or begin as others did. */
#include <errno.h>
#include <stdlib.h>

#include "harness/size/fronts.h"
#include "workloads/array.h"

/* ---- who holds what -------------------------------------------------------------------------------------------------- */

int kvb_size_cells_held(const kvb_size_prediction *p, const kvb_size_group_tables *t, kvb_size_cells *cells)
{
    int error = 0;
    for (uint32_t q = 0; q < p->n_ids && !error; q++)
        error = kvb_size_cells_mark(cells, &t->seq[q].held, 0, 0);
    return error;
}

uint64_t kvb_size_cell_holders(const kvb_size_prediction *p, const kvb_size_group_tables *t, uint64_t cell)
{
    uint64_t n = 0;
    for (uint32_t q = 0; q < p->n_ids; q++)
        for (size_t i = 0; i < t->seq[q].held.n; i++)
            n += cell >= t->seq[q].held.at[i].cell && cell - t->seq[q].held.at[i].cell < t->seq[q].held.at[i].n;
    return n;
}

void kvb_size_list_make(uint64_t *room, const kvb_size_pieces *made, uint64_t *all)
{
    const uint64_t most = made->n + (made->n && made->at[made->n - 1].n > 1);
    for (uint64_t n = 1; n <= most; n++)
        need_of(room, n, all);
}

uint64_t kvb_size_row_free(const kvb_size_prediction *p, const kvb_size_group_tables *t)
{
    const uint64_t capacity = p->subject->options.seq_capacity;
    bool taken = true;
    uint64_t row = 0;
    for (; taken; row += taken) {
        taken = false;
        for (uint32_t q = 0; q < p->n_ids && !taken; q++)
            taken = t->seq[q].held.n && t->seq[q].held.at[0].cell / capacity == row;
    }
    return row;
}

/* What is at a position of a list: the nth there, counted from 0. */
static bool piece_find(const kvb_size_pieces *list, uint64_t pos, uint64_t nth, uint64_t *at)
{
    for (size_t i = 0; i < list->n && list->at[i].pos <= pos; i++)
        if (pos - list->at[i].pos < list->at[i].n && !nth--) {
            *at = list->at[i].cell + (pos - list->at[i].pos);
            return true;
        }
    return false;
}

static uint64_t tokens_of(const kvb_size_pieces *list)
{
    uint64_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += list->at[i].n;
    return n;
}

/* Of slab: what a sequence holds comes to lie in the lowest free row, its own being free, too. */
static int row_change(const kvb_size_prediction *p, kvb_size_group_tables *t, uint32_t q)
{
    const uint64_t capacity = p->subject->options.seq_capacity;
    const kvb_size_pieces was = t->seq[q].held;
    int error = 0;
    t->seq[q].held = (kvb_size_pieces){0};
    const uint64_t row = kvb_size_row_free(p, t);
    for (size_t i = 0; i < was.n && !error; i++)
        error =
            kvb_size_piece_add(&t->seq[q].held, was.at[i].pos, row * capacity + was.at[i].cell % capacity, was.at[i].n);
    free(was.at);
    return error;
}

/* ---- save, remove, load ---------------------------------------------------------------------------------------------------- */

/* The cell, with another sequence, of a token of q: the nth at that position. */
static bool cell_shared(const kvb_size_prediction *p, const kvb_size_group_tables *t, uint32_t q, uint64_t pos,
                        uint64_t nth, uint64_t *cell)
{
    uint64_t own = 0, other;
    piece_find(&p->seq[q].ordinals, pos, nth, &own);
    for (uint32_t h = 0; h < p->n_ids; h++)
        for (uint64_t i = 0; h != q && piece_find(&p->seq[h].ordinals, pos, i, &other); i++)
            if (other == own && piece_find(&t->seq[h].held, pos, i, cell))
                return true;
    return false;
}

/* seq, window and states: rows that others hold are shared again, for the others cells are taken. */
static int shared_load(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t q)
{
    const kvb_size_pieces was = t->seq[q].held;
    const uint64_t from = kvb_size_drops(p, g) ? kvb_size_kept_from(&p->subject->options, g, p->seq[q].len) : 0;
    kvb_size_cells held = {0};
    kvb_size_pieces picked = {0};
    uint64_t cell = 0, fresh = 0, next = 0;
    t->seq[q].held = (kvb_size_pieces){0};
    int error = kvb_size_cells_held(p, t, &held);
    for (int place = 0; place < 2 && !error; place++) {
        uint64_t last = UINT64_MAX, nth = 0;
        for (size_t i = 0; i < was.n; i++)
            for (uint64_t pos = was.at[i].pos; pos < was.at[i].pos + was.at[i].n && !error; pos++) {
                if (pos >= g->sinks && pos < from)
                    continue;
                nth = pos == last ? nth + 1 : 0;
                last = pos;
                const bool shared = cell_shared(p, t, q, pos, nth, &cell);
                fresh += !place && !shared;
                if (!place)
                    continue;
                if (!shared)
                    piece_find(&picked, next++, 0, &cell);
                error = kvb_size_piece_add(&t->seq[q].held, pos, cell, 1);
            }
        if (!place && fresh && !error)
            error = kvb_size_cells_take(&held, fresh, kvb_size_pool_cells(p, g), &picked);
    }
    kvb_size_list_make(&t->seq[q].spans, &t->seq[q].held, &t->spans);
    climb(&t->moves, 0, 1, fresh);
    const kvb_size_piece *last = picked.n ? &picked.at[picked.n - 1] : NULL;
    need(&t->refs, last ? last->cell + last->n : 0);
    kvb_size_cells_ask(t, last ? last->cell + last->n : 0);
    free(was.at);
    free(held.used);
    free(picked.at);
    return error;
}

/* It gets pages of its own. What a step would let go of is not loaded. */
static int pages_load(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t q, uint64_t pieces)
{
    const uint64_t n = kvb_size_page_cells(p), len = p->seq[q].len;
    kvb_size_pieces was = t->seq[q].held;
    uint64_t changes = 0, copies = 0, gone = 0, rows = 0;
    kvb_size_pieces table = {0};
    int error = kvb_size_pages_key(p, t);
    error = error ? error : kvb_size_list_copy(&table, &was);
    if (!error && kvb_size_drops(p, g)) {
        need_of(&t->seq[q].spans, pieces + 1, &t->spans);
        error = kvb_size_pages_drop(&t->pages_in_use, &table, g, n, kvb_size_kept_from(&p->subject->options, g, len),
                                    &gone);
    }
    t->seq[q].held = (kvb_size_pieces){0};
    error = error ? error : kvb_size_pages_let_go(p, t, &was, 1);
    error = error ? error : kvb_size_pages_count(p, t);
    for (size_t i = 0; i < table.n; i++)
        for (uint64_t entry = table.at[i].pos; entry < table.at[i].pos + table.at[i].n && !error; entry++) {
            const uint64_t end = (entry + 1) * n < len ? (entry + 1) * n : len;
            error = kvb_size_page_own(p, t, g, q, entry, entry * n, &changes, &copies);
            rows += end - entry * n;
            kvb_size_cells_ask(t, kvb_size_page_cell(p, t, q, end - 1) + 1);
        }
    climb(&t->moves, 0, 1, rows);
    free(table.at);
    free(was.at);
    return error;
}

/* Of paged and slab, to be saved, a list is made of where a sequence lies: so many pieces. */
static int saved_list(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t q,
                      uint64_t *pieces)
{
    kvb_size_pieces lies = {0};
    int error = 0;
    *pieces = p->seq[q].ordinals.n;
    if (is(p, &kvb_cache_slab) && *pieces)
        need(&t->row_cells, *pieces);
    if (kvb_size_has_pages(p)) {
        error = kvb_size_pages_lie(p, t, g, q, &lies, pieces);
        climb(&t->page_pieces, 0, 1, *pieces);
    }
    free(lies.at);
    return error;
}

static int group_swap(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t q)
{
    const bool scans = kvb_group_scans(g), shares = is(p, &kvb_cache_seq) || is(p, &kvb_cache_window);
    uint64_t pieces = 0;
    int error = scans ? 0 : saved_list(p, t, g, q, &pieces);
    t->gaps = true;
    if (is(p, &kvb_cache_recompute) || error)
        return error;
    if (scans || shares) {
        need_of(&t->seq[q].spans, t->seq[q].held.n + 1, &t->spans);
        error = !t->seq[q].held.n ? 0 : shared_load(p, t, g, q);
        return error || !scans ? error : kvb_size_states_count(p, t);
    }
    if (kvb_size_has_pages(p) && kvb_size_drops(p, g))
        need_of(&t->seq[q].spans, kvb_size_page_stretches(&t->seq[q].held) + 1, &t->spans);
    if (kvb_size_has_pages(p))
        return p->seq[q].len ? pages_load(p, t, g, q, pieces) : 0;
    climb(&t->moves, 0, 1, tokens_of(&p->seq[q].ordinals));
    return is(p, &kvb_cache_slab) && t->seq[q].held.n ? row_change(p, t, q) : 0;
}

/* Distinct cells that sequences hold: rows of a file of the whole cache. */
static int rows_count(const kvb_size_prediction *p, const kvb_size_group_tables *t, uint64_t *rows)
{
    kvb_size_cells held = {0};
    int error = kvb_size_cells_held(p, t, &held);
    *rows = 0;
    for (size_t i = 0; i < held.room && !error; i++)
        *rows += (uint64_t)__builtin_popcountll(held.used[i]);
    free(held.used);
    return error;
}

/* Distinct rows in pages, of which the last of a sequence is partly empty. */
static int page_rows_count(const kvb_size_prediction *p, const kvb_size_group_tables *t, const kvb_group *g,
                           uint64_t *rows)
{
    kvb_size_cells held = {0};
    kvb_size_pieces lies = {0};
    uint64_t pieces;
    int error = 0;
    for (uint32_t q = 0; q < p->n_ids && !error; q++) {
        error = kvb_size_pages_lie(p, t, g, q, &lies, &pieces);
        error = error ? error : kvb_size_cells_mark(&held, &lies, 0, 0);
    }
    *rows = 0;
    for (size_t i = 0; i < held.room && !error; i++)
        *rows += (uint64_t)__builtin_popcountll(held.used[i]);
    free(held.used);
    free(lies.at);
    return error;
}

/* The whole cache lies where it lay; lists are made for it beside those that are there. */
static int group_reload(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g)
{
    const bool scans = kvb_group_scans(g), pages = kvb_size_has_pages(p) && !scans;
    uint64_t rows = 0, pieces;
    int error = 0;
    if (is(p, &kvb_cache_recompute))
        return 0;
    for (uint32_t q = 0; q < p->n_ids && !error; q++) {
        kvb_size_group_sequence *seq = &t->seq[q];
        if (!p->seq[q].len)
            continue;
        error = scans ? 0 : saved_list(p, t, g, q, &pieces);
        if (scans || is(p, &kvb_cache_seq) || is(p, &kvb_cache_window))
            need_of(&seq->spans, 2 * seq->held.n, &t->spans);
        if (pages && kvb_size_drops(p, g))
            need_of(&seq->spans, kvb_size_page_stretches(&seq->held) + pieces + 1, &t->spans);
        if (pages)
            need_of(&seq->pages, p->seq[q].len / kvb_size_page_cells(p) + 1, &t->tables);
    }
    if (error)
        return error;
    if (pages)
        error = page_rows_count(p, t, g, &rows);
    else if (scans || p->subject->cache->flags & KVB_CACHE_SEQ)
        error = rows_count(p, t, &rows);
    else
        rows = p->seq[0].len;
    climb(&t->moves, 0, 1, rows);
    return error || !pages ? error : kvb_size_pages_overwrite(p, t);
}

/* ---- who holds what others did ---------------------------------------------------------------------------------------------- */

/* Whose tokens sequence first + i comes to hold. */
static uint32_t source_of(const kvb_size_step *s, uint32_t i)
{
    return i + 1 < s->n_seqs ? s->first + i + 1 : s->first + (s->n_seqs > 1);
}

/* Lists that are copied aside take the places of those that were there; `tables`: with as much room as these have. */
static int lists_reorder(const kvb_size_step *s, kvb_size_pieces *list[], uint64_t *room[], uint64_t *all, bool tables)
{
    kvb_size_pieces *made = calloc(s->n_seqs + (size_t)1, sizeof *made);
    uint64_t *rooms = calloc(s->n_seqs + (size_t)1, sizeof *rooms);
    int error = made && rooms ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < s->n_seqs && !error; i++) {
        const uint32_t src = source_of(s, i) - s->first;
        error = kvb_size_list_copy(&made[i], list[src]);
        rooms[i] = tables ? *room[src] : 0;
        if (list[src]->n && !tables)
            need(&rooms[i], list[src]->n);
    }
    for (uint32_t i = 0; i < s->n_seqs && !error; i++) {
        free(list[i]->at);
        *list[i] = made[i];
        *all += rooms[i] - *room[i];
        *room[i] = rooms[i];
    }
    free(made);
    free(rooms);
    return error;
}

/* The largest cell of a list + 1. */
static uint64_t cells_end(const kvb_size_pieces *list)
{
    uint64_t end = 0;
    for (size_t i = 0; i < list->n; i++)
        end = end > list->at[i].cell + list->at[i].n ? end : list->at[i].cell + list->at[i].n;
    return end;
}

/* Of slab: rows go to who wants them first; others are copied into the lowest free ones, with what is yet to be turned. */
static int rows_reorder(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s)
{
    uint64_t copies = 0, end = 0;
    int error = 0;
    for (uint32_t i = 0; i < s->n_seqs && !error; i++) { /* the one that is there twice is handed on, then copied */
        kvb_size_pieces *held = &t->seq[s->first + i].held;
        for (uint32_t j = 0; j < i; j++)
            if (source_of(s, j) == source_of(s, i) && held->n && !error) {
                end = cells_end(held);
                error = row_change(p, t, s->first + i);
                end = end > cells_end(held) ? end : cells_end(held);
                copies += tokens_of(held);
            }
    }
    climb(&t->moves, 0, 1, copies);
    if (copies && t->turning)
        need(&t->pending, end);
    return error;
}

static int group_reorder(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s,
                         kvb_size_pieces **list, uint64_t **room)
{
    const bool scans = kvb_group_scans(g), pages = kvb_size_has_pages(p) && !scans;
    int error = 0;
    t->gaps = true;
    if (is(p, &kvb_cache_recompute))
        return 0;
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        list[i] = &t->seq[s->first + i].held;
        room[i] = pages ? &t->seq[s->first + i].pages : &t->seq[s->first + i].spans;
    }
    if (pages)
        error = kvb_size_pages_key(p, t);
    if (pages && kvb_size_drops(p, g)) /* spans of what is kept */
        for (uint32_t i = 0; i < s->n_seqs; i++)
            t->spans -= t->seq[s->first + i].spans, t->seq[s->first + i].spans = 0;
    kvb_size_pieces *was = calloc(s->n_seqs + (size_t)1, sizeof *was);
    error = was ? error : -ENOMEM;
    for (uint32_t i = 0; i < s->n_seqs && pages && !error; i++)
        error = kvb_size_list_copy(&was[i], list[i]);
    error = error ? error : lists_reorder(s, list, room, pages ? &t->tables : &t->spans, pages);
    if (pages && !error)
        error = kvb_size_pages_let_go(p, t, was, s->n_seqs);
    for (uint32_t i = 0; i < s->n_seqs && was; i++)
        free(was[i].at);
    free(was);
    for (uint32_t i = 0; i < s->n_seqs && pages && kvb_size_drops(p, g); i++)
        if (list[i]->n)
            need_of(&t->seq[s->first + i].spans, kvb_size_page_stretches(list[i]), &t->spans);
    if (is(p, &kvb_cache_paged_prefix) && !scans)
        need(&t->keys, s->n_seqs);
    if (is(p, &kvb_cache_slab) && !scans) { /* which has no spans */
        t->spans = 0;
        for (uint32_t i = 0; i < s->n_seqs; i++)
            t->seq[s->first + i].spans = 0;
        error = error ? error : rows_reorder(p, t, s);
    }
    if (!error && pages)
        error = kvb_size_pages_count(p, t);
    return error || !scans ? error : kvb_size_states_count(p, t);
}

static int reorder_take(kvb_size_prediction *p, const kvb_size_step *s)
{
    const kvb_model *m = &p->subject->model;
    kvb_size_pieces **list = calloc(s->n_seqs + (size_t)1, sizeof *list);
    uint64_t **room = calloc(s->n_seqs + (size_t)1, sizeof *room), *len = calloc(s->n_seqs + (size_t)1, sizeof *len);
    bool *loaded = calloc(s->n_seqs + (size_t)1, sizeof *loaded);
    int error = list && room && len && loaded ? 0 : -ENOMEM;
    for (uint32_t g = 0; g < m->n_groups && !error; g++)
        error = group_reorder(p, &p->group[g], &m->groups[g], s, list, room);
    for (uint32_t i = 0; i < s->n_seqs && !error; i++) {
        kvb_size_sequence *seq = &p->seq[s->first + i];
        list[i] = &seq->ordinals;
        room[i] = &seq->account;
        len[i] = p->seq[source_of(s, i)].len;
        loaded[i] = p->seq[source_of(s, i)].loaded;
    }
    if (!error)
        error = lists_reorder(s, list, room, &p->spans, false);
    for (uint32_t i = 0; i < s->n_seqs && !error; i++) {
        p->seq[s->first + i].len = len[i];
        p->seq[s->first + i].loaded = loaded[i];
    }
    free(loaded);
    free(list);
    free(room);
    free(len);
    return error;
}

/* ---- all of them -------------------------------------------------------------------------------------------------------------- */

/* Positions of the account. Ordinals of tokens that have moved are none that new ones could follow; where positions are divided, each
 * token is a piece of its own. */
static int positions_move(kvb_size_prediction *p, const kvb_size_step *s)
{
    kvb_size_sequence *seq = &p->seq[s->first];
    const bool divides = s->call == KVB_SIZE_DIVIDE;
    const uint64_t revision = (p->shifts + 1) << 40, low = (UINT64_C(1) << 40) - 1;
    kvb_size_pieces made = {0};
    uint64_t within = 0;
    int error = kvb_size_shift_take(p, s);
    for (size_t i = 0; i < seq->ordinals.n; i++) {
        const kvb_size_piece *all = &seq->ordinals.at[i];
        for (uint64_t pos = all->pos, end = pos + all->n, n; pos < end && !error; pos += n) {
            const bool moves = !divides || pos < KVB_SIZE_DIVIDED;
            const uint64_t ordinal = all->cell + (pos - all->pos);
            n = divides && moves ? 1 : end - pos;
            within += divides && moves;
            error = kvb_size_piece_put(&made, kvb_size_moved(s, pos), moves ? (ordinal & low) | revision : ordinal, n);
        }
    }
    need_of(&seq->account, seq->ordinals.n + within + 2, &p->spans); /* two may be cut in two */
    if (p->refused || error) {
        free(made.at);
        return error;
    }
    p->shifts++;
    p->moved |= seq->len > 0;
    free(seq->ordinals.at);
    seq->ordinals = made;
    seq->len = made.n ? made.at[made.n - 1].pos + made.at[made.n - 1].n : 0;
    return error;
}

/* Of the account: what is let go of may be cut in two, and what comes is room for as much again. */
static int account_reload(kvb_size_prediction *p, const kvb_size_step *s)
{
    const bool whole = s->call == KVB_SIZE_RELOAD;
    int error = 0;
    for (uint32_t q = 0; q < p->n_ids && !error; q++) {
        kvb_size_sequence *seq = &p->seq[q];
        kvb_size_pieces joined;
        if (whole ? !seq->len : q != s->first)
            continue;
        need_of(&seq->account, whole ? 2 * seq->ordinals.n : seq->ordinals.n + 1, &p->spans);
        error = kvb_size_list_copy(&joined, &seq->ordinals);
        free(seq->ordinals.at);
        seq->ordinals = joined;
        seq->loaded = seq->len > 0;
    }
    return error;
}

int kvb_size_call_take(kvb_size_prediction *p, const kvb_size_step *s)
{
    const kvb_model *m = &p->subject->model;
    kvb_size_sequence *seq = &p->seq[s->first];
    int error = 0;
    if (s->call == KVB_SIZE_SHARE)
        return kvb_size_has_pages(p) ? kvb_size_prompts_share(p, s) : kvb_size_share(p, s);
    if (s->call == KVB_SIZE_COPY)
        return kvb_size_copy_take(p, s);
    if (s->call == KVB_SIZE_REORDER)
        return reorder_take(p, s);
    if (s->call == KVB_SIZE_FIND) {
        need_of(&seq->account, seq->ordinals.n + 1, &p->spans);
        return kvb_size_prompt_find(p, s->first, s->first, seq->len);
    }
    if (s->call == KVB_SIZE_SHIFT || s->call == KVB_SIZE_DIVIDE)
        return positions_move(p, s);
    for (uint32_t i = 0; i < m->n_groups && !error; i++) {
        kvb_size_group_tables *t = &p->group[i];
        const kvb_group *g = &m->groups[i];
        error = s->call == KVB_SIZE_SWAP     ? group_swap(p, t, g, s->first)
                : s->call == KVB_SIZE_RELOAD ? group_reload(p, t, g)
                : kvb_group_scans(g)         ? 0
                                             : kvb_size_defrag_take(p, t, g);
    }
    if (!error && (s->call == KVB_SIZE_SWAP || s->call == KVB_SIZE_RELOAD))
        error = account_reload(p, s);
    return error;
}
