/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a pool lie in up to three lanes (codes, scales, zeros), each head-major [n_kv_heads][units][unit bytes].
 * A unit is what one cell, or one group of cells, has in that lane. Lanes grow together, by the policy in the options.
 */
#ifndef KVB_ROWS_H
#define KVB_ROWS_H

#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"

enum { KVB_LANE_CODES, KVB_LANE_SCALES, KVB_LANE_ZEROS, KVB_LANES };

/* Shape of one lane; unit_bytes 0: no such lane. */
typedef struct kvb_lane_shape {
    size_t unit_bytes;
    uint32_t unit_cells; /* 1, or cells that share a unit */
} kvb_lane_shape;

typedef struct kvb_pool_lane {
    kvb_lane_shape shape;
    char *base;
    size_t head_stride; /* bytes */
} kvb_pool_lane;

typedef struct kvb_lanes {
    kvb_pool_options options;
    uint32_t held;   /* room, in cells */
    uint32_t usable; /* largest count of cells ensured */
    kvb_pool_lane lane[KVB_LANES];
} kvb_lanes;

/* The lanes of a format's rows of dim elements. */
void kvb_lane_shapes(const kvb_format *format, uint32_t dim, kvb_lane_shape shape[KVB_LANES]);

/* Allocator bytes after kvb_lanes_ensure(cells), the largest so far. Exact. */
size_t kvb_lanes_bytes(const kvb_lane_shape shape[KVB_LANES], const kvb_pool_options *options, uint32_t cells);

/* 0 or -ENOMEM, nothing left behind. */
int kvb_lanes_open(kvb_lanes *lanes, const kvb_lane_shape shape[KVB_LANES], const kvb_pool_options *options);
void kvb_lanes_close(kvb_lanes *lanes);
/* As kvb_pool_type.ensure; adds the bytes copied and the time to the pool's counts. */
int kvb_lanes_ensure(kvb_lanes *lanes, uint32_t cells, kvb_pool *pool);

/* The unit of head h in which cell c lies; NULL: the format has no such lane. Integers, since NULL + 0 is undefined. */
static inline void *kvb_lane_at(const kvb_pool_lane *lane, uint32_t h, uint32_t c)
{
    size_t at = h * lane->head_stride + (size_t)(c / lane->shape.unit_cells) * lane->shape.unit_bytes;
    return (void *)((uintptr_t)lane->base + at); /* no lane: 0 + 0 */
}

/* Fills in a view's lanes and format. */
void kvb_lanes_view(const kvb_lanes *lanes, const kvb_format *format, uint32_t cells, kvb_view *view);

/* A built-in pool: its type, then what its functions need. `type` is first, so a pointer to it leads to the kind. */
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

/* ... and those of rows encoded together with their neighbours, when their block closes (residual.c). */
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
