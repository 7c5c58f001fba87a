/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the built-in caches have in common: the pools of every layer, the plan in use, the byte face.
 * A cache's own file holds what makes it different: its bookkeeping and how that becomes a plan.
 *
 * How a step is planned: check arguments and capacity; fill core->next on the side, reserving all memory
 * (tables, plan, pools); then, when nothing can fail any more, change the bookkeeping and let
 * kvb_core_adopt() put the plan in force. A step that fails has changed nothing.
 */
#ifndef KVB_CORE_H
#define KVB_CORE_H

#include "caches/bookkeeping/plan.h"
#include "caches/cache.h"

typedef struct kvb_core {
    kvb_cache cache;
    kvb_model_facts facts;
    kvb_cache_options options;
    kvb_pool **pools; /* [layers][2]: K, V */
    kvb_plan plan;    /* in force while plan.valid */
    kvb_plan next;    /* being made */
    uint64_t next_ordinal;
    uint64_t cells_written, cells_moved; /* per layer */
    uint32_t cells_peak, high_water;     /* the largest ever */
} kvb_core;

/* Check facts and options, allocate type->struct_bytes zeroed bytes that begin with the core, open the pools, each
 * bounded by pool_cells. 0 or a negative errno with why; nothing is left behind then. */
int kvb_core_open(const kvb_cache_type *type, const kvb_model_facts *facts, const kvb_cache_options *options,
                  uint64_t pool_cells, kvb_core **core, char *why, size_t why_bytes);
void kvb_core_close(kvb_core *core);

/* Record why a call failed and return its error: `return kvb_core_fail(core, -EINVAL, "…", …)`. */
int kvb_core_fail(kvb_core *core, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Make cells 0 .. cells-1 of every pool usable: 0, -ENOMEM or -ENOSPC. */
int kvb_core_ensure(kvb_core *core, uint32_t cells);
/* Put core->next in force; n_new tokens were admitted. live and high_water are those of the bookkeeping. */
void kvb_core_adopt(kvb_core *core, uint32_t n_new, uint32_t live, uint32_t high_water);
/* Cells in use have changed: keep the peaks. */
void kvb_core_note(kvb_core *core, uint32_t live, uint32_t high_water);
/* A control call took effect: the plan in force is stale. */
void kvb_core_invalidate(kvb_core *core);
/* Copy rows inside every pool, as kvb_pool_type.gather_into. */
void kvb_core_gather(kvb_core *core, uint32_t base, const uint32_t *cells, uint32_t n);

/* The usual feed: the n tokens admitted next, in order. */
void kvb_core_feed_new(kvb_core *core, uint32_t n);

/* Parts of faces. */
extern const kvb_byte_face kvb_core_bytes;
uint32_t kvb_core_capacity(const kvb_cache *cache);
void kvb_core_usage(const kvb_core *core, uint32_t live, kvb_cache_usage *usage);

#endif
