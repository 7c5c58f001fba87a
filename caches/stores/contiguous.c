/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contiguous: one growing sequence; position p lies in cell p. tree: the same, and the pending nodes of a draft tree behind it:
 * node i lies in cell length + i. A commit copies the rows of the accepted path down to the committed end.
 */
#include "caches/cache.h"

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    *cells = *high_water = s->account->seq[0].tokens + s->account->n_nodes;
}

static int prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    uint32_t length = s->account->seq[0].tokens;
    kvb_span all = {0, 0, length};
    const kvb_spans committed = {.span = &all, .n = length > 0, .tokens = length};
    int error = 0;
    switch (change->kind) {
    case KVB_CHANGE_STEP:
        for (uint32_t i = 0; i < feed->n && !error; i++) {
            plan->cells[i] = feed->positions[i];
            error = kvb_plan_attend(plan, s->group, &committed, feed->positions[i]);
        }
        return error;
    case KVB_CHANGE_PROPOSE: {
        uint32_t first = s->account->n_nodes - change->n;
        /* A commit moves no more rows than are pending: with room for them now, it cannot fail for memory. */
        error = kvb_grow(s->allocator, &s->moves, &s->moves_room, s->account->n_nodes);
        if (error)
            return error;
        for (uint32_t i = 0; i < feed->n; i++)
            plan->cells[i] = length + first + i;
        return kvb_plan_attend_nodes(plan, s->group, s->account, &committed, length, first, feed->positions);
    }
    case KVB_CHANGE_COMMIT:
        for (uint32_t i = 0; i < change->n && !error; i++)
            if (change->accepted[i] != i)
                error = kvb_store_move(s, length + change->accepted[i], length + i);
        return error;
    default:
        return 0;
    }
}

const kvb_cache_type kvb_cache_contiguous = {
    .name = "contiguous",
    .summary = "one growing sequence that can be cut back",
    .flags = KVB_CACHE_REWIND,
    .store_bytes = sizeof(kvb_store),
    .occupied = occupied,
    .prepare = prepare,
};

const kvb_cache_type kvb_cache_tree = {
    .name = "tree",
    .summary = "a committed prefix and the pending nodes of a speculative tree",
    .flags = KVB_CACHE_TREE | KVB_CACHE_REWIND,
    .store_bytes = sizeof(kvb_store),
    .occupied = occupied,
    .prepare = prepare,
};
