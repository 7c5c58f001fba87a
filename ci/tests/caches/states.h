/* SPDX-License-Identifier: Apache-2.0 */
/* A scan for tests. A state is one number, computed from all tokens of its sequence. */
#ifndef KVB_TEST_STATES_H
#define KVB_TEST_STATES_H

#include "caches/cache.h"

/* A group that scans. A state with its convolution takes more than one cache line. */
#define STATES_GROUP(ELEM)                                                                                             \
    {                                                                                                                  \
        .kind = KVB_GROUP_SCAN, .scan = { KVB_SCAN_DELTA, 2, 1, 4, 16, 4, 24, true, ELEM, KVB_F32 }                    \
    }

static inline uint64_t state_next(uint64_t before, uint64_t ordinal, uint32_t layer)
{
    uint64_t z = (before ^ (ordinal + 1) * 0x9e3779b97f4a7c15u) + (layer + 1) * 0xd1342543de82ef95u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u; /* splitmix64 */
    return z ^ (z >> 31);
}

/* The number in every word of a slot; 0: words differ. */
static inline uint64_t slot_value(const kvb_scan_states *states, uint32_t slot)
{
    const uint64_t *words = (const uint64_t *)(const void *)((char *)states->base + slot * states->slot_bytes);
    for (size_t i = 1; i < states->slot_bytes / sizeof *words; i++)
        if (words[i] != words[0])
            return 0; /* no token leaves this number */
    return words[0];
}

static inline void slot_fill(const kvb_scan_states *states, uint32_t slot, uint64_t value)
{
    uint64_t *words = (uint64_t *)(void *)((char *)states->base + slot * states->slot_bytes);
    for (size_t i = 0; i < states->slot_bytes / sizeof *words; i++)
        words[i] = value;
}

/* Scans as a kernel does: out [n_tok], the state behind each token. False: the spec is impossible. */
static inline bool states_scan(const kvb_scan_spec *spec, uint32_t layer, const uint64_t *ordinals, uint64_t *out)
{
    for (uint32_t t = 0; t < spec->n_tok; t++) {
        const uint32_t from = spec->from[t] == KVB_SCAN_PREVIOUS && t && spec->to[t - 1] != KVB_SCAN_NONE
                                  ? spec->to[t - 1]
                                  : spec->from[t];
        if ((from == KVB_SCAN_PREVIOUS && !t) || (from < KVB_SCAN_ZERO && from >= spec->states.slots) ||
            (spec->to[t] != KVB_SCAN_NONE && spec->to[t] >= spec->states.slots))
            return false;
        const uint64_t before = from == KVB_SCAN_PREVIOUS ? out[t - 1]
                                : from == KVB_SCAN_ZERO   ? 0
                                                          : slot_value(&spec->states, from);
        if (from < KVB_SCAN_ZERO && spec->conv.base && slot_value(&spec->conv, from) != ~before)
            return false;
        out[t] = state_next(before, ordinals[t], layer);
        if (spec->to[t] == KVB_SCAN_NONE)
            continue;
        slot_fill(&spec->states, spec->to[t], out[t]);
        if (spec->conv.base)
            slot_fill(&spec->conv, spec->to[t], ~out[t]);
    }
    return true;
}

#endif
