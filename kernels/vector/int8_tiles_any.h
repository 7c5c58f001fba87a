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

CODES_INLINE void keys_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i,
                            int32_t *restrict tile)
{
    const uint32_t first = i, end = i + INT8_SOME, n = rows->n < end ? rows->n : end;
    uint8_t codes[INT8_MAX_DIM];
    int16_t row[INT8_MAX_DIM];
    for (; i < n; i++) {
        row_read(elem, rows->row[i], s->dim, codes, row);
        for (uint32_t c = 0; c < s->dim / 2; c++)
            memcpy(&tile[c * BLOCK + i], &row[2 * c], sizeof *tile);
    }
    for (uint32_t c = 0, from = n > first ? n : first; c < s->dim / 2; c++)
        memset(&tile[c * BLOCK + from], 0, (end - from) * sizeof *tile);
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
