/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stored rows of floats as vectors, and the prefetching of their lines. `elem` is a constant wherever a function takes
 * it: there is code for each element, chosen outside the loops (PLAIN_CASES, PLAIN_ELEMS).
 */
#ifndef KVB_VECTOR_STORED_FLOATS_H
#define KVB_VECTOR_STORED_FLOATS_H

#include "kernels/vector/vec.h"
#include "kernels/vector/vector.h"

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

VEC_INLINE const void *elem_at(kvb_elem elem, const void *row, uint32_t i)
{
    return (const char *)row + (size_t)i * elem_size(elem);
}

/* Elements i .. i+VL-1 of a row of plain elements. */
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

/* ---- prefetching ------------------------------------------------------------------------------------------------- */

/*
 * How lines of rows are prefetched. Loops over plain rows of the commonest size are compiled for each way: where they
 * read a line, they prefetch the same line of the row ahead (elem_prefetch). Loops over other plain rows are compiled
 * once, for LINES_ANY: before they read some rows, they look up the way and prefetch all lines of the rows ahead
 * (rows_prefetch). Loops over small floats of the commonest size are compiled once, too, and look up the way at each
 * line, since a line takes long to convert (LINES_ASKED).
 */
typedef enum line_way {
    LINES_NONE,
    LINES_FAR,
    LINES_NEAR,  /* into the first-level cache */
    LINES_AGAIN, /* into the first-level cache, each more than once */
    LINES_ANY,
    LINES_ASKED
} line_way;
typedef struct line_ahead { /* a kvb_row_ahead, for rows of one kind */
    line_way way;
    size_t bytes;
    bool often; /* LINES_AGAIN: four times again; else once */
    uint32_t page_row;
} line_ahead;

VEC_INLINE line_way line_way_of(kvb_row_ahead ahead)
{
    return !ahead.bytes ? LINES_NONE : !ahead.near ? LINES_FAR : ahead.again ? LINES_AGAIN : LINES_NEAR;
}

VEC_INLINE line_ahead line_ahead_of(kvb_elem elem, uint32_t rows, kvb_row_ahead ahead)
{
    return (line_ahead){line_way_of(ahead), ahead.bytes, rows * (64 / elem_size(elem)) <= KVB_AGAIN_WORK,
                        ahead.page_row};
}

VEC_INLINE void one_prefetch(line_way way, const void *row, size_t at)
{
    const void *line = (const void *)((uintptr_t)row + at); /* as an integer: it may lie outside the row's memory */
    if (way == LINES_FAR)
        __builtin_prefetch(line, 0, 2);
    else
        __builtin_prefetch(line, 0, 3);
}

/* Prefetches the line at byte `at` of the row ahead. LINES_AGAIN: again that line of rows in between. */
VEC_INLINE void line_prefetch(line_way way, line_ahead ahead, const void *row, size_t at)
{
    const size_t eighth = ahead.bytes / 8;
    one_prefetch(way, row, ahead.bytes + at);
    if (way == LINES_AGAIN && ahead.often) {
        one_prefetch(way, row, 6 * eighth + at);
        one_prefetch(way, row, 5 * eighth + at);
        one_prefetch(way, row, 3 * eighth + at);
        one_prefetch(way, row, 2 * eighth + at);
    } else if (way == LINES_AGAIN)
        one_prefetch(way, row, 4 * eighth + at);
    if (!at)
        kvb_page_wake((uintptr_t)row + ahead.bytes, ahead.page_row);
}

/* Prefetches the line of element i of the row ahead, if a cache line begins at element i. */
VEC_INLINE void elem_prefetch(kvb_elem elem, line_way loop, line_ahead ahead, const void *row, uint32_t i)
{
    const size_t at = (size_t)i * elem_size(elem);
    const line_way way = loop == LINES_ASKED ? ahead.way : loop;
    if (way != LINES_NONE && way != LINES_ANY && at % 64 == 0)
        line_prefetch(way, ahead, row, at);
}

/* In a loop for LINES_ANY: prefetches `bytes` bytes, from byte `from` on, of the rows ahead of n rows. */
VEC_INLINE void rows_prefetch(line_way loop, line_ahead ahead, const void *const *rows, uint32_t n, size_t from,
                              size_t bytes)
{
    if (loop != LINES_ANY || ahead.way == LINES_NONE)
        return;
#pragma GCC unroll 1
    for (uint32_t i = 0; i < n; i++)
#pragma GCC unroll 1
        for (size_t at = 0; at < bytes; at += 64)
            line_prefetch(ahead.way, ahead, (const char *)rows[i] + from, at);
}

/* ---- switches ---------------------------------------------------------------------------------------------------- */

/* X(KVB_F32) and so on, for the plain elements. */
#define PLAIN_ELEMS(X) X(KVB_F32) X(KVB_F16) X(KVB_BF16)
#define PLAIN_CASES(elem, CASE)                                                                                        \
    switch (elem) {                                                                                                    \
        PLAIN_ELEMS(CASE)                                                                                              \
    default:                                                                                                           \
        break;                                                                                                         \
    }

/* CASE(way, elem, rows): code of its own for each way. */
#define EACH_WAY(CASE, elem, rows)                                                                                     \
    CASE(LINES_NONE, elem, rows) CASE(LINES_FAR, elem, rows) CASE(LINES_NEAR, elem, rows) CASE(LINES_AGAIN, elem, rows)

/* X(elem, 1) .. X(elem, DOTS_ROWS): each number of rows has code of its own. */
#define EACH_FEW(X, elem)  X(elem, 1) X(elem, 2) X(elem, 3) X(elem, 4)
#define EACH_ROWS(X, elem) EACH_FEW(X, elem) X(elem, 5) X(elem, 6) X(elem, 7) X(elem, 8)

#endif
