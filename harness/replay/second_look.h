/* SPDX-License-Identifier: Apache-2.0 */
/* After a combination has failed: is its cache at fault, or its kernel? */
#ifndef KVB_SECOND_LOOK_H
#define KVB_SECOND_LOOK_H

#include "harness/replay/job.h"

/* Replays the same cache and pools once with the witness in place of the kernel, and adds to the reason what it found:
 * which token was seen or missed, or that all were right. Nothing where a witness cannot read what the pools store. */
void kvb_second_look(const kvb_replay_options *failed, kvb_result *result);

#endif
