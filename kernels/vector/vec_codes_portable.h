/* SPDX-License-Identifier: Apache-2.0 */
/* Codes in vectors of 4 lanes of the compiler's own types. The functions are those of vec_codes_avx512.h. */
#ifndef KVB_VEC_CODES_H
#define KVB_VEC_CODES_H

#include "kernels/vector/vec.h"

#include <stdbool.h>

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

VEC_INLINE void bytes_part(const void *p, uint32_t n, uint8_t to[64])
{
    const uint8_t *from = p;
    memset(to, 0, 64);
    for (uint32_t i = 0; i < n; i++)
        to[i] = from[i];
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

VEC_INLINE vf vf_load_f16_part(const void *p, uint32_t n)
{
    _Alignas(64) uint8_t part[64];
    bytes_part(p, 2 * n, part);
    return vf_load_f16(part);
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

VEC_INLINE vbook book_load(const float *level)
{
    return (vbook){{vf_load(level), vf_load(level + 4), vf_load(level + 8), vf_load(level + 12)}};
}
VEC_INLINE vbook book_load8(const float *level)
{
    return (vbook){{vf_load(level), vf_load(level + 4), vf_load(level), vf_load(level + 4)}};
}
VEC_INLINE vf book_at(vbook b, vcode code)
{
    return (vf){b.v[code[0] >> 2 & 3][code[0] & 3], b.v[code[1] >> 2 & 3][code[1] & 3],
                b.v[code[2] >> 2 & 3][code[2] & 3], b.v[code[3] >> 2 & 3][code[3] & 3]};
}
VEC_INLINE vf book_at5(vbook low, vbook high, vcode code, uint32_t fifths, uint32_t first)
{
    return vf_select(fifths >> first, book_at(high, code), book_at(low, code));
}

#define FP8_STEP 4u

/* Normal numbers by moving the fields, those below by a product with their step. */
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
