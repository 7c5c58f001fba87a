/* SPDX-License-Identifier: Apache-2.0 */
/* dots() and sums() of kernels/vector/micro.h by products of pairs: few query rows meet stored rows where they lie. */
#include "kernels/bf16/tiles.h"

#if defined(__AVX512BF16__)
#include "kernels/bf16/rows.h"

#define STEP 64u /* channels that are read together */

#define BF16_CASES(elem, CASE)                                                                                         \
    switch (elem) {                                                                                                    \
        CASE(KVB_BF16) CASE(KVB_E4M3) CASE(KVB_E5M2) default : return false;                                           \
    }

/* Asks for the lines that hold channels c .. c + 31 of rows further on: of small floats for every second. */
VEC_INLINE void half_step_prefetch(kvb_elem elem, elem_ask ask, const void *row, uint32_t c, uint32_t dim)
{
    if (c < dim)
        elem_prefetch(elem, ask, row, c);
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

/* As in kernels/vector/dots.c: as many cells as make 16 sums, which are added up at once. */
VEC_INLINE void rows_dot(kvb_elem elem, uint32_t rows, const void *const *q, const kvb_half_rows *keys, uint32_t dim,
                         float *scores)
{
    const uint32_t cells = VL / (rows == 1 ? 1 : rows == 2 ? 2 : rows <= 4 ? 4 : 8), n = keys->n;
    const elem_ask ask = elem_ask_of(elem, dim, rows, keys->ahead);
    const uint8_t *pairs[DOTS_ROWS];
    for (uint32_t r = 0; r < rows; r++)
        pairs[r] = (const uint8_t *)q[r] + 64;
    for (uint32_t i = 0; i < n; i += cells) {
        vi sums[VL];
        vf floats[VL];
        float totals[VL];
#pragma GCC unroll 16
        for (uint32_t s = 0; s < VL; s++)
            sums[s] = vi_set(0);
#pragma GCC unroll 16
        for (uint32_t c = 0; c < cells; c++) {
            const uint8_t *row = keys->at[i + c < n ? i + c : n - 1];
#pragma GCC unroll 2
            for (uint32_t d = 0; d < dim; d += STEP) {
                __m512i x[2];
                row_load(elem, row, d, dim, x);
#pragma GCC unroll 2
                for (uint32_t j = 0; j < 2; j++) {
                    half_step_prefetch(elem, ask, row, d + 32 * j, dim);
#pragma GCC unroll 8
                    for (uint32_t r = 0; r < rows; r++) {
                        vi *sum = &sums[r * cells + c];
                        *sum = pairs_dot_at(*sum, (vi)x[j], pairs[r] + 2 * d + 64 * j);
                    }
                }
            }
        }
#pragma GCC unroll 16
        for (uint32_t s = 0; s < VL; s++)
            floats[s] = (vf)sums[s];
        vf_store(totals, vf_totals(floats));
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            const float back = *(const float *)q[r];
            for (uint32_t c = 0; c < cells; c++)
                scores[r * BLOCK + i + c] = totals[r * cells + c] * back;
        }
    }
}

VEC_INLINE bool elem_dot(kvb_elem elem, const void *const *q, uint32_t n_rows, const kvb_half_rows *keys, uint32_t dim,
                         float *scores)
{
#define ROWS(N)                                                                                                        \
    case N:                                                                                                            \
        rows_dot(elem, N, q, keys, dim, scores);                                                                       \
        break;
    ROWS_CASES(n_rows, ROWS)
#undef ROWS
    return true;
}

static bool few_dots(const kvb_half_rows *keys, const void *const *q, uint32_t n_rows, float *scores)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        return keys->dim == 128 ? elem_dot(ELEM, q, n_rows, keys, 128, scores)                                         \
                                : elem_dot(ELEM, q, n_rows, keys, keys->dim, scores);
    BF16_CASES(keys->elem, CASE)
#undef CASE
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

/* Channels at .. at + 64 parts - 1 (those past dim are not there) of all rows, in registers while the cells go by in pairs. */
VEC_INLINE void strip_sum(kvb_elem elem, uint32_t rows, uint32_t parts, uint32_t first, const int32_t *weights,
                          const kvb_half_rows *values, uint32_t at, uint32_t dim, float *const *sums)
{
    const elem_ask ask = elem_ask_of(elem, dim, rows, values->ahead);
    const uint32_t vecs = 4 * parts, there = (dim - at + VL - 1) / VL;
    vi sum[24];
#pragma GCC unroll 32
    for (uint32_t s = 0; s < rows * vecs; s++)
        sum[s] = vi_set(0);
    for (uint32_t i = 0; i < values->n; i += 2) {
        const uint8_t *a = values->at[i], *b = i + 1 < values->n ? values->at[i + 1] : NULL;
        __m512i pair[8];
#pragma GCC unroll 2
        for (uint32_t p = 0; p < parts; p++) {
            const uint32_t c = at + p * STEP;
            __m512i x[2], y[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
            row_load(elem, a, c, dim, x);
            if (b)
                row_load(elem, b, c, dim, y);
#pragma GCC unroll 2
            for (uint32_t j = 0; j < 2; j++) {
                half_step_prefetch(elem, ask, a, c + 32 * j, dim);
                if (b)
                    half_step_prefetch(elem, ask, b, c + 32 * j, dim);
                pair[4 * p + 2 * j] = pairs_low(x[j], y[j]);
                pair[4 * p + 2 * j + 1] = pairs_high(x[j], y[j]);
            }
        }
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            const vi weight = vi_set(weights[(first + r) * BLOCK / 2 + i / 2]);
#pragma GCC unroll 8
            for (uint32_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = pairs_dot(sum[r * vecs + v], (vi)pair[v], weight);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vecs; v++)
            if (v < there) {
                float *to = sums[first + r] + at + v * VL;
                vf_store(to, vf_load(to) + (vf)sum[r * vecs + v]);
            }
}

/* Some rows at a time: 24 sums. */
VEC_INLINE void rows_sum(kvb_elem elem, uint32_t rows, uint32_t first, const int32_t *weights,
                         const kvb_half_rows *values, uint32_t dim, float *const *sums)
{
    uint32_t at = 0;
    if (rows <= 3)
        for (; at + 2 * STEP <= dim; at += 2 * STEP)
            strip_sum(elem, rows, 2, first, weights, values, at, dim, sums);
    for (; at < dim; at += STEP)
        strip_sum(elem, rows, 1, first, weights, values, at, dim, sums);
}

VEC_INLINE bool elem_sum(kvb_elem elem, const float *weights, uint32_t n_rows, const kvb_half_rows *values,
                         uint32_t dim, float *const *sums)
{
    _Alignas(64) int32_t rounded[DOTS_ROWS * BLOCK / 2];
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < values->n; i += 2 * VL)
            pairs_store(rounded + (r * BLOCK + i) / 2, vf_load(weights + r * BLOCK + i),
                        vf_load(weights + r * BLOCK + i + VL));
    for (uint32_t r = 0, rows; r < n_rows; r += rows) {
        rows = n_rows - r <= PRODUCT_ROWS ? n_rows - r : (n_rows + 1) / 2;
#define ROWS(N)                                                                                                        \
    case N:                                                                                                            \
        if (N <= PRODUCT_ROWS)                                                                                         \
            rows_sum(elem, N, r, rounded, values, dim, sums);                                                          \
        break;
        ROWS_CASES(rows, ROWS)
#undef ROWS
    }
    return true;
}

static bool few_sums(const kvb_half_rows *values, const float *weights, uint32_t n_rows, float *const *sums)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        return values->dim == 128 ? elem_sum(ELEM, weights, n_rows, values, 128, sums)                                 \
                                  : elem_sum(ELEM, weights, n_rows, values, values->dim, sums);
    BF16_CASES(values->elem, CASE)
#undef CASE
}

const kvb_half kvb_bf16_few_avx512bf16 = {.dots = few_dots, .sums = few_sums};
#endif
