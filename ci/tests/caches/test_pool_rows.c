/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: pools store rows in their encoding where the view says, by run, by scatter, and move them unchanged. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "caches/pools/encode.h"
#include "caches/pools/pool.h"

#define HEADS 3u
#define DIM   20u
#define CELLS 24u

static const struct {
    kvb_elem elem;
    size_t bytes;
    kvb_row_encode *encode;
} encodings[] = {
    {KVB_F32, 4, kvb_row_encode_f32}, {KVB_F16, 2, kvb_row_encode_f16_portable}, {KVB_BF16, 2, kvb_row_encode_bf16}};

static kvb_pool *pool_open(const kvb_pool_type *type, kvb_allocator *a)
{
    kvb_pool_options options = {.n_kv_heads = HEADS, .dim = DIM, .min_chunk = CELLS, .capacity = CELLS, .allocator = a};
    kvb_pool *pool = NULL;
    assert_int_equal(type->open(type, &options, &pool), 0);
    assert_int_equal(type->ensure(pool, CELLS), 0);
    return pool;
}

/* rows [n][HEADS][DIM] of tokens first, first + 1, ... */
static void rows_make(float *rows, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n * HEADS * DIM; i++)
        rows[i] = ((float)(first * HEADS * DIM + i) - 400.0f) * 0.3371f;
}

static void cell_expect(const kvb_pool *pool, size_t type, uint32_t cell, uint32_t token)
{
    float rows[HEADS * DIM];
    char encoded[DIM * 4];
    kvb_view view;

    pool->type->view(pool, CELLS, &view);
    rows_make(rows, token, 1);
    for (uint32_t h = 0; h < HEADS; h++) {
        encodings[type].encode(encoded, rows + h * DIM, DIM);
        assert_memory_equal(kvb_view_row(&view, h, cell), encoded, DIM * encodings[type].bytes);
    }
}

static void lists_f32_f16_bf16(void **state)
{
    static const char *const names[] = {"f32", "f16", "bf16"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(kvb_builtin_pools[i]->name, names[i]);
        assert_string_equal(kvb_builtin_pools[i]->format->name, names[i]);
        assert_int_equal(kvb_builtin_pools[i]->format->elem, encodings[i].elem);
    }
    assert_null(kvb_builtin_pools[3]);
}

static void view_is_head_major(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        kvb_allocator a = {0};
        kvb_pool *pool = pool_open(kvb_builtin_pools[i], &a);
        kvb_view view;
        pool->type->view(pool, 7, &view);
        assert_int_equal(view.cells, 7);
        assert_int_equal(view.dim, DIM);
        assert_int_equal(view.cell_stride, DIM * encodings[i].bytes);
        assert_int_equal(view.head_stride, CELLS * DIM * encodings[i].bytes);
        assert_ptr_equal(view.format, pool->type->format);
        assert_null(view.scales);
        assert_null(view.block_table);
        pool->type->close(pool);
    }
}

static void runs_and_scatter_store_rows(void **state)
{
    static const uint32_t cells[] = {23, 0, 11, 5, 6};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        kvb_allocator a = {0};
        kvb_pool *pool = pool_open(kvb_builtin_pools[i], &a);
        float rows[CELLS * HEADS * DIM];
        rows_make(rows, 0, CELLS);
        pool->type->write_run(pool, 0, CELLS, rows);
        pool->type->write_run(pool, 4, 0, rows);
        for (uint32_t c = 0; c < CELLS; c++)
            cell_expect(pool, i, c, c);
        rows_make(rows, 100, 5);
        pool->type->scatter(pool, cells, 5, rows);
        for (uint32_t c = 0; c < CELLS; c++) {
            uint32_t token = c;
            for (uint32_t k = 0; k < 5; k++)
                if (cells[k] == c)
                    token = 100 + k;
            cell_expect(pool, i, c, token);
        }
        pool->type->close(pool);
        assert_int_equal(a.current_bytes, 0);
    }
}

/* The accepted path of a tree moves down over its rejected nodes; or rows move up to where none of them lie. */
static void gather_moves_rows(void **state)
{
    static const uint32_t path[] = {10, 12, 13, 20}, back[] = {3, 0, 3};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        kvb_allocator a = {0};
        kvb_pool *pool = pool_open(kvb_builtin_pools[i], &a);
        float rows[CELLS * HEADS * DIM];
        rows_make(rows, 0, CELLS);
        pool->type->write_run(pool, 0, CELLS, rows);
        pool->type->gather_into(pool, 10, path, 4);
        for (uint32_t c = 0; c < CELLS; c++)
            cell_expect(pool, i, c, c >= 10 && c < 14 ? path[c - 10] : c);
        pool->type->gather_into(pool, 21, back, 3);
        for (uint32_t c = 14; c < CELLS; c++)
            cell_expect(pool, i, c, c >= 21 ? back[c - 21] : c);
        pool->type->close(pool);
    }
}

static float float_of(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* Ties, overflow, subnormals, NaN: as IEEE says, and the wide path the same as the portable one. */
static void encoding_is_ieee(void **state)
{
    static const struct {
        uint32_t f32;
        uint16_t f16, bf16;
    } edges[] = {
        {0x00000000, 0x0000, 0x0000}, {0x80000000, 0x8000, 0x8000}, {0x3f800000, 0x3c00, 0x3f80},
        {0x3f801000, 0x3c00, 0x3f80}, /* 1 + 2^-11: f16 tie to even, down */
        {0x3f803000, 0x3c02, 0x3f80}, /* 1 + 3 2^-11: f16 tie to even, up */
        {0x3f808000, 0x3c04, 0x3f80}, /* bf16 tie, down */
        {0x3f818000, 0x3c0c, 0x3f82}, /* bf16 tie, up */
        {0x477fefff, 0x7bff, 0x4780}, {0x477ff000, 0x7c00, 0x4780}, {0xff7fffff, 0xfc00, 0xff80},
        {0x7f800000, 0x7c00, 0x7f80}, {0x7f800001, 0x7e00, 0x7fc0}, {0xffffffff, 0xffff, 0xffff},
        {0x33000000, 0x0000, 0x3300}, {0x33000001, 0x0001, 0x3300}, {0x33c00000, 0x0002, 0x33c0},
        {0x387fffff, 0x0400, 0x3880}, {0x00018000, 0x0000, 0x0002},
    };
    enum { ROW = 1021 };
    float row[ROW];
    uint16_t wide[ROW], portable[ROW];
    uint32_t b = 12345;
    (void)state;

    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        float eight[8];
        uint16_t h[8];
        for (int k = 0; k < 8; k++)
            eight[k] = float_of(edges[i].f32);
        kvb_row_encode_f16_portable(h, eight, 8);
        assert_int_equal(h[0], edges[i].f16);
        kvb_row_encode_f16(h, eight, 8);
        assert_int_equal(h[7], edges[i].f16);
        kvb_row_encode_bf16(h, eight, 8);
        assert_int_equal(h[0], edges[i].bf16);
    }
    for (int rows = 0; rows < 400; rows++) {
        for (size_t i = 0; i < ROW; i++, b += 10007)
            row[i] = float_of(b);
        kvb_row_encode_f16(wide, row, ROW);
        kvb_row_encode_f16_portable(portable, row, ROW);
        assert_memory_equal(wide, portable, sizeof wide);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_f32_f16_bf16),
        cmocka_unit_test(view_is_head_major),
        cmocka_unit_test(runs_and_scatter_store_rows),
        cmocka_unit_test(gather_moves_rows),
        cmocka_unit_test(encoding_is_ieee),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("pool rows", tests, NULL, NULL);
}
