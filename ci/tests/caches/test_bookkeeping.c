/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the bookkeeping by itself, integers only: lists of spans against an array, runs and masks of plans by hand. */
#include "rig.h"

#include "caches/bookkeeping/plan.h"

/* ---- spans against an array of what lies at each position -------------------------------------------------- */

enum { POSITIONS = 40, NOTHING = 0 };

static uint32_t draw(uint32_t n)
{
    static uint64_t seed = 88172645463325252u;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 20) % n;
}

static void spans_check(const kvb_spans *s, const uint64_t *at)
{
    uint32_t tokens = 0, next = 0;
    for (size_t i = 0; i < s->n; i++) {
        assert_true(s->span[i].n > 0 && (i == 0 || s->span[i].pos >= s->span[i - 1].pos + s->span[i - 1].n));
        for (uint32_t j = 0; j < s->span[i].n; j++)
            assert_int_equal(s->span[i].at + j, at[s->span[i].pos + j]);
    }
    for (uint32_t p = 0; p < POSITIONS; p++) {
        tokens += at[p] != NOTHING;
        next = at[p] != NOTHING ? p + 1 : next;
    }
    assert_int_equal(s->tokens, tokens);
    assert_int_equal(kvb_spans_next(s), next);
}

/* Two lists, one of which is added to the other now and then. What was added together is one span again. */
static void test_spans(void **state)
{
    (void)state;
    kvb_allocator a = {0};
    kvb_spans s[2] = {{0}, {0}};
    uint64_t at[2][POSITIONS] = {{0}, {0}}, next = 1;
    uint32_t added = 0;
    for (uint32_t i = 0; i < 40000; i++) {
        uint32_t me = draw(2), p0 = draw(POSITIONS), p1 = draw(3) ? p0 + draw(6) : UINT32_MAX, where, want = UINT32_MAX;
        uint32_t end = p1 < POSITIONS ? p1 : POSITIONS, pos = kvb_spans_next(&s[me]) + (draw(4) == 0);
        switch (draw(4)) {
        case 0:
        case 1:
            assert_int_equal(kvb_spans_reserve(&s[me], &a, 1), 0);
            next += draw(4) == 0;
            if (pos < POSITIONS) {
                kvb_spans_append(&s[me], pos, next);
                at[me][pos] = next++;
            }
            break;
        case 2:
            for (uint32_t p = end; p-- > p0;)
                want = at[0][p] && at[1][p] ? p : want;
            assert_int_equal(kvb_spans_meet(&s[0], &s[1], p0, p1, &where), want != UINT32_MAX);
            if (want != UINT32_MAX) {
                assert_int_equal(where, want);
                break;
            }
            assert_int_equal(kvb_spans_reserve(&s[me], &a, s[!me].n), 0);
            kvb_spans_add(&s[me], &s[!me], p0, p1);
            for (uint32_t p = p0; p < end; p++) {
                added += at[!me][p] != NOTHING;
                at[me][p] = at[!me][p] ? at[!me][p] : at[me][p];
            }
            for (size_t k = 1; k < s[me].n; k++) { /* nothing is left that could be joined */
                const kvb_span *x = &s[me].span[k - 1];
                assert_false(x->pos + x->n == x[1].pos && x->at + x->n == x[1].at);
            }
            break;
        default:
            assert_int_equal(kvb_spans_reserve(&s[me], &a, 1), 0);
            kvb_spans_cut(&s[me], p0, p1);
            for (uint32_t p = p0; p < end; p++)
                at[me][p] = NOTHING;
        }
        spans_check(&s[0], at[0]);
        spans_check(&s[1], at[1]);
    }
    assert_true(added > 1000);
    kvb_spans_free(&s[0], &a);
    kvb_spans_free(&s[1], &a);
    assert_int_equal(a.current_bytes, 0);
}

/* Positions 4 and 5 move down by 2, to where nothing lies; 6, right behind them, and 7 stay. */
static void test_shift_of_the_middle(void **state)
{
    kvb_allocator allocator = {0};
    kvb_account a = {.allocator = &allocator, .seq_capacity = 8, .max_seqs = 1, .n_ids = 1};
    const kvb_change step = {.kind = KVB_CHANGE_STEP, .n = 8}, remove = {.kind = KVB_CHANGE_REMOVE, .p0 = 2, .p1 = 4},
                     shift = {.kind = KVB_CHANGE_SHIFT, .p0 = 4, .p1 = 6, .delta = -2};
    uint32_t positions[8];
    char why[100];
    (void)state;
    assert_int_equal(kvb_account_open(&a), 0);
    assert_int_equal(kvb_account_reserve(&a, &step), 0);
    kvb_account_admit(&a, &step, positions);
    for (int i = 0; i < 2; i++) {
        const kvb_change *change = i ? &shift : &remove;
        assert_int_equal(kvb_account_check(&a, change, why, sizeof why), 0);
        assert_int_equal(kvb_account_reserve(&a, change), 0);
        kvb_account_apply(&a, change);
    }
    const uint64_t revision = UINT64_C(1) << KVB_REVISION_AT;
    const kvb_span want[] = {{0, 0, 2}, {revision | 4, 2, 2}, {6, 6, 2}};
    assert_int_equal(a.seq[0].n, N(want));
    for (uint32_t i = 0; i < N(want); i++)
        assert_true(a.seq[0].span[i].at == want[i].at && a.seq[0].span[i].pos == want[i].pos &&
                    a.seq[0].span[i].n == want[i].n);
    assert_true(a.held == 6 && a.seq[0].tokens == 6 && a.next_ordinal == 8 && a.shifts == 1 && a.shifted);
    kvb_account_close(&a);
    assert_int_equal(allocator.current_bytes, 0);
}

/* ---- plans -------------------------------------------------------------------------------------------------- */

static void test_first_seen(void **state)
{
    (void)state;
    static const struct {
        kvb_group group;
        uint32_t pos, first;
    } cases[] = {
        {{0}, 0, 0},
        {{0}, UINT32_MAX, 0},
        {{.window = 1}, 0, 0},
        {{.window = 1}, 7, 7},
        {{.window = 4}, 2, 0},
        {{.window = 4}, 3, 0},
        {{.window = 4}, 4, 1},
        {{.window = 4}, UINT32_MAX, UINT32_MAX - 3},
        {{.chunk = 4}, 3, 0},
        {{.chunk = 4}, 4, 4},
        {{.chunk = 4}, 7, 4},
        {{.window = UINT32_MAX}, UINT32_MAX, 1},
        {{.chunk = 1}, 9, 9},
        {{.chunk = 5}, 14, 10},
        {{.window = 9, .sinks = 3}, 20, 12},
    };
    for (size_t i = 0; i < N(cases); i++)
        assert_int_equal(kvb_first_seen(&cases[i].group, cases[i].pos), cases[i].first);
}

/* Queries of one sequence, whose positions 0 to 3 lie in cells 0 to 3, 4 and 5 in cells 6 and 7, 6 in cell 4 and 9 in
 * cell 5. */
static void test_runs(void **state)
{
    (void)state;
    kvb_span lie[] = {{0, 0, 4}, {6, 4, 2}, {4, 6, 1}, {5, 9, 1}};
    const kvb_spans spans = {.span = lie, .n = N(lie), .tokens = 8};
    static const struct {
        kvb_group group;
        uint32_t n, pos[2];
        kvb_mask_kind mask;
        uint32_t row_start[3];
        kvb_run runs[5];
        uint32_t extent;
    } cases[] = {
        {{0}, 1, {3}, KVB_MASK_NONE, {0, 1}, {{0, 4}}, 4},
        {{0}, 2, {2, 3}, KVB_MASK_CAUSAL, {0, 1, 2}, {{0, 3}, {0, 4}}, 4},
        {{0}, 2, {3, 2}, KVB_MASK_RUNS, {0, 1, 2}, {{0, 4}, {0, 3}}, 4},
        {{0}, 2, {3, 3}, KVB_MASK_RUNS, {0, 1, 2}, {{0, 4}, {0, 4}}, 4},
        {{0}, 2, {1, 3}, KVB_MASK_RUNS, {0, 1, 2}, {{0, 2}, {0, 4}}, 4},
        {{0}, 1, {5}, KVB_MASK_RUNS, {0, 2}, {{0, 4}, {6, 8}}, 8},
        {{0}, 2, {6, 9}, KVB_MASK_RUNS, {0, 2, 3}, {{0, 5}, {6, 8}, {0, 8}}, 8}, /* ascending, joined */
        {{0}, 1, {8}, KVB_MASK_RUNS, {0, 2}, {{0, 5}, {6, 8}}, 8},
        {{0}, 1, {9}, KVB_MASK_NONE, {0, 1}, {{0, 8}}, 8}, /* in no order, but all of them */
        /* With limits: in the order of positions. */
        {{.window = 3}, 1, {6}, KVB_MASK_RUNS, {0, 2}, {{6, 8}, {4, 5}}, 8},
        {{.window = 1}, 2, {2, 3}, KVB_MASK_RUNS, {0, 1, 2}, {{2, 3}, {3, 4}}, 4},
        {{.window = 4}, 1, {9}, KVB_MASK_RUNS, {0, 1}, {{4, 6}}, 6},
        {{.window = 4}, 2, {3, 4}, KVB_MASK_RUNS, {0, 1, 3}, {{0, 4}, {1, 4}, {6, 7}}, 7},
        {{.window = 4}, 2, {2, 3}, KVB_MASK_CAUSAL, {0, 1, 2}, {{0, 3}, {0, 4}}, 4}, /* not passed yet */
        {{.window = 3, .sinks = 1}, 1, {6}, KVB_MASK_RUNS, {0, 3}, {{0, 1}, {6, 8}, {4, 5}}, 8},
        {{.window = 3, .sinks = 9}, 1, {6}, KVB_MASK_RUNS, {0, 3}, {{0, 4}, {6, 8}, {4, 5}}, 8},
        {{.window = 6, .sinks = 1}, 1, {6}, KVB_MASK_RUNS, {0, 3}, {{0, 4}, {6, 8}, {4, 5}}, 8}, /* they touch */
        {{.window = 5, .sinks = 1}, 1, {6}, KVB_MASK_RUNS, {0, 4}, {{0, 1}, {2, 4}, {6, 8}, {4, 5}}, 8},
        {{.chunk = 4}, 2, {3, 6}, KVB_MASK_RUNS, {0, 1, 3}, {{0, 4}, {6, 8}, {4, 5}}, 8},
        {{.chunk = 3}, 1, {9}, KVB_MASK_RUNS, {0, 1}, {{5, 6}}, 6},
    };
    kvb_allocator a = {0};
    kvb_plan plan = {.allocator = &a};
    for (size_t i = 0; i < N(cases); i++) {
        assert_int_equal(kvb_plan_start(&plan, cases[i].n), 0);
        for (uint32_t q = 0; q < cases[i].n; q++) {
            plan.cells[q] = 3 + 2 * q;
            assert_int_equal(kvb_plan_attend(&plan, &cases[i].group, &spans, cases[i].pos[q]), 0);
        }
        kvb_plan_finish(&plan);
        assert_memory_equal(plan.row_start, cases[i].row_start, (cases[i].n + 1) * sizeof(uint32_t));
        assert_memory_equal(plan.runs, cases[i].runs, plan.n_runs * sizeof(kvb_run));
        if (plan.mask != cases[i].mask)
            fail_msg("case %zu: mask %d", i, (int)plan.mask);
        assert_int_equal(plan.extent, cases[i].extent);
        assert_int_equal(plan.is_run, cases[i].n == 1);
        assert_int_equal(kvb_plan_mask(&plan).kind, cases[i].mask);
    }
    kvb_plan_close(&plan);
    assert_int_equal(a.current_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spans), cmocka_unit_test(test_shift_of_the_middle),
                                       cmocka_unit_test(test_first_seen), cmocka_unit_test(test_runs)};
    return cmocka_run_group_tests_name("bookkeeping", tests, NULL, NULL);
}
