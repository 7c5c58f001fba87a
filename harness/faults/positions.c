/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of an engine that counts positions itself: it counts fed tokens and misses other changes of a sequence. */
#include "harness/faults/fault.h"

#include <string.h>

/* The engine's account of a sequence. next: the true length if only fed tokens change it. */
static struct account {
    size_t event;
    uint32_t said, next;
} accounts[KVB_TRACE_MAX_SEQS];

/* Does the event, if of these kinds, change the sequence other than by fed tokens? */
static bool changes(const kvb_event *e, uint32_t seq, uint32_t kinds)
{
    const uint32_t to = e->kind == KVB_EVENT_SEQ_CP ? e->dst : e->kind == KVB_EVENT_REWIND ? 0 : e->src;
    if (!(kinds >> e->kind & 1))
        return false;
    return e->kind == KVB_EVENT_PREFILL ? e->reuse && e->seq[0] == seq : to == seq || to == KVB_TRACE_ALL;
}

/* Misses the events of kvb_fault_here.by, a set of kinds. */
static uint32_t deaf(const kvb_trace *trace, size_t event, uint32_t seq, uint32_t length)
{
    struct account *a = &accounts[seq];
    const kvb_event *now = &trace->events[event];
    bool missed = false;
    if (event <= a->event) /* the next pass */
        *a = (struct account){.said = 0};
    for (size_t i = a->event; i <= event; i++)
        missed = missed || changes(&trace->events[i], seq, (uint32_t)kvb_fault_here.by);
    const uint32_t said = a->said + (length == a->next || missed ? 0 : length - a->next);
    *a = (struct account){.event = event, .said = said, .next = length};
    for (uint32_t i = 0; i < now->n && !now->parents; i++)
        if (now->seq[i] == seq) {
            a->said++;
            a->next++;
        }
    return said;
}

/* Misses the tokens of a prompt that the cache found. */
static uint32_t deaf_to_found(const kvb_trace *trace, size_t event, uint32_t seq, uint32_t length)
{
    static uint32_t found[KVB_TRACE_MAX_SEQS];
    const kvb_event *e = &trace->events[event];
    if (e->reuse)
        found[seq] = length;
    else if (length == 0)
        found[seq] = 0;
    return length - found[seq];
}

/* Decoded tokens are one position behind. */
KVB_HOOK_OF(uint32_t, lag, (const kvb_trace *trace, size_t event, uint32_t seq, uint32_t length),
            length - (length && trace->events[event].n == 1))

/* Decoded rows are not turned at all. */
KVB_HOOK_OF(uint32_t, none, (const kvb_trace *trace, size_t event, uint32_t seq, uint32_t length),
            trace->events[event].n == 1 ? 0 : length)

/* All positions are off by the same distance; relative positions are right. */
KVB_HOOK_OF(uint32_t, ahead, (const kvb_trace *trace, size_t event, uint32_t seq, uint32_t length),
            length + (uint32_t)kvb_fault_here.by)

/* Tokens of a padded batch are counted from its left edge, decoded tokens without the padding. The padding is a sequence
 * with a higher number. */
static uint32_t with_padding(const kvb_trace *trace, size_t event, uint32_t seq, uint32_t length)
{
    const kvb_event *e = &trace->events[event];
    uint32_t first = 0, n = 0;
    while (e->seq[first] != seq)
        first++;
    while (n < first && e->seq[first - 1 - n] > seq)
        n++;
    return length + n;
}

#define KIND(kind) (1u << KVB_EVENT_##kind)

const kvb_fault kvb_position_faults[] = {
    {"position-misses-fork", "positions of a copy begin at 0", KVB_CHECK_BOUND,
     "agent-fork seq f32 flash before-rope, engine-calls paged q8_0 flash before-rope", .by = KIND(SEQ_CP),
     .length = deaf},
    {"position-misses-load", "positions of what was loaded begin at 0", KVB_CHECK_BOUND,
     "save-restore seq f32 flash before-rope, save-restore-8x128 paged q4_0 flash before-rope", .by = KIND(LOAD),
     .length = deaf},
    {"position-misses-rollback", "positions go on from where they were before a rollback", KVB_CHECK_BOUND,
     "evict-rollback seq f32 flash before-rope, engine-calls seq f16 reference before-rope",
     .by = KIND(SEQ_RM) | KIND(REWIND), .length = deaf},
    {"position-misses-commit", "accepted drafts are not counted", KVB_CHECK_BOUND,
     "eagle-tree tree f32 flash before-rope", .by = KIND(COMMIT), .length = deaf},
    {"position-misses-shift", "positions go on from where they were before a shift", KVB_CHECK_BOUND,
     "context-shift seq f32 flash before-rope, self-extend seq f32 reference before-rope",
     .by = KIND(SEQ_ADD) | KIND(SEQ_DIV), .length = deaf},
    {"position-misses-prefix", "positions of a prompt begin at 0 behind a beginning that was found", KVB_CHECK_BOUND,
     "prefix-reuse paged-prefix f32 flash before-rope", .length = deaf_to_found},
    {"position-counts-padding", "positions of a padded prompt count the padding, those of decoded tokens do not",
     KVB_CHECK_BOUND, "padded-batch seq f32 flash, padded-batch paged q8_0 flash", .length = with_padding},
    {"position-lags", "decoded tokens are one position behind", KVB_CHECK_BOUND,
     "plain-decode contiguous f32 flash before-rope", .length = lag},
    {"position-none", "decoded tokens are not turned", KVB_CHECK_BOUND,
     "plain-decode contiguous f32 flash before-rope, batched-multi-seq-2x128 seq q8_0 flash before-rope",
     .length = none},
    {"position-ahead", "all positions of a sequence are off by as much", KVB_CHECK_PROTOCOL,
     "plain-decode contiguous f32 flash before-rope, agent-fork paged f32 reference before-rope", .by = 3,
     .length = ahead},
    {.name = NULL},
};
