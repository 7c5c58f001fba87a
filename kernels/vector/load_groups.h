/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows with scales of neighbouring channels in side tables: affine codes of 8, 4 and 2 bits, mxfp4, nvfp4; and codebooks
 * with one scale a row. Where codes are narrow, the factors go into the table of levels, once a group, and each element is
 * then one look-up: the same products and sums as one by one, so the same bits.
 * Groups are multiples of 16 channels, and divide the row.
 */
#ifndef KVB_VECTOR_LOAD_GROUPS_H
#define KVB_VECTOR_LOAD_GROUPS_H

#include "kernels/vector/load_place.h"
#include "kernels/vector/vec_codes.h"

enum { GROUPS_SPAN = 16 }; /* groups whose scales are made floats at a time */

static const float levels_uint4[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const float levels_uint2[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
static const float levels_e2m1[16] = {0,     0.5f,  1,     1.5f,  2,     3,     4,     6,
                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/* n <= GROUPS_SPAN scales as floats, one function for each element type; behind them anything. */
VEC_INLINE void scales_f16(const uint8_t *p, uint32_t n, float *to)
{
    for (uint32_t i = 0; i < n; i += VL)
        vf_store(to + i, vf_load_f16_part(p + 2 * i, n - i < VL ? n - i : VL));
}

VEC_INLINE void scales_e8m0(const uint8_t *p, uint32_t n, float *to)
{
    _Alignas(64) uint8_t part[64];
    bytes_part(p, n, part);
    for (uint32_t i = 0; i < n; i += VL)
        vf_store(to + i, vf_load_e8m0(part + i));
}

VEC_INLINE void scales_e4m3(const uint8_t *p, uint32_t n, float *to)
{
    for (uint32_t i = 0; i < n; i += VL)
        vf_store(to + i, vf_load_e4m3_part(p + i, n - i < VL ? n - i : VL));
}

/* n channels of one group: bits 8 by arithmetic, narrower by the table. */
VEC_INLINE void group_codes(uint32_t bits, vbook book, const uint8_t *from, uint32_t n, float *row)
{
    for (uint32_t c = 0; c < n; c += CODE_STEP) {
        vcode code[CODE_VECS];
        codes16(bits, from + c * bits / 8, code);
        for (uint32_t i = 0; i < CODE_VECS; i++)
            vf_store(row + c + i * VL, book_at(book, code[i]));
    }
}

VEC_INLINE void group_bytes(vf scale, vf zero, const uint8_t *from, uint32_t n, float *row)
{
    for (uint32_t c = 0; c < n; c += VL)
        vf_store(row + c, vf_load_u8(from + c) * scale + zero);
}

/* Codes of `bits` bits in groups of n channels, constants where this is called. */
VEC_INLINE void affine_row(uint32_t bits, uint32_t n, const place_row *r, uint32_t dim, float *row)
{
    uint32_t groups = dim / n;
    const uint8_t *from = r->codes;
    vbook book = book_load(bits == 4 ? levels_uint4 : levels_uint2);
    for (uint32_t first = 0; first < groups; first += GROUPS_SPAN) {
        _Alignas(64) float scales[GROUPS_SPAN], zeros[GROUPS_SPAN];
        uint32_t some = groups - first < GROUPS_SPAN ? groups - first : GROUPS_SPAN;
        scales_f16(r->scales + first * 2, some, scales);
        scales_f16(r->zeros + first * 2, some, zeros);
        for (uint32_t g = 0; g < some; g++, from += n * bits / 8, row += n) {
            vf scale = vf_set(scales[g]), zero = vf_set(zeros[g]);
            if (bits == 8)
                group_bytes(scale, zero, from, n, row);
            else
                group_codes(bits, book_affine(book, scale, zero), from, n, row);
        }
    }
}

#define ROW_OF_AFFINE(BITS, GROUP)                                                                                     \
    VEC_INLINE void a##BITS##g##GROUP##_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)         \
    {                                                                                                                  \
        (void)f;                                                                                                       \
        affine_row(BITS, GROUP, r, dim, row);                                                                          \
    }

ROW_OF_AFFINE(8, 32)
ROW_OF_AFFINE(8, 64)
ROW_OF_AFFINE(8, 128)
ROW_OF_AFFINE(4, 32)
ROW_OF_AFFINE(4, 64)
ROW_OF_AFFINE(4, 128)
ROW_OF_AFFINE(2, 32)
ROW_OF_AFFINE(2, 64)
ROW_OF_AFFINE(2, 128)

/* e2m1: `nv` says whose scales, and that groups are of 16, not of 32 channels. */
VEC_INLINE void mx_row(bool nv, const place_row *r, uint32_t dim, float *row)
{
    uint32_t n = nv ? 16 : 32, groups = dim / n;
    const uint8_t *from = r->codes;
    vbook book = book_load(levels_e2m1);
    for (uint32_t first = 0; first < groups; first += GROUPS_SPAN) {
        _Alignas(64) float scales[GROUPS_SPAN];
        uint32_t some = groups - first < GROUPS_SPAN ? groups - first : GROUPS_SPAN;
        if (nv)
            scales_e4m3(r->scales + first, some, scales);
        else
            scales_e8m0(r->scales + first, some, scales);
        for (uint32_t g = 0; g < some; g++, from += n / 2, row += n)
            group_codes(4, book_scaled(book, vf_set(scales[g])), from, n, row);
    }
}

VEC_INLINE void mxfp4_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)
{
    (void)f;
    mx_row(false, r, dim, row);
}
VEC_INLINE void nvfp4_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)
{
    (void)f;
    mx_row(true, r, dim, row);
}

/* One scale a row; levels are the format's. */
VEC_INLINE void tq_row(uint32_t bits, const kvb_format *f, const place_row *r, uint32_t dim, float *row)
{
    vbook book = bits == 4 ? book_load(f->levels) : book_load8(f->levels);
    group_codes(bits, book_scaled(book, vf_set_f16(r->scales)), r->codes, dim, row);
}

VEC_INLINE void tq4_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)
{
    tq_row(4, f, r, dim, row);
}
VEC_INLINE void tq3_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)
{
    tq_row(3, f, r, dim, row);
}

#endif
