/* SPDX-License-Identifier: Apache-2.0 */
/* One attention call, made and judged in full: results, guards, canaries, poison, calls before it, other teams. */
#ifndef KVB_CALLS_ATTEND_JUDGE_H
#define KVB_CALLS_ATTEND_JUDGE_H

#include "harness/calls/attend_axes.h"
#include "harness/calls/subject.h"

/* The kernel as a subject of calls in this space. Both must outlive it. */
kvb_call_subject kvb_attend_subject(const kvb_attend_space *space, const kvb_kernel *kernel);

#endif
