/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax weights of a block, in powers of two. The maximum is lazy: as long as no weight passes 2^8, nothing is
 * rescaled, and the weights wait for a predicted branch only, not for the block's maximum.
 */
#include "kernels/vector/vec.h"
#include "kernels/vector/vector.h"

#include <math.h>

#define GROUP     16u /* n, the number of scores, is rounded up to a multiple of this */
#define AT_ONCE   8u  /* vectors of several rows that are computed side by side: more wait in memory */
#define MOST_ROWS 4u  /* most rows that are computed side by side */
#define CAP_VECS  4u
#define INFINITE  0x7f800000 /* bits of infinity; those of a NaN are above, without its sign */

/* (e - 1) / (e + 1) with e = exp(2x). Near 0 the error is small against 1, not against x. */
VEC_INLINE vf vf_tanh(vf x)
{
    vf e = vf_exp2(vf_min(vf_set(126), x * vf_set(0x1.715476p+1f))); /* 2 log2(e) */
    return (e - vf_set(1)) / (e + vf_set(1));
}

/*
 * tanh(x) where x2, x^2, is at most TANH_NEAR, without a division or a power: x times the polynomial in x^2, of constant
 * term 1, with the least absolute error up to 1.44 (Remez exchange: 2^-25.2; 2^-24.6 with these coefficients).
 */
#define TANH_NEAR 0x1.7p0f
#define TANH_FAR  0x1.700002p0f /* the next float */
VEC_INLINE vf vf_tanh_near(vf x, vf x2)
{
    vf p = vf_set(-0x1.a285fp-13f);
    p = vf_fma(p, x2, vf_set(0x1.b55632p-10f));
    p = vf_fma(p, x2, vf_set(-0x1.c705p-8f));
    p = vf_fma(p, x2, vf_set(0x1.52f5e2p-6f));
    p = vf_fma(p, x2, vf_set(-0x1.b6ae1ep-5f));
    p = vf_fma(p, x2, vf_set(0x1.10e9a6p-3f));
    p = vf_fma(p, x2, vf_set(-0x1.555406p-2f));
    p = vf_fma(p, x2, vf_set(1));
    return x * p;
}

/* A few scores become tanh(scale s). Only a score's own size decides which formula it takes: its neighbours depend on
 * the number of threads. */
VEC_INLINE void few_cap(uint32_t vecs, vf scale, float *scores)
{
    vf x2[CAP_VECS], near[CAP_VECS], most = vf_set(0);
#pragma GCC unroll 4
    for (uint32_t v = 0; v < vecs; v++) {
        vf x = vf_load(scores + v * VL) * scale;
        x2[v] = x * x;
        near[v] = vf_tanh_near(x, x2[v]);
        most = vf_max(x2[v], most); /* in this order: a NaN in x2 is ignored, and stays one either way */
    }
    if (vf_any_above(most, TANH_NEAR)) {
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++) {
            vf far = vf_tanh(vf_load(scores + v * VL) * scale);
            near[v] = vf_drop_below(near[v], vf_set(0) - x2[v], -TANH_NEAR) + vf_drop_below(far, x2[v], TANH_FAR);
        }
    }
#pragma GCC unroll 4
    for (uint32_t v = 0; v < vecs; v++)
        vf_store(scores + v * VL, near[v]);
}

/* Logits seldom come near the cap, so that few vectors have one far from 0. */
void KVB_ISA_NAME(kvb_cap)(float scale, float *scores, uint32_t n, uint32_t n_rows)
{
    const vf by = vf_set(scale);
    for (uint32_t r = 0; r < n_rows; r++, scores += BLOCK)
        if (n > BLOCK - GROUP)
            for (uint32_t i = 0; i < BLOCK; i += CAP_VECS * VL)
                few_cap(CAP_VECS, by, scores + i);
        else
            for (uint32_t i = 0; i < n; i += VL)
                few_cap(1, by, scores + i);
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

/* A few rows, so that a CPU computes several at once: what one waits for, the next does not. */
VEC_INLINE void few_weigh(uint32_t rows, vf factor, bool whole, uint32_t vecs, float *scores, uint64_t there,
                          const uint64_t *visible, kvb_row_state *const *state, float *earlier)
{
    const uint32_t lanes = (1u << VL) - 1;
    vf seen[MOST_ROWS * BLOCK / VL], minus_max[MOST_ROWS]; /* exponents */

#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
        vf top = vf_set(-INFINITY), *s = seen + r * vecs;
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++) {
            s[v] = vf_load(scores + r * BLOCK + v * VL) * factor;
            if (!whole)
                s[v] = vf_select((uint32_t)((visible[r] & there) >> v * VL) & lanes, s[v], vf_set(-INFINITY));
            top = vf_max(s[v], top); /* in this order: a NaN in s is ignored */
        }
        earlier[r] = vf_any_above(top, state[r]->max + MOST_OVER) ? state_raise(state[r], vf_largest(top)) : 1;
        /* If max is still -infinity, all visible scores are -infinity or NaN: with any number for max, weights are 0 or
         * NaN. */
        minus_max[r] = vf_set(state[r]->max > -INFINITY ? -state[r]->max : 0);
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
        vf total = vf_set(0);
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++) {
            /* No fused multiply-add: max comes from rounded products. Above 2^24 a rounded and an exact exponent are
             * far apart. */
            vf weight = vf_exp2(seen[r * vecs + v] + minus_max[r]);
            if (!whole)
                weight = vf_select((uint32_t)((visible[r] & there) >> v * VL) & lanes, weight, vf_set(0));
            vf_store(scores + r * BLOCK + v * VL, weight);
            total = total + weight;
        }
        state[r]->sum += (double)vf_total(total);
    }
}

/* Where every cell is seen, several rows at once; what is left over one by one. */
VEC_INLINE void rows_weigh(float factor, bool whole, uint32_t groups, float *scores, uint64_t there, uint32_t n_rows,
                           const uint64_t *visible, kvb_row_state *const *state, float *earlier)
{
    const uint32_t vecs = groups * GROUP / VL, fit = whole ? AT_ONCE / vecs : 1;
    const uint32_t rows = fit < 1 ? 1 : fit < MOST_ROWS ? fit : MOST_ROWS;
    const bool last_whole = whole && groups == BLOCK / GROUP; /* elsewhere a mask costs less than more code */
    const vf by = vf_set(factor);
    uint32_t r = 0;
    for (; r + rows <= n_rows; r += rows)
        few_weigh(rows, by, whole, vecs, scores + r * BLOCK, there, visible + r, state + r, earlier + r);
    for (; rows > 1 && r < n_rows; r++)
        few_weigh(1, by, last_whole, vecs, scores + r * BLOCK, there, visible + r, state + r, earlier + r);
}

void KVB_ISA_NAME(kvb_weigh)(kvb_logits logits, float *scores, uint32_t n, uint32_t n_rows, const uint64_t *visible,
                             kvb_row_state *const *state, float *earlier)
{
    const uint64_t there = n < BLOCK ? (UINT64_C(1) << n) - 1 : UINT64_MAX;
    uint64_t all = n % GROUP ? 0 : there; /* cells that every row sees */
    for (uint32_t r = 0; r < n_rows; r++)
        all &= visible[r];
    float factor = logits.scale;
    if (logits.softcap > 0) {
        KVB_ISA_NAME(kvb_cap)(logits.scale, scores, n, n_rows);
        factor = logits.softcap;
    }
#define ROWS(WHOLE, N) rows_weigh(factor, WHOLE, N, scores, there, n_rows, visible, state, earlier)
#define GROUPS(N)                                                                                                      \
    case N:                                                                                                            \
        if (all == there)                                                                                              \
            ROWS(true, N);                                                                                             \
        else                                                                                                           \
            ROWS(false, N);                                                                                            \
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
