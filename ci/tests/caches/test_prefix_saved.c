/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: what cache paged-prefix loads is no prompt's beginning, what it is written over is none any more, and a load
 * that is refused leaves every page that may be found, in the order in which they give way. */
#include "prompts.h"
#include "saved.h"

static uint32_t live(const rig *r)
{
    return rig_usage_of(r, 0).cells_live;
}

/* Nor is what follows it: here, where the pages that it was written to stay for others, and in another instance. */
static void what_is_loaded_is_not_found(void **state)
{
    (void)state;
    static rig a, b;
    opened(&a, 64, 4, 0);
    opened(&b, 64, 4, 0);
    prompt(&a, 0, counting(100, 14), 14, 0);
    assert_int_equal(kvb_cache_save(a.cache, 0, path), 0);
    end(&a, 0);
    account_copy(&b, &a);
    for (int there = 0; there < 2; there++) {
        rig *r = there ? &b : &a;
        assert_int_equal(kvb_cache_load(r->cache, 1, path), 0);
        assert_int_equal(live(r), 16);
        r->tokens = counting(114, 2);
        assert_int_equal(rig_step(r, IDS(1, 1)), 0); /* page 3 is full */
        rig_layer_sees(r, 1, 1, TOKENS(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
        rig_store(r);
        assert_int_equal(kvb_cache_seq_cp(r->cache, 1, 2, 0, KVB_POS_END), 0);
        end(r, 1);
        assert_int_equal(prompt(r, 0, counting(100, 20), 20, 0), there ? 0 : 12);
        assert_int_equal(prompt(r, 3, counting(100, 20), 20, 0), 16); /* its own pages are */
        rig_close(r);
    }
}

/* Three prompts of three pages are cached, of ten: a load takes the free one and two of the oldest. */
static void pages_that_a_load_takes_are_forgotten(void **state)
{
    (void)state;
    static rig r;
    opened(&r, 24, 2, 0);
    prompt(&r, 0, counting(100, 12), 12, 0);
    end(&r, 0);
    prompt(&r, 0, counting(0, 12), 12, 0);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
    end(&r, 0);
    prompt(&r, 0, counting(200, 12), 12, 0);
    end(&r, 0);
    assert_int_equal(kvb_cache_load(r.cache, 1, path), 0);
    assert_int_equal(prompt(&r, 0, counting(100, 13), 13, 0), 4);
    assert_int_equal(rig_step(&r, IDS(1)), 0);
    rig_layer_sees(&r, 1, 0, TOKENS(12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 49));
    rig_store(&r);
    rig_close(&r);
}

/* A whole cache lies where it lay: of a prompt that has been written there since, and is cached, that much is found no
 * more. */
static void pages_that_a_whole_load_overwrites_are_forgotten(void **state)
{
    (void)state;
    static rig r;
    opened(&r, 24, 2, 0);
    prompt(&r, 0, counting(100, 12), 12, 0);
    assert_int_equal(kvb_cache_save(r.cache, KVB_SEQ_ALL, path), 0);
    end(&r, 0);
    for (int32_t first = 200; first < 500;
         first += 100) { /* the last one: in the free page, and two of the first prompt */
        prompt(&r, 0, counting(first, 12), 12, 0);
        end(&r, 0);
    }
    assert_int_equal(kvb_cache_load(r.cache, KVB_SEQ_ALL, path), 0);
    assert_int_equal(live(&r), 12);
    assert_int_equal(prompt(&r, 1, counting(400, 13), 13, 0), 4);
    end(&r, 1);
    assert_int_equal(prompt(&r, 1, counting(300, 13), 13, 0), 12); /* nobody has written there */
    end(&r, 1);
    assert_int_equal(prompt(&r, 1, counting(100, 13), 13, 0), 0);
    assert_int_equal(rig_step(&r, NULL, 1), 0);
    rig_layer_sees(&r, 1, 0, TOKENS(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, r.next - 1));
    rig_store(&r);
    rig_close(&r);
}

/* What it does not overwrite stays, also what it lets go of, as far as the budget allows: of a sequence the last page
 * goes first. */
static void other_pages_stay(void **state)
{
    (void)state;
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

/* Where rows hang together, be it V's in one group of two, all that the pools hold is another's. Groups go on alike. */
static void rows_that_hang_together_are_all_forgotten(void **state)
{
    (void)state;
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
            if (all) { /* and is free: all pages but two are written */
                assert_int_equal(prompt(&r, 1, counting(0, 60), 60, 0), 0);
                assert_int_equal(kvb_cache_clear(r.cache), 0);
                assert_int_equal(kvb_cache_save(r.cache, KVB_SEQ_ALL, path), 0);
                assert_int_equal(kvb_cache_load(r.cache, KVB_SEQ_ALL, path), 0); /* of nothing */
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

/* A sequence that a load has emptied is no prompt of its extra key. */
static void an_extra_key_does_not_stay(void **state)
{
    (void)state;
    static rig r;
    opened(&r, 64, 4, 0);
    prompt(&r, 0, counting(100, 5), 5, 0);
    assert_int_equal(kvb_cache_save(r.cache, KVB_SEQ_ALL, path), 0);
    prompt(&r, 1, counting(0, 9), 9, 7);
    assert_int_equal(kvb_cache_load(r.cache, KVB_SEQ_ALL, path), 0);
    r.tokens = counting(50, 8);
    assert_int_equal(rig_step(&r, IDS(1, 1, 1, 1, 1, 1, 1, 1)), 0);
    rig_store(&r);
    assert_int_equal(prompt(&r, 2, counting(50, 9), 9, 7), 0);
    assert_int_equal(prompt(&r, 3, counting(50, 9), 9, 0), 8);
    rig_close(&r);
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

/* The free page and the oldest one are taken first: the end of the first prompt. */
static void order_check(rig *r)
{
    prompt(r, 1, counting(300, 8), 8, 0);
    assert_int_equal(prompt(r, 0, counting(0, 13), 13, 0), 8);
    end(r, 0);
    end(r, 1);
    assert_int_equal(prompt(r, 0, counting(200, 13), 13, 0), 12);
}

/* For want of a page, when all have been taken; as another kind of file; for want of memory, at each request. */
static void what_is_refused_leaves_every_page(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_loaded_is_not_found),
        cmocka_unit_test(pages_that_a_load_takes_are_forgotten),
        cmocka_unit_test(pages_that_a_whole_load_overwrites_are_forgotten),
        cmocka_unit_test(other_pages_stay),
        cmocka_unit_test(rows_that_hang_together_are_all_forgotten),
        cmocka_unit_test(an_extra_key_does_not_stay),
        cmocka_unit_test(what_is_refused_leaves_every_page),
    };
    return cmocka_run_group_tests_name("prompts beside what is loaded", tests, folder_make, folder_remove);
}
