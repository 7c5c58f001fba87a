/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: pools grow lazily by doubling from min_chunk up to capacity; bytes() is exact; failed growth changes nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "caches/pools/growth.h"
#include "caches/pools/pool.h"

#define HEADS 3u
#define DIM   5u

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

static kvb_pool *pool_open(const kvb_pool_type *type, kvb_allocator *a, uint32_t min_chunk, uint32_t capacity)
{
    kvb_pool_options options = {
        .n_kv_heads = HEADS, .dim = DIM, .min_chunk = min_chunk, .capacity = capacity, .allocator = a};
    kvb_pool *pool = NULL;
    assert_int_equal(type->open(type, &options, &pool), 0);
    assert_ptr_equal(pool->type, type);
    return pool;
}

/* Token by token: what the allocator holds past the pool's own struct is bytes() of what doubling reserves. */
static void bytes_are_what_the_allocator_holds(void **state)
{
    (void)state;
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++)
        for (uint32_t chunk = 1; chunk <= 40; chunk += 13) {
            kvb_allocator a = {0};
            kvb_pool *pool = pool_open(*type, &a, chunk, 300);
            size_t struct_bytes = a.current_bytes;
            uint32_t held = 0;
            assert_int_equal((*type)->reserved(pool), 0); /* lazy */
            for (uint32_t cells = 0; cells <= 300; cells++) {
                assert_int_equal((*type)->ensure(pool, cells), 0);
                held = kvb_growth_double(held, cells, chunk, 300);
                assert_int_equal((*type)->reserved(pool), (*type)->bytes(HEADS, DIM, held));
                assert_int_equal(a.current_bytes, struct_bytes + (*type)->bytes(HEADS, DIM, held));
            }
            assert_int_equal((*type)->ensure(pool, 301), -ENOSPC);
            assert_int_equal((*type)->ensure(pool, 2), 0); /* never shrinks */
            assert_int_equal((*type)->reserved(pool), (*type)->bytes(HEADS, DIM, 300));
            (*type)->close(pool);
            assert_int_equal(a.current_bytes, 0);
        }
    assert_int_equal(kvb_builtin_pools[0]->bytes(8, 128, 1000), 4096000);
    assert_int_equal(kvb_builtin_pools[1]->bytes(8, 128, 1000), 2048000);
    assert_int_equal(kvb_builtin_pools[2]->bytes(8, 128, 1000), 2048000);
}

static float value(uint32_t cell, uint32_t h, uint32_t d)
{
    return (float)cell + (float)h * 0.25f - (float)d * 16.0f;
}

static void token_write(kvb_pool *pool, uint32_t cell)
{
    float rows[HEADS * DIM];
    for (uint32_t i = 0; i < HEADS * DIM; i++)
        rows[i] = value(cell, i / DIM, i % DIM);
    pool->type->write_run(pool, cell, 1, rows);
}

/* Rows keep their bytes through every growth, though the head stride changes. */
static void growth_keeps_rows(void **state)
{
    (void)state;
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++) {
        kvb_allocator a = {0};
        kvb_pool *grown = pool_open(*type, &a, 1, 100), *whole = pool_open(*type, &a, 100, 100);
        size_t row = (*type)->bytes(1, DIM, 1);
        kvb_view x, y;
        assert_int_equal((*type)->ensure(whole, 100), 0);
        for (uint32_t cell = 0; cell < 100; cell++) {
            assert_int_equal((*type)->ensure(grown, cell + 1), 0);
            token_write(grown, cell);
            token_write(whole, cell);
        }
        (*type)->view(grown, 100, &x);
        (*type)->view(whole, 100, &y);
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t cell = 0; cell < 100; cell++)
                assert_memory_equal(kvb_view_row(&x, h, cell), kvb_view_row(&y, h, cell), row);
        (*type)->close(grown);
        (*type)->close(whole);
    }
}

/* The pool's own struct, then each growth, is made to fail in turn. */
static void failed_growth_changes_nothing(void **state)
{
    (void)state;
    for (const kvb_pool_type *const *type = kvb_builtin_pools; *type; type++) {
        kvb_allocator a = {.fail_request = 1};
        kvb_pool_options options = {.n_kv_heads = HEADS, .dim = DIM, .min_chunk = 4, .capacity = 64, .allocator = &a};
        kvb_pool *pool = NULL;
        assert_int_equal((*type)->open(*type, &options, &pool), -ENOMEM);
        assert_int_equal(a.current_bytes, 0);

        a = (kvb_allocator){.fail_request = 3};
        pool = pool_open(*type, &a, 4, 64);
        assert_int_equal((*type)->ensure(pool, 4), 0);
        for (uint32_t cell = 0; cell < 4; cell++)
            token_write(pool, cell);
        kvb_view before, after;
        char row[64];
        size_t row_bytes = (*type)->bytes(1, DIM, 1), held = a.current_bytes;
        (*type)->view(pool, 4, &before);
        memcpy(row, kvb_view_row(&before, 2, 3), row_bytes);
        assert_int_equal((*type)->ensure(pool, 5), -ENOMEM);
        (*type)->view(pool, 4, &after);
        assert_ptr_equal(before.base, after.base);
        assert_int_equal(before.head_stride, after.head_stride);
        assert_int_equal(before.cell_stride, after.cell_stride);
        assert_memory_equal(kvb_view_row(&after, 2, 3), row, row_bytes);
        assert_int_equal(a.current_bytes, held);
        assert_int_equal((*type)->reserved(pool), (*type)->bytes(HEADS, DIM, 4));
        assert_int_equal((*type)->ensure(pool, 5), 0); /* the next try works */
        (*type)->close(pool);
        assert_int_equal(a.current_bytes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubling_follows_its_rule),
        cmocka_unit_test(bytes_are_what_the_allocator_holds),
        cmocka_unit_test(growth_keeps_rows),
        cmocka_unit_test(failed_growth_changes_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("pool growth", tests, NULL, NULL);
}
