/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A front: frozen rows of one group of layers, in pools of their own, which several sequences read before their own
 * rows, and several caches. Written once, when it is made; it lives as long as somebody holds it. References may be
 * taken and given by any thread; memory is the allocator's, which the last holder gives it back to.
 */
#ifndef KVB_FRONT_H
#define KVB_FRONT_H

#include <stdatomic.h>

#include "caches/cache.h"

typedef struct kvb_front {
    atomic_size_t holders;
    kvb_allocator *allocator;
    uint32_t cells, kv_heads;
    size_t n_pools, reserved_bytes;
    kvb_pool **pools; /* [n_pools] as the store's */
    kvb_view *views;  /* [n_pools] of all cells; V of latent rows: K's place, with rows of v_dim */
} kvb_front;

/* A prefix that caches share (cache.h): cells 0 .. n-1 of each front are its positions. */
struct kvb_frozen {
    atomic_size_t holders;
    kvb_allocator *allocator;
    uint32_t n, n_groups;
    kvb_front *front[KVB_MODEL_GROUPS];
};

/* For so many rows, formats and scales as the store's, held once: 0 or -ENOMEM. */
int kvb_front_open(const kvb_store *store, uint32_t cells, kvb_allocator *allocator, kvb_front **front);
/* Rows of n cells from `from` on, as they are stored in pools [n_pools], into cells `to` and on. raw:
 * kvb_front_row_bytes(). */
void kvb_front_fill(kvb_front *front, uint32_t to, kvb_pool *const *pools, uint32_t from, uint32_t n, void *raw);
size_t kvb_front_row_bytes(const kvb_store *store); /* of the largest row of a layer's K or V */
kvb_front *kvb_front_hold(kvb_front *front);
void kvb_front_release(kvb_front *front); /* NULL is nothing */

/* With no fronts yet, held once: NULL without memory. */
kvb_frozen *kvb_frozen_open(kvb_allocator *allocator, uint32_t n, uint32_t n_groups);

/* Can the store's queries read it: layers, heads, formats and fixed scales the same? NULL: no. */
bool kvb_front_fits(const kvb_front *front, const kvb_store *store);

#endif
