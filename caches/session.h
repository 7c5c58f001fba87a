/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: how runners reach caches. A process-wide, thread-safe registry maps a key to a reference-counted cache. A
 * replay has one key; speculative decoding has two, for the target and for the draft.
 *
 * A step holds the cache (kvb_session_hold .. kvb_session_release). A session may be closed meanwhile: its key is
 * removed at once, the cache is freed with the last release. The cache itself is still used by one thread at a time.
 */
#ifndef KVB_SESSION_H
#define KVB_SESSION_H

#include "caches/cache.h"

/* Opens a cache under a key: 0 and the cache, with one reference for the caller. -EEXIST: key in use; or what
 * kvb_cache_open() returned; with why. */
int kvb_session_open(const char *key, const kvb_cache_type *type, const kvb_model *model,
                     const kvb_cache_options *options, kvb_cache **cache, char *why, size_t why_bytes);

/* The cache of a key with one more reference, or NULL. */
kvb_cache *kvb_session_hold(const char *key);
/* Releases one reference; the last one after a close frees the cache. NULL is nothing. */
void kvb_session_release(kvb_cache *cache);
/* Removes the key: 0 or -ENOENT. */
int kvb_session_close(const char *key);
/* Keys in the registry now. */
size_t kvb_session_count(void);

#endif
