/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools whose cells hold one plain row of fixed-size elements per KV head, without scales: the three
 * differ only in the element and in how a row is encoded. Layout: head-major [n_kv_heads][cells][dim],
 * cells being those reserved, so the head stride changes with each growth.
 */
#ifndef KVB_FLOAT_ROWS_H
#define KVB_FLOAT_ROWS_H

#include "caches/pools/encode.h"
#include "caches/pools/pool.h"

/* What tells one such pool from another. `type` is first: a kvb_pool_type of them leads to its kind. */
typedef struct kvb_float_rows {
    kvb_pool_type type;
    size_t elem_bytes;
    kvb_row_encode *encode;
} kvb_float_rows;

/* The functions that all of them share but bytes(), which is told no pool. */
int kvb_float_rows_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool);
void kvb_float_rows_close(kvb_pool *pool);
int kvb_float_rows_ensure(kvb_pool *pool, uint32_t cells);
void kvb_float_rows_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows);
void kvb_float_rows_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows);
void kvb_float_rows_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n);
void kvb_float_rows_view(const kvb_pool *pool, uint32_t cells, kvb_view *view);
size_t kvb_float_rows_reserved(const kvb_pool *pool);

/* The built-in ones. */
extern const kvb_float_rows kvb_pool_f32, kvb_pool_f16, kvb_pool_bf16;

#endif
