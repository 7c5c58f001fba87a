/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All combinations of one kernel, or one cache, together. Those two axes vary within every stretch of a run, so that a
 * slow hour of the machine meets all their values alike; workloads and pools come one after the other, and it would be
 * taken for theirs. For the same reason the combinations of one workload and pool count as one: the median of their
 * ratios. The interval of the median over those is the sign test's: no assumption on the noise but that its signs are fair.
 */
#ifndef KVB_COMPARE_GROUPS_H
#define KVB_COMPARE_GROUPS_H

#include "results/compare.h"

/* Adds groups to a comparison whose findings are done. machine: as of kvb_noise. 0 or -ENOMEM. */
int kvb_groups_judge(kvb_comparison *comparison, double machine, const kvb_compare_options *options);

#endif
