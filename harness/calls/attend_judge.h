/* SPDX-License-Identifier: Apache-2.0 */
/* One attention call, made and judged in full: results, guards, canaries, poison, calls before it, other teams. */
#ifndef KVB_CALLS_ATTEND_JUDGE_H
#define KVB_CALLS_ATTEND_JUDGE_H

#include "harness/calls/attend_axes.h"
#include "harness/calls/subject.h"

/* Makes the call of a shape that the kernel takes; key: of its values and layout. 0 with the verdict; or -ENOMEM,
 * -ENOTSUP with why: nothing can judge it. A kernel that crashes takes the process with it. */
int kvb_attend_judge(const kvb_kernel *kernel, const kvb_attend_shape *shape, uint64_t key, kvb_call_teams *teams,
                     kvb_call_verdict *verdict, char *why, size_t why_bytes);

/* The kernel as a subject of calls in this space. Both must outlive it. */
kvb_call_subject kvb_attend_subject(const kvb_attend_space *space, const kvb_kernel *kernel);

#endif
