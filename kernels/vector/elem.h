/* SPDX-License-Identifier: Apache-2.0 */
/* Stored rows of floats as vectors. Every function here is meant for a constant `elem`: callers choose it once,
 * outside their loops, by ELEM_CASES. */
#ifndef KVB_VECTOR_ELEM_H
#define KVB_VECTOR_ELEM_H

#include "kernels/attend.h"
#include "kernels/prefetch.h"
#include "kernels/vector/micro.h"
#include "kernels/vector/vec_codes.h"

VEC_INLINE bool elem_is_fp8(kvb_elem elem)
{
    return elem == KVB_E4M3 || elem == KVB_E5M2;
}

VEC_INLINE uint32_t elem_size(kvb_elem elem)
{
    return elem == KVB_F32 ? 4 : elem_is_fp8(elem) ? 1 : 2;
}

#define STEP_VECS (FP8_STEP / VL) /* most vectors that are read together */

/* Vectors that are read together. */
VEC_INLINE uint32_t elem_vecs(kvb_elem elem)
{
    return elem_is_fp8(elem) ? STEP_VECS : 1;
}

/* Element i of a row. */
VEC_INLINE const void *elem_at(kvb_elem elem, const void *row, uint32_t i)
{
    return (const char *)row + (size_t)i * elem_size(elem);
}

/* Elements i .. i+VL-1 of a row. */
VEC_INLINE vf elem_load(kvb_elem elem, const void *row, uint32_t i)
{
    const char *p = elem_at(elem, row, i);
    return elem == KVB_F16    ? vf_load_f16(p)
           : elem == KVB_BF16 ? vf_load_bf16(p)
                              : vf_load((const float *)(const void *)p);
}

/* The elem_vecs() vectors from element i on. */
VEC_INLINE void elem_read(kvb_elem elem, const void *row, uint32_t i, vf *x)
{
    if (elem_is_fp8(elem))
        fp8_step(elem == KVB_E5M2, elem_at(elem, row, i), x);
    else
        x[0] = elem_load(elem, row, i);
}

/* Are rows of `dim` channels asked for into the first-level cache? Up to KVB_NEAR_ROWS the compiler knows. */
VEC_INLINE bool elem_near(kvb_elem elem, uint32_t dim, uint32_t rows)
{
    return elem_size(elem) * dim <= KVB_NEAR_BYTES && (rows <= KVB_NEAR_ROWS || rows <= kvb_prefetch_here()->near_rows);
}

/* Ask for the cache line that vector i begins of the row `ahead` bytes further on; `i` counts elements. No pointer arithmetic:
 * it may be anywhere. */
VEC_INLINE void elem_prefetch(kvb_elem elem, bool near, const void *row, size_t ahead, uint32_t i)
{
    size_t at = (size_t)i * elem_size(elem);
    const void *line = (const void *)((uintptr_t)row + ahead + at);
    if (at % 64 == 0 && near)
        __builtin_prefetch(line, 0, 3);
    else if (at % 64 == 0)
        __builtin_prefetch(line, 0, 2);
}

/* A switch over the plain elements, CASE(KVB_F16) and so on, or over all that dots() and sums() take. Others do nothing. */
#define PLAIN_ELEMS(CASE) CASE(KVB_F32) CASE(KVB_F16) CASE(KVB_BF16)
#define FLOAT_ELEMS(CASE) PLAIN_ELEMS(CASE) CASE(KVB_E4M3) CASE(KVB_E5M2)
#define PLAIN_CASES(elem, CASE)                                                                                        \
    switch (elem) {                                                                                                    \
        PLAIN_ELEMS(CASE)                                                                                              \
    default:                                                                                                           \
        break;                                                                                                         \
    }
#define ELEM_CASES(elem, CASE)                                                                                         \
    switch (elem) {                                                                                                    \
        FLOAT_ELEMS(CASE)                                                                                              \
    default:                                                                                                           \
        break;                                                                                                         \
    }

/* Code for each number of rows that dots() and sums() take at a time: CASE(1) .. CASE(DOTS_ROWS). */
#define ROWS_CASES(rows, CASE)                                                                                         \
    switch (rows) {                                                                                                    \
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)                                                \
    }

#endif
