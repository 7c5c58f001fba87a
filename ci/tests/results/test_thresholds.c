/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: thresholds and manifests. */
#include "ci/tests/tests.h"
#include "ci/tests/results/sample.h"
#include "results/compare.h"
#include "results/result.h"

/* Shows: thresholds with and without patterns; for each key the last one counts; each mistake in a file is named. */

static kvb_thresholds thresholds;

static int load(const char *text, char why[512])
{
    return kvb_thresholds_load(tests_text("t.json", text), &thresholds, why, 512);
}

static double limit(const char *workload, const char *kernel, kvb_limit which)
{
    kvb_result r;

    sample_fill(&r);
    snprintf(r.workload, KVB_NAME, "%s", workload);
    snprintf(r.kernel, KVB_NAME, "%s", kernel);
    return kvb_thresholds_of(&thresholds, &r, which);
}

TEST(test_defaults)
{
    char why[512];

    assert_int_equal(load("{\"kvbench_thresholds\": 1}", why), 0);
    assert_true(limit("w", "k", KVB_LIMIT_TIME) == 0.05);
    assert_true(limit("w", "k", KVB_LIMIT_MEMORY) == 0 && limit("w", "k", KVB_LIMIT_BYTES) == 0);
    assert_true(isinf(limit("w", "k", KVB_LIMIT_RHO)));
    assert_true(limit("w", "k", KVB_LIMIT_COUNTS) == 0.001 && limit("w", "k", KVB_LIMIT_MISSES) == 0.03);
    assert_true(thresholds.confidence == 0.99);
}

TEST(test_patterns)
{
    char why[512];

    assert_int_equal(load("{\"kvbench_thresholds\": 1, \"time\": 0.02, \"confidence\": 0.9, \"patterns\": ["
                          "{\"match\": \"long-*\", \"time\": 0.1, \"memory\": 0.5},"
                          "{\"match\": \"*/flash/*\", \"time\": null}]}",
                          why),
                     0);
    assert_true(limit("w", "k", KVB_LIMIT_TIME) == 0.02);
    assert_true(limit("long-decode", "k", KVB_LIMIT_TIME) == 0.1);
    assert_true(isinf(limit("long-decode", "flash", KVB_LIMIT_TIME))); /* the later rule */
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

TEST(test_mistakes)
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
        {"{\"kvbench_thresholds\": 1, \"patterns\": [{\"match\": \"\"}]}",
         "t.json: patterns[0].match: expected a pattern"},
        {"{\"kvbench_thresholds\": 1, \"patterns\": [{\"match\": \"*\"}, {\"match\": \"*\", \"rho\": true}]}",
         "t.json: patterns[1].rho: expected a number"},
        {"{\"kvbench_thresholds\": 1, \"patterns\": [{\"match\": \"*\", \"cache\": 1}]}",
         "t.json: patterns[0].cache: unknown key; known: match, "},
    };
    char why[512];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tests_refused(load(cases[i].text, why), -EINVAL, why, cases[i].why);
    }
    char text[700]; /* a pattern that is too long */
    snprintf(text, sizeof text, "{\"kvbench_thresholds\": 1, \"patterns\": [{\"match\": \"%0600d\"}]}", 0);
    assert_int_equal(load(text, why), -EINVAL);
    assert_int_equal(kvb_thresholds_load("/nowhere.json", &thresholds, why, sizeof why), -ENOENT);
    assert_string_equal(why, "/nowhere.json: No such file or directory");
}

/* Shows: manifests are compared fact by fact, and the first difference is named. */

static char text[128], other[128];

static const char *difference(const kvb_manifest *a, const kvb_manifest *b, const char *const *keys)
{
    return kvb_manifest_difference(a, b, keys, text, other, sizeof text);
}

TEST(test_difference)
{
    kvb_manifest b = sample_manifest;

    snprintf(b.date, sizeof b.date, "later");
    snprintf(b.command, sizeof b.command, "other");
    b.machine[0].read[0] = 1;
    memset(b.commit + strlen(b.commit) + 1, 'x', 5); /* bytes behind the end of the string */
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

TEST(test_blend)
{
    kvb_manifest a = sample_manifest, b = sample_manifest;

    a.n_machine = 1;
    snprintf(b.os, sizeof b.os, "Hurd"); /* the machine is the same: its rates stay */
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

TEST(test_essence)
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

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_command_essence(cases[i].command, essence);
        assert_string_equal(essence, cases[i].essence);
    }
}
