/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of steps, and who shares a trunk. */
#include "harness/replay/step_kind.h"

#include <string.h>

static void join(kvb_kinship *k, uint32_t seq, uint16_t family)
{
    k->members[k->family[seq]]--; /* of family 0, who have none, the number is never asked */
    k->members[family]++;
    k->family[seq] = family;
}

/* A sequence that has no kin gets a family of its own. */
static uint16_t family_of(kvb_kinship *k, uint32_t seq)
{
    uint16_t family = k->family[seq] ? k->family[seq] : 1;
    while (!k->family[seq] && k->members[family])
        family++;
    join(k, seq, family);
    return family;
}

/* Destinations are of the families that their sources were of. A source that has no kin begins a family, so that what
 * several destinations got of it is known to be shared. */
static void reorder(kvb_kinship *k, const kvb_event *event)
{
    uint16_t family[KVB_TRACE_MAX_SEQS];
    for (uint32_t i = 0; i < event->n; i++)
        family[i] = family_of(k, event->srcs[i]);
    for (uint32_t i = 0; i < event->n; i++)
        join(k, event->dsts[i], family[i]);
}

void kvb_kinship_apply(kvb_kinship *k, const kvb_event *event)
{
    if (event->kind == KVB_EVENT_SEQ_CP && event->n) {
        join(k, event->dst, family_of(k, event->src));
    }
    if (event->kind == KVB_EVENT_REORDER)
        reorder(k, event);
    if (event->kind == KVB_EVENT_SEQ_RM && event->p0 == 0 && event->p1 == KVB_TRACE_POS_END)
        join(k, event->src, 0);
    const bool all = event->src == KVB_TRACE_ALL;
    if (event->kind == KVB_EVENT_SEQ_KEEP || event->kind == KVB_EVENT_CLEAR || (event->kind == KVB_EVENT_LOAD && all))
        memset(k, 0, sizeof *k);
    if (event->kind == KVB_EVENT_SAVE && !all)
        k->saved[event->slot] = k->family[event->src];
    if (event->kind == KVB_EVENT_LOAD && !all)
        join(k, event->src, k->members[k->saved[event->slot]] ? k->saved[event->slot] : 0);
}

/* Puts i in the set; was it there? */
static bool put(uint64_t *set, uint32_t i)
{
    uint64_t bit = (uint64_t)1 << i % 64;
    bool was = set[i / 64] & bit;
    set[i / 64] |= bit;
    return was;
}

kvb_step_kind kvb_step_kind_of(const kvb_kinship *k, const kvb_event *event)
{
    static const kvb_step_kind kinds[KVB_EVENT_KINDS] = {
        [KVB_EVENT_STEP] = KVB_KIND_DECODE,     [KVB_EVENT_PREFILL] = KVB_KIND_PREFILL,
        [KVB_EVENT_FILL] = KVB_KIND_FILL,       [KVB_EVENT_PROPOSE] = KVB_KIND_VERIFY,
        [KVB_EVENT_COMMIT] = KVB_KIND_CONTROL,  [KVB_EVENT_SEQ_CP] = KVB_KIND_CONTROL,
        [KVB_EVENT_SEQ_RM] = KVB_KIND_CONTROL,  [KVB_EVENT_SEQ_KEEP] = KVB_KIND_CONTROL,
        [KVB_EVENT_REWIND] = KVB_KIND_CONTROL,  [KVB_EVENT_CLEAR] = KVB_KIND_CONTROL,
        [KVB_EVENT_REORDER] = KVB_KIND_CONTROL, [KVB_EVENT_SEQ_ADD] = KVB_KIND_CONTROL,
        [KVB_EVENT_SEQ_DIV] = KVB_KIND_CONTROL, [KVB_EVENT_DEFRAG] = KVB_KIND_CONTROL,
        [KVB_EVENT_SAVE] = KVB_KIND_CONTROL,    [KVB_EVENT_LOAD] = KVB_KIND_CONTROL,
        [KVB_EVENT_REFUSED] = KVB_KIND_CONTROL,
    };
    uint64_t met[KVB_TRACE_MAX_SEQS / 64] = {0}, families[KVB_TRACE_MAX_SEQS / 64 + 1] = {0};
    bool fork = false;
    if (event->kind != KVB_EVENT_STEP)
        return kinds[event->kind];
    for (uint32_t i = 0; i < event->n; i++) {
        uint16_t family = k->family[event->seq[i]];
        if (put(met, event->seq[i]))
            return KVB_KIND_PREFILL; /* more than one token of a sequence */
        fork = (family && put(families, family)) || fork;
    }
    return fork ? KVB_KIND_FORK : KVB_KIND_DECODE;
}
