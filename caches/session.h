/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: the way in to caches for every runner. A process-wide, thread-safe registry maps a key to a
 * reference-counted cache: a replay has one key, speculative decoding two, one for the target and one for the draft.
 *
 * A step holds the cache (kvb_session_hold .. kvb_session_release); closing a session while a step holds it is safe:
 * the key is gone at once, the cache when the last hold is released. The registry guards its own map; the cache itself
 * is still one thread at a time.
 */
#ifndef KVB_SESSION_H
#define KVB_SESSION_H

#include "caches/cache.h"

/* Open a cache under a key: 0 and the cache, held once for the caller until kvb_session_release(). -EEXIST: key in use;
 * or what kvb_cache_open() returned; with why. */
int kvb_session_open(const char *key, const kvb_cache_type *type, const kvb_model *model,
                     const kvb_cache_options *options, kvb_cache **cache, char *why, size_t why_bytes);

/* The cache of a key with one more reference, or NULL. */
kvb_cache *kvb_session_hold(const char *key);
/* Give back one reference; the last one after a close frees the cache. NULL is nothing. */
void kvb_session_release(kvb_cache *cache);
/* Remove the key. 0 or -ENOENT. */
int kvb_session_close(const char *key);
/* Keys in the registry now. */
size_t kvb_session_count(void);

#endif
