/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tokens are alive while a trace is read: validates each event and adds up what a cache needs.
 * A sequence is a sorted list of runs of consecutive positions with consecutive identities, so that a
 * long sequence costs a few bytes; a token costs one byte, the number of sequences that hold it.
 */
#include "workloads/trace_internal.h"
#include "workloads/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

/* Tokens id .. id+n-1 at positions pos .. pos+n-1. */
typedef struct token_run {
    uint32_t pos, id, n;
} token_run;

typedef struct sequence {
    token_run *runs;
    size_t n_runs, room;
    uint32_t tokens;   /* held; 0: dead */
    uint32_t furthest; /* next position that it, or what it was copied from, ever had: kvb_trace_needs.rollback */
} sequence;

/* A proposed tree node that is not yet committed or dropped. */
typedef struct pending_node {
    int32_t parent;
    uint32_t depth, id;
} pending_node;

struct kvb_trace_state {
    sequence seqs[KVB_TRACE_MAX_SEQS];
    uint8_t *holders; /* [needs.tokens] sequences that hold a token */
    size_t holders_room;
    pending_node *pending;
    size_t n_pending, pending_room;
    uint32_t live; /* distinct tokens alive, pending ones too */
    kvb_trace_needs needs;
};

/* Position that the next token of a sequence has. */
static uint32_t sequence_next(const sequence *seq)
{
    return seq->n_runs ? seq->runs[seq->n_runs - 1].pos + seq->runs[seq->n_runs - 1].n : 0;
}

static int sequence_append(kvb_trace_state *state, uint32_t s, uint32_t pos, uint32_t id)
{
    sequence *seq = &state->seqs[s];
    token_run *last = seq->n_runs ? &seq->runs[seq->n_runs - 1] : NULL;
    if (last && last->pos + last->n == pos && last->id + last->n == id) {
        last->n++;
    } else {
        int err = kvb_array_reserve(&seq->runs, &seq->room, seq->n_runs + 1, sizeof *seq->runs);
        if (err)
            return err;
        seq->runs[seq->n_runs++] = (token_run){.pos = pos, .id = id, .n = 1};
    }
    seq->tokens++;
    if (pos + 1 > seq->furthest)
        seq->furthest = pos + 1;
    if (pos + 1 > state->needs.seq_len)
        state->needs.seq_len = pos + 1;
    if (s + 1 > state->needs.seqs)
        state->needs.seqs = s + 1;
    return 0;
}

/* Notes how far the sequence is behind the furthest position whose rows it draws on. */
static void rollback_note(kvb_trace_state *state, sequence *seq)
{
    uint32_t next = sequence_next(seq);
    if (seq->n_runs == 0)
        seq->furthest = 0;
    else if (seq->furthest - next > state->needs.rollback)
        state->needs.rollback = seq->furthest - next;
}

/* The sequence lets go of positions p0 .. p1-1. */
static int sequence_remove(kvb_trace_state *state, sequence *seq, uint32_t p0, uint32_t p1)
{
    if (seq->n_runs == 0)
        return 0;
    token_run *kept = malloc((seq->n_runs + 1) * sizeof *kept); /* a cut inside a run makes two of it */
    if (!kept)
        return -ENOMEM;
    size_t n = 0;
    for (size_t r = 0; r < seq->n_runs; r++) {
        token_run run = seq->runs[r];
        uint32_t begin = p0 > run.pos ? p0 : run.pos, end = p1 < run.pos + run.n ? p1 : run.pos + run.n;
        if (begin >= end) {
            kept[n++] = run;
            continue;
        }
        if (begin > run.pos)
            kept[n++] = (token_run){.pos = run.pos, .id = run.id, .n = begin - run.pos};
        if (end < run.pos + run.n)
            kept[n++] = (token_run){.pos = end, .id = run.id + (end - run.pos), .n = run.pos + run.n - end};
        for (uint32_t p = begin; p < end; p++)
            if (--state->holders[run.id + (p - run.pos)] == 0)
                state->live--;
        seq->tokens -= end - begin;
    }
    seq->room = seq->n_runs + 1;
    free(seq->runs);
    seq->runs = kept;
    seq->n_runs = n;
    rollback_note(state, seq);
    return 0;
}

/* Identities and admission of the event's n tokens, held by nobody yet. */
static int tokens_admit(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    kvb_trace_needs *needs = &state->needs;
    const char *name = kvb_event_kind_name(event->kind);
    if (event->n > KVB_TRACE_MAX_CELLS - needs->tokens)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: more than %u tokens in the trace", name, KVB_TRACE_MAX_CELLS);
    uint32_t cells = state->live + event->n;
    if (capacity && cells > capacity)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s needs %u cells, capacity is %u", name, cells, capacity);
    if (kvb_array_reserve(&state->holders, &state->holders_room, (size_t)needs->tokens + event->n, 1))
        return kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", name);
    memset(state->holders + needs->tokens, 1, event->n);
    event->first = needs->tokens;
    needs->tokens += event->n;
    state->live = cells;
    if (cells > needs->cells)
        needs->cells = cells;
    if (event->kind == KVB_EVENT_FILL) {
        needs->fill = true;
    } else {
        needs->queries += event->n;
        if (event->n > needs->step)
            needs->step = event->n;
    }
    return 0;
}

/* step, prefill, fill */
static int step_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    int err = tokens_admit(state, event, capacity, why, why_bytes);
    if (err)
        return err;
    const char *name = kvb_event_kind_name(event->kind);
    for (uint32_t i = 0; i < event->n; i++) {
        uint32_t s = event->seq[i], next = sequence_next(&state->seqs[s]);
        if (event->kind == KVB_EVENT_FILL)
            event->pos[i] = next;
        if (event->pos[i] != next)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: position %u, but the next one of sequence %u is %u", name,
                               event->pos[i], s, next);
        err = sequence_append(state, s, next, (uint32_t)event->first + i);
        if (err)
            return kvb_why_set(err, why, why_bytes, "%s: no memory", name);
        if (s > 0)
            state->needs.seq = true;
        if (event->kind != KVB_EVENT_FILL)
            state->needs.pairs += state->seqs[s].tokens; /* the tail sees every token of its sequence */
    }
    return 0;
}

/* propose and rewind belong to caches of one sequence. */
static int only_sequence_0(const kvb_trace_state *state, const char *name, char *why, size_t why_bytes)
{
    for (uint32_t s = 1; s < KVB_TRACE_MAX_SEQS; s++)
        if (state->seqs[s].tokens)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: only sequence 0 may be alive, but sequence %u is too",
                               name, s);
    return 0;
}

static int propose_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    int err = only_sequence_0(state, "propose", why, why_bytes);
    if (!err)
        err = tokens_admit(state, event, capacity, why, why_bytes);
    if (err)
        return err;
    if (kvb_array_reserve(&state->pending, &state->pending_room, state->n_pending + event->n, sizeof *state->pending))
        return kvb_why_set(-ENOMEM, why, why_bytes, "propose: no memory");
    uint32_t len = sequence_next(&state->seqs[0]);
    for (uint32_t i = 0; i < event->n; i++) {
        int32_t parent = event->parents[i];
        if (parent >= 0 && (size_t)parent >= state->n_pending)
            return kvb_why_set(-EINVAL, why, why_bytes, "propose: parent %d of node %zu is not an earlier node", parent,
                               state->n_pending);
        uint32_t depth = parent < 0 ? 0 : state->pending[parent].depth + 1;
        state->pending[state->n_pending++] = (pending_node){parent, depth, (uint32_t)event->first + i};
        event->pos[i] = len + depth;
        event->seq[i] = 0;
        if (event->pos[i] + 1 > state->needs.seq_len)
            state->needs.seq_len = event->pos[i] + 1;
        state->needs.pairs += state->seqs[0].tokens + depth + 1;
    }
    if (state->needs.seqs == 0)
        state->needs.seqs = 1;
    state->needs.tree = true;
    return 0;
}

static int commit_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)capacity;
    if (state->n_pending == 0)
        return kvb_why_set(-EINVAL, why, why_bytes, "commit: no nodes are pending");
    int32_t parent = -1;
    for (uint32_t i = 0; i < event->n; i++) {
        uint32_t node = event->accepted[i];
        if (node >= state->n_pending)
            return kvb_why_set(-EINVAL, why, why_bytes, "commit: node %u, but %zu are pending", node, state->n_pending);
        if (state->pending[node].parent != parent)
            return kvb_why_set(-EINVAL, why, why_bytes, "commit: node %u is no %s: accepted must be a path from a root",
                               node, parent < 0 ? "root" : "child of the node before it");
        parent = (int32_t)node;
    }
    for (uint32_t i = 0; i < event->n; i++)
        if (sequence_append(state, 0, sequence_next(&state->seqs[0]), state->pending[event->accepted[i]].id))
            return kvb_why_set(-ENOMEM, why, why_bytes, "commit: no memory");
    state->live -= (uint32_t)(state->n_pending - event->n);
    state->n_pending = 0;
    state->needs.tree = true;
    return 0;
}

/* The sequence that a control event names must hold a token. */
static int must_be_alive(const kvb_trace_state *state, const kvb_event *event, char *why, size_t why_bytes)
{
    if (state->seqs[event->src].tokens)
        return 0;
    return kvb_why_set(-EINVAL, why, why_bytes, "%s: sequence %u is not alive", kvb_event_kind_name(event->kind),
                       event->src);
}

static int seq_cp_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)capacity;
    int err = must_be_alive(state, event, why, why_bytes);
    if (err)
        return err;
    const sequence *src = &state->seqs[event->src];
    sequence *dst = &state->seqs[event->dst];
    token_run *merged = malloc((src->n_runs + dst->n_runs) * sizeof *merged);
    size_t n = 0, d = 0;
    if (!merged)
        return kvb_why_set(-ENOMEM, why, why_bytes, "seq_cp: no memory");
    for (size_t r = 0; r < src->n_runs; r++) {
        token_run run = src->runs[r];
        uint32_t begin = event->p0 > run.pos ? event->p0 : run.pos;
        uint32_t end = event->p1 < run.pos + run.n ? event->p1 : run.pos + run.n;
        if (begin >= end)
            continue;
        while (d < dst->n_runs && dst->runs[d].pos + dst->runs[d].n <= begin)
            merged[n++] = dst->runs[d++];
        if (d < dst->n_runs && dst->runs[d].pos < end) {
            uint32_t at = dst->runs[d].pos > begin ? dst->runs[d].pos : begin;
            free(merged);
            return kvb_why_set(-EINVAL, why, why_bytes, "seq_cp: destination sequence %u has position %u already",
                               event->dst, at);
        }
        merged[n++] = (token_run){.pos = begin, .id = run.id + (begin - run.pos), .n = end - begin};
        dst->tokens += end - begin;
        for (uint32_t i = 0; i < end - begin; i++)
            state->holders[run.id + (begin - run.pos) + i]++;
    }
    while (d < dst->n_runs)
        merged[n++] = dst->runs[d++];
    if (src->furthest > dst->furthest)
        dst->furthest = src->furthest;
    dst->room = src->n_runs + dst->n_runs;
    free(dst->runs);
    dst->runs = merged;
    dst->n_runs = n;
    rollback_note(state, dst);
    if (event->dst + 1 > state->needs.seqs)
        state->needs.seqs = event->dst + 1;
    return 0;
}

static int seq_rm_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)capacity;
    int err = must_be_alive(state, event, why, why_bytes);
    if (err)
        return err;
    if (sequence_remove(state, &state->seqs[event->src], event->p0, event->p1))
        return kvb_why_set(-ENOMEM, why, why_bytes, "seq_rm: no memory");
    return 0;
}

static int seq_keep_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)capacity;
    int err = must_be_alive(state, event, why, why_bytes);
    for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS && !err; s++)
        if (s != event->src && sequence_remove(state, &state->seqs[s], 0, KVB_TRACE_POS_END))
            err = kvb_why_set(-ENOMEM, why, why_bytes, "seq_keep: no memory");
    return err;
}

static int rewind_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)capacity;
    int err = only_sequence_0(state, "rewind", why, why_bytes);
    if (err)
        return err;
    uint32_t len = sequence_next(&state->seqs[0]);
    if (event->len > len)
        return kvb_why_set(-EINVAL, why, why_bytes, "rewind: to length %u, but sequence 0 is %u long", event->len, len);
    if (sequence_remove(state, &state->seqs[0], event->len, KVB_TRACE_POS_END))
        return kvb_why_set(-ENOMEM, why, why_bytes, "rewind: no memory");
    state->needs.rewind = true;
    return 0;
}

static int clear_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)event, (void)capacity;
    for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s++)
        if (sequence_remove(state, &state->seqs[s], 0, KVB_TRACE_POS_END))
            return kvb_why_set(-ENOMEM, why, why_bytes, "clear: no memory");
    return 0;
}

typedef struct event_rule {
    int (*apply)(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes);
    bool while_pending; /* may happen between propose and commit */
    bool needs_seq;     /* only a cache with the sequence face can do it */
} event_rule;

static const event_rule event_rules[KVB_EVENT_KINDS] = {
    [KVB_EVENT_STEP] = {step_apply, false, false},     [KVB_EVENT_PREFILL] = {step_apply, false, false},
    [KVB_EVENT_FILL] = {step_apply, false, false},     [KVB_EVENT_PROPOSE] = {propose_apply, true, false},
    [KVB_EVENT_COMMIT] = {commit_apply, true, false},  [KVB_EVENT_SEQ_CP] = {seq_cp_apply, false, true},
    [KVB_EVENT_SEQ_RM] = {seq_rm_apply, false, true},  [KVB_EVENT_SEQ_KEEP] = {seq_keep_apply, false, true},
    [KVB_EVENT_REWIND] = {rewind_apply, false, false}, [KVB_EVENT_CLEAR] = {clear_apply, false, false},
};

int kvb_trace_state_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    assert(event->kind < KVB_EVENT_KINDS);
    const event_rule *rule = &event_rules[event->kind];
    if (state->n_pending && !rule->while_pending)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: %zu proposed nodes are pending: commit first",
                           kvb_event_kind_name(event->kind), state->n_pending);
    int err = rule->apply(state, event, capacity, why, why_bytes);
    if (err)
        return err;
    state->needs.events++;
    state->needs.seq |= rule->needs_seq;
    return 0;
}

const kvb_trace_needs *kvb_trace_state_needs(const kvb_trace_state *state)
{
    return &state->needs;
}

kvb_trace_state *kvb_trace_state_new(void)
{
    return calloc(1, sizeof(kvb_trace_state));
}

void kvb_trace_state_free(kvb_trace_state *state)
{
    if (!state)
        return;
    for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s++)
        free(state->seqs[s].runs);
    free(state->holders);
    free(state->pending);
    free(state);
}
