/* SPDX-License-Identifier: Apache-2.0 */
/* One pass: every event of a trace through one fresh cache. State that outlives a pass is kept (attend.h). */
#ifndef KVB_PASS_H
#define KVB_PASS_H

#include "harness/replay/attend.h"

/* Adds the usage of one group to that of others. */
void kvb_usage_add(kvb_cache_usage *all, const kvb_cache_usage *group);

int kvb_pass_open(kvb_pass *pass, const kvb_replay_options *options, kvb_replay_place *place, kvb_result *result);
/* Run one pass and count it. 0, or a negative errno; with pass->ended the result says why. */
int kvb_pass_run(kvb_pass *pass);
void kvb_pass_close(kvb_pass *pass);

#endif
