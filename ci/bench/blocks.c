/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What block products (kernels/vector/vector.h) cost: cycles for a query row that is encoded; cycles a cell for the
 * scores and for the sums of blocks of 64 cells, rows of 128 channels, beside what f32 would take at the peak of its
 * multiply-adds. `blocks [WORD [LEVEL]]`: only lines whose name, int8/q8_0, has that word; another level of instruction
 * sets than the best.
 *
 * A cycle is what one of a chain of dependent additions takes, measured anew before each sample, as a core changes its
 * frequency; medians of the samples are printed. All blocks together fit the second-level cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/pool.h"
#include "harness/bench/cycles.h"
#include "kernels/flash/flash.h"
#include "results/statistics.h"

enum { DIM = 128, CELLS = 1024, MAX_ROWS = 104, SAMPLES = 41 };

static float row[DIM], q[MAX_ROWS][DIM];
static _Alignas(64) float scores[MAX_ROWS][BLOCK], weights[MAX_ROWS][BLOCK], sums[MAX_ROWS][DIM];
static _Alignas(64) char scratch[1 << 17], encoded[MAX_ROWS][1024];
static const void *queries[MAX_ROWS];
static float *sums_of[MAX_ROWS];
static uint32_t cells[CELLS];

/* Block products of one kind. */
typedef struct kind {
    const char *name;
    const kvb_product *product; /* which formats it takes */
    kvb_query_fn *query;        /* NULL where the level has none */
    kvb_block_scores_fn *scores;
    kvb_block_sums_fn *sums;
} kind;

typedef struct work {
    const kind *kind;
    kvb_view view;
    uint32_t rows;
    enum { QUERIES, SCORES, SUMS } part;
} work;

static void part_run(const work *w)
{
    for (uint32_t r = 0; r < MAX_ROWS && w->part == QUERIES; r++)
        w->kind->query(w->view.format, DIM, q[r], encoded[r]);
    for (uint32_t c = 0; c < CELLS && w->part != QUERIES; c += BLOCK)
        if (w->part == SUMS)
            w->kind->sums(&w->view, 0, cells + c, BLOCK, weights[0], w->rows, sums_of, NULL, scratch);
        else
            w->kind->scores(&w->view, 0, cells + c, BLOCK, queries, w->rows, scores[0], NULL, scratch);
}

/* Cycles a query row, or a cell. */
static double part_measure(work *w, int part)
{
    w->part = part;
    const uint32_t times = part == QUERIES ? 20 : 1 + 7 / w->rows, units = part == QUERIES ? MAX_ROWS : CELLS;
    double cycles[SAMPLES];
    for (int s = -1; s < SAMPLES; s++) { /* the first is warm-up */
        double one = cycle_ns(), start = now_ns();
        for (uint32_t i = 0; i < times; i++)
            part_run(w);
        if (s >= 0)
            cycles[s] = (now_ns() - start) / (times * units) / one;
    }
    return kvb_quantile(cycles, SAMPLES, 0.5);
}

static bool fits(const kind *k, const kvb_format *format)
{
    const kvb_problem p = {.k_format = format, .v_format = format, .k_dim = DIM, .v_dim = DIM};
    char why[200];
    return k->product->fits(&p, why, sizeof why);
}

static void format_print(const char *name, const kvb_pool_type *type, const kind *products, kvb_allocator *a)
{
    static const uint32_t counts[] = {1, 2, 4, 8, 26, 104};
    kvb_pool_options options = {.n_kv_heads = 1, .dim = DIM, .min_chunk = CELLS, .capacity = CELLS, .allocator = a};
    kvb_pool *pool;
    work w = {.kind = products};

    if (type->open(type, &options, &pool) || type->ensure(pool, CELLS))
        exit(1);
    for (uint32_t c = 0; c < CELLS; c++) {
        for (uint32_t i = 0; i < DIM; i++)
            row[i] = (float)(rand() % 2001 - 1000) * 0.001f;
        type->write_run(pool, c, 1, row);
    }
    type->view(pool, CELLS, &w.view);
    for (uint32_t r = 0; r < MAX_ROWS; r++)
        queries[r] = encoded[r];
    printf("%-18s %6.0f", name, part_measure(&w, QUERIES));
    for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        w.rows = counts[i];
        double k = part_measure(&w, SCORES), v = part_measure(&w, SUMS);
        printf(" %6.1f %6.1f %4.2f", k, v, (k + v) / (w.rows * 2 * DIM / 32.0));
    }
    printf("\n");
    type->close(pool);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "", *name = argc > 2 ? argv[2] : kvb_cpu_level_names[kvb_cpu()];
    const kvb_loops *loops = NULL;
    kvb_allocator allocator = {0};
    char why[200], line[64];

    for (kvb_cpu_level level = 0; level < KVB_CPU_LEVELS; level++)
        if (strcmp(name, kvb_cpu_level_names[level]) == 0 && kvb_cpu_has(level, why, sizeof why))
            loops = kvb_loops_at(level);
    if (!loops) {
        fprintf(stderr, "this machine cannot run %s\n", name);
        return 1;
    }
    for (uint32_t c = 0; c < CELLS; c++)
        cells[c] = c;
    for (uint32_t r = 0; r < MAX_ROWS; r++) {
        for (uint32_t i = 0; i < DIM; i++)
            q[r][i] = (float)(rand() % 2001 - 1000) * 0.001f;
        for (uint32_t i = 0; i < BLOCK; i++)
            weights[r][i] = (float)(rand() % 1000) * 0.001f;
        sums_of[r] = sums[r];
    }
    printf("%s, rows of %d channels: cycles to encode a query row; cycles a cell for scores and sums, and their share "
           "of the\n"
           "time that f32 takes with two multiply-adds of 16 lanes a cycle\n"
           "                    query  1 row               2 rows              4 rows"
           "              8 rows              26 rows             104 rows\n",
           name, DIM);

    const kvb_vector *v = loops->vector;
    const kvb_bf16_loops bf16 = loops->bf16 ? *loops->bf16 : (kvb_bf16_loops){0};
    const kind kinds[] = {{"int8", &kvb_product_int8, v->int8_query, v->int8_scores, v->int8_sums},
                          {"bf16", &kvb_product_bf16, bf16.query, bf16.block_scores, bf16.block_sums}};
    for (const kind *k = kinds; k < kinds + sizeof kinds / sizeof *kinds && k->query; k++)
        for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++) {
            snprintf(line, sizeof line, "%s/%s", k->name, (*type)->name);
            if (fits(k, (*type)->format) && strstr(line, word))
                format_print(line, *type, k, &allocator);
        }
    return 0;
}
