/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool type that stands for another in what a cache is opened with. Honest pools take their type to be what they were
 * opened with, and more may lie behind it than pool.h says: so each verb goes on with the pool's own type in the pool.
 */
#ifndef KVB_POOL_WRAP_H
#define KVB_POOL_WRAP_H

#include "caches/pools/pool.h"

typedef struct kvb_pool_wrap {
    kvb_pool_type type; /* what the cache sees */
    const kvb_pool_type *own;
} kvb_pool_wrap;

/* Verbs for pools of a wrapped type: each goes on to the pool's own. What replaces one of them calls it. */
extern const kvb_pool_type kvb_pool_passing;

/* own, with the verbs of kvb_pool_passing. */
kvb_pool_wrap kvb_pool_wrap_of(const kvb_pool_type *own);

#endif
