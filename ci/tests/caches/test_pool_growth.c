/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: doubling follows its rule, policies are known by name, and by whatever policy a pool grows it keeps its rows;
 * any request for memory that fails leaves it as it was. How many bytes it takes: test_memory. */
#include "pools.h"

#include "caches/pools/growth.h"

static void doubling_follows_its_rule(void **state)
{
    static const struct {
        uint32_t held, needed, min_chunk, capacity, cells;
    } cases[] = {
        {0, 0, 16, 100, 0},     {0, 1, 16, 100, 16},
        {0, 17, 16, 100, 32},   {0, 33, 16, 100, 64},
        {16, 16, 16, 100, 16},  {16, 17, 16, 100, 32},
        {64, 65, 16, 100, 100}, {0, 1, 200, 100, 100},
        {100, 3, 16, 100, 100}, {0, 5, 3, 100, 6},
        {6, 100, 3, 100, 100},  {0, 7, 1, 7, 7},
        {0, 1, 1, 1, 1},        {1u << 31, (1u << 31) + 1, 1, UINT32_MAX, UINT32_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t cells = kvb_growth_double(cases[i].held, cases[i].needed, cases[i].min_chunk, cases[i].capacity);
        assert_int_equal(cells, cases[i].cells);
    }
}

static void policies_have_names(void **state)
{
    static const struct {
        const char *name;
        kvb_growth growth;
        bool reserves;
        size_t grain; /* 0: a page, whatever that is here */
    } policies[KVB_GROWTHS] = {
        {"double", KVB_GROWTH_DOUBLE, false, 1},  {"double+thp", KVB_GROWTH_DOUBLE_THP, false, 2u << 20},
        {"reserve", KVB_GROWTH_RESERVE, true, 0}, {"reserve+thp", KVB_GROWTH_RESERVE_THP, true, 2u << 20},
        {"exact", KVB_GROWTH_EXACT, false, 1},
    };
    (void)state;
    char why[160] = "";
    for (size_t i = 0; i < KVB_GROWTHS; i++) {
        kvb_growth g = policies[i].growth;
        assert_string_equal(kvb_growth_names[g], policies[i].name);
        assert_int_equal(kvb_growth_reserves(g), policies[i].reserves);
        size_t grain = kvb_growth_grain(g);
        assert_true(policies[i].grain ? grain == policies[i].grain : grain >= 4096 && grain < 2u << 20);
        assert_true(kvb_growth_available(g, why, sizeof why) || why[0]);
    }
    assert_true(kvb_growth_available(KVB_GROWTH_DOUBLE, why, sizeof why));
    assert_true(kvb_growth_available(KVB_GROWTH_RESERVE, why, sizeof why));
}

/* ---- rows through growth ------------------------------------------------------------------------------------- */

enum { CELLS = 168 }; /* the first windows of a format that has some are closed */

static void token_write(kvb_pool *pool, uint32_t cell)
{
    float rows[HEADS * DIM];
    rows_make(rows, cell, 1);
    pool->type->write_run(pool, cell, 1, rows);
}

/* All rows of cells 0 .. n-1, bit for bit as they are read: [HEADS][n][DIM]. */
static void rows_read(const kvb_pool *pool, uint32_t n, float *rows)
{
    kvb_view view;
    pool->type->view(pool, n, &view);
    assert_int_equal(view.cells, n);
    for (uint32_t h = 0; h < HEADS; h++)
        view.format->read(&view, h, 0, n, rows + (size_t)h * n * DIM);
}

/* Against a pool that had room for all from the start. The head stride changes with every growth by copies. */
static void growth_keeps_rows(void **state)
{
    static float x[HEADS * CELLS * DIM], y[HEADS * CELLS * DIM];
    char why[160];
    (void)state;
    for (uint32_t g = 0; g < KVB_GROWTHS; g++) {
        if (!kvb_growth_available((kvb_growth)g, why, sizeof why))
            continue;
        uint32_t at = 0;
        for (const kvb_pool_type *type; (type = pools_next(&at));) {
            kvb_allocator a = {0};
            kvb_pool *grown = pool_open(type, &a, (kvb_growth)g, 1, CELLS);
            kvb_pool *whole = pool_open(type, &a, KVB_GROWTH_DOUBLE, CELLS, CELLS);
            assert_int_equal(type->ensure(whole, CELLS), 0);
            for (uint32_t cell = 0; cell < CELLS; cell++) {
                assert_int_equal(type->ensure(grown, cell + 1), 0);
                if (cell == 100)
                    assert_int_equal(type->ensure(grown, 2), 0); /* never shrinks: what lies above 2 survives */
                token_write(grown, cell);
                token_write(whole, cell);
            }
            rows_read(grown, CELLS, x);
            rows_read(whole, CELLS, y);
            assert_memory_equal(x, y, sizeof x);
            type->close(grown);
            type->close(whole);
            assert_int_equal(a.current_bytes, 0);
        }
    }
}

/* Open, grow to 4 and to 70 cells, the fail-th request of it all refused: was it noticed? */
static bool grow_with_failure(const kvb_pool_type *type, kvb_growth growth, uint64_t fail)
{
    static const uint32_t lengths[] = {4, 70};
    static float before[HEADS * 70 * DIM], after[HEADS * 70 * DIM];
    kvb_allocator a = {.fail_request = fail};
    kvb_pool *pool = pool_open(type, &a, growth, 4, 80);
    bool noticed = !pool;
    uint32_t usable = 0;
    if (!pool) {
        assert_int_equal(a.current_bytes, 0);
        pool = pool_open(type, &a, growth, 4, 80);
        assert_non_null(pool);
    }
    for (int i = 0; i < 2; i++) {
        kvb_view x, y;
        size_t held = a.current_bytes, reserved = type->reserved(pool);
        uint64_t growths = pool->growths, copied = pool->copied_bytes;
        type->view(pool, usable, &x);
        rows_read(pool, usable, before);
        int error = type->ensure(pool, lengths[i]);
        if (error) {
            assert_int_equal(error, -ENOMEM);
            assert_false(noticed);
            noticed = true;
            type->view(pool, usable, &y);
            assert_true(x.base == y.base && x.scales == y.scales && x.zeros == y.zeros && x.recent == y.recent);
            assert_true(x.head_stride == y.head_stride && x.scale_head_stride == y.scale_head_stride);
            rows_read(pool, usable, after);
            assert_memory_equal(before, after, (size_t)HEADS * usable * DIM * sizeof *before);
            assert_int_equal(a.current_bytes, held);
            assert_int_equal(type->reserved(pool), reserved);
            assert_int_equal(pool->growths, growths);
            assert_int_equal(pool->copied_bytes, copied);
            assert_int_equal(type->ensure(pool, lengths[i]), 0); /* the next try works */
        }
        for (; usable < lengths[i]; usable++)
            token_write(pool, usable);
    }
    type->close(pool);
    assert_int_equal(a.current_bytes, 0);
    return noticed;
}

static void failed_growth_changes_nothing(void **state)
{
    char why[160];
    (void)state;
    for (uint32_t g = 0; g < KVB_GROWTHS; g++) {
        if (!kvb_growth_available((kvb_growth)g, why, sizeof why))
            continue;
        uint32_t at = 0;
        for (const kvb_pool_type *type; (type = pools_next(&at));) {
            uint64_t fail = 1;
            while (grow_with_failure(type, (kvb_growth)g, fail))
                fail++;
            assert_true(fail > 3); /* the pool, and its codes twice */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubling_follows_its_rule),
        cmocka_unit_test(policies_have_names),
        cmocka_unit_test(growth_keeps_rows),
        cmocka_unit_test(failed_growth_changes_nothing),
    };
    return cmocka_run_group_tests_name("pool growth", tests, NULL, NULL);
}
