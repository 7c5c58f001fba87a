/* SPDX-License-Identifier: Apache-2.0 */
/* One scan call, made and judged: outputs, states, slots that are none of its own, calls before it, other teams. */
#ifndef KVB_CALLS_SCAN_JUDGE_H
#define KVB_CALLS_SCAN_JUDGE_H

#include "harness/calls/scan_axes.h"
#include "harness/calls/subject.h"

/* The kernel as a subject of calls. It must outlive it. */
kvb_call_subject kvb_scan_subject(const kvb_kernel *kernel);

#endif
