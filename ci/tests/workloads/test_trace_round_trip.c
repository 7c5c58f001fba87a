/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that what the writer wrote reads back as equal events, for random legal traces, and byte for byte. */
#include "scratch.h"
#include "legal_trace.h"

#include <errno.h>

static const kvb_trace_header header = {
    .name = "round \"trip\" \xc3\xa4",
    .source = "test\n",
    .model = {.layers = 3, .heads = 8, .kv_heads = 2, .k_dim = 24, .v_dim = 16, .scale = 0.20412414523193154},
    .profile = "llama",
    .seed = 9007199254740993,
    .capacity = 4000,
};

static void trace_write(const char *path, const kvb_trace_header *h, const kvb_event *events, size_t stride, size_t n)
{
    char why[300] = "";
    kvb_trace_writer *w;
    int err = kvb_trace_create(path, h, &w, why, sizeof why);
    for (size_t i = 0; i < n && !err; i++)
        err = kvb_trace_write(w, (const kvb_event *)((const char *)events + i * stride), why, sizeof why);
    if (!err)
        err = kvb_trace_writer_close(w, true, why, sizeof why);
    if (err)
        fail_msg("%s", why);
}

/* Both absent, or equal. */
static void assert_arrays_equal(const void *a, const void *b, uint32_t n)
{
    assert_int_equal(!a, !b);
    if (a && n)
        assert_memory_equal(a, b, n * sizeof(uint32_t));
}

static void assert_events_equal(const kvb_event *a, const kvb_event *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->first, b->first);
    assert_arrays_equal(a->pos, b->pos, a->n);
    assert_arrays_equal(a->seq, b->seq, a->n);
    assert_arrays_equal(a->tok, b->tok, a->n);
    assert_arrays_equal(a->parents, b->parents, a->n);
    assert_arrays_equal(a->accepted, b->accepted, a->n);
    assert_int_equal(a->src, b->src);
    assert_int_equal(a->dst, b->dst);
    assert_int_equal(a->p0, b->p0);
    assert_int_equal(a->p1, b->p1);
    assert_int_equal(a->len, b->len);
}

static void test_random_traces(void **state)
{
    (void)state;
    static legal_trace t;
    for (uint64_t seed = 0; seed < 200; seed++) {
        char why[300] = "";
        kvb_trace *got;
        legal_trace_make(&t, seed);
        trace_write(scratch_path("r.jsonl"), &header, &t.events[0].event, sizeof t.events[0], t.n);
        if (kvb_trace_load(scratch_path("r.jsonl"), 0, &got, why, sizeof why))
            fail_msg("seed %llu: %s", (unsigned long long)seed, why);
        assert_int_equal(got->n_events, t.n);
        assert_int_equal(got->needs.tokens, t.tokens);
        for (uint32_t i = 0; i < t.n; i++) {
            kvb_event want = t.events[i].event;
            /* seq_rm, seq_keep, seq_cp name ranges; no other line holds p1, and it is the end then. */
            want.p1 = want.kind == KVB_EVENT_SEQ_CP || want.kind == KVB_EVENT_SEQ_RM ? want.p1 : KVB_TRACE_POS_END;
            assert_events_equal(&got->events[i], &want);
            assert_int_equal(got->events[i].line, i + 2);
        }
        kvb_trace_free(got);
    }
}

/* needs.cells and needs.pairs against a count token by token. */
static void test_needs_of_random_traces(void **state)
{
    (void)state;
    static legal_trace t;
    static int64_t cell[KVB_TRACE_MAX_SEQS][2048]; /* identity + 1 at a position; 0: none */
    static bool alive[LEGAL_MAX_EVENTS * LEGAL_MAX_TOKENS + 1];
    for (uint64_t seed = 1; seed < 200; seed += 2) { /* those with sequences */
        char why[300] = "";
        kvb_trace *got;
        uint32_t cells = 0;
        uint64_t pairs = 0;
        legal_trace_make(&t, seed);
        memset(cell, 0, sizeof cell);
        for (uint32_t i = 0; i < t.n; i++) {
            const kvb_event *e = &t.events[i].event;
            for (uint32_t k = 0; k < e->n; k++) {
                cell[e->seq[k]][e->pos[k]] = (int64_t)(e->first + k + 1);
                for (uint32_t p = 0; p <= e->pos[k] && e->kind != KVB_EVENT_FILL; p++)
                    pairs += cell[e->seq[k]][p] != 0;
            }
            for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s++) {
                bool drop = e->kind == KVB_EVENT_CLEAR || (e->kind == KVB_EVENT_SEQ_KEEP && s != e->src);
                for (uint32_t p = 0; p < 2048; p++) {
                    bool in_range = p >= e->p0 && p < e->p1;
                    if (e->kind == KVB_EVENT_SEQ_CP && s == e->dst && in_range)
                        cell[s][p] = cell[e->src][p];
                    if (drop || (e->kind == KVB_EVENT_SEQ_RM && s == e->src && in_range))
                        cell[s][p] = 0;
                }
            }
            memset(alive, 0, sizeof alive);
            uint32_t now = 0;
            for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s++)
                for (uint32_t p = 0; p < 2048; p++)
                    if (cell[s][p] && !alive[cell[s][p]])
                        alive[cell[s][p]] = true, now++;
            cells = now > cells ? now : cells;
        }
        trace_write(scratch_path("r.jsonl"), &header, &t.events[0].event, sizeof t.events[0], t.n);
        assert_int_equal(kvb_trace_load(scratch_path("r.jsonl"), 0, &got, why, sizeof why), 0);
        assert_int_equal(got->needs.cells, cells);
        assert_int_equal(got->needs.pairs, pairs);
        kvb_trace_free(got);
    }
}

static void test_header(void **state)
{
    (void)state;
    char why[300];
    kvb_trace *got;
    trace_write(scratch_path("h.jsonl"), &header, NULL, 0, 0);
    assert_int_equal(kvb_trace_load(scratch_path("h.jsonl"), 0, &got, why, sizeof why), 0);
    assert_string_equal(got->header.name, header.name);
    assert_string_equal(got->header.source, header.source);
    assert_null(got->header.note);
    assert_string_equal(got->header.profile, "llama");
    assert_true(got->header.seed == header.seed);
    assert_int_equal(got->header.capacity, 4000);
    assert_true(got->header.model.scale == header.model.scale);
    kvb_trace_free(got);

    kvb_trace_header recorded = header;
    recorded.profile = NULL;
    recorded.note = "n";
    recorded.tensors = "/else/where/x.safetensors"; /* the base name goes in */
    trace_write(scratch_path("h.jsonl"), &recorded, NULL, 0, 0);
    assert_int_equal(kvb_trace_load(scratch_path("h.jsonl"), 0, &got, why, sizeof why), 0);
    assert_string_equal(got->header.tensors, scratch_path("x.safetensors"));
    assert_string_equal(got->header.note, "n");
    kvb_trace_free(got);
}

/* The form on disk is the documented one, and stable. */
static void test_bytes(void **state)
{
    (void)state;
    uint32_t pos[] = {0, 1}, seq[] = {0, 0}, accepted[] = {0};
    int32_t tok[] = {17, 4}, parents[] = {-1, 0};
    kvb_trace_header h = header;
    h.name = "n";
    h.source = "s";
    h.model.scale = 0.25;
    const kvb_event events[] = {
        {.kind = KVB_EVENT_STEP, .n = 2, .pos = pos, .seq = seq, .tok = tok},
        {.kind = KVB_EVENT_SEQ_CP, .src = 0, .dst = 1, .p1 = KVB_TRACE_POS_END},
        {.kind = KVB_EVENT_SEQ_RM, .src = 1, .p0 = 0, .p1 = 1},
        {.kind = KVB_EVENT_SEQ_KEEP, .src = 0},
        {.kind = KVB_EVENT_PROPOSE, .n = 2, .parents = parents},
        {.kind = KVB_EVENT_COMMIT, .n = 1, .accepted = accepted},
        {.kind = KVB_EVENT_REWIND, .len = 2},
        {.kind = KVB_EVENT_FILL, .n = 2, .seq = seq},
        {.kind = KVB_EVENT_CLEAR},
        {.kind = KVB_EVENT_PREFILL, .n = 2, .pos = pos, .seq = seq},
    };
    trace_write(scratch_path("b.jsonl"), &h, events, sizeof events[0], sizeof events / sizeof events[0]);
    size_t n;
    char *text = scratch_read(scratch_path("b.jsonl"), &n);
    assert_string_equal(text,
                        "{\"kvbench_trace\":1,\"name\":\"n\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":1,"
                        "\"kv_cache.layers\":3,\"kv_cache.heads\":8,\"kv_cache.kv_heads\":2,\"kv_cache.k_dim\":24,"
                        "\"kv_cache.v_dim\":16,\"scale\":0.25},\"values\":{\"profile\":\"llama\","
                        "\"seed\":9007199254740993},\"capacity\":4000}\n"
                        "{\"step\":{\"pos\":[0,1],\"seq\":[0,0],\"tok\":[17,4]}}\n"
                        "{\"seq_cp\":{\"src\":0,\"dst\":1}}\n"
                        "{\"seq_rm\":{\"seq\":1,\"p1\":1}}\n"
                        "{\"seq_keep\":{\"seq\":0}}\n"
                        "{\"propose\":{\"parents\":[-1,0]}}\n"
                        "{\"commit\":{\"accepted\":[0]}}\n"
                        "{\"rewind\":{\"len\":2}}\n"
                        "{\"fill\":{\"seq\":0,\"n\":2}}\n"
                        "{\"clear\":{}}\n"
                        "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":2}}\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_traces),
        cmocka_unit_test(test_needs_of_random_traces),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_bytes),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("trace round trip", tests, scratch_setup, scratch_teardown);
}
