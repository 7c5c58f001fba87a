/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays one workload through one combination of cache, pools and kernel, in this process: passes over its events
 * (event → cache → kernel → diff), each over a fresh cache, timed and checked, with the read
 * bandwidth of the machine measured in between; then the result.
 */
#ifndef KVB_REPLAY_H
#define KVB_REPLAY_H

#include "harness/replay/job.h"

/* Can the cache do what the trace needs, which is something, and is it of use for its model? Else why says what it
 * lacks. */
bool kvb_replay_fits(const kvb_trace *trace, const kvb_cache_type *cache, char *why, size_t why_bytes);

/*
 * Run it and fill the result but for names, threads and placement. A part that cannot do something (-ENOTSUP) is
 * a skip with its reason; a failing check or call is a fail. Returns 0 once the result says what happened, -ENOMEM when
 * the replay itself had no memory.
 */
int kvb_replay_run(const kvb_replay_options *options, kvb_replay_place *place, kvb_result *result);

#endif
