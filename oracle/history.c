/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's account of a trace. A sequence is the list of its (position, identity), ascending in both
 * the list and the position: a token enters at its sequence's largest position + 1, so every change is an
 * append or a cut. What a query of a step sees is then a prefix of one list.
 */
#include "oracle/history.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    uint64_t *path;        /* answer buffer for tree queries */
    size_t room_path;
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
    free(history->path);
    free(history);
}

/* Room for n elements of `size` bytes in *block, doubling. */
static int room_grow(void **block, size_t *room, size_t n, size_t size)
{
    if (n <= *room)
        return 0;
    size_t more = *room * 2 > n ? *room * 2 : n < 16 ? 16 : n;
    void *grown = realloc(*block, more * size);
    if (!grown)
        return -ENOMEM;
    *block = grown;
    *room = more;
    return 0;
}

static int sequence_grow(sequence *s, size_t n)
{
    void *pos = s->pos, *token = s->token;
    size_t room_pos = s->room, room_token = s->room;
    int err = room_grow(&pos, &room_pos, n, sizeof *s->pos);
    if (!err)
        err = room_grow(&token, &room_token, n, sizeof *s->token);
    s->pos = pos;
    s->token = token;
    if (!err)
        s->room = room_pos;
    return err;
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

static int sequence_copy(const sequence *src, sequence *dst, uint32_t p0, uint32_t p1)
{
    size_t begin, end;
    sequence_range(src, p0, p1, &begin, &end);
    int err = sequence_grow(dst, dst->n + (end - begin));
    for (size_t i = begin; !err && i < end; i++)
        err = sequence_append(dst, src->pos[i], src->token[i]);
    return err;
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
    void *block = h->pending;
    int err = room_grow(&block, &h->room_pending, h->n_pending + e->n, sizeof *h->pending);
    h->pending = block;
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

/* The committed tokens, then the ancestors of the node from its root on, then the node. */
static int64_t tree_visible(kvb_history *h, size_t asked, const uint64_t **tokens)
{
    size_t depth = 0;
    for (int64_t i = (int64_t)asked; i >= 0; i = h->pending[i].parent)
        depth++;
    size_t n = h->seq[0].n + depth;
    void *block = h->path;
    int err = room_grow(&block, &h->room_path, n, sizeof *h->path);
    h->path = block;
    if (err)
        return err;
    if (h->seq[0].n)
        memcpy(h->path, h->seq[0].token, h->seq[0].n * sizeof *h->path);
    size_t at = n;
    for (int64_t i = (int64_t)asked; i >= 0; i = h->pending[i].parent)
        h->path[--at] = h->pending[i].token;
    *tokens = h->path;
    return (int64_t)n;
}

int64_t kvb_history_visible(kvb_history *h, uint32_t i, const uint64_t **tokens)
{
    assert(h->last && i < h->last->n);
    if (h->last->kind == KVB_EVENT_PROPOSE)
        return tree_visible(h, h->last_node + i, tokens);
    const sequence *s = &h->seq[h->last->seq[i]];
    *tokens = s->token;
    return (int64_t)sequence_below(s, (uint64_t)h->last->pos[i] + 1);
}
