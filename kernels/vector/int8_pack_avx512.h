/* SPDX-License-Identifier: Apache-2.0 */
/* keys_pack() and values_pack() of int8_pack.c with AVX-512. */
#if !defined(KVB_INT8_PACK_H) && defined(__AVX512BW__)
#define KVB_INT8_PACK_H

#include "kernels/vector/int8.h"
#include "kernels/vector/vec.h"

/* ggml's kvalues_iq4nl, 128 added. */
VEC_INLINE __m512i iq4_nl_levels(__m512i nibbles)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103,
                                                                    -90, -75, -59, -39, -15)),
                               nibbles);
}

/* Nibbles of two blocks of 32 channels, of the first alone unless `both`: of each the low ones, then the high ones. */
VEC_INLINE __m512i nibbles_of_blocks(const uint8_t *first, const uint8_t *second, bool both)
{
    const __m512i down = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
    __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)first));
    if (both)
        x = _mm512_mask_broadcast_i32x4(x, 0xff00, _mm_loadu_si128((const __m128i *)(const void *)second));
    return _mm512_and_si512(_mm512_srlv_epi64(x, down), _mm512_set1_epi8(15));
}

/*
 * Codes of channels c .. c+63 of a row, or of the first n of them and then anything; no byte behind is read. c is a
 * multiple of 64, n of 16, or of 32 if codes have less than 8 bits.
 */
VEC_INLINE __m512i codes_load(kvb_elem elem, const uint8_t *row, uint32_t c, uint32_t n)
{
    const int8_elem of = int8_elem_of(elem);
    uint64_t held = n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0);

    if (!of.block_bytes && of.bits == 8) {
        __m512i x = _mm512_maskz_loadu_epi8(held, row + c);
        return elem == KVB_INT8 ? _mm512_xor_si512(x, _mm512_set1_epi8(-128)) : x;
    }
    if (elem == KVB_UINT4) { /* a byte to 16 bits, its upper nibble to the upper byte */
        __m512i x = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(n < 64 ? 0xffff : 0xffffffff, row + c / 2));
        return _mm512_and_si512(_mm512_or_si512(x, _mm512_slli_epi16(x, 4)), _mm512_set1_epi8(15));
    }
    if (elem == KVB_UINT2) {
        __m512i x = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(n < 64 ? 0xff : 0xffff, row + c / 4));
        x = _mm512_or_si512(x, _mm512_slli_epi32(x, 12));
        return _mm512_and_si512(_mm512_or_si512(x, _mm512_slli_epi32(x, 6)), _mm512_set1_epi8(3));
    }
    const uint8_t *first = row + c / 32 * of.block_bytes, *second = first + of.block_bytes;
    bool both = n > 32;
    if (elem == KVB_Q8_0) {
        __m256i lower = _mm256_loadu_si256((const __m256i *)(const void *)(first + of.codes_at));
        __m512i x = _mm512_castsi256_si512(lower);
        if (both)
            x = _mm512_inserti64x4(x, _mm256_loadu_si256((const __m256i *)(const void *)(second + of.codes_at)), 1);
        return _mm512_xor_si512(x, _mm512_set1_epi8(-128));
    }
    __m512i x = nibbles_of_blocks(first + of.codes_at, second + of.codes_at, both);
    if (elem == KVB_IQ4_NL)
        return iq4_nl_levels(x);
    if (of.offset == 16) { /* bit j of the word before the nibbles is the fifth bit of code j */
        uint32_t fifth[2] = {0, 0};
        memcpy(&fifth[0], first + of.codes_at - 4, 4);
        if (both)
            memcpy(&fifth[1], second + of.codes_at - 4, 4);
        x = _mm512_mask_add_epi8(x, (uint64_t)fifth[1] << 32 | fifth[0], x, _mm512_set1_epi8(16));
    }
    return x;
}

/* Transposes 16 channels of 16 rows, codes of 8 bits at `byte`. */
VEC_INLINE void bytes_transpose(const uint8_t *const *row, size_t byte, __m512i flip, int32_t *to)
{
    __m512i r[4];
    dwords_transpose(row, byte, r);
    for (uint32_t d = 0; d < 4; d++)
        _mm512_store_si512(to + d * BLOCK, _mm512_xor_si512(r[d], flip));
}

/* Transposes 32 channels of 16 rows, codes of 4 bits at `byte`, then unpacks them. A high nibble is 16 channels after
 * its low one in ggml's blocks; else the next one, and even channels go first. */
VEC_INLINE void nibbles_transpose(kvb_elem elem, const uint8_t *const *row, size_t byte, int32_t *to)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const uint32_t apart = elem == KVB_UINT4 ? 1 : 4, step = elem == KVB_UINT4 ? 2 : 1;
    __m512i r[4];
    dwords_transpose(row, byte, r);
    for (uint32_t d = 0; d < 4; d++) {
        __m512i low = _mm512_and_si512(r[d], nibble), high = _mm512_and_si512(_mm512_srli_epi16(r[d], 4), nibble);
        if (elem == KVB_IQ4_NL)
            low = iq4_nl_levels(low), high = iq4_nl_levels(high);
        _mm512_store_si512(to + d * step * BLOCK, low);
        _mm512_store_si512(to + (d * step + apart) * BLOCK, high);
    }
}

/* Unpacks 64 channels of 16 rows to copies, then transposes those: codes of 2 bits, with a fifth bit, or to become 16
 * bits. */
VEC_INLINE void copies_transpose(kvb_elem elem, const uint8_t *const *row, uint32_t c, uint32_t n, int32_t *to)
{
    _Alignas(64) uint8_t copy[16][256 / TILE_CODES];
    const uint8_t *at[16];
    for (uint32_t j = 0; j < 16; j++) {
        __m512i x = codes_load(elem, row[j], c, n);
        at[j] = copy[j];
#if TILE_CODES == 4
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
        bytes_transpose(at, byte, _mm512_setzero_si512(), to + byte / 4 * BLOCK);
}

VEC_INLINE void keys_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const int8_elem of = int8_elem_of(elem);
    const __m512i flip = _mm512_set1_epi8(elem == KVB_UINT8 ? 0 : -128);
    const uint8_t *row[16];

    if (i >= rows->n)
        return;
    for (uint32_t j = 0; j < 16; j++)
        row[j] = rows->row[i + j < rows->n ? i + j : i];
    tile += i;
    if (TILE_CODES == 4 && of.bits == 8)
        for (uint32_t c = 0; c < s->dim; c += 16)
            bytes_transpose(row, of.block_bytes ? c / 32 * of.block_bytes + of.codes_at + c % 32 : c, flip,
                            tile + c / 4 * BLOCK);
    else if (TILE_CODES == 4 && of.bits == 4 && of.offset != 16)
        for (uint32_t c = 0; c < s->dim; c += 32)
            nibbles_transpose(elem, row, of.block_bytes ? c / 32 * of.block_bytes + of.codes_at : c / 2,
                              tile + c / 4 * BLOCK);
    else
        for (uint32_t c = 0; c < s->dim; c += 64)
            copies_transpose(elem, row, c, s->dim - c, tile + c / TILE_CODES * BLOCK);
}

#if TILE_CODES == 4

/* An order for rows_interleave(): 128-bit part l of y[j] gets the bytes at 16 j + step * l + each byte of `four`. */
VEC_INLINE __m512i interleave_order(int32_t four, int32_t step)
{
    const __m512i j = _mm512_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    const __m512i l = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i at = _mm512_add_epi32(_mm512_slli_epi32(j, 4), _mm512_mullo_epi32(l, _mm512_set1_epi32(step)));
    return _mm512_add_epi8(_mm512_mullo_epi32(at, _mm512_set1_epi32(0x01010101)), _mm512_set1_epi32(four));
}

/* Each dword of y[j] gets one byte of each row of x: bytes 16 j .. 16 j + 15, in this order. */
VEC_INLINE void rows_interleave(const __m512i x[4], __m512i order, __m512i y[4])
{
    __m512i a[4];
    for (int i = 0; i < 4; i++)
        a[i] = _mm512_permutexvar_epi8(order, x[i]);
    __m512i low = _mm512_unpacklo_epi8(a[0], a[1]), high = _mm512_unpackhi_epi8(a[0], a[1]);
    __m512i other_low = _mm512_unpacklo_epi8(a[2], a[3]), other_high = _mm512_unpackhi_epi8(a[2], a[3]);
    y[0] = _mm512_unpacklo_epi16(low, other_low);
    y[1] = _mm512_unpackhi_epi16(low, other_low);
    y[2] = _mm512_unpacklo_epi16(high, other_high);
    y[3] = _mm512_unpackhi_epi16(high, other_high);
}

/* Packs 64 channels of four rows, or the first n of them. */
VEC_INLINE void values_pack_four(kvb_elem elem, const uint8_t *const row[4], uint32_t c, uint32_t n, int32_t *to)
{
    __m512i x[4], y[4];
    for (int i = 0; i < 4; i++)
        x[i] = codes_load(elem, row[i], c, n);
    rows_interleave(x, interleave_order(0x03020100, 4), y);
    for (int j = 0; j < 4; j++)
        _mm512_store_si512(to + j * 16, y[j]);
}

/* Nibbles of 128 channels, or of the first n of them, as they are stored: 32 channels in each 128 bits. */
VEC_INLINE __m512i nibbles_load(kvb_elem elem, const uint8_t *row, uint32_t c, uint32_t n)
{
    const int8_elem of = int8_elem_of(elem);
    if (!of.block_bytes)
        return _mm512_maskz_loadu_epi8(n < 128 ? (UINT64_C(1) << n / 2) - 1 : ~UINT64_C(0), row + c / 2);
    row += c / 32 * of.block_bytes + of.codes_at;
#define BLOCK_OF(J) _mm_loadu_si128((const __m128i *)(const void *)(row + (J)*of.block_bytes))
    __m512i x = _mm512_castsi128_si512(BLOCK_OF(0));
    if (n > 32)
        x = _mm512_mask_broadcast_i32x4(x, 0x00f0, BLOCK_OF(1));
    if (n > 64)
        x = _mm512_mask_broadcast_i32x4(x, 0x0f00, BLOCK_OF(2));
    if (n > 96)
        x = _mm512_mask_broadcast_i32x4(x, 0xf000, BLOCK_OF(3));
#undef BLOCK_OF
    return x;
}

/* Packs 128 channels of four rows, or the first n of them: puts nibbles of four rows side by side, then unpacks them.
 */
VEC_INLINE void nibbles_pack_four(kvb_elem elem, const uint8_t *const row[4], uint32_t c, uint32_t n, int32_t *to)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const bool beside = elem == KVB_UINT4; /* a byte's nibbles are neighbouring channels, else 16 apart */
    __m512i x[4], y[4];
    for (int i = 0; i < 4; i++)
        x[i] = nibbles_load(elem, row[i], c, n);
    rows_interleave(x, beside ? interleave_order(0x09080100, 2) : interleave_order(0x03020100, 4), y);
    for (uint32_t j = 0; j < 4 && 32 * j < n; j++) {
        __m512i low = _mm512_and_si512(y[j], nibble), high = _mm512_and_si512(_mm512_srli_epi16(y[j], 4), nibble);
        if (elem == KVB_IQ4_NL)
            low = iq4_nl_levels(low), high = iq4_nl_levels(high);
        _mm512_store_si512(to + 32 * j, beside ? _mm512_unpacklo_epi32(low, high) : low);
        _mm512_store_si512(to + 32 * j + 16, beside ? _mm512_unpackhi_epi32(low, high) : high);
    }
}

VEC_INLINE void values_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const int8_elem of = int8_elem_of(elem);
    const uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n, dim = s->dim, width = s->width;
    for (tile += i / 4 * width; i < end; i += 4, tile += width) {
        uint32_t c;
        const uint8_t *row[4];
        for (uint32_t j = 0; j < 4; j++)
            row[j] = rows->row[i + j < rows->n ? i + j : i]; /* past the last row any will do: its weight is 0 */
        if (of.bits == 4 && of.offset != 16) {
            for (c = 0; c + 128 <= dim; c += 128)
                nibbles_pack_four(elem, row, c, 128, tile + c);
            if (c < dim)
                nibbles_pack_four(elem, row, c, dim - c, tile + c);
        } else {
            for (c = 0; c + 64 <= dim; c += 64)
                values_pack_four(elem, row, c, 64, tile + c);
            if (c < dim)
                values_pack_four(elem, row, c, dim - c, tile + c);
        }
    }
}

#else

/* Byte 4 l + j of the result is byte 16 j + l. Dwords go first, so that each 128 bits have the bytes they need. */
VEC_INLINE __m512i bytes_by_four(__m512i x)
{
    const __m512i dwords = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i bytes = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(dwords, x), _mm512_broadcast_i32x4(bytes));
}

/* A dword of bytes_by_four() holds channels l, 16 + l, 32 + l, 48 + l, each for another vector. */
VEC_INLINE void values_pack_pair(__m512i a, __m512i b, __m512i offset, int32_t *to)
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

VEC_INLINE void values_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const __m512i offset = _mm512_set1_epi16(int8_elem_of(elem).offset);
    const uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n;
    for (tile += i / 2 * s->width; i < end; i += 2, tile += s->width) {
        const uint8_t *a = rows->row[i], *b = i + 1 < rows->n ? rows->row[i + 1] : a; /* weight 0 */
        for (uint32_t c = 0; c < s->width; c += 64)
            values_pack_pair(codes_load(elem, a, c, s->dim - c), codes_load(elem, b, c, s->dim - c), offset, tile + c);
    }
}

#endif

#endif
