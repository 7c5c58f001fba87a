/* SPDX-License-Identifier: Apache-2.0 */
/* What a run covers: words of the command line turned into workloads, parts and thread counts. */
#ifndef KVB_SELECT_H
#define KVB_SELECT_H

#include "harness/options.h"
#include "harness/parts.h"
#include "harness/suite.h"
#include "results/result.h"

/* The words as typed; an empty list means what the suite says, or everything. */
typedef struct kvb_selection_words {
    kvb_words workloads, caches, pools, kernels, threads, values;
} kvb_selection_words;

typedef struct kvb_pool_pair {
    const kvb_pool_type *k, *v;
} kvb_pool_pair;

#define KVB_MAX_POOL_PAIRS    256u
#define KVB_MAX_THREAD_COUNTS 16u
#define KVB_MAX_PROFILES      16u

typedef struct kvb_selection {
    kvb_workload *workloads; /* names and paths are the selection's own */
    size_t n_workloads;
    const kvb_cache_type *caches[KVB_MAX_PARTS];
    const kvb_kernel *kernels[KVB_MAX_PARTS];
    kvb_pool_pair pools[KVB_MAX_POOL_PAIRS];
    const char *values[KVB_MAX_PROFILES]; /* NULL: the workload's own */
    uint32_t threads[KVB_MAX_THREAD_COUNTS];
    size_t n_caches, n_kernels, n_pools, n_values, n_threads;
} kvb_selection;

/* Are all workload words files, so that no folder of workloads is needed? */
bool kvb_select_only_files(const kvb_words *workloads);

/*
 * Globs match names (fnmatch); a workload word with a slash or ending in .jsonl is a file. A word that
 * matches nothing is -EINVAL, and why says what is known. More threads than cores are refused unless oversubscribe.
 */
int kvb_select(const kvb_selection_words *words, const kvb_suite *suite, const kvb_parts *parts,
               const kvb_workloads *workloads, bool oversubscribe, kvb_selection *selection, char *why,
               size_t why_bytes);
void kvb_selection_free(kvb_selection *selection);

#endif
