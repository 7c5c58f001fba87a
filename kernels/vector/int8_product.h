/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product of integers in registers: acc[r, v] += sum over steps of a dword of row r, in every lane, times the dwords
 * of vector v of the tile. With constant rows and vecs the accumulators stay in registers.
 */
#ifndef KVB_VECTOR_INT8_PRODUCT_H
#define KVB_VECTOR_INT8_PRODUCT_H

#include "kernels/vector/int8_lanes.h"

typedef enum int8_kind { INT8_KEYS, INT8_VALUES } int8_kind;

VEC_INLINE vi int8_dot(int8_kind kind, vi c, vi tile, int32_t a)
{
#if KEY_CODES == 4
    if (kind == INT8_KEYS)
        return vi_dot4(c, tile, vi_set(a));
#endif
    (void)kind;
    return vi_dot2(c, tile, vi_set(a));
}

/*
 * a: [rows][steps] dwords, row r at a[r]; tile: vectors of one step side by side, steps `stride` dwords apart;
 * acc: [rows][vecs]. Loops over accumulators are flat: of nested ones gcc unrolls the outer too late to keep an array in
 * registers.
 */
VEC_INLINE void int8_product(int8_kind kind, uint32_t rows, uint32_t vecs, uint32_t steps, const int32_t *const *a,
                             const int32_t *tile, size_t stride, vi *acc)
{
    for (uint32_t k = 0; k < steps; k++, tile += stride) {
        vi b[PRODUCT_VECS];
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vecs; v++)
            b[v] = vi_load(tile + v * VL);
#pragma GCC unroll 32
        for (uint32_t j = 0; j < rows * vecs; j++)
            acc[j] = int8_dot(kind, acc[j], b[j % vecs], a[j / vecs][k]);
    }
}

/* Rows of the next panel: as even as may be, none above PRODUCT_ROWS. */
static inline uint32_t int8_panel_rows(uint32_t left)
{
    uint32_t panels = (left + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
    return (left + panels - 1) / panels;
}

#endif
