/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Truth by tokens: no cache may change what the live model says. Every scenario is played over every cache
 * that can do it, with f32 pools; its tokens must be those of `recompute`, which keeps nothing,
 * and those of speculative decoding must be those of plain greedy decoding.
 */
#ifndef KVB_LIVE_CHECK_H
#define KVB_LIVE_CHECK_H

#include <stdio.h>

#include "results/result.h"
#include "workloads/live/live.h"

typedef struct kvb_live_check {
    const kvb_weights *weights;
    uint64_t seed;
    const kvb_kernel *kernel;
    const kvb_pool_type *pool;
    const kvb_scenario *const *scenarios; /* ends with NULL */
    const kvb_cache_type *const *caches;  /* ends with NULL */
} kvb_live_check;

/* Prints a table, one row for each scenario and cache that fit. The number of rows in which something
 * differs or failed, or a negative errno with why. */
int kvb_live_check_run(const kvb_live_check *check, kvb_table_format format, FILE *out, char *why, size_t why_bytes);

#endif
