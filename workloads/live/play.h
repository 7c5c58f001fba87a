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
/* What a layer's call has of the cache: the member of its group's kind. */
typedef struct kvb_play_spec {
    kvb_attend_spec attend;
    kvb_scan_spec scan;
} kvb_play_spec;
/* Brings the fed tokens to a layer: their K and V rows [n][kv_heads][dim] are stored, or its states fetched (K and V are
 * then not looked at). positions [n]. What the cache returns. */
int kvb_play_layer(kvb_cache *cache, bool scans, uint32_t layer, const uint32_t *positions, const float *k,
                   const float *v, uint32_t n, kvb_play_spec *spec);
/* Brings n further tokens of a sequence to a cache of one layer that attends, in steps of at most KVB_PLAY_STEP: rows of
 * zeros, at most 16 elements for K and for V. tokens [n]: vocabulary ids, or NULL. What the cache returned first. */
#define KVB_PLAY_STEP 4096u
int kvb_play_tokens(kvb_cache *cache, uint32_t seq, const int32_t *tokens, uint32_t n);
/* An event of this kind that brings no tokens; the event itself may be REFUSED. What the cache returns. */
int kvb_play_control(kvb_cache *cache, const kvb_event *event, kvb_event_kind kind, kvb_slot_files *slots);

#endif
