/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the rules of caches/cache.h: plans, cells, pages, masks, memory, compaction, refusals. */
#include "ci/tests/tests.h"
#include "ci/tests/caches/rig.h"
#include "caches/call.h"
#include "caches/pools/codec/codec.h"
#include "caches/store.h"

/*
 * Shows the rules of caches/cache.h about plans, cells, masks and memory one by one, for every cache that has them;
 * what caches can do, and that they refuse other calls. The traces of traces/, and test_random, show what queries see
 * and which calls are illegal.
 */

/* ---- rule 1: one plan for all layers of a step, good for its own rows alone ---------------------------------- */

/* One plan serves all layers, in any order and repeatedly; its arrays do not move. */
TEST(test_one_plan)
{
    EACH_CACHE(type, 0)
    {
        rig r;
        kvb_attend_spec a, b;
        const uint64_t *before, *after;
        rig_open(&r, type, 32, 32, 4, 4);
        assert_int_equal(rig_step(&r, NULL, 5), 0);
        assert_int_equal(kvb_cache_feed(r.cache, &before), 5);
        assert_int_equal(rig_fetch(&r, 2, r.pos, &a), 0);
        rig_store(&r);
        assert_int_equal(rig_fetch(&r, 2, r.pos, &b), 0);
        assert_int_equal(kvb_cache_feed(r.cache, &after), 5);
        assert_ptr_equal(before, after);
        assert_ptr_equal(a.k.base, b.k.base);
        assert_int_equal(a.mask.kind, b.mask.kind);
        assert_true(a.mask.row_start == b.mask.row_start && a.mask.runs == b.mask.runs && a.mask.bits == b.mask.bits);
        assert_int_equal(a.generation, b.generation);
        assert_int_equal(rig_usage(&r).cells_written, 5);
        rig_close(&r);
    }
}

TEST(test_rows_are_the_plans)
{
    static const float rows[64];
    static const uint32_t good[] = {0, 1}, bad[] = {0, 2};
    static const struct {
        uint32_t layer, n;
        const uint32_t *positions;
        const float *k, *v;
        const char *why;
    } calls[] = {
        {RIG_LAYERS, 2, good, rows, rows, "layer 3"},  {0, 1, good, rows, rows, "1 tokens are given"},
        {0, 2, bad, rows, rows, "position 2"},         {0, 2, NULL, rows, rows, "must be given"},
        {0, 2, good, NULL, rows, "must be given"},     {0, 2, good, rows, NULL, "V rows of layer 0"},
        {1, 2, good, rows, rows, "layer 1 is latent"},
    };
    EACH_CACHE(type, 0)
    {
        rig r = {.n_groups = 2, .groups = {{.window = 9}, {.latent = true}}};
        assert_int_equal(rig_try_open(&r, type, 32, 32, 4, 4), 0);
        assert_int_equal(rig_step(&r, NULL, 2), 0);
        for (size_t i = 0; i < N(calls); i++) {
            kvb_attend_spec spec;
            int error = kvb_cache_update_and_fetch(r.cache, calls[i].layer, calls[i].positions, calls[i].k, calls[i].v,
                                                   calls[i].n, &spec);
            rig_refused(&r, error, -EINVAL, calls[i].why);
        }
        rig_sees(&r, 1, TOKENS(0, 1));
        rig_close(&r);
    }
}

/* The flags of each cache. */
TEST(test_caches)
{
    enum {
        S = KVB_CACHE_SEQ | KVB_CACHE_REORDER,
        T = KVB_CACHE_TREE,
        R = KVB_CACHE_REWIND,
        E = KVB_CACHE_EXACT,
        P = KVB_CACHE_SHIFT,
        V = KVB_CACHE_SAVES
    };
    static const struct {
        const kvb_cache_type *type;
        const char *name;
        uint32_t flags;
    } want[] = {
        {&kvb_cache_recompute, "recompute", S | T | E | KVB_CACHE_FORGETS | V},
        {&kvb_cache_slab, "slab", S | P | KVB_CACHE_PREALLOCATES | V},
        {&kvb_cache_contiguous, "contiguous", R | E | V},
        {&kvb_cache_seq, "seq", S | T | E | P | KVB_CACHE_DIVIDE | V},
        {&kvb_cache_window, "window", S | T | P | V},
        {&kvb_cache_paged, "paged", S | T | V | KVB_CACHE_PAGES},
        {&kvb_cache_paged_prefix, "paged-prefix", S | KVB_CACHE_PREFIX | V | KVB_CACHE_PAGES},
        {&kvb_cache_shared_prefix, "shared-prefix", KVB_CACHE_SEQ | KVB_CACHE_FREEZES},
        {&kvb_cache_tree, "tree", T | R | E | V},
    };
    for (size_t i = 0; i < N(want); i++) {
        assert_ptr_equal(kvb_builtin_caches[i], want[i].type);
        assert_string_equal(want[i].type->name, want[i].name);
        assert_int_equal(want[i].type->flags, want[i].flags);
    }
    assert_null(kvb_builtin_caches[N(want)]);
}

static bool forgets(const kvb_cache_type *type)
{
    return type->flags & KVB_CACHE_FORGETS;
}

/* ---- rules 2 and 3: which cells sequences hold ------------------------------------------------------ */

/* A fork sees the trunk and its own tokens, not the other's. It moves no bytes and takes no cells; a slab copies, and
 * takes as many cells as it copies. */
TEST(test_2_3_fork)
{
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        rig r;
        uint32_t copied = type == &kvb_cache_slab ? 3 : 0, frozen = type->flags & KVB_CACHE_FREEZES ? 3 : 0;
        rig_open(&r, type, 32, 32, 4, 4);
        assert_int_equal(rig_step(&r, NULL, 4), 0);
        rig_store(&r);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 3), 0);
        assert_int_equal(rig_usage(&r).cells_moved, copied + frozen);
        assert_int_equal(rig_usage(&r).cells_live, 4 + copied);
        assert_int_equal(rig_step(&r, IDS(0, 1, 1)), 0);
        rig_sees(&r, 0, TOKENS(0, 1, 2, 3, 4));
        rig_sees(&r, 1, TOKENS(0, 1, 2, 5));
        rig_sees(&r, 2, TOKENS(0, 1, 2, 5, 6));
        rig_close(&r);
    }
}

/* A reordering moves no rows if cells or pages are shared. A slab copies only rows that one more sequence needs. */
TEST(test_3_reorder)
{
    static const struct {
        uint32_t n, dst[4], src[4], copied;
    } calls[] = {
        {2, {0, 1}, {1, 0}, 0},             /* exchange */
        {4, {0, 1, 2, 3}, {1, 2, 3, 0}, 0}, /* a ring */
        {4, {0, 1, 2, 3}, {3, 1, 0, 2}, 0},
        {4, {0, 1, 2, 3}, {1, 1, 0, 0}, 2}, /* two are dropped, two are copied */
        {1, {0}, {3}, 1},                   /* a source that stays */
        {1, {2}, {9}, 0},                   /* emptied */
        {3, {2, 3, 0}, {2, 3, 0}, 0},       /* nothing */
    };
    EACH_CACHE(type, KVB_CACHE_REORDER)
    for (size_t i = 0; i < N(calls); i++) {
        rig r;
        const uint32_t rows = type == &kvb_cache_slab ? 5 * calls[i].copied : 0;
        rig_open(&r, type, 256, 64, 8, 8);
        for (uint32_t s = 0; s < 4; s++) {
            assert_int_equal(rig_step(&r, (const uint32_t[]){s, s, s, s, s}, 5), 0);
            rig_store(&r);
        }
        const kvb_cache_usage before = rig_usage(&r);
        assert_int_equal(kvb_cache_seq_reorder(r.cache, calls[i].dst, calls[i].src, calls[i].n), 0);
        assert_int_equal(rig_usage(&r).cells_moved - before.cells_moved, rows);
        rig_close(&r);
    }
}

/* A step takes the lowest run of free cells that is long enough; if there is none, the lowest free cells. */
TEST(test_3_first_fit)
{
    static const struct {
        uint32_t seq, p0, p1; /* removed first, unless p1 is 0 */
        uint32_t add, n, cells[4];
    } steps[] = {
        {0, 0, 0, 0, 4, {0, 1, 2, 3}}, {0, 0, 0, 1, 4, {4, 5, 6, 7}}, {0, 1, 3, 1, 3, {8, 9, 10}},
        {0, 0, 0, 1, 2, {1, 2}},       {0, 0, 1, 2, 2, {0, 11}},
    };
    for (int window = 0; window < 2; window++) {
        rig r;
        rig_open(&r, window ? &kvb_cache_window : &kvb_cache_seq, 12, 12, 4, 4);
        for (size_t i = 0; i < N(steps); i++) {
            const uint32_t ids[] = {steps[i].add, steps[i].add, steps[i].add, steps[i].add};
            if (steps[i].p1)
                assert_int_equal(kvb_cache_seq_rm(r.cache, steps[i].seq, steps[i].p0, steps[i].p1), 0);
            assert_int_equal(rig_step(&r, ids, steps[i].n), 0);
            kvb_attend_spec spec = rig_store(&r);
            for (uint32_t t = 0; t < steps[i].n; t++)
                assert_int_equal(rig_owner(&r, &spec.k, RIG_LAYERS - 1, 0, steps[i].cells[t], 1),
                                 r.next - steps[i].n + t);
        }
        assert_int_equal(rig_usage(&r).cells_live, 12);
        rig_close(&r);
    }
}

/* ---- rule 4: views end behind the last cell in use, and shrink with it ------------------------------------------ */

TEST(test_4_occupancy)
{
    EACH_CACHE(type, 0)
    {
        rig r;
        uint32_t row = type == &kvb_cache_slab ? 200 : 0; /* where the second sequence begins */
        rig_open(&r, type, 200, 200, 4, 64);
        assert_int_equal(rig_step(&r, NULL, 10), 0);
        assert_int_equal(rig_store(&r).k.cells, 10);
        if (type->flags & KVB_CACHE_SEQ) {
            assert_int_equal(rig_step(&r, IDS(1, 1, 1, 1, 1, 1)), 0);
            assert_int_equal(rig_store(&r).k.cells, row ? row + 6 : forgets(type) ? 6 : 16);
            assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 2, KVB_POS_END), 0);
            assert_int_equal(rig_step(&r, IDS(0, 1)), 0);
            assert_int_equal(rig_store(&r).k.cells, row ? row + 3 : 14);
            assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 0, KVB_POS_END), 0);
        } else {
            assert_int_equal(rig_step(&r, NULL, 6), 0);
            assert_int_equal(rig_store(&r).k.cells, 16);
        }
        assert_int_equal(rig_usage(&r).cells_peak, 16);
        if (type->flags & (KVB_CACHE_SEQ | KVB_CACHE_REWIND)) {
            assert_int_equal(kvb_cache_rewind(r.cache, 3), 0);
            assert_int_equal(rig_step(&r, NULL, 2), 0);
            assert_int_equal(rig_store(&r).k.cells, 5);
            assert_int_equal(rig_usage(&r).cells_live, 5);
        }
        rig_close(&r);
    }
}
/* ---- rule 5: can_extend is the admission test; what does not fit fails whole ------------------------------------- */

static void extend_check(rig *r, const uint32_t *ids, size_t n, int want)
{
    kvb_cache_usage before = rig_usage(r);
    assert_int_equal(kvb_cache_can_extend(r->cache, ids, (uint32_t)n), want == 0);
    assert_int_equal(rig_step(r, ids, n), want);
    if (want) {
        kvb_cache_usage after = rig_usage(r);
        rig_assert_same(&before, &after);
        assert_true(kvb_cache_why(r->cache)[0] != 0);
    }
}

/* Tokens, sequences and their length are limited; a cache of one sequence knows no other id. */
TEST(test_5_sequences)
{
    EACH_CACHE(type, 0)
    {
        bool seqs = type->flags & KVB_CACHE_SEQ;
        rig r;
        rig_open(&r, type, 32, 4, 2, 4);
        extend_check(&r, NULL, UINT32_MAX, -ENOSPC);
        extend_check(&r, NULL, 0, -EINVAL);
        extend_check(&r, IDS(0, 9, 63), seqs ? -ENOSPC : -ENOTSUP);
        extend_check(&r, IDS(64), seqs ? -EINVAL : -ENOTSUP);
        extend_check(&r, IDS(0), 0);
        extend_check(&r, IDS(0, 0, 0, 0), -ENOSPC);
        extend_check(&r, IDS(0, 63), seqs ? 0 : -ENOTSUP);
        if (seqs) {
            extend_check(&r, IDS(5), -ENOSPC);
            assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 5, 0, KVB_POS_END), -ENOSPC);
            assert_int_equal(kvb_cache_seq_rm(r.cache, 63, 0, KVB_POS_END), 0);
            extend_check(&r, IDS(5), 0);
            assert_int_equal(kvb_cache_length(r.cache, 63), 0);
        }
        rig_close(&r);
    }
}

/* ---- rules 6 and 8: the simplest mask that is right -------------------------------------------------------------- */

/* CAUSAL needs queries in the last cells of the view: no other sequence's cells before them, and no hole. */
TEST(test_6_not_the_tail)
{
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        rig r;
        if (forgets(type)) /* it feeds all tokens: each is a query */
            continue;
        rig_open(&r, type, 32, 32, 4, 4);
        assert_int_equal(rig_step(&r, NULL, 4), 0);
        rig_store(&r);
        assert_int_equal(rig_step(&r, IDS(1, 1, 1)), 0);
        const bool pages = type == &kvb_cache_paged || type == &kvb_cache_paged_prefix;
        const kvb_mask_kind apart = pages ? KVB_MASK_PAGES : KVB_MASK_RUNS;
        assert_int_equal(rig_store(&r).mask.kind, apart);        /* cells before its own */
        assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 0, 2), 0); /* in cache seq cells 4 and 5 are free, 6 is not */
        assert_int_equal(rig_step(&r, NULL, 2), 0);
        assert_int_equal(rig_store(&r).mask.kind, KVB_MASK_CAUSAL);
        rig_sees(&r, 0, TOKENS(0, 1, 2, 3, 7));
        assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 1, 2), 0);
        assert_int_equal(rig_step(&r, IDS(0, 0)), 0); /* two do not fit in the hole of one */
        assert_int_equal(rig_store(&r).mask.kind, KVB_MASK_RUNS);
        rig_sees(&r, 1, TOKENS(0, 2, 3, 7, 8, 9, 10));
        rig_close(&r);
    }
}

/* One sequence without holes lies in order and needs no mask: NONE for one query, CAUSAL for several. */
TEST(test_8_fast_path)
{
    EACH_CACHE(type, 0)
    {
        rig r;
        rig_open(&r, type, 32, 32, 4, 4);
        assert_int_equal(rig_step(&r, NULL, 5), 0);
        assert_int_equal(rig_store(&r).mask.kind, KVB_MASK_CAUSAL);
        assert_int_equal(rig_step(&r, NULL, 1), 0);
        assert_int_equal(rig_store(&r).mask.kind, forgets(type) ? KVB_MASK_CAUSAL : KVB_MASK_NONE);
        assert_int_equal(rig_step(&r, NULL, 2), 0);
        kvb_attend_spec spec = rig_store(&r);
        assert_int_equal(spec.mask.kind, KVB_MASK_CAUSAL);
        assert_int_equal(spec.k.cells, 8);
        for (uint32_t c = 0; c < 8; c++) /* in place, in order */
            assert_true(*(const float *)kvb_view_row(&spec.k, 0, c) == (float)c);
        rig_close(&r);
    }
}

/* ---- rule 7: memory grows in steps from min_chunk on; a slab allocates all at once ------------------------------- */

TEST(test_7_lazy_growth)
{
    /* Layers 0 and 2 have two heads and rows of 4 and 3, layer 1 one head and rows of 5 and 3. */
    const size_t cell_bytes = (2 * 2 * (4 + 3) + 1 * (5 + 3)) * sizeof(float);
    EACH_CACHE(type, 0)
    {
        rig r;
        rig_open(&r, type, 100, 25, 4, 8);
        size_t first = rig_usage(&r).reserved_bytes;
        assert_true(type == &kvb_cache_slab ? first >= 100 * cell_bytes : first == 0);
        assert_int_equal(rig_step(&r, NULL, 1), 0);
        if (type == &kvb_cache_slab) {
            assert_int_equal(rig_usage(&r).reserved_bytes, first);
            rig_close(&r);
            continue;
        }
        first = rig_usage(&r).reserved_bytes;
        assert_true(first >= 8 * cell_bytes && first < 16 * cell_bytes);
        assert_int_equal(rig_step(&r, NULL, 7), 0);
        assert_int_equal(rig_usage(&r).reserved_bytes, first);
        assert_int_equal(rig_step(&r, NULL, 1), 0);
        size_t second = rig_usage(&r).reserved_bytes;
        assert_true(second > first && second < 100 * cell_bytes);
        assert_int_equal(kvb_cache_clear(r.cache), 0);
        assert_int_equal(rig_usage(&r).reserved_bytes, second); /* clear keeps its memory */
        rig_close(&r);
    }
}

/* Caches that drop rows hold a window, its sinks and a step, in memory that does not grow. A step without room in one
 * group, and a call that needs dropped rows, are refused whole with a reason. */
TEST(test_7_dropped_rows)
{
    enum { LENGTH = 120, STEP = 3, MOST = 5 - 1 + 2 + 2 + STEP };
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        if (type != &kvb_cache_window && type != &kvb_cache_paged)
            continue;
        rig r = {.n_groups = 2,
                 .groups = {{.window = 5, .sinks = 2}, {.chunk = 8}},
                 .step = STEP,
                 .rollback = 2,
                 .page_cells = 1};
        size_t reserved = 0;
        assert_int_equal(rig_try_open(&r, type, 16, LENGTH, 1, 4), 0);
        while (r.next < LENGTH / 2) {
            assert_int_equal(rig_step(&r, NULL, r.next % 2 ? 1 : STEP), 0);
            rig_store(&r);
            const kvb_cache_usage usage = rig_usage_of(&r, 0);
            assert_true(usage.high_water <= MOST && (r.next < 40 || usage.reserved_bytes == reserved));
            reserved = usage.reserved_bytes;
        }
        rig_refused(&r, rig_step(&r, NULL, 7), -ENOSPC, "no room for 7 tokens: there is room for");
        rig_refused(&r, kvb_cache_rewind(r.cache, LENGTH / 2 - 20), -ENOTSUP, "sequence 0 has dropped");
        rig_close(&r);
    }
}

/* ---- rules 9 and 10: formats come from pools, facts from the model ----------------------------------------------- */

/* Latent rows are stored once: V lies in K's rows and takes no bytes. A group may have latent rows and a window. */
TEST(test_9_latent)
{
    EACH_CACHE(type, 0)
    {
        rig r = {.n_groups = 2, .groups = {{.latent = true, .window = 5}, {.latent = true}}};
        assert_int_equal(rig_try_open(&r, type, 32, 32, 2, 32), 0);
        assert_int_equal(rig_step(&r, NULL, 9), 0);
        rig_layer_sees(&r, 0, 8, TOKENS(4, 5, 6, 7, 8));
        rig_layer_sees(&r, 1, 8, TOKENS(0, 1, 2, 3, 4, 5, 6, 7, 8));
        rig_layer_sees(&r, 2, 8, TOKENS(4, 5, 6, 7, 8));
        kvb_attend_spec spec = rig_store(&r);
        spec.k.dim = spec.v.dim; /* the only difference */
        assert_memory_equal(&spec.k, &spec.v, sizeof spec.k);
        if (!(type->flags & KVB_CACHE_PREALLOCATES)) { /* 32 cells of layers 0 and 2; the rest is slack */
            size_t k_bytes = 32 * 2 * RIG_KV_HEADS * RIG_K_DIM * sizeof(float);
            size_t held = rig_usage_of(&r, 0).reserved_bytes;
            assert_true(held >= k_bytes && held < k_bytes * 5 / 4);
        }
        rig_close(&r);
    }
}

/* Each pool of a cache gets the magnitudes of its own layer and side. */
TEST(test_9_head_scales)
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

/* Opening refuses impossible options and names them. */
TEST(test_10_open_refuses)
{
    static const struct {
        uint32_t capacity, seq_capacity, max_seqs, min_chunk;
        const char *what;
    } bad[] = {
        {0, 8, 1, 4, "capacity"},  {8, 0, 1, 4, "seq_capacity"},
        {8, 8, 0, 4, "max_seqs"},  {8, 8, 65, 4, "max_seqs must be 1 .. 64"},
        {8, 8, 1, 0, "min_chunk"},
    };
    EACH_CACHE(type, 0)
    {
        rig r = {.n_groups = 2, .groups = {{.window = 3}, {.window = 3, .chunk = 4}}};
        assert_int_equal(rig_try_open(&r, type, 8, 8, 1, 4), -EINVAL); /* test_bookkeeping has all bad models */
        assert_contains(r.why, "group 1: window 3 and chunk 4");
        r.groups[1].chunk = 0;
        for (size_t i = 0; i < N(bad); i++) {
            int error = rig_try_open(&r, type, bad[i].capacity, bad[i].seq_capacity, bad[i].max_seqs, bad[i].min_chunk);
            tests_refused(error, -EINVAL, r.why, bad[i].what);
            assert_int_equal(r.allocator.current_bytes, 0);
        }
    }
    rig r = {.n_groups = 2, .seq_ids = KVB_MAX_SEQS + 1};
    assert_int_equal(rig_try_open(&r, &kvb_cache_seq, 8, 8, 1, 4), -EINVAL);
    assert_string_equal(r.why, "seq_ids must be 1 .. 4096");
    r.seq_ids = 3;
    assert_int_equal(rig_try_open(&r, &kvb_cache_seq, 8, 8, 4, 4), -EINVAL);
    assert_string_equal(r.why, "max_seqs must be 1 .. 3, the number of sequence ids");
    r.seq_ids = 0;
    assert_int_equal(rig_try_open(&r, &kvb_cache_slab, 8, UINT32_MAX, 64, 4), -EINVAL); /* 2^38 cells */
    tests_refused(rig_try_open(&r, &kvb_cache_window, 8, 8, 1, 4), -ENOTSUP, r.why, "no layer has a window or chunks");
    assert_int_equal(r.allocator.current_bytes, 0);
}

/* ---- caches of their own kind ------------------------------------------------------------------------------------ */

/* recompute feeds every token again, each behind the tokens that it sees. */
TEST(test_recompute_feed)
{
    rig r;
    const uint64_t *feed;
    const uint64_t branch[] = {0, 1, 3, 5, 7}, both[] = {0, 1, 2, 4, 6, 3, 5, 8, 9};
    rig_open(&r, &kvb_cache_recompute, 32, 32, 4, 4);
    assert_int_equal(rig_step(&r, NULL, 3), 0);
    rig_store(&r);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 2), 0);
    assert_int_equal(rig_step(&r, IDS(1, 0, 1)), 0); /* ordinals 3, 4, 5 */
    rig_store(&r);
    assert_int_equal(rig_step(&r, IDS(0)), 0); /* 6 */
    rig_store(&r);
    assert_int_equal(rig_step(&r, IDS(1)), 0); /* 7: only sequence 1 is fed */
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 5);
    assert_memory_equal(feed, branch, sizeof branch);
    assert_int_equal(rig_store(&r).mask.kind, KVB_MASK_CAUSAL);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 4, KVB_POS_END), 0);
    assert_int_equal(rig_step(&r, IDS(0, 1)), 0);
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 9);
    assert_memory_equal(feed, both, sizeof both);
    assert_int_equal(rig_usage(&r).cells_written, 3 + 6 + 5 + 5);
    rig_close(&r);
}

/* A commit moves the accepted path down, or leaves it in place. A path that makes the sequence too long is refused. */
TEST(test_tree_moves)
{
    EACH_CACHE(type, KVB_CACHE_TREE)
    {
        rig r;
        rig_open(&r, type, 32, 4, 1, 4);
        assert_int_equal(rig_step(&r, NULL, 2), 0);
        rig_store(&r);
        assert_int_equal(rig_propose(&r, PARENTS(-1, -1, 0, 1, 3)), 0);
        rig_store(&r);
        assert_int_equal(kvb_cache_commit(r.cache, 0, IDS(1, 3, 4)), -ENOSPC);
        assert_int_equal(kvb_cache_pending(r.cache, 0), 5);
        assert_int_equal(kvb_cache_commit(r.cache, 0, IDS(1, 3)), 0);
        assert_int_equal(rig_usage(&r).cells_moved, type == &kvb_cache_tree || type == &kvb_cache_paged ? 2 : 0);
        assert_int_equal(rig_usage(&r).cells_live, 4);
        rig_close(&r);
    }
}

/* A path that lies in its place is not moved; a chain needs no mask. */
TEST(test_tree_chain)
{
    rig r;
    rig_open(&r, &kvb_cache_tree, 32, 32, 1, 4);
    assert_int_equal(rig_step(&r, NULL, 2), 0);
    rig_store(&r);
    assert_int_equal(rig_propose(&r, PARENTS(-1, 0, 1)), 0);
    kvb_attend_spec spec = rig_store(&r);
    assert_int_equal(spec.mask.kind, KVB_MASK_CAUSAL);
    assert_int_equal(spec.k.cells, 5);
    assert_int_equal(kvb_cache_commit(r.cache, 0, IDS(0, 1)), 0);
    assert_int_equal(rig_usage(&r).cells_moved, 0);
    assert_int_equal(rig_propose(&r, PARENTS(-1)), 0);
    assert_int_equal(rig_store(&r).mask.kind, KVB_MASK_NONE);
    assert_int_equal(kvb_cache_commit(r.cache, 0, NULL, 0), 0);
    assert_int_equal(kvb_cache_length(r.cache, 0), 4);
    rig_close(&r);
}

/*
 * Shows that calls without their arrays and rows that no pool can store return an error with a reason and hold nothing.
 * And what an empty cache holds.
 */

TEST(arrays_must_be_given)
{
    static rig r;
    rig_open(&r, &kvb_cache_tree, 16, 16, 1, 4);
    rig_refused(&r, kvb_cache_propose(r.cache, NULL, NULL, 2), -EINVAL, "parents must be given");
    assert_int_equal(rig_propose(&r, (const int32_t[]){-1, 0}, 2), 0);
    rig_refused(&r, kvb_cache_commit(r.cache, 0, NULL, 1), -EINVAL, "accepted nodes must be given");
    rig_refused(&r, kvb_cache_begin_step(r.cache, NULL, 1), -EINVAL, "2 nodes of sequence 0 are pending: commit first");
    rig_refused(&r, kvb_cache_propose(r.cache, NULL, (const int32_t[]){2}, 1), -EINVAL,
                "parent 2 of node 2 is not an earlier node of sequence 0");
    assert_int_equal(kvb_cache_commit(r.cache, 0, NULL, 0), 0);
    rig_close(&r);
    rig_open(&r, &kvb_cache_seq, 16, 16, 1, 4);
    rig_refused(&r, kvb_cache_seq_reorder(r.cache, NULL, (const uint32_t[]){0}, 1), -EINVAL, "must be given");
    rig_refused(&r, kvb_cache_seq_reorder(r.cache, (const uint32_t[]){0}, NULL, 1), -EINVAL, "must be given");
    rig_refused(&r, kvb_cache_seq_reorder(r.cache, (const uint32_t[]){0, 0}, (const uint32_t[]){0, 0}, 2), -EINVAL,
                "sequence 0 is named twice as a destination");
    assert_int_equal(kvb_cache_seq_reorder(r.cache, NULL, NULL, 0), 0);
    rig_close(&r);
}

static int open_with(kvb_allocator *a, const kvb_cache_type *type, const char *pool, kvb_cache **cache, char *why,
                     size_t n)
{
    static const kvb_model model = {
        .n_layers = 1,
        .n_groups = 1,
        .groups = {{.heads = 2, .kv_heads = 1, .k_dim = 48, .v_dim = 40, .scale = 1, .window = 4}}};
    const kvb_pool_type *const *v = kvb_builtin_pools;
    while (strcmp((*v)->name, pool) != 0)
        v++;
    const kvb_cache_options options = {.capacity = 8,
                                       .seq_capacity = 8,
                                       .max_seqs = 2,
                                       .min_chunk = 4,
                                       .k_pool = kvb_builtin_pools[0],
                                       .v_pool = *v,
                                       .allocator = a};
    return kvb_cache_open(type, &model, &options, cache, why, n);
}

TEST(rows_must_fit)
{
    kvb_allocator a = {0};
    kvb_cache *cache = NULL;
    char why[200] = "";
    assert_int_equal(open_with(&a, &kvb_cache_seq, "q8_0", &cache, why, sizeof why),
                     -ENOTSUP); /* 40 is no multiple of 32 */
    assert_contains(why, "32");
    assert_null(cache);
    assert_true(a.requests == 0);
}

static int unable(kvb_store *s)
{
    return kvb_store_fail(s, -ENODEV, "not today");
}

/* A plug-in's cache has its own open(), which may refuse. */
TEST(an_open_may_decline)
{
    kvb_cache_type type = kvb_cache_contiguous;
    kvb_allocator a = {0};
    kvb_cache *cache = NULL;
    char why[200] = "";
    type.open = unable;
    assert_int_equal(open_with(&a, &type, "f32", &cache, why, sizeof why), -ENODEV);
    assert_string_equal(why, "not today");
    assert_true(!cache && a.current_bytes == 0);
}

/* An empty cache holds only its own structs and those of its pools, unless it preallocates cells. */
TEST(structs_are_counted)
{
    const kvb_pool_type *f32 = kvb_builtin_pools[0];
    const kvb_pool_options o = {.n_kv_heads = 1, .dim = 1, .min_chunk = 1, .capacity = 1};
    EACH_CACHE(type, 0)
    {
        rig r;
        rig_open(&r, type, 16, 16, 1, 4);
        size_t pools = 2 * RIG_LAYERS * f32->bytes(f32, &o, 0), all = kvb_cache_struct_bytes(type, &r.model) + pools;
        assert_true(r.allocator.current_bytes > all); /* tables by sequence id */
        rig_close(&r);
    }
}

TEST(staged_rows_are_read_as_they_lie)
{
    static const float rows[2][3][2] = {{{1, 2}, {3, 4}, {5, 6}}, {{7, 8}, {9, 10}, {11, 12}}};
    const kvb_view view = {.base = rows,
                           .head_stride = sizeof rows[0],
                           .cell_stride = sizeof rows[0][0],
                           .cells = 3,
                           .dim = 2,
                           .format = &kvb_format_staged};
    float got[4];
    kvb_format_staged.read(&view, 1, 1, 2, got);
    assert_memory_equal(got, rows[1][1], sizeof got);
}

TEST(what_a_cache_can_do_is_said)
{
    char can[200], few[12];
    assert_null(kvb_cache_lacks(&kvb_cache_seq, KVB_CACHE_TREE | KVB_CACHE_SHIFT |
                                                    KVB_CACHE_REWIND)); /* a cache with sequences can rewind */
    assert_string_equal(kvb_cache_lacks(&kvb_cache_slab, KVB_CACHE_EXACT | KVB_CACHE_TREE), "propose and commit");
    kvb_cache_can(&kvb_cache_tree, can, sizeof can);
    assert_string_equal(can, ", draft trees, rewind, save and load");
    kvb_cache_can(&kvb_cache_tree, few, sizeof few);
    assert_string_equal(few, ", draft tre");
}

/*
 * Shows compaction: simple masks return and the high-water mark falls. Stored rows do not change, in any format; owners
 * of cells and pending shifts move with the rows. A full cache, and a format whose rows cannot be copied, are refused.
 */

enum { TOKENS = 48 };

static void step(rig *r, const uint32_t *ids, uint32_t n, kvb_attend_spec *spec)
{
    assert_int_equal(rig_step(r, ids, n), 0);
    *spec = rig_store(r);
}

/* Two sequences get tokens in turns; then one is removed, and the other lies in every other cell. */
TEST(the_simple_masks_come_back)
{
    rig r;
    kvb_attend_spec spec;
    rig_open(&r, &kvb_cache_seq, 2 * TOKENS, TOKENS, 2, 4);
    for (uint32_t i = 0; i < 16; i++)
        step(&r, (const uint32_t[]){0, 1}, 2, &spec);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 0, KVB_POS_END), 0);
    step(&r, (const uint32_t[]){1}, 1, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_RUNS);
    assert_int_equal(spec.k.cells, 32);
    const uint64_t moved = rig_usage_of(&r, 0).cells_moved;
    assert_int_equal(kvb_cache_defrag(r.cache), 0);
    assert_int_equal(rig_usage_of(&r, 0).cells_live, 17);
    assert_true(rig_usage_of(&r, 0).cells_moved > moved && rig_usage_of(&r, 0).cells_moved <= moved + 17);
    step(&r, (const uint32_t[]){1}, 1, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_NONE);
    assert_int_equal(spec.k.cells, 18);
    step(&r, (const uint32_t[]){1, 1, 1}, 3, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_CAUSAL);
    const uint64_t done = rig_usage_of(&r, 0).cells_moved;
    assert_int_equal(kvb_cache_defrag(r.cache), 0); /* nothing is left to do */
    assert_int_equal(rig_usage_of(&r, 0).cells_moved, done);
    assert_int_equal(kvb_cache_defrag(r.cache), 0);
    assert_int_equal(kvb_cache_clear(r.cache), 0);
    assert_int_equal(kvb_cache_defrag(r.cache), 0); /* an empty cache */
    rig_close(&r);
}

/* Reads the rows that the last query sees, in the order of runs. */
static uint32_t rows_read(const kvb_attend_spec *spec, uint32_t n_tok, float k[TOKENS][RIG_CODED_DIM],
                          float v[TOKENS][RIG_CODED_DIM])
{
    uint32_t n = 0, cursor = 0;
    for (kvb_run run; kvb_mask_next(&spec->mask, n_tok, spec->k.cells, n_tok - 1, &cursor, &run);)
        for (uint32_t c = run.begin; c < run.end; c++, n++) {
            spec->k.format->read(&spec->k, 0, c, 1, k[n]);
            spec->v.format->read(&spec->v, 0, c, 1, v[n]);
        }
    return n;
}

TEST(stored_rows_stay_what_they_are)
{
    static float k[2][TOKENS][RIG_CODED_DIM], v[2][TOKENS][RIG_CODED_DIM];
    uint32_t formats = 0;
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (const kvb_pool_type *pool = kvb_builtin_pools[p]; pool; pool = pool->rotated, formats++) {
            rig r = {.pool = pool, .n_groups = 1, .groups = {{.window = 1000}}}; /* makes runs come by position */
            kvb_attend_spec spec;
            assert_int_equal(rig_try_open(&r, &kvb_cache_seq, 2 * TOKENS, TOKENS, 3, 4), 0);
            for (uint32_t i = 0; i < 12; i++)
                step(&r, (const uint32_t[]){0, 1}, 2, &spec);
            assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 2, 9), 0);
            assert_int_equal(kvb_cache_seq_cp(r.cache, 1, 2, 0, 6), 0);
            step(&r, (const uint32_t[]){2, 1, 0, 1}, 4, &spec); /* into the holes */
            step(&r, (const uint32_t[]){1}, 1, &spec);
            const uint32_t n = rows_read(&spec, 1, k[0], v[0]);
            const int error = kvb_cache_defrag(r.cache);
            assert_int_equal(error, pool->format->residual_cells ? -ENOTSUP : 0);
            assert_int_equal(kvb_cache_length(r.cache, 1), 15);
            if (!error) {
                assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 14, KVB_POS_END), 0);
                step(&r, (const uint32_t[]){1}, 1, &spec); /* replaces the last token */
                assert_int_equal(rows_read(&spec, 1, k[1], v[1]), n);
                assert_memory_equal(k[0], k[1], (n - 1) * sizeof k[0][0]);
                assert_memory_equal(v[0], v[1], (n - 1) * sizeof v[0][0]);
            }
            rig_close(&r);
        }
    assert_true(formats > 40);
}

TEST(a_full_cache_says_so)
{
    rig r;
    kvb_attend_spec spec;
    rig_open(&r, &kvb_cache_seq, 8, 8, 2, 4);
    for (uint32_t i = 0; i < 4; i++)
        step(&r, (const uint32_t[]){1, 0}, 2, &spec);
    const uint64_t *feed;
    rig_refused(&r, kvb_cache_defrag(r.cache), -ENOSPC, "none of 8 cells is free");
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 2); /* its plan is still in force */
    assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 3, KVB_POS_END), 0);
    assert_int_equal(kvb_cache_defrag(r.cache), 0); /* through the free cell */
    step(&r, (const uint32_t[]){0}, 1, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_RUNS);
    assert_int_equal(spec.mask.row_start[1],
                     2); /* its old tokens in one run, and the new token behind the other sequence */
    assert_true(spec.mask.runs[0].begin == 0 && spec.mask.runs[0].end == 4);
    rig_close(&r);
}

/* Caches whose cells follow from positions move nothing. With pending nodes the call is refused. */
TEST(other_caches_have_nothing_to_move)
{
    EACH_CACHE(type, 0)
    {
        rig r;
        kvb_attend_spec spec;
        rig_open(&r, type, 64, 32, 2, 4);
        for (uint32_t i = 0; i < 6; i++)
            step(&r, (const uint32_t[]){0, 0}, 2, &spec);
        const kvb_cache_usage before = rig_usage_of(&r, 0);
        assert_int_equal(kvb_cache_defrag(r.cache), 0);
        const kvb_cache_usage after = rig_usage_of(&r, 0);
        assert_int_equal(after.cells_moved, before.cells_moved);
        assert_int_equal(after.cells_live, before.cells_live);
        if (type->flags & KVB_CACHE_TREE) {
            assert_int_equal(kvb_cache_propose(r.cache, NULL, (const int32_t[]){-1, 0}, 2), 0);
            assert_int_equal(kvb_cache_defrag(r.cache), -EINVAL);
            assert_int_equal(kvb_cache_pending(r.cache, 0), 2);
        }
        rig_close(&r);
    }
}

/* Shows: cache paged shares pages, copies a shared page before it writes to it, and frees pages that no sequence has.
 * test_random shows steps without a free page, and windows. */

/* A fork takes no pages. A sequence that writes to a shared page copies its own rows of it first; the last sequence
 * that holds a page writes to the page itself. */
TEST(pages_are_shared_until_written)
{
    rig r = {.page_cells = 4};
    assert_int_equal(rig_try_open(&r, &kvb_cache_paged, 32, 32, 3, 4), 0);
    assert_int_equal(rig_step(&r, NULL, 6), 0); /* pages 0 and 1, the latter half empty */
    rig_store(&r);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, KVB_POS_END), 0);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 2, 0, 5), 0);
    assert_int_equal(rig_usage(&r).cells_live, 8);
    assert_int_equal(rig_step(&r, IDS(0, 1, 2)), 0);
    rig_sees(&r, 0, TOKENS(0, 1, 2, 3, 4, 5, 6));
    rig_sees(&r, 1, TOKENS(0, 1, 2, 3, 4, 5, 7));
    rig_sees(&r, 2, TOKENS(0, 1, 2, 3, 4, 8));
    assert_int_equal(rig_usage(&r).cells_live, 16); /* sequence 2 writes page 1 itself */
    assert_int_equal(rig_usage(&r).cells_moved, 2 + 2);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 0, KVB_POS_END), 0);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 2, 0, 4), 0);
    assert_int_equal(rig_usage(&r).cells_live, 12); /* only sequence 1 has page 0 */
    assert_int_equal(rig_step(&r, IDS(2, 1)), 0);
    rig_sees(&r, 0, TOKENS(4, 8, 9)); /* with a hole: runs */
    rig_sees(&r, 1, TOKENS(0, 1, 2, 3, 4, 5, 7, 10));
    assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 0, KVB_POS_END), 0);
    assert_int_equal(rig_usage(&r).cells_live, 4);
    rig_close(&r);
}

TEST(more_cells_than_have_numbers)
{
    rig r = {.page_cells = 256};
    assert_int_equal(rig_try_open(&r, &kvb_cache_paged, UINT32_MAX, 32, 64, 4), -EINVAL);
    assert_int_equal(r.allocator.current_bytes, 0);
}
