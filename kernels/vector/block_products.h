/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products that read the rows of a block themselves, pack them as they need, and do so for any number of query rows:
 * kernels/vector/int8.h, kernels/bf16/bf16.h.
 */
#ifndef KVB_VECTOR_BLOCK_PRODUCTS_H
#define KVB_VECTOR_BLOCK_PRODUCTS_H

#include "kernels/vector/ask.h"

/* Encode one query row q [dim], once for all blocks. */
typedef void kvb_block_query_fn(const kvb_format *k, uint32_t dim, const float *q, void *encoded);

/* scores[r][i] = q[r] . K row of cells[i], for any number of rows, i < n <= BLOCK. scores: [row][BLOCK]; what lies from
 * n on, up to a multiple of 16, is arbitrary. ask: what to ask of memory meanwhile; NULL: nothing. */
typedef void kvb_block_scores_fn(const kvb_view *k, uint32_t h, const uint32_t *cells, uint32_t n,
                                 const void *const *queries, uint32_t n_rows, float *scores, kvb_ask *ask,
                                 void *scratch);

/* sums[r][c] += weights[r][i] * V row of cells[i], for the v->dim channels that come first; weights [row][BLOCK], not
 * negative, 0 from n on; sums [v->dim rounded up to 16]. */
typedef void kvb_block_sums_fn(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                               uint32_t n_rows, float *const *sums, kvb_ask *ask, void *scratch);

typedef struct kvb_block_products {
    kvb_block_query_fn *query;
    kvb_block_scores_fn *scores;
    kvb_block_sums_fn *sums;
} kvb_block_products;

#endif
