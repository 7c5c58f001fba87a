/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the calls of a cache cost, by the cells in use and the sequences that are alive; and the memory of its tables
 * after all of them. Rows are small, so that next to nothing of a call is bytes, except where rows are copied: a fork
 * and a shift of slab, save and load. Every sequence holds as many tokens as the others, in one run of cells; then all
 * decode together. A call is of the last sequence; reorder hands all on by one, and tree is a propose of 26 nodes and a
 * commit of 4. Medians of this thread's time.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/cache.h"
#include "harness/bench/bench.h"
#include "harness/bench/cycles.h"
#include "harness/progress.h"
#include "harness/rounds.h"
#include "results/statistics.h"
#include "workloads/slot_files.h"

enum {
    DIM = 4,
    SAMPLES = 21,
    FEWEST = 3,
    CALLS = 64,
    PREFILL = 4096,
    NODES = 26,
    ACCEPTED = 4,
    DIVIDED = 16,
    SIZES = 3
};

static const kvb_model model = {.n_layers = 1,
                                .n_groups = 1,
                                .groups = {{.heads = 1,
                                            .kv_heads = 1,
                                            .k_dim = DIM,
                                            .v_dim = DIM,
                                            .scale = 1,
                                            .rope = {.known = true, .dims = DIM, .base = 10000}}}};

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
    TABLES,
    VERBS
} verb;
static const struct {
    const char *name, *unit;
    double ns;
} verbs[VERBS] = {[STEP_ALL] = {"step all", "ns a token", 1},
                  [STEP_ONE] = {"step one", "ns", 1},
                  [SEQ_RM] = {"seq_rm", "ns", 1},
                  [SEQ_CP] = {"seq_cp", "ns", 1},
                  [REORDER] = {"reorder", "ns a sequence", 1},
                  [SEQ_ADD] = {"seq_add", "ns", 1},
                  [SEQ_DIV] = {"seq_div", "ns", 1},
                  [DEFRAG] = {"defrag", "us", 1e3},
                  [TREE] = {"tree", "ns a node", 1},
                  [MATCH] = {"match", "us", 1e3},
                  [SAVE] = {"save", "us", 1e3},
                  [LOAD] = {"load", "us", 1e3},
                  [CLEAR] = {"clear", "us", 1e3},
                  [TABLES] = {"tables", "KiB", 1}};

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

/* Keeps the first error; what follows it is not shown. */
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
        for (uint32_t left = b->cells / b->sequences, n; left && !b->error; left -= n) {
            n = left < PREFILL ? left : PREFILL;
            prefill(b, s, n);
        }
}

/* ---- cycles: each leaves about as much as it found --------------------------------------------------------------- */

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
    if (!tokens) {
        must(b, -ENOMEM);
        return;
    }
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
    const char *path = kvb_slot_files_path(b->files, 0);
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

/* The first positions of the last sequence are divided, as far as they are not yet; its rows are turned with the next
 * step. */
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

typedef struct sampling {
    bench *bench;
    const struct cycle *cycle;
} sampling;

static double calls_take(void *ctx)
{
    const sampling *s = ctx;
    const double start = now_ns();
    s->cycle->run(s->bench);
    return s->bench->error ? NAN : now_ns() - start;
}

static void cycle_sample(bench *b, const struct cycle *cycle, double seconds)
{
    sampling s = {b, cycle};
    kvb_contestant one = {.take = calls_take, .ctx = &s, .limit = true};
    uint32_t before[VERBS];
    memcpy(before, b->n, sizeof before);
    cycle->run(b); /* tables grow: it does not count */
    memcpy(b->n, before, sizeof before);
    kvb_rounds_run(&(kvb_rounds){.least = FEWEST, .most = SAMPLES, .seconds = seconds}, &one, 1);
}

/* Measures all calls of a cache with so many sequences over so many cells. 0 or -errno. */
static int bench_run(bench *b, double seconds)
{
    char why[200];
    uint32_t length = b->cells / b->sequences + NODES;
    for (size_t i = 0; i < CYCLES; i++)
        length += (SAMPLES + 1) * cycles[i].longer;
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
        if (!cycles[i].flags || b->type->flags & cycles[i].flags)
            cycle_sample(b, &cycles[i], seconds);
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

/* A row for each call of a cache with so many sequences. */
static int cache_measure(const kvb_bench_choice *choice, bench *b, kvb_table *table, uint32_t *n)
{
    static const uint32_t sizes[SIZES] = {1u << 10, 1u << 16, 1u << 20};
    char text[VERBS][SIZES][24] = {{""}}, name[64];
    bool wanted = false;
    for (verb v = 0; v < VERBS; v++) {
        name_make(b, v, name);
        wanted |= choice->wants(choice->ctx, name);
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
    int error = 0;
    for (verb v = 0; v < VERBS && !error; v++) {
        name_make(b, v, name);
        if (!b->n[v] || !choice->wants(choice->ctx, name))
            continue;
        ++*n;
        error = kvb_table_row(table, (const char *[]){name, verbs[v].unit, text[v][0], text[v][1], text[v][2]});
    }
    return error;
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
    uint32_t rows = 0;
    kvb_table *table =
        kvb_table_new((const char *const[]){"call", "unit", ">1k cells", ">64k cells", ">1M cells", NULL});
    int error = table ? kvb_slot_files_open(&files, why, sizeof why) : -ENOMEM;
    if (error)
        goto out;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int s = 0; s < 3 && !error; s++) {
            b = (bench){.type = types[t], .sequences = alive[s], .files = &files};
            if (s == 0 || types[t]->flags & KVB_CACHE_SEQ)
                error = cache_measure(choice, &b, table, &rows);
        }
    kvb_slot_files_close(&files);
    *n += rows;
    if (!error && rows)
        error = kvb_table_print(table, choice->format, out);
out:
    kvb_table_free(table);
    return error;
}
