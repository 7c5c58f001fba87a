/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several replays of the same workload, each in a child process of its own, pass by pass in turns: A B, B A, A B, …
 * Whatever disturbs the machine disturbs all of them, so passes of the same number are compared. The parent is the
 * referee: one child runs at a time. If a child crashes or hangs the others keep their results.
 */
#ifndef KVB_INTERLEAVE_H
#define KVB_INTERLEAVE_H

#include "harness/replay/child.h"

#define KVB_INTERLEAVE_SIDES 4u
#define KVB_INTERLEAVE_LEAST                                                                                           \
    16u /* passes of each that are made whatever the replays' `seconds` say; the first is warm-up */

/*
 * n of at most KVB_INTERLEAVE_SIDES. Fills status, reason and measurements of the results; all have the same number of
 * passes where all come to their end. Passes are made for replay.seconds of each side; the time limit of a child counts
 * its own turns. 0, or -errno when a child could not be made.
 */
int kvb_interleave_run(const kvb_child_options *options, kvb_result *results, size_t n);

#endif
