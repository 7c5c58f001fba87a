/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loops of kernels/vector cost, on each level that the CPU has. `loops`: cycles of one core for one cell of f16,
 * head_dim 128, from the second-level cache, and products against the multiply-add peak.
 * `loops stream MB [LEVEL [PLACES]]`: two threads over K and V that large in all, against reading the same memory; the cells of
 * a block come in turns from so many places at equal distances.
 *
 * What a sample is compared with, a cycle, an operation at the peak or reading, is measured anew beside it; medians of the
 * ratios are printed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench/cycles.h"
#include "harness/machine/peak_kernel.h"
#include "harness/machine/read_kernel.h"
#include "harness/machine/team.h"
#include "kernels/vector/vector.h"
#include "results/statistics.h"

enum { DIM = 128, CELLS = 1024, SAMPLES = 31, HEADS = 8, MOST_ROWS = 256 };

static _Alignas(64) uint16_t k[CELLS * DIM], v[CELLS * DIM];
static _Alignas(64) float q[MOST_ROWS * DIM], sums[MOST_ROWS * DIM], scores[MOST_ROWS * BLOCK], packed[BLOCK * DIM];
static float *q_rows[MOST_ROWS], *sum_rows[MOST_ROWS], *score_rows[MOST_ROWS];
static kvb_row_state states[MOST_ROWS], *state_rows[MOST_ROWS];
static uint64_t visible[MOST_ROWS];

/* ---- one core, second-level cache ---- */

static void row_pointers(const uint16_t *rows, uint32_t cell, const void *at[BLOCK])
{
    for (uint32_t i = 0; i < BLOCK; i++)
        at[i] = rows + (size_t)(cell + i) * DIM;
}

static kvb_stored_rows f16_rows(const void *const *at, kvb_row_ahead ahead)
{
    return (kvb_stored_rows){.elem = KVB_F16, .n = BLOCK, .dim = DIM, .at = at, .ahead = ahead};
}

/* A block from scores to sums for a few rows. */
static void block_run(const kvb_vector *level, uint32_t rows, float *s, kvb_row_state *const *state, float *const *sum,
                      const void *const *keys, const void *const *values, kvb_row_ahead ahead)
{
    const kvb_stored_rows k_rows = f16_rows(keys, ahead), v_rows = f16_rows(values, ahead);
    level->dots(&k_rows, (const void *const *)q_rows, rows, s);
    float earlier[DOTS_ROWS];
    level->weigh((kvb_logits){0.02f, 0}, s, BLOCK, rows, visible, state, earlier);
    for (uint32_t r = 0; r < rows; r++)
        if (earlier[r] != 1)
            level->rescale(sum[r], sum[r], DIM, earlier[r]);
    level->sums(&v_rows, s, rows, sum);
}

static void few_run(const kvb_vector *level, uint32_t rows)
{
    const void *keys[BLOCK], *values[BLOCK];
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        row_pointers(k, c, keys);
        row_pointers(v, c, values);
        block_run(level, rows, scores, state_rows, sum_rows, keys, values, (kvb_row_ahead){0});
    }
}
/* Lines of the next block are prefetched, each five times, or none are. */
static const kvb_row_ahead none, again = {.bytes = (size_t)BLOCK * DIM * sizeof *k, .near = true, .again = true};

static void dots_of(const kvb_vector *level, uint32_t rows, kvb_row_ahead ahead)
{
    const void *keys[BLOCK];
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        row_pointers(k, c, keys);
        const kvb_stored_rows stored = f16_rows(keys, ahead);
        level->dots(&stored, (const void *const *)q_rows, rows, scores);
    }
}
static void sums_of(const kvb_vector *level, uint32_t rows, kvb_row_ahead ahead)
{
    const void *values[BLOCK];
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        row_pointers(v, c, values);
        const kvb_stored_rows stored = f16_rows(values, ahead);
        level->sums(&stored, scores, rows, sum_rows);
    }
}
#define OF_RUN(NAME, OF, AHEAD)                                                                                        \
    static void NAME(const kvb_vector *level, uint32_t rows)                                                           \
    {                                                                                                                  \
        OF(level, rows, AHEAD);                                                                                        \
    }
OF_RUN(dots_run, dots_of, none)
OF_RUN(sums_run, sums_of, none)
OF_RUN(dots_again_run, dots_of, again)
OF_RUN(sums_again_run, sums_of, again)
static void pack_keys_run(const kvb_vector *level, uint32_t rows)
{
    const void *keys[BLOCK];
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        row_pointers(k, c, keys);
        level->pack_keys(KVB_F16, keys, BLOCK, DIM, packed);
    }
    (void)rows;
}
static void pack_values_run(const kvb_vector *level, uint32_t rows)
{
    const void *values[BLOCK];
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        row_pointers(v, c, values);
        level->pack_values(KVB_F16, values, BLOCK, DIM, packed);
    }
    (void)rows;
}
static void weigh_run(const kvb_vector *level, uint32_t rows)
{
    float earlier[MOST_ROWS];
    for (uint32_t c = 0; c < CELLS; c += BLOCK) /* weights serve as the next scores */
        level->weigh((kvb_logits){1, 0}, scores, BLOCK, rows, visible, state_rows, earlier);
}
static void cap_run(const kvb_vector *level, uint32_t rows)
{
    float earlier[MOST_ROWS];
    for (uint32_t c = 0; c < CELLS; c += BLOCK)
        level->weigh((kvb_logits){0.03f, 50}, scores, BLOCK, rows, visible, state_rows, earlier);
}
static void score_product_run(const kvb_vector *level, uint32_t rows)
{
    level->product(rows, DIM, BLOCK, (const float *const *)q_rows, packed, BLOCK, score_rows, false);
}
static void sum_product_run(const kvb_vector *level, uint32_t rows)
{
    level->product(rows, BLOCK, DIM, (const float *const *)score_rows, packed, DIM, sum_rows, true);
}

/* By the products of 16 bits that a level has of its own: the same blocks; of e4m3 the first bytes of each row. */
static _Alignas(64) char encoded[DOTS_ROWS][64 + 2 * DIM];
static const void *encoded_rows[DOTS_ROWS];
static struct {
    kvb_elem elem;
    kvb_dots_fn *dots;
    kvb_sums_fn *sums;
} own;

static void own_use(kvb_cpu_level level)
{
    const kvb_loops *loops = kvb_loops_at(level);
    const kvb_format format = {.elem = loops->f16 ? KVB_F16 : KVB_BF16};
    if (!loops->bf16)
        return;
    own.elem = format.elem;
    own.dots = loops->f16 ? loops->f16->dots : loops->bf16->dots;
    own.sums = loops->f16 ? loops->f16->sums : loops->bf16->sums;
    for (uint32_t r = 0; r < DOTS_ROWS; r++) {
        encoded_rows[r] = encoded[r];
        (loops->f16 ? loops->f16->query : loops->bf16->query)(&format, DIM, q_rows[r], encoded[r]);
    }
}
static void elem_dots(kvb_elem elem, uint32_t rows)
{
    const void *keys[BLOCK];
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        row_pointers(k, c, keys);
        own.dots(&(kvb_stored_rows){.elem = elem, .n = BLOCK, .dim = DIM, .at = keys}, encoded_rows, rows, scores);
    }
}
static void elem_sums(kvb_elem elem, uint32_t rows)
{
    const void *values[BLOCK];
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        row_pointers(v, c, values);
        own.sums(&(kvb_stored_rows){.elem = elem, .n = BLOCK, .dim = DIM, .at = values}, scores, rows, sum_rows);
    }
}
#define OWN_RUN(NAME, ELEM, RUN)                                                                                       \
    static void NAME(const kvb_vector *level, uint32_t rows)                                                           \
    {                                                                                                                  \
        (void)level;                                                                                                   \
        RUN(ELEM, rows);                                                                                               \
    }
OWN_RUN(own_dots_run, own.elem, elem_dots)
OWN_RUN(own_sums_run, own.elem, elem_sums)
OWN_RUN(e4m3_dots_run, KVB_E4M3, elem_dots)
OWN_RUN(e4m3_sums_run, KVB_E4M3, elem_sums)

typedef struct part {
    const char *name, *unit;
    void (*run)(const kvb_vector *level, uint32_t rows);
    uint32_t rows;
    double units; /* that one run makes; 0: fraction of peak */
} part;

static const part parts[] = {
    {"dots, weigh, sums", "cycles a cell", few_run, 1, CELLS},
    {"dots, weigh, sums", "cycles a cell", few_run, 2, CELLS},
    {"dots, weigh, sums", "cycles a cell", few_run, 3, CELLS},
    {"dots, weigh, sums", "cycles a cell", few_run, 4, CELLS},
    {"dots, weigh, sums", "cycles a cell", few_run, 5, CELLS},
    {"dots, weigh, sums", "cycles a cell", few_run, 6, CELLS},
    {"dots, weigh, sums", "cycles a cell", few_run, 7, CELLS},
    {"dots, weigh, sums", "cycles a cell", few_run, 8, CELLS},
    {"dots", "cycles a cell", dots_run, 1, CELLS},
    {"dots", "cycles a cell", dots_run, 4, CELLS},
    {"dots", "cycles a cell", dots_run, 8, CELLS},
    {"sums", "cycles a cell", sums_run, 1, CELLS},
    {"sums", "cycles a cell", sums_run, 4, CELLS},
    {"sums", "cycles a cell", sums_run, 8, CELLS},
    {"dots, prefetching", "cycles a cell", dots_again_run, 4, CELLS},
    {"sums, prefetching", "cycles a cell", sums_again_run, 4, CELLS},
    {"pack_keys", "cycles a cell", pack_keys_run, 0, CELLS},
    {"pack_values", "cycles a cell", pack_values_run, 0, CELLS},
    {"weigh", "cycles a row", weigh_run, 4, CELLS / BLOCK * 4},
    {"weigh with softcap", "cycles a row", cap_run, 4, CELLS / BLOCK * 4},
    {"product 128 x 64", "of peak", score_product_run, 24, 0},
    {"product 128 x 64", "of peak", score_product_run, 64, 0},
    {"product 128 x 64", "of peak", score_product_run, 256, 0},
    {"product 64 x 128", "of peak", sum_product_run, 24, 0},
    {"product 64 x 128", "of peak", sum_product_run, 64, 0},
    {"product 64 x 128", "of peak", sum_product_run, 256, 0},
};

/* Of levels with products of 16 bits of their own; their other loops are those of the level below. */
static const part own_parts[] = {
    {"dots of its 16 bits", "cycles a cell", own_dots_run, 1, CELLS},
    {"dots of its 16 bits", "cycles a cell", own_dots_run, 2, CELLS},
    {"dots of its 16 bits", "cycles a cell", own_dots_run, 4, CELLS},
    {"dots of its 16 bits", "cycles a cell", own_dots_run, 8, CELLS},
    {"sums of its 16 bits", "cycles a cell", own_sums_run, 1, CELLS},
    {"sums of its 16 bits", "cycles a cell", own_sums_run, 2, CELLS},
    {"sums of its 16 bits", "cycles a cell", own_sums_run, 4, CELLS},
    {"sums of its 16 bits", "cycles a cell", own_sums_run, 8, CELLS},
    {"dots, e4m3", "cycles a cell", e4m3_dots_run, 4, CELLS},
    {"dots, e4m3", "cycles a cell", e4m3_dots_run, 8, CELLS},
    {"sums, e4m3", "cycles a cell", e4m3_sums_run, 4, CELLS},
    {"sums, e4m3", "cycles a cell", e4m3_sums_run, 8, CELLS},
};

#define PARTS(P) P, sizeof P / sizeof *P
static const struct {
    const part *parts;
    size_t n;
} levels[] = {{PARTS(parts)}, {PARTS(own_parts)}}; /* with vectors of its own; with products of 16 bits alone */

static double peak_ns(const kvb_peak_kernel *peak) /* of one operation */
{
    enum { TURNS = 20000 };
    double start = now_ns();
    if (!isfinite(peak->run(TURNS)))
        printf("?");
    return (now_ns() - start) / TURNS / peak->operations;
}

static void part_print(kvb_cpu_level at, const part *p, const kvb_peak_kernel *peak)
{
    const kvb_vector *level = kvb_vector_at(at);
    const int times = p->units > 0 ? 4 : 1 + (int)(2000 / p->rows);
    double units[SAMPLES]; /* cycles, or operations at the peak */
    memset(states, 0, sizeof states);
    for (uint32_t r = 0; r < MOST_ROWS * BLOCK; r++)
        scores[r] = (float)(r % 91) * 0.01f;
    for (int s = 0; s < SAMPLES; s++) {
        double one = p->units > 0 ? cycle_ns() : peak_ns(peak), start = now_ns();
        for (int i = 0; i < times; i++)
            p->run(level, p->rows);
        units[s] = (now_ns() - start) / times / one;
    }
    double median = kvb_quantile(units, SAMPLES, 0.5);
    printf("%-10s  %-20s %3u rows  ", kvb_cpu_level_names[at], p->name, p->rows);
    if (p->units > 0)
        printf("%8.1f %s\n", median / p->units, p->unit);
    else
        printf("%8.1f %% %s\n", 100 * 2.0 * DIM * BLOCK * p->rows / median, p->unit);
}

/* The multiply-adds of a level's own width. */
static const kvb_peak_kernel *peak_of(kvb_cpu_level level)
{
    for (const kvb_peak_kernel *peak = kvb_peak_kernels; peak->instruction; peak++)
        if (peak->kind == KVB_PEAK_F32 && peak->here() &&
            peak->operations <= 2.0 * kvb_vector_at(level)->lanes * KVB_PEAK_CHAINS)
            return peak;
    return NULL;
}

/* ---- two threads, memory ---- */

typedef struct stream {
    const kvb_vector *level; /* NULL: only read */
    const kvb_read_kernel *read;
    uint32_t rows, cells, places;
    bool ahead;            /* tell the kernels of the next block */
    const uint16_t *k, *v; /* [HEADS][cells][DIM] */
    double ns[2];          /* that each thread ran */
} stream;

/* Block b of rows [cells], in turns over the places. */
static void place_pointers(const uint16_t *rows, uint32_t b, uint32_t places, uint32_t cells, const void *at[BLOCK])
{
    const uint32_t some = BLOCK / places, apart = cells / places;
    for (uint32_t i = 0, n = 0; i < some; i++)
        for (uint32_t p = 0; p < places; p++)
            at[n++] = rows + ((size_t)p * apart + b * some + i) * DIM;
}

static void stream_part(void *ctx, uint32_t thread, uint32_t threads)
{
    stream *s = ctx;
    double start = now_ns();
    const void *keys[BLOCK], *values[BLOCK];
    _Alignas(64) float own_scores[DOTS_ROWS * BLOCK], own_sums[DOTS_ROWS][DIM];
    float *sum[DOTS_ROWS];
    kvb_row_state own_states[DOTS_ROWS], *state[DOTS_ROWS];
    for (uint32_t r = 0; r < DOTS_ROWS; r++) {
        sum[r] = memset(own_sums[r], 0, sizeof own_sums[r]);
        own_states[r] = (kvb_row_state){-INFINITY, 0};
        state[r] = &own_states[r];
    }
    for (uint32_t h = thread; h < HEADS; h += threads) {
        const uint16_t *from_k = s->k + (size_t)h * s->cells * DIM, *from_v = s->v + (size_t)h * s->cells * DIM;
        if (!s->level) {
            s->read->run((const char *)from_k, (size_t)s->cells * DIM * 2);
            s->read->run((const char *)from_v, (size_t)s->cells * DIM * 2);
            continue;
        }
        for (uint32_t b = 0; b < s->cells / BLOCK; b++) {
            place_pointers(from_k, b, s->places, s->cells, keys);
            place_pointers(from_v, b, s->places, s->cells, values);
            const kvb_reading *r = kvb_reading_of(kvb_prefetch_here(), KVB_SPREAD_LONG, DIM * sizeof *from_k, s->rows);
            const kvb_row_ahead ahead = {.bytes = BLOCK / s->places * DIM * sizeof *from_k,
                                         .near = r->near,
                                         .again = r->again && s->places == 1,
                                         .by_cells = r->by_cells,
                                         .sums_by_cells = r->sums_by_cells,
                                         .page_row = r->pages ? DIM * sizeof *from_k : 0};
            block_run(s->level, s->rows, own_scores, state, sum, keys, values, s->ahead ? ahead : (kvb_row_ahead){0});
        }
    }
    s->ns[thread] += now_ns() - start;
}

static int stream_print(const kvb_vector *level, double megabytes, uint32_t places)
{
    static const uint32_t some_rows[] = {1, 2, 4, 8};
    enum { CASES = 1 + 2 * 4, TIMES = 15 };
    static double ns[CASES][TIMES];
    kvb_threads *threads;
    stream s = {.read = kvb_read_kernel_choose(),
                .places = places,
                .cells = (uint32_t)(megabytes * 1e6 / (2.0 * HEADS * DIM * 2)) / BLOCK * BLOCK};
    size_t bytes = (size_t)HEADS * s.cells * DIM * 2;
    uint16_t *rows[2];
    for (int side = 0; side < 2; side++) {
        if (posix_memalign((void **)&rows[side], 4096, bytes))
            return 1;
        for (size_t i = 0; i < bytes / 2; i++)
            rows[side][i] = (uint16_t)(0x3000 + i * 7919 % 0x0c00); /* 0.125 to 1 */
    }
    s.k = rows[0];
    s.v = rows[1];
    if (kvb_threads_start(2, true, &threads))
        return 1;
    const kvb_team *team = kvb_threads_team(threads);
    int passes = 1 + (int)(300e6 / (2 * (double)bytes));
    for (int t = -1; t < TIMES; t++)
        for (int i = 0; i < CASES; i++) {
            s.level = i ? level : NULL;
            s.rows = i ? some_rows[(i - 1) / 2] : 0;
            s.ahead = i % 2 == 0;
            s.ns[0] = s.ns[1] = 0;
            for (int pass = 0; pass < passes; pass++)
                team->run(team, stream_part, &s);
            if (t >= 0)
                ns[i][t] = (s.ns[0] + s.ns[1]) / 2 / passes;
        }
    for (int i = 0; i < CASES; i++) {
        double ratios[TIMES];
        for (int t = 0; t < TIMES; t++)
            ratios[t] = ns[0][t] / ns[i][t];
        double least = INFINITY;
        for (int t = 0; t < TIMES; t++)
            least = fmin(least, ns[i][t]);
        if (i)
            printf("%u rows %-6s", some_rows[(i - 1) / 2], i % 2 ? "" : "ahead");
        else
            printf("reading       ");
        printf(" %6.2f GB/s at best, median of turns %5.1f %% of reading\n", 2 * (double)bytes / least,
               100 * kvb_quantile(ratios, TIMES, 0.5));
    }
    kvb_threads_end(threads);
    return 0;
}

int main(int argc, char **argv)
{
    char why[128];
    for (uint32_t r = 0; r < MOST_ROWS; r++) {
        q_rows[r] = q + r * DIM;
        sum_rows[r] = sums + r * DIM;
        score_rows[r] = scores + r * BLOCK;
        state_rows[r] = &states[r];
        visible[r] = UINT64_MAX;
    }
    for (uint32_t i = 0; i < CELLS * DIM; i++)
        k[i] = v[i] = (uint16_t)(0x3000 + i * 7919 % 0x0c00);
    for (uint32_t i = 0; i < MOST_ROWS * DIM; i++)
        q[i] = (float)(i * 7919 % 2001) * 1e-3f - 1;
    for (uint32_t i = 0; i < BLOCK * DIM; i++)
        packed[i] = (float)(i * 7919 % 2001) * 1e-3f - 1;
    if (argc > 2 && !strcmp(argv[1], "stream"))
        return stream_print(kvb_vector_at(argc > 3 ? (kvb_cpu_level)atoi(argv[3]) : kvb_cpu()), atof(argv[2]),
                            argc > 4 ? (uint32_t)atoi(argv[4]) : 1);
    for (kvb_cpu_level level = 0; level < KVB_CPU_LEVELS; level++) {
        if (!kvb_cpu_has(level, why, sizeof why) || (argc > 1 && atoi(argv[1]) != (int)level))
            continue;
        own_use(level);
        const bool own_vectors = kvb_loops_own(level, offsetof(kvb_loops, vector));
        for (size_t p = 0; p < levels[!own_vectors].n; p++)
            part_print(level, &levels[!own_vectors].parts[p], own_vectors ? peak_of(level) : NULL);
    }
    return 0;
}
