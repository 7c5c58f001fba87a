/* SPDX-License-Identifier: Apache-2.0 */
/* keys_pack() and values_pack() of int8_tiles.c with AVX-512. */
#if !defined(KVB_INT8_TILES_H) && defined(__AVX512BW__)
#define KVB_INT8_TILES_H

#include "kernels/vector/int8_codes.h"
#include "kernels/vector/int8_lanes.h"

/* Lane 4 l + m of r[d]: the dword d of 16 bytes at `byte` of row 4 l + m. */
CODES_INLINE void dwords_turn(const uint8_t *const *row, size_t byte, __m512i r[4])
{
    __m512i a[4];
    for (int m = 0; m < 4; m++) {
#define FOUR(L) _mm_loadu_si128((const __m128i *)(const void *)(row[4 * (L) + m] + byte))
        a[m] = _mm512_mask_broadcast_i32x4(_mm512_castsi128_si512(FOUR(0)), 0x00f0, FOUR(1));
        a[m] = _mm512_mask_broadcast_i32x4(_mm512_mask_broadcast_i32x4(a[m], 0x0f00, FOUR(2)), 0xf000, FOUR(3));
#undef FOUR
    }
    __m512i low = _mm512_unpacklo_epi32(a[0], a[1]), high = _mm512_unpackhi_epi32(a[0], a[1]);
    __m512i other_low = _mm512_unpacklo_epi32(a[2], a[3]), other_high = _mm512_unpackhi_epi32(a[2], a[3]);
    r[0] = _mm512_unpacklo_epi64(low, other_low);
    r[1] = _mm512_unpackhi_epi64(low, other_low);
    r[2] = _mm512_unpacklo_epi64(high, other_high);
    r[3] = _mm512_unpackhi_epi64(high, other_high);
}

/* 16 channels of 16 rows, codes of 8 bits at `byte`. */
CODES_INLINE void bytes_turn(const uint8_t *const *row, size_t byte, __m512i flip, int32_t *to)
{
    __m512i r[4];
    dwords_turn(row, byte, r);
    for (uint32_t d = 0; d < 4; d++)
        _mm512_store_si512(to + d * BLOCK, _mm512_xor_si512(r[d], flip));
}

/* 32 channels of 16 rows, codes of 4 bits at `byte`: unpacked after they are transposed. */
CODES_INLINE void nibbles_turn(kvb_elem elem, const uint8_t *const *row, size_t byte, int32_t *to)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i r[4];
    dwords_turn(row, byte, r);
    for (uint32_t d = 0; d < 4; d++) {
        __m512i low = _mm512_and_si512(r[d], nibble), high = _mm512_and_si512(_mm512_srli_epi16(r[d], 4), nibble);
        if (elem == KVB_IQ4_NL)
            low = iq4_nl_levels(low), high = iq4_nl_levels(high);
        _mm512_store_si512(to + int8_nibbles_at(elem, d, 0) * BLOCK, low);
        _mm512_store_si512(to + int8_nibbles_at(elem, d, 1) * BLOCK, high);
    }
}

/* 64 channels of 16 rows by way of copies: codes of 2 bits, or with a fifth bit that lies elsewhere, or as 16 bits. */
CODES_INLINE void copies_turn(kvb_elem elem, const uint8_t *const *row, uint32_t c, uint32_t n, int32_t *to)
{
    _Alignas(64) uint8_t copy[16][256 / KEY_CODES];
    const uint8_t *at[16];
    for (uint32_t j = 0; j < 16; j++) {
        __m512i x = codes_load(elem, row[j], c, n);
        at[j] = copy[j];
#if KEY_CODES == 4
        _mm512_store_si512(copy[j], x);
#else
        const __m512i offset = _mm512_set1_epi16(int8_elem_of(elem).offset);
        __m512i low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(x));
        __m512i high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(x, 1));
        _mm512_store_si512(copy[j], _mm512_sub_epi16(low, offset));
        _mm512_store_si512(copy[j] + 64, _mm512_sub_epi16(high, offset));
#endif
    }
    for (uint32_t byte = 0; byte < sizeof copy[0]; byte += 16)
        bytes_turn(at, byte, _mm512_setzero_si512(), to + byte / 4 * BLOCK);
}

CODES_INLINE void keys_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const int8_elem of = int8_elem_of(elem);
    const __m512i flip = _mm512_set1_epi8(elem == KVB_UINT8 ? 0 : -128);
    const uint8_t *row[16];

    if (i >= rows->n)
        return;
    for (uint32_t j = 0; j < 16; j++)
        row[j] = rows->row[i + j < rows->n ? i + j : i];
    tile += i;
    if (KEY_CODES == 4 && of.bits == 8)
        for (uint32_t c = 0; c < s->dim; c += 16)
            bytes_turn(row, of.block_bytes ? c / 32 * of.block_bytes + of.codes_at + c % 32 : c, flip,
                       tile + c / 4 * BLOCK);
    else if (KEY_CODES == 4 && of.bits == 4 && of.offset != 16)
        for (uint32_t c = 0; c < s->dim; c += 32)
            nibbles_turn(elem, row, of.block_bytes ? c / 32 * of.block_bytes + of.codes_at : c / 2,
                         tile + c / 4 * BLOCK);
    else
        for (uint32_t c = 0; c < s->dim; c += 64)
            copies_turn(elem, row, c, s->dim - c, tile + c / KEY_CODES * BLOCK);
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

CODES_INLINE void values_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const __m512i offset = _mm512_set1_epi16(int8_elem_of(elem).offset);
    const uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n;
    for (tile += i / 2 * s->width; i < end; i += 2, tile += s->width) {
        const uint8_t *a = rows->row[i], *b = i + 1 < rows->n ? rows->row[i + 1] : a; /* a second time: weight 0 */
        for (uint32_t c = 0; c < s->width; c += 64)
            values_pack_pair(codes_load(elem, a, c, s->dim - c), codes_load(elem, b, c, s->dim - c), offset, tile + c);
    }
}

#endif
