/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A front: frozen rows of one group of layers, in pools of their own. Several sequences, also of different caches, read
 * a front before their own rows. It is written once, when it is made, and freed with its last reference. Any thread may
 * take and release references; the last release gives the memory back to the front's allocator.
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
    kvb_view *views;  /* [n_pools] of all cells; V of latent rows: K's base, with rows of v_dim */
} kvb_front;

/* A prefix that caches share (cache.h). Position p lies in cell p of each group's front. */
struct kvb_frozen {
    atomic_size_t holders;
    kvb_allocator *allocator;
    uint32_t n, n_groups;
    kvb_front *front[KVB_MODEL_GROUPS];
};

/* Opens a front of so many cells, with the store's formats and scales and one reference: 0 or -ENOMEM. */
int kvb_front_open(const kvb_store *store, uint32_t cells, kvb_allocator *allocator, kvb_front **front);
/* Copies stored rows: cells from .. from+n-1 of pools [n_pools] to the front's cells to .. to+n-1. raw: scratch of
 * kvb_front_row_bytes(). */
void kvb_front_fill(kvb_front *front, uint32_t to, kvb_pool *const *pools, uint32_t from, uint32_t n, void *raw);
size_t kvb_front_row_bytes(const kvb_store *store); /* of the largest row of a layer's K or V */
kvb_front *kvb_front_hold(kvb_front *front);
void kvb_front_release(kvb_front *front); /* NULL is nothing */

/* A prefix of n positions, without fronts yet, with one reference. NULL: no memory. */
kvb_frozen *kvb_frozen_open(kvb_allocator *allocator, uint32_t n, uint32_t n_groups);

/* Can the store's queries read the front: are layers, heads, formats and fixed scales the same? front NULL: no. */
bool kvb_front_fits(const kvb_front *front, const kvb_store *store);

#endif
