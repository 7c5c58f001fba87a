/* SPDX-License-Identifier: Apache-2.0 */
/* Rows to be read: K and V as the pools store them. */
#include "harness/bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/replay/calibrate.h"
#include "workloads/values.h"

/* Distinct cells; they repeat behind each other. No multiple of it lies near one of 2048, the length of a batch's
 * sequences: no two of them hold the same cells. */
#define DISTINCT 4679u
#define SEED     1u

/* What all copies of the rows hold at least, so that no cache keeps them. */
#define BEYOND_CACHES 450e6

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

enum { KV_HEADS = 8, DIM = 128, LATENT_K = 576, LATENT_V = 512 }; /* where a work does not say */

kvb_group kvb_bench_group(const kvb_bench_work *w)
{
    kvb_group g = {.kv_heads = w->kv_heads ? w->kv_heads
                               : w->latent ? 1
                                           : KV_HEADS,
                   .k_dim = w->k_dim    ? w->k_dim
                            : w->latent ? LATENT_K
                                        : DIM,
                   .v_dim = w->v_dim    ? w->v_dim
                            : w->latent ? LATENT_V
                                        : DIM,
                   .latent = w->latent};
    g.heads = w->group * g.kv_heads;
    g.scale = 1 / sqrt(g.k_dim);
    return g;
}

/* One kind of rows, `n` tokens of them. */
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
    const size_t row = kvb_values_floats(&m->group, m->kind);
    const kvb_profile *gaussian = kvb_profile_find("gaussian");
    for (uint32_t t = i; t < m->n; t += n)
        gaussian->rows(&model, SEED, m->kind, 0, t, t, m->rows + t * row);
}

void kvb_bench_queries_make(const kvb_team *team, const kvb_bench_work *work, float *q, uint32_t n_tok)
{
    making m = {KVB_ROWS_Q, n_tok, kvb_bench_group(work), q};
    team->run(team, part_make, &m);
}

/* ---- the store ----------------------------------------------------------------------------------------------- */

const kvb_pool_type *kvb_bench_pool(const char *format)
{
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++)
        for (const kvb_pool_type *form = *type; form; form = form->rotated)
            if (!strcmp(form->name, format))
                return form;
    return NULL;
}

static const kvb_pool_type *v_pool(const kvb_bench_work *work)
{
    return kvb_bench_pool(work->v_format ? work->v_format : work->format);
}

double kvb_bench_cell_bytes(const kvb_bench_work *work)
{
    const kvb_pool_type *k = kvb_bench_pool(work->format), *v = v_pool(work);
    const kvb_group g = kvb_bench_group(work);
    if (!k || !v)
        return 0;
    return g.kv_heads * (k->row_bytes(k, g.k_dim) + (g.latent ? 0 : v->row_bytes(v, g.v_dim)));
}

uint32_t kvb_bench_layers(const kvb_bench_work *work, uint32_t cells)
{
    if (work->resident)
        return 1;
    return (uint32_t)fmin(ceil(BEYOND_CACHES / (cells * kvb_bench_cell_bytes(work))), KVB_BENCH_LAYERS);
}

/* The pools are dealt out to the threads. */
static void part_write(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_bench_store *s = ctx;
    for (uint32_t p = i; p < 2 * s->layers; p += n) {
        kvb_pool *pool = p % 2 ? s->v[p / 2] : s->k[p / 2];
        for (uint32_t c = 0; c < s->cells && pool; c += s->distinct)
            pool->type->write_run(pool, c, s->cells - c < s->distinct ? s->cells - c : s->distinct, s->rows[p % 2]);
    }
}

/* The distinct rows of one side, and what a fixed scale is taken from. */
static int rows_make(kvb_bench_store *s, const kvb_team *team, int side)
{
    const kvb_rows kind = side ? KVB_ROWS_V : KVB_ROWS_K;
    const size_t row = kvb_values_floats(&s->group, kind);
    const kvb_model model = {.n_layers = 1, .n_groups = 1, .groups = {s->group}};
    size_t at[KVB_MODEL_LAYERS] = {0};
    making m = {kind, s->distinct, s->group, malloc(s->distinct * row * sizeof(float))};
    s->rows[side] = m.rows;
    if (!m.rows)
        return -ENOMEM;
    team->run(team, part_make, &m);
    kvb_values values = {.tokens = s->distinct, .model = &model};
    values.block[kind] = m.rows;
    values.layer_at[kind] = at;
    return kvb_calibrate(&model, &values, kind, (side ? s->v_type : s->k_type)->format, &s->amax[side]);
}

static int pool_open(kvb_bench_store *s, int side, kvb_pool **pool)
{
    const kvb_pool_type *type = side ? s->v_type : s->k_type;
    const kvb_pool_options options = {.n_kv_heads = s->group.kv_heads,
                                      .dim = side ? s->group.v_dim : s->group.k_dim,
                                      .min_chunk = s->cells,
                                      .capacity = s->cells,
                                      .growth = KVB_GROWTH_DOUBLE,
                                      .amax = s->amax[side] ? s->amax[side][0] : NULL,
                                      .allocator = &s->allocator};
    const int error = type->open(type, &options, pool);
    return error ? error : type->ensure(*pool, s->cells);
}

static bool holds(const kvb_bench_store *s, const kvb_bench_work *work, const kvb_group *g, uint32_t cells,
                  uint32_t layers)
{
    return s->k_type == kvb_bench_pool(work->format) && s->v_type == v_pool(work) && s->cells == cells &&
           s->layers == layers && s->group.latent == g->latent && s->group.kv_heads == g->kv_heads &&
           s->group.k_dim == g->k_dim && s->group.v_dim == g->v_dim;
}

int kvb_bench_store_open(kvb_bench_store *s, const kvb_team *team, const kvb_bench_work *work, uint32_t cells,
                         uint32_t layers)
{
    const kvb_group group = kvb_bench_group(work);
    if (holds(s, work, &group, cells, layers))
        return 0;
    kvb_bench_store_close(s);
    touching = team;
    *s = (kvb_bench_store){.k_type = kvb_bench_pool(work->format),
                           .v_type = v_pool(work),
                           .group = group,
                           .cells = cells,
                           .layers = layers,
                           .distinct = cells < DISTINCT ? cells : DISTINCT,
                           .allocator.source = &source};
    int error = 0;
    for (int side = 0; side < (group.latent ? 1 : 2) && !error; side++) {
        error = rows_make(s, team, side);
        for (uint32_t l = 0; l < layers && !error; l++)
            error = pool_open(s, side, side ? &s->v[l] : &s->k[l]);
    }
    if (error)
        kvb_bench_store_close(s);
    else
        team->run(team, part_write, s);
    return error;
}

void kvb_bench_store_close(kvb_bench_store *s)
{
    for (uint32_t l = 0; l < s->layers; l++) {
        if (s->k[l])
            s->k_type->close(s->k[l]);
        if (s->v[l])
            s->v_type->close(s->v[l]);
    }
    for (int side = 0; side < 2; side++) {
        free(s->rows[side]);
        free(s->amax[side]);
    }
    *s = (kvb_bench_store){0};
}
