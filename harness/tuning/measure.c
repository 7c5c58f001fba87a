/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates in turns, over rows in memory. */
#include "harness/tuning/tuning.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"
#include "harness/program.h"
#include "harness/machine/team.h"
#include "harness/rounds.h"
#include "kernels/kernels.h"
#include "results/statistics.h"
#include "workloads/array.h"

/*
 * A call reads one window: SIDE_BYTES of K, and as many of V. The next call reads the next window: otherwise rows that a
 * cache still holds would decide the contest. There are WINDOWS windows for each eight cores, 192 MiB, plus one: with an
 * odd number each candidate meets all windows in turn.
 */
#define SIDE_BYTES   ((size_t)24 << 20)
#define WINDOW_BYTES (2 * SIDE_BYTES)
#define WINDOWS      4u
#define NEAR_BYTES   ((size_t)2 << 20) /* a side, so small that the last cache holds it */
#define BETTER       1.03              /* least gain of a better candidate; below, two candidates are alike */
#define BEHIND       1.08              /* a candidate that many times slower than the best in turn 1 is dropped */
#define NOTICED      1.01              /* least gain from a cache, where times vary little */
enum { TURNS = 41, LEAST_TURNS = 3, NEAR_CALLS = 4, THREADS = 256, SEQUENCES = 16 };

/* The rows that a class of readings is measured with. */
static const struct {
    const char *format;
    uint32_t dim, kv_heads;
} sizes[KVB_READING_SIZES] = {{"e4m3", 128, 8}, {"f16", 128, 8}, {"f32", 128, 8}, {"f16", 576, 4}};
enum { USUAL_SIZE = 1 };
static const uint32_t rows_of[KVB_READING_ROWS] = {1, 2, 4, 8}; /* query heads of a KV head */
static const uint32_t run_of[KVB_SPREADS] = {0, 16, 1};         /* cells of a run; 0: one run has all */

/* Kernels that read rows of floats in place, and kernels that pack rows first. */
enum { READERS = 3 };
static const kvb_kernel *const readers[READERS] = {&kvb_kernel_flash, &kvb_kernel_flash_bf16, &kvb_kernel_flash_f16},
                               *const packers[READERS] = {&kvb_kernel_flash_int8};

/* The first FEW_READINGS gain the most. */
static const kvb_reading readings[] = {
    {.ahead = 0},
    {.ahead = 32},
    {.ahead = 64},
    {.ahead = 16, .near = true, .pages = true},
    {.ahead = 64, .pages = true},
    {.ahead = 64, .near = true, .again = true},
    {.ahead = 128},
    {.ahead = 16},
    {.ahead = 32, .near = true},
    {.ahead = 32, .near = true, .pages = true},
    {.ahead = 16, .pages = true},
    {.ahead = 5, .near = true},
};
/* For short runs and rows apart. Rows apart prefetch the next block at any distance. */
static const kvb_reading readings_next[] = {
    {.ahead = 0}, {.ahead = 64}, {.ahead = 64, .near = true}, {.ahead = 10, .near = true}};
/* Orders of reading rows. Each is tried for at most so many query rows. The first FEW_ORDERS gain the most. */
static const struct {
    uint32_t most_rows;
    bool by_cells, sums_by_cells, beside;
} orders[] = {{UINT32_MAX, false, false, false},
              {UINT32_MAX, false, true, false},
              {UINT32_MAX, true, true, true},
              {2, true, false, false},
              {2, true, true, false}};
enum {
    READINGS = sizeof readings / sizeof *readings,
    READINGS_NEXT = sizeof readings_next / sizeof *readings_next,
    ORDERS = sizeof orders / sizeof *orders,
    FEW_READINGS = 5,
    FEW_ORDERS = 3,
    CANDIDATES = 1 + ORDERS * READINGS /* the built-in one, and each in each order */
};

/* ---- a team that says what CPU time its threads took ------------------------------------------------------------- */

typedef struct timed_team {
    kvb_team team;
    const kvb_team *under;
    void (*part)(void *ctx, uint32_t i, uint32_t n);
    void *ctx;
    double ns[THREADS];
} timed_team;

static void timed_part(void *ctx, uint32_t i, uint32_t n)
{
    timed_team *t = ctx;
    const double start = kvb_thread_ns();
    t->part(t->ctx, i, n);
    t->ns[i] += kvb_thread_ns() - start;
}

static void timed_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    timed_team *t = (timed_team *)(uintptr_t)team;
    t->part = part;
    t->ctx = ctx;
    t->under->run(t->under, timed_part, t);
}

/* ---- the works --------------------------------------------------------------------------------------------------- */

typedef struct bench {
    timed_team team;
    char *memory;                   /* K and V of each window */
    uint32_t windows, used, window; /* windows in memory; of these, read in turn; read so far */
    float *rest;                    /* of a call: q, outputs and scratch */
    kvb_prefetch tried;
    kvb_attend args;
    uint32_t run;  /* cells of a run; 0: all cells are one run */
    kvb_run *runs; /* NULL: all cells are one run */
    uint32_t row_start[SEQUENCES + 1];
    const kvb_kernel *kernel;
} bench;

static const kvb_format *format_of(const char *name)
{
    size_t i = 0;
    while (strcmp(kvb_builtin_pools[i]->name, name))
        i++;
    return kvb_builtin_pools[i]->format;
}

/* Deals cells to SEQUENCES in turns, `run` neighbours at a time: 16 for pages, 1 for sequences filled in steps. false: no
 * memory. */
static bool cells_deal(bench *b, uint32_t cells, uint32_t run)
{
    const uint32_t each = cells / run / SEQUENCES, n = each * SEQUENCES;
    free(b->runs);
    b->runs = malloc(n * sizeof *b->runs);
    for (uint32_t i = 0; b->runs && i < n; i++) {
        const uint32_t at = (i / each + i % each * SEQUENCES) * run;
        b->runs[i] = (kvb_run){at, at + run};
    }
    for (uint32_t t = 0; t <= SEQUENCES; t++)
        b->row_start[t] = t * each;
    b->args.mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = b->row_start, .runs = b->runs};
    return b->runs;
}

/* Sets the bytes of each side that calls read. false: no memory. */
static bool side_set(bench *b, size_t bytes)
{
    kvb_problem *p = &b->args.problem;
    b->used = bytes == SIDE_BYTES ? b->windows : 1;
    b->window = 0;
    p->n_cells = (uint32_t)(bytes / (b->args.k.cell_stride * p->n_kv_heads)) / 64 * 64;
    b->args.k.cells = b->args.v.cells = p->n_cells;
    return !b->run || cells_deal(b, p->n_cells, b->run);
}

static bool takes(const kvb_kernel *kernel, const kvb_problem *problem)
{
    char why[128];
    return (!kernel->available || kernel->available(why, sizeof why)) && kernel->supports(problem, why, sizeof why);
}

/* Makes so many calls; returns the CPU time of the slowest thread. */
static double calls_ns(bench *b, uint32_t calls)
{
    double ns = 0;
    memset(b->team.ns, 0, sizeof b->team.ns);
    for (uint32_t i = 0; i < calls; i++) {
        char *rows = b->memory + WINDOW_BYTES * (b->window++ % b->used);
        b->args.k.base = rows;
        b->args.v.base = rows + SIDE_BYTES;
        b->kernel->attend(&b->args);
    }
    for (uint32_t i = 0; i < b->team.team.n; i++)
        ns = fmax(ns, b->team.ns[i]);
    return ns;
}

/* Chooses the fastest of n kernels at the built-in setting, since runs use this one. */
static void kernel_choose(bench *b, const kvb_kernel *const *kernels, uint32_t n)
{
    const kvb_kernel *best = kernels[0];
    double least = INFINITY;
    for (uint32_t i = 0; i < n && n > 1; i++) {
        b->kernel = kernels[i];
        const double ns = calls_ns(b, 1);
        best = ns < least ? kernels[i] : best;
        least = fmin(ns, least);
    }
    b->kernel = best;
}

/* Prepares calls over rows of a format that fill both sides: one token sees all rows, or each of SEQUENCES tokens its own
 * runs. false: no kernel takes them, or there is no memory. */
static bool work_open(bench *b, const kvb_kernel *const *kernels, const char *name, uint32_t dim, uint32_t kv_heads,
                      uint32_t rows, kvb_spread spread)
{
    const kvb_format *format = format_of(name);
    const uint32_t heads = rows * kv_heads, n_tok = run_of[spread] ? SEQUENCES : 1;
    const kvb_view v = {.head_stride = SIDE_BYTES / kv_heads / 64 * 64,
                        .cell_stride = kvb_codes_bytes(format, dim),
                        .dim = dim,
                        .format = format};
    b->run = run_of[spread];
    b->args = (kvb_attend){.problem = {.n_tok = n_tok,
                                       .n_heads = heads,
                                       .n_kv_heads = kv_heads,
                                       .k_dim = dim,
                                       .v_dim = dim,
                                       .scale = 0.05f,
                                       .mask = run_of[spread] ? KVB_MASK_RUNS : KVB_MASK_NONE,
                                       .k_format = format,
                                       .v_format = format},
                           .k = v,
                           .v = v,
                           .team = &b->team.team};
    if (!side_set(b, SIDE_BYTES))
        return false;
    const kvb_kernel *able[READERS];
    uint32_t n = 0;
    size_t scratch = 0;
    for (uint32_t i = 0; i < READERS && kernels[i]; i++)
        if (takes(kernels[i], &b->args.problem)) {
            able[n++] = kernels[i];
            const size_t bytes = kernels[i]->scratch_bytes(&b->args.problem, b->team.team.n);
            scratch = bytes > scratch ? bytes : scratch;
        }
    const size_t channels = (size_t)n_tok * heads * dim;
    b->rest = n ? kvb_pages_alloc(2 * channels * sizeof *b->rest + scratch) : NULL;
    if (!b->rest)
        return false;
    for (size_t i = 0; i < channels; i++)
        b->rest[i] = (float)((double)(i * 7919 % 2001) * 1e-3 - 1);
    b->args.q = b->rest;
    b->args.out = b->rest + channels;
    b->args.scratch = b->rest + 2 * channels;
    kernel_choose(b, able, n);
    return true;
}

static void work_close(bench *b)
{
    kvb_pages_free(b->rest);
    free(b->runs);
    b->rest = NULL;
    b->runs = NULL;
    b->args = (kvb_attend){0};
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Puts candidate c into b->tried; candidate 0 is the built-in setting. */
typedef void candidate_set(bench *b, uint32_t c, const void *of);

/* Some of the candidates, in turns with the built-in setting: its time over theirs. */
typedef struct contest {
    uint32_t n, candidate[CANDIDATES];
    double gain[CANDIDATES]; /* median of the turns; at most 1 if the candidate lost more than a quarter of them */
    bool by_work;            /* among candidates that are alike from memory, the fastest from a cache wins */
} contest;

typedef struct setting {
    bench *bench;
    candidate_set *set;
    const void *of;
    uint32_t candidate, calls;
    double end; /* kvb_now_ns() after which no first sample is taken; INFINITY: taken at any time */
} setting;

static double setting_take(void *ctx)
{
    setting *s = ctx;
    if (kvb_now_ns() > s->end)
        return NAN;
    s->end = INFINITY;
    s->set(s->bench, s->candidate, s->of);
    return calls_ns(s->bench, s->calls);
}

/* Where loops are slow, some candidates have no sample: they leave the contest. */
static void contest_run(bench *b, candidate_set *set, const void *of, uint32_t calls, uint32_t most, double seconds,
                        contest *x)
{
    static double ns[1 + CANDIDATES][TURNS];
    static setting settings[1 + CANDIDATES];
    static kvb_contestant all[1 + CANDIDATES];
    const kvb_rounds rounds = {.least = most < LEAST_TURNS ? most : LEAST_TURNS, .most = most, .seconds = seconds};
    const double end = kvb_now_ns() + seconds * 1e9;
    for (uint32_t i = 0; i <= x->n; i++) {
        settings[i] = (setting){b, set, of, i ? x->candidate[i - 1] : 0, calls, i > 1 ? end : INFINITY};
        all[i] = (kvb_contestant){.take = setting_take, .ctx = &settings[i], .samples = ns[i], .limit = true};
    }
    kvb_rounds_run(&rounds, all, 1 + x->n);
    uint32_t n = 0;
    for (uint32_t i = 1; i <= x->n; i++) {
        double ratio[TURNS];
        for (uint32_t t = 0; t < all[i].n; t++)
            ratio[t] = ns[0][t] / ns[i][t];
        if (!all[i].n)
            continue;
        x->gain[n] = kvb_quantile(ratio, all[i].n, 0.5);
        if (kvb_quantile(ratio, all[i].n, 0.25) < 1)
            x->gain[n] = fmin(x->gain[n], 1);
        x->candidate[n++] = x->candidate[i - 1];
    }
    x->n = n;
}

/* The place in the contest with the largest gain. A later place must be ahead by `margin`. */
static uint32_t contest_first(const contest *x, double margin)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < x->n; i++)
        best = x->gain[i] > x->gain[best] * margin ? i : best;
    return best;
}

/* Keeps the candidates that gain at least so much. */
static void contest_keep(contest *x, double least)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->gain[i] >= least) {
            x->gain[n] = x->gain[i];
            x->candidate[n++] = x->candidate[i];
        }
    x->n = n;
}

/*
 * The fastest candidate, and its gain. If none gains as much as BETTER, candidate 0 wins. Where memory is the bound, many
 * are alike. With by_work the fastest of these from a cache wins: it has the least work to hide when memory is faster.
 * Afterwards the problem may have fewer cells.
 */
static uint32_t contest_take(bench *b, candidate_set *set, const void *of, contest *x, double seconds, double *gain)
{
    *gain = 1;
    contest_run(b, set, of, 1, TURNS, seconds * 4 / 5, x);
    contest_keep(x, BETTER);
    if (!x->n)
        return 0;
    contest_keep(x, x->gain[contest_first(x, 1)] / (x->by_work ? BETTER : 1));
    contest near = *x;
    if (x->n > 1 && side_set(b, NEAR_BYTES))
        contest_run(b, set, of, NEAR_CALLS, TURNS, seconds / 5, &near);
    const uint32_t best = contest_first(&near, NOTICED);
    *gain = x->gain[best];
    return x->candidate[best];
}

/* The best of n candidates; most are dropped after one turn. */
static uint32_t best_of(bench *b, candidate_set *set, const void *of, uint32_t n, bool by_work, double seconds)
{
    contest x = {.n = n - 1, .by_work = by_work};
    double gain;
    for (uint32_t c = 1; c < n; c++)
        x.candidate[c - 1] = c;
    const double start = kvb_now_ns();
    contest_run(b, set, of, 1, 1, seconds, &x);
    contest_keep(&x, x.gain[contest_first(&x, 1)] / BEHIND);
    return contest_take(b, set, of, &x, seconds - (kvb_now_ns() - start) * 1e-9, &gain);
}

/* Sets the best, or the built-in setting if that does as well. */
static void best_confirm(bench *b, candidate_set *set, const void *of, uint32_t best, double seconds, double *gain)
{
    contest x = {.n = 1, .candidate = {best}};
    if (best)
        best = contest_take(b, set, of, &x, seconds, gain);
    set(b, best, of);
}

/* A class and its candidates, the built-in setting first. */
typedef struct work {
    uint32_t at; /* of KVB_READINGS */
    kvb_class class;
    kvb_reading candidate[CANDIDATES];
    uint32_t n;
} work;

static void reading_set(bench *b, uint32_t c, const void *of)
{
    const work *w = of;
    b->tried.reading[w->at] = w->candidate[c];
}

static void steadily_set(bench *b, uint32_t c, const void *of)
{
    const bool *own = of;
    b->tried.steadily = c ? !*own : *own;
}

/* Only flash uses orders; other kernels keep the built-in ones. */
static void candidates_list(work *w, const kvb_kernel *kernel, bool few)
{
    const bool next = w->class.spread != KVB_SPREAD_LONG;
    const uint32_t n = next ? READINGS_NEXT : few ? FEW_READINGS : READINGS;
    const bool heeds = kernel == &kvb_kernel_flash;
    const uint32_t n_orders = !heeds ? 1 : few ? FEW_ORDERS : ORDERS;
    for (uint32_t o = 0; o < n_orders; o++)
        for (uint32_t i = 0; i < n && rows_of[w->class.rows] <= orders[o].most_rows; i++) {
            kvb_reading *r = &w->candidate[w->n++], *own = &w->candidate[0];
            *r = next ? readings_next[i] : readings[i];
            r->by_cells = heeds ? orders[o].by_cells : own->by_cells;
            r->sums_by_cells = heeds ? orders[o].sums_by_cells : own->sums_by_cells;
            r->beside = heeds ? orders[o].beside : own->beside;
        }
}

static bool class_open(bench *b, const kvb_tuning_options *o, uint32_t at, work *w)
{
    const kvb_class class = kvb_class_at(at);
    *w = (work){.at = at, .class = class, .candidate = {b->tried.reading[at]}, .n = 1};
    if (!work_open(b, readers, sizes[class.size].format, sizes[class.size].dim, sizes[class.size].kv_heads,
                   rows_of[class.rows], class.spread))
        return false;
    candidates_list(w, b->kernel, o->few);
    return true;
}

/* A class's share of the time: less with fewer candidates; with `few`, none for most classes. */
static double class_share(uint32_t at, bool few)
{
    const kvb_class c = kvb_class_at(at);
    const bool measured = !few || (c.size == USUAL_SIZE && c.spread != KVB_SPREAD_APART);
    return !measured ? 0 : c.spread == KVB_SPREAD_LONG ? 1 : 0.25;
}

/*
 * The best of each class is found first. Then each best meets the built-in setting once more, alone: the best of many was
 * also lucky, and a disturbance of some seconds in a class is over by then.
 */
static int classes_measure(bench *b, const kvb_tuning_options *o, kvb_tuning *t)
{
    const bool own = b->tried.steadily;
    kvb_reading best[KVB_READINGS];
    bool won[KVB_READINGS];
    double shares = !o->few;
    for (uint32_t at = 0; at < KVB_READINGS; at++)
        shares += class_share(at, o->few);
    for (uint32_t i = 0; i < 2 * KVB_READINGS && !kvb_stopped; i++) {
        const uint32_t at = i % KVB_READINGS;
        const double seconds = o->seconds / shares * class_share(at, o->few);
        if (seconds == 0)
            continue;
        work w;
        const bool opened = class_open(b, o, at, &w);
        if (opened && i < KVB_READINGS) {
            const uint32_t first = best_of(b, reading_set, &w, w.n, rows_of[w.class.rows] > 2, seconds * 3 / 4);
            best[at] = w.candidate[first];
            won[at] = first > 0;
            reading_set(b, 0, &w);
        } else if (opened) {
            w.candidate[1] = best[at];
            best_confirm(b, reading_set, &w, won[at], seconds / 4, &t->gain[at]);
        }
        work_close(b);
        if (!opened)
            return -ENOMEM;
    }
    for (uint32_t at = 0; at < KVB_READINGS && o->few; at++) { /* narrower rows are read much like the usual ones */
        const kvb_class c = kvb_class_at(at);
        if (c.size == 0)
            b->tried.reading[at] = b->tried.reading[kvb_reading_at(c.spread, USUAL_SIZE, c.rows)];
    }
    if (!o->few && !kvb_stopped && work_open(b, packers, "q8_0", 128, 8, 4, KVB_SPREAD_LONG))
        best_confirm(b, steadily_set, &own, best_of(b, steadily_set, &own, 2, false, o->seconds / shares * 3 / 4),
                     o->seconds / shares / 4, &t->steadily_gain);
    work_close(b);
    t->prefetch = b->tried;
    return kvb_stopped ? -EINTR : 0;
}

int kvb_tuning_measure(const kvb_tuning_options *options, kvb_tuning *tuning)
{
    bench *b = calloc(1, sizeof *b);
    kvb_threads *threads = NULL;
    int error = b ? kvb_threads_start(options->threads, true, &threads) : -ENOMEM;
    if (error)
        goto out;
    b->windows = (WINDOWS * ((options->threads + 7) / 8)) | 1;
    b->memory = kvb_pages_alloc(b->windows * WINDOW_BYTES);
    if (!b->memory) {
        error = -ENOMEM;
        goto out;
    }
    for (size_t i = 0; i < SIDE_BYTES; i++) /* finite in every type */
        ((uint16_t *)(void *)b->memory)[i] = (uint16_t)((0x2c00 + i * 7919 % 0x0800 + (i % 3 ? 0x8000 : 0)) & 0xffbf);
    for (uint32_t w = 1; w < b->windows; w++)
        memcpy(b->memory + WINDOW_BYTES * w, b->memory, WINDOW_BYTES);
    b->team = (timed_team){.team = {.n = options->threads, .run = timed_run}, .under = kvb_threads_team(threads)};
    kvb_prefetch_set(NULL);
    b->tried = *kvb_prefetch_here();
    *tuning = (kvb_tuning){.prefetch = b->tried, .steadily_gain = 1};
    for (uint32_t i = 0; i < KVB_READINGS; i++)
        tuning->gain[i] = 1;
    kvb_prefetch_set(&b->tried);
    error = classes_measure(b, options, tuning);
    kvb_prefetch_set(NULL);
out:
    if (threads)
        kvb_threads_end(threads);
    if (b)
        kvb_pages_free(b->memory);
    free(b);
    return error;
}
