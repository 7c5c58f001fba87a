/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-kernels: what fraction of the machine's limit a kernel reaches. A work (works.c) is a read as engines make
 * it: rows of one format (store.c), queries and who sees what (scene.c). Contestants, a kernel each and a way of calling
 * it, take turns with probes of the limits (measure.c); what they wrote is looked at (check.c) and told in a table
 * (kernels.c).
 *
 * Geometry: KV_HEADS KV heads of DIM channels, K and V of one format, out in f32; or latent rows, one for all heads, of which
 * V is a part.
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
    BENCH_LATENT_K = 576, /* of a latent row, … */
    BENCH_LATENT_V = 512, /* … V is the first so many */
    BENCH_SINKS = 4,      /* cells that are seen before a window */
    BENCH_ENTRIES = 4,    /* contestants of a work at most, … */
    BENCH_BESIDE = 6,     /* … and kernels that the user wants to see beside them */
    BENCH_CONTESTANTS = BENCH_ENTRIES + BENCH_BESIDE,
    BENCH_TURNS = 256,   /* samples of a contestant at most */
    BENCH_TURNS_MIN = 5, /* and at least */
    BENCH_LAYERS = 16,   /* copies of the rows at most */
    BENCH_PROBED = 6,    /* output rows that are looked at */
    BENCH_HEADS = 128,   /* query heads at most */
    BENCH_CELLS_MIN = 64 /* of any work */
};

/* ---- works: works.c ------------------------------------------------------------------------------------------ */

typedef enum bench_shape {
    BENCH_DECODE,  /* one token sees every cell */
    BENCH_VERIFY,  /* a tree of draft tokens behind a prefix */
    BENCH_BATCH,   /* sequences of equal length, one token each, each sequence in one run of cells */
    BENCH_STEPS,   /* the same, filled in steps: cell c is of sequence c mod n */
    BENCH_PAGED,   /* the same, in pages dealt to the sequences in any order */
    BENCH_FORK,    /* branches on a common trunk, one token each; their own cells filled in steps */
    BENCH_PREFILL, /* as many tokens as cells, causal */
    BENCH_CHUNK    /* a few causal tokens behind a prefix */
} bench_shape;

/* How a contestant is called. */
typedef enum bench_way {
    BENCH_WHOLE,
    BENCH_BITS,  /* with the mask as bit rows */
    BENCH_APART, /* one call for each token */
    BENCH_ALONE, /* by a team of one thread */
    BENCH_PLAIN  /* without what the work is about: pages, window, sinks, softcap, outputs of 16 bits */
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
    double
        gain; /* least speed-up of BENCH_WHOLE over BENCH_APART, BENCH_ALONE or BENCH_PLAIN by the same kernel; 0: not
                  * asked. Over BENCH_PLAIN it is that of a visible (query, cell) pair. */
    const char *plain;  /* what BENCH_PLAIN is called */
    bool latent;        /* `group` query heads in all, over latent rows */
    kvb_peak_kind peak; /* what the peak is of */
    uint32_t page;      /* cells, of BENCH_PAGED */
    uint32_t
        window; /* of BENCH_BATCH and BENCH_CHUNK: only the first BENCH_SINKS and the last `window` cells are seen */
    bool sinks; /* a logit more for each query head */
    float softcap;
    kvb_elem out; /* KVB_F32 unless said */
    bool call;    /* so few cells that a call is told in cycles */
} bench_work;
extern const bench_work bench_works[]; /* ends with name NULL */

/* ---- rows: store.c ------------------------------------------------------------------------------------------- */

/* `layers` copies of K and V rows. */
typedef struct bench_store {
    const kvb_pool_type *type; /* NULL: closed */
    bool latent;               /* there is no V */
    uint32_t cells, layers;
    kvb_pool *k[BENCH_LAYERS], *v[BENCH_LAYERS];
    kvb_allocator allocator;
} bench_store;

/* Bytes of one cell, K and V, all KV heads. 0 for an unknown format. */
double bench_cell_bytes(const bench_work *work);
/* Rows of this format in memory that the team touched first, each copy the same; what the store held goes, unless it is
 * just that. 0 or -ENOMEM. */
int bench_store_open(bench_store *store, const kvb_team *team, const bench_work *work, uint32_t cells, uint32_t layers);
void bench_store_close(bench_store *store);
/* Layers as the work reads them, without sinks and softcap. */
kvb_group bench_group(const bench_work *work);
/* q rows [n_tok][heads][k_dim]. */
void bench_queries_make(const kvb_team *team, const bench_work *work, float *q, uint32_t n_tok);

/* ---- who sees what: scene.c ---------------------------------------------------------------------------------- */

/* What one call is about. */
typedef struct bench_sight {
    kvb_group group;
    kvb_elem out;
    uint32_t cells;  /* readable */
    kvb_mask mask;   /* as a cache hands it over */
    uint64_t pairs;  /* visible (query, cell) */
    uint64_t unique; /* cells that some query sees */
    kvb_run *runs;
    uint32_t *row_start, *pages;
} bench_sight;

typedef struct bench_scene {
    const bench_work *work;
    uint32_t cells, n_tok, heads;
    bench_sight own, plain; /* plain: only where an entry wants it */
    kvb_mask bits;          /* own.mask as bit rows; made where an entry wants it */
    uint64_t *words;
    float *q, sink_logits[BENCH_HEADS];
} bench_scene;

static inline const bench_sight *bench_sight_of(const bench_scene *scene, bench_way way)
{
    return way == BENCH_PLAIN ? &scene->plain : &scene->own;
}

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
    void *out;         /* [n_tok][heads][v_dim] */
    double ns[BENCH_TURNS];
    double error, allowed; /* relative L2 of the worst row probed */
    bool wrong;            /* more than allowed; of a foreign kernel: than its own project allows */
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
    kvb_peak_kind peak_kind;     /* the work's, or f32 where the CPU has no such products */
    double peak[2][BENCH_TURNS]; /* Gop/s */
    double cycle[BENCH_TURNS];   /* ns; where calls are told in cycles */
} bench_run;

/* Opens those that can run, and has them and the probes take turns. 0 or -ENOMEM; what fails is told in `why` of the
 * contestant. */
int bench_run_measure(bench_run *run);
void bench_run_close(bench_run *run);

/* The rows of a copy, as a kernel is given them. */
void bench_views(const bench_store *store, uint32_t layer, const bench_sight *sight, kvb_view *k, kvb_view *v);

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
