/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: a process-wide, thread-safe registry that maps a key to a reference-counted cache.
 *
 * Builders are registered per (backend, kind). One open function per kind builds the cache from a
 * metadata block and the caller's options, installs it under the key, and returns the typed face.
 * A step holds the cache (kvb_session_hold .. kvb_session_release); closing a session while a step
 * holds it is safe: the key is gone at once, the cache when the last hold is released.
 * The registry guards its own map; the cache itself is still one thread at a time.
 */
#ifndef KVB_SESSION_H
#define KVB_SESSION_H

#include "caches/cache.h"

typedef enum kvb_session_kind {
    KVB_SESSION_DECODE, /* one sequence: base face */
    KVB_SESSION_SEQ,    /* many sequences: seq face */
    KVB_SESSION_TREE,   /* speculative tree: tree face */
    KVB_SESSION_KINDS
} kvb_session_kind;

/* Register how (backend, kind) builds caches. 0, -EEXIST when another type holds the place, -ENOMEM,
 * -EINVAL when the type lacks the face of the kind. The built-in ones are the backend "cpu". */
int kvb_builder_register(const char *backend, kvb_session_kind kind, const kvb_cache_type *type);

/* Open: 0 and the face (and the cache, held once for the caller's use until kvb_session_release).
 * -EEXIST: key in use; -ENOENT: no such builder; -EINVAL: metadata refused; or what the builder returned. */
int kvb_open_decode_session(const char *key, const char *backend, const kvb_metadata_entry *metadata, size_t n,
                            const kvb_cache_options *options, kvb_cache **cache, const kvb_base_face **face, char *why,
                            size_t why_bytes);
int kvb_open_seq_session(const char *key, const char *backend, const kvb_metadata_entry *metadata, size_t n,
                         const kvb_cache_options *options, kvb_cache **cache, const kvb_seq_face **face, char *why,
                         size_t why_bytes);
int kvb_open_tree_session(const char *key, const char *backend, const kvb_metadata_entry *metadata, size_t n,
                          const kvb_cache_options *options, kvb_cache **cache, const kvb_tree_face **face, char *why,
                          size_t why_bytes);

/* The cache of a key with one more reference, or NULL. */
kvb_cache *kvb_session_hold(const char *key);
/* Give back one reference; the last one after a close frees the cache. */
void kvb_session_release(kvb_cache *cache);
/* Remove the key. 0 or -ENOENT. */
int kvb_session_close(const char *key);
/* Keys in the registry now. */
size_t kvb_session_count(void);

#endif
