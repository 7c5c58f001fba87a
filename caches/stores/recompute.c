/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recompute: no cache. No row survives a step. Each step is fed the rows of all tokens that its sequences hold, writes
 * them from cell 0 on, and makes all of them queries again.
 */
#include "caches/cache.h"

#include <errno.h>

typedef struct recompute_store {
    kvb_store store;
    uint32_t tokens, next_tokens; /* distinct tokens of all sequences, now and after the prepared change */
} recompute_store;

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    *cells = ((const recompute_store *)s)->tokens + s->account->n_nodes;
    *high_water = s->plan.n;
}

static uint32_t tokens_after(const recompute_store *r, const kvb_change *change)
{
    const kvb_account *a = r->store.account;
    if (change->kind == KVB_CHANGE_STEP || change->kind == KVB_CHANGE_COMMIT)
        return r->tokens + change->n;
    if (change->kind == KVB_CHANGE_LOAD)
        return kvb_account_brings(a, change) + (change->src == KVB_SEQ_ALL ? 0 : r->tokens);
    if (change->kind != KVB_CHANGE_REMOVE)
        return r->tokens;
    if (change->others)
        return change->src < a->n_ids ? a->seq[change->src].tokens : 0;
    return r->tokens - kvb_account_alone(a, change->src, change->p0, change->p1);
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    recompute_store *r = (recompute_store *)s;
    int error = 0;
    r->next_tokens = tokens_after(r, change);
    if (change->kind == KVB_CHANGE_LOAD && r->next_tokens > s->options->capacity)
        return kvb_store_fail(s, -ENOSPC, "no room for %u tokens: there is room for %u", r->next_tokens,
                              s->options->capacity);
    for (uint32_t i = 0; feed && i < feed->n; i++)
        plan->cells[i] = i;
    uint32_t node = 0, n_nodes = change->kind == KVB_CHANGE_PROPOSE ? s->account->n_nodes : 0;
    for (uint32_t i = 0; feed && i < feed->n && !error; i++) {
        const kvb_spans *seen = &feed->seen[feed->seqs[i]];
        while (node < n_nodes && feed->node[node] == UINT32_MAX) /* of a sequence that is not fed */
            node++;
        const bool is_node = node < n_nodes && feed->node[node] == i;
        error = is_node
                    ? kvb_plan_attend_node(plan, s->group, s->account, seen, 0, feed->node, node, feed->positions[i])
                    : kvb_plan_attend(plan, s->group, seen, feed->positions[i]);
        node += is_node;
    }
    return error;
}

static void tokens_count(void *ctx, uint32_t seq, uint32_t holder, kvb_span tokens)
{
    ((recompute_store *)ctx)->tokens += seq == holder ? tokens.n : 0;
}

static void adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    recompute_store *r = (recompute_store *)s;
    (void)feed, (void)plan;
    r->tokens = change->kind == KVB_CHANGE_REORDER ? 0 : r->next_tokens;
    if (change->kind == KVB_CHANGE_REORDER) /* counted anew: which tokens are lost is known only afterwards */
        kvb_account_visit(s->account, s->account->alive, s->account->n_alive, tokens_count, r);
}

const kvb_cache_type kvb_cache_recompute = {
    .name = "recompute",
    .summary = "no cache: every step is handed the whole history again",
    .flags = KVB_CACHE_SEQ | KVB_CACHE_REORDER | KVB_CACHE_TREE | KVB_CACHE_FORGETS | KVB_CACHE_EXACT | KVB_CACHE_SAVES,
    .store_bytes = sizeof(recompute_store),
    .occupied = occupied,
    .prepare = prepare,
    .adopt = adopt,
};
