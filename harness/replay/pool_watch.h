/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools whose writes and moves are noted, in the order in which a cache makes them, and told to the oracle's own
 * account of what they hold (oracle/window.h).
 */
#ifndef KVB_POOL_WATCH_H
#define KVB_POOL_WATCH_H

#include "caches/pools/pool.h"
#include "oracle/window.h"

/*
 * A pool type that stands for another in what a cache is opened with. Honest pools take their type to be what they were
 * opened with, and more may lie behind it than pool.h says: so each verb goes on with the pool's own type in the pool.
 */

typedef struct kvb_pool_wrap {
    kvb_pool_type type; /* what the cache sees */
    const kvb_pool_type *own;
} kvb_pool_wrap;

/* Verbs for pools of a wrapped type: each goes on to the pool's own. What replaces one of them calls it. */
extern const kvb_pool_type kvb_pool_passing;

/* own, with the verbs of kvb_pool_passing. */
kvb_pool_wrap kvb_pool_wrap_of(const kvb_pool_type *own);

typedef struct kvb_pool_watch kvb_pool_watch;

/* *layer: whose rows a cache is writing, when it writes any: so a pool is known by its first write. 0 or -ENOMEM. */
int kvb_pool_watch_open(const kvb_pool_type *k, const kvb_pool_type *v, const volatile uint32_t *layer,
                        kvb_pool_watch **watch);
void kvb_pool_watch_free(kvb_pool_watch *watch);
/* What a cache is opened with in place of k or v. */
const kvb_pool_type *kvb_pool_watch_type(const kvb_pool_watch *watch, bool is_v);

/* Tells what was noted since the last call; rows that were written are those of tokens [n], in order. 0; -EILSEQ with
 * why: there are more of them, or fewer; -ENOMEM. */
int kvb_pool_watch_tell(kvb_pool_watch *watch, kvb_window *window, const uint64_t *tokens, uint32_t n, char *why,
                        size_t why_bytes);

#endif
