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
#include <string.h>

#include "harness/size/engine_kvbench.h"
#include "harness/size/prove.h"

static kvb_size_rows rows;

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
    kvb_size_subject s = subject_make(&kvb_cache_contig, f16(), KVB_GROWTH_DOUBLE, 1, 120);
    kvb_pool_options empty = {.n_kv_heads = 2, .dim = 64, .min_chunk = 16, .capacity = 120};
    kvb_size_proof proof;
    (void)state;
    s.facts = (kvb_model_facts){.layers = 3, .heads = 4, .kv_heads = 2, .k_dim = 64, .v_dim = 64};
    prove(&s, steps, 2, &proof);
    size_t pool = f16()->bytes(f16(), &empty, 0), cells = 120 * 2 * 64 * 2; /* 16 · 8 is above the capacity */
    size_t plans = 100 * 16 + 101 * 4 + 16 * 16 + 16 * 4;                   /* the prefill's, the single token's */
    assert_int_equal(proof.allocated, kvb_cache_contig.struct_bytes + 3 * 2 * (sizeof(void *) + pool + cells) + plans);
    assert_int_equal(proof.cells, 101);
    assert_int_equal(proof.lengths, 5);
}

/* What a wrong prediction looks like: it is told, with both figures. */
static void what_is_refused(void **state)
{
    const kvb_size_step two = {0, 2, 1, 0, 1}, drafts = {0, 1, 1, 4, 1}, many = {0, 1, 21, 0, 1},
                        none = {0, 1, 0, 0, 1};
    kvb_size_subject s = subject_make(&kvb_cache_contig, f16(), KVB_GROWTH_DOUBLE, 1, 20);
    kvb_cache_type other = kvb_cache_contig;
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
    s.cache = &kvb_cache_contig;
    s.facts.layers = 0;
    assert_int_equal(kvb_size_predict(&s, NULL, 0, bytes, why, sizeof why), -EINVAL);
}

/* ---- all caches, pools and policies ---------------------------------------------------------------------------- */

static void combination_prove(const kvb_cache_type *cache, const kvb_pool_type *pool, kvb_growth growth)
{
    uint32_t sequences = cache->seq ? 3 : 1;
    const kvb_size_history history = {sequences, 75, 33, 5, cache == &kvb_cache_tree_nodes ? 4 : 0};
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

static int rows_free(void **state)
{
    (void)state;
    kvb_size_rows_free(&rows);
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
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("what caches allocate, predicted", tests, NULL, rows_free);
}
