/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: what is asked of memory ahead goes on by the parts that were meant, never twice and never past the end. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "kernels/vector/ask.h"

static char rows[4096];
static const uint32_t cells[16];
static const kvb_view view = {.base = rows, .cell_stride = 16, .scales = rows, .scale_cell_stride = 2};

static kvb_ask ask_of(uint32_t n, uint32_t run, bool steadily)
{
    return (kvb_ask){.view = &view, .cells = cells, .n = n, .run = run, .steadily = steadily};
}

static void runs_in_two_halves(void **state)
{
    kvb_ask ask = ask_of(16, 4, false);
    (void)state;
    kvb_ask_step(&ask);
    assert_int_equal(ask.asked, 0);
    kvb_ask_until(&ask, 1, 2);
    assert_int_equal(ask.asked, 8);
    kvb_ask_until(&ask, 2, 2);
    assert_int_equal(ask.asked, 16);
}

static void one_run_all_along(void **state)
{
    kvb_ask ask = ask_of(1, 64, true);
    (void)state;
    for (uint32_t i = 1; i <= 4; i++) {
        kvb_ask_step(&ask);
        assert_int_equal(ask.asked, 8 * i);
    }
    kvb_ask_until(&ask, 1, 4); /* that was asked for already */
    assert_int_equal(ask.asked, 32);
    for (uint32_t i = 0; i < 20; i++)
        kvb_ask_step(&ask);
    assert_int_equal(ask.asked, 64);
}

static void fewer_than_eight(void **state)
{
    kvb_ask ask = ask_of(1, 5, true);
    (void)state;
    kvb_ask_step(&ask);
    assert_int_equal(ask.asked, 0);
    kvb_ask_until(&ask, 1, 2);
    assert_int_equal(ask.asked, 2);
    kvb_ask_until(&ask, 2, 2);
    assert_int_equal(ask.asked, 5);
}

static void nothing_is_nothing(void **state)
{
    (void)state;
    kvb_ask_step(NULL);
    kvb_ask_until(NULL, 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_in_two_halves),
        cmocka_unit_test(one_run_all_along),
        cmocka_unit_test(fewer_than_eight),
        cmocka_unit_test(nothing_is_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("ask", tests, NULL, NULL);
}
