/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that legal traces, also ones written by hand, read as what they say, and that needs add up. */
#include "scratch.h"

#include "workloads/trace.h"

#include <errno.h>
#include <math.h>

static kvb_trace *load(const char *text, uint32_t capacity)
{
    char why[300] = "";
    kvb_trace *trace;
    if (kvb_trace_load(scratch_text("t.jsonl", text), capacity, &trace, why, sizeof why))
        fail_msg("%s", why);
    return trace;
}

static void test_header_fields(void **state)
{
    (void)state;
    kvb_trace *t =
        load("\n \t\r\n {\"values\": {\"tensors\":\"r.safetensors\"}, \"note\":\"a \\\"b\\\"\", \"capacity\" : 64,"
             "\"source\":\"s\", \"name\":\"n\", " HEADER_MODEL ", \"kvbench_trace\":1}",
             0);
    const kvb_trace_header *h = &t->header;
    assert_string_equal(h->name, "n");
    assert_string_equal(h->source, "s");
    assert_string_equal(h->note, "a \"b\"");
    assert_string_equal(h->tensors, scratch_path("r.safetensors"));
    assert_null(h->profile);
    assert_int_equal(h->capacity, 64);
    assert_int_equal(t->n_events, 0);
    kvb_trace_free(t);
}

static const kvb_group alike = {.heads = 4, .kv_heads = 2, .k_dim = 16, .v_dim = 16, .scale = 0.25};

/* The group's numbers; sink logits apart. */
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

/* One model, in every way that says it. */
static void test_model_alike(void **state)
{
    (void)state;
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

static void test_model_groups(void **state)
{
    (void)state;
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

/* What a run may ask of a trace's logits: groups get what they did not have, and sinks of their own by seed. */
static void test_logit_changes(void **state)
{
    (void)state;
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

static void test_shifts(void **state)
{
    (void)state;
    kvb_trace *t = load(HEADER_ROPE "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":12}}\n"
                                    "{\"seq_cp\":{\"src\":0,\"dst\":1}}\n"
                                    "{\"seq_add\":{\"seq\":1,\"p0\":4,\"delta\":5}}\n" /* 8 tokens part */
                                    "{\"step\":{\"pos\":[12,17],\"seq\":[0,1]}}\n"
                                    "{\"seq_rm\":{\"seq\":0,\"p0\":2,\"p1\":6}}\n"
                                    "{\"seq_add\":{\"seq\":0,\"p0\":6,\"p1\":10,\"delta\":-4}}\n"
                                    "{\"seq_add\":{\"seq\":2,\"delta\":4}}\n{\"seq_add\":{\"seq\":0,\"delta\":0}}\n"
                                    "{\"seq_rm\":{\"seq\":1}}\n"
                                    "{\"seq_add\":{\"seq\":0,\"p0\":10,\"delta\":-4}}\n"
                                    "{\"seq_rm\":{\"seq\":0,\"p0\":5}}\n"
                                    "{\"seq_add\":{\"seq\":0,\"delta\":-1},\"refused\":\"EINVAL\"}\n{\"defrag\":{}}\n",
                        0);
    const kvb_rope *ropes[] = {&t->header.model.groups[0].rope, &t->header.model.groups[1].rope,
                               &t->header.model.groups[2].rope};
    assert_true(ropes[0]->known && ropes[0]->dims == 8 && ropes[0]->first == 0 && !ropes[0]->neighbours);
    assert_true(ropes[1]->known && ropes[1]->dims == 4 && ropes[1]->first == 12 && ropes[1]->neighbours);
    assert_true(ropes[2]->known && ropes[2]->dims == 0);
    assert_true(t->needs.shift && t->needs.seq && t->needs.seqs == 3);
    assert_int_equal(t->needs.cells, 12 + 8 + 2);
    assert_int_equal(t->needs.seq_len, 18);
    assert_int_equal(t->needs.rollback, 4); /* what moves is not taken back: 9 to 5 is */
    assert_int_equal(t->events[2].n, 8);
    assert_int_equal(t->events[5].n, 4);
    assert_true(t->events[6].n == 0 && t->events[7].n == 0);
    char words[256];
    kvb_event_words(&t->events[2], words, sizeof words);
    assert_string_equal(words, "line 4: seq_add of +5 to sequence 1, positions from 4 on");
    kvb_event_words(&t->events[5], words, sizeof words);
    assert_string_equal(words, "line 7: seq_add of -4 to sequence 0, positions 6 to 9");
    kvb_event_words(&t->events[11], words, sizeof words);
    assert_string_equal(words, "line 13: seq_add of -1 to sequence 0, to be refused with EINVAL");
    kvb_event_words(&t->events[12], words, sizeof words);
    assert_string_equal(words, "line 14: defrag");
    assert_true(t->needs.defrag);
    kvb_trace_free(t);
}

static void test_divisions(void **state)
{
    (void)state;
    kvb_trace *t =
        load(HEADER_ROPE "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":12}}\n"
                         "{\"seq_cp\":{\"src\":0,\"dst\":1}}\n"
                         "{\"seq_div\":{\"seq\":0,\"p1\":8,\"d\":4}}\n" /* 8 tokens part, and lie at 0 and 1 */
                         "{\"seq_div\":{\"seq\":1,\"d\":1}}\n"
                         "{\"seq_rm\":{\"seq\":0,\"p0\":1,\"p1\":2}}\n" /* 4 of them */
                         "{\"seq_cp\":{\"src\":0,\"dst\":2}}\n"
                         "{\"step\":{\"pos\":[12,12],\"seq\":[0,2]}}\n"
                         "{\"seq_div\":{\"seq\":0,\"p0\":8,\"d\":20},\"refused\":\"EINVAL\"}\n",
             0);
    assert_true(t->needs.shift && t->needs.divide && !t->needs.defrag);
    assert_int_equal(t->events[2].n, 8);
    assert_int_equal(t->events[3].n, 0);
    assert_int_equal(t->events[5].n, 8);
    assert_int_equal(t->needs.cells, 20);
    assert_int_equal(t->needs.pairs, 78 + 9 + 9);
    char words[256];
    kvb_event_words(&t->events[2], words, sizeof words);
    assert_string_equal(words, "line 4: seq_div by 4 of sequence 0, positions 0 to 7");
    kvb_trace_free(t);
}

static void test_slots(void **state)
{
    (void)state;
    static const struct {
        size_t event;
        const char *words;
    } said[] = {{1, "line 3: save of sequence 0 in slot 0"},
                {9, "line 11: save of all in slot 5"},
                {11, "line 13: load of all from slot 5"},
                {12, "line 14: load of sequence 2 from slot 0, to be refused with EINVAL"}};
    kvb_trace *t = load(HEADER_OF(20) "{\"prefill\":{\"n\":6,\"from\":0,\"seq\":0}}\n"
                                      "{\"save\":{\"slot\":0,\"seq\":0}}\n{\"seq_cp\":{\"src\":0,\"dst\":1}}\n"
                                      "{\"seq_rm\":{\"seq\":0}}\n{\"load\":{\"slot\":0,\"seq\":3}}\n" /* all is there */
                                      "{\"seq_rm\":{\"seq\":1}}\n{\"seq_rm\":{\"seq\":3}}\n"
                                      "{\"prefill\":{\"n\":4,\"from\":0,\"seq\":2}}\n"
                                      "{\"load\":{\"slot\":0,\"seq\":0}}\n" /* nothing is */
                                      "{\"save\":{\"slot\":5}}\n{\"seq_keep\":{\"seq\":2}}\n{\"load\":{\"slot\":5}}\n"
                                      "{\"load\":{\"slot\":0,\"seq\":2},\"refused\":\"EINVAL\"}\n"
                                      "{\"step\":{\"pos\":[6,4],\"seq\":[0,2]}}\n"
                                      "{\"seq_rm\":{\"seq\":0,\"p0\":4}}\n{\"save\":{\"slot\":0,\"seq\":0}}\n"
                                      "{\"clear\":{}}\n{\"load\":{\"slot\":0,\"seq\":0}}\n"
                                      "{\"seq_rm\":{\"seq\":0,\"p0\":3}}\n",
                        0);
    assert_true(t->needs.slots && t->needs.seq && t->needs.seqs == 4 && t->needs.alive == 2);
    assert_true(t->needs.tokens == 12 && t->needs.cells == 12 && t->needs.seq_len == 7);
    assert_int_equal(t->needs.rollback, 4); /* what was taken back before it was saved counts */
    assert_true(t->events[4].n == 6 && t->events[8].n == 6 && t->events[11].n == 10);
    assert_true(t->events[1].slot == 0 && t->events[9].slot == 5 && t->events[9].src == KVB_TRACE_ALL);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        char words[256];
        kvb_event_words(&t->events[said[i].event], words, sizeof words);
        assert_string_equal(words, said[i].words);
    }
    kvb_trace_free(t);
}

static void test_words(void **state)
{
    (void)state;
    static const char *const want[] = {
        "line 2: prefill of 4 tokens in sequence 0",
        "line 3: step of 3 tokens in sequences 0, 1",
        "line 4: fill of 1 token in sequence 1",
        "line 5: seq_cp from sequence 0 to 2, positions 1 to 4",
        "line 6: seq_rm of sequence 2",
        "line 7: seq_cp from sequence 1 to 9",
        "line 8: step of 4 tokens in sequences 0 to 2, 9",
        "line 9: seq_keep of sequence 0",
        "line 10: propose of 3 nodes in sequence 0",
        "line 11: commit of 1 node in sequence 0",
        "line 12: rewind to 1 token",
        "line 13: clear",
        "line 15: prefill of 20 tokens in sequence 3, to be refused with ENOSPC",
        "line 16: seq_cp from sequence 0 to 0, to be refused with EINVAL",
        "line 17: reorder of 2 sequences",
    };
    kvb_trace *t = load(HEADER_OF(20) "{\"prefill\":{\"n\":4,\"from\":0,\"seq\":0}}\n"
                                      "{\"step\":{\"seq\":[0,1,0],\"pos\":[4,0,5]}}\n{\"fill\":{\"seq\":1,\"n\":1}}\n"
                                      "{\"seq_cp\":{\"src\":0,\"dst\":2,\"p0\":1,\"p1\":5}}\n{\"seq_rm\":{\"seq\":2}}\n"
                                      "{\"seq_cp\":{\"src\":1,\"dst\":9}}\n"
                                      "{\"step\":{\"seq\":[0,1,2,9],\"pos\":[6,2,0,2]}}\n{\"seq_keep\":{\"seq\":0}}\n"
                                      "{\"propose\":{\"parents\":[-1,0,0]}}\n{\"commit\":{\"accepted\":[0]}}\n"
                                      "{\"rewind\":{\"len\":1}}\n{\"clear\":{}}\n{\"step\":{\"pos\":[0],\"seq\":[0]}}\n"
                                      "{\"prefill\":{\"seq\":3,\"from\":0,\"n\":20},\"refused\":\"ENOSPC\"}\n"
                                      "{\"seq_cp\":{\"src\":0,\"dst\":0},\"refused\":\"EINVAL\"}\n"
                                      "{\"reorder\":{\"dst\":[0,1],\"src\":[1,0]}}\n",
                        100); /* what is to be refused is, by the header */
    assert_true(t->needs.full == 20 && t->needs.seq_len == 20 && t->needs.tokens == 16);
    char words[256];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        kvb_event_words(&t->events[i + (i >= 12)], words, sizeof words);
        assert_string_equal(words, want[i]);
    }
    kvb_trace_free(t);
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

static void test_every_event(void **state)
{
    (void)state;
    kvb_trace *t = load(HEADER "{\"prefill\":{\"n\":4,\"from\":0,\"seq\":0,\"tok\":[9,8,7,6]}}\n"
                               "\n"
                               "  { \"step\" : { \"seq\" : [0, 1, 0], \"pos\":[4,0,5] } }  \r\n"
                               "{\"fill\":{\"seq\":1,\"n\":3}}\n"
                               "{\"seq_cp\":{\"src\":0,\"dst\":2,\"p0\":1,\"p1\":5}}\n"
                               "{\"seq_rm\":{\"seq\":0,\"p0\":2,\"p1\":4}}\n"
                               "{\"step\":{\"pos\":[5,6],\"seq\":[2,0],\"tok\":[1,2]}}\n"
                               "{\"seq_keep\":{\"seq\":2}}\n"
                               "{\"seq_rm\":{\"seq\":2}}\n"
                               "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":3}}\n"
                               "{\"propose\":{\"parents\":[-1,0,0]}}\n"
                               "{\"propose\":{\"parents\":[1,-1],\"tok\":[3,4]}}\n"
                               "{\"commit\":{\"accepted\":[0,1,3]}}\n"
                               "{\"rewind\":{\"len\":5}}\n"
                               "{\"clear\":{}}\n"
                               "{\"step\":{\"pos\":[0],\"seq\":[0]}}",
                        0);
    assert_int_equal(t->n_events, 15);
    const kvb_event *e = t->events;
    assert_int_equal(e[0].kind, KVB_EVENT_PREFILL);
    assert_int_equal(e[0].line, 2);
    assert_int_equal(e[0].tok[3], 6);
    assert_int_equal(e[0].pos[3], 3);
    assert_int_equal(e[1].line, 4);
    assert_int_equal(e[1].first, 4);
    assert_null(e[1].tok);
    assert_int_equal(e[1].seq[1], 1);
    assert_int_equal(e[2].kind, KVB_EVENT_FILL);
    assert_int_equal(e[2].first, 7);
    assert_int_equal(e[2].pos[0], 1);
    assert_int_equal(e[2].pos[2], 3);
    assert_int_equal(e[3].dst, 2);
    assert_int_equal(e[3].p0, 1);
    assert_int_equal(e[3].p1, 5);
    assert_int_equal(e[5].first, 10);
    assert_int_equal(e[7].p1, KVB_TRACE_POS_END);
    assert_int_equal(e[9].kind, KVB_EVENT_PROPOSE);
    assert_int_equal(e[9].first, 15);
    assert_int_equal(e[9].pos[0], 3);
    assert_int_equal(e[9].pos[2], 4);
    assert_int_equal(e[10].pos[0], 5);
    assert_int_equal(e[10].pos[1], 3);
    assert_int_equal(e[10].tok[1], 4);
    assert_int_equal(e[11].n, 3);
    assert_int_equal(e[11].accepted[2], 3);
    assert_int_equal(e[12].len, 5);
    assert_int_equal(e[14].line, 17);

    const kvb_trace_needs *n = &t->needs;
    assert_true(n->seq && n->tree && n->rewind && n->fill);
    assert_int_equal(n->events, 15);
    assert_int_equal(n->tokens, 21);
    assert_int_equal(n->queries, 18);
    assert_int_equal(n->seqs, 3);
    assert_int_equal(n->seq_len, 7);
    assert_int_equal(n->step, 4);
    /* Tokens 0..9; seq_rm of 2..3 from sequence 0 frees none, as sequence 2 holds them; then two more. */
    assert_int_equal(n->cells, 12);
    /* prefill 1+2+3+4; step 5+1+6; step: sequence 2 has 1..4 and 5: 5, sequence 0 has 0 1 4 5 6: 5;
     * prefill 1+2+3; tree 4+5+5, 6+4; step 1 */
    assert_int_equal(n->pairs, 10 + 12 + 10 + 6 + 24 + 1);
    kvb_trace_free(t);
}

/* What the shared cells, a freed range and pending nodes count. */
static void test_cells(void **state)
{
    (void)state;
    kvb_trace *t = load(HEADER "{\"prefill\":{\"seq\":3,\"from\":0,\"n\":8}}\n"
                               "{\"seq_cp\":{\"src\":3,\"dst\":0}}\n"
                               "{\"seq_rm\":{\"seq\":3,\"p0\":4}}\n"
                               "{\"seq_keep\":{\"seq\":3}}\n" /* frees positions 4..7 */
                               "{\"step\":{\"seq\":[3],\"pos\":[4]}}\n"
                               "{\"seq_rm\":{\"seq\":3}}\n"
                               "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":5}}\n"
                               "{\"propose\":{\"parents\":[-1,-1,0]}}\n"
                               "{\"commit\":{\"accepted\":[]}}\n"
                               "{\"propose\":{\"parents\":[-1,-1]}}\n"
                               "{\"commit\":{\"accepted\":[1]}}\n"
                               "{\"step\":{\"seq\":[0,0],\"pos\":[6,7]}}\n",
                        8);
    assert_int_equal(t->needs.cells, 8);
    assert_int_equal(t->header.capacity, 8);
    kvb_trace_free(t);
}

/* A copy onto a sequence that is alive joins what both have; how far one falls behind its furthest position. */
static void test_join_and_rollback(void **state)
{
    (void)state;
    kvb_trace *t =
        load(HEADER "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":6}}\n"
                    "{\"seq_cp\":{\"src\":0,\"dst\":1,\"p1\":2}}\n" /* four behind what it was copied from */
                    "{\"step\":{\"seq\":[1,1],\"pos\":[2,3]}}\n"
                    "{\"seq_cp\":{\"src\":0,\"dst\":1,\"p0\":4}}\n"
                    "{\"step\":{\"seq\":[1],\"pos\":[6]}}\n"
                    "{\"seq_rm\":{\"seq\":0,\"p0\":1}}\n" /* five behind; positions 2, 3 of sequence 0 are free */
                    "{\"seq_rm\":{\"seq\":0}}\n"          /* dead: it may begin anew */
                    "{\"step\":{\"seq\":[0,0],\"pos\":[0,1]}}\n",
             0);
    assert_int_equal(t->needs.cells, 9); /* 0 .. 5, two of sequence 1, and its position 6 */
    assert_int_equal(t->needs.pairs, 21 + 3 + 4 + 7 + 1 + 2);
    assert_int_equal(t->needs.rollback, 5);
    kvb_trace_free(t);
}

/* A cache must know the ids of sequences that are named, though they hold nothing. */
static void test_empty_sequences_are_named(void **state)
{
    (void)state;
    static const char *const calls[] = {"seq_cp\":{\"src\":7,\"dst\":0", "seq_cp\":{\"src\":0,\"dst\":7,\"p0\":9",
                                        "seq_rm\":{\"seq\":7", "seq_keep\":{\"seq\":7"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char text[400];
        snprintf(text, sizeof text, HEADER "{\"fill\":{\"seq\":0,\"n\":2}}\n{\"%s}}\n", calls[i]);
        kvb_trace *t = load(text, 0);
        assert_int_equal(t->needs.seqs, 8);
        assert_int_equal(t->needs.alive, 1);
        assert_int_equal(t->events[1].n, 0);
        kvb_trace_free(t);
    }
}

static void test_plain_needs_no_face(void **state)
{
    (void)state;
    kvb_trace *t =
        load(HEADER "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":2}}\n{\"step\":{\"seq\":[0],\"pos\":[2]}}\n", 0);
    assert_false(t->needs.seq || t->needs.tree || t->needs.rewind || t->needs.fill);
    assert_int_equal(t->needs.seqs, 1);
    kvb_trace_free(t);
}

/* Sequences up to the last id; a token that hundreds of them hold is one cell until the last has let go of it. */
static void test_many_sequences(void **state)
{
    (void)state;
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
static void test_long_fill(void **state)
{
    (void)state;
    kvb_trace *t =
        load(HEADER "{\"fill\":{\"seq\":0,\"n\":1000000}}\n{\"step\":{\"pos\":[1000000],\"seq\":[0]}}\n", 1000001);
    assert_int_equal(t->needs.cells, 1000001);
    assert_int_equal(t->needs.pairs, 1000001);
    assert_int_equal(t->events[0].pos[999999], 999999);
    kvb_trace_free(t);
}

static void test_streaming(void **state)
{
    (void)state;
    char why[300];
    kvb_trace_reader *r;
    const char *path =
        scratch_text("s.jsonl", HEADER "{\"step\":{\"pos\":[0],\"seq\":[0]}}\n{\"clear\":{}}\n{\"x\":{}}\n");
    assert_int_equal(kvb_trace_open(path, &r, why, sizeof why), 0);
    assert_string_equal(kvb_trace_reader_header(r)->profile, "gaussian");
    const kvb_event *e;
    assert_int_equal(kvb_trace_next(r, &e, why, sizeof why), 1);
    assert_int_equal(kvb_trace_reader_needs(r)->tokens, 1);
    assert_int_equal(kvb_trace_next(r, &e, why, sizeof why), 1);
    assert_int_equal(e->kind, KVB_EVENT_CLEAR);
    assert_null(e->pos);
    assert_int_equal(kvb_trace_next(r, &e, why, sizeof why), -EINVAL);
    assert_null(e);
    assert_int_equal(kvb_trace_next(r, &e, why, sizeof why), -EINVAL); /* an error stays */
    kvb_trace_reader_close(r);
    kvb_trace_reader_close(NULL);
}

/* A line that gives a token to several sequences reads as the event and its copies. */
#define P3                       "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":3}}\n"
#define COPIES(src, dst, p0, p1) "{\"seq_cp\":{\"src\":" #src ",\"dst\":" #dst ",\"p0\":" #p0 ",\"p1\":" #p1 "}}\n"

static const struct {
    const char *lists, *copies;
} shared[] = {
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

/* The event and its copies are of one line. */
static void test_their_line(void **state)
{
    (void)state;
    kvb_trace *t = load(HEADER "{\"prefill\":{\"seq\":[0,1],\"from\":0,\"n\":2}}\n{\"seq_rm\":{\"seq\":1}}\n", 0);
    assert_int_equal(t->n_events, 3);
    assert_true(t->events[0].line == 2 && t->events[1].line == 2 && t->events[2].line == 3);
    kvb_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_fields),
        cmocka_unit_test(test_every_event),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_shifts),
        cmocka_unit_test(test_divisions),
        cmocka_unit_test(test_model_alike),
        cmocka_unit_test(test_model_groups),
        cmocka_unit_test(test_logit_changes),
        cmocka_unit_test(test_join_and_rollback),
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_plain_needs_no_face),
        cmocka_unit_test(test_empty_sequences_are_named),
        cmocka_unit_test(test_many_sequences),
        cmocka_unit_test(test_long_fill),
        cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_lists_are_copies),
        cmocka_unit_test(test_their_line),
    };
    return cmocka_run_group_tests_name("trace reader", tests, scratch_setup, scratch_teardown);
}
