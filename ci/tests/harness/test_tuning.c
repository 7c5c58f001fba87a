/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: what is written of a machine's settings is what is read, each by itself. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/tuning/tuning.h"

static const kvb_manifest machine = {.cpu_model = "some CPU", .cores = 2};

/* Settings that differ from class to class, and have one truth or another. */
static kvb_tuning some_tuning(uint32_t seed)
{
    kvb_tuning t = {.prefetch = *kvb_prefetch_here(), .steadily_gain = 1.5};
    t.prefetch.steadily = seed % 2;
    for (uint32_t i = 0; i < KVB_READINGS; i++) {
        const uint32_t n = i * 37 + seed * 11;
        t.prefetch.reading[i] = (kvb_reading){.ahead = n % (KVB_READING_AHEAD + 1),
                                              .near = n & 1,
                                              .again = n >> 1 & 1,
                                              .by_cells = n >> 2 & 1,
                                              .sums_by_cells = n >> 3 & 1,
                                              .pages = n >> 4 & 1,
                                              .beside = n >> 5 & 1};
        t.gain[i] = 1 + n % 8 * 0.25;
    }
    return t;
}

static void what_is_written_is_read(void **state)
{
    const char *folder = getenv("TMPDIR");
    char path[300], why[400];
    (void)state;
    snprintf(path, sizeof path, "%.200s/kvbench-test-tuning.json", folder ? folder : "/tmp");
    for (uint32_t seed = 0; seed < 16; seed++) {
        const kvb_tuning written = some_tuning(seed);
        kvb_tuning read;
        assert_int_equal(kvb_tuning_write(path, &machine, &written, why, sizeof why), 0);
        if (kvb_tuning_read(path, &machine, &read, why, sizeof why))
            fail_msg("%s", why);
        assert_int_equal(read.prefetch.steadily, written.prefetch.steadily);
        for (uint32_t i = 0; i < KVB_READINGS; i++) {
            const kvb_reading *a = &written.prefetch.reading[i], *b = &read.prefetch.reading[i];
            assert_int_equal(a->ahead, b->ahead);
            assert_int_equal(a->near, b->near);
            assert_int_equal(a->again, b->again);
            assert_int_equal(a->pages, b->pages);
            assert_int_equal(a->by_cells, b->by_cells);
            assert_int_equal(a->sums_by_cells, b->sums_by_cells);
            assert_int_equal(a->beside, b->beside);
            assert_true(written.gain[i] == read.gain[i]);
        }
    }
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_written_is_read)};
    return cmocka_run_group_tests_name("tuning", tests, NULL, NULL);
}
