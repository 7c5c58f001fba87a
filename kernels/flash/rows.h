/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of K or V as the micro-kernels take them: in place where they are plain elements, or FP8 for few query rows; else
 * loaded into a tile, at most BLOCK at a time. In the domain they are stored in: transform and head scale are applied
 * to q, or to the result.
 */
#ifndef KVB_FLASH_ROWS_H
#define KVB_FLASH_ROWS_H

#include "kernels/vector/table.h"

/* One side of a problem. */
typedef struct kvb_side {
    const kvb_view *view;
    kvb_load *load; /* NULL: plain elements, or through format->read */
    bool in_place;  /* rows can be given as they are stored; where there is a load, to dots() and sums() only */
    kvb_elem elem;  /* of rows in place; of others F32 */
    kvb_transform transform;  /* still to be applied */
    bool head_scaled;         /* view->head_scales still to be applied */
    uint32_t width;           /* channels of a row, a multiple of 16 */
    size_t row_bytes, stride; /* of rows in place: their own, and from one cell's to the next; 0 in a tile */
} kvb_side;

/* Channels, padded. */
static inline uint32_t kvb_padded(uint32_t dim)
{
    return (dim + 15) / 16 * 16;
}

/* May rows have to be loaded into a tile? */
bool kvb_side_tiled(const kvb_format *format, uint32_t dim);

/* Can rows be given as they are stored? values: channels that are read as V's; all, unless V lies in K's rows. */
bool kvb_side_in_place(const kvb_format *format, const kvb_vector *vector, uint32_t dim, uint32_t values);

void kvb_side_init(kvb_side *side, const kvb_vector *vector, const kvb_view *view, uint32_t values);

/*
 * at[i]: row of KV head h in cells[i]; tile [n][width] f32, or NULL for rows in place. again: `at` is what the last call made of
 * cells that each lay `ahead` below.
 */
void kvb_side_rows(const kvb_side *side, uint32_t h, const uint32_t *cells, uint32_t n, uint32_t ahead, bool again,
                   float *tile, const void **at);

/* The factor of KV head h: 1 without head scales. */
float kvb_side_factor(const kvb_side *side, uint32_t h);

#endif
