/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recompute: no cache. Nothing survives a step: it is fed the rows of every token that the step's sequences hold, writes them
 * anew from cell 0, and all of them are queries again.
 */
#include "caches/cache.h"

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    *cells = kvb_account_tokens(s->account) + s->account->n_nodes;
    *high_water = s->plan.n;
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    uint32_t nodes = change->kind == KVB_CHANGE_PROPOSE ? s->account->n_nodes : 0;
    int error = 0;
    for (uint32_t i = 0; feed && i < feed->n; i++)
        plan->cells[i] = i;
    for (uint32_t i = 0; feed && i < feed->n - nodes && !error; i++)
        error = kvb_plan_attend(plan, s->group, &feed->seen[feed->seqs[i]], feed->positions[i]);
    if (!error && nodes)
        error = kvb_plan_attend_nodes(plan, s->group, s->account, &feed->seen[0], feed->n - nodes, 0,
                                      feed->positions + (feed->n - nodes));
    return error;
}

const kvb_cache_type kvb_cache_recompute = {
    .name = "recompute",
    .summary = "no cache: every step is handed the whole history again",
    .flags = KVB_CACHE_SEQ | KVB_CACHE_TREE | KVB_CACHE_FORGETS,
    .store_bytes = sizeof(kvb_store),
    .occupied = occupied,
    .prepare = prepare,
};
