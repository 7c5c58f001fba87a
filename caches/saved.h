/* SPDX-License-Identifier: Apache-2.0 */
/* What writing (saved.c) and reading (saved_read.c) the file of a saved cache share; its layout stands in saved.c. */
#ifndef KVB_SAVED_H
#define KVB_SAVED_H

#include "caches/store_host.h"

#define KVB_SAVED_MAGIC   "KVBCACHE"
#define KVB_SAVED_VERSION 1u

typedef struct kvb_saved_head {
    char magic[8];
    uint32_t version, text_bytes;
} kvb_saved_head;

typedef struct kvb_saved_words {
    char *at;
    size_t n, room;
} kvb_saved_words;

/* The lines of this cache. any: rows that go anywhere, whatever cache they come from. words->at is to be freed. 0 or
 * -ENOMEM. */
int kvb_saved_text(const kvb_store_site *site, kvb_store *const *stores, bool whole, bool any, kvb_saved_words *words);
/* Are the lines of a file [n] those of this cache? Else -EINVAL, and why says the first that differs. */
int kvb_saved_text_check(const kvb_store_site *site, const char *path, const char *saved, size_t n,
                         const kvb_saved_words *own);

/* The checksum of what it was over so far and n bytes more; 0 at first. */
uint32_t kvb_saved_sum(uint32_t sum, const void *bytes, size_t n);

/* Say why in site->why; return the error. */
int kvb_saved_fail(const kvb_store_site *site, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int kvb_saved_no_memory(const kvb_store_site *site, const char *path);
int kvb_saved_system(const kvb_store_site *site, int error, const char *path);

/* Can the pools be saved, and (whole false) one sequence be taken out of them? 0 or -ENOTSUP. */
int kvb_saved_pools_check(const kvb_store_site *site, kvb_store *const *stores, bool whole);

#endif
