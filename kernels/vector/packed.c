/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many query rows: the rows of a block are packed as floats (keys transposed, a channel in each row; values as they
 * are) and multiplied by a register-blocked matrix product.
 */
#include "kernels/vector/stored_floats.h"

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* Transposes VL cells. Unless `whole`, keys[c] is NULL for cells that are missing. */
VEC_INLINE void cells_transpose(kvb_elem elem, bool whole, const void *const *keys, uint32_t dim, float *packed)
{
    for (uint32_t d = 0; d < dim; d += VL) {
        vf v[VL];
#pragma GCC unroll 16
        for (uint32_t c = 0; c < VL; c++)
            v[c] = whole || keys[c] ? elem_load(elem, keys[c], d) : vf_set(0);
        vf_transpose(v);
#pragma GCC unroll 16
        for (uint32_t c = 0; c < VL; c++)
            vf_store(packed + (size_t)(d + c) * BLOCK, v[c]);
    }
}

VEC_INLINE void elem_pack_keys(kvb_elem elem, const void *const *keys, uint32_t n, uint32_t dim, float *packed)
{
    for (uint32_t i = 0; i < BLOCK; i += VL) {
        const void *there[VL];
        for (uint32_t c = 0; c < VL; c++)
            there[c] = i + c < n ? keys[i + c] : NULL;
        if (i + VL <= n)
            cells_transpose(elem, true, there, dim, packed + i);
        else
            cells_transpose(elem, false, there, dim, packed + i);
    }
}

VEC_INLINE void elem_pack_values(kvb_elem elem, const void *const *values, uint32_t n, uint32_t dim, float *packed)
{
    for (uint32_t i = 0; i < n; i++, packed += dim)
        for (uint32_t d = 0; d < dim; d += VL)
            vf_store(packed + d, elem_load(elem, values[i], d));
    memset(packed, 0, (size_t)(BLOCK - n) * dim * sizeof *packed);
}

void KVB_ISA_NAME(kvb_pack_keys)(kvb_elem elem, const void *const *keys, uint32_t n, uint32_t dim, float *packed)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        elem_pack_keys(ELEM, keys, n, dim, packed);                                                                    \
        break;
    PLAIN_CASES(elem, CASE)
#undef CASE
}

void KVB_ISA_NAME(kvb_pack_values)(kvb_elem elem, const void *const *values, uint32_t n, uint32_t dim, float *packed)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        elem_pack_values(ELEM, values, n, dim, packed);                                                                \
        break;
    PLAIN_CASES(elem, CASE)
#undef CASE
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

/*
 * A tile of c, rows x vectors, stays in registers over the whole depth. Rows of b come from the first-level cache as
 * vectors, elements of a by broadcast.
 */
VEC_INLINE void tile_multiply(uint32_t rows, uint32_t vecs, uint32_t depth, const float *const *a, const float *b,
                              uint32_t b_row, float *const *c, uint32_t at, bool add)
{
    const float *from[PRODUCT_ROWS];
    vf sum[PRODUCT_ROWS * PRODUCT_VECS];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        from[r] = a[r];
#pragma GCC unroll 32
    for (uint32_t s = 0; s < rows * vecs; s++)
        sum[s] = vf_set(0);
    float_product(rows, vecs, depth, from, b + at, b_row, sum);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++) {
        float *const to = c[r] + at;
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++)
            vf_store(to + v * VL, add ? (vf)(vf_load(to + v * VL) + sum[r * vecs + v]) : sum[r * vecs + v]);
    }
}

/* All columns of a few rows: strips of PRODUCT_VECS, then narrower ones. */
VEC_INLINE void rows_multiply(uint32_t rows, uint32_t depth, uint32_t width, const float *const *a, const float *b,
                              uint32_t b_row, float *const *c, bool add)
{
    uint32_t at = 0;
#define STRIPS(VECS)                                                                                                   \
    if (VECS <= PRODUCT_VECS)                                                                                          \
        for (; width - at >= VECS * VL; at += VECS * VL)                                                               \
            tile_multiply(rows, VECS, depth, a, b, b_row, c, at, add);
    STRIPS(4)
    STRIPS(2)
    STRIPS(1)
#undef STRIPS
}

void KVB_ISA_NAME(kvb_product)(uint32_t rows, uint32_t depth, uint32_t width, const float *const *a, const float *b,
                               uint32_t b_row, float *const *c, bool add)
{
    for (uint32_t r = 0, some; r < rows; r += some) {
        some = product_panel_rows(rows - r);
#define CASE(PRODUCT, N)                                                                                               \
    case N:                                                                                                            \
        PRODUCT(N, depth, width, a + r, b, b_row, c + r, add);                                                         \
        break;
        switch (some) {
            EACH_PANEL(CASE, rows_multiply)
        }
#undef CASE
    }
}
