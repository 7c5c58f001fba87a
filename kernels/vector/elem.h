/* SPDX-License-Identifier: Apache-2.0 */
/* Stored rows of plain floats as vectors. Every function here is meant for a constant `elem`: callers choose it once,
 * outside their loops, by ELEM_CASES. */
#ifndef KVB_VECTOR_ELEM_H
#define KVB_VECTOR_ELEM_H

#include "kernels/attend.h"
#include "kernels/vector/micro.h"
#include "kernels/vector/vec.h"

VEC_INLINE uint32_t elem_size(kvb_elem elem)
{
    return elem == KVB_F32 ? 4 : 2;
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

/* Ask for the cache line that vector i begins of the row of `dim` channels `ahead` bytes further on, for so many query rows;
 * `i` counts elements. No pointer arithmetic: it may be anywhere. */
VEC_INLINE void elem_prefetch(kvb_elem elem, uint32_t dim, uint32_t rows, const void *row, size_t ahead, uint32_t i)
{
    size_t at = (size_t)i * elem_size(elem);
    const void *line = (const void *)((uintptr_t)row + ahead + at);
    if (at % 64 == 0 && NEAR(elem_size(elem) * dim, rows))
        __builtin_prefetch(line, 0, 3);
    else if (at % 64 == 0)
        __builtin_prefetch(line, 0, 2);
}

/* A switch over the plain elements: CASE(KVB_F16) and so on. Other elements do nothing. */
#define ELEM_CASES(elem, CASE)                                                                                         \
    switch (elem) {                                                                                                    \
        CASE(KVB_F32)                                                                                                  \
        CASE(KVB_F16)                                                                                                  \
        CASE(KVB_BF16)                                                                                                 \
    default:                                                                                                           \
        break;                                                                                                         \
    }

#endif
