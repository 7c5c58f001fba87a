/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax weights of a block, in powers of two. The maximum is lazy: as long as no weight passes 2^8, nothing is
 * rescaled, and the weights wait for a predicted branch only, not for the block's maximum.
 */
#include "kernels/vector/vec.h"
#include "kernels/vector/vector.h"

#include <math.h>

#define GROUP     16u        /* n, the number of scores, is rounded up to a multiple of this */
#define MOST_OVER 8.0f       /* exponent that a weight may reach before max is raised */
#define INFINITE  0x7f800000 /* bits of infinity; those of a NaN are above, without its sign */

/* (e - 1) / (e + 1) with e = exp(2x). Near 0 the error is small against 1, not against x. */
VEC_INLINE vf vf_tanh(vf x)
{
    vf e = vf_exp2(vf_min(vf_set(126), x * vf_set(0x1.715476p+1f))); /* 2 log2(e) */
    return (e - vf_set(1)) / (e + vf_set(1));
}

/* Raises the maximum to `top`, the largest exponent of a block, rounded up. Returns the factor on earlier sums. */
static inline float state_raise(kvb_row_state *state, float top)
{
    float old = state->max, factor;
    state->max = ceilf(top);
    factor = old == -INFINITY ? 1 : exp2f(old - state->max); /* 1: they are 0, or NaN */
    state->sum *= (double)factor;
    return factor;
}

VEC_INLINE float groups_weigh(kvb_logits logits, bool capped, bool whole, uint32_t groups, float *scores,
                              uint64_t visible, kvb_row_state *state)
{
    const uint32_t vecs = groups * GROUP / VL, lanes = (1u << VL) - 1;
    const vf hidden = vf_set(-INFINITY), factor = vf_set(capped ? logits.softcap : logits.scale);
    vf seen[BLOCK / VL], top = hidden, total = vf_set(0); /* exponents */

#pragma GCC unroll 4
    for (uint32_t v = 0; v < vecs; v++) {
        vf s = vf_load(scores + v * VL);
        if (capped)
            s = vf_tanh(s * vf_set(logits.scale));
        seen[v] = s * factor;
        if (!whole)
            seen[v] = vf_select((uint32_t)(visible >> v * VL) & lanes, seen[v], hidden);
        top = vf_max(seen[v], top); /* in this order: a NaN in seen is ignored */
    }
    float earlier = vf_any_above(top, state->max + MOST_OVER) ? state_raise(state, vf_largest(top)) : 1;
    /* If max is still -infinity, all visible scores are -infinity or NaN: with any number for max, weights are 0 or
     * NaN. */
    vf minus_max = vf_set(state->max > -INFINITY ? -state->max : 0);
#pragma GCC unroll 4
    for (uint32_t v = 0; v < vecs; v++) {
        /* The product rounded, as max is made of it: of exponents above 2^24 one that is rounded and one that is not
         * are far apart. */
        vf weight = vf_exp2(seen[v] + minus_max);
        if (!whole)
            weight = vf_select((uint32_t)(visible >> v * VL) & lanes, weight, vf_set(0));
        vf_store(scores + v * VL, weight);
        total = total + weight;
    }
    state->sum += (double)vf_total(total);
    return earlier;
}

/* One row after the other, so that a CPU computes several at once: what one waits for, the next does not. */
VEC_INLINE void rows_weigh(kvb_logits logits, bool capped, bool whole, uint32_t groups, float *scores, uint64_t there,
                           uint32_t n_rows, const uint64_t *visible, kvb_row_state *const *state, float *earlier)
{
    for (uint32_t r = 0; r < n_rows; r++)
        earlier[r] = groups_weigh(logits, capped, whole, groups, scores + r * BLOCK, visible[r] & there, state[r]);
}

void KVB_ISA_NAME(kvb_weigh)(kvb_logits logits, float *scores, uint32_t n, uint32_t n_rows, const uint64_t *visible,
                             kvb_row_state *const *state, float *earlier)
{
    const uint64_t there = n < BLOCK ? (UINT64_C(1) << n) - 1 : UINT64_MAX;
    uint64_t all = n % GROUP ? 0 : there; /* cells that every row sees */
    for (uint32_t r = 0; r < n_rows; r++)
        all &= visible[r];
#define ROWS(CAPPED, WHOLE, N) rows_weigh(logits, CAPPED, WHOLE, N, scores, there, n_rows, visible, state, earlier)
#define GROUPS(N)                                                                                                      \
    case N:                                                                                                            \
        if (logits.softcap > 0)                                                                                        \
            ROWS(true, false, N);                                                                                      \
        else if (all == there)                                                                                         \
            ROWS(false, true, N);                                                                                      \
        else                                                                                                           \
            ROWS(false, false, N);                                                                                     \
        break;
    switch ((n + GROUP - 1) / GROUP) {
        GROUPS(1)
        GROUPS(2)
        GROUPS(3)
        GROUPS(4)
    }
#undef GROUPS
#undef ROWS
}

bool KVB_ISA_NAME(kvb_all_finite)(const float *sums, uint32_t dim)
{
    vi most = vi_set(0);
    for (uint32_t c = 0; c < dim; c += VL)
        most = vi_size_max(most, vf_load(sums + c));
    return vi_largest(most) < INFINITE;
}

void KVB_ISA_NAME(kvb_rescale)(float *to, const float *from, uint32_t dim, float factor)
{
    const vf by = vf_set(factor);
    uint32_t c = 0;
    for (; c + 4 * VL <= dim; c += 4 * VL)
        for (uint32_t i = 0; i < 4 * VL; i += VL)
            vf_store(to + c + i, vf_load(from + c + i) * by);
    for (; c < dim; c += VL)
        vf_store(to + c, vf_load(from + c) * by);
}
