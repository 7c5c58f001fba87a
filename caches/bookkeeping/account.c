/* SPDX-License-Identifier: Apache-2.0 */
/* The account of a cache's tokens: making a change of it. What may be done: account_check.c. */
#include "caches/bookkeeping/account.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { LISTS = 5 }; /* alive, changed, place, tally, pending: one block */

int kvb_account_open(kvb_account *a)
{
    a->seq = kvb_alloc_zeroed(a->allocator, a->n_ids * sizeof *a->seq);
    a->alive = kvb_alloc_zeroed(a->allocator, LISTS * a->n_ids * sizeof *a->alive);
    if (!a->seq || !a->alive)
        return -ENOMEM;
    a->changed = a->alive + a->n_ids;
    a->place = a->changed + a->n_ids;
    a->tally = a->place + a->n_ids;
    a->pending = a->tally + a->n_ids;
    return 0;
}

void kvb_account_close(kvb_account *a)
{
    for (uint32_t s = 0; s < a->n_ids && a->seq; s++)
        kvb_spans_free(&a->seq[s], a->allocator);
    kvb_free(a->allocator, a->seq, a->n_ids * sizeof *a->seq);
    kvb_free(a->allocator, a->alive, LISTS * a->n_ids * sizeof *a->alive);
    kvb_free(a->allocator, a->node, a->node_room * sizeof *a->node);
    kvb_spans_aside_free(&a->reordered, a->allocator);
    *a = (kvb_account){.allocator = a->allocator};
}

/* ---- doing it ------------------------------------------------------------------------------------------- */

/* Notes the sequences of a step or proposal, and counts in each the spans that its tokens make if every stretch of
 * neighbours makes one; nodes make one each. */
static void step_tally(kvb_account *a, const kvb_change *change)
{
    for (uint32_t i = 0; i < change->n; i++) {
        uint32_t s = kvb_change_seq(change, i);
        if (change->kind == KVB_CHANGE_STEP && i > 0 && s == kvb_change_seq(change, i - 1))
            continue;
        if (a->tally[s]++ == 0)
            a->changed[a->n_changed++] = s;
    }
}

static int by_id(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Notes the sequences that let go of something, in the order of their ids. */
static void removed_note(kvb_account *a, const kvb_change *change)
{
    if (!change->others)
        a->changed[a->n_changed++] = change->src;
    for (uint32_t i = 0; i < a->n_alive && change->others; i++)
        if (a->alive[i] != change->src)
            a->changed[a->n_changed++] = a->alive[i];
    qsort(a->changed, a->n_changed, sizeof *a->changed, by_id);
}

/* Stretches of tokens that follow each other. */
static size_t stretches(const uint64_t *ordinals, uint32_t n)
{
    size_t some = n > 0;
    for (uint32_t i = 1; i < n; i++)
        some += ordinals[i] != ordinals[i - 1] + 1;
    return some;
}

/* Notes the sequences that come, and with the whole cache those that go; room for their tokens: 0 or -ENOMEM. */
static int load_reserve(kvb_account *a, const kvb_change *change)
{
    const kvb_account *l = change->loaded;
    int error = 0;
    for (uint32_t i = 0; i < a->n_alive && change->src == KVB_SEQ_ALL; i++)
        a->changed[a->n_changed++] = a->alive[i];
    for (uint32_t i = 0; i < l->n_alive && !error; i++) {
        const uint32_t s = l->alive[i];
        if (!a->seq[s].tokens)
            a->changed[a->n_changed++] = s;
        error = kvb_spans_reserve(&a->seq[s], a->allocator, l->seq[s].n);
    }
    return error;
}

int kvb_account_reserve(kvb_account *a, const kvb_change *change)
{
    int error = 0;
    a->n_changed = 0;
    switch (change->kind) {
    case KVB_CHANGE_STEP:
    case KVB_CHANGE_PROPOSE: /* with room for a commit of all nodes, which then cannot fail */
        step_tally(a, change);
        for (uint32_t i = 0; i < a->n_changed; i++) {
            uint32_t s = a->changed[i];
            error = error ? error : kvb_spans_reserve(&a->seq[s], a->allocator, (size_t)a->pending[s] + a->tally[s]);
            a->tally[s] = 0;
        }
        if (!error && change->kind == KVB_CHANGE_PROPOSE)
            error = kvb_grow(a->allocator, &a->node, &a->node_room, (size_t)a->n_nodes + change->n);
        return error;
    case KVB_CHANGE_COMMIT:
        a->changed[a->n_changed++] = change->src;
        return 0;
    case KVB_CHANGE_COPY:
        a->changed[a->n_changed++] = change->dst;
        return kvb_spans_reserve(&a->seq[change->dst], a->allocator, a->seq[change->src].n);
    case KVB_CHANGE_REMOVE:
        removed_note(a, change);
        return change->others ? 0 : kvb_spans_reserve(&a->seq[change->src], a->allocator, 1);
    case KVB_CHANGE_MATCH:
        a->changed[a->n_changed++] = change->src;
        return kvb_spans_reserve(&a->seq[change->src], a->allocator, stretches(change->ordinals, change->n));
    case KVB_CHANGE_REORDER:
        for (uint32_t i = 0; i < change->n; i++)
            a->changed[a->n_changed++] = change->dsts[i];
        return kvb_spans_gather(&a->reordered, a->allocator, a->seq, change->srcs, change->n);
    case KVB_CHANGE_DEFRAG:
    case KVB_CHANGE_FREEZE:
        return 0;
    case KVB_CHANGE_SHIFT: /* which cuts two spans in two, or makes a span of each token */
        a->changed[a->n_changed++] = change->src;
        return kvb_spans_reserve(
            &a->seq[change->src], a->allocator,
            change->divisor ? kvb_spans_within(&a->seq[change->src], change->p0, change->p1) + (size_t)2 : 2);
    case KVB_CHANGE_LOAD:
        return load_reserve(a, change);
    }
    return -EINVAL;
}

/* What the sequences hold that change. */
static uint32_t changed_tokens(const kvb_account *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_changed; i++)
        n += a->seq[a->changed[i]].tokens;
    return n;
}

/* A node more of a sequence, or fewer. */
static void pending_count(kvb_account *a, uint32_t seq, int by)
{
    const bool was = a->pending[seq];
    a->pending[seq] += (uint32_t)by;
    if (!a->seq[seq].tokens && was != (a->pending[seq] > 0))
        a->n_promised += was ? UINT32_MAX : 1;
}

static void node_admit(kvb_account *a, uint32_t seq, int32_t parent, uint64_t ordinal)
{
    const uint32_t depth = parent < 0 ? 0 : a->node[kvb_account_node(a, seq, (uint32_t)parent)].depth + 1;
    a->node[a->n_nodes++] = (kvb_node){ordinal, seq, a->pending[seq], parent, depth};
    pending_count(a, seq, 1);
}

/* The accepted nodes of src join it, the others are gone. */
static void nodes_commit(kvb_account *a, const kvb_change *change)
{
    kvb_spans *seq = &a->seq[change->src];
    const uint32_t len = kvb_spans_next(seq);
    uint32_t left = 0;
    pending_count(a, change->src, -(int)a->pending[change->src]);
    for (uint32_t i = 0; i < change->n; i++)
        kvb_spans_append(seq, len + i, a->node[kvb_account_node(a, change->src, change->accepted[i])].ordinal);
    for (uint32_t i = 0; i < a->n_nodes; i++)
        if (a->node[i].seq != change->src)
            a->node[left++] = a->node[i];
    a->n_nodes = left;
}

/* The sequences that have changed join those alive, or leave them; `had`: what they held before. */
static void alive_settle(kvb_account *a, uint32_t had)
{
    a->held += changed_tokens(a) - had;
    for (uint32_t i = 0; i < a->n_changed; i++) {
        uint32_t s = a->changed[i], at = a->place[s];
        bool listed = at < a->n_alive && a->alive[at] == s;
        if (a->seq[s].tokens && !listed) {
            a->place[s] = a->n_alive;
            a->alive[a->n_alive++] = s;
        } else if (!a->seq[s].tokens && listed) {
            a->alive[at] = a->alive[--a->n_alive];
            a->place[a->alive[at]] = at;
        }
    }
}

void kvb_account_admit(kvb_account *a, const kvb_change *change, uint32_t *positions)
{
    uint32_t had = changed_tokens(a);
    for (uint32_t i = 0; i < change->n; i++) {
        const uint32_t seq = kvb_change_seq(change, i);
        kvb_spans *s = &a->seq[seq];
        positions[i] = kvb_spans_next(s);
        if (change->kind == KVB_CHANGE_PROPOSE) {
            node_admit(a, seq, change->parents[i], a->next_ordinal + i);
            positions[i] += a->node[a->n_nodes - 1].depth;
        } else {
            kvb_spans_append(s, positions[i], a->next_ordinal + i);
        }
    }
    a->next_ordinal += change->n;
    alive_settle(a, had);
}

void kvb_account_withdraw(kvb_account *a, const kvb_change *change, const uint32_t *positions)
{
    uint32_t had = changed_tokens(a);
    a->next_ordinal -= change->n;
    for (uint32_t i = 0; i < change->n; i++)
        if (change->kind == KVB_CHANGE_PROPOSE)
            pending_count(a, a->node[--a->n_nodes].seq, -1);
        else /* a sequence's first one cuts them all */
            kvb_spans_cut(&a->seq[kvb_change_seq(change, i)], positions[i], KVB_POS_END);
    alive_settle(a, had);
}

/* Of spans that lie within positions p0 .. p1-1 each token becomes a span; from the last one on, since there is room
 * behind them. */
static void spans_scatter(kvb_spans *s, uint32_t p0, uint32_t p1)
{
    size_t first = 0, end, at = s->n;
    while (first < s->n && s->span[first].pos < p0)
        first++;
    for (end = first; end < s->n && s->span[end].pos < p1; end++)
        at += s->span[end].n - 1;
    for (size_t i = s->n; i > end; i--)
        s->span[at - (s->n - i) - 1] = s->span[i - 1];
    const size_t behind = s->n - end;
    s->n = at;
    at -= behind;
    for (size_t i = end; i > first; i--) {
        const kvb_span whole = s->span[i - 1];
        for (uint32_t k = whole.n; k > 0; k--)
            s->span[--at] = (kvb_span){whole.at + k - 1, whole.pos + k - 1, 1};
    }
}

static void shift_apply(kvb_account *a, const kvb_change *change)
{
    kvb_spans *s = &a->seq[change->src];
    const uint64_t ordinals = (UINT64_C(1) << KVB_REVISION_AT) - 1;
    kvb_spans_split(s, change->p0);
    kvb_spans_split(s, change->p1);
    if (change->divisor) /* each token moves by a distance of its own */
        spans_scatter(s, change->p0, change->p1);
    a->shifts++;
    for (size_t i = 0; i < s->n; i++)
        if (s->span[i].pos >= change->p0 && s->span[i].pos < change->p1) {
            a->shifted = true;
            s->span[i].pos = (uint32_t)kvb_change_moved(change, s->span[i].pos);
            s->span[i].at = (s->span[i].at & ordinals) | (uint64_t)a->shifts << KVB_REVISION_AT;
        }
}

static void load_apply(kvb_account *a, const kvb_account *l)
{
    for (uint32_t i = 0; i < a->n_changed; i++)
        kvb_spans_cut(&a->seq[a->changed[i]], 0, KVB_POS_END);
    for (uint32_t i = 0; i < l->n_alive; i++)
        kvb_spans_add(&a->seq[l->alive[i]], &l->seq[l->alive[i]], 0, KVB_POS_END);
    a->next_ordinal = a->next_ordinal > l->next_ordinal ? a->next_ordinal : l->next_ordinal;
    a->shifts = a->shifts > l->shifts ? a->shifts : l->shifts;
}

void kvb_account_apply(kvb_account *a, const kvb_change *change)
{
    uint32_t had = changed_tokens(a);
    for (; change->drops_nodes && a->n_nodes; a->n_nodes--)
        pending_count(a, a->node[a->n_nodes - 1].seq, -1);
    if (change->kind == KVB_CHANGE_COPY)
        kvb_spans_add(&a->seq[change->dst], &a->seq[change->src], change->p0, change->p1);
    if (change->kind == KVB_CHANGE_SHIFT)
        shift_apply(a, change);
    if (change->kind == KVB_CHANGE_COMMIT)
        nodes_commit(a, change);
    for (uint32_t i = 0; i < a->n_changed && change->kind == KVB_CHANGE_REMOVE; i++)
        kvb_spans_cut(&a->seq[a->changed[i]], change->p0, change->p1);
    for (uint32_t i = 0; i < change->n && change->kind == KVB_CHANGE_MATCH; i++)
        kvb_spans_append(&a->seq[change->src], i, change->ordinals[i]);
    if (change->kind == KVB_CHANGE_MATCH)
        a->next_ordinal += change->n;
    if (change->kind == KVB_CHANGE_REORDER)
        kvb_spans_scatter(&a->reordered, a->allocator, a->seq, change->dsts);
    if (change->kind == KVB_CHANGE_LOAD)
        load_apply(a, change->loaded);
    if (change->drops_nodes || (change->kind == KVB_CHANGE_LOAD && change->src == KVB_SEQ_ALL))
        a->shifted = false;
    alive_settle(a, had);
}

int kvb_account_put(kvb_account *a, uint32_t seq, const kvb_span *tokens, size_t n)
{
    kvb_spans *s = &a->seq[seq];
    int error = kvb_spans_reserve(s, a->allocator, n);
    for (size_t i = 0; i < n && !error; i++) {
        s->span[s->n++] = tokens[i];
        s->tokens += tokens[i].n;
        const uint64_t end = (tokens[i].at & ((UINT64_C(1) << KVB_REVISION_AT) - 1)) + tokens[i].n;
        const uint32_t revision = (uint32_t)(tokens[i].at >> KVB_REVISION_AT);
        a->next_ordinal = a->next_ordinal > end ? a->next_ordinal : end;
        a->shifts = a->shifts > revision ? a->shifts : revision;
    }
    a->changed[0] = seq;
    a->n_changed = 1;
    alive_settle(a, 0);
    return error;
}
