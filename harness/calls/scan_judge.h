/* SPDX-License-Identifier: Apache-2.0 */
/* One scan call, made and judged: outputs, states, slots that are none of its own, calls before it, other teams. */
#ifndef KVB_CALLS_SCAN_JUDGE_H
#define KVB_CALLS_SCAN_JUDGE_H

#include "harness/calls/scan_axes.h"
#include "harness/calls/subject.h"

/* Makes the call of a shape that the kernel takes; key: of its values and layout. 0 with the verdict; or -ENOMEM. A
 * kernel that crashes takes the process with it. */
int kvb_scan_call_judge(const kvb_kernel *kernel, const kvb_scan_shape *shape, uint64_t key, kvb_call_teams *teams,
                        kvb_call_verdict *verdict);

/* The kernel as a subject of calls. It must outlive it. */
kvb_call_subject kvb_scan_subject(const kvb_kernel *kernel);

#endif
