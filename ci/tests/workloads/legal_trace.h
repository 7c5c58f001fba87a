/* SPDX-License-Identifier: Apache-2.0 */
/* Random legal traces for tests, made from a seed. */
#ifndef KVB_TEST_LEGAL_TRACE_H
#define KVB_TEST_LEGAL_TRACE_H

#include "workloads/rng.h"
#include "workloads/trace.h"

#include <stdbool.h>
#include <string.h>

#define LEGAL_MAX_EVENTS 40u
#define LEGAL_MAX_TOKENS 24u /* of one event */

/* Arrays of an event, and the event that points to them. */
typedef struct legal_event {
    kvb_event event;
    uint32_t pos[LEGAL_MAX_TOKENS], seq[LEGAL_MAX_TOKENS], accepted[LEGAL_MAX_TOKENS];
    int32_t tok[LEGAL_MAX_TOKENS], parents[LEGAL_MAX_TOKENS];
} legal_event;

typedef struct legal_trace {
    legal_event events[LEGAL_MAX_EVENTS];
    uint32_t n;
    uint64_t key, draws, tokens;
    bool held[KVB_TRACE_MAX_SEQS][2048]; /* [sequence][position] */
    int32_t pending_parent[512];
    uint32_t pending_depth[512], n_pending;
} legal_trace;

static inline uint32_t legal_draw(legal_trace *t, uint32_t n)
{
    return (uint32_t)(kvb_rng_bits(t->key, t->draws++) % n);
}

static inline uint32_t legal_next(const legal_trace *t, uint32_t seq)
{
    uint32_t next = 2048;
    while (next > 0 && !t->held[seq][next - 1])
        next--;
    return next;
}

static inline void legal_tokens(legal_trace *t, legal_event *e)
{
    e->event.first = t->tokens;
    t->tokens += e->event.n;
    e->event.pos = e->pos;
    e->event.seq = e->seq;
    if (legal_draw(t, 2) && e->event.kind != KVB_EVENT_FILL) {
        e->event.tok = e->tok;
        for (uint32_t i = 0; i < e->event.n; i++)
            e->tok[i] = (int32_t)legal_draw(t, INT32_MAX);
    }
}

/* step, prefill, fill */
static inline void legal_step(legal_trace *t, legal_event *e, kvb_event_kind kind, uint32_t n_seqs)
{
    e->event.kind = kind;
    e->event.n = 1 + legal_draw(t, LEGAL_MAX_TOKENS);
    uint32_t seq = legal_draw(t, n_seqs);
    for (uint32_t i = 0; i < e->event.n; i++) {
        if (kind == KVB_EVENT_STEP)
            seq = legal_draw(t, n_seqs);
        e->seq[i] = seq;
        e->pos[i] = legal_next(t, seq);
        t->held[seq][e->pos[i]] = true;
    }
    legal_tokens(t, e);
}

static inline void legal_propose(legal_trace *t, legal_event *e)
{
    e->event.kind = KVB_EVENT_PROPOSE;
    e->event.n = 1 + legal_draw(t, LEGAL_MAX_TOKENS);
    e->event.parents = e->parents;
    for (uint32_t i = 0; i < e->event.n; i++) {
        int32_t parent = (int32_t)legal_draw(t, t->n_pending + 1) - 1;
        uint32_t depth = parent < 0 ? 0 : t->pending_depth[parent] + 1;
        e->parents[i] = t->pending_parent[t->n_pending] = parent;
        t->pending_depth[t->n_pending++] = depth;
        e->seq[i] = 0;
        e->pos[i] = legal_next(t, 0) + depth;
    }
    legal_tokens(t, e);
}

static inline void legal_commit(legal_trace *t, legal_event *e)
{
    e->event.kind = KVB_EVENT_COMMIT;
    e->event.accepted = e->accepted;
    int32_t last = -1;
    for (uint32_t node = 0; node < t->n_pending && e->event.n < LEGAL_MAX_TOKENS; node++) {
        if (t->pending_parent[node] != last || legal_draw(t, 3) == 0)
            continue;
        e->accepted[e->event.n++] = node;
        last = (int32_t)node;
        t->held[0][legal_next(t, 0)] = true;
    }
    t->n_pending = 0;
}

static inline bool legal_control(legal_trace *t, legal_event *e, kvb_event_kind kind, uint32_t n_seqs)
{
    uint32_t seq = legal_draw(t, n_seqs), next = legal_next(t, seq);
    e->event = (kvb_event){.kind = kind, .src = seq, .p1 = KVB_TRACE_POS_END};
    bool whole = legal_draw(t, 2);
    if (kind != KVB_EVENT_CLEAR && next == 0)
        return false;
    if (!whole && (kind == KVB_EVENT_SEQ_CP || kind == KVB_EVENT_SEQ_RM)) {
        e->event.p0 = legal_draw(t, next);
        e->event.p1 = e->event.p0 + 1 + legal_draw(t, next);
    }
    switch (kind) {
    case KVB_EVENT_SEQ_CP:
        e->event.dst = legal_draw(t, n_seqs); /* may be alive: what it has stays, and nothing may overlap */
        for (uint32_t p = e->event.p0; p < e->event.p1 && p < next; p++)
            if (t->held[seq][p] && t->held[e->event.dst][p])
                return false;
        for (uint32_t p = e->event.p0; p < e->event.p1 && p < next; p++)
            t->held[e->event.dst][p] |= t->held[seq][p];
        return true;
    case KVB_EVENT_SEQ_RM:
        for (uint32_t p = e->event.p0; p < e->event.p1 && p < next; p++)
            t->held[seq][p] = false;
        return true;
    case KVB_EVENT_SEQ_KEEP:
        for (uint32_t s = 0; s < n_seqs; s++)
            if (s != seq)
                memset(t->held[s], 0, sizeof t->held[s]);
        return true;
    case KVB_EVENT_REWIND:
        e->event.src = 0;
        e->event.len = legal_draw(t, next + 1);
        memset(t->held[0] + e->event.len, 0, sizeof t->held[0] - e->event.len);
        return true;
    default:
        memset(t->held, 0, sizeof t->held);
        e->event.src = 0;
        return true;
    }
}

/* Odd seeds: sequences; even ones: trees and rewinding of sequence 0. */
static inline void legal_trace_make(legal_trace *t, uint64_t seed)
{
    static const kvb_event_kind control[] = {KVB_EVENT_SEQ_CP, KVB_EVENT_SEQ_RM, KVB_EVENT_SEQ_CP, KVB_EVENT_SEQ_KEEP};
    static const kvb_event_kind steps[] = {KVB_EVENT_STEP, KVB_EVENT_PREFILL, KVB_EVENT_FILL};
    memset(t, 0, sizeof *t);
    t->key = kvb_rng_key(seed, 17);
    bool tree = seed % 2 == 0;
    uint32_t n_seqs = tree ? 1 : 2 + legal_draw(t, 6);
    while (t->n < LEGAL_MAX_EVENTS) {
        legal_event *e = &t->events[t->n];
        bool made = true;
        if (t->n_pending) {
            if (legal_draw(t, 2) || t->n_pending > 400)
                legal_commit(t, e);
            else
                legal_propose(t, e);
        } else if (legal_draw(t, 30) == 0) {
            made = legal_control(t, e, KVB_EVENT_CLEAR, n_seqs);
        } else if (tree && legal_draw(t, 2)) {
            legal_propose(t, e);
        } else if (legal_draw(t, 3) == 0) {
            made = legal_control(t, e, tree ? KVB_EVENT_REWIND : control[legal_draw(t, 4)], n_seqs);
        } else {
            legal_step(t, e, steps[legal_draw(t, 3)], n_seqs);
        }
        if (!made)
            memset(e, 0, sizeof *e);
        t->n += made;
    }
}

#endif
