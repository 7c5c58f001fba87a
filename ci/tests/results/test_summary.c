/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the summary picks the fastest that computes something and compares it with the next kernel over the same rows;
 * a long list of failures is cut; nothing is said of what was not measured. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/results/sample.h"
#include "results/summary.h"

static void assert_summary(const kvb_summary *summary, const kvb_result *results, size_t n, const char *want)
{
    char *got = NULL;
    size_t bytes;
    FILE *out = open_memstream(&got, &bytes);

    assert_non_null(out);
    assert_int_equal(kvb_summary_print(summary, results, n, out), 0);
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

static void result_fill(kvb_result *r, kvb_status status, const char *pool, const char *kernel, double ns)
{
    kvb_result_init(r);
    snprintf(r->workload, KVB_NAME, "decode");
    snprintf(r->cache, KVB_NAME, "seq");
    snprintf(r->pool_k, KVB_NAME, "%s", pool);
    snprintf(r->pool_v, KVB_NAME, "%s", pool);
    snprintf(r->kernel, KVB_NAME, "%s", kernel);
    snprintf(r->growth, KVB_NAME, "double");
    r->threads = 1;
    r->status = status;
    r->time.all.median = ns;
}

static const kvb_summary plain = {.path = "r.jsonl", .note = "", .seconds = NAN, .n_failures = 2};
#define NEXT                                                                                                           \
    "records in r.jsonl\na page with plots: kvbench report r.jsonl\n"                                                  \
    "what changed since another run: kvbench compare BASE.jsonl r.jsonl\n"

static void test_fastest(void **state)
{
    kvb_result r[6];

    (void)state;
    result_fill(&r[0], KVB_STATUS_PASS, "f32", "slow", 4000);
    result_fill(&r[1], KVB_STATUS_PASS, "f32", "fast", 2000);
    result_fill(&r[2], KVB_STATUS_PASS, "f32", "middle", 3000);
    result_fill(&r[3], KVB_STATUS_PASS, "f16", "slow", 2500); /* nearer, but over other rows */
    result_fill(&r[4], KVB_STATUS_PASS, "f32", "witness", 10);
    result_fill(&r[5], KVB_STATUS_FAIL, "f32", "wrong", 1);
    r[4].error.witness_queries = 1;
    r[1].traffic.of_read = r[1].traffic.of_limit = 0.5;
    assert_summary(
        &plain, r, 5,
        "5 passed, 0 failed, 0 crashed, 0 timed out, 0 skipped\n\n"
        "fastest of  cache  pool  kernel  threads   median  faster than   limit                memory of all  "
        "over live rows\n"
        "----------  -----  ----  ------  -------  -------  ------------  -------------------  -------------  "
        "--------------\n"
        "decode      seq    f32   fast          1  2.00 us  1.50x middle  50.0 % of bandwidth\n\n" NEXT);
    r[1].traffic.of_limit = 0.625;
    r[1].time.null_difference = 0.034;
    r[5].rho = 2;
    assert_summary(
        &(kvb_summary){.note = "an old core", .seconds = 7.4, .n_failures = 2}, r + 1, 5,
        "4 passed, 1 failed, 0 crashed, 0 timed out, 0 skipped in 7 s; largest rho 2 "
        "(decode/seq/f32/wrong/1/double)\n"
        "fail decode/seq/f32/wrong/1/double: \n\n"
        "fastest of  cache  pool  kernel  threads   median  faster than   limit           memory of all  over "
        "live rows\n"
        "----------  -----  ----  ------  -------  -------  ------------  --------------  -------------  "
        "--------------\n"
        "decode      seq    f32   fast          1  2.00 us  1.50x middle  62.5 % of peak\n\n"
        "smallest difference this run can resolve: 3.4 % (99 % of its null comparisons stay below)\n"
        "note: an old core\n"
        "the first failure alone: kvbench run --workload decode --cache seq --pool f32 --kernel wrong "
        "--threads 1, with its --plugin if any\n"
        "no records were kept: -o F.jsonl keeps them\n"
        "a page with plots: kvbench report F.jsonl\n"
        "what changed since another run: kvbench compare BASE.jsonl F.jsonl\n");
}

static void test_failures(void **state)
{
    kvb_result r[4];

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        result_fill(&r[i], KVB_STATUS_CRASH, "f32", "mine", NAN);
        snprintf(r[i].reason, KVB_REASON, "SIGSEGV\x1b in line %zu\nand more", i);
        r[i].threads = (uint32_t)i + 1;
    }
    snprintf(r[0].workload, KVB_NAME, "it's; rm");
    assert_summary(
        &plain, r, 4,
        "0 passed, 0 failed, 4 crashed, 0 timed out, 0 skipped\n"
        "crash it's; rm/seq/f32/mine/1/double: SIGSEGV  in line 0\n"
        "crash decode/seq/f32/mine/2/double: SIGSEGV  in line 1\n"
        "and 2 more\n\n"
        "the first failure alone: kvbench run --workload 'it'\\''s; rm' --cache seq --pool f32 --kernel mine "
        "--threads 1, with its --plugin if any\n" NEXT);
}

static void test_nothing(void **state)
{
    kvb_result r;

    (void)state;
    result_fill(&r, KVB_STATUS_SKIP, "f32", "mine", NAN);
    assert_summary(&plain, &r, 1,
                   "0 passed, 0 failed, 0 crashed, 0 timed out, 1 skipped\n"
                   "nothing ran: every combination was skipped, for the reasons above\n\n" NEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fastest),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_nothing),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("summary", tests, NULL, NULL);
}
