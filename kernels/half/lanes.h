/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 32 halves: AVX-512 FP16. Functions of `elem` are meant for a constant one. */
#ifndef KVB_HALF_LANES_H
#define KVB_HALF_LANES_H

#include "kernels/half/half.h"
#include "kernels/vector/elem.h"

#if defined(__AVX512FP16__)
#include <string.h>

/* See half.h. */
kvb_half_dots_fn kvb_half_dots;
kvb_half_sums_fn kvb_half_sums;

#define HL 32u
typedef __m512h vh;

/* A switch over the elements that halves are made of. */
#define HALF_ELEMS(CASE) CASE(KVB_F16) CASE(KVB_E4M3) CASE(KVB_Q8_0) CASE(KVB_UINT8)
#define HALF_CASES(elem, CASE)                                                                                         \
    switch (elem) {                                                                                                    \
        HALF_ELEMS(CASE)                                                                                               \
    default:                                                                                                           \
        return false;                                                                                                  \
    }

/* What lies beside a row of UINT8: a scale and a zero for each 2^shift channels. */
typedef struct half_beside {
    const uint8_t *scales, *zeros;
    uint32_t shift;
} half_beside;

/* Of the i-th row; of other elements nothing. */
VEC_INLINE half_beside half_beside_of(kvb_elem elem, const kvb_half_rows *rows, uint32_t i)
{
    if (elem != KVB_UINT8)
        return (half_beside){0};
    const kvb_view *v = rows->view;
    const size_t at = kvb_view_cell(v, rows->cells[i]), h = rows->kv_head;
    return (half_beside){(const uint8_t *)v->scales + h * v->scale_head_stride + at * v->scale_cell_stride,
                         (const uint8_t *)v->zeros + h * v->zero_head_stride + at * v->zero_cell_stride,
                         (uint32_t)__builtin_ctz(v->format->group)};
}

/* One f16, wherever it lies, in all lanes. */
VEC_INLINE vh half_set(const void *p)
{
    short bits;
    memcpy(&bits, p, sizeof bits);
    return _mm512_castsi512_ph(_mm512_set1_epi16(bits));
}

/*
 * Elements i .. i+31 of a row, those past dim 0. e4m3 as f16 of 2^-8 of its value, its NaNs as anything; codes of 8 bits are
 * exact, and what they become is rounded once.
 */
VEC_INLINE vh half_load(kvb_elem elem, const void *row, half_beside beside, uint32_t i, uint32_t dim)
{
    const uint8_t *p = (const uint8_t *)row + (elem == KVB_F16 ? 2 * i : elem == KVB_Q8_0 ? i / 32 * 34 : i);
    if (elem == KVB_E4M3) {
        __m512i code = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
        return _mm512_castsi512_ph(_mm512_and_si512(_mm512_slli_epi16(code, 7), _mm512_set1_epi32((int)0xbfffbfff)));
    }
    if (elem == KVB_Q8_0) { /* ggml's block: f16 d, 32 codes */
        __m512i code = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(p + 2)));
        return _mm512_mul_ph(_mm512_cvtepi16_ph(code), half_set(p));
    }
    if (elem == KVB_UINT8) {
        const size_t group = (i >> beside.shift) * sizeof(uint16_t);
        __m512i code = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
        return _mm512_fmadd_ph(_mm512_cvtepu16_ph(code), half_set(beside.scales + group),
                               half_set(beside.zeros + group));
    }
    if (dim - i >= HL)
        return _mm512_castsi512_ph(_mm512_loadu_si512(p));
    return _mm512_castsi512_ph(_mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p)));
}

/* As elem_prefetch() in steps of 32 channels: of q8_0 a line for each two blocks, and one for what is left. */
VEC_INLINE void half_prefetch(kvb_elem elem, uint32_t dim, uint32_t rows, const void *row, kvb_ahead ahead, uint32_t i)
{
    const kvb_elem as = elem == KVB_F16 ? KVB_F16 : KVB_E4M3;
    if (elem == KVB_Q8_0 && i % 64 && dim - i <= 32)
        i += 32;
    const elem_ask ask = {ahead.bytes, elem_size(as) * dim <= KVB_NEAR_BYTES && rows <= KVB_NEAR_ROWS, 0};
    elem_prefetch(as, ask, row, i);
}

/* Magnitudes of e4m3 codes, the largest in each lane: 127 is NaN. Of other elements nothing. */
VEC_INLINE __m512i half_codes(kvb_elem elem, __m512i largest, const void *row, uint32_t i)
{
    if (elem != KVB_E4M3 || i % 64)
        return largest;
    __m512i code = _mm512_loadu_si512(elem_at(elem, row, i));
    return _mm512_max_epu8(largest, _mm512_and_si512(code, _mm512_set1_epi8(127)));
}
VEC_INLINE bool half_codes_finite(__m512i largest)
{
    return !_mm512_cmpeq_epi8_mask(largest, _mm512_set1_epi8(127));
}

VEC_INLINE bool half_finite(vf x)
{
    return !_mm512_fpclass_ps_mask(x, 0x99); /* NaN of both kinds, both infinities */
}

/* Lanes 0-15 and 16-31 as floats. */
VEC_INLINE vf half_lower(vh x)
{
    return _mm512_cvtxph_ps(_mm512_castph512_ph256(x));
}
VEC_INLINE vf half_upper(vh x)
{
    return _mm512_cvtxph_ps(_mm256_castsi256_ph(_mm512_extracti64x4_epi64(_mm512_castph_si512(x), 1)));
}

#endif
#endif
