/* SPDX-License-Identifier: Apache-2.0 */
/* Shows by numbers worked out by hand what a row of the second opinion on scans keeps of a token. Its bound:
 * test_recurrence_values. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "oracle/recurrence.h"

enum { ROWS = 3, COLUMNS = 2 };

/* Floats that are not below, and hardly above. */
static void is_above(float got, double want)
{
    if (!((double)got >= want && (double)got <= want * (1 + 0x1p-20)))
        fail_msg("%.9g in place of %.9g", (double)got, want);
}

static kvb_scan_problem problem_of(kvb_scan_kind kind)
{
    return (kvb_scan_problem){
        .kind = kind, .heads = 1, .groups = 1, .d_k = ROWS, .d_v = COLUMNS, .state_elem = KVB_F32};
}

/* Columns (3, 4, 0) and (1, 2, 2) of a state in a lane. */
static void lane_fill(double *lane)
{
    static const double columns[COLUMNS][ROWS] = {{3, 4, 0}, {1, 2, 2}};
    for (uint32_t i = 0; i < ROWS * KVB_LANE_COLUMNS; i++)
        lane[i] = i % KVB_LANE_COLUMNS < COLUMNS ? columns[i % KVB_LANE_COLUMNS][i / KVB_LANE_COLUMNS] : 0;
}

static void written_to(void **state)
{
    /* k = (0, 0, -6), v = (-2, 1): the third row becomes 12 and -4; what is above it stays. No decay. */
    const kvb_scan_problem p = problem_of(KVB_SCAN_LIGHTNING);
    const float q[] = {2, -1, 2}, k[] = {0, 0, -6}, v[] = {-2, 1}, none = 0;
    double lane[ROWS * KVB_LANE_COLUMNS];
    kvb_glance_row row = {.q_norm = 0};
    (void)state;
    lane_fill(lane);
    kvb_glance_take(&p, &(kvb_recurrence_token){.q = q, .k = k, .v = v, .a = &none}, lane, &row);
    assert_true(lane[2 * KVB_LANE_COLUMNS] == 12 && lane[2 * KVB_LANE_COLUMNS + 1] == -4 && lane[0] == 3);
    assert_true(row.out[0] == 2 * 3 - 4 + 2 * 12 && row.out[1] == 2 - 2 - 2 * 4);
    is_above(row.q_norm, 3);
    is_above(row.k_norm, 6);
    is_above(row.k_most, 6);
    is_above(row.norm[0], 13);
    is_above(row.norm[1], sqrt(21));
    is_above(row.slow[0], 5);
    is_above(row.slow[1], sqrt(5));
    is_above(row.most[0], 12);
    is_above(row.most[1], 4);
    is_above(row.write[0], 2);
    is_above(row.write[1], 1);
    is_above(row.decay[1], 1);
    assert_true(row.size[0] == 0);
}

static void decayed(void **state)
{
    const float q[] = {0, 0, 1}, k[] = {1, 0, 0}, v[] = {4, -4, 9}, gate[] = {0.5f, 0.25f, 9};
    const float a[] = {-1, -2, -3, -0.5f, -2, -1, -9}, one = -2;
    kvb_scan_problem p = problem_of(KVB_SCAN_MAMBA1);
    double lane[ROWS * KVB_LANE_COLUMNS];
    kvb_glance_row row = {.q_norm = 0};
    (void)state;
    /* column 0 by e^-1/2, e^-3/2, e^-1; column 1 by e^-1/2, e^-1/8, e^-1/4; writes of 2 and -1 */
    lane_fill(lane);
    kvb_glance_take(&p, &(kvb_recurrence_token){.q = q, .k = k, .v = v, .gate = gate, .a = a}, lane, &row);
    is_above(row.decay[0], exp(-0.5));
    assert_true(row.decay[COLUMNS] == 0 && row.size[COLUMNS] == 0 && row.write[COLUMNS] == 0 && row.v[COLUMNS] == 0);
    is_above(row.decay[1], exp(-0.125));
    is_above(row.size[0], 1.5);
    is_above(row.size[1], 0.5);
    is_above(row.write[0], 2);
    is_above(row.write[1], 1);
    is_above(row.most[0], 3 * exp(-0.5) + 2);
    assert_true(fabs(row.out[1] - 2 * exp(-0.25)) < 1e-15 && row.slow[0] == 0);
    /* all by the gate of 1/2 times -2: e^-1, and writes of 2 and -2 */
    p.kind = KVB_SCAN_MAMBA2;
    lane_fill(lane);
    kvb_glance_take(&p, &(kvb_recurrence_token){.q = q, .k = k, .v = v, .gate = gate, .a = &one}, lane, &row);
    is_above(row.decay[0], exp(-1));
    is_above(row.size[1], 1);
    is_above(row.write[1], 2);
    is_above(row.norm[1], sqrt((exp(-1) - 2) * (exp(-1) - 2) + 8 * exp(-2)));
}

static void read_first(void **state)
{
    /* DELTA with k = (0, 2, 0), beta 1/2, alpha e^-1: reads e^-1 of 8 and 4; beta (v - read); 1 - beta k.k = -1, beta
     * ||k|| = 1 */
    const kvb_scan_problem p = problem_of(KVB_SCAN_DELTA);
    const float q[] = {0, 1, 0}, k[] = {0, 2, 0}, v[] = {-4, 6}, gate = -1, beta = 0.5f, large = 2;
    double lane[ROWS * KVB_LANE_COLUMNS];
    kvb_glance_row row = {.q_norm = 0};
    (void)state;
    lane_fill(lane);
    kvb_glance_take(&p, &(kvb_recurrence_token){.q = q, .k = k, .v = v, .gate = &gate, .beta = &beta}, lane, &row);
    is_above(row.write[0], 0.5 * (4 + 8 * exp(-1)));
    is_above(row.write[1], 0.5 * (6 - 4 * exp(-1)));
    is_above(row.v[0], 4);
    is_above(row.v[1], 6);
    is_above(row.along, 1);
    is_above(row.grow, 1);
    is_above(row.decay[0], exp(-1));
    is_above(row.size[0], 1);
    assert_true(fabs(row.out[0] - (4 * exp(-1) - (4 + 8 * exp(-1)))) < 1e-14);
    kvb_glance_take(&p, &(kvb_recurrence_token){.q = q, .k = k, .v = v, .gate = &gate, .beta = &large}, lane, &row);
    is_above(row.along, 4);
    is_above(row.grow, 7); /* 1 - 2 * 4 */
}

/* Of zeros nothing is off but the smallest number of the accumulator for each of 22,500 roundings, of q = (3, 4) by its
 * norm and the root of 2 elements, and that of out. */
static void zeros(void **state)
{
    const kvb_scan_problem p = {.kind = KVB_SCAN_LIGHTNING, .heads = 1, .groups = 1, .d_k = 2, .d_v = 1};
    const kvb_scan_arithmetic a = {.chunk = 1, .read_chain = 22500};
    const float q[] = {3, 4}, k[] = {0, 0}, none = 0;
    double lane[2 * KVB_LANE_COLUMNS] = {0};
    kvb_glance g = {.last = NULL};
    kvb_glance_row row = {.q_norm = 0};
    kvb_recurrence_want want;
    (void)state;
    kvb_glance_take(&p, &(kvb_recurrence_token){.q = q, .k = k, .v = &none, .a = &none}, lane, &row);
    kvb_glance_step(&g, &p, &a, &row, &want);
    assert_true(fabs(want.bound / (((5 * sqrt(2) + 1) * 22500 + 1) * 0x1p-149) - 1) < 1e-5);
}

/* DELTA besides: k = 3 and beta 1 write threefold what 10,000 roundings of zeros leave, and q = 2 reads it twice. Of
 * the recurrence as of the glance. */
static void zeros_that_are_solved_for(void **state)
{
    const kvb_scan_problem p = {.kind = KVB_SCAN_DELTA, .heads = 1, .groups = 1, .d_k = 1, .d_v = 1};
    const kvb_scan_arithmetic a = {.chunk = 1, .solve_chain = 10000};
    const float q = 2, k = 3, none = 0, one = 1;
    const kvb_recurrence_token token = {.q = &q, .k = &k, .v = &none, .gate = &none, .beta = &one};
    kvb_recurrence *r = kvb_recurrence_open(&p, &a);
    double lane[KVB_LANE_COLUMNS] = {0};
    kvb_glance g = {.last = NULL};
    kvb_glance_row row = {.q_norm = 0};
    kvb_recurrence_want want;
    (void)state;
    kvb_recurrence_step(r, &token, &want);
    assert_true(want.bound == 60001 * 0x1p-149 && want.worst == want.bound);
    kvb_glance_take(&p, &token, lane, &row);
    kvb_glance_step(&g, &p, &a, &row, &want);
    assert_true(fabs(want.bound / (60001 * 0x1p-149) - 1) < 1e-5);
    kvb_recurrence_close(r);
}

/* An element of 4 moves up by so much with one token, and down with the next. Where it is the same again at the end of
 * each chunk, or moves by less than its type shows, every rounding may be alike: of the recurrence as of the glance,
 * which must not be below it. */
static void stays_about_where_it_is(const kvb_scan_arithmetic *a, float by)
{
    kvb_scan_problem p = {
        .kind = KVB_SCAN_LIGHTNING, .heads = 1, .groups = 1, .d_k = 1, .d_v = 1, .state_elem = KVB_F32};
    kvb_recurrence *r = kvb_recurrence_open(&p, a);
    double lane[KVB_LANE_COLUMNS] = {0};
    kvb_glance g = {.last = NULL};
    static kvb_glance_row row[401];
    kvb_recurrence_want out, want;
    const float one = 1, none = 0;
    for (int t = 0; t <= 400; t++) {
        const float v = t == 0 ? 4 : t % 2 ? by : -by;
        const kvb_recurrence_token token = {.q = &one, .k = &one, .v = &v, .a = &none};
        row[t] = (kvb_glance_row){.q_norm = 0};
        kvb_recurrence_step(r, &token, &out);
        kvb_glance_take(&p, &token, lane, &row[t]);
        kvb_glance_step(&g, &p, a, &row[t], &want);
        if (t == 0) {
            kvb_recurrence_rest(r, false);
            kvb_glance_rest(&g, &p, a, false);
        }
    }
    assert_true(out.bound > 0.5 * out.worst); /* not by chance */
    assert_true(want.bound >= (1 - 1e-3) * out.bound && want.bound <= (1 + 1e-3) * out.worst);
    kvb_recurrence_close(r);
}

static void what_hardly_changes(void **state)
{
    const kvb_scan_arithmetic pairs = {.chunk = 2, .state_chain = 10000}, narrow = {.chunk = 1, .carried = KVB_BF16};
    (void)state;
    stays_about_where_it_is(&pairs, 1);
    stays_about_where_it_is(&narrow, 0.004f); /* of bf16: less than 0.0062 of itself */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(written_to),
                                       cmocka_unit_test(decayed),
                                       cmocka_unit_test(read_first),
                                       cmocka_unit_test(zeros),
                                       cmocka_unit_test(zeros_that_are_solved_for),
                                       cmocka_unit_test(what_hardly_changes)};
    return cmocka_run_group_tests_name("rows of a glance, by hand", tests, NULL, NULL);
}
