/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that imported requests become the right events (sharing, clamps, admission, departure), that the trace loads,
 * and that bad input is refused with file, line and what was expected. */
#include "scratch.h"

#include "workloads/import/import.h"
#include "workloads/trace.h"

#define CSV "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define AT  "2023-11-16 18:15:46.68,"
#define REQUEST(time, input, output, ids)                                                                              \
    "{\"timestamp\":" #time ",\"input_length\":" #input ",\"output_length\":" #output ",\"hash_ids\":[" ids "]}\n"
#define CP(src, dst, p1)      "{\"seq_cp\":{\"src\":" #src ",\"dst\":" #dst ",\"p1\":" #p1 "}}\n"
#define PREFILL(seq, from, n) "{\"prefill\":{\"seq\":" #seq ",\"from\":" #from ",\"n\":" #n "}}\n"
#define STEP(pos, seq)        "{\"step\":{\"pos\":[" pos "],\"seq\":[" seq "]}}\n"
#define RM(seq)               "{\"seq_rm\":{\"seq\":" #seq "}}\n"

typedef struct good {
    const char *what;
    const kvb_import_format *format;
    uint32_t requests, shrink, sequences;
    const char *input, *events;
    kvb_import_outcome outcome;
} good;

#define ARRIVES(time) time ",1,1\n"
#define ONE_TOKEN     PREFILL(0, 0, 1) STEP("1", "0") RM(0)

static const good goods[] = {
    {"shares the leading blocks, not later equal ones",
     &kvb_import_mooncake,
     9,
     256,
     8,
     REQUEST(0, 1536, 256, "1,2,3") REQUEST(5, 1536, 512, "1,9,3"),
     PREFILL(0, 0, 6) CP(0, 1, 2) PREFILL(1, 2, 4) STEP("6,6", "0,1") RM(0) STEP("7", "1") RM(1),
     {12, 2}},
    {"the longest prefix wins, of equal ones the first",
     &kvb_import_mooncake,
     9,
     512,
     8,
     REQUEST(0, 1024, 512, "1,2") REQUEST(0, 1536, 512, "1,2,3") REQUEST(0, 1536, 512, "1,2,3")
         REQUEST(0, 2048, 512, "1,2,3,4"),
     PREFILL(0, 0, 2) CP(0, 1, 2) PREFILL(1, 2, 1) CP(0, 2, 2) PREFILL(2, 2, 1) CP(1, 3, 3) PREFILL(3, 3, 1)
         STEP("2,3,3,4", "0,1,2,3") RM(0) RM(1) RM(2) RM(3),
     {12, 7}},
    {"clamped to input - 1",
     &kvb_import_mooncake,
     9,
     1,
     8,
     REQUEST(0, 1024, 1, "1,2") REQUEST(0, 600, 1, "1,2"),
     PREFILL(0, 0, 1024) CP(0, 1, 599) PREFILL(1, 599, 1) STEP("1024,600", "0,1") RM(0) RM(1),
     {1624, 599}},
    {"clamped to the other's prompt",
     &kvb_import_mooncake,
     9,
     1,
     8,
     REQUEST(0, 600, 1, "1,2") REQUEST(0, 1024, 1, "1,2"),
     PREFILL(0, 0, 600) CP(0, 1, 600) PREFILL(1, 600, 424) STEP("600,1024", "0,1") RM(0) RM(1),
     {1624, 600}},
    {"a prompt of one token shares nothing",
     &kvb_import_mooncake,
     9,
     512,
     8,
     REQUEST(0, 9, 9, "1") REQUEST(0, 9, 9, "1"),
     PREFILL(0, 0, 1) PREFILL(1, 0, 1) STEP("1,1", "0,1") RM(0) RM(1),
     {2, 0}},
    {"the dead share nothing, the limit holds, ids are used again",
     &kvb_import_mooncake,
     9,
     512,
     1,
     REQUEST(0, 1024, 512, "1,2") REQUEST(0, 1024, 1024, "1,2"),
     PREFILL(0, 0, 2) STEP("2", "0") RM(0) PREFILL(0, 0, 2) STEP("2", "0") STEP("3", "0") RM(0),
     {4, 0}},
    {"a request that ends makes room while the others decode on",
     &kvb_import_azure,
     3,
     10,
     2,
     CSV AT "30,20\r\n" AT "20,10\r\n\r\n" AT "49,10\r\n" AT "10,10\r\n",
     PREFILL(0, 0, 3) PREFILL(1, 0, 2) STEP("3,2", "0,1") RM(1) PREFILL(1, 0, 4) STEP("4,4", "0,1") RM(0) RM(1),
     {9, 0}},
    {"no newline at the end, a zone, one token is left",
     &kvb_import_azure,
     9,
     16,
     8,
     CSV "2024-05-10 00:00:00+00:00,1,1\n2024-05-10 00:00:00.009930+00:00,17,15",
     PREFILL(0, 0, 1) PREFILL(1, 0, 1) STEP("1,1", "0,1") RM(0) RM(1),
     {2, 0}},
    {"time goes on over the ends of minutes, hours, days, months and years, and over a leap second",
     &kvb_import_azure,
     9,
     1,
     1,
     CSV ARRIVES("2023-12-30 22:58:59.9999999") ARRIVES("2023-12-30 22:59:00") ARRIVES("2023-12-30 23:00:00")
         ARRIVES("2023-12-31 00:00:00") ARRIVES("2023-12-31 23:59:60.5") ARRIVES("2024-01-01 00:00:00"),
     ONE_TOKEN ONE_TOKEN ONE_TOKEN ONE_TOKEN ONE_TOKEN ONE_TOKEN,
     {6, 0}},
};

TEST(requests_become_events)
{
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++) {
        const good *g = &goods[i];
        char why[400] = "";
        kvb_import_requests requests;
        kvb_import_outcome outcome;
        kvb_trace *trace = NULL;
        kvb_import_options options = {g->format, g->requests, g->shrink, g->sequences, 7};
        const char *path = tests_path("out.jsonl");
        int err = kvb_import_read(tests_text("in", g->input), &options, &requests, why, sizeof why);
        if (!err)
            err = kvb_import_write(&requests, &options, "mine", path, &outcome, why, sizeof why);
        if (!err)
            err = kvb_trace_load(path, 0, &trace, why, sizeof why);
        if (err)
            fail_msg("%s: %s", g->what, why);
        size_t n;
        char *text = tests_read(path, &n);
        if (strcmp(strchr(text, '\n') + 1, g->events))
            fail_msg("%s: events are\n%s", g->what, strchr(text, '\n') + 1);
        assert_int_equal(outcome.prompt_tokens, g->outcome.prompt_tokens);
        assert_int_equal(outcome.shared_tokens, g->outcome.shared_tokens);
        free(text);
        kvb_trace_free(trace);
        kvb_import_requests_free(&requests);
    }
}

TEST(header_says_what_is_real)
{
    char why[400] = "";
    kvb_import_requests requests;
    kvb_import_outcome outcome;
    kvb_trace *trace;
    kvb_import_options options = {&kvb_import_mooncake, 1, 16, 4, 7};
    const char *in = tests_text("in", REQUEST(0, 32, 32, "1") REQUEST(0, 32, 32, "1"));
    const char *path = tests_path("out.jsonl");
    assert_int_equal(kvb_import_read(in, &options, &requests, why, sizeof why), 0);
    assert_int_equal(kvb_import_write(&requests, &options, "mine", path, &outcome, why, sizeof why), 0);
    assert_int_equal(kvb_trace_load(path, 0, &trace, why, sizeof why), 0);
    const kvb_trace_header *h = &trace->header;
    assert_string_equal(h->name, "mine");
    assert_string_equal(h->source, "Mooncake request trace (JSON Lines), first 1 requests, token counts divided by 16");
    assert_contains(h->note, "synthetic: values, and the schedule (at most 4 sequences alive");
    assert_string_equal(h->profile, "llama");
    assert_int_equal(h->seed, 7);
    const kvb_group *g = h->model.groups;
    assert_true(h->model.n_layers == 1 && h->model.n_groups == 1);
    assert_true(g->heads == 32 && g->kv_heads == 8 && g->k_dim == 128 && g->v_dim == 128);
    kvb_trace_free(trace);
    kvb_import_requests_free(&requests);
}

typedef struct bad {
    const kvb_import_format *format;
    const char *input;
    int line;
    const char *part;
} bad;

#define GOOD REQUEST(3, 10, 10, "1")
static const bad bads[] = {
    {&kvb_import_mooncake, "", 1, "expected a request, found the end"},
    {&kvb_import_mooncake, "\n \n", 3, "expected a request, found the end"},
    {&kvb_import_mooncake, GOOD "{\"timestamp\":", 2, "expected a JSON object, column "},
    {&kvb_import_mooncake, GOOD "not json\n", 2, "expected a JSON object, column "},
    {&kvb_import_mooncake, "[1]\n", 1, "expected a JSON object with timestamp, "},
    {&kvb_import_mooncake, "{}\n", 1, "expected an integer \"timestamp\", found none"},
    {&kvb_import_mooncake, REQUEST(-1, 10, 10, "1"), 1, "expected a \"timestamp\" of at least 0 ms, found -1"},
    {&kvb_import_mooncake, "{\"timestamp\":0,\"output_length\":1,\"hash_ids\":[]}\n", 1,
     "\"input_length\", found none"},
    {&kvb_import_mooncake, "{\"timestamp\":0,\"input_length\":1,\"hash_ids\":[]}\n", 1,
     "\"output_length\", found none"},
    {&kvb_import_mooncake, "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n", 1, "\"hash_ids\", found none"},
    {&kvb_import_mooncake, GOOD REQUEST(4, 1.5, 10, "1"), 2, "expected an integer \"input_length\", found something"},
    {&kvb_import_mooncake, GOOD REQUEST(4, 0, 10, "1"), 2, "expected a prompt of 1 to 1048576 tokens"},
    {&kvb_import_mooncake, GOOD REQUEST(4, -3, 10, "1"), 2, "after division by 16), found -3"},
    {&kvb_import_mooncake, GOOD REQUEST(4, 1048577, 10, "1"), 2, "found 1048577"},
    {&kvb_import_mooncake, GOOD REQUEST(4, 10, 0, "1"), 2, "expected an output of 1 to 1048576 tokens"},
    {&kvb_import_mooncake, GOOD REQUEST(4, 10, 9223372036854775807, "1"), 2, "found 9223372036854775807"},
    {&kvb_import_mooncake, GOOD REQUEST(4, 99999999999999999999, 10, "1"), 2, "too big integer"},
    {&kvb_import_mooncake, GOOD REQUEST(4, 512, 10, "1,2"), 2, "expected at most 1 prefix blocks of 512 tokens"},
    {&kvb_import_mooncake, GOOD REQUEST(4, 10, 10, "-1"), 2, "expected \"hash_ids\"[0] to be an integer"},
    {&kvb_import_mooncake, GOOD REQUEST(4, 600, 10, "1,\"2\""), 2, "expected \"hash_ids\"[1] to be an integer"},
    {&kvb_import_mooncake, GOOD REQUEST(2, 10, 10, "1"), 2, "expected requests in order of arrival"},
    {&kvb_import_azure, "", 1, "expected a request, found the end"},
    {&kvb_import_azure, AT "1,1\n", 1, "expected the header TIMESTAMP,ContextTokens,GeneratedTokens"},
    {&kvb_import_azure, CSV, 2, "expected a request, found the end"},
    {&kvb_import_azure, CSV AT "1\n", 2, "expected the three fields"},
    {&kvb_import_azure, CSV AT "1,1,1\n", 2, "expected the three fields"},
    {&kvb_import_azure, CSV "yesterday,1,1\n", 2, "expected YYYY-MM-DD hh:mm:ss.fraction, found 'yesterday'"},
    {&kvb_import_azure, CSV "2023-13-16 18:15:46,1,1\n", 2, "TIMESTAMP: expected"},
    {&kvb_import_azure, CSV "2023-11-16 18:15:46.5x,1,1\n", 2, "TIMESTAMP: expected"},
    {&kvb_import_azure, CSV AT ",1\n", 2, "ContextTokens: expected a whole number"},
    {&kvb_import_azure, CSV AT "1,1x\n", 2, "GeneratedTokens: expected a whole number"},
    {&kvb_import_azure, CSV AT "99999999999999999999,1\n", 2, "ContextTokens: expected a whole number"},
    {&kvb_import_azure, CSV AT "-5,1\n", 2, "expected a prompt of 1 to 1048576 tokens"},
    {&kvb_import_azure, CSV AT "1,0\n", 2, "expected an output of 1 to 1048576 tokens"},
    {&kvb_import_azure, CSV AT "1,1\n2023-11-16 18:15:46.6799999,1,1\n", 3, "expected requests in order of arrival"},
};

TEST(bad_input_is_refused)
{
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        char why[400] = "", place[32];
        kvb_import_requests requests;
        kvb_import_options options = {bads[i].format, 9, 16, 8, 1};
        int err = kvb_import_read(tests_text("bad", bads[i].input), &options, &requests, why, sizeof why);
        if (err != -EINVAL)
            fail_msg("%s: gives %d", bads[i].input, err);
        snprintf(place, sizeof place, "/bad:%d: ", bads[i].line);
        assert_contains(why, place);
        assert_contains(why, bads[i].part);
        assert_null(requests.at);
    }
}

TEST(files_that_cannot_be)
{
    char why[400] = "";
    kvb_import_requests requests;
    kvb_import_outcome outcome;
    kvb_import_options options = {&kvb_import_azure, 2000, 1, 8, 1};
    assert_int_equal(kvb_import_read(tests_path("none"), &options, &requests, why, sizeof why), -ENOENT);
    assert_contains(why, "/none: cannot be read: ");

    /* 512 such requests hold as many tokens as a trace may, and 513 do not */
    FILE *file = fopen(tests_path("large"), "w");
    assert_non_null(file);
    fputs(CSV, file);
    for (int i = 0; i < 1024; i++)
        fputs(AT "65536,65536\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(kvb_import_read(tests_path("large"), &options, &requests, why, sizeof why), -EINVAL);
    assert_contains(why, "/large:514: expected at most 67108864 tokens up to here");
    char *line = malloc(3u << 20);
    assert_non_null(line);
    memset(line, 'x', 3u << 20);
    assert_int_equal(kvb_import_read(tests_write("long", line, 3u << 20), &options, &requests, why, sizeof why),
                     -EINVAL);
    assert_contains(why, "/long:1: expected a line of at most ");
    free(line);

    assert_int_equal(kvb_import_read(tests_text("in", CSV AT "1,1\n"), &options, &requests, why, sizeof why), 0);
    assert_int_equal(
        kvb_import_write(&requests, &options, "mine", tests_path("no/out.jsonl"), &outcome, why, sizeof why), -ENOENT);
    assert_contains(why, "no/out.jsonl");
    kvb_import_requests_free(&requests);
}

TEST(formats_are_chosen)
{
    static const struct {
        const char *text, *part;
    } wrong[] = {{"mooncake", "expected FORMAT:FILE; known formats: mooncake, azure"},
                 {"moon:x", "no format 'moon'; known: mooncake, azure"},
                 {":x", "no format ''; known: mooncake, azure"},
                 {"azure:", "the file is missing"}};
    char why[400] = "";
    const kvb_import_format *format;
    const char *file;
    assert_int_equal(kvb_import_choose("azure:a:b.csv", &format, &file, why, sizeof why), 0);
    assert_ptr_equal(format, &kvb_import_azure);
    assert_string_equal(file, "a:b.csv");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tests_refused(kvb_import_choose(wrong[i].text, &format, &file, why, sizeof why), -EINVAL, why, wrong[i].part);
    }
}
