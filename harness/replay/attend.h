/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a kernel in a pass over a trace, and the state of the passes: counted, guarded, timed, checked. */
#ifndef KVB_REPLAY_ATTEND_H
#define KVB_REPLAY_ATTEND_H

#include "caches/call.h"
#include "caches/scan_call.h"
#include "caches/session.h"
#include "harness/replay/every_row.h"
#include "harness/replay/job.h"
#include "harness/replay/kernel_io.h"
#include "harness/replay/memory_log.h"
#include "harness/replay/poison_check.h"
#include "harness/replay/pool_watch.h"
#include "harness/replay/samples.h"
#include "harness/replay/step_kind.h"
#include "harness/replay/team_check.h"
#include "harness/replay/witness_check.h"
#include "oracle/descent.h"
#include "oracle/rounded.h"
#include "oracle/filter.h"
#include "oracle/tolerance.h"
#include "workloads/slot_files.h"

/* A call of the first pass: its outputs' bits, and how much of them was looked at. A later pass that writes the same
 * bits there is not judged again. */
typedef struct kvb_written {
    uint64_t digest, rows, opinions, scanned;
} kvb_written;

/* A foreign kernel's calls: by its own project's rule, and what they did that another kernel's must not. A rule is of a
 * whole output: where the oracle knows a part of a call's rows, these count together with all others of such calls. */
typedef struct kvb_foreign_calls {
    kvb_closeness call, parts; /* of the present one; of those that are known in part */
    uint64_t rows;             /* of the present one that were compared */
    double share;              /* largest so far, of those that are known whole */
    uint32_t event, layer;     /* where */
    uint64_t elements;         /* compared, in all */
    uint64_t calls, allocations;
} kvb_foreign_calls;

/* Where timed time goes. */
typedef enum kvb_time_account { KVB_IN_CACHE, KVB_IN_KERNEL, KVB_IN_HARNESS, KVB_ACCOUNTS } kvb_time_account;

typedef struct kvb_pass {
    const kvb_replay_options *options;
    const kvb_trace *trace;
    kvb_replay_place *place;
    kvb_result *result;
    /* of the pass under way */
    kvb_allocator allocator;
    kvb_model model; /* what the cache is opened with */
    kvb_cache *cache;
    kvb_history *history; /* of witnesses, and of caches that take prompts from what they have */
    uint64_t not_asked; /* of the oracle's rows, in the first pass: the cache had what they would have been asked for */
    uint64_t offered, found; /* tokens of prompts, and those of them that the cache had, likewise */
    kvb_pool_watch *watch;   /* with pools whose rows depend on the order of writes, else NULL */
    kvb_window *window;      /* what they hold, likewise */
    kvb_kinship kinship;
    uint64_t number; /* 0: the first, in which traffic and the timeline are taken */
    /* of all passes */
    kvb_slot_files slots; /* of a trace that saves */
    kvb_call call;
    kvb_kernel_io io;
    const char *who, *what;      /* the kernel of the call in hand, and its function: "attend()" */
    struct kvb_scans *scans;     /* of layers that scan: harness/replay/scan.h; NULL: there are none */
    uint32_t *position;          /* [tokens] of every token so far, by identity */
    uint32_t *positions;         /* [room] of the fed tokens */
    float *rows[KVB_ROWS_KINDS]; /* [room][heads][dim]: fed rows, where they do not lie together */
    uint32_t room;               /* tokens */
    uint64_t *seen;              /* bits of cells, for traffic */
    size_t seen_words;
    kvb_samples times[KVB_STEP_KINDS];
    /* For each step of the first pass: unique cells that it read, in the group that read the most, and bytes in all. */
    kvb_samples cells[KVB_STEP_KINDS], step_bytes[KVB_STEP_KINDS];
    double bytes[KVB_STEP_KINDS], flops[KVB_STEP_KINDS]; /* of the first pass */
    double account_ns[KVB_ACCOUNTS], step_ns;
    uint64_t intervals; /* that were timed: each costs a look at the clock */
    kvb_witness_check witness;
    kvb_poison_check poison;
    kvb_team_check team;
    kvb_rounded *rounded; /* what outputs are judged by */
    kvb_diff diff;
    kvb_every_row every;
    kvb_foreign_calls foreign;
    kvb_filter *filter;     /* of the first pass; NULL: the oracle keeps no rows for it */
    uint64_t digest;        /* of the first pass' outputs */
    kvb_written *written;   /* [events][layers] */
    kvb_own_counts pending; /* added in the next timed interval, as counts must rise while counters run */
    kvb_cache_usage usage[KVB_MODEL_GROUPS]; /* at the end of the last pass */
    bool staged_k, staged_v;                 /* in some layer */
    size_t reserved_peak, allocator_live;
    kvb_memory_log memory; /* of the first pass */
    bool ended;            /* result says why */
    /* What the kernel did beside its work that it must not, the first time; empty: nothing. Its output is judged all
     * the same. */
    char misdeed[512];
} kvb_pass;

/* What a step reads, added up layer by layer. */
typedef struct kvb_step_traffic {
    double cells, bytes, flops; /* cells: of the group that reads the most */
    bool counted[KVB_MODEL_GROUPS];
} kvb_step_traffic;

/* Number of the pass in which traffic is counted and counters run: the first one that is timed. */
static inline uint64_t kvb_pass_counted(const kvb_pass *pass)
{
    return !pass->options->untimed && pass->options->oracle;
}

/* kvb_pass_clock() begins a timed interval, kvb_pass_charge() ends it and adds it to that account of the step. Counters
 * run in one pass only; starting them is a system call, which lies outside the interval. */
double kvb_pass_clock(kvb_pass *pass);
void kvb_pass_charge(kvb_pass *pass, double started, kvb_time_account account);
/* Records in the result that the call `what` failed at the present event. Returns the error. */
int kvb_pass_refuse(kvb_pass *pass, int error, const char *what, const char *why);
/* A check of the kernel failed: likewise, with -EILSEQ; 0 and nothing if the check is off. */
int kvb_pass_fail(kvb_pass *pass, kvb_check check, const char *why);
/* The kernel's function has returned `error`: 0, or it fails. allocations: of memory, meanwhile; threads: started since
 * the kernel was asked what it supports. */
int kvb_pass_returned(kvb_pass *pass, int error, uint64_t allocations, uint64_t threads);
/* Attends one layer of the step and checks it. fed: the queries; n: the event's own tokens among them, the last ones,
 * or, of an event whose first ones are not asked, all of the event's. */
int kvb_pass_attend(kvb_pass *pass, uint32_t layer, const kvb_attend_spec *spec, const float *q, uint32_t fed,
                    uint32_t n, kvb_step_traffic *step);

/* Is that query of the event's n tokens in the call? */
static inline bool kvb_pass_asks(const kvb_pass *pass, uint32_t n, uint32_t query)
{
    return (uint64_t)pass->call.args.problem.n_tok + query >= n;
}

/* What a call's outputs are judged by. */
typedef struct kvb_judged {
    const kvb_expect *rows; /* [n] */
    size_t n;
    kvb_arithmetic arithmetic; /* what the rows leave of the kernel's declaration */
} kvb_judged;

/* What the call that was made last, of this layer, is judged by. 0 or an error; the pass may be refused for what the
 * kernel says of its rounding. */
int kvb_pass_judged(kvb_pass *pass, uint32_t layer, kvb_judged *judged);
/* Compares one row of the call's outputs, of the event's n tokens, with the oracle. 0 or an error. */
int kvb_pass_judge_row(kvb_pass *pass, const kvb_attend_spec *spec, uint32_t n, const kvb_judged *judged,
                       const kvb_expect *expect, kvb_diff *diff);

/* The row that was judged last, by the kernel's own project's rule too; its exact outputs are at exact + c * step. */
void kvb_pass_tolerate_row(kvb_pass *pass, uint32_t query, uint32_t head, const double *exact, size_t step);

/* Bytes of a cell's K and V rows in all layers of one group. */
double kvb_cell_bytes(const kvb_replay_options *options, uint32_t group);

#endif
