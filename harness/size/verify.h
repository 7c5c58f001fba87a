/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kvbench size --verify`: are sizes that are counted those that are allocated? A model's caches are opened twice, with
 * pools that are counted and with pools that are there; both take the same steps, and their allocators must hold the
 * same bytes after each, for every cache, format and growth policy. Layers of one shape take equal memory, so a few of
 * them are enough; how many is said.
 */
#ifndef KVB_SIZE_VERIFY_H
#define KVB_SIZE_VERIFY_H

#include "caches/cache.h"
#include "harness/selection/registry.h"
#include "harness/size/model.h"

/* What is to be verified. Zero fields mean their default. */
typedef struct kvb_size_asked {
    const kvb_cache_type *const *caches; /* ends with NULL; all built-in ones */
    const kvb_pool_pair *pools;          /* at least one */
    size_t n_pools;
    const kvb_growth *growths; /* all */
    size_t n_growths;
    uint32_t context, sequences; /* 250 tokens each of 2; caches of one sequence take one */
    uint64_t memory;             /* bytes that a cache may take; 1 GiB, and no more than half of what is free */
} kvb_size_asked;

typedef enum kvb_size_verdict {
    KVB_SIZE_EQUAL,
    KVB_SIZE_DIFFERS,
    KVB_SIZE_UNAVAILABLE,
    KVB_SIZE_VERDICTS
} kvb_size_verdict;
extern const char *const kvb_size_verdict_names[KVB_SIZE_VERDICTS]; /* "equal", "differs", "unavailable" */

/* One cache of the model. Bytes are those at the first difference, else at the end. */
typedef struct kvb_size_verified {
    const kvb_cache_type *cache; /* NULL: layers that kvbench has no cache for */
    kvb_model model;             /* the layers that were built */
    kvb_cache_options options;
    uint32_t layers;  /* that the model has */
    uint64_t cells;   /* tokens that were fed */
    uint64_t counted; /* bytes */
    uint64_t allocated;
    uint64_t whole; /* counted for all layers */
    kvb_size_verdict verdict;
    char why[200]; /* not equal: the reason */
} kvb_size_verified;

/* Zero at first; free() at. */
typedef struct kvb_size_verdicts {
    kvb_size_verified *at;
    size_t n, room;
    size_t count[KVB_SIZE_VERDICTS];
} kvb_size_verdicts;

/* Adds a verdict for each cache, pair of pools and policy, and one for each part that kvbench does not hold. 0,
 * whatever was found; with why: -EINVAL, more sequences or tokens than a cache takes; -ENOMEM. */
int kvb_size_verify(const kvb_sized_model *model, const kvb_size_asked *asked, kvb_size_verdicts *verdicts, char *why,
                    size_t why_bytes);

#endif
