/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of int8_products.c for CPUs with AMX. More than DOTS_ROWS rows are multiplied by tiles, two by two. The sums are exact,
 * so the bits are those of level KVB_ROWS, which packs the block and serves fewer rows. Its packed block serves as tiles unchanged.
 */
#if !defined(KVB_INT8_TILES_H) && defined(INT8_TILES)
#define KVB_INT8_TILES_H

#include "kernels/vector/int8.h"
#include "kernels/vector/tiles.h"
#include "kernels/vector/vec.h"

extern __typeof__(KVB_ISA_NAME(kvb_int8_keys)) KVB_ROWS_NAME(kvb_int8_keys), KVB_ROWS_NAME(kvb_int8_values);
extern kvb_block_scores_fn KVB_ROWS_NAME(kvb_int8_scores);
extern kvb_block_sums_fn KVB_ROWS_NAME(kvb_int8_sums);

/* The sums of a panel's rows with two tiles of columns. */
typedef struct panel_sums {
    _Alignas(64) int32_t of[AMX_PANEL][2 * TILE_LANES];
} panel_sums;

/* As tiles_multiply(). */
VEC_INLINE void panel_multiply(const tile_at a[2], uint32_t n, const int32_t *b, size_t stride, bool two_columns,
                               uint32_t depth, uint32_t steps, panel_sums *to)
{
    const size_t bytes = sizeof *to->of;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (uint32_t k = 0; k < steps; k++)
        tiles_multiply(true, a, k * depth * TILE_CODES, n > TILE_ROWS_MAX, b + k * depth * stride, stride * sizeof *b,
                       two_columns);
    tile_store(0, to->of[0], bytes);
    if (two_columns)
        tile_store(1, to->of[0] + TILE_LANES, bytes);
    if (n > TILE_ROWS_MAX)
        tile_store(2, to->of[TILE_ROWS_MAX], bytes);
    if (two_columns && n > TILE_ROWS_MAX)
        tile_store(3, to->of[TILE_ROWS_MAX] + TILE_LANES, bytes);
}

/* Channels of a group that are multiplied. Those of q behind the last are 0. */
VEC_INLINE uint32_t group_channels(const int8_shape *s)
{
    return s->groups > 1 ? s->group : s->width;
}

/* Dwords of the rows of q's tiles: a group has a whole number of tiles. */
VEC_INLINE uint32_t group_depth(const int8_shape *s)
{
    return group_channels(s) % TILE_BYTES ? TILE_LANES / 2 : TILE_LANES;
}

/* Scores of n <= AMX_PANEL rows. copy: [AMX_PANEL][width] bytes. */
static void scores_by_tiles(const keys *k, const void *const *queries, uint32_t n, uint32_t cells, float *scores,
                            char *copy)
{
    const int8_shape *s = k->shape;
    const uint32_t channels = group_channels(s), depth = group_depth(s), parts = n > TILE_ROWS_MAX ? 2 : 1;
    size_t strides[2] = {0};
    tile_at a[2] = {{0}};
    panel_sums sums;

    for (uint32_t i = 0; i < parts; i++)
        strides[i] = tile_stride(queries + i * TILE_ROWS_MAX, tile_rows_of(n, i));
    for (uint32_t g = 0; g < s->groups; g++, kvb_lookahead_step(k->next)) {
        const float *d = k->d + g * BLOCK, *m = k->m ? k->m + g * BLOCK : NULL;
        const int32_t *tile = k->tile + (size_t)g * s->group / TILE_CODES * BLOCK;
        for (uint32_t i = 0; i < parts; i++)
            a[i] = tile_find(queries + i * TILE_ROWS_MAX, tile_rows_of(n, i), strides[i],
                             int8_query_codes_at(s) + (size_t)g * s->group, channels,
                             copy + (size_t)i * TILE_ROWS_MAX * channels);
        for (uint32_t c = 0; c < cells; c += 2 * TILE_LANES) {
            panel_multiply(a, n, tile + c, BLOCK, cells - c > TILE_LANES, depth, channels / TILE_CODES / depth, &sums);
            for (uint32_t r = 0; r < n; r++) {
                const int8_query *q = queries[r];
                const vi middle = vi_set(-s->of.offset * q->sums[g]);
                for (uint32_t i = c; i < c + 2 * TILE_LANES && i < cells; i += VL)
                    score_add(q, g, g == 0, g + 1 == s->groups, vi_load(sums.of[r] + i - c) + middle, d + i,
                              m ? m + i : NULL, scores + (size_t)r * BLOCK + i);
            }
        }
    }
}

/* Adds to the sums of n <= AMX_PANEL rows. */
static void sums_by_tiles(const values *v, const float *weights, uint32_t n, float *const *sums)
{
    const int8_shape *s = v->shape;
    whole_weights whole[AMX_PANEL];
    const tile_at a[2] = {{(char *)whole[0].of, sizeof *whole}, {(char *)whole[TILE_ROWS_MAX].of, sizeof *whole}};
    row_step steps[AMX_PANEL] = {0};
    panel_sums added;

    for (uint32_t r = 0; r < n && v->most; r++)
        steps[r] = step_of_row(v, weights + r * BLOCK);
    for (uint32_t g = 0; g < s->groups; g++, kvb_lookahead_step(v->next)) {
        const uint32_t end = (g + 1) * s->group;
        weights_of_groups(v, g, 1, weights, steps, n, false, whole);
        for (uint32_t c = g * s->group; c < end; c += 2 * TILE_LANES) {
            panel_multiply(a, n, v->tile + c, s->width, end - c > TILE_LANES, v->depth, 1, &added);
            for (uint32_t r = 0; r < n; r++) {
                const vi middle = vi_set(-s->of.offset * whole[r].sum);
                for (uint32_t i = c; i < c + 2 * TILE_LANES && i < end; i += VL)
                    sum_add(v->m, &whole[r], vi_load(added.of[r] + i - c) + middle, sums[r] + i);
            }
        }
    }
}

void KVB_ISA_NAME(kvb_int8_scores)(const kvb_view *k, uint32_t h, const uint32_t *cells, uint32_t n,
                                   const void *const *queries, uint32_t n_rows, float *scores, kvb_lookahead *next,
                                   void *scratch)
{
    if (n_rows <= DOTS_ROWS) {
        KVB_ROWS_NAME(kvb_int8_scores)(k, h, cells, n, queries, n_rows, scores, next, scratch);
        return;
    }
    const int8_shape s = int8_shape_of(k->format, k->dim);
    const int8_block block = KVB_ROWS_NAME(kvb_int8_keys)(&s, k, h, cells, n, next, scratch);
    const keys all = {&s, block.tile, block.d, block.m, next};
    char *copy = (char *)scratch + int8_tile_bytes(&s) / 2; /* bytes take half of the tile's room */

    tiles_open(group_depth(&s));
    for (uint32_t r = 0; r < n_rows; r += AMX_PANEL)
        scores_by_tiles(&all, queries + r, n_rows - r < AMX_PANEL ? n_rows - r : AMX_PANEL, int8_cells(n),
                        scores + (size_t)r * BLOCK, copy);
    tiles_close();
    kvb_lookahead_until(next, 2, 2);
}

void KVB_ISA_NAME(kvb_int8_sums)(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                                 uint32_t n_rows, float *const *sums, kvb_lookahead *next, void *scratch)
{
    if (n_rows <= DOTS_ROWS) {
        KVB_ROWS_NAME(kvb_int8_sums)(v, h, cells, n, weights, n_rows, sums, next, scratch);
        return;
    }
    const int8_shape s = int8_shape_of(v->format, v->dim);
    const int8_block block = KVB_ROWS_NAME(kvb_int8_values)(&s, v, h, cells, n, next, scratch);
    _Alignas(64) float most[BLOCK];
    const values all = values_of(&s, &block, n, most, next);

    tiles_open(all.depth);
    for (uint32_t r = 0; r < n_rows; r += AMX_PANEL)
        sums_by_tiles(&all, weights + (size_t)r * BLOCK, n_rows - r < AMX_PANEL ? n_rows - r : AMX_PANEL, sums + r);
    tiles_close();
    kvb_lookahead_until(next, 2, 2);
}
#endif
