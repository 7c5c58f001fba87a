/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records the writes and moves of pools, in the order in which a cache makes them, for the oracle's own account of the
 * pools' content (oracle/window.h).
 */
#ifndef KVB_POOL_WATCH_H
#define KVB_POOL_WATCH_H

#include "caches/pools/pool.h"
#include "oracle/window.h"

/*
 * A pool type that a cache is opened with in place of another. A pool may rely on its own type, and keep more behind it
 * than pool.h declares: each verb therefore runs with the own type in the pool.
 */

typedef struct kvb_pool_wrap {
    kvb_pool_type type; /* for the cache */
    const kvb_pool_type *own;
} kvb_pool_wrap;

/* Verbs for pools of a wrapped type: each calls the pool's own verb. A replacement of one of them calls it in turn. */
extern const kvb_pool_type kvb_pool_passing;

/* own, with the verbs of kvb_pool_passing. */
kvb_pool_wrap kvb_pool_wrap_of(const kvb_pool_type *own);

typedef struct kvb_pool_watch kvb_pool_watch;

/* *layer: the layer that a cache is writing. The first write to a pool tells the pool's layer. 0 or -ENOMEM. */
int kvb_pool_watch_open(const kvb_pool_type *k, const kvb_pool_type *v, const volatile uint32_t *layer,
                        kvb_pool_watch **watch);
void kvb_pool_watch_free(kvb_pool_watch *watch);
/* The type that a cache is opened with in place of k or v. */
const kvb_pool_type *kvb_pool_watch_type(const kvb_pool_watch *watch, bool is_v);

/* Passes the records since the last call to the window. The written rows are those of tokens [n], in order. 0; -EILSEQ
 * with why: more or fewer rows were written; -ENOMEM. */
int kvb_pool_watch_tell(kvb_pool_watch *watch, kvb_window *window, const uint64_t *tokens, uint32_t n, char *why,
                        size_t why_bytes);

#endif
