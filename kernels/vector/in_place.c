/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Few query rows and stored rows of floats where they lie: dot products and weighted sums. Each number of query rows and each
 * element has a function of its own, which keeps its sums in registers. One large function would take gcc far longer.
 */
#include "kernels/vector/stored_floats.h"

#define COMMON_DIM 128u /* compiled as a constant too */

/* ---- dot products ------------------------------------------------------------------------------------------------ */

/*
 * A tile of rows x cells needs one pass over the channels: each stored vector is loaded and converted once, for all rows. It has
 * at most VL sums, whose lanes vf_totals() then adds up at once.
 */
#define TILE_ROWS (DOTS_ROWS < VL ? DOTS_ROWS : VL)

/* Cells of a tile: a power of two, so that tiles never straddle the end of a row of scores. */
VEC_INLINE uint32_t tile_cells(uint32_t rows)
{
    return rows == 1 ? VL : rows == 2 ? VL / 2 : rows <= 4 ? VL / 4 : VL > 8 ? VL / 8 : 1;
}

/* Step by step over the channels, and in each step over all cells, so that query vectors stay in registers. */
VEC_INLINE void channels_dot(kvb_elem elem, uint32_t rows, uint32_t cells, const float *const *q,
                             const void *const *keys, line_ahead ahead, uint32_t dim, vf *sums)
{
    const uint32_t some = elem_is_fp8(elem) ? cells : 1; /* so many cells are converted before any is multiplied */
    for (uint32_t d = 0; d < dim; d += elem_vecs(elem) * VL)
#pragma GCC unroll 16
        for (uint32_t first = 0; first < cells; first += some) {
            vf key[VL][STEP_VECS];
#pragma GCC unroll 16
            for (uint32_t c = first; c < first + some; c++) {
                elem_read(elem, keys[c], d, key[c]);
                elem_prefetch(elem, ahead, keys[c], d);
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

/* One cell after the other, in the order of memory. For one or two query rows and plain elements. */
VEC_INLINE void cells_dot(kvb_elem elem, uint32_t rows, uint32_t cells, const float *const *q, const void *const *keys,
                          line_ahead ahead, uint32_t dim, vf *sums)
{
    for (uint32_t c = 0; c < cells; c++) {
        vf sum[2] = {vf_set(0), vf_set(0)};
#pragma GCC unroll 8
        for (uint32_t d = 0; d < dim; d += VL) {
            vf key[STEP_VECS];
            elem_read(elem, keys[c], d, key);
            elem_prefetch(elem, ahead, keys[c], d);
#pragma GCC unroll 2
            for (uint32_t r = 0; r < rows; r++)
                sum[r] = vf_fma(vf_load(q[r] + d), *key, sum[r]);
        }
#pragma GCC unroll 2
        for (uint32_t r = 0; r < rows; r++)
            sums[r * cells + c] = sum[r];
    }
}

VEC_INLINE void tile_dot(kvb_elem elem, uint32_t rows, uint32_t cells, const float *const *q, const void *const *keys,
                         line_ahead ahead, bool by_cells, uint32_t dim, float *scores)
{
    vf sums[VL];
    float totals[VL];
#pragma GCC unroll 16
    for (uint32_t s = 0; s < VL; s++)
        sums[s] = vf_set(0);
    if (by_cells)
        cells_dot(elem, rows, cells, q, keys, ahead, dim, sums);
    else
        channels_dot(elem, rows, cells, q, keys, ahead, dim, sums);
    vf_store(totals, vf_totals(sums));
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        memcpy(scores + r * BLOCK, totals + r * cells, cells * sizeof *scores);
}

/* A tile past the last cell repeats that cell. */
VEC_INLINE void rows_dot(kvb_elem elem, uint32_t rows, const kvb_stored_rows *keys, const float *const *q, uint32_t dim,
                         float *scores)
{
    const uint32_t cells = tile_cells(rows), n = keys->n;
    const line_ahead ahead = line_ahead_of(elem, rows, keys->ahead);
    const bool by_cells = rows <= 2 && !elem_is_fp8(elem) && keys->ahead.by_cells;
    for (uint32_t i = 0; i < n; i += cells) {
        const void *tile[VL];
#pragma GCC unroll 16
        for (uint32_t c = 0; c < cells; c++)
            tile[c] = keys->at[i + c < n ? i + c : n - 1];
        tile_dot(elem, rows, cells, q, tile, ahead, by_cells, dim, scores + i);
    }
}

typedef void dots_fn(const kvb_stored_rows *keys, const float *const *q, float *scores);

#define DOTS(ELEM, N)                                                                                                  \
    static __attribute__((noinline)) void dots_##ELEM##_##N(const kvb_stored_rows *keys, const float *const *q,        \
                                                            float *scores)                                             \
    {                                                                                                                  \
        if (N <= TILE_ROWS && keys->dim == COMMON_DIM)                                                                 \
            rows_dot(ELEM, N, keys, q, COMMON_DIM, scores);                                                            \
        else if (N <= TILE_ROWS)                                                                                       \
            rows_dot(ELEM, N, keys, q, keys->dim, scores);                                                             \
    }
#define DOTS_OF(ELEM) EACH_ROWS(DOTS, ELEM)
FLOAT_ELEMS(DOTS_OF)

static dots_fn *const dots[KVB_ELEM_COUNT][DOTS_ROWS] = {
#define ROW(ELEM, N) dots_##ELEM##_##N,
#define LINE(ELEM)   [ELEM] = {EACH_ROWS(ROW, ELEM)},
    FLOAT_ELEMS(LINE)
#undef ROW
#undef LINE
};

bool KVB_ISA_NAME(kvb_dots)(const kvb_stored_rows *keys, const void *const *q, uint32_t n_rows, float *scores)
{
    const float *rows[DOTS_ROWS];
    for (uint32_t r = 0; r < n_rows; r++)
        rows[r] = q[r];
    for (uint32_t r = 0, some; r < n_rows; r += some) {
        some = n_rows - r < TILE_ROWS ? n_rows - r : TILE_ROWS;
        dots[keys->elem][some - 1](keys, rows + r, scores + r * BLOCK);
    }
    return true;
}

/* ---- weighted sums ----------------------------------------------------------------------------------------------- */

/*
 * Sums of a strip of channels, for all rows, stay in registers while the cells go by. They are added to `sums` at the end of the
 * block, so that a term passes through n roundings and one for each block.
 */
#define STRIP_VECS 8u /* at most */

VEC_INLINE void strip_sum(kvb_elem elem, uint32_t rows, uint32_t vecs, const kvb_stored_rows *values,
                          const float *weights, line_ahead ahead, uint32_t at, float *const *sums)
{
    vf sum[DOTS_ROWS * STRIP_VECS];
#pragma GCC unroll 64
    for (uint32_t s = 0; s < rows * vecs; s++)
        sum[s] = vf_set(0);
    for (uint32_t i = 0; i < values->n; i++) {
        const void *from = elem_at(elem, values->at[i], at);
        vf value[STRIP_VECS];
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vecs; v += elem_vecs(elem)) {
            elem_read(elem, from, v * VL, value + v);
            elem_prefetch(elem, ahead, from, v * VL);
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
VEC_INLINE void rows_sum(kvb_elem elem, uint32_t rows, const kvb_stored_rows *values, const float *weights,
                         uint32_t dim, float *const *sums)
{
    const line_ahead ahead = line_ahead_of(elem, rows, values->ahead);
    uint32_t at = 0;
#define STRIPS(VECS)                                                                                                   \
    if (VECS % elem_vecs(elem) == 0 && (rows * VECS <= SUMS_VECS || VECS == elem_vecs(elem)))                          \
        for (; dim - at >= VECS * VL; at += VECS * VL)                                                                 \
            strip_sum(elem, rows, VECS, values, weights, ahead, at, sums);
    STRIPS(8)
    STRIPS(4)
    STRIPS(2)
    STRIPS(1)
#undef STRIPS
}

/* How many rows at a time: as many as leave the narrowest strip in registers. */
VEC_INLINE uint32_t sums_rows(kvb_elem elem)
{
    const uint32_t fit = SUMS_VECS / elem_vecs(elem);
    return fit < SUMS_ROWS ? fit : SUMS_ROWS;
}

typedef void sums_fn(const kvb_stored_rows *values, const float *weights, float *const *sums);

#define SUMS(ELEM, N)                                                                                                  \
    static __attribute__((noinline)) void sums_##ELEM##_##N(const kvb_stored_rows *values, const float *weights,       \
                                                            float *const *sums)                                        \
    {                                                                                                                  \
        if (N <= sums_rows(ELEM) && values->dim == COMMON_DIM)                                                         \
            rows_sum(ELEM, N, values, weights, COMMON_DIM, sums);                                                      \
        else if (N <= sums_rows(ELEM))                                                                                 \
            rows_sum(ELEM, N, values, weights, values->dim, sums);                                                     \
    }
#define SUMS_OF(ELEM) EACH_ROWS(SUMS, ELEM)
FLOAT_ELEMS(SUMS_OF)

static sums_fn *const sums_of[KVB_ELEM_COUNT][DOTS_ROWS] = {
#define ROW(ELEM, N) sums_##ELEM##_##N,
#define LINE(ELEM)   [ELEM] = {EACH_ROWS(ROW, ELEM)},
    FLOAT_ELEMS(LINE)
#undef ROW
#undef LINE
};

bool KVB_ISA_NAME(kvb_sums)(const kvb_stored_rows *values, const float *weights, uint32_t n_rows, float *const *sums)
{
    const uint32_t most = sums_rows(values->elem);
    for (uint32_t r = 0, some; r < n_rows; r += some) {
        uint32_t left = n_rows - r, parts = (left + most - 1) / most;
        some = (left + parts - 1) / parts;
        sums_of[values->elem][some - 1](values, weights + r * BLOCK, sums + r);
    }
    return true;
}
