/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that what pools store is, bit for bit, what the oracle's reference codec stores: every upper half of a float with
 * lower halves at and around ties, through write_run, scatter and gather_into, at every remainder of the row length.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "caches/pools/pool.h"
#include "oracle/codec.h"

enum { HEADS = 3, CELLS = 40, MAX_DIM = 67 };

static const uint32_t lows[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
#define LOWS (sizeof lows / sizeof *lows)

/* Values run through all patterns, row after row. */
static void rows_fill(float *rows, size_t n, uint64_t *next)
{
    for (size_t i = 0; i < n; i++, ++*next) {
        uint32_t bits = (uint32_t)(*next / LOWS % 65536) << 16 | lows[*next % LOWS];
        memcpy(&rows[i], &bits, sizeof bits);
    }
}

static void cell_compare(const kvb_pool *pool, const kvb_codec *codec, uint32_t cell, uint32_t dim, const float *rows)
{
    unsigned char want[MAX_DIM * 4];
    kvb_view view;
    pool->type->view(pool, cell + 1, &view);
    for (uint32_t h = 0; h < HEADS; h++) {
        codec->encode(rows + h * dim, dim, want);
        assert_memory_equal(kvb_view_row(&view, h, cell), want, codec->row_bytes(dim));
    }
}

static void pool_compare(const kvb_pool_type *type, uint32_t dim, uint64_t *next)
{
    static float rows[CELLS * HEADS * MAX_DIM];
    const kvb_codec *codec = kvb_codec_find(type->format->name);
    kvb_allocator allocator = {0};
    kvb_pool_options options = {HEADS, dim, 4, CELLS, &allocator};
    kvb_pool *pool;
    size_t cell = (size_t)HEADS * dim;
    uint32_t scattered[] = {31, 7, 38}, gathered[] = {20, 31, 25};
    assert_non_null(codec);
    assert_int_equal(type->open(type, &options, &pool), 0);
    assert_int_equal(type->ensure(pool, 20), 0);
    rows_fill(rows, CELLS * cell, next);
    type->write_run(pool, 0, 20, rows);
    assert_int_equal(type->ensure(pool, CELLS), 0); /* growing moves what is stored */
    type->write_run(pool, 20, 20, rows + 20 * cell);
    for (uint32_t c = 0; c < CELLS; c++)
        cell_compare(pool, codec, c, dim, rows + c * cell);
    type->scatter(pool, scattered, 3, rows);
    for (uint32_t i = 0; i < 3; i++)
        cell_compare(pool, codec, scattered[i], dim, rows + i * cell);
    type->gather_into(pool, 10, gathered, 3);
    cell_compare(pool, codec, 10, dim, rows + 20 * cell);
    cell_compare(pool, codec, 11, dim, rows); /* cell 31 was scattered into */
    cell_compare(pool, codec, 12, dim, rows + 25 * cell);
    type->close(pool);
    assert_int_equal(allocator.current_bytes, 0);
}

static void pools_store_what_the_codec_stores(void **state)
{
    (void)state;
    for (size_t p = 0; kvb_builtin_pools[p]; p++) {
        uint64_t next = 0;
        for (uint32_t dim = 1; dim <= MAX_DIM; dim++)
            pool_compare(kvb_builtin_pools[p], dim, &next);
        while (next < 65536 * LOWS) /* until every pattern was there */
            pool_compare(kvb_builtin_pools[p], MAX_DIM, &next);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pools_store_what_the_codec_stores)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("stored bytes", tests, NULL, NULL);
}
