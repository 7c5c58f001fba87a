/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: shards are what they are written as, and share out every combination once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "harness/selection/partial_run.h"

static char why[256];

static void words_are_taken_or_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"0/3",   "4/3",  "1/0",  "1/65",  "1",
                                      "/",     "1/",   "/2",   "a/b",   "1/2x",
                                      "1/2/3", "-1/2", " 1/2", "1.0/2", "99999999999999999999/2",
                                      "1k/2"};
    kvb_shard shard;
    assert_int_equal(kvb_shard_parse("2/3", &shard, why, sizeof why), 0);
    assert_true(shard.index == 1 && shard.of == 3);
    assert_int_equal(kvb_shard_parse("64/64", &shard, why, sizeof why), 0);
    assert_int_equal(kvb_shard_parse(NULL, &shard, why, sizeof why), 0);
    assert_true(shard.index == 0 && shard.of == 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (kvb_shard_parse(bad[i], &shard, why, sizeof why) != -EINVAL)
            fail_msg("%s was taken", bad[i]);
}

static void every_combination_is_in_one(void **state)
{
    (void)state;
    for (uint32_t of = 1; of <= 7; of++)
        for (size_t total = 0; total <= 30; total++) {
            size_t all = 0;
            for (uint32_t index = 0; index < of; index++) {
                size_t n = 0;
                for (size_t i = 0; i < total; i++)
                    n += kvb_shard_has((kvb_shard){index, of}, i);
                assert_int_equal(kvb_shard_count((kvb_shard){index, of}, total), n);
                all += n;
            }
            assert_int_equal(all, total);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_taken_or_refused),
        cmocka_unit_test(every_combination_is_in_one),
    };
    return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
