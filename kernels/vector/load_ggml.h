/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of ggml's blocks: 32 channels with their scales inside (attend.h has the layouts). Nibbles are of channels j and
 * j + 16: a vector of bytes is two vectors of codes in order. d (and m) go into the table of levels once a block.
 */
#ifndef KVB_VECTOR_LOAD_GGML_H
#define KVB_VECTOR_LOAD_GGML_H

#include "kernels/vector/load_groups.h"

enum { GGML_BLOCK = 32 };

/* The levels of a block before d and m; for five bits, those of codes 0 .. 15 and 16 .. 31. */
static const float levels_q4_0[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
static const float levels_q5_0[32] = {-16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1,
                                      0,   1,   2,   3,   4,   5,   6,   7,  8,  9,  10, 11, 12, 13, 14, 15};
static const float levels_q5_1[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                      16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
static const float levels_iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

VEC_INLINE void ggml_nibbles(vbook book, const uint8_t *from, float *row)
{
    vcode code[CODE_VECS];
    bytes16(from, code);
    for (uint32_t i = 0; i < CODE_VECS; i++) {
        vf_store(row + i * VL, book_at(book, code[i]));
        vf_store(row + 16 + i * VL, book_at(book, code_above(code[i])));
    }
}

VEC_INLINE void ggml_nibbles5(vbook low, vbook high, uint32_t fifths, const uint8_t *from, float *row)
{
    vcode code[CODE_VECS];
    bytes16(from, code);
    for (uint32_t i = 0; i < CODE_VECS; i++) {
        vf_store(row + i * VL, book_at5(low, high, code[i], fifths, i * VL));
        vf_store(row + 16 + i * VL, book_at5(low, high, code_above(code[i]), fifths, 16 + i * VL));
    }
}

VEC_INLINE uint32_t ggml_fifths(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

enum { GGML_SPAN = 8 }; /* blocks whose d and m are made floats at a time */

/* What differs: the element's levels, and whether a block has an m and fifth bits. Constants where this is called. */
VEC_INLINE void ggml_row(const float *levels, bool has_m, bool has_fifths, const place_row *r, uint32_t dim, float *row)
{
    const uint32_t head = has_m ? 4 : 2, bytes = head + (has_fifths ? 4 : 0) + 16;
    const uint8_t *from = r->codes;
    vbook low = book_load(levels), high = has_fifths ? book_load(levels + 16) : low;
    for (uint32_t left = dim / GGML_BLOCK, some; left; left -= some) {
        _Alignas(64) float heads[2 * GGML_SPAN];
        some = left < GGML_SPAN ? left : GGML_SPAN;
        heads_load(from, bytes, some, heads);
        for (uint32_t i = 0; i < some; i++, from += bytes, row += GGML_BLOCK) {
            vf d = vf_set(heads[2 * i]), m = vf_set(heads[2 * i + 1]);
            vbook here = has_m ? book_affine(low, d, m) : book_scaled(low, d);
            if (has_fifths)
                ggml_nibbles5(here, has_m ? book_affine(high, d, m) : book_scaled(high, d), ggml_fifths(from + head),
                              from + head + 4, row);
            else
                ggml_nibbles(here, from + head, row);
        }
    }
}

VEC_INLINE void q8_0_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)
{
    const uint8_t *from = r->codes;
    (void)f;
    for (uint32_t left = dim / GGML_BLOCK, some; left; left -= some) {
        _Alignas(64) float heads[2 * GGML_SPAN];
        some = left < GGML_SPAN ? left : GGML_SPAN;
        heads_load(from, 2 + GGML_BLOCK, some, heads);
        for (uint32_t i = 0; i < some; i++, from += 2 + GGML_BLOCK, row += GGML_BLOCK)
            for (uint32_t c = 0; c < GGML_BLOCK; c += VL)
                vf_store(row + c, vf_load_i8(from + 2 + c) * vf_set(heads[2 * i]));
    }
}

#define ROW_OF_GGML(NAME, LEVELS, HAS_M, HAS_FIFTHS)                                                                   \
    VEC_INLINE void NAME##_row(const kvb_format *f, const place_row *r, uint32_t dim, float *row)                      \
    {                                                                                                                  \
        (void)f;                                                                                                       \
        ggml_row(LEVELS, HAS_M, HAS_FIFTHS, r, dim, row);                                                              \
    }

ROW_OF_GGML(q5_1, levels_q5_1, true, true)
ROW_OF_GGML(q5_0, levels_q5_0, false, true)
ROW_OF_GGML(q4_1, levels_uint4, true, false)
ROW_OF_GGML(q4_0, levels_q4_0, false, false)
ROW_OF_GGML(iq4_nl, levels_iq4_nl, false, false)

#endif
