/* SPDX-License-Identifier: Apache-2.0 */
/* Codes in vectors of 16 lanes: AVX-512 F, BW, DQ, VL, and VBMI for small floats. */
#if !defined(KVB_VEC_CODES_H) && defined(__AVX512F__)
#define KVB_VEC_CODES_H

#include "kernels/vector/vec.h"

#include <stdbool.h>

#include <string.h>

typedef __m512i vcode;
typedef struct vbook {
    vf v[1];
} vbook;
#define BOOK_VECS 1u

VEC_INLINE int32_t vec_word(const uint8_t *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* One f16 in every lane. */
VEC_INLINE vf vf_set_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}

/* The first n <= 64 bytes at p, zeros behind them; nothing else is read. */
VEC_INLINE void bytes_part(const void *p, uint32_t n, uint8_t to[64])
{
    __mmask64 some = n < 64 ? ((__mmask64)1 << n) - 1 : ~(__mmask64)0;
    _mm512_storeu_si512(to, _mm512_maskz_loadu_epi8(some, p));
}

VEC_INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
VEC_INLINE vf vf_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

/* n <= VL f16, zeros behind them; nothing else is read. */
VEC_INLINE vf vf_load_f16_part(const void *p, uint32_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
}
/* Powers of two, 2^(code - 127): the least is a subnormal; 255 is NaN. */
VEC_INLINE vf vf_load_e8m0(const uint8_t *p)
{
    const __m512i half = _mm512_set1_epi32(0x400000);
    __m512i exponent = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)), 23);
    /* 255 all ones, 0 all zeros: one less, as unsigned, is not below 254 */
    __mmask16 ends = _mm512_cmpge_epu32_mask(_mm512_sub_epi32(exponent, _mm512_set1_epi32(1 << 23)),
                                             _mm512_set1_epi32((int)(254u << 23)));
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(exponent, ends, exponent, half));
}

/* 16 codes of `bits` (2, 3 or 4) bits from 2 bits bytes: the words that hold a lane's code are spread by loads, which
 * leaves the one unit that moves between lanes to the look-ups. */
VEC_INLINE void codes16(uint32_t bits, const uint8_t *p, vcode code[16 / VL])
{
    const __m512i twos = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i threes = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 8, 11, 14, 17, 20, 23, 26, 29);
    const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    __m512i words = _mm512_set1_epi32(vec_word(p));
    if (bits > 2) /* the upper 8 channels */
        words = _mm512_mask_set1_epi32(words, 0xff00, vec_word(p + (bits == 4 ? 4 : 2)));
    code[0] = _mm512_srlv_epi32(words, bits == 2 ? twos : bits == 3 ? threes : fours);
}

/* 16 bytes as codes; the codes 4 bits above. */
VEC_INLINE void bytes16(const uint8_t *p, vcode code[16 / VL])
{
    code[0] = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE vcode code_above(vcode code)
{
    return _mm512_srli_epi32(code, 4);
}

/* A book of 16 levels, or of 8 twice. */
VEC_INLINE vbook book_load(const float *level)
{
    return (vbook){{_mm512_loadu_ps(level)}};
}
VEC_INLINE vbook book_load8(const float *level)
{
    return (vbook){{_mm512_broadcast_f32x8(_mm256_loadu_ps(level))}};
}
VEC_INLINE vf book_at(vbook b, vcode code)
{
    return _mm512_permutexvar_ps(code, b.v[0]);
}
/* Lane i: of `high` where bit first + i of `fifths` is set, else of `low`. */
VEC_INLINE vf book_at5(vbook low, vbook high, vcode code, uint32_t fifths, uint32_t first)
{
    /* bit first + i turned to where the index has its fifth */
    const __m512i lane = _mm512_setr_epi32(28, 29, 30, 31, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    __m512i turned =
        _mm512_rorv_epi32(_mm512_set1_epi32((int)fifths), _mm512_add_epi32(lane, _mm512_set1_epi32((int)first)));
    __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi32(15), code, turned, 0xca); /* 15: from code */
    return _mm512_permutex2var_ps(low.v[0], index, high.v[0]);
}

/* n <= VL e4m3, for scales: by way of f16, which has the fields one to the left and a bias that is more by 8. */
VEC_INLINE vf vf_load_e4m3_part(const uint8_t *p, uint32_t n)
{
    const __m256i largest = _mm256_set1_epi16(0x3f80);
    __m256i code = _mm256_cvtepi8_epi16(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p));
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16((short)0xbf80));
    __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(half, largest), largest);
    half = _mm256_mask_blend_epi16(nan, half, _mm256_or_si256(half, _mm256_set1_epi16(0x7c00)));
    return _mm512_cvtph_ps(half) * _mm512_set1_ps(256.0f);
}

/* d and m, or d and what follows it, of n <= 8 blocks that lie `bytes` apart: two floats a block. */
VEC_INLINE void heads_load(const uint8_t *p, size_t bytes, uint32_t n, float to[16])
{
    __m256i heads = _mm256_set1_epi32(vec_word(p));
    for (uint32_t i = 1; i < n; i++)
        heads = _mm256_mask_set1_epi32(heads, (__mmask8)(1u << i), vec_word(p + i * bytes));
    _mm512_storeu_ps(to, _mm512_cvtph_ps(heads));
}

#if defined(__AVX512VBMI__)
/* The two bytes of the bf16 that a magnitude is: every small float is one. X(0) .. X(127). */
#define FP8_TENS(X, C)                                                                                                 \
    X(C)                                                                                                               \
    X(C + 1)                                                                                                           \
    X(C + 2)                                                                                                           \
    X(C + 3)                                                                                                           \
    X(C + 4) X(C + 5) X(C + 6) X(C + 7) X(C + 8) X(C + 9) X(C + 10) X(C + 11) X(C + 12) X(C + 13) X(C + 14) X(C + 15)
#define FP8_ALL(X)                                                                                                     \
    FP8_TENS(X, 0)                                                                                                     \
    FP8_TENS(X, 16)                                                                                                    \
    FP8_TENS(X, 32) FP8_TENS(X, 48) FP8_TENS(X, 64) FP8_TENS(X, 80) FP8_TENS(X, 96) FP8_TENS(X, 112)
#define E4M3_BF16(C)                                                                                                   \
    ((C) == 0      ? 0                                                                                                 \
     : (C) == 1    ? 0x3b00                                                                                            \
     : (C) < 4     ? 0x3b00 + (C)*64                                                                                   \
     : (C) < 8     ? 0x3b80 + (C)*32                                                                                   \
     : (C) == 0x7f ? 0x7fc0                                                                                            \
                   : 0x3c00 + (C)*16)
#define E4M3_LOW(C)  (uint8_t)(E4M3_BF16(C) & 255),
#define E4M3_HIGH(C) (uint8_t)(E4M3_BF16(C) >> 8),
static const _Alignas(64) uint8_t e4m3_low[128] = {FP8_ALL(E4M3_LOW)}, e4m3_high[128] = {FP8_ALL(E4M3_HIGH)};

/* 64 codes as bf16, the lower and the upper 8 of each 16. */
VEC_INLINE void fp8_bf16(const uint8_t low[128], const uint8_t high[128], __m512i code, __m512i x[2])
{
    __m512i lower = _mm512_permutex2var_epi8(_mm512_load_si512(low), code, _mm512_load_si512(low + 64));
    __m512i upper = _mm512_permutex2var_epi8(_mm512_load_si512(high), code, _mm512_load_si512(high + 64));
    upper = _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)0x80), code, upper, 0xca); /* the sign from the code */
    x[0] = _mm512_unpacklo_epi8(lower, upper);
    x[1] = _mm512_unpackhi_epi8(lower, upper);
}

/* The order in which bytes of two tables, interleaved lane by lane, become pairs of channels i and 16 + i. */
#define FP8_ORDER(L, H)                                                                                                \
    32 * H + 4 * L, 32 * H + 4 * L + 16, 32 * H + 4 * L + 1, 32 * H + 4 * L + 17, 32 * H + 4 * L + 2,                  \
        32 * H + 4 * L + 18, 32 * H + 4 * L + 3, 32 * H + 4 * L + 19,
static const _Alignas(64) uint8_t fp8_order[64] = {FP8_ORDER(0, 0) FP8_ORDER(0, 1) FP8_ORDER(1, 0) FP8_ORDER(1, 1)
                                                       FP8_ORDER(2, 0) FP8_ORDER(2, 1) FP8_ORDER(3, 0) FP8_ORDER(3, 1)};

VEC_INLINE void e4m3_64(const uint8_t *p, vf x[4])
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i pairs[2];
    fp8_bf16(e4m3_low, e4m3_high, _mm512_permutexvar_epi8(_mm512_load_si512(fp8_order), _mm512_loadu_si512(p)), pairs);
    x[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs[0], 16));
    x[1] = _mm512_castsi512_ps(_mm512_and_si512(pairs[0], upper));
    x[2] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs[1], 16));
    x[3] = _mm512_castsi512_ps(_mm512_and_si512(pairs[1], upper));
}
#else
VEC_INLINE void e4m3_64(const uint8_t *p, vf x[4])
{
    const __m512i largest = _mm512_set1_epi16(0x3f80);
    for (int i = 0; i < 4; i += 2) {
        __m512i code = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(p + 16 * i)));
        __m512i half = _mm512_and_si512(_mm512_slli_epi16(code, 7), _mm512_set1_epi16((short)0xbf80));
        __mmask32 nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(half, largest), largest);
        half = _mm512_mask_mov_epi16(half, nan, _mm512_set1_epi16(0x7e00));
        x[i] = _mm512_cvtph_ps(_mm512_castsi512_si256(half)) * _mm512_set1_ps(256.0f);
        x[i + 1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)) * _mm512_set1_ps(256.0f);
    }
}
#endif

#define FP8_STEP 64u

/* FP8_STEP elements; wide: e5m2, which is the upper half of an f16, else e4m3. */
VEC_INLINE void fp8_step(bool wide, const uint8_t *p, vf x[FP8_STEP / VL])
{
    if (!wide) {
        e4m3_64(p, x);
        return;
    }
    for (int i = 0; i < 4; i += 2) {
        __m512i half = _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(p + 16 * i))), 8);
        x[i] = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
        x[i + 1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
    }
}

#endif
