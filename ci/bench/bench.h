/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-kernels: what fraction of the machine's limit a kernel reaches. A work (works.c) is a read as engines make
 * it: rows of one format (store.c), queries and who sees what (scene.c). Contestants, a kernel each and a way of calling
 * it, take turns with probes of the limits (measure.c); what they wrote is looked at (check.c) and told in a table
 * (kernels.c).
 *
 * Geometry: KV_HEADS KV heads of DIM channels, K and V of one format, out in f32.
 * Operations: two for a multiply-add, of q.k and of weight.V over visible (query, cell) pairs.
 * Bytes: K and V rows that some query sees, once for each KV head; or, called apart, once for each call.
 */
#ifndef KVB_BENCH_H
#define KVB_BENCH_H

#include "caches/call.h"
#include "caches/pools/pool.h"
#include "harness/machine/bandwidth.h"

enum {
    BENCH_KV_HEADS = 8,
    BENCH_DIM = 128,
    BENCH_ENTRIES = 4, /* contestants of a work at most, … */
    BENCH_BESIDE = 6,  /* … and kernels that the user wants to see beside them */
    BENCH_CONTESTANTS = BENCH_ENTRIES + BENCH_BESIDE,
    BENCH_TURNS = 256,   /* samples of a contestant at most */
    BENCH_TURNS_MIN = 5, /* and at least */
    BENCH_LAYERS = 16,   /* copies of the rows at most */
    BENCH_PROBED = 6,    /* output rows that are looked at */
    BENCH_CELLS_MIN = 64 /* of any work */
};

/* ---- works: works.c ------------------------------------------------------------------------------------------ */

typedef enum bench_shape {
    BENCH_DECODE,  /* one token sees every cell */
    BENCH_VERIFY,  /* a tree of draft tokens behind a prefix */
    BENCH_BATCH,   /* sequences of equal length, one token each, each sequence in one run of cells */
    BENCH_STEPS,   /* the same, filled in steps: cell c is of sequence c mod n */
    BENCH_FORK,    /* branches on a common trunk, one token each; their own cells filled in steps */
    BENCH_PREFILL, /* as many tokens as cells, causal */
    BENCH_CHUNK    /* a few causal tokens behind a prefix */
} bench_shape;

/* How a contestant is called. */
typedef enum bench_way {
    BENCH_WHOLE,
    BENCH_BITS,  /* with the mask as bit rows */
    BENCH_APART, /* one call for each token */
    BENCH_ALONE  /* by a team of one thread */
} bench_way;

/* What the time is compared with: reading the bytes, doing the operations, the longer of the two. */
typedef enum bench_limit { BENCH_READ, BENCH_PEAK, BENCH_LONGER } bench_limit;

typedef struct bench_entry {
    const char *kernel; /* NULL: no such entry */
    bench_way way;
    double target; /* least share of the limit; 0: shown only */
} bench_entry;

typedef struct bench_work {
    const char *name, *format;
    bench_shape shape;
    uint32_t group; /* query heads of a KV head */
    uint32_t cells; /* readable; 0: as many as the last-level cache's working set holds */
    uint32_t store; /* cells of the rows that they are the first of; 0: the same */
    bool resident;  /* may lie in caches: rows are read again and again. Else copies are read in turn, so that together
                     * they pass any cache. */
    bench_limit limit;
    bench_entry entry[BENCH_ENTRIES];
    double gain; /* least speed-up of BENCH_WHOLE over BENCH_APART or BENCH_ALONE by the same kernel; 0: not asked */
} bench_work;
extern const bench_work bench_works[]; /* ends with name NULL */

/* ---- rows: store.c ------------------------------------------------------------------------------------------- */

/* `layers` copies of K and V rows. */
typedef struct bench_store {
    const kvb_pool_type *type; /* NULL: closed */
    uint32_t cells, layers;
    kvb_pool *k[BENCH_LAYERS], *v[BENCH_LAYERS];
    kvb_allocator allocator;
} bench_store;

/* Bytes of one cell, K and V, all KV heads. 0 for an unknown format. */
double bench_cell_bytes(const char *format);
/* Rows of this format in memory that the team touched first, each copy the same; what the store held goes, unless it is
 * just that. 0 or -ENOMEM. */
int bench_store_open(bench_store *store, const kvb_team *team, const char *format, uint32_t cells, uint32_t layers);
void bench_store_close(bench_store *store);
/* Layers with so many query heads. */
kvb_group bench_group(uint32_t heads);
/* q rows [n_tok][heads][BENCH_DIM]. */
void bench_queries_make(const kvb_team *team, float *q, uint32_t n_tok, uint32_t heads);

/* ---- who sees what: scene.c ---------------------------------------------------------------------------------- */

typedef struct bench_scene {
    const bench_work *work;
    kvb_group group;
    uint32_t cells, n_tok, heads;
    kvb_mask mask;   /* as a cache hands it over */
    kvb_mask bits;   /* the same as bit rows; made where an entry wants it */
    uint64_t pairs;  /* visible (query, cell) */
    uint64_t unique; /* cells that some query sees */
    kvb_run *runs;
    uint32_t *row_start;
    uint64_t *words;
    float *q;
} bench_scene;

/* 0 or -ENOMEM. */
int bench_scene_open(bench_scene *scene, const kvb_team *team, const bench_work *work, uint32_t cells);
void bench_scene_close(bench_scene *scene);

/* ---- contestants: measure.c ---------------------------------------------------------------------------------- */

typedef struct bench_contestant {
    const bench_entry *entry;
    const char *name;         /* of the kernel */
    const kvb_kernel *kernel; /* NULL: there is none of that name */
    char why[256];            /* unavailable: the reason; else empty */
    kvb_call call;
    uint32_t team;     /* 0: all threads; 1: one */
    uint32_t repeats;  /* of a sample */
    double bytes, ops; /* of one call, or of the calls apart */
    float *out;        /* [n_tok][heads][BENCH_DIM] */
    double ns[BENCH_TURNS];
    double error; /* relative L2 of the worst row probed */
    bool wrong;
} bench_contestant;

typedef struct bench_run {
    const kvb_team *team[2]; /* all threads, one */
    const bench_scene *scene;
    const bench_store *store;
    double seconds; /* for each contestant */
    uint32_t n;     /* contestants */
    bench_contestant contestant[BENCH_CONTESTANTS];
    uint32_t turns;
    double read[2][BENCH_TURNS]; /* GB/s of each team, where it was probed */
    double peak[2][BENCH_TURNS]; /* Gop/s */
} bench_run;

/* Opens those that can run, and has them and the probes take turns. 0 or -ENOMEM; what fails is told in `why` of the
 * contestant. */
int bench_run_measure(bench_run *run);
void bench_run_close(bench_run *run);

typedef struct bench_figure {
    double median, mad; /* median, median absolute deviation */
} bench_figure;
bench_figure bench_figure_of(const double *values, uint32_t n);
/* Nanoseconds that turn i's machine needs for what the contestant did, by `limit`. */
double bench_limit_ns(const bench_run *run, const bench_contestant *contestant, bench_limit limit, uint32_t i);

/* ---- the look at what was written: check.c ------------------------------------------------------------------- */

/* Fills error and wrong of each contestant that ran. */
void bench_run_check(bench_run *run);

#endif
