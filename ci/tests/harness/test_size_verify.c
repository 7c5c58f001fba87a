/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that what a cache allocates is known before it is opened: for every cache, pool and growth policy, over histories
 * made by hand and at random, the allocator holds at every step what was predicted. And that the sizes that `kvbench
 * size` counts a row with are those of the pools.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/rows.h"
#include "harness/size/engine_kvbench.h"
#include "harness/size/verify.h"

static kvb_proof_rows rows;

static const kvb_pool_type *f16(void)
{
    return kvb_size_pool_find("f16");
}

static kvb_size_subject subject_make(const kvb_cache_type *cache, const kvb_pool_type *pool, kvb_growth growth,
                                     uint32_t sequences, uint32_t context)
{
    return (kvb_size_subject){
        .cache = cache,
        .facts = {.layers = 1, .heads = 2, .kv_heads = 1, .k_dim = 128, .v_dim = 128},
        .options = {.capacity = sequences * context,
                    .seq_capacity = context,
                    .max_seqs = sequences,
                    .min_chunk = 16,
                    .growth = growth,
                    .k_pool = pool,
                    .v_pool = pool},
    };
}

static void prove(const kvb_size_subject *s, const kvb_size_step *steps, size_t n, kvb_size_proof *proof)
{
    char why[200] = "";
    int error = kvb_size_prove(s, steps, n, &rows, proof, why, sizeof why);
    if (error)
        fail_msg("%s k=%s v=%s %s: %s", s->cache->name, s->options.k_pool->name, s->options.v_pool->name,
                 kvb_growth_names[s->options.growth], why);
    if (proof->allocated != proof->predicted)
        fail_msg("%s k=%s v=%s %s: %u layers, %u heads, %u and %u channels, chunk %u: after %lu cells %lu bytes, "
                 "predicted %lu",
                 s->cache->name, s->options.k_pool->name, s->options.v_pool->name, kvb_growth_names[s->options.growth],
                 s->facts.layers, s->facts.kv_heads, s->facts.k_dim, s->facts.v_dim, s->options.min_chunk, proof->cells,
                 proof->allocated, proof->predicted);
}

/* ---- by hand ------------------------------------------------------------------------------------------------- */

/* 100 tokens at once and one more, f16, two KV heads of 64: every term of the sum. */
static void known_sum(void **state)
{
    const kvb_size_step steps[] = {{0, 1, 100, 0, 1}, {0, 1, 1, 0, 1}};
    kvb_size_subject s = subject_make(&kvb_cache_contiguous, f16(), KVB_GROWTH_DOUBLE, 1, 120);
    kvb_pool_options empty = {.n_kv_heads = 2, .dim = 64, .min_chunk = 16, .capacity = 120};
    kvb_size_proof proof;
    (void)state;
    s.facts = (kvb_model_facts){.layers = 3, .heads = 4, .kv_heads = 2, .k_dim = 64, .v_dim = 64};
    prove(&s, steps, 2, &proof);
    size_t pool = f16()->bytes(f16(), &empty, 0), cells = 120 * 2 * 64 * 2; /* 16 · 8 is above the capacity */
    size_t plans = 100 * 16 + 101 * 4 + 16 * 16 + 16 * 4;                   /* the prefill's, the single token's */
    assert_int_equal(proof.allocated,
                     kvb_cache_contiguous.struct_bytes + 3 * 2 * (sizeof(void *) + pool + cells) + plans);
    assert_int_equal(proof.cells, 101);
    assert_int_equal(proof.lengths, 5);
}

static void what_is_refused(void **state)
{
    const kvb_size_step two = {0, 2, 1, 0, 1}, drafts = {0, 1, 1, 4, 1}, many = {0, 1, 21, 0, 1},
                        none = {0, 1, 0, 0, 1};
    kvb_size_subject s = subject_make(&kvb_cache_contiguous, f16(), KVB_GROWTH_DOUBLE, 1, 20);
    kvb_cache_type other = kvb_cache_contiguous;
    uint64_t bytes[2];
    char why[200];
    (void)state;
    assert_int_equal(kvb_size_predict(&s, &two, 1, bytes, why, sizeof why), -EINVAL);
    assert_string_equal(why, "cache contiguous holds one sequence");
    assert_int_equal(kvb_size_predict(&s, &drafts, 1, bytes, why, sizeof why), -EINVAL);
    assert_string_equal(why, "cache contiguous takes no drafts");
    assert_int_equal(kvb_size_predict(&s, &many, 1, bytes, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_size_predict(&s, &none, 1, bytes, why, sizeof why), -EINVAL);
    s.cache = &other;
    assert_int_equal(kvb_size_predict(&s, NULL, 0, bytes, why, sizeof why), -ENOTSUP);
    s.cache = &kvb_cache_contiguous;
    s.facts.layers = 0;
    assert_int_equal(kvb_size_predict(&s, NULL, 0, bytes, why, sizeof why), -EINVAL);
}

/* ---- all caches, pools and policies ---------------------------------------------------------------------------- */

static void combination_prove(const kvb_cache_type *cache, const kvb_pool_type *pool, kvb_growth growth)
{
    uint32_t sequences = cache->seq ? 3 : 1;
    const kvb_size_history history = {sequences, 75, 33, 5, cache == &kvb_cache_tree ? 4 : 0};
    kvb_size_subject s = subject_make(cache, pool, growth, sequences, 78);
    kvb_size_step steps[KVB_SIZE_STEPS];
    kvb_size_proof proof;
    prove(&s, steps, kvb_size_steps(&history, steps), &proof);
    assert_int_equal(proof.cells, sequences * 75);
}

static void every_combination(void **state)
{
    char why[160];
    uint32_t n = 0;
    (void)state;
    for (uint32_t g = 0; g < KVB_GROWTHS; g++)
        for (const kvb_cache_type *const *c = kvb_builtin_caches; *c && kvb_growth_available(g, why, sizeof why); c++)
            for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
                for (const kvb_pool_type *pool = *p; pool; pool = pool->rotated, n++)
                    combination_prove(*c, pool, (kvb_growth)g);
    print_message("# %u combinations\n", n);
}

/* ---- at random ------------------------------------------------------------------------------------------------- */

static uint32_t seed = 12345;
static uint32_t below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(seed >> 8) * n >> 24);
}

static const kvb_pool_type *any_pool(uint32_t dim)
{
    const kvb_pool_type *pool = NULL;
    char why[160];
    while (!pool || (pool->supports && !pool->supports(pool, dim, why, sizeof why))) {
        uint32_t n = 0;
        while (kvb_builtin_pools[n])
            n++;
        pool = kvb_builtin_pools[below(n)];
        if (below(3) == 0 && pool->rotated)
            pool = pool->rotated;
    }
    return pool;
}

/* Sequences in any order, of any lengths, alone or several together; drafts in a tree. */
static size_t any_steps(const kvb_size_subject *s, kvb_size_step *steps, size_t most)
{
    uint32_t used = 0, len[KVB_SIZE_SEQUENCES] = {0};
    size_t n = 0;
    for (size_t tries = 0; tries < 4 * most && n < most; tries++) {
        kvb_size_step step = {0, 1, 1 + below(40), 0, 1 + below(3)};
        if (s->cache->seq) {
            step.first = below(s->options.max_seqs);
            if (below(2))
                step.n_seqs = 1 + below(s->options.max_seqs - step.first);
        } else if (s->cache->tree && below(2)) {
            step.drafts = 1 + below(30);
        }
        if (step.n_seqs > 1 || step.drafts)
            step.tokens = 1;
        uint32_t more = step.n_seqs * step.tokens * step.times, longest = 0;
        for (uint32_t i = 0; i < step.n_seqs; i++)
            longest = len[step.first + i] > longest ? len[step.first + i] : longest;
        if (used + more + step.drafts > s->options.capacity ||
            longest + step.tokens * step.times > s->options.seq_capacity)
            continue;
        for (uint32_t i = 0; i < step.n_seqs; i++)
            len[step.first + i] += step.tokens * step.times;
        used += more;
        steps[n++] = step;
    }
    return n;
}

static void random_histories(void **state)
{
    static const uint32_t dims[] = {4, 7, 32, 64, 96, 128, 160};
    uint64_t lengths = 0;
    char why[160];
    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        kvb_growth growth = (kvb_growth)below(KVB_GROWTHS);
        if (!kvb_growth_available(growth, why, sizeof why))
            growth = KVB_GROWTH_DOUBLE;
        const kvb_cache_type *cache = kvb_builtin_caches[i % 5];
        kvb_size_subject s = subject_make(cache, f16(), growth, cache->seq ? 1 + below(9) : 1, 60 + below(200));
        bool huge = growth == KVB_GROWTH_RESERVE_THP || growth == KVB_GROWTH_DOUBLE_THP;
        kvb_size_step steps[12];
        kvb_size_proof proof;
        s.facts = (kvb_model_facts){.layers = 1 + below(huge ? 1 : 3),
                                    .kv_heads = 1 + below(huge ? 2 : 4),
                                    .k_dim = dims[below(7)],
                                    .v_dim = dims[below(7)]};
        s.facts.heads = s.facts.kv_heads * (1 + below(4));
        s.options.min_chunk = 1 + below(100);
        s.options.capacity -= below(50);
        s.options.k_pool = any_pool(s.facts.k_dim);
        s.options.v_pool = any_pool(s.facts.v_dim);
        prove(&s, steps, any_steps(&s, steps, 12), &proof);
        lengths += proof.lengths;
    }
    print_message("# 200 histories, compared at %lu lengths\n", lengths);
    assert_true(lengths > 2000);
}

/* Taken in one go, equal steps come to the same as one by one. */
static void at_once_or_one_by_one(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        const kvb_cache_type *cache = kvb_builtin_caches[i % 5];
        uint32_t sequences = cache->seq ? 1 + below(5) : 1, context = 1 + below(5000);
        const kvb_size_history history = {sequences, context, 1 + below(600), below(9), 0};
        kvb_size_subject s = subject_make(cache, f16(), KVB_GROWTH_DOUBLE, sequences, context);
        kvb_size_step steps[KVB_SIZE_STEPS], one = {0};
        static kvb_size_step single[5 * 5000];
        static uint64_t at_once[KVB_SIZE_STEPS + 1], by_one[5 * 5000 + 1];
        size_t n = kvb_size_steps(&history, steps), n_single = 0;
        char why[160];
        for (size_t k = 0; k < n; k++) {
            one = steps[k];
            one.times = 1;
            for (uint32_t t = 0; t < steps[k].times; t++)
                single[n_single++] = one;
        }
        assert_int_equal(kvb_size_predict(&s, steps, n, at_once, why, sizeof why), 0);
        assert_int_equal(kvb_size_predict(&s, single, n_single, by_one, why, sizeof why), 0);
        assert_int_equal(at_once[n], by_one[n_single]);
    }
}

/* ---- whole models ------------------------------------------------------------------------------------------------ */

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

/* Two shapes: the windows have the rows of the first full layers; and what kvbench does not hold. */
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
                                {.n = 7, .kind = KVB_SIZED_STATE, .name = "Mamba-2", .state_elements = 4096},
                                {.n = 2, .kind = KVB_SIZED_NONE, .name = "no-op"}};
    groups[1].kind = KVB_SIZED_WINDOW;
    groups[1].window = 32;
    const kvb_sized_model model = {.name = "many kinds", .groups = groups, .n_groups = 5};
    const kvb_pool_pair pools[] = {{f16(), f16()}, {kvb_size_pool_find("a8g64"), f16()}};
    const kvb_size_proving proving = {.pools = pools, .n_pools = 2, .context = 100, .sequences = 3};
    kvb_size_verdicts v = {0};
    char why[200];
    size_t none = 0, shapes[2] = {0};
    (void)state;
    assert_int_equal(kvb_size_verify(&model, &proving, &v, why, sizeof why), 0);
    for (size_t i = 0; i < v.n; i++) {
        const kvb_size_verified *a = &v.at[i];
        if (!a->subject.cache) {
            none++;
            continue;
        }
        bool latent = a->subject.facts.k_dim == 96;
        shapes[latent]++;
        assert_int_equal(a->layers, latent ? 4 : 8);
        assert_string_equal(a->kept,
                            latent ? "the latent row is kept as K and, without rope, as V" : "windows are kept whole");
        if (latent && a->subject.options.k_pool != f16()) {
            assert_int_equal(a->verdict, KVB_SIZE_UNAVAILABLE);
            assert_string_equal(a->why,
                                "a8g64: groups of 64 do not divide rows of 96 channels; groups of up to 32 would");
            continue;
        }
        if (a->verdict == KVB_SIZE_UNAVAILABLE)
            assert_false(kvb_growth_available(a->subject.options.growth, why, sizeof why)); /* no huge pages */
        else
            assert_int_equal(a->verdict, KVB_SIZE_EQUAL);
        if (a->verdict == KVB_SIZE_EQUAL) {
            assert_in_range(a->subject.facts.layers, 1, 2);
            assert_int_equal(a->proof.cells, a->subject.cache->seq ? 300 : 100);
            assert_true(a->whole > a->proof.predicted &&
                        a->whole < a->proof.predicted * a->layers / a->subject.facts.layers);
        }
    }
    assert_int_equal(none, 2);
    assert_int_equal(shapes[0], 5 * 2 * KVB_GROWTHS);
    assert_int_equal(shapes[1], 5 * 2 * KVB_GROWTHS);
    assert_int_equal(v.count[KVB_SIZE_DIFFERS], 0);
    assert_int_equal(v.count[KVB_SIZE_EQUAL] + v.count[KVB_SIZE_UNAVAILABLE], v.n);
    free(v.at);
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
    const kvb_size_step steps[] = {{0, 1, 1, 0, 90}};
    kvb_size_verdicts v = {0};
    kvb_size_proof proof;
    char why[200];
    (void)state;
    greedy.type.name = "greedy";
    greedy.type.ensure = greedy_ensure;
    assert_int_equal(kvb_size_prove(&s, steps, 1, &rows, &proof, why, sizeof why), 0);
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
        const kvb_size_history history = {(uint32_t)sequences[i], 700, 512, 1, 0};
        kvb_size_subject s = subject_make(i ? &kvb_cache_seq : &kvb_cache_contiguous, f16(), KVB_GROWTH_DOUBLE,
                                          (uint32_t)sequences[i], 700);
        kvb_size_step steps[KVB_SIZE_STEPS];
        kvb_size_proof proof;
        kvb_size_allocation held;
        char why[200];
        s.facts = (kvb_model_facts){.layers = 3, .heads = 8, .kv_heads = 2, .k_dim = 32, .v_dim = 32};
        s.options.k_pool = kvb_size_pool_find("q8_0");
        s.options.min_chunk = 256;
        prove(&s, steps, kvb_size_steps(&history, steps), &proof);
        assert_int_equal(kvb_size_engine_kvbench.allocate(&model, &ask, &held, why, sizeof why), 0);
        assert_int_equal(held.kv_bytes, proof.allocated);
        assert_int_equal(held.state_bytes, 0);
        assert_true(held.bytes_per_token == 3 * 2 * (34 + 64) + (i ? 12 : 0));
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
        {{.context = 10, .sequences = 65, .k = plain, .v = plain}, "a cache of kvbench holds up to 64 sequences"},
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
    group.name = "Mamba-2";
    assert_int_equal(
        kvb_size_engine_kvbench.allocate(&model, &(kvb_size_ask){.context = 10, .sequences = 1, .k = plain, .v = plain},
                                         &held, why, sizeof why),
        -ENOTSUP);
    assert_string_equal(why, "2 layers of Mamba-2: no cache for recurrent states");
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

static int rows_free(void **state)
{
    (void)state;
    kvb_proof_rows_free(&rows);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_sum),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(every_combination),
        cmocka_unit_test(random_histories),
        cmocka_unit_test(at_once_or_one_by_one),
        cmocka_unit_test(a_model_of_many_kinds),
        cmocka_unit_test(a_difference_is_told),
        cmocka_unit_test(the_engine_is_its_cache),
        cmocka_unit_test(what_the_engine_refuses),
        cmocka_unit_test(rows_as_sizing_counts_them),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("what caches allocate, predicted", tests, NULL, rows_free);
}
