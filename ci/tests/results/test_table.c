/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: tables and the summary of records. */
#include "ci/tests/tests.h"
#include "ci/tests/results/sample.h"
#include "results/summary.h"
#include "results/table.h"

/* Shows: the exact tables in each format: alignment by characters, folding, quoting, numbers, empty cells; units. Any
 * text becomes valid XML 1.0, and is read back unchanged if XML can hold it. */

static const char *const headings[] = {"name", ">count", "note", NULL};
static const char *const table_rows[][3] = {
    {"plain", "7", NULL},
    {"K\xc3\xb6ln", "-1.5e3", "a|b, \"c\"\\d"},
    {"12", "0x10", "two\nlines\x1b"},
    {"cut \xe2\x82", "01", ""},
};

static void assert_prints(kvb_table_format format, size_t n_rows, const char *want)
{
    kvb_table *table = kvb_table_new(headings);

    assert_non_null(table);
    for (size_t i = 0; i < n_rows; i++)
        assert_int_equal(kvb_table_row(table, table_rows[i]), 0);
    assert_int_equal(kvb_table_print(table, format, tests_print()), 0);
    kvb_table_free(table);
    assert_string_equal(tests_printed(), want);
}

TEST(test_text)
{
    assert_prints(KVB_TABLE_TEXT, 4,
                  "name     count  note\n"
                  "------  ------  ----------\n"
                  "plain        7\n"
                  "K\xc3\xb6ln    -1.5e3  a|b, \"c\"\\d\n"
                  "12        0x10  two lines \n" /* control characters do not reach a terminal */
                  "cut ??      01\n");
    assert_prints(KVB_TABLE_TEXT, 0, "name  count  note\n----  -----  ----\n");
}

TEST(test_md)
{
    assert_prints(KVB_TABLE_MD, 4,
                  "| name   |  count | note       |\n"
                  "|--------|-------:|------------|\n"
                  "| plain  |      7 |            |\n"
                  "| K\xc3\xb6ln   | -1.5e3 | a\\|b, \"c\"\\d |\n"
                  "| 12     |   0x10 | two lines  |\n"
                  "| cut ?? |     01 |            |\n");
}

TEST(test_csv)
{
    assert_prints(KVB_TABLE_CSV, 4,
                  "name,count,note\n"
                  "plain,7,\n"
                  "K\xc3\xb6ln,-1.5e3,\"a|b, \"\"c\"\"\\d\"\n"
                  "12,0x10,\"two\nlines\x1b\"\n"
                  "cut ??,01,\n");
    assert_prints(KVB_TABLE_CSV, 0, "name,count,note\n");
}

TEST(test_json)
{
    assert_prints(KVB_TABLE_JSON, 4,
                  "[\n"
                  " {\"name\": \"plain\", \"count\": 7, \"note\": null},\n"
                  " {\"name\": \"K\xc3\xb6ln\", \"count\": -1.5e3, \"note\": \"a|b, \\\"c\\\"\\\\d\"},\n"
                  " {\"name\": \"12\", \"count\": \"0x10\", \"note\": \"two\\u000alines\\u001b\"},\n"
                  " {\"name\": \"cut ??\", \"count\": \"01\", \"note\": \"\"}\n"
                  "]\n");
    assert_prints(KVB_TABLE_JSON, 0, "[]\n");
}

/* A full disk under standard output is an error. */
TEST(test_full)
{
    kvb_table *table = kvb_table_new(headings);
    FILE *out = fopen("/dev/full", "w");

    if (!out) {
        kvb_table_free(table);
        skip();
    }
    assert_true(kvb_table_print(table, KVB_TABLE_TEXT, out) < 0);
    fclose(out);
    kvb_table_free(table);
}

static void assert_result_table(kvb_table_format format, bool skips, const char *want)
{
    static const char *const caches[] = {"contiguous", "slab", "contiguous"}, *const pools[] = {"f16", "f16", "f32"};
    kvb_result results[4];
    static const char *const workloads[] = {"eagle-tree", "eagle-tree", "eagle"};
    static const char *const reasons[] = {"line 2: no tree face", "no room", "line 9: no tree face"};
    for (int i = 0; i < 3; i++) {
        kvb_result_init(&results[i]);
        snprintf(results[i].workload, KVB_NAME, "%s", workloads[i]);
        snprintf(results[i].cache, KVB_NAME, "%s", caches[i]);
        snprintf(results[i].pool_k, KVB_NAME, "%s", pools[i]);
        snprintf(results[i].pool_v, KVB_NAME, "%s", pools[i]);
        snprintf(results[i].kernel, KVB_NAME, "reference");
        snprintf(results[i].reason, KVB_REASON, "%s", reasons[i]);
        results[i].threads = 1;
    }
    sample_fill(&results[3]);
    assert_int_equal(kvb_result_table(results, 4, skips, false, format, tests_print()), 0);
    assert_string_equal(tests_printed(), want);
}

TEST(test_results)
{
    assert_result_table(
        KVB_TABLE_TEXT, false,
        "workload    cache  pool         kernel     threads  status  rho   median      p99  of read     peak\n"
        "----------  -----  -----------  ---------  -------  ------  ---  -------  -------  -------  -------\n"
        "agent-fork  seq    k=f16,v=f32  reference        2  fail    inf  1.25 us  1.50 us   12.5 %  1.0 MiB\n");
    assert_result_table(
        KVB_TABLE_CSV, true,
        "workload,cache,pool,kernel,threads,status,rho,checked_rows,median_ns,median_error_ns,p99_ns,steps,gb_per_s,"
        "of_read,peak_bytes,"
        "reason\n"
        "eagle-tree,contiguous,f16,reference,1,skip,,,,,,,,,,line 2: no tree face\n"
        "eagle-tree,slab,f16,reference,1,skip,,,,,,,,,,no room\n"
        "eagle,contiguous,f32,reference,1,skip,,,,,,,,,,line 9: no tree face\n"
        "agent-fork,seq,\"k=f16,v=f32\",reference,2,fail,1e+308,10,1250.5,,1500,3,3.25,0.125,1048576,"
        "\"rho > 1 at \"\"x\"\"\n\"\n");
}

/* Empty columns are left out. In a folded table a long first cell has its own line, and a long last one continues in
 * further lines. */
TEST(test_fold)
{
    static const char *const names[] = {"name", "none", ">n", "reason", NULL};
    kvb_table *table = kvb_table_new(names);
    char name[81], reason[16 * 8 + 1] = "";

    memset(name, 'x', 80);
    name[80] = 0;
    for (int i = 0; i < 8; i++)
        strcat(reason, i < 7 ? "fifteen-letters " : "fifteen-letters");
    assert_int_equal(kvb_table_row(table, (const char *const[]){name, NULL, "1", reason}), 0);
    assert_int_equal(kvb_table_row(table, (const char *const[]){"short", "", "2", "b"}), 0);
    kvb_table_drop_empty(table);
    kvb_table_fold(table);
    assert_int_equal(kvb_table_print(table, KVB_TABLE_TEXT, tests_print()), 0);
    const char *line = strchr(tests_printed(), '\n') + 1; /* below the headings */
    assert_int_equal(strspn(line, "-"), 100 - 2 - 1 - 2 - 32);
    line = strchr(line, '\n') + 1;
    assert_memory_equal(line, name, 80);
    assert_int_equal(line[80], '\n'); /* no trailing blanks */
    for (int i = 0; i < 4; i++) {
        line = strchr(line, '\n') + 1;
        assert_int_equal(strspn(line, i == 0 ? " 1" : " "), 68);
        assert_memory_equal(line + 68, "fifteen-letters fifteen-letters\n", 32);
    }
    line = strchr(line, '\n') + 1;
    assert_memory_equal(line, "short ", 6);
    assert_string_equal(line + 65, "2  b\n");
    kvb_table_free(table);
}

static void assert_time(double ns, const char *want)
{
    assert_string_equal(kvb_time_text(ns).text, want);
}

static void assert_bytes(double bytes, const char *want)
{
    assert_string_equal(kvb_bytes_text(bytes).text, want);
}

TEST(test_units)
{
    assert_time(0, "0 ns");
    assert_time(850, "850 ns");
    assert_time(12.25, "12.2 ns");
    assert_time(999.6, "1.00 us");
    assert_time(12345, "12.3 us");
    assert_time(99960, "100 us");
    assert_time(1.25e6, "1.25 ms");
    assert_time(3e9, "3.00 s");
    assert_time(1.2e15, "1200000 s");
    assert_time(1e300, "1e+291 s");
    assert_time(NAN, "");
    assert_bytes(0, "0 B");
    assert_bytes(1023, "1023 B");
    assert_bytes(1536, "1.5 KiB");
    assert_bytes(1048575, "1.0 MiB");
    assert_bytes(24.0 * (1ull << 30), "24.0 GiB");
    assert_bytes(1e300, "9e+284 PiB");
    assert_bytes(NAN, "");
}

TEST(test_utf8)
{
    /* bytes of the first character; 0: not valid by RFC 3629 */
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {
        {"a", 1},
        {"\xc3\xb6", 2},
        {"\xe2\x82\xac", 3},
        {"\xf0\x9f\x98\x80", 4},
        {"\x80", 0},
        {"\xc0\x80", 0},
        {"\xc3", 0},
        {"\xe0\x80\x80", 0},
        {"\xff", 0},
        {"\xed\xa0\x80", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xc1\xbf", 0},
        {"\xe2\x82", 0},
        {"\xf0\x80\x80\x80", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(kvb_utf8_bytes(cases[i].text), cases[i].bytes);
    assert_int_equal(kvb_utf8_width("o\xcc\x88z"), 2); /* o, combining diaeresis, z */
}

static void assert_xml(const char *text, const char *want)
{
    kvb_xml_put(text, tests_print());
    assert_string_equal(tests_printed(), want);
}

TEST(test_xml)
{
    assert_xml("", "");
    assert_xml("k=f16,v=q4_0 \xc3\xa9\xf0\x9f\x98\x80", "k=f16,v=q4_0 \xc3\xa9\xf0\x9f\x98\x80");
    assert_xml("<a & \"b\" 'c'>", "&lt;a &amp; &quot;b&quot; &#39;c&#39;&gt;");
    assert_xml("]]>", "]]&gt;");
    assert_xml("\t\r\n", "&#9;&#13;&#10;");
    assert_xml("\x01\x1b[31m\x1f\x7f", "??[31m?\x7f"); /* production 2 allows 0x7f */
    assert_xml("\xef\xbf\xbd\xef\xbf\xbe\xef\xbf\xbf.", "\xef\xbf\xbd??.");
    assert_xml("cut \xe2\x82", "cut ??");
    assert_xml("\xed\xa0\x80", "???"); /* a surrogate */
    assert_xml("\xff<", "?&lt;");
}

/* Shows: the summary names for each workload the fastest combination that computes attention, the smallest, and how
 * many passed. It counts failures and skips of one kind instead of repeating them, lists rows only if they are few,
 * keeps to the width of the page, and leaves out quantities that were not measured. */

/* The printed summary, valid until the next. */
static char *summary_printed(const kvb_summary *summary, const kvb_result *results, size_t n)
{
    assert_int_equal(kvb_summary_print(summary, results, n, tests_print()), 0);
    return tests_printed();
}

static void assert_summary(const kvb_summary *summary, const kvb_result *results, size_t n, const char *want)
{
    assert_string_equal(summary_printed(summary, results, n), want);
}

static void result_fill(kvb_result *r, kvb_status status, const char *pool, const char *kernel, double ns)
{
    kvb_result_begin(r, "decode", "seq", pool, pool, kernel);
    r->status = status;
    r->time.all.median = ns;
}

static const kvb_summary plain = {.path = "r.jsonl", .note = "", .seconds = NAN};
#define NEXT                                                                                                           \
    "every row: kvbench show r.jsonl --all\na page with plots: kvbench report r.jsonl\n"                               \
    "what changed since another run: kvbench compare BASE.jsonl r.jsonl\n"

/* The witness is the fastest and the smallest, and the failed one is faster still. Neither may be named. */
TEST(test_workloads)
{
    kvb_result r[6];

    result_fill(&r[0], KVB_STATUS_PASS, "f32", "slow", 4000);
    result_fill(&r[1], KVB_STATUS_PASS, "f32", "fast", 2000);
    result_fill(&r[2], KVB_STATUS_PASS, "q4_0", "slow", 3000);
    result_fill(&r[3], KVB_STATUS_PASS, "q4_0", "fast", 2500);
    result_fill(&r[4], KVB_STATUS_PASS, "f32", "witness", 10);
    result_fill(&r[5], KVB_STATUS_FAIL, "f32", "wrong", 1);
    r[4].error.witness_queries = 1;
    for (size_t i = 0; i < 6; i++)
        r[i].memory.allocator_peak = i == 4 ? 1 : r[i].pool_k[0] == 'q' ? 2048 : 8192;
    r[1].traffic.of_read = 0.5;
    r[1].traffic.of_limit = 0.625;
    for (size_t i = 0; i < 4; i++)
        r[i].time.null_difference = 0.0001 * (double)(i + 1);
    assert_summary(&plain, r, 5,
                   "5 passed, 0 failed, 0 crashed, 0 timed out, 0 skipped\n"
                   "1 of the passed only witnessed: each query saw the right tokens, no output was judged\n"
                   "smallest difference this run can resolve: 1.1 % (4 null comparisons)\n\n"
                   "workload  passed  fastest        median  limit  smallest   memory\n"
                   "--------  ------  ------------  -------  -----  --------  -------\n"
                   "decode         5  seq f32 fast  2.00 us   62 %  seq q4_0  2.0 KiB\n"
                   "limit: share of the machine's read bandwidth or arithmetic peak, whichever is nearer\n\n" NEXT);
    r[1].traffic.of_limit = NAN;
    for (size_t i = 0; i < 4; i++)
        r[i].time.null_difference = i == 1 ? 0.034 : NAN;
    for (size_t i = 1; i < 6; i++)
        r[i].threads = 2;
    snprintf(r[2].kernel, KVB_NAME, "wrong"); /* this kernel passes in q4_0: the choice is whole */
    r[5].rho = 2;
    snprintf(r[5].reason, KVB_REASON, "rho 2");
    snprintf(r[5].replay, KVB_REPLAY, "./kvbench run --kernel wrong");
    assert_summary(
        &(kvb_summary){.note = "an old core", .seconds = 7.4}, r + 1, 5,
        "smallest difference this run can resolve: unknown (1 null comparison), so it cannot tell a change of\n"
        "    10 %; several runs of each build can, or a duel of two builds (kvbench compare --help)\n\n"
        "4 passed, 1 failed, 0 crashed, 0 timed out, 0 skipped in 7 s\n"
        "1 of the passed only witnessed: each query saw the right tokens, no output was judged\n"
        "largest rho: 2 of decode/seq/f32/wrong/2/double\n"
        "fail decode/seq/f32/wrong/2/double: rho 2\n\n"
        "workload  passed  fastest                   median  smallest   memory\n"
        "--------  ------  -----------------------  -------  --------  -------\n"
        "decode    4 of 5  seq f32 fast, 2 threads  2.00 us  seq q4_0  2.0 KiB\n\n"
        "note: an old core\n"
        "the first failure alone: ./kvbench run --kernel wrong\n"
        "every row: the same command with --all; -o F.jsonl keeps the records for show, report and compare\n");
}

/* A pool that only a witness read does not count as judged, and does not hide pools that were judged after it. */
TEST(test_judged)
{
    kvb_result r[3];

    result_fill(&r[0], KVB_STATUS_PASS, "f32", "witness", NAN);
    result_fill(&r[1], KVB_STATUS_PASS, "f32", "flash", NAN);
    result_fill(&r[2], KVB_STATUS_PASS, "f16", "flash", NAN);
    r[0].error.witness_queries = 1;
    r[1].rho = r[2].rho = 0.5;
    assert_int_equal(kvb_summary_right(&plain, r, 3, tests_print()), 0);
    assert_contains(tests_printed(), "1 history, 1 cache, 1 kernel, 2 formats:\n");
}

static void assert_unjudged(const kvb_result *r, size_t n, bool skipped_too, size_t count, const char *names)
{
    char text[KVB_REASON];

    assert_int_equal(kvb_results_unjudged(r, n, skipped_too, text), count);
    assert_string_equal(text, names);
}

/* A pool counts as judged by any kernel in any combination. An unjudged one is named once; skipped ones only on
 * request. */
TEST(test_unjudged)
{
    static const char *const pools[] = {"f32", "x1", "x2", "x3", "x4", "x5", "x6"};
    kvb_result r[16];
    size_t n = 0;

    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        for (int again = 0; again < 2; again++) {
            result_fill(&r[n], KVB_STATUS_PASS, pools[i], "witness", 10);
            r[n++].error.witness_queries = 1;
        }
    result_fill(&r[n++], KVB_STATUS_FAIL, "f32", "mine", 10);
    assert_unjudged(r, n, false, 6, "x1, x2, x3, x4, x5 and 1 more");
    snprintf(r[3].pool_v, KVB_NAME, "f16");
    assert_unjudged(r + 2, 2, false, 2, "x1, k=x1,v=f16");
    assert_unjudged(r, 2, false, 1, "f32");
    assert_unjudged(r + 14, 1, true, 0, "");
    result_fill(&r[n], KVB_STATUS_SKIP, "x7", "mine", NAN);
    assert_unjudged(r + 14, 2, false, 0, "");
    assert_unjudged(r + 14, 2, true, 1, "x7");
}

/* Records of a run that only checked have no times. */
TEST(test_untimed)
{
    kvb_result r[2];

    result_fill(&r[0], KVB_STATUS_PASS, "f32", "slow", NAN);
    result_fill(&r[1], KVB_STATUS_PASS, "f16", "slow", NAN);
    r[0].memory.allocator_peak = 4096;
    r[1].memory.allocator_peak = 2048;
    r[0].rho = 0.25;
    const kvb_summary checked = {
        .path = "r.jsonl", .note = "", .coverage = "every pair", .untimed = true, .seconds = NAN, .is_markdown = true};
    assert_summary(&checked, r, 2,
                   "# kvbench: passed, 2 of 2\n\n- 2 passed, 0 failed, 0 crashed, 0 timed out, 0 skipped\n"
                   "- every pair\n- nothing was timed (--check)\n"
                   "- largest rho: 0.25 of decode/seq/f32/slow/1/double\n\n"
                   "| workload | passed | smallest |  memory |\n"
                   "|----------|-------:|----------|--------:|\n"
                   "| decode   |      2 | seq f16  | 2.0 KiB |\n\n"
                   "- every row: `kvbench show r.jsonl --all`\n- a page with plots: `kvbench report r.jsonl`\n"
                   "- what changed since another run: `kvbench compare BASE.jsonl r.jsonl`\n");
}

TEST(test_failures)
{
    kvb_result r[12];

    for (size_t i = 0; i < 12; i++) {
        result_fill(&r[i], KVB_STATUS_CRASH, "f32", "mine", NAN);
        r[i].threads = (uint32_t)i + 1;
        snprintf(r[i].reason, KVB_REASON, "SIG%zu\x1b at event %zu\nand more", i < 4 ? 0 : i, i);
    }
    snprintf(r[0].workload, KVB_NAME, "it's; rm");
    assert_summary(&plain, r, 12,
                   "0 passed, 0 failed, 12 crashed, 0 timed out, 0 skipped\n"
                   "crash it's; rm/seq/f32/mine/1/double: SIG0  at event 0 (and 3 more like it)\n"
                   "crash decode/seq/f32/mine/5/double: SIG4  at event 4\n"
                   "crash decode/seq/f32/mine/6/double: SIG5  at event 5\n"
                   "crash decode/seq/f32/mine/7/double: SIG6  at event 6\n"
                   "crash decode/seq/f32/mine/8/double: SIG7  at event 7\n"
                   "and 4 more that did not pass, for other reasons\n\n"
                   "workload   passed\n"
                   "--------  -------\n"
                   "it's; rm   0 of 1\n"
                   "decode    0 of 11\n\n" NEXT);
}

/* Skips are counted by reason, the most frequent first. Reasons that differ only in the names of pool and cache, a line
 * of the trace, or numbers are the same. */
TEST(test_skips)
{
    static const char *const reasons[] = {
        "cache seq has no tree face",
        "line 2: mine: f32: no codes",
        "cache seq has no tree face",
        "line 7: mine: f32: no codes",
        "step: 100 cells, above --most 64",
        "cache seq has no tree face",
        "step: 1e6 cells, above --most 64",
        "the seq cache has no tree face",
        "mine: f16: no codes", /* not its own pool */
    };
    enum { N = sizeof reasons / sizeof *reasons };
    kvb_result r[N + 9];

    for (size_t i = 0; i < N + 9; i++) {
        result_fill(&r[i], KVB_STATUS_SKIP, "f32", "mine", NAN);
        if (i < N)
            snprintf(r[i].reason, KVB_REASON, "%s", reasons[i]);
        else
            snprintf(r[i].reason, KVB_REASON, "reason %c", (char)('a' + i - N));
    }
    snprintf(r[2].cache, KVB_NAME, "slab");
    snprintf(r[2].reason, KVB_REASON, "cache slab has no tree face");
    assert_summary(&plain, r, N,
                   "0 passed, 0 failed, 0 crashed, 0 timed out, 9 skipped\n"
                   "nothing ran: every combination was skipped\n\n"
                   "skipped:\n"
                   "    3  the cache has no tree face\n"
                   "    2  mine: no codes\n"
                   "    2  step: 100 cells, above --most 64 (numbers vary)\n"
                   "    1  the seq cache has no tree face\n"
                   "    1  mine: f16: no codes\n\n" NEXT);
    char *text = summary_printed(&plain, r, N + 9);
    assert_contains(text, "    1  reason c\n    6  for 6 other reasons\n\n");
    snprintf(r[0].cache, KVB_NAME, "x"); /* "the cache" is longer than "cache x" */
    memset(r[0].reason, '.', KVB_REASON - 1);
    memcpy(r[0].reason, "cache x ", 8);
    text = summary_printed(&plain, r, 1);
    assert_contains(text, "    1  the cache\n    ....");
}

/* Combinations that ran have rows if they are few; with ALL, skipped ones have rows, too. */
TEST(test_rows)
{
    static const char rows[] = "workload  cache  pool  kernel  status   median\n"
                               "--------  -----  ----  ------  ------  -------\n"
                               "decode    seq    f32   mine    pass    1.00 us\n";
    kvb_summary summary = plain;
    kvb_result r[22];

    for (size_t i = 0; i < 22; i++)
        result_fill(&r[i], KVB_STATUS_PASS, "f32", "mine", 1000);
    for (size_t i = 0; i < 21; i++)
        r[i].time.null_difference = 0.001;
    r[21].status = KVB_STATUS_SKIP;
    r[21].time.all.median = NAN;
    snprintf(r[21].reason, KVB_REASON, "no room");
    for (kvb_summary_rows which = KVB_ROWS_NONE; which <= KVB_ROWS_ALL; which++)
        for (size_t n = 20; n <= 21; n++) {
            summary.rows = which;
            char *text = summary_printed(&summary, r + 22 - n - 1, n + 1); /* n ran, one is skipped */
            assert_int_equal(strncmp(text, rows, sizeof rows - 1) == 0, which == KVB_ROWS_FEW && n == 20);
            assert_int_equal(strstr(text, "skip             no room\n") != NULL, which == KVB_ROWS_ALL);
            assert_int_equal(strstr(text, "--all") == NULL, which == KVB_ROWS_ALL); /* one was skipped */
        }
    summary.rows = KVB_ROWS_FEW;
    char *text = summary_printed(&summary, r, 20); /* few, and none is skipped */
    assert_null(strstr(text, "--all"));
}

/* With names as long as the longest built-in ones no line is wider than the page. */
TEST(test_width)
{
    kvb_result r;

    result_fill(&r, KVB_STATUS_PASS, "a4g64+had", "flash-bf16", 123456);
    snprintf(r.workload, KVB_NAME, "batched-multi-seq-8x128@llama");
    snprintf(r.cache, KVB_NAME, "contiguous");
    r.memory.allocator_peak = 123456;
    r.traffic.of_limit = 0.5;
    r.rho = 0.5;
    r.time.all.p99 = 234567;
    r.traffic.gb_per_s = 12.5;
    r.traffic.of_read = 0.25;
    char *text =
        summary_printed(&(kvb_summary){.path = "r.jsonl", .note = "", .seconds = NAN, .rows = KVB_ROWS_FEW}, &r, 1);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_in_range(strlen(line), 1, KVB_PAGE_COLUMNS);
}

/* Choice c of 12: 2 caches, 3 pools and 2 kernels. */
static void choice_fill(kvb_result *r, unsigned c)
{
    static const char *const pools[] = {"f32", "f16", "q8_0"}, *const kernels[] = {"a", "b"},
                             *const caches[] = {"seq", "slab"};
    result_fill(r, c % 5 ? KVB_STATUS_PASS : KVB_STATUS_SKIP, pools[c / 2 % 3], kernels[c % 2], 1000 + c);
    snprintf(r->cache, KVB_NAME, "%s", caches[c / 6]);
}

/* Is the set a product of caches, pools and kernels? Written in another way: for any two choices it has all mixtures of
 * their caches, pools and kernels. */
static bool is_whole(unsigned set)
{
    for (unsigned a = 0; a < 12; a++)
        for (unsigned b = 0; b < 12; b++) {
            const unsigned mixed[] = {a / 6 * 6 + b % 6, a / 6 * 6 + b / 2 % 3 * 2 + a % 2, a / 2 * 2 + b % 2};
            for (int i = 0; (set >> a & 1) && (set >> b & 1) && i < 3; i++)
                if (!(set >> mixed[i] & 1))
                    return false;
        }
    return true;
}

TEST(test_comparable)
{
    kvb_result r[13];
    const kvb_result *at[13];
    size_t whole = 0;

    for (unsigned c = 0; c < 12; c++)
        choice_fill(&r[c], c);
    for (unsigned set = 1; set < 1u << 12; set++) { /* all sets, so also those that --pairs can choose */
        size_t n = 0;
        for (unsigned c = 0; c < 12; c++)
            if (set >> c & 1)
                at[n++] = &r[c];
        assert_int_equal(kvb_comparable(at, n), is_whole(set));
        whole += is_whole(set);
    }
    assert_int_equal(whole, 3 * 7 * 3); /* non-empty sets of caches, pools, kernels */

    r[12] = r[11]; /* the same choice twice */
    assert_false(kvb_comparable((const kvb_result *const[]){&r[11], &r[12]}, 2));
    snprintf(r[12].kernel, KVB_NAME, "a"); /* only the kernel differs; then also a setting */
    assert_true(kvb_comparable((const kvb_result *const[]){&r[11], &r[12]}, 2));
    snprintf(r[12].setting, sizeof r[12].setting, "--page-cells 3");
    assert_false(kvb_comparable((const kvb_result *const[]){&r[11], &r[12]}, 2));
}

/* Each pair of pool and kernel ran in one cache or the other: the fastest may only have had the better cache. */
TEST(test_pairs_unranked)
{
    kvb_result r[6];
    char *text;

    for (unsigned i = 0; i < 6; i++) {
        choice_fill(&r[i], i + (i == 1 || i == 2 || i == 5 ? 6 : 0));
        r[i].status = KVB_STATUS_PASS;
    }
    text = summary_printed(&plain, r, 6);
    assert_null(strstr(text, "fastest"));
}

/* A tab of the format ends a cell; a tab in a name, as file names may have, does not. After a row that fails all later
 * rows, and the end, fail. */
TEST(test_a_row_is_put_in_one_text)
{
    kvb_table *table = kvb_table_new((const char *const[]){"a", "b", "c", NULL});
    assert_int_equal(kvb_table_put(table, "%u\t%s\t%s", 7u, "a\tb", "x\ty"), 0);
    assert_int_equal(kvb_table_put(table, "%s\t%s", "", "two"), 0);
    assert_int_equal(kvb_table_put(table, "one"), 0);
    assert_int_equal(kvb_table_end(table, KVB_TABLE_CSV, tests_print()), 0);
    assert_string_equal(tests_printed(), "a,b,c\n7,a\tb,x\ty\n,two,\none,,\n");
    assert_int_equal(kvb_table_put(NULL, "x"), -ENOMEM);
    assert_int_equal(kvb_table_row(NULL, (const char *const[]){"x"}), -ENOMEM);
    assert_int_equal(kvb_table_end(NULL, KVB_TABLE_CSV, stdout), -ENOMEM);
}
