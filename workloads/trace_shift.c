/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of seq_add and seq_div: which tokens move, and what they may not pass. */
#include "workloads/trace_alive.h"
#include "workloads/why.h"

#include <errno.h>
#include <stdlib.h>

#include "workloads/array.h"

/* Of what the event moves: how many tokens, and how many of them others hold, too. */
static void moved_count(const kvb_trace_state *state, const kvb_event *event, uint32_t *n, uint32_t *shared)
{
    const sequence *seq = &state->seqs[event->src];
    *n = *shared = 0;
    for (size_t r = 0; r < seq->n_runs && kvb_event_moves(event); r++) {
        const token_run run = run_clip(&seq->runs[r], event->p0, event->p1);
        *n += run.n;
        for (uint32_t i = 0; i < run.n; i++)
            *shared += state->holders[run.id + i] > 1;
    }
}

int kvb_shift_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    sequence *seq = &state->seqs[event->src];
    uint32_t shared;
    sequence_name(state, event->src);
    moved_count(state, event, &event->n, &shared);
    if (event->n == 0)
        return 0;
    const uint32_t was = sequence_next(seq), n_cut = 2 + event->n;
    token_run *kept = malloc((seq->n_runs + n_cut) * sizeof *kept);
    const bool anew = state->needs.slots; /* what is saved goes on under the old numbers */
    if (!kept || kvb_array_reserve(&state->holders, &state->holders_room,
                                   (size_t)state->n_ids + (anew ? event->n : shared), sizeof *state->holders)) {
        free(kept);
        return kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", kvb_event_kind_name(event->kind));
    }
    size_t n = 0;
    for (size_t r = 0; r < seq->n_runs; r++) {
        const token_run run = seq->runs[r], moved = run_clip(&run, event->p0, event->p1);
        const token_run before = run_clip(&run, 0, event->p0), behind = run_clip(&run, event->p1, KVB_TRACE_POS_END);
        if (before.n)
            kept[n++] = before;
        for (uint32_t i = 0; i < moved.n; i++) {
            uint32_t id = moved.id + i, pos = (uint32_t)kvb_event_moved(event, moved.pos + i);
            if (state->holders[id] > 1 || anew) {
                state->live -= --state->holders[id] == 0;
                state->holders[id = state->n_ids++] = 1;
                state->live++;
            }
            if (n && kept[n - 1].pos + kept[n - 1].n == pos && kept[n - 1].id + kept[n - 1].n == id)
                kept[n - 1].n++;
            else
                kept[n++] = (token_run){.pos = pos, .id = id, .n = 1};
        }
        if (behind.n)
            kept[n++] = behind;
    }
    state->shifted = true;
    seq->room = seq->n_runs + n_cut;
    free(seq->runs);
    seq->runs = kept;
    seq->n_runs = n;
    const uint32_t next = sequence_next(seq);
    if (next != was) /* its end has moved, and with it what it was cut back from */
        seq->furthest = seq->furthest + next - was;
    seq->furthest = seq->furthest > next ? seq->furthest : next;
    if (next > state->needs.seq_len)
        state->needs.seq_len = next;
    if (state->live > state->needs.cells)
        state->needs.cells = state->live;
    rollback_note(state, seq);
    return 0;
}

int kvb_shift_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    const sequence *seq = &state->seqs[event->src];
    const char *name = kvb_event_kind_name(event->kind);
    int64_t below = -1, above = INT64_MAX, first = -1, last = -1;
    uint32_t n, shared;
    if (state->unknown_rope >= 0)
        return kvb_why_set(NO_CALL, why, why_bytes, "%s: the header says no \"rope\" of group %d", name,
                           state->unknown_rope);
    moved_count(state, event, &n, &shared);
    for (size_t r = 0; r < seq->n_runs && n; r++) {
        const token_run *run = &seq->runs[r];
        const token_run before = run_clip(run, 0, event->p0), moved = run_clip(run, event->p0, event->p1),
                        behind = run_clip(run, event->p1, KVB_TRACE_POS_END);
        below = before.n ? (int64_t)before.pos + before.n - 1 : below;
        first = moved.n && first < 0 ? moved.pos : first;
        last = moved.n ? (int64_t)moved.pos + moved.n - 1 : last;
        above = behind.n && above == INT64_MAX ? behind.pos : above;
    }
    const int64_t to = kvb_event_moved(event, first), end = kvb_event_moved(event, last);
    char by[24];
    snprintf(by, sizeof by, event->divisor ? "divided by %d" : "moved by %d",
             event->divisor ? (int)event->divisor : (int)event->delta);
    if (n && (to <= below || end >= above))
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "%s: positions %lld .. %lld of sequence %u %s would pass position %lld", name,
                           (long long)first, (long long)last, event->src, by, (long long)(to <= below ? below : above));
    if (n && end >= KVB_TRACE_MAX_CELLS)
        return kvb_why_set(NO_CALL, why, why_bytes, "%s: position %lld is above %u", name, (long long)end,
                           KVB_TRACE_MAX_CELLS - 1);
    if ((state->needs.slots ? n : shared) > KVB_TRACE_MAX_CELLS - state->n_ids)
        return kvb_why_set(NO_CALL, why, why_bytes, "%s: more than %u rows in the trace", name, KVB_TRACE_MAX_CELLS);
    if (capacity && state->live + shared > capacity)
        return kvb_why_set(-ENOSPC, why, why_bytes, "%s needs %u cells, capacity is %u", name, state->live + shared,
                           capacity);
    return 0;
}
