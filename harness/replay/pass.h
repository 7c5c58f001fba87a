/* SPDX-License-Identifier: Apache-2.0 */
/* One pass: every event of a trace through one fresh cache. State that outlives a pass is kept here. */
#ifndef KVB_PASS_H
#define KVB_PASS_H

#include "caches/call.h"
#include "harness/replay/kernel_io.h"
#include "harness/replay/memory_log.h"
#include "harness/replay/replay.h"
#include "harness/replay/samples.h"
#include "harness/replay/step_kind.h"
#include "harness/replay/witness_check.h"

/* Where timed time goes. */
typedef enum kvb_account { KVB_IN_CACHE, KVB_IN_KERNEL, KVB_IN_HARNESS, KVB_ACCOUNTS } kvb_account;

typedef struct kvb_pass {
    const kvb_replay_options *options;
    const kvb_trace *trace;
    kvb_replay_place *place;
    kvb_result *result;
    /* of the pass under way */
    kvb_allocator allocator;
    kvb_cache *cache;
    kvb_history *history; /* witness only */
    kvb_kinship kinship;
    uint64_t number; /* 0: the first, in which traffic, counters and the timeline are taken */
    /* of all passes */
    kvb_call call;
    kvb_kernel_io io;
    uint32_t *position;          /* [tokens] of every token so far, by identity */
    uint32_t *positions;         /* [room] of the fed tokens */
    float *rows[KVB_ROWS_KINDS]; /* [room][heads][dim]: fed rows, where they do not lie together */
    uint32_t room;               /* tokens */
    uint64_t *seen;              /* bits of cells, for traffic */
    size_t seen_words;
    kvb_samples times[KVB_STEP_KINDS];
    kvb_samples cells[KVB_STEP_KINDS];                   /* unique ones that each step of the first pass read */
    double bytes[KVB_STEP_KINDS], flops[KVB_STEP_KINDS]; /* of the first pass */
    double account_ns[KVB_ACCOUNTS], step_ns;
    uint64_t intervals; /* timed ones: each costs a look at the clock */
    kvb_witness_check witness;
    kvb_diff diff;
    uint64_t digest;        /* of the first pass' outputs */
    kvb_own_counts pending; /* counts of the next timed interval: they must rise while counters run */
    kvb_cache_usage usage;  /* at the end of the last pass */
    size_t reserved_peak, allocator_live;
    kvb_memory_log memory; /* of the first pass */
    bool ended;            /* result says why */
} kvb_pass;

int kvb_pass_open(kvb_pass *pass, const kvb_replay_options *options, kvb_replay_place *place, kvb_result *result);
/* Run one pass and count it. 0, or a negative errno; with pass->ended the result says why. */
int kvb_pass_run(kvb_pass *pass);
void kvb_pass_close(kvb_pass *pass);

#endif
