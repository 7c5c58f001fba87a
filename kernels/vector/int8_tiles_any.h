/* SPDX-License-Identifier: Apache-2.0 */
/* keys_pack() and values_pack() of int8_tiles.c for any instruction set. */
#ifndef KVB_INT8_TILES_H
#define KVB_INT8_TILES_H

#include "kernels/vector/int8_codes.h"
#include "kernels/vector/int8_lanes.h"

/* A row's (code - offset), as 16 bits. */
CODES_INLINE void row_read(kvb_elem elem, const uint8_t *row, uint32_t dim, uint8_t *restrict codes,
                           int16_t *restrict to)
{
    const int16_t offset = int8_elem_of(elem).offset;
    codes_read(elem, row, dim, codes);
    for (uint32_t c = 0; c < dim; c++)
        to[c] = (int16_t)(codes[c] - offset);
}

/* VL rows of dwords at a time, turned in registers: moving floats changes no bits. */
CODES_INLINE void keys_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const uint32_t first = i, end = i < rows->n ? i + INT8_SOME : i;
    uint8_t codes[INT8_MAX_DIM];
    int16_t row[VL][INT8_MAX_DIM];
    vf x[VL];
    for (; i < end; i += VL) {
        for (uint32_t j = 0; j < VL; j++)
            row_read(elem, rows->row[i + j < rows->n ? i + j : first], s->dim, codes, row[j]);
        for (uint32_t c = 0; c < s->dim; c += 2 * VL) {
            for (uint32_t j = 0; j < VL; j++)
                x[j] = vf_load((const float *)(const void *)(row[j] + c));
            vf_transpose(x);
            for (uint32_t j = 0; j < VL; j++)
                vf_store((float *)(void *)(tile + (c / 2 + j) * BLOCK + i), x[j]);
        }
    }
}

CODES_INLINE void values_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i,
                              int32_t *restrict tile)
{
    const uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n;
    uint8_t codes[INT8_MAX_DIM];
    int16_t row[2][INT8_MAX_DIM];
    for (tile += i / 2 * s->width; i < end; i += 2, tile += s->width) {
        row_read(elem, rows->row[i], s->dim, codes, row[0]);
        if (i + 1 < rows->n)
            row_read(elem, rows->row[i + 1], s->dim, codes, row[1]);
        else
            memset(row[1], 0, s->dim * sizeof **row);
        for (uint32_t c = 0; c < s->dim; c++)
            tile[c] = (int32_t)((uint32_t)(uint16_t)row[0][c] | (uint32_t)(uint16_t)row[1][c] << 16);
    }
}

#endif
