/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's account of a trace. A sequence is the list of its (position, identity), ascending in both
 * the list and the position. What a query of a step sees is then a stretch of one list, and the sinks before it.
 */
#include "oracle/history.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

typedef struct sequence {
    uint32_t *pos;
    uint64_t *token; /* identities */
    size_t n, room;
} sequence;

typedef struct node {
    int32_t parent; /* number of an earlier node; -1: a root */
    uint64_t token;
} node;

struct kvb_history {
    sequence seq[KVB_TRACE_MAX_SEQS];
    node *pending; /* tree nodes proposed and not yet committed */
    size_t n_pending, room_pending;
    const kvb_event *last; /* the event whose queries may be asked about, or NULL */
    size_t last_node;      /* propose: number of its first node */
    uint64_t *answer;      /* of a query whose rows do not lie together */
    size_t room_answer;
};

int kvb_history_open(kvb_history **history)
{
    *history = calloc(1, sizeof **history);
    return *history ? 0 : -ENOMEM;
}

void kvb_history_free(kvb_history *history)
{
    if (!history)
        return;
    for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s++) {
        free(history->seq[s].pos);
        free(history->seq[s].token);
    }
    free(history->pending);
    free(history->answer);
    free(history);
}

static int sequence_grow(sequence *s, size_t n)
{
    size_t room = s->room;
    int err = kvb_array_reserve(&s->pos, &room, n, sizeof *s->pos);
    return err ? err : kvb_array_reserve(&s->token, &s->room, n, sizeof *s->token);
}

static int sequence_append(sequence *s, uint32_t pos, uint64_t token)
{
    int err = sequence_grow(s, s->n + 1);
    if (err)
        return err;
    assert(s->n == 0 || s->pos[s->n - 1] < pos);
    s->pos[s->n] = pos;
    s->token[s->n] = token;
    s->n++;
    return 0;
}

/* How many entries have a position below p. */
static size_t sequence_below(const sequence *s, uint64_t p)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->pos[middle] < p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Entries of positions p0 .. p1-1; KVB_TRACE_POS_END: to the end. */
static void sequence_range(const sequence *s, uint32_t p0, uint32_t p1, size_t *begin, size_t *end)
{
    *begin = sequence_below(s, p0);
    *end = p1 == KVB_TRACE_POS_END ? s->n : sequence_below(s, p1);
    if (*end < *begin)
        *end = *begin;
}

static void sequence_remove(sequence *s, uint32_t p0, uint32_t p1)
{
    size_t begin, end;
    sequence_range(s, p0, p1, &begin, &end);
    memmove(s->pos + begin, s->pos + end, (s->n - end) * sizeof *s->pos);
    memmove(s->token + begin, s->token + end, (s->n - end) * sizeof *s->token);
    s->n -= end - begin;
}

/* A range of src is put between what dst holds; the trace reader has seen to it that they do not overlap. */
static int sequence_copy(const sequence *src, sequence *dst, uint32_t p0, uint32_t p1)
{
    size_t begin, end;
    sequence_range(src, p0, p1, &begin, &end);
    if (begin == end)
        return 0;
    int err = sequence_grow(dst, dst->n + (end - begin));
    if (err)
        return err;
    for (size_t i = begin; i < end; i++) {
        size_t at = sequence_below(dst, src->pos[i]);
        memmove(dst->pos + at + 1, dst->pos + at, (dst->n - at) * sizeof *dst->pos);
        memmove(dst->token + at + 1, dst->token + at, (dst->n - at) * sizeof *dst->token);
        dst->pos[at] = src->pos[i];
        dst->token[at] = src->token[i];
        dst->n++;
    }
    return 0;
}

/* ---- events ----------------------------------------------------------------------------------------- */

static int tokens_apply(kvb_history *h, const kvb_event *e)
{
    int err = 0;
    for (uint32_t i = 0; !err && i < e->n; i++)
        err = sequence_append(&h->seq[e->seq[i]], e->pos[i], e->first + i);
    return err;
}

static int propose_apply(kvb_history *h, const kvb_event *e)
{
    int err = kvb_array_reserve(&h->pending, &h->room_pending, h->n_pending + e->n, sizeof *h->pending);
    if (err)
        return err;
    h->last_node = h->n_pending;
    for (uint32_t i = 0; i < e->n; i++)
        h->pending[h->n_pending++] = (node){.parent = e->parents[i], .token = e->first + i};
    return 0;
}

static int commit_apply(kvb_history *h, const kvb_event *e)
{
    sequence *s = &h->seq[0];
    int err = 0;
    for (uint32_t i = 0; !err && i < e->n; i++) {
        assert(e->accepted[i] < h->n_pending);
        err = sequence_append(s, s->n ? s->pos[s->n - 1] + 1 : 0, h->pending[e->accepted[i]].token);
    }
    h->n_pending = 0;
    return err;
}

int kvb_history_apply(kvb_history *h, const kvb_event *e)
{
    h->last = NULL;
    int err = 0;
    switch (e->kind) {
    case KVB_EVENT_STEP:
    case KVB_EVENT_PREFILL:
    case KVB_EVENT_FILL:
        err = tokens_apply(h, e);
        h->last = e;
        break;
    case KVB_EVENT_PROPOSE:
        err = propose_apply(h, e);
        h->last = e;
        break;
    case KVB_EVENT_COMMIT:
        err = commit_apply(h, e);
        break;
    case KVB_EVENT_SEQ_CP:
        err = sequence_copy(&h->seq[e->src], &h->seq[e->dst], e->p0, e->p1);
        break;
    case KVB_EVENT_SEQ_RM:
        sequence_remove(&h->seq[e->src], e->p0, e->p1);
        break;
    case KVB_EVENT_SEQ_KEEP:
        for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s++)
            if (s != e->src)
                h->seq[s].n = 0;
        break;
    case KVB_EVENT_REWIND:
        sequence_remove(&h->seq[0], e->len, KVB_TRACE_POS_END);
        break;
    case KVB_EVENT_CLEAR:
        for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s++)
            h->seq[s].n = 0;
        h->n_pending = 0;
        break;
    case KVB_EVENT_KINDS:
        assert(false);
    }
    return err;
}

/* ---- queries ---------------------------------------------------------------------------------------- */

/* May a query at position p see position j, which is not above its own? The rule of kernels/model.h, put as a question. */
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
            h->answer[seen++] = s->token[i];
    return err ? err : (int64_t)seen;
}

/* Of the committed tokens, then of the ancestors of the node from its root on, then the node. */
static int64_t tree_visible(kvb_history *h, const kvb_group *group, size_t asked, const uint64_t **rows)
{
    const sequence *s = &h->seq[0];
    size_t depth = 0;
    for (int64_t i = h->pending[asked].parent; i >= 0; i = h->pending[i].parent)
        depth++;
    uint32_t root = s->n ? s->pos[s->n - 1] + 1 : 0, p = root + (uint32_t)depth;
    int64_t n = sequence_visible(h, group, s, p, depth + 1);
    if (n < 0)
        return n;
    int64_t seen = n;
    for (uint32_t d = 0; d <= depth; d++)
        seen += is_seen(group, p, root + d);
    int64_t at = seen, i = (int64_t)asked;
    for (uint32_t d = (uint32_t)depth + 1; d-- > 0; i = h->pending[i].parent)
        if (is_seen(group, p, root + d))
            h->answer[--at] = h->pending[i].token;
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
    if (!group->window && !group->chunk) { /* a prefix of the list as it lies */
        *rows = s->token;
        return (int64_t)sequence_below(s, (uint64_t)p + 1);
    }
    int64_t n = sequence_visible(h, group, s, p, 0);
    *rows = h->answer;
    return n;
}
