/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/live/play.h"

/* The sequences of the event's tokens from token `from` on. A cache of one sequence takes NULL. */
static const uint32_t *seqs_of(const kvb_cache *cache, const kvb_event *event, uint32_t from)
{
    return kvb_cache_type_of(cache)->flags & KVB_CACHE_SEQ ? event->seq + from : NULL;
}

bool kvb_play_admits(const kvb_cache *cache, const kvb_event *event, uint32_t from, uint32_t n)
{
    return event->parents ? kvb_cache_can_propose(cache, seqs_of(cache, event, from), n)
                          : kvb_cache_can_extend(cache, seqs_of(cache, event, from), n);
}

int kvb_play_plan(kvb_cache *cache, const kvb_event *event, uint32_t from, uint32_t n, bool known)
{
    const uint32_t *seqs = seqs_of(cache, event, from);
    return event->parents ? kvb_cache_propose(cache, seqs, event->parents, n)
                          : kvb_cache_begin_step_tokens(cache, seqs, event->tok && known ? event->tok + from : NULL, n);
}

int kvb_play_tokens(kvb_cache *cache, uint32_t seq, const int32_t *tokens, uint32_t n)
{
    static const float zeros[KVB_PLAY_STEP * 16];
    static uint32_t seqs[KVB_PLAY_STEP], positions[KVB_PLAY_STEP];
    int error = 0;
    for (uint32_t from = 0, some; from < n && !error; from += some) {
        kvb_attend_spec spec;
        some = n - from < KVB_PLAY_STEP ? n - from : KVB_PLAY_STEP;
        for (uint32_t i = 0; i < some; i++) {
            seqs[i] = seq;
            positions[i] = kvb_cache_length(cache, seq) + i;
        }
        error = kvb_cache_begin_step_tokens(cache, seqs, tokens ? tokens + from : NULL, some);
        if (!error)
            error = kvb_cache_update_and_fetch(cache, 0, positions, zeros, zeros, some, &spec);
    }
    return error;
}

int kvb_play_control(kvb_cache *c, const kvb_event *event, kvb_event_kind kind, kvb_slot_files *slots)
{
    switch (kind) {
    case KVB_EVENT_SAVE:
        return kvb_cache_save(c, event->src, kvb_slot_files_path(slots, event->slot));
    case KVB_EVENT_LOAD:
        return kvb_cache_load(c, event->src, kvb_slot_files_path(slots, event->slot));
    case KVB_EVENT_COMMIT:
        return kvb_cache_commit(c, event->src, event->accepted, event->n);
    case KVB_EVENT_SEQ_CP:
        return kvb_cache_seq_cp(c, event->src, event->dst, event->p0, event->p1);
    case KVB_EVENT_SEQ_RM:
        return kvb_cache_seq_rm(c, event->src, event->p0, event->p1);
    case KVB_EVENT_SEQ_KEEP:
        return kvb_cache_seq_keep(c, event->src);
    case KVB_EVENT_REWIND:
        return kvb_cache_rewind(c, event->len);
    case KVB_EVENT_REORDER:
        return kvb_cache_seq_reorder(c, event->dsts, event->srcs, event->n);
    case KVB_EVENT_DEFRAG:
        return kvb_cache_defrag(c);
    case KVB_EVENT_SEQ_DIV:
        return kvb_cache_seq_div(c, event->src, event->p0, event->p1, event->divisor);
    case KVB_EVENT_SEQ_ADD:
        return kvb_cache_seq_add(c, event->src, event->p0, event->p1, event->delta);
    default:
        return kvb_cache_clear(c);
    }
}
