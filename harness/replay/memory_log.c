/* SPDX-License-Identifier: Apache-2.0 */
/* Memory over a replay. */
#include "harness/replay/memory_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "workloads/array.h"

FILE *kvb_timeline_open(const char *path)
{
    FILE *timeline = fopen(path, "w");
    if (timeline)
        fputs("workload,cache,pool_k,pool_v,kernel,threads,event,line,kind,cells_live,high_water,reserved_bytes,"
              "allocator_bytes,allocator_peak_bytes\n",
              timeline);
    return timeline;
}

void kvb_timeline_print(FILE *timeline, const kvb_result *r, uint32_t number, const kvb_event *event,
                        kvb_step_kind kind, const kvb_cache_usage *usage, const kvb_allocator *allocator)
{
    fprintf(timeline, "%s,%s,%s,%s,%s,%u,%u,%" PRIu64 ",%s,%u,%u,%zu,%zu,%zu\n", r->workload, r->cache, r->pool_k,
            r->pool_v, r->kernel, r->threads, number, event->line, kvb_step_kind_name(kind), usage->cells_live,
            usage->high_water, usage->reserved_bytes, allocator->current_bytes, allocator->peak_bytes);
}

int kvb_memory_log_add(kvb_memory_log *log, kvb_memory_point point)
{
    int error = kvb_array_reserve(&log->at, &log->room, log->n + 1, sizeof *log->at);
    if (!error)
        log->at[log->n++] = point;
    return error;
}

void kvb_memory_log_report(const kvb_memory_log *log, kvb_result *result)
{
    size_t spread = KVB_MEMORY_POINTS - 2, live = 0, held = 0, taken = 0; /* two places are for the highest points */
    for (size_t i = 0; i < log->n; i++) {
        live = log->at[i].live_bytes > log->at[live].live_bytes ? i : live;
        held = log->at[i].held_bytes > log->at[held].held_bytes ? i : held;
    }
    result->memory.n_timeline = 0;
    for (size_t i = 0; i < log->n; i++) {
        bool even = log->n <= KVB_MEMORY_POINTS || i == taken * (log->n - 1) / (spread - 1);
        taken += even;
        if (even || i == live || i == held)
            result->memory.timeline[result->memory.n_timeline++] = log->at[i];
    }
}

void kvb_memory_log_free(kvb_memory_log *log)
{
    free(log->at);
    *log = (kvb_memory_log){0};
}
