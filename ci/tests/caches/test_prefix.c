/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: cache paged-prefix, and frozen prefixes. */
#include <pthread.h>

#include "ci/tests/tests.h"
#include "ci/tests/caches/pools.h"
#include "ci/tests/caches/rig.h"
#include "ci/tests/caches/saved.h"
#include "caches/stores/prefix.h"

/*
 * Shows what random histories of calls (ci/fuzz) do not: a piece of another prompt is not found, the oldest pages are
 * evicted first, the budget is kept, hashes may collide. A load leaves the pages that it does not overwrite, forgets
 * all pages of formats with residual cells, and if refused leaves every page, in order.
 */

/* Tokens first, first + 1, … */
static const int32_t *counting(int32_t first, uint32_t n)
{
    static int32_t tokens[200];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = first + (int32_t)i;
    return tokens;
}

/* Offers the prompt and feeds the tokens that were not found. Returns the number of those found. */
static uint32_t prompt(rig *r, uint32_t seq, const int32_t *tokens, uint32_t n, uint64_t extra_key)
{
    uint32_t found = UINT32_MAX, ids[64];
    const uint64_t *ordinals, next = r->next;
    assert_int_equal(kvb_cache_seq_match(r->cache, seq, tokens, n, extra_key, &found, &ordinals), 0);
    assert_int_equal(kvb_cache_length(r->cache, seq), found);
    for (uint32_t i = 0; i < found; i++)
        assert_true(ordinals[i] < next && r->pos[ordinals[i]] == i);
    r->next += found; /* found tokens get ordinals, too */
    for (uint32_t i = 0; i < n; i++)
        ids[i] = seq;
    r->tokens = tokens + found;
    assert_int_equal(rig_step(r, ids, n - found), 0);
    rig_store(r);
    r->tokens = NULL;
    return found;
}

static void end(rig *r, uint32_t seq)
{
    assert_int_equal(kvb_cache_seq_rm(r->cache, seq, 0, KVB_POS_END), 0);
}

/* Opens a cache with pages of 4 cells and a budget for so many pages, whose bytes count in both groups. */
static void opened(rig *r, uint32_t capacity, uint32_t max_seqs, uint32_t pages)
{
    *r = (rig){.page_cells = 4, .n_groups = 2, .groups = {{.window = 3}, {.latent = true}}};
    rig_model_make(r);
    const kvb_pool_type *pool = kvb_builtin_pools[0];
    double bytes = 0;
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        const kvb_group *g = kvb_model_group(&r->model, layer);
        bytes +=
            4 * g->kv_heads * (pool->row_bytes(pool, g->k_dim) + (g->latent ? 0 : pool->row_bytes(pool, g->v_dim)));
    }
    r->prefix_bytes = pages * (uint64_t)bytes;
    assert_int_equal(rig_try_open(r, &kvb_cache_paged_prefix, capacity, 64, max_seqs, 4), 0);
}

/* A page with a row that was copied from another prompt is not found as part of this one. */
TEST(a_piece_of_another_prompt_is_not_found)
{
    rig r;
    opened(&r, 64, 3, 0);
    prompt(&r, 0, counting(0, 4), 4, 0);
    prompt(&r, 1, counting(0, 8), 8, 1);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 1, 0, 4, 8), 0);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 5, KVB_POS_END), 0);
    r.tokens = counting(5, 3);
    assert_int_equal(rig_step(&r, NULL, 3),
                     0); /* the page is now the sequence's own, and full; its first row has the other key */
    rig_store(&r);
    assert_int_equal(prompt(&r, 2, counting(0, 12), 12, 0), 4);
    rig_close(&r);
}

/* There are 10 pages: 6, and 2 for each of 2 sequences. Writes evict cached pages: the page released longest ago first,
 * and the last page of a sequence before its others. */
TEST(the_oldest_give_way)
{
    rig r;
    opened(&r, 24, 2, 0);
    prompt(&r, 0, counting(0, 12), 12, 0);
    end(&r, 0);
    prompt(&r, 0, counting(100, 12), 12, 0);
    end(&r, 0);
    prompt(&r, 0, counting(200, 12), 12, 0);
    end(&r, 0);                                                  /* 9 of 10 are cached */
    assert_int_equal(prompt(&r, 0, counting(0, 13), 13, 0), 12); /* used again; takes the last free one */
    assert_true(kvb_cache_can_extend(r.cache, NULL, 24 + 3));    /* the 6 cached pages count as room */
    assert_false(kvb_cache_can_extend(r.cache, NULL, 24 + 4));
    assert_int_equal(prompt(&r, 1, counting(300, 4), 4, 0), 0); /* evicts the end of prompt 100 */
    end(&r, 1);
    assert_int_equal(prompt(&r, 1, counting(100, 13), 13, 0), 8);
    end(&r, 1);
    assert_int_equal(prompt(&r, 1, counting(200, 13), 13, 0), 4); /* prompt 100 evicted its last two pages */
    rig_close(&r);
}

/* No more pages are cached than the budget allows; a budget smaller than a page caches none. */
TEST(the_budget_is_kept)
{
    rig r;
    opened(&r, 64, 2, 2);
    prompt(&r, 0, counting(0, 13), 13, 0);
    end(&r, 0);
    assert_int_equal(prompt(&r, 0, counting(0, 13), 13, 0), 8);
    prompt(&r, 1, counting(100, 4), 4, 0);
    end(&r, 0);
    end(&r, 1); /* the first page of each prompt stays */
    assert_int_equal(prompt(&r, 0, counting(0, 13), 13, 0), 4);
    assert_int_equal(prompt(&r, 1, counting(100, 5), 5, 0), 4);
    rig_close(&r);
    *(&r) = (rig){.page_cells = 4, .prefix_bytes = 1};
    assert_int_equal(rig_try_open(&r, &kvb_cache_paged_prefix, 64, 64, 2, 4), 0);
    prompt(&r, 0, counting(0, 13), 13, 0);
    assert_int_equal(prompt(&r, 1, counting(0, 13), 13, 0), 12);
    end(&r, 0);
    end(&r, 1);
    assert_int_equal(prompt(&r, 0, counting(0, 13), 13, 0), 0);
    rig_close(&r);
}

static uint64_t hash_all_alike(uint64_t before, const int32_t *tokens, uint32_t n)
{
    (void)before, (void)tokens, (void)n;
    return 0;
}

/* All keys have one hash; the cache compares tokens to tell prompts apart. */
TEST(collisions_share_nothing)
{
    const kvb_prefix_rules rules = kvb_prefix_by;
    rig r;
    kvb_prefix_by.hash = hash_all_alike;
    opened(&r, 64, 4, 0);
    prompt(&r, 0, counting(0, 13), 13, 0);
    assert_int_equal(prompt(&r, 1, counting(1, 13), 13, 0), 0);
    assert_int_equal(prompt(&r, 2, counting(0, 13), 13, 1), 0);
    end(&r, 0);
    end(&r, 1);
    assert_int_equal(prompt(&r, 0, counting(1, 13), 13, 0), 12);
    assert_int_equal(prompt(&r, 1, counting(0, 9), 9, 0), 8);
    rig_close(&r);
    kvb_prefix_by = rules;
}

static uint32_t compared;

static bool same_counted(const int32_t *a, const int32_t *b, uint32_t n)
{
    compared++;
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* With a hash of one bit half of all prompts collide, and the cache still keeps them apart. With the whole hash none
 * collides. */
TEST(few_bits_of_hashes_collide)
{
    const kvb_prefix_rules rules = kvb_prefix_by;
    uint32_t by_bits[2];
    kvb_prefix_by.same = same_counted;
    for (int one = 0; one < 2; one++) {
        rig r = {.page_cells = 4, .hash_bits = (uint32_t)one};
        assert_int_equal(rig_try_open(&r, &kvb_cache_paged_prefix, 64, 64, 4, 4), 0);
        compared = 0;
        for (uint32_t seq = 0; seq < 4; seq++)
            assert_int_equal(prompt(&r, seq, counting((int)seq, 9), 9, 0), 0);
        by_bits[one] = compared;
        rig_close(&r);
    }
    assert_true(by_bits[1] > by_bits[0]);
    kvb_prefix_by = rules;
}

/* Refused, and nothing changes: a live sequence, one too many, each request for memory that fails, and other caches. */
TEST(refusals)
{
    rig r;
    uint32_t found = 77;
    const uint64_t *ordinals;
    opened(&r, 64, 2, 0);
    prompt(&r, 0, counting(0, 13), 13, 0);
    assert_int_equal(kvb_cache_seq_match(r.cache, 0, counting(0, 5), 5, 0, &found, &ordinals), -EINVAL);
    assert_int_equal(kvb_cache_seq_match(r.cache, 64, counting(0, 5), 5, 0, &found, &ordinals), -EINVAL);
    assert_int_equal(kvb_cache_seq_match(r.cache, 1, counting(0, 5), 0, 0, &found, &ordinals), -EINVAL);
    assert_int_equal(kvb_cache_seq_match(r.cache, 1, NULL, 5, 0, &found, &ordinals), -EINVAL);
    prompt(&r, 1, counting(100, 5), 5, 0);
    assert_int_equal(kvb_cache_seq_match(r.cache, 2, counting(0, 9), 9, 0, &found, &ordinals), -ENOSPC);
    const kvb_cache_usage before = rig_usage(&r);
    const uint64_t *feed;
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 5); /* the plan is still in force */
    assert_int_equal(found, 77);
    end(&r, 1);
    r.allocator.fail_request = r.allocator.requests + 1;
    assert_int_equal(kvb_cache_seq_match(r.cache, 1, counting(0, 200), 200, 0, &found, &ordinals), -ENOMEM);
    assert_string_equal(kvb_cache_why(r.cache), "no memory for a prompt of 200 tokens");
    for (uint64_t fail = 1; fail < 9; fail++) {
        r.allocator.fail_request = r.allocator.requests + fail;
        int error = kvb_cache_seq_match(r.cache, 1, counting(0, 9), 9, 0, &found, &ordinals);
        r.allocator.fail_request = 0;
        if (!error)
            break;
        assert_true(error == -ENOMEM && kvb_cache_length(r.cache, 1) == 0 && fail < 8);
    }
    assert_int_equal(found, 8);
    assert_int_equal(rig_usage(&r).cells_live, before.cells_live - 8); /* these pages are sequence 0's, too */
    rig_close(&r);
}

/* ---- cached pages after a load ----------------------------------------------------------------------------------- */

static uint32_t live(const rig *r)
{
    return rig_usage_of(r, 0).cells_live;
}

/* Pages that a load does not overwrite stay cached within the budget, also those of sequences that the load ends. The
 * last page of a sequence is evicted first. */
TEST(other_pages_stay)
{
    for (uint32_t pages = 2; pages < 4; pages++) {
        static rig r;
        opened(&r, 64, 2, pages);
        prompt(&r, 0, counting(0, 12), 12, 0);
        end(&r, 0);
        prompt(&r, 0, counting(100, 12), 12, 0);
        assert_int_equal(kvb_cache_save(r.cache, KVB_SEQ_ALL, path), 0);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(kvb_cache_load(r.cache, KVB_SEQ_ALL, path), 0);
            assert_int_equal(live(&r), 12);
            assert_int_equal(prompt(&r, 1, counting(0, 13), 13, 0), 4 * pages);
        }
        rig_close(&r);
    }
}

/* With residual cells, even of V's rows in one group of two, a load forgets all cached pages, in both groups. */
TEST(rows_that_hang_together_are_all_forgotten)
{
    uint32_t at = 0, n = 0;
    for (const kvb_pool_type *pool = pools_next(&at); pool; pool = pools_next(&at))
        for (int all = 0; all < 2 && pool->format->residual_cells; all++, n++) {
            static rig r;
            r = (rig){.page_cells = 4, .n_groups = 2, .groups = {{.latent = true}, {.latent = false}}};
            r.pool = all ? pool : kvb_builtin_pools[1];
            r.v_pool = pool;
            assert_int_equal(rig_try_open(&r, &kvb_cache_paged_prefix, 64, 64, 2, 4), 0);
            prompt(&r, 0, counting(0, 12), 12, 0);
            end(&r, 0);
            prompt(&r, 0, counting(100, 12), 12, 0);
            assert_int_equal(kvb_cache_save(r.cache, KVB_SEQ_ALL, path), 0);
            assert_int_equal(kvb_cache_load(r.cache, KVB_SEQ_ALL, path), 0);
            if (all) { /* all forgotten pages are free: all but two are written */
                assert_int_equal(prompt(&r, 1, counting(0, 60), 60, 0), 0);
                assert_int_equal(kvb_cache_clear(r.cache), 0);
                assert_int_equal(kvb_cache_save(r.cache, KVB_SEQ_ALL, path), 0);
                assert_int_equal(kvb_cache_load(r.cache, KVB_SEQ_ALL, path), 0); /* an empty cache */
            }
            end(&r, 0);
            assert_int_equal(prompt(&r, 0, counting(0, 13), 13, 0), 0);
            assert_int_equal(prompt(&r, 1, counting(0, 13), 13, 0), 12);
            for (uint32_t g = 0; g < 2; g++)
                assert_int_equal(rig_usage_of(&r, g).cells_live, 20);
            rig_close(&r);
        }
    assert_true(n > 0);
}

/* Three prompts are cached, one page of ten is free. */
static void ten_pages(rig *r)
{
    opened(r, 24, 2, 0);
    for (int32_t first = 0; first < 300; first += 100) {
        prompt(r, 0, counting(first, 12), 12, 0);
        end(r, 0);
    }
}

/* The next writes must take the free page and the oldest cached one, the end of the first prompt. */
static void order_check(rig *r)
{
    prompt(r, 1, counting(300, 8), 8, 0);
    assert_int_equal(prompt(r, 0, counting(0, 13), 13, 0), 8);
    end(r, 0);
    end(r, 1);
    assert_int_equal(prompt(r, 0, counting(200, 13), 13, 0), 12);
}

/* A load is refused for want of a page, after it took all others; for the kind of file; at each request for memory. */
TEST(what_is_refused_leaves_every_page)
{
    static rig r, from;
    uint64_t nth = 0;
    opened(&from, 64, 2, 0);
    prompt(&from, 0, counting(0, 44), 44, 0);
    assert_int_equal(kvb_cache_save(from.cache, 0, path), 0);
    ten_pages(&r);
    refused(&r, 1, path, -ENOSPC, "no page is free");
    refused(&r, KVB_SEQ_ALL, path, -EINVAL, "");
    order_check(&r);
    rig_close(&r);
    assert_int_equal(kvb_cache_seq_rm(from.cache, 0, 12, KVB_POS_END), 0);
    assert_int_equal(kvb_cache_save(from.cache, 0, path), 0);
    for (int error = -ENOMEM; error; rig_close(&r)) {
        ten_pages(&r);
        r.allocator.fail_request = r.allocator.requests + ++nth;
        error = kvb_cache_load(r.cache, 1, path);
        assert_true(error == 0 || error == -ENOMEM);
        r.allocator.fail_request = 0;
        if (error)
            order_check(&r);
    }
    assert_true(nth > 6);
    rig_close(&from);
}

/*
 * Shows: a frozen prefix outlives the cache that made it, is counted once however many caches read it, is never
 * written, serves caches of other threads, and is freed with the last cache that holds it. A cache that cannot share it
 * is refused and does not change. No failed request for memory loses anything.
 */

enum { SHARED = 70, CAPACITY = 200, SEQ_CAPACITY = 150, SEQS = 4 };

/* Opens a cache and gives its sequence 0 n tokens. */
static void filled_open(rig *r, uint32_t n)
{
    rig_open(r, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    assert_int_equal(rig_step(r, NULL, n), 0);
    rig_store(r);
}

/* Puts a sequence over the prefix, whose tokens count as admitted. */
static void join(rig *r, uint32_t seq, kvb_frozen *frozen)
{
    assert_int_equal(kvb_cache_seq_over(r->cache, seq, frozen), 0);
    for (uint32_t i = 0; i < kvb_frozen_length(frozen); i++)
        r->pos[r->next++] = i;
}

/* Makes a step of one token. It must see `shared` tokens of the prefix, with the rows of ordinals 0, 1, …, and the
 * sequence's own tokens, from ordinal `own` on. */
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

TEST(the_maker_ends_first)
{
    rig maker, first, second;
    kvb_allocator shared = {0};
    kvb_frozen *frozen;
    filled_open(&maker, SHARED);
    assert_int_equal(kvb_cache_freeze(maker.cache, 0, SHARED, &shared, &frozen), 0);
    assert_int_equal(rig_usage(&maker).cells_live, SHARED); /* the maker now reads the prefix's rows */
    const size_t bytes = shared.current_bytes;
    assert_true(bytes > SHARED * RIG_LAYERS * (RIG_K_DIM + RIG_V_DIM) * sizeof(float));
    sees(&maker, 0, SHARED, SHARED);
    rig_open(&first, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    rig_open(&second, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    join(&first, 0, frozen);
    join(&second, 2, frozen);
    rig_close(&maker);
    assert_int_equal(shared.current_bytes, bytes); /* counted once */
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

/* A sequence is cut back into the prefix: its next tokens do not overwrite the prefix's rows. */
TEST(what_is_frozen_stays)
{
    rig maker, strange;
    kvb_frozen *frozen;
    filled_open(&maker, SHARED);
    assert_int_equal(kvb_cache_freeze(maker.cache, 0, SHARED, NULL, &frozen), 0);
    rig_open(&strange, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    join(&strange, 0, frozen);
    assert_int_equal(kvb_cache_seq_rm(maker.cache, 0, SHARED - 9, KVB_POS_END), 0);
    for (uint32_t i = 0; i < 9; i++)
        sees(&maker, 0, SHARED - 9, SHARED);
    sees(&strange, 0, SHARED, SHARED);
    kvb_frozen_release(frozen);
    assert_int_equal(kvb_cache_clear(strange.cache), 0); /* first: it uses the allocator of the maker */
    rig_close(&strange);
    rig_close(&maker);
}

/* A refused call must give a reason and change nothing. */
static void front_refused(rig *r, int error, int got)
{
    assert_int_equal(got, error);
    assert_true(kvb_cache_why(r->cache)[0] != 0);
    assert_int_equal(rig_usage(r).cells_live, SHARED);
    assert_int_equal(kvb_cache_length(r->cache, 1), 0);
}

/* A sequence over one prefix cannot receive tokens of another. */
TEST(prefixes_do_not_mix)
{
    rig r, makers[2];
    kvb_frozen *frozen[2];
    rig_open(&r, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8);
    for (uint32_t i = 0; i < 2; i++) {
        filled_open(&makers[i], i ? 10 : SHARED);
        assert_int_equal(kvb_cache_freeze(makers[i].cache, 0, i ? 10 : SHARED, NULL, &frozen[i]), 0);
        join(&r, 1 + i, frozen[i]);
    }
    rig_refused(&r, kvb_cache_seq_cp(r.cache, 1, 2, 10, KVB_POS_END), -ENOTSUP, "one front");
    assert_int_equal(kvb_cache_length(r.cache, 2), 10);
    assert_int_equal(kvb_cache_clear(r.cache), 0);
    rig_close(&r);
    for (uint32_t i = 0; i < 2; i++) {
        kvb_frozen_release(frozen[i]);
        rig_close(&makers[i]);
    }
}

TEST(what_cannot_be_shared_is_refused)
{
    rig r, small, strange = {.n_groups = 2, .groups = {{.window = 0}, {.window = 10000}}}, seq;
    kvb_frozen *frozen, *none = NULL;
    uint32_t at = 0, residual = 0;
    filled_open(&r, SHARED);
    front_refused(&r, -EINVAL, kvb_cache_freeze(r.cache, 0, SHARED + 1, NULL, &none));
    front_refused(&r, -EINVAL, kvb_cache_freeze(r.cache, 0, 0, NULL, &none));
    front_refused(&r, -EINVAL, kvb_cache_freeze(r.cache, 1, 1, NULL, &none));
    front_refused(&r, -EINVAL, kvb_cache_freeze(r.cache, KVB_SEQ_IDS, 1, NULL, &none));
    assert_int_equal(kvb_cache_freeze(r.cache, 0, SHARED - 8, NULL, &frozen), 0);
    front_refused(&r, -ENOTSUP, kvb_cache_freeze(r.cache, 0, SHARED, NULL, &none));
    front_refused(&r, -EINVAL, kvb_cache_seq_over(r.cache, 0, frozen));
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
    for (; (strange.pool = pools_next(&at));) { /* other formats, also those with residual cells */
        const bool hangs = strange.pool->format->residual_cells;
        assert_int_equal(rig_try_open(&strange, &kvb_cache_shared_prefix, CAPACITY, SEQ_CAPACITY, SEQS, 8),
                         hangs ? -ENOTSUP : 0);
        residual += hangs;
        if (!hangs)
            assert_int_equal(kvb_cache_seq_over(strange.cache, 0, frozen), -EINVAL);
        rig_close(&strange);
    }
    assert_true(residual > 0 && none == NULL);
    kvb_frozen_release(frozen);
    rig_close(&r);
}

/* Caches with other head scales cannot share a prefix. */
TEST(scales_must_be_the_same)
{
    const float one[RIG_KV_HEADS] = {1, 2}, two[RIG_KV_HEADS] = {1, 3}, *scales[2][RIG_LAYERS];
    const kvb_pool_type *e4m3 = NULL;
    kvb_allocator a = {0};
    kvb_cache *cache[2];
    kvb_frozen *frozen;
    char why[200];
    rig r = {.n_groups = 1};
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

/* Opens a cache of its own and reads the prefix, again and again. */
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

TEST(threads_share)
{
    rig maker;
    kvb_allocator shared = {0};
    kvb_frozen *frozen;
    pthread_t threads[THREADS];
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

TEST(memory_may_fail)
{
    bool noticed = true;
    uint64_t fail = 0;
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
