/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any number of query rows by AMX's products of tiles of bf16. A block is packed as for the products of vectors: a dword
 * has two bf16 of one sum, and 16 dwords of 16 rows are a tile. Query rows, weights and sums are tiles where 16 of them lie
 * at equal distances; else they are copied.
 */
#if defined(__AMX_BF16__) || defined(__AMXBF16__) || defined(KVB_TILES_EMULATED) /* gcc, clang 14 */
#include "kernels/vector/bf16_pack.h"
#include "kernels/vector/tiles.h"

#define ROWS  TILE_ROWS_MAX
#define DEPTH (TILE_BYTES / 2) /* channels or cells that an instruction adds up */
#define LANES TILE_LANES       /* columns of a tile */

/* Clears rows of pairs that were not packed: they are multiplied by 0, so they must be finite. */
static inline void tail_clear(int32_t *tile, size_t stride, uint32_t from, uint32_t end)
{
    if (from < end)
        memset(tile + from * stride, 0, (end - from) * stride * sizeof *tile);
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

/* Scores of n <= AMX_PANEL rows, for the first `cells` of the block, rounded up to two tiles. */
static void scores_panel(const int32_t *tile, uint32_t dim, uint32_t cells, const void *const *q, uint32_t n,
                         float *scores, char *copy)
{
    const uint32_t steps = (dim + DEPTH - 1) / DEPTH, parts = n > ROWS ? 2 : 1;
    const size_t bytes = steps * TILE_BYTES;
    _Alignas(64) float last[ROWS][2 * LANES];
    tile_at a[2] = {{0}};

    for (uint32_t i = 0; i < parts; i++)
        a[i] = tile_find(q + i * ROWS, tile_rows_of(n, i), tile_stride(q + i * ROWS, tile_rows_of(n, i)), 64, bytes,
                         copy + i * ROWS * bytes);
    for (uint32_t c = 0; c < cells; c += 2 * LANES) {
        float *to[2] = {scores + c, scores + ROWS * BLOCK + c};
        const uint32_t whole = tile_rows_of(n, parts - 1) == ROWS, stride = whole ? BLOCK : 2 * LANES;
        float *end = whole ? to[parts - 1] : last[0];
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
        tiles_multiply(false, a, parts == 2, tile + c, BLOCK, true, LANES, steps);
        if (parts == 2) {
            tile_store(0, to[0], BLOCK * sizeof(float));
            tile_store(1, to[0] + LANES, BLOCK * sizeof(float));
            tile_store(2, end, stride * sizeof(float));
            tile_store(3, end + LANES, stride * sizeof(float));
        } else {
            tile_store(0, end, stride * sizeof(float));
            tile_store(1, end + LANES, stride * sizeof(float));
        }
        for (uint32_t r = 0; !whole && r < tile_rows_of(n, parts - 1); r++)
            memcpy(to[parts - 1] + r * BLOCK, last[r], sizeof last[r]);
    }
    for (uint32_t r = 0; r < n; r++) {
        const float factor = *(const float *)q[r];
        for (uint32_t i = 0; factor != 1 && i < BLOCK; i++)
            scores[r * BLOCK + i] *= factor;
    }
}

static void amx_scores(const kvb_view *k, uint32_t h, const uint32_t *cells, uint32_t n, const void *const *queries,
                       uint32_t n_rows, float *scores, kvb_lookahead *next, void *scratch)
{
    char *copy = (char *)scratch + kvb_bf16_scratch_bytes(k->dim);
    block_pack(k, h, cells, n, keys_of_bf16, keys_of_fp8, next, scratch);
    tail_clear(scratch, BLOCK, k->dim / 2, (k->dim + DEPTH - 1) / DEPTH * ROWS);
    tiles_open(LANES);
    for (uint32_t r = 0; r < n_rows; r += AMX_PANEL) {
        scores_panel(scratch, k->dim, n, queries + r, n_rows - r < AMX_PANEL ? n_rows - r : AMX_PANEL,
                     scores + (size_t)r * BLOCK, copy);
        kvb_lookahead_step(next);
    }
    tiles_close();
    kvb_lookahead_until(next, 2, 2);
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

/* Channels c .. c + 31 of the sums of a panel, or 16 of them. strides: tile_stride() of its tiles. */
static inline void channels_sum(const tile_at a[2], uint32_t n, const int32_t *tile, uint32_t width, uint32_t steps,
                                bool two, uint32_t c, float *const *sums, const size_t strides[2])
{
    const size_t bytes = two ? 2 * TILE_BYTES : TILE_BYTES;
    _Alignas(64) float copy[AMX_PANEL][2 * LANES];
    const uint32_t parts = n > ROWS ? 2 : 1;
    tile_at to[2] = {{0}};

    for (uint32_t i = 0; i < parts; i++)
        to[i] = tile_find((const void *const *)(sums + i * ROWS), tile_rows_of(n, i), strides[i], c * sizeof(float),
                          bytes, copy[i * ROWS]);
    tile_load(0, to[0].at, to[0].stride);
    if (two)
        tile_load(1, to[0].at + TILE_BYTES, to[0].stride);
    if (parts == 2)
        tile_load(2, to[1].at, to[1].stride);
    if (two && parts == 2)
        tile_load(3, to[1].at + TILE_BYTES, to[1].stride);
    tiles_multiply(false, a, parts == 2, tile + c, width, two, LANES, steps);
    tile_store(0, to[0].at, to[0].stride);
    if (two)
        tile_store(1, to[0].at + TILE_BYTES, to[0].stride);
    if (parts == 2)
        tile_store(2, to[1].at, to[1].stride);
    if (two && parts == 2)
        tile_store(3, to[1].at + TILE_BYTES, to[1].stride);
    for (uint32_t i = 0; i < parts; i++)
        for (uint32_t r = 0; !strides[i] && r < tile_rows_of(n, i); r++)
            memcpy(sums[i * ROWS + r] + c, to[i].at + r * bytes, bytes);
}

static void sums_panel(const int32_t *tile, uint32_t dim, uint32_t cells, const float *weights, uint32_t n,
                       float *const *sums)
{
    _Alignas(64) uint16_t rounded[AMX_PANEL][BLOCK];
    const tile_at a[2] = {{(char *)rounded[0], sizeof rounded[0]}, {(char *)rounded[ROWS], sizeof rounded[0]}};
    const uint32_t steps = (cells + DEPTH - 1) / DEPTH, width = kvb_bf16_width(dim);
    size_t strides[2] = {0};

    for (uint32_t i = 0; i * ROWS < n; i++)
        strides[i] = tile_stride((const void *const *)(sums + i * ROWS), tile_rows_of(n, i));
    for (uint32_t r = 0; r < n; r++) {
        _Alignas(64) float row[BLOCK];
        const float *from = weights + r * BLOCK;
        if (cells % DEPTH) { /* behind the cells lies what scores() wrote */
            memset(row, 0, sizeof row);
            from = memcpy(row, from, cells * sizeof *row);
        }
        for (uint32_t i = 0; i < steps * DEPTH; i += 2 * VL)
            pairs_store(rounded[r] + i, vf_load(from + i), vf_load(from + i + VL));
    }
    memset(rounded[n], 0, (AMX_PANEL - n) * sizeof *rounded);
    for (uint32_t c = 0; c < dim; c += 2 * LANES)
        channels_sum(a, n, tile, width, steps, dim - c > LANES, c, sums, strides);
}

static void amx_sums(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                     uint32_t n_rows, float *const *sums, kvb_lookahead *next, void *scratch)
{
    block_pack(v, h, cells, n, values_of_bf16, values_of_fp8, next, scratch);
    tail_clear(scratch, kvb_bf16_width(v->dim), (n + 1) / 2, (n + DEPTH - 1) / DEPTH * ROWS);
    tiles_open(LANES);
    for (uint32_t r = 0; r < n_rows; r += AMX_PANEL) {
        sums_panel(scratch, v->dim, n, weights + (size_t)r * BLOCK, n_rows - r < AMX_PANEL ? n_rows - r : AMX_PANEL,
                   sums + r);
        kvb_lookahead_step(next);
    }
    tiles_close();
    kvb_lookahead_until(next, 2, 2);
}

extern const kvb_amx_loops KVB_ISA_NAME(kvb_tiles);
const kvb_amx_loops KVB_ISA_NAME(kvb_tiles) = {.block_scores = amx_scores, .block_sums = amx_sums};
#endif
