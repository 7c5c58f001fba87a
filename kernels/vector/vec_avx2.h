/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2, FMA, F16C. Vectors of 8 floats. */
#if !defined(KVB_VEC_LEVEL_H) && defined(__AVX2__)
#define KVB_VEC_LEVEL_H

#include <immintrin.h>

#define VL 8u
typedef __m256 vf;

#define PRODUCT_ROWS 6u
#define PRODUCT_VECS 2u
#define SUMS_VECS    12u
#define SUMS_ROWS    6u /* strips of more would be one vector wide: 8 rows take 131 cycles a cell, twice 4 rows 78 */

VEC_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
#define KEPT_LOADS true /* there are 16 registers: gcc 12 takes an operand from memory for each use */
VEC_INLINE vf vf_load_kept(const float *p)
{
    vf x = vf_load(p);
    __asm__("" : "+x"(x));
    return x;
}
/* Without an intrinsic: after the intrinsic gcc reads all pointers and sizes again. */
typedef float vf_floats __attribute__((vector_size(32), aligned(4)));
VEC_INLINE void vf_store(float *p, vf a)
{
    *(vf_floats *)p = (vf_floats)a;
}
#define OWN_STREAM
VEC_INLINE void vf_stream(float *p, vf a)
{
    _mm256_stream_ps(p, a);
}
VEC_INLINE void vf_stream_end(void)
{
    _mm_sfence();
}
VEC_INLINE vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
VEC_INLINE vf vf_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
VEC_INLINE vf vf_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
VEC_INLINE void vf_store_f16(void *p, vf a)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
VEC_INLINE void vf_store_bf16(void *p, vf a)
{
    __m256i bits = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    bits = _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7fc0), _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
    bits = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0xd8);
    _mm_storeu_si128(p, _mm256_castsi256_si128(bits));
}
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
VEC_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
VEC_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
VEC_INLINE vf vf_select(uint32_t bits, vf a, vf b)
{
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), each), each);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(set));
}
VEC_INLINE vf vf_drop_below(vf a, vf x, float least)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, _mm256_set1_ps(least), _CMP_NLT_UQ), a);
}
VEC_INLINE bool vf_any_above(vf a, float x)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, _mm256_set1_ps(x), _CMP_GT_OQ));
}
VEC_INLINE float vf_largest(vf a)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
VEC_INLINE float vf_total(vf a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
VEC_INLINE vf vf_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE vf vf_totals(const vf v[VL])
{
    __m256 a[4], b[2];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_hadd_ps(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 2; i++) /* lane j of each 128 bits: the sum of those 128 bits of v[4i+j] */
        b[i] = _mm256_hadd_ps(a[2 * i], a[2 * i + 1]);
    return _mm256_add_ps(_mm256_permute2f128_ps(b[0], b[1], 0x20), _mm256_permute2f128_ps(b[0], b[1], 0x31));
}
VEC_INLINE void vf_transpose(vf v[VL])
{
    __m256 a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) /* b[i+j]: in each four lanes, lane j of rows i .. i+3 */
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm256_shuffle_ps(a[i + j], a[i + j + 2], 0x44);
            b[i + 2 * j + 1] = _mm256_shuffle_ps(a[i + j], a[i + j + 2], 0xee);
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_permute2f128_ps(b[j], b[j + 4], 0x20);
        v[j + 4] = _mm256_permute2f128_ps(b[j], b[j + 4], 0x31);
    }
}

/* ---- Walsh-Hadamard within a vector ------------------------------------------------------------------------------ */

VEC_INLINE vf vf_upper_negated(vf v, uint32_t apart)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), bit = _mm256_set1_epi32((int)apart);
    __m256i upper = _mm256_cmpeq_epi32(_mm256_and_si256(lane, bit), bit);
    return _mm256_xor_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(upper, 31)));
}
VEC_INLINE vf vf_partner(vf v, uint32_t apart)
{
    return apart == 1   ? _mm256_permute_ps(v, 0xb1)
           : apart == 2 ? _mm256_permute_ps(v, 0x4e)
                        : _mm256_permute2f128_ps(v, v, 1);
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

#define OWN_BOOK_AT5
typedef __m256i vcode;
typedef struct vbook {
    vf v[2];
} vbook;
#define BOOK_VECS 2u

VEC_INLINE vf vf_set_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

/* The elements are put together in registers. In a buffer, written in small pieces, the load of a whole vector would
 * wait. */
#define OWN_F16_PART
VEC_INLINE int64_t f16_up_to_4(const uint8_t *p, uint32_t n)
{
    uint64_t all = 0;
    uint32_t two = 0;
    uint16_t one = 0;
    if (n == 4) {
        memcpy(&all, p, 8);
        return (int64_t)all;
    }
    if (n & 2)
        memcpy(&two, p, 4);
    if (n & 1)
        memcpy(&one, p + (n & 2) * 2, 2);
    return (int64_t)(two | (uint64_t)one << (n & 2) * 16);
}
VEC_INLINE vf vf_load_f16_part(const void *p, uint32_t n)
{
    const uint8_t *from = p;
    return _mm256_cvtph_ps(n <= 4 ? _mm_cvtsi64_si128(f16_up_to_4(from, n))
                                  : _mm_set_epi64x(f16_up_to_4(from + 8, n - 4), f16_up_to_4(from, 4)));
}

VEC_INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
VEC_INLINE vf vf_load_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

VEC_INLINE vf vf_load_e8m0(const uint8_t *p)
{
    __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    __m256i ends = _mm256_or_si256(_mm256_cmpeq_epi32(code, _mm256_setzero_si256()),
                                   _mm256_cmpeq_epi32(code, _mm256_set1_epi32(255)));
    return _mm256_castsi256_ps(
        _mm256_or_si256(_mm256_slli_epi32(code, 23), _mm256_and_si256(ends, _mm256_set1_epi32(0x400000))));
}

VEC_INLINE void codes16(uint32_t bits, const uint8_t *p, vcode code[16 / VL])
{
    const __m256i each = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i shift = _mm256_mullo_epi32(each, _mm256_set1_epi32((int)bits));
    /* the upper 8 codes: from the next word, or from one that begins earlier and has them in higher bits */
    uint32_t upper = bits == 4 ? 4 : bits == 3 ? 2 : 0;
    int skip = bits == 4 ? 0 : bits == 3 ? 8 : 16;
    code[0] = _mm256_srlv_epi32(_mm256_set1_epi32(dword_at(p, 0)), shift);
    code[1] =
        _mm256_srlv_epi32(_mm256_set1_epi32(dword_at(p + upper, 0)), _mm256_add_epi32(shift, _mm256_set1_epi32(skip)));
}

VEC_INLINE void bytes16(const uint8_t *p, vcode code[16 / VL])
{
    code[0] = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    code[1] = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)));
}
VEC_INLINE vcode code_above(vcode code)
{
    return _mm256_srli_epi32(code, 4);
}

VEC_INLINE vf book_at(vbook b, vcode code)
{
    __m256 fourth =
        _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)); /* bit 3 moved to the sign, which selects in a blend */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(b.v[0], code), _mm256_permutevar8x32_ps(b.v[1], code), fourth);
}
VEC_INLINE vf book_at5(vbook low, vbook high, vcode code, uint32_t fifths, uint32_t first)
{
    const __m256i lane = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    __m256i fifth = _mm256_sllv_epi32(_mm256_set1_epi32((int)(fifths >> first)), lane);
    return _mm256_blendv_ps(book_at(low, code), book_at(high, code), _mm256_castsi256_ps(fifth));
}

/* At this level a look-up takes six instructions, and this fewer. */
#define OWN_NUMBERS
VEC_INLINE vf code_number(uint32_t bits, vcode code)
{
    return _mm256_cvtepi32_ps(_mm256_and_si256(code, _mm256_set1_epi32((1 << bits) - 1)));
}
VEC_INLINE vf code_number5(vcode code, uint32_t fifths, uint32_t first)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), fifth = _mm256_set1_epi32(16);
    __m256i bits = _mm256_srlv_epi32(_mm256_set1_epi32((int)(fifths >> first)), lane);
    code = _mm256_and_si256(code, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_or_si256(code, _mm256_and_si256(_mm256_slli_epi32(bits, 4), fifth)));
}

#define FP8_STEP 16u

VEC_INLINE void fp8_step(bool wide, const uint8_t *p, vf x[FP8_STEP / VL])
{
    const __m256i code = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)), largest = _mm256_set1_epi16(0x3f80);
    __m256i half = _mm256_slli_epi16(code, wide ? 8 : 7);
    if (!wide) {
        half = _mm256_and_si256(half, _mm256_set1_epi16((short)0xbf80));
        half = _mm256_or_si256(half, _mm256_cmpeq_epi16(_mm256_and_si256(half, largest), largest)); /* all ones: NaN */
    }
    const vf factor = _mm256_set1_ps(wide ? 1.0f : 256.0f);
    x[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(half)) * factor;
    x[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)) * factor;
}

/* ---- 32-bit integers --------------------------------------------------------------------------------------------- */

typedef int32_t vi __attribute__((vector_size(32)));

VEC_INLINE vi vi_load(const int32_t *p)
{
    return (vi)_mm256_loadu_si256((const __m256i *)(const void *)p);
}
VEC_INLINE vi vi_set(int32_t x)
{
    return (vi)_mm256_set1_epi32(x);
}
VEC_INLINE vf vi_to_vf(vi a)
{
    return _mm256_cvtepi32_ps((__m256i)a);
}
VEC_INLINE void vf_store_i16(void *p, vf a, vf b)
{
    __m256i both = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    _mm256_storeu_si256(p, _mm256_permute4x64_epi64(both, 0xd8));
}
VEC_INLINE vi vi_dot2(vi c, vi a, vi b)
{
    return c + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
/* c plus the products of unsigned bytes and signed ones, added in fours. */
VEC_INLINE vi vi_dot4(vi c, vi bytes, vi whole)
{
    const __m256i a = (__m256i)bytes, b = (__m256i)whole;
#if defined(__AVXVNNI__)
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)c, a, b);
#else
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8), odd = _mm256_srai_epi16(b, 8);
    c = vi_dot2(c, (vi)_mm256_and_si256(a, _mm256_set1_epi16(0xff)), (vi)even);
    return vi_dot2(c, (vi)_mm256_srli_epi16(a, 8), (vi)odd);
#endif
}
VEC_INLINE int32_t vi_total(vi a)
{
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}
/* vf_store_i16() for four vectors, as bytes; adds them to the lanes of `sum`. */
VEC_INLINE vi vf_store_i8(void *p, const vf a[4], vi sum)
{
    const __m256i fours = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_packs_epi32(_mm256_cvtps_epi32(a[0]), _mm256_cvtps_epi32(a[1]));
    __m256i high = _mm256_packs_epi32(_mm256_cvtps_epi32(a[2]), _mm256_cvtps_epi32(a[3]));
    __m256i all = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), fours);
    _mm256_storeu_si256(p, all);
    return vi_dot2(sum, (vi)_mm256_maddubs_epi16(_mm256_set1_epi8(1), all), vi_set(0x00010001));
}
VEC_INLINE vi vi_size_max(vi most, vf a)
{
    return (vi)_mm256_max_epi32((__m256i)most, _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff)));
}
VEC_INLINE int32_t vi_largest(vi a)
{
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}
VEC_INLINE vf vf_weighted(vf p, vf x)
{
    return _mm256_and_ps(_mm256_cmp_ps(p, _mm256_setzero_ps(), _CMP_NEQ_UQ), _mm256_mul_ps(p, x));
}

#endif
