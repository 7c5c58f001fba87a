/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of the level that is being compiled. Each instruction set has a header; all have the same functions.
 *
 * Floats: vf, VL lanes.
 *   vf_load, vf_store                 any address
 *   vf_stream                         a store past the caches, to a multiple of 64 bytes; vf_stream_end orders such
 *                                     stores before all later ones. Without OWN_STREAM: vf_store
 *   vf_load_kept                      with KEPT_LOADS: stays in a register, where gcc would read memory for each use
 *   vf_set                            one float in every lane; vf_set_f16: one f16 at p
 *   vf_load_f16, _bf16, _u8, _i8      VL elements, converted exactly; vf_load_e8m0: 2^(code - 127), 255 is NaN
 *   vf_store_f16, _bf16               VL elements, rounded to nearest even; NaN stays NaN
 *   vf_load_f16_part, _e4m3_part      the first n <= VL elements, zeros behind; no other byte is read
 *   vf_fma(a, b, c)                   a * b + c; vf_fma_one: with the one float at a in every lane
 *   vf_max, vf_min                    b where either is NaN
 *   vf_select(bits, a, b)             lane i of a where bit i is set, else of b
 *   vf_drop_below(a, x, least)        a where x is at least `least` or NaN, else 0
 *   vf_any_above(a, x)                is a lane above x? NaN is not
 *   vf_largest, vf_total              over the lanes
 *   vf_round                          to the nearest whole number
 *   vf_scale2(x, n)                   x times 2^n, n whole, 0 where that is too small; only with OWN_SCALE2
 *   vf_totals(v)                      lane i: the sum of the lanes of v[i], i < VL, as a tree
 *   vf_transpose(v)                   lane i of v[j] goes to lane j of v[i]
 *   vf_upper_negated, vf_partner      lanes with the bit `apart` in their index negated; lane i from lane i ^ apart
 *   vf_weighted(p, x)                 p * x, but 0 where p is 0, even if x is NaN
 *   PRODUCT_ROWS x PRODUCT_VECS       accumulators of a product, at most: more would not stay in registers
 *   SUMS_VECS, SUMS_ROWS              accumulators and rows of weighted sums, at most, for the same reason
 *
 * Codes: vcode, a code in the lowest bits of each lane, anything above. vbook: a table of 16 floats, looked up by the
 * lowest 4 bits; for narrower codes the table repeats.
 *   codes16(bits, p, code)            16 codes of 2, 3 or 4 bits from 2 * bits bytes
 *   bytes16(p, code), code_above      16 bytes as codes; the codes 4 bits higher up
 *   bytes_part(p, n, to)              the first n <= 64 bytes, zeros behind; no other byte is read
 *   book_load, book_load8             16 levels; 8 levels, twice
 *   book_at(book, code)               the level of each code
 *   book_at5(low, high, ...)          the same for codes of 5 bits: lane i's fifth bit is bit first + i of `fifths`
 *   code_number, code_number5         a code of `bits` bits as a float, for levels 0, 1, 2, …; only with OWN_NUMBERS
 *   fp8_step(wide, p, x)              FP8_STEP small floats: e5m2 if wide, else e4m3
 *   heads_load(p, bytes, n, to)       two floats from the two f16 at the start of each of n <= 8 blocks, `bytes` apart
 *
 * Integers: vi, VL lanes of 32 bits. gcc 12 keeps each accumulator of type __m512i, with lanes of 64 bits, twice.
 *   vi_load, vi_set, vi_to_vf
 *   vi_dot2(c, a, b)                  c plus the products of 16-bit parts, added in pairs
 *   vi_size_max(most, a)              the larger of most and |a|, compared as integers: floats' order, NaN above all
 *   vi_largest                        over the lanes
 *   vf_store_i16(p, a, b)             whole numbers nearest to a's lanes, then to b's, as 16 bits; anything for numbers
 *                                     that do not fit, and for NaN
 */
#ifndef KVB_VEC_H
#define KVB_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline))

/* Dword k at p. */
VEC_INLINE int32_t dword_at(const void *p, size_t k)
{
    int32_t x;
    memcpy(&x, (const char *)p + k * sizeof x, sizeof x);
    return x;
}

#if defined(__AVX512F__)
#include "kernels/vector/vec_avx512.h"
#elif defined(__AVX2__)
#include "kernels/vector/vec_avx2.h"
#elif defined(__ARM_FEATURE_SVE)
#include "kernels/vector/vec_sve.h"
#elif defined(KVB_NEON) /* set by the Makefile: every AArch64 compiler has NEON, but level portable does without */
#include "kernels/vector/vec_neon.h"
#else
#include "kernels/vector/vec_portable.h"
#endif

/* ---- shared by instruction sets: OWN_… where one has better ------------------------------------------------------ */

#ifndef PRODUCT_ROWS /* there are 32 registers */
#define PRODUCT_ROWS 6u
#define PRODUCT_VECS 4u
#define SUMS_VECS    24u
#define SUMS_ROWS    8u
#endif

#ifndef KEPT_LOADS
#define KEPT_LOADS false
VEC_INLINE vf vf_load_kept(const float *p)
{
    return vf_load(p);
}
#endif

#ifndef OWN_STREAM
VEC_INLINE void vf_stream(float *p, vf a)
{
    vf_store(p, a);
}
VEC_INLINE void vf_stream_end(void) {}
#endif

#ifndef OWN_FMA_ONE
VEC_INLINE vf vf_fma_one(const float *a, vf b, vf c)
{
    return vf_fma(vf_set(*a), b, c);
}
#endif

VEC_INLINE vbook book_load(const float *level)
{
    vbook b;
    for (uint32_t i = 0; i < BOOK_VECS; i++)
        b.v[i] = vf_load(level + i * VL);
    return b;
}

#ifndef OWN_BOOK_AT5
VEC_INLINE vf book_at5(vbook low, vbook high, vcode code, uint32_t fifths, uint32_t first)
{
    return vf_select(fifths >> first, book_at(high, code), book_at(low, code));
}
#endif

#ifndef OWN_PARTS /* levels with OWN_PARTS load by predicates */
VEC_INLINE vbook book_load8(const float *level)
{
    vbook b;
    for (uint32_t i = 0; i < BOOK_VECS; i++)
        b.v[i] = vf_load(level + i * VL % 8);
    return b;
}
VEC_INLINE void bytes_part(const void *p, uint32_t n, uint8_t to[64])
{
    memset(to, 0, 64);
    memcpy(to, p, n < 64 ? n : 64); /* gcc 12 for AArch64 does not see that n is no more */
}
#ifndef OWN_F16_PART
VEC_INLINE vf vf_load_f16_part(const void *p, uint32_t n)
{
    _Alignas(64) uint8_t part[64];
    bytes_part(p, 2 * n, part);
    return vf_load_f16(part);
}
#endif
VEC_INLINE vf vf_load_e4m3_part(const uint8_t *p, uint32_t n)
{
    _Alignas(64) uint8_t part[64];
    vf x[FP8_STEP / VL];
    bytes_part(p, n, part);
    fp8_step(false, part, x);
    return x[0];
}
#endif

#ifndef OWN_HEADS
VEC_INLINE void heads_load(const uint8_t *p, size_t bytes, uint32_t n, float to[16])
{
    uint16_t heads[16] = {0};
    for (uint32_t i = 0; i < n; i++)
        memcpy(heads + 2 * i, p + i * bytes, 4);
    for (uint32_t i = 0; i < 2 * n; i += VL)
        vf_store(to + i, vf_load_f16(heads + i));
}
#endif

/* ---- powers of two ----------------------------------------------------------------------------------------------- */

#define EXP2_LEAST (-126.0f) /* below this a power would be subnormal: vf_exp2() gives 0 */

#ifdef OWN_SCALE2
VEC_INLINE vf power_split(vf x, vf *whole)
{
    *whole = vf_round(x);
    return x - *whole;
}
#else
/* x + POWER_BITS rounds x to a whole number n. The sum's lowest bits are n + 127, the exponent field of 2^n. */
#define POWER_BITS (0x1.8p23f + 127)
VEC_INLINE vf power_split(vf x, vf *bits)
{
    *bits = x + vf_set(POWER_BITS);
    return x - (*bits - vf_set(POWER_BITS));
}
VEC_INLINE vf vf_scale2(vf x, vf bits)
{
    return x * (vf)((vi)bits << 23);
}
#endif

/*
 * 2^x for x <= 127; NaN for NaN. x is split into a whole number and a fraction of at most a half. 2^fraction is the
 * polynomial of degree 6 with the least relative error (Remez exchange: 2^-29.0; Horner's rule rounds by more).
 */
VEC_INLINE vf vf_exp2(vf x)
{
    vf whole, f = power_split(x, &whole); /* f is NaN for -infinity: the last line drops it */
    vf p = vf_set(0x1.41d334p-13f);
    p = vf_fma(p, f, vf_set(0x1.5f456ap-10f));
    p = vf_fma(p, f, vf_set(0x1.3b2dbcp-7f));
    p = vf_fma(p, f, vf_set(0x1.c6aed4p-5f));
    p = vf_fma(p, f, vf_set(0x1.ebfbdap-3f));
    p = vf_fma(p, f, vf_set(0x1.62e43p-1f));
    p = vf_fma(p, f, vf_set(1));
    return vf_drop_below(vf_scale2(p, whole), x, EXP2_LEAST);
}

/* ---- codes, 16 at a time ----------------------------------------------------------------------------------------- */

#define CODE_STEP 16u
#define CODE_VECS (CODE_STEP / VL)

/* Every level times scale, plus zero: the same roundings as for single elements. */
VEC_INLINE vbook book_affine(vbook b, vf scale, vf zero)
{
    for (uint32_t i = 0; i < BOOK_VECS; i++)
        b.v[i] = b.v[i] * scale + zero;
    return b;
}

VEC_INLINE vbook book_scaled(vbook b, vf scale)
{
    for (uint32_t i = 0; i < BOOK_VECS; i++)
        b.v[i] = b.v[i] * scale;
    return b;
}

/* ---- products of narrow numbers ---------------------------------------------------------------------------------- */

/* c plus the products of the narrow numbers in the dwords of a tile and of a row. */
typedef vi dword_dot(vi c, vi tile, vi row);

/*
 * A panel of rows times a tile: for each step k < steps, acc[r][v] += dword k of row r times vector v of the tile's row
 * k. The tile's rows lie `stride` dwords apart. A query row has `parts` lists of dwords, a[r][part], each for an equal
 * share of the vectors. If rows, vecs and dot are constants, acc [rows][vecs] stays in registers. The loops over it are
 * flat because gcc unrolls the outer of two nested loops too late for that.
 */
VEC_INLINE void dword_product(dword_dot *dot, uint32_t rows, uint32_t vecs, uint32_t parts, uint32_t steps,
                              const void *const *a, const int32_t *tile, size_t stride, vi *acc)
{
    for (uint32_t k = 0; k < steps; k++, tile += stride) {
        vi b[PRODUCT_VECS];
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vecs; v++)
            b[v] = vi_load(tile + v * VL);
#pragma GCC unroll 32
        for (uint32_t j = 0; j < rows * vecs; j++)
            acc[j] = dot(acc[j], b[j % vecs], vi_set(dword_at(a[j * parts / vecs], k)));
    }
}

/* The same for floats: sum[r][v] += the products of elements a[r][k] with vector v of row k of b, for k < depth. */
VEC_INLINE void float_product(uint32_t rows, uint32_t vecs, uint32_t depth, const float *const *a, const float *b,
                              uint32_t b_row, vf *sum)
{
    for (uint32_t k = 0; k < depth; k++, b += b_row) {
        vf row[PRODUCT_VECS];
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++)
            row[v] = vf_load(b + v * VL);
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            vf element = vf_set(a[r][k]);
#pragma GCC unroll 4
            for (uint32_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = vf_fma(element, row[v], sum[r * vecs + v]);
        }
    }
}

/* X(name, 1) .. X(name, PRODUCT_ROWS): each number of rows of a panel has code of its own. */
#define EACH_OF_4(X, name) X(name, 1) X(name, 2) X(name, 3) X(name, 4)
#if PRODUCT_ROWS > 4
#define EACH_PANEL(X, name) EACH_OF_4(X, name) X(name, 5) X(name, 6)
#else
#define EACH_PANEL(X, name) EACH_OF_4(X, name)
#endif

/* Rows of the next panel: at most PRODUCT_ROWS, and panels are as even as possible: 7 rows are 4 and 3. */
static inline uint32_t product_panel_rows(uint32_t left)
{
    uint32_t panels = (left + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
    return (left + panels - 1) / panels;
}

#endif
