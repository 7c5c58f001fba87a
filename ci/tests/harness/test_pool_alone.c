/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: every built-in pool, plain and behind a transform, is right by itself. Wrong ones: harness/faults/pools.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness/replay/pool_alone.h"

static void built_in_pools_are_right(void **state)
{
    char place[256], why[1024];
    (void)state;
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (const kvb_pool_type *type = kvb_builtin_pools[p]; type; type = type->rotated)
            if (kvb_pool_alone(type, place, sizeof place, why, sizeof why))
                fail_msg("%s", why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(built_in_pools_are_right)};
    return cmocka_run_group_tests_name("pools by themselves", tests, NULL, NULL);
}
