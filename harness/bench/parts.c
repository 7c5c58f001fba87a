/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the parts of kernels at each level of instruction sets that this CPU has: coding rows, loading them as floats,
 * inner loops, block products. One thread, rows of 128 channels, data in the second-level cache. Levels and the probe
 * of a cycle take turns. As many runs before each sample do not count: a core takes a while to power up its wide units.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/cache.h"
#include "caches/pools/rows.h"
#include "harness/bench/bench.h"
#include "harness/program.h"
#include "harness/rounds.h"
#include "kernels/flash/flash.h"
#include "kernels/vector/vector.h"
#include "results/statistics.h"
#include "workloads/files.h"
#include "workloads/live/play.h"

enum { DIM = 128, CELLS = 512, MOST_ROWS = 256, LEAST = 5, MOST = 41 };
#define SAMPLE_NS 2e4 /* shortest sample */

/* The code that a part runs; a level may have its own: products of floats, of 16 bits, of integers; a codec. */
typedef enum code { FLOATS, F16, BF16, INT8, CODEC, CODES } code;

typedef struct part part;
struct part {
    const char *unit;
    double units; /* of a run */
    void (*run)(const part *p, kvb_cpu_level level);
    uint32_t rows; /* query rows */
    code code;
    const kvb_pool_type *type; /* pool of the stored rows in `view` */
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

/* Fills scores with numbers that also serve as weights. */
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

/* Does the level have such code of its own? */
static bool level_has(kvb_cpu_level level, code of)
{
    static const size_t loops[] = {offsetof(kvb_loops, vector), offsetof(kvb_loops, f16), offsetof(kvb_loops, bf16),
                                   offsetof(kvb_loops, vector)};
    return of == CODEC ? codec_at(level) != NULL : kvb_loops_own(level, loops[of]);
}

/* Transforms and encodes as a pool does: row by row, or window by window. */
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
        const kvb_coded to = {f, codes + r * row_bytes, scales, zeros, 1.0f, n < 64 ? (1ull << n) - 1 : ~0ull};
        isa->encode[rule](&to, f->transform ? turned + r * DIM : from, DIM);
    }
}

static void decode_run(const part *p, kvb_cpu_level level)
{
    const kvb_codec_isa *isa = codec_at(level);
    const kvb_format *f = p->type->format;
    const size_t row_bytes = kvb_codes_bytes(f, DIM);
    for (uint32_t r = 0; r < CELLS; r++) {
        const kvb_coded from = {f, codes + r * row_bytes, scales, zeros, 1.0f, 0};
        isa->decode[kvb_decode_rule(f)](&from, DIM, turned + r * DIM);
        if (f->transform)
            isa->rotate(f->transform, DIM, true, turned + r * DIM);
    }
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
        .elem = p->code == BF16 ? KVB_BF16 : KVB_F16, .n = BLOCK, .dim = DIM, .at = half_rows + cell};
}

static void dots_run(const part *p, kvb_cpu_level level)
{
    const kvb_loops *l = kvb_loops_at(level);
    kvb_dots_fn *dots = p->code == FLOATS ? l->vector->dots : p->code == F16 ? l->f16->dots : l->bf16->dots;
    const void *const *q_of = p->code == FLOATS ? (const void *const *)q_rows : encoded_rows;
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        const kvb_stored_rows rows = block_rows(p, c);
        dots(&rows, q_of, p->rows, scores);
    }
}

static void sums_run(const part *p, kvb_cpu_level level)
{
    const kvb_loops *l = kvb_loops_at(level);
    kvb_sums_fn *sum = p->code == FLOATS ? l->vector->sums : p->code == F16 ? l->f16->sums : l->bf16->sums;
    for (uint32_t c = 0; c < CELLS; c += BLOCK) {
        const kvb_stored_rows rows = block_rows(p, c);
        sum(&rows, scores, p->rows, sum_rows);
    }
}

/* The weights that a run makes are the next run's scores. */
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

/* ---- block products ---------------------------------------------------------------------------------------------- */

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
    uint32_t runs; /* in a sample */
} sampling;

/* Encodes the query rows for the level's products. */
static void queries_make(const part *p, kvb_cpu_level level)
{
    const kvb_loops *l = kvb_loops_at(level);
    const kvb_format half = {.elem = p->code == BF16 ? KVB_BF16 : KVB_F16};
    kvb_query_fn *query = p->code == F16    ? l->f16->query
                          : p->code == BF16 ? l->bf16->query
                          : p->code == INT8 ? l->vector->int8_query
                                            : NULL;
    for (uint32_t r = 0; r < p->rows && query; r++)
        query(p->code == INT8 ? p->view.format : &half, DIM, q_rows[r], encoded[r]);
}

/* Nanoseconds of a unit. */
static double part_take(void *ctx)
{
    const sampling *s = ctx;
    queries_make(s->part, s->level);
    for (uint32_t i = 0; i < s->runs; i++)
        s->part->run(s->part, s->level);
    const double start = kvb_thread_ns();
    for (uint32_t i = 0; i < s->runs; i++)
        s->part->run(s->part, s->level);
    return (kvb_thread_ns() - start) / (s->runs * s->part->units);
}

typedef struct parts {
    const kvb_bench_choice *choice;
    kvb_table *table;
    kvb_cpu_level level[KVB_CPU_LEVELS]; /* of the table's columns */
    uint32_t n_levels, n;
} parts;

static bool is_wanted(const kvb_bench_choice *choice, const char *name)
{
    return !kvb_stopped && kvb_words_match(choice->works, name);
}

/* A time is not printed if its median absolute deviation is a quarter of it or more. */
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
    if (!is_wanted(all->choice, p->name))
        return 0;
    all->n++;
    scores_make();
    for (uint32_t l = 0; l < all->n_levels; l++) {
        if (!level_has(all->level[l], p->code))
            continue;
        sampled[n] = (sampling){.part = p, .level = all->level[l], .runs = 1};
        while (part_take(&sampled[n]) * p->units * sampled[n].runs < SAMPLE_NS)
            sampled[n].runs *= 2;
        of[n] = (kvb_contestant){.take = part_take, .ctx = &sampled[n], .samples = ns[n]};
        column[n++] = l;
    }
    if (n == 1)
        return 0;
    const kvb_rounds rounds = {.least = LEAST, .most = MOST, .seconds = all->choice->seconds};
    kvb_rounds_run(&rounds, of, n);
    for (uint32_t i = 1; i < n; i++)
        figure_text(ns[i], of[i].n, 2, text[column[i]], sizeof *text);
    for (uint32_t i = 0; i < of[n - 1].n; i++) /* highest level: a core's clock may change, so divide in each round */
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
    double units;
    bool by_rows; /* units count for each query row */
    uint32_t rows[4];
    code code;
} loops[] = {
    {"dots/f16", "cell", dots_run, CELLS, false, {1, 4, 8}, FLOATS},
    {"sums/f16", "cell", sums_run, CELLS, false, {1, 4, 8}, FLOATS},
    {"dots/f16 in f16", "cell", dots_run, CELLS, false, {1, 4, 8}, F16},
    {"sums/f16 in f16", "cell", sums_run, CELLS, false, {1, 4, 8}, F16},
    {"dots/bf16 in bf16", "cell", dots_run, CELLS, false, {1, 4, 8}, BF16},
    {"sums/bf16 in bf16", "cell", sums_run, CELLS, false, {1, 4, 8}, BF16},
    {"weigh", "row of 64", weigh_run, 1, true, {4}, FLOATS},
    {"weigh softcap", "row of 64", cap_run, 1, true, {4}, FLOATS},
    {"pack/f16 keys", "cell", pack_keys_run, CELLS, false, {1}, FLOATS},
    {"pack/f16 values", "cell", pack_values_run, CELLS, false, {1}, FLOATS},
    {"product 128x64", "row", score_product_run, 1, true, {24, 64, 256}, FLOATS},
    {"product 64x128", "row", sum_product_run, 1, true, {24, 64, 256}, FLOATS},
};

/* Block products of each format that integers multiply. */
static const struct loop blocks[] = {
    {"int8 query", "row", int8_query_run, 1, true, {8}, INT8},
    {"int8 scores", "cell", int8_scores_run, CELLS, false, {1, 4, 26}, INT8},
    {"int8 sums", "cell", int8_sums_run, CELLS, false, {1, 4, 26}, INT8},
};

static int loop_measure(parts *all, const struct loop *l, const kvb_pool_type *type, const kvb_view *view)
{
    int error = 0;
    for (uint32_t r = 0; r < 4 && l->rows[r] && !error; r++) {
        part p = {l->unit, l->units * (l->by_rows ? l->rows[r] : 1), l->run, l->rows[r], l->code, type, {0}, ""};
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

/* Measures coding, loading and block products of one pool. */
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
    for (uint32_t c = 0; c < 2 * CELLS && !error; c += CELLS) /* the second half makes the pool encode the first */
        type->write_run(pool, c, CELLS, plain);
    if (!error)
        type->view(pool, CELLS, &view);
    for (const kvb_pool_type *form = type; form && !error; form = form->rotated) {
        const struct loop coding[] = {{"encode", "row", encode_run, CELLS, false, {1}, CODEC},
                                      {"decode", "row", decode_run, CELLS, false, {1}, CODEC}};
        encode_run(&(part){.type = form}, KVB_CPU_PORTABLE); /* input of decode */
        for (int i = 0; i < 2 && !error; i++)
            error = loop_measure(all, &coding[i], form, &view);
    }
    const struct loop load = {"load", "row", load_run, CELLS, false, {1}, FLOATS};
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
    for (kvb_cpu_level l = 0; l < KVB_CPU_LEVELS; l++) {
        bool any = false;
        for (code c = 0; c < CODES; c++)
            any |= level_has(l, c);
        if (any && kvb_cpu_has(l, why, sizeof why))
            all->level[all->n_levels++] = l;
    }
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

/*
 * Times the calls of a cache, by cells in use and live sequences, and counts the memory of its tables after all calls.
 * Rows are small, so moving bytes takes next to no time, except in calls that copy rows: forks and shifts of slab,
 * save, load. All sequences have equal length, each in one run of cells; then all decode together. Calls are made on
 * the last sequence; reorder moves all sequences on by one id; tree is a propose of 26 nodes and a commit of 4. Printed
 * times are medians of this thread's time.
 */
enum { CALL_DIM = 4, SAMPLES = 21, FEWEST = 3, CALLS = 64, NODES = 26, ACCEPTED = 4, DIVIDED = 16, SIZES = 3 };

static const kvb_model model = {.n_layers = 1,
                                .n_groups = 1,
                                .groups = {{.heads = 1,
                                            .kv_heads = 1,
                                            .k_dim = CALL_DIM,
                                            .v_dim = CALL_DIM,
                                            .scale = 1,
                                            .rope = {.known = true, .dims = CALL_DIM, .base = 10000}}}};

/* The calls: name here, name in the table, its unit, nanoseconds of one such unit. */
#define CALLS_OF(V)                                                                                                    \
    V(STEP_ALL, "step all", "ns a token", 1)                                                                           \
    V(STEP_ONE, "step one", "ns", 1)                                                                                   \
    V(SEQ_RM, "seq_rm", "ns", 1)                                                                                       \
    V(SEQ_CP, "seq_cp", "ns", 1)                                                                                       \
    V(REORDER, "reorder", "ns a sequence", 1)                                                                          \
    V(SEQ_ADD, "seq_add", "ns", 1)                                                                                     \
    V(SEQ_DIV, "seq_div", "ns", 1)                                                                                     \
    V(DEFRAG, "defrag", "us", 1e3)                                                                                     \
    V(TREE, "tree", "ns a node", 1)                                                                                    \
    V(MATCH, "match", "us", 1e3)                                                                                       \
    V(SAVE, "save", "us", 1e3)                                                                                         \
    V(LOAD, "load", "us", 1e3)                                                                                         \
    V(CLEAR, "clear", "us", 1e3)                                                                                       \
    V(TABLES, "tables", "KiB", 1)
#define NUMBER(verb, ...) verb,
#define ROW(verb, ...)    {__VA_ARGS__},
typedef enum verb { CALLS_OF(NUMBER) VERBS } verb;
static const struct {
    const char *name, *unit;
    double ns;
} verbs[VERBS] = {CALLS_OF(ROW)};

typedef struct bench {
    const kvb_cache_type *type;
    uint32_t cells, sequences;
    kvb_slot_files *files;
    kvb_allocator allocator;
    kvb_cache *cache;
    int error;
    uint32_t n[VERBS];
    double ns[VERBS][SAMPLES];
} bench;

/* Keeps the first error. Later times are not printed. */
static void must(bench *b, int error)
{
    if (error && !b->error)
        b->error = error;
}

static int32_t prompt_token(const bench *b, uint32_t seq, uint32_t pos)
{
    return (int32_t)(seq * (b->cells / b->sequences) + pos);
}

static void note(bench *b, verb v, double ns)
{
    if (b->n[v] < SAMPLES)
        b->ns[v][b->n[v]++] = ns;
}

/* Adds n tokens with their rows to a sequence. No two sequences begin with the same token. */
static void prefill(bench *b, uint32_t seq, uint32_t n)
{
    static int32_t tokens[KVB_PLAY_STEP];
    const uint32_t length = kvb_cache_length(b->cache, seq);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = prompt_token(b, seq, length + i);
    must(b, kvb_play_tokens(b->cache, seq, tokens, n));
}

/* Fills each sequence's part of the cells. */
static void fill(bench *b)
{
    for (uint32_t s = 0; s < b->sequences; s++)
        for (uint32_t left = b->cells / b->sequences, n; left && !b->error; left -= n) {
            n = left < KVB_PLAY_STEP ? left : KVB_PLAY_STEP;
            prefill(b, s, n);
        }
}

/* ---- cycles of calls: each leaves about as many tokens as it found --------------------------------------------- */

static void steps(bench *b)
{
    static uint32_t ids[KVB_MAX_SEQS];
    for (uint32_t s = 0; s < b->sequences; s++)
        ids[s] = s;
    double start = kvb_thread_ns();
    must(b, kvb_cache_begin_step(b->cache, ids, b->sequences));
    double between = kvb_thread_ns();
    for (uint32_t i = 0; i < CALLS; i++)
        must(b, kvb_cache_begin_step(b->cache, &ids[i % b->sequences], 1));
    note(b, STEP_ONE, (kvb_thread_ns() - between) / CALLS);
    note(b, STEP_ALL, (between - start) / b->sequences);
}

/* Each sequence becomes a copy of the next one. */
static void reorder(bench *b)
{
    static uint32_t dst[KVB_MAX_SEQS], src[KVB_MAX_SEQS];
    for (uint32_t s = 0; s < b->sequences; s++) {
        dst[s] = s;
        src[s] = (s + 1) % b->sequences;
    }
    double start = kvb_thread_ns();
    must(b, kvb_cache_seq_reorder(b->cache, dst, src, b->sequences));
    note(b, REORDER, (kvb_thread_ns() - start) / b->sequences);
}

/* Moves the last sequence by a position, there and back. The step that turns its rows is not timed. */
static void shift(bench *b)
{
    const uint32_t last = b->sequences - 1;
    for (int32_t delta = 1; delta >= -1; delta -= 2) {
        double start = kvb_thread_ns();
        must(b, kvb_cache_seq_add(b->cache, last, 0, KVB_POS_END, delta));
        if (delta > 0)
            note(b, SEQ_ADD, kvb_thread_ns() - start);
        must(b, kvb_cache_begin_step(b->cache, &last, 1));
    }
}

/* Proposes a binary tree behind the last sequence and commits a path. */
static void tree(bench *b)
{
    static const uint32_t accepted[ACCEPTED] = {0, 1, 3, 7};
    uint32_t ids[NODES];
    int32_t parents[NODES];
    for (int i = 0; i < NODES; i++) {
        ids[i] = b->sequences - 1;
        parents[i] = i ? (i - 1) / 2 : -1;
    }
    double start = kvb_thread_ns();
    must(b, kvb_cache_propose(b->cache, ids, parents, NODES));
    must(b, kvb_cache_commit(b->cache, b->sequences - 1, accepted, ACCEPTED));
    note(b, TREE, (kvb_thread_ns() - start) / NODES);
}

/* Removes the last sequence and matches its prompt. */
static void match(bench *b)
{
    const uint32_t n = b->cells / b->sequences, last = b->sequences - 1;
    int32_t *tokens = malloc(n * sizeof *tokens);
    const uint64_t *ordinals;
    uint32_t found;
    if (!tokens) {
        must(b, -ENOMEM);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = prompt_token(b, last, i);
    must(b, kvb_cache_seq_rm(b->cache, last, 0, KVB_POS_END));
    double start = kvb_thread_ns();
    must(b, kvb_cache_seq_match(b->cache, last, tokens, n, 0, &found, &ordinals));
    note(b, MATCH, kvb_thread_ns() - start);
    free(tokens);
}

/* Saves the last sequence, removes it and loads it. */
static void saved(bench *b)
{
    const char *path = kvb_slot_files_path(b->files, 0);
    const uint32_t last = b->sequences - 1;
    prefill(b, last, 1); /* the step under way must have its rows */
    double start = kvb_thread_ns();
    must(b, kvb_cache_save(b->cache, last, path));
    note(b, SAVE, kvb_thread_ns() - start);
    must(b,
         b->type->flags & KVB_CACHE_SEQ ? kvb_cache_seq_rm(b->cache, last, 0, KVB_POS_END) : kvb_cache_clear(b->cache));
    start = kvb_thread_ns();
    must(b, kvb_cache_load(b->cache, last, path));
    note(b, LOAD, kvb_thread_ns() - start);
}

/* Removes the last sequence and forks it from the first. */
static void forks(bench *b)
{
    if (b->sequences == 1)
        return;
    double start = kvb_thread_ns();
    must(b, kvb_cache_seq_rm(b->cache, b->sequences - 1, 0, KVB_POS_END));
    double between = kvb_thread_ns();
    must(b, kvb_cache_seq_cp(b->cache, 0, b->sequences - 1, 0, KVB_POS_END));
    note(b, SEQ_CP, kvb_thread_ns() - between);
    note(b, SEQ_RM, between - start);
}

/* Divides the first positions of the last sequence by 2, in later runs again. The step that turns its rows is not
 * timed. */
static void divide(bench *b)
{
    const uint32_t last = b->sequences - 1;
    double start = kvb_thread_ns();
    must(b, kvb_cache_seq_div(b->cache, last, 0, DIVIDED, 2));
    note(b, SEQ_DIV, kvb_thread_ns() - start);
    must(b, kvb_cache_begin_step(b->cache, &last, 1));
}

/* Puts all cells in order. Few are out of order, so the time is mostly that of the search. */
static void defrag(bench *b)
{
    double start = kvb_thread_ns();
    must(b, kvb_cache_defrag(b->cache));
    note(b, DEFRAG, kvb_thread_ns() - start);
}

static void clear(bench *b)
{
    double start = kvb_thread_ns();
    must(b, kvb_cache_clear(b->cache));
    note(b, CLEAR, kvb_thread_ns() - start);
    fill(b);
}

/* The cycles run in this order. */
static const struct cycle {
    uint32_t flags;  /* KVB_CACHE_… that the cycle needs; 0: none */
    uint32_t longer; /* tokens that it adds to a sequence */
    void (*run)(bench *);
} cache_cycles[] = {{0, 1 + CALLS, steps},
                    {KVB_CACHE_PREFIX, 0, match},
                    {KVB_CACHE_REORDER, 0, reorder},
                    {KVB_CACHE_SHIFT, 3, shift},
                    {KVB_CACHE_TREE, ACCEPTED, tree},
                    {KVB_CACHE_SAVES, 1, saved},
                    {KVB_CACHE_SEQ, 0, forks},
                    {KVB_CACHE_DIVIDE, 1, divide},
                    {KVB_CACHE_SHIFT, 0, defrag},
                    {0, 0, clear}};
#define CYCLES (sizeof cache_cycles / sizeof *cache_cycles)

typedef struct call_sampling {
    bench *bench;
    const struct cycle *cycle;
} call_sampling;

static double calls_take(void *ctx)
{
    const call_sampling *s = ctx;
    const double start = kvb_thread_ns();
    s->cycle->run(s->bench);
    return s->bench->error ? NAN : kvb_thread_ns() - start;
}

static void cycle_sample(bench *b, const struct cycle *cycle, double seconds)
{
    call_sampling s = {b, cycle};
    kvb_contestant one = {.take = calls_take, .ctx = &s, .limit = true};
    uint32_t before[VERBS];
    memcpy(before, b->n, sizeof before);
    cycle->run(b); /* tables grow here: not timed */
    memcpy(b->n, before, sizeof before);
    kvb_rounds_run(&(kvb_rounds){.least = FEWEST, .most = SAMPLES, .seconds = seconds}, &one, 1);
}

/* Measures all calls of the cache with b->sequences and b->cells. 0 or -errno. */
static int bench_run(bench *b, double seconds)
{
    char why[200];
    uint32_t length = b->cells / b->sequences + NODES;
    for (size_t i = 0; i < CYCLES; i++)
        length += (SAMPLES + 1) * cache_cycles[i].longer;
    const kvb_cache_options options = {.capacity = b->sequences * length,
                                       .seq_capacity = length,
                                       .seq_ids = b->sequences,
                                       .max_seqs = b->sequences,
                                       .min_chunk = 256,
                                       .k_pool = kvb_builtin_pools[0],
                                       .v_pool = kvb_builtin_pools[0],
                                       .allocator = &b->allocator};
    int error = kvb_cache_open(b->type, &model, &options, &b->cache, why, sizeof why);
    if (error)
        return error;
    fill(b);
    for (size_t i = 0; i < CYCLES && !b->error; i++)
        if (!cache_cycles[i].flags || b->type->flags & cache_cycles[i].flags)
            cycle_sample(b, &cache_cycles[i], seconds);
    kvb_cache_usage usage;
    kvb_cache_usage_of(b->cache, 0, &usage);
    note(b, TABLES, (double)(b->allocator.current_bytes - usage.reserved_bytes) / 1024);
    kvb_cache_close(b->cache);
    return b->error;
}

static void name_make(const bench *b, verb v, char name[64])
{
    snprintf(name, 64, "%s/%s x%u", verbs[v].name, b->type->name, b->sequences);
}

/* Adds a row for each call of the cache with b->sequences. */
static int cache_measure(const kvb_bench_choice *choice, bench *b, kvb_table *table)
{
    static const uint32_t sizes[SIZES] = {1u << 10, 1u << 16, 1u << 20};
    char text[VERBS][SIZES][24] = {{""}}, name[64];
    bool wanted = false;
    for (verb v = 0; v < VERBS; v++) {
        name_make(b, v, name);
        wanted |= is_wanted(choice, name);
    }
    for (int i = 0; i < SIZES && wanted; i++) {
        if (sizes[i] < b->sequences)
            continue;
        kvb_progress_now("%s, %u sequences, %u cells", b->type->name, b->sequences, sizes[i]);
        *b = (bench){.type = b->type, .sequences = b->sequences, .cells = sizes[i], .files = b->files};
        const int error = bench_run(b, choice->seconds);
        if (error)
            return error;
        for (verb v = 0; v < VERBS; v++)
            if (b->n[v])
                snprintf(text[v][i], sizeof **text, "%.*f", verbs[v].ns > 1 || v == TABLES,
                         kvb_quantile(b->ns[v], b->n[v], 0.5) / verbs[v].ns);
    }
    for (verb v = 0; v < VERBS; v++) {
        name_make(b, v, name);
        if (!b->n[v] || !is_wanted(choice, name))
            continue;
        kvb_table_row(table, (const char *[]){name, verbs[v].unit, text[v][0], text[v][1], text[v][2]});
    }
    return 0;
}

int kvb_bench_calls(const kvb_bench_choice *choice, uint32_t *n, FILE *out)
{
    static const kvb_cache_type *const types[] = {
        &kvb_cache_contiguous,   &kvb_cache_seq,           &kvb_cache_slab, &kvb_cache_paged,
        &kvb_cache_paged_prefix, &kvb_cache_shared_prefix, &kvb_cache_tree};
    static const uint32_t alive[] = {1, 64, KVB_MAX_SEQS};
    static bench b;
    char why[512];
    kvb_slot_files files;
    kvb_table *table =
        kvb_table_new((const char *const[]){"call", "unit", ">1k cells", ">64k cells", ">1M cells", NULL});
    int error = kvb_slot_files_open(&files, why, sizeof why);
    for (size_t t = 0; t < sizeof types / sizeof *types && !error; t++)
        for (int s = 0; s < 3 && !error; s++) {
            b = (bench){.type = types[t], .sequences = alive[s], .files = &files};
            if (s == 0 || types[t]->flags & KVB_CACHE_SEQ)
                error = cache_measure(choice, &b, table);
        }
    kvb_slot_files_close(&files);
    *n += (uint32_t)kvb_table_rows(table);
    if (!error && (!table || kvb_table_rows(table)))
        error = kvb_table_print(table, choice->format, out);
    kvb_table_free(table);
    return error;
}
