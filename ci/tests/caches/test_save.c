/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that what is saved and loaded, as a sequence or the whole cache, here or in another instance, goes on bit by
 * bit as if it had never left, in every format; and when it may be called.
 */
#include "caches/pools/rows.h"
#include "saved.h"

/* ---- it goes on as if it had never left -------------------------------------------------------------------------- */

static uint32_t cells_live(const rig *r)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < r->model.n_groups; g++)
        n += rig_usage_of(r, g).cells_live;
    return n;
}

/* All of it into another instance, which held something else. */
static void whole_goes_on(const kvb_cache_type *type, const kvb_pool_type *pool)
{
    static rig a, b;
    begin(&a, type, pool);
    begin(&b, type, pool);
    fill(&a);
    grow(&b, 0, 7);
    assert_int_equal(kvb_cache_save(a.cache, KVB_SEQ_ALL, path), 0);
    assert_int_equal(kvb_cache_load(b.cache, KVB_SEQ_ALL, path), 0);
    account_copy(&b, &a);
    assert_int_equal(cells_live(&a), cells_live(&b));
    for (uint32_t s = 0; s < (has_seqs(type) ? 2 : 1); s++)
        assert_true(going_on(&a, s) == going_on(&b, s));
    rig_close(&a);
    rig_close(&b);
}

/* One sequence as another, in this instance beside the one that it comes of, and in another instance. */
static void sequence_goes_on(const kvb_cache_type *type, const kvb_pool_type *pool)
{
    static rig a, b;
    const uint32_t from = has_seqs(type), as = has_seqs(type) ? 3 : 0;
    begin(&a, type, pool);
    begin(&b, type, pool);
    fill(&a);
    if (pool->format->residual_cells) {
        assert_int_equal(kvb_cache_save(a.cache, from, path), -ENOTSUP);
        assert_non_null(strstr(kvb_cache_why(a.cache), "share"));
    } else {
        assert_int_equal(kvb_cache_save(a.cache, from, path), 0);
        assert_int_equal(kvb_cache_load(b.cache, as, path), 0);
        account_copy(&b, &a);
        const uint64_t one = going_on(&a, from), two = going_on(&b, as);
        assert_true(one == two);
        if (from) { /* from what was saved, a third time: ordinals of new tokens are others, and so are their rows */
            assert_int_equal(kvb_cache_load(a.cache, as, path), 0);
            assert_int_equal(kvb_cache_length(a.cache, as), 68);
        }
    }
    rig_close(&a);
    rig_close(&b);
}

static void every_format_goes_on(void **state)
{
    (void)state;
    uint32_t at = 0, n = 0;
    EACH_CACHE(type, KVB_CACHE_SAVES)
    {
        at = 0;
        for (const kvb_pool_type *pool = pools_next(&at); pool; pool = pools_next(&at), n++) {
            if (type != &kvb_cache_seq && n % 6 && !pool->format->residual_cells) /* pools know no caches */
                continue;
            whole_goes_on(type, pool);
            sequence_goes_on(type, pool);
        }
    }
    assert_true(n > 7 * 40);
}

/* What a sequence still holds is shared again, where cells are shared; in another instance, where those numbers are
 * other tokens', nothing is. */
static void rows_are_shared_again(void **state)
{
    (void)state;
    EACH_CACHE(type, KVB_CACHE_SEQ | KVB_CACHE_SAVES)
    {
        static rig r;
        begin(&r, type, NULL);
        const bool shares = type == &kvb_cache_seq || type == &kvb_cache_window;
        grow(&r, 0, 8);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 6), 0);
        assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
        assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 0, KVB_POS_END), 0);
        const uint32_t left = rig_usage_of(&r, 0).cells_live;
        assert_int_equal(kvb_cache_load(r.cache, 2, path), 0);
        if (shares)
            assert_int_equal(rig_usage_of(&r, 0).cells_live, left + 2); /* 6 of 8 are there */
        assert_int_equal(rig_step(&r, (const uint32_t[]){2, 1}, 2), 0);
        rig_sees(&r, 0, TOKENS(0, 1, 2, 3, 4, 5, 6, 7, 8));
        rig_sees(&r, 1, TOKENS(0, 1, 2, 3, 4, 5, 9));
        rig_close(&r);
        if (!shares)
            continue;
        static float k[8 * 2 * 8], v[8 * 2 * 8];
        static const uint32_t pos[] = {0, 1, 2, 3, 4, 5, 6, 7};
        kvb_attend_spec spec;
        for (size_t i = 0; i < N(k); i++)
            k[i] = v[i] = 7;
        begin(&r, type, NULL);
        assert_int_equal(kvb_cache_begin_step(r.cache, NULL, 8), 0);
        for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
            assert_int_equal(kvb_cache_update_and_fetch(r.cache, layer, pos, k, layer ? v : NULL, 8, &spec), 0);
        assert_int_equal(kvb_cache_load(r.cache, 2, path), 0);
        assert_int_equal(rig_usage_of(&r, 0).cells_live, 16);
        rig_close(&r);
    }
}

/* A row that a window has dropped stays dropped: in cells, and when it is asked for again. */
static void what_was_dropped_stays_dropped(void **state)
{
    (void)state;
    static rig r;
    begin(&r, &kvb_cache_window, NULL);
    grow(&r, 0, 30);
    for (uint32_t i = 0; i < 10; i++)
        grow(&r, 0, 1);
    const kvb_cache_usage before = rig_usage_of(&r, 1);
    assert_true(before.cells_live < 20);
    for (int whole = 0; whole < 2; whole++) {
        const uint32_t seq = whole ? KVB_SEQ_ALL : 0;
        assert_int_equal(kvb_cache_save(r.cache, seq, path), 0);
        assert_int_equal(kvb_cache_clear(r.cache), 0);
        assert_int_equal(kvb_cache_load(r.cache, seq, path), 0);
        assert_true(rig_usage_of(&r, 1).cells_live <= before.cells_live);
        assert_int_equal(rig_usage_of(&r, 0).cells_live, 40);
        assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 30, KVB_POS_END), -ENOTSUP);
    }
    static rig full;
    begin(&full, &kvb_cache_seq, NULL); /* would have to show what is not there */
    assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
    assert_int_equal(kvb_cache_load(full.cache, 0, path), -EINVAL);
    assert_non_null(strstr(kvb_cache_why(full.cache), "cache window"));
    rig_close(&full);
    rig_close(&r);
}

/* Each request for memory of a load, refused once: there is still room for it. */
static void memory_that_is_refused_takes_no_room(void **state)
{
    (void)state;
    EACH_CACHE(type, KVB_CACHE_SAVES)
    {
        static rig r;
        uint32_t refused = 0;
        int error = -ENOMEM;
        begin_as(&r, type, NULL, 80, 40, 2);
        grow(&r, 0, 40);
        assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
        if (!has_seqs(type))
            assert_int_equal(kvb_cache_clear(r.cache), 0);
        for (uint64_t nth = 1; error; nth++, refused += error != 0) {
            r.allocator.fail_request = r.allocator.requests + nth;
            error = kvb_cache_load(r.cache, has_seqs(type), path);
            assert_true(error == 0 || error == -ENOMEM);
        }
        r.allocator.fail_request = 0;
        assert_true(refused > 3);
        rig_close(&r);
    }
}

/* ---- when it may be called --------------------------------------------------------------------------------------- */

static void rows_must_be_there(void **state)
{
    (void)state;
    static rig r;
    const uint64_t *feed;
    kvb_attend_spec spec;
    begin(&r, &kvb_cache_seq, NULL);
    assert_int_equal(rig_step(&r, (const uint32_t[]){0, 0}, 2), 0);
    for (uint32_t layer = RIG_LAYERS; layer-- > 0;) {
        assert_int_equal(kvb_cache_save(r.cache, 0, path), -EINVAL);
        assert_non_null(strstr(kvb_cache_why(r.cache), "rows of layer 0"));
        assert_int_equal(rig_fetch(&r, layer, r.pos, &spec), 0);
    }
    const kvb_cache_usage before = rig_usage_of(&r, 0);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), 0);
    const kvb_cache_usage after = rig_usage_of(&r, 0);
    rig_assert_same(&before, &after);
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 2); /* the plan is still in force */
    assert_int_equal(kvb_cache_load(r.cache, 1, path), 0);
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 0);
    assert_int_equal(rig_step(&r, NULL, 1), 0); /* the ordinals go on above those loaded */
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 1);
    assert_int_equal(feed[0], 2);
    rig_close(&r);
    begin(&r, &kvb_cache_tree, NULL);
    assert_int_equal(rig_propose(&r, (const int32_t[]){-1, 0}, 2), 0);
    rig_store(&r);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), -EINVAL);
    refused(&r, 0, path, -EINVAL, "pending");
    assert_int_equal(kvb_cache_clear(r.cache), 0);
    assert_int_equal(kvb_cache_save(r.cache, 1, path), -ENOTSUP);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), 0); /* of nothing */
    assert_int_equal(kvb_cache_load(r.cache, 0, path), 0);
    assert_int_equal(kvb_cache_length(r.cache, 0), 0);
    rig_close(&r);
}

static void parts_that_cannot_say_so(void **state)
{
    (void)state;
    static rig r;
    kvb_pool_kind mute = *kvb_pool_kind_of(kvb_builtin_pools[0]);
    mute.type.raw_bytes = NULL;
    mute.type.read_raw = NULL;
    mute.type.write_raw = NULL;
    begin(&r, &kvb_cache_seq, &mute.type);
    grow(&r, 0, 3);
    assert_int_equal(kvb_cache_save(r.cache, KVB_SEQ_ALL, path), -ENOTSUP);
    assert_int_equal(kvb_cache_load(r.cache, KVB_SEQ_ALL, path), -ENOTSUP);
    assert_non_null(strstr(kvb_cache_why(r.cache), "cannot be saved"));
    rig_close(&r);
    kvb_cache_type plain = kvb_cache_contiguous;
    plain.flags &= ~(uint32_t)KVB_CACHE_SAVES;
    begin(&r, &plain, NULL);
    assert_int_equal(kvb_cache_save(r.cache, 0, path), -ENOTSUP);
    assert_int_equal(kvb_cache_load(r.cache, 0, path), -ENOTSUP);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_goes_on),
        cmocka_unit_test(rows_are_shared_again),
        cmocka_unit_test(what_was_dropped_stays_dropped),
        cmocka_unit_test(rows_must_be_there),
        cmocka_unit_test(memory_that_is_refused_takes_no_room),
        cmocka_unit_test(parts_that_cannot_say_so),
    };
    return cmocka_run_group_tests_name("save and load", tests, folder_make, folder_remove);
}
