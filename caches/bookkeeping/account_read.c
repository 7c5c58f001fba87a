/* SPDX-License-Identifier: Apache-2.0 */
/* The account of a cache's tokens, read: which sequences hold which tokens. */
#include "caches/bookkeeping/account.h"

/* A sequence's tokens, told apart by which of others [n_others] hold them too. */
typedef struct walk {
    const kvb_account *account;
    const uint32_t *others;
    kvb_span_visit *visit;
    void *ctx;
    uint32_t seq;
} walk;

/* Tokens by ascending position; others from number n_others - 1 down are asked. A token has one position, in whichever
 * sequence, so that two spans share tokens where ordinals less positions are the same. */
static void span_walk(const walk *w, uint32_t n_others, kvb_span tokens)
{
    while (n_others-- > 0 && tokens.n) {
        uint32_t other = w->others[n_others], end = tokens.pos + tokens.n;
        const kvb_spans *held = &w->account->seq[other];
        for (size_t i = 0; other != w->seq && i < held->n && held->span[i].pos < end && tokens.n; i++) {
            kvb_span shared = kvb_span_clip(held->span[i], tokens.pos, end);
            if (shared.n == 0 || shared.at - shared.pos != tokens.at - tokens.pos)
                continue;
            span_walk(w, n_others, kvb_span_clip(tokens, tokens.pos, shared.pos));
            w->visit(w->ctx, w->seq, other, shared);
            tokens = kvb_span_clip(tokens, shared.pos + shared.n, end);
        }
    }
    if (tokens.n)
        w->visit(w->ctx, w->seq, w->seq, tokens);
}

void kvb_account_visit(const kvb_account *a, const uint32_t *seqs, uint32_t n, kvb_span_visit *visit, void *ctx)
{
    for (uint32_t i = 0; i < n; i++)
        for (size_t j = 0; j < a->seq[seqs[i]].n; j++)
            span_walk(&(walk){a, seqs, visit, ctx, seqs[i]}, i, a->seq[seqs[i]].span[j]);
}

static void alone_count(void *ctx, uint32_t seq, uint32_t holder, kvb_span tokens)
{
    *(uint32_t *)ctx += holder == seq ? tokens.n : 0;
}

uint32_t kvb_account_alone(const kvb_account *a, uint32_t seq, uint32_t p0, uint32_t p1)
{
    uint32_t n = 0;
    for (size_t i = 0; i < a->seq[seq].n; i++)
        span_walk(&(walk){a, a->alive, alone_count, &n, seq}, a->n_alive, kvb_span_clip(a->seq[seq].span[i], p0, p1));
    return n;
}

uint32_t kvb_account_brings(const kvb_account *a, const kvb_change *change)
{
    const kvb_account *l = change->loaded;
    uint32_t n = 0;
    if (change->src == KVB_SEQ_ALL)
        kvb_account_visit(l, l->alive, l->n_alive, alone_count, &n);
    for (size_t i = 0; change->src != KVB_SEQ_ALL && i < l->seq[change->src].n; i++)
        span_walk(&(walk){a, a->alive, alone_count, &n, change->src}, a->n_alive, l->seq[change->src].span[i]);
    return n;
}

void kvb_account_path(const kvb_account *a, uint32_t node, uint32_t *path)
{
    const uint32_t seq = a->node[node].seq;
    uint32_t i = a->node[node].depth;
    path[i] = node;
    for (int32_t wanted = a->node[node].parent; wanted >= 0;) { /* a parent comes before its children */
        const kvb_node *at = &a->node[--node];
        if (at->seq != seq || at->number != (uint32_t)wanted)
            continue;
        path[--i] = node;
        wanted = at->parent;
    }
}

uint32_t kvb_account_node(const kvb_account *a, uint32_t seq, uint32_t number)
{
    uint32_t i = a->n_nodes - 1;
    while (a->node[i].seq != seq || a->node[i].number != number)
        i--;
    return i;
}
