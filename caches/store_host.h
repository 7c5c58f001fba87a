/* SPDX-License-Identifier: Apache-2.0 */
/* The host: a cache, and its stores' pools and shares of control calls. Not for policies. */
#ifndef KVB_STORE_HOST_H
#define KVB_STORE_HOST_H

#include "caches/cache.h"

/*
 * The host of every cache: one account of sequences, and a store for each group of layers. All control calls go through
 * change_make(): it checks the call, prepares every store, and only then adopts in all of them. A plan comes into force
 * or ends nowhere else.
 */
struct kvb_cache {
    const kvb_cache_type *type;
    const kvb_model *model;
    kvb_cache_options options;
    kvb_account account;
    kvb_store *stores[KVB_MODEL_GROUPS];            /* [n_groups] */
    kvb_feed feed, next_feed;                       /* of the plan in force; of the one being made */
    bool planned;                                   /* there is a plan in force */
    uint64_t fetched[(KVB_MODEL_LAYERS + 63) / 64]; /* bit per layer: its rows were stored under the plan */
    uint64_t *matched;                              /* [matched_room] ordinals of the last seq_match */
    size_t matched_room;
    char why[200]; /* the reason of the last failure */
};

/* Notes why a call failed; returns its error. */
__attribute__((format(printf, 3, 4))) int kvb_cache_fail(kvb_cache *cache, int error, const char *format, ...);

/* The policy of a group's store in a cache of that type. */
const kvb_cache_type *kvb_store_policy(const kvb_cache_type *type, const kvb_group *group);
/* Opens the cache's store of group g and the pools of its layers. 0, or a negative errno with why and nothing left
 * behind. */
int kvb_store_open(kvb_cache *cache, uint32_t g);
void kvb_store_close(kvb_store *store);
/* Opens a pool as the store has it for K or V of a layer, with these limits and this allocator: 0 or -ENOMEM. */
int kvb_store_pool_open(const kvb_store *store, uint32_t layer, bool is_v, uint32_t min_chunk, uint32_t capacity,
                        kvb_allocator *allocator, kvb_pool **pool);

/* Most tokens that this STEP or PROPOSE may bring. */
uint32_t kvb_store_room(const kvb_store *store, const kvb_change *change);

/* Does everything in the store's share of the change that can fail, the growth of its pools included. After a failure
 * the store is as before. feed: of a change that brings tokens; else NULL. */
int kvb_store_prepare(kvb_store *store, const kvb_change *change, const kvb_feed *feed);
void kvb_store_undo(kvb_store *store, const kvb_change *change, const kvb_feed *feed);
/* Makes the prepared change take effect. The account has changed already. */
void kvb_store_adopt(kvb_store *store, const kvb_change *change, const kvb_feed *feed);

/* Can K rows of every group be turned? why: if not, a rope that is unknown, or the reason against the format. */
bool kvb_turns_support(const kvb_model *model, const kvb_format *format, char *why, size_t why_bytes);
/* ---- saved.c ----------------------------------------------------------------------------------------------------- */

/* The content of a saved file, read and found to fit this cache. */
typedef struct kvb_saved kvb_saved;

/* Writes a sequence, or KVB_SEQ_ALL, to a file: 0, -ENOTSUP (a pool), -ENOMEM, or the system's error. An older file
 * stays whole on failure. */
int kvb_saved_write(kvb_cache *cache, uint32_t seq, const char *path);
/* Reads a file to be loaded as `seq`, or KVB_SEQ_ALL, and sets the stores' `load`: 0; -EINVAL: not such a file,
 * damaged, or it does not fit; -ENOSPC, -ENOTSUP, -ENOMEM, or the system's error. Changes nothing else. */
int kvb_saved_read(kvb_cache *cache, uint32_t seq, const char *path, kvb_saved **saved);
const kvb_account *kvb_saved_account(const kvb_saved *saved);
void kvb_saved_free(kvb_saved *saved); /* NULL is nothing */

/* Stores one layer's rows by the plan in force and fills in spec. v NULL: latent. */
void kvb_store_fetch(kvb_store *store, uint32_t layer, const float *k, const float *v, kvb_attend_spec *spec);
/* Fills in the spec of a layer that scans; stores nothing. */
void kvb_store_fetch_states(kvb_store *store, uint32_t layer, uint32_t n_tok, kvb_scan_spec *spec);

#endif
