/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 F, BW, DQ, VL; VNNI and VBMI where the level has them. Vectors of 16 floats. */
#if !defined(KVB_VEC_LEVEL_H) && defined(__AVX512F__)
#define KVB_VEC_LEVEL_H

#include <immintrin.h>

#define VL 16u
typedef __m512 vf;

VEC_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
/* Without an intrinsic: after the intrinsic gcc reads all pointers and sizes again. */
typedef float vf_floats __attribute__((vector_size(64), aligned(4)));
VEC_INLINE void vf_store(float *p, vf a)
{
    *(vf_floats *)p = (vf_floats)a;
}
#define OWN_STREAM
VEC_INLINE void vf_stream(float *p, vf a)
{
    _mm512_stream_ps(p, a);
}
VEC_INLINE void vf_stream_end(void)
{
    _mm_sfence();
}
VEC_INLINE vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
VEC_INLINE vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
VEC_INLINE vf vf_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
VEC_INLINE void vf_store_f16(void *p, vf a)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
VEC_INLINE void vf_store_bf16(void *p, vf a)
{
    __m512i bits = _mm512_castps_si512(a), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    bits = _mm512_mask_mov_epi32(bits, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(bits));
}
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* Compilers would broadcast once for several products. With a broadcast for two products Zen 4 takes 1.21 cycles a
 * product; with one in each product, as here, 1.06. */
#define OWN_FMA_ONE
VEC_INLINE vf vf_fma_one(const float *a, vf b, vf c)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
}
VEC_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
VEC_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
VEC_INLINE vf vf_select(uint32_t bits, vf a, vf b)
{
    return _mm512_mask_blend_ps((__mmask16)bits, b, a);
}
VEC_INLINE vf vf_drop_below(vf a, vf x, float least)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(least), _CMP_NLT_UQ), a);
}
VEC_INLINE bool vf_any_above(vf a, float x)
{
    return _mm512_cmp_ps_mask(a, _mm512_set1_ps(x), _CMP_GT_OQ);
}
VEC_INLINE float vf_largest(vf a)
{
    return _mm512_reduce_max_ps(a);
}
VEC_INLINE float vf_total(vf a)
{
    return _mm512_reduce_add_ps(a);
}
VEC_INLINE vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#define OWN_SCALE2
VEC_INLINE vf vf_scale2(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

/*
 * vf_totals() as a tree of 4 additions. Each step joins two vectors by a blend, a shuffle of the lanes that the blend
 * left out, and an addition: only the shuffle needs the port of shuffles. If no such shuffle takes two vectors, these
 * lanes are blended first: beside multiply-adds Zen 4 loses half a cycle for each vpermt2ps, nothing for these two.
 */
VEC_INLINE __m512 totals_far(__m512 x, __m512 y) /* of each four lanes: lanes 0 and 1 have x's sums, 2 and 3 y's */
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, x, y), _mm512_shuffle_ps(x, y, 0x4e));
}
VEC_INLINE __m512 totals_near(__m512 x, __m512 y) /* lanes 0 and 2 have x's sums, 1 and 3 y's */
{
    const __m512 other = _mm512_mask_blend_ps(0x5555, x, y);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xaaaa, x, y), _mm512_permute_ps(other, 0xb1));
}
VEC_INLINE __m512 fours_far(__m512 x, __m512 y) /* as totals_far(), of groups of four lanes */
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x, y), _mm512_shuffle_f32x4(x, y, 0x4e));
}
VEC_INLINE __m512 fours_near(__m512 x, __m512 y)
{
    const __m512 other = _mm512_mask_blend_ps(0x0f0f, x, y);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, x, y), _mm512_shuffle_f32x4(other, other, 0xb1));
}
VEC_INLINE vf vf_totals(const vf v[VL])
{
    __m512 four[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        four[i] = totals_near(totals_far(v[4 * i], v[4 * i + 2]), totals_far(v[4 * i + 1], v[4 * i + 3]));
    return fours_near(fours_far(four[0], four[2]), fours_far(four[1], four[3]));
}

VEC_INLINE void vf_transpose(vf v[VL])
{
    __m512 a[16], b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) /* b[i+j]: in each four lanes, lane j of rows i .. i+3 */
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512d x = _mm512_castps_pd(a[i + j]), y = _mm512_castps_pd(a[i + j + 2]);
            b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* transpose 4 x 4 groups of four lanes */
        __m512 even_low = _mm512_shuffle_f32x4(b[j], b[j + 4], 0x88),
               odd_low = _mm512_shuffle_f32x4(b[j], b[j + 4], 0xdd);
        __m512 even_high = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0x88);
        __m512 odd_high = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0xdd);
        v[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
        v[j + 4] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
        v[j + 8] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
        v[j + 12] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
}

/* ---- Walsh-Hadamard within a vector ------------------------------------------------------------------------------ */

VEC_INLINE vf vf_upper_negated(vf v, uint32_t apart)
{
    const __mmask16 upper = apart == 1 ? 0xaaaa : apart == 2 ? 0xcccc : apart == 4 ? 0xf0f0 : 0xff00;
    return _mm512_mask_xor_ps(v, upper, v, _mm512_set1_ps(-0.0f));
}
VEC_INLINE vf vf_partner(vf v, uint32_t apart)
{
    return apart == 1   ? _mm512_permute_ps(v, 0xb1)
           : apart == 2 ? _mm512_permute_ps(v, 0x4e)
           : apart == 4 ? _mm512_shuffle_f32x4(v, v, 0xb1)
                        : _mm512_shuffle_f32x4(v, v, 0x4e);
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

#define OWN_BOOK_AT5
#define OWN_PARTS
#define OWN_HEADS
typedef __m512i vcode;
typedef struct vbook {
    vf v[1];
} vbook;
#define BOOK_VECS 1u

VEC_INLINE vf vf_set_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}

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

VEC_INLINE vf vf_load_f16_part(const void *p, uint32_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
}
VEC_INLINE vf vf_load_e8m0(const uint8_t *p)
{
    const __m512i quiet = _mm512_set1_epi32(0x400000); /* the bit of a quiet NaN, and 2^-127 as a subnormal */
    __m512i exponent = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)), 23);
    /* exponents of all ones or all zeros: minus 1, as unsigned numbers, they are 254 or more */
    __mmask16 ends = _mm512_cmpge_epu32_mask(_mm512_sub_epi32(exponent, _mm512_set1_epi32(1 << 23)),
                                             _mm512_set1_epi32((int)(254u << 23)));
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(exponent, ends, exponent, quiet));
}

/* Broadcasting loads bring each lane the word with its code. So the one port that moves data between lanes is free for
 * the look-ups. */
VEC_INLINE void codes16(uint32_t bits, const uint8_t *p, vcode code[16 / VL])
{
    const __m512i twos = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i threes = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 8, 11, 14, 17, 20, 23, 26, 29);
    const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    __m512i words = _mm512_set1_epi32(dword_at(p, 0));
    if (bits > 2) /* the upper 8 channels */
        words = _mm512_mask_set1_epi32(words, 0xff00, dword_at(p + (bits == 4 ? 4 : 2), 0));
    code[0] = _mm512_srlv_epi32(words, bits == 2 ? twos : bits == 3 ? threes : fours);
}

VEC_INLINE void bytes16(const uint8_t *p, vcode code[16 / VL])
{
    code[0] = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE vcode code_above(vcode code)
{
    return _mm512_srli_epi32(code, 4);
}

VEC_INLINE vbook book_load8(const float *level)
{
    return (vbook){{_mm512_broadcast_f32x8(_mm256_loadu_ps(level))}};
}
VEC_INLINE vf book_at(vbook b, vcode code)
{
    return _mm512_permutexvar_ps(code, b.v[0]);
}
VEC_INLINE vf book_at5(vbook low, vbook high, vcode code, uint32_t fifths, uint32_t first)
{
    /* bit first + i is rotated to bit 4, where the index of the look-up has its fifth */
    const __m512i lane = _mm512_setr_epi32(28, 29, 30, 31, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    __m512i rotated =
        _mm512_rorv_epi32(_mm512_set1_epi32((int)fifths), _mm512_add_epi32(lane, _mm512_set1_epi32((int)first)));
    __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi32(15), code, rotated, 0xca); /* low 4 bits from code */
    return _mm512_permutex2var_ps(low.v[0], index, high.v[0]);
}

/* By way of f16: the sign goes to bit 15, the rest to where it is 2^-8 of the value; a product corrects that. */
VEC_INLINE vf vf_load_e4m3_part(const uint8_t *p, uint32_t n)
{
    const __m256i largest = _mm256_set1_epi16(0x3f80);
    __m256i code = _mm256_cvtepi8_epi16(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p));
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16((short)0xbf80));
    __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(half, largest), largest);
    half = _mm256_mask_blend_epi16(nan, half, _mm256_or_si256(half, _mm256_set1_epi16(0x7c00)));
    return _mm512_cvtph_ps(half) * _mm512_set1_ps(256.0f);
}

VEC_INLINE void heads_load(const uint8_t *p, size_t bytes, uint32_t n, float to[16])
{
    __m256i heads = _mm256_set1_epi32(dword_at(p, 0));
    for (uint32_t i = 1; i < n; i++)
        heads = _mm256_mask_set1_epi32(heads, (__mmask8)(1u << i), dword_at(p + i * bytes, 0));
    _mm512_storeu_ps(to, _mm512_cvtph_ps(heads));
}

#if defined(__AVX512VBMI__)
/* Every e4m3 and e5m2 is a bf16: tables of the lower and the upper byte, by magnitude. FP8_ALL(X) is X(0) .. X(127). */
#define FP8_SIXTEEN(X, C)                                                                                              \
    X(C)                                                                                                               \
    X(C + 1)                                                                                                           \
    X(C + 2)                                                                                                           \
    X(C + 3)                                                                                                           \
    X(C + 4) X(C + 5) X(C + 6) X(C + 7) X(C + 8) X(C + 9) X(C + 10) X(C + 11) X(C + 12) X(C + 13) X(C + 14) X(C + 15)
#define FP8_ALL(X)                                                                                                     \
    FP8_SIXTEEN(X, 0)                                                                                                  \
    FP8_SIXTEEN(X, 16)                                                                                                 \
    FP8_SIXTEEN(X, 32) FP8_SIXTEEN(X, 48) FP8_SIXTEEN(X, 64) FP8_SIXTEEN(X, 80) FP8_SIXTEEN(X, 96) FP8_SIXTEEN(X, 112)
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

/* 64 codes as bf16: x[0] has the lower 8 of each 16, x[1] the upper. */
VEC_INLINE void fp8_bf16(const uint8_t low[128], const uint8_t high[128], __m512i code, __m512i x[2])
{
    __m512i lower = _mm512_permutex2var_epi8(_mm512_load_si512(low), code, _mm512_load_si512(low + 64));
    __m512i upper = _mm512_permutex2var_epi8(_mm512_load_si512(high), code, _mm512_load_si512(high + 64));
    upper = _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)0x80), code, upper, 0xca); /* the sign from the code */
    x[0] = _mm512_unpacklo_epi8(lower, upper);
    x[1] = _mm512_unpackhi_epi8(lower, upper);
}

/* fp8_bf16() turns codes in this order into dwords of channels i and 16 + i. */
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

/* e5m2 is the upper byte of an f16. */
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

/* ---- 32-bit integers --------------------------------------------------------------------------------------------- */

typedef int32_t vi __attribute__((vector_size(64)));

VEC_INLINE vi vi_load(const int32_t *p)
{
    return (vi)_mm512_loadu_si512(p);
}
VEC_INLINE vi vi_set(int32_t x)
{
    return (vi)_mm512_set1_epi32(x);
}
VEC_INLINE vf vi_to_vf(vi a)
{
    return _mm512_cvtepi32_ps((__m512i)a);
}
VEC_INLINE void vf_store_i16(void *p, vf a, vf b)
{
    const __m512i fours = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i both = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(fours, both));
}
#if defined(__AVX512VNNI__)
/* c plus the products of unsigned bytes and signed ones, added in fours. */
VEC_INLINE vi vi_dot4(vi c, vi bytes, vi whole)
{
    return (vi)_mm512_dpbusd_epi32((__m512i)c, (__m512i)bytes, (__m512i)whole);
}
VEC_INLINE int32_t vi_total(vi a)
{
    return _mm512_reduce_add_epi32((__m512i)a);
}
/* vf_store_i16() for four vectors, as bytes; adds them to the lanes of `sum`. */
VEC_INLINE vi vf_store_i8(void *p, const vf a[4], vi sum)
{
    const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a[0]), _mm512_cvtps_epi32(a[1]));
    __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(a[2]), _mm512_cvtps_epi32(a[3]));
    __m512i all = _mm512_permutexvar_epi32(fours, _mm512_packs_epi16(low, high));
    _mm512_storeu_si512(p, all);
    return vi_dot4(sum, vi_set(0x01010101), (vi)all);
}
#endif
VEC_INLINE vi vi_dot2(vi c, vi a, vi b)
{
    return c + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
VEC_INLINE vi vi_size_max(vi most, vf a)
{
    return (vi)_mm512_max_epi32((__m512i)most, _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)));
}
VEC_INLINE int32_t vi_largest(vi a)
{
    return _mm512_reduce_max_epi32((__m512i)a);
}
VEC_INLINE vf vf_weighted(vf p, vf x)
{
    return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_NEQ_UQ), p, x);
}

/* ---- columns of 16 rows ------------------------------------------------------------------------------------------ */

/* Lane 4 l + m of r[d] becomes dword d of the 16 bytes at `byte` of row[4 l + m]. */
VEC_INLINE void dwords_transpose(const uint8_t *const *row, size_t byte, __m512i r[4])
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

#endif
