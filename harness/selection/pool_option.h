/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What --pool takes:
 *   f16                       both sides; globs: each match on both sides
 *   q4_0+had                  after a Hadamard transform, any pool (or glob) that has that form
 *   kivi4                     a pair of pools that belong together: K per channel, V per token
 *   k=a8g64,v=a4g64+had       the sides apart
 */
#ifndef KVB_POOL_WORDS_H
#define KVB_POOL_WORDS_H

#include "harness/selection/registry.h"

typedef struct kvb_pool_pair {
    const struct kvb_pool_type *k, *v;
} kvb_pool_pair;

/* Names for pairs; ends with an empty one. */
typedef struct kvb_pool_alias {
    const char *name, *k, *v, *summary;
} kvb_pool_alias;
extern const kvb_pool_alias kvb_pool_aliases[];

/* Adds the pairs that the word names to pairs [max], which has *n so far, none twice. 0; -EINVAL, and why says which
 * names are known; -E2BIG. */
int kvb_pool_word_take(const char *word, const kvb_registry *registry, kvb_pool_pair *pairs, size_t max, size_t *n,
                       char *why, size_t why_bytes);

#endif
