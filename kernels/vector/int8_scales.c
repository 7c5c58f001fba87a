/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rows of a block lie, and their scales and zeros as tables of floats. */
#include <string.h>

#include "kernels/vector/int8_lanes.h"
#include "kernels/vector/int8_shape.h"

void KVB_ISA_NAME(kvb_int8_rows_find)(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n,
                                      int8_rows *rows)
{
    const uint8_t *base = (const uint8_t *)view->base + h * view->head_stride;

    rows->n = n;
    for (uint32_t i = 0; i < n; i++) {
        rows->at[i] = kvb_view_cell(view, cells[i]);
        rows->row[i] = base + rows->at[i] * view->cell_stride;
    }
}

void KVB_ISA_NAME(kvb_int8_factors_find)(const int8_shape *s, const kvb_view *view, uint32_t h, int8_factors *d,
                                         int8_factors *m)
{
    const uint8_t *row = (const uint8_t *)view->base + h * view->head_stride;
    const size_t block = s->of.block_bytes, beside = s->half ? sizeof(uint16_t) : sizeof(float);

    d->group = m->group = block ? block : beside;
    d->cell = block ? view->cell_stride : view->scale_cell_stride;
    d->at = block ? row : (const uint8_t *)view->scales + h * view->scale_head_stride;
    if (!s->of.has_m)
        return;
    m->cell = block ? view->cell_stride : view->zero_cell_stride;
    m->at = block ? row + sizeof(uint16_t) : (const uint8_t *)view->zeros + h * view->zero_head_stride;
}

VEC_INLINE void halves_collect(const int8_rows *rows, uint32_t i, uint32_t end, uint32_t groups, int8_factors *f)
{
    for (; i < end; i++) {
        const uint8_t *at = f->at + rows->at[i] * f->cell;
#pragma GCC unroll 8
        for (uint32_t g = 0; g < groups; g++)
            memcpy(&f->half[g][i], at + g * f->group, sizeof f->half[g][i]);
    }
}

void KVB_ISA_NAME(kvb_int8_factors_collect)(const int8_shape *s, const int8_rows *rows, uint32_t i, int8_factors *f)
{
    uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n;
    if (!s->half)
        return;
    if (s->groups == 4) /* the commonest: rows of 128 in blocks of 32 */
        halves_collect(rows, i, end, 4, f);
    else if (s->groups == 2)
        halves_collect(rows, i, end, 2, f);
    else
        halves_collect(rows, i, end, s->groups, f);
}

/* table [groups][BLOCK] */
static void table_make(const int8_shape *s, const int8_rows *rows, int8_factors *f, float *table)
{
    const uint32_t n = rows->n;
    for (uint32_t g = 0; g < s->groups; g++, table += BLOCK) {
        if (s->half) {
            memset(f->half[g] + n, 0, (BLOCK - n) * sizeof f->half[g][n]);
            for (uint32_t i = 0; i < BLOCK; i += VL)
                vf_store(table + i, vf_load_f16(f->half[g] + i));
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            memcpy(&table[i], f->at + rows->at[i] * f->cell + g * f->group, sizeof *table);
        memset(table + n, 0, (BLOCK - n) * sizeof *table);
    }
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
