/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs in place of the product: most mistakes need two parts to meet, not four. Of a selection's combinations only as many are
 * run as let every pair of workload (with its values), pair of pools, cache and kernel meet at least once, if any combination
 * that can run has both. Threads and growths are multiplied with these.
 */
#ifndef KVB_PAIRS_H
#define KVB_PAIRS_H

#include "harness/selection/selection.h"
#include "workloads/trace.h"

/* What else decides whether a combination can run, as in kvb_matrix_options. */
typedef struct kvb_pairs_options {
    uint32_t capacity;
    uint64_t max_pairs;
    kvb_logit_changes logits;
    kvb_elem out_elem;
    bool no_staging, deterministic;
    double
        seconds; /* that a kernel may take to say what it accepts: it is asked in a process of its own; 0: no limit */
} kvb_pairs_options;

/*
 * Takes what is not needed out of the selection's `has`, in which each part that can run nowhere keeps one combination, to be
 * skipped with its reason. The choice depends on the lists, the parts and the CPU's level alone. 0; -EINVAL with why: a trace
 * is wrong; another negative errno.
 */
int kvb_pairs_choose(const kvb_pairs_options *options, kvb_selection *selection, char *why, size_t why_bytes);

#define KVB_PAIRS_DIMS 4u

/*
 * The rule alone. Combinations are numbered with the last of the dimensions changing fastest. chosen [product of sizes] marks
 * some for which can[] holds, so that each pair of values of two dimensions that any of these has is in one of the chosen.
 * Greedy: whichever has most pairs that are new, the first of equals. How many are chosen, or -ENOMEM.
 */
int64_t kvb_pairs_cover(const size_t sizes[KVB_PAIRS_DIMS], const bool *can, bool *chosen);

#endif
