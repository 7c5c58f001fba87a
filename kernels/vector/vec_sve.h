/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SVE at the vector length that is compiled for: 4, 8 or 16 floats (__ARM_FEATURE_SVE_BITS). At a fixed length SVE's
 * vectors are vector types of the compiler, vf and vi. Nothing here needs SVE2's integer and text instructions.
 */
#if !defined(KVB_VEC_LEVEL_H) && defined(__ARM_FEATURE_SVE)
#define KVB_VEC_LEVEL_H

#include <arm_sve.h>

#define VL (__ARM_FEATURE_SVE_BITS / 32u)
typedef svfloat32_t vf __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
typedef svint32_t vi __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
typedef svuint32_t vcode __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));

#define ALL           svptrue_b32()
#define FIRST(n)      svwhilelt_b32_u32(0, n) /* lanes below n */
#define LANE          svindex_u32(0, 1)
#define AS_F32(x)     svreinterpret_f32_u32(x)
#define AS_U32(x)     svreinterpret_u32_f32(x)
#define HALVES_F32(x) svcvt_f32_f16_x(ALL, svreinterpret_f16_u32(x)) /* the f16 in the lower half of each lane */

VEC_INLINE vf vf_load(const float *p)
{
    return svld1_f32(ALL, p);
}
VEC_INLINE void vf_store(float *p, vf a)
{
    svst1_f32(ALL, p, a);
}
VEC_INLINE vf vf_set(float x)
{
    return svdup_n_f32(x);
}
VEC_INLINE vf vf_load_f16(const void *p)
{
    return HALVES_F32(svld1uh_u32(ALL, p));
}
VEC_INLINE vf vf_load_bf16(const void *p)
{
    return AS_F32(svlsl_n_u32_x(ALL, svld1uh_u32(ALL, p), 16));
}
VEC_INLINE void vf_store_f16(void *p, vf a)
{
    svst1h_u32(ALL, p, svreinterpret_u32_f16(svcvt_f16_f32_x(ALL, a)));
}
VEC_INLINE void vf_store_bf16(void *p, vf a)
{
    svuint32_t bits = AS_U32(a), odd = svand_n_u32_x(ALL, svlsr_n_u32_x(ALL, bits, 16), 1);
    bits = svadd_u32_x(ALL, bits, svadd_n_u32_x(ALL, odd, 0x7fff));
    bits = svsel_u32(svcmpuo_f32(ALL, a, a), svdup_n_u32(0x7fc00000), bits);
    svst1h_u32(ALL, p, svlsr_n_u32_x(ALL, bits, 16));
}
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return svmla_f32_x(ALL, c, a, b);
}
VEC_INLINE vf vf_max(vf a, vf b)
{
    return svsel_f32(svcmpgt_f32(ALL, a, b), a, b);
}
VEC_INLINE vf vf_min(vf a, vf b)
{
    return svsel_f32(svcmplt_f32(ALL, a, b), a, b);
}
VEC_INLINE vf vf_select(uint32_t bits, vf a, vf b)
{
    const svuint32_t each = svlsl_u32_x(ALL, svdup_n_u32(1), LANE);
    return svsel_f32(svcmpne_n_u32(ALL, svand_n_u32_x(ALL, each, bits), 0), a, b);
}
VEC_INLINE vf vf_drop_below(vf a, vf x, float least)
{
    return svsel_f32(svcmplt_n_f32(ALL, x, least), svdup_n_f32(0), a);
}
VEC_INLINE bool vf_any_above(vf a, float x)
{
    return svptest_any(ALL, svcmpgt_n_f32(ALL, a, x));
}
VEC_INLINE float vf_largest(vf a)
{
    return svmaxnmv_f32(ALL, a);
}
VEC_INLINE float vf_total(vf a)
{
    return svaddv_f32(ALL, a);
}
VEC_INLINE vf vf_round(vf a)
{
    return svrintn_f32_x(ALL, a);
}
#define OWN_SCALE2
VEC_INLINE vf vf_scale2(vf x, vf n)
{
    return svscale_f32_x(ALL, x, svcvt_s32_f32_x(ALL, n));
}
/* Sums of neighbouring lanes, first of a, then of b. */
VEC_INLINE vf vf_pair_sums(vf a, vf b)
{
    return svadd_f32_x(ALL, svuzp1_f32(a, b), svuzp2_f32(a, b));
}
VEC_INLINE vf vf_totals(const vf v[VL])
{
    vf sum[VL];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < VL; i++)
        sum[i] = v[i];
#pragma GCC unroll 4
    for (uint32_t n = VL / 2; n; n /= 2)
#pragma GCC unroll 8
        for (uint32_t i = 0; i < n; i++)
            sum[i] = vf_pair_sums(sum[2 * i], sum[2 * i + 1]);
    return sum[0];
}
/* Each turn interleaves the lanes of the vectors' first half with those of the second. */
VEC_INLINE void vf_transpose(vf v[VL])
{
#pragma GCC unroll 4
    for (uint32_t n = VL; n > 1; n /= 2) {
        vf from[VL];
#pragma GCC unroll 16
        for (uint32_t i = 0; i < VL; i++)
            from[i] = v[i];
#pragma GCC unroll 8
        for (uint32_t i = 0; i < VL / 2; i++) {
            v[2 * i] = svzip1_f32(from[i], from[i + VL / 2]);
            v[2 * i + 1] = svzip2_f32(from[i], from[i + VL / 2]);
        }
    }
}

/* ---- Walsh-Hadamard within a vector ------------------------------------------------------------------------------ */

VEC_INLINE vf vf_upper_negated(vf v, uint32_t apart)
{
    return svneg_f32_m(v, svcmpne_n_u32(ALL, svand_n_u32_x(ALL, LANE, apart), 0), v);
}
VEC_INLINE vf vf_partner(vf v, uint32_t apart)
{
    return svtbl_f32(v, sveor_n_u32_x(ALL, LANE, apart));
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

#define OWN_PARTS
typedef struct vbook {
    vf v[16 / VL];
} vbook;
#define BOOK_VECS (16 / VL)

VEC_INLINE vf vf_set_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return HALVES_F32(svdup_n_u32(h));
}

VEC_INLINE void bytes_part(const void *p, uint32_t n, uint8_t to[64])
{
    for (uint32_t i = 0; i < 64; i += 4 * VL)
        svst1_u8(svptrue_b8(), to + i, svld1_u8(svwhilelt_b8_u32(i, n), (const uint8_t *)p + i));
}

VEC_INLINE vf vf_load_u8(const uint8_t *p)
{
    return svcvt_f32_u32_x(ALL, svld1ub_u32(ALL, p));
}
VEC_INLINE vf vf_load_i8(const uint8_t *p)
{
    return svcvt_f32_s32_x(ALL, svld1sb_s32(ALL, (const int8_t *)p));
}

VEC_INLINE vf vf_load_f16_part(const void *p, uint32_t n)
{
    return HALVES_F32(svld1uh_u32(FIRST(n), p));
}
VEC_INLINE vf vf_load_e8m0(const uint8_t *p)
{
    svuint32_t code = svld1ub_u32(ALL, p), exponent = svlsl_n_u32_x(ALL, code, 23);
    svbool_t ends = svcmpge_n_u32(ALL, svsub_n_u32_x(ALL, code, 1), 254); /* 0 and 255 */
    return AS_F32(svorr_n_u32_m(ends, exponent, 0x400000));
}

/* Each lane's word is shifted until its code is the lowest. */
VEC_INLINE void codes16(uint32_t bits, const uint8_t *p, vcode code[16 / VL])
{
    uint64_t all = 0;
    memcpy(&all, p, 2 * bits);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 16; i += VL) { /* of 16 codes of 4 bits the upper half does not fit the word */
        const svuint32_t words = svsel_u32(svcmplt_n_u32(ALL, LANE, 8), svdup_n_u32((uint32_t)(all >> bits * i)),
                                           svdup_n_u32((uint32_t)(all >> bits * 8)));
        code[i / VL] = svlsr_u32_x(ALL, words, svmul_n_u32_x(ALL, svand_n_u32_x(ALL, LANE, 7), bits));
    }
}

VEC_INLINE void bytes16(const uint8_t *p, vcode code[16 / VL])
{
    for (uint32_t i = 0; i < 16; i += VL)
        code[i / VL] = svld1ub_u32(ALL, p + i);
}
VEC_INLINE vcode code_above(vcode code)
{
    return svlsr_n_u32_x(ALL, code, 4);
}

VEC_INLINE vbook book_load8(const float *level)
{
    vbook b;
    for (uint32_t i = 0; i < BOOK_VECS; i++)
        b.v[i] = VL > 8 ? (vf)svtbl_f32(svld1_f32(FIRST(8), level), svand_n_u32_x(ALL, LANE, 7))
                        : vf_load(level + i * VL % 8);
    return b;
}
/* Each look-up gives 0 where the index is beyond its vector, so they are joined by `or`. */
VEC_INLINE vf book_at(vbook b, vcode code)
{
    const svuint32_t at = svand_n_u32_x(ALL, code, 15);
    svuint32_t x = AS_U32(svtbl_f32(b.v[0], at));
#pragma GCC unroll 4
    for (uint32_t i = 1; i < BOOK_VECS; i++)
        x = svorr_u32_x(ALL, x, AS_U32(svtbl_f32(b.v[i], svsub_n_u32_x(ALL, at, i * VL))));
    return AS_F32(x);
}
#define FP8_STEP 16u

/* By way of f16. e5m2 is its upper byte. For e4m3 the sign goes to bit 15, the other bits to where they are 2^-8 of the
 * value; a product corrects that. */
VEC_INLINE vf fp8_floats(bool wide, svint32_t code)
{
    const uint32_t largest = 0x3f80;
    svuint32_t half = svreinterpret_u32_s32(svlsl_n_s32_x(ALL, code, wide ? 8 : 7));
    if (wide)
        return HALVES_F32(half);
    half = svand_n_u32_x(ALL, half, 0xbf80);
    half = svorr_n_u32_m(svcmpeq_n_u32(ALL, svand_n_u32_x(ALL, half, largest), largest), half, 0x7e00);
    return svmul_n_f32_x(ALL, HALVES_F32(half), 256);
}
VEC_INLINE void fp8_step(bool wide, const uint8_t *p, vf x[FP8_STEP / VL])
{
    for (uint32_t i = 0; i < FP8_STEP; i += VL)
        x[i / VL] = fp8_floats(wide, svld1sb_s32(ALL, (const int8_t *)p + i));
}
VEC_INLINE vf vf_load_e4m3_part(const uint8_t *p, uint32_t n)
{
    return fp8_floats(false, svld1sb_s32(FIRST(n), (const int8_t *)p));
}

/* ---- 32-bit integers --------------------------------------------------------------------------------------------- */

VEC_INLINE vi vi_load(const int32_t *p)
{
    return svld1_s32(ALL, p);
}
VEC_INLINE vi vi_set(int32_t x)
{
    return svdup_n_s32(x);
}
VEC_INLINE vf vi_to_vf(vi a)
{
    return svcvt_f32_s32_x(ALL, a);
}
VEC_INLINE vi vec_whole(vf a)
{
    return svcvt_s32_f32_x(ALL, svrintn_f32_x(ALL, a));
}
VEC_INLINE void vf_store_i16(void *p, vf a, vf b)
{
    svst1h_s32(ALL, p, vec_whole(a));
    svst1h_s32(ALL, (int16_t *)p + VL, vec_whole(b));
}
VEC_INLINE vi vi_dot2(vi c, vi a, vi b)
{
    c = svmla_s32_x(ALL, c, svexth_s32_x(ALL, a), svexth_s32_x(ALL, b));
    return svmla_s32_x(ALL, c, svasr_n_s32_x(ALL, a, 16), svasr_n_s32_x(ALL, b, 16));
}
VEC_INLINE vi vi_size_max(vi most, vf a)
{
    return svmax_s32_x(ALL, most, svand_n_s32_x(ALL, svreinterpret_s32_f32(a), 0x7fffffff));
}
VEC_INLINE int32_t vi_largest(vi a)
{
    return svmaxv_s32(ALL, a);
}
VEC_INLINE vf vf_weighted(vf p, vf x)
{
    return svmul_f32_z(svcmpne_n_f32(ALL, p, 0), p, x);
}

/* c plus the products of four signed bytes in each lane. */
VEC_INLINE vi vi_dot4(vi c, vi a, vi b)
{
    return svdot_s32(c, svreinterpret_s8_s32(a), svreinterpret_s8_s32(b));
}
#if defined(__ARM_FEATURE_SVE_MATMUL_INT8)
/* In each 128 bits: c plus the products of both halves of a, eight signed bytes each, with the first half of b and with
 * the second. */
VEC_INLINE vi vi_mmla(vi c, vi a, vi b)
{
    return svmmla_s32(c, svreinterpret_s8_s32(a), svreinterpret_s8_s32(b));
}
/* Eight bytes from each of two places, in each 128 bits. */
VEC_INLINE vi vi_halves(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return svreinterpret_s32_s64(svzip1_s64(svdup_n_s64(x), svdup_n_s64(y)));
}
/* The first halves of each 128 bits of a, then of b; or the second ones. */
VEC_INLINE vi vi_halves_of(vi a, vi b, bool second)
{
    svint64_t x = svreinterpret_s64_s32(a), y = svreinterpret_s64_s32(b);
    return svreinterpret_s32_s64(second ? svuzp2_s64(x, y) : svuzp1_s64(x, y));
}
/* Lanes of a and of b in turn, of the first halves of both or of the second. */
VEC_INLINE vf vf_zip(vf a, vf b, bool second)
{
    return second ? svzip2_f32(a, b) : svzip1_f32(a, b);
}
#endif
/* Whole numbers nearest to 64 floats, as bytes. */
VEC_INLINE void vf_store_i8(void *p, const vf *a)
{
    for (uint32_t i = 0; i < 64 / VL; i++)
        svst1b_s32(ALL, (int8_t *)p + i * VL, vec_whole(a[i]));
}

/* ---- pairs of bf16 ----------------------------------------------------------------------------------------------- */

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
/* c plus the products of the two bf16 in each lane. */
VEC_INLINE vi vi_dot_bf16(vi c, vi a, vi b)
{
    return svreinterpret_s32_f32(
        svbfdot_f32(svreinterpret_f32_s32(c), svreinterpret_bf16_s32(a), svreinterpret_bf16_s32(b)));
}
/* The upper halves of a's lanes, then of b's. If the floats are exact as bf16, these are the bf16, in order. */
VEC_INLINE vi vi_upper_halves(vf a, vf b)
{
    return svreinterpret_s32_u16(svuzp2_u16(svreinterpret_u16_f32(a), svreinterpret_u16_f32(b)));
}
/* Lane i has the i-th half of a, and above it that of b; the second half of them if `high`. */
VEC_INLINE vi vi_zip_halves(vi a, vi b, bool high)
{
    svuint16_t x = svreinterpret_u16_s32(a), y = svreinterpret_u16_s32(b);
    return svreinterpret_s32_u16(high ? svzip2_u16(x, y) : svzip1_u16(x, y));
}
VEC_INLINE vf vf_where_equal(vf x, vf y, vf a, vf b)
{
    return svsel_f32(svcmpeq_f32(ALL, x, y), a, b);
}
#endif

#endif
