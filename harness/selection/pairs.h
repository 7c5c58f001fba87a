/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs in place of the product: most mistakes need two parts to meet, not five. A combination has five parts: history
 * (with its values), shape, pair of pools, cache, kernel. A workload's name gives its history and its shape:
 * eagle-tree-8x128 has the events of eagle-tree, at 8 KV heads of 128 channels. Names without such an ending share one
 * shape, "as recorded". Some combinations are chosen, so that any two parts that can run together do so in at least one
 * of them. Each chosen one runs with every thread count and growth. In a run that is not timed each gets a setting of
 * its own besides (setting.c). The witness goes beside some of them: with each history over each cache, as these alone
 * decide what a query sees, and with each shape and each pair of pools once. Where a row lies, which pools and shapes
 * decide too, outputs show.
 */
#ifndef KVB_PAIRS_H
#define KVB_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/selection/selection.h"
#include "workloads/trace.h"

/* The rule of pairs alone: few candidates of five dimensions, so that any two values meet. */

/* The dimensions, as bits of a set. */
#define KVB_PAIRS_DIMS    5u
#define KVB_PAIRS_HISTORY 1u
#define KVB_PAIRS_SHAPE   2u
#define KVB_PAIRS_POOLS   4u
#define KVB_PAIRS_CACHE   8u
#define KVB_PAIRS_KERNEL  16u
#define KVB_PAIRS_ALL     31u

typedef struct kvb_candidate {
    uint32_t at[KVB_PAIRS_DIMS]; /* its value in each dimension, from 0 */
    double cost;                 /* of running it; NaN: it cannot run */
    bool chosen;
} kvb_candidate;

/*
 * Chooses candidates so that pairs of values meet: if a candidate that can run has two values of the dimensions `dims`,
 * some chosen candidate has both, too. Candidates that are chosen already count. The next one chosen is always the one
 * that brings the most new pairs for its cost; among equals the one whose values were chosen least often, then the
 * first. At the end each value that no chosen candidate has gets the first candidate with it. hub: only pairs count of
 * which one dimension is in this set (KVB_PAIRS_ALL: every pair). Returns 0 or -ENOMEM.
 */
int kvb_pairs_cover(kvb_candidate *candidates, size_t n, unsigned dims, unsigned hub);

/* Are pairs enough for what was typed? With a suite that says so, unless workloads, caches, pools or kernels are named
 * and the suite is not; never where the fastest of all kernels is asked for. */
bool kvb_pairs_usual(const kvb_suite *suite, bool suite_is_named, const kvb_selection_words *words);

/* What else decides whether a combination can run, as in kvb_matrix_options. */
typedef struct kvb_pairs_options {
    uint32_t capacity;
    uint64_t max_pairs;
    kvb_setting setting; /* the run's own */
    uint32_t axes;       /* of kvb_setting_axes, a set: those on which each combination gets a value of its own */
    unsigned hub;        /* a set of dimensions: what meets one of these, and no more; 0: every pair */
    bool no_staging;
    double
        seconds; /* that a kernel may take to say what it accepts: it is asked in a process of its own; 0: no limit */
} kvb_pairs_options;

/* Finds the workloads, turns words and suite into selections, and deals them their combinations. -EINVAL with why: see
 * kvb_select, kvb_workloads_find, pairs_choose and, with no_staging, kvb_native_check; or another negative errno.
 * To be freed in any case. */
int kvb_selections_make(const kvb_selections_options *options, kvb_selections *selections, char *why, size_t why_bytes);
void kvb_selections_free(kvb_selections *selections);

#endif
