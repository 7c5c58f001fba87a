/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of save and load: what a slot holds, and who may take it. */
#include "workloads/trace_alive.h"
#include "workloads/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void slot_clear(saved *slot)
{
    for (uint32_t i = 0; i < slot->n; i++)
        free(slot->at[i].seq.runs);
    free(slot->at);
    *slot = (saved){0};
}

static int sequence_copy(const sequence *from, sequence *to)
{
    *to = *from;
    to->room = from->n_runs;
    to->runs = malloc((from->n_runs + 1) * sizeof *to->runs);
    if (to->runs)
        memcpy(to->runs, from->runs, from->n_runs * sizeof *to->runs);
    return to->runs ? 0 : -ENOMEM;
}

/* What has moved since the last step is stored with the next one. */
int kvb_save_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    (void)event, (void)capacity;
    return state->shifted ? kvb_why_set(-EINVAL, why, why_bytes, "save: positions have moved since the last step") : 0;
}

int kvb_save_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    const bool all = event->src == KVB_TRACE_ALL;
    saved *slot = &state->slots[event->slot];
    const uint32_t first = all ? 0 : event->src;
    if (!all)
        sequence_name(state, event->src);
    const uint32_t end = all ? state->needs.seqs : event->src + 1;
    slot_clear(slot);
    slot->at = calloc(end - first + 1, sizeof *slot->at);
    int err = slot->at ? 0 : -ENOMEM;
    for (uint32_t s = first; s < end && !err; s++) {
        if (!state->seqs[s].tokens)
            continue;
        slot->at[slot->n].id = s;
        err = sequence_copy(&state->seqs[s], &slot->at[slot->n].seq);
        slot->n += !err;
    }
    slot->is = true;
    slot->all = all;
    state->needs.slots = true;
    return err ? kvb_why_set(err, why, why_bytes, "save: no memory") : 0;
}

/* An empty sequence gets what was saved of one. */
static int sequence_load(kvb_trace_state *state, uint32_t s, const sequence *from)
{
    sequence *seq = &state->seqs[s];
    free(seq->runs);
    int err = sequence_copy(from, seq);
    if (err) {
        *seq = (sequence){0};
        return err;
    }
    for (size_t r = 0; r < seq->n_runs; r++)
        for (uint32_t i = 0; i < seq->runs[r].n; i++)
            state->live += state->holders[seq->runs[r].id + i]++ == 0;
    sequence_begin(state, s);
    rollback_note(state, seq);
    state->needs.seq |= s > 0;
    return 0;
}

int kvb_load_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    const saved *slot = &state->slots[event->slot];
    int err = event->src == KVB_TRACE_ALL ? kvb_state_clear(state) : 0;
    if (event->src != KVB_TRACE_ALL)
        sequence_name(state, event->src);
    for (uint32_t i = 0; i < slot->n && !err; i++) {
        err = sequence_load(state, slot->all ? slot->at[i].id : event->src, &slot->at[i].seq);
        event->n += slot->at[i].seq.tokens;
    }
    if (err)
        return kvb_why_set(err, why, why_bytes, "load: no memory");
    if (state->live > state->needs.cells)
        state->needs.cells = state->live;
    return 0;
}

/* Tokens of a saved sequence that no sequence alive holds. */
static uint32_t tokens_gone(const kvb_trace_state *state, const sequence *seq)
{
    uint32_t n = 0;
    for (size_t r = 0; r < seq->n_runs; r++)
        for (uint32_t i = 0; i < seq->runs[r].n; i++)
            n += state->holders[seq->runs[r].id + i] == 0;
    return n;
}

int kvb_load_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    const saved *slot = &state->slots[event->slot];
    const bool all = event->src == KVB_TRACE_ALL;
    if (!slot->is)
        return kvb_why_set(NO_CALL, why, why_bytes, "load: nothing was saved in slot %u", event->slot);
    if (slot->all != all)
        return kvb_why_set(-EINVAL, why, why_bytes, "load: slot %u holds %s", event->slot,
                           slot->all ? "all sequences" : "one sequence");
    if (!all && state->seqs[event->src].tokens)
        return kvb_why_set(-EINVAL, why, why_bytes, "load: sequence %u is alive", event->src);
    const uint32_t more = all || !slot->n ? 0 : tokens_gone(state, &slot->at[0].seq);
    if (capacity && state->live + more > capacity)
        return kvb_why_set(-ENOSPC, why, why_bytes, "load needs %u cells, capacity is %u", state->live + more,
                           capacity);
    return 0;
}

void kvb_slots_free(kvb_trace_state *state)
{
    for (uint32_t i = 0; i < KVB_TRACE_SLOTS; i++)
        slot_clear(&state->slots[i]);
}
