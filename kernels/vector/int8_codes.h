/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of a row as unsigned bytes, in the order of channels, whatever the format's bits and blocks. */
#ifndef KVB_VECTOR_INT8_CODES_H
#define KVB_VECTOR_INT8_CODES_H

#include <string.h>

#include "kernels/vector/int8_shape.h"
#include "kernels/vector/vec.h"

#define CODES_INLINE static inline __attribute__((always_inline))

/* ggml's kvalues_iq4nl, 128 added. */
#define IQ4_NL_BYTES 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241

#if defined(__AVX512BW__)
#include <immintrin.h>

CODES_INLINE __m512i iq4_nl_levels(__m512i nibbles)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103,
                                                                    -90, -75, -59, -39, -15)),
                               nibbles);
}

/* Nibbles of two blocks of 32 channels (the second only if there is one): low ones first, then high ones. */
CODES_INLINE __m512i nibbles_of_blocks(const uint8_t *first, const uint8_t *second, bool both)
{
    const __m512i down = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
    __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)first));
    if (both)
        x = _mm512_mask_broadcast_i32x4(x, 0xff00, _mm_loadu_si128((const __m128i *)(const void *)second));
    return _mm512_and_si512(_mm512_srlv_epi64(x, down), _mm512_set1_epi8(15));
}

/*
 * Codes of channels c .. c+63 of a row; of the first n only when n is less (the others: anything). c: a multiple of 64,
 * n: of 16, or of 32 where codes have less than 8 bits. No byte is read beyond those n.
 */
CODES_INLINE __m512i codes_load(kvb_elem elem, const uint8_t *row, uint32_t c, uint32_t n)
{
    const int8_elem of = int8_elem_of(elem);
    uint64_t held = n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0);

    if (!of.block_bytes && of.bits == 8) {
        __m512i x = _mm512_maskz_loadu_epi8(held, row + c);
        return elem == KVB_INT8 ? _mm512_xor_si512(x, _mm512_set1_epi8(-128)) : x;
    }
    if (elem == KVB_UINT4) { /* a byte to 16 bits, its upper half moved to the upper byte */
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
    if (of.offset == 16) { /* bit j of the word before the nibbles is the fifth of code j */
        uint32_t fifth[2] = {0, 0};
        memcpy(&fifth[0], first + of.codes_at - 4, 4);
        if (both)
            memcpy(&fifth[1], second + of.codes_at - 4, 4);
        x = _mm512_mask_add_epi8(x, (uint64_t)fifth[1] << 32 | fifth[0], x, _mm512_set1_epi8(16));
    }
    return x;
}

#else

typedef uint8_t sixteen __attribute__((vector_size(16)));

CODES_INLINE sixteen iq4_nl_of(sixteen nibbles)
{
    static const uint8_t levels[16] = {IQ4_NL_BYTES};
#if defined(__AVX2__)
    return (sixteen)_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)levels), (__m128i)nibbles);
#else
    uint8_t x[16];
    memcpy(x, &nibbles, sizeof x);
    for (uint32_t j = 0; j < 16; j++)
        x[j] = levels[x[j]];
    memcpy(&nibbles, x, sizeof x);
    return nibbles;
#endif
}

CODES_INLINE void nibbles_of_block(kvb_elem elem, const uint8_t *restrict block, uint8_t *restrict codes)
{
    const uint64_t each = 0x0101010101010101u;
    const int8_elem of = int8_elem_of(elem);
    sixteen both, low, high;

    memcpy(&both, block + of.codes_at, sizeof both);
    low = both & 15;
    high = both >> 4;
    if (elem == KVB_IQ4_NL)
        low = iq4_nl_of(low), high = iq4_nl_of(high);
    memcpy(codes, &low, sizeof low);
    memcpy(codes + 16, &high, sizeof high);
    if (of.offset != 16)
        return;
    for (uint32_t j = 0; j < 4; j++) { /* eight fifth bits, each to bit 4 of a byte */
        uint64_t eight, bits = (block[of.codes_at - 4 + j] * each) & 0x8040201008040201u;
        memcpy(&eight, codes + 8 * j, sizeof eight);
        eight |= (bits + 0x7f * each) >> 3 & 0x10 * each;
        memcpy(codes + 8 * j, &eight, sizeof eight);
    }
}

/* Codes of a whole row. */
CODES_INLINE void codes_read(kvb_elem elem, const uint8_t *restrict row, uint32_t dim, uint8_t *restrict codes)
{
    const int8_elem of = int8_elem_of(elem);
    if (of.block_bytes && of.bits == 4) {
        for (uint32_t c = 0; c < dim; c += 32)
            nibbles_of_block(elem, row + c / 32 * of.block_bytes, codes + c);
    } else if (of.block_bytes) {
        for (uint32_t c = 0; c < dim; c += 32)
            memcpy(codes + c, row + c / 32 * of.block_bytes + of.codes_at, 32);
        for (uint32_t c = 0; c < dim; c++)
            codes[c] ^= 0x80;
    } else if (of.bits == 8) {
        for (uint32_t c = 0; c < dim; c++)
            codes[c] = elem == KVB_INT8 ? row[c] ^ 0x80 : row[c];
    } else if (of.bits == 4) {
        for (uint32_t c = 0; c < dim / 2; c++) {
            codes[2 * c] = row[c] & 15;
            codes[2 * c + 1] = row[c] >> 4;
        }
    } else {
        for (uint32_t c = 0; c < dim / 4; c++)
            for (uint32_t j = 0; j < 4; j++)
                codes[4 * c + j] = row[c] >> 2 * j & 3;
    }
}

#endif
#endif
