/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the order of reading is that of the CPU's maker, unless another was set. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "kernels/prefetch.h"

/* What Linux says of the maker, not CPUID once more. */
static bool amd_here(void)
{
    char line[256];
    bool amd = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !amd && fgets(line, sizeof line, f))
        amd = strstr(line, "AuthenticAMD");
    if (f)
        fclose(f);
    return amd;
}

static void follows_the_maker(void **state)
{
    (void)state;
    assert_ptr_equal(kvb_prefetch_here(), amd_here() ? &kvb_prefetch_amd : &kvb_prefetch_intel);
}

static void another_may_be_set(void **state)
{
    const kvb_prefetch *own = kvb_prefetch_here();
    (void)state;
    kvb_prefetch_set(own == &kvb_prefetch_amd ? &kvb_prefetch_intel : &kvb_prefetch_amd);
    assert_ptr_not_equal(kvb_prefetch_here(), own);
    kvb_prefetch_set(NULL);
    assert_ptr_equal(kvb_prefetch_here(), own);
}

static void near_rows_are_what_all_cpus_have(void **state)
{
    (void)state;
    assert_true(kvb_prefetch_intel.near_rows >= KVB_NEAR_ROWS && kvb_prefetch_amd.near_rows >= KVB_NEAR_ROWS);
    assert_true(kvb_prefetch_intel.near_bytes >= KVB_NEAR_BYTES && kvb_prefetch_amd.near_bytes >= KVB_NEAR_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_maker),
        cmocka_unit_test(another_may_be_set),
        cmocka_unit_test(near_rows_are_what_all_cpus_have),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("prefetch", tests, NULL, NULL);
}
