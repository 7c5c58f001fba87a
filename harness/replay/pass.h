/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pass over a trace: it plays the events to a cache and calls a kernel for each layer of a step. A table of checks
 * (kvb_check_row) examines each call.
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

/* Oracle question 1: compares the tokens that a witness kernel saw with the oracle's visible sets. */

typedef struct kvb_witness_check {
    uint64_t queries, cells; /* checked so far: (query, layer, KV head) triples, and the cells that they saw */
    uint64_t *stamp;         /* [tokens] epoch in which a token was expected or met */
    uint64_t tokens, epoch;
    kvb_tag tag; /* how rows spell out their codes */
} kvb_witness_check;

/* model: its values come from profile `tags`. 0 or -ENOMEM. */
int kvb_witness_check_open(kvb_witness_check *check, const kvb_model *model, uint64_t tokens);
void kvb_witness_check_close(kvb_witness_check *check);

/*
 * Checks a step of problem->n_tok queries that a witness ran; the last n_new queries are the event's tokens. Each of
 * these must have seen exactly the tokens that it may see in this layer, each once, at every KV head, in K and in V. 0;
 * 1 with the first difference in why; -ENOMEM.
 */
int kvb_witness_check_step(kvb_witness_check *check, kvb_history *history, const kvb_group *group,
                           const kvb_problem *problem, const void *scratch, uint32_t n_new, uint32_t layer, char *why,
                           size_t why_bytes);

/* The accounts of timed intervals. */
typedef enum kvb_time_account { KVB_IN_CACHE, KVB_IN_KERNEL, KVB_IN_HARNESS, KVB_ACCOUNTS } kvb_time_account;

/* Measurements. */
typedef struct kvb_meter {
    kvb_samples times[KVB_STEP_KINDS]; /* of the steps of all passes */
    /* Of each step of the first pass: unique cells read in the group that read the most; bytes read in all groups. */
    kvb_samples cells[KVB_STEP_KINDS], step_bytes[KVB_STEP_KINDS];
    double bytes[KVB_STEP_KINDS], flops[KVB_STEP_KINDS]; /* of the first pass */
    double account_ns[KVB_ACCOUNTS], step_ns;
    uint64_t intervals;     /* timed ones: each costs a reading of the clock */
    kvb_own_counts pending; /* added when the next timed interval begins: counts must rise while counters run */
    uint64_t *seen;         /* bits of cells */
    size_t seen_words;
    bool staged_k, staged_v; /* rows were staged in some layer */
} kvb_meter;

/* A call of the first pass: the digest of its outputs, and how many rows were examined. A later pass whose call has the
 * same digest is not judged again. */
typedef struct kvb_written {
    uint64_t digest, rows, opinions, scanned;
} kvb_written;

/* Calls of a foreign kernel, judged by the tolerance of its own project, which applies to a whole output. Calls of which
 * the oracle knows only some rows are judged together, as one output. */
typedef struct kvb_foreign_calls {
    kvb_closeness call, parts;   /* of the current call; of all calls that the oracle knows in part */
    uint64_t rows;               /* of the current call that were compared */
    double share;                /* largest so far of the calls that the oracle knows whole */
    uint32_t event, layer;       /* the call with that share */
    uint64_t elements;           /* compared, in all */
    uint64_t calls, allocations; /* calls of the first pass, and allocations in them: allowed to foreign kernels only */
} kvb_foreign_calls;

/* How outputs are judged, and what was found. */
typedef struct kvb_judging {
    kvb_rounded *rounded;
    kvb_diff diff;
    kvb_diff opinions;  /* second ones, of rows that the oracle's sample leaves out */
    uint64_t scanned;   /* rows examined, in all passes */
    uint64_t moved;     /* rows checked in full besides the sample, in all passes; each pass draws others */
    kvb_filter *filter; /* of the first pass; NULL: the oracle keeps no rows for it */
    kvb_foreign_calls foreign;
    uint64_t digest;      /* of the first pass' outputs */
    kvb_written *written; /* [events][layers] */
    uint64_t not_asked;   /* rows of the oracle without a query in the first pass: the cache had found their tokens */
} kvb_judging;

/* The cache's usage of memory, and the tokens that it found. */
typedef struct kvb_holdings {
    kvb_cache_usage usage[KVB_MODEL_GROUPS]; /* at the end of the last pass */
    size_t reserved_peak, allocator_live;
    kvb_memory_log log;      /* of the first pass */
    uint64_t offered, found; /* in the first pass: tokens of prompts, and how many of them the cache had */
} kvb_holdings;

/* Positions of the tokens so far, and the rows of a step's fed tokens. */
typedef struct kvb_feeding {
    uint32_t *position;          /* [tokens] of every token so far, by identity */
    uint32_t *offset;            /* [tokens] position to which rope turns q and K; NULL: rows are recorded after rope */
    int64_t *ahead;              /* [sequences] offset - position in the current step */
    uint32_t *positions;         /* of the fed tokens */
    float *rows[KVB_ROWS_KINDS]; /* [fed][heads][dim] fed rows that do not lie together, or are turned */
    float *angles;               /* [fed][rope.dims] by which rope turns the fed rows of the group angles_of */
    const kvb_group *angles_of;  /* NULL: of none yet */
    size_t positions_room, rows_room[KVB_ROWS_KINDS], angles_room;
} kvb_feeding;

typedef struct kvb_pass {
    const kvb_replay_options *options;
    const kvb_trace *trace;
    kvb_replay_place *place;
    kvb_result *result;
    uint64_t number; /* of the pass, from 0; the first one records step traffic and the timeline */
    /* of the current pass */
    kvb_allocator allocator;
    kvb_model model; /* the cache's */
    kvb_cache *cache;
    kvb_history *history;  /* for a witness, and for a cache that matches prompts; else NULL */
    kvb_pool_watch *watch; /* over pools in which rows depend on the order of writes; else NULL */
    kvb_window *window;    /* the oracle's account of these pools; else NULL */
    kvb_slot_files slots;  /* for a replay that saves */
    kvb_feeding feeding;
    /* calls */
    kvb_call call;
    kvb_kernel_io io;
    struct kvb_scans *scans;   /* for layers that scan; NULL: there are none */
    const char *callee, *what; /* the kernel of the current call, and its function: "attend()" */
    /* state of the checks */
    kvb_meter meter;
    kvb_holdings holdings;
    kvb_judging judging;
    kvb_witness_check witness;
    kvb_poison_check poison;
    kvb_buffer team_scratch;  /* of calls that are made again by other teams */
    bool ended;               /* result says why */
    bool short_of_memory;     /* each request of memory that a call of the cache makes is refused once */
    bool met_shortage;        /* a request of the event was refused; else only the last event's calls are made */
    uint32_t found;           /* tokens of a prompt, by seq_match */
    const uint64_t *ordinals; /* [found] */
    /* The kernel's first misdeed: it allocated memory or started a thread. Its outputs are judged all the same. Empty:
     * none. */
    char misdeed[512];
} kvb_pass;

/* Prepares the passes of a replay. `options`, `place` and `result` must outlive them. 0 or an error; the caller closes
 * the pass in either case. */
int kvb_pass_open(kvb_pass *pass, const kvb_replay_options *options, kvb_replay_place *place, kvb_result *result);
/* Replays the whole trace once. 0 or an error; if pass->ended, the result says why. */
int kvb_pass_run(kvb_pass *pass);
void kvb_pass_close(kvb_pass *pass);

/* Number of the pass in which traffic is counted and counters run: the first timed one, or 0 if none is timed. */
static inline uint64_t kvb_pass_counted(const kvb_pass *pass)
{
    return !pass->options->untimed && pass->options->oracle;
}

/* Ends the pass: records in the result that the call `what` failed at the current event. Returns the error. */
int kvb_pass_refuse(kvb_pass *pass, int error, const char *what, const char *why);
/* Records that a check of the kernel failed, and returns -EILSEQ. If the check is off: records nothing, returns 0. */
int kvb_pass_fail(kvb_pass *pass, kvb_check check, const char *why);

/* kvb_pass_clock() begins a timed interval. kvb_pass_charge() ends it and adds its time to the step and to the account.
 * Counters run in one pass only; the system call that starts them lies outside the interval. */
double kvb_pass_clock(kvb_pass *pass);
void kvb_pass_charge(kvb_pass *pass, double started, kvb_time_account account);

/* Reads and operations of a step, added up layer by layer. */
typedef struct kvb_step_traffic {
    double cells, bytes, flops; /* cells: in the group that reads the most */
    bool counted[KVB_MODEL_GROUPS];
} kvb_step_traffic;

/* The fed tokens of a step, the same in every layer. */
typedef struct kvb_fed {
    const kvb_event *event;
    const uint64_t *tokens; /* [n] identities */
    uint32_t n;
    uint32_t own, query; /* the last `own` of them are the event's, from its token `query` on */
    uint32_t judged; /* the call's last `judged` queries are judged: all of the event's tokens, or of a chunk of a fill;
                      * more than the call has where the cache found the event's first tokens */
} kvb_fed;

/* Rows of the fed tokens in a layer [n][heads][dim]: in place if they lie together; else copied, and turned if they are
 * recorded before rope. NULL: the layer has none. */
const float *kvb_pass_rows(kvb_pass *pass, kvb_rows kind, uint32_t layer, const kvb_fed *fed);

/* Adds a group's usage to the sum over all groups. */
void kvb_usage_add(kvb_cache_usage *all, const kvb_cache_usage *group);
/* Bytes of a cell's K and V rows in all layers of one group. */
double kvb_cell_bytes(const kvb_replay_options *options, uint32_t group);

/*
 * The checks of a kernel's call are a table for each kind of call, one check per row. A call is prepared, every row's
 * before() runs in order, the call is made and timed, every row's after() runs in order.
 */
typedef enum kvb_call_kind { KVB_CALL_ATTENDS, KVB_CALL_SCANS } kvb_call_kind;

/* A call of a step's layer. */
typedef struct kvb_made {
    kvb_call_kind kind;
    uint32_t layer;
    const kvb_fed *fed;
    kvb_step_traffic *traffic;
    const kvb_attend_spec *spec; /* ATTENDS */
    const float *q;              /* ATTENDS: the harness's own queries; NULL for a witness */
    const kvb_scan_spec *states; /* SCANS */
    kvb_scan_part part;
    /* ATTENDS, while it is judged */
    const kvb_expect *rows; /* [n_rows] the oracle's */
    size_t n_rows;
    kvb_arithmetic arithmetic; /* the kernel's declaration without the part that the rows already include */
    kvb_written before;        /* digest: of this call; counts: before it */
    /* after the call */
    int returned;
    uint64_t allocations, threads; /* calls of the heap in it; threads started since the kernel's supports() */
} kvb_made;

#define KVB_ENOUGH 1 /* from after(): skip the rows that follow, except those with `always` */

typedef struct kvb_check_row {
    const char *name;
    int (*before)(kvb_pass *pass, kvb_made *made);
    int (*after)(kvb_pass *pass, kvb_made *made); /* 0, KVB_ENOUGH or an error */
    bool always;                                  /* after() runs even after an error */
} kvb_check_row;

/* The state of all checks: 0 or an error; the verdicts at a replay's end, in order. */
int kvb_checks_open(kvb_pass *pass);
void kvb_checks_report(kvb_pass *pass, kvb_result *result);
void kvb_checks_close(kvb_pass *pass);

/* Every row of every call is examined. A row that the oracle's sample leaves out gets a second opinion
 * (oracle/opinion.h); where there is none, no element may be NaN or infinite. Looks at the outputs of the event's
 * tokens, the last ones of the call. */
int kvb_every_row_check(kvb_pass *pass, kvb_made *made);
/* Adds the counts and the verdict of second opinions to the result. */
void kvb_every_row_judge(kvb_pass *pass, kvb_result *result);

/* Checks of either kind of call. What the kernel returned; notes allocations and threads started. */
int kvb_pass_conduct(kvb_pass *pass, kvb_made *made);
/* Margins of guarded memory, in the first pass only; later ones check them at their end: kvb_pass_run(). */
int kvb_pass_margins(kvb_pass *pass, kvb_made *made);

/* Adds the reads of all layers of a group at the group's first layer, up to the pass in which counters run. Refuses a
 * step above the knob max-pairs. */
int kvb_traffic_add(kvb_pass *pass, kvb_made *made);
/* Adds the words of the mask that the kernel gets, and the rescales that it declares. */
int kvb_traffic_of_call(kvb_pass *pass, kvb_made *made);

/* Makes one call, with all checks. 0 or an error; the pass may have ended. */
int kvb_pass_call(kvb_pass *pass, kvb_made *made);

/* Is query `query` of the event's n tokens in the call? The first are not where the cache found them. */
static inline bool kvb_pass_asks(const kvb_pass *pass, uint32_t n, uint32_t query)
{
    return (uint64_t)pass->call.args.problem.n_tok + query >= n;
}

/* Fills in the rows and the arithmetic of the last call. 0 or an error; a wrong declaration of the kernel's rounding ends
 * the pass. */
int kvb_pass_judged(kvb_pass *pass, kvb_made *made);
/* Compares one row of the call's outputs with the oracle. 0 or an error. */
int kvb_pass_judge_row(kvb_pass *pass, const kvb_made *made, const kvb_expect *expect, kvb_diff *diff);

/*
 * ---- scan.c ----
 * Layers that scan: a call of the convolution, if there is one, and a call of the recurrence. Each has guarded inputs and
 * is counted, timed and judged (oracle/descent.h). In the first pass the slots that a call may not read are filled with
 * NaN, and are checked and restored after the call. A later pass must give the same bits as the first: kernels/scan.h
 * leaves a kernel no choice.
 */

typedef struct kvb_scans kvb_scans;

/* *scans NULL if no layer scans. 0 or -ENOMEM. */
int kvb_scans_open(const kvb_replay_options *options, kvb_scans **scans);
void kvb_scans_close(kvb_scans *scans);
/* Begins a pass. 0 or -ENOMEM. */
int kvb_scans_begin(kvb_scans *scans);

/* Do the slots that the cache names exist? Notes which ones are read and written. 0, or an error that ends the pass. */
int kvb_scans_slots(kvb_pass *pass, const kvb_scan_spec *spec);

/* Prepare and make a call, for kvb_pass_call(). */
int kvb_scans_prepare(kvb_pass *pass, kvb_made *made);
int kvb_scans_run(kvb_pass *pass);

extern const kvb_check_row kvb_scan_rows[]; /* ends with a name of NULL */

/* The cache found n tokens of a prompt: their rows are not compared. */
void kvb_scans_found(kvb_scans *scans, uint32_t n);
/* Adds the counts and the verdict: of outputs by their bound, of second opinions, and of states in slots. */
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
 *   exact, bound [n_tok][heads][v_dim] f64, exact_lse, bound_lse [n_tok][heads] f64; NaN: the row was not checked
 * The metadata are the event, layer, scale, softcap, kernel and formats. For a scan (kernels/scan.h):
 *   q, k, v, gate, beta, a, bias f32, those that the scan has, each with three dims
 *   from, to [n_tok][1] i64: slots; from -1: zeros, -2: the token before; to -1: none
 *   slots [n][1] i64: these slots, each once; states_before, states [n][heads][d_k d_v] f32: their states before and after the call
 *   out [n_tok][heads][d_v] f32; exact, bound [n_tok][heads][d_v] f64; NaN: unknown
 * The metadata are the event, layer, recurrence and kernel.
 * difference.py beside it writes the same tensors to call.npz and shows the worst element.
 */

/* Makes the folder. -EEXIST, with why: it holds a call already; or the error of mkdir. */
int kvb_dump_folder(const char *path, char *why, size_t why_bytes);
/* Writes the pass's last call; nothing if DIR holds one. Errors go to stderr. */
void kvb_dump(const kvb_pass *pass, const kvb_made *made);

/* The same for a scan: a call with out. before: the slots before the call; NULL: unknown. known: exact outputs and then
 * bounds, [2][n_tok][heads][d_v]. */
void kvb_dump_scan(const kvb_pass *pass, uint32_t layer, const kvb_scan *call, const char *before, const double *known);

#endif
