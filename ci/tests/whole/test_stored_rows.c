/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that a cache over any format gives back what was stored. Through rewinds, removals, reuse of freed cells,
 * forks, and commits that move rows across blocks, each query sees its own tokens, in rows as near the input as the
 * format allows. Rows encoded one by one have the same bits as in a cache that holds nothing else; rows encoded with
 * their neighbours lie within a step of the quantiser.
 */
#include "ci/fuzz/verbs.h"
#include "ci/tests/caches/rig.h"

#include "caches/pools/codec/codec.h"

enum { CAPACITY = 800, SEQ_CAPACITY = 250, MAX_SEQS = 3 }; /* a slab's rows begin within blocks of cells */

/* ---- how far a row may lie from its input ------------------------------------------------------------------ */

/* Three groups: one without limits, one with a window, one with latent rows. */
static const rig groups = {.n_groups = 3, .groups = {{.window = 0}, {.window = 90, .sinks = 3}, {.latent = true}}};

/* Rows read from a contiguous cache that holds nothing else, for formats that encode rows one by one. */
typedef struct witness {
    rig alone;
    const kvb_format *format;
    bool made[RIG_CODED_TOKENS][RIG_LAYERS];
    float row[RIG_CODED_TOKENS][RIG_LAYERS][RIG_KV_HEADS][2][RIG_CODED_DIM];
} witness;

static void witness_open(witness *w, const kvb_pool_type *pool)
{
    w->alone = groups;
    w->alone.pool = pool;
    w->format = pool->format;
    memset(w->made, 0, sizeof w->made);
    assert_int_equal(rig_try_open(&w->alone, &kvb_cache_contiguous, 1, 1, 1, 1), 0);
}

static const float *row_alone(witness *w, uint64_t ordinal, uint32_t layer, uint32_t h, float kind)
{
    static float k[RIG_KV_HEADS * RIG_CODED_DIM], v[RIG_KV_HEADS * RIG_CODED_DIM];
    const uint32_t position = 0;
    const kvb_group *group = rig_group(&w->alone, layer);
    kvb_cache *c = w->alone.cache;
    kvb_attend_spec spec;
    if (w->made[ordinal][layer])
        return w->row[ordinal][layer][h][kind == 2];
    rig_rows(&w->alone, &ordinal, 1, layer, 1, k);
    rig_rows(&w->alone, &ordinal, 1, layer, 2, v);
    assert_int_equal(kvb_cache_clear(c), 0);
    assert_int_equal(kvb_cache_begin_step(c, NULL, 1), 0);
    assert_int_equal(kvb_cache_update_and_fetch(c, layer, &position, k, group->latent ? NULL : v, 1, &spec), 0);
    for (uint32_t i = 0; i < group->kv_heads; i++) {
        w->format->read(&spec.k, i, 0, 1, w->row[ordinal][layer][i][0]);
        w->format->read(&spec.v, i, 0, 1, w->row[ordinal][layer][i][1]);
    }
    w->made[ordinal][layer] = true;
    return w->row[ordinal][layer][h][kind == 2];
}

/*
 * Elements of coded rows lie in -1 .. 1: a step of a quantiser with n steps is at most 2/n, and the error half of that.
 * A second encoding, after a move, doubles the error. Elements of rotated rows are larger (sums of 128 over sqrt(128):
 * 4 is more than five deviations), and an error there spreads over the row: only its mean square is limited.
 */
static void row_check(witness *w, uint64_t ordinal, uint32_t layer, uint32_t h, float kind, const float *row)
{
    const float *stored = rig_coded_row(ordinal, layer, h, kind);
    double square = 0, range = w->format->transform ? 8 : 2;
    if (!w->format->residual_cells) {
        assert_memory_equal(row, row_alone(w, ordinal, layer, h, kind), RIG_CODED_DIM * sizeof *row);
        return;
    }
    double step = range / (w->format->elem == KVB_UINT2 ? 3 : 15) * 1.01;
    for (uint32_t c = 0; c < RIG_CODED_DIM; c++) {
        double error = fabs((double)row[c] - (double)stored[c]);
        assert_true(w->format->transform || error <= step);
        square += error * error;
    }
    assert_true(square / RIG_CODED_DIM <= step * step);
}

/* ---- one step ----------------------------------------------------------------------------------------------- */

static void cell_check(witness *w, const rig *r, const kvb_attend_spec *spec, uint32_t layer, uint32_t c)
{
    float row[RIG_CODED_DIM];
    for (uint32_t h = 0; h < spec->group->kv_heads; h++) {
        uint64_t ordinal = rig_owner(r, &spec->k, layer, h, c, 1);
        spec->k.format->read(&spec->k, h, c, 1, row);
        row_check(w, ordinal, layer, h, 1, row);
        spec->v.format->read(&spec->v, h, c, 1, row);
        row_check(w, ordinal, layer, h, spec->group->latent ? 1 : 2, row);
    }
}

/* Stores the step. The last query must see the tokens that the rules give, in rows that pass row_check(). Rows encoded
 * one by one are checked in one layer per step, chosen by the number of fed tokens. */
static void step_check(witness *w, rig *r, const rules *m)
{
    static uint64_t want[RULES_LEN], seen[RULES_LEN];
    const uint64_t *feed;
    uint32_t n = kvb_cache_feed(r->cache, &feed);
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        kvb_attend_spec spec;
        kvb_run run;
        assert_int_equal(rig_fetch(r, layer, m->pos, &spec), 0);
        if (!w->format->residual_cells && layer != n % RIG_LAYERS)
            continue;
        uint32_t cursor = 0, n_want = kvb_rules_visible(m, spec.group, feed[n - 1], want);
        assert_int_equal(rig_seen(r, &spec, layer, m->pos, n, n - 1, seen), n_want);
        assert_memory_equal(seen, want, n_want * sizeof *want);
        while (kvb_mask_next(&spec.mask, n, spec.k.cells, n - 1, &cursor, &run))
            for (uint32_t c = run.begin; c < run.end; c++)
                cell_check(w, r, &spec, layer, c);
    }
}

/* ---- scenarios: across borders of 32 cells, past the 4 blocks of 32 that are kept in f16 ------------------------- */

static const call contiguous[] = {
    {.kind = EXTEND, .n = 200}, {.kind = REWIND, .p0 = 77}, {.kind = EXTEND, .n = 50}, {.kind = REWIND, .p0 = 31},
    {.kind = EXTEND, .n = 1},   {.kind = EXTEND, .n = 1},   {.kind = EXTEND, .n = 66}, {.kind = EXTEND, .n = 66},
    {.kind = REWIND, .p0 = 33}, {.kind = EXTEND, .n = 31},  {.kind = EXTEND, .n = 1},
};
static const call sequences[] = {
    {.kind = EXTEND, .n = 90},
    {.kind = COPY, .src = 0, .dst = 1, .p1 = KVB_POS_END},
    {.kind = STEP, .n = 12, .ids = {0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0}},
    {.kind = EXTEND, .n = 100},
    {.kind = REMOVE, .src = 0, .p0 = 40, .p1 = KVB_POS_END},
    {.kind = STEP, .n = 9, .ids = {2, 1, 2, 0, 0, 2, 1, 2, 2}}, /* into freed cells of encoded blocks */
    {.kind = EXTEND, .n = 70},
    {.kind = REMOVE, .src = 1, .p0 = 50, .p1 = KVB_POS_END},
    {.kind = STEP, .n = 5, .ids = {1, 1, 2, 1, 0}},
    {.kind = KEEP, .src = 1},
    {.kind = STEP, .n = 14, .ids = {2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1}},
    {.kind = STEP, .n = 1, .ids = {1}},
};
static const call windows[] = {
    /* dropped tokens are written again, in encoded blocks */
    {.kind = EXTEND, .n = 150},
    {.kind = EXTEND, .n = 60},
    {.kind = COPY, .src = 0, .dst = 1, .p1 = KVB_POS_END},
    {.kind = STEP, .n = 12, .ids = {0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0}},
    {.kind = EXTEND, .n = 20},
    {.kind = STEP, .n = 9, .ids = {2, 1, 2, 1, 2, 2, 1, 2, 2}},
    {.kind = KEEP, .src = 1},
    {.kind = STEP, .n = 16, .ids = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {.kind = STEP, .n = 1, .ids = {1}},
};
static const call clones[] = {
    {.kind = EXTEND, .n = 240},
    {.kind = COPY, .src = 0, .dst = 1, .p1 = KVB_POS_END},
    {.kind = COPY, .src = 0, .dst = 2, .p1 = KVB_POS_END},
    {.kind = REMOVE, .src = 1, .p0 = 0, .p1 = KVB_POS_END},
    {.kind = COPY,
     .src = 2,
     .dst = 1,
     .p1 = 99}, /* from 250 on: the block at 224 is encoded, with rows of sequence 0 */
    {.kind = EXTEND, .n = 1},
    {.kind = STEP, .n = 2, .ids = {1, 1}},
    {.kind = STEP, .n = 1, .ids = {2}},
};
static const call trees[] = {
    {.kind = EXTEND, .n = 150},
    {.kind = PROPOSE, .n = 12, .parents = {-1, -1, 0, 1, 1, 2, 3, 3, 6, 7, 8, 10}},
    {.kind = COMMIT, .n = 6, .ids = {1, 3, 6, 8, 10, 11}}, /* from cells 151, 153 .. 161 over the border at 160 */
    {.kind = EXTEND, .n = 1},
    {.kind = PROPOSE, .n = 16, .parents = {-1, 0, 0, 1, 2, 2, 3, 4, 5, 5, 9, 10, 11, 12, 13, 14}},
    {.kind = PROPOSE, .n = 16, .parents = {15, 16, 17, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30}},
    {.kind = COMMIT, .n = 16, .ids = {0, 2, 5, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22}},
    {.kind = EXTEND, .n = 3},
    {.kind = PROPOSE, .n = 2, .parents = {-1, -1}},
    {.kind = COMMIT, .n = 0},
    {.kind = EXTEND, .n = 40},
};

static void scenario_run(const kvb_cache_type *type, const kvb_pool_type *pool, kvb_growth growth, const call *calls,
                         size_t n)
{
    static witness w;
    rig r = groups;
    static rules m;
    m.type = type;
    m.model = &r.model;
    m.capacity = CAPACITY;
    m.seq_capacity = SEQ_CAPACITY;
    m.n_ids = KVB_SEQ_IDS;
    m.max_seqs = MAX_SEQS;
    m.page_cells = 8;
    assert_int_equal(kvb_rules_open(&m), 0);
    r.pool = pool;
    r.growth = growth;
    r.page_cells = m.page_cells;
    witness_open(&w, pool);
    assert_int_equal(rig_try_open(&r, type, m.capacity, m.seq_capacity, m.max_seqs, 4), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(kvb_call_make(r.cache, &calls[i]), 0);
        assert_int_equal(kvb_rules_call(&m, &calls[i]), 0);
        if (m.valid)
            step_check(&w, &r, &m);
    }
    rig_close(&w.alone);
    rig_close(&r);
    kvb_rules_close(&m);
}

static void pools_run(const kvb_cache_type *type, const call *calls, size_t n)
{
    uint32_t blocks = 0, rows = 0;
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        for (const kvb_pool_type *pool = *p; pool; pool = pool == *p ? pool->rotated : NULL) {
            bool residual = pool->format->residual_cells > 0;
            scenario_run(type, pool, KVB_GROWTH_DOUBLE, calls, n);
            if (residual)
                scenario_run(type, pool, KVB_GROWTH_RESERVE, calls, n);
            *(residual ? &blocks : &rows) += 1;
        }
    print_message("# %s: %u formats row by row, %u by blocks of cells\n", type->name, rows, blocks);
}

#define RUN(type, calls) pools_run(type, calls, sizeof(calls) / sizeof *(calls))

TEST(test_contiguous)
{
    RUN(&kvb_cache_contiguous, contiguous);
}
TEST(test_seq)
{
    RUN(&kvb_cache_seq, sequences);
}
TEST(test_paged)
{
    RUN(&kvb_cache_paged, sequences);
}
TEST(test_window)
{
    RUN(&kvb_cache_window, windows);
}
TEST(test_slab)
{
    RUN(&kvb_cache_slab, clones);
}
TEST(test_tree)
{
    RUN(&kvb_cache_tree, trees);
}

/* ---- head scales -------------------------------------------------------------------------------------------- */

/* Each pool of a cache gets the magnitudes of its own layer and side. */
TEST(test_head_scales)
{
    static const float k_of[3][2] = {{1, 2}, {3, 4}, {5, 6}}, v_of[3][2] = {{70, 60}, {50, 40}, {30, 20}};
    static const float *const k_amax[] = {k_of[0], k_of[1], k_of[2]}, *const v_amax[] = {v_of[0], v_of[1], v_of[2]};
    static const float rows[2 * 128];
    static const kvb_group group = {.heads = 2, .kv_heads = 2, .k_dim = 128, .v_dim = 128, .scale = 1};
    const kvb_model model = {.n_layers = 3, .n_groups = 2, .group_of = {1, 0, 1}, .groups = {group, group}};
    const uint32_t position = 0;
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++) {
        const kvb_format *f = (*p)->format;
        kvb_allocator a = {0};
        const kvb_cache_options options = {.capacity = 4,
                                           .seq_capacity = 4,
                                           .max_seqs = 1,
                                           .min_chunk = 4,
                                           .k_pool = *p,
                                           .v_pool = *p,
                                           .k_amax = k_amax,
                                           .v_amax = v_amax,
                                           .allocator = &a};
        kvb_cache *c;
        kvb_attend_spec spec;
        char why[160];
        if (!f->head_scale)
            continue;
        assert_int_equal(kvb_cache_open(&kvb_cache_contiguous, &model, &options, &c, why, sizeof why), 0);
        assert_int_equal(kvb_cache_begin_step(c, NULL, 1), 0);
        for (uint32_t layer = 0; layer < 3; layer++) {
            assert_int_equal(kvb_cache_update_and_fetch(c, layer, &position, rows, rows, 1, &spec), 0);
            for (uint32_t h = 0; h < 2; h++) {
                float k = kvb_head_scale(f, k_amax[layer], 2, h), v = kvb_head_scale(f, v_amax[layer], 2, h);
                assert_true(spec.k.head_scales[h] == k && spec.v.head_scales[h] == v && k != v);
            }
        }
        kvb_cache_close(c);
        assert_int_equal(a.current_bytes, 0);
    }
}
