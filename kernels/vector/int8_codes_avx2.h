/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of a row as bytes, 16 or 32 channels at a time (AVX2). */
#if !defined(KVB_INT8_CODES_AVX2_H) && defined(__AVX2__)
#define KVB_INT8_CODES_AVX2_H

#include "kernels/vector/int8.h"
#include "kernels/vector/vec.h"

/* Codes of channels c .. c + 15: bytes without a sign, or with one where the element has no zero and 8 bits. */
VEC_INLINE __m128i bytes16_of(kvb_elem elem, const uint8_t *row, uint32_t c)
{
    const int8_elem of = int8_elem_of(elem);
    const uint8_t *block = row + c / 32 * of.block_bytes, *codes = block + of.codes_at;
    const __m128i low = _mm_set1_epi8(15);
    if (elem == KVB_INT8 || elem == KVB_UINT8)
        return _mm_loadu_si128((const __m128i *)(const void *)(row + c));
    if (elem == KVB_Q8_0)
        return _mm_loadu_si128((const __m128i *)(const void *)(codes + c % 32));
    if (elem == KVB_UINT4) {
        const __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)(row + c / 2));
        return _mm_unpacklo_epi8(_mm_and_si128(x, low), _mm_and_si128(_mm_srli_epi16(x, 4), low));
    }
    if (elem == KVB_UINT2) {
        const __m128i x = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(dword_at(row + c / 4, 0)));
        const __m128i two = _mm_or_si128(x, _mm_slli_epi32(x, 6)), four = _mm_or_si128(two, _mm_slli_epi32(two, 12));
        return _mm_and_si128(four, _mm_set1_epi8(3));
    }
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)codes);
    x = _mm_and_si128(c % 32 ? _mm_srli_epi16(x, 4) : x, low);
    if (elem == KVB_IQ4_NL) {
        const __m128i levels = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
        return _mm_shuffle_epi8(levels, x);
    }
    if (of.offset != 16)
        return x;
    const __m128i each = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128i bit = _mm_set1_epi64x((long long)0x8040201008040201u);
    uint16_t fifths;
    memcpy(&fifths, codes - 4 + c % 32 / 8, sizeof fifths);
    __m128i set = _mm_and_si128(_mm_shuffle_epi8(_mm_cvtsi32_si128(fifths), each), bit);
    return _mm_or_si128(x, _mm_and_si128(_mm_cmpeq_epi8(set, bit), _mm_set1_epi8(16)));
}

VEC_INLINE __m256i bytes32_of(kvb_elem elem, const uint8_t *row, uint32_t c)
{
    const int8_elem of = int8_elem_of(elem);
    if (of.block_bytes && of.bits == 4 && of.offset == 8) { /* low nibbles, then high ones */
        const __m128i both =
            _mm_loadu_si128((const __m128i *)(const void *)(row + c / 32 * of.block_bytes + of.codes_at));
        const __m256i x = _mm256_srlv_epi64(_mm256_broadcastsi128_si256(both), _mm256_setr_epi64x(0, 0, 4, 4));
        return _mm256_and_si256(x, _mm256_set1_epi8(15));
    }
    if (of.bits == 8)
        return _mm256_loadu_si256(
            (const __m256i *)(const void *)(of.block_bytes ? row + c / 32 * of.block_bytes + of.codes_at : row + c));
    return _mm256_set_m128i(bytes16_of(elem, row, c + 16), bytes16_of(elem, row, c));
}

VEC_INLINE bool has_sign(kvb_elem elem)
{
    return elem == KVB_INT8 || elem == KVB_Q8_0 || elem == KVB_IQ4_NL;
}

/* What is multiplied: (code - offset), or the code where TILE_SIGNED is false. Of channels c .. c + 15, or c + 31. */
VEC_INLINE __m128i codes16_of(kvb_elem elem, const uint8_t *row, uint32_t c)
{
    const __m128i x = bytes16_of(elem, row, c);
    if (has_sign(elem) == TILE_SIGNED)
        return x;
    return _mm_sub_epi8(x, _mm_set1_epi8(TILE_SIGNED ? (char)int8_elem_of(elem).offset : -128));
}

VEC_INLINE __m256i codes_of_bytes(kvb_elem elem, __m256i x)
{
    if (has_sign(elem) == TILE_SIGNED)
        return x;
    return _mm256_sub_epi8(x, _mm256_set1_epi8(TILE_SIGNED ? (char)int8_elem_of(elem).offset : -128));
}

VEC_INLINE __m256i codes32_of(kvb_elem elem, const uint8_t *row, uint32_t c)
{
    return codes_of_bytes(elem, bytes32_of(elem, row, c));
}

/* Zeros from dim on, a multiple of 16. */
VEC_INLINE __m256i codes_within(kvb_elem elem, const uint8_t *row, uint32_t c, uint32_t dim)
{
    return c + 32 <= dim ? codes32_of(elem, row, c) : _mm256_zextsi128_si256(codes16_of(elem, row, c));
}

/* Transposes 16 bytes of each of eight cells: to[j] has dword j of the cells. y[j]: of cells j and j + 4. */
VEC_INLINE void dwords_transpose(const __m256i *y, __m256i *to)
{
    const __m256i a = _mm256_unpacklo_epi32(y[0], y[1]), b = _mm256_unpacklo_epi32(y[2], y[3]),
                  c = _mm256_unpackhi_epi32(y[0], y[1]), d = _mm256_unpackhi_epi32(y[2], y[3]);
    to[0] = _mm256_unpacklo_epi64(a, b);
    to[1] = _mm256_unpackhi_epi64(a, b);
    to[2] = _mm256_unpacklo_epi64(c, d);
    to[3] = _mm256_unpackhi_epi64(c, d);
}

/* Channels c .. c + 15 of eight cells: to[j] has channels 4 * j .. 4 * j + 3 of each. Codes are as in a tile of keys,
 * but not widened. */
VEC_INLINE void sixteen_of_eight(kvb_elem elem, const uint8_t *const *row, uint32_t c, __m256i *to)
{
    __m256i y[4];
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; j++) {
        y[j] = _mm256_set_m128i(bytes16_of(elem, row[j + 4], c), bytes16_of(elem, row[j], c));
        y[j] = KEYS_OF_BYTES(elem) ? y[j] : codes_of_bytes(elem, y[j]);
    }
    dwords_transpose(y, to);
}

/* Are the codes of a block 16 bytes, of low nibbles, then of high ones? */
VEC_INLINE bool nibbles_alone(kvb_elem elem)
{
    return int8_elem_of(elem).block_bytes && int8_elem_of(elem).offset == 8;
}

/* Transposes the 16 bytes of a block, `at` bytes from the starts of eight cells. */
VEC_INLINE void nibbles_of_eight(const uint8_t *const *row, size_t at, __m256i *to)
{
    __m256i y[4];
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; j++)
        y[j] = _mm256_loadu2_m128i((const __m128i *)(const void *)(row[j + 4] + at),
                                   (const __m128i *)(const void *)(row[j] + at));
    dwords_transpose(y, to);
}

/* Dword j of eight cells, of nibbles_of_eight(). */
VEC_INLINE __m256i nibbles_dword(const __m256i *y, uint32_t j)
{
    return _mm256_and_si256(j < 4 ? y[j] : _mm256_srli_epi16(y[j - 4], 4), _mm256_set1_epi8(15));
}

/* As sixteen_of_eight(), of 32 channels. */
VEC_INLINE void dwords_of_eight(kvb_elem elem, const uint8_t *const *row, uint32_t c, __m256i *to)
{
    const int8_elem of = int8_elem_of(elem);
    __m256i y[4];
    if (!nibbles_alone(elem)) {
        sixteen_of_eight(elem, row, c, to);
        sixteen_of_eight(elem, row, c + 16, to + 4);
        return;
    }
    nibbles_of_eight(row, c / 32 * of.block_bytes + of.codes_at, y);
#pragma GCC unroll 8
    for (uint32_t j = 0; j < 8; j++)
        to[j] = nibbles_dword(y, j);
}

/* Reads an f16 of each of eight rows, `at` bytes from its start. Loads have four bytes: two behind each f16 are read. */
VEC_INLINE vf f16_of_rows(const uint8_t *const *row, size_t at)
{
    __m128i x[8];
#pragma GCC unroll 8
    for (uint32_t j = 0; j < 8; j++)
        x[j] = _mm_cvtsi32_si128(dword_at(row[j] + at, 0));
    const __m128i a = _mm_unpacklo_epi16(x[0], x[1]), b = _mm_unpacklo_epi16(x[2], x[3]),
                  c = _mm_unpacklo_epi16(x[4], x[5]), d = _mm_unpacklo_epi16(x[6], x[7]);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d)));
}

#endif
