/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: a frozen prefix outlives the cache that made it, is counted once however many caches read it, is never
 * written, is read by caches of other threads, and goes with the last who holds it; what cannot be shared is refused
 * and changes nothing; and whichever request for memory fails, nothing is lost.
 */
#include "pools.h"
#include "rig.h"

#include <pthread.h>

enum { SHARED = 70, CAPACITY = 200, SEQ_CAPACITY = 150, SEQS = 4 };

/* A cache whose sequence 0 holds n tokens. */
static void filled_open(rig *r, uint32_t n)
{
    rig_open(r, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    assert_int_equal(rig_step(r, NULL, n), 0);
    rig_store(r);
}

/* The prefix's tokens count as admitted. */
static void join(rig *r, uint32_t seq, kvb_frozen *frozen)
{
    assert_int_equal(kvb_cache_seq_over(r->cache, seq, frozen), 0);
    for (uint32_t i = 0; i < kvb_frozen_length(frozen); i++)
        r->pos[r->next++] = i;
}

/* A step of one token sees `shared` tokens of the prefix, whose rows are those of ordinals 0, 1, …, and own ones from
 * ordinal own on. */
static void sees(rig *r, uint32_t seq, uint32_t shared, uint64_t own)
{
    uint64_t want[SEQ_CAPACITY];
    uint32_t n = 0;
    assert_int_equal(rig_step(r, &seq, 1), 0);
    for (; n < shared; n++)
        want[n] = n;
    for (uint64_t o = own; o < r->next; o++)
        want[n++] = o;
    rig_sees(r, 0, want, n);
}

static void the_maker_ends_first(void **state)
{
    rig maker, first, second;
    kvb_allocator shared = {0};
    kvb_frozen *frozen;
    (void)state;
    filled_open(&maker, SHARED);
    assert_int_equal(kvb_cache_freeze(maker.cache, 0, SHARED, &shared, &frozen), 0);
    assert_int_equal(rig_usage(&maker).cells_live, SHARED); /* its own rows have become the prefix's */
    const size_t bytes = shared.current_bytes;
    assert_true(bytes > SHARED * RIG_LAYERS * (RIG_K_DIM + RIG_V_DIM) * sizeof(float));
    sees(&maker, 0, SHARED, SHARED);
    rig_open(&first, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    rig_open(&second, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    join(&first, 0, frozen);
    join(&second, 2, frozen);
    rig_close(&maker);
    assert_int_equal(shared.current_bytes, bytes); /* once, whoever reads it */
    for (uint32_t i = 0; i < 5; i++) {
        sees(&first, 0, SHARED, SHARED);
        sees(&second, 2, SHARED, SHARED);
    }
    kvb_frozen_hold(frozen);
    kvb_frozen_release(frozen);
    join(&first, 1, frozen);
    kvb_frozen_release(frozen);
    rig_close(&first);
    sees(&second, 2, SHARED, SHARED);
    rig_close(&second);
    assert_int_equal(shared.current_bytes, 0);
}

/* Who is cut back into the prefix, and goes on, writes beside it. */
static void what_is_frozen_stays(void **state)
{
    rig maker, other;
    kvb_frozen *frozen;
    (void)state;
    filled_open(&maker, SHARED);
    assert_int_equal(kvb_cache_freeze(maker.cache, 0, SHARED, NULL, &frozen), 0);
    rig_open(&other, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    join(&other, 0, frozen);
    assert_int_equal(kvb_cache_seq_rm(maker.cache, 0, SHARED - 9, KVB_POS_END), 0);
    for (uint32_t i = 0; i < 9; i++)
        sees(&maker, 0, SHARED - 9, SHARED);
    sees(&other, 0, SHARED, SHARED);
    kvb_frozen_release(frozen);
    assert_int_equal(kvb_cache_clear(other.cache), 0); /* before the maker, whose allocator it is */
    rig_close(&other);
    rig_close(&maker);
}

/* What a call must leave as it is. */
static void refused(rig *r, int error, int got)
{
    assert_int_equal(got, error);
    assert_true(kvb_cache_why(r->cache)[0] != 0);
    assert_int_equal(rig_usage(r).cells_live, SHARED);
    assert_int_equal(kvb_cache_length(r->cache, 1), 0);
}

/* Who reads one prefix takes no tokens of another. */
static void prefixes_do_not_mix(void **state)
{
    rig r, makers[2];
    kvb_frozen *frozen[2];
    (void)state;
    rig_open(&r, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    for (uint32_t i = 0; i < 2; i++) {
        filled_open(&makers[i], i ? 10 : SHARED);
        assert_int_equal(kvb_cache_freeze(makers[i].cache, 0, i ? 10 : SHARED, NULL, &frozen[i]), 0);
        join(&r, 1 + i, frozen[i]);
    }
    assert_int_equal(kvb_cache_seq_cp(r.cache, 1, 2, 10, KVB_POS_END), -ENOTSUP);
    assert_non_null(strstr(kvb_cache_why(r.cache), "one front"));
    assert_int_equal(kvb_cache_length(r.cache, 2), 10);
    assert_int_equal(kvb_cache_clear(r.cache), 0);
    rig_close(&r);
    for (uint32_t i = 0; i < 2; i++) {
        kvb_frozen_release(frozen[i]);
        rig_close(&makers[i]);
    }
}

static void what_cannot_be_shared_is_refused(void **state)
{
    rig r, small, other = {.n_groups = 2, .groups = {{.window = 0}, {.window = 10000}}}, seq;
    kvb_frozen *frozen, *none = NULL;
    uint32_t at = 0, residual = 0;
    (void)state;
    filled_open(&r, SHARED);
    refused(&r, -EINVAL, kvb_cache_freeze(r.cache, 0, SHARED + 1, NULL, &none));
    refused(&r, -EINVAL, kvb_cache_freeze(r.cache, 0, 0, NULL, &none));
    refused(&r, -EINVAL, kvb_cache_freeze(r.cache, 1, 1, NULL, &none));
    refused(&r, -EINVAL, kvb_cache_freeze(r.cache, KVB_SEQ_IDS, 1, NULL, &none));
    assert_int_equal(kvb_cache_freeze(r.cache, 0, SHARED - 8, NULL, &frozen), 0);
    refused(&r, -ENOTSUP, kvb_cache_freeze(r.cache, 0, SHARED, NULL, &none));
    refused(&r, -EINVAL, kvb_cache_seq_over(r.cache, 0, frozen));
    rig_open(&small, &kvb_cache_shared_prefix, SHARED - 9, SEQ_CAPACITY, SEQS, 8);
    assert_int_equal(kvb_cache_seq_over(small.cache, 0, frozen), -ENOSPC);
    rig_close(&small);
    rig_open(&small, &kvb_cache_shared_prefix, CAPACITY, SHARED - 9, SEQS, 8);
    assert_int_equal(kvb_cache_seq_over(small.cache, 0, frozen), -ENOSPC);
    rig_close(&small);
    rig_open(&seq, &kvb_cache_seq, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    assert_int_equal(kvb_cache_seq_over(seq.cache, 0, frozen), -ENOTSUP);
    assert_int_equal(kvb_cache_freeze(seq.cache, 0, 1, NULL, &none), -ENOTSUP);
    rig_close(&seq);
    for (; (other.pool = pools_next(&at));) { /* rows of another format; and formats whose rows hang together */
        const bool hangs = other.pool->format->residual_cells;
        assert_int_equal(rig_try_open(&other, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8),
                         hangs ? -ENOTSUP : 0);
        residual += hangs;
        if (!hangs)
            assert_int_equal(kvb_cache_seq_over(other.cache, 0, frozen), -EINVAL);
        rig_close(&other);
    }
    assert_true(residual > 0 && none == NULL);
    kvb_frozen_release(frozen);
    rig_close(&r);
}

/* Another fixed scale is another row. */
static void scales_must_be_the_same(void **state)
{
    const float one[RIG_KV_HEADS] = {1, 2}, two[RIG_KV_HEADS] = {1, 3}, *scales[2][RIG_LAYERS];
    const kvb_pool_type *e4m3 = NULL;
    kvb_allocator a = {0};
    kvb_cache *cache[2];
    kvb_frozen *frozen;
    char why[200];
    rig r = {.n_groups = 1};
    (void)state;
    for (uint32_t at = 0; !e4m3 || strcmp(e4m3->name, "e4m3-head");)
        e4m3 = pools_next(&at);
    r.pool = e4m3;
    rig_model_make(&r);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
            scales[i][layer] = i ? two : one;
        const kvb_cache_options o = {.capacity = 9,
                                     .seq_capacity = 9,
                                     .max_seqs = 2,
                                     .min_chunk = 1,
                                     .k_pool = e4m3,
                                     .v_pool = e4m3,
                                     .k_amax = scales[i],
                                     .v_amax = scales[i],
                                     .allocator = &a};
        assert_int_equal(kvb_cache_open(&kvb_cache_shared_prefix, &r.model, &o, &cache[i], why, sizeof why), 0);
    }
    assert_int_equal(kvb_cache_begin_step(cache[0], NULL, 3), 0);
    assert_int_equal(kvb_cache_freeze(cache[0], 0, 3, NULL, &frozen), 0);
    assert_int_equal(kvb_cache_seq_over(cache[1], 0, frozen), -EINVAL);
    assert_int_equal(kvb_cache_seq_over(cache[0], 1, frozen), 0);
    kvb_frozen_release(frozen);
    kvb_cache_close(cache[0]);
    kvb_cache_close(cache[1]);
    assert_int_equal(a.current_bytes, 0);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 50 };

/* A cache of its own, over the prefix, again and again. */
static void *reads(void *context)
{
    kvb_frozen *frozen = context;
    rig *r = calloc(1, sizeof *r);
    bool well = r != NULL;
    for (uint32_t i = 0; i < ROUNDS && well; i++) {
        kvb_attend_spec spec;
        *r = (rig){.n_groups = 2, .groups = {{.window = 0}, {.window = 10000}}};
        well = !rig_try_open(r, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8) &&
               !kvb_cache_seq_over(r->cache, 0, frozen) && !kvb_cache_begin_step(r->cache, NULL, 1) &&
               !kvb_cache_update_and_fetch(r->cache, 0, (uint32_t[]){SHARED}, (float[RIG_KV_HEADS * RIG_K_DIM]){0},
                                           (float[RIG_KV_HEADS * RIG_V_DIM]){0}, 1, &spec);
        for (uint32_t c = 0; c < SHARED && well; c++)
            well = *(const float *)kvb_view_row(&spec.k, 1, c) == (float)c;
        kvb_cache_close(r->cache);
        well = well && !r->allocator.current_bytes;
    }
    free(r);
    kvb_frozen_release(frozen);
    return well ? context : NULL;
}

static void threads_share(void **state)
{
    rig maker;
    kvb_allocator shared = {0};
    kvb_frozen *frozen;
    pthread_t threads[THREADS];
    (void)state;
    filled_open(&maker, SHARED);
    assert_int_equal(kvb_cache_freeze(maker.cache, 0, SHARED, &shared, &frozen), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reads, kvb_frozen_hold(frozen)), 0);
    kvb_frozen_release(frozen);
    rig_close(&maker);
    for (uint32_t i = 0; i < THREADS; i++) {
        void *well;
        pthread_join(threads[i], &well);
        assert_non_null(well);
    }
    assert_int_equal(shared.current_bytes, 0);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void memory_may_fail(void **state)
{
    bool noticed = true;
    uint64_t fail = 0;
    (void)state;
    while (noticed) {
        rig r;
        kvb_frozen *frozen;
        filled_open(&r, SHARED);
        r.allocator.fail_request = r.allocator.requests + ++fail;
        const size_t before = r.allocator.current_bytes;
        int error = kvb_cache_freeze(r.cache, 0, SHARED - 5, NULL, &frozen);
        noticed = error == -ENOMEM;
        if (noticed)
            assert_int_equal(kvb_cache_freeze(r.cache, 0, SHARED - 5, NULL, &frozen), 0);
        error = kvb_cache_seq_over(r.cache, 1, frozen);
        if (error == -ENOMEM)
            assert_int_equal(kvb_cache_seq_over(r.cache, 1, frozen), 0);
        noticed = noticed || error == -ENOMEM;
        r.allocator.fail_request = 0;
        assert_true(r.allocator.current_bytes > before);
        for (uint32_t i = 0; i < SHARED - 5; i++)
            r.pos[r.next++] = i;
        sees(&r, 1, SHARED - 5, r.next);
        kvb_frozen_release(frozen);
        rig_close(&r);
    }
    print_message("# each of %lu requests refused once\n", (unsigned long)fail - 1);
    assert_true(fail > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_maker_ends_first),    cmocka_unit_test(what_is_frozen_stays),
        cmocka_unit_test(prefixes_do_not_mix),     cmocka_unit_test(what_cannot_be_shared_is_refused),
        cmocka_unit_test(scales_must_be_the_same), cmocka_unit_test(threads_share),
        cmocka_unit_test(memory_may_fail),
    };
    return cmocka_run_group_tests_name("prefixes that caches share", tests, NULL, NULL);
}
