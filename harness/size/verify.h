/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kvbench size --verify`: a model's caches are built, fed to the asked length, and must hold what was predicted, to the
 * byte, for every cache, format and growth policy. Layers of one shape take equal memory, so a few of them are enough; how
 * many is said.
 */
#ifndef KVB_SIZE_VERIFY_H
#define KVB_SIZE_VERIFY_H

#include "harness/selection/pool_option.h"
#include "harness/size/prove.h"
#include "results/sizing/model.h"

/* What is to be proved. Zero fields mean their default. */
typedef struct kvb_size_proving {
    const kvb_cache_type *const *caches; /* ends with NULL; all built-in ones */
    const kvb_pool_pair *pools;          /* at least one */
    size_t n_pools;
    const kvb_growth *growths; /* all */
    size_t n_growths;
    uint32_t context, sequences; /* 250 tokens each of 2; caches of one sequence take one */
    uint32_t layers;             /* most of a cache; 2, and less where that is much */
    uint64_t memory;             /* bytes that a cache may take; 1 GiB, and no more than half of what is free */
} kvb_size_proving;

typedef enum kvb_size_verdict {
    KVB_SIZE_EQUAL,
    KVB_SIZE_DIFFERS,
    KVB_SIZE_UNAVAILABLE,
    KVB_SIZE_VERDICTS
} kvb_size_verdict;
extern const char *const kvb_size_verdict_names[KVB_SIZE_VERDICTS]; /* "equal", "differs", "unavailable" */

/* One cache of the model. */
typedef struct kvb_size_verified {
    kvb_size_subject subject; /* model: the layers that were built. cache NULL: layers that kvbench has no cache for */
    uint32_t layers;          /* that the model has */
    bool stored;              /* rows were handed in; else steps were begun only: where huge pages would be many */
    kvb_size_proof proof;
    uint64_t whole; /* bytes predicted for all layers */
    kvb_size_verdict verdict;
    char why[200]; /* not equal: the reason */
} kvb_size_verified;

/* Zero at first; free() at. */
typedef struct kvb_size_verdicts {
    kvb_size_verified *at;
    size_t n, room;
    size_t count[KVB_SIZE_VERDICTS];
} kvb_size_verdicts;

/* Adds a verdict for each cache, pair of pools and policy, and one for each part that kvbench
 * does not hold. 0, whatever was found; with why: -EINVAL, more sequences or tokens than a cache takes; -ENOMEM. */
int kvb_size_verify(const kvb_sized_model *model, const kvb_size_proving *proving, kvb_size_verdicts *verdicts,
                    char *why, size_t why_bytes);

#endif
