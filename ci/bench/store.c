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

kvb_group bench_group(const bench_work *work)
{
    if (work->latent)
        return (kvb_group){.heads = work->group,
                           .kv_heads = 1,
                           .k_dim = BENCH_LATENT_K,
                           .v_dim = BENCH_LATENT_V,
                           .latent = true,
                           .scale = 1 / sqrt(BENCH_LATENT_K)};
    return (kvb_group){.heads = work->group * BENCH_KV_HEADS,
                       .kv_heads = BENCH_KV_HEADS,
                       .k_dim = BENCH_DIM,
                       .v_dim = BENCH_DIM,
                       .scale = 1 / sqrt(BENCH_DIM)};
}

typedef struct making {
    kvb_rows kind;
    uint32_t n;
    kvb_group group;
    float *rows;
} making;

static void part_make(void *ctx, uint32_t i, uint32_t n)
{
    const making *m = ctx;
    const kvb_model model = {.n_layers = 1, .n_groups = 1, .groups = {m->group}};
    const size_t row = (size_t)(m->kind == KVB_ROWS_Q ? m->group.heads : m->group.kv_heads) * m->group.k_dim;
    const kvb_profile *gaussian = kvb_profile_find("gaussian");
    for (uint32_t t = i; t < m->n; t += n)
        gaussian->rows(&model, SEED, m->kind, 0, t, t, m->rows + t * row);
}

void bench_queries_make(const kvb_team *team, const bench_work *work, float *q, uint32_t n_tok)
{
    making m = {KVB_ROWS_Q, n_tok, bench_group(work), q};
    team->run(team, part_make, &m);
}

/* [DISTINCT][kv_heads][k_dim], made once. */
static const float *distinct(const kvb_team *team, const bench_work *work, kvb_rows kind)
{
    static float *made[2][KVB_ROWS_ATTENDED];
    float **rows = &made[work->latent][kind];
    if (!*rows) {
        making m = {kind, DISTINCT, bench_group(work), NULL};
        m.rows = *rows = malloc((size_t)DISTINCT * m.group.kv_heads * m.group.k_dim * sizeof(float));
        if (m.rows)
            team->run(team, part_make, &m);
    }
    return *rows;
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

double bench_cell_bytes(const bench_work *work)
{
    const kvb_pool_type *type = type_find(work->format);
    const kvb_group group = bench_group(work);
    return type ? (group.latent ? 1 : 2) * group.kv_heads * type->row_bytes(type, group.k_dim) : 0;
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
    for (uint32_t p = i; p < 2 * s->layers; p += n) {
        kvb_pool *pool = p % 2 ? s->v[p / 2] : s->k[p / 2];
        for (uint32_t c = 0; c < s->cells && pool; c += DISTINCT)
            s->type->write_run(pool, c, s->cells - c < DISTINCT ? s->cells - c : DISTINCT, p % 2 ? w->v : w->k);
    }
}

static int pool_open(bench_store *store, const bench_work *work, kvb_pool **pool)
{
    const kvb_group group = bench_group(work);
    kvb_pool_options options = {.n_kv_heads = group.kv_heads,
                                .dim = group.k_dim,
                                .min_chunk = store->cells,
                                .capacity = store->cells,
                                .growth = KVB_GROWTH_DOUBLE,
                                .allocator = &store->allocator};
    int error = store->type->open(store->type, &options, pool);
    return error ? error : store->type->ensure(*pool, store->cells);
}

int bench_store_open(bench_store *store, const kvb_team *team, const bench_work *work, uint32_t cells, uint32_t layers)
{
    const kvb_pool_type *type = type_find(work->format);
    if (store->type == type && store->latent == work->latent && store->cells == cells && store->layers == layers)
        return 0;
    bench_store_close(store);
    touching = team;
    *store = (bench_store){
        .type = type, .latent = work->latent, .cells = cells, .layers = layers, .allocator.source = &source};
    writing w = {store, distinct(team, work, KVB_ROWS_K), distinct(team, work, work->latent ? KVB_ROWS_K : KVB_ROWS_V)};
    int error = w.k && w.v ? 0 : -ENOMEM;
    for (uint32_t l = 0; l < layers && !error; l++) {
        error = pool_open(store, work, &store->k[l]);
        if (!error && !work->latent)
            error = pool_open(store, work, &store->v[l]);
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
