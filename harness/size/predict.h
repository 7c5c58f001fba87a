/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cache will hold, to the byte, worked out before it is opened: its struct, its pools, and the tables of its
 * bookkeeping, each from the numbers of tokens, cells and runs that a history makes. The rules of growth are written
 * here a second time, on purpose: each side can accuse the other.
 */
#ifndef KVB_SIZE_PREDICT_H
#define KVB_SIZE_PREDICT_H

#include "caches/cache.h"
#include "harness/size/history.h"

/* A cache that is to be opened. options.allocator is not looked at. */
typedef struct kvb_size_subject {
    const kvb_cache_type *cache;
    kvb_model_facts facts;
    kvb_cache_options options;
} kvb_size_subject;

/*
 * bytes [n + 1]: what the allocator holds after open, and after each entry of steps [n] with all its times. 0, or with
 * why: -ENOTSUP, no account of this cache, or rows that its pools do not store; -EINVAL, facts, options or a step that it
 * refuses; -EOVERFLOW.
 */
int kvb_size_predict(const kvb_size_subject *subject, const kvb_size_step *steps, size_t n, uint64_t *bytes, char *why,
                     size_t why_bytes);

#endif
