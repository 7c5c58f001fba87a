/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contiguous: one growing sequence; position p lies in cell p. tree: the same, with pending nodes of a draft tree
 * behind it; node i lies in cell length + i. A commit copies the rows of the accepted path down to the committed end.
 */
#include "caches/cache.h"

#include <errno.h>

static void occupied(const kvb_store *s, uint32_t *cells, uint32_t *high_water)
{
    *cells = *high_water = s->account->seq[0].tokens + s->account->n_nodes;
}

static int lies(kvb_store *s, uint32_t seq, kvb_spans *cells)
{
    const uint32_t n = s->account->seq[seq].tokens;
    int error = kvb_spans_reserve(cells, s->allocator, 1);
    if (!error && n) {
        cells->span[cells->n++] = (kvb_span){0, 0, n};
        cells->tokens = n;
    }
    return error;
}

/* Loads one sequence without holes. The number of a row, and its cell, is its position. */
static int load_prepare(kvb_store *s, const kvb_change *change)
{
    const uint32_t n = s->load->n_rows;
    int error = 0;
    if (change->loaded->n_alive > 1 || change->loaded->seq[0].tokens != change->loaded->held ||
        kvb_spans_next(&change->loaded->seq[0]) != n)
        return kvb_store_fail(s, -ENOTSUP, "cache %s holds sequence 0 alone, without holes", s->type->name);
    for (size_t i = 0; n && i < s->load->rows->n; i++)
        if (s->load->rows->span[i].at != s->load->rows->span[i].pos)
            return kvb_store_fail(s, -EINVAL, "sequence 0 does not lie in the first cells");
    if (n > s->options->capacity)
        return kvb_store_fail(s, -ENOSPC, "no room for %u rows: there are %u cells", n, s->options->capacity);
    for (uint32_t i = 0; i < n && !error && change->src != KVB_SEQ_ALL; i++)
        error = kvb_store_move(s, i, i);
    return error;
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
        /* Room for the moves of a commit of all nodes, so that commits cannot fail for lack of memory. */
        error = kvb_grow(s->allocator, &s->moves, &s->moves_room, s->account->n_nodes);
        if (error)
            return error;
        for (uint32_t i = 0; i < feed->n && !error; i++) {
            plan->cells[i] = length + first + i;
            error = kvb_plan_attend_node(plan, s->group, s->account, &committed, length, NULL, first + i,
                                         feed->positions[i]);
        }
        return error;
    }
    case KVB_CHANGE_COMMIT:
        for (uint32_t i = 0; i < change->n && !error; i++)
            if (change->accepted[i] != i)
                error = kvb_store_move(s, length + change->accepted[i], length + i);
        return error;
    case KVB_CHANGE_LOAD:
        return load_prepare(s, change);
    default:
        return 0;
    }
}

const kvb_cache_type kvb_cache_contiguous = {
    .name = "contiguous",
    .summary = "one growing sequence that can be cut back",
    .flags = KVB_CACHE_REWIND | KVB_CACHE_EXACT | KVB_CACHE_SAVES,
    .store_bytes = sizeof(kvb_store),
    .occupied = occupied,
    .lies = lies,
    .prepare = prepare,
};

const kvb_cache_type kvb_cache_tree = {
    .name = "tree",
    .summary = "a committed prefix and the pending nodes of a speculative tree",
    .flags = KVB_CACHE_TREE | KVB_CACHE_REWIND | KVB_CACHE_EXACT | KVB_CACHE_SAVES,
    .store_bytes = sizeof(kvb_store),
    .occupied = occupied,
    .lies = lies,
    .prepare = prepare,
};
