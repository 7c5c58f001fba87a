/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 16 floats: AVX-512. */
#if !defined(KVB_VEC_H) && defined(__AVX512F__)
#define KVB_VEC_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define VL         16u
#define VEC_INLINE static inline __attribute__((always_inline))
typedef __m512 vf;

/* Blocks of products: rows x vectors of accumulators, in registers with what they are multiplied by. */
#define PRODUCT_ROWS 6u
#define PRODUCT_VECS 4u
#define SUMS_VECS    24u /* accumulators of sums() */
#define SUMS_ROWS    8u  /* at a time, at most */

VEC_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VEC_INLINE void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
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
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
} /* a * b + c */
VEC_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
} /* b where either is NaN */
VEC_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
} /* b where either is NaN */
/* Lane i of a where bit i is set, else of b. */
VEC_INLINE vf vf_select(uint32_t bits, vf a, vf b)
{
    return _mm512_mask_blend_ps((__mmask16)bits, b, a);
}
/* a where x is at least `least` or NaN, else 0. */
VEC_INLINE vf vf_drop_below(vf a, vf x, float least)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(least), _CMP_NLT_UQ), a);
}
VEC_INLINE bool vf_any_above(vf a, float x)
{
    return _mm512_cmp_ps_mask(a, _mm512_set1_ps(x), _CMP_GT_OQ);
} /* not of NaN */
VEC_INLINE float vf_largest(vf a)
{
    return _mm512_reduce_max_ps(a);
}
VEC_INLINE float vf_total(vf a)
{
    return _mm512_reduce_add_ps(a);
}
/* To the nearest whole number; 2^n x for whole n, 0 where that is too small. */
VEC_INLINE vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE vf vf_scale2(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

/*
 * Lane i of the result: the sum of the lanes of v[i]. A tree: chain 4. Each step takes two vectors to one by a blend, a
 * shuffle of what the blend left, and an addition: one operation of three on the port of the shuffles.
 */
VEC_INLINE __m512 totals_far(__m512 x, __m512 y) /* in each four lanes: 0 1 of x's sums, 2 3 of y's */
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, x, y), _mm512_shuffle_ps(x, y, 0x4e));
}
VEC_INLINE __m512 totals_near(__m512 x, __m512 y) /* lanes 0 2 of x's, 1 3 of y's */
{
    const __m512i other = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xaaaa, x, y), _mm512_permutex2var_ps(x, other, y));
}
VEC_INLINE __m512 fours_far(__m512 x, __m512 y) /* the same of fours of lanes */
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x, y), _mm512_shuffle_f32x4(x, y, 0x4e));
}
VEC_INLINE __m512 fours_near(__m512 x, __m512 y)
{
    const __m512i other = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, x, y), _mm512_permutex2var_ps(x, other, y));
}
VEC_INLINE vf vf_totals(const vf v[VL])
{
    __m512 four[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        four[i] = totals_near(totals_far(v[4 * i], v[4 * i + 2]), totals_far(v[4 * i + 1], v[4 * i + 3]));
    return fours_near(fours_far(four[0], four[2]), fours_far(four[1], four[3]));
}

/* Lane i of v[j] goes to lane j of v[i]. */
VEC_INLINE void vf_transpose(vf v[VL])
{
    __m512 a[16], b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) /* b[i+j]: in each four, lane j of rows i .. i+3 */
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512d x = _mm512_castps_pd(a[i + j]), y = _mm512_castps_pd(a[i + j + 2]);
            b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* a 4 x 4 transpose of fours */
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

#endif
