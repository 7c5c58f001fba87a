/* SPDX-License-Identifier: Apache-2.0 */
/* Shows what is a group's own: its limits, for every cache that sees by them and for those that drop by them; latent
 * rows; room of its own; a mask of its own. */
#include "rig.h"

/* ---- limits ------------------------------------------------------------------------------------------------ */

static const kvb_group limits[RIG_GROUPS] = {{.window = 6}, {.window = 5, .sinks = 2}, {.chunk = 8}};

/* What the query of a lone sequence at that position sees: ordinals are positions. */
static size_t seen_by(const kvb_group *g, uint32_t pos, uint64_t *want)
{
    size_t n = 0;
    for (uint32_t j = 0; j <= pos; j++)
        if (j < g->sinks || (g->window ? pos - j < g->window : j / g->chunk == pos / g->chunk))
            want[n++] = j;
    return n;
}

/* By tokens; paged does where a page is one cell. */
static bool drops_rows(const kvb_cache_type *type)
{
    return type == &kvb_cache_window || type == &kvb_cache_paged;
}

/* A sequence of many times the window: each query sees what it may, over every cache; who drops rows holds no more than
 * the window, the sinks and a step, and its memory does not grow. */
static void test_long_sequence(void **state)
{
    enum { LENGTH = 120, STEP = 3, ROLLBACK = 2 };
    (void)state;
    EACH_CACHE(type, 0)
    {
        bool drops = drops_rows(type);
        rig r = {.n_groups = RIG_GROUPS, .step = STEP, .rollback = ROLLBACK, .page_cells = 1};
        size_t reserved[RIG_GROUPS] = {0};
        memcpy(r.groups, limits, sizeof limits);
        assert_int_equal(rig_try_open(&r, type, drops ? 16 : LENGTH, LENGTH, 1, 4), 0);
        while (r.next < LENGTH) {
            uint32_t n = r.next % 2 ? 1 : STEP < LENGTH - r.next ? STEP : (uint32_t)(LENGTH - r.next);
            assert_int_equal(rig_step(&r, NULL, n), 0);
            for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
                for (uint32_t i = 0; i < n; i++) {
                    uint64_t want[LENGTH];
                    size_t sees = seen_by(&limits[layer], (uint32_t)r.next - n + i, want);
                    rig_layer_sees(&r, layer, i, want, sees);
                }
            for (uint32_t g = 0; g < RIG_GROUPS; g++) {
                kvb_cache_usage usage = rig_usage_of(&r, g);
                uint32_t span = limits[g].window ? limits[g].window : limits[g].chunk;
                uint32_t most = span - 1 + limits[g].sinks + ROLLBACK + STEP;
                assert_true(drops ? usage.cells_live <= most : usage.cells_live == r.next);
                assert_true(!drops || usage.high_water <= most);
                assert_true(!drops || r.next < 40 || usage.reserved_bytes == reserved[g]);
                reserved[g] = usage.reserved_bytes;
            }
        }
        rig_close(&r);
    }
}

/* A sequence of 20 tokens, stored one by one, of which the first and the last 4 + rollback are held: what is cut back
 * or copied may not need the others. What is refused says why and changes nothing; seq does all of it. */
static void test_going_back(void **state)
{
    (void)state;
    static const struct {
        bool copy;
        kvb_group group;
        uint32_t rollback, to; /* cut back to a length, or positions from .. to-1 copied */
        uint32_t from;
        int want;
        uint64_t sees[6]; /* the next token then; ends with 20, itself */
    } cases[] = {
        {false, {.window = 4, .sinks = 1}, 3, 20, 0, 0, {0, 17, 18, 19, 20}},
        {false, {.window = 4, .sinks = 1}, 3, 16, 0, 0, {0, 13, 14, 15, 20}},
        {false, {.window = 4, .sinks = 1}, 3, 15, 0, -ENOTSUP, {0}},
        {false, {.window = 4, .sinks = 1}, 3, 2, 0, -ENOTSUP, {0}},
        {false, {.window = 4, .sinks = 1}, 3, 1, 0, 0, {0, 20}}, /* the sink is all that it needs */
        {false, {.window = 4, .sinks = 1}, 3, 0, 0, 0, {20}},
        {false, {.window = 4}, 0, 19, 0, 0, {16, 17, 18, 20}},
        {false, {.window = 4}, 0, 18, 0, -ENOTSUP, {0}},
        {false, {.chunk = 5}, 0, 19, 0, 0, {15, 16, 17, 18, 20}},
        {false, {.chunk = 5}, 0, 15, 0, 0, {20}}, /* a chunk begins there */
        {false, {.chunk = 5}, 0, 14, 0, -ENOTSUP, {0}},
        {false, {.chunk = 5}, 5, 14, 0, 0, {10, 11, 12, 13, 20}},
        {true, {.window = 4, .sinks = 1}, 3, 20, 0, 0, {0, 17, 18, 19, 20}},
        {true, {.window = 4, .sinks = 1}, 3, 16, 0, 0, {0, 13, 14, 15, 20}},
        {true, {.window = 4, .sinks = 1}, 3, 15, 0, -ENOTSUP, {0}},
        {true, {.window = 4, .sinks = 1}, 3, 18, 17, 0, {17, 20}},
        {true, {.window = 4, .sinks = 1}, 3, 6, 5, -ENOTSUP, {0}},
        {true, {.window = 4, .sinks = 1}, 3, 1, 0, 0, {0, 20}},
    };
    EACH_CACHE(type, KVB_CACHE_SEQ)
    for (size_t i = 0; i < N(cases); i++) {
        rig r = {.n_groups = 2,
                 .groups = {{.latent = true}, cases[i].group},
                 .rollback = cases[i].rollback,
                 .page_cells = 1};
        int want = drops_rows(type) ? cases[i].want : 0;
        uint32_t seq = cases[i].copy;
        assert_int_equal(rig_try_open(&r, type, 64, 32, 2, 4), 0);
        while (r.next < 20) {
            assert_int_equal(rig_step(&r, NULL, 1), 0);
            rig_store(&r);
        }
        kvb_cache_usage before[] = {rig_usage_of(&r, 0), rig_usage_of(&r, 1)};
        assert_int_equal(cases[i].copy ? kvb_cache_seq_cp(r.cache, 0, 1, cases[i].from, cases[i].to)
                                       : kvb_cache_rewind(r.cache, cases[i].to),
                         want);
        if (want) {
            assert_non_null(strstr(kvb_cache_why(r.cache), "sequence 0 has let go of"));
            for (uint32_t g = 0; g < 2; g++) {
                kvb_cache_usage after = rig_usage_of(&r, g);
                rig_assert_same(&before[g], &after);
            }
            assert_int_equal(kvb_cache_length(r.cache, 0), 20);
            assert_int_equal(kvb_cache_length(r.cache, 1), 0);
            uint64_t all[20];
            for (uint64_t t = 0; t < 20; t++)
                all[t] = t;
            rig_layer_sees(&r, 0, 0, all, 20); /* the plan is in force */
        } else if (cases[i].want == 0) {
            size_t n = 0;
            while (cases[i].sees[n] != 20)
                n++;
            assert_int_equal(rig_step(&r, &seq, 1), 0);
            rig_layer_sees(&r, 1, 0, cases[i].sees, n + 1);
        }
        rig_close(&r);
    }
}

/* What one branch has let go of others may need: the cell is free when the last of them has. */
static void test_branches_drop_apart(void **state)
{
    (void)state;
    rig r = {.n_groups = 1, .groups = {{.window = 3}}};
    assert_int_equal(rig_try_open(&r, &kvb_cache_window, 64, 64, 2, 4), 0);
    assert_int_equal(rig_step(&r, NULL, 4), 0);
    rig_store(&r);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, KVB_POS_END), 0);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(rig_step(&r, NULL, 1), 0);
        rig_store(&r);
    }
    assert_int_equal(rig_usage(&r).cells_live, 2 + 3); /* tokens 2 and 3 for branch 1; 7, 8 and 9 */
    assert_int_equal(rig_step(&r, IDS(1)), 0);
    rig_sees(&r, 0, TOKENS(2, 3, 10));
    assert_int_equal(kvb_cache_seq_keep(r.cache, 0), 0);
    assert_int_equal(rig_usage(&r).cells_live, 2); /* and token 7 was dropped with the last step */
    assert_int_equal(rig_step(&r, IDS(0)), 0);
    rig_sees(&r, 0, TOKENS(8, 9, 11));
    rig_close(&r);
}

/* ---- rows, room and masks ------------------------------------------------------------------------------------- */

/* Latent rows are stored once: V lies where K does, and no bytes are held for it. Windows and latent rows come
 * together. */
static void test_latent(void **state)
{
    (void)state;
    EACH_CACHE(type, 0)
    {
        rig r = {.n_groups = 2, .groups = {{.latent = true, .window = 5}, {.latent = true}}};
        assert_int_equal(rig_try_open(&r, type, 32, 32, 2, 32), 0);
        assert_int_equal(rig_step(&r, NULL, 9), 0);
        rig_layer_sees(&r, 0, 8, TOKENS(4, 5, 6, 7, 8));
        rig_layer_sees(&r, 1, 8, TOKENS(0, 1, 2, 3, 4, 5, 6, 7, 8));
        rig_layer_sees(&r, 2, 8, TOKENS(4, 5, 6, 7, 8));
        kvb_attend_spec spec = rig_store(&r);
        spec.k.dim = spec.v.dim; /* all that differs */
        assert_memory_equal(&spec.k, &spec.v, sizeof spec.k);
        if (!(type->flags & KVB_CACHE_PREALLOCATES)) { /* 32 cells of layers 0 and 2; the rest is slack */
            size_t k_bytes = 32 * 2 * RIG_KV_HEADS * RIG_K_DIM * sizeof(float);
            size_t held = rig_usage_of(&r, 0).reserved_bytes;
            assert_true(held >= k_bytes && held < k_bytes * 5 / 4);
        }
        rig_close(&r);
    }
}

/* One group has no room for the step, the other has: it happens in neither. */
static void test_one_group_is_full(void **state)
{
    (void)state;
    for (uint32_t full = 0; full < 2; full++) {
        rig r = {.n_groups = 2, .step = 2};
        r.groups[full].window = 3; /* 4 cells: two of the window, and a step of two */
        assert_int_equal(rig_try_open(&r, &kvb_cache_window, 32, 32, 1, 4), 0);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(rig_step(&r, NULL, 2), 0);
            rig_store(&r);
        }
        kvb_cache_usage before[] = {rig_usage_of(&r, 0), rig_usage_of(&r, 1)};
        assert_true(before[full].cells_live == 4 && before[1 - full].cells_live == 6);
        assert_false(kvb_cache_can_extend(r.cache, NULL, 3));
        assert_int_equal(rig_step(&r, NULL, 3), -ENOSPC);
        assert_non_null(strstr(kvb_cache_why(r.cache), "no room for 3 tokens: there is room for 2"));
        for (uint32_t g = 0; g < 2; g++) {
            kvb_cache_usage after = rig_usage_of(&r, g);
            rig_assert_same(&before[g], &after);
        }
        assert_int_equal(kvb_cache_length(r.cache, 0), 6);
        for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
            if (layer % 2 == full)
                rig_layer_sees(&r, layer, 1, TOKENS(3, 4, 5));
            else
                rig_layer_sees(&r, layer, 1, TOKENS(0, 1, 2, 3, 4, 5));
        assert_int_equal(rig_step(&r, NULL, 2), 0);
        rig_close(&r);
    }
}

/* Layers of a group share a step's mask, by its number. No other group, step or cache has that number. */
static void test_generations(void **state)
{
    (void)state;
    uint64_t seen[64];
    size_t n = 0;
    EACH_CACHE(type, 0)
    {
        rig r;
        rig_open(&r, type, 32, 32, 1, 4);
        for (uint32_t step = 0; step < 2; step++) {
            kvb_attend_spec spec[RIG_LAYERS];
            assert_int_equal(rig_step(&r, NULL, 2), 0);
            for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
                assert_int_equal(rig_fetch(&r, layer, r.pos, &spec[layer]), 0);
            assert_true(spec[0].generation == spec[2].generation);
            seen[n++] = spec[0].generation;
            seen[n++] = spec[1].generation;
        }
        assert_int_equal(kvb_cache_begin_step(r.cache, NULL, 99), -ENOSPC);
        kvb_attend_spec again;
        assert_int_equal(rig_fetch(&r, 1, r.pos, &again), 0);
        assert_true(again.generation == seen[n - 1]);
        rig_close(&r);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(seen[i] != 0 && seen[i] != seen[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_sequence),       cmocka_unit_test(test_going_back),
        cmocka_unit_test(test_branches_drop_apart), cmocka_unit_test(test_latent),
        cmocka_unit_test(test_one_group_is_full),   cmocka_unit_test(test_generations),
    };
    return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
