/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: pools store rows where the view says, by run, by scatter, and move them unchanged, with all that belongs to
 * them. Formats that encode rows one by one: of the others test_residual. Floats are rounded as IEEE says.
 */
#include "pools.h"

#include "caches/pools/codec/codec.h"

enum { CELLS = 24 };

static kvb_pool *pool_open_full(const kvb_pool_type *type, kvb_allocator *a)
{
    kvb_pool *pool = pool_open(type, a, KVB_GROWTH_DOUBLE, CELLS, CELLS);
    assert_non_null(pool);
    assert_int_equal(type->ensure(pool, CELLS), 0);
    return pool;
}

/* The next pool without residual cells. */
static const kvb_pool_type *rows_next(uint32_t *at)
{
    const kvb_pool_type *type = pools_next(at);
    while (type && type->format->residual_cells)
        type = pools_next(at);
    return type;
}

/* Scales in a side table: blocks have theirs inside. */
static uint32_t scales_of(const kvb_format *f)
{
    if (f->group == 0 || kvb_elem_is_block(f->elem))
        return 0;
    return f->group == KVB_GROUP_ROW ? 1 : DIM / f->group;
}

/* Codes, scales and zeros in the cell are those that the token's row has in a pool of its own. */
static void cell_expect(const kvb_pool *pool, uint32_t cell, uint32_t token)
{
    float rows[HEADS * DIM];
    kvb_allocator a = {0};
    kvb_pool *alone = pool_open(pool->type, &a, KVB_GROWTH_DOUBLE, 1, 1);
    const kvb_format *f = pool->type->format;
    kvb_view x, y;

    rows_make(rows, token, 1);
    assert_int_equal(alone->type->ensure(alone, 1), 0);
    alone->type->write_run(alone, 0, 1, rows);
    pool->type->view(pool, CELLS, &x);
    alone->type->view(alone, 1, &y);
    size_t codes = kvb_codes_bytes(f, DIM), scales = scales_of(f) * kvb_scale_bytes(f->scale_elem);
    size_t zeros = kvb_format_has_zeros(f) ? scales_of(f) * kvb_scale_bytes(f->zero_elem) : 0;
    for (uint32_t h = 0; h < HEADS; h++) {
        assert_memory_equal(kvb_view_row(&x, h, cell), kvb_view_row(&y, h, 0), codes);
        if (scales)
            assert_memory_equal((const char *)x.scales + h * x.scale_head_stride + cell * x.scale_cell_stride,
                                (const char *)y.scales + h * y.scale_head_stride, scales);
        if (zeros)
            assert_memory_equal((const char *)x.zeros + h * x.zero_head_stride + cell * x.zero_cell_stride,
                                (const char *)y.zeros + h * y.zero_head_stride, zeros);
    }
    alone->type->close(alone);
}

/* Names are what formats go by, and --pool takes: each once. */
static void names_are_unique(void **state)
{
    (void)state;
    uint32_t at = 0;
    for (const kvb_pool_type *type; (type = pools_next(&at));) {
        uint32_t others = 0, same = 0;
        assert_string_equal(type->name, type->format->name);
        assert_true(type->summary[0] != 0 && type->format->read);
        for (const kvb_pool_type *other; (other = pools_next(&others));)
            same += !strcmp(type->name, other->name);
        assert_int_equal(same, 1);
    }
    assert_string_equal(kvb_builtin_pools[0]->name, "f32");
    for (uint32_t i = 0; kvb_builtin_pools[i]; i++)
        if (kvb_builtin_pools[i]->rotated) {
            const char *plain = kvb_builtin_pools[i]->name, *turned = kvb_builtin_pools[i]->rotated->name;
            assert_int_equal(strncmp(turned, plain, strlen(plain)), 0);
            assert_string_equal(turned + strlen(plain), "+had");
            assert_int_equal(kvb_builtin_pools[i]->rotated->format->transform, KVB_TRANSFORM_HADAMARD);
        }
}

static void view_is_head_major(void **state)
{
    uint32_t at = 0;
    (void)state;
    for (const kvb_pool_type *type; (type = rows_next(&at));) {
        const kvb_format *f = type->format;
        kvb_allocator a = {0};
        kvb_pool *pool = pool_open_full(type, &a);
        kvb_view view;
        type->view(pool, 7, &view);
        assert_int_equal(view.cells, 7);
        assert_int_equal(view.dim, DIM);
        assert_int_equal(view.cell_stride, kvb_codes_bytes(f, DIM));
        assert_int_equal(view.head_stride, CELLS * view.cell_stride);
        assert_ptr_equal(view.format, f);
        assert_int_equal(view.scales != NULL, scales_of(f) > 0);
        assert_int_equal(view.zeros != NULL, kvb_format_has_zeros(f));
        assert_int_equal(view.head_scales != NULL, f->head_scale != KVB_STATIC_NONE);
        assert_null(view.recent);
        type->close(pool);
    }
}

static void runs_and_scatter_store_rows(void **state)
{
    static const uint32_t cells[] = {23, 0, 11, 5, 6};
    uint32_t at = 0;
    (void)state;
    for (const kvb_pool_type *type; (type = rows_next(&at));) {
        kvb_allocator a = {0};
        kvb_pool *pool = pool_open_full(type, &a);
        float rows[CELLS * HEADS * DIM];
        rows_make(rows, 0, CELLS);
        type->write_run(pool, 0, CELLS, rows);
        type->write_run(pool, 4, 0, rows);
        for (uint32_t c = 0; c < CELLS; c++)
            cell_expect(pool, c, c);
        rows_make(rows, 100, 5);
        type->scatter(pool, cells, 5, rows);
        for (uint32_t c = 0; c < CELLS; c++) {
            uint32_t token = c;
            for (uint32_t k = 0; k < 5; k++)
                if (cells[k] == c)
                    token = 100 + k;
            cell_expect(pool, c, token);
        }
        type->close(pool);
        assert_int_equal(a.current_bytes, 0);
    }
}

/* The accepted path of a tree moves down over its rejected nodes; or rows move up to where none of them lie. */
static void gather_moves_rows(void **state)
{
    static const uint32_t path[] = {10, 12, 13, 20}, back[] = {3, 0, 3};
    uint32_t at = 0;
    (void)state;
    for (const kvb_pool_type *type; (type = rows_next(&at));) {
        kvb_allocator a = {0};
        kvb_pool *pool = pool_open_full(type, &a);
        float rows[CELLS * HEADS * DIM];
        rows_make(rows, 0, CELLS);
        type->write_run(pool, 0, CELLS, rows);
        type->gather_into(pool, 10, path, 4);
        for (uint32_t c = 0; c < CELLS; c++)
            cell_expect(pool, c, c >= 10 && c < 14 ? path[c - 10] : c);
        type->gather_into(pool, 21, back, 3);
        for (uint32_t c = 14; c < CELLS; c++)
            cell_expect(pool, c, c >= 21 ? back[c - 21] : c);
        type->close(pool);
    }
}

/* Ties, overflow, subnormals, NaN, in every place of a vector and behind the last one, in every instruction set. */
static void floats_are_ieee(void **state)
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
    enum { ROW = 37 };
    (void)state;
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++) {
        if (!(*isa)->available())
            continue;
        for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
            float row[ROW];
            uint16_t f16[ROW], bf16[ROW];
            for (int k = 0; k < ROW; k++)
                memcpy(&row[k], &edges[i].f32, sizeof row[k]);
            (*isa)->encode[KVB_RULE_F16](kvb_builtin_pools[0]->format, row, 1, ROW, 1.0f, f16, NULL, NULL);
            (*isa)->encode[KVB_RULE_BF16](kvb_builtin_pools[0]->format, row, 1, ROW, 1.0f, bf16, NULL, NULL);
            for (int k = 0; k < ROW; k++) {
                assert_int_equal(f16[k], edges[i].f16);
                assert_int_equal(bf16[k], edges[i].bf16);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(view_is_head_major),
        cmocka_unit_test(runs_and_scatter_store_rows),
        cmocka_unit_test(gather_moves_rows),
        cmocka_unit_test(floats_are_ieee),
    };
    return cmocka_run_group_tests_name("pool rows", tests, NULL, NULL);
}
