/* SPDX-License-Identifier: Apache-2.0 */
/* The replay of one workload through one combination of cache, pools and kernel. */
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

/* --only: the calls of a replay that are made and judged. The cache still goes through all events. */

typedef struct kvb_only {
    const char *text;            /* as typed; NULL: all calls */
    uint64_t event, line, layer; /* events count from 0, as in records; lines as in messages; UINT64_MAX: any */
} kvb_only;

/* Parses "line=12,layer=0"; parts: event, line, layer, each at most once. text NULL: all calls. -EINVAL with why. */
int kvb_only_parse(const char *text, kvb_only *only, char *why, size_t why_bytes);
bool kvb_only_has(const kvb_only *only, const kvb_trace *trace, uint32_t event, uint32_t layer);
/* Does the trace have such a call? If not, why says so. */
bool kvb_only_fits(const kvb_only *only, const kvb_trace *trace, char *why, size_t why_bytes);
/* Called just before attend() or scan() of such a call under --only: a place for a debugger's breakpoint. */
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
    bool judges_k, judges_v;  /* the pool is judged by itself first (kvb_pool_alone()) */
    bool deterministic;       /* the kernel must give the same bits for any number of threads */
    const kvb_kernel *kernel; /* for layers that attend */
    const kvb_kernel *scan;   /* for layers that scan: its face `scan` */
    kvb_elem out_elem;        /* of the outputs: KVB_F32, KVB_F16 or KVB_BF16 */
    const kvb_team *team;
    uint32_t min_chunk, page_cells, hash_bits; /* cells, cells, bits: as in kvb_cache_options */
    uint64_t prefix_bytes;                     /* as in kvb_cache_options */
    const kvb_knobs *knobs;
    bool restart;  /* after kvb_restart_event() the whole cache is saved, closed, and loaded into a new one */
    bool untimed;  /* one pass, judged; no times, rates or counters */
    bool unjudged; /* another replay judges the same combination: outputs are thrown away */
    /* Called before each pass and once after the last, in place of the knobs sample_ms and width: waits for this replay's
     * turn. false: make no more passes. The first pass is the warm-up and made in any case. NULL: not called. */
    bool (*turn)(void *ctx);
    void *turn_ctx;
    kvb_counters *counters;  /* open, on `counts`; opened before the team's threads, to count them; NULL: none */
    kvb_own_counts *counts;  /* of the pass in which counters run */
    double peak_gflop_per_s; /* f32 multiply-add peak at this number of threads; NaN: unknown */
    const kvb_only *only;    /* the calls that are made; NULL: all */
    /* The length of a sequence before tokens of that event according to an engine: the position at which rope begins.
     * length: the cache's. NULL: the cache's length is taken. */
    uint32_t (*length)(const kvb_trace *trace, size_t event, uint32_t seq, uint32_t length);
    const char *slots; /* folder for sequences that the trace saves; NULL: a temporary one */
    const char *dump;  /* folder for the first failing call; NULL: none */
    FILE *timeline;    /* one CSV line per event of the first pass; NULL: none */
} kvb_replay_options;

/* Does the tolerance of the kernel's own project decide? Then bounds are only reported. */
static inline bool kvb_is_tolerated(const kvb_replay_options *options)
{
    return options->kernel->tolerance.kind != KVB_TOLERANCE_NONE && !options->knobs->strict;
}

/* The event after which a replay restarts its cache: the first step of the second half. After a step the cache has stored
 * and turned all rows, and holds the latest token. n_events: the history has no such step, or it has trees. */
size_t kvb_restart_event(const kvb_trace *trace);

/* Does the replay write files of caches? */
static inline bool kvb_replay_saves(const kvb_replay_options *options)
{
    return options->trace && (options->trace->needs.slots || options->restart);
}

/* Where a replay is, for the report of a crash or a time-out. */
typedef struct kvb_replay_place {
    volatile uint32_t event;
    volatile uint32_t layer;
    const char *volatile doing; /* a string constant: "in begin_step", "in the kernel", … */
} kvb_replay_place;

/*
 * Replays one workload through one combination of cache, pools and kernel, in this process. Each pass plays the events
 * (event → cache → kernel → diff) to a fresh cache and is timed and checked; between passes the read bandwidth of the
 * machine is measured.
 */

/* Has the cache all that the trace needs, and does it serve the trace's model? If not, why says what it lacks. */
bool kvb_replay_fits(const kvb_trace *trace, const kvb_cache_type *cache, char *why, size_t why_bytes);

/*
 * Runs the replay and fills the result, except names, threads and placement. A part that cannot do something (-ENOTSUP)
 * makes a skip with its reason; a failing check or call makes a fail. 0 if the result says what happened; -ENOMEM if the
 * replay itself had no memory.
 */
int kvb_replay_run(const kvb_replay_options *options, kvb_replay_place *place, kvb_result *result);

/*
 * Does a pool use as much memory as it declares? A pool of few cells is opened, grown and closed over an allocator of its
 * own. The allocator must hold bytes(). Two cells are rewritten: the bytes that change with one of them alone must be no
 * more than row_bytes() for each row. Where only the pool knows how rows are encoded, no row of row_bytes() may overlap
 * another.
 */

/* Checks the replay's pools, for the rows of each group that attends. 0; -EILSEQ with why, which begins with the pool's
 * name; -ENOMEM. */
int kvb_pools_check(const kvb_replay_options *options, char *why, size_t why_bytes);

/*
 * Judges a pool by itself, without a history: rows that are hard for formats, of many dims, go through every verb of its
 * contract (caches/pools/pool.h). Stored rows are compared with the format's definition (oracle/codec.h); those of an
 * opaque format with the plug-in's own reference. Rows for an opaque format are finite and at most 65504 in size: its
 * treatment of NaN and infinity is not specified.
 */

/* 0; -EILSEQ: the pool breaks its contract, and why says where, with the expected and the found value; -ENOMEM. A pool
 * that touches foreign memory may crash the process; `place` then says where it was, as why would. */
int kvb_pool_alone(const kvb_pool_type *type, char *place, size_t place_bytes, char *why, size_t why_bytes);

#endif
