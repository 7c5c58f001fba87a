/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of a store: its pools, and its share of control calls. For caches/cache.c alone. */
#ifndef KVB_STORE_HOST_H
#define KVB_STORE_HOST_H

#include "caches/cache.h"

/* Sequence ids. */
static inline uint32_t kvb_options_ids(const kvb_cache_options *options)
{
    return options->seq_ids ? options->seq_ids : KVB_SEQ_IDS;
}

/* What all stores of a cache have in common. */
typedef struct kvb_store_site {
    const kvb_cache_type *type;
    const kvb_model *model;
    const kvb_cache_options *options;
    const kvb_account *account;
    char *why; /* where failures are said; the cache's */
    size_t why_bytes;
} kvb_store_site;

/* Of a group's store in a cache of that type. */
const kvb_cache_type *kvb_store_policy(const kvb_cache_type *type, const kvb_group *group);
/* Opens the store of group g and the pools of its layers. 0, or a negative errno with why and nothing left behind. */
int kvb_store_open(const kvb_store_site *site, uint32_t g, kvb_store **store);
void kvb_store_close(kvb_store *store);
/* A pool as the store's own for K or V of a layer, for so many cells: 0 or -ENOMEM. */
int kvb_store_pool_open(const kvb_store *store, uint32_t layer, bool is_v, uint32_t min_chunk, uint32_t capacity,
                        kvb_allocator *allocator, kvb_pool **pool);

/* Most tokens that this STEP or PROPOSE may bring. */
uint32_t kvb_store_room(const kvb_store *store, const kvb_change *change);

/* Of n tokens of a new sequence, how many of the first it has rows of, and their ordinals [n]. */
uint32_t kvb_store_match(const kvb_store *store, const int32_t *tokens, uint32_t n, uint64_t extra_key,
                         uint64_t *ordinals);

/* All that the store's share of the change can fail at, the growth of its pools included; after a failure it is as it
 * was. feed: of a change that brings tokens, else NULL. */
int kvb_store_prepare(kvb_store *store, const kvb_change *change, const kvb_feed *feed);
void kvb_store_undo(kvb_store *store, const kvb_change *change, const kvb_feed *feed);
/* What was prepared takes effect; the account has changed. */
void kvb_store_adopt(kvb_store *store, const kvb_change *change, const kvb_feed *feed);

/* Can K rows of every group be turned, as far as is known, and as this format stores them? why: since when not. */
bool kvb_turns_support(const kvb_model *model, const kvb_format *format, char *why, size_t why_bytes);
/* ---- saved.c ----------------------------------------------------------------------------------------------------- */

/* What a file of a saved sequence, or of all, holds: read, and found to fit this cache. */
typedef struct kvb_saved kvb_saved;

/* Writes one: 0, -ENOTSUP (a pool), -ENOMEM, or what the system says; on failure what was there is whole. seq: or
 * KVB_SEQ_ALL. */
int kvb_saved_write(const kvb_store_site *site, kvb_store *const *stores, uint32_t seq, const char *path);
/* Reads one to be loaded as `seq`, or KVB_SEQ_ALL, and makes it what the stores load: 0; -EINVAL: it is none, is
 * damaged or does not fit; -ENOTSUP, -ENOMEM, or what the system says. Nothing is changed. */
int kvb_saved_read(const kvb_store_site *site, kvb_store *const *stores, uint32_t seq, const char *path,
                   kvb_saved **saved);
const kvb_account *kvb_saved_account(const kvb_saved *saved);
void kvb_saved_free(kvb_saved *saved, kvb_store *const *stores); /* NULL is nothing */

/* Stores one layer's rows by the plan in force and says how to attend. v NULL: latent. */
void kvb_store_fetch(kvb_store *store, uint32_t layer, const float *k, const float *v, kvb_attend_spec *spec);
/* The same for one that scans: where states lie and how tokens take them. */
void kvb_store_fetch_states(kvb_store *store, uint32_t layer, uint32_t n_tok, kvb_scan_spec *spec);
void kvb_store_usage(const kvb_store *store, kvb_cache_usage *usage);

#endif
