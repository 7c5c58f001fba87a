/* SPDX-License-Identifier: Apache-2.0 */
/* What writing and reading the file of a saved cache share; its layout stands in saved.c. */
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

#endif
