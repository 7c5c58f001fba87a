/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of pools: opens every built-in pool, plain and rotated, in one shape, and makes noise to fill it. */
#ifndef KVB_TEST_POOLS_H
#define KVB_TEST_POOLS_H

#include "ci/tests/tests.h"
#include "caches/pools/pool.h"

enum { HEADS = 3, DIM = 128 }; /* a dim that every format takes */

/* The next built-in pool, or the rotated form of the last one. *at starts as 0. NULL: the end. */
static inline const kvb_pool_type *pools_next(uint32_t *at)
{
    const kvb_pool_type *type = kvb_builtin_pools[*at / 2];
    if (type && *at % 2 && !type->rotated)
        type = kvb_builtin_pools[++*at / 2];
    if (!type)
        return NULL;
    return (*at)++ % 2 ? type->rotated : type;
}

static inline kvb_pool *pool_open(const kvb_pool_type *type, kvb_allocator *a, kvb_growth growth, uint32_t min_chunk,
                                  uint32_t capacity)
{
    kvb_pool_options options = {.n_kv_heads = HEADS,
                                .dim = DIM,
                                .min_chunk = min_chunk,
                                .capacity = capacity,
                                .growth = growth,
                                .allocator = a};
    kvb_pool *pool = NULL;
    if (type->open(type, &options, &pool))
        return NULL;
    assert_ptr_equal(pool->type, type);
    return pool;
}

/* Rows [n][HEADS][DIM] of tokens first, first + 1, ...: elements between -1 and 1, no two rows alike. */
static inline void rows_make(float *rows, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n * HEADS * DIM; i++) {
        uint32_t x = (first * HEADS * DIM + i + 1) * 0x9e3779b9u;
        x = (x ^ x >> 16) * 0x85ebca6bu;
        x = (x ^ x >> 13) * 0xc2b2ae35u;
        rows[i] = (float)(int32_t)(x ^ x >> 16) * 0x1p-31f;
    }
}

#endif
