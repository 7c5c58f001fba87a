/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that a header whose groups of layers cannot be is refused, with the file, the line, the group and the field. */
#include "bad_trace.h"

#define SIZES          "\"heads\":4,\"kv_heads\":2,\"k_dim\":16,\"v_dim\":16"
#define GROUP          "{\"layers\":[0]," SIZES "}"
#define BESIDE(fields) GROUP ",{\"layers\":[1]," fields "}"
#define STATE          "\"recurrence\":\"mamba2\",\"heads\":4,\"groups\":2,\"k_dim\":16,\"v_dim\":16"
#define SCAN(fields)   BESIDE("\"kind\":\"scan\",\"scan\":{" fields "}")

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
    {"{\"layers\":[0]," SIZES ",\"rope\":1}", "group 0: \"rope\": expected an object, found an integer"},
    {"{\"layers\":[0]," SIZES ",\"rope\":{}}", "group 0: \"dims\": expected an integer, found nothing"},
    {"{\"layers\":[0]," SIZES ",\"rope\":{\"dims\":8,\"theta\":1}}", "\"rope\": unknown key \"theta\", known: base"},
    {"{\"layers\":[0]," SIZES ",\"rope\":{\"dims\":8,\"base\":1e4,\"pairing\":\"half\"}}",
     "group 0: \"rope\": \"pairing\": expected \"halves\" or \"neighbours\""},
    {"{\"layers\":[0,1]," SIZES ",\"rope\":{\"dims\":8,\"pairing\":\"halves\"}}", "group 0: rope's base is 0"},
    {"{\"layers\":[0,1]," SIZES ",\"rope\":{\"dims\":7,\"base\":1e4,\"pairing\":\"halves\"}}",
     "group 0: rope turns 7 dims from 0 on: expected an even number within k_dim"},
    {"{\"layers\":[0,1]," SIZES ",\"rope\":{\"dims\":8,\"first\":4096,\"base\":1e4,\"pairing\":\"halves\"}}",
     "group 0: rope turns 8 dims from 4096 on"},
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
    {BESIDE(SIZES ",\"head_dim\":16"),
     "group 1: unknown key \"head_dim\", known: layers, kind, heads, kv_heads, k_dim"},
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
    /* recurrences */
    {BESIDE(SIZES ",\"kind\":\"hop\""), "group 1: \"kind\": expected \"attend\" or \"scan\""},
    {BESIDE(SIZES ",\"kind\":1"), "group 1: \"kind\": expected \"attend\" or \"scan\""},
    {BESIDE(SIZES ",\"scan\":{" STATE "}"), "group 1: unknown key \"scan\", known: layers, kind, heads"},
    {BESIDE(SIZES ",\"kind\":\"scan\""), "group 1: unknown key \"heads\", known: layers, kind, scan"},
    {BESIDE("\"kind\":\"scan\""), "group 1: \"scan\": expected an object, found nothing"},
    {SCAN(STATE ",\"d_k\":1"), "group 1: \"scan\": unknown key \"d_k\", known: heads, groups, k_dim"},
    {SCAN("\"heads\":4"), "group 1: \"recurrence\": expected a name, known: mamba1, mamba2, lightning, delta"},
    {SCAN("\"recurrence\":\"mamba3\""), "group 1: \"recurrence\": unknown \"mamba3\", known: mamba1, mamba2"},
    {SCAN("\"recurrence\":\"conv\""), "group 1: \"recurrence\": unknown \"conv\", known: mamba1, mamba2"},
    {SCAN("\"recurrence\":\"delta\",\"heads\":4,\"groups\":2,\"k_dim\":16"),
     "group 1: \"v_dim\": expected an integer, found nothing"},
    {SCAN("\"recurrence\":\"delta\",\"heads\":4,\"groups\":3,\"k_dim\":8,\"v_dim\":8"),
     "group 1: 4 heads are no multiple of 3 groups"},
    {SCAN("\"recurrence\":\"delta\",\"heads\":4,\"groups\":4,\"k_dim\":4097,\"v_dim\":8"),
     "group 1: k_dim is 4097: expected 1 .. 4096"},
    {SCAN("\"recurrence\":\"delta\",\"heads\":4096,\"groups\":1,\"k_dim\":8,\"v_dim\":32"),
     "group 1: heads x v_dim is 131072: expected 1 .. 65536"},
    {SCAN("\"recurrence\":\"mamba1\",\"heads\":4,\"groups\":4,\"k_dim\":8,\"v_dim\":32"),
     "group 1: 4 heads: mamba1 has one, of all channels"},
    {SCAN(STATE ",\"state\":\"e4m3\""), "group 1: \"state\": expected \"f32\", \"f16\" or \"bf16\""},
    {SCAN(STATE ",\"conv\":4"), "group 1: \"conv\": expected an object, found an integer"},
    {SCAN(STATE ",\"conv\":{\"width\":4}"), "group 1: \"channels\": expected an integer, found nothing"},
    {SCAN(STATE ",\"conv\":{\"width\":1,\"channels\":8}"), "the convolution's width is 1: expected 2 .. 64"},
    {SCAN(STATE ",\"conv\":{\"width\":65,\"channels\":8}"), "the convolution's width is 65: expected 2 .. 64"},
    {SCAN(STATE ",\"conv\":{\"width\":4,\"channels\":8,\"silu\":1}"),
     "group 1: \"silu\": expected true or false, found an integer"},
    {SCAN(STATE ",\"conv\":{\"width\":4,\"channels\":8,\"taps\":4}"), "\"conv\": unknown key \"taps\", known: width"},
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bad_groups), cmocka_unit_test(test_too_many_groups)};
    return cmocka_run_group_tests_name("bad groups of traces", tests, scratch_setup, scratch_teardown);
}
