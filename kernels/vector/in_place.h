/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dot products and weighted sums of few query rows and stored rows of floats, where these lie. plain_*.c and
 * fp8_in_place.c compile these loops to functions: one for each element, each number of query rows and, for plain
 * elements, each way of prefetching. So sums stay in registers, and the code of a function is short. Longer code can
 * run at a third of its speed, depending on where the system put its pages (kernels/NOTES.md). Small floats, and rows
 * of another size than COMMON_DIM, have one function for all ways.
 */
#ifndef KVB_VECTOR_IN_PLACE_H
#define KVB_VECTOR_IN_PLACE_H

#include "kernels/vector/stored_floats.h"

#define COMMON_DIM BESIDE_DIM /* the commonest size of rows: loops are also compiled with it as a constant */

/* Functions that are unrolled for each way take minutes to compile with a sanitizer. Builds with one, and levels that
 * define ONE_WAY, have one function for all ways. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(ONE_WAY)
#define EACH_WAY_HERE false
#else
#define EACH_WAY_HERE true
#endif

/* The way that the function for these rows is compiled for. */
VEC_INLINE line_way loop_of(const kvb_stored_rows *rows)
{
    return EACH_WAY_HERE && rows->dim == COMMON_DIM ? line_way_of(rows->ahead) : LINES_ANY;
}

/* ---- dot products ------------------------------------------------------------------------------------------------ */

/*
 * A tile of rows x cells takes one pass over the channels: each stored vector is loaded and converted once, for all
 * rows. A tile has at most VL sums; vf_totals() adds up the lanes of all of them at once. late: it does so in the
 * middle of the next tile, where that is faster: additions that wait for each other then lie between multiply-adds that
 * wait for nothing (kernels/NOTES.md).
 */

/* Query rows of a tile. More rows read the block again, from the first-level cache. Tiles of small floats have more
 * rows, because converting costs more. */
#define PLAIN_ROWS 4u
VEC_INLINE uint32_t tile_rows(kvb_elem elem)
{
    return !elem_is_fp8(elem) ? PLAIN_ROWS : VL < DOTS_ROWS ? VL : DOTS_ROWS;
}

/* Cells of a tile: a power of two, so that tiles never straddle the end of a row of scores. */
VEC_INLINE uint32_t tile_cells(uint32_t rows)
{
    return rows <= 2 ? VL / rows : rows <= 4 ? VL / 4 : VL > 8 ? VL / 8 : 1;
}

/* Channels d .. d + VL - 1 of all cells; of small floats elem_vecs() vectors. Each query vector is read once for all
 * cells. */
VEC_INLINE void step_dot(kvb_elem elem, uint32_t rows, uint32_t cells, const float *const *q, const void *const *keys,
                         line_way way, line_ahead ahead, uint32_t d, vf *sums)
{
    /* Cells that are converted before any is multiplied. */
    const uint32_t some = elem_is_fp8(elem) || KEPT_LOADS ? cells : 1;
#pragma GCC unroll 16
    for (uint32_t first = 0; first < cells; first += some) {
        vf key[VL][STEP_VECS];
#pragma GCC unroll 16
        for (uint32_t c = first; c < first + some; c++) {
            elem_read(elem, keys[c], d, key[c]);
            elem_prefetch(elem, way, ahead, keys[c], d);
        }
#pragma GCC unroll 8
        for (uint32_t v = 0; v < elem_vecs(elem); v++)
#pragma GCC unroll 8
            for (uint32_t r = 0; r < rows; r++) {
                const vf x = vf_load_kept(q[r] + d + v * VL);
#pragma GCC unroll 16
                for (uint32_t c = first; c < first + some; c++)
                    sums[r * cells + c] = vf_fma(x, key[c][v], sums[r * cells + c]);
            }
    }
}

/* Channels d .. end - 1 of all cells. Rolled, dots that prefetch take 1.5 times as long (kernels/NOTES.md). */
VEC_INLINE void channels_dot(kvb_elem elem, uint32_t rows, uint32_t cells, const float *const *q,
                             const void *const *keys, line_way way, line_ahead ahead, uint32_t d, uint32_t end,
                             vf *sums)
{
    const uint32_t step = elem_vecs(elem) * VL;
    if (way == LINES_ANY)
#pragma GCC unroll 1
        for (; d < end; d += step)
            step_dot(elem, rows, cells, q, keys, way, ahead, d, sums);
    else
#pragma GCC unroll 8
        for (; d < end; d += step)
            step_dot(elem, rows, cells, q, keys, way, ahead, d, sums);
}

/* One vector of channels, from d on, of one cell. */
VEC_INLINE void cell_dot(kvb_elem elem, uint32_t rows, const float *const *q, const void *key, line_way way,
                         line_ahead ahead, uint32_t d, vf *sum)
{
    vf x[STEP_VECS];
    elem_read(elem, key, d, x);
    elem_prefetch(elem, way, ahead, key, d);
#pragma GCC unroll 2
    for (uint32_t r = 0; r < rows; r++)
        sum[r] = vf_fma(vf_load(q[r] + d), *x, sum[r]);
}

/* Cells c .. end - 1 one after the other, in the order of memory. For one or two query rows and plain elements. */
VEC_INLINE void cells_dot(kvb_elem elem, uint32_t rows, uint32_t cells, const float *const *q, const void *const *keys,
                          line_way way, line_ahead ahead, uint32_t dim, uint32_t c, uint32_t end, vf *sums)
{
    for (; c < end; c++) {
        vf sum[2] = {vf_set(0), vf_set(0)};
        if (way == LINES_ANY)
#pragma GCC unroll 1
            for (uint32_t d = 0; d < dim; d += VL)
                cell_dot(elem, rows, q, keys[c], way, ahead, d, sum);
        else
#pragma GCC unroll 8
            for (uint32_t d = 0; d < dim; d += VL)
                cell_dot(elem, rows, q, keys[c], way, ahead, d, sum);
#pragma GCC unroll 2
        for (uint32_t r = 0; r < rows; r++)
            sums[r * cells + c] = sum[r];
    }
}

VEC_INLINE void totals_store(uint32_t rows, uint32_t cells, const vf *sums, float *scores)
{
    float totals[VL];
    vf_store(totals, vf_totals(sums));
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        memcpy(scores + r * BLOCK, totals + r * cells, cells * sizeof *scores);
}

/* The same for sums in memory: registers cannot hold them beside the next tile's sums. */
VEC_INLINE void late_totals_store(uint32_t rows, uint32_t cells, const float *late, float *scores)
{
    vf sums[VL];
#pragma GCC unroll 16
    for (uint32_t s = 0; s < VL; s++)
        sums[s] = vf_load(late + s * VL);
    totals_store(rows, cells, sums, scores);
}

/* The last cell is repeated to fill the last tile. */
VEC_INLINE void rows_dot(kvb_elem elem, uint32_t rows, const kvb_stored_rows *keys, line_way way, line_ahead ahead,
                         const float *const *q, uint32_t dim, float *scores)
{
    const uint32_t cells = tile_cells(rows), n = keys->n, step = elem_vecs(elem) * VL;
    const bool by_cells = rows <= 2 && !elem_is_fp8(elem) && keys->ahead.by_cells, late = rows * VL > 16;
    const uint32_t middle = late ? dim / 2 / step * step : 0, half = late ? cells / 2 : 0;
    _Alignas(64) float last[VL * VL]; /* late: the sums of the tile before */
    uint32_t i = 0;
    for (; i < n; i += cells) {
        const void *tile[VL];
        vf sums[VL];
#pragma GCC unroll 16
        for (uint32_t c = 0; c < cells; c++)
            tile[c] = keys->at[i + c < n ? i + c : n - 1];
#pragma GCC unroll 16
        for (uint32_t s = 0; s < VL; s++)
            sums[s] = vf_set(0);
        rows_prefetch(way, ahead, tile, cells, 0, (size_t)dim * elem_size(elem));
        if (by_cells)
            cells_dot(elem, rows, cells, q, tile, way, ahead, dim, 0, half, sums);
        else
            channels_dot(elem, rows, cells, q, tile, way, ahead, 0, middle, sums);
        if (late && i)
            late_totals_store(rows, cells, last, scores + i - cells);
        if (by_cells)
            cells_dot(elem, rows, cells, q, tile, way, ahead, dim, half, cells, sums);
        else
            channels_dot(elem, rows, cells, q, tile, way, ahead, middle, dim, sums);
        if (!late)
            totals_store(rows, cells, sums, scores + i);
#pragma GCC unroll 16
        for (uint32_t s = 0; late && s < VL; s++)
            vf_store(last + s * VL, sums[s]);
    }
    if (late && i)
        late_totals_store(rows, cells, last, scores + i - cells);
}

/* Rows of the next pass, of `left` rows: at most `most`, and passes are as even as possible: 5 rows are 3 and 2. */
VEC_INLINE uint32_t rows_of_pass(uint32_t left, uint32_t most)
{
    const uint32_t passes = (left + most - 1) / most;
    return (left + passes - 1) / passes;
}

/* ---- weighted sums ----------------------------------------------------------------------------------------------- */

/*
 * Sums of a strip of channels, for all rows, stay in registers over all cells of the block. They are added to `sums` at
 * the end of the block, so a term passes through n roundings and one for each block.
 */
#define STRIP_VECS 8u /* at most */

VEC_INLINE void strip_sum(kvb_elem elem, uint32_t rows, uint32_t vecs, const kvb_stored_rows *values,
                          const float *weights, line_way way, line_ahead ahead, uint32_t at, float *const *sums)
{
    vf sum[DOTS_ROWS * STRIP_VECS];
#pragma GCC unroll 64
    for (uint32_t s = 0; s < rows * vecs; s++)
        sum[s] = vf_set(0);
    for (uint32_t i = 0; i < values->n; i++) {
        const void *from = elem_at(elem, values->at[i], at);
        vf value[STRIP_VECS];
        rows_prefetch(way, ahead, &from, 1, 0, (size_t)vecs * VL * elem_size(elem));
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vecs; v += elem_vecs(elem)) {
            elem_read(elem, from, v * VL, value + v);
            elem_prefetch(elem, way, ahead, from, v * VL);
        }
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            const float *weight = weights + r * BLOCK + i;
            vf all = vf_set(*weight);
#pragma GCC unroll 8
            for (uint32_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = vecs > 2 ? vf_fma(all, value[v], sum[r * vecs + v])
                                             : vf_fma_one(weight, value[v], sum[r * vecs + v]);
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

/* Vectors of the widest strip: as many as leave the sums in registers, for small floats at least those of one load. */
VEC_INLINE uint32_t widest_strip(kvb_elem elem, uint32_t rows)
{
    const uint32_t fit = 8 * rows <= SUMS_VECS ? 8 : 4 * rows <= SUMS_VECS ? 4 : 2 * rows <= SUMS_VECS ? 2 : 1;
    return fit > elem_vecs(elem) ? fit : elem_vecs(elem);
}

/*
 * The widest strips, then narrower ones for the channels left over; they are not compiled if a constant `dim` leaves
 * none. Of strips that share a line, the first prefetches the line.
 */
VEC_INLINE void rows_sum(kvb_elem elem, uint32_t rows, const kvb_stored_rows *values, const float *weights,
                         line_way way, line_ahead ahead, uint32_t dim, float *const *sums)
{
    const uint32_t widest = widest_strip(elem, rows);
    uint32_t at = 0;
#define STRIPS(VECS)                                                                                                   \
    if (VECS % elem_vecs(elem) == 0 && (VECS == widest || (VECS < widest && dim % (widest * VL))))                     \
        for (; dim - at >= VECS * VL; at += VECS * VL) {                                                               \
            if (VECS * VL * elem_size(elem) < 64 && at * elem_size(elem) % 64)                                         \
                strip_sum(elem, rows, VECS, values, weights, LINES_NONE, ahead, at, sums);                             \
            else                                                                                                       \
                strip_sum(elem, rows, VECS, values, weights, way, ahead, at, sums);                                    \
        }
    STRIPS(8)
    STRIPS(4)
    STRIPS(2)
    STRIPS(1)
#undef STRIPS
}

/*
 * The same sums, but rows are read in the order of memory: a few cells to the end of their rows, then the next few. On
 * some CPUs this is faster than strips (kernels/NOTES.md). The sums of COMMON_DIM channels stay in the first-level
 * cache during a block. Each sum adds the same terms in the same order as with strips, so the bits are the same.
 */
#define CELLS_AT_ONCE 4u /* at most: registers hold a weight for each row and cell, a value for each cell, and a sum */

VEC_INLINE uint32_t cells_at_once(uint32_t rows)
{
    const uint32_t fit = (SUMS_VECS + 3) / (rows + 1);
    return fit < 1 ? 1 : fit < CELLS_AT_ONCE ? fit : CELLS_AT_ONCE;
}

/* The first cells of a block begin its sums; the last ones add these to the sums of all blocks. */
typedef enum block_part { PART_FIRST, PART_MIDDLE, PART_LAST } block_part;

/* Sums one step of channels, from d on. sums: [rows][COMMON_DIM] of the block, from channel d on. all: the sums of all
 * blocks. */
VEC_INLINE void step_sum(kvb_elem elem, uint32_t rows, uint32_t cells, const void *const *values, const vf *weights,
                         block_part part, uint32_t d, float *sums, float *const *all)
{
    vf value[CELLS_AT_ONCE][STEP_VECS];
#pragma GCC unroll 4
    for (uint32_t c = 0; c < cells; c++)
        elem_read(elem, values[c], d, value[c]);
#pragma GCC unroll 8
    for (uint32_t v = 0; v < elem_vecs(elem); v++)
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            float *to = sums + r * COMMON_DIM + v * VL;
            vf sum = part == PART_FIRST ? vf_set(0) : vf_load(to);
#pragma GCC unroll 4
            for (uint32_t c = 0; c < cells; c++)
                sum = vf_fma(weights[r * cells + c], value[c][v], sum);
            if (part == PART_LAST) {
                to = all[r] + d + v * VL;
                sum = vf_load(to) + sum;
            }
            vf_store(to, sum);
        }
}

/* Sums channels at .. end - 1. sums: [rows][COMMON_DIM] of the block, from channel `at` on. */
VEC_INLINE void channels_sum(kvb_elem elem, uint32_t rows, uint32_t cells, const void *const *values, const vf *weights,
                             line_way way, line_ahead ahead, block_part part, uint32_t at, uint32_t end, float *sums,
                             float *const *all)
{
    const uint32_t line = 64 / elem_size(elem), step = elem_vecs(elem) * VL;
    uint32_t d = at;
#pragma GCC unroll 1
    for (; d + line <= end; d += line) {
#pragma GCC unroll 4
        for (uint32_t c = 0; c < cells; c++)
            elem_prefetch(elem, way, ahead, values[c], d);
#pragma GCC unroll 8
        for (uint32_t s = 0; s < line; s += step)
            step_sum(elem, rows, cells, values, weights, part, d + s, sums + (d - at) + s, all);
    }
    for (; d + step <= end; d += step)
        step_sum(elem, rows, cells, values, weights, part, d, sums + (d - at), all);
}

/* The same for weights in memory. */
VEC_INLINE void cells_sum(kvb_elem elem, uint32_t rows, uint32_t cells, const void *const *values, const float *weight,
                          line_way way, line_ahead ahead, block_part part, uint32_t at, uint32_t end, float *sums,
                          float *const *all)
{
    vf weights[DOTS_ROWS * CELLS_AT_ONCE];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (uint32_t c = 0; c < cells; c++)
            weights[r * cells + c] = vf_set(weight[r * BLOCK + c]);
    rows_prefetch(way, ahead, values, cells, (size_t)at * elem_size(elem), (size_t)(end - at) * elem_size(elem));
#define PART(P)                                                                                                        \
    if (part == P)                                                                                                     \
        channels_sum(elem, rows, cells, values, weights, way, ahead, P, at, end, sums, all);
    PART(PART_FIRST)
    PART(PART_MIDDLE)
    PART(PART_LAST)
#undef PART
}

/* Adds a block's sums of channels at .. end - 1, [rows][COMMON_DIM], to the sums of all blocks. */
VEC_INLINE void block_add(uint32_t rows, const float *block, uint32_t at, uint32_t end, float *const *sums)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t d = at; d + VL <= end; d += VL)
            vf_store(sums[r] + d, vf_load(sums[r] + d) + vf_load(block + r * COMMON_DIM + d - at));
}

VEC_INLINE void rows_sum_by_cells(kvb_elem elem, uint32_t rows, const kvb_stored_rows *values, const float *weights,
                                  line_way way, line_ahead ahead, uint32_t dim, float *const *sums)
{
    const uint32_t cells = cells_at_once(rows);
    _Alignas(64) float block[DOTS_ROWS * COMMON_DIM];
    for (uint32_t at = 0, end; at < dim; at = end) {
        uint32_t i = 0;
        end = dim - at < COMMON_DIM ? dim : at + COMMON_DIM;
        memset(block, 0, rows * COMMON_DIM * sizeof *block);
        for (; i + cells <= values->n; i += cells)
            cells_sum(elem, rows, cells, values->at + i, weights + i, way, ahead, PART_MIDDLE, at, end, block, sums);
        for (; i < values->n; i++)
            cells_sum(elem, rows, 1, values->at + i, weights + i, way, ahead, PART_MIDDLE, at, end, block, sums);
        block_add(rows, block, at, end, sums);
    }
}

/* Rows at a time: as many as leave the sums of the narrowest strip in registers. */
VEC_INLINE uint32_t sums_rows(kvb_elem elem)
{
    const uint32_t fit = SUMS_VECS / elem_vecs(elem);
    return fit < SUMS_ROWS ? fit : SUMS_ROWS;
}

#endif
