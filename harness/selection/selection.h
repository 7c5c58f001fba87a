/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run covers: words of the command line turned into lists of workloads, parts and thread counts. A selection is
 * the product of its lists, or as many combinations of it as cover every pair (pairs.h); a run has one for each part of
 * its suite.
 */
#ifndef KVB_SELECTION_H
#define KVB_SELECTION_H

#include "harness/command_line.h"
#include "harness/selection/registry.h"
#include "harness/selection/setting.h"
#include "harness/selection/suite.h"
#include "results/result.h"

/* Does the witness run beside the kernels, once for each workload, cache, pools and growth? */
typedef enum kvb_witness_rule {
    KVB_WITNESS_NAMED,  /* as any other kernel */
    KVB_WITNESS_BESIDE, /* also where other kernels are named */
    KVB_WITNESS_NONE    /* only where it is named */
} kvb_witness_rule;

/* The words as typed; an empty list means what the suite says, or everything. */
typedef struct kvb_selection_words {
    kvb_words workloads, caches, pools, kernels, threads, values, growths;
    kvb_witness_rule witness;
} kvb_selection_words;

#define KVB_MAX_POOL_PAIRS    256u
#define KVB_MAX_THREAD_COUNTS 16u
#define KVB_MAX_PROFILES      16u

typedef struct kvb_selection {
    kvb_workload *workloads; /* names and paths are the selection's own */
    size_t n_workloads;
    const kvb_cache_type *caches[KVB_REGISTRY_MAX];
    const kvb_kernel *kernels[KVB_REGISTRY_MAX + 1]; /* &kvb_kernel_best among them */
    kvb_pool_pair pools[KVB_MAX_POOL_PAIRS];
    const char *values[KVB_MAX_PROFILES]; /* NULL: the workload's own */
    uint32_t threads[KVB_MAX_THREAD_COUNTS];
    kvb_growth growths[KVB_GROWTHS];
    size_t n_caches, n_kernels, n_pools, n_values, n_threads, n_growths;
    uint8_t *layers;   /* [workloads] KVB_LAYERS_…: what has none for a kernel is no combination. NULL: kernels are
                        * named, and it is one that is skipped */
    bool *has;         /* of each combination: is it one to be run? NULL until kvb_selection_deal */
    size_t n_has;      /* how many are */
    size_t n_left_out; /* how many could run, but pairs are enough */
    kvb_setting_choice *choices; /* of each combination; NULL: each has the run's own setting */
} kvb_selection;

/* Are all workload words files, so that no folder of workloads is needed? */
bool kvb_select_only_files(const kvb_words *workloads);

/*
 * Globs match names (fnmatch); a workload word with a slash or ending in .jsonl is a file. A word that
 * matches nothing is -EINVAL, and why says what is known. The kernel word "best" is no glob. More threads than cores
 * are refused unless oversubscribe.
 */
int kvb_select(const kvb_selection_words *words, const kvb_suite_part *part, const kvb_registry *registry,
               const kvb_workloads *workloads, bool oversubscribe, kvb_selection *selection, char *why,
               size_t why_bytes);
/* Does the selection hold this combination, whatever the threads and growth? values NULL: own. */
void kvb_selection_free(kvb_selection *selection);

/* ---- combinations of a selection: threads change fastest, then growths, kernels, caches, pools, values, workloads  */

/* Where a combination lies in its selection. */
typedef struct kvb_spot {
    size_t workload, values, pools, cache, kernel, growth, threads;
} kvb_spot;

size_t kvb_block_size(const kvb_selection *selection);  /* of one workload, values and pair of pools */
size_t kvb_matrix_size(const kvb_selection *selection); /* of all */

/* The i-th combination of all. */
kvb_spot kvb_spot_of(const kvb_selection *selection, size_t i);

/* What pairs have chosen for the i-th combination besides its parts; NULL: nothing. */
const uint8_t *kvb_choice_of(const kvb_selection *selection, size_t i);

/* Fills in `has`: all but what is left to the first values and the first thread count (a witness sees tags, whatever
 * they are, and alone), or to an earlier selection. 0 or -ENOMEM. */
int kvb_selection_deal(kvb_selection *selection, const kvb_selection *earlier, size_t n_earlier);

/* ---- all parts of a suite ---- */

typedef struct kvb_selections {
    kvb_selection *at; /* [n]; in the order of the suite's parts */
    size_t n;
} kvb_selections;

typedef struct kvb_selections_options {
    const kvb_selection_words *words;
    const kvb_suite *suite;
    const kvb_registry *registry;
    const char *folder; /* of workloads; NULL: where they usually are */
    bool oversubscribe, no_staging;
    const struct kvb_pairs_options *pairs; /* only as many combinations as cover every pair; NULL: the product */
} kvb_selections_options;

#endif
