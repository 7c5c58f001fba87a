/* SPDX-License-Identifier: Apache-2.0 */
/* Any architecture, in the compiler's own vector types. Vectors of 4 floats; a multiply-add rounds twice. */
#if !defined(KVB_VEC_LEVEL_H) && defined(KVB_VEC_H)
#define KVB_VEC_LEVEL_H

#include <math.h>

#include "kernels/convert.h"

#define VL 4u
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vec_int __attribute__((vector_size(16)));

#define PRODUCT_ROWS 4u
#define PRODUCT_VECS 2u
#define SUMS_VECS    8u
#define SUMS_ROWS    8u
#define ONE_WAY      /* of prefetching, for in_place.h: its loops take ten times as long as memory */

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
/* Moves the fields to their f32 places; an exact product corrects the exponent's bias. Infinities and NaN are handled
 * apart. */
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
VEC_INLINE void vf_store_f16(void *p, vf a)
{
    kvb_elems_encode_portable(KVB_F16, p, (const float *)&a, VL);
}
VEC_INLINE void vf_store_bf16(void *p, vf a)
{
    kvb_elems_encode_portable(KVB_BF16, p, (const float *)&a, VL);
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
/* Ties go to even. Numbers from 2^22 on are left as they are, which is enough here. */
VEC_INLINE vf vf_round(vf a)
{
    vf magic = vf_set(0x1.8p23f);
    return vf_where((a < 0x1p22f) & (a > -0x1p22f), (a + magic) - magic, a);
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

/* ---- Walsh-Hadamard within a vector ------------------------------------------------------------------------------ */

VEC_INLINE vf vf_upper_negated(vf v, uint32_t apart)
{
    const vec_int one = {0, INT32_MIN, 0, INT32_MIN}, two = {0, 0, INT32_MIN, INT32_MIN};
    return (vf)((vec_int)v ^ (apart == 1 ? one : two));
}
VEC_INLINE vf vf_partner(vf v, uint32_t apart)
{
    return apart == 1 ? (vf){v[1], v[0], v[3], v[2]} : (vf){v[2], v[3], v[0], v[1]};
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

typedef vec_int vcode;
typedef struct vbook {
    vf v[4];
} vbook;
#define BOOK_VECS 4u

VEC_INLINE vf vf_set_f16(const void *p)
{
    uint16_t h[4];
    memcpy(h, p, sizeof *h);
    h[1] = h[2] = h[3] = h[0];
    return vf_load_f16(h);
}

VEC_INLINE vf vec_as_floats(vec_int a)
{
    return __builtin_convertvector(a, vf);
}
VEC_INLINE vec_int vec_bytes(const uint8_t *p)
{
    return (vec_int){p[0], p[1], p[2], p[3]};
}
VEC_INLINE vf vf_load_u8(const uint8_t *p)
{
    return vec_as_floats(vec_bytes(p));
}
VEC_INLINE vf vf_load_i8(const uint8_t *p)
{
    return vec_as_floats(vec_bytes(p) << 24 >> 24);
}

VEC_INLINE vf vf_load_e8m0(const uint8_t *p)
{
    vec_int code = vec_bytes(p);
    return vf_of_bits(code << 23 | (((code == 0) | (code == 255)) & 0x400000));
}

VEC_INLINE void codes16(uint32_t bits, const uint8_t *p, vcode code[16 / VL])
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < 2 * bits; i++)
        all |= (uint64_t)p[i] << 8 * i;
    for (uint32_t i = 0; i < 16 / VL; i++, all >>= 4 * bits)
        code[i] = (vec_int){(int32_t)(all & 15), (int32_t)(all >> bits & 15), (int32_t)(all >> 2 * bits & 15),
                            (int32_t)(all >> 3 * bits & 15)};
}

VEC_INLINE void bytes16(const uint8_t *p, vcode code[16 / VL])
{
    for (uint32_t i = 0; i < 16 / VL; i++)
        code[i] = vec_bytes(p + 4 * i);
}
VEC_INLINE vcode code_above(vcode code)
{
    return code >> 4;
}

VEC_INLINE vf book_at(vbook b, vcode code)
{
    return (vf){b.v[code[0] >> 2 & 3][code[0] & 3], b.v[code[1] >> 2 & 3][code[1] & 3],
                b.v[code[2] >> 2 & 3][code[2] & 3], b.v[code[3] >> 2 & 3][code[3] & 3]};
}
#define FP8_STEP 4u

/* Normal numbers by moving their fields; subnormal ones are a whole number of steps. */
VEC_INLINE void fp8_step(bool wide, const uint8_t *p, vf x[FP8_STEP / VL])
{
    vec_int code = vec_bytes(p), a = code & 0x7f, sign = code << 24 & INT32_MIN;
    int32_t mantissa = wide ? 2 : 3, bias = wide ? 15 : 7;
    vf small = vec_as_floats(a) * vf_set(wide ? 0x1p-16f : 0x1p-9f);
    vf normal = vf_of_bits((a << (23 - mantissa)) + ((127 - bias) << 23));
    vf beyond = vf_of_bits(wide ? ((a & 3) << 21) | 0x7f800000 : (a & 0) | 0x7fc00000);
    vf size = vf_where(a < 1 << mantissa, small, vf_where(wide ? a >= 0x7c : a == 0x7f, beyond, normal));
    x[0] = vf_of_bits((vec_int)size | sign);
}

/* ---- 32-bit integers --------------------------------------------------------------------------------------------- */

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
    vf magic = vf_set(0x1.8p23f); /* the lowest bits of x + magic are those of the whole number */
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
