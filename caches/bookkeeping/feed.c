/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds: the new tokens of a step, and whole histories. */
#include "caches/bookkeeping/feed.h"

#include <errno.h>
#include <string.h>

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
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        kvb_spans_free(&f->seen[s], a);
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

static void token_count(void *ctx, uint32_t seq, uint32_t first, uint32_t pos, uint64_t ordinal)
{
    history *h = ctx;
    (void)pos;
    h->n_old += first == seq && ordinal < h->first_new;
}

static uint64_t place_of(const kvb_spans *s, uint32_t pos)
{
    size_t i = 0;
    while (s->span[i].pos + s->span[i].n <= pos)
        i++;
    return s->span[i].at + (pos - s->span[i].pos);
}

static void token_feed(void *ctx, uint32_t seq, uint32_t first, uint32_t pos, uint64_t ordinal)
{
    history *h = ctx;
    kvb_feed *f = h->feed;
    uint64_t at;
    if (!h->error)
        h->error = kvb_spans_reserve(&f->seen[seq], h->allocator, 1);
    if (h->error)
        return;
    if (first < seq) {
        at = place_of(&f->seen[first], pos);
    } else if (ordinal >= h->first_new) {
        at = f->n - f->n_new + (ordinal - h->first_new);
    } else {
        at = h->n_old++;
        f->ordinals[at] = ordinal;
        f->positions[at] = pos;
        f->seqs[at] = seq;
    }
    kvb_spans_append(&f->seen[seq], pos, at);
}

/* Puts what was there before the new tokens, which are admitted already, in front of them. */
static int history_make(kvb_feed *f, kvb_account *account, const kvb_change *change)
{
    history h = {.feed = f, .allocator = account->allocator, .first_new = account->next_ordinal - change->n};
    uint32_t nodes = change->kind == KVB_CHANGE_PROPOSE ? account->n_nodes - change->n : 0;
    uint64_t seqs = 0;
    for (uint32_t i = 0; i < change->n; i++)
        seqs |= (uint64_t)1 << kvb_change_seq(change, i);
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        f->seen[s].n = f->seen[s].tokens = 0;
    kvb_account_visit(account, seqs, token_count, &h);
    uint32_t old = h.n_old + nodes;
    int error = room_make(f, account->allocator, (size_t)old + change->n);
    if (error)
        return error;
    f->n = old + change->n;
    memmove(f->positions + old, f->positions, change->n * sizeof *f->positions);
    h.n_old = 0;
    kvb_account_visit(account, seqs, token_feed, &h);
    for (uint32_t i = 0; i < nodes; i++) {
        f->ordinals[h.n_old + i] = account->first_node + i;
        f->positions[h.n_old + i] = kvb_spans_next(&account->seq[0]) + account->node[i].depth;
        f->seqs[h.n_old + i] = 0;
    }
    return h.error;
}

int kvb_feed_make(kvb_feed *f, kvb_account *account, const kvb_change *change, bool whole_histories)
{
    uint64_t first = account->next_ordinal;
    uint32_t n = change->n;
    int error = room_make(f, account->allocator, n);
    if (error)
        return error;
    f->n = f->n_new = n;
    kvb_account_admit(account, change, f->positions);
    if (whole_histories)
        error = history_make(f, account, change);
    if (error)
        kvb_account_withdraw(account, change, kvb_feed_new(f));
    for (uint32_t i = 0; i < n && !error; i++) {
        f->ordinals[f->n - n + i] = first + i;
        f->seqs[f->n - n + i] = kvb_change_seq(change, i);
    }
    return error;
}
