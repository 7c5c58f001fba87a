/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted sums of stored rows in halves. A strip of channels of all rows stays in registers for HALF_CELLS cells; what
 * those of a block come to is added up in halves, too, and goes over to floats at its end.
 */
#include "kernels/half/half.h"

#if defined(__AVX512FP16__)
#include "kernels/half/lanes.h"

#include <string.h>

#define STRIP 20u /* sums of a strip: with values and a weight in registers */

/* Weights of a row, scaled, each twice: one broadcast of 32 bits fills a vector. */
VEC_INLINE void weights_round(const float *weights, uint32_t n, float scale, uint32_t *to)
{
    for (uint32_t i = 0; i < n; i += VL) {
        __m256i half = _mm512_cvtps_ph(vf_load(weights + i) * vf_set(scale), _MM_FROUND_TO_NEAREST_INT);
        __m512i one = _mm512_cvtepu16_epi32(half);
        _mm512_storeu_si512(to + i, _mm512_or_si512(one, _mm512_slli_epi32(one, 16)));
    }
}

VEC_INLINE vh weight_of(const uint32_t *weight)
{
    return _mm512_castsi512_ph(_mm512_set1_epi32((int)*weight));
}

/* Adds what rows first .. end-1 come to, to parts. */
VEC_INLINE void strip_sum(kvb_elem elem, uint32_t rows, uint32_t vecs, const uint32_t *weights,
                          const kvb_half_rows *values, uint32_t first, uint32_t end, uint32_t dim, uint32_t at,
                          vh *parts, uint32_t width, __m512i *codes)
{
    vh sum[STRIP];
#pragma GCC unroll 32
    for (uint32_t s = 0; s < rows * vecs; s++)
        sum[s] = _mm512_setzero_ph();
    for (uint32_t i = first; i < end; i++) {
        const half_beside beside = half_beside_of(elem, values, i);
        const void *row = values->at[i];
        vh value[4];
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++) {
            value[v] = half_load(elem, row, beside, at + v * HL, dim);
            *codes = half_codes(elem, *codes, row, at + v * HL);
            half_prefetch(elem, dim, rows, row, values->ahead, at + v * HL);
        }
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            vh weight = weight_of(weights + r * BLOCK + i);
#pragma GCC unroll 4
            for (uint32_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = _mm512_fmadd_ph(weight, value[v], sum[r * vecs + v]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++) {
            vh *to = parts + r * width + at / HL + v;
            *to = _mm512_add_ph(*to, sum[r * vecs + v]);
        }
}

/* The widest strips that fit the registers, then narrower ones for what is left. */
VEC_INLINE void some_sum(kvb_elem elem, uint32_t rows, const uint32_t *weights, const kvb_half_rows *values,
                         uint32_t first, uint32_t end, uint32_t dim, vh *parts, uint32_t width, __m512i *codes)
{
    uint32_t at = 0;
#define STRIPS(VECS)                                                                                                   \
    if (rows * VECS <= STRIP)                                                                                          \
        for (; width * HL - at >= VECS * HL; at += VECS * HL)                                                          \
            strip_sum(elem, rows, VECS, weights, values, first, end, dim, at, parts, width, codes);
    STRIPS(4)
    STRIPS(2)
    STRIPS(1)
#undef STRIPS
}

VEC_INLINE bool rows_sum(kvb_elem elem, uint32_t rows, const float *weights, const kvb_half_rows *values, uint32_t dim,
                         float *const *sums)
{
    const float units = elem == KVB_E4M3 ? (float)HALF_WEIGHTS_E4M3 : (float)HALF_WEIGHTS;
    const float scale = elem == KVB_E4M3 ? 256 * units : units, back = 1 / units;
    const uint32_t n = values->n, width = (dim + HL - 1) / HL; /* vectors of a row */
    _Alignas(64) uint32_t rounded[DOTS_ROWS * BLOCK];
    vh parts[DOTS_ROWS * HALF_MAX_DIM / HL], infinite = _mm512_setzero_ph();
    __m512i codes = _mm512_setzero_si512();

    memset(parts, 0, rows * width * sizeof *parts);
    for (uint32_t r = 0; r < rows; r++)
        weights_round(weights + r * BLOCK, n, scale, rounded + r * BLOCK);
    for (uint32_t i = 0; i < n; i += HALF_CELLS)
        some_sum(elem, rows, rounded, values, i, n - i < HALF_CELLS ? n : i + HALF_CELLS, dim, parts, width, &codes);
    for (uint32_t i = 0; i < rows * width; i++)
        infinite = _mm512_fmadd_ph(parts[i], _mm512_setzero_ph(), infinite);
    if (!half_finite(half_lower(infinite) + half_upper(infinite)) || !half_codes_finite(codes))
        return false;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < dim; c += VL) {
            vh part = parts[r * width + c / HL];
            vf more = c % HL ? half_upper(part) : half_lower(part);
            vf_store(sums[r] + c, vf_fma(more, vf_set(back), vf_load(sums[r] + c)));
        }
    return true;
}

VEC_INLINE bool elem_sum(kvb_elem elem, const float *weights, uint32_t n_rows, const kvb_half_rows *values,
                         uint32_t dim, float *const *sums)
{
#define ROWS(N)                                                                                                        \
    case N:                                                                                                            \
        return rows_sum(elem, N, weights, values, dim, sums);
    ROWS_CASES(n_rows, ROWS)
#undef ROWS
    return false;
}

bool kvb_half_sums(const kvb_half_rows *values, const float *weights, uint32_t n_rows, float *const *sums)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        return values->dim == 128 ? elem_sum(ELEM, weights, n_rows, values, 128, sums)                                 \
                                  : elem_sum(ELEM, weights, n_rows, values, values->dim, sums);
    HALF_CASES(values->elem, CASE)
#undef CASE
}
#endif
