/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of steps, and who shares a trunk. */
#include "harness/replay/step_kind.h"

#include <string.h>

static uint64_t bit(uint32_t seq)
{
    return (uint64_t)1 << seq;
}

static void leave(kvb_kinship *k, uint64_t gone)
{
    for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s++)
        k->kin[s] = gone & bit(s) ? 0 : k->kin[s] & ~gone;
}

void kvb_kinship_apply(kvb_kinship *k, const kvb_event *event)
{
    if (event->kind == KVB_EVENT_SEQ_CP) {
        uint64_t family = k->kin[event->src] | bit(event->src) | bit(event->dst);
        for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s++)
            if (family & bit(s))
                k->kin[s] = family & ~bit(s);
    }
    if (event->kind == KVB_EVENT_SEQ_RM && event->p0 == 0 && event->p1 == KVB_TRACE_POS_END)
        leave(k, bit(event->src));
    if (event->kind == KVB_EVENT_SEQ_KEEP || event->kind == KVB_EVENT_CLEAR)
        memset(k, 0, sizeof *k);
}

kvb_step_kind kvb_step_kind_of(const kvb_kinship *k, const kvb_event *event)
{
    static const kvb_step_kind kinds[KVB_EVENT_KINDS] = {
        [KVB_EVENT_STEP] = KVB_KIND_DECODE,    [KVB_EVENT_PREFILL] = KVB_KIND_PREFILL,
        [KVB_EVENT_FILL] = KVB_KIND_FILL,      [KVB_EVENT_PROPOSE] = KVB_KIND_VERIFY,
        [KVB_EVENT_COMMIT] = KVB_KIND_CONTROL, [KVB_EVENT_SEQ_CP] = KVB_KIND_CONTROL,
        [KVB_EVENT_SEQ_RM] = KVB_KIND_CONTROL, [KVB_EVENT_SEQ_KEEP] = KVB_KIND_CONTROL,
        [KVB_EVENT_REWIND] = KVB_KIND_CONTROL, [KVB_EVENT_CLEAR] = KVB_KIND_CONTROL,
    };
    uint64_t met = 0, kin = 0;
    if (event->kind != KVB_EVENT_STEP)
        return kinds[event->kind];
    for (uint32_t i = 0; i < event->n; i++) {
        if (met & bit(event->seq[i]))
            return KVB_KIND_PREFILL; /* more than one token of a sequence */
        met |= bit(event->seq[i]);
        kin |= k->kin[event->seq[i]];
    }
    return kin & met ? KVB_KIND_FORK : KVB_KIND_DECODE;
}
