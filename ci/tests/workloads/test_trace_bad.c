/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that every rule of the trace format refuses what breaks it, with the file, the line and the reason: refused.txt. */
#include "scratch.h"

#include "workloads/trace.h"

#include <errno.h>

#define GROUPS(groups, layers)                                                                                         \
    "{\"kvbench_trace\":2,\"name\":\"t\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":2,"                   \
    "\"kv_cache.layers\":" layers ",\"groups\":[" groups "]},\"values\":{\"profile\":\"gaussian\",\"seed\":1}}\n"

/* The message must hold "bad.jsonl:LINE: " and part. */
static void check(const char *text, uint32_t capacity, long line, const char *part)
{
    char why[400] = "", place[500];
    const char *path = scratch_text("bad.jsonl", text);
    kvb_trace *trace;
    int err = kvb_trace_load(path, capacity, &trace, why, sizeof why);
    if (err != -EINVAL)
        fail_msg("%d for: %s", err, text);
    assert_null(trace);
    snprintf(place, sizeof place, "%s:%ld: ", path, line);
    assert_contains(why, place);
    assert_contains(why, part);
    assert_null(strchr(why, '\n'));
}

/* Checks a case: its first line, behind '@', and the lines of its trace. */
static void case_check(char *says, const char *lines)
{
    static const struct {
        const char *name, *before;
    } headers[] = {{"rope ", HEADER_ROPE}, {"whole ", ""}, {"groups ", NULL}, {"", HEADER}};
    static char text[8192];
    uint32_t capacity = 0;
    size_t h = 0;
    while (strncmp(says, headers[h].name, strlen(headers[h].name)))
        h++;
    says += strlen(headers[h].name);
    if (sscanf(says, "capacity %u", &capacity) == 1)
        says = strchr(strchr(says, ' ') + 1, ' ') + 1;
    long line = strtol(says, &says, 10);
    assert_memory_equal(says, ": ", 2);
    if (headers[h].before)
        snprintf(text, sizeof text, "%s%s", headers[h].before, lines);
    else
        snprintf(text, sizeof text, GROUPS("%.*s", "2"), (int)strcspn(lines, "\n"), lines);
    size_t n = strlen(text);
    if (n > 2 && !strcmp(text + n - 2, "\\\n"))
        text[n - 2] = 0;
    check(text, capacity, line, says + 2);
}

static void test_refused(void **state)
{
    (void)state;
    size_t n, cases = 0;
    char *file = scratch_read("ci/tests/workloads/refused.txt", &n), says[400] = "", lines[4096] = "";
    for (char *at = file, *end; *at; at = end) {
        end = strchr(at, '\n') + 1;
        if (*at == '#')
            continue;
        if (*at != '@') {
            strncat(lines, at, (size_t)(end - at));
            assert_true(strlen(lines) < sizeof lines - 1000);
        }
        if (*at == '@' || !*end) {
            if (*says)
                case_check(says, lines);
            snprintf(says, sizeof says, "%.*s", (int)(end - at) - 3, at + 2);
            *lines = 0;
            cases++;
        }
    }
    free(file);
    assert_true(cases > 250);
}
/* One group more than a model may have; each layer once. */
static void test_too_many_groups(void **state)
{
    (void)state;
    for (unsigned n = KVB_MODEL_GROUPS; n <= KVB_MODEL_GROUPS + 1; n++) {
        char text[8192], groups[6000] = "", why[400] = "";
        kvb_trace *trace;
        for (unsigned g = 0; g < n; g++)
            sprintf(groups + strlen(groups), "%s{\"layers\":[%u],\"heads\":4,\"kv_heads\":2,\"k_dim\":16,\"v_dim\":16}",
                    g ? "," : "", g);
        snprintf(text, sizeof text, GROUPS("%s", "%u"), n, groups);
        int err = kvb_trace_load(scratch_text("g.jsonl", text), 0, &trace, why, sizeof why);
        assert_int_equal(err, n > KVB_MODEL_GROUPS ? -EINVAL : 0);
        if (err)
            assert_contains(why, "expected an array of 1 .. 32 groups of layers");
        kvb_trace_free(trace);
    }
}

/* The header's own capacity counts, and load's replaces it. */
static void test_header_capacity(void **state)
{
    (void)state;
    char why[400];
    kvb_trace *trace;
    const char *path = scratch_text("c.jsonl", HEADER_OF(2) "{\"step\":{\"pos\":[0,1,2],\"seq\":[0,0,0]}}\n");
    assert_int_equal(kvb_trace_load(path, 0, &trace, why, sizeof why), -EINVAL);
    assert_contains(why, ":2: step needs 3 cells, capacity is 2");
    assert_int_equal(kvb_trace_load(path, 3, &trace, why, sizeof why), 0);
    kvb_trace_free(trace);
}

static void test_no_file(void **state)
{
    (void)state;
    char why[400];
    kvb_trace *trace;
    assert_int_equal(kvb_trace_load(scratch_path("none"), 0, &trace, why, sizeof why), -ENOENT);
    assert_contains(why, "none: cannot be read: No such file or directory");
    assert_true(kvb_trace_load(scratch_folder, 0, &trace, why, sizeof why) < 0); /* a folder */
}

/* A line without end must not eat the memory. */
static void test_endless_line(void **state)
{
    (void)state;
    char why[400];
    kvb_trace *trace;
    assert_int_equal(kvb_trace_load("/dev/zero", 0, &trace, why, sizeof why), -EINVAL);
    assert_contains(why, "/dev/zero:1: line is longer than 16777216 bytes");
}

/* Control characters of a hostile file do not reach the terminal. */
static void test_message_is_one_line(void **state)
{
    (void)state;
    char why[400];
    kvb_trace *trace;
    const char *path = scratch_text("k.jsonl", HEADER "{\"a\\n\\u001b[31m\":{}}\n");
    assert_int_equal(kvb_trace_load(path, 0, &trace, why, sizeof why), -EINVAL);
    assert_contains(why, "unknown event \"a??[31m\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_too_many_groups),
        cmocka_unit_test(test_header_capacity), cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_endless_line),    cmocka_unit_test(test_message_is_one_line),
    };
    return cmocka_run_group_tests_name("bad traces", tests, scratch_setup, scratch_teardown);
}
