/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be replayed: one workload through one combination of cache, pools and kernel. */
#ifndef KVB_REPLAY_H
#define KVB_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "caches/cache.h"
#include "caches/pools/pool.h"
#include "harness/counters/counters.h"
#include "harness/knobs.h"
#include "kernels/attend.h"
#include "oracle/oracle.h"
#include "results/result.h"
#include "workloads/trace.h"
#include "workloads/values.h"

/* --only: the calls of a replay that are made and judged; the cache goes through all events before them. */

typedef struct kvb_only {
    const char *text;            /* as typed; NULL: all calls */
    uint64_t event, line, layer; /* events count from 0, as in records; lines as in messages; UINT64_MAX: any */
} kvb_only;

/* "line=12,layer=0", each part once or left out: event, line, layer. -EINVAL with why. text NULL: all. */
int kvb_only_parse(const char *text, kvb_only *only, char *why, size_t why_bytes);
bool kvb_only_has(const kvb_only *only, const kvb_trace *trace, uint32_t event, uint32_t layer);
/* Has the trace such a call? Else why says so. */
bool kvb_only_fits(const kvb_only *only, const kvb_trace *trace, char *why, size_t why_bytes);
/* Called just before attend() of such a call, where --only is said: a place for a debugger to stop at. */
void kvb_only_stop(void);

typedef struct kvb_replay_options {
    const kvb_trace *trace;
    const kvb_values *values;
    kvb_oracle *oracle; /* NULL: the kernel is a witness, and visible sets are checked instead */
    const kvb_cache_type *cache;
    const kvb_pool_type *k_pool, *v_pool;
    const float *const *k_amax, *const *v_amax; /* [layers] of [kv_heads] for pools with fixed scales
                                                 * (harness/matrix/ground_truth.h), or NULL */
    kvb_growth growth;
    bool judges_k, judges_v;  /* that pool is judged by itself first (pool_alone.h) */
    bool deterministic;       /* the kernel is to give the same bits whatever the number of threads */
    const kvb_kernel *kernel; /* of layers that attend */
    const kvb_kernel *scan;   /* of layers that scan: its face `scan` */
    kvb_elem out_elem;        /* of the outputs: KVB_F32, KVB_F16 or KVB_BF16 */
    const kvb_team *team;
    uint32_t min_chunk, page_cells, hash_bits; /* cells, cells, bits: as in kvb_cache_options */
    const kvb_knobs *knobs;
    bool untimed;  /* one pass, judged; no times, rates or counters */
    bool unjudged; /* what is timed was judged in another replay: outputs are written and thrown away */
    /* Asked before each pass in place of the knobs sample_ms and width, and once after the last: waits for this
     * replay's turn; false: make no more. The first pass is made whatever it says, and is the warm-up. NULL: not asked.
     */
    bool (*turn)(void *ctx);
    void *turn_ctx;
    kvb_counters
        *counters; /* open, on the counts below; NULL: none. Opened before the team's threads, so as to see them */
    kvb_own_counts *counts;  /* of the pass in which counters run */
    double peak_gflop_per_s; /* f32 multiply-add peak at this number of threads; NaN: unknown */
    const kvb_only *only;    /* the calls that are made; NULL: all */
    /* The length that an engine takes a sequence to have before tokens of that event, where rope begins, in place of the
     * cache's. NULL: the cache's. */
    uint32_t (*length)(const kvb_trace *trace, size_t event, uint32_t seq, uint32_t length);
    const char *slots; /* folder for what the trace saves; NULL: one of its own */
    const char *dump;  /* folder for the first failing call; NULL: none */
    FILE *timeline;    /* one CSV line an event of the first pass; NULL: none */
} kvb_replay_options;

/* Is the verdict that of the kernel's own project? What bounds say is reported then. */
static inline bool kvb_is_tolerated(const kvb_replay_options *options)
{
    return options->kernel->tolerance.kind != KVB_TOLERANCE_NONE && !options->knobs->strict;
}

/* Where a replay is: what a crash or a time-out is reported with. */
typedef struct kvb_replay_place {
    volatile uint32_t event;
    volatile uint32_t layer;
    const char *volatile doing; /* a string constant: "in begin_step", "in the kernel", … */
} kvb_replay_place;

/*
 * Replays one workload through one combination of cache, pools and kernel, in this process: passes over its events
 * (event → cache → kernel → diff), each over a fresh cache, timed and checked, with the read
 * bandwidth of the machine measured in between; then the result.
 */

/* Can the cache do what the trace needs, which is something, and is it of use for its model? Else why says what it
 * lacks. */
bool kvb_replay_fits(const kvb_trace *trace, const kvb_cache_type *cache, char *why, size_t why_bytes);

/*
 * Run it and fill the result but for names, threads and placement. A part that cannot do something (-ENOTSUP) is
 * a skip with its reason; a failing check or call is a fail. Returns 0 once the result says what happened, -ENOMEM when
 * the replay itself had no memory.
 */
int kvb_replay_run(const kvb_replay_options *options, kvb_replay_place *place, kvb_result *result);

/*
 * Does a pool take the memory that it says? A pool of few cells is opened, grown and closed, over an allocator of its
 * own. bytes() must be what the allocator holds, and row_bytes() what each row has of it: two cells are rewritten, and
 * what changes with one of them alone must be no more. Where only the pool knows how rows are encoded, row_bytes() also
 * says where they end: no row may lie in another.
 */

/* The replay's pools, for rows of each of its groups that attends. 0; -EILSEQ with why, which begins with the pool's
 * name; -ENOMEM. */
int kvb_pools_check(const kvb_replay_options *options, char *why, size_t why_bytes);

/*
 * A pool judged by itself, without a history: rows that formats find hard, of many dims, through every verb of its
 * contract (caches/pools/pool.h). What is stored is compared with what the format's name stands for (oracle/codec.h)
 * or, of an opaque format, with the plug-in's own reference. Rows of an opaque format are finite and of at most 65504;
 * what such a format makes of NaN and infinity is its own affair.
 */

/* 0; -EILSEQ: the pool breaks its contract, and why says where, with what was expected and found; -ENOMEM. A pool that
 * touches memory that it did not ask for may end the process; `place` says then, as why would, where it was. */
int kvb_pool_alone(const kvb_pool_type *type, char *place, size_t place_bytes, char *why, size_t why_bytes);

#endif
