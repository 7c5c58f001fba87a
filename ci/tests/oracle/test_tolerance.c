/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: other projects' rules pass what they allow and refuse what is beyond, whatever is not finite. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "oracle/oracle.h"

static const kvb_tolerance nmse = {KVB_TOLERANCE_NMSE, 1e-2, 0, "here"};
static const kvb_tolerance close_to = {KVB_TOLERANCE_CLOSE, 0.5, 0.25, "here"};

static double share(const kvb_tolerance *rule, const float *got, const double *exact, uint32_t n)
{
    kvb_closeness c = {0};
    kvb_closeness_row(&c, rule, KVB_F32, got, n, exact, 1);
    return kvb_closeness_share(&c, rule);
}

static void squares_are_of_all_outputs(void **state)
{
    (void)state;
    const double exact[] = {3, -4, 0, 5};
    assert_true(share(&nmse, (const float[]){3, -4, 0, 5}, exact, 4) == 0);
    assert_true(fabs(share(&nmse, (const float[]){3, -4.5f, 0.5f, 5}, exact, 4) - 0.5 / 50 / 1e-2) < 1e-12); /* just */
    assert_true(share(&nmse, (const float[]){3, -4.5f, 0.51f, 5}, exact, 4) > 1);
}

static void an_output_counts_for_itself(void **state)
{
    (void)state;
    const double exact[] = {2, -2, 0};
    assert_true(share(&close_to, (const float[]){3, -2, 0}, exact, 3) == 1);
    assert_true(share(&close_to, (const float[]){3, -2, -0.51f}, exact, 3) > 1);
    assert_true(share(&close_to, (const float[]){2, -1.5f, 0}, exact, 3) == 0.5);
}

static void what_is_not_finite(void **state)
{
    (void)state;
    const kvb_tolerance *const rules[] = {&nmse, &close_to};
    for (int i = 0; i < 2; i++) {
        assert_true(share(rules[i], (const float[]){NAN, 1}, (const double[]){1, 1}, 2) == INFINITY);
        assert_true(share(rules[i], (const float[]){1, -INFINITY}, (const double[]){1, 1}, 2) == INFINITY);
        assert_true(share(rules[i], (const float[]){NAN, 1}, (const double[]){INFINITY, 1}, 2) ==
                    0); /* as it must be */
        assert_true(share(rules[i], NULL, NULL, 0) == 0);
    }
    assert_true(share(&nmse, (const float[]){0, 1e-9f}, (const double[]){0, 0}, 2) == INFINITY);
    assert_true(share(&nmse, (const float[]){0, 0}, (const double[]){0, 0}, 2) == 0);
}

static void rows_of_16_bits_and_steps(void **state)
{
    (void)state;
    const uint16_t got[] = {0x3c00, 0xc000}; /* 1, -2 */
    const double exact[] = {1, 9, -2.5, 9};
    kvb_closeness c = {0};
    kvb_closeness_row(&c, &nmse, KVB_F16, got, 2, exact, 2);
    assert_int_equal(c.elements, 2);
    assert_true(c.error2 == 0.25 && c.exact2 == 7.25);
    kvb_closeness both = c;
    kvb_closeness_add(&both, &c);
    assert_true(both.error2 == 0.5 && both.elements == 4);
    assert_true(kvb_closeness_share(&both, &nmse) == kvb_closeness_share(&c, &nmse));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_are_of_all_outputs),
        cmocka_unit_test(an_output_counts_for_itself),
        cmocka_unit_test(what_is_not_finite),
        cmocka_unit_test(rows_of_16_bits_and_steps),
    };
    return cmocka_run_group_tests_name("oracle/tolerance", tests, NULL, NULL);
}
