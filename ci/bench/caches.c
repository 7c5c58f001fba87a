/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the calls of a cache cost: by the cells in use, by the sequences that are alive and by the ids that are allowed; and the
 * memory of its tables after all of them. `caches [WORD [CELLS]]`: only caches whose name has that word, or rows; at most so many
 * cells.
 *
 * The rows of the first table are small, so that next to nothing of a call is bytes; but for what copies rows: a fork of slab, a
 * shift of slab, save and load. Every sequence holds as many tokens as the others, in one run of cells; then all decode together.
 * A call is of the last sequence (seq_cp of shared-prefix shares a frozen front); reorder hands all on by one, and tree is a propose of 26 nodes and a commit of 4. What rows cost
 * that have the size of a model's is the second table. Medians of this thread's time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "harness/bench/cycles.h"
#include "kernels/kernels.h"
#include "results/statistics.h"
#include "workloads/slot_files.h"

enum { DIM = 4, SAMPLES = 21, FEWEST = 3, CALLS = 64, PREFILL = 4096, NODES = 26, ACCEPTED = 4, DIVIDED = 16 };
#define LONGEST 1e8 /* ns that a cycle is sampled, once there are the fewest samples */

static const kvb_model model = {.n_layers = 1,
                                .n_groups = 1,
                                .groups = {{.heads = 1,
                                            .kv_heads = 1,
                                            .k_dim = DIM,
                                            .v_dim = DIM,
                                            .scale = 1,
                                            .rope = {.known = true, .dims = DIM, .base = 10000}}}};

/* A column of the first table. */
typedef enum verb {
    STEP_ALL,
    STEP_ONE,
    SEQ_RM,
    SEQ_CP,
    REORDER,
    SEQ_ADD,
    SEQ_DIV,
    DEFRAG,
    TREE,
    MATCH,
    SAVE,
    LOAD,
    CLEAR,
    VERBS
} verb;
static const struct {
    const char *name, *unit;
    double ns;
} verbs[VERBS] = {[STEP_ALL] = {"step all", "ns/token", 1},
                  [STEP_ONE] = {"step one", "ns", 1},
                  [SEQ_RM] = {"seq_rm", "ns", 1},
                  [SEQ_CP] = {"seq_cp", "ns", 1},
                  [REORDER] = {"reorder", "ns/seq", 1},
                  [SEQ_ADD] = {"seq_add", "ns", 1},
                  [SEQ_DIV] = {"seq_div", "ns", 1},
                  [DEFRAG] = {"defrag", "us", 1e3},
                  [TREE] = {"tree", "ns/node", 1},
                  [MATCH] = {"match", "us", 1e3},
                  [SAVE] = {"save", "us", 1e3},
                  [LOAD] = {"load", "us", 1e3},
                  [CLEAR] = {"clear", "us", 1e3}};

typedef struct bench {
    const kvb_cache_type *type;
    uint32_t cells, sequences, ids;
    kvb_allocator allocator;
    kvb_cache *cache;
    bool counts; /* false: warm-up */
    uint32_t n[VERBS];
    double ns[VERBS][SAMPLES];
} bench;

static kvb_slot_files files;

static void must(const bench *b, int error)
{
    if (!error)
        return;
    fprintf(stderr, "%s: %s\n", b->type->name, b->cache ? kvb_cache_why(b->cache) : strerror(-error));
    kvb_slot_files_close(&files);
    exit(1);
}

static int32_t prompt_token(const bench *b, uint32_t seq, uint32_t pos)
{
    return (int32_t)(seq * (b->cells / b->sequences) + pos);
}

static void note(bench *b, verb v, double ns)
{
    if (b->counts)
        b->ns[v][b->n[v]++] = ns;
}

/* So many more tokens of a sequence, with their rows. No two sequences begin alike. */
static void prefill(bench *b, uint32_t seq, uint32_t n)
{
    static const float rows[PREFILL * DIM];
    static uint32_t ids[PREFILL], pos[PREFILL];
    static int32_t tokens[PREFILL];
    kvb_attend_spec spec;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = seq;
        pos[i] = kvb_cache_length(b->cache, seq) + i;
        tokens[i] = prompt_token(b, seq, pos[i]);
    }
    must(b, kvb_cache_begin_step_tokens(b->cache, ids, tokens, n));
    must(b, kvb_cache_update_and_fetch(b->cache, 0, pos, rows, rows, n, &spec));
}

/* Each sequence is given its part of the cells. */
static void fill(bench *b)
{
    for (uint32_t s = 0; s < b->sequences; s++)
        for (uint32_t left = b->cells / b->sequences, n; left; left -= n) {
            n = left < PREFILL ? left : PREFILL;
            prefill(b, s, n);
        }
}

/* ---- cycles: each leaves about as much as it found -------------------------------------------------------------------- */

static void steps(bench *b)
{
    static uint32_t ids[KVB_MAX_SEQS];
    for (uint32_t s = 0; s < b->sequences; s++)
        ids[s] = s;
    double start = now_ns();
    must(b, kvb_cache_begin_step(b->cache, ids, b->sequences));
    double between = now_ns();
    for (uint32_t i = 0; i < CALLS; i++)
        must(b, kvb_cache_begin_step(b->cache, &ids[i % b->sequences], 1));
    note(b, STEP_ONE, (now_ns() - between) / CALLS);
    note(b, STEP_ALL, (between - start) / b->sequences);
}

/* Each sequence takes the place of the one before. */
static void reorder(bench *b)
{
    static uint32_t dst[KVB_MAX_SEQS], src[KVB_MAX_SEQS];
    for (uint32_t s = 0; s < b->sequences; s++) {
        dst[s] = s;
        src[s] = (s + 1) % b->sequences;
    }
    double start = now_ns();
    must(b, kvb_cache_seq_reorder(b->cache, dst, src, b->sequences));
    note(b, REORDER, (now_ns() - start) / b->sequences);
}

/* The last sequence moves by a position, there and back; the step turns its rows, which is not counted. */
static void shift(bench *b)
{
    const uint32_t last = b->sequences - 1;
    for (int32_t delta = 1; delta >= -1; delta -= 2) {
        double start = now_ns();
        must(b, kvb_cache_seq_add(b->cache, last, 0, KVB_POS_END, delta));
        if (delta > 0)
            note(b, SEQ_ADD, now_ns() - start);
        must(b, kvb_cache_begin_step(b->cache, &last, 1));
    }
}

/* A binary tree behind the last sequence, of which a path stays. */
static void tree(bench *b)
{
    static const uint32_t accepted[ACCEPTED] = {0, 1, 3, 7};
    uint32_t ids[NODES];
    int32_t parents[NODES];
    for (int i = 0; i < NODES; i++) {
        ids[i] = b->sequences - 1;
        parents[i] = i ? (i - 1) / 2 : -1;
    }
    double start = now_ns();
    must(b, kvb_cache_propose(b->cache, ids, parents, NODES));
    must(b, kvb_cache_commit(b->cache, b->sequences - 1, accepted, ACCEPTED));
    note(b, TREE, (now_ns() - start) / NODES);
}

/* The last sequence leaves, and its prompt comes again. */
static void match(bench *b)
{
    const uint32_t n = b->cells / b->sequences, last = b->sequences - 1;
    int32_t *tokens = malloc(n * sizeof *tokens);
    const uint64_t *ordinals;
    uint32_t found;
    must(b, tokens ? 0 : -ENOMEM);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = prompt_token(b, last, i);
    must(b, kvb_cache_seq_rm(b->cache, last, 0, KVB_POS_END));
    double start = now_ns();
    must(b, kvb_cache_seq_match(b->cache, last, tokens, n, 0, &found, &ordinals));
    note(b, MATCH, now_ns() - start);
    free(tokens);
}

/* The last sequence is saved, leaves and comes back. */
static void saved(bench *b)
{
    const char *path = kvb_slot_files_path(&files, 0);
    const uint32_t last = b->sequences - 1;
    prefill(b, last, 1); /* the step under way must have its rows */
    double start = now_ns();
    must(b, kvb_cache_save(b->cache, last, path));
    note(b, SAVE, now_ns() - start);
    must(b,
         b->type->flags & KVB_CACHE_SEQ ? kvb_cache_seq_rm(b->cache, last, 0, KVB_POS_END) : kvb_cache_clear(b->cache));
    start = now_ns();
    must(b, kvb_cache_load(b->cache, last, path));
    note(b, LOAD, now_ns() - start);
}

/* The last sequence leaves and comes again as a fork of the first. */
static void forks(bench *b)
{
    if (b->sequences == 1)
        return;
    double start = now_ns();
    must(b, kvb_cache_seq_rm(b->cache, b->sequences - 1, 0, KVB_POS_END));
    double between = now_ns();
    must(b, kvb_cache_seq_cp(b->cache, 0, b->sequences - 1, 0, KVB_POS_END));
    note(b, SEQ_CP, now_ns() - between);
    note(b, SEQ_RM, between - start);
}

/* The first positions of the last sequence are divided, as far as they are not yet; its rows are turned with the next step. */
static void divide(bench *b)
{
    const uint32_t last = b->sequences - 1;
    double start = now_ns();
    must(b, kvb_cache_seq_div(b->cache, last, 0, DIVIDED, 2));
    note(b, SEQ_DIV, now_ns() - start);
    must(b, kvb_cache_begin_step(b->cache, &last, 1));
}

/* All cells in order: few are out of it, so that looking is what costs. */
static void defrag(bench *b)
{
    double start = now_ns();
    must(b, kvb_cache_defrag(b->cache));
    note(b, DEFRAG, now_ns() - start);
}

static void clear(bench *b)
{
    double start = now_ns();
    must(b, kvb_cache_clear(b->cache));
    note(b, CLEAR, now_ns() - start);
    fill(b);
}

/* In this order. */
static const struct cycle {
    uint32_t flags;  /* KVB_CACHE_… that it needs; 0: none */
    uint32_t longer; /* tokens by which it makes a sequence longer */
    void (*run)(bench *);
} cycles[] = {{0, 1 + CALLS, steps},
              {KVB_CACHE_PREFIX, 0, match},
              {KVB_CACHE_REORDER, 0, reorder},
              {KVB_CACHE_SHIFT, 3, shift},
              {KVB_CACHE_TREE, ACCEPTED, tree},
              {KVB_CACHE_SAVES, 1, saved},
              {KVB_CACHE_SEQ, 0, forks},
              {KVB_CACHE_DIVIDE, 1, divide},
              {KVB_CACHE_SHIFT, 0, defrag},
              {0, 0, clear}};
#define CYCLES (sizeof cycles / sizeof *cycles)

static void cycle_sample(bench *b, const struct cycle *cycle)
{
    b->counts = false;
    cycle->run(b); /* tables grow */
    b->counts = true;
    double start = now_ns();
    for (int s = 0; s < SAMPLES && (s < FEWEST || now_ns() - start < LONGEST); s++)
        cycle->run(b);
}

/* ---- the first table ------------------------------------------------------------------------------------------------ */

static void bench_open(bench *b, const kvb_model *of, const kvb_pool_type *pool, uint32_t length)
{
    char why[200];
    const kvb_cache_options options = {.capacity = b->sequences * length,
                                       .seq_capacity = length,
                                       .seq_ids = b->ids,
                                       .max_seqs = b->sequences,
                                       .min_chunk = 256,
                                       .k_pool = pool,
                                       .v_pool = pool,
                                       .allocator = &b->allocator};
    must(b, kvb_cache_open(b->type, of, &options, &b->cache, why, sizeof why));
}

static void bench_run(bench *b)
{
    uint32_t length = b->cells / b->sequences + NODES;
    for (size_t i = 0; i < CYCLES; i++)
        length += (SAMPLES + 1) * cycles[i].longer;
    bench_open(b, &model, kvb_builtin_pools[0], length);
    fill(b);
    for (size_t i = 0; i < CYCLES; i++)
        if (!cycles[i].flags || b->type->flags & cycles[i].flags)
            cycle_sample(b, &cycles[i]);
    kvb_cache_usage usage;
    kvb_cache_usage_of(b->cache, 0, &usage);
    printf("%-12s %8u %6u %6u", b->type->name, b->cells, b->sequences, b->ids);
    for (int v = 0; v < VERBS; v++)
        if (b->n[v])
            printf(" %9.*f", verbs[v].ns > 1, kvb_quantile(b->ns[v], b->n[v], 0.5) / verbs[v].ns);
        else
            printf(" %9s", "-");
    printf(" %9.1f\n", (double)(b->allocator.current_bytes - usage.reserved_bytes) / 1024);
    kvb_cache_close(b->cache);
}

static void calls_bench(const char *word, uint32_t most)
{
    static const kvb_cache_type *const types[] = {&kvb_cache_seq,          &kvb_cache_slab,          &kvb_cache_paged,
                                                  &kvb_cache_paged_prefix, &kvb_cache_shared_prefix, &kvb_cache_tree};
    static const uint32_t cells[] = {1u << 10, 1u << 16, 1u << 22}, sequences[] = {1, 16, 64, KVB_MAX_SEQS};
    printf("%-12s %8s %6s %6s", "cache", "cells", "alive", "ids");
    for (int v = 0; v < VERBS; v++)
        printf(" %9s", verbs[v].name);
    printf(" %9s\n%35s", "tables", "");
    for (int v = 0; v < VERBS; v++)
        printf(" %9s", verbs[v].unit);
    printf(" %9s\n", "KiB");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
            for (size_t s = 0; s < sizeof sequences / sizeof *sequences; s++)
                for (uint32_t ids = sequences[s]; ids; ids = ids < KVB_MAX_SEQS ? KVB_MAX_SEQS : 0) {
                    static bench b;
                    b = (bench){.type = types[t], .cells = cells[c], .sequences = sequences[s], .ids = ids};
                    if (sequences[s] <= cells[c] && cells[c] <= most && strstr(types[t]->name, word) &&
                        (sequences[s] == 1 || types[t]->flags & KVB_CACHE_SEQ))
                        bench_run(&b);
                }
}

/* ---- rows as large as a model's ----------------------------------------------------------------------------------- */

enum { KV_HEADS = 8, ROW = 128, ATTENDS = 15, TIMES = 5, PAIR = 2 };

static const kvb_model real = {.n_layers = 1,
                               .n_groups = 1,
                               .groups = {{.heads = 32,
                                           .kv_heads = KV_HEADS,
                                           .k_dim = ROW,
                                           .v_dim = ROW,
                                           .scale = 0.0884,
                                           .rope = {.known = true, .dims = ROW, .base = 10000}}}};

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
        must(b, kvb_call_prepare(&call, &spec, q, 1, why, sizeof why));
        must(b, kvb_call_run(&call, out, lse));
        ns[i] = now_ns() - start;
    }
    kvb_call_free(&call);
    return attends ? kvb_quantile(ns, ATTENDS, 0.5) : 0;
}

/* Two sequences decode together, so that their cells alternate; one leaves, the other one is put in order. Then it is moved and
 * turned, saved and loaded. */
static void rows_run(const kvb_pool_type *pool, uint32_t cells)
{
    static bench b;
    static const uint32_t both[PAIR] = {0, 1}, *const one = &both[1];
    double turn[TIMES], save[TIMES], load[TIMES];
    b = (bench){.type = &kvb_cache_seq, .sequences = PAIR};
    bench_open(&b, &real, pool, cells + 2 + 3 * TIMES);
    for (uint32_t i = 0; i < cells; i++)
        step_make(&b, both, 2, false);
    must(&b, kvb_cache_seq_rm(b.cache, 0, 0, KVB_POS_END));
    const double before = step_make(&b, one, 1, true);
    double start = now_ns();
    must(&b, kvb_cache_defrag(b.cache));
    const double took = now_ns() - start, after = step_make(&b, one, 1, true);
    kvb_cache_usage usage;
    kvb_cache_usage_of(b.cache, 0, &usage);
    for (int i = 0; i < TIMES; i++) {
        const uint32_t rows = kvb_cache_length(b.cache, 1) - i % 2; /* moved by one there is a hole before them */
        must(&b, kvb_cache_seq_add(b.cache, 1, 0, KVB_POS_END, i % 2 ? -1 : 1));
        start = now_ns();
        must(&b, kvb_cache_begin_step(b.cache, one, 1));
        turn[i] = (now_ns() - start) / rows;
        step_make(&b, one, 1, false);
        start = now_ns();
        must(&b, kvb_cache_save(b.cache, 1, kvb_slot_files_path(&files, 0)));
        save[i] = (now_ns() - start) / (rows + 2);
        must(&b, kvb_cache_seq_rm(b.cache, 1, 0, KVB_POS_END));
        start = now_ns();
        must(&b, kvb_cache_load(b.cache, 1, kvb_slot_files_path(&files, 0)));
        load[i] = (now_ns() - start) / (rows + 2);
    }
    printf("%-8s %8u %12.0f %12.1f %12.1f %12.1f %8.2f %12.1f %12.1f %12.1f\n", pool->name, cells, took / 1e3,
           took / (double)usage.cells_moved, before / 1e3, after / 1e3, before / after, kvb_quantile(turn, TIMES, 0.5),
           kvb_quantile(save, TIMES, 0.5), kvb_quantile(load, TIMES, 0.5));
    kvb_cache_close(b.cache);
}

static void rows_bench(uint32_t most)
{
    static const char *const formats[] = {"f32", "f16", "q8_0"};
    printf("\nrows of 8 KV heads of 128; a sequence in every other cell, attended by flash on one thread, before and "
           "after "
           "defrag\n%-8s %8s %12s %12s %12s %12s %8s %12s %12s %12s\n",
           "pool", "cells", "defrag, us", "ns a row", "before, us", "after, us", "ratio", "turn, ns/row",
           "save, ns/row", "load, ns/row");
    for (uint32_t cells = 1u << 8; cells <= 1u << 14 && cells <= most; cells *= 8)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            for (size_t p = 0; kvb_builtin_pools[p]; p++)
                if (!strcmp(kvb_builtin_pools[p]->name, formats[f]))
                    rows_run(kvb_builtin_pools[p], cells);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    const uint32_t most = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : UINT32_MAX;
    char why[4200];
    if (kvb_slot_files_open(&files, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    calls_bench(word, most);
    if (strstr("rows", word))
        rows_bench(most);
    kvb_slot_files_close(&files);
    return 0;
}
