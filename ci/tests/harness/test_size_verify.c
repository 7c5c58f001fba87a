/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that whole models are proved by building them, and a difference is told; that the kvbench column of `size` is what its
 * caches hold, and close to what models with windows must keep; and that the sizes that `kvbench size` counts a row with are
 * those of the pools.
 */
#include "size_subject.h"

#include <stdlib.h>

#include "caches/pools/rows.h"
#include "harness/size/cache_model.h"
#include "harness/size/verify.h"

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

/* All that sizes depend on. */
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

/* What is kept of each kind of layer, and what kvbench does not hold. */
static void a_model_of_many_kinds(void **state)
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
                                full(2, 8, 2, 64), /* as the first: heads that only ask do not matter */
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
    const kvb_size_proving proving = {.pools = pools, .n_pools = 2, .context = 200, .sequences = 3};
    static kvb_model m;
    kvb_size_verdicts v = {0};
    char why[200];
    size_t none = 0;
    (void)state;
    assert_int_equal(kvb_size_cache_model(&model, 0, NULL, &m, why, sizeof why), 0);
    assert_int_equal(m.n_groups, 5);
    for (uint32_t g = 0; g < 5; g++) {
        group_check(&m.groups[g], &want[g]);
        assert_int_equal(kvb_model_layers_of(&m, g), layers[g]);
    }
    assert_int_equal(kvb_size_verify(&model, &proving, &v, why, sizeof why), 0);
    for (size_t i = 0; i < v.n; i++) {
        const kvb_size_verified *a = &v.at[i];
        if (!a->subject.cache) {
            none++;
            continue;
        }
        assert_int_equal(a->layers, 3 + 2 + 5 + 4 + 7 + 6);
        if (a->subject.options.k_pool != f16()) {
            assert_int_equal(a->verdict, KVB_SIZE_UNAVAILABLE);
            if (kvb_growth_available(a->subject.options.growth, why, sizeof why))
                assert_string_equal(a->why,
                                    "a8g64: groups of 64 do not divide rows of 96 channels; groups of up to 32 would");
        } else if (a->verdict == KVB_SIZE_UNAVAILABLE) {
            assert_false(kvb_growth_available(a->subject.options.growth, why, sizeof why)); /* no huge pages */
        } else {
            uint32_t built = a->subject.model.n_layers;
            assert_int_equal(a->verdict, KVB_SIZE_EQUAL);
            assert_int_equal(a->subject.model.n_groups, 5);
            assert_in_range(built, 5, 2 * 5);
            assert_int_equal(a->proof.cells, has(a->subject.cache, KVB_CACHE_FREEZES) ? 400
                                             : has(a->subject.cache, KVB_CACHE_SEQ)   ? 600
                                                                                      : 200);
            assert_true(a->whole > a->proof.predicted && a->whole < a->proof.predicted * a->layers / built * 2);
        }
    }
    assert_int_equal(none, 2);
    assert_int_equal(v.n - none, n_caches() * 2 * KVB_GROWTHS);
    assert_int_equal(v.count[KVB_SIZE_DIFFERS], 0);
    assert_int_equal(v.count[KVB_SIZE_EQUAL] + v.count[KVB_SIZE_UNAVAILABLE], v.n);
    free(v.at);
}

/* States of each sequence, as many as drafts want, beside rows: no byte more than is predicted, whatever their type. */
static void states_beside_rows(void **state)
{
    static const struct {
        uint32_t sequences, drafts;
        const char *dtype;
    } asks[] = {{1, 0, NULL}, {1, 3, "bf16"}, {5, 0, "f16"}, {5, 7, NULL}, {3, 40, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        kvb_sized_group groups[] = {full(2, 8, 2, 32), mamba2(3)};
        const kvb_sized_model model = {.name = "hybrid", .groups = groups, .n_groups = 2};
        const uint32_t n = asks[i].sequences, elem = asks[i].dtype ? 2 : 4;
        const kvb_size_ask ask = {.context = 700,
                                  .sequences = n,
                                  .k = kvb_kv_format_find("f16"),
                                  .v = kvb_kv_format_find("f16"),
                                  .state = asks[i].dtype,
                                  .spec_depth = asks[i].drafts};
        const kvb_size_history history = {n, 700, 512, 1, 0, 0, 0, 0, 0};
        kvb_size_subject s =
            subject_make(n > 1 ? &kvb_cache_seq : &kvb_cache_contiguous, f16(), KVB_GROWTH_DOUBLE, n, 700);
        kvb_size_step steps[KVB_SIZE_STEPS(5)];
        kvb_size_proof proof;
        kvb_size_allocation held;
        char why[200];
        assert_int_equal(kvb_size_cache_model(&model, 700, asks[i].dtype, &s.model, why, sizeof why), 0);
        s.options.min_chunk = 256;
        s.options.state_depth = asks[i].drafts;
        prove(&s, steps, kvb_size_steps(&history, steps), &proof);
        assert_int_equal(kvb_size_engine_kvbench.allocate(&model, &ask, &held, why, sizeof why), 0);
        assert_int_equal(held.kv_bytes + held.state_bytes, proof.allocated);
        assert_int_equal(held.state_bytes, n * (1 + asks[i].drafts) * 3 * (4096 + 864) * elem);
        assert_int_equal(held.fixed_bytes_per_sequence, held.state_bytes / n);
    }
}

/* Models with published windows: proved past the windows, and close to the least that must be kept. */
static void published_windows(void **state)
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
    const kvb_size_proving proving = {
        .caches = caches, .pools = &pools, .n_pools = 1, .growths = growths, .n_growths = 2, .layers = 1};
    static kvb_model m;
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        kvb_sized_model *model;
        kvb_size_verdicts v = {0};
        char why[200] = "";
        assert_int_equal(kvb_sized_model_built_in(models[i].name, &model, why, sizeof why), 0);
        assert_int_equal(kvb_size_cache_model(model, 0, NULL, &m, why, sizeof why), 0);
        assert_int_equal(m.n_groups, 2);
        for (uint32_t g = 0; g < 2; g++) {
            bool windowed = kvb_group_limits(&m.groups[g]);
            assert_int_equal(kvb_model_layers_of(&m, g), windowed ? models[i].windowed : models[i].whole);
            assert_int_equal(m.groups[g].window, windowed ? models[i].window : 0);
        }
        if (kvb_size_verify(model, &proving, &v, why, sizeof why))
            fail_msg("%s", why);
        assert_int_equal(v.n, 4);
        for (size_t k = 0; k < v.n; k++) {
            if (v.at[k].verdict != KVB_SIZE_EQUAL)
                fail_msg("%s, %s: %s", models[i].name, v.at[k].subject.cache->name, v.at[k].why);
            if (v.at[k].subject.cache == &kvb_cache_window)
                assert_true(v.at[k].proof.cells > 2 * models[i].window);
        }
        free(v.at);
        for (uint32_t k = 0; k < 4; k++) {
            const kvb_size_ask ask = {.context = k / 2 ? 131072 : 32768,
                                      .sequences = k % 2 ? 16 : 1,
                                      .tp = 1,
                                      .pp = 1,
                                      .k = kvb_kv_format_find("bf16"),
                                      .v = kvb_kv_format_find("bf16")};
            kvb_size_allocation held, ideal;
            assert_int_equal(kvb_size_engine_ideal.allocate(model, &ask, &ideal, why, sizeof why), 0);
            if (kvb_size_engine_kvbench.allocate(model, &ask, &held, why, sizeof why))
                fail_msg("%s", why);
            assert_true(held.bytes_per_token - ideal.bytes_per_token ==
                        2); /* who holds the cell, in the group without windows */
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
    return f16()->ensure(pool, cells + (cells > 60));
}

/* A pool that takes a cell too many, once it is long: at the first length where it does so, both figures are told. */
static void a_difference_is_told(void **state)
{
    kvb_pool_kind greedy = *kvb_pool_kind_of(f16());
    kvb_sized_group group = full(1, 2, 1, 128);
    const kvb_sized_model model = {.name = "greedy", .groups = &group, .n_groups = 1};
    const kvb_pool_pair pools = {f16(), &greedy.type};
    const kvb_cache_type *const caches[] = {&kvb_cache_contiguous, NULL};
    const kvb_growth growth = KVB_GROWTH_DOUBLE;
    const kvb_size_proving proving = {
        .caches = caches, .pools = &pools, .n_pools = 1, .growths = &growth, .n_growths = 1, .context = 100};
    kvb_size_subject s = subject_make(&kvb_cache_contiguous, &greedy.type, growth, 1, 100);
    const kvb_size_step steps[] = {{0, 1, 1, 0, 90, KVB_SIZE_STEP}};
    kvb_size_verdicts v = {0};
    kvb_size_proof proof;
    char why[200];
    (void)state;
    greedy.type.name = "greedy";
    greedy.type.ensure = greedy_ensure;
    assert_int_equal(kvb_size_prove(&s, steps, 1, &proof_rows, &proof, why, sizeof why), 0);
    assert_int_equal(proof.cells, 64); /* 16, 32, 64, and no 65th was asked for */
    assert_int_equal(proof.allocated - proof.predicted, 2 * (100 - 64) * 128 * 2);
    assert_int_equal(kvb_size_verify(&model, &proving, &v, why, sizeof why), 0);
    assert_int_equal(v.n, 1);
    assert_int_equal(v.count[KVB_SIZE_DIFFERS], 1); /* 101 cells of 100 */
    assert_int_equal(v.at[0].verdict, KVB_SIZE_DIFFERS);
    assert_string_equal(v.at[0].why, "cache contiguous: the pools cannot grow to 100 cells: No space left on device");
    free(v.at);
}

/* What the engine says is what its cache holds with all layers there: prefill in its chunks, the last token alone. */
static void the_engine_is_its_cache(void **state)
{
    kvb_sized_group group = full(3, 8, 2, 32);
    const kvb_sized_model model = {.name = "small", .groups = &group, .n_groups = 1};
    const uint64_t sequences[] = {1, 5};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const kvb_size_ask ask = {
            .context = 700, .sequences = sequences[i], .k = kvb_kv_format_find("q8_0"), .v = kvb_kv_format_find("f16")};
        const kvb_size_history history = {(uint32_t)sequences[i], 700, 512, 1, 0, 0, 0, 0, 0};
        kvb_size_subject s = subject_make(i ? &kvb_cache_seq : &kvb_cache_contiguous, f16(), KVB_GROWTH_DOUBLE,
                                          (uint32_t)sequences[i], 700);
        kvb_size_step steps[KVB_SIZE_STEPS(5)];
        kvb_size_proof proof;
        kvb_size_allocation held;
        char why[200];
        s.model = alike(3, rows_of(8, 2, 32, 32));
        s.options.k_pool = kvb_size_pool_find("q8_0");
        s.options.min_chunk = 256;
        prove(&s, steps, kvb_size_steps(&history, steps), &proof);
        assert_int_equal(kvb_size_engine_kvbench.allocate(&model, &ask, &held, why, sizeof why), 0);
        assert_int_equal(held.kv_bytes, proof.allocated);
        assert_int_equal(held.state_bytes, 0);
        assert_true(held.bytes_per_token == 3 * 2 * (34 + 64) + (i ? 2 : 0));
    }
}

static void what_the_engine_refuses(void **state)
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
    char why[200];
    (void)state;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        assert_int_equal(kvb_size_engine_kvbench.allocate(&model, &asks[i].ask, &held, why, sizeof why), -ENOTSUP);
        assert_string_equal(why, asks[i].why);
    }
    group.kind = KVB_SIZED_STATE;
    group.name = "RWKV";
    assert_int_equal(
        kvb_size_engine_kvbench.allocate(&model, &(kvb_size_ask){.context = 10, .sequences = 1, .k = plain, .v = plain},
                                         &held, why, sizeof why),
        -ENOTSUP);
    assert_string_equal(why, "2 layers of RWKV: no cache for that recurrence");
}

/* A third account of a row, that of the sizing formats. */
static void rows_as_sizing_counts_them(void **state)
{
    static const uint32_t dims[] = {64, 80, 96, 128, 192, 576};
    uint32_t n = 0;
    char why[160];
    (void)state;
    const kvb_kv_format *f;
    for (size_t i = 0; (f = kvb_kv_format_at(i)); i++) {
        const kvb_pool_type *pool = kvb_size_pool_find(f->name);
        for (size_t d = 0; pool && d < sizeof dims / sizeof *dims; d++) {
            bool fits = pool->supports(pool, dims[d], why, sizeof why);
            if (fits) /* a pool may be stricter: what is rotated must have something to mix */
                assert_int_equal(kvb_kv_row_bytes(f, dims[d]), pool->row_bytes(pool, dims[d]));
            n += fits;
        }
    }
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_of_many_kinds),      cmocka_unit_test(published_windows),
        cmocka_unit_test(a_difference_is_told),       cmocka_unit_test(the_engine_is_its_cache),
        cmocka_unit_test(states_beside_rows),         cmocka_unit_test(what_the_engine_refuses),
        cmocka_unit_test(rows_as_sizing_counts_them),
    };
    return cmocka_run_group_tests_name("sizes of whole models", tests, NULL, rows_free);
}
