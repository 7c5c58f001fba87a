/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax weights of a block, in powers of two. The maximum is lazy: while a block's scores stay below 2^8 times what
 * weighs 1, nothing is rescaled, and the weights do not wait for the block's maximum but for a guessed branch.
 */
#include <math.h>

#include "kernels/vector/exp2.h"
#include "kernels/vector/micro.h"

#define GROUP     16u  /* scores: the unit that n is rounded up to */
#define MOST_OVER 8.0f /* exponent that a weight may reach before max is raised */

/* Returns what earlier sums are multiplied by when `top`, the largest exponent of a block, becomes the maximum. */
static inline float state_raise(kvb_row_state *state, float top)
{
    float old = state->max, factor;
    state->max = ceilf(top);
    factor = exp2f(old - state->max);
    state->sum *= (double)factor;
    return factor;
}

VEC_INLINE float groups_weigh(kvb_logits logits, bool capped, bool whole, uint32_t groups, float *scores,
                              uint64_t visible, kvb_row_state *state)
{
    const uint32_t vecs = groups * GROUP / VL, lanes = (1u << VL) - 1;
    const vf hidden = vf_set(-INFINITY), factor = vf_set(capped ? logits.softcap : logits.scale);
    vf s[BLOCK / VL], top = hidden, total = vf_set(0);

#pragma GCC unroll 4
    for (uint32_t v = 0; v < vecs; v++) {
        s[v] = vf_load(scores + v * VL);
        if (capped)
            s[v] = vf_tanh(s[v] * vf_set(logits.scale));
        vf seen = s[v] * factor;
        if (!whole)
            seen = vf_select((uint32_t)(visible >> v * VL) & lanes, seen, hidden);
        top = vf_max(seen, top); /* in this order, NaN is passed over */
    }
    float earlier = vf_any_above(top, state->max + MOST_OVER) ? state_raise(state, vf_largest(top)) : 1;
    /* Still -infinity when all that is visible is that or NaN: any number in its place makes them 0 and NaN. */
    vf minus_max = vf_set(state->max > -INFINITY ? -state->max : 0);
#pragma GCC unroll 4
    for (uint32_t v = 0; v < vecs; v++) {
        vf weight = vf_exp2(vf_fma(s[v], factor, minus_max));
        if (!whole)
            weight = vf_select((uint32_t)(visible >> v * VL) & lanes, weight, vf_set(0));
        vf_store(scores + v * VL, weight);
        total = total + weight;
    }
    state->sum += (double)vf_total(total);
    return earlier;
}

float KVB_ISA_NAME(kvb_weigh)(kvb_logits logits, float *scores, uint32_t n, uint64_t visible, kvb_row_state *state)
{
    const uint64_t there = n < BLOCK ? (UINT64_C(1) << n) - 1 : UINT64_MAX;
    bool whole = n % GROUP == 0 && (visible & there) == there;
    visible &= there;
#define GROUPS(N)                                                                                                      \
    case N:                                                                                                            \
        return logits.softcap > 0 ? groups_weigh(logits, true, false, N, scores, visible, state)                       \
               : whole            ? groups_weigh(logits, false, true, N, scores, visible, state)                       \
                                  : groups_weigh(logits, false, false, N, scores, visible, state);
    switch ((n + GROUP - 1) / GROUP) {
        GROUPS(1)
        GROUPS(2)
        GROUPS(3)
        GROUPS(4)
    }
#undef GROUPS
    return 1;
}

void KVB_ISA_NAME(kvb_rescale)(float *sums, uint32_t dim, float factor)
{
    for (uint32_t c = 0; c < dim; c += VL)
        vf_store(sums + c, vf_load(sums + c) * vf_set(factor));
}
