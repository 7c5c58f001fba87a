/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 4 floats in the compiler's own vector types: any architecture. The functions are those of vec_avx512.h;
 * a multiply-add rounds twice. */
#ifndef KVB_VEC_H
#define KVB_VEC_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VL         4u
#define VEC_INLINE static inline __attribute__((always_inline))
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vec_int __attribute__((vector_size(16)));

#define PRODUCT_ROWS 4u
#define PRODUCT_VECS 2u
#define SUMS_VECS    8u
#define SUMS_ROWS    8u

VEC_INLINE vf vf_load(const float *p)
{
    vf a;
    memcpy(&a, p, sizeof a);
    return a;
}
VEC_INLINE void vf_store(float *p, vf a)
{
    memcpy(p, &a, sizeof a);
}
VEC_INLINE vf vf_set(float x)
{
    return (vf){x, x, x, x};
}
VEC_INLINE vf vf_of_bits(vec_int b)
{
    return (vf)b;
}
VEC_INLINE vf vf_where(vec_int set, vf a, vf b)
{
    return (vf)((set & (vec_int)a) | (~set & (vec_int)b));
}
VEC_INLINE vec_int vec_load_u16(const void *p)
{
    uint16_t h[4];
    memcpy(h, p, sizeof h);
    return (vec_int){h[0], h[1], h[2], h[3]};
}
/* The fields in their f32 places, the exponent's bias corrected by an exact product; infinities and NaN apart. */
VEC_INLINE vf vf_load_f16(const void *p)
{
    vec_int h = vec_load_u16(p), a = h & 0x7fff, sign = h << 16 & INT32_MIN;
    vec_int finite = (vec_int)(vf_of_bits(a << 13) * vf_set(0x1p112f));
    vec_int beyond = (a << 13) | 0x7f800000, is_beyond = a >= 0x7c00;
    return vf_of_bits((is_beyond & beyond) | (~is_beyond & finite) | sign);
}
VEC_INLINE vf vf_load_bf16(const void *p)
{
    return vf_of_bits(vec_load_u16(p) << 16);
}
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
VEC_INLINE vf vf_max(vf a, vf b)
{
    return vf_where(a > b, a, b);
}
VEC_INLINE vf vf_min(vf a, vf b)
{
    return vf_where(a < b, a, b);
}
VEC_INLINE vf vf_select(uint32_t bits, vf a, vf b)
{
    const vec_int each = {1, 2, 4, 8};
    return vf_where((each & (int32_t)bits) == each, a, b);
}
VEC_INLINE vf vf_drop_below(vf a, vf x, float least)
{
    return (vf)((vec_int)a & ~(x < least));
}
VEC_INLINE bool vf_any_above(vf a, float x)
{
    return a[0] > x || a[1] > x || a[2] > x || a[3] > x;
}
VEC_INLINE float vf_largest(vf a)
{
    float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
}
VEC_INLINE float vf_total(vf a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}
/* Below 2^22, and to even where half-way; beyond, a is whole enough for what it is used for. */
VEC_INLINE vf vf_round(vf a)
{
    vf magic = vf_set(0x1.8p23f);
    return vf_where((a < 0x1p22f) & (a > -0x1p22f), (a + magic) - magic, a);
}
VEC_INLINE vf vf_scale2(vf x, vf n)
{
    n = vf_where(n < 254.0f, n, vf_set(254.0f)); /* NaN too: it has no whole number, and is in x */
    n = vf_where(n > -254.0f, n, vf_set(-254.0f));
    vec_int whole = {(int32_t)n[0], (int32_t)n[1], (int32_t)n[2], (int32_t)n[3]}, half = whole >> 1;
    return x * vf_of_bits((half + 127) << 23) * vf_of_bits((whole - half + 127) << 23);
}
VEC_INLINE vf vf_totals(const vf v[VL])
{
    return (vf){vf_total(v[0]), vf_total(v[1]), vf_total(v[2]), vf_total(v[3])};
}
VEC_INLINE void vf_transpose(vf v[VL])
{
    vf a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), b = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
    vf c = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5), d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
    v[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    v[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    v[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    v[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

#endif
