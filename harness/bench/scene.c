/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a work, K and V as pools store them; its queries, and the cells that each of them sees. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench/bench.h"
#include "harness/matrix/ground_truth.h"
#include "harness/replay/meter.h"
#include "workloads/live/live.h"
#include "workloads/values.h"

/* The rows of so many cells differ; later cells repeat them. No multiple lies near a multiple of 2048, the length of a
 * batch's sequences, so no two sequences hold the same rows. */
#define DISTINCT 4679u
#define SEED     1u

/* Fewest bytes of all copies of the rows together: more than CPU caches hold. */
#define BEYOND_CACHES 450e6

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* Pools take memory on one thread, but it must be placed like the probes' memory: huge pages, thread i of this team
 * first touches part i. */
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

enum { KV_HEADS = 8, DIM = 128, LATENT_K = 576, LATENT_V = 512 }; /* where a work has 0 */

kvb_group kvb_bench_group(const kvb_bench_work *w)
{
    const uint32_t heads = w->latent ? 1 : KV_HEADS, k = w->latent ? LATENT_K : DIM, v = w->latent ? LATENT_V : DIM;
    kvb_group g = {.kv_heads = w->kv_heads ? w->kv_heads : heads,
                   .k_dim = w->k_dim ? w->k_dim : k,
                   .v_dim = w->v_dim ? w->v_dim : v,
                   .latent = w->latent};
    g.heads = w->group * g.kv_heads;
    g.scale = 1 / sqrt(g.k_dim);
    return g;
}

/* The rows of one kind for n tokens. */
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
        kvb_profile_rows(gaussian, &model, SEED, m->kind, 0, t, t, m->rows + t * row);
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

/* The rows of the first copy as its pools store them. */
typedef struct writing {
    const kvb_bench_store *store;
    void *raw[2]; /* of K and V; NULL where there is only one copy, or no V */
} writing;

/* Thread i of n encodes the rows of the first copy: K or V. */
static void part_encode(void *ctx, uint32_t i, uint32_t n)
{
    const writing *w = ctx;
    const kvb_bench_store *s = w->store;
    for (uint32_t side = i; side < 2; side += n) {
        kvb_pool *pool = side ? s->v[0] : s->k[0];
        for (uint32_t c = 0; c < s->cells && pool; c += s->distinct)
            pool->type->write_run(pool, c, s->cells - c < s->distinct ? s->cells - c : s->distinct, s->rows[side]);
        if (w->raw[side])
            pool->type->read_raw(pool, NULL, s->cells, w->raw[side]);
    }
}

/* Thread i of n writes the encoded rows to every n-th pool of the other copies. */
static void part_copy(void *ctx, uint32_t i, uint32_t n)
{
    const writing *w = ctx;
    for (uint32_t p = 2 + i; p < 2 * w->store->layers; p += n) {
        kvb_pool *pool = p % 2 ? w->store->v[p / 2] : w->store->k[p / 2];
        if (pool)
            pool->type->write_raw(pool, NULL, w->store->cells, w->raw[p % 2]);
    }
}

/* Encodes the rows once and writes all copies. 0 or -ENOMEM. */
static int copies_write(const kvb_bench_store *s, const kvb_team *team)
{
    writing w = {.store = s};
    int error = 0;
    for (int side = 0; side < 2 && s->layers > 1; side++) {
        const kvb_pool *first = side ? s->v[0] : s->k[0];
        if (first && !(w.raw[side] = malloc(first->type->raw_bytes(first, NULL, s->cells))))
            error = -ENOMEM;
    }
    if (!error) {
        team->run(team, part_encode, &w);
        team->run(team, part_copy, &w);
    }
    free(w.raw[0]);
    free(w.raw[1]);
    return error;
}

/* Makes the distinct rows of one side, and the largest magnitudes that head scales need. */
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

static void copies_close(kvb_bench_store *s)
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
    *s = (kvb_bench_store){.probed = s->probed, .probed_by = s->probed_by};
}

void kvb_bench_store_close(kvb_bench_store *s)
{
    copies_close(s);
    kvb_probe_memory_close(&s->probed);
}

int kvb_bench_store_open(kvb_bench_store *s, const kvb_team *team, const kvb_bench_work *work, uint32_t cells,
                         uint32_t layers)
{
    const kvb_group group = kvb_bench_group(work);
    if (holds(s, work, &group, cells, layers))
        return 0;
    copies_close(s);
    touching = team;
    *s = (kvb_bench_store){.k_type = kvb_bench_pool(work->format),
                           .v_type = v_pool(work),
                           .group = group,
                           .cells = cells,
                           .layers = layers,
                           .distinct = cells < DISTINCT ? cells : DISTINCT,
                           .allocator.source = &source,
                           .probed = s->probed,
                           .probed_by = s->probed_by};
    int error = 0;
    for (int side = 0; side < (group.latent ? 1 : 2) && !error; side++) {
        error = rows_make(s, team, side);
        for (uint32_t l = 0; l < layers && !error; l++)
            error = pool_open(s, side, side ? &s->v[l] : &s->k[l]);
    }
    if (!error)
        error = copies_write(s, team);
    if (error)
        kvb_bench_store_close(s);
    return error;
}

/* ---- queries, and the cells that each of them sees --------------------------------------------------------------- */

enum { SEQUENCES = 16 }; /* where a work has 0 */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Query t also sees cells begin .. end-1, which lie behind those that it saw before. */
static void see(kvb_bench_sight *s, uint32_t t, uint32_t begin, uint32_t end)
{
    uint32_t *n = &s->row_start[t + 1];
    if (*n > s->row_start[t] && s->runs[*n - 1].end == begin)
        s->runs[*n - 1].end = end;
    else if (begin < end)
        s->runs[(*n)++] = (kvb_run){begin, end};
}

/* Query t sees cells begin .. end-1; with a window, only the first and last of them. */
static void window_see(kvb_bench_sight *s, uint32_t t, uint32_t begin, uint32_t end, uint32_t window, uint32_t sinks)
{
    const uint32_t from = window && end - begin > window ? end - window : begin;
    see(s, t, begin, smaller(begin + sinks, from));
    see(s, t, from, end);
}

/* EAGLE's tree: the pending token and the draft's tokens behind a prefix. A node sees the prefix, its ancestors and
 * itself. */
static void tree_see(kvb_bench_sight *s, uint32_t t)
{
    const kvb_eagle_shape *tree = &kvb_eagle_shape_25;
    uint32_t prefix = s->cells - tree->n;
    uint64_t path = 1;
    for (uint32_t node = t; node; node = tree->parents[node])
        path |= UINT64_C(1) << node;
    see(s, t, 0, prefix);
    for (uint32_t node = 0; node < tree->n; node++)
        if (path >> node & 1)
            see(s, t, prefix + node, prefix + node + 1);
}

/* Query t sees cells first + k * stride for k < n. */
static void steps_see(kvb_bench_sight *s, uint32_t t, uint32_t first, uint32_t n, uint32_t stride)
{
    for (uint32_t k = 0; k < n; k++)
        see(s, t, first + k * stride, first + k * stride + 1);
}

static void query_see(const kvb_bench_work *work, kvb_bench_sight *s, uint32_t n_tok, uint32_t t)
{
    uint32_t each = s->cells / n_tok, tail = smaller(KVB_BENCH_TAIL, s->cells / (2 * KVB_BENCH_BRANCHES));
    uint32_t trunk = s->cells - KVB_BENCH_BRANCHES * tail;
    switch (work->shape) {
    case KVB_BENCH_VERIFY:
        tree_see(s, t);
        break;
    case KVB_BENCH_BATCH:
        window_see(s, t, t * each, (t + 1) * each, work->window, work->window_sinks);
        break;
    case KVB_BENCH_STEPS:
        steps_see(s, t, t, each, n_tok);
        break;
    case KVB_BENCH_FORK:
        see(s, t, 0, trunk);
        steps_see(s, t, trunk + t, tail, KVB_BENCH_BRANCHES);
        break;
    case KVB_BENCH_PREFILL:
    case KVB_BENCH_CHUNK:
        window_see(s, t, 0, s->cells - n_tok + t + 1, work->window, work->window_sinks);
        break;
    case KVB_BENCH_PAGED: /* has page tables */
    case KVB_BENCH_DECODE:
        break; /* NONE and CAUSAL need no runs */
    }
}

static uint32_t tokens_of(const kvb_bench_work *work, uint32_t cells)
{
    const kvb_bench_shape shape = work->shape;
    return shape == KVB_BENCH_DECODE    ? 1
           : shape == KVB_BENCH_VERIFY  ? kvb_eagle_shape_25.n
           : shape == KVB_BENCH_FORK    ? KVB_BENCH_BRANCHES
           : shape == KVB_BENCH_PREFILL ? cells
           : shape == KVB_BENCH_CHUNK   ? smaller(KVB_BENCH_FED, cells / 2)
           : work->batch                ? work->batch
                                        : SEQUENCES;
}

static kvb_mask_kind mask_kind(const kvb_bench_work *work)
{
    const bool prompt = work->shape == KVB_BENCH_PREFILL || work->shape == KVB_BENCH_CHUNK;
    return work->shape == KVB_BENCH_DECODE  ? KVB_MASK_NONE
           : work->shape == KVB_BENCH_PAGED ? KVB_MASK_PAGES
           : prompt && !work->window        ? KVB_MASK_CAUSAL
                                            : KVB_MASK_RUNS;
}

/* Counts visible pairs and cells from the mask itself. */
static int sights_count(kvb_bench_sight *s, uint32_t n_tok)
{
    uint64_t *seen = malloc(((size_t)s->cells + 63) / 64 * sizeof *seen);
    kvb_traffic traffic;
    if (!seen)
        return -ENOMEM;
    kvb_traffic_count(&s->mask, n_tok, s->cells, seen, &traffic);
    s->pairs = traffic.pairs;
    s->unique = traffic.unique_cells;
    free(seen);
    return 0;
}

static int runs_make(const kvb_bench_work *work, kvb_bench_sight *s, uint32_t n_tok)
{
    /* a query of a batch has at most a run for each of its cells, any other a trunk and a tail or a path */
    s->runs = calloc(s->cells + n_tok * (size_t)(KVB_BENCH_TAIL + 1), sizeof *s->runs);
    s->row_start = calloc((size_t)n_tok + 1, sizeof *s->row_start);
    if (!s->runs || !s->row_start)
        return -ENOMEM;
    for (uint32_t t = 0; t < n_tok; t++) {
        s->row_start[t + 1] = s->row_start[t];
        query_see(work, s, n_tok, t);
    }
    s->mask.runs = s->runs;
    s->mask.row_start = s->row_start;
    return 0;
}

/* Deals equally many whole pages to each sequence, shuffled. A sequence is at most as long as one of BATCH. */
static int pages_make(const kvb_bench_work *work, kvb_bench_sight *s, uint32_t n_tok)
{
    const uint32_t page = smaller(work->page, s->cells / n_tok), each = s->cells / n_tok / page, n = each * n_tok;
    uint64_t random = 1;
    s->pages = calloc(n, sizeof *s->pages);
    s->row_start = calloc((size_t)n_tok + 1, sizeof *s->row_start);
    s->runs = calloc(n_tok, sizeof *s->runs);
    if (!s->pages || !s->row_start || !s->runs)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) { /* Knuth's MMIX generator */
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint32_t at = (uint32_t)((random >> 33) % (i + 1));
        s->pages[i] = s->pages[at];
        s->pages[at] = i;
    }
    for (uint32_t t = 0; t < n_tok; t++) {
        s->row_start[t + 1] = s->row_start[t] + each;
        s->runs[t].end = each * page;
    }
    s->mask.row_start = s->row_start;
    s->mask.pages = s->pages;
    s->mask.seen = s->runs;
    s->mask.page_cells = page;
    return 0;
}

static int sight_open(kvb_bench_scene *scene, kvb_bench_sight *s, const kvb_bench_work *work, uint32_t cells)
{
    *s = (kvb_bench_sight){
        .group = kvb_bench_group(work), .out = work->out, .cells = cells, .mask.kind = mask_kind(work)};
    s->group.softcap = work->softcap;
    if (work->sinks)
        s->group.sink_logits = scene->sink_logits;
    int error = s->mask.kind == KVB_MASK_RUNS    ? runs_make(work, s, scene->n_tok)
                : s->mask.kind == KVB_MASK_PAGES ? pages_make(work, s, scene->n_tok)
                                                 : 0;
    return error ? error : sights_count(s, scene->n_tok);
}

static void sight_close(kvb_bench_sight *s)
{
    free(s->runs);
    free(s->row_start);
    free(s->pages);
}

/* Makes the same call without the feature that the work measures. A batch has as many cells as are seen. */
static int plain_open(kvb_bench_scene *s)
{
    kvb_bench_work plain = *s->work;
    plain.shape = plain.shape == KVB_BENCH_PAGED ? KVB_BENCH_BATCH : plain.shape;
    plain.window = 0;
    plain.sinks = false;
    plain.softcap = 0;
    plain.out = KVB_F32;
    return sight_open(s, &s->plain, &plain, plain.shape == KVB_BENCH_BATCH ? (uint32_t)s->own.unique : s->cells);
}

static int bits_make(kvb_bench_scene *s)
{
    size_t row_words = ((size_t)s->cells + 63) / 64;
    s->words = malloc(s->n_tok * row_words * sizeof *s->words);
    if (!s->words)
        return -ENOMEM;
    kvb_mask_expand(&s->own.mask, s->n_tok, s->cells, s->words, row_words);
    s->bits = (kvb_mask){.kind = KVB_MASK_EXPLICIT, .bits = s->words, .row_words = row_words};
    return 0;
}

void kvb_bench_scene_close(kvb_bench_scene *s)
{
    sight_close(&s->own);
    sight_close(&s->plain);
    free(s->words);
    kvb_memory_give(NULL, s->q, 0);
    *s = (kvb_bench_scene){0};
}

int kvb_bench_scene_open(kvb_bench_scene *s, const kvb_team *team, const kvb_bench_work *work, uint32_t cells)
{
    const kvb_group group = kvb_bench_group(work);
    *s = (kvb_bench_scene){.work = work, .cells = cells, .n_tok = tokens_of(work, cells), .heads = group.heads};
    for (uint32_t h = 0; h < s->heads; h++)
        s->sink_logits[h] = (float)(h % 5) - 2;
    int error = sight_open(s, &s->own, work, cells);
    for (uint32_t e = 0; e < KVB_BENCH_ENTRIES && !error; e++) {
        if (work->entry[e].way == KVB_BENCH_BITS)
            error = bits_make(s);
        if (work->entry[e].way == KVB_BENCH_PLAIN && !s->plain.cells)
            error = plain_open(s);
    }
    size_t q_bytes = (size_t)s->n_tok * s->heads * group.k_dim * sizeof *s->q;
    s->q = error ? NULL : kvb_memory_take(NULL, "q", q_bytes);
    if (!error && !s->q)
        error = -ENOMEM;
    making m = {KVB_ROWS_Q, s->n_tok, group, s->q};
    if (error)
        kvb_bench_scene_close(s);
    else
        team->run(team, part_make, &m);
    return error;
}
