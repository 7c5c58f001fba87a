/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows position shifts by values: K rows that a cache has rotated are those that the model would have made at the new
 * positions, in every layer and either pairing. Shifts between two steps act as one. V, and groups without positions,
 * do not change. And which caches, models and formats have no shifts.
 */
#include "rig.h"

#include "caches/pools/rows.h"

enum { LAYERS = 4, HEADS = 2, DIM = 64, V_DIM = 32, TOKENS = 24 };

/* Layers 0 and 2: halves, from element 8 on; 1: neighbours, all of the row; 3: latent, without positions. */
static const kvb_model model = {
    .n_layers = LAYERS,
    .n_groups = 3,
    .group_of = {0, 1, 0, 2},
    .groups =
        {{.heads = HEADS,
          .kv_heads = HEADS,
          .k_dim = DIM,
          .v_dim = V_DIM,
          .scale = 1,
          .rope = {.known = true, .base = 10000, .first = 8, .dims = 32}},
         {.heads = HEADS,
          .kv_heads = HEADS,
          .k_dim = DIM,
          .v_dim = V_DIM,
          .scale = 1,
          .window = 20,
          .sinks = 2,
          .rope = {.known = true, .neighbours = true, .base = 500000, .dims = DIM}},
         {.heads = 1, .kv_heads = 1, .k_dim = DIM, .v_dim = V_DIM, .latent = true, .scale = 1, .rope.known = true}},
};

typedef struct scene {
    kvb_allocator allocator;
    kvb_cache *cache;
    uint64_t tokens;             /* admitted so far */
    uint32_t seq_of[2 * TOKENS]; /* sequence of each token */
} scene;

/* Element c of a token's row before rotation, between 1 and 2. */
static double plain(uint64_t token, uint32_t layer, uint32_t h, bool is_v, uint32_t c)
{
    uint64_t z = (((token * LAYERS + layer) * HEADS + h) * 2 + is_v) * 512 + c;
    z = (z + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return 1 + (double)(z >> 40) * 0x1p-24;
}

/* The K row at a position: pair i is rotated by position * base^(-2i/dims), in double. */
static void k_make(uint64_t token, uint32_t layer, uint32_t h, double position, double *row)
{
    const kvb_rope *r = &kvb_model_group(&model, layer)->rope;
    for (uint32_t c = 0; c < DIM; c++)
        row[c] = plain(token, layer, h, false, c);
    for (uint32_t i = 0; i < r->dims / 2; i++) {
        uint32_t a = r->first + (r->neighbours ? 2 * i : i), b = r->neighbours ? a + 1 : a + r->dims / 2;
        double angle = position / pow(r->base, 2.0 * i / r->dims), x = row[a], y = row[b];
        row[a] = x * cos(angle) - y * sin(angle);
        row[b] = y * cos(angle) + x * sin(angle);
    }
}

static void scene_open(scene *s, const kvb_cache_type *type, const kvb_pool_type *pool)
{
    char why[200];
    *s = (scene){0};
    const kvb_cache_options options = {.capacity = 3 * TOKENS,
                                       .seq_capacity = 3 * TOKENS,
                                       .seq_ids = 4,
                                       .max_seqs = 3,
                                       .rollback = 64,
                                       .min_chunk = 4,
                                       .k_pool = pool,
                                       .v_pool = pool,
                                       .allocator = &s->allocator};
    if (kvb_cache_open(type, &model, &options, &s->cache, why, sizeof why))
        fail_msg("%s", why);
}

static void scene_close(scene *s)
{
    kvb_cache_close(s->cache);
    assert_int_equal(s->allocator.current_bytes, 0);
}

/* Adds n tokens to a sequence in one step; specs: one per layer. */
static void step(scene *s, uint32_t seq, uint32_t n, kvb_attend_spec specs[LAYERS])
{
    static float k[TOKENS * HEADS * DIM], v[TOKENS * HEADS * V_DIM];
    uint32_t ids[TOKENS], pos[TOKENS];
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = s->seq_of[s->tokens + i] = seq;
        pos[i] = kvb_cache_length(s->cache, seq) + i;
    }
    assert_int_equal(kvb_cache_begin_step(s->cache, ids, n), 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const kvb_group *g = kvb_model_group(&model, layer);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t h = 0; h < g->kv_heads; h++) {
                double row[DIM];
                k_make(s->tokens + i, layer, h, pos[i], row);
                for (uint32_t c = 0; c < DIM; c++)
                    k[(i * g->kv_heads + h) * DIM + c] = (float)row[c];
                for (uint32_t c = 0; c < V_DIM; c++)
                    v[(i * g->kv_heads + h) * V_DIM + c] = (float)plain(s->tokens + i, layer, h, true, c);
            }
        if (kvb_cache_update_and_fetch(s->cache, layer, pos, k, g->latent ? NULL : v, n, &specs[layer]))
            fail_msg("%s", kvb_cache_why(s->cache));
    }
    s->tokens += n;
}

/* Cells that the last query of a step sees, in the order of positions. */
static uint32_t cells_of(const kvb_attend_spec *spec, uint32_t n_tok, uint32_t *cells)
{
    uint32_t n = 0, cursor = 0;
    for (kvb_run run; kvb_mask_next(&spec->mask, n_tok, spec->k.cells, n_tok - 1, &cursor, &run);)
        for (uint32_t c = run.begin; c < run.end; c++)
            cells[n++] = c;
    return n;
}

/* K and V of a token in a layer. Its V row identifies its cell (in latent rows the first elements, which are not
 * rotated). */
static void rows_find(const kvb_attend_spec *spec, uint32_t layer, uint64_t token, float k[HEADS][DIM],
                      float v[HEADS][V_DIM])
{
    uint32_t cells[3 * TOKENS], n = cells_of(spec, 1, cells);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t h = 0; h < spec->group->kv_heads; h++) {
            spec->k.format->read(&spec->k, h, cells[i], 1, k[h]);
            spec->v.format->read(&spec->v, h, cells[i], 1, v[h]);
        }
        double least = 0;
        for (uint32_t c = 0; c < V_DIM; c++)
            least += fabs((double)v[0][c] - plain(token, layer, 0, !spec->group->latent, c));
        if (least < 1)
            return;
    }
    fail_msg("layer %u: token %u is not seen", layer, (unsigned)token);
}

/* The row must be that of the model at the position, within so many roundings of the size of a pair. */
static void row_check(uint32_t layer, uint32_t h, uint64_t token, uint32_t position, double roundings, const float *row)
{
    double want[DIM];
    k_make(token, layer, h, position, want);
    for (uint32_t c = 0; c < DIM; c++)
        if (!(fabs((double)row[c] - want[c]) <= roundings * 0x1p-24 * 2 * sqrt(2)))
            fail_msg("layer %u, token %u at %u, channel %u: %a and not %a", layer, (unsigned)token, position, c,
                     (double)row[c], want[c]);
}

#define EACH_SHIFTING(type) EACH_CACHE(type, KVB_CACHE_SHIFT)

TEST(rows_are_those_of_their_new_positions)
{
    EACH_SHIFTING(type)
    {
        scene s;
        kvb_attend_spec specs[LAYERS];
        float k[HEADS][DIM], v[HEADS][V_DIM], was_k[HEADS][DIM], was_v[HEADS][V_DIM];
        scene_open(&s, type, kvb_builtin_pools[0]);
        step(&s, 0, 16, specs);
        assert_int_equal(kvb_cache_seq_rm(s.cache, 0, 4, 7), 0);
        assert_int_equal(kvb_cache_seq_add(s.cache, 0, 7, KVB_POS_END, -3), 0); /* 7 .. 15 to 4 .. 12 */
        assert_int_equal(kvb_cache_length(s.cache, 0), 13);
        step(&s, 0, 1, specs);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            const kvb_group *g = kvb_model_group(&model, layer);
            for (uint64_t t = 0; t < 16; t++) {
                if (t >= 4 && t < 7)
                    continue;
                rows_find(&specs[layer], layer, t, k, v);
                for (uint32_t h = 0; h < g->kv_heads; h++) {
                    /* roundings: of the store; of products and a sum; of angles. Rows that stay have only the first */
                    row_check(layer, h, t, (uint32_t)(t < 4 ? t : t - 3), t < 4 || !g->rope.dims ? 1 : 5, k[h]);
                    for (uint32_t c = 0; c < V_DIM; c++)
                        assert_true(v[h][c] == (float)plain(t, layer, h, !g->latent, c));
                }
            }
        }
        /* up, a step, down again: as before, within the rotation's rounding */
        rows_find(&specs[0], 0, 12, was_k, was_v);
        assert_int_equal(kvb_cache_seq_add(s.cache, 0, 6, KVB_POS_END, 11), 0);
        step(&s, 0, 1, specs);
        assert_int_equal(kvb_cache_seq_add(s.cache, 0, 6, KVB_POS_END, -11), 0);
        step(&s, 0, 1, specs);
        rows_find(&specs[0], 0, 12, k, v);
        for (uint32_t c = 0; c < DIM; c++)
            assert_true(fabs((double)k[1][c] - (double)was_k[1][c]) <= 10 * 0x1p-24 * 2 * sqrt(2));
        assert_memory_equal(v, was_v, sizeof v);
        scene_close(&s);
    }
}

/* Stored K rows of layer 0 after shifts of a sequence's tail by these deltas, with a step after each or after all. */
static void shifted_rows(const kvb_cache_type *type, const kvb_pool_type *pool, const int32_t *deltas, uint32_t n,
                         bool steps_between, float rows[16][HEADS][DIM])
{
    scene s;
    kvb_attend_spec specs[LAYERS];
    float v[HEADS][V_DIM];
    scene_open(&s, type, pool);
    step(&s, 0, 16, specs);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = 5;
        for (uint32_t j = 0; j < i; j++)
            at += (uint32_t)deltas[j];
        assert_int_equal(kvb_cache_seq_add(s.cache, 0, at, KVB_POS_END, deltas[i]), 0);
        if (steps_between && i + 1 < n) {
            step(&s, 1, 1, specs); /* a step of another sequence ends the shift, too */
            assert_int_equal(kvb_cache_seq_rm(s.cache, 1, 0, KVB_POS_END), 0);
        }
    }
    step(&s, 0, 1, specs);
    for (uint64_t t = 0; t < 16; t++)
        rows_find(&specs[0], 0, t, rows[t], v);
    scene_close(&s);
}

TEST(shifts_between_two_steps_are_one)
{
    static float one[16][HEADS][DIM], two[16][HEADS][DIM], apart[16][HEADS][DIM], none[16][HEADS][DIM];
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (const kvb_pool_type *pool = kvb_builtin_pools[p]; pool; pool = pool->rotated) {
            char why[200];
            if (pool->format->residual_cells ||
                (pool->supports &&
                 !(pool->supports(pool, DIM, why, sizeof why) && pool->supports(pool, V_DIM, why, sizeof why))) ||
                (pool->format->elem != KVB_F32 && pool->format->elem != KVB_F16 && pool->format->elem != KVB_Q8_0 &&
                 pool->format->elem != KVB_INT8)) /* fewer bits cannot tell tokens apart */
                continue;
            shifted_rows(&kvb_cache_seq, pool, (const int32_t[]){9}, 1, false, one);
            shifted_rows(&kvb_cache_seq, pool, (const int32_t[]){13, -4}, 2, false, two);
            assert_memory_equal(one, two, sizeof one);
            shifted_rows(&kvb_cache_slab, pool, (const int32_t[]){13, -4}, 2, false, two);
            assert_memory_equal(one, two, sizeof one);
            shifted_rows(&kvb_cache_seq, pool, (const int32_t[]){13, -4}, 2, true, apart);
            assert_memory_not_equal(one, apart, sizeof one); /* stored twice: rounded twice */
            shifted_rows(&kvb_cache_seq, pool, (const int32_t[]){7, -7}, 2, false, two);
            shifted_rows(&kvb_cache_seq, pool, NULL, 0, false, none);
            assert_memory_equal(two, none, sizeof two); /* there and back changes nothing */
        }
}

static int small_open(const kvb_cache_type *type, const kvb_model *m, const kvb_pool_type *k_pool,
                      kvb_allocator *allocator, kvb_cache **cache)
{
    char why[200];
    const kvb_cache_options options = {.capacity = 8,
                                       .seq_capacity = 8,
                                       .max_seqs = 1,
                                       .min_chunk = 4,
                                       .k_pool = k_pool,
                                       .v_pool = kvb_builtin_pools[0],
                                       .allocator = allocator};
    return kvb_cache_open(type, m, &options, cache, why, sizeof why);
}

TEST(caches_and_models_without_shifts_say_so)
{
    EACH_CACHE(type, 0)
    {
        kvb_allocator allocator = {0};
        kvb_cache *cache;
        for (int unknown = -1; unknown < (int)model.n_groups;
             unknown++) { /* the group with an unknown rope; -1: none */
            kvb_model m = model;
            char group[16];
            if (unknown >= 0)
                m.groups[unknown].rope.known = false;
            snprintf(group, sizeof group, "group %d", unknown);
            assert_int_equal(small_open(type, &m, kvb_builtin_pools[0], &allocator, &cache), 0);
            const bool can = type->flags & KVB_CACHE_SHIFT && unknown < 0;
            assert_int_equal(kvb_cache_seq_add(cache, 0, 0, 4, 1), can ? 0 : -ENOTSUP);
            if (!can)
                assert_contains(kvb_cache_why(cache), type->flags & KVB_CACHE_SHIFT ? group : "seq_add");
            kvb_cache_close(cache);
        }
    }
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (int unknown = 0; unknown < 2; unknown++) {
            kvb_allocator allocator = {0};
            const kvb_pool_type *pool = kvb_builtin_pools[p];
            kvb_model m = model;
            kvb_cache *cache;
            m.groups[0].rope.known = !unknown;
            if (small_open(&kvb_cache_seq, &m, pool, &allocator, &cache))
                continue;
            const bool can = !pool->format->residual_cells && !unknown;
            assert_int_equal(kvb_cache_seq_add(cache, 0, 0, 4, 1), can ? 0 : -ENOTSUP);
            if (!can)
                assert_contains(kvb_cache_why(cache), unknown ? "group 0" : pool->name);
            kvb_cache_close(cache);
        }
}

/* Tokens at one position are all seen, each row rotated by its own distance. They are saved like this, and loaded by
 * caches that can hold them. */
TEST(divided_positions_hold_several_tokens)
{
    const char *path = tests_path("saved");
    scene s;
    kvb_attend_spec specs[LAYERS];
    float k[HEADS][DIM], v[HEADS][V_DIM];
    kvb_cache_usage usage;
    uint32_t cells[3 * TOKENS];
    scene_open(&s, &kvb_cache_seq, kvb_builtin_pools[0]);
    step(&s, 0, 16, specs);
    assert_int_equal(kvb_cache_seq_cp(s.cache, 0, 1, 0, KVB_POS_END), 0);
    assert_int_equal(kvb_cache_seq_div(s.cache, 0, 4, 12, 0), -EINVAL);
    assert_int_equal(kvb_cache_seq_div(s.cache, 0, 4, 12, 4), -EINVAL); /* onto tokens that stay below */
    assert_int_equal(kvb_cache_seq_div(s.cache, 0, 4, 12, 1), 0);       /* nothing moves */
    assert_int_equal(kvb_cache_seq_add(s.cache, 0, 4, KVB_POS_END, 12), 0);
    assert_int_equal(kvb_cache_seq_div(s.cache, 0, 16, 24, 4), 0);
    assert_int_equal(kvb_cache_seq_add(s.cache, 0, 24, KVB_POS_END, -18), 0);
    step(&s, 0, 1, specs);
    assert_int_equal(kvb_cache_save(s.cache, 0, path), 0);
    assert_int_equal(kvb_cache_load(s.cache, 2, path), 0);
    kvb_cache_usage_of(s.cache, 0, &usage);
    assert_int_equal(usage.cells_live, 16 + 12 + 1); /* with the loaded tokens */
    for (uint32_t seq = 0; seq < 3; seq++) {
        step(&s, seq, 1, specs);
        assert_int_equal(cells_of(&specs[0], 1, cells), seq == 1 ? 17 : 18);
        for (uint64_t t = 0; t < 16; t++)
            for (uint32_t layer = 0; layer < 2; layer++) {
                const uint32_t was = (uint32_t)t, now = was < 4 ? was : was < 12 ? 4 + (was - 4) / 4 : was - 6;
                rows_find(&specs[layer], layer, t, k, v);
                row_check(layer, 1, t, seq == 1 ? was : now, seq == 1 || was == now ? 1 : 5, k[1]);
            }
    }
    scene_close(&s);
    EACH_CACHE(type, KVB_CACHE_SAVES)
    if (!(type->flags & KVB_CACHE_DIVIDE)) {
        scene_open(&s, type, kvb_builtin_pools[0]);
        assert_int_equal(kvb_cache_seq_div(s.cache, 0, 0, 4, 2), -ENOTSUP);
        assert_int_equal(kvb_cache_load(s.cache, 0, path), -ENOTSUP);
        scene_close(&s);
    }
}
