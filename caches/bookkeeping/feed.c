/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds: the new tokens of a step, and whole histories. */
#include "caches/bookkeeping/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int kvb_feed_open(kvb_feed *f, kvb_allocator *a, uint32_t n_ids)
{
    f->seen = n_ids ? kvb_alloc_zeroed(a, n_ids * sizeof *f->seen) : NULL;
    f->n_seen = f->seen ? n_ids : 0;
    return n_ids && !f->seen ? -ENOMEM : 0;
}

static int room_make(kvb_feed *f, kvb_allocator *a, size_t n)
{
    int error = kvb_grow(a, &f->ordinals, &f->ordinals_room, n);
    if (!error)
        error = kvb_grow(a, &f->positions, &f->positions_room, n);
    return error ? error : kvb_grow(a, &f->seqs, &f->seqs_room, n);
}

void kvb_feed_close(kvb_feed *f, kvb_allocator *a)
{
    kvb_free(a, f->ordinals, f->ordinals_room * sizeof *f->ordinals);
    kvb_free(a, f->positions, f->positions_room * sizeof *f->positions);
    kvb_free(a, f->seqs, f->seqs_room * sizeof *f->seqs);
    kvb_free(a, f->node, f->node_room * sizeof *f->node);
    for (uint32_t s = 0; s < f->n_seen; s++)
        kvb_spans_free(&f->seen[s], a);
    kvb_free(a, f->seen, f->n_seen * sizeof *f->seen);
    *f = (kvb_feed){0};
}

/* ---- whole histories ------------------------------------------------------------------------------------ */

typedef struct history {
    kvb_feed *feed;
    kvb_allocator *allocator;
    uint64_t first_new; /* ordinal */
    uint32_t n_old;     /* old tokens counted, or fed, so far */
    int error;
} history;

/* Of tokens that have ordinals one after the other, those that are not new. */
static uint32_t old_of(const history *h, kvb_span tokens)
{
    uint64_t old = tokens.at < h->first_new ? h->first_new - tokens.at : 0;
    return old < tokens.n ? (uint32_t)old : tokens.n;
}

static void tokens_count(void *ctx, uint32_t seq, uint32_t holder, kvb_span tokens)
{
    history *h = ctx;
    h->n_old += holder == seq ? old_of(h, tokens) : 0;
}

/* Places of tokens that the feed has already, for another sequence. */
static uint64_t place_of(const kvb_spans *s, uint32_t pos)
{
    size_t i = 0;
    while (s->span[i].pos + s->span[i].n <= pos)
        i++;
    return s->span[i].at + (pos - s->span[i].pos);
}

static void tokens_feed(void *ctx, uint32_t seq, uint32_t holder, kvb_span tokens)
{
    history *h = ctx;
    kvb_feed *f = h->feed;
    for (uint32_t i = 0, old = old_of(h, tokens); i < tokens.n; i++) {
        uint32_t pos = tokens.pos + i;
        uint64_t at = f->n - f->n_new + (tokens.at + i - h->first_new);
        if (!h->error)
            h->error = kvb_spans_reserve(&f->seen[seq], h->allocator, 1);
        if (h->error)
            return;
        if (holder != seq) {
            at = place_of(&f->seen[holder], pos);
        } else if (i < old) {
            at = h->n_old++;
            f->ordinals[at] = tokens.at + i;
            f->positions[at] = pos;
            f->seqs[at] = seq;
        }
        kvb_spans_append(&f->seen[seq], pos, at);
    }
}

static int by_id(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool is_changed(const kvb_account *a, uint32_t seq)
{
    uint32_t i = 0;
    while (i < a->n_changed && a->changed[i] != seq)
        i++;
    return i < a->n_changed;
}

/* Places of the nodes of the proposal's sequences: those that were pending before from `at` on; the new ones are the
 * last of the feed. Returns how many were. */
static uint32_t nodes_place(kvb_feed *f, const kvb_account *a, uint32_t n_new, uint32_t at)
{
    const uint32_t first = at, before = a->n_nodes - n_new;
    for (uint32_t i = 0; i < before; i++)
        f->node[i] = is_changed(a, a->node[i].seq) ? at++ : UINT32_MAX;
    for (uint32_t i = before; i < a->n_nodes; i++)
        f->node[i] = at + (i - before);
    return at - first;
}

/* Puts what was there before the new tokens, which are admitted already, in front of them. */
static int history_make(kvb_feed *f, kvb_account *account, const kvb_change *change)
{
    history h = {.feed = f, .allocator = account->allocator, .first_new = account->next_ordinal - change->n};
    const bool proposes = change->kind == KVB_CHANGE_PROPOSE;
    int error = proposes ? kvb_grow(account->allocator, &f->node, &f->node_room, account->n_nodes) : 0;
    if (error)
        return error;
    qsort(account->changed, account->n_changed, sizeof *account->changed, by_id);
    for (uint32_t i = 0; i < account->n_changed; i++)
        f->seen[account->changed[i]].n = f->seen[account->changed[i]].tokens = 0;
    kvb_account_visit(account, account->changed, account->n_changed, tokens_count, &h);
    const uint32_t nodes = proposes ? nodes_place(f, account, change->n, h.n_old) : 0, old = h.n_old + nodes;
    error = room_make(f, account->allocator, (size_t)old + change->n);
    if (error)
        return error;
    f->n = old + change->n;
    memmove(f->positions + old, f->positions, change->n * sizeof *f->positions);
    h.n_old = 0;
    kvb_account_visit(account, account->changed, account->n_changed, tokens_feed, &h);
    for (uint32_t i = 0; proposes && i < account->n_nodes - change->n; i++) {
        const kvb_node *node = &account->node[i];
        const uint32_t at = f->node[i];
        if (at == UINT32_MAX)
            continue;
        f->ordinals[at] = node->ordinal;
        f->positions[at] = kvb_spans_next(&account->seq[node->seq]) + node->depth;
        f->seqs[at] = node->seq;
    }
    return h.error;
}

int kvb_feed_make(kvb_feed *f, kvb_account *account, const kvb_change *change)
{
    uint64_t first = account->next_ordinal;
    uint32_t n = change->n;
    int error = room_make(f, account->allocator, n);
    if (error)
        return error;
    f->n = f->n_new = n;
    kvb_account_admit(account, change, f->positions);
    if (f->seen)
        error = history_make(f, account, change);
    if (error)
        kvb_account_withdraw(account, change, kvb_feed_new(f));
    for (uint32_t i = 0; i < n && !error; i++) {
        f->ordinals[f->n - n + i] = first + i;
        f->seqs[f->n - n + i] = kvb_change_seq(change, i);
    }
    return error;
}
