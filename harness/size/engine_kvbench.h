/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench's own caches as an engine of `kvbench size`. */
#ifndef KVB_SIZE_ENGINE_KVBENCH_H
#define KVB_SIZE_ENGINE_KVBENCH_H

#include "caches/cache.h"
#include "results/sizing/sizing.h"

/*
 * Where layers have windows: `window`, prefill in chunks of at most 256; else `contiguous` for one sequence and `seq`
 * for more, in chunks of ask->batch. Growth `double` with the capacity that was asked for, the last token alone. The
 * figure is all that the cache's allocator holds: rows, pools and tables.
 */
extern const kvb_size_engine kvb_size_engine_kvbench;

/* The built-in pool of that name: that of the format of the same name. NULL: none. */
const kvb_pool_type *kvb_size_pool_find(const char *name);

#endif
