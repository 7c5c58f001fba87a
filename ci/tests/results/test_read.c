/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: result files are written and read back; damaged ones are refused. */
#include "ci/tests/tests.h"
#include "ci/tests/results/sample.h"

/* Shows: a result file that is damaged or has another schema is refused with "file:line: what was expected". */

static char path[300], why[512];
static char *good; /* a file of three lines */

static int set_up(void **state)
{
    kvb_result_writer *writer;
    kvb_result result;

    snprintf(path, sizeof path, "%s", tests_path("r.jsonl"));
    sample_fill(&result);
    if (kvb_result_create(path, &sample_manifest, &writer, why, sizeof why) ||
        kvb_result_write(writer, &result, why, sizeof why) || kvb_result_write(writer, &result, why, sizeof why) ||
        kvb_result_close(writer, true, why, sizeof why))
        return -1;
    good = tests_read(path, NULL);
    return good ? 0 : -1;
}

static CMFixtureFunction tests_setup = set_up;

/* These bytes must be refused at `line` with a message that contains `what`. */
static void assert_refused(const char *text, size_t bytes, int line, const char *what)
{
    const char *bad = tests_write("bad.jsonl", text, bytes);
    kvb_result_file *file = NULL;
    char place[400];

    snprintf(place, sizeof place, "%s:%d: ", bad, line);
    assert_int_equal(kvb_result_load(bad, &file, why, sizeof why), -EINVAL);
    assert_null(file);
    if (strncmp(why, place, strlen(place)) != 0 || !strstr(why, what) || strchr(why, '\n'))
        fail_msg("expected \"%s… %s\", found \"%s\"", place, what, why);
}

/* The good file with the last `from` (in line 3, or in the manifest) replaced by `to` must be refused. */
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

TEST(test_schema)
{
    assert_change("kvbench.result/5", "kvbench.result/9", 1,
                  "schema: \"kvbench.result/9\" is not known, this program reads \"kvbench.result/5\"");
    assert_change("\"schema\"", "\"shema\"", 1, "expected the manifest with \"schema\":\"kvbench.result/5\"");
    assert_refused("", 0, 1, "found an empty file");
    assert_refused("[1]\n", 4, 1, "expected the manifest");
    assert_refused("{}\n", 3, 1, "expected the manifest");
}

TEST(test_json)
{
    assert_refused("{\"schema\": \n", 12, 1, "not valid JSON");
    assert_refused("\n", 1, 1, "not valid JSON");
    assert_refused("{\"a\":1,\"a\":2}\n", 14, 1, "duplicate");
    assert_change("\"rho\": 1e308", "\"rho\": 1e999", 3, "not valid JSON");
    assert_change("\"rho\": 1e308", "\"rho\": NaN", 3, "not valid JSON");
}

/* A file cut anywhere in its last line is refused as cut short. Cut after a line, it is a valid shorter file. */
TEST(test_cut)
{
    size_t bytes = strlen(good), last = bytes - 1;

    while (good[last - 1] != '\n')
        last--;
    for (size_t n = last + 1; n < bytes - 1; n += 7)
        assert_refused(good, n, 3, "cut short");
    assert_refused(good, 40, 1, "cut short");
}

#define DIGITS_100                                                                                                     \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

TEST(test_fields)
{
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

TEST(test_missing)
{
    kvb_result_file *file = NULL;

    assert_int_equal(kvb_result_load("none.jsonl", &file, why, sizeof why), -ENOENT);
    assert_string_equal(why, "none.jsonl: No such file or directory");
    assert_int_equal(kvb_result_load(tests_here(), &file, why, sizeof why), -EISDIR);
}

/* Shows: results are written with the documented keys in their order, and read back unchanged. */

static void results_write(const kvb_result *results, size_t n)
{
    kvb_result_writer *writer;

    if (kvb_result_create(path, &sample_manifest, &writer, why, sizeof why) != 0)
        fail_msg("%s", why);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(kvb_result_write(writer, &results[i], why, sizeof why), 0);
    assert_int_equal(kvb_result_close(writer, true, why, sizeof why), 0);
}

TEST(test_same)
{
    kvb_result results[2];
    kvb_result_file *file = NULL;

    kvb_result_init(&results[0]); /* not measured: skip */
    sample_fill(&results[1]);
    results_write(results, 2);
    if (kvb_result_load(path, &file, why, sizeof why) != 0)
        fail_msg("%s", why);
    assert_int_equal(file->n, 2);
    assert_memory_equal(&file->manifest, &sample_manifest, sizeof sample_manifest);

    const kvb_result *a = &results[1], *b = &file->results[1];
    assert_string_equal(b->reason, a->reason);
    assert_string_equal(b->pool_v, "f32");
    assert_int_equal(b->threads, 2);
    assert_int_equal(b->status, KVB_STATUS_FAIL);
    assert_true(isinf(b->rho) && b->rho > 0);
    assert_string_equal(b->out_digest, a->out_digest);
    assert_true(b->error.rho_worst == 0.25 && isnan(b->error.rho_lse) && b->error.max_abs == 1e-30);
    assert_int_equal(b->error.total_rows, 1ull << 40);
    assert_true(b->error.has_place && b->error.event == 7 && b->error.channel == 128);
    assert_true(isnan(b->error.got) && b->error.want == 0.1 && b->error.bound == 1e-6);
    assert_true(b->error.filter_rows == 128 && b->error.filter_z == 3.5);
    assert_true(b->error.unsaid_rows == 3 && b->error.unsaid_of == 10);
    assert_true(b->memory.prompts_offered == 90 && b->memory.prompts_found == 48);
    assert_int_equal(b->error.witness_queries, 3);
    assert_memory_equal(&b->time.all, &a->time.all, sizeof a->time.all);
    assert_true(b->time.kinds[KVB_KIND_DECODE].p99 == 1500 && b->time.kinds[KVB_KIND_DECODE].samples == 3);
    assert_int_equal(b->time.kinds[KVB_KIND_FILL].samples, 0);
    assert_int_equal(b->time.n_series, 2);
    assert_memory_equal(b->time.series, a->time.series, sizeof a->time.series);
    assert_int_equal(b->time.n_contexts, 2);
    assert_memory_equal(b->time.contexts, a->time.contexts, sizeof a->time.contexts);
    assert_int_equal(b->memory.n_groups, 1);
    assert_memory_equal(b->memory.groups, a->memory.groups, sizeof a->memory.groups);
    assert_int_equal(b->memory.n_timeline, 1);
    assert_memory_equal(b->memory.timeline, a->memory.timeline, sizeof a->memory.timeline);
    assert_true(isnan(b->time.kinds[KVB_KIND_FILL].median));
    assert_true(b->traffic.bytes_read == 123456789012 && isnan(b->traffic.bytes_walk));
    assert_true(b->memory.allocator_peak == 1048576 && isnan(b->memory.resident_peak));
    assert_int_equal(b->n_counters, 2);
    assert_true(isnan(b->counters[0].value));
    assert_string_equal(b->counters[0].unavailable, "not permitted");
    assert_string_equal(b->counters[1].name, "page_faults");
    assert_true(b->counters[1].value == 42);

    assert_int_equal(file->results[0].status, KVB_STATUS_SKIP);
    assert_false(file->results[0].error.has_place);
    assert_true(isnan(file->results[0].rho) && isnan(file->results[0].time.all.total));
    kvb_result_free(file);
}

/* The exact second line: keys in the order of result.h, whole numbers without fraction, no NaN, no infinity. */
TEST(test_line)
{
    static const char *const want =
        "{\"workload\": \"agent-fork\", \"cache\": \"seq\", \"pool_k\": \"f16\", \"pool_v\": \"f32\", "
        "\"kernel\": \"reference\", \"threads\": 2, \"growth\": \"\", \"out\": \"f32\", "
        "\"status\": \"fail\", \"reason\": \"rho > 1 at \\\"x\\\"\\n\", \"replay\": \"kvbench run 'a b'\", "
        "\"rho\": 1e308, \"out_digest\": \"cbf29ce484222325\", "
        "\"error\": {\"rho_worst\": 0.25, \"rho_lse\": null, \"max_abs\": 1e-30, \"rel_l2\": null, "
        "\"not_finite\": 0, \"checked_rows\": 10, \"total_rows\": 1099511627776, "
        "\"at\": {\"event\": 7, \"layer\": 0, \"query\": 0, \"head\": 0, \"channel\": 128, \"got\": null, "
        "\"want\": 0.1, \"bound\": 1e-6}, "
        "\"format\": {\"bits_k\": null, \"bits_v\": null, \"max_abs\": null, \"rel_l2\": null, \"kl_mean\": null, "
        "\"kl_max\": null}, "
        "\"filter\": {\"rows\": 128, \"z\": 3.5}, \"unsaid\": {\"rows\": 3, \"of\": 10}, \"witness\": {\"queries\": 3, "
        "\"cells\": 0}}, "
        "\"time\": {\"unit\": \"ns\", \"median\": 1250.5, \"p99\": 1500.0, \"mad\": 249.5, \"min\": 1000.0, "
        "\"max\": 1500.0, \"samples\": 3, \"total\": 3750.5, \"low\": null, \"high\": null, \"outliers\": 0, "
        "\"kinds\": {\"decode\": {\"median\": 1250.5, \"p99\": 1500.0, \"mad\": 249.5, \"min\": 1000.0, "
        "\"max\": 1500.0, \"samples\": 3, \"total\": 3750.5, \"low\": null, \"high\": null, \"outliers\": 0}}, "
        "\"series\": [1250.5, 1200.0], \"contexts\": [{\"cells\": 64, \"ns\": 1000.25, \"samples\": 6}, "
        "{\"cells\": 128, \"ns\": 1500.0, \"samples\": 3}], "
        "\"passes\": 0, \"warmup\": 0, \"null_difference\": null, \"harness_share\": null, \"cache_state\": \"\"}, "
        "\"traffic\": {\"kind\": \"\", \"bytes_read\": 123456789012, \"bytes_walk\": null, \"cells_read\": null, "
        "\"flops\": null, \"working_set\": null, \"gb_per_s\": 3.25, \"gflop_per_s\": null, "
        "\"read_gb_per_s\": null, \"peak_gflop_per_s\": null, \"of_read\": 0.125, \"of_limit\": null}, "
        "\"memory\": {\"allocator_peak\": 1048576, \"allocator_live\": null, \"reserved_bytes\": null, "
        "\"utilisation\": null, \"cells\": null, \"cells_peak\": null, \"high_water\": null, "
        "\"cells_written\": null, \"cells_moved\": null, \"cells_reused\": null, "
        "\"prompts\": {\"offered\": 90, \"found\": 48}, \"fragmentation\": null, "
        "\"growths\": null, \"copied_bytes\": null, \"copy_ns\": null, "
        "\"resident_peak\": null, \"scratch_bytes\": null, \"staged\": \"\", \"staged_bytes\": null, "
        "\"timeline\": [{\"event\": 0, \"live_bytes\": 1048576, \"held_bytes\": 3145728}], "
        "\"groups\": [{\"layers\": 5, \"cells\": 40, \"cells_peak\": 48, \"high_water\": 50}]}, "
        "\"placement\": \"\", "
        "\"counters\": {\"cycles\": null, \"page_faults\": 42, \"unavailable\": {\"cycles\": \"not permitted\"}, "
        "\"multiplexed\": {\"page_faults\": 0.5}}}\n";
    kvb_result result;

    sample_fill(&result);
    results_write(&result, 1);
    char *text = tests_read(path, NULL);
    assert_non_null(text);
    char *line = strchr(text, '\n');
    assert_non_null(line);
    assert_string_equal(line + 1, want);
    assert_int_equal(strncmp(text, "{\"schema\": \"kvbench.result/5\", \"version\"", 40), 0);
    assert_contains(text, "\"cpu_features\": [\"avx2\", \"fma\", \"f16c\"], \"isa\": \"avx2\", ");
    assert_contains(text, "\"openblas_note\": null");
    free(text);
}

/* Full arrays are read back whole. */
TEST(test_full_arrays)
{
    kvb_result result;
    kvb_result_file *file = NULL;

    sample_fill(&result);
    result.time.n_series = KVB_SERIES;
    result.time.n_contexts = KVB_CONTEXTS;
    result.memory.n_timeline = KVB_MEMORY_POINTS;
    for (uint32_t i = 0; i < KVB_SERIES; i++)
        result.time.series[i] = i + 0.5;
    for (uint32_t i = 0; i < KVB_CONTEXTS; i++)
        result.time.contexts[i] = (kvb_context_point){i, i + 0.25, i};
    for (uint32_t i = 0; i < KVB_MEMORY_POINTS; i++)
        result.memory.timeline[i] = (kvb_memory_point){i, 2 * i, 3 * i};
    results_write(&result, 1);
    assert_int_equal(kvb_result_load(path, &file, why, sizeof why), 0);
    const kvb_result *b = &file->results[0];
    assert_int_equal(b->time.n_series, KVB_SERIES);
    assert_memory_equal(b->time.series, result.time.series, sizeof result.time.series);
    assert_int_equal(b->time.n_contexts, KVB_CONTEXTS);
    assert_memory_equal(b->time.contexts, result.time.contexts, sizeof result.time.contexts);
    assert_int_equal(b->memory.n_timeline, KVB_MEMORY_POINTS);
    assert_memory_equal(b->memory.timeline, result.memory.timeline, sizeof result.memory.timeline);
    kvb_result_free(file);
}

/* A reason cut in the middle of a character, as by snprintf, leaves the file readable. */
TEST(test_cut_character)
{
    kvb_result result;
    kvb_result_file *file = NULL;

    sample_fill(&result);
    memcpy(result.reason, "K\xc3\xb6ln \xe2\x82", 9); /* the euro sign without its last byte */
    results_write(&result, 1);
    assert_int_equal(kvb_result_load(path, &file, why, sizeof why), 0);
    assert_string_equal(file->results[0].reason, "K\xc3\xb6ln ??");
    kvb_result_free(file);
}
