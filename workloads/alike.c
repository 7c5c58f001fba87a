/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens are alike: a trace's sequences as lists by position; a token is compared with those that were at its
 * position. */
#include "workloads/alike.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

#define NOBODY  UINT32_MAX
#define MOVED   (UINT32_MAX - 1) /* a token whose row was moved, or that was a draft: nothing behind it is known */
#define UNKNOWN UINT64_MAX

typedef struct token {
    uint64_t before; /* the first token like the one before it; of a first token the extra key; UNKNOWN: it is like no
                        other */
    uint32_t older;  /* the one listed before at its position */
    int32_t tok;
} token;

typedef struct sequence {
    uint32_t *id; /* [n] by position; NOBODY: a hole */
    size_t n, room;
    size_t known; /* so many from position 0 on are each the prefix of the next; looked at anew where it is not n */
    uint64_t extra_key;
} sequence;

/* What was saved: of one sequence, or of all. */
typedef struct slot {
    sequence *seqs; /* [n] */
    uint32_t n;
} slot;

typedef struct alike {
    token *tokens;    /* [needs.tokens] */
    uint32_t *newest; /* [needs.seq_len] the last token listed at a position */
    uint32_t *like;   /* [needs.tokens] */
    sequence *seqs;   /* [needs.seqs] */
    slot slots[KVB_TRACE_SLOTS];
} alike;

static int sequence_put(sequence *s, uint32_t pos, uint32_t id)
{
    int err = kvb_array_reserve(&s->id, &s->room, (size_t)pos + 1, sizeof *s->id);
    while (!err && s->n <= pos)
        s->id[s->n++] = NOBODY;
    if (!err)
        s->id[pos] = id;
    return err;
}

static void sequence_cut(sequence *s, uint32_t p0, uint32_t p1)
{
    for (size_t pos = p0; pos < s->n && pos < p1; pos++)
        s->id[pos] = NOBODY;
    while (s->n && s->id[s->n - 1] == NOBODY)
        s->n--;
    s->known = 0;
}

/* What stands before the next token. */
static uint64_t prefix_of(const alike *a, sequence *s)
{
    uint64_t before = s->extra_key;
    if (s->n && s->known == s->n) /* none of them was moved */
        return a->like[s->id[s->n - 1]];
    for (s->known = 0; s->known < s->n; s->known++) {
        const uint32_t id = s->id[s->known];
        if (id == NOBODY || id == MOVED || a->tokens[id].before != before)
            return UNKNOWN;
        before = a->like[id];
    }
    return before;
}

static void token_list(alike *a, uint32_t id, uint32_t pos, uint64_t before, int32_t tok)
{
    a->tokens[id] = (token){before, a->newest[pos], tok};
    a->like[id] = id;
    if (before == UNKNOWN)
        return;
    uint32_t other = a->newest[pos];
    while (other != NOBODY && (a->tokens[other].before != before || a->tokens[other].tok != tok))
        other = a->tokens[other].older;
    if (other != NOBODY)
        a->like[id] = other;
    else
        a->newest[pos] = id;
}

static int tokens_apply(alike *a, const kvb_event *e)
{
    int err = 0;
    for (uint32_t i = 0; i < e->n && !err; i++) {
        sequence *s = &a->seqs[e->seq[i]];
        const uint32_t id = (uint32_t)e->first + i;
        if (s->n == 0)
            s->extra_key = e->extra_key;
        const uint64_t before = e->tok ? prefix_of(a, s) : UNKNOWN;
        token_list(a, id, e->pos[i], before, e->tok ? e->tok[i] : 0);
        err = sequence_put(s, e->pos[i], id);
        s->known += before != UNKNOWN;
    }
    return err;
}

static int copy_apply(const sequence *src, sequence *dst, uint32_t p0, uint32_t p1)
{
    int err = 0;
    if (src->n && p0 == 0 && p1 > 0 && src->id[0] != NOBODY)
        dst->extra_key = src->extra_key;
    for (size_t pos = p0; pos < src->n && pos < p1 && !err; pos++)
        if (src->id[pos] != NOBODY)
            err = sequence_put(dst, (uint32_t)pos, src->id[pos]);
    dst->known = 0;
    return err;
}

static int shift_apply(sequence *s, const kvb_event *e)
{
    uint32_t *moved = malloc((s->n + 1) * sizeof *moved);
    size_t n = 0;
    int err = moved ? 0 : -ENOMEM;
    for (size_t pos = e->p0; pos < s->n && pos < e->p1 && !err; pos++)
        if (s->id[pos] != NOBODY)
            moved[n++] = (uint32_t)kvb_event_moved(e, (int64_t)pos);
    if (!err && kvb_event_moves(e))
        sequence_cut(s, e->p0, e->p1);
    for (size_t i = 0; i < n && !err && kvb_event_moves(e); i++)
        err = sequence_put(s, moved[i], MOVED);
    free(moved);
    return err;
}

static void sequence_empty(sequence *s)
{
    free(s->id);
    *s = (sequence){0};
}

/* to becomes what from is; where memory is out it is empty. */
static int sequence_become(sequence *to, const sequence *from)
{
    sequence_empty(to);
    int err = copy_apply(from, to, 0, KVB_TRACE_POS_END);
    to->extra_key = from->extra_key;
    if (err)
        sequence_empty(to);
    return err;
}

static void slot_empty(slot *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        sequence_empty(&s->seqs[i]);
    free(s->seqs);
    *s = (slot){0};
}

static int save_apply(alike *a, const kvb_trace_needs *needs, const kvb_event *e)
{
    slot *s = &a->slots[e->slot];
    const bool all = e->src == KVB_TRACE_ALL;
    slot_empty(s);
    s->n = all ? needs->seqs : 1;
    s->seqs = calloc(s->n + 1u, sizeof *s->seqs);
    int err = s->seqs ? 0 : -ENOMEM;
    s->n = err ? 0 : s->n;
    for (uint32_t i = 0; i < s->n && !err; i++)
        err = sequence_become(&s->seqs[i], &a->seqs[all ? i : e->src]);
    return err;
}

static int load_apply(alike *a, const kvb_event *e)
{
    const slot *s = &a->slots[e->slot];
    int err = 0;
    for (uint32_t i = 0; i < s->n && !err; i++)
        err = sequence_become(&a->seqs[e->src == KVB_TRACE_ALL ? i : e->src], &s->seqs[i]);
    return err;
}

/* Destinations get copies of the sources as they were before. */
static int reorder_apply(alike *a, const kvb_event *e)
{
    sequence *copies = calloc(e->n + 1u, sizeof *copies);
    int err = copies ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < e->n && !err; i++) {
        copies[i].extra_key = a->seqs[e->srcs[i]].extra_key;
        err = copy_apply(&a->seqs[e->srcs[i]], &copies[i], 0, KVB_TRACE_POS_END);
    }
    for (uint32_t i = 0; i < e->n && copies; i++) {
        sequence *dst = &a->seqs[e->dsts[i]];
        free(err ? copies[i].id : dst->id);
        if (!err)
            *dst = copies[i];
    }
    free(copies);
    return err;
}

static int event_apply(alike *a, const kvb_trace_needs *needs, const kvb_event *e)
{
    int err = 0;
    switch (e->kind) {
    case KVB_EVENT_STEP:
    case KVB_EVENT_PREFILL:
    case KVB_EVENT_FILL:
        return tokens_apply(a, e);
    case KVB_EVENT_PROPOSE:
        for (uint32_t i = 0; i < e->n; i++)
            token_list(a, (uint32_t)e->first + i, 0, UNKNOWN, 0);
        return 0;
    case KVB_EVENT_COMMIT: /* drafts are like no other */
        for (uint32_t i = 0; i < e->n && !err; i++)
            err = sequence_put(&a->seqs[e->src], (uint32_t)a->seqs[e->src].n, MOVED);
        return err;
    case KVB_EVENT_SAVE:
        return save_apply(a, needs, e);
    case KVB_EVENT_LOAD:
        return load_apply(a, e);
    case KVB_EVENT_SEQ_CP:
        return copy_apply(&a->seqs[e->src], &a->seqs[e->dst], e->p0, e->p1);
    case KVB_EVENT_SEQ_ADD:
    case KVB_EVENT_SEQ_DIV:
        return shift_apply(&a->seqs[e->src], e);
    case KVB_EVENT_REORDER:
        return reorder_apply(a, e);
    case KVB_EVENT_SEQ_RM:
        sequence_cut(&a->seqs[e->src], e->p0, e->p1);
        return 0;
    case KVB_EVENT_REWIND:
        sequence_cut(&a->seqs[0], e->len, KVB_TRACE_POS_END);
        return 0;
    case KVB_EVENT_SEQ_KEEP:
    case KVB_EVENT_CLEAR:
        for (uint32_t s = 0; s < needs->seqs; s++)
            if (e->kind == KVB_EVENT_CLEAR || s != e->src)
                sequence_cut(&a->seqs[s], 0, KVB_TRACE_POS_END);
        return 0;
    default:
        return 0;
    }
}

int kvb_alike_find(const kvb_trace *trace, uint32_t **like)
{
    const kvb_trace_needs *needs = &trace->needs;
    alike a = {.tokens = malloc((needs->tokens + 1) * sizeof *a.tokens),
               .newest = malloc(((size_t)needs->seq_len + 1) * sizeof *a.newest),
               .like = malloc((needs->tokens + 1) * sizeof *a.like),
               .seqs = calloc((size_t)needs->seqs + 1, sizeof *a.seqs)};
    int err = a.tokens && a.newest && a.like && a.seqs ? 0 : -ENOMEM;
    if (!err)
        memset(a.newest, 0xff, ((size_t)needs->seq_len + 1) * sizeof *a.newest);
    for (size_t i = 0; i < trace->n_events && !err; i++)
        err = event_apply(&a, needs, &trace->events[i]);
    for (uint32_t s = 0; s < needs->seqs && a.seqs; s++)
        free(a.seqs[s].id);
    free(a.seqs);
    free(a.tokens);
    free(a.newest);
    for (uint32_t i = 0; i < KVB_TRACE_SLOTS; i++)
        slot_empty(&a.slots[i]);
    if (err)
        free(a.like);
    else
        *like = a.like;
    return err;
}
