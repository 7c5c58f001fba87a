/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs in place of the product: most mistakes need two parts to meet, not five. A combination has five parts: history
 * (with its values), shape, pair of pools, cache, kernel. A workload's name gives its history and its shape:
 * eagle-tree-8x128 has the events of eagle-tree, at 8 KV heads of 128 channels. Names without such an ending share one
 * shape, "as recorded". Some combinations are chosen, so that any two parts that can run together do so in at least one
 * of them. Each chosen one runs with every thread count and growth. In a run that is not timed each gets a setting of
 * its own besides (setting.h). The witness goes beside some of them: with each history over each cache, as these alone
 * decide what a query sees, and with each shape and each pair of pools once. Where a row lies, which pools and shapes
 * decide too, outputs show.
 */
#ifndef KVB_PAIRS_H
#define KVB_PAIRS_H

#include "harness/selection/selection.h"
#include "workloads/trace.h"

/* Are pairs enough for what was typed? With a suite that says so, unless workloads, caches, pools or kernels are named
 * and the suite is not; never where the fastest of all kernels is asked for. */
bool kvb_pairs_usual(const kvb_suite *suite, bool suite_is_named, const kvb_selection_words *words);

/* What else decides whether a combination can run, as in kvb_matrix_options. */
typedef struct kvb_pairs_options {
    uint32_t capacity;
    uint64_t max_pairs;
    kvb_setting setting; /* the run's own */
    uint32_t axes;       /* of kvb_setting_axes, a set: those on which each combination gets a value of its own */
    unsigned hub;        /* a set of dimensions (cover.h): what meets one of these, and no more; 0: every pair */
    bool no_staging;
    double
        seconds; /* that a kernel may take to say what it accepts: it is asked in a process of its own; 0: no limit */
} kvb_pairs_options;

/*
 * Takes what is not needed out of the selections' `has`, all parts of a suite together; each part of the program that
 * can run nowhere keeps one combination, to be skipped with its reason. The choice depends on the lists, the traces,
 * the parts and the CPU's level alone. 0; -EINVAL with why: a trace is wrong; another negative errno.
 */
int kvb_pairs_choose(const kvb_pairs_options *options, kvb_selections *selections, char *why, size_t why_bytes);

/* Finds the workloads, turns words and suite into selections, and deals them their combinations. -EINVAL with why: see
 * kvb_select, kvb_workloads_find, kvb_pairs_choose and, with no_staging, kvb_native_check; or another negative errno.
 * To be freed in any case. */
int kvb_selections_make(const kvb_selections_options *options, kvb_selections *selections, char *why, size_t why_bytes);
void kvb_selections_free(kvb_selections *selections);

#endif
