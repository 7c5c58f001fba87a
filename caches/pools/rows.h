/* SPDX-License-Identifier: Apache-2.0 */
/* Pools whose rows are encoded one by one, when they are stored; and what every built-in pool is made of. */
#ifndef KVB_ROWS_H
#define KVB_ROWS_H

#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"

/* A built-in pool: its type, then what its functions need. `type` is first, so a kvb_pool_type of one leads to it. */
typedef struct kvb_pool_kind {
    kvb_pool_type type;
    kvb_format format;
    kvb_rule rule;
} kvb_pool_kind;

static inline const kvb_pool_kind *kvb_pool_kind_of(const kvb_pool_type *type)
{
    return (const kvb_pool_kind *)(const void *)type;
}

/* The functions of kvb_pool_type that all kinds share ... */
bool kvb_kind_supports(const kvb_pool_type *type, uint32_t dim, char *why, size_t why_bytes);
double kvb_kind_row_bytes(const kvb_pool_type *type, uint32_t dim);

/* ... those of rows encoded one by one ... */
size_t kvb_rows_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells);
int kvb_rows_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool);
void kvb_rows_close(kvb_pool *pool);
int kvb_rows_ensure(kvb_pool *pool, uint32_t cells);
void kvb_rows_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows);
void kvb_rows_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows);
void kvb_rows_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n);
void kvb_rows_view(const kvb_pool *pool, uint32_t cells, kvb_view *view);
size_t kvb_rows_reserved(const kvb_pool *pool);
size_t kvb_rows_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n);
void kvb_rows_read_raw(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw);
void kvb_rows_write_raw(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw);

/* ... and those of rows that are encoded together with their neighbours, when their block closes (residual.c). */
size_t kvb_residual_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells);
int kvb_residual_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool);
void kvb_residual_close(kvb_pool *pool);
int kvb_residual_ensure(kvb_pool *pool, uint32_t cells);
void kvb_residual_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows);
void kvb_residual_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows);
void kvb_residual_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n);
void kvb_residual_view(const kvb_pool *pool, uint32_t cells, kvb_view *view);
size_t kvb_residual_reserved(const kvb_pool *pool);
size_t kvb_residual_raw_bytes(const kvb_pool *pool, const uint32_t *cells, uint32_t n);
void kvb_residual_read_raw(const kvb_pool *pool, const uint32_t *cells, uint32_t n, void *raw);
void kvb_residual_write_raw(kvb_pool *pool, const uint32_t *cells, uint32_t n, const void *raw);
bool kvb_residual_check_raw(const kvb_pool *pool, uint32_t n, const void *raw);

#endif
