/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: an order that is repeated to the bit has the lanes, folds, multiply-adds, tiles and parts that it declares, on
 * numbers of which each other order gives another sum; tiles that are not the visible cells, each once, are refused.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#include "oracle/exact.h"

#define TINY 0x1p-24 /* 1 + TINY is 1, TINY + TINY + 1 is more */

enum { CELLS = 3 };
static const kvb_format f32 = {.name = "f32", .elem = KVB_F32};

/* The lse of one cell: the dot product of its row k and the query q. */
static float dot(const kvb_order *order, const float *q, const double *k, uint32_t dim)
{
    const kvb_attend call = {.problem = {.n_tok = 1,
                                         .n_heads = 1,
                                         .n_kv_heads = 1,
                                         .k_dim = dim,
                                         .v_dim = 1,
                                         .n_cells = 1,
                                         .scale = 1,
                                         .k_format = &f32,
                                         .v_format = &f32},
                             .q = q};
    const kvb_token_run run = {0, 1};
    const kvb_exact_rows rows = {.k = k, .v = k, .k_width = dim, .v_width = dim, .cells = 1, .runs = &run, .n_runs = 1};
    float out, lse;
    char why[128];
    assert_int_equal(kvb_exact_row(&call, order, &rows, 0, 0, &out, &lse, why, sizeof why), 0);
    return lse;
}

static void lanes_add_as_declared(void **state)
{
    static const float ones[] = {1, 1, 1, 1};
    static const double ascending[] = {TINY, TINY, 1, 0}, apart[] = {TINY, 1, TINY, 0};
    const kvb_order one = {.tile.dot = {.n = 1}}, two = {.tile.dot = {2, {1}}}, far = {.tile.dot = {4, {2, 1}}},
                    near = {.tile.dot = {4, {1, 2}}};
    (void)state;
    assert_true(dot(&one, ones, ascending, 4) == 1 + 0x1p-23f);
    assert_true(dot(&two, ones, ascending, 4) == 1);        /* TINY + 1, and TINY */
    assert_true(dot(&far, ones, apart, 4) == 1 + 0x1p-23f); /* TINY + TINY first */
    assert_true(dot(&near, ones, apart, 4) == 1);
}

static void products_round_unless_fused(void **state)
{
    static const float q[] = {-1, 1 + 0x1p-12f};
    static const double k[] = {1 + 0x1p-11, 1 + 0x1p-12};
    const kvb_order rounded = {.tile.dot = {.n = 1}}, fused = {.fused = true, .tile.dot = {.n = 1}};
    (void)state;
    assert_true(dot(&rounded, q, k, 2) == 0);
    assert_true(dot(&fused, q, k, 2) == 0x1p-24f);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Cells of a tile each, up to KVB_CELL_NONE; a tile that begins a part comes after `part` others. */
static struct {
    uint32_t cells[5], part;
} plan;

static void tiles(const kvb_attend *call, uint32_t row, kvb_tile_take *take, void *ctx)
{
    (void)call, (void)row;
    for (uint32_t i = 0; plan.cells[i] != KVB_CELL_NONE; i++)
        take(ctx, &(kvb_order_tile){.cells = 1, .dot.n = 1, .part = plan.part && i == plan.part}, &plan.cells[i]);
}

static float power(float x)
{
    return exp2f(x);
}

/* Equal weights; V is 1, TINY, TINY. The sum, or -1: refused. */
static float sum(kvb_softmax softmax, const uint32_t cells[5], uint32_t part, char *why, size_t why_bytes)
{
    static const float q[] = {0};
    static const double k[CELLS] = {0}, v[CELLS] = {1, TINY, TINY};
    const kvb_order order = {.softmax = softmax, .exp = power, .tiles = tiles};
    const kvb_attend call = {.problem = {.n_tok = 1,
                                         .n_heads = 1,
                                         .n_kv_heads = 1,
                                         .k_dim = 1,
                                         .v_dim = 1,
                                         .n_cells = CELLS,
                                         .scale = 1,
                                         .k_format = &f32,
                                         .v_format = &f32},
                             .q = q};
    const kvb_token_run run = {0, CELLS};
    const kvb_exact_rows rows = {.k = k, .v = v, .k_width = 1, .v_width = 1, .cells = CELLS, .runs = &run, .n_runs = 1};
    float out, lse;
    memcpy(plan.cells, cells, sizeof plan.cells);
    plan.part = part;
    const int error = kvb_exact_row(&call, &order, &rows, 0, 0, &out, &lse, why, why_bytes);
    assert_true(!error || error == -EILSEQ);
    return error ? -1 : out;
}

#define NONE KVB_CELL_NONE
static void cells_add_as_declared(void **state)
{
    static const uint32_t down[] = {0, 1, 2, NONE, NONE}, up[] = {2, 1, 0, NONE, NONE};
    const float third = (float)(1.0 / 3), most = 1 + 0x1p-23f;
    char why[128];
    (void)state;
    for (int softmax = KVB_SOFTMAX_TWO_PASSES; softmax <= KVB_SOFTMAX_ONLINE; softmax++) {
        assert_true(sum((kvb_softmax)softmax, down, 0, why, sizeof why) == 1 / 3.0f);
        assert_true(sum((kvb_softmax)softmax, up, 0, why, sizeof why) == most / 3.0f);
    }
    assert_true(sum(KVB_SOFTMAX_POWERS, down, 0, why, sizeof why) == third);
    assert_true(sum(KVB_SOFTMAX_POWERS, up, 0, why, sizeof why) == most * third);
    assert_true(sum(KVB_SOFTMAX_POWERS, down, 1, why, sizeof why) == most * third); /* 1, and TINY + TINY */
}

static void other_cells_are_refused(void **state)
{
    static const struct {
        uint32_t cells[5];
        const char *why;
    } wrong[] = {
        {{0, 1, NONE, NONE, NONE}, "its order does not meet the cell of row 2"},
        {{0, 1, 2, 1, NONE}, "its order meets, unseen or again, cell 1"},
        {{0, 1, 2, 3, NONE}, "its order meets, unseen or again, cell 3"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char why[128] = "";
        assert_true(sum(KVB_SOFTMAX_ONLINE, wrong[i].cells, 0, why, sizeof why) == -1);
        assert_string_equal(why, wrong[i].why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_add_as_declared),
        cmocka_unit_test(products_round_unless_fused),
        cmocka_unit_test(cells_add_as_declared),
        cmocka_unit_test(other_cells_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
