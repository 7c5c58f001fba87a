/* SPDX-License-Identifier: Apache-2.0 */
/* What a run covers: words of the command line turned into workloads, parts and thread counts. */
#ifndef KVB_SELECT_H
#define KVB_SELECT_H

#include "harness/options.h"
#include "harness/parts.h"
#include "harness/pool_words.h"
#include "harness/suite.h"
#include "results/result.h"

/* The words as typed; an empty list means what the suite says, or everything. */
typedef struct kvb_selection_words {
    kvb_words workloads, caches, pools, kernels, threads, values, growths;
} kvb_selection_words;

#define KVB_MAX_POOL_PAIRS    256u
#define KVB_MAX_THREAD_COUNTS 16u
#define KVB_MAX_PROFILES      16u

typedef struct kvb_selection {
    kvb_workload *workloads; /* names and paths are the selection's own */
    size_t n_workloads;
    const kvb_cache_type *caches[KVB_MAX_PARTS];
    const kvb_kernel *kernels[KVB_MAX_PARTS + 1]; /* &kvb_kernel_best among them: see best.h */
    kvb_pool_pair pools[KVB_MAX_POOL_PAIRS];
    const char *values[KVB_MAX_PROFILES]; /* NULL: the workload's own */
    uint32_t threads[KVB_MAX_THREAD_COUNTS];
    kvb_growth growths[KVB_GROWTHS];
    size_t n_caches, n_kernels, n_pools, n_values, n_threads, n_growths;
} kvb_selection;

/* Are all workload words files, so that no folder of workloads is needed? */
bool kvb_select_only_files(const kvb_words *workloads);

/*
 * Globs match names (fnmatch); a workload word with a slash or ending in .jsonl is a file. A word that
 * matches nothing is -EINVAL, and why says what is known. The kernel word "best" is no glob. More threads than cores are refused unless oversubscribe.
 */
int kvb_select(const kvb_selection_words *words, const kvb_suite_part *part, const kvb_parts *parts,
               const kvb_workloads *workloads, bool oversubscribe, kvb_selection *selection, char *why,
               size_t why_bytes);
/* Does the selection hold this combination, whatever the threads and growth? values NULL: own. */
bool kvb_selection_covers(const kvb_selection *selection, const char *workload_path, const char *values,
                          const kvb_pool_pair *pools, const kvb_cache_type *cache, const kvb_kernel *kernel);
void kvb_selection_free(kvb_selection *selection);

#endif
