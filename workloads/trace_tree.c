/* SPDX-License-Identifier: Apache-2.0 */
/* propose and commit: nodes of draft trees, behind several sequences at once. */
#include "workloads/trace_alive.h"
#include "workloads/why.h"

#include <errno.h>

#include "workloads/array.h"

/* The node of that number of a sequence, which has one. */
static const pending_node *node_find(const kvb_trace_state *state, uint32_t s, uint32_t number)
{
    size_t i = 0;
    while (state->pending[i].seq != s || number-- > 0)
        i++;
    return &state->pending[i];
}

int kvb_propose_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    int err = 0;
    for (uint32_t i = 0; i < event->n; i++) {
        sequence *seq = &state->seqs[event->seq[i]];
        const uint32_t number = seq->pending + seq->entering++;
        if (event->parents[i] >= (int64_t)number && !err)
            err = kvb_why_set(-EINVAL, why, why_bytes,
                              "propose: parent %d of node %u of sequence %u is not an earlier node", event->parents[i],
                              number, event->seq[i]);
    }
    for (uint32_t i = 0; i < event->n; i++)
        state->seqs[event->seq[i]].entering = 0;
    return err ? err : kvb_step_check(state, event, capacity, why, why_bytes);
}

int kvb_propose_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    int err = kvb_tokens_admit(state, event, why, why_bytes);
    if (err)
        return err;
    if (kvb_array_reserve(&state->pending, &state->pending_room, state->n_pending + event->n, sizeof *state->pending))
        return kvb_why_set(-ENOMEM, why, why_bytes, "propose: no memory");
    for (uint32_t i = 0; i < event->n; i++) {
        const uint32_t s = event->seq[i];
        const int32_t parent = event->parents[i];
        sequence *seq = &state->seqs[s];
        const uint32_t depth = parent < 0 ? 0 : node_find(state, s, (uint32_t)parent)->depth + 1;
        if (!seq->tokens && !seq->pending)
            sequence_begin(state, s);
        sequence_name(state, s);
        seq->pending++;
        state->pending[state->n_pending++] = (pending_node){parent, s, depth, state->n_ids - event->n + i};
        state->needs.seq |= s > 0;
        state->needs.nodes = state->needs.nodes > state->n_pending ? state->needs.nodes : (uint32_t)state->n_pending;
        event->pos[i] = sequence_next(seq) + depth;
        if (event->pos[i] + 1 > state->needs.seq_len)
            state->needs.seq_len = event->pos[i] + 1;
        state->needs.pairs += seq->tokens + depth + 1;
    }
    return 0;
}

int kvb_commit_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    const uint32_t pending = state->seqs[event->src].pending;
    int32_t parent = -1;
    (void)capacity;
    if (pending == 0) /* to keep none of none is taken */
        return kvb_why_set(event->n ? -EINVAL : NO_CALL, why, why_bytes, "commit: no nodes of sequence %u are pending",
                           event->src);
    for (uint32_t i = 0; i < event->n; i++) {
        const uint32_t node = event->accepted[i];
        if (node >= pending)
            return kvb_why_set(-EINVAL, why, why_bytes, "commit: node %u, but %u are pending", node, pending);
        if (node_find(state, event->src, node)->parent != parent)
            return kvb_why_set(-EINVAL, why, why_bytes, "commit: node %u is no %s: accepted must be a path from a root",
                               node, parent < 0 ? "root" : "child of the node before it");
        parent = (int32_t)node;
    }
    return 0;
}

int kvb_commit_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    sequence *seq = &state->seqs[event->src];
    size_t left = 0;
    state->alive -= !seq->tokens; /* until it gets the first one */
    state->live -= seq->pending - event->n;
    state->needs.seq |= event->src > 0;
    seq->pending = 0;
    for (uint32_t i = 0; i < event->n; i++)
        if (kvb_sequence_append(state, event->src, sequence_next(seq),
                                node_find(state, event->src, event->accepted[i])->id))
            return kvb_why_set(-ENOMEM, why, why_bytes, "commit: no memory");
    for (size_t i = 0; i < state->n_pending; i++)
        if (state->pending[i].seq != event->src)
            state->pending[left++] = state->pending[i];
    state->n_pending = left;
    return 0;
}
