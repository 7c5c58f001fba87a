/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a row of 128 channels costs as floats: for every format, read by the pool and loaded at each level, as stored
 * (without the transform). Nanoseconds and cycles a row, the data in the second-level cache. `load [WORD]`: only formats
 * whose name has that word.
 *
 * Ways, and the measuring of a cycle, take turns, sample by sample, so that drift of the machine falls on all alike; medians are
 * printed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/pool.h"
#include "harness/bench/cycles.h"
#include "kernels/vector/vector.h"
#include "results/statistics.h"

enum { DIM = 128, CELLS = 512, SAMPLES = 41, AT_ONCE = 16, READ = KVB_CPU_LEVELS, CYCLE, WAYS };

static _Alignas(64) float rows[CELLS * DIM], loaded[AT_ONCE * DIM];
static double ns[WAYS][SAMPLES];

static void block_read(const kvb_view *v, kvb_load *load)
{
    uint32_t cells[AT_ONCE];
    for (uint32_t c = 0; c < CELLS; c += AT_ONCE) {
        for (uint32_t i = 0; i < AT_ONCE; i++)
            cells[i] = c + i;
        if (load)
            load(v, 0, cells, AT_ONCE, loaded, DIM);
        else
            v->format->read(v, 0, c, AT_ONCE, loaded);
    }
}

/* Levels that this CPU has, and that do not load as the one below does. */
static bool shown(int way)
{
    char why[128];
    return way == READ || (kvb_cpu_has((kvb_cpu_level)way, why, sizeof why) &&
                           kvb_loops_own((kvb_cpu_level)way, offsetof(kvb_loops, vector)));
}

static void sample(const kvb_view *v, int s)
{
    for (int way = 0; way <= READ; way++) {
        if (!shown(way))
            continue;
        kvb_load *load = way < READ ? kvb_vector_at((kvb_cpu_level)way)->load_of(v->format) : NULL;
        block_read(v, load); /* once untimed: a core takes a while to wake its wide units */
        double start = now_ns();
        block_read(v, load);
        if (s >= 0)
            ns[way][s] = (now_ns() - start) / CELLS;
    }
    if (s >= 0)
        ns[CYCLE][s] = cycle_ns();
}

static void format_print(const kvb_pool_type *type)
{
    kvb_allocator a = {0};
    kvb_pool_options o = {.n_kv_heads = 1,
                          .dim = DIM,
                          .min_chunk = CELLS,
                          .capacity = 2 * CELLS,
                          .growth = KVB_GROWTH_DOUBLE,
                          .allocator = &a};
    kvb_pool *pool;
    kvb_view v;
    if (type->open(type, &o, &pool) || type->ensure(pool, 2 * CELLS))
        exit(1);
    for (uint32_t c = 0; c < 2 * CELLS; c += CELLS) /* windows of the first half are closed */
        type->write_run(pool, c, CELLS, rows);
    type->view(pool, CELLS, &v);
    for (int s = -2; s < SAMPLES; s++)
        sample(&v, s);
    double cycle = kvb_quantile(ns[CYCLE], SAMPLES, 0.5);
    printf("%-16s", type->name);
    for (int way = 0; way <= READ; way++) {
        if (!shown(way))
            continue;
        double m = kvb_quantile(ns[way], SAMPLES, 0.5);
        printf("  %7.1f ns %6.1f", m, m / cycle);
    }
    printf("\n");
    type->close(pool);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (uint32_t i = 0, x = 1; i < CELLS * DIM; i++) { /* roughly normal: four uniform numbers */
        float sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (float)((x = x * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f;
        rows[i] = sum * 1.7f;
    }
    printf("ns, cycles       ");
    for (int way = 0; way < READ; way++)
        if (shown(way))
            printf("%-19s", kvb_cpu_level_names[way]);
    printf("format->read\n");
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++)
        if (strstr((*type)->name, word))
            format_print(*type);
    return 0;
}
