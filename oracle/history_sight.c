/* SPDX-License-Identifier: Apache-2.0 */
/* What a query of the event that was applied last sees. */
#include "oracle/history_account.h"

#include "workloads/array.h"

/* May a query at position p see position j, which is not above its own? The rule of kernels/model.h, put as a question.
 */
static bool is_seen(const kvb_group *group, uint32_t p, uint32_t j)
{
    if (group->window)
        return p - j < group->window || j < group->sinks;
    if (group->chunk)
        return p / group->chunk == j / group->chunk;
    return true;
}

/* Answers with those of sequence s that the query at position p sees, and room for `more` behind them. */
static int64_t sequence_visible(kvb_history *h, const kvb_group *group, const sequence *s, uint32_t p, size_t more)
{
    size_t n = sequence_below(s, (uint64_t)p + 1), seen = 0;
    int err = kvb_array_reserve(&h->answer, &h->room_answer, n + more, sizeof *h->answer);
    for (size_t i = 0; !err && i < n; i++)
        if (is_seen(group, p, s->pos[i]))
            h->answer[seen++] = row_of(h, s->token[i]);
    return err ? err : (int64_t)seen;
}

/* Of the committed tokens, then of the ancestors of the node from its root on, then the node. */
static int64_t tree_visible(kvb_history *h, const kvb_group *group, size_t asked, const uint64_t **rows)
{
    const uint32_t id = h->pending[asked].seq;
    const sequence *s = &h->seq[id];
    size_t depth = 0;
    for (int32_t parent = h->pending[asked].parent; parent >= 0; depth++)
        parent = h->pending[node_of(h, id, (uint32_t)parent)].parent;
    uint32_t root = s->n ? s->pos[s->n - 1] + 1 : 0, p = root + (uint32_t)depth;
    int64_t n = sequence_visible(h, group, s, p, depth + 1);
    if (n < 0)
        return n;
    int64_t seen = n;
    for (uint32_t d = 0; d <= depth; d++)
        seen += is_seen(group, p, root + d);
    int64_t at = seen;
    size_t i = asked;
    for (uint32_t d = (uint32_t)depth + 1; d-- > 0;) {
        if (is_seen(group, p, root + d))
            h->answer[--at] = h->pending[i].token;
        if (d)
            i = node_of(h, id, (uint32_t)h->pending[i].parent);
    }
    *rows = h->answer;
    return seen;
}

int64_t kvb_history_visible(kvb_history *h, const kvb_group *group, uint32_t i, const uint64_t **rows)
{
    assert(h->last && i < h->last->n);
    if (h->last->kind == KVB_EVENT_PROPOSE)
        return tree_visible(h, group, h->last_node + i, rows);
    const sequence *s = &h->seq[h->last->seq[i]];
    uint32_t p = h->last->pos[i];
    if (!group->window && !group->chunk && !h->knows) { /* a prefix of the list as it lies */
        *rows = s->token;
        return (int64_t)sequence_below(s, (uint64_t)p + 1);
    }
    int64_t n = sequence_visible(h, group, s, p, 0);
    *rows = h->answer;
    return n;
}
