/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a block as the products of pairs read them: a dword of a tile holds two bf16 of one sum. */
#ifndef KVB_BF16_TILES_H
#define KVB_BF16_TILES_H

#include "kernels/bf16/bf16.h"
#include "kernels/vector/micro.h"

static inline uint32_t tile_width(uint32_t dim)
{
    return (dim + 63) / 64 * 64;
}

/*
 * Cells of head h, n <= BLOCK of them; half of what is to be asked for is asked for meanwhile. `to` is all scratch.
 * keys: [dim / 2][BLOCK] dwords, each two channels of one cell; cells from n on are anything.
 * values: [BLOCK / 2][tile_width(dim)] dwords, each one channel of two cells, up to n rounded up to two: a cell that is
 * not there is 0.
 */
void kvb_bf16_keys(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, kvb_ask *ask, int32_t *to);
void kvb_bf16_values(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, kvb_ask *ask, int32_t *to);

kvb_block_query_fn kvb_bf16_query;
kvb_block_scores_fn kvb_bf16_scores;
kvb_block_sums_fn kvb_bf16_sums;

#endif
