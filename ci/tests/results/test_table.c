/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: tables to the letter in each format: alignment by characters, folding, quoting, numbers, empty cells; units;
 * and that any text becomes valid XML 1.0, and is read back as it was where XML can hold it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "ci/tests/results/sample.h"
#include "results/table.h"

static const char *const headings[] = {"name", ">count", "note", NULL};
static const char *const rows[][3] = {
    {"plain", "7", NULL},
    {"K\xc3\xb6ln", "-1.5e3", "a|b, \"c\"\\d"},
    {"12", "0x10", "two\nlines\x1b"},
    {"cut \xe2\x82", "01", ""},
};

/* What the table prints; the caller frees it. */
static char *printed(kvb_table_format format, size_t n_rows)
{
    kvb_table *table = kvb_table_new(headings);
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(table);
    assert_non_null(out);
    for (size_t i = 0; i < n_rows; i++)
        assert_int_equal(kvb_table_row(table, rows[i]), 0);
    assert_int_equal(kvb_table_print(table, format, out), 0);
    kvb_table_free(table);
    fclose(out);
    return text;
}

static void assert_prints(kvb_table_format format, size_t n_rows, const char *want)
{
    char *text = printed(format, n_rows);

    assert_string_equal(text, want);
    free(text);
}

static void test_text(void **state)
{
    (void)state;
    assert_prints(KVB_TABLE_TEXT, 4,
                  "name     count  note\n"
                  "------  ------  ----------\n"
                  "plain        7\n"
                  "K\xc3\xb6ln    -1.5e3  a|b, \"c\"\\d\n"
                  "12        0x10  two lines \n" /* control characters do not reach a terminal */
                  "cut ??      01\n");
    assert_prints(KVB_TABLE_TEXT, 0, "name  count  note\n----  -----  ----\n");
}

static void test_md(void **state)
{
    (void)state;
    assert_prints(KVB_TABLE_MD, 4,
                  "| name   |  count | note       |\n"
                  "|--------|-------:|------------|\n"
                  "| plain  |      7 |            |\n"
                  "| K\xc3\xb6ln   | -1.5e3 | a\\|b, \"c\"\\d |\n"
                  "| 12     |   0x10 | two lines  |\n"
                  "| cut ?? |     01 |            |\n");
}

static void test_csv(void **state)
{
    (void)state;
    assert_prints(KVB_TABLE_CSV, 4,
                  "name,count,note\n"
                  "plain,7,\n"
                  "K\xc3\xb6ln,-1.5e3,\"a|b, \"\"c\"\"\\d\"\n"
                  "12,0x10,\"two\nlines\x1b\"\n"
                  "cut ??,01,\n");
    assert_prints(KVB_TABLE_CSV, 0, "name,count,note\n");
}

static void test_json(void **state)
{
    (void)state;
    assert_prints(KVB_TABLE_JSON, 4,
                  "[\n"
                  " {\"name\": \"plain\", \"count\": 7, \"note\": null},\n"
                  " {\"name\": \"K\xc3\xb6ln\", \"count\": -1.5e3, \"note\": \"a|b, \\\"c\\\"\\\\d\"},\n"
                  " {\"name\": \"12\", \"count\": \"0x10\", \"note\": \"two\\u000alines\\u001b\"},\n"
                  " {\"name\": \"cut ??\", \"count\": \"01\", \"note\": \"\"}\n"
                  "]\n");
    assert_prints(KVB_TABLE_JSON, 0, "[]\n");
}

static void test_words(void **state)
{
    kvb_table_format format;

    (void)state;
    assert_true(kvb_table_format_parse("table", &format) && format == KVB_TABLE_TEXT);
    assert_true(kvb_table_format_parse("json", &format) && format == KVB_TABLE_JSON);
    assert_false(kvb_table_format_parse("text", &format));
    assert_false(kvb_table_format_parse("", &format));
}

/* A full disk under standard output is an error. */
static void test_full(void **state)
{
    kvb_table *table = kvb_table_new(headings);
    FILE *out = fopen("/dev/full", "w");

    (void)state;
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
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

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
    assert_int_equal(kvb_result_table(results, 4, skips, false, format, out), 0);
    fclose(out);
    assert_string_equal(text, want);
    free(text);
}

static void test_results(void **state)
{
    (void)state;
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

/* Empty columns go. In a folded table a long first cell stands alone, and a long last one goes on in further lines. */
static void test_fold(void **state)
{
    static const char *const names[] = {"name", "none", ">n", "reason", NULL};
    kvb_table *table = kvb_table_new(names);
    char *text = NULL, name[81], reason[16 * 8 + 1] = "";
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    memset(name, 'x', 80);
    name[80] = 0;
    for (int i = 0; i < 8; i++)
        strcat(reason, i < 7 ? "fifteen-letters " : "fifteen-letters");
    assert_int_equal(kvb_table_row(table, (const char *const[]){name, NULL, "1", reason}), 0);
    assert_int_equal(kvb_table_row(table, (const char *const[]){"short", "", "2", "b"}), 0);
    kvb_table_drop_empty(table);
    kvb_table_fold(table);
    assert_int_equal(kvb_table_print(table, KVB_TABLE_TEXT, out), 0);
    fclose(out);
    const char *line = strchr(text, '\n') + 1; /* below the headings */
    assert_int_equal(strspn(line, "-"), 100 - 2 - 1 - 2 - 32);
    line = strchr(line, '\n') + 1;
    assert_memory_equal(line, name, 80);
    assert_int_equal(line[80], '\n'); /* no blanks behind it */
    for (int i = 0; i < 4; i++) {
        line = strchr(line, '\n') + 1;
        assert_int_equal(strspn(line, i == 0 ? " 1" : " "), 68);
        assert_memory_equal(line + 68, "fifteen-letters fifteen-letters\n", 32);
    }
    line = strchr(line, '\n') + 1;
    assert_memory_equal(line, "short ", 6);
    assert_string_equal(line + 65, "2  b\n");
    kvb_table_free(table);
    free(text);
}

static void assert_time(double ns, const char *want)
{
    char text[KVB_UNIT_TEXT];

    kvb_time_text(ns, text);
    assert_string_equal(text, want);
}

static void assert_bytes(double bytes, const char *want)
{
    char text[KVB_UNIT_TEXT];

    kvb_bytes_text(bytes, text);
    assert_string_equal(text, want);
}

static void test_units(void **state)
{
    (void)state;
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

static void test_utf8(void **state)
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

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(kvb_utf8_bytes(cases[i].text), cases[i].bytes);
    assert_int_equal(kvb_utf8_width("o\xcc\x88z"), 2); /* o, combining diaeresis, z */
}

static void assert_xml(const char *text, const char *want)
{
    char *got = NULL;
    size_t bytes;
    FILE *out = open_memstream(&got, &bytes);

    assert_non_null(out);
    kvb_xml_put(text, out);
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

static void test_xml(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),    cmocka_unit_test(test_md),    cmocka_unit_test(test_csv),
        cmocka_unit_test(test_json),    cmocka_unit_test(test_words), cmocka_unit_test(test_full),
        cmocka_unit_test(test_results), cmocka_unit_test(test_fold),  cmocka_unit_test(test_units),
        cmocka_unit_test(test_utf8),    cmocka_unit_test(test_xml),
    };

    return cmocka_run_group_tests_name("tables", tests, NULL, NULL);
}
