/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent states, whatever the cache: the policy of every group that scans. A cell is a slot, and a sequence holds
 * the states that its last tokens left, at these tokens' positions: the last one, and `state_depth` before it, to which
 * it can be cut back. So slots are shared, counted, copied, saved and loaded as cells of cache seq (seq.h), and only
 * steps differ: which slot a token begins with, and in which it leaves its state.
 *
 * A slot is written again in the step that lets go of it, as soon as nobody reads it any more. So a cache never has
 * more than max_seqs (1 + state_depth) slots and one for each pending node. Caches that forget begin with zeros in each
 * step, and take slots only where histories part.
 */
#include "caches/cache.h"
#include "caches/stores/state.h"

#include <errno.h>

static state_store *state_of(kvb_store *s)
{
    return (state_store *)(void *)s;
}

static void store_close(kvb_store *s)
{
    state_store *c = state_of(s);
    kvb_free(s->allocator, c->tokens, c->tokens_room * sizeof *c->tokens);
    kvb_free(s->allocator, c->uses, c->uses_room * sizeof *c->uses);
    for (int i = 0; i < 2; i++)
        kvb_free(s->allocator, c->links[i], c->links_room[i] * sizeof *c->links[i]);
    kvb_cache_seq.close(s);
}

static uint64_t pool_cells(const kvb_store *s)
{
    const uint64_t nodes = s->cache->flags & KVB_CACHE_TREE ? s->options->capacity : 0;
    return s->options->max_seqs * kvb_state_depth(s) + nodes;
}

/* Slots never lack for a step; of nodes there may be `capacity`. */
static uint32_t room(const kvb_store *s, const kvb_change *change)
{
    const uint32_t n = s->account->n_nodes, capacity = s->options->capacity;
    return change->kind == KVB_CHANGE_STEP ? UINT32_MAX : n < capacity ? capacity - n : 0;
}

/* ---- what can be changed ------------------------------------------------------------------------------------- */

/* The position of the last token below p; there is one. */
static uint32_t position_below(const kvb_spans *tokens, uint32_t p)
{
    uint32_t last = 0;
    for (size_t i = 0; i < tokens->n && tokens->span[i].pos < p; i++)
        last = tokens->span[i].pos + tokens->span[i].n - 1;
    return last < p ? last : p - 1;
}

/* Is the state behind the token at that position there? */
static bool holds(const state_store *c, uint32_t seq, uint32_t pos)
{
    return kvb_state_forgets(&c->slots.store) || kvb_spans_within(&c->slots.cells[seq], pos, pos + 1);
}

static int remove_check(state_store *c, const kvb_change *change)
{
    kvb_store *s = &c->slots.store;
    if (change->others)
        return 0;
    const kvb_spans *tokens = &s->account->seq[change->src];
    const uint32_t gone = kvb_spans_within(tokens, change->p0, change->p1);
    if (!gone || gone == tokens->tokens)
        return 0;
    if (kvb_spans_within(tokens, change->p1, KVB_POS_END))
        return kvb_store_fail(s, -ENOTSUP,
                              "a recurrent state lets go of its last tokens or of all: sequence %u goes on behind %u",
                              change->src, change->p1);
    if (holds(c, change->src, position_below(tokens, change->p0)))
        return 0;
    return kvb_store_fail(s, -ENOTSUP, "sequence %u cannot be cut back by %u tokens: its states go back by %u",
                          change->src, gone, c->slots.cells[change->src].tokens - 1);
}

/* Are all of a sequence's tokens those of the other one below p? */
static bool is_beginning(const kvb_spans *all, const kvb_spans *of, uint32_t p)
{
    kvb_spans_cursor cursor = {0};
    bool same = all->tokens == kvb_spans_within(of, 0, p);
    for (size_t i = 0; i < all->n; i++)
        for (uint32_t k = 0; k < all->span[i].n && same; k++) {
            const kvb_span one = kvb_spans_next_at(of, &cursor, all->span[i].pos + k);
            same = one.n && one.at == all->span[i].at + k;
        }
    return same;
}

static int copy_check(state_store *c, const kvb_change *change)
{
    kvb_store *s = &c->slots.store;
    const kvb_spans *src = &s->account->seq[change->src], *dst = &s->account->seq[change->dst];
    if (!kvb_spans_within(src, change->p0, change->p1))
        return 0;
    if (!is_beginning(dst, src, change->p0))
        return kvb_store_fail(
            s, -ENOTSUP, "a recurrent state is of all tokens before it: sequence %u would not hold a beginning of %u",
            change->dst, change->src);
    if (holds(c, change->src, position_below(src, change->p1)))
        return 0;
    return kvb_store_fail(s, -ENOTSUP, "sequence %u has no state behind position %u: its states go back by %u tokens",
                          change->src, position_below(src, change->p1), c->slots.cells[change->src].tokens - 1);
}

/* Each sequence comes with the state behind its last token, and those before it. Of one, states that are older than it
 * may hold stay away. */
static int load_prepare(state_store *c, const kvb_change *change)
{
    kvb_store *s = &c->slots.store;
    const kvb_store_load *load = s->load;
    const kvb_account *loaded = change->loaded;
    kvb_store_load some = *load;
    kvb_spans last = {0};
    int error = 0;
    for (uint32_t i = 0; i < loaded->n_alive; i++) {
        const kvb_spans *rows = &load->rows[i], *tokens = &loaded->seq[loaded->alive[i]];
        if (kvb_spans_next(rows) != kvb_spans_next(tokens) ||
            rows->tokens < kvb_spans_within(tokens, rows->span[0].pos + 1, KVB_POS_END))
            return kvb_store_fail(s, -EINVAL, "the file has no states of sequence %u's last tokens", loaded->alive[i]);
    }
    if (change->src != KVB_SEQ_ALL && loaded->n_alive && load->rows[0].tokens > kvb_state_depth(s)) {
        error = kvb_spans_reserve(&last, s->allocator, load->rows[0].n);
        if (error)
            return error;
        kvb_spans_add(&last, &load->rows[0], 0, KVB_POS_END);
        kvb_spans_drop(&last, last.tokens - (uint32_t)kvb_state_depth(s));
        some.rows = &last;
        s->load = &some;
    }
    error = kvb_seq_load_prepare(&c->slots, change);
    s->load = load;
    kvb_spans_free(&last, s->allocator);
    if (error)
        kvb_cache_seq.undo(s, change, NULL, NULL);
    return error;
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    state_store *c = state_of(s);
    int error = 0;
    switch (change->kind) {
    case KVB_CHANGE_STEP:
    case KVB_CHANGE_PROPOSE:
        return kvb_state_step(c, change, feed);
    case KVB_CHANGE_COPY:
        error = copy_check(c, change);
        break;
    case KVB_CHANGE_REMOVE:
        error = remove_check(c, change);
        break;
    case KVB_CHANGE_LOAD:
        return kvb_state_forgets(s) ? 0 : load_prepare(c, change);
    case KVB_CHANGE_FREEZE:
        return kvb_store_fail(s, -ENOTSUP, "a recurrent state cannot be frozen");
    case KVB_CHANGE_MATCH:
        return change->n ? kvb_store_fail(s, -ENOTSUP, "a frozen prefix has no recurrent states") : 0;
    case KVB_CHANGE_DEFRAG: /* slots are read wherever they lie */
        return 0;
    default:
        break;
    }
    if (!error && !kvb_state_forgets(s))
        error = kvb_cache_seq.prepare(s, change, feed, plan);
    return error;
}

static void undo(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    if (change->kind == KVB_CHANGE_LOAD && !kvb_state_forgets(s))
        kvb_cache_seq.undo(s, change, feed, plan);
}

/* ---- adopting ------------------------------------------------------------------------------------------------- */

/* A sequence lets go of states that are older than it may hold. */
static void trim(state_store *c, uint32_t seq)
{
    kvb_spans *held = &c->slots.cells[seq];
    const uint32_t n = kvb_state_outgrown(c, seq, 0);
    for (uint32_t i = 0, left = n; left; i++)
        for (uint32_t j = 0; j < held->span[i].n && left; j++, left--)
            kvb_seq_hold_cell(&c->slots, (uint32_t)held->span[i].at + j, false);
    if (n)
        kvb_spans_drop(held, n);
}

static void step_adopt(state_store *c, const kvb_change *change, const kvb_feed *feed)
{
    kvb_store *s = &c->slots.store;
    uint32_t *links = c->links[1], *to = links + feed->n;
    for (uint32_t i = 0; i < feed->n && !kvb_state_forgets(s); i++) {
        if (!c->tokens[i].kept)
            continue;
        if (change->kind == KVB_CHANGE_PROPOSE)
            c->slots.nodes[c->slots.n_nodes++] = to[i];
        else
            kvb_spans_append(&c->slots.cells[feed->seqs[i]], feed->positions[i], to[i]);
        kvb_seq_hold_cell(&c->slots, to[i], true);
    }
    const size_t links_room = c->links_room[1];
    c->links[1] = c->links[0];
    c->links_room[1] = c->links_room[0];
    c->links[0] = links;
    c->links_room[0] = links_room;
    s->from = links;
    s->to = to;
}

/* The states of a sequence are those of its last tokens, without a gap: where src has not all that are copied, dst's
 * own go. */
static void copy_adopt(state_store *c, const kvb_change *change)
{
    const kvb_spans *tokens = &c->slots.store.account->seq[change->src], *held = &c->slots.cells[change->src];
    if (kvb_spans_within(held, change->p0, change->p1) < kvb_spans_within(tokens, change->p0, change->p1))
        kvb_seq_drop(&c->slots, change->dst, 0, KVB_POS_END);
    kvb_cache_seq.adopt(&c->slots.store, change, NULL, NULL);
}

static void adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    state_store *c = state_of(s);
    const kvb_account *a = s->account;
    if (feed)
        step_adopt(c, change, feed);
    else if (!kvb_state_forgets(s) && change->kind == KVB_CHANGE_COPY)
        copy_adopt(c, change);
    else if (!kvb_state_forgets(s) && change->kind != KVB_CHANGE_DEFRAG)
        kvb_cache_seq.adopt(s, change, feed, plan);
    for (uint32_t i = 0; i < a->n_changed && !kvb_state_forgets(s); i++)
        trim(c, a->changed[i]);
    if (kvb_state_forgets(s)) /* while its step is in force */
        c->slots.live = feed ? s->slots_taken : 0;
    else
        kvb_seq_settle(&c->slots);
}

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    const seq_store *slots = &((const state_store *)(const void *)s)->slots;
    *cells = slots->live;
    *high_water = kvb_state_forgets(s) ? slots->live : slots->high_water;
}

const kvb_cache_type kvb_state_policy = {
    .name = "state",
    .summary = "a recurrent state for each sequence, and those of its last tokens",
    .store_bytes = sizeof(state_store),
    .open = kvb_seq_open,
    .close = store_close,
    .pool_cells = pool_cells,
    .occupied = occupied,
    .room = room,
    .lies = kvb_seq_lies,
    .prepare = prepare,
    .undo = undo,
    .adopt = adopt,
};
