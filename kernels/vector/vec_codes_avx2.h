/* SPDX-License-Identifier: Apache-2.0 */
/* Codes in vectors of 8 lanes: AVX2. The functions are those of vec_codes_avx512.h. */
#if !defined(KVB_VEC_CODES_H) && defined(__AVX2__)
#define KVB_VEC_CODES_H

#include "kernels/vector/vec.h"

#include <stdbool.h>

#include <string.h>

typedef __m256i vcode;
typedef struct vbook {
    vf v[2];
} vbook;
#define BOOK_VECS 2u

VEC_INLINE int32_t vec_word(const uint8_t *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

VEC_INLINE vf vf_set_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

VEC_INLINE void bytes_part(const void *p, uint32_t n, uint8_t to[64])
{
    const uint8_t *from = p;
    memset(to, 0, 64);
    for (uint32_t i = 0; i < n; i++)
        to[i] = from[i];
}

VEC_INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
VEC_INLINE vf vf_load_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

VEC_INLINE vf vf_load_f16_part(const void *p, uint32_t n)
{
    _Alignas(64) uint8_t part[64];
    bytes_part(p, 2 * n, part);
    return vf_load_f16(part);
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
    /* the upper 8 codes: from the next word, or from one that holds them further up */
    uint32_t upper = bits == 4 ? 4 : bits == 3 ? 2 : 0;
    int skip = bits == 4 ? 0 : bits == 3 ? 8 : 16;
    code[0] = _mm256_srlv_epi32(_mm256_set1_epi32(vec_word(p)), shift);
    code[1] =
        _mm256_srlv_epi32(_mm256_set1_epi32(vec_word(p + upper)), _mm256_add_epi32(shift, _mm256_set1_epi32(skip)));
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

VEC_INLINE vbook book_load(const float *level)
{
    return (vbook){{_mm256_loadu_ps(level), _mm256_loadu_ps(level + 8)}};
}
VEC_INLINE vbook book_load8(const float *level)
{
    return (vbook){{_mm256_loadu_ps(level), _mm256_loadu_ps(level)}};
}
VEC_INLINE vf book_at(vbook b, vcode code)
{
    __m256 fourth = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)); /* in the sign, where a blend looks */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(b.v[0], code), _mm256_permutevar8x32_ps(b.v[1], code), fourth);
}
VEC_INLINE vf book_at5(vbook low, vbook high, vcode code, uint32_t fifths, uint32_t first)
{
    const __m256i lane = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    __m256i fifth = _mm256_sllv_epi32(_mm256_set1_epi32((int)(fifths >> first)), lane);
    return _mm256_blendv_ps(book_at(low, code), book_at(high, code), _mm256_castsi256_ps(fifth));
}

#define FP8_STEP 8u

VEC_INLINE void fp8_step(bool wide, const uint8_t *p, vf x[FP8_STEP / VL])
{
    __m128i code = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p));
    if (wide) {
        x[0] = _mm256_cvtph_ps(_mm_slli_epi16(code, 8));
        return;
    }
    const __m128i largest = _mm_set1_epi16(0x3f80);
    __m128i half = _mm_and_si128(_mm_slli_epi16(code, 7), _mm_set1_epi16((short)0xbf80));
    __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(half, largest), largest);
    half = _mm_or_si128(half, _mm_and_si128(nan, _mm_set1_epi16(0x7c00)));
    x[0] = _mm256_cvtph_ps(half) * _mm256_set1_ps(256.0f);
}

VEC_INLINE vf vf_load_e4m3_part(const uint8_t *p, uint32_t n)
{
    _Alignas(64) uint8_t part[64];
    vf x[FP8_STEP / VL];
    bytes_part(p, n, part);
    fp8_step(false, part, x);
    return x[0];
}

VEC_INLINE void heads_load(const uint8_t *p, size_t bytes, uint32_t n, float to[16])
{
    uint16_t heads[16] = {0};
    for (uint32_t i = 0; i < n; i++)
        memcpy(heads + 2 * i, p + i * bytes, 4);
    for (uint32_t i = 0; i < 2 * n; i += VL)
        vf_store(to + i, vf_load_f16(heads + i));
}

#endif
