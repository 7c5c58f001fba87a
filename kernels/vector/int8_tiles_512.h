/* SPDX-License-Identifier: Apache-2.0 */
/* keys_pack() and values_pack() of int8_tiles.c with AVX-512. */
#if !defined(KVB_INT8_TILES_H) && defined(__AVX512BW__)
#define KVB_INT8_TILES_H

#include "kernels/vector/int8_codes.h"
#include "kernels/vector/int8_lanes.h"

/* 16 x 16 dwords: lane i of r[j] becomes lane j of r[i]. */
CODES_INLINE void transpose(__m512i r[16])
{
    __m512i a[16];
    for (int i = 0; i < 16; i += 2) { /* pairs of dwords of two rows */
        a[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* r[i + j]: column j of each four, of rows i .. i+3 */
        r[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) { /* fours 0 2 and 1 3 of two groups of rows beside each other */
        a[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0xdd);
    }
}

CODES_INLINE void transposed_store(__m512i r[16], int32_t *to)
{
    transpose(r);
    for (int j = 0; j < 16; j++)
        _mm512_store_si512(to + (uint32_t)j * BLOCK, r[j]);
}

/* 16 cells from cell i on, 64 channels from c on. Where there is no cell: zeros. */
CODES_INLINE void keys_pack_square(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, uint32_t c,
                                   uint32_t cells, int32_t *tile)
{
    __m512i r[16];
#if KEY_CODES == 4
    for (uint32_t j = 0; j < 16; j++)
        r[j] = j < cells ? codes_load(elem, rows->row[i + j], c, s->dim - c) : _mm512_setzero_si512();
    transposed_store(r, tile + c / 4 * BLOCK + i);
#else
    __m512i upper[16];
    const __m512i offset = _mm512_set1_epi16(int8_elem_of(elem).offset);
    for (uint32_t j = 0; j < 16; j++) {
        __m512i x = j < cells ? codes_load(elem, rows->row[i + j], c, s->dim - c) : _mm512_setzero_si512();
        r[j] = _mm512_sub_epi16(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(x)), offset);
        upper[j] = _mm512_sub_epi16(_mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(x, 1)), offset);
    }
    transposed_store(r, tile + c / 2 * BLOCK + i);
    transposed_store(upper, tile + (c / 2 + 16) * BLOCK + i);
#endif
}

CODES_INLINE void keys_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, int32_t *tile)
{
    for (uint32_t i = 0; i < BLOCK; i += 16)
        for (uint32_t c = 0; c < s->width; c += 64) {
            if (i + 16 <= rows->n)
                keys_pack_square(elem, s, rows, i, c, 16, tile);
            else
                keys_pack_square(elem, s, rows, i, c, rows->n > i ? rows->n - i : 0, tile);
        }
}

#if defined(__AVX512VBMI__)

/* Two rows' codes of 64 channels, as 16 bits, side by side in dwords: two shuffles of bytes for each 16 channels. */
CODES_INLINE void values_pack_pair(__m512i a, __m512i b, __m512i offset, int32_t *to)
{
    const __mmask64 even = 0x1111111111111111, odd = 0x4444444444444444; /* bytes 0 and 2 of dwords */
    const __m512i each = _mm512_set1_epi32(0x01010101);
    __m512i from = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), each);
    for (int j = 0; j < 4; j++, from = _mm512_add_epi8(from, _mm512_set1_epi8(16))) {
        __m512i both = _mm512_mask_permutexvar_epi8(_mm512_maskz_permutexvar_epi8(even, from, a), odd, from, b);
        _mm512_store_si512(to + j * 16, _mm512_sub_epi16(both, offset));
    }
}

#else

/* Byte 4 l + j of the result: byte 16 j + l. Dwords first, so that each 128 bits have the dwords whose bytes they need. */
CODES_INLINE __m512i bytes_by_four(__m512i x)
{
    const __m512i dwords = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i bytes = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(dwords, x), _mm512_broadcast_i32x4(bytes));
}

/* The same: a dword of bytes_by_four() holds channels l, 16 + l, 32 + l, 48 + l, each for another vector. */
CODES_INLINE void values_pack_pair(__m512i a, __m512i b, __m512i offset, int32_t *to)
{
    const __m512i low = _mm512_set1_epi32(0xff);
    a = bytes_by_four(a);
    b = bytes_by_four(b);
    for (unsigned j = 0; j < 4; j++) {
        __m512i first = _mm512_and_si512(_mm512_srli_epi32(a, 8 * j), low);
        __m512i second = _mm512_and_si512(_mm512_srli_epi32(b, 8 * j), low);
        __m512i both = _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
        _mm512_store_si512(to + j * 16, _mm512_sub_epi16(both, offset));
    }
}

#endif

CODES_INLINE void values_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, int32_t *tile)
{
    const __m512i offset = _mm512_set1_epi16(int8_elem_of(elem).offset);
    for (uint32_t i = 0; i < rows->n; i += 2, tile += s->width) {
        const uint8_t *a = rows->row[i], *b = i + 1 < rows->n ? rows->row[i + 1] : a; /* a second time: weight 0 */
        for (uint32_t c = 0; c < s->width; c += 64)
            values_pack_pair(codes_load(elem, a, c, s->dim - c), codes_load(elem, b, c, s->dim - c), offset, tile + c);
    }
}

#endif
