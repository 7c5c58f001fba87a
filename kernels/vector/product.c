/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A register-blocked matrix product: tiles of PRODUCT_ROWS x PRODUCT_VECS vectors of c stay in registers over the whole
 * depth, rows of b come from the first-level cache as vectors, elements of a by broadcast.
 */
#include "kernels/vector/micro.h"
#include "kernels/vector/vec.h"

#define STRIP_VECS 4u /* at most */

VEC_INLINE void tile_multiply(uint32_t rows, uint32_t vecs, uint32_t depth, uint32_t width, const float *const *a,
                              const float *b, float *const *c, uint32_t at, bool add)
{
    const float *from[PRODUCT_ROWS];
    vf sum[PRODUCT_ROWS * STRIP_VECS];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        from[r] = a[r];
#pragma GCC unroll 32
    for (uint32_t s = 0; s < rows * vecs; s++)
        sum[s] = vf_set(0);
    b += at;
    for (uint32_t k = 0; k < depth; k++, b += width) {
        vf row[STRIP_VECS];
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++)
            row[v] = vf_load(b + v * VL);
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            vf element = vf_set(from[r][k]);
#pragma GCC unroll 4
            for (uint32_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = vf_fma(element, row[v], sum[r * vecs + v]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++) {
            float *to = c[r] + at + v * VL;
            if (add)
                sum[r * vecs + v] = vf_load(to) + sum[r * vecs + v];
            vf_store(to, sum[r * vecs + v]);
        }
}

/* All columns of a few rows: strips of PRODUCT_VECS, then narrower ones. */
VEC_INLINE void rows_multiply(uint32_t rows, uint32_t depth, uint32_t width, const float *const *a, const float *b,
                              float *const *c, bool add)
{
    uint32_t at = 0;
#define STRIPS(VECS)                                                                                                   \
    if (VECS <= PRODUCT_VECS)                                                                                          \
        for (; width - at >= VECS * VL; at += VECS * VL)                                                               \
            tile_multiply(rows, VECS, depth, width, a, b, c, at, add);
    STRIPS(4)
    STRIPS(2)
    STRIPS(1)
#undef STRIPS
}

void KVB_ISA_NAME(kvb_product)(uint32_t rows, uint32_t depth, uint32_t width, const float *const *a, const float *b,
                               float *const *c, bool add)
{
    for (uint32_t r = 0, some; r < rows; r += some) {
        /* as even as can be: 7 rows are 4 and 3, not 6 and 1 */
        uint32_t left = rows - r, tiles = (left + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
        some = (left + tiles - 1) / tiles;
#define ROWS(N)                                                                                                        \
    case N:                                                                                                            \
        rows_multiply(N < PRODUCT_ROWS ? N : PRODUCT_ROWS, depth, width, a + r, b, c + r, add);                        \
        break;
        switch (some) {
            ROWS(1)
            ROWS(2)
            ROWS(3)
            ROWS(4)
            ROWS(5)
            ROWS(6)
        }
#undef ROWS
    }
}
