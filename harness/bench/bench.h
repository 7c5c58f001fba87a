/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times kernels beside the machine's limit. A work is one call: K and V rows in one format, the queries, and a mask
 * (scene.c). A contestant is a kernel and a way to call it. The oracle judges each contestant (judge.c). Then
 * contestants and probes of the limit take turns (contestants.c): a disturbance hits all of them. `kvbench bench` sweeps
 * scenes (sweep.c) or measures works with targets (targets.c). scans.c times recurrent layers.
 *
 * Operations: two for a multiply-add, of q.k and of weight * V over visible (query, cell) pairs.
 * Bytes: K and V rows that some query sees, once for each KV head; or, called apart, once for each call.
 */
#ifndef KVB_BENCH_H
#define KVB_BENCH_H

#include <stdint.h>
#include <time.h>

#include "caches/call.h"
#include "caches/pools/pool.h"
#include "harness/machine/bandwidth.h"
#include "harness/selection/registry.h"
#include "kernels/scan.h"
#include "results/result.h"

enum {
    KVB_BENCH_ENTRIES = 4,      /* contestants of a work of targets.c at most */
    KVB_BENCH_CONTESTANTS = 24, /* of any work */
    KVB_BENCH_SCANNERS = 8,     /* scan kernels */
    KVB_BENCH_TURNS = 256,      /* rounds at most */
    KVB_BENCH_TURNS_MIN = 5,    /* and at least */
    KVB_BENCH_LAYERS = 128,     /* copies of the rows at most */
    KVB_BENCH_HEADS = 1024,     /* query heads at most */
    KVB_BENCH_CELLS_MIN = 64    /* of any work */
};

/* ---- works ------------------------------------------------------------------------------------------------------- */

typedef enum kvb_bench_shape {
    KVB_BENCH_DECODE,  /* one token sees every cell */
    KVB_BENCH_VERIFY,  /* a tree of draft tokens behind a prefix */
    KVB_BENCH_BATCH,   /* sequences of equal length, one token each, each sequence in one run of cells */
    KVB_BENCH_STEPS,   /* the same, filled in steps: sequence c mod n owns cell c */
    KVB_BENCH_PAGED,   /* the same, in pages dealt to the sequences in any order */
    KVB_BENCH_FORK,    /* branches on a common trunk, one token each; their own cells filled in steps */
    KVB_BENCH_PREFILL, /* as many tokens as cells, causal */
    KVB_BENCH_CHUNK    /* a few causal tokens behind a prefix */
} kvb_bench_shape;

/* How a contestant is called. */
typedef enum kvb_bench_way {
    KVB_BENCH_WHOLE,
    KVB_BENCH_BITS,  /* with the mask as bit rows */
    KVB_BENCH_APART, /* one call for each token */
    KVB_BENCH_ALONE, /* by a team of one thread */
    KVB_BENCH_PLAIN  /* without what the work is about: pages, window, sinks, softcap, outputs of 16 bits */
} kvb_bench_way;

/* What the time is compared with: reading the bytes, doing the operations, the longer of the two. */
typedef enum kvb_bench_limit { KVB_BENCH_READ, KVB_BENCH_PEAK, KVB_BENCH_LONGER } kvb_bench_limit;

typedef struct kvb_bench_entry {
    const char *kernel; /* NULL: no such entry */
    kvb_bench_way way;
    double target; /* least share of the limit; 0: shown only */
} kvb_bench_entry;

typedef struct kvb_bench_work {
    const char *name, *format, *v_format; /* of K; of V, NULL: the same */
    kvb_bench_shape shape;
    uint32_t group;                  /* query heads of a KV head */
    uint32_t kv_heads, k_dim, v_dim; /* 0: 8 KV heads, rows of 128; latent: 1, 576 and 512 */
    uint32_t cells;                  /* readable; 0: as many as the last-level cache's working set holds */
    uint32_t store;                  /* cells of the rows that they are the first of; 0: the same */
    uint32_t batch;                  /* sequences of BATCH, STEPS and PAGED; 0: 16 */
    bool resident; /* may lie in caches: rows are read again and again. Else copies are read in turn, so that together
                    * they pass any cache. */
    kvb_bench_limit limit;
    kvb_bench_entry entry[KVB_BENCH_ENTRIES];
    double gain; /* least speed-up of WHOLE over APART, ALONE or PLAIN by the same kernel; 0: not asked. Over PLAIN it
                  * is that of a visible (query, cell) pair. */
    const char *plain;  /* what PLAIN is called */
    bool latent;        /* one row for all heads, of which V is a part; `group` query heads in all */
    kvb_peak_kind peak; /* multiply-adds of this kind set the arithmetic limit */
    uint32_t page;      /* cells, of PAGED */
    uint32_t window,
        window_sinks; /* of BATCH and CHUNK: the first `window_sinks` and the last `window` cells are seen */
    bool sinks;       /* a logit more for each query head */
    float softcap;
    kvb_elem out; /* KVB_F32 unless said */
    bool call;    /* few cells: the report prints cycles of a call */
} kvb_bench_work;
extern const kvb_bench_work kvb_bench_works[]; /* with targets; ends with name NULL */

/* Layers as the work reads them, without sinks and softcap. */
kvb_group kvb_bench_group(const kvb_bench_work *work);

/* ---- rows: scene.c ----------------------------------------------------------------------------------------------- */

/* `layers` copies of K and V rows. */
typedef struct kvb_bench_store {
    const kvb_pool_type *k_type, *v_type; /* NULL: closed */
    kvb_group group;
    uint32_t cells, layers;
    kvb_pool *k[KVB_BENCH_LAYERS], *v[KVB_BENCH_LAYERS]; /* v: NULL where V lies in K's rows */
    uint32_t distinct;     /* cells whose rows differ; behind them the same rows come again */
    float *rows[2];        /* [distinct][kv_heads][k_dim or v_dim] of K and V */
    const float **amax[2]; /* of formats with a head scale */
    kvb_allocator allocator;
} kvb_bench_store;

/* The pool of a format by its name, "+had" ones too; NULL: unknown. */
const kvb_pool_type *kvb_bench_pool(const char *format);
/* Bytes of one cell, K and V, all KV heads. 0 for an unknown format. */
double kvb_bench_cell_bytes(const kvb_bench_work *work);
/* Copies whose rows together pass any cache; of a resident work 1. */
uint32_t kvb_bench_layers(const kvb_bench_work *work, uint32_t cells);
/* Rows of this format in memory that the team touched first, each copy the same; what the store held goes, unless it is
 * just that. 0 or -ENOMEM. */
int kvb_bench_store_open(kvb_bench_store *store, const kvb_team *team, const kvb_bench_work *work, uint32_t cells,
                         uint32_t layers);
void kvb_bench_store_close(kvb_bench_store *store);

/* ---- which cells each query sees: scene.c ------------------------------------------------------------------------ */

/* What one call is about. */
typedef struct kvb_bench_sight {
    kvb_group group;
    kvb_elem out;
    uint32_t cells;  /* readable */
    kvb_mask mask;   /* as a cache hands it over */
    uint64_t pairs;  /* visible (query, cell) */
    uint64_t unique; /* cells that some query sees */
    kvb_run *runs;
    uint32_t *row_start, *pages;
} kvb_bench_sight;

typedef struct kvb_bench_scene {
    const kvb_bench_work *work;
    uint32_t cells, n_tok, heads;
    kvb_bench_sight own, plain; /* plain: only where an entry wants it */
    kvb_mask bits;              /* own.mask as bit rows; made where an entry wants it */
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

/* ---- contestants: contestants.c --------------------------------------------------------------------------------------- */

typedef struct kvb_bench_contestant {
    const kvb_bench_entry *entry;
    const char *name;         /* of the kernel */
    const kvb_kernel *kernel; /* NULL: there is none of that name */
    char why[320];            /* not timed: the reason; else empty */
    kvb_call call;
    uint32_t team;     /* 0: all threads; 1: one */
    uint32_t repeats;  /* calls of a sample */
    double bytes, ops; /* of one call, or of the calls apart */
    void *out;         /* [n_tok][heads][v_dim] */
    float *lse;        /* [n_tok][heads] */
    uint32_t turns;    /* it took part in so many rounds, the first ones */
    double ns[KVB_BENCH_TURNS];
    double rho;          /* largest error over its bound */
    double share;        /* of a foreign kernel: error over what its own project allows */
    uint64_t rows;       /* judged */
    bool wrong, foreign; /* wrong by the bound, or, of one that is judged by its own project's rule, by that */
    char finding[320];   /* of a wrong one */
} kvb_bench_contestant;

typedef struct kvb_bench_run {
    const kvb_team *team[2]; /* all threads, one */
    const kvb_bench_scene *scene;
    const kvb_bench_store *store;
    double seconds; /* for each contestant */
    uint32_t n;     /* contestants */
    kvb_bench_contestant contestant[KVB_BENCH_CONTESTANTS];
    uint32_t turns;
    double read[2][KVB_BENCH_TURNS]; /* GB/s of each team, where it was probed */
    kvb_peak_kind peak_kind;         /* the work's, or f32 where the CPU has no such products */
    double peak[2][KVB_BENCH_TURNS]; /* Gop/s */
    double cycle[KVB_BENCH_TURNS];   /* ns; where calls are told in cycles */
} kvb_bench_run;

/* Adds a contestant that calls the registry's kernel of this name. */
void kvb_bench_contestant_add(kvb_bench_run *run, const kvb_registry *registry, const kvb_bench_entry *entry,
                              const char *name);
/* Opens those that can run, has them judged, and has them and the probes take turns. 0, -ENOMEM, or -EINTR after a
 * signal (the rounds up to it count); what keeps a contestant from its turns is in its `why`. A wrong kernel has
 * no turns, but for one that misses only the tolerance of its own project. */
int kvb_bench_run_measure(kvb_bench_run *run);
void kvb_bench_run_close(kvb_bench_run *run);

typedef struct kvb_bench_figure {
    double median, mad; /* median, median absolute deviation */
} kvb_bench_figure;
kvb_bench_figure kvb_bench_figure_of(const double *values, uint32_t n);
/* Nanoseconds that turn i's machine needs for what the contestant did, by `limit`. */
double kvb_bench_limit_ns(const kvb_bench_run *run, const kvb_bench_contestant *contestant, kvb_bench_limit limit,
                          uint32_t i);

/* ---- judge.c ----------------------------------------------------------------------------------------------------- */

/* Compares a few rows of what the contestant wrote last with the oracle's. 0 or -ENOMEM. */
int kvb_bench_judge(const kvb_bench_run *run, kvb_bench_contestant *contestant);
/* What the work's formats cost: for the last query's last heads, the distance of exact attention over the stored rows
 * from that over the rows themselves, over the size of the latter (both Euclidean). contestant: any that was judged. 0,
 * -ENOMEM or -ENOTSUP. */
int kvb_bench_format_error(const kvb_bench_run *run, const kvb_bench_contestant *contestant, double *rel_l2);

/* ---- kernels of recurrent layers: scans.c ------------------------------------------------------------------------ */

typedef struct kvb_bench_scan_work {
    const char *name;
    kvb_scan_problem problem; /* without n_tok and run */
    uint32_t tokens, run;     /* of a call: a batch (run 1) or a prompt */
    double target;            /* least share of the limit; 0: shown only */
} kvb_bench_scan_work;
extern const kvb_bench_scan_work kvb_bench_scan_works[]; /* ends with name NULL */

/* One scan kernel. */
typedef struct kvb_bench_scanner {
    const kvb_kernel *kernel;
    char why[256]; /* not timed: the reason; else empty */
    uint32_t turns;
    double ns[KVB_BENCH_TURNS];
    double rho;    /* largest error over its bound, of a few columns of one head */
    uint64_t rows; /* judged */
    bool wrong;
    char finding[200]; /* of a wrong one */
} kvb_bench_scanner;

typedef struct kvb_bench_scan {
    const kvb_bench_scan_work *work;
    uint32_t n, turns;
    kvb_bench_scanner of[KVB_BENCH_SCANNERS];
    double limit[KVB_BENCH_TURNS]; /* ns: of a batch, reading and writing as many bytes; of a prompt, as many
                                      multiply-adds */
    double bytes, ops, held;       /* of a call: read and written; bytes of all slots */
} kvb_bench_scan;

void kvb_bench_scanner_add(kvb_bench_scan *run, const kvb_kernel *kernel);
/* Judges all, and has them and the limit take turns for so long. cells: a prompt has at most so many tokens, and a
 * batch one set of slots, whatever caches hold; 0: as the work says. 0, -ENOMEM or -EINTR. */
int kvb_bench_scan_measure(kvb_bench_scan *run, const kvb_team *team, uint32_t cells, double seconds);

/* ---- scenes that are swept: sweep.c ------------------------------------------------------------- */

/* A scene: a step as engines make it. */
typedef struct kvb_bench_kind {
    const char *name, *what;
    kvb_bench_shape shape;
    uint32_t contexts[5]; /* cells of a sequence before the step; ends with 0 */
    uint32_t batch;       /* sequences where --batch does not say */
    bool latent;
    uint32_t kv_heads, group; /* 0: as --heads says */
    uint32_t window, window_sinks;
    bool scan; /* of recurrent layers: no contexts and formats */
} kvb_bench_kind;
extern const kvb_bench_kind kvb_bench_kinds[]; /* ends with name NULL */

/* One scene of one shape, format, context and number of threads. Rows that differ in format and context alone are one
 * block. */
typedef struct kvb_bench_row {
    const kvb_bench_kind *kind;
    kvb_bench_work work;
    uint32_t context, batch, threads, block;
    uint32_t layers;          /* of a model that are like it; 0: there is no model */
    kvb_bench_scan_work scan; /* of a scene of recurrent layers, in place of `work`; its name is the recurrence */
    size_t first, n;          /* its results: one for each kernel, in their order */
} kvb_bench_row;

/* Fills in a row's work. group: the shape of a layer, with its window. False: a scene without windows, and a group with
 * one. */
bool kvb_bench_row_make(const kvb_bench_kind *kind, const kvb_group *group, const char *k_format, const char *v_format,
                        uint32_t context, uint32_t batch, uint32_t threads, kvb_bench_row *row);

/* The same of recurrence i of a scene of recurrent layers. False: there is none of that number. */
bool kvb_bench_scan_row_make(const kvb_bench_kind *kind, uint32_t i, uint32_t batch, uint32_t threads,
                             kvb_bench_row *row);

typedef struct kvb_bench_sweep {
    const kvb_registry *registry;
    const char *kernels[KVB_BENCH_CONTESTANTS]; /* names, in the order of columns */
    bool foreign[KVB_BENCH_CONTESTANTS];        /* of a plug-in, or named to be beside: ratios to `flash` are said */
    uint32_t n_kernels;
    const kvb_kernel *scans[KVB_BENCH_SCANNERS];
    bool foreign_scan[KVB_BENCH_SCANNERS];
    uint32_t n_scans;
    double seconds;  /* for each contestant */
    bool by_formats; /* results have the error and bits of their formats */
    kvb_bench_store store;
    kvb_results results;
} kvb_bench_sweep;

/* Measures all kernels over a row, and adds their results: passed with times; failed, with the reason; or skipped, with
 * the reason. 0; -ENOMEM; -EINTR: nothing is added. */
int kvb_bench_row_measure(kvb_bench_sweep *sweep, const kvb_team *team, kvb_bench_row *row);

/* The fastest right kernel of a row. row->n: there is none, or it cannot be told, as one that is too noisy to show may
 * be faster. */
uint32_t kvb_bench_best(const kvb_bench_sweep *sweep, const kvb_bench_row *row);

/* Prints one block, rows[n]: for people a table of 80 columns and what it comes to in words. */
int kvb_bench_block_print(const kvb_bench_sweep *sweep, const kvb_bench_row *rows, size_t n, FILE *out);
/* Rows that differ in their formats alone, a line for each, the fewest bits first: bits, error, the best kernel. Fills
 * results of kvb_bench_sweep.by_formats. */
int kvb_bench_formats_print(const kvb_bench_sweep *sweep, const kvb_bench_row *rows, size_t n, kvb_table_format format,
                            FILE *out);
/* All rows, a line for each result. */
int kvb_bench_rows_print(const kvb_bench_sweep *sweep, const kvb_bench_row *rows, size_t n, kvb_table_format format,
                         FILE *out);

/* ---- works with targets, as a table: targets.c, scans.c ---------------------------------------------------------- */

/* A work's target counts once, whichever of its contestants meets it. */
typedef struct kvb_bench_score {
    uint32_t targets, met;
} kvb_bench_score;

extern const char *const kvb_bench_headings[]; /* for kvb_table_new */

/* A line for each contestant, and one for a gain of one over the other. Ratios and gains are medians of those of single
 * turns,
 * +- their median absolute deviation. 0 or -ENOMEM. */
int kvb_bench_run_report(kvb_table *table, const kvb_bench_run *run, kvb_bench_score *score);

/* Measures `scan` and scan-reference, and adds two lines. As kvb_bench_scan_measure(). */
int kvb_bench_scan_run(kvb_table *table, const kvb_bench_scan_work *work, const kvb_team *team, uint32_t cells,
                       double seconds, kvb_bench_score *score);

/* ---- parts: parts.c ----------------------------------------------------------------------------------- */

/* Which parts are measured, and how. */
typedef struct kvb_bench_choice {
    bool (*wants)(void *ctx, const char *name);
    void *ctx;
    double seconds; /* for each part */
    kvb_table_format format;
} kvb_bench_choice;

/* What kernels are made of, by levels of instruction sets; *n grows by the parts that were wanted. 0 or -errno. */
int kvb_bench_parts(const kvb_bench_choice *choice, uint32_t *n, FILE *out);
/* What a cache's calls cost, by cells in use. */
int kvb_bench_calls(const kvb_bench_choice *choice, uint32_t *n, FILE *out);

/* Time of one core, for the benches of single functions. */

/* Of this thread's running: others may have the core for a while. */
static inline double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds of a cycle: additions that wait for each other take one each (not those of constants, which some CPUs
 * do in renaming). */
static inline double cycle_ns(void)
{
    uint64_t x = 1, y = 3;
    __asm__ volatile("" : "+r"(y));
    double start = now_ns();
    for (int i = 0; i < 20000; i++)
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) {
            x += y;
            __asm__ volatile("" : "+r"(x));
        }
    return (now_ns() - start) / (20000 * 16);
}

/* cycle_ns() as a contestant's take (harness/rounds.h). */
static inline double cycle_take(void *ctx)
{
    (void)ctx;
    return cycle_ns();
}

/*
 * What caches cost: each cache over histories of real size, the work that a cache saves, requests in a fixed memory.
 * Histories are recipes with recorded lengths (a row of `histories` in caches.c each), and plain decoding from an empty
 * cache. Each is replayed alone, in a child.
 */

typedef struct kvb_caches_options {
    const kvb_registry *registry; /* its caches take part */
    kvb_words histories;          /* patterns of names; none: all */
    uint32_t cells;   /* tokens of a history, about; fewer than recorded: its lengths shrink. 0: as recorded */
    uint32_t threads; /* of the timed replays */
    double seconds;   /* for the passes of one cache */
    bool untimed;     /* one judged pass of each: memory and no times */
} kvb_caches_options;

/* One cache over one history. */
typedef struct kvb_caches_row {
    kvb_result result;    /* of a cache that cannot replay the history: skip, with the reason */
    uint32_t tokens;      /* of the history */
    double live_bytes;    /* rows of the tokens alive at once, each token once, at most */
    double moved_bytes;   /* rows copied by the cache, and by growth */
    uint32_t alive, used; /* of chat requests: how many the memory held at once, cells that these took */
    double rows, pairs;   /* token rows computed, (query, cell) pairs attended, in a layer; NaN: not counted */
} kvb_caches_row;

typedef struct kvb_caches {
    kvb_caches_row *at;
    size_t n, room;
} kvb_caches; /* zero at first; the owner frees `at` */

#define KVB_CACHES_SESSION "agent-session"

/*
 * Each cache over each history, in f16 with the kernel flash, and its work without a cache and with one; the work of
 * decoding some thousand tokens without a cache and with one, and what growth of one copies; requests in a fixed
 * memory. A cache that does not pass is a row, too. 0, -EINTR, or a negative errno with why; -EINVAL: no history has
 * such a name.
 */
int kvb_caches_measure(const kvb_caches_options *options, kvb_caches *rows, char *why, size_t why_bytes);

/* "small?" of `kvbench run`: four lines of at most 80 columns, of the session alone. */
void kvb_caches_small_print(const kvb_caches *rows, FILE *out);
/* Both as tables for people, or as one table for programs. 0, -ENOMEM or -EIO. */
int kvb_caches_print(const kvb_caches *rows, kvb_table_format format, FILE *out);

#endif
