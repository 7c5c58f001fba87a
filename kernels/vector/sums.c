/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted sums of stored rows for a few query rows. A strip of channels of all rows stays in registers while the cells
 * go by; what a block comes to is added to the sums at its end, so that a term passes through n roundings and one for
 * each block.
 */
#include "kernels/vector/elem.h"
#include "kernels/vector/micro.h"

#define STRIP_VECS 8u /* at most */

VEC_INLINE void strip_sum(kvb_elem elem, uint32_t rows, uint32_t vecs, const float *weights, const void *const *values,
                          elem_ask ask, uint32_t n, uint32_t at, float *const *sums)
{
    vf sum[DOTS_ROWS * STRIP_VECS];
#pragma GCC unroll 64
    for (uint32_t s = 0; s < rows * vecs; s++)
        sum[s] = vf_set(0);
    for (uint32_t i = 0; i < n; i++) {
        const void *from = elem_at(elem, values[i], at);
        vf value[STRIP_VECS];
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vecs; v += elem_vecs(elem)) {
            elem_read(elem, from, v * VL, value + v);
            elem_prefetch(elem, ask, from, v * VL);
        }
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            vf weight = vf_set(weights[r * BLOCK + i]);
#pragma GCC unroll 8
            for (uint32_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = vf_fma(weight, value[v], sum[r * vecs + v]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vecs; v++) {
            float *to = sums[r] + at + v * VL;
            vf_store(to, vf_load(to) + sum[r * vecs + v]);
        }
}

/* The widest strips that fit the registers, then narrower ones for what is left. */
VEC_INLINE void rows_sum(kvb_elem elem, uint32_t rows, const float *weights, const void *const *values, kvb_ahead ahead,
                         uint32_t n, uint32_t dim, float *const *sums)
{
    const elem_ask ask = elem_ask_of(elem, dim, rows, ahead);
    uint32_t at = 0;
#define STRIPS(VECS)                                                                                                   \
    if (VECS % elem_vecs(elem) == 0 && (rows * VECS <= SUMS_VECS || VECS == elem_vecs(elem)))                          \
        for (; dim - at >= VECS * VL; at += VECS * VL)                                                                 \
            strip_sum(elem, rows, VECS, weights, values, ask, n, at, sums);
    STRIPS(8)
    STRIPS(4)
    STRIPS(2)
    STRIPS(1)
#undef STRIPS
}

VEC_INLINE void elem_sum(kvb_elem elem, const float *weights, uint32_t n_rows, const void *const *values,
                         kvb_ahead ahead, uint32_t n, uint32_t dim, float *const *sums)
{
    /* rows: more than DOTS_ROWS where vectors are read one by one */
    const uint32_t wide = SUMS_VECS / elem_vecs(elem), most = wide < SUMS_ROWS ? wide : SUMS_ROWS;
    for (uint32_t r = 0, rows; r < n_rows; r += rows) {
        uint32_t left = n_rows - r, parts = (left + most - 1) / most;
        rows = (left + parts - 1) / parts;
#define ROWS(N)                                                                                                        \
    case N:                                                                                                            \
        rows_sum(elem, N, weights + r * BLOCK, values, ahead, n, dim, sums + r);                                       \
        break;
        ROWS_CASES(rows, ROWS)
#undef ROWS
    }
}

void KVB_ISA_NAME(kvb_sums)(kvb_elem elem, const float *weights, uint32_t n_rows, const void *const *values,
                            kvb_ahead ahead, uint32_t n, uint32_t dim, float *const *sums)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        if (dim == 128)                                                                                                \
            elem_sum(ELEM, weights, n_rows, values, ahead, n, 128, sums);                                              \
        else                                                                                                           \
            elem_sum(ELEM, weights, n_rows, values, ahead, n, dim, sums);                                              \
        break;
    ELEM_CASES(elem, CASE)
#undef CASE
}
