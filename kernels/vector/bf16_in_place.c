/* SPDX-License-Identifier: Apache-2.0 */
/* Few query rows and stored rows where they lie, by products of pairs of bf16: in_place.h explains the loops. */
#include "kernels/vector/bf16.h"

#ifdef BF16_HERE

#define COMMON_DIM 128u /* the commonest size of rows: loops are also compiled with it as a constant */
#define TILE_ROWS  (DOTS_ROWS < VL ? DOTS_ROWS : VL)

/* An element of the same size, for prefetching, which needs only the size. */
VEC_INLINE kvb_elem elem_like(bool fp8)
{
    return fp8 ? KVB_E4M3 : KVB_BF16;
}

/* Prefetches the line of channel c of the row ahead, if one begins there. */
VEC_INLINE void channels_prefetch(bool fp8, line_way way, line_ahead ahead, const void *row, uint32_t c, uint32_t dim)
{
    if (c < dim)
        elem_prefetch(elem_like(fp8), way, ahead, row, c);
}

/* Prefetches all lines of the row ahead: one call, where inlined prefetches of each line would be most of a loop's code.
 * gcc sees that the function touches no vector (-fipa-ra), so sums stay in registers. */
static __attribute__((noinline)) void row_prefetch(const line_ahead *ahead, const void *row, size_t bytes)
{
    __asm__ volatile(""); /* gcc leaves out calls of functions that only prefetch */
    for (size_t at = 0; at < bytes; at += 64)
        line_prefetch(ahead->way, *ahead, row, at);
}

/* ---- dot products ------------------------------------------------------------------------------------------------ */

/* Sums of a tile's cells c .. end - 1. */
VEC_INLINE void cells_dot(bool fp8, uint32_t rows, uint32_t cells, fp8_table table, const uint8_t *const *queries,
                          const uint8_t *const *keys, line_way way, const line_ahead *ahead, uint32_t dim, uint32_t c,
                          uint32_t end, vi *sums)
{
    const bool at_once = rows <= 2; /* tiles of many cells; with few cells and many sums a call takes longer */
#pragma GCC unroll 16
    for (; c < end; c++) {
        if (at_once && way != LINES_NONE)
            row_prefetch(ahead, keys[c], (size_t)dim * elem_size(elem_like(fp8)));
#pragma GCC unroll 2
        for (uint32_t d = 0; d < dim; d += STEP) {
            pairs x[ROW_VECS];
            row_load(fp8, table, keys[c], d, dim, x);
#pragma GCC unroll 2
            for (uint32_t j = 0; j < ROW_VECS; j++) {
                channels_prefetch(fp8, at_once ? LINES_NONE : way, *ahead, keys[c], d + 2 * VL * j, dim);
#pragma GCC unroll 8
                for (uint32_t r = 0; r < rows; r++) {
                    vi *sum = &sums[r * cells + c];
                    *sum = pairs_dot_at(*sum, (vi)x[j], queries[r] + 2 * d + 4 * VL * j);
                }
            }
        }
    }
}

VEC_INLINE void late_totals_store(uint32_t rows, uint32_t cells, const float *late, const void *const *q, float *scores)
{
    vf sums[VL];
    float totals[VL];
#pragma GCC unroll 16
    for (uint32_t s = 0; s < VL; s++)
        sums[s] = vf_load(late + s * VL);
    vf_store(totals, vf_totals(sums));
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++) {
        const float back = *(const float *)q[r];
        for (uint32_t c = 0; c < cells; c++)
            scores[r * BLOCK + c] = totals[r * cells + c] * back;
    }
}

/* A tile has VL sums, rows x cells. Their lanes are added up at once, amid the next tile's products. */
VEC_INLINE void rows_dot(bool fp8, uint32_t rows, const kvb_stored_rows *keys, line_way way, const void *const *q,
                         uint32_t dim, float *scores)
{
    const uint32_t cells = rows == 1 ? VL : rows == 2 ? VL / 2 : rows <= 4 ? VL / 4 : VL > 8 ? VL / 8 : 1, n = keys->n;
    const line_ahead ahead = line_ahead_of(elem_like(fp8), rows, keys->ahead);
    const fp8_table table = fp8_table_of(keys->elem);
    const uint8_t *queries[DOTS_ROWS];
    _Alignas(64) float last[VL * VL] = {0};
    uint32_t i = 0;
    for (uint32_t r = 0; r < rows; r++)
        queries[r] = (const uint8_t *)q[r] + 64;
    for (; i < n; i += cells) {
        const uint8_t *tile[VL];
        vi sums[VL];
#pragma GCC unroll 16
        for (uint32_t c = 0; c < cells; c++)
            tile[c] = keys->at[i + c < n ? i + c : n - 1];
#pragma GCC unroll 16
        for (uint32_t s = 0; s < VL; s++)
            sums[s] = vi_set(0);
        cells_dot(fp8, rows, cells, table, queries, tile, way, &ahead, dim, 0, cells / 2, sums);
        if (i)
            late_totals_store(rows, cells, last, q, scores + i - cells);
        cells_dot(fp8, rows, cells, table, queries, tile, way, &ahead, dim, cells / 2, cells, sums);
#pragma GCC unroll 16
        for (uint32_t s = 0; s < VL; s++)
            vf_store(last + s * VL, (vf)sums[s]);
    }
    if (i)
        late_totals_store(rows, cells, last, q, scores + i - cells);
}

typedef void dots_fn(const kvb_stored_rows *keys, const void *const *q, float *scores);

#define DOTS(KIND, N)                                                                                                  \
    static __attribute__((noinline)) void dots_##KIND##_##N(const kvb_stored_rows *keys, const void *const *q,         \
                                                            float *scores)                                             \
    {                                                                                                                  \
        const line_way way = line_way_of(keys->ahead);                                                                 \
        if (N <= TILE_ROWS && keys->dim == COMMON_DIM)                                                                 \
            rows_dot(KIND, N, keys, way, q, COMMON_DIM, scores);                                                       \
        else if (N <= TILE_ROWS)                                                                                       \
            rows_dot(KIND, N, keys, way, q, keys->dim, scores);                                                        \
    }
enum { OF_BF16, OF_FP8 };
EACH_ROWS(DOTS, OF_BF16)
EACH_ROWS(DOTS, OF_FP8)

static dots_fn *const dots[][DOTS_ROWS] = {
#define ROW(KIND, N) dots_##KIND##_##N,
    [OF_BF16] = {EACH_ROWS(ROW, OF_BF16)},
    [OF_FP8] = {EACH_ROWS(ROW, OF_FP8)},
#undef ROW
};

bool KVB_ISA_NAME(kvb_bf16_dots)(const kvb_stored_rows *keys, const void *const *q, uint32_t n_rows, float *scores)
{
    for (uint32_t r = 0, some; r < n_rows; r += some) {
        some = n_rows - r < TILE_ROWS ? n_rows - r : TILE_ROWS;
        dots[keys->elem == KVB_BF16 ? OF_BF16 : OF_FP8][some - 1](keys, q + r, scores + r * BLOCK);
    }
    return true;
}

/* ---- weighted sums ----------------------------------------------------------------------------------------------- */

/* Sums of channels at .. at + STEP * parts - 1, as far as dim, for all rows: in registers while pairs of cells go by.
 */
VEC_INLINE void strip_sum(bool fp8, uint32_t rows, uint32_t parts, const kvb_stored_rows *values,
                          const int32_t *weights, uint32_t at, uint32_t dim, float *const *sums)
{
    const line_way way = line_way_of(values->ahead);
    const line_ahead ahead = line_ahead_of(elem_like(fp8), rows, values->ahead);
    const fp8_table table = fp8_table_of(values->elem);
    const uint32_t vecs = 2 * ROW_VECS * parts, there = (dim - at + VL - 1) / VL;
    vi sum[SUMS_VECS];
#pragma GCC unroll 32
    for (uint32_t s = 0; s < rows * vecs; s++)
        sum[s] = vi_set(0);
    for (uint32_t i = 0; i < values->n; i += 2) {
        const uint8_t *a = values->at[i], *b = i + 1 < values->n ? values->at[i + 1] : NULL;
        pairs pair[4 * ROW_VECS];
#pragma GCC unroll 2
        for (uint32_t p = 0; p < parts; p++) {
            const uint32_t c = at + p * STEP;
            pairs x[ROW_VECS], y[ROW_VECS];
            row_load(fp8, table, a, c, dim, x);
#pragma GCC unroll 2
            for (uint32_t j = 0; j < ROW_VECS; j++)
                y[j] = (pairs)vi_set(0);
            if (b)
                row_load(fp8, table, b, c, dim, y);
#pragma GCC unroll 2
            for (uint32_t j = 0; j < ROW_VECS; j++) {
                channels_prefetch(fp8, way, ahead, a, c + 2 * VL * j, dim);
                if (b)
                    channels_prefetch(fp8, way, ahead, b, c + 2 * VL * j, dim);
                pair[2 * (p * ROW_VECS + j)] = pairs_low(x[j], y[j]);
                pair[2 * (p * ROW_VECS + j) + 1] = pairs_high(x[j], y[j]);
            }
        }
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            const vi weight = vi_set(weights[r * BLOCK / 2 + i / 2]);
#pragma GCC unroll 8
            for (uint32_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = pairs_dot(sum[r * vecs + v], (vi)pair[v], weight);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vecs; v++)
            if (v < there) {
                float *to = sums[r] + at + v * VL;
                vf_store(to, vf_load(to) + (vf)sum[r * vecs + v]);
            }
}

/* SUMS_VECS sums fit the registers: strips have two steps if that leaves no more sums, else one. */
VEC_INLINE void rows_sum(bool fp8, uint32_t rows, const kvb_stored_rows *values, const int32_t *weights, uint32_t dim,
                         float *const *sums)
{
    uint32_t at = 0;
    if (rows * 4 * ROW_VECS <= SUMS_VECS)
        for (; at + 2 * STEP <= dim; at += 2 * STEP)
            strip_sum(fp8, rows, 2, values, weights, at, dim, sums);
    for (; at < dim; at += STEP)
        strip_sum(fp8, rows, 1, values, weights, at, dim, sums);
}

typedef void sums_fn(const kvb_stored_rows *values, const int32_t *weights, float *const *sums);

#define SUMS(KIND, N)                                                                                                  \
    static __attribute__((noinline)) void sums_##KIND##_##N(const kvb_stored_rows *values, const int32_t *weights,     \
                                                            float *const *sums)                                        \
    {                                                                                                                  \
        if (N <= PRODUCT_ROWS && values->dim == COMMON_DIM)                                                            \
            rows_sum(KIND, N, values, weights, COMMON_DIM, sums);                                                      \
        else if (N <= PRODUCT_ROWS)                                                                                    \
            rows_sum(KIND, N, values, weights, values->dim, sums);                                                     \
    }
EACH_ROWS(SUMS, OF_BF16)
EACH_ROWS(SUMS, OF_FP8)

static sums_fn *const sums_of[][DOTS_ROWS] = {
#define ROW(KIND, N) sums_##KIND##_##N,
    [OF_BF16] = {EACH_ROWS(ROW, OF_BF16)},
    [OF_FP8] = {EACH_ROWS(ROW, OF_FP8)},
#undef ROW
};

bool KVB_ISA_NAME(kvb_bf16_sums)(const kvb_stored_rows *values, const float *weights, uint32_t n_rows,
                                 float *const *sums)
{
    _Alignas(64) int32_t rounded[DOTS_ROWS * BLOCK / 2]; /* a dword: the weights of two cells */
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < values->n; i += 2 * VL)
            pairs_store(rounded + (r * BLOCK + i) / 2, vf_load(weights + r * BLOCK + i),
                        vf_load(weights + r * BLOCK + i + VL));
    for (uint32_t r = 0, some; r < n_rows; r += some) {
        some = n_rows - r <= PRODUCT_ROWS ? n_rows - r : (n_rows + 1) / 2;
        sums_of[values->elem == KVB_BF16 ? OF_BF16 : OF_FP8][some - 1](values, rounded + r * BLOCK / 2, sums + r);
    }
    return true;
}
#endif
