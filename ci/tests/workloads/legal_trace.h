/* SPDX-License-Identifier: Apache-2.0 */
/* Random legal traces for tests, made from a seed. */
#ifndef KVB_TEST_LEGAL_TRACE_H
#define KVB_TEST_LEGAL_TRACE_H

#include "workloads/rng.h"
#include "workloads/trace.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define LEGAL_SEQS       8u   /* sequences */
#define LEGAL_ID_STEP    585u /* between their ids: the last is 4095 */
#define LEGAL_MAX_EVENTS 40u
#define LEGAL_MAX_TOKENS 24u /* of one event */

/* An event and the arrays to which it points. */
typedef struct legal_event {
    kvb_event event;
    uint32_t pos[LEGAL_MAX_TOKENS], seq[LEGAL_MAX_TOKENS], accepted[LEGAL_MAX_TOKENS];
    uint32_t dsts[LEGAL_SEQS], srcs[LEGAL_SEQS];
    int32_t tok[LEGAL_MAX_TOKENS], parents[LEGAL_MAX_TOKENS];
} legal_event;

typedef struct legal_trace {
    legal_event events[LEGAL_MAX_EVENTS];
    uint32_t n;
    uint64_t key, draws, tokens;
    uint32_t cell[LEGAL_SEQS][2048]; /* [sequence][position] identity + 1 of the token; 0: none */
    int32_t pending_parent[512];
    uint32_t pending[512], pending_depth[512], pending_seq[512], n_pending; /* pending: identity + 1 */
    bool trees;                                                             /* sequences have trees */
    uint32_t n_seqs;                                                        /* 1: trees and rewinds of sequence 0 */
} legal_trace;

static inline uint32_t legal_draw(legal_trace *t, uint32_t n)
{
    return (uint32_t)(kvb_rng_bits(t->key, t->draws++) % n);
}

static inline uint32_t legal_next(const legal_trace *t, uint32_t seq)
{
    uint32_t next = 2048;
    while (next > 0 && !t->cell[seq][next - 1])
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

/* Number of a sequence's pending nodes. */
static inline uint32_t legal_pending(const legal_trace *t, uint32_t seq)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_pending; i++)
        n += t->pending_seq[i] == seq;
    return n;
}

/* A random sequence without nodes. There must be one. */
static inline uint32_t legal_idle(legal_trace *t, uint32_t n_seqs)
{
    uint32_t seq = legal_draw(t, n_seqs);
    while (legal_pending(t, seq))
        seq = (seq + 1) % n_seqs;
    return seq;
}

/* Makes a step, prefill or fill. */
static inline void legal_step(legal_trace *t, legal_event *e, kvb_event_kind kind, uint32_t n_seqs)
{
    e->event.kind = kind;
    e->event.n = 1 + legal_draw(t, LEGAL_MAX_TOKENS);
    uint32_t seq = legal_idle(t, n_seqs);
    for (uint32_t i = 0; i < e->event.n; i++) {
        if (kind == KVB_EVENT_STEP)
            seq = legal_idle(t, n_seqs);
        e->seq[i] = seq * LEGAL_ID_STEP;
        e->pos[i] = legal_next(t, seq);
        t->cell[seq][e->pos[i]] = (uint32_t)t->tokens + i + 1;
    }
    legal_tokens(t, e);
    e->event.reuse = kind == KVB_EVENT_PREFILL && e->event.tok && e->pos[0] == 0;
    e->event.extra_key = e->event.reuse ? legal_draw(t, 3) : 0;
}

/* The place of a sequence's node of that number among all pending nodes. */
static inline uint32_t legal_node(const legal_trace *t, uint32_t seq, uint32_t number)
{
    uint32_t i = 0;
    while (t->pending_seq[i] != seq || number-- > 0)
        i++;
    return i;
}

static inline void legal_propose(legal_trace *t, legal_event *e, uint32_t n_seqs)
{
    e->event.kind = KVB_EVENT_PROPOSE;
    e->event.n = 1 + legal_draw(t, LEGAL_MAX_TOKENS);
    e->event.parents = e->parents;
    for (uint32_t i = 0; i < e->event.n; i++) {
        const uint32_t seq = legal_draw(t, n_seqs);
        int32_t parent = (int32_t)legal_draw(t, legal_pending(t, seq) + 1) - 1;
        uint32_t depth = parent < 0 ? 0 : t->pending_depth[legal_node(t, seq, (uint32_t)parent)] + 1;
        e->parents[i] = t->pending_parent[t->n_pending] = parent;
        t->pending[t->n_pending] = (uint32_t)t->tokens + i + 1;
        t->pending_seq[t->n_pending] = seq;
        t->pending_depth[t->n_pending++] = depth;
        e->seq[i] = seq * LEGAL_ID_STEP;
        e->pos[i] = legal_next(t, seq) + depth;
    }
    legal_tokens(t, e);
}

/* Commits nodes of the sequence that has the last node. */
static inline void legal_commit(legal_trace *t, legal_event *e)
{
    const uint32_t seq = t->pending_seq[t->n_pending - 1];
    uint32_t left = 0;
    int32_t last = -1, number = -1;
    e->event = (kvb_event){.kind = KVB_EVENT_COMMIT, .src = seq * LEGAL_ID_STEP, .accepted = e->accepted};
    for (uint32_t node = 0; node < t->n_pending && e->event.n < LEGAL_MAX_TOKENS; node++) {
        if (t->pending_seq[node] != seq)
            continue;
        number++;
        if (t->pending_parent[node] != last || legal_draw(t, 3) == 0)
            continue;
        e->accepted[e->event.n++] = (uint32_t)number;
        last = number;
        t->cell[seq][legal_next(t, seq)] = t->pending[node];
    }
    for (uint32_t node = 0; node < t->n_pending; node++)
        if (t->pending_seq[node] != seq) {
            t->pending[left] = t->pending[node];
            t->pending_parent[left] = t->pending_parent[node];
            t->pending_depth[left] = t->pending_depth[node];
            t->pending_seq[left++] = t->pending_seq[node];
        }
    t->n_pending = left;
}

/* Marks an event that breaks a rule: a cache must refuse it. */
static inline void legal_refused(legal_event *e)
{
    e->event.call = e->event.kind;
    e->event.kind = KVB_EVENT_REFUSED;
    e->event.error = -EINVAL;
}

static inline void legal_control(legal_trace *t, legal_event *e, kvb_event_kind kind, uint32_t n_seqs)
{
    uint32_t seq = legal_draw(t, n_seqs), next = legal_next(t, seq), dst;
    e->event = (kvb_event){.kind = kind, .src = seq * LEGAL_ID_STEP, .p1 = KVB_TRACE_POS_END};
    bool whole = legal_draw(t, 2);
    if (!whole && (kind == KVB_EVENT_SEQ_CP || kind == KVB_EVENT_SEQ_RM)) {
        e->event.p0 = legal_draw(t, next + 1); /* the range may be empty */
        e->event.p1 = e->event.p0 + legal_draw(t, next + 1);
    }
    switch (kind) {
    case KVB_EVENT_SEQ_CP:
        dst = legal_draw(t, n_seqs); /* may be alive: it keeps its tokens, and positions must not overlap */
        e->event.dst = dst * LEGAL_ID_STEP;
        for (uint32_t p = e->event.p0; p < e->event.p1 && p < next; p++)
            if (t->cell[seq][p] && t->cell[dst][p]) {
                legal_refused(e);
                return;
            }
        for (uint32_t p = e->event.p0; p < e->event.p1 && p < next; p++) {
            t->cell[dst][p] |= t->cell[seq][p]; /* one of them is 0 */
            e->event.n += t->cell[seq][p] != 0;
        }
        break;
    case KVB_EVENT_SEQ_RM:
        for (uint32_t p = e->event.p0; p < e->event.p1 && p < next; p++)
            t->cell[seq][p] = 0;
        break;
    case KVB_EVENT_SEQ_KEEP:
        for (uint32_t s = 0; s < n_seqs; s++)
            if (s != seq)
                memset(t->cell[s], 0, sizeof t->cell[s]);
        break;
    case KVB_EVENT_REWIND:
        e->event.src = 0;
        e->event.len = legal_draw(t, next + 2);
        if (e->event.len > next) {
            legal_refused(e);
            return;
        }
        memset(t->cell[0] + e->event.len, 0, sizeof t->cell[0] - e->event.len * sizeof t->cell[0][0]);
        break;
    default:
        memset(t->cell, 0, sizeof t->cell);
        e->event.src = 0;
        break;
    }
}

/* Makes a reordering with ascending destinations; sometimes one is named twice. */
static inline void legal_reorder(legal_trace *t, legal_event *e, uint32_t n_seqs)
{
    static uint32_t before[LEGAL_SEQS][2048];
    memcpy(before, t->cell, sizeof before);
    e->event = (kvb_event){.kind = KVB_EVENT_REORDER, .dsts = e->dsts, .srcs = e->srcs, .p1 = KVB_TRACE_POS_END};
    for (uint32_t s = 0; s < n_seqs; s++) {
        if (e->event.n && !legal_draw(t, 2))
            continue;
        e->dsts[e->event.n] = s * LEGAL_ID_STEP;
        e->srcs[e->event.n++] = legal_draw(t, n_seqs) * LEGAL_ID_STEP;
    }
    if (e->event.n > 1 && !legal_draw(t, 8)) {
        e->dsts[0] = e->dsts[e->event.n - 1];
        legal_refused(e);
        return;
    }
    for (uint32_t i = 0; i < e->event.n; i++)
        memcpy(t->cell[e->dsts[i] / LEGAL_ID_STEP], before[e->srcs[i] / LEGAL_ID_STEP], sizeof before[0]);
}

/* Is there a sequence that can take a step? */
static inline bool legal_steps(const legal_trace *t, uint32_t n_seqs)
{
    bool idle = false;
    for (uint32_t s = 0; s < n_seqs; s++)
        idle = idle || !legal_pending(t, s);
    return idle;
}

/* Odd seeds: sequences, in every second trace with trees. Even seeds: trees and rewinds of sequence 0. */
static inline void legal_trace_begin(legal_trace *t, uint64_t seed)
{
    memset(t, 0, sizeof *t);
    t->key = kvb_rng_key(seed, 17);
    t->trees = seed % 4 == 1;
    t->n_seqs = seed % 2 == 0 ? 1 : 2 + legal_draw(t, LEGAL_SEQS - 1);
}

/* Makes the next event. */
static inline void legal_trace_next(legal_trace *t)
{
    static const kvb_event_kind control[] = {KVB_EVENT_SEQ_CP, KVB_EVENT_SEQ_RM, KVB_EVENT_SEQ_CP, KVB_EVENT_SEQ_KEEP};
    static const kvb_event_kind steps[] = {KVB_EVENT_STEP, KVB_EVENT_PREFILL, KVB_EVENT_FILL};
    const bool tree = t->n_seqs == 1;
    legal_event *e = &t->events[t->n++];
    if (t->n_pending) {
        if (t->trees && legal_draw(t, 3) == 0 && legal_steps(t, t->n_seqs))
            legal_step(t, e, steps[legal_draw(t, 3)], t->n_seqs);
        else if (legal_draw(t, 2) || t->n_pending > 400)
            legal_commit(t, e);
        else
            legal_propose(t, e, t->n_seqs);
    } else if (legal_draw(t, 30) == 0) {
        legal_control(t, e, KVB_EVENT_CLEAR, t->n_seqs);
    } else if ((tree && legal_draw(t, 2)) || (t->trees && legal_draw(t, 4) == 0)) {
        legal_propose(t, e, t->n_seqs);
    } else if (!tree && legal_draw(t, 25) == 0) {
        legal_reorder(t, e, t->n_seqs);
    } else if (legal_draw(t, 3) == 0) {
        legal_control(t, e, tree ? KVB_EVENT_REWIND : control[legal_draw(t, 4)], t->n_seqs);
    } else {
        legal_step(t, e, steps[legal_draw(t, 3)], t->n_seqs);
    }
}

#endif
