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

/* How lines are asked for. */
typedef struct elem_ask {
    size_t ahead;  /* bytes */
    bool near;     /* into the first-level cache */
    uint8_t again; /* 0: once; 1: once more; 2: four times more */
} elem_ask;

/* Up to KVB_NEAR_BYTES and KVB_NEAR_ROWS the compiler knows where to. */
VEC_INLINE elem_ask elem_ask_of(kvb_elem elem, uint32_t dim, uint32_t rows, kvb_ahead ahead)
{
    const size_t bytes = elem_size(elem) * dim;
    const bool near = (bytes <= KVB_NEAR_BYTES || bytes <= kvb_prefetch_here()->near_bytes) &&
                      (rows <= KVB_NEAR_ROWS || rows <= kvb_prefetch_here()->near_rows);
    const bool often = rows * (64 / elem_size(elem)) <= KVB_AGAIN_WORK;
    return (elem_ask){ahead.bytes, near, !near || !ahead.again ? 0 : often ? 2 : 1};
}

VEC_INLINE void line_prefetch(bool near, const void *row, size_t at)
{
    const void *line = (const void *)((uintptr_t)row + at); /* no pointer arithmetic: it may be anywhere */
    if (near)
        __builtin_prefetch(line, 0, 3);
    else
        __builtin_prefetch(line, 0, 2);
}

/* Ask for the cache line that vector i begins of rows further on; `i` counts elements. */
VEC_INLINE void elem_prefetch(kvb_elem elem, elem_ask ask, const void *row, uint32_t i)
{
    const size_t at = (size_t)i * elem_size(elem), eighth = ask.ahead / 8;
    if (at % 64)
        return;
    line_prefetch(ask.near, row, ask.ahead + at);
    if (ask.again == 1)
        line_prefetch(true, row, 4 * eighth + at);
    if (ask.again == 2) {
        line_prefetch(true, row, 6 * eighth + at);
        line_prefetch(true, row, 5 * eighth + at);
        line_prefetch(true, row, 3 * eighth + at);
        line_prefetch(true, row, 2 * eighth + at);
    }
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
