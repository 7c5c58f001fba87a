/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products of one block of plain floats together with weighted sums of another (in_place.h). */
#include "kernels/vector/in_place.h"

/* Takes tile_cells() cells, from the i-th of n on. One or two query rows take a row or two of K, then as many of V, and
 * so on; more take all rows of K first. block: the sums over the cells so far. */
VEC_INLINE void tile_beside(kvb_elem elem, uint32_t rows, uint32_t i, uint32_t n, const void *const *keys,
                            const float *const *q, float *scores, const void *const *values, const float *weights,
                            line_way way, line_ahead ahead_k, line_ahead ahead_v, float *block, float *const *sums)
{
    const uint32_t cells = tile_cells(rows), some = rows <= 2 ? rows : cells;
    vf tile[VL];
    rows_prefetch(way, ahead_k, keys, cells, 0, (size_t)COMMON_DIM * elem_size(elem));
#pragma GCC unroll 16
    for (uint32_t s = 0; s < VL; s++)
        tile[s] = vf_set(0);
#pragma GCC unroll 1 /* or 16 cells of one row would take 16 KiB of code */
    for (uint32_t c = 0; c < cells; c += some) {
        if (rows <= 2)
            cells_dot(elem, rows, cells, q, keys, way, ahead_k, COMMON_DIM, c, c + some, tile);
        else
            channels_dot(elem, rows, cells, q, keys, way, ahead_k, 0, COMMON_DIM, tile);
        const block_part part = i + c == 0 ? PART_FIRST : i + c + some == n ? PART_LAST : PART_MIDDLE;
        cells_sum(elem, rows, some, values + c, weights + c, way, ahead_v, part, 0, COMMON_DIM, block, sums);
    }
    totals_store(rows, cells, tile, scores);
}

/* Gives the same results as dots() and sums(). Reads each tile of K for four query rows at a time; of eight rows the
 * first four prefetch. */
VEC_INLINE void rows_beside(kvb_elem elem, uint32_t rows, const kvb_stored_rows *keys, const float *const *q,
                            float *scores, const kvb_stored_rows *values, const float *weights, line_way way,
                            float *const *sums)
{
    const uint32_t some = rows < 4 ? rows : 4, cells = tile_cells(some), n = keys->n;
    const line_ahead ahead_k = line_ahead_of(elem, rows, keys->ahead),
                     ahead_v = line_ahead_of(elem, rows, values->ahead);
    _Alignas(64) float block[BESIDE_ROWS * COMMON_DIM];
    for (uint32_t i = 0; i + cells <= n; i += cells) {
        const void *const *k = keys->at + i, *const *v = values->at + i;
        tile_beside(elem, some, i, n, k, q, scores + i, v, weights + i, way, ahead_k, ahead_v, block, sums);
        if (rows == 8)
            tile_beside(elem, 4, i, n, k, q + 4, scores + 4 * BLOCK + i, v, weights + 4 * BLOCK + i, LINES_NONE,
                        ahead_k, ahead_v, block + 4 * COMMON_DIM, sums + 4);
    }
}

typedef void beside_fn(const kvb_stored_rows *keys, const float *const *q, float *scores, const kvb_stored_rows *values,
                       const float *weights, float *const *sums);

/* Each line is prefetched once, as in the built-in settings: `again` is ignored. With ahead.bytes 0 it is the line that
 * is read anyway. */
#define EACH_BESIDE(X, elem)   X(elem, 1) X(elem, 2) X(elem, 3) X(elem, 4) X(elem, 8)
#define BESIDE_WAYS(CASE, ...) CASE(LINES_FAR, __VA_ARGS__) CASE(LINES_NEAR, __VA_ARGS__)
#define BESIDE(WAY, ELEM, N)                                                                                           \
    static __attribute__((noinline)) void beside_##WAY##_##ELEM##_##N(                                                 \
        const kvb_stored_rows *keys, const float *const *q, float *scores, const kvb_stored_rows *values,              \
        const float *weights, float *const *sums)                                                                      \
    {                                                                                                                  \
        if (EACH_WAY_HERE || WAY == LINES_FAR)                                                                         \
            rows_beside(ELEM, N, keys, q, scores, values, weights, EACH_WAY_HERE ? WAY : LINES_ANY, sums);             \
    }
#define BESIDES(ELEM, N) BESIDE_WAYS(BESIDE, ELEM, N)
#define BESIDE_OF(ELEM)  EACH_BESIDE(BESIDES, ELEM)
PLAIN_ELEMS(BESIDE_OF)

static beside_fn *const besides[KVB_ELEM_COUNT][BESIDE_ROWS][2] = {
#define WAY(WAY, ELEM, N) beside_##WAY##_##ELEM##_##N,
#define ROW(ELEM, N)      [N - 1] = {BESIDE_WAYS(WAY, ELEM, N)},
#define LINE(ELEM)        [ELEM] = {EACH_BESIDE(ROW, ELEM)},
    PLAIN_ELEMS(LINE)};

void KVB_ISA_NAME(kvb_beside)(const kvb_stored_rows *keys, const void *const *q, float *scores,
                              const kvb_stored_rows *values, const float *weights, uint32_t n_rows, float *const *sums)
{
    const float *rows[BESIDE_ROWS];
    for (uint32_t r = 0; r < n_rows; r++)
        rows[r] = q[r];
    besides[keys->elem][n_rows - 1][EACH_WAY_HERE && keys->ahead.near](keys, rows, scores, values, weights, sums);
}
