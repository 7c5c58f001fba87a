/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rows of a block lie, and their scales and zeros as tables of floats. */
#include <string.h>

#include "kernels/vector/int8_lanes.h"
#include "kernels/vector/int8_shape.h"

void KVB_ISA_NAME(kvb_int8_rows_find)(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n,
                                      int8_rows *rows)
{
    const uint8_t *base = (const uint8_t *)view->base + h * view->head_stride;
    size_t stride = view->cell_stride;

    rows->n = n;
    memcpy(rows->at, cells, n * sizeof *cells);
    if (view->block_table)
        for (uint32_t i = 0; i < n; i++)
            rows->at[i] =
                view->block_table[cells[i] / view->block_cells] * view->block_cells + cells[i] % view->block_cells;
    for (uint32_t i = 0; i < n; i++)
        rows->row[i] = base + rows->at[i] * stride;
}

/* A factor of each group of each row: where the first one lies, and how far apart the groups' are. */
typedef struct places {
    const uint8_t *at[BLOCK];
    size_t step;
} places;

static void places_inside(const int8_shape *s, const int8_rows *rows, uint32_t byte, places *p)
{
    p->step = s->of.block_bytes;
    for (uint32_t i = 0; i < rows->n; i++)
        p->at[i] = rows->row[i] + byte;
}

static void places_beside(const int8_shape *s, const void *table, size_t cell_stride, const int8_rows *rows, places *p)
{
    p->step = s->half ? 2 : 4;
    for (uint32_t i = 0; i < rows->n; i++)
        p->at[i] = (const uint8_t *)table + rows->at[i] * cell_stride;
}

/*
 * table [groups][BLOCK]. Halves become floats many at a time, and only once all are collected: a wide load of what was just
 * stored piece by piece waits for the last piece to reach the cache.
 */
VEC_INLINE void halves_read(const places *p, uint32_t n, uint32_t groups, float *table)
{
    uint16_t half[INT8_MAX_DIM / 32][BLOCK];
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *at = p->at[i];
#pragma GCC unroll 8
        for (uint32_t g = 0; g < groups; g++)
            memcpy(&half[g][i], at + g * p->step, sizeof half[g][i]);
    }
    for (uint32_t g = 0; g < groups; g++) {
        memset(half[g] + n, 0, (BLOCK - n) * sizeof half[g][n]);
        for (uint32_t i = 0; i < BLOCK; i += VL)
            vf_store(table + g * BLOCK + i, vf_load_f16(half[g] + i));
    }
}

static void floats_read(const places *p, uint32_t n, uint32_t groups, float *table)
{
    for (uint32_t g = 0; g < groups; g++, table += BLOCK) {
        for (uint32_t i = 0; i < n; i++)
            memcpy(&table[i], p->at[i] + g * p->step, sizeof *table);
        memset(table + n, 0, (BLOCK - n) * sizeof *table);
    }
}

static void factors_read(const int8_shape *s, const places *p, uint32_t n, float *table)
{
    if (!s->half)
        floats_read(p, n, s->groups, table);
    else if (s->groups == 4) /* the commonest: rows of 128 in blocks of 32 */
        halves_read(p, n, 4, table);
    else if (s->groups == 2)
        halves_read(p, n, 2, table);
    else if (s->groups == 1)
        halves_read(p, n, 1, table);
    else
        halves_read(p, n, s->groups, table);
}

void KVB_ISA_NAME(kvb_int8_scales)(const int8_shape *s, const kvb_view *view, uint32_t h, const int8_rows *rows,
                                   float *d, float *m)
{
    places p;
    if (s->of.block_bytes)
        places_inside(s, rows, 0, &p);
    else
        places_beside(s, (const uint8_t *)view->scales + h * view->scale_head_stride, view->scale_cell_stride, rows,
                      &p);
    factors_read(s, &p, rows->n, d);
    if (!s->of.has_m)
        return;
    if (s->of.block_bytes)
        places_inside(s, rows, 2, &p);
    else
        places_beside(s, (const uint8_t *)view->zeros + h * view->zero_head_stride, view->zero_cell_stride, rows, &p);
    factors_read(s, &p, rows->n, m);
    for (uint32_t i = 0; i < s->groups * BLOCK; i += VL) /* of the middle code, not of code 0 */
        vf_store(m + i, vf_fma(vf_load(d + i), vf_set(s->of.offset), vf_load(m + i)));
}
