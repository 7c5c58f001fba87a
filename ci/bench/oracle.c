/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-oracle: what exact attention costs the oracle, of one thread's time, by format and by cells: storing a row of K or V; a visit (one
 * query row meets one cell) with all sums that a bound is made of; a visit of the second opinion. Medians, in turns.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "caches/pools/pool.h"
#include "oracle/oracle.h"
#include "results/statistics.h"

enum { KV_HEADS = 2, HEADS = 8, DIM = 128, STEPS = 64, SAMPLES = 5 };

typedef enum way { STORED, IN_FULL, GLANCED, WAYS } way;

static void run_here(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    part(ctx, 0, team->n);
}

static const kvb_team alone = {1, run_here};

static void must(int error, const char *why)
{
    if (!error)
        return;
    fprintf(stderr, "bench-oracle: %s\n", *why ? why : strerror(-error));
    exit(1);
}

/* A sequence of so many cells, and STEPS tokens that see them. */
static kvb_trace *trace_make(uint32_t cells)
{
    char why[512] = "", path[] = "/tmp/kvb-bench-oracle-XXXXXX";
    kvb_trace *trace;
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    must(file ? 0 : -1, "no room for a trace in /tmp");
    fprintf(
        file,
        "{\"kvbench_trace\":2,\"name\":\"bench\",\"source\":\"bench\",\"model\":{\"kv_cache.schema_version\":2,"
        "\"kv_cache.layers\":1,\"groups\":[{\"layers\":[0],\"heads\":%d,\"kv_heads\":%d,\"k_dim\":%d,\"v_dim\":%d}]},"
        "\"values\":{\"profile\":\"gaussian\",\"seed\":1}}\n{\"fill\":{\"seq\":0,\"n\":%u}}\n",
        HEADS, KV_HEADS, DIM, DIM, cells);
    for (uint32_t i = 0; i < STEPS; i++)
        fprintf(file, "{\"step\":{\"pos\":[%u],\"seq\":[0]}}\n", cells + i);
    fclose(file);
    int error = kvb_trace_load(path, 0, &trace, why, sizeof why);
    remove(path);
    must(error, why);
    return trace;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double oracle_time(const kvb_trace *trace, const kvb_values *values, const kvb_pool_type *pool, way how)
{
    kvb_oracle_options options = {.k_format = pool->format,
                                  .v_format = pool->format,
                                  .team = &alone,
                                  .max_pairs = how == IN_FULL ? UINT64_MAX : 0,
                                  .opinion_pairs = how == GLANCED ? UINT64_MAX : 0};
    char why[512] = "";
    kvb_oracle *oracle;
    double begun = seconds();
    must(kvb_oracle_open(trace, values, &options, &oracle, why, sizeof why), why);
    double took = seconds() - begun;
    kvb_oracle_free(oracle);
    return took;
}

static void format_bench(const kvb_pool_type *pool, const kvb_trace *trace, uint32_t cells)
{
    static double took[WAYS][SAMPLES];
    double each[WAYS], visits = (double)STEPS * HEADS * (cells + (STEPS + 1) / 2.0);
    char why[512] = "";
    kvb_values *values;
    must(kvb_values_open(trace, NULL, 0, NULL, NULL, &values, why, sizeof why), why);
    for (int s = 0; s < SAMPLES; s++)
        for (way w = STORED; w < WAYS; w++)
            took[w][s] = oracle_time(trace, values, pool, w);
    for (way w = STORED; w < WAYS; w++)
        each[w] = kvb_quantile(took[w], SAMPLES, 0.5);
    printf("%-12s %8u %12.1f %12.2f %12.2f\n", pool->name, cells,
           each[STORED] * 1e9 / (2.0 * KV_HEADS * (cells + STEPS)), (each[IN_FULL] - each[STORED]) * 1e9 / visits,
           (each[GLANCED] - each[STORED]) * 1e9 / visits);
    kvb_values_free(values);
}

int main(void)
{
    static const uint32_t lengths[] = {256, 1024, 4096, 16384};
    printf("ns on one thread, rows of %d channels, %d query heads over %d KV heads\n\n", DIM, HEADS, KV_HEADS);
    printf("%-12s %8s %12s %12s %12s\n", "format", "cells", "store a row", "in full", "glance");
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        kvb_trace *trace = trace_make(lengths[l]);
        for (const kvb_pool_type *const *pool = kvb_builtin_pools; *pool; pool++)
            if (!strcmp((*pool)->name, "f32") || !strcmp((*pool)->name, "q8_0") || !strcmp((*pool)->name, "a4g64"))
                format_bench(*pool, trace, lengths[l]);
        kvb_trace_free(trace);
    }
    return 0;
}
