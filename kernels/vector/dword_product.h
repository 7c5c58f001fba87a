/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of narrow numbers in registers: a panel of rows, each a dword of neighbouring factors in every lane, times
 * vectors of a tile. With constant rows and vecs the accumulators, acc [rows][vecs], stay in registers. Loops over them
 * are flat: of nested ones gcc unrolls the outer too late for that.
 */
#ifndef KVB_VECTOR_DWORD_PRODUCT_H
#define KVB_VECTOR_DWORD_PRODUCT_H

#include "kernels/vector/int8_lanes.h"

/* c plus the products of what dwords of a tile and of a row hold: a constant. */
typedef vi dword_dot(vi c, vi tile, vi row);

/* For r < rows, v < vecs: acc[r][v] += row r's factors times vector v of a step, for each of `steps`, `stride` dwords
 * apart. A row has `parts` lists of factors, a[r][part]: the i-th is for the i-th part of the vectors. */
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

/* Rows of the next panel: as even as may be, none above PRODUCT_ROWS. */
static inline uint32_t product_panel_rows(uint32_t left)
{
    uint32_t panels = (left + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
    return (left + panels - 1) / panels;
}

#endif
