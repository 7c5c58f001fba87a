/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of VL 32-bit integers, type vi, beside those of vec.h: what the integer products are written in.
 * TILE_CODES: codes in a dword of a tile. With VNNI four bytes, unsigned codes times signed whole numbers;
 * without it two of (code - offset) in 16 bits, as a multiplication of bytes that adds pairs in 16 bits would saturate.
 */
#ifndef KVB_VECTOR_INT8_LANES_H
#define KVB_VECTOR_INT8_LANES_H

#include <stddef.h>
#include <string.h>

#include "kernels/vector/vec.h"

#if defined(__AVX512VNNI__)
#define TILE_CODES 4u
#else
#define TILE_CODES 2u
#endif

#if defined(__AVX512F__)

/* Not __m512i, whose lanes have 64 bits: gcc 12 then keeps each accumulator twice. */
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
/* Whole numbers nearest to a, then those nearest to b (to even), as 16 bits. They must fit; else, and of NaN: anything. */
VEC_INLINE void vf_store_i16(void *p, vf a, vf b)
{
    const __m512i fours = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i both = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(fours, both));
}
#if defined(__AVX512VNNI__)
/* The same of four vectors as bytes; returns their sum. */
VEC_INLINE int32_t vf_store_i8(void *p, const vf a[4])
{
    const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a[0]), _mm512_cvtps_epi32(a[1]));
    __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(a[2]), _mm512_cvtps_epi32(a[3]));
    __m512i all = _mm512_permutexvar_epi32(fours, _mm512_packs_epi16(low, high));
    _mm512_storeu_si512(p, all);
    return _mm512_reduce_add_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), all));
}
#endif
/* c + products of 16-bit halves, added in pairs. */
VEC_INLINE vi vi_dot2(vi c, vi a, vi b)
{
    return c + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
/* Magnitudes as integers: in the order of floats, NaN above all. Exact to compare, whatever is among them. */
VEC_INLINE vi vi_size_max(vi most, vf a)
{
    return (vi)_mm512_max_epi32((__m512i)most, _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)));
}
VEC_INLINE int32_t vi_largest(vi a)
{
    return _mm512_reduce_max_epi32((__m512i)a);
}
/* p * x; 0 where p is, even if x is NaN. */
VEC_INLINE vf vf_weighted(vf p, vf x)
{
    return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_NEQ_UQ), p, x);
}

#elif defined(__AVX2__)

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

#else

typedef vec_int vi;

VEC_INLINE vi vi_load(const int32_t *p)
{
    vi a;
    memcpy(&a, p, sizeof a);
    return a;
}
VEC_INLINE vi vi_set(int32_t x)
{
    return (vi){x, x, x, x};
}
VEC_INLINE vf vi_to_vf(vi a)
{
    return (vf){(float)a[0], (float)a[1], (float)a[2], (float)a[3]};
}
VEC_INLINE void vf_store_i16(void *p, vf a, vf b)
{
    vf magic = vf_set(0x1.8p23f); /* the sum's lowest bits are the whole number's */
    vec_int whole[2] = {(vec_int)(a + magic), (vec_int)(b + magic)};
    uint16_t low[8];
    for (int i = 0; i < 8; i++)
        low[i] = (uint16_t)(uint32_t)whole[i / 4][i % 4];
    memcpy(p, low, sizeof low);
}
VEC_INLINE vi vi_dot2(vi c, vi a, vi b)
{
    return c + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
}
VEC_INLINE vi vi_size_max(vi most, vf a)
{
    vi size = (vi)a & 0x7fffffff, above = size > most;
    return (above & size) | (~above & most);
}
VEC_INLINE int32_t vi_largest(vi a)
{
    int32_t x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
}
VEC_INLINE vf vf_weighted(vf p, vf x)
{
    return (vf)((p != 0) & (vec_int)(p * x));
}

#endif

/* c + products of codes of a tile and as many whole numbers: bytes (codes unsigned, the others signed), or 16 bits. */
VEC_INLINE vi vi_dot_codes(vi c, vi codes, vi whole)
{
#if TILE_CODES == 4
    return (vi)_mm512_dpbusd_epi32((__m512i)c, (__m512i)codes, (__m512i)whole);
#else
    return vi_dot2(c, codes, whole);
#endif
}

/* The whole numbers nearest to 64 floats, side by side, as what codes are multiplied with. Their sum, where it is needed. */
VEC_INLINE int32_t whole_store(const vf *x, void *to)
{
#if TILE_CODES == 4
    return vf_store_i8(to, x);
#else
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 64 / VL; i += 2)
        vf_store_i16((int16_t *)to + i * VL, x[i], x[i + 1]);
    return 0;
#endif
}

/* Four halves, `apart` bytes from each other, one after the other. */
VEC_INLINE void four_halves_copy(void *to, const uint8_t *at, size_t apart)
{
    uint16_t h[4];
    for (uint32_t i = 0; i < 4; i++)
        memcpy(&h[i], at + i * apart, sizeof h[i]);
#if defined(__AVX2__) /* one store: four are slower */
    __m128i x = _mm_insert_epi16(_mm_insert_epi16(_mm_cvtsi32_si128(h[0]), h[1], 1), h[2], 2);
    _mm_storel_epi64(to, _mm_insert_epi16(x, h[3], 3));
#else
    memcpy(to, h, sizeof h);
#endif
}

/* Of VL times `groups` halves those of group g, as floats. */
VEC_INLINE vf vf_load_f16_each(const void *p, uint32_t groups, uint32_t g)
{
    uint16_t each[VL];
    if (groups == 1)
        return vf_load_f16(p);
#if defined(__AVX512BW__)
    const __m512i pairs = _mm512_setr_epi32(0x00010000, 0x00030002, 0x00050004, 0x00070006, 0x00090008, 0x000b000a,
                                            0x000d000c, 0x000f000e, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i at =
        _mm512_add_epi16(_mm512_mullo_epi16(pairs, _mm512_set1_epi16((short)groups)), _mm512_set1_epi16((short)g));
    __m512i low = _mm512_loadu_si512(p);
    if (groups == 2)
        return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutexvar_epi16(at, low)));
    if (groups == 4) {
        low = _mm512_permutex2var_epi16(low, at, _mm512_loadu_si512((const char *)p + sizeof low));
        return _mm512_cvtph_ps(_mm512_castsi512_si256(low));
    }
#endif
    for (uint32_t i = 0; i < VL; i++)
        memcpy(&each[i], (const char *)p + (i * groups + g) * sizeof *each, sizeof *each);
    return vf_load_f16(each);
}

/* The dword k of whatever p holds. */
VEC_INLINE int32_t dword_at(const void *p, size_t k)
{
    int32_t x;
    memcpy(&x, (const char *)p + k * sizeof x, sizeof x);
    return x;
}
VEC_INLINE float float_of_bits(int32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

#endif
