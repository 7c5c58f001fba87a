/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which slot each token of a step begins with, and in which it leaves its state. First each token is linked to the one
 * before it, which may be in the feed or in a slot; then slots are given out in the order of the feed, so that a slot
 * that nobody holds after the step is written as soon as nobody reads it any more. Nothing that a store holds changes.
 */
#include "caches/cache.h"
#include "caches/stores/state.h"

#include <errno.h>
#include <string.h>

#define NOWHERE UINT32_MAX

/* ---- a step: which token comes behind which ---------------------------------------------------------------- */

/* The slot with a sequence's last state. */
static uint32_t last_slot(const state_store *c, uint32_t seq)
{
    const kvb_spans *held = &c->slots.cells[seq];
    const kvb_span *last = held->n ? &held->span[held->n - 1] : NULL;
    return last ? (uint32_t)last->at + last->n - 1 : KVB_SCAN_ZERO;
}

/* Each token comes behind the one before it of its sequence. The last ones of each are kept; `next` counts them all. */
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
        c->tokens[i].kept = last[feed->seqs[i]]++ < kvb_state_depth(&c->slots.store);
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

/* Whole histories, as they are fed; nothing is kept. */
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

/* ---- a step: which slots they take -------------------------------------------------------------------------- */

static bool is_left(const state_store *c, uint32_t slot)
{
    return c->uses[slot].leaves && c->uses[slot].leaves == c->slots.refs[slot];
}

static void slot_give(state_store *c, uint32_t slot)
{
    c->uses[slot].next = c->again;
    c->again = slot;
}

/* A slot for a token: one that was given, or the lowest that is free. NOWHERE: no memory. */
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

/* Notes who reads which slot last, and which slots nobody holds after the step; those that nobody reads are given at
 * once. Or (back) forgets it. */
static void uses_note(state_store *c, const kvb_feed *feed, bool back)
{
    const kvb_account *a = c->slots.store.account;
    for (uint32_t i = 0; i < feed->n; i++) {
        kvb_state_token *t = &c->tokens[i];
        if (t->parent == NOWHERE && t->begins != KVB_SCAN_ZERO)
            c->uses[t->begins].reader = back ? 0 : i + 1;
        else if (t->parent != NOWHERE) {
            c->tokens[t->parent].child = i;
            c->tokens[t->parent].read |= t->parent + 1 != i;
        }
    }
    for (uint32_t s = 0; s < a->n_changed; s++) {
        const kvb_spans *held = &c->slots.cells[a->changed[s]];
        uint32_t left = kvb_state_outgrown(c, a->changed[s], c->slots.next[a->changed[s]]);
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

/* Gives each token its slots, in the order of the feed: what is read for the last time may be written by who reads it.
 */
static int slots_assign(state_store *c, uint32_t n, uint32_t *from, uint32_t *to)
{
    uint32_t *taken = &c->slots.store.slots_taken;
    *taken = 1; /* so that there are states to speak of */
    for (uint32_t i = 0; i < n; i++) {
        const kvb_state_token *t = &c->tokens[i], *parent = t->parent == NOWHERE ? NULL : &c->tokens[t->parent];
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

/* Room for what the step's tokens and nodes want: 0 or -ENOMEM. */
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
    if (!error && proposes && !kvb_state_forgets(s))
        error = kvb_grow(s->allocator, &c->slots.nodes, &c->slots.nodes_room, a->n_nodes);
    if (!error && proposes && !kvb_state_forgets(s)) /* a commit of all cannot fail then */
        error = kvb_grow(s->allocator, &c->slots.resolved, &c->slots.resolved_room, a->n_nodes);
    return error;
}

int kvb_state_step(state_store *c, const kvb_change *change, const kvb_feed *feed)
{
    kvb_store *s = &c->slots.store;
    const kvb_account *a = s->account;
    const bool proposes = change->kind == KVB_CHANGE_PROPOSE;
    int error = step_reserve(c, feed, proposes);
    if (error)
        return error;
    for (uint32_t i = 0; i < feed->n; i++)
        c->tokens[i] = (kvb_state_token){.parent = NOWHERE, .begins = KVB_SCAN_ZERO};
    if (kvb_state_forgets(s))
        history_link(c, change, feed);
    else if (proposes)
        nodes_link(c, feed);
    else
        step_link(c, feed);
    for (uint32_t i = 0; i < a->n_changed && !error && !kvb_state_forgets(s); i++) {
        const uint32_t seq = a->changed[i], n = proposes ? a->pending[seq] : c->slots.next[seq];
        error = kvb_spans_reserve(&c->slots.cells[seq], s->allocator,
                                  n < kvb_state_depth(s) || proposes ? n : kvb_state_depth(s));
    }
    c->again = NOWHERE;
    c->lowest = c->slots.first_free;
    uses_note(c, feed, false);
    if (!error)
        error = slots_assign(c, feed->n, c->links[1], c->links[1] + feed->n);
    uses_note(c, feed, true);
    return error;
}
