/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: refused traces, failing writes. */
#include "ci/tests/tests.h"
#include "ci/tests/workloads/scratch.h"
#include "workloads/safetensors.h"
#include "workloads/trace.h"

/* Shows that a trace that breaks any rule of the format is refused with file, line and reason (refused.txt). */

#define GROUPS(groups, layers)                                                                                         \
    "{\"kvbench_trace\":2,\"name\":\"t\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":2,"                   \
    "\"kv_cache.layers\":" layers ",\"groups\":[" groups "]},\"values\":{\"profile\":\"gaussian\",\"seed\":1}}\n"

/* The text must be refused; the message must contain "bad.jsonl:LINE: " and `part`. */
static void check(const char *text, uint32_t capacity, long line, const char *part)
{
    char why[400] = "", place[500];
    const char *path = tests_text("bad.jsonl", text);
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

/* Checks a case: its first line behind '@', and the lines of its trace. */
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

TEST(test_refused)
{
    size_t n, cases = 0;
    char *file = tests_read("ci/tests/workloads/refused.txt", &n), says[400] = "", lines[4096] = "";
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
/* One group more than a model may have, with each layer once. */
TEST(test_too_many_groups)
{
    for (unsigned n = KVB_MODEL_GROUPS; n <= KVB_MODEL_GROUPS + 1; n++) {
        char text[8192], groups[6000] = "", why[400] = "";
        kvb_trace *trace;
        for (unsigned g = 0; g < n; g++)
            sprintf(groups + strlen(groups), "%s{\"layers\":[%u],\"heads\":4,\"kv_heads\":2,\"k_dim\":16,\"v_dim\":16}",
                    g ? "," : "", g);
        snprintf(text, sizeof text, GROUPS("%s", "%u"), n, groups);
        int err = kvb_trace_load(tests_text("g.jsonl", text), 0, &trace, why, sizeof why);
        assert_int_equal(err, n > KVB_MODEL_GROUPS ? -EINVAL : 0);
        if (err)
            assert_contains(why, "expected an array of 1 .. 32 groups of layers");
        kvb_trace_free(trace);
    }
}

/* The header's capacity counts, unless the capacity given to load replaces it. */
TEST(test_header_capacity)
{
    char why[400];
    kvb_trace *trace;
    const char *path = tests_text("c.jsonl", HEADER_OF(2) "{\"step\":{\"pos\":[0,1,2],\"seq\":[0,0,0]}}\n");
    assert_int_equal(kvb_trace_load(path, 0, &trace, why, sizeof why), -EINVAL);
    assert_contains(why, ":2: step needs 3 cells, capacity is 2");
    assert_int_equal(kvb_trace_load(path, 3, &trace, why, sizeof why), 0);
    kvb_trace_free(trace);
}

TEST(test_no_file)
{
    char why[400];
    kvb_trace *trace;
    assert_int_equal(kvb_trace_load(tests_path("none"), 0, &trace, why, sizeof why), -ENOENT);
    assert_contains(why, "none: cannot be read: No such file or directory");
    assert_true(kvb_trace_load(tests_here(), 0, &trace, why, sizeof why) < 0); /* a folder */
}

/* An endless line must not use up the memory. */
TEST(test_endless_line)
{
    char why[400];
    kvb_trace *trace;
    assert_int_equal(kvb_trace_load("/dev/zero", 0, &trace, why, sizeof why), -EINVAL);
    assert_contains(why, "/dev/zero:1: line is longer than 16777216 bytes");
}

/* Control characters of a hostile file must not reach the terminal. */
TEST(test_message_is_one_line)
{
    char why[400];
    kvb_trace *trace;
    const char *path = tests_text("k.jsonl", HEADER "{\"a\\n\\u001b[31m\":{}}\n");
    tests_refused(kvb_trace_load(path, 0, &trace, why, sizeof why), -EINVAL, why, "unknown event \"a??[31m\"");
}

/* Shows that a failing write gives a reason and does not change an old target, for traces and safetensors files.
 * test_files has other failures. */

static const kvb_trace_header header = {
    .name = "n",
    .source = "s",
    .model = {.n_layers = 1,
              .n_groups = 1,
              .groups = {{.heads = 1, .kv_heads = 1, .k_dim = 16, .v_dim = 16, .scale = 0.25}}},
    .profile = "flat",
};

#define BIG 60000u /* tokens: more bytes than any stdio buffer */

/* Writes one long step; the first error. */
static int trace_save(const char *path, bool commit, char *why, size_t why_bytes)
{
    static uint32_t pos[BIG], seq[BIG];
    for (uint32_t i = 0; i < BIG; i++)
        pos[i] = i;
    kvb_event step = {.kind = KVB_EVENT_STEP, .n = BIG, .pos = pos, .seq = seq};
    kvb_output_file file;
    int err = kvb_trace_create(path, &header, &file, why, why_bytes);
    if (err)
        return err;
    kvb_event_print(file.stream, &step);
    return kvb_output_file_close(&file, commit, why, why_bytes);
}

static int tensors_save(const char *path, bool commit, char *why, size_t why_bytes)
{
    static float data[BIG];
    (void)commit;
    kvb_tensor t = {
        .name = "a", .dtype = KVB_DTYPE_F32, .n_dims = 1, .dims = {BIG}, .data = data, .bytes = sizeof data};
    return kvb_safetensors_write(path, &t, 1, NULL, why, why_bytes);
}

typedef int save_function(const char *path, bool commit, char *why, size_t why_bytes);
static save_function *const saves[] = {trace_save, tensors_save};

TEST(test_size_limit)
{
    for (size_t i = 0; i < 2; i++) {
        char why[300] = "";
        const char *path = tests_text("old", "precious");
        tests_file_limit(100000);
        int err = saves[i](path, true, why, sizeof why);
        tests_file_limit(RLIM_INFINITY);
        tests_refused(err, -EFBIG, why, "old: cannot be written: File too large");
        tests_holds(path, "precious");
    }
}

TEST(test_not_committed)
{
    char why[300] = "";
    const char *path = tests_text("old", "precious");
    assert_int_equal(trace_save(path, false, why, sizeof why), 0);
    tests_holds(path, "precious");
    assert_int_equal(trace_save(path, true, why, sizeof why), 0);
    size_t n;
    char *text = tests_read(path, &n);
    assert_true(n > BIG);
    free(text);
}

TEST(test_header_refused)
{
    static const struct {
        const char *name, *profile, *tensors, *part;
        uint64_t seed;
    } bad[] = {
        {"", "flat", NULL, "name or source is missing", 0},   {"n", NULL, NULL, "either tensors or a profile", 0},
        {"n", "flat", "x", "either tensors or a profile", 0}, {"n", "flt", NULL, "unknown profile", 0},
        {"n", "flat", NULL, "seed is above", UINT64_MAX},     {"\xff", "flat", NULL, "not UTF-8", 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[300] = "";
        kvb_trace_header h = header;
        h.name = (char *)bad[i].name;
        h.profile = (char *)bad[i].profile;
        h.tensors = (char *)bad[i].tensors;
        h.seed = bad[i].seed;
        kvb_output_file file;
        tests_refused(kvb_trace_create(tests_path("h"), &h, &file, why, sizeof why), -EINVAL, why, bad[i].part);
        assert_int_equal(access(tests_path("h"), F_OK), -1);
    }
    char why[300] = "";
    kvb_trace_header h = header;
    kvb_output_file file;
    h.outputs.engine = (char *)"e";
    assert_int_equal(kvb_trace_create(tests_path("h"), &h, &file, why, sizeof why), -EINVAL);
    assert_contains(why, "header: outputs need tensors, a model, a setup, rows and an arithmetic");
    /* a model that could not be read back */
    h = header;
    h.model.groups[0].sinks = 1;
    assert_int_equal(kvb_trace_create(tests_path("h"), &h, &file, why, sizeof why), -EINVAL);
    assert_contains(why, "header: group 0: 1 sinks without a window");
}
