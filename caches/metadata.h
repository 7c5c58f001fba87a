/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model facts reach a cache through a versioned block of key/value pairs, never through its options:
 * what the model is comes from the model, what the caller wants (capacity, pools, chunk) from the caller.
 *
 * Keys of schema version 1, all required, each exactly once:
 *     kv_cache.schema_version   1
 *     kv_cache.layers           1 .. 1024
 *     kv_cache.heads            1 .. 4096, a multiple of kv_heads
 *     kv_cache.kv_heads         1 .. 4096
 *     kv_cache.k_dim            1 .. 4096
 *     kv_cache.v_dim            1 .. 4096
 * Keys without the prefix `kv_cache.` are somebody else's and are ignored; an unknown key with it is refused.
 */
#ifndef KVB_METADATA_H
#define KVB_METADATA_H

#include <stddef.h>
#include <stdint.h>

#define KVB_METADATA_VERSION 1

typedef struct kvb_metadata_entry {
    const char *key;
    int64_t value;
} kvb_metadata_entry;

typedef struct kvb_model_facts {
    uint32_t layers;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t k_dim, v_dim;
} kvb_model_facts;

/* 0, or -EINVAL with the key at fault in why. Unknown schema versions are refused before anything else. */
int kvb_metadata_read(const kvb_metadata_entry *entries, size_t n, kvb_model_facts *facts, char *why, size_t why_bytes);

#define KVB_METADATA_ENTRIES 6
/* The block that describes the facts. */
void kvb_metadata_write(const kvb_model_facts *facts, kvb_metadata_entry entries[KVB_METADATA_ENTRIES]);

#endif
