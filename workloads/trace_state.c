/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tokens are alive while a trace is read: validates each event and adds up what a cache needs.
 * A sequence is a sorted list of runs of consecutive positions with consecutive identities, so that a
 * long sequence costs a few bytes; a token costs two bytes, the number of sequences that hold it.
 */
#include "workloads/trace_alive.h"
#include "workloads/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

int kvb_sequence_append(kvb_trace_state *state, uint32_t s, uint32_t pos, uint32_t id)
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
    if (seq->tokens++ == 0)
        sequence_begin(state, s);
    if (pos + 1 > seq->furthest)
        seq->furthest = pos + 1;
    if (pos + 1 > state->needs.seq_len)
        state->needs.seq_len = pos + 1;
    return 0;
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
        token_run run = seq->runs[r], gone = run_clip(&run, p0, p1);
        token_run parts[] = {run_clip(&run, 0, gone.n ? p0 : KVB_TRACE_POS_END),
                             run_clip(&run, gone.n ? p1 : KVB_TRACE_POS_END, KVB_TRACE_POS_END)};
        for (size_t part = 0; part < 2; part++)
            if (parts[part].n)
                kept[n++] = parts[part];
        for (uint32_t i = 0; i < gone.n; i++)
            if (--state->holders[gone.id + i] == 0)
                state->live--;
        seq->tokens -= gone.n;
    }
    seq->room = seq->n_runs + 1;
    free(seq->runs);
    seq->runs = kept;
    seq->n_runs = n;
    state->alive -= n == 0;
    rollback_note(state, seq);
    return 0;
}

/* Identities and admission of the event's n tokens, held by nobody yet. */
int kvb_tokens_admit(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    kvb_trace_needs *needs = &state->needs;
    if (kvb_array_reserve(&state->holders, &state->holders_room, (size_t)state->n_ids + event->n,
                          sizeof *state->holders))
        return kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", kvb_event_kind_name(event->kind));
    for (uint32_t i = 0; i < event->n; i++)
        state->holders[state->n_ids++] = 1;
    event->first = needs->tokens;
    state->shifted = false;
    needs->tokens += event->n;
    state->live += event->n;
    needs->reuse |= event->reuse;
    if (state->live > needs->cells)
        needs->cells = state->live;
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
static int step_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    int err = kvb_tokens_admit(state, event, why, why_bytes);
    for (uint32_t i = 0; i < event->n && !err; i++) {
        uint32_t s = event->seq[i];
        err = kvb_sequence_append(state, s, event->pos[i], state->n_ids - event->n + i);
        if (err)
            return kvb_why_set(err, why, why_bytes, "%s: no memory", kvb_event_kind_name(event->kind));
        if (s > 0)
            state->needs.seq = true;
        if (event->kind != KVB_EVENT_FILL)
            state->needs.pairs += state->seqs[s].tokens; /* the tail sees every token of its sequence */
    }
    return err;
}

static int seq_cp_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    const sequence *src = &state->seqs[event->src];
    sequence *dst = &state->seqs[event->dst];
    sequence_name(state, event->src);
    sequence_name(state, event->dst);
    if (src->n_runs == 0)
        return 0;
    token_run *merged = malloc((src->n_runs + dst->n_runs) * sizeof *merged);
    size_t n = 0, d = 0;
    if (!merged)
        return kvb_why_set(-ENOMEM, why, why_bytes, "seq_cp: no memory");
    for (size_t r = 0; r < src->n_runs; r++) {
        token_run run = run_clip(&src->runs[r], event->p0, event->p1);
        if (run.n == 0)
            continue;
        while (d < dst->n_runs && dst->runs[d].pos < run.pos)
            merged[n++] = dst->runs[d++];
        merged[n++] = run;
        if (dst->tokens == 0)
            sequence_begin(state, event->dst);
        dst->tokens += run.n;
        event->n += run.n;
        for (uint32_t i = 0; i < run.n; i++)
            state->holders[run.id + i]++;
    }
    while (d < dst->n_runs)
        merged[n++] = dst->runs[d++];
    if (event->n && src->furthest > dst->furthest)
        dst->furthest = src->furthest;
    dst->room = src->n_runs + dst->n_runs;
    free(dst->runs);
    dst->runs = merged;
    dst->n_runs = n;
    rollback_note(state, dst);
    return 0;
}

static int seq_rm_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    sequence_name(state, event->src);
    if (sequence_remove(state, &state->seqs[event->src], event->p0, event->p1))
        return kvb_why_set(-ENOMEM, why, why_bytes, "seq_rm: no memory");
    return 0;
}

static int seq_keep_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    int err = 0;
    sequence_name(state, event->src);
    for (uint32_t s = 0; s < state->needs.seqs && !err; s++)
        if (s != event->src && sequence_remove(state, &state->seqs[s], 0, KVB_TRACE_POS_END))
            err = kvb_why_set(-ENOMEM, why, why_bytes, "seq_keep: no memory");
    return err;
}

static int rewind_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    if (sequence_remove(state, &state->seqs[0], event->len, KVB_TRACE_POS_END))
        return kvb_why_set(-ENOMEM, why, why_bytes, "rewind: no memory");
    return 0;
}

int kvb_state_clear(kvb_trace_state *state)
{
    int err = 0;
    state->shifted = false;
    for (uint32_t s = 0; s < state->needs.seqs && !err; s++)
        err = sequence_remove(state, &state->seqs[s], 0, KVB_TRACE_POS_END);
    return err;
}

static int clear_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    (void)event;
    return kvb_state_clear(state) ? kvb_why_set(-ENOMEM, why, why_bytes, "clear: no memory") : 0;
}

/* ---- what a cache must answer -------------------------------------------------------------------------------- */

int kvb_step_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    const char *name = kvb_event_kind_name(event->kind);
    int err = 0;
    if (event->n > KVB_TRACE_MAX_CELLS - state->needs.tokens)
        return kvb_why_set(NO_CALL, why, why_bytes, "%s: more than %u tokens in the trace", name, KVB_TRACE_MAX_CELLS);
    for (uint32_t i = 0; i < event->n && event->kind != KVB_EVENT_PROPOSE; i++) {
        sequence *seq = &state->seqs[event->seq[i]];
        uint32_t next = sequence_next(seq) + seq->entering++;
        if (event->kind == KVB_EVENT_FILL)
            event->pos[i] = next;
        if (event->pos[i] != next && !err)
            err = kvb_why_set(NO_CALL, why, why_bytes, "%s: position %u, but the next one of sequence %u is %u", name,
                              event->pos[i], event->seq[i], next);
    }
    for (uint32_t i = 0; i < event->n && event->kind != KVB_EVENT_PROPOSE; i++)
        state->seqs[event->seq[i]].entering = 0;
    if (!err && event->reuse && (!event->tok || event->pos[0]))
        err = kvb_why_set(NO_CALL, why, why_bytes,
                          "%s: \"reuse\" is of an empty sequence's prompt, from 0 on, with its tokens (\"tok\")", name);
    if (!err && capacity && state->live + event->n > capacity)
        err = kvb_why_set(-ENOSPC, why, why_bytes, "%s needs %u cells, capacity is %u", name, state->live + event->n,
                          capacity);
    return err;
}

/* rewind belongs to caches of one sequence. */
static int only_sequence_0(const kvb_trace_state *state, const char *name, char *why, size_t why_bytes)
{
    for (uint32_t s = 1; s < state->needs.seqs; s++)
        if (state->seqs[s].tokens)
            return kvb_why_set(NO_CALL, why, why_bytes, "%s: only sequence 0 may be alive, but sequence %u is too",
                               name, s);
    return 0;
}

static int seq_cp_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)capacity;
    const sequence *src = &state->seqs[event->src], *dst = &state->seqs[event->dst];
    for (size_t r = 0, d = 0; r < src->n_runs; r++) {
        token_run run = run_clip(&src->runs[r], event->p0, event->p1);
        while (d < dst->n_runs && dst->runs[d].pos + dst->runs[d].n <= run.pos)
            d++;
        token_run both = d < dst->n_runs ? run_clip(&dst->runs[d], run.pos, run.pos + run.n) : (token_run){0};
        if (both.n)
            return kvb_why_set(-EINVAL, why, why_bytes, "seq_cp: destination sequence %u has position %u already",
                               event->dst, both.pos);
    }
    return 0;
}

static int rewind_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)capacity;
    uint32_t len = sequence_next(&state->seqs[0]);
    int err = only_sequence_0(state, "rewind", why, why_bytes);
    if (!err && event->len > len)
        err = kvb_why_set(-EINVAL, why, why_bytes, "rewind: to length %u, but sequence 0 is %u long", event->len, len);
    return err;
}

/* Rows trade places by way of a free cell. */
static int defrag_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)event;
    return capacity && state->live >= capacity
               ? kvb_why_set(NO_CALL, why, why_bytes, "defrag needs a free cell, but all %u are in use", capacity)
               : 0;
}

static int defrag_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    (void)state, (void)event, (void)why, (void)why_bytes;
    return 0;
}

typedef struct event_rule {
    int (*check)(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why,
                 size_t why_bytes); /* or NULL */
    int (*apply)(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes);
    int while_pending; /* what it is answered while a sequence that it speaks of has nodes; 0: as else */
    bool seq, tree, rewind, reorder, shift, divide, defrag; /* faces that it asks of a cache */
} event_rule;

static const event_rule event_rules[] = {
    [KVB_EVENT_STEP] = {kvb_step_check, step_apply, .while_pending = -EINVAL},
    [KVB_EVENT_PREFILL] = {kvb_step_check, step_apply, .while_pending = -EINVAL},
    [KVB_EVENT_FILL] = {kvb_step_check, step_apply, .while_pending = -EINVAL},
    [KVB_EVENT_PROPOSE] = {kvb_propose_check, kvb_propose_apply, 0, .tree = true},
    [KVB_EVENT_COMMIT] = {kvb_commit_check, kvb_commit_apply, 0, .tree = true},
    [KVB_EVENT_SEQ_CP] = {seq_cp_check, seq_cp_apply, -EINVAL, .seq = true},
    [KVB_EVENT_SEQ_RM] = {NULL, seq_rm_apply, -EINVAL, .seq = true},
    [KVB_EVENT_SEQ_KEEP] = {NULL, seq_keep_apply, -EINVAL, .seq = true},
    [KVB_EVENT_REWIND] = {rewind_check, rewind_apply, -EINVAL, .rewind = true},
    [KVB_EVENT_CLEAR] = {NULL, clear_apply, .while_pending = NO_CALL},
    [KVB_EVENT_REORDER] = {kvb_reorder_check, kvb_reorder_apply, -EINVAL, .seq = true, .reorder = true},
    [KVB_EVENT_DEFRAG] = {defrag_check, defrag_apply, -EINVAL, .defrag = true},
    [KVB_EVENT_SEQ_ADD] = {kvb_shift_check, kvb_shift_apply, -EINVAL, .shift = true},
    [KVB_EVENT_SEQ_DIV] = {kvb_shift_check, kvb_shift_apply, -EINVAL, .shift = true, .divide = true},
    [KVB_EVENT_SAVE] = {kvb_save_check, kvb_save_apply, .while_pending = -EINVAL},
    [KVB_EVENT_LOAD] = {kvb_load_check, kvb_load_apply, .while_pending = -EINVAL},
};

/* A sequence that the event speaks of and that has nodes pending; UINT32_MAX: there is none. */
static uint32_t pending_met(const kvb_trace_state *state, const kvb_event *event)
{
    const bool all = event->kind == KVB_EVENT_SEQ_KEEP || event->kind == KVB_EVENT_CLEAR ||
                     event->kind == KVB_EVENT_DEFRAG || event->kind == KVB_EVENT_SAVE || event->kind == KVB_EVENT_LOAD;
    const uint32_t named[] = {event->src, event->kind == KVB_EVENT_SEQ_CP ? event->dst : event->src};
    const uint32_t *const lists[] = {event->seq, event->dsts, event->srcs, named};
    const bool own = !event->seq && !event->dsts;
    if (all)
        return state->n_pending ? state->pending[0].seq : UINT32_MAX;
    for (size_t l = 0; l < sizeof lists / sizeof *lists && state->n_pending; l++)
        for (uint32_t i = 0; lists[l] && i < (lists[l] == named ? 2 * own : event->n); i++)
            if (state->seqs[lists[l][i]].pending)
                return lists[l][i];
    return UINT32_MAX;
}

/* What the cache must have so that an event is refused for its own reason, and not since the cache is small. */
static void refusal_needs(kvb_trace_state *state, const kvb_event *event)
{
    kvb_trace_needs *needs = &state->needs;
    uint32_t alive = state->alive;
    if (event->src != KVB_TRACE_ALL)
        sequence_name(state, event->src);
    sequence_name(state, event->dst);
    for (uint32_t i = 0; i < event->n && event->dsts; i++) {
        sequence_name(state, event->srcs[i]);
        sequence_name(state, event->dsts[i]);
    }
    needs->seq |= event->kind == KVB_EVENT_COMMIT && event->src > 0;
    for (uint32_t i = 0; i < event->n && event->seq; i++) {
        sequence *seq = &state->seqs[event->seq[i]];
        alive += !seq->tokens && !seq->pending && seq->entering++ == 0;
        sequence_name(state, event->seq[i]);
        needs->seq |= event->seq[i] > 0;
        if (!event->parents && needs->seq_len <= event->pos[i])
            needs->seq_len = event->pos[i] + 1;
    }
    for (uint32_t i = 0; i < event->n && event->seq; i++)
        state->seqs[event->seq[i]].entering = 0;
    needs->alive = needs->alive > alive ? needs->alive : alive;
}

/* The event is to be refused, as caches answer it. */
static int refusal_check(kvb_trace_state *state, kvb_event *event, int answer, uint32_t capacity, char *why,
                         size_t why_bytes)
{
    const char *name = kvb_event_kind_name(event->kind), *error = kvb_refusal_name(event->error);
    if (answer == 0)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: is to be refused with %s, but may be done", name, error);
    if (answer != event->error) {
        char text[300];
        snprintf(text, sizeof text, "%s", why);
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: is not to be refused with %s: %s", name, error, text);
    }
    if (answer == -ENOSPC)
        state->needs.full = capacity;
    refusal_needs(state, event);
    event->call = event->kind;
    event->kind = KVB_EVENT_REFUSED;
    return 0;
}

int kvb_trace_state_apply(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    assert(event->kind < KVB_EVENT_REFUSED);
    const event_rule *rule = &event_rules[event->kind];
    int answer = 0;
    const uint32_t met = rule->while_pending ? pending_met(state, event) : UINT32_MAX;
    if (met != UINT32_MAX)
        answer = kvb_why_set(rule->while_pending, why, why_bytes,
                             "%s: %u proposed nodes of sequence %u are pending: commit first",
                             kvb_event_kind_name(event->kind), state->seqs[met].pending, met);
    else if (rule->check)
        answer = rule->check(state, event, capacity, why, why_bytes);
    int err = event->error ? refusal_check(state, event, answer, capacity, why, why_bytes)
              : answer     ? -EINVAL
                           : rule->apply(state, event, why, why_bytes);
    if (err)
        return err;
    state->needs.events++;
    state->needs.seq |= rule->seq;
    state->needs.tree |= rule->tree;
    state->needs.rewind |= rule->rewind;
    state->needs.reorder |= rule->reorder;
    state->needs.shift |= rule->shift;
    state->needs.divide |= rule->divide;
    state->needs.defrag |= rule->defrag;
    return 0;
}

const kvb_trace_needs *kvb_trace_state_needs(const kvb_trace_state *state)
{
    return &state->needs;
}

void kvb_trace_state_begin(kvb_trace_state *state, const kvb_trace_header *header)
{
    state->unknown_rope = kvb_model_unknown_rope(&header->model);
}

kvb_trace_state *kvb_trace_state_new(void)
{
    return calloc(1, sizeof(kvb_trace_state));
}

void kvb_trace_state_free(kvb_trace_state *state)
{
    if (!state)
        return;
    for (uint32_t s = 0; s < state->needs.seqs; s++)
        free(state->seqs[s].runs);
    kvb_slots_free(state);
    free(state->holders);
    free(state->pending);
    free(state);
}
