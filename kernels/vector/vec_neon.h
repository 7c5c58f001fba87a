/* SPDX-License-Identifier: Apache-2.0 */
/* NEON of AArch64; DotProd and BF16 where the level has them. Vectors of 4 floats. */
#if !defined(KVB_VEC_LEVEL_H) && defined(__ARM_NEON)
#define KVB_VEC_LEVEL_H

#include <arm_neon.h>

#define VL 4u
typedef float32x4_t vf;
typedef int32x4_t vi;

VEC_INLINE vf vf_load(const float *p)
{
    return vld1q_f32(p);
}
VEC_INLINE void vf_store(float *p, vf a)
{
    vst1q_f32(p, a);
}
VEC_INLINE vf vf_set(float x)
{
    return vdupq_n_f32(x);
}
VEC_INLINE vf vf_where(uint32x4_t set, vf a, vf b)
{
    return vbslq_f32(set, a, b);
}
VEC_INLINE uint16x4_t vec_halves(const void *p) /* at any address */
{
    uint8x8_t b = vld1_u8(p);
    return vreinterpret_u16_u8(b);
}
VEC_INLINE vf vf_load_f16(const void *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vec_halves(p)));
}
VEC_INLINE vf vf_load_bf16(const void *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vec_halves(p), 16));
}
VEC_INLINE void vf_store_f16(void *p, vf a)
{
    vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(a)));
}
VEC_INLINE void vf_store_bf16(void *p, vf a)
{
    uint32x4_t bits = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    bits = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    bits = vbslq_u32(vceqq_f32(a, a), bits, vdupq_n_u32(0x7fc00000));
    vst1_u8(p, vreinterpret_u8_u16(vshrn_n_u32(bits, 16)));
}
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
VEC_INLINE vf vf_max(vf a, vf b)
{
    return vf_where(vcgtq_f32(a, b), a, b);
}
VEC_INLINE vf vf_min(vf a, vf b)
{
    return vf_where(vcltq_f32(a, b), a, b);
}
VEC_INLINE vf vf_select(uint32_t bits, vf a, vf b)
{
    const uint32x4_t each = {1, 2, 4, 8};
    return vf_where(vtstq_u32(vdupq_n_u32(bits), each), a, b);
}
VEC_INLINE vf vf_drop_below(vf a, vf x, float least)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vcltq_f32(x, vf_set(least))));
}
VEC_INLINE bool vf_any_above(vf a, float x)
{
    return vmaxvq_u32(vcgtq_f32(a, vf_set(x))) != 0;
}
VEC_INLINE float vf_largest(vf a)
{
    return vmaxnmvq_f32(a);
}
VEC_INLINE float vf_total(vf a)
{
    return vaddvq_f32(a);
}
VEC_INLINE vf vf_round(vf a)
{
    return vrndnq_f32(a);
}
VEC_INLINE vf vf_totals(const vf v[VL])
{
    return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
}
VEC_INLINE void vf_transpose(vf v[VL])
{
    vf a = vzip1q_f32(v[0], v[2]), b = vzip2q_f32(v[0], v[2]), c = vzip1q_f32(v[1], v[3]), d = vzip2q_f32(v[1], v[3]);
    v[0] = vzip1q_f32(a, c);
    v[1] = vzip2q_f32(a, c);
    v[2] = vzip1q_f32(b, d);
    v[3] = vzip2q_f32(b, d);
}

/* ---- Walsh-Hadamard within a vector ------------------------------------------------------------------------------ */

VEC_INLINE vf vf_upper_negated(vf v, uint32_t apart)
{
    const uint32x4_t one = {0, 1u << 31, 0, 1u << 31}, two = {0, 0, 1u << 31, 1u << 31};
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(v), apart == 1 ? one : two));
}
VEC_INLINE vf vf_partner(vf v, uint32_t apart)
{
    return apart == 1 ? vrev64q_f32(v) : vextq_f32(v, v, 2);
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

typedef uint32x4_t vcode;
typedef struct vbook {
    vf v[4];
} vbook;
#define BOOK_VECS 4u

VEC_INLINE vf vf_set_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
}

/* Four bytes at any address as numbers. */
VEC_INLINE uint32x4_t vec_bytes(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)))));
}
VEC_INLINE vf vf_load_u8(const uint8_t *p)
{
    return vcvtq_f32_u32(vec_bytes(p));
}
VEC_INLINE vf vf_load_i8(const uint8_t *p)
{
    return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(vreinterpretq_s32_u32(vec_bytes(p)), 24), 24));
}

VEC_INLINE vf vf_load_e8m0(const uint8_t *p)
{
    uint32x4_t code = vec_bytes(p), ends = vorrq_u32(vceqzq_u32(code), vceqq_u32(code, vdupq_n_u32(255)));
    return vreinterpretq_f32_u32(vorrq_u32(vshlq_n_u32(code, 23), vandq_u32(ends, vdupq_n_u32(0x400000))));
}

/* Each lane's word is shifted until its code is the lowest. */
VEC_INLINE void codes16(uint32_t bits, const uint8_t *p, vcode code[16 / VL])
{
    const int32_t b = (int32_t)bits;
    const vi down = {0, -b, -2 * b, -3 * b};
    uint64_t all = 0;
    memcpy(&all, p, 2 * bits);
    for (uint32_t i = 0; i < 16 / VL; i++)
        code[i] = vshlq_u32(vdupq_n_u32((uint32_t)(all >> 4 * bits * i)), down);
}

VEC_INLINE void bytes16(const uint8_t *p, vcode code[16 / VL])
{
    const uint8x16_t all = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(all)), high = vmovl_high_u8(all);
    code[0] = vmovl_u16(vget_low_u16(low));
    code[1] = vmovl_high_u16(low);
    code[2] = vmovl_u16(vget_low_u16(high));
    code[3] = vmovl_high_u16(high);
}
VEC_INLINE vcode code_above(vcode code)
{
    return vshrq_n_u32(code, 4);
}

/* Looks up bytes in a table of 64: byte j of a level is at 4 code + j. */
VEC_INLINE vf book_at(vbook b, vcode code)
{
    const uint8x16x4_t table = {{vreinterpretq_u8_f32(b.v[0]), vreinterpretq_u8_f32(b.v[1]),
                                 vreinterpretq_u8_f32(b.v[2]), vreinterpretq_u8_f32(b.v[3])}};
    uint32x4_t at = vmulq_u32(vandq_u32(code, vdupq_n_u32(15)), vdupq_n_u32(0x04040404));
    at = vaddq_u32(at, vdupq_n_u32(0x03020100));
    return vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_u32(at)));
}
#define FP8_STEP 16u

/* By way of f16. e5m2 is its upper byte. For e4m3 the sign goes to bit 15, the other bits to where they are 2^-8 of the
 * value; a product corrects that. */
VEC_INLINE void fp8_step(bool wide, const uint8_t *p, vf x[FP8_STEP / VL])
{
    const uint8x16_t code = vld1q_u8(p);
    for (uint32_t i = 0; i < 2; i++) {
        uint16x8_t half = vshll_n_u8(i ? vget_high_u8(code) : vget_low_u8(code), 8);
        if (!wide) {
            const uint16x8_t largest = vdupq_n_u16(0x3f80);
            half = vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(half), 1));
            half = vandq_u16(half, vdupq_n_u16(0xbf80));
            half = vorrq_u16(half, vandq_u16(vceqq_u16(vandq_u16(half, largest), largest), vdupq_n_u16(0x7e00)));
        }
        const vf factor = vf_set(wide ? 1.0f : 256.0f);
        vf low = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(half)));
        vf high = vcvt_high_f32_f16(vreinterpretq_f16_u16(half));
        x[2 * i] = wide ? low : low * factor;
        x[2 * i + 1] = wide ? high : high * factor;
    }
}

/* ---- 32-bit integers --------------------------------------------------------------------------------------------- */

VEC_INLINE vi vi_load(const int32_t *p)
{
    return vld1q_s32(p);
}
VEC_INLINE vi vi_set(int32_t x)
{
    return vdupq_n_s32(x);
}
VEC_INLINE vf vi_to_vf(vi a)
{
    return vcvtq_f32_s32(a);
}
VEC_INLINE void vf_store_i16(void *p, vf a, vf b)
{
    int16x8_t both = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a)), vmovn_s32(vcvtnq_s32_f32(b)));
    vst1q_u8(p, vreinterpretq_u8_s16(both));
}
VEC_INLINE vi vi_dot2(vi c, vi a, vi b)
{
    int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    return c + vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}
VEC_INLINE vi vi_size_max(vi most, vf a)
{
    return vmaxq_s32(most, vandq_s32(vreinterpretq_s32_f32(a), vdupq_n_s32(0x7fffffff)));
}
VEC_INLINE int32_t vi_largest(vi a)
{
    return vmaxvq_s32(a);
}
VEC_INLINE vf vf_weighted(vf p, vf x)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p * x), vceqzq_f32(p)));
}

#if defined(__ARM_FEATURE_DOTPROD)
/* c plus the products of four signed bytes in each lane. */
VEC_INLINE vi vi_dot4(vi c, vi a, vi b)
{
    return vdotq_s32(c, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}
#if defined(__ARM_FEATURE_MATMUL_INT8)
/* In each 128 bits: c plus the products of both halves of a, eight signed bytes each, with the first half of b and with
 * the second. */
VEC_INLINE vi vi_mmla(vi c, vi a, vi b)
{
    return vmmlaq_s32(c, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}
/* Eight bytes from each of two places, in each 128 bits. */
VEC_INLINE vi vi_halves(const void *a, const void *b)
{
    return vreinterpretq_s32_u8(vcombine_u8(vld1_u8(a), vld1_u8(b)));
}
/* The first halves of each 128 bits of a, then of b; or the second ones. */
VEC_INLINE vi vi_halves_of(vi a, vi b, bool second)
{
    int64x2_t x = vreinterpretq_s64_s32(a), y = vreinterpretq_s64_s32(b);
    return vreinterpretq_s32_s64(second ? vuzp2q_s64(x, y) : vuzp1q_s64(x, y));
}
/* Lanes of a and of b in turn, of the first halves of both or of the second. */
VEC_INLINE vf vf_zip(vf a, vf b, bool second)
{
    return second ? vzip2q_f32(a, b) : vzip1q_f32(a, b);
}
#endif
/* Whole numbers nearest to 64 floats, as bytes. */
VEC_INLINE void vf_store_i8(void *p, const vf *a)
{
    for (uint32_t i = 0; i < 4; i++, a += 4) {
        int16x8_t low = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a[0])), vmovn_s32(vcvtnq_s32_f32(a[1])));
        int16x8_t high = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a[2])), vmovn_s32(vcvtnq_s32_f32(a[3])));
        vst1q_s8((int8_t *)p + 16 * i, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    }
}
#endif

/* ---- pairs of bf16 ----------------------------------------------------------------------------------------------- */

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
/* c plus the products of the two bf16 in each lane. */
VEC_INLINE vi vi_dot_bf16(vi c, vi a, vi b)
{
    return vreinterpretq_s32_f32(
        vbfdotq_f32(vreinterpretq_f32_s32(c), vreinterpretq_bf16_s32(a), vreinterpretq_bf16_s32(b)));
}
/* The upper halves of a's lanes, then of b's. If the floats are exact as bf16, these are the bf16, in order. */
VEC_INLINE vi vi_upper_halves(vf a, vf b)
{
    return vreinterpretq_s32_u16(vuzp2q_u16(vreinterpretq_u16_f32(a), vreinterpretq_u16_f32(b)));
}
/* Lane i has the i-th half of a, and above it that of b; the second half of them if `high`. */
VEC_INLINE vi vi_zip_halves(vi a, vi b, bool high)
{
    uint16x8_t x = vreinterpretq_u16_s32(a), y = vreinterpretq_u16_s32(b);
    return vreinterpretq_s32_u16(high ? vzip2q_u16(x, y) : vzip1q_u16(x, y));
}
VEC_INLINE vf vf_where_equal(vf x, vf y, vf a, vf b)
{
    return vf_where(vceqq_f32(x, y), a, b);
}
#endif

#endif
