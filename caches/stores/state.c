/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent states: the policy of every group that scans, in any cache. A cell is a slot. A sequence holds the states
 * behind its last tokens, at these tokens' positions: that of its last token, and those of `state_depth` tokens before
 * it, to which it can be cut back. So slots are shared, counted, copied, saved and loaded as cells of cache seq
 * (seq.h). Only steps differ: they choose the slot with which a token begins and the slot that gets its state.
 *
 * A slot that a step gives up is written again in the same step, once its last reader has read it. So a cache has at
 * most max_seqs (1 + state_depth) slots, and one for each pending node. In caches that forget each step begins with
 * zeros and takes slots only where histories part.
 */
#include "caches/cache.h"
#include "caches/stores/seq.h"

#include <errno.h>
#include <string.h>

#define NOWHERE UINT32_MAX

/* A fed token of the current step. */
typedef struct state_token {
    uint32_t parent; /* place in the feed of the token before it; NOWHERE: not in this feed */
    uint32_t begins; /* if parent is NOWHERE: the slot that it begins with, or KVB_SCAN_ZERO */
    uint32_t child;  /* place of the last token with this parent */
    bool kept;       /* its state is held after the step */
    bool read;       /* a token that is not the next one in the feed reads its state */
} state_token;

/* A slot in the current step; zero between steps. */
typedef struct slot_use {
    uint32_t reader; /* place of the last token that begins with it, + 1 */
    uint32_t leaves; /* sequences that give it up */
    uint32_t next;   /* next slot that can be written again */
} slot_use;

typedef struct state_store {
    /* `cells`: position of a token -> slot with the state behind it. `next`: counts of the current step, else 0 */
    seq_store slots;
    state_token *tokens; /* [tokens_room] */
    slot_use *uses;      /* [uses_room] */
    uint32_t again;      /* first slot that can be written again */
    uint32_t lowest;     /* all free slots below it are taken */
    uint32_t *links[2];  /* [2][links_room / 2] from, to: of the step in force, and of the one being prepared */
    size_t tokens_room, uses_room, links_room[2];
} state_store;

static bool forgets(const kvb_store *s)
{
    return s->cache->flags & KVB_CACHE_FORGETS;
}

/* Most states that a sequence holds. */
static uint64_t depth_of(const kvb_store *s)
{
    return 1 + (uint64_t)s->options->state_depth;
}

/* Number of its oldest states that a sequence gives up for n new ones. */
static uint32_t outgrown(const state_store *c, uint32_t seq, uint32_t n)
{
    const uint64_t most = depth_of(&c->slots.store), more = n < most ? n : most;
    const uint64_t all = c->slots.cells[seq].tokens + more;
    return all > most ? (uint32_t)(all - most) : 0;
}

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
    return s->options->max_seqs * depth_of(s) + nodes;
}

/* There are always slots for a step; there may be `capacity` nodes. */
static uint32_t room(const kvb_store *s, const kvb_change *change)
{
    const uint32_t n = s->account->n_nodes, capacity = s->options->capacity;
    return change->kind == KVB_CHANGE_STEP ? UINT32_MAX : n < capacity ? capacity - n : 0;
}

/* ---- a step: which token comes behind which ---------------------------------------------------------------- */
/* First each token is linked to the token before it, which may be in the feed, or to a slot. Then slots are assigned in
 * the order of the feed, so that a slot that no sequence holds after the step is written as soon as its last reader has
 * read it. The store's tables do not change. */

/* The slot with a sequence's last state. */
static uint32_t last_slot(const state_store *c, uint32_t seq)
{
    const kvb_spans *held = &c->slots.cells[seq];
    const kvb_span *last = held->n ? &held->span[held->n - 1] : NULL;
    return last ? (uint32_t)last->at + last->n - 1 : KVB_SCAN_ZERO;
}

/* Links each token to the one before it in its sequence. Keeps the last ones of each; `next` counts all. */
static void step_link(state_store *c, const kvb_feed *feed)
{
    uint32_t *last = c->slots.next;
    for (uint32_t i = 0; i < feed->n; i++) {
        const uint32_t seq = feed->seqs[i];
        c->tokens[i].begins = last_slot(c, seq);
        c->tokens[i].parent = last[seq] ? last[seq] - 1 : NOWHERE;
        last[seq] = i + 1;
    }
    for (uint32_t i = 0; i < feed->n; i++)
        last[feed->seqs[i]] = 0;
    for (uint32_t i = feed->n; i-- > 0;)
        c->tokens[i].kept = last[feed->seqs[i]]++ < depth_of(&c->slots.store);
}

static void nodes_link(state_store *c, const kvb_feed *feed)
{
    const kvb_account *a = c->slots.store.account;
    const uint32_t before = a->n_nodes - feed->n;
    for (uint32_t i = 0; i < feed->n; i++) {
        const kvb_node *node = &a->node[before + i];
        const uint32_t at = node->parent < 0 ? NOWHERE : kvb_account_node(a, node->seq, (uint32_t)node->parent);
        c->tokens[i].parent = at != NOWHERE && at >= before ? at - before : NOWHERE;
        c->tokens[i].begins = at == NOWHERE ? last_slot(c, node->seq) : at < before ? c->slots.nodes[at] : 0;
        c->tokens[i].kept = true;
    }
}

/* Links the tokens of whole histories, of which none is kept. */
static void history_link(state_store *c, const kvb_change *change, const kvb_feed *feed)
{
    const kvb_account *a = c->slots.store.account;
    const uint32_t n_nodes = change->kind == KVB_CHANGE_PROPOSE ? a->n_nodes : 0;
    for (uint32_t s = 0; s < a->n_changed; s++) {
        const kvb_spans *seen = &feed->seen[a->changed[s]];
        uint32_t before = NOWHERE;
        for (size_t i = 0; i < seen->n; i++)
            for (uint32_t j = 0; j < seen->span[i].n; j++) {
                const uint32_t at = (uint32_t)seen->span[i].at + j;
                c->tokens[at].parent = before;
                before = at;
            }
    }
    for (uint32_t i = 0; i < n_nodes; i++) {
        const kvb_node *node = &a->node[i];
        if (feed->node[i] == NOWHERE)
            continue;
        const kvb_spans *seen = &feed->seen[node->seq];
        const kvb_span *last = seen->n ? &seen->span[seen->n - 1] : NULL;
        c->tokens[feed->node[i]].parent = node->parent >= 0
                                              ? feed->node[kvb_account_node(a, node->seq, (uint32_t)node->parent)]
                                          : last ? (uint32_t)last->at + last->n - 1
                                                 : NOWHERE;
    }
}

/* ---- a step: which slots tokens take ------------------------------------------------------------------------ */

static bool is_left(const state_store *c, uint32_t slot)
{
    return c->uses[slot].leaves && c->uses[slot].leaves == c->slots.refs[slot];
}

static void slot_give(state_store *c, uint32_t slot)
{
    c->uses[slot].next = c->again;
    c->again = slot;
}

/* Takes a slot for a token: one that was given up, or the lowest free one. NOWHERE: no memory. */
static uint32_t slot_take(state_store *c)
{
    kvb_store *s = &c->slots.store;
    uint32_t slot = c->again;
    if (slot != NOWHERE) {
        c->again = c->uses[slot].next;
        return slot;
    }
    while (!kvb_seq_is_free(&c->slots, c->lowest))
        c->lowest++;
    slot = c->lowest++;
    const size_t had = c->uses_room;
    if (kvb_seq_reserve(&c->slots, slot + 1) || kvb_grow(s->allocator, &c->uses, &c->uses_room, slot + 1))
        return NOWHERE;
    memset(c->uses + had, 0, (c->uses_room - had) * sizeof *c->uses);
    return slot;
}

/* Notes which token reads which slot last, and which slots no sequence holds after the step; gives those that no token
 * reads at once. back: clears these notes. */
static void uses_note(state_store *c, const kvb_feed *feed, bool back)
{
    const kvb_account *a = c->slots.store.account;
    for (uint32_t i = 0; i < feed->n; i++) {
        state_token *t = &c->tokens[i];
        if (t->parent == NOWHERE && t->begins != KVB_SCAN_ZERO)
            c->uses[t->begins].reader = back ? 0 : i + 1;
        else if (t->parent != NOWHERE) {
            c->tokens[t->parent].child = i;
            c->tokens[t->parent].read |= t->parent + 1 != i;
        }
    }
    for (uint32_t s = 0; s < a->n_changed; s++) {
        const kvb_spans *held = &c->slots.cells[a->changed[s]];
        uint32_t left = outgrown(c, a->changed[s], c->slots.next[a->changed[s]]);
        for (size_t i = 0; left; i++)
            for (uint32_t j = 0; j < held->span[i].n && left; j++, left--) {
                const uint32_t slot = (uint32_t)held->span[i].at + j;
                c->uses[slot].leaves = back ? 0 : c->uses[slot].leaves + 1;
                if (!back && is_left(c, slot) && !c->uses[slot].reader)
                    slot_give(c, slot);
            }
        if (back)
            c->slots.next[a->changed[s]] = 0;
    }
}

/* Assigns slots to each token, in the order of the feed. The last token that reads a slot may write it. */
static int slots_assign(state_store *c, uint32_t n, uint32_t *from, uint32_t *to)
{
    uint32_t *taken = &c->slots.store.slots_taken;
    *taken = 1; /* pools hold at least one slot */
    for (uint32_t i = 0; i < n; i++) {
        const state_token *t = &c->tokens[i], *parent = t->parent == NOWHERE ? NULL : &c->tokens[t->parent];
        from[i] = !parent ? t->begins : t->parent + 1 == i ? KVB_SCAN_PREVIOUS : to[t->parent];
        to[i] = KVB_SCAN_NONE;
        if (parent && parent->read && !parent->kept && parent->child == i)
            slot_give(c, to[t->parent]);
        else if (!parent && t->begins != KVB_SCAN_ZERO && c->uses[t->begins].reader == i + 1 && is_left(c, t->begins))
            slot_give(c, t->begins);
        if (!t->kept && !t->read)
            continue;
        to[i] = slot_take(c);
        if (to[i] == NOWHERE)
            return -ENOMEM;
        *taken = *taken > to[i] ? *taken : to[i] + 1;
    }
    return 0;
}

/* Makes room for the step's tokens and nodes: 0 or -ENOMEM. */
static int step_reserve(state_store *c, const kvb_feed *feed, bool proposes)
{
    kvb_store *s = &c->slots.store;
    const kvb_account *a = s->account;
    const size_t had = c->uses_room;
    int error = kvb_grow(s->allocator, &c->tokens, &c->tokens_room, feed->n);
    if (!error)
        error = kvb_grow(s->allocator, &c->links[1], &c->links_room[1], 2 * (size_t)feed->n);
    if (!error)
        error = kvb_grow(s->allocator, &c->uses, &c->uses_room, c->slots.high_water);
    if (c->uses_room > had)
        memset(c->uses + had, 0, (c->uses_room - had) * sizeof *c->uses);
    if (!error && proposes && !forgets(s))
        error = kvb_grow(s->allocator, &c->slots.nodes, &c->slots.nodes_room, a->n_nodes);
    if (!error && proposes && !forgets(s)) /* so that a commit of all nodes cannot fail */
        error = kvb_grow(s->allocator, &c->slots.resolved, &c->slots.resolved_room, a->n_nodes);
    return error;
}

/* STEP and PROPOSE: puts the slots of each fed token in links[1]: 0, or -ENOMEM with nothing to be undone. */
static int step_prepare(state_store *c, const kvb_change *change, const kvb_feed *feed)
{
    kvb_store *s = &c->slots.store;
    const kvb_account *a = s->account;
    const bool proposes = change->kind == KVB_CHANGE_PROPOSE;
    int error = step_reserve(c, feed, proposes);
    if (error)
        return error;
    for (uint32_t i = 0; i < feed->n; i++)
        c->tokens[i] = (state_token){.parent = NOWHERE, .begins = KVB_SCAN_ZERO};
    if (forgets(s))
        history_link(c, change, feed);
    else if (proposes)
        nodes_link(c, feed);
    else
        step_link(c, feed);
    for (uint32_t i = 0; i < a->n_changed && !error && !forgets(s); i++) {
        const uint32_t seq = a->changed[i], n = proposes ? a->pending[seq] : c->slots.next[seq];
        error = kvb_spans_reserve(&c->slots.cells[seq], s->allocator, n < depth_of(s) || proposes ? n : depth_of(s));
    }
    c->again = NOWHERE;
    c->lowest = c->slots.first_free;
    uses_note(c, feed, false);
    if (!error)
        error = slots_assign(c, feed->n, c->links[1], c->links[1] + feed->n);
    uses_note(c, feed, true);
    return error;
}

/* ---- which changes are possible ------------------------------------------------------------------------------ */

/* The position of the last token below p; there is one. */
static uint32_t position_below(const kvb_spans *tokens, uint32_t p)
{
    uint32_t last = 0;
    for (size_t i = 0; i < tokens->n && tokens->span[i].pos < p; i++)
        last = tokens->span[i].pos + tokens->span[i].n - 1;
    return last < p ? last : p - 1;
}

/* Does the sequence hold the state behind the token at that position? */
static bool holds(const state_store *c, uint32_t seq, uint32_t pos)
{
    return forgets(&c->slots.store) || kvb_spans_within(&c->slots.cells[seq], pos, pos + 1);
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
                              "a recurrent state can drop its last tokens or all: sequence %u goes on behind %u",
                              change->src, change->p1);
    if (holds(c, change->src, position_below(tokens, change->p0)))
        return 0;
    return kvb_store_fail(s, -ENOTSUP, "sequence %u cannot be cut back by %u tokens: its states go back by %u",
                          change->src, gone, c->slots.cells[change->src].tokens - 1);
}

/* Are all tokens of the first sequence those of the second below p? */
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
            s, -ENOTSUP,
            "a recurrent state depends on all tokens before it: sequence %u would not hold a beginning of %u",
            change->dst, change->src);
    if (holds(c, change->src, position_below(src, change->p1)))
        return 0;
    return kvb_store_fail(s, -ENOTSUP, "sequence %u has no state behind position %u: its states go back by %u tokens",
                          change->src, position_below(src, change->p1), c->slots.cells[change->src].tokens - 1);
}

/* Each saved sequence has the state behind its last token, and those before it. Of a single sequence, states that are
 * older than a sequence may hold are left out. */
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
    if (change->src != KVB_SEQ_ALL && loaded->n_alive && load->rows[0].tokens > depth_of(s)) {
        error = kvb_spans_reserve(&last, s->allocator, load->rows[0].n);
        if (error)
            return error;
        kvb_spans_add(&last, &load->rows[0], 0, KVB_POS_END);
        kvb_spans_drop(&last, last.tokens - (uint32_t)depth_of(s));
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
        return step_prepare(c, change, feed);
    case KVB_CHANGE_COPY:
        error = copy_check(c, change);
        break;
    case KVB_CHANGE_REMOVE:
        error = remove_check(c, change);
        break;
    case KVB_CHANGE_LOAD:
        return forgets(s) ? 0 : load_prepare(c, change);
    case KVB_CHANGE_FREEZE:
        return kvb_store_fail(s, -ENOTSUP, "a recurrent state cannot be frozen");
    case KVB_CHANGE_MATCH:
        return change->n ? kvb_store_fail(s, -ENOTSUP, "a frozen prefix has no recurrent states") : 0;
    case KVB_CHANGE_DEFRAG: /* slots are read wherever they lie */
        return 0;
    default:
        break;
    }
    if (!error && !forgets(s))
        error = kvb_cache_seq.prepare(s, change, feed, plan);
    return error;
}

static void undo(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    if (change->kind == KVB_CHANGE_LOAD && !forgets(s))
        kvb_cache_seq.undo(s, change, feed, plan);
}

/* ---- adopting ------------------------------------------------------------------------------------------------- */

/* A sequence frees states that are older than it may hold. */
static void trim(state_store *c, uint32_t seq)
{
    kvb_spans *held = &c->slots.cells[seq];
    const uint32_t n = outgrown(c, seq, 0);
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
    for (uint32_t i = 0; i < feed->n && !forgets(s); i++) {
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

/* A sequence's states are those of its last tokens, without a gap. If src does not have all states of the range, dst
 * loses its own. */
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
    else if (!forgets(s) && change->kind == KVB_CHANGE_COPY)
        copy_adopt(c, change);
    else if (!forgets(s) && change->kind != KVB_CHANGE_DEFRAG)
        kvb_cache_seq.adopt(s, change, feed, plan);
    for (uint32_t i = 0; i < a->n_changed && !forgets(s); i++)
        trim(c, a->changed[i]);
    if (forgets(s)) /* slots are in use while the step is in force */
        c->slots.live = feed ? s->slots_taken : 0;
    else
        kvb_seq_settle(&c->slots);
}

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    const seq_store *slots = &((const state_store *)(const void *)s)->slots;
    *cells = slots->live;
    *high_water = forgets(s) ? slots->live : slots->high_water;
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
