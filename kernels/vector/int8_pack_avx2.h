/* SPDX-License-Identifier: Apache-2.0 */
/* keys_pack() and values_pack() of int8_pack.c with AVX2. */
#if !defined(KVB_INT8_PACK_H) && defined(__AVX2__)
#define KVB_INT8_PACK_H

#include "kernels/vector/int8_codes_avx2.h"

/* (code - offset) of channels c .. c + 31, zeros from dim on. */
VEC_INLINE __m256i codes_within(kvb_elem elem, const uint8_t *row, uint32_t c, uint32_t dim)
{
    return c + 32 <= dim ? codes32_of(elem, row, c) : _mm256_zextsi128_si256(codes16_of(elem, row, c));
}

/* Dwords of 4 codes of 8 cells become two of 2 codes of 16 bits. */
VEC_INLINE void dwords_widen(__m256i x, int32_t *to)
{
    const __m256i zero = _mm256_setzero_si256();
    const vf low = _mm256_castsi256_ps(_mm256_srai_epi16(_mm256_unpacklo_epi8(zero, x), 8)),
             high = _mm256_castsi256_ps(_mm256_srai_epi16(_mm256_unpackhi_epi8(zero, x), 8));
    vf_store((float *)(void *)to, _mm256_shuffle_ps(low, high, 0x88));
    vf_store((float *)(void *)(to + BLOCK), _mm256_shuffle_ps(low, high, 0xdd));
}

VEC_INLINE void keys_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const uint32_t first = i, end = i < rows->n ? i + INT8_SOME : i;
    for (; i < end; i += VL) {
        const uint8_t *row[VL];
        for (uint32_t j = 0; j < VL; j++)
            row[j] = rows->row[i + j < rows->n ? i + j : first];
        for (uint32_t c = 0; c < s->dim; c += 32) {
            vf x[VL];
#pragma GCC unroll 8
            for (uint32_t j = 0; j < VL; j++)
                x[j] = _mm256_castsi256_ps(codes_within(elem, row[j], c, s->dim));
            vf_transpose(x);
#pragma GCC unroll 8
            for (uint32_t j = 0; j < VL; j++)
                if (c + 4 * j < s->dim)
                    dwords_widen(_mm256_castps_si256(x[j]), tile + (c / 2 + 2 * j) * BLOCK + i);
        }
    }
}

/* Bytes in pairs, a cell's and the next one's, as 16 bits. */
VEC_INLINE void pairs_store(__m128i pairs, int32_t *to)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_cvtepi8_epi16(pairs));
}

VEC_INLINE void values_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n;
    for (tile += i / 2 * s->width; i < end; i += 2, tile += s->width)
        for (uint32_t c = 0; c < s->dim; c += 16) {
            const __m128i x = codes16_of(elem, rows->row[i], c),
                          y = i + 1 < rows->n ? codes16_of(elem, rows->row[i + 1], c) : _mm_setzero_si128();
            pairs_store(_mm_unpacklo_epi8(x, y), tile + c);
            pairs_store(_mm_unpackhi_epi8(x, y), tile + c + 8);
        }
}

#endif
