/* SPDX-License-Identifier: Apache-2.0 */
/* keys_pack() and values_pack() of int8_pack.c with AVX2. */
#if !defined(KVB_INT8_PACK_H) && defined(__AVX2__)
#define KVB_INT8_PACK_H

#include "kernels/vector/int8_codes_avx2.h"

/* Stores dwords of 4 codes of 8 cells; or two of each, of 2 codes of 16 bits (EVEN_PAIRS). */
VEC_INLINE void dwords_store(kvb_elem elem, __m256i x, int32_t *to)
{
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), odd = _mm256_srai_epi16(x, 8);
    _mm256_storeu_si256((__m256i *)(void *)to, KEY_CODES(elem) == 4 ? x : even);
    if (KEY_CODES(elem) == 2)
        _mm256_storeu_si256((__m256i *)(void *)(to + BLOCK), odd);
}

VEC_INLINE void keys_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const uint32_t end = i < rows->n ? i + INT8_SOME : i;
    for (; i < end; i += VL) {
        const uint8_t *const *row = rows->row + i;
        for (uint32_t c = 0, some; c < s->dim; c += some) {
            __m256i x[VL];
            some = c + 32 <= s->dim ? 32 : 16;
            if (some == 32)
                dwords_of_eight(elem, row, c, x);
            else
                sixteen_of_eight(elem, row, c, x);
#pragma GCC unroll 8
            for (uint32_t j = 0; j < some / 4; j++)
                dwords_store(elem, x[j], tile + (c + 4 * j) / KEY_CODES(elem) * BLOCK + i);
        }
    }
}

#if TILE_CODES == 4

/* Stores the lower half of a and of b, then, 16 channels on, their upper halves. */
VEC_INLINE void halves_store(__m256i a, __m256i b, int32_t *to)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(to + 16), _mm256_permute2x128_si256(a, b, 0x31));
}

VEC_INLINE void values_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n;
    for (tile += i / 4 * s->width; i < end; i += 4, tile += s->width) {
        const uint8_t *const *row = rows->row + i;
        for (uint32_t c = 0; c < s->dim; c += 32) {
            __m256i x[4];
#pragma GCC unroll 4
            for (uint32_t j = 0; j < 4; j++)
                x[j] = codes_within(elem, row[j], c, s->dim);
            const __m256i low = _mm256_unpacklo_epi8(x[0], x[1]), high = _mm256_unpackhi_epi8(x[0], x[1]),
                          other_low = _mm256_unpacklo_epi8(x[2], x[3]), other_high = _mm256_unpackhi_epi8(x[2], x[3]);
            halves_store(_mm256_unpacklo_epi16(low, other_low), _mm256_unpackhi_epi16(low, other_low), tile + c);
            halves_store(_mm256_unpacklo_epi16(high, other_high), _mm256_unpackhi_epi16(high, other_high),
                         tile + c + 8);
        }
    }
}

#else

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

/* The f16 of blocks g .. g + some - 1, `at` bytes from their starts, eight cells at a time. All are stored together: gcc
 * reads addresses of rows again after each store. */
VEC_INLINE void blocks_transpose(const int8_rows *rows, size_t at, size_t block, uint32_t g, uint32_t some,
                                 float *table)
{
    for (uint32_t i = 0; i < rows->n; i += VL) {
        vf x[4];
#pragma GCC unroll 4
        for (uint32_t j = 0; j < some; j++)
            x[j] = f16_of_rows(rows->row + i, (g + j) * block + at);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < some; j++)
            vf_store(table + (g + j) * BLOCK + i, x[j]);
    }
}

/* n of 1, 2 or 4 f16 side by side. */
VEC_INLINE __m128 few_f16(const uint8_t *at, uint32_t n)
{
    uint16_t one;
    if (n == 4)
        return _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)at));
    if (n == 2)
        return _mm_cvtph_ps(_mm_cvtsi32_si128(dword_at(at, 0)));
    memcpy(&one, at, sizeof one);
    return _mm_cvtph_ps(_mm_cvtsi32_si128(one));
}

/* Groups g .. g + some - 1 that lie side by side, four cells at a time. */
VEC_INLINE void groups_transpose(const int8_rows *rows, const uint8_t *at, size_t cell, uint32_t g, uint32_t some,
                                 float *table)
{
    for (uint32_t i = 0; i < rows->n; i += 4) {
        __m128 x[4];
#pragma GCC unroll 4
        for (uint32_t j = 0; j < 4; j++)
            x[j] = few_f16(at + rows->at[i + j < rows->n ? i + j : i] * cell + g * sizeof(uint16_t), some);
        _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < some; j++)
            _mm_store_ps(table + (g + j) * BLOCK + i, x[j]);
    }
}

/* Fills table [groups][BLOCK] with the f16 at `at`. A cell's f16 lie `block` bytes apart, or side by side if that is 0.
 * Up to seven columns behind the last cell are written, too. */
static void f16_table(const int8_rows *rows, const uint8_t *at, size_t cell, size_t block, uint32_t groups,
                      float *table)
{
    uint32_t g = 0;
    if (block) {
        const size_t first = (size_t)(at + rows->at[0] * cell - rows->row[0]);
        for (; g + 4 <= groups; g += 4)
            blocks_transpose(rows, first, block, g, 4, table);
        for (; g < groups; g++)
            blocks_transpose(rows, first, block, g, 1, table);
        return;
    }
    for (; g + 4 <= groups; g += 4)
        groups_transpose(rows, at, cell, g, 4, table);
    for (; g + 2 <= groups; g += 2)
        groups_transpose(rows, at, cell, g, 2, table);
    for (; g < groups; g++)
        groups_transpose(rows, at, cell, g, 1, table);
}

#endif
