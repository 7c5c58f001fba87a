/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stored rows as vectors of pairs of bf16, and products of pairs, in the vectors of the level that is being compiled.
 * `fp8` is a constant wherever a function takes it: true for rows of E4M3 and E5M2, which differ by a table, false for
 * BF16. Each instruction set has a header with
 *
 *   pairs                             a vector of 2 VL bf16
 *   row_load(fp8, table, row, c, dim, x)  channels c .. c + STEP - 1 of a row, in ROW_VECS vectors; zeros from dim on,
 *                                     where no byte is read
 *   pairs_low(a, b), pairs_high()     dword i holds channel i of a and of b, i < VL; in pairs_high() channel VL + i
 *   pairs_store(to, a, b)             2 VL floats, rounded to bf16
 *   pairs_dot(c, tile, row)           c plus the products of pairs; pairs_dot_at() with the row in memory
 *   query_within(x, most)             finite lanes kept within `most`
 *   keys_pack(fp8, table, dim, rows, n, i, tile)  SOME rows of keys from i on, as far as there are any
 */
#ifndef KVB_VECTOR_BF16_H
#define KVB_VECTOR_BF16_H

#include "kernels/vector/vector.h"

/* Defined in bf16_in_place.c; bf16_blocks.c puts them into its table. */
kvb_dots_fn KVB_ISA_NAME(kvb_bf16_dots);
kvb_sums_fn KVB_ISA_NAME(kvb_bf16_sums);

#if (defined(__AVX512F__) && defined(__AVX512BF16__)) ||                                                               \
    (defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && (defined(KVB_NEON) || defined(__ARM_FEATURE_SVE)))
#define BF16_HERE
#include "kernels/vector/stored_floats.h"

#include <math.h>

#define SOME 16u /* cells that are packed at a time */

/* Where a packed block lies: rows of dwords, PLANE columns of all rows together, then the next. */
#define PLANE 32u
typedef struct packing {
    int32_t *to;
    size_t row, plane; /* dwords from a row to the next; from PLANE columns to the next */
} packing;
VEC_INLINE int32_t *packing_at(packing tile, uint32_t column)
{
    return tile.to + column / PLANE * tile.plane + column % PLANE;
}

#if defined(__AVX512BF16__)
#include "kernels/vector/bf16_avx512.h"
#else
#include "kernels/vector/bf16_arm.h"
#endif
#define STEP (2 * VL * ROW_VECS) /* channels that are read together */

#endif
#endif
