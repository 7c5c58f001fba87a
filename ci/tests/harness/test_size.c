/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the kvbench column of `size` is what its caches hold, and close to the least that models with windows must
 * keep. --verify compares counted bytes with allocated ones, and reports differences. Rows have the bytes that `size`
 * counts.
 */
#include "ci/tests/harness/sized.h"
#include "caches/pools/rows.h"
#include "harness/size/cache_model.h"

static const kvb_pool_type *f16(void)
{
    return kvb_size_pool_find("f16");
}

static kvb_group rows_of(uint32_t heads, uint32_t kv_heads, uint32_t k_dim, uint32_t v_dim)
{
    return (kvb_group){.heads = heads, .kv_heads = kv_heads, .k_dim = k_dim, .v_dim = v_dim, .scale = 1};
}

static uint32_t n_caches(void)
{
    uint32_t n = 0;
    while (kvb_builtin_caches[n])
        n++;
    return n;
}

static kvb_sized_group full(uint32_t n, uint32_t heads, uint32_t kv_heads, uint32_t dim)
{
    return (kvb_sized_group){.n = n,
                             .kind = KVB_SIZED_FULL,
                             .name = "full attention",
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .k_dim = dim,
                             .v_dim = dim};
}

/* 2 heads of 16 x 128, and 3 columns of 288 channels: whole lines. */
static kvb_sized_group mamba2(uint32_t n)
{
    return (kvb_sized_group){.n = n,
                             .kind = KVB_SIZED_STATE,
                             .name = "Mamba-2",
                             .state_heads = 2,
                             .state_groups = 1,
                             .state_k = 16,
                             .state_v = 128,
                             .state_elements = 4096,
                             .conv_width = 4,
                             .conv_elements = 864};
}

static void scan_check(const kvb_group_scan *a, const kvb_group_scan *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->groups, b->groups);
    assert_int_equal(a->d_k, b->d_k);
    assert_int_equal(a->d_v, b->d_v);
    assert_int_equal(a->conv_width, b->conv_width);
    assert_int_equal(a->conv_channels, b->conv_channels);
    assert_int_equal(a->state_elem, b->state_elem);
    assert_int_equal(a->conv_elem, b->conv_elem);
}

/* Compares all fields on which sizes depend. */
static void group_check(const kvb_group *a, const kvb_group *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->k_dim, b->k_dim);
    assert_int_equal(a->v_dim, b->v_dim);
    assert_int_equal(a->latent, b->latent);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->sinks, b->sinks);
    assert_int_equal(a->chunk, b->chunk);
    scan_check(&a->scan, &b->scan);
}

/* What kvbench keeps of each kind of layer, and kinds that it cannot hold. */
TEST(a_model_of_many_kinds)
{
    kvb_sized_group groups[] = {full(3, 4, 2, 64),
                                full(5, 4, 2, 64),
                                {.n = 4,
                                 .kind = KVB_SIZED_LATENT,
                                 .name = "MLA",
                                 .heads = 8,
                                 .latent_dim = 64,
                                 .rope_dim = 32,
                                 .index_dim = 16},
                                mamba2(7),
                                full(6, 4, 2, 64),
                                full(2, 8, 2, 64), /* the same group as the first: query heads do not matter */
                                {.n = 2, .kind = KVB_SIZED_NONE, .name = "no-op"},
                                {.n = 3, .kind = KVB_SIZED_STATE, .name = "RWKV", .state_elements = 64}};
    groups[1].kind = KVB_SIZED_WINDOW;
    groups[1].window = 32;
    groups[1].sinks = 4;
    groups[4].kind = KVB_SIZED_CHUNK;
    groups[4].window = 48;
    const kvb_group want[] = {
        rows_of(4, 2, 64, 64),
        {4, 2, 64, 64, .window = 32, .sinks = 4, .scale = 1},
        {8, 1, 96, 64, .latent = true, .scale = 1},
        {.kind = KVB_GROUP_SCAN, .scan = {KVB_SCAN_MAMBA2, 2, 1, 16, 128, 4, 288, true, KVB_F32, KVB_F32}},
        {4, 2, 64, 64, .chunk = 48, .scale = 1}};
    const uint32_t layers[] = {3 + 2, 5, 4, 7, 6};
    const kvb_sized_model model = {.name = "many kinds", .groups = groups, .n_groups = 8};
    const kvb_pool_pair pools[] = {{f16(), f16()}, {kvb_size_pool_find("a8g64"), f16()}};
    const kvb_size_asked asked = {.pools = pools, .n_pools = 2, .context = 200, .sequences = 3};
    static kvb_model m;
    kvb_size_verdicts v = {0};
    size_t none = 0;
    assert_int_equal(kvb_size_cache_model(&model, 0, NULL, &m, why, sizeof why), 0);
    assert_int_equal(m.n_groups, 5);
    for (uint32_t g = 0; g < 5; g++) {
        group_check(&m.groups[g], &want[g]);
        assert_int_equal(kvb_model_layers_of(&m, g), layers[g]);
    }
    static const uint32_t other[][2] = {{2, 288}, {4, 2 * 864}}; /* another width, other channels: another group */
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        kvb_sized_group states[] = {mamba2(1), mamba2(1)};
        states[1].conv_width = other[i][0], states[1].conv_elements = other[i][1];
        const kvb_sized_model two = {.name = "two", .groups = states, .n_groups = 2};
        assert_int_equal(kvb_size_cache_model(&two, 0, NULL, &m, why, sizeof why), 0);
        assert_int_equal(m.n_groups, 2);
    }
    assert_int_equal(kvb_size_verify(&model, &asked, &v, why, sizeof why), 0);
    for (size_t i = 0; i < v.n; i++) {
        const kvb_size_verified *a = &v.at[i];
        if (!a->cache) {
            none++;
            continue;
        }
        assert_int_equal(a->layers, 3 + 2 + 5 + 4 + 7 + 6);
        if (a->options.k_pool != f16()) {
            assert_int_equal(a->verdict, KVB_SIZE_UNAVAILABLE);
            if (kvb_growth_available(a->options.growth, why, sizeof why))
                assert_string_equal(a->why,
                                    "a8g64: groups of 64 do not divide rows of 96 channels; groups of up to 32 would");
        } else if (a->verdict == KVB_SIZE_UNAVAILABLE) {
            assert_false(kvb_growth_available(a->options.growth, why, sizeof why)); /* no huge pages */
        } else {
            uint32_t built = a->model.n_layers;
            assert_int_equal(a->verdict, KVB_SIZE_EQUAL);
            assert_int_equal(a->model.n_groups, 5);
            assert_in_range(built, 5, 2 * 5);
            assert_true(a->cells >=
                        (a->cache->flags & KVB_CACHE_SEQ ? 400 : 200)); /* less what two of three sequences share */
            assert_true(a->cells <= 200 + 2 * 110);
            assert_true(a->whole > a->counted && a->whole < a->counted * a->layers / built * 2);
        }
    }
    assert_int_equal(none, 2);
    assert_int_equal(v.n - none, n_caches() * 2 * KVB_GROWTHS);
    assert_int_equal(v.count[KVB_SIZE_DIFFERS], 0);
    assert_int_equal(v.count[KVB_SIZE_EQUAL] + v.count[KVB_SIZE_UNAVAILABLE], v.n);
    free(v.at);
}

/* ---- the engine ------------------------------------------------------------------------------------------------ */

/* Bytes that the cache holds after the engine's history, played token by token. */
static uint64_t played(const kvb_cache_type *cache, const kvb_model *model, uint32_t sequences, uint32_t context,
                       uint32_t chunk, uint32_t depth, bool counted)
{
    kvb_allocator allocator = {0};
    kvb_cache *c = NULL;
    const uint32_t step = chunk > sequences ? chunk : sequences;
    uint32_t *ids = calloc(step, sizeof *ids);
    const kvb_cache_options options = {.capacity = sequences * context,
                                       .seq_capacity = context,
                                       .seq_ids = sequences,
                                       .max_seqs = sequences,
                                       .step = step,
                                       .state_depth = depth,
                                       .min_chunk = 256,
                                       .k_pool = kvb_size_pool_find("q8_0"),
                                       .v_pool = f16(),
                                       .allocator = &allocator,
                                       .counted = counted};
    assert_non_null(ids);
    if (kvb_cache_open(cache, model, &options, &c, why, sizeof why))
        fail_msg("%s", why);
    for (uint32_t s = 0; s < sequences; s++) {
        for (uint32_t i = 0; i < step; i++)
            ids[i] = s;
        for (uint32_t done = 0, n; done < context - 1; done += n) {
            n = context - 1 - done < chunk ? context - 1 - done : chunk;
            assert_int_equal(kvb_cache_begin_step(c, ids, n), 0);
        }
    }
    for (uint32_t s = 0; s < sequences; s++)
        ids[s] = s;
    assert_int_equal(kvb_cache_begin_step(c, ids, sequences), 0);
    const uint64_t bytes = allocator.current_bytes;
    kvb_cache_close(c);
    assert_int_equal(allocator.current_bytes, 0);
    free(ids);
    return bytes;
}

/* The engine counts to the byte, with real pools if they are small: whole histories, and those that it shortens. Above
 * a million tokens of windows its tables are approximate. */
TEST(the_engine_is_its_cache)
{
    enum { ATTENDS = 1, SCANS = 2, WINDOW = 4, CHUNKS = 8 };
    static const struct {
        uint32_t kinds, sequences, context, batch, depth;
    } asks[] = {{ATTENDS, 1, 1, 0, 0},
                {ATTENDS, 1, 700, 0, 0},
                {ATTENDS, 5, 700, 0, 0},
                {ATTENDS, 2, 100, 300, 0},
                {ATTENDS, 1, 200001, 0, 0},
                {ATTENDS, 7, 30001, 0, 0},
                {ATTENDS, 3000, 77, 16, 0},
                {ATTENDS | SCANS, 1, 20000, 0, 0},
                {ATTENDS | SCANS, 5, 700, 0, 7},
                {ATTENDS | SCANS, 40, 9001, 0, 3},
                {ATTENDS | SCANS, 9, 5003, 100, 130}, /* deeper than a step */
                {SCANS, 6, 12345, 0, 2},
                {ATTENDS | WINDOW, 1, 5000, 0, 0},
                {ATTENDS | WINDOW, 9, 3001, 0, 0},
                {ATTENDS | WINDOW | SCANS, 4, 3001, 0, 2},
                {WINDOW | CHUNKS, 3, 4000, 0, 0},
                {ATTENDS | WINDOW, 40, 40000, 0, 0},
                {ATTENDS | CHUNKS, 30, 50001, 0, 0}};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        const uint32_t kinds = asks[i].kinds, n = asks[i].sequences, context = asks[i].context;
        const bool windows = kinds & (WINDOW | CHUNKS), far = windows && (uint64_t)n * context > 1 << 20;
        const uint32_t chunk = asks[i].batch ? asks[i].batch : windows ? 256 : 512;
        kvb_sized_group groups[4] = {0};
        kvb_sized_model model = {.name = "small", .groups = groups};
        static kvb_model m;
        kvb_size_allocation held;
        if (kinds & ATTENDS)
            groups[model.n_groups++] = full(3, 8, 2, 32);
        if (kinds & SCANS)
            groups[model.n_groups++] = mamba2(3);
        for (uint32_t kind = WINDOW; kind <= CHUNKS; kind *= 2)
            if (kinds & kind) {
                groups[model.n_groups] = full(2, 8, 2, 32);
                groups[model.n_groups].kind = kind == WINDOW ? KVB_SIZED_WINDOW : KVB_SIZED_CHUNK;
                groups[model.n_groups++].window = kind == CHUNKS ? 640 : far ? 3000 : 300;
            }
        const kvb_size_ask ask = {.context = context,
                                  .sequences = n,
                                  .k = kvb_kv_format_find("q8_0"),
                                  .v = kvb_kv_format_find("f16"),
                                  .batch = asks[i].batch,
                                  .spec_depth = asks[i].depth};
        const kvb_cache_type *cache = windows ? &kvb_cache_window : n > 1 ? &kvb_cache_seq : &kvb_cache_contiguous;
        assert_int_equal(kvb_size_cache_model(&model, context, NULL, &m, why, sizeof why), 0);
        assert_int_equal(kvb_size_hold(&kvb_size_engine_kvbench, &model, &ask, &held, why, sizeof why), 0);
        const uint64_t want = played(cache, &m, n, context, chunk, asks[i].depth, (uint64_t)n * context > 1 << 16),
                       got = held.kv_bytes + held.state_bytes;
        if (far ? fabs((double)got / (double)want - 1) > 1e-3 : got != want)
            fail_msg("ask %zu: %lu, its cache %lu", i, got, want);
        assert_int_equal(held.state_bytes, kinds & SCANS ? n * (1 + asks[i].depth) * 3 * (4096 + 864) * 4 : 0);
        assert_true(held.bytes_per_token == (kinds & ATTENDS ? 3 * 2 * (34 + 64) + (n > 1 || windows ? 2 : 0) : 0));
    }
}

/* 100 tokens at once and one more, f16, two KV heads of 64: every term of the sum. */
TEST(known_sum)
{
    kvb_allocator allocator = {0};
    const kvb_model model = {.n_layers = 3, .n_groups = 1, .groups = {rows_of(4, 2, 64, 64)}};
    const kvb_pool_options empty = {.n_kv_heads = 2, .dim = 64, .min_chunk = 16, .capacity = 120};
    const kvb_cache_options options = {.capacity = 120,
                                       .seq_capacity = 120,
                                       .seq_ids = 1,
                                       .max_seqs = 1,
                                       .min_chunk = 16,
                                       .k_pool = f16(),
                                       .v_pool = f16(),
                                       .allocator = &allocator,
                                       .counted = true};
    kvb_cache *c;
    kvb_attend_spec spec;
    const uint32_t position = 100;
    const float row[128] = {0};
    assert_int_equal(kvb_cache_open(&kvb_cache_contiguous, &model, &options, &c, why, sizeof why), 0);
    assert_int_equal(kvb_cache_begin_step(c, NULL, 100), 0);
    assert_int_equal(kvb_cache_begin_step(c, NULL, 1), 0);
    size_t pool = f16()->bytes(f16(), &empty, 0), cells = 120 * 2 * 64 * 2; /* 16 * 8 exceeds the capacity */
    size_t plans = 100 * 4 + 101 * 4 + 128 * 8 + 16 * 4 + 16 * 4 + 16 * 8;  /* the prefill's, the single token's */
    size_t feeds = 100 * 16 + 16 * 16, account = 16 * 16 + 32 + 5 * 4;
    assert_int_equal(allocator.current_bytes, kvb_cache_struct_bytes(&kvb_cache_contiguous, &model) +
                                                  3 * 2 * (pool + cells) + plans + feeds + account);
    /* rows have no memory */
    assert_int_equal(kvb_cache_update_and_fetch(c, 0, &position, row, row, 1, &spec), -ENOTSUP);
    tests_refused(kvb_cache_save(c, 0, "/nonexistent/file"), -ENOTSUP, kvb_cache_why(c), "counted");
    assert_int_equal(kvb_cache_begin_step(c, NULL, 20), -ENOSPC);
    kvb_cache_close(c);
    assert_int_equal(allocator.current_bytes, 0);
}

/* Models with published windows: checked beyond the windows, and close to the least that must be kept. */
TEST(published_windows)
{
    static const struct {
        const char *name;
        uint32_t window, windowed, whole; /* layers with it, and without */
    } models[] = {{"gemma-3-1b-it", 512, 22, 4},
                  {"gemma-3-27b-it", 1024, 52, 10},
                  {"gpt-oss-20b", 128, 12, 12},
                  {"gpt-oss-120b", 128, 18, 18}};
    static const kvb_cache_type *const caches[] = {&kvb_cache_window, &kvb_cache_seq, NULL};
    const kvb_growth growths[] = {KVB_GROWTH_DOUBLE, KVB_GROWTH_RESERVE};
    const kvb_pool_pair pools = {f16(), f16()};
    const kvb_size_asked asked = {.caches = caches, .pools = &pools, .n_pools = 1, .growths = growths, .n_growths = 2};
    static kvb_model m;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        kvb_sized_model *model = built_in(models[i].name);
        kvb_size_verdicts v = {0};
        assert_int_equal(kvb_size_cache_model(model, 0, NULL, &m, why, sizeof why), 0);
        assert_int_equal(m.n_groups, 2);
        for (uint32_t g = 0; g < 2; g++) {
            bool windowed = kvb_group_limits(&m.groups[g]);
            assert_int_equal(kvb_model_layers_of(&m, g), windowed ? models[i].windowed : models[i].whole);
            assert_int_equal(m.groups[g].window, windowed ? models[i].window : 0);
        }
        if (kvb_size_verify(model, &asked, &v, why, sizeof why))
            fail_msg("%s", why);
        assert_int_equal(v.n, 4);
        for (size_t k = 0; k < v.n; k++) {
            if (v.at[k].verdict != KVB_SIZE_EQUAL)
                fail_msg("%s, %s: %s", models[i].name, v.at[k].cache->name, v.at[k].why);
            if (v.at[k].cache == &kvb_cache_window)
                assert_true(v.at[k].cells > 2 * models[i].window);
        }
        free(v.at);
        for (uint32_t k = 0; k < 4; k++) {
            const kvb_size_ask ask = ask_of(k / 2 ? 131072 : 32768, k % 2 ? 16 : 1, "bf16");
            kvb_size_allocation held, ideal;
            assert_int_equal(kvb_size_hold(&kvb_size_engine_ideal, model, &ask, &ideal, why, sizeof why), 0);
            if (kvb_size_hold(&kvb_size_engine_kvbench, model, &ask, &held, why, sizeof why))
                fail_msg("%s", why);
            assert_true(held.bytes_per_token - ideal.bytes_per_token ==
                        2); /* the cell's owners, in the group without windows */
            assert_int_equal(ideal.fixed_bytes_per_sequence / models[i].window * (models[i].window - 1),
                             held.fixed_bytes_per_sequence);
            double more = (double)held.kv_bytes / (double)ideal.kv_bytes - 1;
            print_message("# %s, %u x %u tokens: %.2f %% above ideal\n", models[i].name, (unsigned)ask.sequences,
                          (unsigned)ask.context, 100 * more);
            assert_true(more >= 0 && more < 0.05);
        }
        kvb_sized_model_free(model);
    }
}

static int greedy_ensure(kvb_pool *pool, uint32_t cells)
{
    return f16()->ensure(pool, cells + (cells > 60 && cells < 64));
}

static size_t modest_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells)
{
    return f16()->bytes(f16(), options, cells) - (type && cells > 100);
}

/* A pool that takes more than it declares, and one that declares a byte less, beyond some length: the difference is
 * found at the first such length. */
TEST(a_difference_is_told)
{
    kvb_sized_group group = full(1, 2, 1, 128);
    const kvb_sized_model model = {.name = "small", .groups = &group, .n_groups = 1};
    const kvb_cache_type *const caches[] = {&kvb_cache_contiguous, NULL};
    const kvb_growth growth = KVB_GROWTH_EXACT;
    for (int modest = 0; modest < 2; modest++) {
        kvb_pool_kind odd = *kvb_pool_kind_of(f16());
        const kvb_pool_pair pools = {f16(), &odd.type};
        const kvb_size_asked asked = {.caches = caches,
                                      .pools = &pools,
                                      .n_pools = 1,
                                      .growths = &growth,
                                      .n_growths = 1,
                                      .context = modest ? 110 : 66};
        kvb_size_verdicts v = {0};
        odd.type.name = "odd";
        if (modest)
            odd.type.bytes = modest_bytes;
        else
            odd.type.ensure = greedy_ensure;
        assert_int_equal(kvb_size_verify(&model, &asked, &v, why, sizeof why), 0);
        assert_int_equal(v.n, 1);
        assert_int_equal(v.count[KVB_SIZE_DIFFERS], 1);
        assert_int_equal(v.at[0].cells, modest ? 104 : 61);
        assert_int_equal(v.at[0].allocated - v.at[0].counted, modest ? 1 : 128 * 2);
        assert_contains(v.at[0].why, " bytes are counted, ");
        free(v.at);
    }
}

TEST(what_the_engine_refuses)
{
    kvb_sized_group group = full(2, 8, 2, 32);
    kvb_sized_model model = {.name = "small", .groups = &group, .n_groups = 1};
    const kvb_kv_format *plain = kvb_kv_format_find("f16");
    const struct {
        kvb_size_ask ask;
        const char *why;
    } asks[] = {
        {{.context = 10, .sequences = 4097, .k = plain, .v = plain}, "a cache of kvbench holds up to 4096 sequences"},
        {{.context = 10, .sequences = 1, .tp = 2, .k = plain, .v = plain}, "kvbench runs on one rank"},
        {{.context = 1ull << 32, .sequences = 1, .k = plain, .v = plain},
         "a cache of kvbench numbers 1 .. 4294967295 cells"},
        {{.context = 10, .sequences = 1, .k = plain, .v = kvb_kv_format_find("fp8_ds_mla")},
         "kvbench has no pool of format fp8_ds_mla"},
    };
    kvb_size_allocation held;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        assert_int_equal(kvb_size_hold(&kvb_size_engine_kvbench, &model, &asks[i].ask, &held, why, sizeof why),
                         -ENOTSUP);
        assert_string_equal(why, asks[i].why);
    }
    group.kind = KVB_SIZED_STATE;
    group.name = "RWKV";
    assert_int_equal(kvb_size_hold(&kvb_size_engine_kvbench, &model,
                                   &(kvb_size_ask){.context = 10, .sequences = 1, .k = plain, .v = plain}, &held, why,
                                   sizeof why),
                     -ENOTSUP);
    assert_string_equal(why, "2 layers of RWKV: no cache for that recurrence");
}

/* A row's bytes are counted a third time, by the sizing formats. */
TEST(rows_as_sizing_counts_them)
{
    static const uint32_t dims[] = {64, 80, 96, 128, 192, 576};
    uint32_t n = 0;
    for (const kvb_kv_format *f = kvb_kv_formats; f->name; f++) {
        const kvb_pool_type *pool = kvb_size_pool_find(f->name);
        for (size_t d = 0; pool && d < sizeof dims / sizeof *dims; d++) {
            bool fits = pool->supports(pool, dims[d], why, sizeof why);
            if (fits) /* a pool may be stricter: a rotation needs more than one element */
                assert_int_equal(kvb_kv_row_bytes(f, dims[d]), pool->row_bytes(pool, dims[d]));
            n += fits;
        }
    }
    assert_true(n > 100);
}

/* For every built-in model the search for what fits a budget opens few caches. */
TEST(what_fits_is_found_in_few_steps)
{
    enum { MOST = 90000 };
    const char *name;

    for (size_t i = 0; (name = kvb_sized_model_name(i)); i++) {
        kvb_sized_model *model = built_in(name);

        for (uint64_t budget = (uint64_t)1 << 36; budget <= (uint64_t)1 << 43; budget <<= 7) {
            const kvb_size_ask ask = ask_of(32768, 1, "f16");
            const kvb_size_terms terms = {.budget = budget};
            const uint64_t before = kvb_size_steps_played();
            kvb_size size;

            (void)kvb_size_compute(model, &kvb_size_engine_kvbench, &ask, &terms, &size, why, sizeof why);
            if (kvb_size_steps_played() - before > MOST)
                fail_msg("%s: %ju steps", name, (uintmax_t)(kvb_size_steps_played() - before));
        }
        kvb_sized_model_free(model);
    }
}
