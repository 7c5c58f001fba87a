/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that caches hold up to 4096 sequences: ids up to the last one and none beyond it, all alive at once in one
 * step, random calls among thousands answered as the naive model does; what a query sees is its own sequence's.
 */
#define NAIVE_SEQS KVB_MAX_SEQS
#define NAIVE_LEN  8
#define NAIVE_STEP KVB_MAX_SEQS
#include "calls.h"

static uint32_t pos[NAIVE_TOKENS];
static naive m;

static void lengths_check(const rig *r)
{
    for (uint32_t s = 0; s <= m.n_ids; s++)
        assert_int_equal(kvb_cache_length(r->cache, s), s < m.n_ids ? naive_len(&m, s) : 0);
    for (uint32_t g = 0; g < m.model->n_groups; g++) {
        kvb_cache_usage usage;
        kvb_cache_usage_of(r->cache, g, &usage);
        assert_int_equal(usage.cells_live, naive_live(&m, g, false));
    }
}

/* Some queries of the step in force. */
static void step_check(rig *r)
{
    static uint64_t want[NAIVE_TOKENS], seen[NAIVE_TOKENS];
    const uint64_t *feed;
    uint32_t n = kvb_cache_feed(r->cache, &feed);
    for (uint32_t layer = 0; layer < RIG_LAYERS && n; layer++) {
        kvb_attend_spec spec;
        assert_int_equal(rig_fetch(r, layer, pos, &spec), 0);
        for (uint32_t q = random_below(7); q < n; q += 1 + n / 30) {
            uint32_t n_want = naive_visible(&m, layer, feed[q], want);
            assert_int_equal(rig_seen(r, &spec, layer, naive_moved(&m, feed[q]) ? NULL : pos, n, q, seen), n_want);
            assert_memory_equal(seen, want, n_want * sizeof *want);
        }
    }
}

static void all_alive(rig *r, const kvb_cache_type *type)
{
    static uint32_t ids[KVB_MAX_SEQS];
    const uint32_t beyond = KVB_MAX_SEQS;
    *r = (rig){.n_groups = 2, .groups = {{.window = 0}, {.window = 2, .sinks = 1}}, .seq_ids = KVB_MAX_SEQS};
    slots_open();
    assert_int_equal(rig_try_open(r, type, 3 * KVB_MAX_SEQS, NAIVE_LEN - 1, KVB_MAX_SEQS, 64), 0);
    m = (naive){.type = type,
                .model = &r->model,
                .capacity = 3 * KVB_MAX_SEQS,
                .seq_capacity = NAIVE_LEN - 1,
                .n_ids = KVB_MAX_SEQS,
                .max_seqs = KVB_MAX_SEQS,
                .page_cells = 1,
                .pos = pos};
    for (uint32_t i = 0; i < KVB_MAX_SEQS; i++) /* in no order */
        ids[i] = (i * 1021 + 7) % KVB_MAX_SEQS;
    assert_int_equal(kvb_cache_begin_step(r->cache, &beyond, 1), -EINVAL);
    assert_string_equal(kvb_cache_why(r->cache), "sequence 4096 is out of range: 0 .. 4095");
    assert_int_equal(kvb_cache_begin_step(r->cache, ids, KVB_MAX_SEQS), 0);
    assert_int_equal(naive_step(&m, ids, KVB_MAX_SEQS), 0);
    lengths_check(r);
}

static void cache_check(const kvb_cache_type *type)
{
    uint32_t steps = 0, copies = 0, many = 0;
    rig r;
    all_alive(&r, type);
    random_state = 1; /* every cache is asked the same */
    random_seqs = KVB_MAX_SEQS;
    step_check(&r);
    for (uint32_t i = 0; i < 120; i++) {
        call c = call_draw(&m);
        while (c.kind == PROPOSE || c.kind == COMMIT)
            c = call_draw(&m);
        if ((c.kind == KEEP || c.kind == CLEAR) && i != 50)
            continue;
        if (i % 8 == 0) { /* where most are alive a copy goes to one that was made to leave */
            call gone = {.kind = REMOVE, .src = c.dst, .p1 = KVB_POS_END};
            assert_int_equal(cache_call(r.cache, &gone), model_call(&m, &gone));
        }
        int error = cache_call(r.cache, &c);
        assert_int_equal(error, model_call(&m, &c));
        assert_int_equal(kvb_cache_can_extend(r.cache, c.ids, 16), naive_admit(&m, c.ids, 16) == 0);
        steps += !error && c.kind == STEP;
        copies += !error && c.kind == COPY;
        many += naive_alive(&m) > 2000;
        lengths_check(&r);
        if (m.valid)
            step_check(&r);
    }
    print_message("# %s: %u steps, %u copies, %u times more than 2000 are alive\n", type->name, steps, copies, many);
    assert_true(steps > 10 && copies > 3 && many > 50);
    assert_int_equal(kvb_cache_seq_keep(r.cache, m.ids[0]), naive_keep(&m, m.ids[0]));
    lengths_check(&r);
    assert_int_equal(kvb_cache_clear(r.cache), 0);
    naive_clear(&m);
    lengths_check(&r);
    rig_close(&r);
}

static void test_all_alive(void **state)
{
    (void)state;
    random_state = 5;
    EACH_CACHE(type, KVB_CACHE_SEQ)
    cache_check(type);
}

/* What a step leaves in the tables by id is cleared again, whether it was made or refused: the same call is answered
 * alike. */
static void test_refused_steps(void **state)
{
    (void)state;
    EACH_CACHE(type, KVB_CACHE_SEQ)
    {
        rig r = {.n_groups = 1, .groups = {{.window = 100}}, .seq_ids = 9};
        assert_int_equal(rig_try_open(&r, type, 64, 4, 2, 4), 0);
        for (int again = 0; again < 3; again++) {
            static const uint32_t out[] = {8, 8, 9}, long_one[] = {8, 8, 8, 8, 8}, three[] = {1, 8, 2},
                                  fits[] = {8, 1, 8};
            assert_int_equal(kvb_cache_begin_step(r.cache, out, 3), -EINVAL);
            assert_int_equal(kvb_cache_begin_step(r.cache, long_one, 5), -ENOSPC);
            assert_int_equal(kvb_cache_begin_step(r.cache, three, 3), -ENOSPC);
            assert_int_equal(kvb_cache_begin_step(r.cache, fits, 3), 0);
            assert_int_equal(kvb_cache_length(r.cache, 8), 2);
            assert_int_equal(kvb_cache_clear(r.cache), 0);
        }
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_alive), cmocka_unit_test(test_refused_steps)};
    return cmocka_run_group_tests_name("thousands of sequences", tests, NULL, NULL);
}
