/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs in place of the product: most mistakes need two parts to meet, not five. A combination has five parts: history
 * (with its values), shape, pair of pools, cache, kernel. A workload's name gives its history and its shape:
 * eagle-tree-8x128 has the events of eagle-tree, at 8 KV heads of 128 channels. Names without such an ending share one
 * shape, "as recorded". Combinations are chosen so that any two parts that can run together do so in at least one of
 * them. Each chosen one runs with every thread count and growth; in an untimed run each also gets its own setting
 * (setting.c).
 *
 * The witness runs with each history over each cache, as these two alone decide what a query sees, and once with each
 * shape and each pair of pools. Outputs show mistakes in the place of rows, which also depends on pools and shapes.
 */
#ifndef KVB_PAIRS_H
#define KVB_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/selection/selection.h"
#include "workloads/trace.h"

/* The dimensions of a candidate, as bits of a set. */
#define KVB_PAIRS_DIMS    5u
#define KVB_PAIRS_HISTORY 1u
#define KVB_PAIRS_SHAPE   2u
#define KVB_PAIRS_POOLS   4u
#define KVB_PAIRS_CACHE   8u
#define KVB_PAIRS_KERNEL  16u
#define KVB_PAIRS_ALL     31u

typedef struct kvb_candidate {
    uint32_t at[KVB_PAIRS_DIMS]; /* value in each dimension, from 0 */
    double cost;                 /* of running it; NaN: it cannot run */
    bool chosen;
} kvb_candidate;

/*
 * Chooses candidates that cover pairs of values: if a candidate that can run has two values of the dimensions `dims`,
 * some chosen candidate has both. Candidates chosen before count. Each step chooses the candidate with the most new
 * pairs for its cost; among equals the one whose values were chosen least often, then the first. At the end a value that
 * no chosen candidate has gets its first candidate. hub: only pairs with a dimension in this set count (KVB_PAIRS_ALL:
 * every pair). Returns 0 or -ENOMEM.
 */
int kvb_pairs_cover(kvb_candidate *candidates, size_t n, unsigned dims, unsigned hub);

/* Does the command line call for pairs? Yes if the suite goes by pairs, and the suite is named or no workloads, caches,
 * pools and kernels are; no with --kernel best. */
bool kvb_pairs_usual(const kvb_suite *suite, bool suite_is_named, const kvb_selection_words *words);

/* Options that decide whether a combination can run, as in kvb_matrix_options, and how many are chosen. */
typedef struct kvb_pairs_options {
    uint32_t capacity;
    uint64_t max_pairs;
    kvb_setting setting; /* the run's own */
    uint32_t axes;       /* set of kvb_setting_axes on which each combination gets its own value */
    unsigned hub;        /* set of dimensions: only pairs with one of these are covered; 0: every pair */
    bool no_staging;
    double seconds; /* time limit of the process in which a kernel is asked what it accepts; 0: none */
} kvb_pairs_options;

/* Finds the workloads, turns words and suite into selections, and chooses their combinations. -EINVAL with why, from
 * kvb_select, kvb_workloads_find, pairs_choose and, with no_staging, kvb_native_check; or another negative errno. The
 * caller frees *selections in either case. */
int kvb_selections_make(const kvb_selections_options *options, kvb_selections *selections, char *why, size_t why_bytes);
void kvb_selections_free(kvb_selections *selections);

#endif
