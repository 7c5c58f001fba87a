/* SPDX-License-Identifier: Apache-2.0 */
/* What the built-in pools are made of (pools.c). */
#ifndef KVB_ROWS_H
#define KVB_ROWS_H

#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"

enum { KVB_LANE_CODES, KVB_LANE_SCALES, KVB_LANE_ZEROS, KVB_LANES };

/* Shape of one lane. A unit is what one cell, or one group of cells, has in that lane. unit_bytes 0: no such lane. */
typedef struct kvb_lane_shape {
    size_t unit_bytes;
    uint32_t unit_cells; /* 1, or cells that share a unit */
} kvb_lane_shape;

/* The lanes of a format's rows of dim elements. */
void kvb_lane_shapes(const kvb_format *format, uint32_t dim, kvb_lane_shape shape[KVB_LANES]);

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

#endif
