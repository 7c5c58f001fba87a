/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels are made of, alone, at each level of instruction sets that this CPU has: coding rows, loading them as
 * floats, inner loops, block products. One thread, rows of 128 channels; what is read lies in the second-level cache.
 * Levels and the measuring of a cycle take turns; a first run of each sample does not count, as a core takes a while to
 * wake its wide units.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/rows.h"
#include "harness/bench/bench.h"
#include "harness/bench/cycles.h"
#include "harness/progress.h"
#include "harness/rounds.h"
#include "kernels/flash/flash.h"
#include "kernels/vector/vector.h"
#include "results/statistics.h"

enum { DIM = 128, CELLS = 512, MOST_ROWS = 256, LEAST = 5, MOST = 41 };
#define SAMPLE_NS 2e4 /* of a sample, at least */

/* Products of floats, or a level's own products of 16 bits. */
typedef enum products { FLOATS, F16, BF16 } products;

typedef struct part part;
struct part {
    const char *unit;
    double units; /* of a run */
    void (*run)(const part *p, kvb_cpu_level level);
    bool (*has)(const part *p, kvb_cpu_level level); /* the level has code of its own for it */
    uint32_t rows;                                   /* query rows */
    products products;
    const kvb_pool_type *type; /* rows stored in it, of `view` */
    kvb_view view;
    char name[48];
};

/* ---- data -------------------------------------------------------------------------------------------------------- */

static _Alignas(64) float plain[CELLS * DIM], turned[CELLS * DIM], loaded[16 * DIM];
static _Alignas(64) char codes[CELLS * DIM * 4], scales[CELLS * DIM * 2], zeros[CELLS * DIM * 2];
static _Alignas(64) uint16_t halves[CELLS * DIM]; /* rows of f16 */
static _Alignas(64) float q[MOST_ROWS * DIM], sums[MOST_ROWS * DIM], scores[MOST_ROWS * BLOCK], packed[BLOCK * DIM];
static _Alignas(64) char encoded[MOST_ROWS][1024], scratch[1 << 17];
static const void *encoded_rows[MOST_ROWS], *half_rows[CELLS];
static float *q_rows[MOST_ROWS], *sum_rows[MOST_ROWS], *score_rows[MOST_ROWS];
static kvb_row_state states[MOST_ROWS], *state_rows[MOST_ROWS];
static uint64_t visible[MOST_ROWS];
static uint32_t cells[CELLS];

static void data_make(void)
{
    for (uint32_t i = 0, x = 1; i < CELLS * DIM; i++) { /* roughly normal: four uniform numbers */
        float sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (float)((x = x * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f;
        plain[i] = sum * 1.7f;
        halves[i] = (uint16_t)(0x3000 + i * 7919 % 0x0c00); /* 0.125 to 1 */
    }
    for (uint32_t r = 0; r < MOST_ROWS; r++) {
        q_rows[r] = q + r * DIM;
        sum_rows[r] = sums + r * DIM;
        score_rows[r] = scores + r * BLOCK;
        state_rows[r] = &states[r];
        encoded_rows[r] = encoded[r];
        visible[r] = UINT64_MAX;
        for (uint32_t i = 0; i < DIM; i++)
            q_rows[r][i] = (float)((r * DIM + i) * 7919 % 2001) * 1e-3f - 1;
    }
    for (uint32_t c = 0; c < CELLS; c++) {
        cells[c] = c;
        half_rows[c] = halves + (size_t)c * DIM;
    }
    memcpy(packed, q, sizeof packed);
}

/* Scores that are weights too. */
static void scores_make(void)
{
    memset(states, 0, sizeof states);
    for (uint32_t r = 0; r < MOST_ROWS * BLOCK; r++)
        scores[r] = (float)(r % 91) * 0.01f;
}

/* ---- rows of pools ----------------------------------------------------------------------------------------------- */

static const kvb_codec_isa *codec_at(kvb_cpu_level level)
{
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++)
        if (!strcmp((*isa)->name, kvb_cpu_level_names[level]))
            return (*isa)->available() ? *isa : NULL;
    return NULL;
}

static bool codec_has(const part *p, kvb_cpu_level level)
{
    (void)p;
    return codec_at(level);
}

/* As a pool does: transform and encode row by row, or window by window. */
static void encode_run(const part *p, kvb_cpu_level level)
{
    const kvb_codec_isa *isa = codec_at(level);
    const kvb_format *f = p->type->format;
    const kvb_rule rule = kvb_pool_kind_of(p->type)->rule;
    const uint32_t n = rule == KVB_RULE_CHANNELS ? f->residual_cells : 1;
    const size_t row_bytes = kvb_codes_bytes(f, DIM);
    for (uint32_t r = 0; r + n <= CELLS; r += n) {
        const float *from = plain + r * DIM;
        for (uint32_t i = 0; f->transform && i < n; i++) {
            memcpy(turned + (r + i) * DIM, from + i * DIM, DIM * sizeof *from);
            isa->rotate(f->transform, DIM, false, turned + (r + i) * DIM);
        }
        isa->encode[rule](f, f->transform ? turned + r * DIM : from, n < 64 ? (1ull << n) - 1 : ~0ull, DIM, 1.0f,
                          codes + r * row_bytes, scales, zeros);
    }
}

static void decode_run(const part *p, kvb_cpu_level level)
{
    const kvb_codec_isa *isa = codec_at(level);
    const kvb_format *f = p->type->format;
    const size_t row_bytes = kvb_codes_bytes(f, DIM);
    for (uint32_t r = 0; r < CELLS; r++) {
        isa->decode[kvb_decode_rule(f)](f, codes + r * row_bytes, scales, zeros, DIM, 1.0f, turned + r * DIM);
        if (f->transform)
            isa->rotate(f->transform, DIM, true, turned + r * DIM);
    }
}

static bool vector_has(const part *p, kvb_cpu_level level)
{
    (void)p;
    return kvb_loops_own(level, offsetof(kvb_loops, vector));
}

static void load_run(const part *p, kvb_cpu_level level)
{
    kvb_load *load = kvb_vector_at(level)->load_of(p->view.format);
    for (uint32_t c = 0; c < CELLS; c += 16)
        load(&p->view, 0, cells + c, 16, loaded, DIM);
}

/* ---- inner loops over f16 ---------------------------------------------------------------------------------------- */

/* The same bits serve as f16 and as bf16. */
static kvb_stored_rows block_rows(const part *p, uint32_t cell)
{
    return (kvb_stored_rows){
        .elem = p->products == BF16 ? KVB_BF16 : KVB_F16, .n = BLOCK, .dim = DIM, .at = half_rows + cell};
}

static void dots_run(const part *p, kvb_cpu_level level)
{
    const kvb_loops *l = kvb_loops_at(level);
    kvb_dots_fn *dots = p->products == FLOATS ? l->vector->dots : p->products == F16 ? l->f16->dots : l->bf16->dots;
    const void *const *q_of = p->products == FLOATS ? (const void *const *)q_rows : encoded_rows;
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        const kvb_stored_rows rows = block_rows(p, c);
        dots(&rows, q_of, p->rows, scores);
    }
}

static void sums_run(const part *p, kvb_cpu_level level)
{
    const kvb_loops *l = kvb_loops_at(level);
    kvb_sums_fn *sum = p->products == FLOATS ? l->vector->sums : p->products == F16 ? l->f16->sums : l->bf16->sums;
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        const kvb_stored_rows rows = block_rows(p, c);
        sum(&rows, scores, p->rows, sum_rows);
    }
}

/* Weights serve as the next scores. */
static void weigh_run(const part *p, kvb_cpu_level level)
{
    float earlier[MOST_ROWS];
    kvb_vector_at(level)->weigh((kvb_logits){1, 0}, scores, BLOCK, p->rows, visible, state_rows, earlier);
}

static void cap_run(const part *p, kvb_cpu_level level)
{
    float earlier[MOST_ROWS];
    kvb_vector_at(level)->weigh((kvb_logits){0.03f, 50}, scores, BLOCK, p->rows, visible, state_rows, earlier);
}

static void pack_keys_run(const part *p, kvb_cpu_level level)
{
    (void)p;
    for (uint32_t c = 0; c < CELLS; c += BLOCK)
        kvb_vector_at(level)->pack_keys(KVB_F16, half_rows + c, BLOCK, DIM, packed);
}

static void pack_values_run(const part *p, kvb_cpu_level level)
{
    (void)p;
    for (uint32_t c = 0; c < CELLS; c += BLOCK)
        kvb_vector_at(level)->pack_values(KVB_F16, half_rows + c, BLOCK, DIM, packed);
}

static void score_product_run(const part *p, kvb_cpu_level level)
{
    kvb_vector_at(level)->product(p->rows, DIM, BLOCK, (const float *const *)q_rows, packed, BLOCK, score_rows, false);
}

static void sum_product_run(const part *p, kvb_cpu_level level)
{
    kvb_vector_at(level)->product(p->rows, BLOCK, DIM, (const float *const *)score_rows, packed, DIM, sum_rows, true);
}

static bool f16_has(const part *p, kvb_cpu_level level)
{
    (void)p;
    return kvb_loops_own(level, offsetof(kvb_loops, f16));
}

static bool bf16_has(const part *p, kvb_cpu_level level)
{
    (void)p;
    return kvb_loops_own(level, offsetof(kvb_loops, bf16));
}

/* ---- block products ---------------------------------------------------------------------------------------------- */

static bool int8_has(const part *p, kvb_cpu_level level)
{
    (void)p;
    const kvb_vector *v = kvb_vector_at(level);
    return v && v->int8_query && vector_has(p, level);
}

static void int8_query_run(const part *p, kvb_cpu_level level)
{
    for (uint32_t r = 0; r < p->rows; r++)
        kvb_vector_at(level)->int8_query(p->view.format, DIM, q_rows[r], encoded[r]);
}

static void int8_scores_run(const part *p, kvb_cpu_level level)
{
    for (uint32_t c = 0; c < CELLS; c += BLOCK)
        kvb_vector_at(level)->int8_scores(&p->view, 0, cells + c, BLOCK, encoded_rows, p->rows, scores, NULL, scratch);
}

static void int8_sums_run(const part *p, kvb_cpu_level level)
{
    for (uint32_t c = 0; c < CELLS; c += BLOCK)
        kvb_vector_at(level)->int8_sums(&p->view, 0, cells + c, BLOCK, scores, p->rows, sum_rows, NULL, scratch);
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

typedef struct sampling {
    const part *part;
    kvb_cpu_level level;
    uint32_t runs; /* of a sample */
} sampling;

/* The query rows as the level's own products take them. */
static void queries_make(const part *p, kvb_cpu_level level)
{
    const kvb_loops *l = kvb_loops_at(level);
    const kvb_format half = {.elem = p->products == BF16 ? KVB_BF16 : KVB_F16};
    kvb_query_fn *query = p->products == F16    ? l->f16->query
                          : p->products == BF16 ? l->bf16->query
                          : p->has == int8_has  ? l->vector->int8_query
                                                : NULL;
    for (uint32_t r = 0; r < p->rows && query; r++)
        query(p->products == FLOATS ? p->view.format : &half, DIM, q_rows[r], encoded[r]);
}

/* Nanoseconds a unit. */
static double part_take(void *ctx)
{
    const sampling *s = ctx;
    queries_make(s->part, s->level);
    s->part->run(s->part, s->level);
    const double start = now_ns();
    for (uint32_t i = 0; i < s->runs; i++)
        s->part->run(s->part, s->level);
    return (now_ns() - start) / (s->runs * s->part->units);
}

typedef struct parts {
    const kvb_bench_choice *choice;
    kvb_table *table;
    kvb_cpu_level level[KVB_CPU_LEVELS]; /* of the table's columns */
    uint32_t n_levels, n;
} parts;

/* A time whose median deviates by a quarter is not shown. */
static void figure_text(const double *samples, uint32_t n, int digits, char *text, size_t bytes)
{
    const kvb_bench_figure f = kvb_bench_figure_of(samples, n);
    if (n && f.mad < f.median / 4)
        snprintf(text, bytes, "%.*f", digits, f.median);
}

static int part_measure(parts *all, const part *p)
{
    static double ns[1 + KVB_CPU_LEVELS][MOST];
    sampling sampled[1 + KVB_CPU_LEVELS];
    kvb_contestant of[1 + KVB_CPU_LEVELS] = {{.take = cycle_take, .samples = ns[0], .limit = true}};
    char text[KVB_CPU_LEVELS][24] = {""}, cycles[24] = "";
    const char *row[3 + KVB_CPU_LEVELS] = {p->name, p->unit};
    uint32_t n = 1, column[1 + KVB_CPU_LEVELS];
    if (!all->choice->wants(all->choice->ctx, p->name))
        return 0;
    all->n++;
    scores_make();
    for (uint32_t l = 0; l < all->n_levels; l++) {
        if (!p->has(p, all->level[l]))
            continue;
        sampled[n] = (sampling){.part = p, .level = all->level[l], .runs = 1};
        const double one = part_take(&sampled[n]) * p->units;
        sampled[n].runs = 1 + (uint32_t)(SAMPLE_NS / fmax(one, 1));
        of[n] = (kvb_contestant){.take = part_take, .ctx = &sampled[n], .samples = ns[n]};
        column[n++] = l;
    }
    if (n == 1)
        return 0;
    const kvb_rounds rounds = {.least = LEAST, .most = MOST, .seconds = all->choice->seconds};
    kvb_rounds_run(&rounds, of, n);
    for (uint32_t i = 1; i < n; i++)
        figure_text(ns[i], of[i].n, 2, text[column[i]], sizeof *text);
    for (uint32_t i = 0; i < of[n - 1].n; i++) /* of the highest level, by rounds: a core changes its frequency */
        ns[n - 1][i] /= ns[0][i];
    figure_text(ns[n - 1], of[n - 1].n, 1, cycles, sizeof cycles);
    for (uint32_t l = 0; l < all->n_levels; l++)
        row[2 + l] = *text[l] ? text[l] : NULL;
    row[2 + all->n_levels] = *cycles ? cycles : NULL;
    kvb_progress_now("%s", p->name);
    return kvb_table_row(all->table, row);
}

/* The inner loops; rows ends with 0. */
static const struct loop {
    const char *name, *unit;
    void (*run)(const part *p, kvb_cpu_level level);
    bool (*has)(const part *p, kvb_cpu_level level);
    double units;
    bool by_rows; /* units are of each query row */
    uint32_t rows[4];
    products products;
} loops[] = {
    {"dots/f16", "cell", dots_run, vector_has, CELLS, false, {1, 4, 8}, FLOATS},
    {"sums/f16", "cell", sums_run, vector_has, CELLS, false, {1, 4, 8}, FLOATS},
    {"dots/f16 in f16", "cell", dots_run, f16_has, CELLS, false, {1, 4, 8}, F16},
    {"sums/f16 in f16", "cell", sums_run, f16_has, CELLS, false, {1, 4, 8}, F16},
    {"dots/bf16 in bf16", "cell", dots_run, bf16_has, CELLS, false, {1, 4, 8}, BF16},
    {"sums/bf16 in bf16", "cell", sums_run, bf16_has, CELLS, false, {1, 4, 8}, BF16},
    {"weigh", "row of 64", weigh_run, vector_has, 1, true, {4}, FLOATS},
    {"weigh softcap", "row of 64", cap_run, vector_has, 1, true, {4}, FLOATS},
    {"pack/f16 keys", "cell", pack_keys_run, vector_has, CELLS, false, {1}, FLOATS},
    {"pack/f16 values", "cell", pack_values_run, vector_has, CELLS, false, {1}, FLOATS},
    {"product 128x64", "row", score_product_run, vector_has, 1, true, {24, 64, 256}, FLOATS},
    {"product 64x128", "row", sum_product_run, vector_has, 1, true, {24, 64, 256}, FLOATS},
};

/* Of each format that integers multiply. */
static const struct loop blocks[] = {
    {"int8 query", "row", int8_query_run, int8_has, 1, true, {8}, FLOATS},
    {"int8 scores", "cell", int8_scores_run, int8_has, CELLS, false, {1, 4, 26}, FLOATS},
    {"int8 sums", "cell", int8_sums_run, int8_has, CELLS, false, {1, 4, 26}, FLOATS},
};

static int loop_measure(parts *all, const struct loop *l, const kvb_pool_type *type, const kvb_view *view)
{
    int error = 0;
    for (uint32_t r = 0; r < 4 && l->rows[r] && !error; r++) {
        part p = {l->unit, l->units * (l->by_rows ? l->rows[r] : 1), l->run, l->has, l->rows[r], l->products, type, {0},
                  ""};
        if (view)
            p.view = *view;
        char by_rows[16] = "";
        if (l->rows[1])
            snprintf(by_rows, sizeof by_rows, " x%u", l->rows[r]);
        snprintf(p.name, sizeof p.name, "%s%s%s%s", l->name, view ? "/" : "", view ? type->name : "", by_rows);
        error = part_measure(all, &p);
    }
    return error;
}

static bool int8_fits(const kvb_format *format)
{
    const kvb_problem p = {.k_format = format, .v_format = format, .k_dim = DIM, .v_dim = DIM};
    char why[200];
    return kvb_product_int8.fits(&p, why, sizeof why);
}

/* Coding, loading and block products of one pool. */
static int pool_measure(parts *all, const kvb_pool_type *type)
{
    kvb_allocator allocator = {0};
    const kvb_pool_options options = {
        .n_kv_heads = 1, .dim = DIM, .min_chunk = CELLS, .capacity = 2 * CELLS, .allocator = &allocator};
    kvb_pool *pool;
    kvb_view view;
    int error = type->open(type, &options, &pool);
    if (error)
        return error;
    error = type->ensure(pool, 2 * CELLS);
    for (uint32_t c = 0; c < 2 * CELLS && !error; c += CELLS) /* windows of the first half are closed */
        type->write_run(pool, c, CELLS, plain);
    if (!error)
        type->view(pool, CELLS, &view);
    for (const kvb_pool_type *form = type; form && !error; form = form->rotated) {
        const struct loop coding[] = {{"encode", "row", encode_run, codec_has, CELLS, false, {1}, FLOATS},
                                      {"decode", "row", decode_run, codec_has, CELLS, false, {1}, FLOATS}};
        encode_run(&(part){.type = form}, KVB_CPU_PORTABLE); /* what is decoded */
        for (int i = 0; i < 2 && !error; i++)
            error = loop_measure(all, &coding[i], form, &view);
    }
    const struct loop load = {"load", "row", load_run, vector_has, CELLS, false, {1}, FLOATS};
    if (!error)
        error = loop_measure(all, &load, type, &view);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks && !error && int8_fits(type->format); i++)
        error = loop_measure(all, &blocks[i], type, &view);
    type->close(pool);
    return error;
}

static void levels_find(parts *all)
{
    char why[128];
    for (kvb_cpu_level l = 0; l < KVB_CPU_LEVELS; l++)
        if (kvb_cpu_has(l, why, sizeof why) &&
            (vector_has(NULL, l) || f16_has(NULL, l) || bf16_has(NULL, l) || codec_at(l)))
            all->level[all->n_levels++] = l;
}

int kvb_bench_parts(const kvb_bench_choice *choice, uint32_t *n, FILE *out)
{
    parts all = {.choice = choice};
    char level[KVB_CPU_LEVELS][32];
    const char *headings[4 + KVB_CPU_LEVELS] = {"part", "ns a"};
    levels_find(&all);
    for (uint32_t l = 0; l < all.n_levels; l++) {
        snprintf(level[l], sizeof *level, ">%s", kvb_cpu_level_names[all.level[l]]);
        headings[2 + l] = level[l];
    }
    headings[2 + all.n_levels] = ">cycles";
    all.table = kvb_table_new(headings);
    if (!all.table)
        return -ENOMEM;
    data_make();
    int error = 0;
    for (size_t i = 0; i < sizeof loops / sizeof *loops && !error; i++)
        error = loop_measure(&all, &loops[i], NULL, NULL);
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type && !error; type++)
        error = pool_measure(&all, *type);
    *n += all.n;
    kvb_table_drop_empty(all.table);
    if (!error && all.n)
        error = kvb_table_print(all.table, choice->format, out);
    kvb_table_free(all.table);
    return error;
}
