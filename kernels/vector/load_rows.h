/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions x_row(…, format, row, dim, floats) decode one stored row to floats. The loops over cells, in load.c, call them
 * with constants for what tells a format from others of its kind, and for the commonest dim.
 */
#ifndef KVB_VECTOR_LOAD_ROWS_H
#define KVB_VECTOR_LOAD_ROWS_H

#include "kernels/view.h"
#include "kernels/vector/vec.h"

/* Where one row lies. Scales and zeros mean nothing where the format has none. */
typedef struct row_place {
    const uint8_t *codes, *scales, *zeros;
    bool recent; /* codes are dim f16: the row is not encoded yet */
} row_place;

/* ---- codes that are numbers by themselves: floats, small floats, 8-bit integers; any dim ------------------------- */

/* A scale or zero of a row: f32, at any address. */
VEC_INLINE vf row_factor(const uint8_t *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return vf_set(x);
}

/* VL elements at p, with the row's factors: INT8 has a scale, UINT8 a scale and a zero, floats have neither. */
VEC_INLINE vf numbers_load(kvb_elem elem, const uint8_t *p, vf scale, vf zero)
{
    return elem == KVB_F32    ? vf_load((const float *)(const void *)p)
           : elem == KVB_F16  ? vf_load_f16(p)
           : elem == KVB_BF16 ? vf_load_bf16(p)
           : elem == KVB_INT8 ? (vf)(vf_load_i8(p) * scale)
                              : (vf)(vf_load_u8(p) * scale + zero);
}

/* The tail is read from a copy with zeros behind it. Channels up to the next multiple of 16 are written: the caller clears
 * those from dim on. */
VEC_INLINE void numbers_row(kvb_elem elem, const kvb_format *f, const row_place *r, uint32_t dim, float *row)
{
    const uint32_t bytes = elem == KVB_F32 ? 4 : elem == KVB_F16 || elem == KVB_BF16 ? 2 : 1;
    const vf scale = bytes == 1 ? row_factor(r->scales) : vf_set(1),
             zero = elem == KVB_UINT8 ? row_factor(r->zeros) : vf_set(0);
    const uint8_t *from = r->codes;
    uint32_t c = 0;
    (void)f;
    for (; c + VL <= dim; c += VL)
        vf_store(row + c, numbers_load(elem, from + c * bytes, scale, zero));
    if (c < dim) {
        _Alignas(64) uint8_t tail[64];
        bytes_part(from + c * bytes, (dim - c) * bytes, tail);
        vf_store(row + c, numbers_load(elem, tail, scale, zero));
    }
}

/* Takes FP8_STEP elements at once; a last, shorter step reads a copy. */
VEC_INLINE void fp8_row(bool wide, bool scaled, const kvb_format *f, const row_place *r, uint32_t dim, float *row)
{
    vf x[FP8_STEP / VL], scale = scaled ? row_factor(r->scales) : vf_set(1.0f);
    uint32_t c = 0;
    (void)f;
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

/* ---- scales of neighbouring channels in side tables: affine codes, mxfp4, nvfp4; codebooks ----------------------- */

/*
 * Groups are multiples of 16 channels and divide the row. For narrow codes scale and zero are applied to the table of
 * levels, once a group, and an element is one look-up: the same products and sums as for single elements, so the same
 * bits.
 */
enum { GROUPS_SPAN = 16 }; /* groups whose scales are converted at a time */

static const float levels_uint4[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const float levels_uint2[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
static const float levels_e2m1[16] = {0,     0.5f,  1,     1.5f,  2,     3,     4,     6,
                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/* n <= GROUPS_SPAN scales as floats, then anything. One function for each type of scales. */
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

/* n channels of one group, by look-ups of the levels of narrow codes. */
VEC_INLINE void group_codes(uint32_t bits, vbook book, const uint8_t *from, uint32_t n, float *row)
{
    for (uint32_t c = 0; c < n; c += CODE_STEP) {
        vcode code[CODE_VECS];
        codes16(bits, from + c * bits / 8, code);
        for (uint32_t i = 0; i < CODE_VECS; i++)
            vf_store(row + c + i * VL, book_at(book, code[i]));
    }
}

/* The same for levels 0, 1, 2, …: with OWN_NUMBERS computed, since look-ups cost more. */
VEC_INLINE void group_numbers(uint32_t bits, vf scale, vf zero, const uint8_t *from, uint32_t n, float *row)
{
#ifdef OWN_NUMBERS
    for (uint32_t c = 0; c < n; c += CODE_STEP) {
        vcode code[CODE_VECS];
        codes16(bits, from + c * bits / 8, code);
        for (uint32_t i = 0; i < CODE_VECS; i++)
            vf_store(row + c + i * VL, code_number(bits, code[i]) * scale + zero);
    }
#else
    const vbook book = book_load(bits == 4 ? levels_uint4 : levels_uint2);
    group_codes(bits, book_affine(book, scale, zero), from, n, row);
#endif
}

VEC_INLINE void group_bytes(vf scale, vf zero, const uint8_t *from, uint32_t n, float *row)
{
    for (uint32_t c = 0; c < n; c += VL)
        vf_store(row + c, vf_load_u8(from + c) * scale + zero);
}

/* Codes of `bits` bits in groups of n channels. */
VEC_INLINE void affine_row(uint32_t bits, uint32_t n, const kvb_format *f, const row_place *r, uint32_t dim, float *row)
{
    uint32_t groups = dim / n;
    const uint8_t *from = r->codes;
    (void)f;
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
                group_numbers(bits, scale, zero, from, n, row);
        }
    }
}

/* e2m1 in groups of 16 channels with e4m3 scales (nv), or of 32 with e8m0 scales. */
VEC_INLINE void mx_row(bool nv, const kvb_format *f, const row_place *r, uint32_t dim, float *row)
{
    uint32_t n = nv ? 16 : 32, groups = dim / n;
    const uint8_t *from = r->codes;
    (void)f;
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

/* Codebooks: one scale a row, levels of the format. */
VEC_INLINE void tq_row(uint32_t bits, const kvb_format *f, const row_place *r, uint32_t dim, float *row)
{
    vbook book = bits == 4 ? book_load(f->levels) : book_load8(f->levels);
    group_codes(bits, book_scaled(book, vf_set_f16(r->scales)), r->codes, dim, row);
}

/* ---- ggml's blocks: 32 channels with their scales inside (view.h has the layouts) ------------------------------ */

/* The nibbles of a byte are channels j and j + 16, so a vector of bytes is two vectors of codes in order. d and m are
 * applied to the table of levels, once a block. */
enum { GGML_BLOCK = 32 };

/* The levels of codes, before d and m are applied. */
static const float levels_q4_0[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
static const float levels_q5_0[32] = {-16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1,
                                      0,   1,   2,   3,   4,   5,   6,   7,  8,  9,  10, 11, 12, 13, 14, 15};
static const float levels_q5_1[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                      16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
static const float levels_iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

VEC_INLINE uint32_t ggml_fifths(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

#ifdef OWN_NUMBERS
/* A block with levels `least`, least + 1, …: a level times d, plus m unless m is NULL. fifths NULL: codes of 4 bits. */
VEC_INLINE void ggml_numbers(float least, vf d, const vf *m, const uint8_t *fifths, const uint8_t *from, float *row)
{
    vcode code[CODE_VECS];
    const uint32_t fifth = fifths ? ggml_fifths(fifths) : 0;
    bytes16(from, code);
    for (uint32_t i = 0; i < 2 * CODE_VECS; i++) {
        const vcode at = i < CODE_VECS ? code[i] : code_above(code[i - CODE_VECS]);
        vf x = fifths ? code_number5(at, fifth, i * VL) : code_number(4, at);
        x = (least < 0 ? (vf)(x + vf_set(least)) : x) * d;
        vf_store(row + i * VL, m ? (vf)(x + *m) : x);
    }
}
#endif

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

enum { GGML_SPAN = 8 }; /* blocks whose d and m are converted at a time */

/* levels: of the element. Whether a block has an m and fifth bits is a constant in every call. */
VEC_INLINE void ggml_row(const float *levels, bool has_m, bool has_fifths, const kvb_format *f, const row_place *r,
                         uint32_t dim, float *row)
{
    const uint32_t head = has_m ? 4 : 2, bytes = head + (has_fifths ? 4 : 0) + 16;
    const uint8_t *from = r->codes;
    (void)f;
    vbook low = book_load(levels), high = has_fifths ? book_load(levels + 16) : low;
    for (uint32_t left = dim / GGML_BLOCK, some; left; left -= some) {
        _Alignas(64) float heads[2 * GGML_SPAN];
        some = left < GGML_SPAN ? left : GGML_SPAN;
        heads_load(from, bytes, some, heads);
        for (uint32_t i = 0; i < some; i++, from += bytes, row += GGML_BLOCK) {
            vf d = vf_set(heads[2 * i]), m = vf_set(heads[2 * i + 1]);
#ifdef OWN_NUMBERS
            if (levels != levels_iq4_nl) {
                ggml_numbers(*levels, d, has_m ? &m : NULL, has_fifths ? from + head : NULL,
                             from + head + (has_fifths ? 4 : 0), row);
                continue;
            }
#endif
            vbook here = has_m ? book_affine(low, d, m) : book_scaled(low, d);
            if (has_fifths)
                ggml_nibbles5(here, has_m ? book_affine(high, d, m) : book_scaled(high, d), ggml_fifths(from + head),
                              from + head + 4, row);
            else
                ggml_nibbles(here, from + head, row);
        }
    }
}

/* Blocks of 8-bit codes. head: bytes before the codes, which hold d. */
VEC_INLINE void ggml_bytes_row(uint32_t head, const kvb_format *f, const row_place *r, uint32_t dim, float *row)
{
    const uint8_t *from = r->codes;
    (void)f;
    for (uint32_t left = dim / GGML_BLOCK, some; left; left -= some) {
        _Alignas(64) float heads[2 * GGML_SPAN];
        some = left < GGML_SPAN ? left : GGML_SPAN;
        heads_load(from, head + GGML_BLOCK, some, heads);
        for (uint32_t i = 0; i < some; i++, from += head + GGML_BLOCK, row += GGML_BLOCK)
            for (uint32_t c = 0; c < GGML_BLOCK; c += VL)
                vf_store(row + c, vf_load_i8(from + head + c) * vf_set(heads[2 * i]));
    }
}

/* ---- KIVI: V is affine; each channel of K has a scale and a zero of its own, f16, for neighbouring cells; any dim  */

enum { CHANNELS_KEPT = 256 };

/* The factors of the last group of cells, kept as floats: the group's other cells are likely to follow. */
typedef struct channel_factors {
    const uint8_t *group; /* the group's scales; NULL: nothing is kept */
    _Alignas(64) float scale[CHANNELS_KEPT], zero[CHANNELS_KEPT];
} channel_factors;

/* Keeps n channels, a multiple of 16. */
VEC_INLINE void factors_keep(channel_factors *k, const row_place *r, uint32_t n)
{
    for (uint32_t c = 0; c < n; c += VL) {
        vf_store(k->scale + c, vf_load_f16(r->scales + 2 * c));
        vf_store(k->zero + c, vf_load_f16(r->zeros + 2 * c));
    }
    k->group = r->scales;
}

VEC_INLINE void channels_step(vbook book, uint32_t bits, const uint8_t *from, const float *scale, const float *zero,
                              float *row)
{
    vcode code[CODE_VECS];
    codes16(bits, from, code);
    for (uint32_t i = 0; i < CODE_VECS; i++)
        vf_store(row + i * VL, book_at(book, code[i]) * vf_load(scale + i * VL) + vf_load(zero + i * VL));
}

/* Channels first .. dim-1, at most 16, from copies, so that no byte past the ends is read. */
VEC_INLINE void channels_tail(vbook book, uint32_t bits, const row_place *r, uint32_t first, uint32_t dim, float *row)
{
    _Alignas(64) uint8_t codes[64], scales[64], zeros[64];
    _Alignas(64) float scale[CODE_STEP], zero[CODE_STEP];
    bytes_part(r->codes + first * bits / 8, ((dim - first) * bits + 7) / 8, codes);
    bytes_part(r->scales + 2 * first, 2 * (dim - first), scales);
    bytes_part(r->zeros + 2 * first, 2 * (dim - first), zeros);
    for (uint32_t i = 0; i < CODE_STEP; i += VL) {
        vf_store(scale + i, vf_load_f16(scales + 2 * i));
        vf_store(zero + i, vf_load_f16(zeros + 2 * i));
    }
    channels_step(book, bits, codes, scale, zero, row + first);
}

VEC_INLINE void channels_row(uint32_t bits, channel_factors *k, const row_place *r, uint32_t dim, float *row)
{
    const vbook book = book_load(bits == 4 ? levels_uint4 : levels_uint2);
    uint32_t kept = dim < CHANNELS_KEPT ? dim / CODE_STEP * CODE_STEP : CHANNELS_KEPT, c = 0;
    if (k->group != r->scales)
        factors_keep(k, r, kept);
    for (; c < kept; c += CODE_STEP)
        channels_step(book, bits, r->codes + c * bits / 8, k->scale + c, k->zero + c, row + c);
    for (; c < dim; c += CODE_STEP)
        channels_tail(book, bits, r, c, dim - c < CODE_STEP ? dim : c + CODE_STEP, row);
}

/* V, which needs no factors of channels. */
VEC_INLINE void values_row(uint32_t bits, channel_factors *k, const row_place *r, uint32_t dim, float *row)
{
    (void)k;
    affine_row(bits, 32, NULL, r, dim, row);
}

#endif
