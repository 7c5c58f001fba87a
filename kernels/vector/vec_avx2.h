/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 8 floats: AVX2, FMA, F16C. The functions are those of vec_avx512.h. */
#if !defined(KVB_VEC_H) && defined(__AVX2__)
#define KVB_VEC_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define VL         8u
#define VEC_INLINE static inline __attribute__((always_inline))
typedef __m256 vf;

#define PRODUCT_ROWS 6u
#define PRODUCT_VECS 2u
#define SUMS_VECS    12u
#define SUMS_ROWS    6u /* strips of more would be a vector wide: 8 rows 131 cycles a cell, two times 4 of them 78 */

VEC_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VEC_INLINE void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
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
/* In two halves, so that neither factor overflows; below 2^-252 the factor is 0. */
VEC_INLINE vf vf_scale2(vf x, vf n)
{
    n = _mm256_max_ps(_mm256_min_ps(n, _mm256_set1_ps(254.0f)), _mm256_set1_ps(-254.0f));
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
    const __m256i bias = _mm256_set1_epi32(127);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
VEC_INLINE vf vf_totals(const vf v[VL])
{
    __m256 a[4], b[2];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_hadd_ps(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 2; i++) /* each half: lane j of v[4i+j], half sums */
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
    for (int i = 0; i < 8; i += 4) /* b[i+j]: in each four, lane j of rows i .. i+3 */
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

#endif
