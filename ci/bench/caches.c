/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the bookkeeping of a cache costs: nanoseconds for each control call, by the cells in use, by the sequences that are alive
 * and by the ids that are allowed; and the memory of its tables. `caches [WORD]`: only caches whose name has that word, or defrag.
 *
 * The rows are small, so that next to nothing of a call is bytes; of slab, a fork is. Every sequence holds as many tokens as the
 * others, in one run of cells; then all decode together. Medians.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "ci/bench/cycles.h"
#include "kernels/kernels.h"
#include "results/statistics.h"

enum { DIM = 4, SAMPLES = 21, ROUNDS = 3, CALLS = 64, PREFILL = 4096 };

static const kvb_model model = {
    .n_layers = 1, .n_groups = 1, .groups = {{.heads = 1, .kv_heads = 1, .k_dim = DIM, .v_dim = DIM, .scale = 1}}};

typedef enum verb { STEP_ALL, STEP_ONE, SEQ_RM, SEQ_CP, CLEAR, VERBS } verb;

typedef struct bench {
    const kvb_cache_type *type;
    uint32_t cells, sequences, ids;
    kvb_allocator allocator;
    kvb_cache *cache;
    double ns[VERBS][SAMPLES];
    double tables; /* bytes */
} bench;

static void must(const bench *b, int error)
{
    if (!error)
        return;
    fprintf(stderr, "%s: %s\n", b->type->name, kvb_cache_why(b->cache));
    exit(1);
}

/* Each sequence is given its part of the cells. */
static void fill(bench *b)
{
    static uint32_t ids[PREFILL];
    for (uint32_t s = 0; s < b->sequences; s++)
        for (uint32_t left = b->cells / b->sequences, n; left; left -= n) {
            n = left < PREFILL ? left : PREFILL;
            for (uint32_t i = 0; i < n; i++)
                ids[i] = s;
            must(b, kvb_cache_begin_step(b->cache, ids, n));
        }
}

static void steps_time(bench *b)
{
    static uint32_t ids[KVB_MAX_SEQS];
    for (uint32_t s = 0; s < b->sequences; s++)
        ids[s] = s;
    for (int s = -1; s < SAMPLES; s++) { /* the first is warm-up, for which tables grow */
        double start = now_ns();
        must(b, kvb_cache_begin_step(b->cache, ids, b->sequences));
        double between = now_ns();
        for (uint32_t i = 0; i < CALLS; i++)
            must(b, kvb_cache_begin_step(b->cache, &ids[i % b->sequences], 1));
        if (s >= 0) {
            b->ns[STEP_ALL][s] = (between - start) / b->sequences;
            b->ns[STEP_ONE][s] = (now_ns() - between) / CALLS;
        }
    }
}

/* The last sequence leaves and comes again as a fork of the first. */
static void forks_time(bench *b)
{
    for (int s = 0; s < SAMPLES && b->sequences > 1; s++) {
        double start = now_ns();
        must(b, kvb_cache_seq_rm(b->cache, b->sequences - 1, 0, KVB_POS_END));
        double between = now_ns();
        must(b, kvb_cache_seq_cp(b->cache, 0, b->sequences - 1, 0, KVB_POS_END));
        b->ns[SEQ_RM][s] = between - start;
        b->ns[SEQ_CP][s] = now_ns() - between;
    }
}

static void bench_run(bench *b)
{
    char why[200];
    uint32_t length = b->cells / b->sequences + (SAMPLES + 1) * (1 + CALLS);
    const kvb_cache_options options = {.capacity = b->sequences * length,
                                       .seq_capacity = length,
                                       .seq_ids = b->ids,
                                       .max_seqs = b->sequences,
                                       .min_chunk = 256,
                                       .k_pool = kvb_builtin_pools[0],
                                       .v_pool = kvb_builtin_pools[0],
                                       .allocator = &b->allocator};
    if (kvb_cache_open(b->type, &model, &options, &b->cache, why, sizeof why)) {
        fprintf(stderr, "%s: %s\n", b->type->name, why);
        exit(1);
    }
    for (int r = 0; r < ROUNDS; r++) {
        fill(b);
        if (r == 0) {
            kvb_cache_usage usage;
            steps_time(b);
            forks_time(b);
            kvb_cache_usage_of(b->cache, 0, &usage);
            b->tables = (double)(b->allocator.current_bytes - usage.reserved_bytes);
        }
        double start = now_ns();
        must(b, kvb_cache_clear(b->cache));
        b->ns[CLEAR][r] = now_ns() - start;
    }
    kvb_cache_close(b->cache);
}

static void bench_print(const bench *b)
{
    printf("%-10s %8u %6u %6u", b->type->name, b->cells, b->sequences, b->ids);
    for (int v = 0; v < VERBS; v++) {
        uint32_t n = v == CLEAR ? ROUNDS : SAMPLES;
        if ((v == SEQ_RM || v == SEQ_CP) && b->sequences == 1)
            printf(" %12s", "-");
        else
            printf(" %12.0f", kvb_quantile((double *)(uintptr_t)b->ns[v], n, 0.5));
    }
    printf(" %10.1f\n", b->tables / 1024);
}

/* ---- defrag ------------------------------------------------------------------------------------------------------- */

enum { KV_HEADS = 8, ROW = 128, ATTENDS = 15, PAIR = 2 };

static const kvb_model real = {
    .n_layers = 1,
    .n_groups = 1,
    .groups = {{.heads = 32, .kv_heads = KV_HEADS, .k_dim = ROW, .v_dim = ROW, .scale = 0.0884}}};

static void alone(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    (void)team;
    part(ctx, 0, 1);
}

/* A step of these sequences, with rows of its own; of the first token the time that attending takes, if asked for. */
static double step_make(bench *b, const uint32_t *ids, uint32_t n, bool attends)
{
    static float k[PAIR * KV_HEADS * ROW], v[PAIR * KV_HEADS * ROW], q[32 * ROW], out[32 * ROW], lse[32];
    static uint64_t state = 1;
    static const kvb_team team = {1, alone};
    kvb_call call = {.kernel = &kvb_kernel_flash, .team = &team, .out_elem = KVB_F32};
    kvb_attend_spec spec;
    uint32_t pos[PAIR];
    char why[200];
    double ns[ATTENDS];
    for (uint32_t i = 0; i < n; i++)
        pos[i] = kvb_cache_length(b->cache, ids[i]);
    for (uint32_t i = 0; i < n * KV_HEADS * ROW; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        k[i] = (float)(state >> 40) * 0x1p-24f - 0.5f;
        v[i] = q[i % (32 * ROW)] = k[i] * 0.5f;
    }
    must(b, kvb_cache_begin_step(b->cache, ids, n));
    must(b, kvb_cache_update_and_fetch(b->cache, 0, pos, k, v, n, &spec));
    for (int i = 0; i < ATTENDS && attends; i++) {
        double start = now_ns();
        if (kvb_call_prepare(&call, &spec, q, 1, why, sizeof why) || kvb_call_run(&call, out, lse)) {
            fprintf(stderr, "%s\n", why);
            exit(1);
        }
        ns[i] = now_ns() - start;
    }
    kvb_call_free(&call);
    return attends ? kvb_quantile(ns, ATTENDS, 0.5) : 0;
}

/* Two sequences decode together, so that their cells alternate; one leaves, the other one is put in order. */
static void defrag_run(const kvb_pool_type *pool, uint32_t cells)
{
    static bench b;
    char why[200];
    const kvb_cache_options options = {.capacity = 2 * cells + 4,
                                       .seq_capacity = cells + 4,
                                       .max_seqs = 2,
                                       .min_chunk = 256,
                                       .k_pool = pool,
                                       .v_pool = pool,
                                       .allocator = &b.allocator};
    b = (bench){.type = &kvb_cache_seq};
    if (kvb_cache_open(b.type, &real, &options, &b.cache, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    for (uint32_t i = 0; i < cells; i++)
        step_make(&b, (const uint32_t[]){0, 1}, 2, false);
    must(&b, kvb_cache_seq_rm(b.cache, 0, 0, KVB_POS_END));
    const double before = step_make(&b, (const uint32_t[]){1}, 1, true);
    const double start = now_ns();
    must(&b, kvb_cache_defrag(b.cache));
    const double took = now_ns() - start, after = step_make(&b, (const uint32_t[]){1}, 1, true);
    kvb_cache_usage usage;
    kvb_cache_usage_of(b.cache, 0, &usage);
    printf("%-10s %8u %12.0f %12.1f %14.1f %14.1f %8.2f\n", pool->name, cells, took / 1e3,
           took / (double)usage.cells_moved, before / 1e3, after / 1e3, before / after);
    kvb_cache_close(b.cache);
}

static void defrag_bench(void)
{
    printf("\ndefrag of a sequence in every other cell: 8 KV heads of 128, attended by flash on one thread\n");
    printf("%-10s %8s %12s %12s %14s %14s %8s\n", "pool", "cells", "defrag, us", "ns a row", "a step before,",
           "and after, us", "ratio");
    for (uint32_t cells = 1u << 8; cells <= 1u << 14; cells *= 8)
        for (size_t p = 0; kvb_builtin_pools[p]; p++)
            if (!strcmp(kvb_builtin_pools[p]->name, "f16") || !strcmp(kvb_builtin_pools[p]->name, "q8_0"))
                defrag_run(kvb_builtin_pools[p], cells);
}

int main(int argc, char **argv)
{
    static const kvb_cache_type *const types[] = {&kvb_cache_seq, &kvb_cache_slab};
    static const uint32_t cells[] = {1u << 10, 1u << 16, 1u << 20}, sequences[] = {1, 16, 64, 1024, KVB_MAX_SEQS};
    printf("%-10s %8s %6s %6s %12s %12s %12s %12s %12s %10s\n", "cache", "cells", "alive", "ids", "step of all,",
           "step of one,", "seq_rm, ns", "seq_cp, ns", "clear, ns", "tables,");
    printf("%-10s %8s %6s %6s %12s %12s %12s %12s %12s %10s\n", "", "", "", "", "ns a token", "ns", "", "", "", "KiB");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
            for (size_t s = 0; s < sizeof sequences / sizeof *sequences; s++)
                for (uint32_t ids = sequences[s]; ids; ids = ids < KVB_MAX_SEQS ? KVB_MAX_SEQS : 0) {
                    static bench b;
                    b = (bench){.type = types[t], .cells = cells[c], .sequences = sequences[s], .ids = ids};
                    if (sequences[s] > cells[c] || (argc > 1 && !strstr(types[t]->name, argv[1])))
                        continue;
                    bench_run(&b);
                    bench_print(&b);
                }
    if (argc < 2 || strstr("defrag", argv[1]))
        defrag_bench();
    return 0;
}
