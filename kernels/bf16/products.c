/* SPDX-License-Identifier: Apache-2.0 */
/* Query rows and weights as bf16, and what they come to with the tiles of a block. */
#include "kernels/bf16/tiles.h"

#if defined(__AVX512F__) && defined(__AVX512BF16__)
#include "kernels/bf16/rows.h"
#include "kernels/vector/dword_product.h"

#include <math.h>

#define LARGEST 0x1.fep127f /* that rounds to a finite bf16 */

/* Sixteen floats of q times factor, 0 where there is no channel; what is finite stays so when it is rounded. */
VEC_INLINE vf query_load(const float *q, uint32_t c, uint32_t dim, vf factor)
{
    if (c >= dim)
        return vf_set(0);
    vf x = vf_load(q + c) * factor;
    const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x), vf_set(INFINITY), _CMP_LT_OQ);
    return _mm512_mask_range_ps(x, finite, x, vf_set(LARGEST), 2); /* the lesser magnitude, x's sign */
}

void kvb_bf16_query(const kvb_format *k, uint32_t dim, const float *q, void *encoded)
{
    float *to = encoded, factor = 1;
    vf most = vf_set(0);
    int exponent;
    (void)k;

    for (uint32_t c = 0; c < dim; c += VL)
        most = vf_max(_mm512_abs_ps(vf_load(q + c)), most);
    const float largest = vf_largest(most);
    if (largest > 0 && largest < (float)BF16_LEAST_Q) {
        frexpf(largest, &exponent); /* largest = [0.5, 1) 2^exponent */
        factor = exp2f((float)(-39 - exponent));
    }
    *to = 1 / factor;
    for (uint32_t c = 0; c < tile_width(dim); c += 2 * VL)
        pairs_store((char *)encoded + 64 + 2 * c, query_load(q, c, dim, vf_set(factor)),
                    query_load(q, c + VL, dim, vf_set(factor)));
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

/* Of all BLOCK cells. */
VEC_INLINE void scores_panel(uint32_t rows, const int32_t *tile, uint32_t dim, const void *const *q, float *scores)
{
    const void *a[PRODUCT_ROWS];
    vi acc[PRODUCT_ROWS * PRODUCT_VECS];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        a[r] = (const char *)q[r] + 64;
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * PRODUCT_VECS; j++)
        acc[j] = vi_set(0);
    dword_product(pairs_dot, rows, PRODUCT_VECS, 1, dim / 2, a, tile, BLOCK, acc);
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * PRODUCT_VECS; j++) {
        const uint32_t r = j / PRODUCT_VECS;
        vf_store(scores + r * BLOCK + j % PRODUCT_VECS * VL, (vf)acc[j] * vf_set(*(const float *)q[r]));
    }
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

/* Channels c ..: vecs vectors of them. */
VEC_INLINE void channels_sum(uint32_t rows, uint32_t vecs, const int32_t *tile, uint32_t width, uint32_t depth,
                             const void *const *weights, uint32_t c, float *const *sums)
{
    vi acc[PRODUCT_ROWS * PRODUCT_VECS];
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++)
        acc[j] = (vi)vf_load(sums[j / vecs] + c + j % vecs * VL);
    dword_product(pairs_dot, rows, vecs, 1, depth, weights, tile + c, width, acc);
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++)
        vf_store(sums[j / vecs] + c + j % vecs * VL, (vf)acc[j]);
}

VEC_INLINE void sums_panel(uint32_t rows, const int32_t *tile, uint32_t dim, uint32_t n, const float *weights,
                           float *const *sums)
{
    _Alignas(64) uint16_t rounded[PRODUCT_ROWS][BLOCK];
    const uint32_t width = tile_width(dim), depth = (n + 1) / 2;
    const void *a[PRODUCT_ROWS];
    uint32_t c = 0;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++) {
        const float *p = weights + r * BLOCK;
        a[r] = rounded[r];
        pairs_store(rounded[r], vf_load(p), vf_load(p + VL));
        pairs_store(rounded[r] + 2 * VL, vf_load(p + 2 * VL), vf_load(p + 3 * VL));
    }
    for (; c + PRODUCT_VECS * VL <= dim; c += PRODUCT_VECS * VL)
        channels_sum(rows, PRODUCT_VECS, tile, width, depth, a, c, sums);
    for (; c < dim; c += VL)
        channels_sum(rows, 1, tile, width, depth, a, c, sums);
}

/* ---- any number of rows ------------------------------------------------------------------------------------------ */

#define PANEL(ROWS)                                                                                                    \
    static __attribute__((noinline)) void scores_##ROWS(const int32_t *tile, uint32_t dim, const void *const *q,       \
                                                        float *scores)                                                 \
    {                                                                                                                  \
        scores_panel(ROWS, tile, dim, q, scores);                                                                      \
    }                                                                                                                  \
    static __attribute__((noinline)) void sums_##ROWS(const int32_t *tile, uint32_t dim, uint32_t n,                   \
                                                      const float *weights, float *const *sums)                        \
    {                                                                                                                  \
        sums_panel(ROWS, tile, dim, n, weights, sums);                                                                 \
    }
PANEL(1)
PANEL(2)
PANEL(3)
PANEL(4)
PANEL(5)
PANEL(6)

static const struct panel {
    __typeof__(scores_1) *scores;
    __typeof__(sums_1) *sums;
} panels[PRODUCT_ROWS] = {{scores_1, sums_1}, {scores_2, sums_2}, {scores_3, sums_3},
                          {scores_4, sums_4}, {scores_5, sums_5}, {scores_6, sums_6}};

void kvb_bf16_scores(const kvb_view *k, uint32_t h, const uint32_t *cells, uint32_t n, const void *const *queries,
                     uint32_t n_rows, float *scores, kvb_ask *ask, void *scratch)
{
    kvb_bf16_keys(k, h, cells, n, ask, scratch);
    for (uint32_t r = 0, take; r < n_rows; r += take) {
        take = product_panel_rows(n_rows - r);
        panels[take - 1].scores(scratch, k->dim, queries + r, scores + (size_t)r * BLOCK);
        kvb_ask_step(ask);
    }
    kvb_ask_until(ask, 2, 2);
}

void kvb_bf16_sums(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                   uint32_t n_rows, float *const *sums, kvb_ask *ask, void *scratch)
{
    kvb_bf16_values(v, h, cells, n, ask, scratch);
    for (uint32_t r = 0, take; r < n_rows; r += take) {
        take = product_panel_rows(n_rows - r);
        panels[take - 1].sums(scratch, v->dim, n, weights + (size_t)r * BLOCK, sums + r);
        kvb_ask_step(ask);
    }
    kvb_ask_until(ask, 2, 2);
}

const kvb_block_products kvb_bf16_avx512bf16 = {kvb_bf16_query, kvb_bf16_scores, kvb_bf16_sums};
#endif
