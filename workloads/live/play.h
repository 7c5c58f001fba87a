/* SPDX-License-Identifier: Apache-2.0 */
/* One event of a history, as the calls of a cache that it stands for: of replays and of live runs. */
#ifndef KVB_PLAY_H
#define KVB_PLAY_H

#include "caches/cache.h"
#include "workloads/files.h"
#include "workloads/trace.h"

/* Of an event that brings tokens: does the cache say that there is room for n of them, from token `from` on? */
bool kvb_play_admits(const kvb_cache *cache, const kvb_event *event, uint32_t from, uint32_t n);
/* Plans the step of these tokens. known: with their vocabulary ids, where the event has them. What the cache returns.
 */
int kvb_play_plan(kvb_cache *cache, const kvb_event *event, uint32_t from, uint32_t n, bool known);
/* An event of this kind that brings no tokens; the event itself may be REFUSED. What the cache returns. */
int kvb_play_control(kvb_cache *cache, const kvb_event *event, kvb_event_kind kind, kvb_slot_files *slots);

#endif
