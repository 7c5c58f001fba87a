/* SPDX-License-Identifier: Apache-2.0 */
/* Who runs when, and what a base differs from itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/duel/plugins.h"
#include "harness/duel/interleave.h"

/* Two sides go A B, B A, A B, B A. */
static void test_two(void **state)
{
    static const size_t want[] = {0, 1, 1, 0, 0, 1, 1, 0};
    (void)state;
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(kvb_interleave_turn(2, i / 2, i % 2), want[i]);
}

/* Each side has each place equally often, comes after all, and stands to those that it comes after as any other does. */
static void test_balance(void **state)
{
    (void)state;
    for (size_t n = 2; n <= 3; n++) {
        size_t rounds = 2 * n, in_place[3][3] = {{0}}, after[3][3] = {{0}};
        for (size_t i = 0; i < rounds * n; i++) {
            size_t now = kvb_interleave_turn(n, i / n, i % n), next = kvb_interleave_turn(n, (i + 1) / n, (i + 1) % n);
            in_place[now][i % n]++;
            after[now][next]++;
        }
        for (size_t a = 0; a < n; a++)
            for (size_t b = 0; b < n; b++) {
                assert_int_equal(in_place[a][b], 2);
                assert_true(after[a][b] > 0);
                assert_int_equal(after[a][b], after[(a + 1) % n][(b + 1) % n]);
            }
    }
}

/* Both drift to the double; one is 3 % slower all the time. */
static void test_null(void **state)
{
    kvb_result a, b;
    (void)state;
    kvb_result_init(&a);
    kvb_result_init(&b);
    assert_true(isnan(kvb_duel_null(&a, &b)));
    a.time.n_series = 40;
    b.time.n_series = 38; /* it ended earlier */
    for (size_t i = 0; i < 40; i++) {
        a.time.series[i] = 1000 * (1 + (double)i / 40);
        b.time.series[i] = 1.03 * a.time.series[i];
    }
    assert_float_equal(kvb_duel_null(&a, &b), 0.03, 1e-12);
    assert_float_equal(kvb_duel_null(&a, &a), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two),
        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_null),
    };
    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
