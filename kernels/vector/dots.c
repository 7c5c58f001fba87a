/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dot products of a few query rows with stored rows. A tile of rows x cells takes one pass over the channels: each
 * stored vector is loaded and converted once, for all rows. Its at most VL partial sums are then added up at once, by
 * the shuffles of vf_totals().
 */
#include <string.h>

#include "kernels/vector/elem.h"
#include "kernels/vector/micro.h"

/* Most rows of a tile: VL sums are all that vf_totals() takes. */
#define TILE_ROWS (DOTS_ROWS < VL ? DOTS_ROWS : VL)

/* Cells of a tile: a power of two, so that tiles never straddle the end of a row of scores. */
VEC_INLINE uint32_t tile_cells(uint32_t rows)
{
    return rows == 1 ? VL : rows == 2 ? VL / 2 : rows <= 4 ? VL / 4 : VL > 8 ? VL / 8 : 1;
}

/* The tile's channels in steps, each of all cells: a stored vector meets query rows that are in registers. */
VEC_INLINE void channels_dot(kvb_elem elem, uint32_t rows, uint32_t cells, const float *const *q,
                             const void *const *keys, elem_ask ask, uint32_t dim, vf *sums)
{
    const uint32_t some = elem_is_fp8(elem) ? cells : 1; /* that are converted before they are multiplied */
    for (uint32_t d = 0; d < dim; d += elem_vecs(elem) * VL)
#pragma GCC unroll 16
        for (uint32_t first = 0; first < cells; first += some) {
            vf key[VL][STEP_VECS];
#pragma GCC unroll 16
            for (uint32_t c = first; c < first + some; c++) {
                elem_read(elem, keys[c], d, key[c]);
                elem_prefetch(elem, ask, keys[c], d);
            }
#pragma GCC unroll 8
            for (uint32_t v = 0; v < elem_vecs(elem); v++)
#pragma GCC unroll 16
                for (uint32_t c = first; c < first + some; c++)
#pragma GCC unroll 8
                    for (uint32_t r = 0; r < rows; r++)
                        sums[r * cells + c] = vf_fma(vf_load(q[r] + d + v * VL), key[c][v], sums[r * cells + c]);
        }
}

/* One cell after the other, as memory has them. Plain elements. */
VEC_INLINE void cells_dot(kvb_elem elem, uint32_t rows, uint32_t cells, const float *const *q, const void *const *keys,
                          elem_ask ask, uint32_t dim, vf *sums)
{
#pragma GCC unroll 16
    for (uint32_t c = 0; c < cells; c++)
#pragma GCC unroll 8
        for (uint32_t d = 0; d < dim; d += VL) {
            vf key[STEP_VECS];
            elem_read(elem, keys[c], d, key);
            elem_prefetch(elem, ask, keys[c], d);
#pragma GCC unroll 2
            for (uint32_t r = 0; r < rows; r++)
                sums[r * cells + c] = vf_fma(vf_load(q[r] + d), *key, sums[r * cells + c]);
        }
}

VEC_INLINE void tile_dot(kvb_elem elem, uint32_t rows, uint32_t cells, const float *const *q, const void *const *keys,
                         elem_ask ask, bool by_cells, uint32_t dim, float *scores)
{
    vf sums[VL];
    float totals[VL];
#pragma GCC unroll 16
    for (uint32_t s = 0; s < VL; s++)
        sums[s] = vf_set(0);
    if (by_cells)
        cells_dot(elem, rows, cells, q, keys, ask, dim, sums);
    else
        channels_dot(elem, rows, cells, q, keys, ask, dim, sums);
    vf_store(totals, vf_totals(sums));
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        memcpy(scores + r * BLOCK, totals + r * cells, cells * sizeof *scores);
}

/* Past the last cell, a tile repeats it. */
VEC_INLINE void rows_dot(kvb_elem elem, uint32_t rows, const float *const *q, const void *const *keys, kvb_ahead ahead,
                         uint32_t n, uint32_t dim, float *scores)
{
    const uint32_t cells = tile_cells(rows);
    const elem_ask ask = elem_ask_of(elem, dim, rows, ahead);
    const bool by_cells = rows <= 2 && !elem_is_fp8(elem) && kvb_prefetch_here()->by_cells;
    for (uint32_t i = 0; i < n; i += cells) {
        const void *tile[VL];
#pragma GCC unroll 16
        for (uint32_t c = 0; c < cells; c++)
            tile[c] = keys[i + c < n ? i + c : n - 1];
        tile_dot(elem, rows, cells, q, tile, ask, by_cells, dim, scores + i);
    }
}

VEC_INLINE void elem_dot(kvb_elem elem, const float *const *q, uint32_t n_rows, const void *const *keys,
                         kvb_ahead ahead, uint32_t n, uint32_t dim, float *scores)
{
    for (uint32_t r = 0, rows; r < n_rows; r += rows) {
        rows = n_rows - r < TILE_ROWS ? n_rows - r : TILE_ROWS;
#define ROWS(N)                                                                                                        \
    case N:                                                                                                            \
        rows_dot(elem, N < TILE_ROWS ? N : TILE_ROWS, q + r, keys, ahead, n, dim, scores + r * BLOCK);                 \
        break;
        ROWS_CASES(rows, ROWS)
#undef ROWS
    }
}

void KVB_ISA_NAME(kvb_dots)(kvb_elem elem, const float *const *q, uint32_t n_rows, const void *const *keys,
                            kvb_ahead ahead, uint32_t n, uint32_t dim, float *scores)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        if (dim == 128)                                                                                                \
            elem_dot(ELEM, q, n_rows, keys, ahead, n, 128, scores);                                                    \
        else                                                                                                           \
            elem_dot(ELEM, q, n_rows, keys, ahead, n, dim, scores);                                                    \
        break;
    ELEM_CASES(elem, CASE)
#undef CASE
}
