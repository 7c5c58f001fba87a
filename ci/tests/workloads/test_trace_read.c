/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that legal traces, also ones written by hand, are read correctly, and that their needs are right. */
#include "scratch.h"

#include "workloads/trace.h"

static kvb_trace *load(const char *text, uint32_t capacity)
{
    char why[300] = "";
    kvb_trace *trace;
    if (kvb_trace_load(tests_text("t.jsonl", text), capacity, &trace, why, sizeof why))
        fail_msg("%s", why);
    return trace;
}

TEST(test_header_fields)
{
    kvb_trace *t =
        load("\n \t\r\n {\"values\": {\"tensors\":\"r.safetensors\"}, \"note\":\"a \\\"b\\\"\", \"capacity\" : 64,"
             "\"source\":\"s\", \"name\":\"n\", " HEADER_MODEL ", \"kvbench_trace\":1}",
             0);
    const kvb_trace_header *h = &t->header;
    assert_string_equal(h->name, "n");
    assert_string_equal(h->source, "s");
    assert_string_equal(h->note, "a \"b\"");
    assert_string_equal(h->tensors, tests_path("r.safetensors"));
    assert_null(h->profile);
    assert_int_equal(h->capacity, 64);
    assert_int_equal(t->n_events, 0);
    kvb_trace_free(t);
}

static const kvb_group alike = {.heads = 4, .kv_heads = 2, .k_dim = 16, .v_dim = 16, .scale = 0.25};

/* Compares the numbers of group g, without sink logits. */
static void assert_group(const kvb_trace *t, uint32_t g, kvb_group want)
{
    kvb_group got = t->header.model.groups[g];
    assert_int_equal(got.heads, want.heads);
    assert_int_equal(got.kv_heads, want.kv_heads);
    assert_int_equal(got.k_dim, want.k_dim);
    assert_int_equal(got.v_dim, want.v_dim);
    assert_int_equal(got.latent, want.latent);
    assert_int_equal(got.window, want.window);
    assert_int_equal(got.sinks, want.sinks);
    assert_int_equal(got.chunk, want.chunk);
    assert_true(got.scale == want.scale && got.softcap == want.softcap);
}

/* Every way of writing one model gives the same model. */
TEST(test_model_alike)
{
    static const struct {
        int version;
        const char *block;
    } ways[] = {
        {1, "\"kv_cache.schema_version\":1,\"kv_cache.layers\":3,\"kv_cache.heads\":4,\"kv_cache.kv_heads\":2,"
            "\"kv_cache.k_dim\":16,\"kv_cache.v_dim\":16"},
        {1, "\"kv_cache.schema_version\":1,\"kv_cache.n_layers\":3,\"kv_cache.n_heads\":4,\"kv_cache.n_kv_heads\":2,"
            "\"kv_cache.head_dim\":16"},
        {1, "\"kv_cache.schema_version\":1,\"kv_cache.n_layers\":3,\"kv_cache.heads\":4,\"kv_cache.n_kv_heads\":2,"
            "\"kv_cache.head_dim\":16,\"scale\":0.25"},
        {2, "\"kv_cache.schema_version\":1,\"kv_cache.layers\":3,\"kv_cache.heads\":4,\"kv_cache.kv_heads\":2,"
            "\"kv_cache.head_dim\":16"},
        {2, "\"kv_cache.schema_version\":2,\"kv_cache.n_layers\":3,\"groups\":[{\"layers\":[2,0,1],\"heads\":4,"
            "\"kv_heads\":2,\"k_dim\":16,\"v_dim\":16,\"latent\":false}]"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char text[600];
        snprintf(text, sizeof text,
                 "{\"kvbench_trace\":%d,\"name\":\"t\",\"source\":\"s\",\"model\":{%s},"
                 "\"values\":{\"profile\":\"flat\",\"seed\":0}}\n",
                 ways[i].version, ways[i].block);
        kvb_trace *t = load(text, 0);
        assert_int_equal(t->header.model.n_layers, 3);
        assert_int_equal(t->header.model.n_groups, 1);
        for (uint32_t layer = 0; layer < 3; layer++)
            assert_int_equal(t->header.model.group_of[layer], 0);
        assert_group(t, 0, alike);
        assert_null(t->header.model.groups[0].sink_logits);
        kvb_trace_free(t);
    }
}

TEST(test_model_groups)
{
    static const float logits[] = {0, 0.5f, 1, 2};
    kvb_trace *t = load(HEADER_GROUPS "{\"step\":{\"seq\":[0],\"pos\":[0]}}\n", 0);
    const kvb_model *m = &t->header.model;
    assert_int_equal(m->n_layers, 4);
    assert_int_equal(m->n_groups, 3);
    assert_memory_equal(m->group_of, ((uint8_t[]){0, 1, 0, 2}), 4);
    assert_group(t, 0, (kvb_group){4, 2, 16, 24, .window = 8, .sinks = 1, .scale = 0.25});
    assert_group(t, 1, (kvb_group){4, 1, 48, 32, .latent = true, .scale = 0.2, .softcap = 30});
    assert_group(t, 2, (kvb_group){3, 3, 16, 16, .chunk = 4, .scale = 0.25});
    assert_memory_equal(m->groups[0].sink_logits, logits, sizeof logits);
    assert_null(m->groups[1].sink_logits);
    kvb_trace_free(t);
}

/* Changes that a run may make to logits: softcap and scale of all groups; seeded sink logits, others in each group. */
TEST(test_logit_changes)
{
    kvb_trace *t = load(HEADER_GROUPS, 0), *u = load(HEADER_GROUPS, 0);
    const kvb_group *g = t->header.model.groups, *h = u->header.model.groups;
    assert_int_equal(kvb_trace_change_logits(t, &(kvb_logit_changes){.softcap = 7}), 0);
    assert_true(g[0].softcap == 7 && g[1].softcap == 7 && g[2].softcap == 7);
    assert_true(g[0].sink_logits[3] == 2 && !g[1].sink_logits);
    assert_true(g[0].scale == h[0].scale && g[2].scale != 0.3);
    assert_int_equal(kvb_trace_change_logits(t, &(kvb_logit_changes){.scale = 0.3}), 0);
    assert_true(g[0].scale == 0.3 && g[1].scale == 0.3 && g[2].scale == 0.3 && g[0].softcap == 7);
    assert_int_equal(kvb_trace_change_logits(t, &(kvb_logit_changes){.sinks = true, .seed = 1}), 0);
    assert_int_equal(kvb_trace_change_logits(u, &(kvb_logit_changes){.sinks = true, .seed = 1}), 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_memory_equal(g[i].sink_logits, h[i].sink_logits, g[i].heads * sizeof(float));
    assert_memory_not_equal(g[0].sink_logits, g[1].sink_logits, 4 * sizeof(float));
    assert_true(g[1].softcap == 7 && h[1].softcap == 30);
    assert_int_equal(kvb_trace_change_logits(u, &(kvb_logit_changes){.sinks = true, .seed = 2}), 0);
    assert_memory_not_equal(g[0].sink_logits, h[0].sink_logits, 4 * sizeof(float));
    assert_false(t->header.before_rope);
    const kvb_rope stated = g[0].rope;
    assert_int_equal(kvb_trace_change_logits(t, &(kvb_logit_changes){.before_rope = true}), 0);
    assert_true(t->header.before_rope && !u->header.before_rope);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(g[i].rope.known && (h[i].rope.known || g[i].rope.base == 10000));
    assert_true(!stated.known || g[0].rope.base == stated.base);
    kvb_trace_free(t);
    kvb_trace_free(u);
}

TEST(test_ropes)
{
    kvb_trace *t = load(HEADER_ROPE, 0);
    const kvb_group *g = t->header.model.groups;
    assert_true(g[0].rope.known && g[0].rope.dims == 8 && g[0].rope.first == 0 && !g[0].rope.neighbours);
    assert_true(g[1].rope.known && g[1].rope.dims == 4 && g[1].rope.first == 12 && g[1].rope.neighbours);
    assert_true(g[2].rope.known && g[2].rope.dims == 0);
    kvb_trace_free(t);
}

/* Sets of queries are described in words. */
TEST(test_words)
{
    char words[256];
    const uint64_t set[2] = {0x5555555555555555, 1};
    kvb_set_words("query", set, 65, words, sizeof words);
    assert_string_equal(words, "queries 0, 2, 4, 6, 8, 10, …");
    static const struct {
        uint64_t set;
        uint32_t n;
        const char *want;
    } patterns[] = {
        {0xff, 8, "every query"},           {1, 1, "every query"},
        {0x8080, 16, "every 8th query"},    {0x8080, 24, "2 of 24 queries"},
        {0x80, 8, "the last query"},        {1, 8, "query 0"},
        {0xf0, 8, "queries 4 to 7"},        {0x55, 8, "every 2nd query"},
        {0x49, 8, "every 3rd query"},       {0x69, 8, "4 of 8 queries"},
        {0x81, 16, "2 of 16 queries"},      {0x200801, 22, "3 of 22 queries"},
        {0x400801, 23, "every 11th query"}, {0x200001, 22, "every 21st query"},
    };
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        kvb_set_pattern("query", &patterns[i].set, patterns[i].n, words, sizeof words);
        assert_string_equal(words, patterns[i].want);
    }
}

/* ---- traces and the values read from them: accepted.txt ---------------------------------------------------------- */

/* Fields of a trace's needs. */
#define NEED(field)                                                                                                    \
    {                                                                                                                  \
#field, offsetof(kvb_trace_needs, field), sizeof((kvb_trace_needs){0}.field)                                   \
    }
static const struct {
    const char *name;
    size_t at, bytes;
} fields[] = {NEED(seq),     NEED(tree),  NEED(rewind),   NEED(fill),  NEED(shift), NEED(divide),
              NEED(defrag),  NEED(slots), NEED(full),     NEED(cells), NEED(seqs),  NEED(alive),
              NEED(seq_len), NEED(pairs), NEED(rollback), NEED(tokens)};

static void needs_are(const kvb_trace *t, const char *text)
{
    char name[16];
    int n;
    for (unsigned long want; sscanf(text, "%15s %lu%n", name, &want, &n) == 2; text += n) {
        uint64_t got = 0;
        size_t f = 0;
        while (f < sizeof fields / sizeof *fields && strcmp(fields[f].name, name))
            f++;
        assert_true(f < sizeof fields / sizeof *fields);
        memcpy(&got, (const char *)&t->needs + fields[f].at, fields[f].bytes);
        if (got != want)
            fail_msg("%s: %s is %lu", text, name, (unsigned long)got);
    }
}

/* Checks one line, behind its "= ". */
static void is_read(const kvb_trace *t, const char *want)
{
    char words[256], *rest;
    if (!strncmp(want, "needs ", 6)) {
        needs_are(t, want + 6);
        return;
    }
    const size_t event = strtoul(want, &rest, 10);
    assert_true(rest > want && event < t->n_events);
    if (!strncmp(rest, " n ", 3)) {
        assert_int_equal(t->events[event].n, strtoul(rest + 3, NULL, 10));
        return;
    }
    kvb_event_words(&t->events[event], words, sizeof words);
    assert_string_equal(words, rest + 1);
}

TEST(test_accepted)
{
    static const char *const headers[][2] = {{"rope ", HEADER_ROPE}, {"of20 ", HEADER_OF(20)}, {"", HEADER}};
    size_t n, wants = 0;
    char *file = tests_read("ci/tests/workloads/accepted.txt", &n), text[4096];
    for (char *at = strstr(file, "\n@") + 1, *next; at; at = next) {
        size_t h = 0;
        uint32_t capacity = 0;
        next = strstr(at, "\n@");
        next = next ? next + 1 : NULL;
        if (next)
            next[-1] = 0;
        while (strncmp(at + 2, headers[h][0], strlen(headers[h][0])))
            h++;
        sscanf(at + 2 + strlen(headers[h][0]), "capacity %u", &capacity);
        char *lines = strchr(at, '\n') + 1, *want = strstr(lines, "\n= ");
        assert_non_null(want);
        snprintf(text, sizeof text, "%s%.*s\n", headers[h][1], (int)(want - lines), lines);
        kvb_trace *t = load(text, capacity);
        for (char *line = strtok(want, "\n"); line; line = strtok(NULL, "\n"), wants++)
            is_read(t, line + 2);
        kvb_trace_free(t);
    }
    free(file);
    assert_true(wants > 40);
}

/* Sequences up to the last id; a token that hundreds of them hold takes one cell until the last one drops it. */
TEST(test_many_sequences)
{
    enum { COPIES = 600 };
    static char text[200 + 100 * COPIES];
    int at = snprintf(text, sizeof text, HEADER "{\"prefill\":{\"seq\":4095,\"from\":0,\"n\":3}}\n");
    for (int s = 0; s < COPIES; s++)
        at += snprintf(text + at, sizeof text - (size_t)at, "{\"seq_cp\":{\"src\":4095,\"dst\":%d}}\n", s);
    for (int s = 0; s < COPIES; s++)
        at += snprintf(text + at, sizeof text - (size_t)at, "{\"seq_rm\":{\"seq\":%d}}\n", s);
    snprintf(text + at, sizeof text - (size_t)at, "{\"prefill\":{\"seq\":1,\"from\":0,\"n\":2}}\n");
    kvb_trace *t = load(text, 0);
    assert_int_equal(t->needs.seqs, 4096);
    assert_int_equal(t->needs.alive, COPIES + 1);
    assert_int_equal(t->needs.cells, 5);
    kvb_trace_free(t);
}

/* A long fill is cheap, and capacity given to load replaces the header's. */
TEST(test_long_fill)
{
    kvb_trace *t =
        load(HEADER "{\"fill\":{\"seq\":0,\"n\":1000000}}\n{\"step\":{\"pos\":[1000000],\"seq\":[0]}}\n", 1000001);
    assert_int_equal(t->needs.cells, 1000001);
    assert_int_equal(t->needs.pairs, 1000001);
    assert_int_equal(t->events[0].pos[999999], 999999);
    kvb_trace_free(t);
}

TEST(test_header_alone)
{
    char why[300];
    kvb_trace *t;
    assert_int_equal(kvb_trace_load_header(tests_text("s.jsonl", HEADER "{\"x\":{}}\n"), &t, why, sizeof why), 0);
    assert_string_equal(t->header.profile, "gaussian");
    assert_int_equal(t->n_events, 0);
    kvb_trace_free(t);
}

/* A line that gives a token to several sequences reads as the event and its copies. */
#define P3                       "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":3}}\n"
#define COPIES(src, dst, p0, p1) "{\"seq_cp\":{\"src\":" #src ",\"dst\":" #dst ",\"p0\":" #p0 ",\"p1\":" #p1 "}}\n"

static const struct {
    const char *lists, *copies;
} shared[] = {
    /* one copy for each other sequence, wherever its tokens are in the batch */
    {"{\"prefill\":{\"seq\":[2,0,7],\"from\":0,\"n\":5,\"tok\":[1,2,3,4,5]}}\n",
     "{\"prefill\":{\"seq\":2,\"from\":0,\"n\":5,\"tok\":[1,2,3,4,5]}}\n" COPIES(2, 0, 0, 5) COPIES(2, 7, 0, 5)},
    {P3 "{\"fill\":{\"seq\":[0],\"n\":4}}\n" COPIES(0, 1, 0, 7) "{\"fill\":{\"seq\":[1,0],\"n\":2}}\n",
     P3 "{\"fill\":{\"seq\":0,\"n\":4}}\n" COPIES(0, 1, 0, 7) "{\"fill\":{\"seq\":1,\"n\":2}}\n" COPIES(1, 0, 7, 9)},
    {"{\"step\":{\"pos\":[0,0,1,1,2],\"seq\":[[0,1],3,[0,1],[3],[0,1]]}}\n",
     "{\"step\":{\"pos\":[0,0,1,1,2],\"seq\":[0,3,0,3,0]}}\n" COPIES(0, 1, 0, 3)},
    /* own tokens before shared ones; sharing ends; a sequence shares with two others in turn */
    {"{\"step\":{\"pos\":[0,0,1,2],\"seq\":[1,0,[0,1],0]}}\n",
     "{\"step\":{\"pos\":[0,0,1,2],\"seq\":[1,0,0,0]}}\n" COPIES(0, 1, 1, 2)},
    {"{\"step\":{\"pos\":[0,0,1,1,2],\"seq\":[[0,1],2,[2,1],0,[0,1]]}}\n",
     "{\"step\":{\"pos\":[0,0,1,1,2],\"seq\":[0,2,2,0,0]}}\n" COPIES(0, 1, 0, 1) COPIES(2, 1, 1, 2) COPIES(0, 1, 2, 3)},
    /* a refused line has no copies */
    {"{\"clear\":{}}\n{\"propose\":{\"parents\":[-1]}}\n{\"step\":{\"pos\":[0],\"seq\":[[0,1]]},\"refused\":\"EINVAL\"}"
     "\n",
     "{\"clear\":{}}\n{\"propose\":{\"parents\":[-1]}}\n{\"step\":{\"pos\":[0],\"seq\":[0]},\"refused\":\"EINVAL\"}\n"},
};

TEST(test_lists_are_copies)
{
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        char text[1024];
        snprintf(text, sizeof text, HEADER "%s", shared[i].lists);
        kvb_trace *lists = load(text, 0);
        snprintf(text, sizeof text, HEADER "%s", shared[i].copies);
        kvb_trace *copies = load(text, 0);
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

/* The event and its copies have the same line number. */
TEST(test_their_line)
{
    kvb_trace *t = load(HEADER "{\"prefill\":{\"seq\":[0,1],\"from\":0,\"n\":2}}\n{\"seq_rm\":{\"seq\":1}}\n", 0);
    assert_int_equal(t->n_events, 3);
    assert_true(t->events[0].line == 2 && t->events[1].line == 2 && t->events[2].line == 3);
    kvb_trace_free(t);
}
