/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The naive model of recurrent states: how many of its last tokens each sequence has the states of, and what a token's
 * state is: a number made of all tokens of its sequence up to it. And a scan that makes such numbers, in the slots that
 * a cache names.
 */
#ifndef KVB_TEST_NAIVE_STATES_H
#define KVB_TEST_NAIVE_STATES_H

#include "naive_tokens.h"

/* A group that scans, whose states with those of its convolution are more than a line. */
#define NAIVE_SCAN(ELEM)                                                                                               \
    {                                                                                                                  \
        .kind = KVB_GROUP_SCAN, .scan = { KVB_SCAN_DELTA, 2, 1, 4, 16, 4, 24, true, ELEM, KVB_F32 }                    \
    }

static inline bool naive_scans(const naive *m, uint32_t g)
{
    return kvb_group_scans(&m->model->groups[g]);
}

/* States of a sequence at most: a cache that forgets makes all of them anew. */
static inline uint32_t naive_depth(const naive *m)
{
    return !kvb_model_scans(m->model) || m->type->flags & KVB_CACHE_FORGETS ? NAIVE_LEN : m->state_depth + 1;
}

/* The sequence has n more tokens, whose states are kept as far as may be. */
static inline void naive_states_add(const naive *m, struct naive_seq *s, uint32_t n)
{
    const uint32_t most = naive_depth(m), all = s->states + n;
    s->states = all < most ? all : most;
}

/* Slots in use: those of shared tokens once, and of pending nodes. */
static inline uint32_t naive_states_live(const naive *m)
{
    static uint64_t counted[NAIVE_ROWS], round;
    uint32_t n = m->n_nodes;
    round++;
    for (uint32_t s = 0; s < m->n_ids; s++)
        for (uint32_t i = 0; i < m->seqs[s].n && i < m->seqs[s].states; i++) {
            const uint64_t row = m->seqs[s].token[m->seqs[s].n - 1 - i].row;
            n += counted[row] != round;
            counted[row] = round;
        }
    return n;
}

/* n of src's tokens at p0 .. p1-1 are copied to dst. Are there states for it? *after: that dst has then. */
static inline int naive_states_cp(const naive *m, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1, uint32_t n,
                                  uint32_t *after)
{
    const struct naive_seq *s = &m->seqs[src], *d = &m->seqs[dst];
    uint32_t below = 0, behind = 0;
    *after = 0;
    if (!n || !kvb_model_scans(m->model))
        return 0;
    for (uint32_t i = 0; i < s->n; i++) {
        below += s->token[i].pos < p0;
        behind += s->token[i].pos >= p1;
    }
    bool begins = below == d->n;
    for (uint32_t i = 0; i < d->n && begins; i++)
        begins = d->token[i].row == s->token[i].row && d->token[i].pos == s->token[i].pos;
    if (!begins || s->states <= behind)
        return -ENOTSUP;
    struct naive_seq to = {.states = s->states - behind};
    if (to.states >= n) {
        to.states = d->n ? d->states : 0;
        naive_states_add(m, &to, n);
    }
    *after = to.states;
    /* where dst was empty it has as many as src had of them */
    if (!d->n && s->states - behind < *after)
        *after = s->states - behind;
    return 0;
}

/* A sequence of n tokens lets go of those at p0 .. p1-1, which leave `left`. */
static inline int naive_states_cut(const naive *m, struct naive_seq *s, uint32_t p1, uint32_t left)
{
    const uint32_t gone = s->n - left;
    if (!kvb_model_scans(m->model) || !gone)
        return 0;
    if (left && (s->token[s->n - 1].pos >= p1 || s->states <= gone))
        return -ENOTSUP;
    s->states = left ? s->states - gone : 0;
    return 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static inline uint64_t state_next(uint64_t before, uint64_t ordinal, uint32_t layer)
{
    uint64_t z = (before ^ (ordinal + 1) * 0x9e3779b97f4a7c15u) + (layer + 1) * 0xd1342543de82ef95u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u; /* splitmix64 */
    return z ^ (z >> 31);
}

/* The state behind a token that a sequence holds. */
static inline uint64_t naive_state(const naive *m, uint32_t s, uint32_t i, uint32_t layer)
{
    uint64_t state = 0;
    for (uint32_t j = 0; j <= i; j++)
        state = state_next(state, m->seqs[s].token[j].ordinal, layer);
    return state;
}

/* Every word of a slot. */
static inline uint64_t slot_value(const kvb_scan_states *states, uint32_t slot)
{
    const uint64_t *words = (const uint64_t *)(const void *)((char *)states->base + slot * states->slot_bytes);
    for (size_t i = 1; i < states->slot_bytes / sizeof *words; i++)
        if (words[i] != words[0])
            return 0; /* which no token leaves */
    return words[0];
}

static inline void slot_fill(const kvb_scan_states *states, uint32_t slot, uint64_t value)
{
    uint64_t *words = (uint64_t *)(void *)((char *)states->base + slot * states->slot_bytes);
    for (size_t i = 0; i < states->slot_bytes / sizeof *words; i++)
        words[i] = value;
}

/* What a kernel does: false where it is told what cannot be. out [n_tok] */
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
