/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the cache calls of one event, in replays and in live runs. All functions return the cache's result. */
#ifndef KVB_PLAY_H
#define KVB_PLAY_H

#include "caches/cache.h"
#include "workloads/files.h"
#include "workloads/trace.h"

/* Does the cache admit n tokens of the event, from token `from` on? */
bool kvb_play_admits(const kvb_cache *cache, const kvb_event *event, uint32_t from, uint32_t n);
/* Plans the step of these tokens. known: passes their vocabulary ids, if the event has them. */
int kvb_play_plan(kvb_cache *cache, const kvb_event *event, uint32_t from, uint32_t n, bool known);
/* Brings n further tokens of a sequence to a cache of one layer that attends, in steps of at most KVB_PLAY_STEP. Rows
 * are zeros, of at most 16 elements for K and for V. tokens [n]: vocabulary ids, or NULL. Ends with the first error. */
#define KVB_PLAY_STEP 4096u
int kvb_play_tokens(kvb_cache *cache, uint32_t seq, const int32_t *tokens, uint32_t n);
/* Makes the call of an event that brings no tokens. kind: of the call, since the event itself may be REFUSED. */
int kvb_play_control(kvb_cache *cache, const kvb_event *event, kvb_event_kind kind, kvb_slot_files *slots);

#endif
