/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pass over a trace: events are played to a cache, each layer of a step is a call of a kernel, and
 * what is looked at in each call is a table of checks (kvb_check_row).
 */
#ifndef KVB_REPLAY_PASS_H
#define KVB_REPLAY_PASS_H

#include <stddef.h>
#include <stdint.h>

#include "caches/allocator.h"
#include "caches/cache.h"
#include "caches/call.h"
#include "harness/replay/kernel_io.h"
#include "harness/replay/meter.h"
#include "harness/replay/poison.h"
#include "harness/replay/pool_watch.h"
#include "harness/replay/replay.h"
#include "kernels/attend.h"
#include "oracle/descent.h"
#include "oracle/filter.h"
#include "oracle/oracle.h"
#include "results/result.h"
#include "workloads/files.h"
#include "workloads/history.h"
#include "workloads/values.h"

/* Oracle question 1: compares what a witness kernel saw with the oracle's visible sets, token by token. */

typedef struct kvb_witness_check {
    uint64_t queries, cells; /* checked so far: (query, layer, KV head), and cells they saw */
    uint64_t *stamp;         /* [tokens] epoch in which a token was expected or met */
    uint64_t tokens, epoch;
    kvb_tag tag; /* how rows spell out their codes */
} kvb_witness_check;

/* model: profile `tags` made its values. 0 or -ENOMEM */
int kvb_witness_check_open(kvb_witness_check *check, const kvb_model *model, uint64_t tokens);
void kvb_witness_check_close(kvb_witness_check *check);

/*
 * After a witness ran on a step of problem->n_tok queries, the last n_new of which are the event's tokens:
 * each must have seen exactly the tokens that it may see in this layer, each once, at every KV head, in K and in V.
 * 0; 1 with the first difference in why; -ENOMEM.
 */
int kvb_witness_check_step(kvb_witness_check *check, kvb_history *history, const kvb_group *group,
                           const kvb_problem *problem, const void *scratch, uint32_t n_new, uint32_t layer, char *why,
                           size_t why_bytes);

/* Every row of every call is looked at: those that the oracle's sample leaves out get a second opinion
 * (oracle/opinion.h), and where there is none, no element may be NaN or infinite. */

struct kvb_pass;
struct kvb_made;

typedef struct kvb_every_row {
    kvb_diff diff;    /* of second opinions */
    uint64_t scanned; /* rows that were looked at, in all passes */
    uint64_t moved;   /* rows that were checked in full beside the sample, drawn anew in each pass, in all passes */
} kvb_every_row;

/* Looks at the outputs of the event's tokens, the last ones of the call. 0; an error, where the result of the pass says
 * why. */
int kvb_every_row_check(struct kvb_pass *pass, struct kvb_made *made);
/* Adds to the result what was judged, and the verdict. */
void kvb_every_row_judge(struct kvb_pass *pass, kvb_result *result);

/*
 * Under --deterministic a kernel must give the same bits whatever the size of its team. A call that was judged is made
 * again for teams of other sizes. These run their parts one after the other, as kvb_team allows, so that no thread is
 * needed.
 */

/* What it works in; all zero at first. */
typedef struct kvb_team_check {
    unsigned char *out; /* the judged call's outputs and log-sum-exps */
    size_t out_room;
    void *scratch;
    size_t scratch_room;
} kvb_team_check;

/* Where timed time goes. */
typedef enum kvb_time_account { KVB_IN_CACHE, KVB_IN_KERNEL, KVB_IN_HARNESS, KVB_ACCOUNTS } kvb_time_account;

/* What is measured. */
typedef struct kvb_meter {
    kvb_samples times[KVB_STEP_KINDS]; /* of the steps of all passes */
    /* For each step of the first pass: unique cells that it read, in the group that read the most, and bytes in all. */
    kvb_samples cells[KVB_STEP_KINDS], step_bytes[KVB_STEP_KINDS];
    double bytes[KVB_STEP_KINDS], flops[KVB_STEP_KINDS]; /* of the first pass */
    double account_ns[KVB_ACCOUNTS], step_ns;
    uint64_t intervals;     /* that were timed: each costs a look at the clock */
    kvb_own_counts pending; /* added in the next timed interval, as counts must rise while counters run */
    uint64_t *seen;         /* bits of cells */
    size_t seen_words;
    bool staged_k, staged_v; /* in some layer */
} kvb_meter;

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

/* What outputs are judged by, and what came of it. */
typedef struct kvb_judging {
    kvb_rounded *rounded;
    kvb_diff diff;
    kvb_every_row every;
    kvb_filter *filter; /* of the first pass; NULL: the oracle keeps no rows for it */
    kvb_foreign_calls foreign;
    uint64_t digest;      /* of the first pass' outputs */
    kvb_written *written; /* [events][layers] */
    uint64_t not_asked; /* of the oracle's rows, in the first pass: the cache had what they would have been asked for */
} kvb_judging;

/* What the cache holds, and what it found. */
typedef struct kvb_holdings {
    kvb_cache_usage usage[KVB_MODEL_GROUPS]; /* at the end of the last pass */
    size_t reserved_peak, allocator_live;
    kvb_memory_log log;      /* of the first pass */
    uint64_t offered, found; /* of the first pass: tokens of prompts, and those of them that the cache had */
} kvb_holdings;

/* Tokens so far, and the rows of those that a step feeds. */
typedef struct kvb_feeding {
    uint32_t *position;          /* [tokens] of every token so far, by identity */
    uint32_t *offset;            /* [tokens] to which q and K are turned; NULL: rows are not before rope */
    int64_t *ahead;              /* [sequences] of the trace's positions, in the present step */
    uint32_t *positions;         /* [room] of the fed tokens */
    float *rows[KVB_ROWS_KINDS]; /* [room][heads][dim]: fed rows, where they do not lie together */
    uint32_t room;               /* tokens */
} kvb_feeding;

typedef struct kvb_pass {
    const kvb_replay_options *options;
    const kvb_trace *trace;
    kvb_replay_place *place;
    kvb_result *result;
    uint64_t number; /* 0: the first, in which traffic and the timeline are taken */
    /* of the pass under way */
    kvb_allocator allocator;
    kvb_model model; /* what the cache is opened with */
    kvb_cache *cache;
    kvb_history *history;  /* of witnesses, and of caches that take prompts from what they have */
    kvb_pool_watch *watch; /* with pools whose rows depend on the order of writes, else NULL */
    kvb_window *window;    /* what they hold, else NULL */
    kvb_slot_files slots;  /* of a trace that saves */
    kvb_feeding feeding;
    /* calls */
    kvb_call call;
    kvb_kernel_io io;
    struct kvb_scans *scans; /* of layers that scan; NULL: there are none */
    const char *who, *what;  /* the kernel of the present call, and its function: "attend()" */
    /* what is looked at */
    kvb_meter meter;
    kvb_holdings holdings;
    kvb_judging judging;
    kvb_witness_check witness;
    kvb_poison_check poison;
    kvb_team_check team;
    bool ended; /* result says why */
    /* What the kernel did beside its work that it must not, the first time; empty: nothing. Its output is judged all
     * the same. */
    char misdeed[512];
} kvb_pass;

/* Prepares the passes of a replay; `options`, `place` and `result` outlive them. 0 or an error; to be closed in any
 * case. */
int kvb_pass_open(kvb_pass *pass, const kvb_replay_options *options, kvb_replay_place *place, kvb_result *result);
/* Replays the whole trace once. 0 or an error: where pass->ended, the result says why. */
int kvb_pass_run(kvb_pass *pass);
void kvb_pass_close(kvb_pass *pass);

/* Number of the pass in which traffic is counted and counters run: the first one that is timed. */
static inline uint64_t kvb_pass_counted(const kvb_pass *pass)
{
    return !pass->options->untimed && pass->options->oracle;
}

/* Records in the result that the call `what` failed at the present event. Returns the error. */
int kvb_pass_refuse(kvb_pass *pass, int error, const char *what, const char *why);
/* A check of the kernel failed: records it, and returns -EILSEQ; 0 and nothing if the check is off. */
int kvb_pass_fail(kvb_pass *pass, kvb_check check, const char *why);

/* kvb_pass_clock() begins a timed interval, kvb_pass_charge() ends it and adds it to that account of the step. Counters
 * run in one pass only; starting them is a system call, which lies outside the interval. */
double kvb_pass_clock(kvb_pass *pass);
void kvb_pass_charge(kvb_pass *pass, double started, kvb_time_account account);

/* What a step reads, added up layer by layer. */
typedef struct kvb_step_traffic {
    double cells, bytes, flops; /* cells: of the group that reads the most */
    bool counted[KVB_MODEL_GROUPS];
} kvb_step_traffic;

/* The fed tokens of a step, as every layer takes them. */
typedef struct kvb_fed {
    const kvb_event *event;
    const uint64_t *tokens; /* [n] identities */
    uint32_t n;
    uint32_t own, query; /* the last `own` of them are the event's, from its token `query` on */
    uint32_t judged; /* so many are the event's own, the last ones; or all of the event's, whose first are not asked */
} kvb_fed;

/* Rows of the fed tokens of a layer [n][heads][dim]: in place if they lie together, else copied, and turned where they
 * are before rope. NULL: it has none. */
const float *kvb_pass_rows(kvb_pass *pass, kvb_rows kind, uint32_t layer, const uint64_t *tokens, uint32_t n);

/* Adds a group's usage to that of all. */
void kvb_usage_add(kvb_cache_usage *all, const kvb_cache_usage *group);
/* Bytes of a cell's K and V rows in all layers of one group. */
double kvb_cell_bytes(const kvb_replay_options *options, uint32_t group);

/*
 * What is looked at in each call of a kernel, as a table: a check is a row. A call is prepared, every row's before()
 * is asked in order, the call is made and timed, every row's after() is asked in order. A replay ends with every row's
 * report(), in order, and close().
 */
typedef enum kvb_call_kind { KVB_CALL_ATTENDS, KVB_CALL_SCANS, KVB_CALL_KINDS } kvb_call_kind;

/* What a call's outputs are judged by. */
typedef struct kvb_judged {
    const kvb_expect *rows; /* [n] */
    size_t n;
    kvb_arithmetic arithmetic; /* what the rows leave of the kernel's declaration */
} kvb_judged;

/* A call of a step's layer. */
typedef struct kvb_made {
    kvb_call_kind kind;
    uint32_t layer;
    const kvb_fed *fed;
    kvb_step_traffic *traffic;
    const kvb_attend_spec *spec; /* ATTENDS */
    const kvb_scan_spec *states; /* SCANS */
    kvb_scan_part part;
    /* of ATTENDS, while it is judged */
    kvb_judged judged;
    kvb_written before; /* its digest, and what had been looked at before it */
    /* when it was made */
    int returned;
    uint64_t allocations, threads; /* of memory, meanwhile; started since the kernel was asked what it supports */
} kvb_made;

#define KVB_ENOUGH 1 /* of after(): rows that follow have nothing to look at, but for those that are asked always */

typedef struct kvb_check_row {
    const char *name;
    int (*open)(kvb_pass *pass); /* 0 or an error */
    int (*before[KVB_CALL_KINDS])(kvb_pass *pass, kvb_made *made);
    int (*after[KVB_CALL_KINDS])(kvb_pass *pass, kvb_made *made); /* 0, KVB_ENOUGH or an error */
    bool always;                                                  /* after() is asked also behind an error */
    void (*report)(kvb_pass *pass, kvb_result *result);
    void (*close)(kvb_pass *pass);
} kvb_check_row;

extern const kvb_check_row kvb_check_rows[]; /* ends with a name of NULL */

/* Adds what all layers of the group will read, at the first of them, until counters have run. Refuses a step that is too
 * large to attend. */
int kvb_traffic_add(kvb_pass *pass, kvb_made *made);
/* Words of the mask as the kernel gets it, and rescales as it declares them. */
int kvb_traffic_of_call(kvb_pass *pass, kvb_made *made);

/* Makes one call, with all checks. 0 or an error; the pass may be refused. */
int kvb_pass_call(kvb_pass *pass, kvb_made *made);

/* Is that query of the event's n tokens in the call? */
static inline bool kvb_pass_asks(const kvb_pass *pass, uint32_t n, uint32_t query)
{
    return (uint64_t)pass->call.args.problem.n_tok + query >= n;
}

/* What the call that was made last is judged by, into made->judged. 0 or an error; the pass may be refused for what the
 * kernel says of its rounding. */
int kvb_pass_judged(kvb_pass *pass, kvb_made *made);
/* Compares one row of the call's outputs with the oracle. 0 or an error. */
int kvb_pass_judge_row(kvb_pass *pass, const kvb_made *made, const kvb_expect *expect, kvb_diff *diff);

/*
 * ---- scan.c ----
 * Layers that scan, in a replay: a call of the convolution, where there is one, and a call of the recurrence; each with
 * guarded inputs, counted, timed and judged (oracle/descent.h). In the first pass slots that a call is not to read hold
 * NaN in every float, and are looked at and put back after it. A later pass must give the first one's bits:
 * kernels/scan.h leaves a kernel no choice.
 */

typedef struct kvb_scans kvb_scans;

/* *scans NULL if no layer scans. 0 or -ENOMEM. */
int kvb_scans_open(const kvb_replay_options *options, kvb_scans **scans);
void kvb_scans_close(kvb_scans *scans);
/* A pass begins. 0 or -ENOMEM. */
int kvb_scans_begin(kvb_scans *scans);

/* Are the slots that the cache names ones that there are? Notes which are read, and which written. 0 or an error. */
int kvb_scans_slots(kvb_pass *pass, const kvb_scan_spec *spec);

/* A call is prepared, and made: checks.c. */
int kvb_scans_prepare(kvb_pass *pass, kvb_made *made);
int kvb_scans_run(kvb_pass *pass);

/* Its parts in the rows of the table of checks. */
int kvb_scans_state(kvb_pass *pass, kvb_made *made);   /* the processor's caches, as asked for */
int kvb_scans_poison(kvb_pass *pass, kvb_made *made);  /* in the first pass, as long as the budget lasts: NaN in slots
                                                         * that the call does not read */
int kvb_scans_restore(kvb_pass *pass, kvb_made *made); /* what it was not to write is as it was, and comes back */
int kvb_scans_inputs(kvb_pass *pass, kvb_made *made);  /* as they were given */
int kvb_scans_fill(kvb_pass *pass, kvb_made *made);    /* a NaN of our own in all of out */
int kvb_scans_written(kvb_pass *pass, kvb_made *made); /* none of it is left */
int kvb_scans_judged(kvb_pass *pass, kvb_made *made);  /* is it to be judged? */
int kvb_scans_follow(kvb_pass *pass, kvb_made *made);  /* the oracle follows it, in the first pass */
int kvb_scans_digest(kvb_pass *pass, kvb_made *made);  /* the first pass' bits again */
int kvb_scans_dump(kvb_pass *pass, kvb_made *made);

/* So many tokens of a prompt were found: their rows are not compared. */
void kvb_scans_found(kvb_scans *scans, uint32_t n);
/* Adds what was judged, and the verdict: outputs by their bound, by second opinions, and what slots held. */
void kvb_scans_judge(const kvb_scans *scans, const kvb_diff *attended, kvb_result *result);
/* Bytes of scratch. */
size_t kvb_scans_scratch(const kvb_scans *scans);

/*
 * ---- dump.c ----
 * --dump DIR writes the first failing call to DIR/call.safetensors: its inputs, its outputs, and the exact outputs. The tensors:
 *   q [n_tok][heads][k_dim] f32
 *   k_stored, v_stored [kv_heads][cells][bytes]: codes, without side tables; k_decoded, v_decoded [kv_heads][cells][dim] f32;
 *     of latent rows K alone
 *   mask [n_tok][cells] bool
 *   out [n_tok][heads][v_dim] f32, lse [n_tok][heads] f32
 *   exact, bound [n_tok][heads][v_dim] f64, exact_lse, bound_lse [n_tok][heads] f64; NaN: no such row was checked
 * and as metadata the event, layer, scale, softcap, kernel and formats. Of a scan (kernels/scan.h):
 *   q, k, v, gate, beta, a, bias f32, as far as it has them, each with three dims
 *   from, to [n_tok][1] i64: slots; from -1: zeros, -2: the token before; to -1: none
 *   slots [n][1] i64: those, each once; states_before, states [n][heads][d_k d_v] f32: what lay in them before and after the call
 *   out [n_tok][heads][d_v] f32; exact, bound [n_tok][heads][d_v] f64; NaN: nothing is known of it
 * and as metadata the event, layer, recurrence and kernel.
 * Beside it lies difference.py, which writes the same as call.npz and shows the worst element.
 */

/* Makes the folder. -EEXIST, with why: it holds a call already; or what mkdir says. */
int kvb_dump_folder(const char *path, char *why, size_t why_bytes);
/* Writes the call that the pass made last; nothing if DIR has one. What fails is said on stderr. */
void kvb_dump(const kvb_pass *pass, const kvb_made *made);

/* Of a scan. */
typedef struct kvb_scan_dump {
    uint32_t layer;
    const kvb_scan *call;        /* as it was made, with out */
    const char *before;          /* its slots before the call; NULL: not known */
    const double *exact, *bound; /* [n_tok][heads][d_v] */
} kvb_scan_dump;
void kvb_dump_scan(const kvb_pass *pass, const kvb_scan_dump *dump);

#endif
