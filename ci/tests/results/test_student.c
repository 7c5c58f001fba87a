/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: Student's quantiles and the sign test's ranks are those of printed tables; the median's standard error and the
 * autocorrelation of series with known answers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "results/statistics.h"
#include "results/student.h"
#include "synthetic.h"

static void near(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%.9g, expected %.9g", got, want);
}

static void test_student(void **state)
{
    static const struct {
        double tail;
        uint32_t freedom;
        double t;
    } printed[] = {{0.05, 1, 12.7062},   {0.05, 2, 4.30265},     {0.01, 5, 4.03214},
                   {0.05, 10, 2.22814},  {0.001, 7, 5.40788},    {0.002, 60, 3.23171},
                   {0.01, 120, 2.61742}, {0.05, 1000, 1.959964}, {1e-6, 1000, 4.89164}};

    (void)state;
    for (size_t i = 0; i < sizeof printed / sizeof *printed; i++)
        near(kvb_student_quantile(printed[i].tail, printed[i].freedom), printed[i].t, 2e-6);
}

static void test_sign(void **state)
{
    (void)state;
    assert_int_equal(kvb_sign_rank(5, 0.05), 0); /* 2 / 32 is more */
    assert_int_equal(kvb_sign_rank(6, 0.05), 1);
    assert_int_equal(kvb_sign_rank(10, 0.05), 2);
    assert_int_equal(kvb_sign_rank(20, 0.05), 6);
    assert_int_equal(kvb_sign_rank(50, 0.01), 16);
    assert_int_equal(kvb_sign_rank(0, 0.05), 0);
}

static void test_error(void **state)
{
    const synthetic_noise white = {.pass = 1, .passes = 64}, red = {.pass = 1, .follows = 0.7, .passes = 64};
    double series[64], error = 0, white_follows = 0, red_follows = 0;
    uint64_t seed = 3;

    (void)state;
    for (int i = 0; i < 100; i++) {
        synthetic_series(&white, 1, series, &seed);
        for (int j = 0; j < 64; j++)
            series[j] = log(series[j]);
        error += kvb_median_error(series, 64, 500, 1) / 100;
        white_follows += kvb_autocorrelation(series, 64) / 100;
        synthetic_series(&red, 1, series, &seed);
        for (int j = 0; j < 64; j++)
            series[j] = log(series[j]);
        red_follows += kvb_autocorrelation(series, 64) / 100;
    }
    near(error, 1.2533 / 8, 0.1); /* sqrt(pi / 2 n) */
    assert_true(white_follows < 0.1);
    near(red_follows, 0.7, 0.05);
    assert_true(kvb_median_error(series, 1, 10, 1) == 0);
    assert_true(kvb_autocorrelation((const double[]){2, 2, 2, 2, 2, 2, 2, 2}, 8) <= 0.125);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_student),
        cmocka_unit_test(test_sign),
        cmocka_unit_test(test_error),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
