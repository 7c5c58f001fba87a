/* SPDX-License-Identifier: Apache-2.0 */
/* Any number of query rows by products of pairs of bf16. A block is packed into a tile; each dword has two bf16 of one
 * sum. */
#include "kernels/vector/bf16_pack.h"

#ifdef BF16_HERE

/* ---- query rows -------------------------------------------------------------------------------------------------- */

#define LARGEST 0x1.fep127f /* the largest bf16 */

/* VL floats of q times factor, 0 past dim. Finite ones are kept within LARGEST, so that rounding leaves them finite. */
VEC_INLINE vf query_load(const float *q, uint32_t c, uint32_t dim, vf factor)
{
    return c < dim ? query_within(vf_load(q + c) * factor, LARGEST) : vf_set(0);
}

static void bf16_query(const kvb_format *k, uint32_t dim, const float *q, void *encoded)
{
    float *to = encoded, factor = 1, largest;
    vi most = vi_set(0);
    int exponent;
    (void)k;

    for (uint32_t c = 0; c < dim; c += VL)
        most = vi_size_max(most, vf_load(q + c));
    const int32_t bits = vi_largest(most);
    memcpy(&largest, &bits, sizeof largest); /* with a NaN in q: NaN, and nothing is scaled */
    if (largest > 0 && largest < (float)BF16_LEAST_Q) {
        frexpf(largest, &exponent); /* largest = [0.5, 1) 2^exponent */
        factor = exp2f((float)(-39 - exponent));
    }
    *to = 1 / factor;
    for (uint32_t c = 0; c < kvb_bf16_width(dim); c += 2 * VL)
        pairs_store((char *)encoded + 64 + 2 * c, query_load(q, c, dim, vf_set(factor)),
                    query_load(q, c + VL, dim, vf_set(factor)));
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

/* Scores of a panel of rows, for all BLOCK cells. */
VEC_INLINE void scores_panel(uint32_t rows, const int32_t *tile, uint32_t dim, const void *const *q, float *scores)
{
    const void *a[PRODUCT_ROWS];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        a[r] = (const char *)q[r] + 64;
    for (uint32_t i = 0; i < BLOCK; i += PRODUCT_VECS * VL) {
        vi acc[PRODUCT_ROWS * PRODUCT_VECS];
#pragma GCC unroll 32
        for (uint32_t j = 0; j < rows * PRODUCT_VECS; j++)
            acc[j] = vi_set(0);
        dword_product(pairs_dot, rows, PRODUCT_VECS, 1, dim / 2, a, tile + i, BLOCK, acc);
#pragma GCC unroll 32
        for (uint32_t j = 0; j < rows * PRODUCT_VECS; j++) {
            const uint32_t r = j / PRODUCT_VECS;
            vf_store(scores + r * BLOCK + i + j % PRODUCT_VECS * VL, (vf)acc[j] * vf_set(*(const float *)q[r]));
        }
    }
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

/* `vecs` vectors of channels from c on. */
VEC_INLINE void channels_sum(uint32_t rows, uint32_t vecs, const int32_t *tile, uint32_t width, uint32_t depth,
                             const void *const *weights, uint32_t c, float *const *sums)
{
    vi acc[PRODUCT_ROWS * PRODUCT_VECS];
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++)
        acc[j] = vi_set(0); /* sums of the block alone, for the chain that is declared */
    dword_product(pairs_dot, rows, vecs, 1, depth, weights, tile + c, width, acc);
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++) {
        float *to = sums[j / vecs] + c + j % vecs * VL;
        vf_store(to, vf_load(to) + (vf)acc[j]);
    }
}

VEC_INLINE void sums_panel(uint32_t rows, const int32_t *tile, uint32_t dim, uint32_t n, const float *weights,
                           float *const *sums)
{
    _Alignas(64) uint16_t rounded[PRODUCT_ROWS][BLOCK];
    const uint32_t width = kvb_bf16_width(dim), depth = (n + 1) / 2;
    const void *a[PRODUCT_ROWS];
    uint32_t c = 0;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++) {
        const float *p = weights + r * BLOCK;
        a[r] = rounded[r];
        for (uint32_t i = 0; i < BLOCK; i += 2 * VL)
            pairs_store(rounded[r] + i, vf_load(p + i), vf_load(p + i + VL));
    }
    for (; c + PRODUCT_VECS * VL <= dim; c += PRODUCT_VECS * VL)
        channels_sum(rows, PRODUCT_VECS, tile, width, depth, a, c, sums);
    for (; c < dim; c += VL)
        channels_sum(rows, 1, tile, width, depth, a, c, sums);
}

/* ---- any number of rows ------------------------------------------------------------------------------------------ */

#define PANEL(NAME, ROWS)                                                                                              \
    static __attribute__((noinline)) void scores_##NAME##_##ROWS(const int32_t *tile, uint32_t dim,                    \
                                                                 const void *const *q, float *scores)                  \
    {                                                                                                                  \
        scores_panel(ROWS, tile, dim, q, scores);                                                                      \
    }                                                                                                                  \
    static __attribute__((noinline)) void sums_##NAME##_##ROWS(const int32_t *tile, uint32_t dim, uint32_t n,          \
                                                               const float *weights, float *const *sums)               \
    {                                                                                                                  \
        sums_panel(ROWS, tile, dim, n, weights, sums);                                                                 \
    }
EACH_PANEL(PANEL, block)

#define ROW(NAME, ROWS) {scores_##NAME##_##ROWS, sums_##NAME##_##ROWS},
static const struct panel {
    __typeof__(scores_block_1) *scores;
    __typeof__(sums_block_1) *sums;
} panels[PRODUCT_ROWS] = {EACH_PANEL(ROW, block)};

static void block_scores(const kvb_view *k, uint32_t h, const uint32_t *cells, uint32_t n, const void *const *queries,
                         uint32_t n_rows, float *scores, kvb_lookahead *next, void *scratch)
{
    block_pack(k, h, cells, n, keys_of_bf16, keys_of_fp8, next, (packing){scratch, BLOCK, PLANE});
    for (uint32_t r = 0, take; r < n_rows; r += take) {
        take = product_panel_rows(n_rows - r);
        panels[take - 1].scores(scratch, k->dim, queries + r, scores + (size_t)r * BLOCK);
        kvb_lookahead_step(next);
    }
    kvb_lookahead_until(next, 2, 2);
}

static void block_sums(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                       uint32_t n_rows, float *const *sums, kvb_lookahead *next, void *scratch)
{
    block_pack(v, h, cells, n, values_of_bf16, values_of_fp8, next, (packing){scratch, kvb_bf16_width(v->dim), PLANE});
    for (uint32_t r = 0, take; r < n_rows; r += take) {
        take = product_panel_rows(n_rows - r);
        panels[take - 1].sums(scratch, v->dim, n, weights + (size_t)r * BLOCK, sums + r);
        kvb_lookahead_step(next);
    }
    kvb_lookahead_until(next, 2, 2);
}

extern const kvb_bf16_loops KVB_ISA_NAME(kvb_bf16);
const kvb_bf16_loops KVB_ISA_NAME(kvb_bf16) = {
    .query = bf16_query,
    .dots = KVB_ISA_NAME(kvb_bf16_dots),
    .sums = KVB_ISA_NAME(kvb_bf16_sums),
    .block_scores = block_scores,
    .block_sums = block_sums,
};
#endif
