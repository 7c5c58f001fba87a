/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that every rule of the trace format refuses what breaks it, with the file, the line and the reason. */
#include "scratch.h"

#include "workloads/trace.h"

#include <errno.h>

/* events follow a good header unless `whole`. The message must hold "bad.jsonl:LINE: " and part. */
typedef struct bad {
    const char *text;
    int line;
    const char *part;
    bool whole;
    uint32_t capacity;
} bad;

#define STEP0 "{\"step\":{\"pos\":[0],\"seq\":[0]}}\n"
#define THREE "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":3}}\n"
#define EVENT(name, body, reason)                                                                                      \
    {                                                                                                                  \
        "{\"" name "\":{" body "}}\n", 2, reason, false, 0                                                             \
    }
#define AFTER(before, name, body, reason)                                                                              \
    {                                                                                                                  \
        before "{\"" name "\":{" body "}}\n", 3, reason, false, 0                                                      \
    }

static const bad bad_events[] = {
    /* JSON */
    {"{\"step\":{\"pos\":[0],\"seq\":[0]}\n", 2, "column 29: ", false, 0},
    {STEP0 "{\"step\":{\"pos\":[1],\"se", 3, "truncated? the last line has no newline", false, 0},
    {"not json\n", 2, "column 3: ", false, 0},
    {"{\"step\":{\"pos\":[0],\"pos\":[0],\"seq\":[0]}}\n", 2, "duplicate object key", false, 0},
    {STEP0 "\n" STEP0, 4, "step: position 0, but the next one of sequence 0 is 1", false, 0},
    {"{\"clear\":{}} {\"clear\":{}}\n", 2, "column", false, 0},
    {"{\"step\":{\"pos\":[0],\"seq\":[NaN]}}\n", 2, "column", false, 0},
    {"{\"fill\":{\"seq\":0,\"n\":99999999999999999999}}\n", 2, "too big integer", false, 0},
    /* shape of an event */
    {"[]\n", 2, "expected an object with one key", false, 0},
    {"1\n", 2, "expected an object with one key", false, 0},
    {"{}\n", 2, "expected an object with one key", false, 0},
    {"{\"clear\":{},\"step\":{}}\n", 2, "expected an object with one key", false, 0},
    {"{\"jump\":{}}\n", 2, "unknown event \"jump\", known: step, prefill, fill, propose, commit, seq_cp", false, 0},
    {"{\"clear\":[]}\n", 2, "clear: expected an object, found an array", false, 0},
    {HEADER, 2, "expected an object with one key", false, 0},
    EVENT("clear", "\"all\":1", "clear: unknown key \"all\", known: no keys"),
    EVENT("step", "\"pos\":[0],\"seq\":[0],\"t\":[0]", "step: unknown key \"t\", known: pos, seq, tok"),
    EVENT("step", "\"pos\":[0]", "step: \"seq\" is missing"),
    EVENT("step", "\"pos\":[0],\"seq\":0", "step: \"seq\": expected an array, found an integer"),
    EVENT("step", "\"pos\":[],\"seq\":[]", "step: \"pos\": is empty"),
    EVENT("step", "\"pos\":[0,1],\"seq\":[0]", "step: \"seq\" has 1 elements, expected 2"),
    EVENT("step", "\"pos\":[0],\"seq\":[0],\"tok\":[1,2]", "step: \"tok\" has 2 elements, expected 1"),
    EVENT("step", "\"pos\":[0.0],\"seq\":[0]", "step: \"pos\"[0]: expected an integer, found a fraction"),
    EVENT("step", "\"pos\":[0],\"seq\":[\"0\"]", "step: \"seq\"[0]: expected an integer, found a string"),
    EVENT("step", "\"pos\":[0],\"seq\":[64]", "step: \"seq\"[0]: 64 is out of range 0 .. 63"),
    EVENT("step", "\"pos\":[0],\"seq\":[-1]", "step: \"seq\"[0]: -1 is out of range 0 .. 63"),
    EVENT("step", "\"pos\":[0],\"seq\":[0],\"tok\":[-5]", "\"tok\"[0]: -5 is out of range"),
    EVENT("step", "\"pos\":[4294967296],\"seq\":[0]", "\"pos\"[0]: 4294967296 is out of range"),
    EVENT("prefill", "\"seq\":0,\"from\":0,\"n\":0", "prefill: \"n\": 0 is out of range 1 .. 65536"),
    EVENT("prefill", "\"seq\":0,\"from\":0,\"n\":65537", "prefill: \"n\": 65537 is out of range"),
    EVENT("prefill", "\"seq\":0,\"n\":2", "prefill: \"from\" is missing"),
    EVENT("prefill", "\"seq\":0,\"from\":0,\"n\":2,\"tok\":[1]", "prefill: \"tok\" has 1 elements, expected 2"),
    EVENT("fill", "\"seq\":0,\"n\":16777217", "fill: \"n\": 16777217 is out of range"),
    EVENT("seq_rm", "\"seq\":0,\"p0\":4,\"p1\":4", "seq_rm: \"p0\" 4 is not below \"p1\" 4"),
    EVENT("seq_cp", "\"src\":0,\"dst\":true", "seq_cp: \"dst\": expected an integer, found true"),
    EVENT("propose", "\"parents\":[]", "propose: \"parents\": is empty"),
    EVENT("propose", "\"parents\":[-2]", "propose: \"parents\"[0]: -2 is out of range"),
    EVENT("rewind", "\"len\":null", "rewind: \"len\": expected an integer, found null"),
    /* positions */
    EVENT("step", "\"pos\":[1],\"seq\":[0]", "step: position 1, but the next one of sequence 0 is 0"),
    EVENT("step", "\"pos\":[0,0],\"seq\":[0,0]", "step: position 0, but the next one of sequence 0 is 1"),
    AFTER(STEP0, "prefill", "\"seq\":0,\"from\":0,\"n\":2", "prefill: position 0, but the next one of sequence 0 is 1"),
    /* sequences */
    EVENT("seq_cp", "\"src\":0,\"dst\":1", "seq_cp: sequence 0 is not alive"),
    AFTER(STEP0, "seq_cp", "\"src\":0,\"dst\":0", "seq_cp: destination sequence 0 has position 0 already"),
    {THREE "{\"seq_cp\":{\"src\":0,\"dst\":1,\"p0\":1}}\n{\"seq_cp\":{\"src\":0,\"dst\":1,\"p1\":2}}\n", 4,
     "seq_cp: destination sequence 1 has position 1 already", false, 0},
    {THREE "{\"seq_cp\":{\"src\":0,\"dst\":1,\"p1\":2}}\n{\"seq_cp\":{\"src\":0,\"dst\":1,\"p0\":2}}\n"
           "{\"step\":{\"pos\":[2],\"seq\":[1]}}\n", /* the copy behind the copy was good, and is where it should be */
     5, "step: position 2, but the next one of sequence 1 is 3", false, 0},
    {THREE
     "{\"seq_cp\":{\"src\":0,\"dst\":1,\"p0\":2}}\n{\"seq_cp\":{\"src\":0,\"dst\":1,\"p1\":2}}\n" /* before it, too */
     "{\"seq_cp\":{\"src\":1,\"dst\":0}}\n",
     5, "seq_cp: destination sequence 0 has position 0 already", false, 0},
    AFTER(STEP0, "seq_rm", "\"seq\":5", "seq_rm: sequence 5 is not alive"),
    AFTER(STEP0, "seq_keep", "\"seq\":1", "seq_keep: sequence 1 is not alive"),
    {STEP0 "{\"seq_rm\":{\"seq\":0}}\n{\"seq_keep\":{\"seq\":0}}\n", 4, "seq_keep: sequence 0 is not alive", false, 0},
    {STEP0 "{\"seq_cp\":{\"src\":0,\"dst\":1}}\n{\"clear\":{}}\n{\"seq_rm\":{\"seq\":1}}\n", 5,
     "sequence 1 is not alive", false, 0},
    /* trees */
    EVENT("propose", "\"parents\":[0]", "propose: parent 0 of node 0 is not an earlier node"),
    EVENT("propose", "\"parents\":[-1,2,0]", "propose: parent 2 of node 1 is not an earlier node"),
    EVENT("commit", "\"accepted\":[]", "commit: no nodes are pending"),
    AFTER("{\"propose\":{\"parents\":[-1,0,0]}}\n", "commit", "\"accepted\":[3]", "commit: node 3, but 3 are pending"),
    AFTER("{\"propose\":{\"parents\":[-1,0,0]}}\n", "commit", "\"accepted\":[1]", "commit: node 1 is no root"),
    AFTER("{\"propose\":{\"parents\":[-1,0,0]}}\n", "commit", "\"accepted\":[0,1,2]",
          "node 2 is no child of the node before it"),
    AFTER("{\"propose\":{\"parents\":[-1,0,0]}}\n", "commit", "\"accepted\":[0,0]",
          "node 0 is no child of the node before it"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "step", "\"pos\":[0],\"seq\":[0]",
          "step: 1 proposed nodes are pending"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "fill", "\"n\":1,\"seq\":0", "fill: 1 proposed nodes are pending"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "clear", "", "clear: 1 proposed nodes are pending"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "rewind", "\"len\":0", "rewind: 1 proposed nodes are pending"),
    AFTER("{\"step\":{\"pos\":[0],\"seq\":[3]}}\n", "propose", "\"parents\":[-1]",
          "propose: only sequence 0 may be alive, but sequence 3"),
    AFTER("{\"step\":{\"pos\":[0],\"seq\":[3]}}\n", "rewind", "\"len\":0", "rewind: only sequence 0 may be alive"),
    AFTER(STEP0, "rewind", "\"len\":2", "rewind: to length 2, but sequence 0 is 1 long"),
    /* capacity */
    {"{\"prefill\":{\"seq\":0,\"from\":0,\"n\":300}}\n", 2, "prefill needs 300 cells, capacity is 256", false, 256},
    {"{\"prefill\":{\"seq\":0,\"from\":0,\"n\":250}}\n{\"propose\":{\"parents\":[-1,-1,0,1,2,3,4]}}\n", 3,
     "propose needs 257 cells, capacity is 256", false, 256},
    {"{\"fill\":{\"seq\":0,\"n\":16777216}}\n{\"fill\":{\"seq\":0,\"n\":16777216}}\n{\"clear\":{}}\n"
     "{\"fill\":{\"seq\":0,\"n\":16777216}}\n{\"fill\":{\"seq\":0,\"n\":16777216}}\n" STEP0,
     7, "step: more than 67108864 tokens in the trace", false, 0},
};

#define WHOLE(text, reason)                                                                                            \
    {                                                                                                                  \
        text "\n", 1, reason, true, 0                                                                                  \
    }
#define VALUES        ",\"values\":{\"profile\":\"gaussian\",\"seed\":1}"
#define NAMES         "\"kvbench_trace\":1,\"name\":\"t\",\"source\":\"s\","
#define MODEL(fields) "{" NAMES "\"model\":{" fields "}" VALUES "}"
#define DIMS          "\"kv_cache.heads\":4,\"kv_cache.kv_heads\":2,\"kv_cache.k_dim\":16,\"kv_cache.v_dim\":16"
#define VERSION_1     "\"kv_cache.schema_version\":1,"
#define V(block)      "{" NAMES HEADER_MODEL ",\"values\":" block "}"

static const bad bad_headers[] = {
    {"", 1, "empty: expected a header line", true, 0},
    {"\n\n  \n", 4, "empty: expected a header line", true, 0},
    WHOLE("{", "column"),
    {"{\"kvbench_trace\":1,\"na", 1, "truncated?", true, 0},
    WHOLE("[1]", "expected a trace header"),
    WHOLE(STEP0, "expected a trace header"),
    WHOLE("{\"kvbench_trace\":3}", "\"kvbench_trace\": 3 is out of range 1 .. 2"),
    WHOLE("{\"kvbench_trace\":0}", "\"kvbench_trace\": 0 is out of range 1 .. 2"),
    WHOLE("{\"kvbench_trace\":\"1\"}", "\"kvbench_trace\": expected an integer, found a string"),
    WHOLE("{\"kvbench_trace\":1,\"nam\":\"t\"}", "header: unknown key \"nam\", known: kvbench_trace, name, source"),
    WHOLE("{\"kvbench_trace\":1}", "header: \"name\": expected a string, found nothing"),
    WHOLE("{\"kvbench_trace\":1,\"name\":\"\"}", "header: \"name\": is empty"),
    WHOLE("{\"kvbench_trace\":1,\"name\":\"a\"}", "header: \"source\": expected a string"),
    WHOLE("{" NAMES "\"note\":7}", "header: \"note\": expected a string, found an integer"),
    WHOLE("{" NAMES "\"model\":7}", "header: \"model\": expected an object, found an integer"),
    WHOLE("{" NAMES HEADER_MODEL "}", "header: \"values\": expected an object, found nothing"),
    WHOLE("{" NAMES HEADER_MODEL VALUES ",\"capacity\":0}", "header: \"capacity\": 0 is out of range"),
    WHOLE(MODEL(""), "\"kv_cache.schema_version\": expected an integer, found nothing"),
    WHOLE(MODEL("\"kv_cache.schema_version\":2"), "\"kv_cache.schema_version\": 2 is out of range 1 .. 1"),
    WHOLE(MODEL("\"kv_cache.schema_version\":1," DIMS), "\"kv_cache.layers\": expected an integer, found nothing"),
    WHOLE(MODEL("\"kv_cache.schema_version\":1,\"kv_cache.layers\":0," DIMS), "\"kv_cache.layers\": 0 is out of range"),
    WHOLE(MODEL("\"kv_cache.schema_version\":1,\"kv_cache.layers\":1,\"kv_cache.heads\":3,\"kv_cache.kv_heads\":2,"
                "\"kv_cache.k_dim\":8,\"kv_cache.v_dim\":8"),
          "header: 3 heads are no multiple of 2 kv_heads"),
    WHOLE(MODEL("\"kv_cache.schema_version\":1,\"kv_cache.dim\":1"), "header: model: unknown key \"kv_cache.dim\""),
    WHOLE(MODEL("\"kv_cache.schema_version\":1,\"kv_cache.layers\":1," DIMS ",\"scale\":-0.25"),
          "\"scale\": expected a number above 0"),
    WHOLE(MODEL("\"kv_cache.schema_version\":1,\"kv_cache.layers\":1," DIMS ",\"scale\":0"),
          "\"scale\": expected a number above 0"),
    WHOLE(MODEL("\"kv_cache.schema_version\":1,\"kv_cache.layers\":1," DIMS ",\"scale\":1e300"),
          "header: scale is 1e+300: expected a number above 0 that a float can hold"),
    WHOLE(MODEL("\"kv_cache.schema_version\":1,\"kv_cache.layers\":1," DIMS ",\"scale\":\"1\""),
          "\"scale\": expected a number, found a string"),
    WHOLE(MODEL(VERSION_1 "\"kv_cache.layers\":1," DIMS ",\"window\":8"), "header: model: unknown key \"window\""),
    WHOLE(MODEL(VERSION_1 "\"kv_cache.n_layers\":1,\"kv_cache.layers\":1," DIMS),
          "\"kv_cache.layers\" and \"kv_cache.n_layers\" are the same: expected one of them"),
    WHOLE(MODEL(VERSION_1 "\"kv_cache.layers\":1,\"kv_cache.head_dim\":16," DIMS),
          "\"kv_cache.k_dim\" and \"kv_cache.head_dim\" are the same: expected one of them"),
    WHOLE(MODEL(VERSION_1 "\"kv_cache.n_layers\":1025," DIMS), "\"kv_cache.n_layers\": 1025 is out of range 1 .. 1024"),
    WHOLE(V("{}"), "header: \"profile\": expected a string, found nothing"),
    WHOLE(V("{\"profile\":\"gauss\",\"seed\":1}"),
          "unknown profile \"gauss\", known: gaussian, llama, qwen, peaked, flat, tags"),
    WHOLE(V("{\"profile\":\"flat\"}"), "header: \"seed\": expected an integer, found nothing"),
    WHOLE(V("{\"profile\":\"flat\",\"seed\":-1}"), "header: \"seed\": -1 is out of range"),
    WHOLE(V("{\"tensors\":\"a\",\"seed\":1}"), "header: values: unknown key \"seed\", known: tensors"),
    WHOLE(V("{\"tensors\":\"../a\"}"), "expected the name of a file beside the trace, found \"../a\""),
    WHOLE(V("{\"tensors\":7}"), "header: \"tensors\": expected a string"),
};

/* ---- groups of layers -------------------------------------------------------------------------------------------- */

#define SIZES          "\"heads\":4,\"kv_heads\":2,\"k_dim\":16,\"v_dim\":16"
#define GROUP          "{\"layers\":[0]," SIZES "}"
#define BESIDE(fields) GROUP ",{\"layers\":[1]," fields "}"

/* Groups of a model of two layers, and what is said of them. */
static const struct {
    const char *groups, *part;
} bad_groups[] = {
    {"", "\"groups\": expected an array of 1 .. 32 groups of layers"},
    {"7", "group 0: expected an object, found an integer"},
    {GROUP ",[]", "group 1: expected an object, found an array"},
    /* layers */
    {GROUP, "layer 1 is in no group"},
    {"{" SIZES "}", "group 0: \"layers\": expected an array of layer numbers"},
    {"{\"layers\":0," SIZES "}", "group 0: \"layers\": expected an array of layer numbers"},
    {"{\"layers\":[]," SIZES "}", "group 0: \"layers\": expected an array of layer numbers"},
    {GROUP ",{\"layers\":[1,0]," SIZES "}", "group 1: layer 0 is in group 0 already"},
    {"{\"layers\":[0,0]," SIZES "}", "group 0: layer 0 is in group 0 already"},
    {"{\"layers\":[0,2]," SIZES "}", "group 0: \"layers\"[1]: expected a layer, 0 .. 1"},
    {"{\"layers\":[-1]," SIZES "}", "group 0: \"layers\"[0]: expected a layer, 0 .. 1"},
    {"{\"layers\":[\"0\"]," SIZES "}", "group 0: \"layers\"[0]: expected a layer, 0 .. 1"},
    {"{\"layers\":[9223372036854775807]," SIZES "}", "group 0: \"layers\"[0]: expected a layer, 0 .. 1"},
    /* sizes */
    {BESIDE("\"heads\":4,\"kv_heads\":2,\"k_dim\":16"), "group 1: \"v_dim\": expected an integer, found nothing"},
    {BESIDE("\"heads\":4,\"kv_heads\":2.0,\"k_dim\":16"),
     "group 1: \"kv_heads\": expected an integer, found a fraction"},
    {BESIDE("\"heads\":4097"), "group 1: \"heads\": 4097 is out of range 1 .. 4096"},
    {BESIDE("\"heads\":0"), "group 1: \"heads\": 0 is out of range 1 .. 4096"},
    {BESIDE("\"heads\":3,\"kv_heads\":2,\"k_dim\":16,\"v_dim\":16"), "group 1: 3 heads are no multiple of 2 kv_heads"},
    {BESIDE(SIZES ",\"head_dim\":16"), "group 1: unknown key \"head_dim\", known: layers, heads, kv_heads, k_dim"},
    {BESIDE(SIZES ",\"heads\":4"), "duplicate object key"},
    /* what a query sees */
    {BESIDE(SIZES ",\"window\":0"), "group 1: \"window\": 0 is out of range 1 .. 67108864"},
    {BESIDE(SIZES ",\"window\":-1"), "group 1: \"window\": -1 is out of range 1 .. 67108864"},
    {BESIDE(SIZES ",\"window\":67108865"), "group 1: \"window\": 67108865 is out of range 1 .. 67108864"},
    {BESIDE(SIZES ",\"window\":[8]"), "group 1: \"window\": expected an integer, found an array"},
    {BESIDE(SIZES ",\"window\":null"), "group 1: \"window\": expected an integer, found null"},
    {BESIDE(SIZES ",\"sinks\":4"), "group 1: 4 sinks without a window"},
    {BESIDE(SIZES ",\"chunk\":8,\"sinks\":4"), "group 1: 4 sinks without a window"},
    {BESIDE(SIZES ",\"chunk\":0"), "group 1: \"chunk\": 0 is out of range 1 .. 67108864"},
    {BESIDE(SIZES ",\"chunk\":8,\"window\":8"), "group 1: window 8 and chunk 8: expected one of them"},
    {BESIDE(SIZES ",\"latent\":1"), "group 1: \"latent\": expected true or false, found an integer"},
    {BESIDE("\"heads\":4,\"kv_heads\":2,\"k_dim\":16,\"v_dim\":17,\"latent\":true"),
     "group 1: latent rows of k_dim 16 cannot hold v_dim 17"},
    /* logits */
    {BESIDE(SIZES ",\"scale\":0"), "group 1: \"scale\": expected a number above 0"},
    {BESIDE(SIZES ",\"scale\":1e-60"), "group 1: scale is 1e-60: expected a number above 0"},
    {BESIDE(SIZES ",\"softcap\":0"), "group 1: \"softcap\": expected a number above 0"},
    {BESIDE(SIZES ",\"softcap\":1e-60"), "group 1: \"softcap\": expected a number above 0"},
    {BESIDE(SIZES ",\"softcap\":1e60"), "group 1: softcap is inf: expected a number above 0"},
    {BESIDE(SIZES ",\"softcap\":true"), "group 1: \"softcap\": expected a number, found true"},
    {BESIDE(SIZES ",\"sink_logits\":1"), "group 1: \"sink_logits\": expected an array of 4 numbers, one a head"},
    {BESIDE(SIZES ",\"sink_logits\":[0,1,2]"), "group 1: \"sink_logits\": expected an array of 4 numbers, one a head"},
    {BESIDE(SIZES ",\"sink_logits\":[0,1,2,\"3\"]"), "group 1: \"sink_logits\"[3]: expected a number, found a string"},
    {BESIDE(SIZES ",\"sink_logits\":[0,1,2,1e60]"), "group 1: sink logit 3 is no finite number"},
};

static const bad bad_models[] = {
    WHOLE("{\"kvbench_trace\":2,\"name\":\"t\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":3}" VALUES "}",
          "\"kv_cache.schema_version\": 3 is out of range 1 .. 2"),
    WHOLE("{\"kvbench_trace\":2,\"name\":\"t\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":2," DIMS
          "}" VALUES "}",
          "header: model: unknown key \"kv_cache.heads\", known: kv_cache.schema_version"),
    WHOLE("{\"kvbench_trace\":2,\"name\":\"t\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":2,\"groups\":"
          "[" GROUP "]}" VALUES "}",
          "header: \"kv_cache.layers\": expected an integer, found nothing"),
    WHOLE("{\"kvbench_trace\":2,\"name\":\"t\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":2,"
          "\"kv_cache.layers\":1,\"groups\":" GROUP "}" VALUES "}",
          "header: \"groups\": expected an array of 1 .. 32 groups of layers"),
};

static void check(const bad *b)
{
    char text[4096], why[400] = "", place[500];
    snprintf(text, sizeof text, "%s%s", b->whole ? "" : HEADER, b->text);
    const char *path = scratch_text("bad.jsonl", text);
    kvb_trace *trace;
    int err = kvb_trace_load(path, b->capacity, &trace, why, sizeof why);
    if (err != -EINVAL)
        fail_msg("%d for: %s", err, b->text);
    assert_null(trace);
    snprintf(place, sizeof place, "%s:%d: ", path, b->line);
    assert_contains(why, place);
    assert_contains(why, b->part);
    assert_null(strchr(why, '\n'));
}

static void test_bad_events(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_events / sizeof *bad_events; i++)
        check(&bad_events[i]);
}

static void test_bad_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++)
        check(&bad_headers[i]);
}

static void test_bad_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_models / sizeof *bad_models; i++)
        check(&bad_models[i]);
    for (size_t i = 0; i < sizeof bad_groups / sizeof *bad_groups; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"kvbench_trace\":2,\"name\":\"t\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":2,"
                 "\"kv_cache.layers\":2,\"groups\":[%s]}" VALUES "}\n",
                 bad_groups[i].groups);
        check(&(bad){text, 1, bad_groups[i].part, true, 0});
    }
}

/* One group more than a model may have; each layer once. */
static void test_too_many_groups(void **state)
{
    (void)state;
    for (unsigned n = KVB_MODEL_GROUPS; n <= KVB_MODEL_GROUPS + 1; n++) {
        char text[8192], why[400] = "";
        kvb_trace *trace;
        int at =
            snprintf(text, sizeof text,
                     "{\"kvbench_trace\":2,\"name\":\"t\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":2,"
                     "\"kv_cache.layers\":%u,\"groups\":[",
                     n);
        for (unsigned g = 0; g < n; g++)
            at += snprintf(text + at, sizeof text - (size_t)at, "%s{\"layers\":[%u]," SIZES "}", g ? "," : "", g);
        snprintf(text + at, sizeof text - (size_t)at, "]}" VALUES "}\n");
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
    const char *path = scratch_text("c.jsonl", "{" NAMES HEADER_MODEL VALUES ",\"capacity\":2}\n"
                                               "{\"step\":{\"pos\":[0,1,2],\"seq\":[0,0,0]}}\n");
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
        cmocka_unit_test(test_bad_groups),      cmocka_unit_test(test_too_many_groups),
        cmocka_unit_test(test_bad_events),      cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_header_capacity), cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_endless_line),    cmocka_unit_test(test_message_is_one_line),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("bad traces", tests, scratch_setup, scratch_teardown);
}
