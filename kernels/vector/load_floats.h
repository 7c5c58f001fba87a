/* SPDX-License-Identifier: Apache-2.0 */
/* Rows whose codes are numbers by themselves: f32, f16, bf16, the small floats and 8-bit integers, of any dim. */
#ifndef KVB_VECTOR_LOAD_FLOATS_H
#define KVB_VECTOR_LOAD_FLOATS_H

#include "kernels/vector/load_place.h"
#include "kernels/vector/vec_codes.h"

/* A scale or zero of a row: f32, at any address. */
VEC_INLINE vf row_factor(const uint8_t *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return vf_set(x);
}

/*
 * CONVERT(p) makes VL floats of VL elements at p, FACTORS(x) applies the row's. The tail is read from a copy with zeros
 * behind it, and writes up to the next multiple of 16 channels (what lies from dim on is cleared by the caller).
 */
#define ROW_OF_ELEMENTS(NAME, BYTES, SETUP, CONVERT, FACTORS)                                                          \
    VEC_INLINE void NAME##_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)                      \
    {                                                                                                                  \
        const uint8_t *from = r->codes;                                                                                \
        uint32_t c = 0;                                                                                                \
        (void)f;                                                                                                       \
        SETUP;                                                                                                         \
        for (; c + VL <= dim; c += VL) {                                                                               \
            vf x = CONVERT(from + c * BYTES);                                                                          \
            vf_store(row + c, FACTORS(x));                                                                             \
        }                                                                                                              \
        if (c < dim) {                                                                                                 \
            _Alignas(64) uint8_t tail[64];                                                                             \
            bytes_part(from + c * BYTES, (dim - c) * BYTES, tail);                                                     \
            vf x = CONVERT(tail);                                                                                      \
            vf_store(row + c, FACTORS(x));                                                                             \
        }                                                                                                              \
    }

#define F32_AT(p)  vf_load((const float *)(const void *)(p))
#define AS_IS(x)   (x)
#define SCALED(x)  ((x)*scale)
#define RANGED(x)  ((x)*scale + zero)
#define NO_FACTORS (void)0
#define SCALE      vf scale = row_factor(r->scales)
#define RANGE      vf scale = row_factor(r->scales), zero = row_factor(r->zeros)

ROW_OF_ELEMENTS(f32, 4u, NO_FACTORS, F32_AT, AS_IS)
ROW_OF_ELEMENTS(f16, 2u, NO_FACTORS, vf_load_f16, AS_IS)
ROW_OF_ELEMENTS(bf16, 2u, NO_FACTORS, vf_load_bf16, AS_IS)
ROW_OF_ELEMENTS(int8, 1u, SCALE, vf_load_i8, SCALED)
ROW_OF_ELEMENTS(int8_asym, 1u, RANGE, vf_load_u8, RANGED)

/* FP8_STEP elements at once; a last step that is not whole goes by copies. */
VEC_INLINE void fp8_elements(bool wide, bool scaled, const place_row *r, uint32_t dim, float *row)
{
    vf x[FP8_STEP / VL], scale = scaled ? row_factor(r->scales) : vf_set(1.0f);
    uint32_t c = 0;
    for (; c + FP8_STEP <= dim; c += FP8_STEP) {
        fp8_step(wide, r->codes + c, x);
        for (uint32_t i = 0; i < FP8_STEP / VL; i++)
            vf_store(row + c + i * VL, scaled ? (vf)(x[i] * scale) : x[i]);
    }
    if (c < dim) {
        _Alignas(64) uint8_t tail[64];
        bytes_part(r->codes + c, dim - c, tail);
        fp8_step(wide, tail, x);
        for (uint32_t i = 0; c < dim; i++, c += VL)
            vf_store(row + c, scaled ? (vf)(x[i] * scale) : x[i]);
    }
}

#define ROW_OF_FP8(NAME, WIDE, SCALED)                                                                                 \
    VEC_INLINE void NAME##_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)                      \
    {                                                                                                                  \
        (void)f;                                                                                                       \
        fp8_elements(WIDE, SCALED, r, dim, row);                                                                       \
    }

ROW_OF_FP8(e4m3, false, false)
ROW_OF_FP8(e4m3_token, false, true)
ROW_OF_FP8(e5m2, true, false)
ROW_OF_FP8(e5m2_token, true, true)

#endif
