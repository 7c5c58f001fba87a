/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: what is written to a result file is read back the same, in the documented keys and their order. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/results/sample.h"

static char folder[256], path[300], why[512];

static int set_up(void **state)
{
    (void)state;
    if (!sample_folder(folder, sizeof folder))
        return -1;
    snprintf(path, sizeof path, "%s/r.jsonl", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails if a temporary file was left behind */
}

static void results_write(const kvb_result *results, size_t n)
{
    kvb_result_writer *writer;

    if (kvb_result_create(path, &sample_manifest, &writer, why, sizeof why) != 0)
        fail_msg("%s", why);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(kvb_result_write(writer, &results[i], why, sizeof why), 0);
    assert_int_equal(kvb_result_close(writer, true, why, sizeof why), 0);
}

static void test_same(void **state)
{
    kvb_result results[2];
    kvb_result_file *file = NULL;

    (void)state;
    kvb_result_init(&results[0]); /* nothing measured: skip */
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

/* The second line, to the letter: keys in the order of result.h, whole numbers whole, no NaN, no infinity. */
static void test_line(void **state)
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

    (void)state;
    sample_fill(&result);
    results_write(&result, 1);
    char *text = sample_read(path);
    assert_non_null(text);
    char *line = strchr(text, '\n');
    assert_non_null(line);
    assert_string_equal(line + 1, want);
    assert_int_equal(strncmp(text, "{\"schema\": \"kvbench.result/5\", \"version\"", 40), 0);
    assert_non_null(strstr(text, "\"cpu_features\": [\"avx2\", \"fma\", \"f16c\"], \"isa\": \"avx2\", "));
    assert_non_null(strstr(text, "\"openblas_note\": null"));
    free(text);
}

/* Arrays as full as they can be come back whole. */
static void test_full_arrays(void **state)
{
    kvb_result result;
    kvb_result_file *file = NULL;

    (void)state;
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

/* A reason that was cut in the middle of a character, as snprintf does, leaves the file readable. */
static void test_cut_character(void **state)
{
    kvb_result result;
    kvb_result_file *file = NULL;

    (void)state;
    sample_fill(&result);
    memcpy(result.reason, "K\xc3\xb6ln \xe2\x82", 9); /* the euro sign without its last byte */
    results_write(&result, 1);
    assert_int_equal(kvb_result_load(path, &file, why, sizeof why), 0);
    assert_string_equal(file->results[0].reason, "K\xc3\xb6ln ??");
    kvb_result_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_full_arrays),
        cmocka_unit_test(test_cut_character),
    };

    return cmocka_run_group_tests_name("result files, there and back", tests, set_up, tear_down);
}
