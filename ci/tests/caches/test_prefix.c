/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: cache paged-prefix finds the pages that a prompt begins with by what they hold, keeps those that nobody holds
 * until room or budget wants them, the oldest first, and shares none for a prompt that is another one. */
#include "prompts.h"

#include "caches/stores/prefix.h"

/* Whole pages, and never all of the prompt; those of other tokens, or another extra key, are another prompt's. */
static void the_longest_beginning_is_found(void **state)
{
    (void)state;
    rig r;
    opened(&r, 64, 4, 0);
    assert_int_equal(prompt(&r, 0, counting(100, 14), 14, 0), 0);
    assert_int_equal(prompt(&r, 1, counting(100, 14), 14, 0), 12);
    rig_layer_sees(&r, 1, 1, TOKENS(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 26, 27));
    assert_int_equal(prompt(&r, 2, counting(100, 12), 12, 0), 8); /* a query is left */
    assert_int_equal(prompt(&r, 3, counting(100, 14), 14, 7), 0);
    end(&r, 0);
    int32_t other[14];
    memcpy(other, counting(100, 14), sizeof other);
    other[6] = 1;
    assert_int_equal(prompt(&r, 0, other, 14, 0), 4);
    end(&r, 0);
    assert_int_equal(prompt(&r, 0, counting(100, 14), 14, 7), 12);
    rig_close(&r);
}

/* What is said after the prompt is known, too, if the cache is told; a page with a token that is not known is never
 * found. */
static void later_tokens_are_known(void **state)
{
    (void)state;
    rig r;
    opened(&r, 64, 3, 0);
    prompt(&r, 0, counting(0, 6), 6, 0);
    r.tokens = counting(6, 1);
    for (uint32_t i = 0; i < 2; i++, r.tokens++) {
        r.tokens = counting(6 + (int32_t)i, 1);
        assert_int_equal(rig_step(&r, NULL, 1), 0);
        rig_store(&r);
    }
    assert_int_equal(prompt(&r, 1, counting(0, 10), 10, 0), 8);
    r.tokens = NULL;
    assert_int_equal(rig_step(&r, IDS(1)), 0);
    rig_store(&r);
    r.tokens = counting(11, 1);
    assert_int_equal(rig_step(&r, IDS(1)), 0); /* page 2 is full, one token of it unknown */
    rig_store(&r);
    assert_int_equal(prompt(&r, 2, counting(0, 14), 14, 0), 8);
    rig_close(&r);
}

/* A sequence that goes back into a page that others may find writes it anew: the page is found no more, the one before
 * is. A hole or a copied piece of another prompt ends what is known. */
static void what_is_written_again_is_not_found(void **state)
{
    (void)state;
    rig r;
    opened(&r, 64, 4, 0);
    prompt(&r, 0, counting(0, 9), 9, 0);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 6, KVB_POS_END), 0);
    r.tokens = counting(50, 3);
    assert_int_equal(rig_step(&r, NULL, 3), 0); /* 0 .. 5, 50 .. 52 */
    rig_store(&r);
    assert_int_equal(prompt(&r, 1, counting(0, 9), 9, 0), 4);
    assert_int_equal(prompt(&r, 2, (int32_t[]){0, 1, 2, 3, 4, 5, 50, 51, 9}, 9, 0), 8);
    rig_layer_sees(&r, 1, 0, TOKENS(0, 1, 2, 3, 4, 5, 9, 10, 29));
    assert_int_equal(kvb_cache_seq_rm(r.cache, 2, 1, 2), 0);
    r.tokens = counting(60, 3);
    assert_int_equal(rig_step(&r, IDS(2, 2, 2)), 0); /* page 2 is full behind a hole */
    rig_store(&r);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 1, 3, 4, 8), 0);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 3, 0, 4), 0); /* the pages of two prompts, which here are one's */
    assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 0, KVB_POS_END), 0);
    assert_int_equal(prompt(&r, 1, (int32_t[]){0, 1, 2, 3, 4, 5, 50, 51, 9, 60, 61, 62, 3}, 13, 0), 8);
    rig_close(&r);
}

/* Where a page of the sequence is gone whole, a later one that becomes full has no key. */
static void behind_a_hole_nothing_is_known(void **state)
{
    (void)state;
    rig r;
    opened(&r, 64, 2, 0);
    prompt(&r, 0, counting(0, 10), 10, 0);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 0, 4), 0);
    r.tokens = counting(10, 2);
    assert_int_equal(rig_step(&r, NULL, 2), 0);
    rig_store(&r);
    assert_int_equal(prompt(&r, 1, counting(0, 13), 13, 0), 8);
    rig_close(&r);
}

/* A row that was copied from another prompt stands behind that one: the page that it is in is not the beginning of this
 * one. */
static void a_piece_of_another_prompt_is_not_found(void **state)
{
    (void)state;
    rig r;
    opened(&r, 64, 3, 0);
    prompt(&r, 0, counting(0, 4), 4, 0);
    prompt(&r, 1, counting(0, 8), 8, 1);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 1, 0, 4, 8), 0);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 5, KVB_POS_END), 0);
    r.tokens = counting(5, 3);
    assert_int_equal(rig_step(&r, NULL, 3),
                     0); /* the page is the sequence's own now, and full; its first row is of the other key */
    rig_store(&r);
    assert_int_equal(prompt(&r, 2, counting(0, 12), 12, 0), 4);
    rig_close(&r);
}

/* 6 pages and 2 for each of 2 sequences: 10. Cached pages give way to what is written, the one let go of longest ago
 * first, and of a sequence its last one. */
static void the_oldest_give_way(void **state)
{
    (void)state;
    rig r;
    opened(&r, 24, 2, 0);
    prompt(&r, 0, counting(0, 12), 12, 0);
    end(&r, 0);
    prompt(&r, 0, counting(100, 12), 12, 0);
    end(&r, 0);
    prompt(&r, 0, counting(200, 12), 12, 0);
    end(&r, 0);                                                  /* 9 of 10 are cached */
    assert_int_equal(prompt(&r, 0, counting(0, 13), 13, 0), 12); /* used again; takes the last free one */
    assert_true(kvb_cache_can_extend(r.cache, NULL, 24 + 3));    /* 6 pages are cached, which is room */
    assert_false(kvb_cache_can_extend(r.cache, NULL, 24 + 4));
    assert_int_equal(prompt(&r, 1, counting(300, 4), 4, 0), 0); /* gives way: the end of prompt 100 */
    end(&r, 1);
    assert_int_equal(prompt(&r, 1, counting(100, 13), 13, 0), 8);
    end(&r, 1);
    assert_int_equal(prompt(&r, 1, counting(200, 13), 13, 0), 4); /* its end gave way to that of 100: two pages */
    rig_close(&r);
}

/* No more is kept than the budget has pages for; one smaller than a page keeps nothing. */
static void the_budget_is_kept(void **state)
{
    (void)state;
    rig r;
    opened(&r, 64, 2, 2);
    prompt(&r, 0, counting(0, 13), 13, 0);
    end(&r, 0);
    assert_int_equal(prompt(&r, 0, counting(0, 13), 13, 0), 8);
    prompt(&r, 1, counting(100, 4), 4, 0);
    end(&r, 0);
    end(&r, 1); /* the first page of the one, and that of the other */
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

/* All keys have one hash: tokens tell prompts apart. */
static void collisions_share_nothing(void **state)
{
    (void)state;
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
static void few_bits_of_hashes_collide(void **state)
{
    (void)state;
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

/* What is refused changes nothing: a sequence that is alive, one too many, no memory at each request; and other caches
 * cannot. */
static void refusals(void **state)
{
    (void)state;
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
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 5); /* the plan is in force */
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
    assert_int_equal(rig_usage(&r).cells_live, before.cells_live - 8); /* pages that sequence 0 names, too */
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_beginning_is_found),
        cmocka_unit_test(later_tokens_are_known),
        cmocka_unit_test(what_is_written_again_is_not_found),
        cmocka_unit_test(behind_a_hole_nothing_is_known),
        cmocka_unit_test(a_piece_of_another_prompt_is_not_found),
        cmocka_unit_test(the_oldest_give_way),
        cmocka_unit_test(the_budget_is_kept),
        cmocka_unit_test(collisions_share_nothing),
        cmocka_unit_test(few_bits_of_hashes_collide),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("prompts that begin as others did", tests, NULL, NULL);
}
