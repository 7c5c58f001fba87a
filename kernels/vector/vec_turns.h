/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walsh-Hadamard within a vector: stages of (a, b) -> (a + b, a - b) on lanes 1, 2, 4, ... apart, below `block` and VL. A
 * stage adds the partner's lane to the lane itself, negated where that is the upper of the two: b' = a + (-b).
 */
#ifndef KVB_VECTOR_VEC_TURNS_H
#define KVB_VECTOR_VEC_TURNS_H

#include "kernels/vector/vec.h"

#include <string.h>

/* v with the lanes negated whose index has the bit `apart`; lane i of the partner is lane i ^ apart. */
#if defined(__AVX512F__)
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
#elif defined(__AVX2__)
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
#else
VEC_INLINE vf vf_upper_negated(vf v, uint32_t apart)
{
    const vec_int one = {0, INT32_MIN, 0, INT32_MIN}, two = {0, 0, INT32_MIN, INT32_MIN};
    return (vf)((vec_int)v ^ (apart == 1 ? one : two));
}
VEC_INLINE vf vf_partner(vf v, uint32_t apart)
{
    return apart == 1 ? (vf){v[1], v[0], v[3], v[2]} : (vf){v[2], v[3], v[0], v[1]};
}
#endif

VEC_INLINE vf vf_stage(vf v, uint32_t apart)
{
    return vf_partner(v, apart) + vf_upper_negated(v, apart);
}

VEC_INLINE vf vf_turned(vf v, uint32_t block)
{
    if (block > 1)
        v = vf_stage(v, 1);
    if (block > 2)
        v = vf_stage(v, 2);
    if (VL > 4 && block > 4)
        v = vf_stage(v, VL > 4 ? 4 : 1);
    if (VL > 8 && block > 8)
        v = vf_stage(v, VL > 8 ? 8 : 1);
    return v;
}

#endif
