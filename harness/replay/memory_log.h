/* SPDX-License-Identifier: Apache-2.0 */
/* Memory after each event of a replay's first pass: for the record, and as lines of the knob timeline. */
#ifndef KVB_MEMORY_LOG_H
#define KVB_MEMORY_LOG_H

#include "caches/cache.h"
#include "results/result.h"
#include "workloads/trace.h"

/* A timeline with its heading, to be closed with fclose; NULL with errno. */
FILE *kvb_timeline_open(const char *path);

/* One line of the timeline; `number` is the event's, counted from 0. */
void kvb_timeline_print(FILE *timeline, const kvb_result *result, uint32_t number, const kvb_event *event,
                        kvb_step_kind kind, const kvb_cache_usage *usage, const kvb_allocator *allocator);

/* Points as they come. Zero at first. */
typedef struct kvb_memory_log {
    kvb_memory_point *at;
    size_t n, room;
} kvb_memory_log;

int kvb_memory_log_add(kvb_memory_log *log, kvb_memory_point point); /* 0 or -ENOMEM */
/* Fills memory.timeline with all points if they fit, else with some, evenly spread, and the highest of each curve. */
void kvb_memory_log_report(const kvb_memory_log *log, kvb_result *result);
void kvb_memory_log_free(kvb_memory_log *log);

#endif
