/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the bookkeeping by itself, integers only: cells, runs of plans, segments, rows, tree nodes, ledger. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "caches/bookkeeping/cells.h"
#include "caches/bookkeeping/ledger.h"
#include "caches/bookkeeping/plan.h"
#include "caches/bookkeeping/row_slots.h"
#include "caches/bookkeeping/tree_nodes.h"
#include "caches/bookkeeping/visible.h"

static char why[160];

/* Admit n tokens of a sequence; the cells they got in picked. */
static void cells_add(kvb_cells *cells, uint32_t seq, uint32_t n, uint32_t *picked)
{
    uint32_t ids[16], positions[16];
    for (uint32_t i = 0; i < n; i++)
        ids[i] = seq;
    kvb_cells_pick(cells, n, picked);
    assert_int_equal(kvb_cells_reserve(cells, picked[n - 1] + 1), 0);
    kvb_step_positions(&cells->lens, ids, n, positions);
    kvb_cells_occupy(cells, picked, ids, positions, n);
}

static void test_cells_first_fit(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_cells cells;
    uint32_t got[16];
    kvb_cells_open(&cells, &a, 12);
    cells_add(&cells, 0, 4, got);
    cells_add(&cells, 1, 4, got);
    assert_int_equal(got[0], 4);
    kvb_cells_leave(&cells, 0, 1, 3); /* cells 1 and 2 are free */
    assert_int_equal(cells.live, 6);
    assert_int_equal(cells.high_water, 8);
    assert_int_equal(cells.lens.next[0], 4);
    assert_int_equal(cells.lens.count[0], 2);
    cells_add(&cells, 1, 3, got); /* no run of 3 below: at the tail */
    assert_int_equal(got[0], 8);
    cells_add(&cells, 1, 2, got); /* the hole fits */
    assert_int_equal(got[0], 1);
    assert_int_equal(got[1], 2);
    kvb_cells_leave(&cells, 0, 0, 1);
    cells_add(&cells, 2, 2, got); /* no run of 2 left: cells 0 and 11 */
    assert_int_equal(got[0], 0);
    assert_int_equal(got[1], 11);
    assert_int_equal(cells.live, 12);
    kvb_cells_close(&cells);
    assert_int_equal(a.current_bytes, 0);
}

static void test_cells_members(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_cells cells;
    uint32_t got[16];
    kvb_cells_open(&cells, &a, 32);
    cells_add(&cells, 0, 6, got);
    kvb_cells_share(&cells, 0, 63, 0, 4);
    assert_int_equal(cells.live, 6);
    assert_int_equal(cells.lens.next[63], 4);
    kvb_cells_leave(&cells, 0, 0, UINT32_MAX);
    assert_int_equal(cells.live, 4); /* those that 63 still holds */
    assert_int_equal(cells.high_water, 4);
    assert_true(cells.lens.alive == kvb_seq_bit(63));
    cells_add(&cells, 5, 2, got);
    kvb_cells_keep(&cells, 5);
    assert_int_equal(cells.live, 2);
    assert_int_equal(cells.high_water, 6);
    assert_int_equal(cells.first_free, 0);
    kvb_cells_clear(&cells);
    assert_int_equal(cells.live + cells.high_water, 0);
    assert_true(cells.lens.alive == 0);
    kvb_cells_close(&cells);
    assert_int_equal(a.current_bytes, 0);
}

static void test_cells_in_order(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_cells cells;
    uint32_t got[16];
    kvb_cells_open(&cells, &a, 32);
    cells_add(&cells, 3, 5, got);
    assert_true(kvb_cells_in_order(&cells, 3));
    assert_false(kvb_cells_in_order(&cells, 2));
    kvb_cells_share(&cells, 3, 4, 0, UINT32_MAX);
    assert_true(kvb_cells_in_order(&cells, 4)); /* sharing does not matter */
    cells_add(&cells, 4, 1, got);
    assert_true(kvb_cells_in_order(&cells, 4));
    assert_false(kvb_cells_in_order(&cells, 3)); /* cell 5 is of 4 alone */
    kvb_cells_leave(&cells, 3, 0, UINT32_MAX);
    kvb_cells_leave(&cells, 4, 1, 2);
    assert_false(kvb_cells_in_order(&cells, 4)); /* a hole */
    cells_add(&cells, 4, 1, got);
    assert_int_equal(got[0], 1);
    assert_false(kvb_cells_in_order(&cells, 4)); /* no hole, but position 6 in cell 1 */
    kvb_cells_close(&cells);
}

static void test_cells_vacate(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_cells cells;
    uint32_t got[16];
    kvb_cells_open(&cells, &a, 32);
    cells_add(&cells, 0, 3, got);
    assert_int_equal(kvb_cells_reserve(&cells, 6), 0);
    kvb_cells before = cells;
    cells_add(&cells, 1, 3, got);
    kvb_cells_vacate(&cells, &before, got, 3);
    assert_int_equal(cells.live, 3);
    assert_int_equal(cells.high_water, 3);
    assert_true(cells.lens.alive == 1);
    cells_add(&cells, 2, 3, got);
    assert_int_equal(got[0], 3);
    kvb_cells_leave(&cells, 0, 1, 2);
    before = cells;
    cells_add(&cells, 1, 1, got);
    assert_int_equal(got[0], 1);
    kvb_cells_vacate(&cells, &before, got, 1);
    cells_add(&cells, 1, 1, got); /* the hole is one again */
    assert_int_equal(got[0], 1);
    kvb_cells_close(&cells);
}

static void test_step_check(void **state)
{
    (void)state;
    kvb_seq_lens lens = {0};
    kvb_seq_lens_add(&lens, 3, 0); /* sequences 0 and 1 share position 0 */
    kvb_seq_lens_add(&lens, 1, 1);
    const kvb_step_limits limits = {.free_cells = 4, .seq_capacity = 4, .max_seqs = 3};
    const kvb_step_limits long_seqs = {.free_cells = 4, .seq_capacity = 9, .max_seqs = 3};
    const uint32_t ids[] = {0, 1, 0, 2}, bad[] = {64}, many[] = {2, 3}, five[5] = {1, 1, 1, 1, 1};
    uint32_t positions[4];
    uint64_t seqs;
    assert_int_equal(kvb_step_check(&lens, ids, 4, &limits, &seqs, why, sizeof why), 0);
    assert_true(seqs == 7);
    kvb_step_positions(&lens, ids, 4, positions);
    assert_memory_equal(positions, ((uint32_t[]){2, 1, 3, 0}), sizeof positions);
    assert_int_equal(kvb_step_check(&lens, ids, 0, &limits, &seqs, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_step_check(&lens, bad, 1, &limits, &seqs, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "64"));
    assert_int_equal(kvb_step_check(&lens, many, 2, &limits, &seqs, why, sizeof why), -ENOSPC); /* sequences */
    assert_int_equal(kvb_step_check(&lens, five, 4, &long_seqs, &seqs, why, sizeof why), 0);
    assert_int_equal(kvb_step_check(&lens, five, 5, &long_seqs, &seqs, why, sizeof why), -ENOSPC); /* cells */
    assert_int_equal(kvb_step_check(&lens, five, 4, &limits, &seqs, why, sizeof why), -ENOSPC);    /* positions */
    assert_int_equal(kvb_step_check(&lens, NULL, 2, &limits, &seqs, why, sizeof why), 0);
    assert_int_equal(kvb_step_check(&lens, NULL, 3, &limits, &seqs, why, sizeof why), -ENOSPC);
}

static void test_plan_runs(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_plan plan;
    kvb_plan_open(&plan, &a);
    assert_int_equal(kvb_plan_start(&plan, 2), 0);
    assert_int_equal(kvb_plan_see(&plan, 0, 2), 0);
    assert_int_equal(kvb_plan_see(&plan, 2, 2), 0); /* empty */
    assert_int_equal(kvb_plan_see(&plan, 2, 4), 0); /* joined */
    kvb_plan_next_query(&plan);
    assert_int_equal(kvb_plan_see(&plan, 4, 5), 0); /* another query: not joined */
    assert_int_equal(kvb_plan_see(&plan, 7, 8), 0);
    kvb_plan_next_query(&plan);
    kvb_plan_mask_runs(&plan, 8);
    const kvb_run want[] = {{0, 4}, {4, 5}, {7, 8}};
    assert_int_equal(plan.n_runs, 3);
    assert_memory_equal(plan.runs, want, sizeof want);
    assert_memory_equal(plan.row_start, ((uint32_t[]){0, 1, 3}), 3 * sizeof(uint32_t));
    plan.cells[0] = 3, plan.cells[1] = 4;
    kvb_plan_cells_finish(&plan);
    assert_true(plan.is_run);
    plan.cells[1] = 5;
    kvb_plan_cells_finish(&plan);
    assert_false(plan.is_run);
    kvb_plan_close(&plan);
    assert_int_equal(a.current_bytes, 0);
}

static void test_visible_segments(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_visible visible;
    kvb_plan plan;
    /* cells 0..6; sequence 0: positions 0 1 . 2 7 3 .; sequence 1: . 1 . 2 . . 0 */
    const uint32_t pos[] = {0, 1, 9, 2, 7, 3, 0};
    const uint64_t seqs[] = {1, 3, 0, 3, 1, 1, 2};
    kvb_visible_open(&visible, &a);
    kvb_plan_open(&plan, &a);
    assert_int_equal(kvb_plan_start(&plan, 3), 0);
    assert_int_equal(kvb_visible_cut(&visible, pos, seqs, 7, 3), 0);
    assert_int_equal(kvb_visible_see(&visible, 0, 3, &plan), 0);
    assert_int_equal(kvb_visible_see(&visible, 1, 1, &plan), 0);
    assert_int_equal(kvb_visible_see(&visible, 0, 7, &plan), 0);
    const kvb_run want[] = {{0, 2}, {3, 4}, {5, 6}, {1, 2}, {6, 7}, {0, 2}, {3, 6}};
    assert_memory_equal(plan.row_start, ((uint32_t[]){0, 3, 5, 7}), 4 * sizeof(uint32_t));
    assert_memory_equal(plan.runs, want, sizeof want);
    kvb_plan_close(&plan);
    kvb_visible_close(&visible);
    assert_int_equal(a.current_bytes, 0);
}

static void test_row_slots(void **state)
{
    (void)state;
    kvb_row_slots slots;
    kvb_row_slots_open(&slots, 2, 10);
    assert_int_equal(kvb_row_slots_add(&slots, 7), 0);
    assert_int_equal(kvb_row_slots_add(&slots, 3), 10);
    assert_int_equal(kvb_row_slots_add(&slots, 7), 1);
    assert_int_equal(slots.live, 3);
    assert_int_equal(kvb_row_slots_high_water(&slots), 11);
    kvb_row_slots_cut(&slots, 7, 0);
    assert_int_equal(slots.live, 1);
    assert_int_equal(kvb_row_slots_add(&slots, 1), 0); /* the row that 7 left */
    kvb_row_slots_cut(&slots, 3, 5);                   /* longer than it is: nothing */
    assert_int_equal(slots.live, 2);
}

static void test_tree_nodes(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_tree_nodes nodes;
    const int32_t parents[] = {-1, 0, 0, 1, 3}, bad[] = {5}, self[] = {6}, low[] = {-2};
    kvb_tree_nodes_open(&nodes, &a);
    assert_int_equal(kvb_tree_nodes_check(&nodes, parents, 5, why, sizeof why), 0);
    assert_int_equal(kvb_tree_nodes_reserve(&nodes, 5), 0);
    kvb_tree_nodes_add(&nodes, parents, 2);
    assert_true(nodes.chain);
    kvb_tree_nodes_add(&nodes, parents + 2, 3);
    assert_false(nodes.chain);
    assert_int_equal(kvb_tree_nodes_path(&nodes, 4), 4);
    assert_memory_equal(nodes.path, ((uint32_t[]){0, 1, 3, 4}), 4 * sizeof(uint32_t));
    assert_int_equal(kvb_tree_nodes_path(&nodes, 2), 2);
    assert_memory_equal(nodes.path, ((uint32_t[]){0, 2}), 2 * sizeof(uint32_t));
    assert_int_equal(kvb_tree_nodes_check(&nodes, bad, 1, why, sizeof why), -EINVAL); /* itself */
    assert_int_equal(kvb_tree_nodes_check(&nodes, self, 1, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_tree_nodes_check(&nodes, low, 1, why, sizeof why), -EINVAL);
    const uint32_t good[] = {0, 1, 3}, skips[] = {0, 3}, no_root[] = {1}, unknown[] = {0, 9};
    const uint32_t siblings[] = {0, 1, 2};
    assert_int_equal(kvb_tree_nodes_check_path(&nodes, good, 3, why, sizeof why), 0);
    assert_int_equal(kvb_tree_nodes_check_path(&nodes, skips, 2, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_tree_nodes_check_path(&nodes, siblings, 3, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_tree_nodes_check_path(&nodes, no_root, 1, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_tree_nodes_check_path(&nodes, unknown, 2, why, sizeof why), -EINVAL);
    kvb_tree_nodes_cut(&nodes, 2);
    assert_true(nodes.chain);
    kvb_tree_nodes_close(&nodes);
    assert_int_equal(a.current_bytes, 0);
}

static void test_ledger(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_ledger ledger;
    kvb_ledger_open(&ledger, &a);
    assert_int_equal(kvb_ledger_reserve(&ledger, 4), 0);
    for (uint32_t i = 0; i < 4; i++)
        kvb_ledger_add(&ledger, 10 + i, i, 0);
    kvb_ledger_share(&ledger, 0, 1, 1, 3);
    kvb_ledger_leave(&ledger, 0, 2, UINT32_MAX);
    assert_int_equal(ledger.n, 3);
    assert_memory_equal(ledger.ordinal, ((uint64_t[]){10, 11, 12}), 3 * sizeof(uint64_t));
    assert_memory_equal(ledger.seqs, ((uint64_t[]){1, 3, 2}), 3 * sizeof(uint64_t));
    assert_int_equal(ledger.lens.next[0], 2);
    assert_int_equal(ledger.lens.next[1], 3);
    kvb_ledger_keep(&ledger, 1);
    assert_int_equal(ledger.n, 2);
    kvb_ledger_clear(&ledger);
    assert_int_equal(ledger.n, 0);
    kvb_ledger_close(&ledger);
    assert_int_equal(a.current_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells_first_fit),  cmocka_unit_test(test_cells_members),
        cmocka_unit_test(test_cells_in_order),   cmocka_unit_test(test_cells_vacate),
        cmocka_unit_test(test_step_check),       cmocka_unit_test(test_plan_runs),
        cmocka_unit_test(test_visible_segments), cmocka_unit_test(test_row_slots),
        cmocka_unit_test(test_tree_nodes),       cmocka_unit_test(test_ledger),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("bookkeeping", tests, NULL, NULL);
}
