/* SPDX-License-Identifier: Apache-2.0 */
/* Step times against context: how long steps took by the number of cells that they read. */
#ifndef KVB_CONTEXTS_H
#define KVB_CONTEXTS_H

#include "harness/replay/samples.h"

/*
 * Fills time.contexts. times: of one kind of step, passes x steps; cells: [steps] unique cells that each step of a pass
 * reads in one layer. Steps of the same number of cells always share a point. 0 or -ENOMEM.
 */
int kvb_contexts_report(const kvb_samples *times, const kvb_samples *cells, size_t passes, size_t warmup,
                        kvb_result *result);

#endif
