/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: thresholds with and without patterns, the later one wins key by key; each mistake in a file is named. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "results/compare.h"
#include "sample.h"

static char folder[256], path[300];
static kvb_thresholds thresholds;

static int setup(void **state)
{
    (void)state;
    if (!sample_folder(folder, sizeof folder))
        return -1;
    snprintf(path, sizeof path, "%s/t.json", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove(path);
    return remove(folder);
}

static int load(const char *text, char why[512])
{
    FILE *out = fopen(path, "w");

    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    return kvb_thresholds_load(path, &thresholds, why, 512);
}

static double limit(const char *workload, const char *kernel, kvb_limit which)
{
    kvb_result r;

    sample_fill(&r);
    snprintf(r.workload, KVB_NAME, "%s", workload);
    snprintf(r.kernel, KVB_NAME, "%s", kernel);
    return kvb_thresholds_of(&thresholds, &r, which);
}

static void test_defaults(void **state)
{
    char why[512];

    (void)state;
    assert_int_equal(load("{\"kvbench_thresholds\": 1}", why), 0);
    assert_true(limit("w", "k", KVB_LIMIT_TIME) == 0.05);
    assert_true(limit("w", "k", KVB_LIMIT_MEMORY) == 0 && limit("w", "k", KVB_LIMIT_BYTES) == 0);
    assert_true(isinf(limit("w", "k", KVB_LIMIT_RHO)));
    assert_true(limit("w", "k", KVB_LIMIT_COUNTS) == 0.001 && limit("w", "k", KVB_LIMIT_MISSES) == 0.03);
    assert_true(thresholds.confidence == 0.99);
}

static void test_patterns(void **state)
{
    char why[512];

    (void)state;
    assert_int_equal(load("{\"kvbench_thresholds\": 1, \"time\": 0.02, \"confidence\": 0.9, \"patterns\": ["
                          "{\"match\": \"long-*\", \"time\": 0.1, \"memory\": 0.5},"
                          "{\"match\": \"*/flash/*\", \"time\": null}]}",
                          why),
                     0);
    assert_true(limit("w", "k", KVB_LIMIT_TIME) == 0.02);
    assert_true(limit("long-decode", "k", KVB_LIMIT_TIME) == 0.1);
    assert_true(isinf(limit("long-decode", "flash", KVB_LIMIT_TIME))); /* the later one */
    assert_true(limit("long-decode", "flash", KVB_LIMIT_MEMORY) == 0.5);
    assert_true(limit("long-decode", "flashy", KVB_LIMIT_TIME) == 0.1);
    assert_true(thresholds.confidence == 0.9);

    kvb_result flash;
    kvb_result_init(&flash);
    snprintf(flash.workload, KVB_NAME, "w");
    snprintf(flash.kernel, KVB_NAME, "flash");
    assert_string_equal(kvb_thresholds_unmet(&thresholds), "long-*");
    kvb_thresholds_meet(&thresholds, &flash, 1);
    assert_string_equal(kvb_thresholds_unmet(&thresholds), "long-*");
    snprintf(flash.workload, KVB_NAME, "long-decode");
    kvb_thresholds_meet(&thresholds, &flash, 1);
    assert_null(kvb_thresholds_unmet(&thresholds));
}

static void test_mistakes(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"{\"kvbench_thresholds\": 1,", "t.json:1: not valid JSON: "},
        {"[]", "t.json: expected {\"kvbench_thresholds\": 1, …}"},
        {"{\"kvbench_thresholds\": 2}", "t.json: expected {\"kvbench_thresholds\": 1, …}"},
        {"{\"kvbench_thresholds\": 1, \"tiem\": 1}", "t.json: tiem: unknown key; known: time, "},
        {"{\"kvbench_thresholds\": 1, \"time\": \"5 %\"}", "t.json: time: expected a number of 0.001 .. 10"},
        {"{\"kvbench_thresholds\": 1, \"time\": 0}", "t.json: time: expected a number of 0.001 .. 10"},
        {"{\"kvbench_thresholds\": 1, \"memory\": -1}", "t.json: memory: expected a number of 0 .. 10"},
        {"{\"kvbench_thresholds\": 1, \"confidence\": 95}", "t.json: confidence: expected a number of 0.5 .. 0.9999"},
        {"{\"kvbench_thresholds\": 1, \"patterns\": {}}", "t.json: patterns: expected a list"},
        {"{\"kvbench_thresholds\": 1, \"patterns\": [1]}", "t.json: patterns[0].match: expected a pattern"},
        {"{\"kvbench_thresholds\": 1, \"patterns\": [{\"match\": \"*\"}, {\"match\": \"*\", \"rho\": true}]}",
         "t.json: patterns[1].rho: expected a number"},
        {"{\"kvbench_thresholds\": 1, \"patterns\": [{\"match\": \"*\", \"cache\": 1}]}",
         "t.json: patterns[0].cache: unknown key; known: match, "},
    };
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(load(cases[i].text, why), -EINVAL);
        if (!strstr(why, cases[i].why))
            fail_msg("\"%s\" instead of \"%s\"", why, cases[i].why);
    }
    assert_int_equal(kvb_thresholds_load("/nowhere.json", &thresholds, why, sizeof why), -ENOENT);
    assert_string_equal(why, "/nowhere.json: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
