/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a result file that is damaged or of another schema is refused with "file:line: what was expected". */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "ci/tests/results/sample.h"

static char folder[256], path[300], bad[300], why[512];
static char *good; /* a file of three lines */

static int set_up(void **state)
{
    kvb_result_writer *writer;
    kvb_result result;

    (void)state;
    if (!sample_folder(folder, sizeof folder))
        return -1;
    snprintf(path, sizeof path, "%s/r.jsonl", folder);
    snprintf(bad, sizeof bad, "%s/bad.jsonl", folder);
    sample_fill(&result);
    if (kvb_result_create(path, &sample_manifest, &writer, why, sizeof why) ||
        kvb_result_write(writer, &result, why, sizeof why) || kvb_result_write(writer, &result, why, sizeof why) ||
        kvb_result_close(writer, true, why, sizeof why))
        return -1;
    good = sample_read(path);
    return good ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(good);
    unlink(path);
    unlink(bad);
    return rmdir(folder);
}

/* bytes of text are refused at `line` with a message that holds `what`. */
static void assert_refused(const char *text, size_t bytes, int line, const char *what)
{
    kvb_result_file *file = NULL;
    FILE *out = fopen(bad, "w");
    char place[400];

    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, bytes, out), bytes);
    fclose(out);
    snprintf(place, sizeof place, "%s:%d: ", bad, line);
    assert_int_equal(kvb_result_load(bad, &file, why, sizeof why), -EINVAL);
    assert_null(file);
    if (strncmp(why, place, strlen(place)) != 0 || !strstr(why, what) || strchr(why, '\n'))
        fail_msg("expected \"%s… %s\", found \"%s\"", place, what, why);
}

/* The good file with the last `from` replaced (the one of line 3, or the manifest's). */
static void assert_change(const char *from, const char *to, int line, const char *what)
{
    const char *at = NULL;
    char *text = malloc(strlen(good) + strlen(to) + 1);

    assert_non_null(text);
    for (const char *next = strstr(good, from); next; next = strstr(next + 1, from))
        at = next;
    assert_non_null(at);
    size_t before = (size_t)(at - good);
    memcpy(text, good, before);
    strcpy(text + before, to);
    strcat(text, at + strlen(from));
    assert_refused(text, strlen(text), line, what);
    free(text);
}

static void test_schema(void **state)
{
    (void)state;
    assert_change("kvbench.result/5", "kvbench.result/9", 1,
                  "schema: \"kvbench.result/9\" is not known, this program reads \"kvbench.result/5\"");
    assert_change("\"schema\"", "\"shema\"", 1, "expected the manifest with \"schema\":\"kvbench.result/5\"");
    assert_refused("", 0, 1, "found an empty file");
    assert_refused("[1]\n", 4, 1, "expected the manifest");
    assert_refused("{}\n", 3, 1, "expected the manifest");
}

static void test_json(void **state)
{
    (void)state;
    assert_refused("{\"schema\": \n", 12, 1, "not valid JSON");
    assert_refused("\n", 1, 1, "not valid JSON");
    assert_refused("{\"a\":1,\"a\":2}\n", 14, 1, "duplicate");
    assert_change("\"rho\": 1e308", "\"rho\": 1e999", 3, "not valid JSON");
    assert_change("\"rho\": 1e308", "\"rho\": NaN", 3, "not valid JSON");
}

/* A file that is cut anywhere in its last line is refused as cut short. Cut after a line, it is a valid shorter file.
 */
static void test_cut(void **state)
{
    size_t bytes = strlen(good), last = bytes - 1;

    (void)state;
    while (good[last - 1] != '\n')
        last--;
    for (size_t n = last + 1; n < bytes - 1; n += 7)
        assert_refused(good, n, 3, "cut short");
    assert_refused(good, 40, 1, "cut short");
}

#define DIGITS_100                                                                                                     \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

static void test_fields(void **state)
{
    (void)state;
    assert_change("\"status\": \"fail\"", "\"status\": \"well\"", 3, "status: expected pass, fail, skip");
    assert_change("\"threads\": 2", "\"threads\": -1", 3, "threads: expected a number from 0 to 4294967295, found -1");
    assert_change("\"threads\": 2", "\"threads\": 2.5", 3, "threads: expected a whole number, found a number");
    assert_change("\"threads\": 2, ", "", 3, "expected the key \"threads\"");
    assert_change("\"threads\": 2", "\"threads\": 2, \"x\": 1", 3, "the key \"x\" is not known");
    assert_change("\"median\": 1250.5", "\"median\": \"1\"", 3,
                  "time.kinds.decode.median: expected a number or null, found a string");
    assert_change("{\"decode\"", "{\"dekode\"", 3, "time.kinds: the key \"dekode\" is not known");
    assert_change("\"unit\": \"ns\"", "\"unit\": \"us\"", 3, "time.unit: \"us\" is not known");
    assert_change("\"total_rows\": 1099511627776", "\"total_rows\": \"12x\"", 3, "error.total_rows: expected digits");
    assert_change("\"samples\": 3, \"total\"", "\"samples\": -3, \"total\"", 3, "expected a number not below 0");
    assert_change("\"event\": 7", "\"event\": null", 3, "error.at.event: expected a whole number, found null");
    assert_change("\"series\": [1250.5", "\"series\": [\"1\"", 3,
                  "time.series.0: expected a number or null, found a string");
    assert_change("\"contexts\": [", "\"contexts\": {\"a\": 1}, \"x\": [", 3,
                  "time.contexts: expected an array, found an object");
    assert_change("{\"cells\": 128", "{\"cels\": 128", 3, "time.contexts.1: expected the key \"cells\"");
    assert_change("\"timeline\": [{", "\"timeline\": [{}, {", 3, "memory.timeline.0: expected the key \"event\"");
    assert_change("\"timeline\": [", "\"timelines\": [", 3, "memory: expected the key \"timeline\"");
    assert_change("\"series\": [",
                  "\"series\": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
                  "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,",
                  3, "time.series: expected at most 64 elements, found 65");
    assert_change("\"joined\": [{\"date\"", "\"joined\": [{\"data\"", 1, "joined.0: expected the key \"date\"");
    assert_change("\"reason\": \"",
                  "\"reason\": \"" /* 1100 bytes of text do not fit */
                  DIGITS_100 DIGITS_100 DIGITS_100 DIGITS_100 DIGITS_100 DIGITS_100 DIGITS_100 DIGITS_100 DIGITS_100
                      DIGITS_100 DIGITS_100,
                  3, "reason: expected a string of at most 1023 bytes");
    assert_change("\"cpu_features\": [\"avx2\"", "\"cpu_features\": [5", 1, "cpu_features: expected a string");
    assert_change("\"unavailable\": {\"cycles\": \"not permitted\"}", "\"unavailable\": {}", 3,
                  "counters.cycles: expected a reason");
}

static void test_missing(void **state)
{
    kvb_result_file *file = NULL;

    (void)state;
    assert_int_equal(kvb_result_load("none.jsonl", &file, why, sizeof why), -ENOENT);
    assert_string_equal(why, "none.jsonl: No such file or directory");
    assert_int_equal(kvb_result_load(folder, &file, why, sizeof why), -EISDIR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schema), cmocka_unit_test(test_json),    cmocka_unit_test(test_cut),
        cmocka_unit_test(test_fields), cmocka_unit_test(test_missing),
    };

    return cmocka_run_group_tests_name("reading result files", tests, set_up, tear_down);
}
