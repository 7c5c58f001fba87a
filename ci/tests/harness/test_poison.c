/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: poison fills all that belongs to hidden cells alone and nothing else (rows, scales, zeros, rows that are still
 * f16; scales that cells share), and restoring brings every byte back.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "harness/replay/poison.h"

#define HEADS 2u
#define CELLS 12u
#define ROOM  4096u /* bytes of memory that a view lies in */
#define SLOT  5u    /* where rows of cells 4 .. 7 are f16 */

static unsigned char memory[ROOM], before[ROOM], expected[ROOM];
static kvb_poison poison;

static void start(void)
{
    for (size_t i = 0; i < ROOM; i++)
        memory[i] = (unsigned char)(i % 251);
    memcpy(before, memory, ROOM);
    memcpy(expected, memory, ROOM);
}

static void expect(size_t at, size_t bytes)
{
    assert_true(at + bytes <= ROOM);
    memset(expected + at, 0xff, bytes);
}

/* Fills, and looks at every byte of the memory; then restores, and looks again. */
static void check(const kvb_view *view, size_t row_bytes, uint64_t visible)
{
    assert_int_equal(kvb_poison_fill(&poison, view, HEADS, row_bytes, &visible), 0);
    assert_memory_equal(memory, expected, ROOM);
    kvb_poison_restore(&poison);
    assert_memory_equal(memory, before, ROOM);
}

static bool is_hidden(uint64_t visible, uint32_t c)
{
    return !(visible >> c & 1);
}

static void rows_with_gaps(void **state)
{
    static const kvb_format f32 = {.elem = KVB_F32};
    const kvb_view v = {
        .base = memory + 8, .head_stride = 1000, .cell_stride = 24, .cells = CELLS, .dim = 4, .format = &f32};
    const uint64_t visible = 0x0f5 | ~UINT64_C(0) << CELLS; /* bits past the cells mean nothing */
    (void)state;
    start();
    for (uint32_t h = 0; h < HEADS; h++)
        for (uint32_t c = 0; c < CELLS; c++)
            if (is_hidden(visible, c))
                expect(8 + h * 1000 + c * 24, 16);
    check(&v, 16, visible);
    start();
    check(&v, 16, (1u << CELLS) - 1); /* nothing is hidden */
}

static void scales_and_zeros(void **state)
{
    static const kvb_format a8 = {
        .elem = KVB_UINT8, .axis = KVB_AXIS_CHANNELS, .group = 32, .scale_elem = KVB_F16, .zero_elem = KVB_F16};
    static const kvb_format int8 = {
        .elem = KVB_INT8, .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32};
    kvb_view v = {.base = memory,
                  .head_stride = 64 * CELLS,
                  .cell_stride = 64,
                  .cells = CELLS,
                  .dim = 64,
                  .scales = memory + 2000,
                  .scale_head_stride = 200,
                  .scale_cell_stride = 4,
                  .zero_head_stride = 200,
                  .zero_cell_stride = 6};
    (void)state;
    for (int zeros = 0; zeros < 2; zeros++) {
        v.format = zeros ? &a8 : &int8;
        v.zeros = zeros ? memory + 3000 : NULL;
        start();
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t c = 3; c < CELLS; c++) {
                expect(h * 64 * CELLS + c * 64, 64);
                expect(2000 + h * 200 + c * 4, 4); /* a8: two groups */
                if (zeros)
                    expect(3000 + h * 200 + c * 6, 4);
            }
        check(&v, 64, 7);
    }
}

/* A table of scales for 4 cells each; the cells of the second four are f16. */
static void shared_scales_and_recent_rows(void **state)
{
    static const kvb_format kivi = {.elem = KVB_UINT4,
                                    .axis = KVB_AXIS_TOKENS,
                                    .group = 4,
                                    .scale_elem = KVB_F16,
                                    .zero_elem = KVB_F16,
                                    .residual_cells = 4};
    static const uint32_t slots[] = {KVB_SLOT_NONE, SLOT, KVB_SLOT_NONE};
    const kvb_view v = {.base = memory,
                        .head_stride = 100,
                        .cell_stride = 8,
                        .cells = CELLS - 1, /* the last group is not full */
                        .dim = 16,
                        .format = &kivi,
                        .scales = memory + 300,
                        .scale_head_stride = 100,
                        .scale_cell_stride = 32,
                        .zeros = memory + 600,
                        .zero_head_stride = 100,
                        .zero_cell_stride = 32,
                        .recent = memory + 900,
                        .recent_slot = slots,
                        .recent_slot_stride = 256,
                        .recent_head_stride = 128};
    const uint64_t visible = 1 << 2 | 1 << 5; /* so the scales of the third four alone are hidden */
    (void)state;
    start();
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t c = 0; c < CELLS - 1; c++) {
            if (is_hidden(visible, c))
                expect(h * 100 + c * 8, 8);
            if (is_hidden(visible, c) && c / 4 == 1)
                expect(900 + SLOT * 256 + h * 128 + c % 4 * 32, 32);
        }
        expect(300 + h * 100 + 2 * 32, 32);
        expect(600 + h * 100 + 2 * 32, 32);
    }
    check(&v, 8, visible);
}

/* A plug-in's own encoding: what lies at base is row_bytes less the tables that the format names, and ends before the
 * next row. */
static void opaque_rows(void **state)
{
    static const kvb_format told = {.elem = KVB_OPAQUE, .axis = KVB_AXIS_CHANNELS, .group = 8, .scale_elem = KVB_F32},
                            untold = {.elem = KVB_OPAQUE, .axis = KVB_AXIS_TOKENS};
    kvb_view v = {.base = memory,
                  .head_stride = 20,
                  .cell_stride = 48,
                  .cells = CELLS,
                  .dim = 16,
                  .format = &told,
                  .scales = memory + 2000,
                  .scale_head_stride = 100,
                  .scale_cell_stride = 8};
    const uint64_t visible = 0x0f5;
    (void)state;
    for (int named = 1; named >= 0; named--) {
        start();
        v.format = named ? &told : &untold;
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t c = 0; c < CELLS; c++)
                if (is_hidden(visible, c)) {
                    expect(h * 20 + c * 48, named ? 16 : 20);
                    if (named)
                        expect(2000 + h * 100 + c * 8, 8);
                }
        check(&v, 24, visible);
    }
}

/* Views of K and V that overlap, filled one after the other. */
static void overlaps_come_back(void **state)
{
    static const kvb_format f32 = {.elem = KVB_F32};
    const kvb_view k = {
        .base = memory, .head_stride = 400, .cell_stride = 32, .cells = CELLS, .dim = 8, .format = &f32};
    kvb_view v = k;
    const uint64_t visible = 0x11;
    (void)state;
    v.base = memory + 12;
    start();
    assert_int_equal(kvb_poison_fill(&poison, &k, HEADS, 32, &visible), 0);
    assert_int_equal(kvb_poison_fill(&poison, &v, HEADS, 32, &visible), 0);
    kvb_poison_restore(&poison);
    assert_memory_equal(memory, before, ROOM);
}

static int poison_end(void **state)
{
    (void)state;
    kvb_poison_free(&poison);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_with_gaps),
        cmocka_unit_test(scales_and_zeros),
        cmocka_unit_test(shared_scales_and_recent_rows),
        cmocka_unit_test(opaque_rows),
        cmocka_unit_test(overlaps_come_back),
    };
    return cmocka_run_group_tests_name("poison", tests, NULL, poison_end);
}
