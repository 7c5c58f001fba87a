/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that every rule of the trace format refuses what breaks it, with the file, the line and the reason. */
#include "bad_trace.h"

#define STEP0 "{\"step\":{\"pos\":[0],\"seq\":[0]}}\n"
#define THREE "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":3}}\n"
#define TREES "{\"propose\":{\"parents\":[-1,-1,0,0],\"seq\":[0,3,3,0]}}\n"
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
    EVENT("step", "\"pos\":[0],\"seq\":[4096]", "step: \"seq\"[0]: 4096 is out of range 0 .. 4095"),
    EVENT("step", "\"pos\":[0],\"seq\":[-1]", "step: \"seq\"[0]: -1 is out of range 0 .. 4095"),
    EVENT("step", "\"pos\":[0],\"seq\":[0],\"tok\":[-5]", "\"tok\"[0]: -5 is out of range"),
    EVENT("step", "\"pos\":[4294967296],\"seq\":[0]", "\"pos\"[0]: 4294967296 is out of range"),
    EVENT("prefill", "\"seq\":0,\"from\":0,\"n\":0", "prefill: \"n\": 0 is out of range 1 .. 65536"),
    EVENT("prefill", "\"seq\":0,\"from\":0,\"n\":65537", "prefill: \"n\": 65537 is out of range"),
    EVENT("prefill", "\"seq\":0,\"from\":0,\"n\":2,\"reuse\":0",
          "prefill: \"reuse\" is of an empty sequence's prompt, from 0 on, with its tokens (\"tok\")"),
    EVENT("prefill", "\"seq\":0,\"from\":0,\"n\":1,\"tok\":[1],\"reuse\":-1",
          "prefill: \"reuse\": -1 is out of range 0"),
    EVENT("prefill", "\"seq\":0,\"from\":0,\"n\":1,\"tok\":[1],\"reuse\":true",
          "prefill: \"reuse\": expected an integer, found true"),
    EVENT("step", "\"pos\":[0],\"seq\":[0],\"tok\":[1],\"reuse\":0",
          "step: unknown key \"reuse\", known: pos, seq, tok"),
    AFTER(STEP0, "prefill", "\"seq\":0,\"from\":1,\"n\":1,\"tok\":[1],\"reuse\":0",
          "prefill: \"reuse\" is of an empty sequence's prompt"),
    EVENT("prefill", "\"seq\":0,\"n\":2", "prefill: \"from\" is missing"),
    EVENT("prefill", "\"seq\":0,\"from\":0,\"n\":2,\"tok\":[1]", "prefill: \"tok\" has 1 elements, expected 2"),
    EVENT("fill", "\"seq\":0,\"n\":16777217", "fill: \"n\": 16777217 is out of range"),
    EVENT("seq_rm", "\"seq\":0,\"p0\":5,\"p1\":4", "seq_rm: \"p0\" 5 is above \"p1\" 4"),
    EVENT("seq_cp", "\"src\":0,\"dst\":true", "seq_cp: \"dst\": expected an integer, found true"),
    EVENT("propose", "\"parents\":[]", "propose: \"parents\": is empty"),
    EVENT("propose", "\"parents\":[-2]", "propose: \"parents\"[0]: -2 is out of range"),
    EVENT("rewind", "\"len\":null", "rewind: \"len\": expected an integer, found null"),
    /* positions */
    EVENT("step", "\"pos\":[1],\"seq\":[0]", "step: position 1, but the next one of sequence 0 is 0"),
    EVENT("step", "\"pos\":[0,0],\"seq\":[0,0]", "step: position 0, but the next one of sequence 0 is 1"),
    AFTER(STEP0, "prefill", "\"seq\":0,\"from\":0,\"n\":2", "prefill: position 0, but the next one of sequence 0 is 1"),
    /* sequences */
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
    {THREE /* copies and removals of nothing do nothing; keeping an empty sequence drops all others */
     "{\"seq_cp\":{\"src\":5,\"dst\":0}}\n{\"seq_cp\":{\"src\":0,\"dst\":1,\"p0\":3}}\n"
     "{\"seq_cp\":{\"src\":0,\"dst\":0,\"p0\":1,\"p1\":1}}\n{\"seq_rm\":{\"seq\":9}}\n"
     "{\"seq_rm\":{\"seq\":0,\"p0\":3,\"p1\":9}}\n{\"seq_rm\":{\"seq\":0,\"p1\":0}}\n" STEP0,
     9, "step: position 0, but the next one of sequence 0 is 3", false, 0},
    {THREE "{\"seq_keep\":{\"seq\":1}}\n{\"step\":{\"pos\":[3],\"seq\":[0]}}\n", 4,
     "step: position 3, but the next one of sequence 0 is 0", false, 0},
    EVENT("reorder", "\"dst\":[],\"src\":[]", "reorder: \"dst\": is empty"),
    EVENT("reorder", "\"dst\":[0]", "reorder: \"src\" is missing"),
    EVENT("reorder", "\"dst\":[0,1],\"src\":[0]", "reorder: \"src\" has 1 elements, expected 2"),
    EVENT("reorder", "\"dst\":[4096],\"src\":[0]", "reorder: \"dst\"[0]: 4096 is out of range 0 .. 4095"),
    EVENT("reorder", "\"dst\":[0],\"src\":[0],\"n\":1", "reorder: unknown key \"n\", known: dst, src"),
    EVENT("reorder", "\"dst\":[3,1,3],\"src\":[0,1,2]", "reorder: sequence 3 is named twice as a destination"),
    {THREE /* all at once: 0 and 1 change places, 2 gets what 0 was; 1 is empty, and 0 is then */
     "{\"reorder\":{\"dst\":[0,1,2],\"src\":[1,0,0]}}\n{\"step\":{\"pos\":[3,0,3],\"seq\":[1,0,2]}}\n"
     "{\"reorder\":{\"dst\":[0],\"src\":[9]}}\n{\"step\":{\"pos\":[1],\"seq\":[0]}}\n",
     6, "step: position 1, but the next one of sequence 0 is 0", false, 0},
    {THREE "{\"reorder\":{\"dst\":[1],\"src\":[0]},\"refused\":\"EINVAL\"}\n", 3,
     "reorder: is to be refused with EINVAL, but may be done", false, 0},
    /* trees */
    EVENT("propose", "\"parents\":[0]", "propose: parent 0 of node 0 of sequence 0 is not an earlier node"),
    EVENT("propose", "\"parents\":[-1,2,0]", "propose: parent 2 of node 1 of sequence 0 is not an earlier node"),
    EVENT("commit", "\"accepted\":[]", "commit: no nodes of sequence 0 are pending"),
    AFTER("{\"propose\":{\"parents\":[-1,0,0]}}\n", "commit", "\"accepted\":[3]", "commit: node 3, but 3 are pending"),
    AFTER("{\"propose\":{\"parents\":[-1,0,0]}}\n", "commit", "\"accepted\":[1]", "commit: node 1 is no root"),
    AFTER("{\"propose\":{\"parents\":[-1,0,0]}}\n", "commit", "\"accepted\":[0,1,2]",
          "node 2 is no child of the node before it"),
    AFTER("{\"propose\":{\"parents\":[-1,0,0]}}\n", "commit", "\"accepted\":[0,0]",
          "node 0 is no child of the node before it"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "step", "\"pos\":[0],\"seq\":[0]",
          "step: 1 proposed nodes of sequence 0 are pending"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "fill", "\"n\":1,\"seq\":0",
          "fill: 1 proposed nodes of sequence 0 are pending"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "clear", "", "clear: 1 proposed nodes of sequence 0 are pending"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "reorder", "\"dst\":[1],\"src\":[0]",
          "reorder: 1 proposed nodes of sequence 0 are pending"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "rewind", "\"len\":0",
          "rewind: 1 proposed nodes of sequence 0 are pending"),
    EVENT("propose", "\"parents\":[-1,-1],\"seq\":[0]", "propose: \"seq\" has 1 elements, expected 2"),
    EVENT("propose", "\"parents\":[-1],\"seq\":[4096]", "propose: \"seq\"[0]: 4096 is out of range 0 .. 4095"),
    EVENT("propose", "\"parents\":[-1,0],\"seq\":[0,3]", "propose: parent 0 of node 0 of sequence 3 is not an earlier"),
    AFTER(TREES, "propose", "\"parents\":[2],\"seq\":[3]",
          "propose: parent 2 of node 2 of sequence 3 is not an earlier"),
    AFTER(TREES, "commit", "\"accepted\":[],\"seq\":1", "commit: no nodes of sequence 1 are pending"),
    AFTER(TREES, "commit", "\"accepted\":[2],\"seq\":3", "commit: node 2, but 2 are pending"),
    AFTER(TREES, "commit", "\"accepted\":[0],\"seq\":-1", "commit: \"seq\": -1 is out of range"),
    AFTER(TREES, "step", "\"pos\":[0,0],\"seq\":[1,3]",
          "step: 2 proposed nodes of sequence 3 are pending: commit first"),
    AFTER(TREES, "seq_cp", "\"src\":1,\"dst\":3", "seq_cp: 2 proposed nodes of sequence 3 are pending"),
    AFTER(TREES, "seq_rm", "\"seq\":0", "seq_rm: 2 proposed nodes of sequence 0 are pending"),
    AFTER(TREES, "seq_keep", "\"seq\":0", "seq_keep: 2 proposed nodes of sequence 0 are pending"),
    AFTER(TREES, "reorder", "\"dst\":[1],\"src\":[3]", "reorder: 2 proposed nodes of sequence 3 are pending"),
    {TREES /* others go on meanwhile, and commits are each sequence's own */
     "{\"prefill\":{\"seq\":1,\"from\":0,\"n\":2}}\n{\"seq_cp\":{\"src\":1,\"dst\":2}}\n{\"seq_rm\":{\"seq\":1,\"p0\":"
     "1}}\n"
     "{\"commit\":{\"accepted\":[0,1],\"seq\":3}}\n{\"step\":{\"pos\":[2,1,2],\"seq\":[2,1,3]}}\n"
     "{\"commit\":{\"accepted\":[0]}}\n{\"step\":{\"pos\":[2],\"seq\":[0]}}\n",
     9, "step: position 2, but the next one of sequence 0 is 1", false, 0},
    AFTER("{\"step\":{\"pos\":[0],\"seq\":[3]}}\n", "rewind", "\"len\":0", "rewind: only sequence 0 may be alive"),
    AFTER(STEP0, "rewind", "\"len\":2", "rewind: to length 2, but sequence 0 is 1 long"),
    /* shifts */
    EVENT("seq_add", "\"seq\":0", "seq_add: \"delta\" is missing"),
    EVENT("seq_add", "\"seq\":0,\"delta\":67108864", "seq_add: \"delta\": 67108864 is out of range"),
    EVENT("seq_div", "\"seq\":0,\"d\":0,\"p0\":5,\"p1\":4", "seq_div: \"d\": 0 is out of range"),
    EVENT("seq_div", "\"seq\":0,\"d\":1,\"p0\":5,\"p1\":4", "seq_div: \"p0\" 5 is above \"p1\" 4"),
    {HEADER_ROPE THREE "{\"seq_div\":{\"seq\":0,\"p0\":1,\"d\":2}}\n", 3,
     "seq_div: positions 1 .. 2 of sequence 0 divided by 2 would pass position 0", true, 0},
    AFTER(THREE, "seq_add", "\"seq\":0,\"delta\":1", "seq_add: the header says no \"rope\" of group 0"),
    {HEADER_ROPE THREE "{\"seq_add\":{\"seq\":0,\"delta\":-1}}\n", 3,
     "seq_add: positions 0 .. 2 of sequence 0 moved by -1 would pass position -1", true, 0},
    {HEADER_ROPE THREE "{\"seq_add\":{\"seq\":0,\"p1\":2,\"delta\":1}}\n", 3,
     "seq_add: positions 0 .. 1 of sequence 0 moved by 1 would pass position 2", true, 0},
    {HEADER_ROPE THREE "{\"seq_add\":{\"seq\":0,\"p0\":1,\"p1\":2,\"delta\":9}}\n", 3,
     "seq_add: positions 1 .. 1 of sequence 0 moved by 9 would pass position 2", true, 0},
    {HEADER_ROPE THREE "{\"seq_add\":{\"seq\":0,\"p0\":1,\"delta\":67108862}}\n", 3,
     "seq_add: position 67108864 is above 67108863", true, 0},
    {HEADER_ROPE THREE "{\"seq_cp\":{\"src\":0,\"dst\":1}}\n{\"seq_add\":{\"seq\":1,\"delta\":1}}\n", 4,
     "seq_add needs 6 cells, capacity is 5", true, 5},
    {HEADER_ROPE THREE "{\"seq_add\":{\"seq\":0,\"p0\":1,\"delta\":4}}\n" STEP0, 4,
     "step: position 0, but the next one of sequence 0 is 7", true, 0},
    EVENT("defrag", "\"seq\":0", "defrag: unknown key \"seq\", known: no keys"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "defrag", "", "defrag: 1 proposed nodes of sequence 0 are pending"),
    {THREE "{\"defrag\":{}}\n", 3, "defrag needs a free cell, but all 3 are in use", false, 3},
    /* slots */
    EVENT("save", "\"seq\":0", "save: \"slot\" is missing"),
    EVENT("save", "\"slot\":64", "save: \"slot\": 64 is out of range 0 .. 63"),
    EVENT("save", "\"slot\":0,\"seq\":4096", "save: \"seq\": 4096 is out of range 0 .. 4095"),
    EVENT("load", "\"slot\":3", "load: nothing was saved in slot 3"),
    AFTER("{\"propose\":{\"parents\":[-1]}}\n", "save", "\"slot\":0",
          "save: 1 proposed nodes of sequence 0 are pending"),
    {THREE "{\"save\":{\"slot\":1}}\n{\"load\":{\"slot\":1,\"seq\":2}}\n", 4, "load: slot 1 holds all sequences", false,
     0},
    {THREE "{\"save\":{\"slot\":1,\"seq\":0}}\n{\"load\":{\"slot\":1}}\n", 4, "load: slot 1 holds one sequence", false,
     0},
    {THREE "{\"save\":{\"slot\":1,\"seq\":0}}\n{\"load\":{\"slot\":1,\"seq\":0}}\n", 4, "load: sequence 0 is alive",
     false, 0},
    {THREE "{\"save\":{\"slot\":1,\"seq\":0}}\n{\"seq_rm\":{\"seq\":0}}\n{\"prefill\":{\"seq\":1,\"from\":0,\"n\":3}}\n"
           "{\"load\":{\"slot\":1,\"seq\":2}}\n",
     6, "load needs 6 cells, capacity is 5", false, 5},
    {HEADER_ROPE THREE "{\"seq_add\":{\"seq\":0,\"delta\":1}}\n{\"save\":{\"slot\":0}}\n", 4,
     "save: positions have moved since the last step", true, 0},
    /* what queries see */
    {THREE "{\"step\":{\"pos\":[3],\"seq\":[0]},\"sees\":[[0,1,3]]}\n", 3, "\"sees\"[0]: the query sees token 2, too",
     false, 0},
    {THREE "{\"step\":{\"pos\":[3,0],\"seq\":[0,1]},\"sees\":[null,[4,0]]}\n", 3,
     "\"sees\"[1]: the query sees 1 tokens, not 2", false, 0},
    {THREE "{\"step\":{\"pos\":[3],\"seq\":[0]},\"sees\":[[0.5,1,2,3]]}\n", 3,
     "\"sees\"[0][0]: expected an integer, found a fraction", false, 0},
    {THREE "{\"step\":{\"pos\":[3],\"seq\":[0]},\"sees\":[]}\n", 3,
     "step: \"sees\": expected a list or null for each of 1 queries", false, 0},
    {THREE "{\"step\":{\"pos\":[3],\"seq\":[0]},\"sees\":[3]}\n", 3,
     "\"sees\"[0]: expected a list of tokens, or one for each of 1 groups", false, 0},
    {THREE "{\"step\":{\"pos\":[3],\"seq\":[0]},\"sees\":[[[0],[0]]]}\n", 3,
     "\"sees\"[0]: expected a list of tokens, or one for each of 1 groups", false, 0},
    {"{\"clear\":{},\"sees\":[[0]]}\n", 2, "clear: \"sees\": expected a list or null for each of 0 queries", false, 0},
    {"{\"fill\":{\"seq\":0,\"n\":1},\"sees\":[[0]]}\n", 2, "fill: \"sees\": expected", false, 0},
    {THREE "{\"rewind\":{\"len\":4},\"refused\":\"EINVAL\",\"sees\":[[0]]}\n", 3, "refused: \"sees\": expected", false,
     0},
    {"{\"sees\":[[0]]}\n", 2, "expected an object with one key", false, 0},
    /* what is to be refused */
    {"{\"clear\":{},\"refused\":\"EIO\"}\n", 2, "\"refused\": expected \"ENOSPC\" or \"EINVAL\"", false, 0},
    {"{\"clear\":{},\"refused\":1}\n", 2, "\"refused\": expected \"ENOSPC\" or \"EINVAL\"", false, 0},
    {"{\"refused\":\"EINVAL\"}\n", 2,
     "expected an object with one key, the event's name, and perhaps \"refused\" or \"sees\"", false, 0},
    {"{\"refused\":\"EINVAL\",\"refuse\":{}}\n", 2, "unknown event \"refuse\"", false, 0},
    {THREE "{\"rewind\":{\"len\":3},\"refused\":\"EINVAL\"}\n", 3,
     "rewind: is to be refused with EINVAL, but may be done", false, 0},
    {THREE "{\"rewind\":{\"len\":4},\"refused\":\"ENOSPC\"}\n", 3,
     "rewind: is not to be refused with ENOSPC: rewind: to length 4, but sequence 0 is 3 long", false, 0},
    {HEADER_OF(256) "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":256},\"refused\":\"ENOSPC\"}\n", 2,
     "prefill: is to be refused with ENOSPC, but may be done", true, 0},
    {HEADER_OF(256) "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":257},\"refused\":\"EINVAL\"}\n", 2,
     "prefill: is not to be refused with EINVAL: prefill needs 257 cells, capacity is 256", true, 0},
    {HEADER_OF(256) "{\"prefill\":{\"seq\":0,\"from\":1,\"n\":257},\"refused\":\"ENOSPC\"}\n",
     2, /* no call tells a cache */
     "prefill: is not to be refused with ENOSPC: prefill: position 1, but the next one", true, 0},
    {"{\"commit\":{\"accepted\":[]},\"refused\":\"EINVAL\"}\n", 2,
     "commit: is not to be refused with EINVAL: commit: no", false, 0},
    {"{\"propose\":{\"parents\":[-1]}}\n{\"clear\":{},\"refused\":\"EINVAL\"}\n", 3,
     "clear: is not to be refused with EINVAL: clear: 1 proposed nodes of sequence 0 are pending", false, 0},
    {HEADER_OF(9) THREE /* what is refused has changed nothing */
     "{\"seq_cp\":{\"src\":0,\"dst\":0,\"p0\":1},\"refused\":\"EINVAL\"}\n{\"propose\":{\"parents\":[-1,2]},"
     "\"refused\":\"EINVAL\"}\n"
     "{\"rewind\":{\"len\":9},\"refused\":\"EINVAL\"}\n{\"commit\":{\"accepted\":[0]},\"refused\":\"EINVAL\"}\n"
     "{\"propose\":{\"parents\":[-1]}}\n{\"step\":{\"pos\":[3],\"seq\":[0]},\"refused\":\"EINVAL\"}\n"
     "{\"commit\":{\"accepted\":[1]},\"refused\":\"EINVAL\"}\n{\"commit\":{\"accepted\":[0]}}\n"
     "{\"prefill\":{\"seq\":0,\"from\":4,\"n\":6},\"refused\":\"ENOSPC\"}\n" STEP0,
     12, "step: position 0, but the next one of sequence 0 is 4", true, 0},
    /* capacity */
    {"{\"prefill\":{\"seq\":0,\"from\":0,\"n\":300}}\n", 2, "prefill needs 300 cells, capacity is 256", false, 256},
    {"{\"prefill\":{\"seq\":0,\"from\":0,\"n\":250}}\n{\"propose\":{\"parents\":[-1,-1,0,1,2,3,4]}}\n", 3,
     "propose needs 257 cells, capacity is 256", false, 256},
    {"{\"fill\":{\"seq\":0,\"n\":16777216}}\n{\"fill\":{\"seq\":0,\"n\":16777216}}\n{\"clear\":{}}\n"
     "{\"fill\":{\"seq\":0,\"n\":16777216}}\n{\"fill\":{\"seq\":0,\"n\":16777216}}\n" STEP0,
     7, "step: more than 67108864 tokens in the trace", false, 0},
};

#define NAMES         "\"kvbench_trace\":1,\"name\":\"t\",\"source\":\"s\","
#define MODEL(fields) "{" NAMES "\"model\":{" fields "}" VALUES "}"
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
          "unknown profile \"gauss\", known: gaussian, llama, qwen, peaked, needle, flat, grid, tags, large-logits, "
          "far-below, equal-keys, giant-channel, subnormal"),
    WHOLE(V("{\"profile\":\"flat\"}"), "header: \"seed\": expected an integer, found nothing"),
    WHOLE(V("{\"profile\":\"flat\",\"seed\":-1}"), "header: \"seed\": -1 is out of range"),
    WHOLE(V("{\"tensors\":\"a\",\"seed\":1}"), "header: values: unknown key \"seed\", known: tensors"),
    WHOLE(V("{\"profile\":\"flat\",\"seed\":1,\"before_rope\":1}"),
          "header: values: \"before_rope\": expected true or false, found an integer"),
    WHOLE(V("{\"profile\":\"flat\",\"seed\":1,\"before_rope\":true}"),
          "header: values: \"before_rope\": expected the \"rope\" of group 0"),
    WHOLE(V("{\"tensors\":\"../a\"}"), "expected the name of a file beside the trace, found \"../a\""),
    WHOLE(V("{\"tensors\":7}"), "header: \"tensors\": expected a string"),
};

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
        cmocka_unit_test(test_bad_events),      cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_header_capacity), cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_endless_line),    cmocka_unit_test(test_message_is_one_line),
    };
    return cmocka_run_group_tests_name("bad traces", tests, scratch_setup, scratch_teardown);
}
