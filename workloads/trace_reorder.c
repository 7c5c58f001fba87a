/* SPDX-License-Identifier: Apache-2.0 */
/* reorder: sequences take what others held, all at once. */
#include "workloads/trace_alive.h"
#include "workloads/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int kvb_reorder_check(kvb_trace_state *state, kvb_event *event, uint32_t capacity, char *why, size_t why_bytes)
{
    uint32_t twice = UINT32_MAX;
    (void)capacity;
    for (uint32_t i = 0; i < event->n; i++)
        if (state->seqs[event->dsts[i]].entering++)
            twice = event->dsts[i];
    for (uint32_t i = 0; i < event->n; i++)
        state->seqs[event->dsts[i]].entering = 0;
    return twice == UINT32_MAX
               ? 0
               : kvb_why_set(-EINVAL, why, why_bytes, "reorder: sequence %u is named twice as a destination", twice);
}

/* One sequence more, or less, holds these tokens. */
static void tokens_hold(kvb_trace_state *state, const sequence *seq, bool more)
{
    for (size_t r = 0; r < seq->n_runs; r++)
        for (uint32_t i = 0; i < seq->runs[r].n; i++) {
            uint16_t *holders = &state->holders[seq->runs[r].id + i];
            state->live += more && *holders == 0;
            *holders = (uint16_t)(more ? *holders + 1 : *holders - 1);
            state->live -= !more && *holders == 0;
        }
}

int kvb_reorder_apply(kvb_trace_state *state, kvb_event *event, char *why, size_t why_bytes)
{
    sequence *to = calloc(event->n, sizeof *to);
    for (uint32_t i = 0; i < event->n; i++) {
        const sequence *src = &state->seqs[event->srcs[i]];
        token_run *runs = src->n_runs && to ? malloc(src->n_runs * sizeof *runs) : NULL;
        if (!to || (src->n_runs && !runs)) {
            for (uint32_t j = 0; j < i; j++)
                free(to[j].runs);
            free(to);
            return kvb_why_set(-ENOMEM, why, why_bytes, "reorder: no memory");
        }
        to[i] = *src;
        to[i].runs = runs;
        to[i].room = src->n_runs;
        if (runs)
            memcpy(runs, src->runs, src->n_runs * sizeof *runs);
        tokens_hold(state, &to[i], true);
    }
    for (uint32_t i = 0; i < event->n; i++) {
        sequence *dst = &state->seqs[event->dsts[i]];
        tokens_hold(state, dst, false);
        state->alive -= dst->tokens > 0;
        sequence_name(state, event->srcs[i]);
        sequence_name(state, event->dsts[i]);
        free(dst->runs);
        *dst = to[i];
        rollback_note(state, dst);
    }
    for (uint32_t i = 0; i < event->n; i++)
        if (to[i].tokens)
            sequence_begin(state, event->dsts[i]);
    free(to);
    return 0;
}
