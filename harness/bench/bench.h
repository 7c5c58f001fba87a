/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times kernels beside the machine's limit. A work is one call: K and V rows in one format, the queries, and a mask
 * (scene.c). A contestant is a kernel and a way to call it. The oracle judges each contestant (judge.c). Then
 * contestants and probes of the limit take turns (contestants.c), so a disturbance hits all of them. `kvbench bench`
 * sweeps scenes (sweep.c) or measures works with targets (targets.c). scans.c times recurrent layers.
 *
 * Operations: two for each multiply-add of q.k and of weight * V over visible (query, cell) pairs.
 * Bytes: K and V rows that some query sees, once for each KV head. With a call for each token: once for each call.
 */
#ifndef KVB_BENCH_H
#define KVB_BENCH_H

#include <stdint.h>

#include "caches/call.h"
#include "caches/pools/pool.h"
#include "harness/machine/bandwidth.h"
#include "harness/rounds.h"
#include "harness/selection/registry.h"
#include "kernels/scan.h"
#include "results/result.h"

enum {
    KVB_BENCH_ENTRIES = 4,      /* most contestants of a work of targets.c */
    KVB_BENCH_CONTESTANTS = 24, /* most contestants of any work */
    KVB_BENCH_SCANNERS = 8,     /* most scan kernels */
    KVB_BENCH_TURNS = 256,      /* most rounds */
    KVB_BENCH_TURNS_MIN = 5,    /* fewest rounds */
    KVB_BENCH_LAYERS = 128,     /* most copies of the rows */
    KVB_BENCH_HEADS = 1024,     /* most query heads */
    KVB_BENCH_CELLS_MIN = 64,   /* fewest cells of any work */
    KVB_BENCH_BRANCHES = 8,     /* branches of FORK */
    KVB_BENCH_TAIL = 64,        /* most cells of a branch */
    KVB_BENCH_FED = 512         /* most tokens of CHUNK */
};

/* ---- works ------------------------------------------------------------------------------------------------------- */

typedef enum kvb_bench_shape {
    KVB_BENCH_DECODE,  /* one token sees every cell */
    KVB_BENCH_VERIFY,  /* a tree of draft tokens behind a prefix */
    KVB_BENCH_BATCH,   /* sequences of equal length, one token each, each sequence in one run of cells */
    KVB_BENCH_STEPS,   /* as BATCH, but filled in steps: sequence c mod n owns cell c */
    KVB_BENCH_PAGED,   /* as BATCH, but in pages dealt to the sequences in random order */
    KVB_BENCH_FORK,    /* branches on a common trunk, one token each; branches are filled in steps */
    KVB_BENCH_PREFILL, /* as many tokens as cells, causal */
    KVB_BENCH_CHUNK    /* a few causal tokens behind a prefix */
} kvb_bench_shape;

/* How a contestant is called. */
typedef enum kvb_bench_way {
    KVB_BENCH_WHOLE,
    KVB_BENCH_BITS,  /* with the mask as bit rows */
    KVB_BENCH_APART, /* one call for each token */
    KVB_BENCH_ALONE, /* by a team of one thread */
    KVB_BENCH_PLAIN  /* without the feature that the work measures: pages, window, sinks, softcap, outputs of 16 bits */
} kvb_bench_way;

/* The limit for the time: reading the bytes, doing the operations, the longer of the two. */
typedef enum kvb_bench_limit { KVB_BENCH_READ, KVB_BENCH_PEAK, KVB_BENCH_LONGER } kvb_bench_limit;

typedef struct kvb_bench_entry {
    const char *kernel; /* NULL: no such entry */
    kvb_bench_way way;
    double target; /* required share of the limit; 0: none */
} kvb_bench_entry;

typedef struct kvb_bench_work {
    const char *name, *format, *v_format; /* format of K; of V, NULL: the same */
    kvb_bench_shape shape;
    uint32_t group;                  /* query heads of a KV head */
    uint32_t kv_heads, k_dim, v_dim; /* 0: 8 KV heads, rows of 128; latent: 1, 576 and 512 */
    uint32_t cells;                  /* readable cells; 0: as many as the last-level cache's working set holds */
    uint32_t store;                  /* stored cells, the first of which are readable; 0: `cells` */
    uint32_t batch;                  /* sequences of BATCH, STEPS and PAGED; 0: 16 */
    /* The same rows are read again and again, and may lie in the CPU's caches. false: copies are read in turn, which
     * together are larger than any cache. */
    bool resident;
    kvb_bench_limit limit;
    kvb_bench_entry entry[KVB_BENCH_ENTRIES];
    /* Required speed-up, in time for each operation, of WHOLE over the same kernel's APART, ALONE or PLAIN; 0: none */
    double gain;
    const char *plain;  /* PLAIN in the report: ", in runs" */
    bool latent;        /* one row for all heads, V is a part of it; `group`: all query heads */
    kvb_peak_kind peak; /* kind of multiply-adds whose peak is the arithmetic limit */
    uint32_t page;      /* PAGED: cells of a page */
    uint32_t window,
        window_sinks; /* BATCH, PREFILL, CHUNK: queries see the first `window_sinks` and the last `window` cells */
    bool sinks;       /* a sink logit for each query head */
    float softcap;
    kvb_elem out; /* element of the outputs */
    bool call;    /* few cells: the report prints cycles of a call */
} kvb_bench_work;
extern const kvb_bench_work kvb_bench_works[]; /* with targets; ends with name NULL */

/* The work's group of layers, without sinks and softcap. */
kvb_group kvb_bench_group(const kvb_bench_work *work);

/* ---- rows: scene.c ----------------------------------------------------------------------------------------------- */

/* `layers` copies of K and V rows. */
typedef struct kvb_bench_store {
    const kvb_pool_type *k_type, *v_type; /* NULL: closed */
    kvb_group group;
    uint32_t cells, layers;
    kvb_pool *k[KVB_BENCH_LAYERS], *v[KVB_BENCH_LAYERS]; /* v: NULL where V lies in K's rows */
    uint32_t distinct;     /* cells with different rows; the rows of later cells repeat these */
    float *rows[2];        /* [distinct][kv_heads][k_dim or v_dim] of K and V */
    const float **amax[2]; /* largest magnitudes, for formats with a head scale */
    kvb_allocator allocator;
    kvb_probe_memory probed; /* as large as all copies: the limit's probe reads it. Kept when other rows come */
    uint32_t probed_by;      /* threads that touched it */
} kvb_bench_store;

/* The pool of a format by its name, with or without "+had"; NULL: unknown. */
const kvb_pool_type *kvb_bench_pool(const char *format);
/* Bytes of one cell, K and V, all KV heads; 0: unknown format. */
double kvb_bench_cell_bytes(const kvb_bench_work *work);
/* Copies that together are larger than any cache; 1 for a resident work. */
uint32_t kvb_bench_layers(const kvb_bench_work *work, uint32_t cells);
/* Fills the store with equal copies of the work's rows, in memory that the team touched first. Earlier content is
 * freed, unless it is the same. 0 or -ENOMEM. */
int kvb_bench_store_open(kvb_bench_store *store, const kvb_team *team, const kvb_bench_work *work, uint32_t cells,
                         uint32_t layers);
void kvb_bench_store_close(kvb_bench_store *store);

/* ---- which cells each query sees: scene.c ------------------------------------------------------------------------ */

/* The shape and the mask of one call. */
typedef struct kvb_bench_sight {
    kvb_group group;
    kvb_elem out;
    uint32_t cells;  /* readable cells */
    kvb_mask mask;   /* as from a cache */
    uint64_t pairs;  /* visible (query, cell) pairs */
    uint64_t unique; /* cells that some query sees */
    kvb_run *runs;
    uint32_t *row_start, *pages;
} kvb_bench_sight;

typedef struct kvb_bench_scene {
    const kvb_bench_work *work;
    uint32_t cells, n_tok, heads;
    kvb_bench_sight own, plain; /* plain: only if an entry has way PLAIN */
    kvb_mask bits;              /* own.mask as bit rows; only if an entry has way BITS */
    uint64_t *words;
    float *q, sink_logits[KVB_BENCH_HEADS];
} kvb_bench_scene;

static inline const kvb_bench_sight *kvb_bench_sight_of(const kvb_bench_scene *scene, kvb_bench_way way)
{
    return way == KVB_BENCH_PLAIN ? &scene->plain : &scene->own;
}

/* 0 or -ENOMEM. */
int kvb_bench_scene_open(kvb_bench_scene *scene, const kvb_team *team, const kvb_bench_work *work, uint32_t cells);
void kvb_bench_scene_close(kvb_bench_scene *scene);

/* ---- contestants: contestants.c --------------------------------------------------------------------------------- */

typedef struct kvb_bench_contestant {
    const kvb_bench_entry *entry;
    const char *name;         /* the kernel's */
    const kvb_kernel *kernel; /* NULL: no kernel has this name */
    char why[320];            /* why it cannot run or be timed; "": it can */
    kvb_call call;
    uint32_t team;     /* 0: all threads; 1: one */
    uint32_t repeats;  /* calls of a sample */
    double bytes, ops; /* of one call; APART: of the calls for all tokens */
    void *out;         /* [n_tok][heads][v_dim] */
    float *lse;        /* [n_tok][heads] */
    uint32_t turns;    /* rounds that it took part in, from the first on */
    double ns[KVB_BENCH_TURNS];
    double rho;          /* largest error / bound */
    double share;        /* foreign: error / what its own project tolerates */
    uint64_t rows;       /* judged rows */
    bool wrong, foreign; /* foreign: judged by its own project's rule; else by the bound */
    char finding[320];   /* what is wrong */
} kvb_bench_contestant;

typedef struct kvb_bench_run {
    const kvb_team *team[2]; /* all threads; one thread, NULL: there is only one */
    const kvb_bench_scene *scene;
    kvb_bench_store *store;
    double seconds; /* for each contestant */
    uint32_t n;     /* contestants */
    kvb_bench_contestant contestant[KVB_BENCH_CONTESTANTS];
    uint32_t turns;
    double read[2][KVB_BENCH_TURNS]; /* GB/s of each team that a contestant uses */
    kvb_peak_kind peak_kind;         /* the work's; f32 if the CPU has no such products */
    double peak[2][KVB_BENCH_TURNS]; /* Gop/s of each team that a contestant uses */
    double cycle[KVB_BENCH_TURNS];   /* ns; only for a work with `call` */
} kvb_bench_run;

/* Adds a contestant that calls the registry's kernel of this name. */
void kvb_bench_contestant_add(kvb_bench_run *run, const kvb_registry *registry, const kvb_bench_entry *entry,
                              const char *name);
/* Opens and judges the contestants that can run; then these and the probes take turns. Wrong ones are left out, except
 * foreign ones; `why` or `finding` has the reason. 0, -ENOMEM, or -EINTR after a signal (earlier rounds count). */
int kvb_bench_run_measure(kvb_bench_run *run);
void kvb_bench_run_close(kvb_bench_run *run);

typedef struct kvb_bench_figure {
    double median, mad; /* mad: median absolute deviation */
} kvb_bench_figure;
kvb_bench_figure kvb_bench_figure_of(const double *values, uint32_t n);
/* Nanoseconds for the contestant's bytes or operations at the limit that was probed in turn i. */
double kvb_bench_limit_ns(const kvb_bench_run *run, const kvb_bench_contestant *contestant, kvb_bench_limit limit,
                          uint32_t i);

/* ---- judge.c ----------------------------------------------------------------------------------------------------- */

/* Compares a few output rows of the contestant's last call with the oracle's. 0 or -ENOMEM. */
int kvb_bench_judge(const kvb_bench_run *run, kvb_bench_contestant *contestant);
/* Relative error that the work's formats cause, over the last query's last heads: |a - b| / |b| (Euclidean), where a is
 * exact attention over the stored rows and b over the original rows. contestant: any judged one. 0, -ENOMEM or
 * -ENOTSUP. */
int kvb_bench_format_error(const kvb_bench_run *run, const kvb_bench_contestant *contestant, double *rel_l2);

/* ---- kernels of recurrent layers: scans.c ------------------------------------------------------------------------ */

typedef struct kvb_bench_scan_work {
    const char *name;
    kvb_scan_problem problem; /* without n_tok and run */
    uint32_t tokens, run;     /* of a call: a batch (run 1) or a prompt */
    double target;            /* required share of the limit; 0: none */
} kvb_bench_scan_work;
extern const kvb_bench_scan_work kvb_bench_scan_works[]; /* ends with name NULL */

/* Is the limit to read and write bytes, as for batches and convolutions? Else it is the f32 multiply-add peak. */
static inline bool kvb_bench_scan_moves(const kvb_bench_scan_work *work)
{
    return work->run == 1 || work->problem.kind == KVB_SCAN_CONV;
}

typedef struct kvb_bench_scan {
    const kvb_bench_scan_work *work;
    uint32_t n, turns;
    kvb_bench_contestant of[KVB_BENCH_SCANNERS]; /* without an entry and what a call of attend() needs */
    double limit[KVB_BENCH_TURNS];               /* ns to read and write the bytes, or to do the operations */
    double bytes, ops, held; /* bytes that a call reads and writes; its operations; bytes of all slots */
} kvb_bench_scan;

void kvb_bench_scanner_add(kvb_bench_scan *run, const kvb_kernel *kernel);
/* Judges all kernels, then these and the probe of the limit take turns for so many seconds. cells: most tokens of a
 * prompt, and a batch reuses one set of slots, which caches may hold; 0: the work's sizes. 0, -ENOMEM or -EINTR. */
int kvb_bench_scan_measure(kvb_bench_scan *run, const kvb_team *team, uint32_t cells, double seconds);

/* ---- scenes that are swept: sweep.c ---------------------------------------------------------------------------- */

/* A scene: a typical step of an engine. */
typedef struct kvb_bench_kind {
    const char *name, *what;
    kvb_bench_shape shape;
    uint32_t contexts[5]; /* cells of a sequence before the step; ends with 0 */
    uint32_t batch;       /* sequences without --batch */
    bool latent;
    uint32_t kv_heads, group; /* 0: from --heads */
    uint32_t window, window_sinks;
    bool scan; /* recurrent layers: no contexts and formats */
} kvb_bench_kind;
extern const kvb_bench_kind kvb_bench_kinds[]; /* ends with name NULL */

/* A scene with one shape, format, context and number of threads. Rows that differ only in format and context form a
 * block. */
typedef struct kvb_bench_row {
    const kvb_bench_kind *kind;
    kvb_bench_work work;
    uint32_t context, batch, threads, block;
    uint32_t layers;          /* layers of the model with this shape; 0: no model */
    kvb_bench_scan_work scan; /* in place of `work` for recurrent layers; scan.name: the recurrence */
    size_t first, n;          /* results[first .. first + n - 1]: one for each kernel, in their order */
} kvb_bench_row;

/* Fills in a row's work. group: the shape of a layer, with its window. False: the group has a window and the scene
 * takes none. */
bool kvb_bench_row_make(const kvb_bench_kind *kind, const kvb_group *group, const char *k_format, const char *v_format,
                        uint32_t context, uint32_t batch, uint32_t threads, kvb_bench_row *row);

/* The same for recurrence i of a scene of recurrent layers. False: there are not so many. */
bool kvb_bench_scan_row_make(const kvb_bench_kind *kind, uint32_t i, uint32_t batch, uint32_t threads,
                             kvb_bench_row *row);

typedef struct kvb_bench_sweep {
    const kvb_registry *registry;
    const char *kernels[KVB_BENCH_CONTESTANTS]; /* names, in the order of columns */
    bool foreign[KVB_BENCH_CONTESTANTS];        /* from a plug-in, or --beside: ratios to `flash` are printed */
    uint32_t n_kernels;
    const kvb_kernel *scans[KVB_BENCH_SCANNERS];
    bool foreign_scan[KVB_BENCH_SCANNERS];
    uint32_t n_scans;
    double seconds;  /* for each contestant */
    bool by_formats; /* results have the error and bits of their formats */
    kvb_bench_store store;
    kvb_results results;
} kvb_bench_sweep;

/* Measures all kernels over a row and adds their results: passed, with times; failed or skipped, with the reason. 0;
 * -ENOMEM; -EINTR: nothing is added. */
int kvb_bench_row_measure(kvb_bench_sweep *sweep, const kvb_team *team, kvb_bench_row *row);

/* The fastest right kernel of a row. row->n: there is none, or one with a time too noisy to print may be faster. */
uint32_t kvb_bench_best(const kvb_bench_sweep *sweep, const kvb_bench_row *row);

/* Prints one block, rows[n], for people: a table of 80 columns and a summary in words. */
int kvb_bench_block_print(const kvb_bench_sweep *sweep, const kvb_bench_row *rows, size_t n, FILE *out);
/* Prints rows that differ only in their formats, a line for each, fewest bits first: bits, error, the best kernel. The
 * sweep was measured with by_formats. */
int kvb_bench_formats_print(const kvb_bench_sweep *sweep, const kvb_bench_row *rows, size_t n, kvb_table_format format,
                            FILE *out);
/* Prints all rows, a line for each result. */
int kvb_bench_rows_print(const kvb_bench_sweep *sweep, const kvb_bench_row *rows, size_t n, kvb_table_format format,
                         FILE *out);

/* ---- works with targets, as a table: targets.c, scans.c ---------------------------------------------------------- */

/* A work's target counts once, and is met if any of its contestants meets it. */
typedef struct kvb_bench_score {
    uint32_t targets, met;
} kvb_bench_score;

extern const char *const kvb_bench_headings[]; /* for kvb_table_new */

/* Adds a line for each contestant and for each gain of one over another. Ratios and gains are taken within a turn; the
 * line has their median and median absolute deviation. 0 or -ENOMEM. */
int kvb_bench_run_report(kvb_table *table, const kvb_bench_run *run, kvb_bench_score *score);

/* Adds two lines about a measured run of `scan` and scan-reference, as above. 0 or -ENOMEM. */
int kvb_bench_scan_report(kvb_table *table, const kvb_bench_scan *run, kvb_bench_score *score);
/* Measures these two and adds the lines. Returns as kvb_bench_scan_measure() does. */
int kvb_bench_scan_run(kvb_table *table, const kvb_bench_scan_work *work, const kvb_team *team, uint32_t cells,
                       double seconds, kvb_bench_score *score);

/* ---- parts: parts.c ----------------------------------------------------------------------------------- */

/* Which parts are measured, and how. */
typedef struct kvb_bench_choice {
    const kvb_words *works; /* patterns of names; none: all */
    double seconds;         /* for each part */
    kvb_table_format format;
} kvb_bench_choice;

/* Times the parts of kernels at each level of instruction sets; adds the number of wanted parts to *n. 0 or -errno. */
int kvb_bench_parts(const kvb_bench_choice *choice, uint32_t *n, FILE *out);
/* Times the calls of each cache, by cells in use. The same return value and *n. */
int kvb_bench_calls(const kvb_bench_choice *choice, uint32_t *n, FILE *out);

/* ---- time of one core, for the benches of single functions ----------------------------------------------------- */

/* Nanoseconds of a cycle: each addition of a dependent chain takes one. (Some CPUs add constants while renaming
 * registers, so a register is added.) */
static inline double cycle_ns(void)
{
    uint64_t x = 1, y = 3;
    __asm__ volatile("" : "+r"(y));
    double start = kvb_thread_ns();
    for (int i = 0; i < 20000; i++)
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) {
            x += y;
            __asm__ volatile("" : "+r"(x));
        }
    return (kvb_thread_ns() - start) / (20000 * 16);
}

/* cycle_ns() as a contestant's take (harness/rounds.h). */
static inline double cycle_take(void *ctx)
{
    (void)ctx;
    return cycle_ns();
}

/*
 * ---- caches: caches.c ----
 * Costs of caches over histories of real size, the work that a cache saves, and requests that fit into a fixed memory.
 * Histories are recipes with recorded lengths (rows of `histories` in caches.c), and plain decoding from an empty
 * cache. Each replay runs alone, in a child.
 */

typedef struct kvb_caches_options {
    const kvb_registry *registry; /* caches to measure */
    kvb_words histories;          /* patterns of names; none: all */
    kvb_words caches;             /* patterns of names, of those to replay; none: all */
    uint32_t cells;               /* shrink recorded lengths to about so many tokens in a history; 0: as recorded */
    uint32_t threads;             /* of timed replays */
    double seconds;               /* for the passes of one cache */
    bool untimed;                 /* one judged pass of each: memory, no times */
} kvb_caches_options;

/* One cache over one history. */
typedef struct kvb_caches_row {
    kvb_result result;    /* skip, with the reason: the cache cannot replay the history */
    uint32_t tokens;      /* of the history */
    double live_bytes;    /* largest size of the rows alive at once, each token once */
    double moved_bytes;   /* rows copied by the cache, and by growth */
    uint32_t alive, used; /* chat requests: how many the memory held at once, cells that they took */
    double rows, pairs;   /* in a layer: token rows computed, (query, cell) pairs attended; NaN: not counted */
} kvb_caches_row;

typedef struct kvb_caches {
    kvb_caches_row *at;
    size_t n, room;
} kvb_caches; /* initialised with zeros; the owner frees `at` */

#define KVB_CACHES_SESSION "agent-session"

/*
 * Replays each history over each cache, in f16 with kernel flash. Counts the history's work without a cache and with
 * one; the same for decoding up to some thousand tokens, with the bytes that growth copies; and requests in a fixed
 * memory. A cache that does not pass has a row, too. 0, -EINTR, or a negative errno with why; -EINVAL: no history has
 * such a name.
 */
int kvb_caches_measure(const kvb_caches_options *options, kvb_caches *rows, char *why, size_t why_bytes);

/* Prints "small?" of `kvbench run`: four lines of at most 80 columns about the session. */
void kvb_caches_small_print(const kvb_caches *rows, FILE *out);
/* Prints tables for people, or one table for programs. 0, -ENOMEM or -EIO. */
int kvb_caches_print(const kvb_caches *rows, kvb_table_format format, FILE *out);

#endif
