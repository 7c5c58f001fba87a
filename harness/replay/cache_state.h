/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the processor's caches when a kernel is timed:
 *   natural  layer after layer, as in a real model: the caches hold what is left of the step before
 *   hot      the same call was made once just before
 *   cold     K, V and q were flushed to memory just before
 */
#ifndef KVB_CACHE_STATE_H
#define KVB_CACHE_STATE_H

#include "kernels/attend.h"

typedef enum kvb_cache_state { KVB_STATE_NATURAL, KVB_STATE_HOT, KVB_STATE_COLD, KVB_CACHE_STATES } kvb_cache_state;
extern const char *const kvb_cache_state_names[KVB_CACHE_STATES];
bool kvb_cache_state_parse(const char *word, kvb_cache_state *state);

/* Can this processor flush a line from a program? false with the reason. */
bool kvb_flush_available(char *why, size_t why_bytes);
/* Flush all that a kernel may read of a view, side tables included; or a block of memory. */
void kvb_view_flush(const kvb_view *view, uint32_t n_kv_heads);
void kvb_block_flush(const void *block, size_t bytes);

#endif
