/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seq: cells shared by sequences. A fork moves no bytes, and a cell is free when its last sequence has left it.
 * window: the same, but a group with limits frees rows that no query can see again, so that it has cells for its window
 * and not for the whole history (kept.h).
 */
#include "caches/stores/seq.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "caches/cache.h"
#include "caches/stores/kept.h"

/* ---- saving and loading ------------------------------------------------------------------------------------- */

int kvb_seq_lies(kvb_store *s, uint32_t seq, kvb_spans *cells)
{
    const kvb_spans *held = &((seq_store *)s)->cells[seq];
    if (kvb_spans_reserve(cells, s->allocator, held->n))
        return -ENOMEM;
    kvb_spans_add(cells, held, 0, KVB_POS_END);
    return 0;
}

/* The cell in which a live sequence holds the token with the same bits as the file's row; UINT32_MAX: none. */
static uint32_t cell_shared(const seq_store *c, kvb_span token, uint32_t row)
{
    const kvb_account *a = c->store.account;
    const bool states = kvb_group_scans(c->store.group); /* those of the last tokens */
    for (uint32_t i = 0; i < a->n_alive; i++) {
        const kvb_spans *tokens = &a->seq[a->alive[i]], *cells = &c->cells[a->alive[i]];
        kvb_spans_cursor lies = {0}, at = kvb_spans_from(tokens, states ? tokens->tokens - cells->tokens : 0);
        kvb_span same, cell;
        do { /* both lists have the tokens of one position in the same order */
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

/* Shares rows that a live sequence still holds, leaves out those that no query can see again, takes cells for
 * others. */
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

/* Adopts a LOAD. The spans of a single sequence are in place since prepare. */
static void seq_load(seq_store *c, const kvb_change *change, bool whole)
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

static seq_store *seq_of(kvb_store *s)
{
    return (seq_store *)s;
}

static void store_close(kvb_store *s)
{
    seq_store *c = seq_of(s);
    uint32_t n_ids = s->account->n_ids;
    for (uint32_t q = 0; q < n_ids && c->cells; q++)
        kvb_spans_free(&c->cells[q], s->allocator);
    kvb_free(s->allocator, c->cells, n_ids * sizeof *c->cells);
    kvb_free(s->allocator, c->next, n_ids * sizeof *c->next);
    kvb_free(s->allocator, c->unsettled, 2 * (size_t)n_ids * sizeof *c->unsettled);
    kvb_free(s->allocator, c->refs, c->refs_room * sizeof *c->refs);
    kvb_spans_aside_free(&c->reordered, s->allocator);
    kvb_free(s->allocator, c->nodes, c->nodes_room * sizeof *c->nodes);
    kvb_free(s->allocator, c->resolved, c->resolved_room * sizeof *c->resolved);
    kvb_free(s->allocator, c->copies, c->copies_room * sizeof *c->copies);
    kvb_spans_free(&c->shifted, s->allocator);
    kvb_compaction_close(s, &c->compaction);
}

int kvb_seq_open(kvb_store *s)
{
    seq_store *c = seq_of(s);
    c->cells = kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *c->cells);
    c->next = kvb_alloc_zeroed(s->allocator, s->account->n_ids * sizeof *c->next);
    if (c->cells && c->next)
        return 0;
    store_close(s);
    return -ENOMEM;
}

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    *cells = ((const seq_store *)s)->live;
    *high_water = ((const seq_store *)s)->high_water;
}

/* ---- cells ----------------------------------------------------------------------------------------------- */

/* Notes a freed cell. It can be the last cell of a run of free cells that begins below it. */
static void cell_freed(seq_store *c, uint32_t cell)
{
    c->first_free = c->first_free < cell ? c->first_free : cell;
    for (kvb_seq_run *run = c->run; run < c->run + 2; run++) {
        const uint32_t from = cell < run->n ? 0 : cell - run->n;
        run->from = run->from < from ? run->from : from;
    }
}

void kvb_seq_hold_cell(seq_store *c, uint32_t cell, bool more)
{
    assert(more || c->refs[cell] > 0);
    c->live += more && c->refs[cell] == 0;
    c->refs[cell] = (uint16_t)(more ? c->refs[cell] + 1 : c->refs[cell] - 1);
    c->high_water = c->high_water > cell ? c->high_water : cell + 1;
    c->live -= !more && c->refs[cell] == 0;
    if (!more && c->refs[cell] == 0)
        cell_freed(c, cell);
}

void kvb_seq_hold(seq_store *c, uint32_t seq, uint32_t p0, uint32_t p1, bool more)
{
    for (size_t i = 0; i < c->cells[seq].n; i++) {
        kvb_span part = kvb_span_clip(c->cells[seq].span[i], p0, p1);
        for (uint32_t j = 0; j < part.n; j++)
            kvb_seq_hold_cell(c, (uint32_t)part.at + j, more);
    }
}

/* The lowest free cell from this one on, or high_water. Tests 16 counts at a time for a 0 (Hacker's Delight, 6-1). */
static uint32_t next_free(const seq_store *c, uint32_t cell)
{
    const uint64_t ones = 0x0001000100010001, highs = 0x8000800080008000;
    for (uint64_t four[4], some = 0; (uint64_t)cell + 16 <= c->high_water; cell += 16) {
        memcpy(four, c->refs + cell, sizeof four);
        for (int i = 0; i < 4; i++)
            some |= (four[i] - ones) & ~four[i] & highs;
        if (some)
            break;
    }
    while (cell < c->high_water && c->refs[cell])
        cell++;
    return cell;
}

/* The lowest held cell from this one on, or `end`, which is at most high_water. */
static uint32_t next_held(const seq_store *c, uint32_t cell, uint32_t end)
{
    for (uint64_t four[4]; (uint64_t)cell + 16 <= end; cell += 16) {
        memcpy(four, c->refs + cell, sizeof four);
        if (four[0] | four[1] | four[2] | four[3])
            break;
    }
    while (cell < end && !c->refs[cell])
        cell++;
    return cell;
}

void kvb_seq_settle(seq_store *c)
{
    while (c->high_water > 0 && !c->refs[c->high_water - 1])
        c->high_water--;
    if (c->first_free < c->high_water)
        c->first_free = next_free(c, c->first_free);
}

void kvb_seq_drop(seq_store *c, uint32_t seq, uint32_t p0, uint32_t p1)
{
    kvb_seq_hold(c, seq, p0, p1, false);
    kvb_spans_cut(&c->cells[seq], p0, p1);
    kvb_seq_settle(c);
}

/* First fit: the lowest run of n free cells; if there is none, the n lowest free cells. */
void kvb_seq_pick(seq_store *c, uint32_t n, uint32_t *picked)
{
    uint32_t start = c->first_free, cell;
    for (const kvb_seq_run *run = c->run; run < c->run + 2; run++)
        start = n >= run->n && run->from > start ? run->from : start;
    cell = start;
    while (cell < c->high_water && cell - start < n) {
        cell = next_held(c, cell, c->high_water - start < n ? c->high_water : start + n);
        if (cell < c->high_water && cell - start < n)
            start = cell = next_free(c, cell);
    }
    if (c->run[0].n != n) {
        c->run[1] = c->run[0];
        c->run[0].n = n;
    }
    c->run[0].from = start;
    /* A run that reaches the high-water mark continues to the end of the pools. */
    bool run = start <= c->store.pool_cells && n <= c->store.pool_cells - start;
    for (uint32_t i = 0, next = run ? start : c->first_free; i < n; next++) {
        next = kvb_seq_is_free(c, next) ? next : next_free(c, next);
        picked[i++] = next;
    }
}

int kvb_seq_reserve(seq_store *c, uint32_t cells)
{
    size_t had = c->refs_room;
    int error = kvb_grow(c->store.allocator, &c->refs, &c->refs_room, cells);
    if (!error)
        memset(c->refs + had, 0, (c->refs_room - had) * sizeof *c->refs);
    return error;
}

uint64_t kvb_seq_holders_bytes(uint32_t first, uint32_t cells)
{
    size_t room = kvb_grown(0, first);
    while (room < cells)
        room = kvb_grown(room, room + 1);
    return room * sizeof(uint16_t);
}

/* ---- dropping rows ------------------------------------------------------------------------------------------ */

static int window_open(kvb_store *s)
{
    seq_store *c = seq_of(s);
    c->drops = kvb_group_limits(s->group);
    int error = kvb_seq_open(s);
    if (error || !c->drops)
        return error;
    c->unsettled = kvb_alloc_zeroed(s->allocator, 2 * (size_t)s->account->n_ids * sizeof *c->unsettled);
    if (c->unsettled)
        return 0;
    store_close(s);
    return -ENOMEM;
}

static void unsettle(seq_store *c, const uint32_t *seqs, uint32_t n)
{
    uint32_t *is_unsettled = c->unsettled + c->store.account->n_ids;
    for (uint32_t i = 0; i < n; i++)
        if (!is_unsettled[seqs[i]]) {
            is_unsettled[seqs[i]] = 1;
            c->unsettled[c->n_unsettled++] = seqs[i];
        }
}

/* Notes changed sequences: at the next step they drop rows. Not earlier, since the current step needs more. */
static void changed_unsettle(seq_store *c, const kvb_change *change)
{
    const kvb_account *a = c->store.account;
    const bool step = change->kind == KVB_CHANGE_STEP,
               all = change->kind == KVB_CHANGE_LOAD && change->src == KVB_SEQ_ALL;
    if (step || change->kind == KVB_CHANGE_PROPOSE) /* all have dropped rows just now */
        for (; c->n_unsettled; c->n_unsettled--)
            c->unsettled[a->n_ids + c->unsettled[c->n_unsettled - 1]] = 0;
    if (change->kind != KVB_CHANGE_PROPOSE)
        unsettle(c, all ? a->alive : a->changed, all ? a->n_alive : a->n_changed);
}

/* Uncounts the rows that sequences' next queries do not need, or (back) counts them again. Spans do not change. */
static void rows_drop(seq_store *c, const kvb_feed *feed, bool back)
{
    if (!c->drops)
        return;
    kvb_queries_find(&c->store, feed, c->unsettled, c->n_unsettled, c->next);
    for (uint32_t i = 0; i < c->n_unsettled; i++)
        kvb_seq_hold(c, c->unsettled[i], c->store.group->sinks, kvb_needed_from(&c->store, c->next[c->unsettled[i]]),
                     back);
}

/* Cells that are free after sequences have dropped rows for the step. */
static uint32_t room(const kvb_store *s, const kvb_change *change)
{
    seq_store *c = (seq_store *)(uintptr_t)s; /* counts are changed, and restored */
    const kvb_seq_run run[2] = {c->run[0], c->run[1]};
    const uint32_t first_free = c->first_free;
    (void)change;
    rows_drop(c, NULL, false);
    uint32_t live = c->live;
    rows_drop(c, NULL, true);
    c->first_free = first_free;
    memcpy(c->run, run, sizeof run);
    return live < s->pool_cells ? s->pool_cells - live : 0;
}

/* ---- control calls ------------------------------------------------------------------------------------------ */

/* The feed if the account already holds its tokens: not for nodes. */
static const kvb_feed *entered(const kvb_change *change, const kvb_feed *feed)
{
    return change->kind == KVB_CHANGE_STEP ? feed : NULL;
}

static void undo(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    seq_store *c = seq_of(s);
    (void)plan;
    if (change->kind == KVB_CHANGE_LOAD && change->src != KVB_SEQ_ALL)
        kvb_spans_cut(&c->cells[change->src], 0, KVB_POS_END);
    for (uint32_t i = 0; feed && change->kind == KVB_CHANGE_STEP && i < feed->n; i++)
        kvb_spans_cut(&c->cells[feed->seqs[i]], feed->positions[i], KVB_POS_END);
    if (feed)
        rows_drop(c, entered(change, feed), true);
    kvb_seq_settle(c);
}

/* Makes room for the span that dropping rows between sinks and window adds, and for nodes, so that commits cannot
 * fail. */
static int drops_reserve(seq_store *c)
{
    const kvb_account *a = c->store.account;
    int error = 0;
    for (uint32_t i = 0; i < c->n_unsettled + a->n_changed && !error && c->drops; i++) {
        const uint32_t q = i < c->n_unsettled ? c->unsettled[i] : a->changed[i - c->n_unsettled];
        error = kvb_spans_reserve(&c->cells[q], c->store.allocator, a->pending[q] + (size_t)1);
    }
    return error;
}

/* Adds the new tokens to the spans of their sequences. */
static int spans_extend(seq_store *c, const kvb_feed *feed, const kvb_plan *plan)
{
    int error = 0;
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        kvb_spans *held = &c->cells[feed->seqs[i]];
        error = kvb_spans_reserve(held, c->store.allocator, 1);
        if (!error)
            kvb_spans_append(held, feed->positions[i], plan->cells[i]);
    }
    return error ? error : drops_reserve(c);
}

int kvb_seq_place(seq_store *c, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_seq_pick(c, feed->n, plan->cells);
    int error = spans_extend(c, feed, plan);
    return error ? error : kvb_seq_reserve(c, plan->cells[feed->n - 1] + 1);
}

static int step_prepare(seq_store *c, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_store *s = &c->store;
    rows_drop(c, feed, false);
    int error = kvb_seq_place(c, feed, plan);
    for (uint32_t i = 0; i < feed->n && !error; i++)
        error = kvb_plan_attend(plan, s->group, &c->cells[feed->seqs[i]], feed->positions[i]);
    if (error)
        undo(s, change, feed, plan);
    return error;
}

/* A node takes a cell as a token does; its sequence holds the cell when the node is accepted. Makes room for a commit
 * of all nodes, so that commits cannot fail. */
static int propose_prepare(seq_store *c, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_store *s = &c->store;
    const kvb_account *a = s->account;
    const uint32_t before = a->n_nodes - feed->n;
    rows_drop(c, NULL, false);
    kvb_seq_pick(c, feed->n, plan->cells);
    int error = kvb_seq_reserve(c, plan->cells[feed->n - 1] + 1);
    if (!error)
        error = kvb_grow(s->allocator, &c->nodes, &c->nodes_room, a->n_nodes);
    if (!error)
        error = kvb_grow(s->allocator, &c->resolved, &c->resolved_room, a->n_nodes);
    for (uint32_t i = 0; i < a->n_changed && !error; i++)
        error = kvb_spans_reserve(&c->cells[a->changed[i]], s->allocator, a->pending[a->changed[i]]);
    for (uint32_t i = 0; i < feed->n && !error; i++) {
        c->nodes[before + i] = plan->cells[i];
        error = kvb_plan_attend_node(plan, s->group, a, &c->cells[feed->seqs[i]], 0, c->nodes, before + i,
                                     feed->positions[i]);
    }
    error = error ? error : drops_reserve(c);
    if (error)
        undo(s, change, feed, plan);
    return error;
}

/* Sorts the cells of nodes into `resolved`, while the account still has the nodes. */
static void commit_prepare(seq_store *c, const kvb_change *change)
{
    const kvb_account *a = c->store.account;
    const uint32_t own = a->pending[change->src];
    uint32_t left = 0, dropped = a->n_nodes - own + change->n;
    c->n_left = a->n_nodes - own;
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        const kvb_node *node = &a->node[i];
        uint32_t at = 0;
        while (at < change->n && (node->seq != change->src || node->number != change->accepted[at]))
            at++;
        const uint32_t place = node->seq != change->src ? left++ : at < change->n ? c->n_left + at : dropped++;
        c->resolved[place] = c->nodes[i];
    }
}

/* Picks cells for copies of moved rows that other sequences hold, too. */
static int copies_pick(seq_store *c, const kvb_change *change)
{
    const kvb_spans *held = &c->cells[change->src];
    uint32_t n = 0;
    for (size_t i = 0; i < held->n; i++) {
        const kvb_span part = kvb_span_clip(held->span[i], change->p0, change->p1);
        for (uint64_t cell = part.at; cell < part.at + part.n; cell++)
            n += c->refs[cell] > 1;
    }
    if (n > c->store.pool_cells - c->live)
        return kvb_store_fail(&c->store, -ENOSPC,
                              "no room for copies of %u tokens that other sequences hold, too: there is room for %u", n,
                              c->store.pool_cells - c->live);
    int error = kvb_grow(c->store.allocator, &c->copies, &c->copies_room, n);
    if (error || n == 0)
        return error;
    kvb_seq_pick(c, n, c->copies);
    return kvb_seq_reserve(c, c->copies[n - 1] + 1);
}

/* Lists the sequence's cells after the shift in c->shifted. */
static int shift_prepare(seq_store *c, const kvb_change *change)
{
    const kvb_spans *held = &c->cells[change->src];
    kvb_spans *to = &c->shifted;
    size_t copied = 0;
    int error = copies_pick(c, change);
    to->n = to->tokens = 0;
    for (size_t i = 0; i < held->n; i++)
        for (uint32_t j = 0; j < held->span[i].n && !error; j++) {
            const uint32_t pos = held->span[i].pos + j;
            uint32_t cell = (uint32_t)held->span[i].at + j;
            const bool moves = pos >= change->p0 && pos < change->p1;
            error = kvb_spans_reserve(to, c->store.allocator, 1);
            if (!error && moves && c->refs[cell] > 1) {
                error = kvb_store_move(&c->store, cell, c->copies[copied]);
                cell = c->copies[copied++];
            }
            const uint32_t goes = moves ? (uint32_t)kvb_change_moved(change, pos) : pos;
            if (!error && moves && !kvb_group_scans(c->store.group)) /* states have no positions */
                error = kvb_store_turn(&c->store, cell, (int32_t)(goes - pos));
            if (!error)
                kvb_spans_append(to, goes, cell);
        }
    return error || !c->drops ? error : kvb_kept_shift_check(&c->store, change, to);
}

/* No cell becomes free: other sequences hold those that were copied. */
static void shift_adopt(seq_store *c, const kvb_change *change)
{
    const kvb_spans was = c->cells[change->src];
    c->cells[change->src] = c->shifted;
    c->shifted = was;
    for (size_t i = 0; i < c->store.n_moves; i++) {
        const kvb_move *copy = &c->store.moves[i];
        c->high_water = c->high_water > copy->to ? c->high_water : copy->to + 1;
        kvb_seq_hold_cell(c, copy->from, false);
        kvb_seq_hold_cell(c, copy->to, true);
    }
}

static int defrag_prepare(seq_store *c)
{
    int error = kvb_compact(&c->store, &c->compaction, c->cells, c->high_water, c->drops);
    return error ? error : kvb_seq_reserve(c, c->compaction.live);
}

static void defrag_adopt(seq_store *c)
{
    const kvb_account *a = c->store.account;
    for (uint32_t cell = 0; cell < c->high_water; cell++)
        c->refs[cell] = 0;
    c->live = c->first_free = 0;
    memset(c->run, 0, sizeof c->run);
    c->high_water = c->compaction.live;
    for (uint32_t i = 0; i < a->n_alive; i++) {
        const uint32_t q = a->alive[i];
        const kvb_spans was = c->cells[q];
        c->cells[q] = c->compaction.cells[q];
        c->compaction.cells[q] = was;
        kvb_seq_hold(c, q, 0, KVB_POS_END, true);
    }
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    seq_store *c = seq_of(s);
    int error = 0;
    switch (change->kind) {
    case KVB_CHANGE_STEP:
        return step_prepare(c, change, feed, plan);
    case KVB_CHANGE_PROPOSE:
        return propose_prepare(c, change, feed, plan);
    case KVB_CHANGE_COMMIT:
        commit_prepare(c, change);
        return 0;
    case KVB_CHANGE_COPY:
        error = c->drops ? kvb_kept_check(s, change, c->cells) : 0;
        return error ? error : kvb_spans_reserve(&c->cells[change->dst], s->allocator, c->cells[change->src].n);
    case KVB_CHANGE_LOAD:
        error = kvb_seq_load_prepare(c, change);
        if (error)
            undo(s, change, feed, plan);
        return error;
    case KVB_CHANGE_REMOVE:
        error = c->drops ? kvb_kept_check(s, change, c->cells) : 0;
        for (uint32_t i = 0; i < s->account->n_changed && !error; i++)
            error = kvb_spans_reserve(&c->cells[s->account->changed[i]], s->allocator, 1);
        return error;
    case KVB_CHANGE_REORDER: /* a destination lacks the rows that its source has dropped, and needs no others */
        return kvb_spans_gather(&c->reordered, s->allocator, c->cells, change->srcs, change->n);
    case KVB_CHANGE_SHIFT:
        return shift_prepare(c, change);
    case KVB_CHANGE_DEFRAG:
        return defrag_prepare(c);
    default:
        return 0;
    }
}

static void step_adopt(seq_store *c, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    if (c->drops)
        kvb_queries_find(&c->store, entered(change, feed), c->unsettled, c->n_unsettled, c->next);
    for (uint32_t i = 0; i < c->n_unsettled; i++)
        kvb_spans_cut(&c->cells[c->unsettled[i]], c->store.group->sinks,
                      kvb_needed_from(&c->store, c->next[c->unsettled[i]]));
    for (uint32_t i = 0; i < feed->n; i++) {
        c->refs[plan->cells[i]] = 1;
        c->high_water = c->high_water > plan->cells[i] ? c->high_water : plan->cells[i] + 1;
    }
    c->live += feed->n;
}

/* First counts the destinations' new cells, then uncounts the old ones, so that no cell is free meanwhile. */
static void reorder_adopt(seq_store *c, const kvb_change *change)
{
    for (uint32_t i = 0; i < change->n; i++)
        kvb_seq_hold(c, change->srcs[i], 0, KVB_POS_END, true);
    for (uint32_t i = 0; i < change->n; i++)
        kvb_seq_hold(c, change->dsts[i], 0, KVB_POS_END, false);
    kvb_spans_scatter(&c->reordered, c->store.allocator, c->cells, change->dsts);
}

/* Accepted nodes stay in their cells, which their sequence now holds. */
static void commit_adopt(seq_store *c, const kvb_change *change)
{
    const uint32_t end = kvb_spans_next(&c->store.account->seq[change->src]), own = c->n_left;
    for (uint32_t i = 0; i < change->n; i++) /* n 0: `resolved` may be NULL */
        kvb_spans_append(&c->cells[change->src], end - change->n + i, c->resolved[own + i]);
    for (uint32_t i = c->n_left + change->n; i < c->n_nodes; i++)
        kvb_seq_hold_cell(c, c->resolved[i], false);
    for (c->n_nodes = 0; c->n_nodes < c->n_left; c->n_nodes++)
        c->nodes[c->n_nodes] = c->resolved[c->n_nodes];
}

static void adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    seq_store *c = seq_of(s);
    if (feed)
        step_adopt(c, change, feed, plan);
    if (change->kind == KVB_CHANGE_PROPOSE)
        c->n_nodes += feed->n;
    if (change->kind == KVB_CHANGE_COMMIT)
        commit_adopt(c, change);
    for (; change->drops_nodes && c->n_nodes; c->n_nodes--)
        kvb_seq_hold_cell(c, c->nodes[c->n_nodes - 1], false);
    if (change->kind == KVB_CHANGE_SHIFT)
        shift_adopt(c, change);
    if (change->kind == KVB_CHANGE_DEFRAG)
        defrag_adopt(c);
    if (change->kind == KVB_CHANGE_COPY) {
        kvb_seq_hold(c, change->src, change->p0, change->p1, true);
        kvb_spans_add(&c->cells[change->dst], &c->cells[change->src], change->p0, change->p1);
    }
    if (change->kind == KVB_CHANGE_LOAD)
        seq_load(c, change, change->src == KVB_SEQ_ALL);
    for (uint32_t i = 0; i < s->account->n_changed && change->kind == KVB_CHANGE_REMOVE; i++)
        kvb_seq_drop(c, s->account->changed[i], change->p0, change->p1);
    if (change->kind == KVB_CHANGE_REORDER)
        reorder_adopt(c, change);
    if (c->drops)
        changed_unsettle(c, change);
    kvb_seq_settle(c);
}

/* Cells for what each sequence keeps, and for a step. */
static uint64_t window_cells(const kvb_store *s)
{
    const kvb_cache_options *o = s->options;
    const bool drops = ((const seq_store *)s)->drops;
    uint64_t kept = drops ? kvb_needed_most(s) + s->group->sinks : 0, step = o->step ? o->step : o->capacity;
    uint64_t cells = drops ? o->max_seqs * kept + step : o->capacity;
    return cells < o->capacity ? cells : o->capacity;
}

static bool window_serves(const kvb_model *model, char *why, size_t why_bytes)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (kvb_group_limits(&model->groups[g]))
            return true;
    snprintf(why, why_bytes, "no layer has a window or chunks: cache window would be cache seq");
    return false;
}

/* What both caches have. */
#define SHARED_CELLS                                                                                                   \
    .store_bytes = sizeof(seq_store), .close = store_close, .occupied = occupied, .lies = kvb_seq_lies,                \
    .prepare = prepare, .undo = undo, .adopt = adopt

const kvb_cache_type kvb_cache_seq = {
    .name = "seq",
    .summary = "cells shared by sequences; a fork copies nothing, an accepted draft stays where it is",
    .flags = KVB_CACHE_SEQ | KVB_CACHE_REORDER | KVB_CACHE_TREE | KVB_CACHE_EXACT | KVB_CACHE_SHIFT | KVB_CACHE_DIVIDE |
             KVB_CACHE_SAVES,
    .open = kvb_seq_open,
    SHARED_CELLS,
};

const kvb_cache_type kvb_cache_window = {
    .name = "window",
    .summary = "as seq; layers with a window or chunks drop the rows that no query can see again",
    .flags = KVB_CACHE_SEQ | KVB_CACHE_REORDER | KVB_CACHE_TREE | KVB_CACHE_SHIFT | KVB_CACHE_SAVES,
    .serves = window_serves,
    .open = window_open,
    .pool_cells = window_cells,
    .room = room,
    SHARED_CELLS,
};
