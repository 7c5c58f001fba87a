/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rows of a block lie, and their scales and zeros as tables of floats. */
#include <string.h>

#include "kernels/vector/int8_lanes.h"
#include "kernels/vector/int8_shape.h"

void KVB_ISA_NAME(kvb_int8_rows_find)(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n,
                                      int8_rows *rows)
{
    const uint8_t *base = (const uint8_t *)view->base + h * view->head_stride;
    const size_t stride = view->cell_stride;

    rows->n = n;
    if (view->block_table)
        for (uint32_t i = 0; i < n; i++)
            rows->at[i] = kvb_view_cell(view, cells[i]);
    else
        memcpy(rows->at, cells, n * sizeof *cells);
    for (uint32_t i = 0; i < n; i++)
        rows->row[i] = base + rows->at[i] * stride;
}

/* The factors of a whole block of neighbours that follow each other need no collecting. */
static const uint8_t *factors_whole(const int8_shape *s, const int8_rows *rows, const int8_factors *f)
{
    uint32_t far = 0;
    for (uint32_t i = 0; i < rows->n; i++)
        far |= rows->at[i] ^ (rows->at[0] + i);
    return far || rows->n < BLOCK || f->cell != s->groups * f->group ? NULL : f->at + rows->at[0] * f->cell;
}

void KVB_ISA_NAME(kvb_int8_factors_find)(const int8_shape *s, const kvb_view *view, uint32_t h, const int8_rows *rows,
                                         int8_factors *d, int8_factors *m)
{
    const uint8_t *row = (const uint8_t *)view->base + h * view->head_stride;
    const size_t block = s->of.block_bytes, beside = s->half ? sizeof(uint16_t) : sizeof(float);

    d->group = m->group = block ? block : beside;
    d->cell = block ? view->cell_stride : view->scale_cell_stride;
    d->at = block ? row : (const uint8_t *)view->scales + h * view->scale_head_stride;
    d->whole = block ? NULL : factors_whole(s, rows, d);
    if (!s->of.has_m)
        return;
    m->cell = block ? view->cell_stride : view->zero_cell_stride;
    m->at = block ? row + sizeof(uint16_t) : (const uint8_t *)view->zeros + h * view->zero_head_stride;
    m->whole = block ? NULL : factors_whole(s, rows, m);
}

/* A cell's factors, `parts` of some bytes, one after the other. */
VEC_INLINE void cells_collect(const int8_rows *rows, uint32_t i, uint32_t end, uint32_t parts, size_t bytes,
                              int8_factors *f)
{
    for (; i < end; i++) {
        const uint8_t *at = f->at + rows->at[i] * f->cell;
        uint8_t *to = f->held + i * parts * bytes;
        if (parts == 4 && bytes == sizeof(uint16_t))
            four_halves_copy(to, at, f->group);
        else
            for (uint32_t g = 0; g < parts; g++)
                memcpy(to + g * bytes, at + g * f->group, bytes);
    }
}

void KVB_ISA_NAME(kvb_int8_factors_collect)(const int8_shape *s, const int8_rows *rows, uint32_t i, int8_factors *f)
{
    const uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n, groups = s->groups;
    const size_t beside = groups * f->group; /* bytes, where they are not in blocks */
    if (f->whole)
        return;
    if (s->of.block_bytes && groups == 4) /* the commonest: rows of 128 in blocks of 32 */
        cells_collect(rows, i, end, 4, sizeof(uint16_t), f);
    else if (s->of.block_bytes)
        cells_collect(rows, i, end, groups, sizeof(uint16_t), f);
    else if (beside == 4) /* two halves, or a float */
        cells_collect(rows, i, end, 1, 4, f);
    else
        cells_collect(rows, i, end, 1, beside, f);
}

VEC_INLINE void table_of_halves(const uint8_t *from, uint32_t groups, float *table)
{
    for (uint32_t i = 0; i < BLOCK; i += VL)
        for (uint32_t g = 0; g < groups; g++)
            vf_store(table + g * BLOCK + i, vf_load_f16_each(from + i * groups * sizeof(uint16_t), groups, g));
}

/* table [groups][BLOCK] */
static void table_make(const int8_shape *s, const int8_rows *rows, int8_factors *f, float *table)
{
    const uint32_t groups = s->groups;
    const size_t size = groups * (s->half ? sizeof(uint16_t) : sizeof(float)); /* of a cell */
    const uint8_t *from = f->whole ? f->whole : f->held;

    if (rows->n < BLOCK)
        memset(f->held + rows->n * size, 0, (BLOCK - rows->n) * size);
    if (!s->half && groups == 1)
        memcpy(table, from, BLOCK * sizeof *table);
    else if (!s->half)
        for (uint32_t i = 0; i < groups * BLOCK; i++)
            memcpy(&table[i % groups * BLOCK + i / groups], from + i * sizeof *table, sizeof *table);
    else if (groups == 1)
        table_of_halves(from, 1, table);
    else if (groups == 2)
        table_of_halves(from, 2, table);
    else if (groups == 4)
        table_of_halves(from, 4, table);
    else
        table_of_halves(from, groups, table);
}

void KVB_ISA_NAME(kvb_int8_factors_make)(const int8_shape *s, const int8_rows *rows, int8_factors *of_d,
                                         int8_factors *of_m, float *d, float *m)
{
    table_make(s, rows, of_d, d);
    if (!m)
        return;
    table_make(s, rows, of_m, m);
    for (uint32_t i = 0; i < s->groups * BLOCK; i += VL) /* of the middle code, not of code 0 */
        vf_store(m + i, vf_fma(vf_load(d + i), vf_set(s->of.offset), vf_load(m + i)));
}
