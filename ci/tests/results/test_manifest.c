/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: two manifests are compared fact by fact, and the first difference is named. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/results/sample.h"
#include "results/manifest.h"

static char text[128], other[128];

static const char *difference(const kvb_manifest *a, const kvb_manifest *b, const char *const *keys)
{
    return kvb_manifest_difference(a, b, keys, text, other, sizeof text);
}

static void test_difference(void **state)
{
    kvb_manifest b = sample_manifest;

    (void)state;
    snprintf(b.date, sizeof b.date, "later");
    snprintf(b.command, sizeof b.command, "other");
    b.machine[0].read[0] = 1;
    memset(b.commit + strlen(b.commit) + 1, 'x', 5); /* behind its end */
    assert_null(difference(&sample_manifest, &b, kvb_program_keys));
    assert_null(difference(&sample_manifest, &b, kvb_machine_keys));
    b.cores = 3;
    assert_null(difference(&sample_manifest, &b, kvb_program_keys));
    assert_string_equal(difference(&sample_manifest, &b, kvb_machine_keys), "cores");
    assert_string_equal(text, "2");
    assert_string_equal(other, "3");
    snprintf(b.suite, sizeof b.suite, "full");
    assert_string_equal(difference(&sample_manifest, &b, kvb_program_keys), "suite");
    assert_string_equal(other, "\"full\"");
    snprintf(b.cpu_features, sizeof b.cpu_features, "avx2");
    assert_string_equal(difference(&sample_manifest, &b, kvb_machine_keys), "cpu_features");
    assert_string_equal(text, "[\"avx2\", \"fma\", \"f16c\"]");
}

static void test_blend(void **state)
{
    kvb_manifest a = sample_manifest, b = sample_manifest;

    (void)state;
    a.n_machine = 1;
    snprintf(b.os, sizeof b.os, "Hurd"); /* says nothing about the machine, whose rates stay */
    kvb_manifest_blend(&a, &b);
    assert_string_equal(a.os, "several");
    assert_string_equal(a.cpu_model, sample_manifest.cpu_model);
    assert_int_equal(a.n_machine, 1);
    snprintf(b.cpu_model, sizeof b.cpu_model, "B");
    b.cores = 64;
    kvb_manifest_blend(&a, &b);
    assert_string_equal(a.cpu_model, "several");
    assert_int_equal(a.cores, 0);
    assert_int_equal(a.threads_max, sample_manifest.threads_max);
    assert_int_equal(a.n_machine, 0);
    assert_string_equal(a.commit, sample_manifest.commit);
    kvb_manifest_blend(&a, &sample_manifest); /* "several" stays */
    assert_string_equal(a.cpu_model, "several");
}

static void test_essence(void **state)
{
    static const struct {
        const char *command, *essence;
    } cases[] = {
        {"kvbench run", "kvbench run"},
        {"kvbench run --suite quick -o a.jsonl", "kvbench run --suite quick"},
        {"kvbench run -o a.jsonl --suite quick --resume --seed 1", "kvbench run --suite quick --seed 1"},
        {"kvbench run --shard=1/2 --format=md --junit x.xml --format csv --set width=3", "kvbench run --set width=3"},
        {"kvbench run --set counters --set=timeline=t.csv --set timeline=u.csv --set out=f16",
         "kvbench run --set out=f16"},
        {"kvbench run --shards 1 -oo --timeline", "kvbench run --shards 1 -oo"},
        {"kvbench run -o 'a b.jsonl' --cache 'x y' --junit 'it'\\''s.xml' --seed 1",
         "kvbench run --cache 'x y' --seed 1"},
        {"", ""},
    };
    char essence[128];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_command_essence(cases[i].command, essence);
        assert_string_equal(essence, cases[i].essence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_difference),
        cmocka_unit_test(test_blend),
        cmocka_unit_test(test_essence),
    };

    return cmocka_run_group_tests_name("manifests of one run", tests, NULL, NULL);
}
