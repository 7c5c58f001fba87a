/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stored rows as vectors of 32 bf16, and products of pairs (AVX-512 BF16). `fp8` is a constant wherever a function takes it: rows
 * of E4M3 and E5M2, which differ by a table, or of BF16.
 */
#ifndef KVB_VECTOR_BF16_H
#define KVB_VECTOR_BF16_H

#include "kernels/vector/vector.h"

/* bf16_in_place.c has them, bf16_blocks.c puts them into its table. */
kvb_dots_fn kvb_bf16_dots;
kvb_sums_fn kvb_bf16_sums;

#if defined(__AVX512F__) && defined(__AVX512BF16__)
#include "kernels/vector/stored_floats.h"

#define E5M2_BF16(C)                                                                                                   \
    ((C) == 0     ? 0                                                                                                  \
     : (C) == 1   ? 0x3780                                                                                             \
     : (C) < 4    ? 0x3780 + (C)*64                                                                                    \
     : (C) < 0x7c ? 0x3800 + (C)*32                                                                                    \
     : (C) > 0x7c ? 0x7fc0                                                                                             \
                  : 0x7f80)
#define E5M2_LOW(C)  (uint8_t)(E5M2_BF16(C) & 255),
#define E5M2_HIGH(C) (uint8_t)(E5M2_BF16(C) >> 8),
static const _Alignas(64) uint8_t e5m2_low[128] = {FP8_ALL(E5M2_LOW)}, e5m2_high[128] = {FP8_ALL(E5M2_HIGH)};

/* The low and the high byte of the bf16 of each FP8 magnitude. */
typedef struct fp8_table {
    const uint8_t *low, *high;
} fp8_table;

static inline fp8_table fp8_table_of(kvb_elem elem)
{
    return elem == KVB_E5M2 ? (fp8_table){e5m2_low, e5m2_high} : (fp8_table){e4m3_low, e4m3_high};
}

/* Channels c .. c + 63 of a row; zeros from dim on, where no byte is read. */
VEC_INLINE void row_load(bool fp8, fp8_table table, const uint8_t *row, uint32_t c, uint32_t dim, __m512i x[2])
{
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); /* fp8_bf16() separates each 16 codes */
    const uint32_t n = dim - c < 64 ? dim - c : 64;
    const __mmask64 there = n < 64 ? ((__mmask64)1 << n) - 1 : ~(__mmask64)0;
    if (!fp8) {
        x[0] = _mm512_maskz_loadu_epi16((__mmask32)there, row + 2 * c);
        x[1] = n > 32 ? _mm512_maskz_loadu_epi16((__mmask32)(there >> 32), row + 2 * c + 64) : _mm512_setzero_si512();
        return;
    }
    __m512i code = _mm512_permutexvar_epi64(order, _mm512_maskz_loadu_epi8(there, row + c));
    fp8_bf16(table.low, table.high, code, x);
}

/* Dword i holds channel i of a and of b, i < 16; in pairs_high() channel 16 + i. */
VEC_INLINE __m512i pairs_low(__m512i a, __m512i b)
{
    const __m512i pairs = _mm512_setr_epi32(0x00200000, 0x00210001, 0x00220002, 0x00230003, 0x00240004, 0x00250005,
                                            0x00260006, 0x00270007, 0x00280008, 0x00290009, 0x002a000a, 0x002b000b,
                                            0x002c000c, 0x002d000d, 0x002e000e, 0x002f000f);
    return _mm512_permutex2var_epi16(a, pairs, b);
}
VEC_INLINE __m512i pairs_high(__m512i a, __m512i b)
{
    const __m512i pairs = _mm512_setr_epi32(0x00300010, 0x00310011, 0x00320012, 0x00330013, 0x00340014, 0x00350015,
                                            0x00360016, 0x00370017, 0x00380018, 0x00390019, 0x003a001a, 0x003b001b,
                                            0x003c001c, 0x003d001d, 0x003e001e, 0x003f001f);
    return _mm512_permutex2var_epi16(a, pairs, b);
}

/* 32 floats, rounded to bf16. */
VEC_INLINE void pairs_store(void *to, vf a, vf b)
{
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

/* c plus the products of pairs. Not by _mm512_dpbf16_ps(): its sums are of another type than vi, and gcc 12 keeps each twice. */
VEC_INLINE vi pairs_dot(vi c, vi tile, vi row)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(tile), "v"(row));
    return c;
}
/* With the row in memory. */
VEC_INLINE vi pairs_dot_at(vi c, vi tile, const void *row)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(tile), "m"(*(const vi *)row));
    return c;
}

#endif
#endif
