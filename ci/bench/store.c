/* SPDX-License-Identifier: Apache-2.0 */
/* Rows to be read: K and V as the pools store them. */
#include "ci/bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/values.h"

/* Distinct cells; they repeat behind each other. No multiple of it lies near one of 2048, the length of a batch's
 * sequences: no two of them hold the same cells. */
#define DISTINCT 4679u
#define SEED     1u

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* Pools take memory on one thread, but it is to be the team's: huge pages, each part touched by the thread whose number
 * it has, as the probes' memory is. */
static const kvb_team *touching;

static void *memory_take(const char *name, size_t bytes)
{
    kvb_probe_memory memory;
    (void)name;
    return kvb_probe_memory_open(touching, bytes, &memory) ? NULL : memory.base;
}

static void memory_give(void *block, size_t bytes)
{
    size_t unit = (size_t)touching->n * 4096;
    kvb_probe_memory memory = {.base = block, .bytes = (bytes + unit - 1) / unit * unit};
    kvb_probe_memory_close(&memory);
}

static const kvb_memory_source source = {memory_take, memory_give};

/* ---- values -------------------------------------------------------------------------------------------------- */

kvb_group bench_group(uint32_t heads)
{
    return (kvb_group){.heads = heads,
                       .kv_heads = BENCH_KV_HEADS,
                       .k_dim = BENCH_DIM,
                       .v_dim = BENCH_DIM,
                       .scale = 1 / sqrt(BENCH_DIM)};
}

typedef struct making {
    kvb_rows kind;
    uint32_t n, heads;
    float *rows;
} making;

static void part_make(void *ctx, uint32_t i, uint32_t n)
{
    const making *m = ctx;
    const kvb_model model = {.n_layers = 1, .n_groups = 1, .groups = {bench_group(m->heads)}};
    const kvb_profile *gaussian = kvb_profile_find("gaussian");
    for (uint32_t t = i; t < m->n; t += n)
        gaussian->rows(&model, SEED, m->kind, 0, t, t, m->rows + (size_t)t * m->heads * BENCH_DIM);
}

void bench_queries_make(const kvb_team *team, float *q, uint32_t n_tok, uint32_t heads)
{
    making m = {KVB_ROWS_Q, n_tok, heads, q};
    team->run(team, part_make, &m);
}

/* [DISTINCT][BENCH_KV_HEADS][BENCH_DIM], made once. */
static const float *distinct(const kvb_team *team, kvb_rows kind)
{
    static float *made[KVB_ROWS_ATTENDED];
    if (!made[kind]) {
        made[kind] = malloc((size_t)DISTINCT * BENCH_KV_HEADS * BENCH_DIM * sizeof(float));
        making m = {kind, DISTINCT, BENCH_KV_HEADS, made[kind]};
        if (m.rows)
            team->run(team, part_make, &m);
    }
    return made[kind];
}

/* ---- the store ----------------------------------------------------------------------------------------------- */

static const kvb_pool_type *type_find(const char *format)
{
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++)
        for (const kvb_pool_type *form = *type; form; form = form->rotated)
            if (!strcmp(form->name, format))
                return form;
    return NULL;
}

double bench_cell_bytes(const char *format)
{
    const kvb_pool_type *type = type_find(format);
    return type ? 2 * BENCH_KV_HEADS * type->row_bytes(type, BENCH_DIM) : 0;
}

typedef struct writing {
    bench_store *store;
    const float *k, *v;
} writing;

/* The pools are dealt out to the threads. */
static void part_write(void *ctx, uint32_t i, uint32_t n)
{
    const writing *w = ctx;
    const bench_store *s = w->store;
    for (uint32_t p = i; p < 2 * s->layers; p += n)
        for (uint32_t c = 0; c < s->cells; c += DISTINCT)
            s->type->write_run(p % 2 ? s->v[p / 2] : s->k[p / 2], c, s->cells - c < DISTINCT ? s->cells - c : DISTINCT,
                               p % 2 ? w->v : w->k);
}

static int pool_open(bench_store *store, kvb_pool **pool)
{
    kvb_pool_options options = {.n_kv_heads = BENCH_KV_HEADS,
                                .dim = BENCH_DIM,
                                .min_chunk = store->cells,
                                .capacity = store->cells,
                                .growth = KVB_GROWTH_DOUBLE,
                                .allocator = &store->allocator};
    int error = store->type->open(store->type, &options, pool);
    return error ? error : store->type->ensure(*pool, store->cells);
}

int bench_store_open(bench_store *store, const kvb_team *team, const char *format, uint32_t cells, uint32_t layers)
{
    const kvb_pool_type *type = type_find(format);
    if (store->type == type && store->cells == cells && store->layers == layers)
        return 0;
    bench_store_close(store);
    touching = team;
    *store = (bench_store){.type = type, .cells = cells, .layers = layers, .allocator.source = &source};
    writing w = {store, distinct(team, KVB_ROWS_K), distinct(team, KVB_ROWS_V)};
    int error = w.k && w.v ? 0 : -ENOMEM;
    for (uint32_t l = 0; l < layers && !error; l++) {
        error = pool_open(store, &store->k[l]);
        if (!error)
            error = pool_open(store, &store->v[l]);
    }
    if (error)
        bench_store_close(store);
    else
        team->run(team, part_write, &w);
    return error;
}

void bench_store_close(bench_store *store)
{
    for (uint32_t l = 0; l < store->layers; l++) {
        if (store->k[l])
            store->type->close(store->k[l]);
        if (store->v[l])
            store->type->close(store->v[l]);
    }
    *store = (bench_store){0};
}
