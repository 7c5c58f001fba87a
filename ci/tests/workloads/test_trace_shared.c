/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a line that gives a token to several sequences reads as the event and its copies; what that would not be true
 * for is refused. */
#include "scratch.h"

#include "workloads/trace.h"

#include <errno.h>

#define P3                       "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":3}}\n"
#define COPIES(src, dst, p0, p1) "{\"seq_cp\":{\"src\":" #src ",\"dst\":" #dst ",\"p0\":" #p0 ",\"p1\":" #p1 "}}\n"

static kvb_trace *load(const char *text)
{
    char why[300] = "";
    kvb_trace *trace;
    if (kvb_trace_load(scratch_text("t.jsonl", text), 0, &trace, why, sizeof why))
        fail_msg("%s", why);
    return trace;
}

static const struct {
    const char *lists, *copies;
} alike[] = {
    /* one copy for each other sequence, wherever its tokens stand in the batch */
    {"{\"prefill\":{\"seq\":[2,0,7],\"from\":0,\"n\":5,\"tok\":[1,2,3,4,5]}}\n",
     "{\"prefill\":{\"seq\":2,\"from\":0,\"n\":5,\"tok\":[1,2,3,4,5]}}\n" COPIES(2, 0, 0, 5) COPIES(2, 7, 0, 5)},
    {P3 "{\"fill\":{\"seq\":[0],\"n\":4}}\n" COPIES(0, 1, 0, 7) "{\"fill\":{\"seq\":[1,0],\"n\":2}}\n",
     P3 "{\"fill\":{\"seq\":0,\"n\":4}}\n" COPIES(0, 1, 0, 7) "{\"fill\":{\"seq\":1,\"n\":2}}\n" COPIES(1, 0, 7, 9)},
    {"{\"step\":{\"pos\":[0,0,1,1,2],\"seq\":[[0,1],3,[0,1],[3],[0,1]]}}\n",
     "{\"step\":{\"pos\":[0,0,1,1,2],\"seq\":[0,3,0,3,0]}}\n" COPIES(0, 1, 0, 3)},
    /* own tokens before shared ones; sharing ends; one shares with two in turn */
    {"{\"step\":{\"pos\":[0,0,1,2],\"seq\":[1,0,[0,1],0]}}\n",
     "{\"step\":{\"pos\":[0,0,1,2],\"seq\":[1,0,0,0]}}\n" COPIES(0, 1, 1, 2)},
    {"{\"step\":{\"pos\":[0,0,1,1,2],\"seq\":[[0,1],2,[2,1],0,[0,1]]}}\n",
     "{\"step\":{\"pos\":[0,0,1,1,2],\"seq\":[0,2,2,0,0]}}\n" COPIES(0, 1, 0, 1) COPIES(2, 1, 1, 2) COPIES(0, 1, 2, 3)},
    /* what is refused brings no copies */
    {"{\"clear\":{}}\n{\"propose\":{\"parents\":[-1]}}\n{\"step\":{\"pos\":[0],\"seq\":[[0,1]]},\"refused\":\"EINVAL\"}"
     "\n",
     "{\"clear\":{}}\n{\"propose\":{\"parents\":[-1]}}\n{\"step\":{\"pos\":[0],\"seq\":[0]},\"refused\":\"EINVAL\"}\n"},
};

static void test_lists_are_copies(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        char text[1024];
        snprintf(text, sizeof text, HEADER "%s", alike[i].lists);
        kvb_trace *lists = load(text);
        snprintf(text, sizeof text, HEADER "%s", alike[i].copies);
        kvb_trace *copies = load(text);
        assert_int_equal(lists->n_events, copies->n_events);
        assert_memory_equal(&lists->needs, &copies->needs, sizeof lists->needs);
        for (size_t e = 0; e < lists->n_events; e++) {
            const kvb_event *got = &lists->events[e], *want = &copies->events[e];
            assert_true(got->kind == want->kind && got->n == want->n && got->first == want->first);
            assert_true(got->src == want->src && got->dst == want->dst && got->p0 == want->p0 && got->p1 == want->p1);
            for (uint32_t t = 0; want->seq && t < want->n; t++)
                assert_true(got->seq[t] == want->seq[t] && got->pos[t] == want->pos[t]);
        }
        kvb_trace_free(lists);
        kvb_trace_free(copies);
    }
}

/* The event and its copies are of one line. */
static void test_their_line(void **state)
{
    (void)state;
    kvb_trace *t = load(HEADER "{\"prefill\":{\"seq\":[0,1],\"from\":0,\"n\":2}}\n{\"seq_rm\":{\"seq\":1}}\n");
    assert_int_equal(t->n_events, 3);
    assert_true(t->events[0].line == 2 && t->events[1].line == 2 && t->events[2].line == 3);
    kvb_trace_free(t);
}

static const struct {
    const char *text;
    int line;
    const char *part;
} bad[] = {
    {"{\"step\":{\"pos\":[0],\"seq\":[[]]}}\n", 2, "step: \"seq\"[0]: is empty"},
    {"{\"step\":{\"pos\":[0],\"seq\":[[0,4096]]}}\n", 2, "step: \"seq\"[0][1]: 4096 is out of range 0 .. 4095"},
    {"{\"step\":{\"pos\":[0],\"seq\":[[0,[1]]]}}\n", 2, "\"seq\"[0][1]: expected an integer, found an array"},
    {"{\"step\":{\"pos\":[[0]],\"seq\":[0]}}\n", 2, "\"pos\"[0]: expected an integer, found an array"},
    {"{\"propose\":{\"parents\":[-1],\"seq\":[[0,1]]}}\n", 2, "\"seq\"[0]: expected an integer, found an array"},
    {"{\"prefill\":{\"seq\":[],\"from\":0,\"n\":2}}\n", 2, "prefill: \"seq\": is empty"},
    {"{\"prefill\":{\"seq\":[0,-1],\"from\":0,\"n\":2}}\n", 2, "prefill: \"seq\"[1]: -1 is out of range"},
    {"{\"seq_rm\":{\"seq\":[0]}}\n", 2, "seq_rm: \"seq\": expected an integer, found an array"},
    {"{\"step\":{\"pos\":[0],\"seq\":[[0,1,0]]}}\n", 2, "step: names sequence 0 twice for position 0"},
    {"{\"step\":{\"pos\":[0],\"seq\":[[0,1,1]]}}\n", 2, "step: names sequence 1 twice for position 0"},
    {"{\"step\":{\"pos\":[0,1],\"seq\":[[0,1],[0,1,1]]}}\n", 2, "step: names sequence 1 twice for position 1"},
    {"{\"fill\":{\"seq\":[3,3],\"n\":2}}\n", 2, "fill: names sequence 3 twice for position 0"},
    /* it holds the position; it would get a hole; its order would be another */
    {P3 COPIES(0, 1, 0, 3) "{\"seq_rm\":{\"seq\":0,\"p0\":2}}\n{\"step\":{\"pos\":[2],\"seq\":[[0,1]]}}\n", 5,
     "step: shares position 2 with sequence 1, whose next one is 3"},
    {P3 "{\"prefill\":{\"seq\":[0,1],\"from\":3,\"n\":2}}\n", 3,
     "prefill: shares position 3 with sequence 1, whose next one is 0"},
    {"{\"step\":{\"pos\":[0,1,2],\"seq\":[[0,1],0,[0,1]]}}\n", 2,
     "shares position 2 with sequence 1, whose next one is 1"},
    {P3 COPIES(0, 1, 2, 3) "{\"fill\":{\"seq\":[2,1],\"n\":2}}\n", 4,
     "fill: shares position 0 with sequence 1, whose next one is 3"},
    /* a later token would have to see what comes with the copies */
    {"{\"step\":{\"pos\":[0,1],\"seq\":[[0,1],1]}}\n", 2,
     "step: position 1 of sequence 1 would not see what others share with it in the same line"},
    {"{\"step\":{\"pos\":[0,1],\"seq\":[[0,1],[1,0]]}}\n", 2, "step: position 1 of sequence 1 would not see"},
    /* the first sequence is as ever; a copy that may not be made says so */
    {"{\"step\":{\"pos\":[1],\"seq\":[[0,1]]}}\n", 2, "step: "},
    {"{\"propose\":{\"parents\":[-1],\"seq\":[1]}}\n{\"step\":{\"pos\":[0],\"seq\":[[0,1]]}}\n", 3,
     "seq_cp: 1 proposed nodes of sequence 1 are pending"},
    {"{\"step\":{\"pos\":[1],\"seq\":[[0,1]]},\"refused\":\"EINVAL\"}\n", 2, "step: "},
};

static void test_bad_lists(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[1024], why[300] = "", place[64];
        kvb_trace *trace;
        snprintf(text, sizeof text, HEADER "%s", bad[i].text);
        snprintf(place, sizeof place, "bad.jsonl:%d: ", bad[i].line);
        assert_int_equal(kvb_trace_load(scratch_text("bad.jsonl", text), 0, &trace, why, sizeof why), -EINVAL);
        if (!strstr(why, place) || !strstr(why, bad[i].part))
            fail_msg("\"%s\" instead of \"%s… %s\"", why, place, bad[i].part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_are_copies),
        cmocka_unit_test(test_their_line),
        cmocka_unit_test(test_bad_lists),
    };
    return cmocka_run_group_tests_name("shared tokens", tests, scratch_setup, scratch_teardown);
}
