/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's account of a trace: what each event makes of it. What a query sees: history_sight.c.
 */
#include "oracle/history_account.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

int kvb_history_open(uint64_t tokens, kvb_history **history)
{
    *history = calloc(1, sizeof **history);
    if (*history)
        (*history)->tokens = tokens;
    return *history ? 0 : -ENOMEM;
}

size_t kvb_history_moved(const kvb_history *h, const kvb_moved_row **moved)
{
    *moved = h->moved;
    return h->n_moved;
}

uint64_t kvb_history_token(const kvb_history *h, uint64_t row)
{
    return row < h->tokens ? row : h->moved[row - h->tokens].token;
}

static void slot_free(slot *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        free(s->seq[i].pos);
        free(s->seq[i].token);
    }
    free(s->seq);
    *s = (slot){0};
}

void kvb_history_free(kvb_history *history)
{
    if (!history)
        return;
    for (uint32_t s = 0; s < history->n_seq; s++) {
        free(history->seq[s].pos);
        free(history->seq[s].token);
    }
    for (uint32_t i = 0; i < KVB_TRACE_SLOTS; i++)
        slot_free(&history->slots[i]);
    free(history->pending);
    free(history->known);
    free(history->newest);
    free(history->answer);
    free(history->moved);
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

/* Entries of positions p0 .. p1-1; KVB_TRACE_POS_END: to the end. */
static void sequence_range(const sequence *s, uint32_t p0, uint32_t p1, size_t *begin, size_t *end)
{
    *begin = sequence_below(s, p0);
    *end = p1 == KVB_TRACE_POS_END ? s->n : sequence_below(s, p1);
}

static void sequence_remove(sequence *s, uint32_t p0, uint32_t p1)
{
    size_t begin, end;
    sequence_range(s, p0, p1, &begin, &end);
    if (begin == end) /* of a sequence that never was there are no arrays */
        return;
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
        size_t at = sequence_below(dst, src->pos[i] + UINT64_C(1)); /* behind those of its own position */
        memmove(dst->pos + at + 1, dst->pos + at, (dst->n - at) * sizeof *dst->pos);
        memmove(dst->token + at + 1, dst->token + at, (dst->n - at) * sizeof *dst->token);
        dst->pos[at] = src->pos[i];
        dst->token[at] = src->token[i];
        dst->n++;
    }
    return 0;
}

/* The sequence, which may get tokens. */
static sequence *sequence_of(kvb_history *h, uint32_t s)
{
    h->n_seq = h->n_seq > s ? h->n_seq : s + 1;
    return &h->seq[s];
}

/* Do the entries of a sequence follow each other from position 0 on, all known, each behind the one before it? */
static bool is_prefix(const kvb_history *h, const sequence *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const known *k = s->token[i] < h->n_known ? &h->known[s->token[i]] : NULL; /* NULL: its row was moved */
        if (!k || s->pos[i] != i || !k->whole || k->pos != i || (i && k->prev != h->known[s->token[i - 1]].first))
            return false;
    }
    return true;
}

/* Notes token i of an event, which its sequence does not hold yet. */
static int token_know(kvb_history *h, const kvb_event *e, uint32_t i)
{
    int err = kvb_array_reserve(&h->known, &h->room_known, h->n_known + 1, sizeof *h->known);
    if (!err)
        err = kvb_array_reserve(&h->newest, &h->room_newest, (size_t)e->pos[i] + 1, sizeof *h->newest);
    if (err)
        return err;
    while (h->n_newest <= e->pos[i])
        h->newest[h->n_newest++] = NOBODY;
    known *k = &h->known[h->n_known];
    *k = (known){.pos = e->pos[i], .key = e->extra_key, .first = h->n_known, .older = h->newest[e->pos[i]]};
    if (e->tok && e->kind != KVB_EVENT_PROPOSE) {
        const sequence *s = &h->seq[e->seq[i]];
        const uint64_t before = s->n ? s->token[s->n - 1] : 0;
        const known *last = s->n && before < h->n_known ? &h->known[before] : NULL;
        k->tok = e->tok[i];
        k->whole = k->pos == s->n && (last && before >= e->first ? last->whole : is_prefix(h, s));
        k->key = last && k->whole ? h->known[s->token[0]].key : k->key;
        k->prev = last ? last->first : 0;
    }
    for (uint64_t o = k->older; o != NOBODY && k->whole && k->first == h->n_known; o = h->known[o].older) {
        const known *other = &h->known[o];
        if (other->whole && other->tok == k->tok && other->key == k->key && other->prev == k->prev)
            k->first = other->first;
    }
    h->newest[k->pos] = h->n_known++;
    return 0;
}

void kvb_history_know_prefixes(kvb_history *h)
{
    h->knows = true;
}

bool kvb_history_same_prefix(const kvb_history *h, uint64_t claimed, uint64_t own, char *why, size_t why_bytes)
{
    const known *a, *b, *x, *y;
    if (claimed >= h->n_known || own >= h->n_known || claimed >= own) {
        snprintf(why, why_bytes, "token %llu was not there before", (unsigned long long)claimed);
        return false;
    }
    a = &h->known[claimed];
    b = &h->known[own];
    if (a->whole && b->whole && a->first == b->first)
        return true;
    if (!a->whole || a->pos != b->pos || a->key != b->key) {
        snprintf(why, why_bytes, "position %u: token %llu %s", b->pos, (unsigned long long)claimed,
                 !a->whole          ? "has no prefix that is known"
                 : a->pos != b->pos ? "has another position"
                                    : "is of another extra key");
        return false;
    }
    do { /* to the first position at which they differ */
        x = a, y = b;
        a = &h->known[a->prev];
        b = &h->known[b->prev];
    } while (x->pos && a->first != b->first);
    snprintf(why, why_bytes,
             "position %u: token %llu is behind another prefix: id %d where %d was asked for, at position %u",
             h->known[own].pos, (unsigned long long)claimed, (int)x->tok, (int)y->tok, x->pos);
    return false;
}

/* Destinations get copies of the sources' lists as they were before. */
static int sequences_reorder(kvb_history *h, const uint32_t *dsts, const uint32_t *srcs, uint32_t n)
{
    sequence *copies = calloc(n + 1u, sizeof *copies);
    int err = copies ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n && !err; i++)
        err = sequence_copy(&h->seq[srcs[i]], &copies[i], 0, KVB_TRACE_POS_END);
    for (uint32_t i = 0; i < n && copies; i++) {
        sequence *dst = sequence_of(h, dsts[i]), gone = err ? copies[i] : *dst;
        if (!err)
            *dst = copies[i];
        free(gone.pos);
        free(gone.token);
    }
    free(copies);
    return err;
}

static int tokens_apply(kvb_history *h, const kvb_event *e)
{
    int err = 0;
    for (uint32_t i = 0; !err && i < e->n; i++) {
        err = h->knows ? token_know(h, e, i) : 0;
        err = err ? err : sequence_append(sequence_of(h, e->seq[i]), e->pos[i], e->first + i);
    }
    return err;
}

static int propose_apply(kvb_history *h, const kvb_event *e)
{
    int err = kvb_array_reserve(&h->pending, &h->room_pending, h->n_pending + e->n, sizeof *h->pending);
    if (err)
        return err;
    for (uint32_t i = 0; h->knows && !err && i < e->n; i++)
        err = token_know(h, e, i);
    h->last_node = h->n_pending;
    for (uint32_t i = 0; i < e->n; i++)
        h->pending[h->n_pending++] = (node){e->seq ? e->seq[i] : 0, e->parents[i], e->first + i};
    return 0;
}

static int commit_apply(kvb_history *h, const kvb_event *e)
{
    sequence *s = sequence_of(h, e->src);
    size_t left = 0;
    int err = 0;
    for (uint32_t i = 0; !err && i < e->n; i++)
        err = sequence_append(s, s->n ? s->pos[s->n - 1] + 1 : 0, h->pending[node_of(h, e->src, e->accepted[i])].token);
    for (size_t i = 0; i < h->n_pending; i++)
        if (h->pending[i].seq != e->src)
            h->pending[left++] = h->pending[i];
    h->n_pending = left;
    return err;
}

/* Tokens that move get rows of their own. One that has moved since the last step is stored once for both. */
static int shift_apply(kvb_history *h, const kvb_event *e)
{
    sequence *s = &h->seq[e->src];
    size_t begin, end;
    sequence_range(s, e->p0, e->p1, &begin, &end);
    if (begin == end || (e->kind == KVB_EVENT_SEQ_DIV ? e->divisor == 1 : e->delta == 0))
        return 0;
    int err = kvb_array_reserve(&h->moved, &h->room_moved, h->n_moved + (end - begin), sizeof *h->moved);
    for (size_t i = begin; !err && i < end; i++) {
        const uint32_t to =
            e->kind == KVB_EVENT_SEQ_DIV ? s->pos[i] / e->divisor : (uint32_t)((int64_t)s->pos[i] + e->delta);
        kvb_moved_row row = {.of = row_of(h, s->token[i]),
                             .token = kvb_history_token(h, row_of(h, s->token[i])),
                             .delta = (int32_t)(to - s->pos[i])};
        if (row.of >= h->tokens + h->settled) {
            row.delta += h->moved[row.of - h->tokens].delta;
            row.of = h->moved[row.of - h->tokens].of;
        }
        s->pos[i] = to;
        s->token[i] = h->tokens + h->n_moved;
        h->moved[h->n_moved++] = row;
    }
    return err;
}

/* A slot holds copies: the list of the sequence, or the lists of all by their ids. */
static int save_apply(kvb_history *h, const kvb_event *e)
{
    const bool all = e->src == KVB_TRACE_ALL;
    slot *s = &h->slots[e->slot];
    slot_free(s);
    s->all = all;
    s->n = all ? h->n_seq : 1;
    s->seq = calloc((size_t)s->n + 1, sizeof *s->seq);
    int err = s->seq ? 0 : -ENOMEM;
    s->n = err ? 0 : s->n;
    for (uint32_t i = 0; i < s->n && !err; i++)
        err = sequence_copy(&h->seq[all ? i : e->src], &s->seq[i], 0, KVB_TRACE_POS_END);
    return err;
}

static int load_apply(kvb_history *h, const kvb_event *e)
{
    const slot *s = &h->slots[e->slot];
    int err = 0;
    for (uint32_t i = 0; i < h->n_seq && s->all; i++)
        h->seq[i].n = 0;
    for (uint32_t i = 0; i < s->n && !err; i++)
        err = sequence_copy(&s->seq[i], sequence_of(h, s->all ? i : e->src), 0, KVB_TRACE_POS_END);
    return err;
}

int kvb_history_apply(kvb_history *h, const kvb_event *e)
{
    if (e->kind != KVB_EVENT_SAVE) /* which changes nothing */
        h->last = NULL;
    int err = 0;
    if (e->kind <= KVB_EVENT_PROPOSE)
        h->settled = h->n_moved;
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
        err = sequence_copy(&h->seq[e->src], sequence_of(h, e->dst), e->p0, e->p1);
        break;
    case KVB_EVENT_SEQ_RM:
        sequence_remove(&h->seq[e->src], e->p0, e->p1);
        break;
    case KVB_EVENT_SEQ_KEEP:
        for (uint32_t s = 0; s < h->n_seq; s++)
            if (s != e->src)
                h->seq[s].n = 0;
        break;
    case KVB_EVENT_REWIND:
        sequence_remove(&h->seq[0], e->len, KVB_TRACE_POS_END);
        break;
    case KVB_EVENT_CLEAR:
        for (uint32_t s = 0; s < h->n_seq; s++)
            h->seq[s].n = 0;
        h->n_pending = 0;
        break;
    case KVB_EVENT_REORDER:
        err = sequences_reorder(h, e->dsts, e->srcs, e->n);
        break;
    case KVB_EVENT_SEQ_ADD:
    case KVB_EVENT_SEQ_DIV:
        err = shift_apply(h, e);
        break;
    case KVB_EVENT_SAVE:
        err = save_apply(h, e);
        break;
    case KVB_EVENT_LOAD:
        err = load_apply(h, e);
        break;
    case KVB_EVENT_REFUSED:
    case KVB_EVENT_DEFRAG: /* nothing to see */
        break;
    case KVB_EVENT_KINDS:
        assert(false);
    }
    return err;
}
