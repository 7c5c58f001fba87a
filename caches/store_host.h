/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of a store: its pools, and its share of control calls. For caches/cache.c alone. */
#ifndef KVB_STORE_HOST_H
#define KVB_STORE_HOST_H

#include "caches/cache.h"

/* What all stores of a cache have in common. */
typedef struct kvb_store_site {
    const kvb_cache_type *type;
    const kvb_model *model;
    const kvb_cache_options *options;
    const kvb_account *account;
    char *why; /* where failures are said; the cache's */
    size_t why_bytes;
} kvb_store_site;

/* Opens the store of group g and the pools of its layers. 0, or a negative errno with why and nothing left behind. */
int kvb_store_open(const kvb_store_site *site, uint32_t g, kvb_store **store);
void kvb_store_close(kvb_store *store);

/* Most tokens that this STEP or PROPOSE may bring. */
uint32_t kvb_store_room(const kvb_store *store, const kvb_change *change);

/* All that the store's share of the change can fail at, the growth of its pools included; after a failure it is as it was. feed:
 * of a change that brings tokens, else NULL. */
int kvb_store_prepare(kvb_store *store, const kvb_change *change, const kvb_feed *feed);
void kvb_store_undo(kvb_store *store, const kvb_change *change, const kvb_feed *feed);
/* What was prepared takes effect; the account has changed. */
void kvb_store_adopt(kvb_store *store, const kvb_change *change, const kvb_feed *feed);

/* Stores one layer's rows by the plan in force and says how to attend. v NULL: latent. */
void kvb_store_fetch(kvb_store *store, uint32_t layer, const float *k, const float *v, kvb_attend_spec *spec);
void kvb_store_usage(const kvb_store *store, kvb_cache_usage *usage);

#endif
