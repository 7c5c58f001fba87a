/* SPDX-License-Identifier: Apache-2.0 */
/* What stores that drop rows keep. */
#include "caches/stores/kept.h"

#include <errno.h>

uint32_t kvb_needed_from(const kvb_store *s, uint32_t pos)
{
    uint32_t back = pos < s->options->rollback ? 0 : pos - s->options->rollback;
    uint32_t from = kvb_first_seen(s->group, back);
    return from > s->group->sinks ? from : s->group->sinks;
}

uint64_t kvb_needed_most(const kvb_store *s)
{
    const uint64_t span = s->group->window ? s->group->window - 1 : s->group->chunk - 1;
    return span + s->options->rollback;
}

void kvb_queries_find(const kvb_store *s, const kvb_feed *feed, uint32_t *next)
{
    const kvb_account *a = s->account;
    for (uint32_t i = 0; i < a->n_alive; i++)
        next[a->alive[i]] = kvb_spans_next(&a->seq[a->alive[i]]);
    for (uint32_t i = feed ? feed->n : 0; i-- > 0;)
        next[feed->seqs[i]] = feed->positions[i];
}

/* Largest position p0 <= p < p1 that is held, + 1; 0: none is. */
static uint32_t next_within(const kvb_spans *s, uint32_t p0, uint32_t p1)
{
    uint32_t next = 0;
    for (size_t i = 0; i < s->n; i++) {
        kvb_span part = kvb_span_clip(s->span[i], p0, p1);
        next = part.n ? part.pos + part.n : next;
    }
    return next;
}

/* Would a sequence that goes on at `next` see tokens of positions p0 .. p1-1 whose rows sequence `from` has let go of?
 */
static int reach_check(kvb_store *s, const kvb_spans *kept, uint32_t from, uint32_t next, uint32_t p0, uint32_t p1)
{
    uint32_t first = kvb_first_seen(s->group, next), sinks = s->group->sinks;
    first = first > sinks ? first : sinks;
    first = first > p0 ? first : p0;
    p1 = p1 < next ? p1 : next;
    if (first >= p1 || kvb_spans_within(&s->account->seq[from], first, p1) == kvb_spans_within(&kept[from], first, p1))
        return 0;
    return kvb_store_fail(
        s, -ENOTSUP,
        "a query at position %u would see positions %u .. %u, some of which sequence %u has let go of: "
        "it keeps %u (rollback) behind what is seen",
        next, first, p1 - 1, from, s->options->rollback);
}

int kvb_kept_check(kvb_store *s, const kvb_change *change, const kvb_spans *kept)
{
    const kvb_account *a = s->account;
    int error = 0;
    if (change->kind == KVB_CHANGE_COPY) {
        uint32_t next = kvb_spans_next(&a->seq[change->dst]);
        uint32_t copied = next_within(&a->seq[change->src], change->p0, change->p1);
        return reach_check(s, kept, change->src, next > copied ? next : copied, change->p0, change->p1);
    }
    for (uint32_t i = 0; i < a->n_changed && change->kind == KVB_CHANGE_REMOVE && !error; i++) {
        const uint32_t q = a->changed[i];
        uint32_t next = next_within(&a->seq[q], change->p1, KVB_POS_END);
        next = next ? next : next_within(&a->seq[q], 0, change->p0);
        error = reach_check(s, kept, q, next, 0, next);
    }
    return error;
}

/* Tokens of a sequence that will be at positions p0 .. p1-1, once it is shifted. */
static uint32_t shifted_within(const kvb_spans *held, const kvb_change *change, uint32_t p0, uint32_t p1)
{
    const int64_t begin = (int64_t)p0 - change->delta, end = (int64_t)p1 - change->delta;
    const int64_t from = begin > change->p0 ? begin : change->p0, to = end < change->p1 ? end : change->p1;
    const uint32_t low = p0 > change->p0 ? p0 : change->p0, high = p1 < change->p1 ? p1 : change->p1;
    return kvb_spans_within(held, p0, p1) - (low < high ? kvb_spans_within(held, low, high) : 0) +
           (from < to ? kvb_spans_within(held, (uint32_t)from, (uint32_t)to) : 0);
}

int kvb_kept_shift_check(kvb_store *s, const kvb_change *change, const kvb_spans *kept)
{
    const kvb_spans *held = &s->account->seq[change->src];
    const uint32_t next = kvb_spans_next(held), moved = next_within(held, change->p0, change->p1);
    const uint32_t pos = next && moved == next ? next + (uint32_t)change->delta : next;
    const uint32_t first = kvb_first_seen(s->group, pos), sinks = s->group->sinks;
    if (shifted_within(held, change, first, pos) == kvb_spans_within(kept, first, pos) &&
        shifted_within(held, change, 0, sinks) == kvb_spans_within(kept, 0, sinks))
        return 0;
    return kvb_store_fail(s, -ENOTSUP, "a query at position %u would see tokens of sequence %u that it has let go of",
                          pos, change->src);
}
