/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that written traces are read back with equal headers and events, and written again byte for byte: random legal
 * traces, models with any groups, and the recorded traces. A trace's needs equal those counted token by token.
 */
#include "kernels/scan.h"
#include "scratch.h"
#include "legal_trace.h"

#include <dirent.h>
#include <float.h>

#define SHAPE(H, KV, K, V, SCALE) .heads = H, .kv_heads = KV, .k_dim = K, .v_dim = V, .scale = SCALE
#define ALIKE(...)                                                                                                     \
    {                                                                                                                  \
        .n_layers = 3, .n_groups = 1, .groups = { {SHAPE(8, 2, 24, 16, 0.20412414523193154), __VA_ARGS__} }            \
    }

static const float logits[] = {-1.5f, FLT_MIN, 0, FLT_MAX, 1e-40f, 0.1f};

/* Models that the traces have in turn: the first can be written in schema 1, the others need schema 2. */
static const kvb_model models[] = {
    ALIKE(.window = 0),
    {.n_layers = 5,
     .n_groups = 4,
     .group_of = {2, 0, 3, 0, 1},
     .groups = {{SHAPE(6, 3, 20, 16, 1), .window = 1, .sinks = 4, .sink_logits = logits},
                {SHAPE(4096, 1, 4096, 512, FLT_MIN), .latent = true, .softcap = 0.3f},
                {SHAPE(2, 2, 16, 17, 1 / 3.0), .chunk = 67108864},
                {SHAPE(8, 2, 24, 16, 0.2)}}},
    {.n_layers = 1024, .n_groups = 1, .groups = {{SHAPE(1, 1, 1, 1, 1e30), .window = 67108864}}},
    ALIKE(.latent = true), /* from here on: one property each that schema 1 cannot express */
    ALIKE(.chunk = 1),
    ALIKE(.softcap = 30),
    ALIKE(.sink_logits = (const float[]){0, 1, 2, 3, 4, 5, 6, 7}),
    {.n_layers = 4,
     .n_groups = 3,
     .group_of = {0, 1, 2, 0},
     .groups = {{.kind = KVB_GROUP_SCAN, .scan = {KVB_SCAN_MAMBA2, 8, 2, 16, 64, 4, 544, true, KVB_BF16, KVB_F16}},
                {SHAPE(8, 2, 24, 16, 0.2)},
                {.kind = KVB_GROUP_SCAN,
                 .scan = {.kind = KVB_SCAN_MAMBA1, .heads = 1, .groups = 1, .d_k = 16, .d_v = 65536}}}},
};
enum { MODELS = sizeof models / sizeof *models };

static kvb_trace_header header_of(size_t model)
{
    return (kvb_trace_header){
        .name = "round \"trip\" \xc3\xa4",
        .source = "test\n",
        .model = models[model],
        .profile = "llama",
        .seed = 9007199254740993,
        .capacity = 4000,
    };
}

static void assert_models_equal(const kvb_model *a, const kvb_model *b)
{
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->n_groups, b->n_groups);
    assert_memory_equal(a->group_of, b->group_of, a->n_layers);
    for (uint32_t i = 0; i < a->n_groups; i++) {
        const kvb_group *g = &a->groups[i], *h = &b->groups[i];
        assert_int_equal(g->heads, h->heads);
        assert_int_equal(g->kv_heads, h->kv_heads);
        assert_int_equal(g->k_dim, h->k_dim);
        assert_int_equal(g->v_dim, h->v_dim);
        assert_int_equal(g->latent, h->latent);
        assert_int_equal(g->window, h->window);
        assert_int_equal(g->sinks, h->sinks);
        assert_int_equal(g->chunk, h->chunk);
        assert_true(g->scale == h->scale && g->softcap == h->softcap);
        assert_int_equal(!g->sink_logits, !h->sink_logits);
        if (g->sink_logits)
            assert_memory_equal(g->sink_logits, h->sink_logits, g->heads * sizeof(float));
        const kvb_group_scan *s = &g->scan, *t = &h->scan;
        assert_true(g->kind == h->kind && s->kind == t->kind && s->silu == t->silu);
        assert_true(s->heads == t->heads && s->groups == t->groups && s->d_k == t->d_k && s->d_v == t->d_v);
        assert_true(s->conv_width == t->conv_width && s->conv_channels == t->conv_channels);
        assert_true(s->state_elem == t->state_elem && s->conv_elem == t->conv_elem);
    }
}

static kvb_trace *trace_load(const char *path)
{
    char why[300] = "";
    kvb_trace *trace;
    if (kvb_trace_load(path, 0, &trace, why, sizeof why))
        fail_msg("%s", why);
    return trace;
}

static void trace_write(const char *path, const kvb_trace_header *h, const kvb_event *events, size_t stride, size_t n)
{
    char why[300] = "";
    kvb_output_file file;
    int err = kvb_trace_create(path, h, &file, why, sizeof why);
    for (size_t i = 0; i < n && !err; i++)
        kvb_event_print(file.stream, (const kvb_event *)((const char *)events + i * stride));
    if (!err)
        err = kvb_output_file_close(&file, true, why, sizeof why);
    if (err)
        fail_msg("%s", why);
}

/* Both arrays must be absent, or equal. */
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
    assert_arrays_equal(a->dsts, b->dsts, a->n);
    assert_arrays_equal(a->srcs, b->srcs, a->n);
    assert_int_equal(a->src, b->src);
    assert_int_equal(a->dst, b->dst);
    assert_int_equal(a->p0, b->p0);
    assert_int_equal(a->p1, b->p1);
    assert_int_equal(a->len, b->len);
    assert_int_equal(a->delta, b->delta);
    assert_int_equal(a->divisor, b->divisor);
    assert_int_equal(a->call, b->call);
    assert_int_equal(a->error, b->error);
}

/* ---- what a trace needs, token by token ------------------------------------------------------------------ */

typedef struct count {
    uint32_t furthest[LEGAL_SEQS];
    kvb_trace_needs needs;
} count;

/* The index of a sequence id in `cell`. */
static uint32_t place(uint32_t id)
{
    return id / LEGAL_ID_STEP;
}

static void most(uint32_t *held, uint32_t now)
{
    *held = now > *held ? now : *held;
}

/* Counts the tokens of an event that has just been made. */
static void count_tokens(count *c, const legal_trace *t, const kvb_event *e)
{
    bool asks = e->kind != KVB_EVENT_FILL;
    if (!e->pos) /* the event has no tokens */
        return;
    for (uint32_t k = 0; k < e->n; k++) {
        const uint32_t seq = place(e->seq[k]);
        if (e->kind == KVB_EVENT_PROPOSE) /* the node and those above it */
            c->needs.pairs += e->pos[k] - legal_next(t, seq) + 1;
        for (uint32_t p = 0; p <= e->pos[k] && asks; p++)
            c->needs.pairs += t->cell[seq][p] != 0;
        c->needs.queries += asks;
        c->needs.tokens++;
        most(&c->needs.seqs, e->seq[k] + 1);
        most(&c->needs.seq_len, e->pos[k] + 1);
    }
    if (asks)
        most(&c->needs.step, e->n);
}

static void count_change(count *c, const kvb_event *e)
{
    if (e->kind == KVB_EVENT_SEQ_CP || e->kind == KVB_EVENT_SEQ_RM || e->kind == KVB_EVENT_SEQ_KEEP ||
        e->kind == KVB_EVENT_REFUSED) /* seq_cp or rewind */
        most(&c->needs.seqs, (e->dst > e->src ? e->dst : e->src) + 1);
    const count old = *c;
    for (uint32_t i = 0; i < e->n && e->dsts; i++) {
        most(&c->needs.seqs, (e->srcs[i] > e->dsts[i] ? e->srcs[i] : e->dsts[i]) + 1);
        if (e->kind == KVB_EVENT_REORDER)
            c->furthest[place(e->dsts[i])] = old.furthest[place(e->srcs[i])];
    }
    if (e->kind == KVB_EVENT_SEQ_CP && e->n)
        most(&c->furthest[place(e->dst)], c->furthest[place(e->src)]);
}

/* Updates needs by the cells in use, and the length of each sequence. */
static void count_up(count *c, const legal_trace *t)
{
    static bool alive[LEGAL_MAX_EVENTS * LEGAL_MAX_TOKENS + 1];
    uint32_t now = t->n_pending, n_alive = 0;
    memset(alive, 0, sizeof alive);
    for (uint32_t s = 0; s < LEGAL_SEQS; s++) {
        const uint32_t next = legal_next(t, s);
        for (uint32_t p = 0; p < next; p++) {
            now += t->cell[s][p] && !alive[t->cell[s][p]];
            alive[t->cell[s][p]] = true;
        }
        n_alive += next > 0 || legal_pending(t, s); /* a sequence with nodes counts: a commit may give it tokens */
        c->furthest[s] = next == 0 ? 0 : next > c->furthest[s] ? next : c->furthest[s];
        most(&c->needs.rollback, c->furthest[s] - next);
    }
    most(&c->needs.alive, n_alive);
    most(&c->needs.cells, now);
}

TEST(test_random_traces)
{
    static legal_trace t;
    static count c;
    uint32_t rollbacks = 0, joins = 0, of_nothing = 0, refused = 0, reordered = 0, beside = 0;
    for (uint64_t seed = 0; seed < 480; seed++) {
        kvb_trace_header h = header_of(seed % MODELS);
        legal_trace_begin(&t, seed);
        memset(&c, 0, sizeof c);
        while (t.n < LEGAL_MAX_EVENTS) {
            const bool nodes = t.n_pending;
            legal_trace_next(&t);
            const kvb_event *e = &t.events[t.n - 1].event;
            of_nothing += e->kind == KVB_EVENT_SEQ_CP && !e->n;
            joins += e->n && e->kind == KVB_EVENT_SEQ_CP && c.furthest[place(e->dst)];
            refused += e->kind == KVB_EVENT_REFUSED;
            reordered += e->kind == KVB_EVENT_REORDER;
            beside += nodes && e->kind != KVB_EVENT_PROPOSE && e->kind != KVB_EVENT_COMMIT;
            count_tokens(&c, &t, e);
            count_change(&c, e);
            count_up(&c, &t);
        }
        trace_write(tests_path("r.jsonl"), &h, &t.events[0].event, sizeof t.events[0], t.n);
        kvb_trace *got = trace_load(tests_path("r.jsonl"));
        assert_models_equal(&got->header.model, &h.model);
        assert_int_equal(got->n_events, t.n);
        for (uint32_t i = 0; i < t.n; i++) {
            kvb_event want = t.events[i].event;
            /* Only seq_rm, seq_keep and seq_cp have ranges; in other lines p1 is the end. */
            kvb_event_kind kind = want.kind == KVB_EVENT_REFUSED ? want.call : want.kind;
            want.p1 = kind == KVB_EVENT_SEQ_CP || kind == KVB_EVENT_SEQ_RM ? want.p1 : KVB_TRACE_POS_END;
            assert_events_equal(&got->events[i], &want);
            assert_int_equal(got->events[i].line, i + 2);
        }
        assert_int_equal(got->needs.tokens, t.tokens);
        assert_int_equal(got->needs.tokens, c.needs.tokens);
        assert_int_equal(got->needs.queries, c.needs.queries);
        assert_int_equal(got->needs.cells, c.needs.cells);
        assert_int_equal(got->needs.pairs, c.needs.pairs);
        assert_int_equal(got->needs.seq_len, c.needs.seq_len);
        assert_int_equal(got->needs.seqs, c.needs.seqs > 0 ? c.needs.seqs : 1); /* 0: only a proposal */
        assert_int_equal(got->needs.alive, c.needs.alive > 0 ? c.needs.alive : 1);
        assert_int_equal(got->needs.step, c.needs.step);
        assert_int_equal(got->needs.rollback, c.needs.rollback);
        rollbacks += c.needs.rollback > 0;
        kvb_trace_free(got);
    }
    assert_in_range(rollbacks, 50, 479); /* enough random traces have rollbacks, but not all */
    print_message("# %u joins, %u of nothing, %u refused, %u reordered, %u beside trees\n", joins, of_nothing, refused,
                  reordered, beside);
    assert_true(beside > 100);
    assert_true(joins > 20 && of_nothing > 20 && refused > 20 && reordered > 20);
}

/* ---- the header ------------------------------------------------------------------------------------------ */

TEST(test_header)
{
    kvb_trace_header header = header_of(0);
    trace_write(tests_path("h.jsonl"), &header, NULL, 0, 0);
    kvb_trace *got = trace_load(tests_path("h.jsonl"));
    assert_string_equal(got->header.name, header.name);
    assert_string_equal(got->header.source, header.source);
    assert_null(got->header.note);
    assert_string_equal(got->header.profile, "llama");
    assert_true(got->header.seed == header.seed);
    assert_int_equal(got->header.capacity, 4000);
    kvb_trace_free(got);

    header.profile = NULL;
    header.note = "n";
    header.tensors = "/else/where/x.safetensors"; /* the header gets the base name */
    trace_write(tests_path("h.jsonl"), &header, NULL, 0, 0);
    got = trace_load(tests_path("h.jsonl"));
    assert_string_equal(got->header.tensors, tests_path("x.safetensors"));
    assert_string_equal(got->header.note, "n");
    kvb_trace_free(got);
}

/* The bytes on disk are the documented ones. */
TEST(test_bytes)
{
    uint32_t pos[] = {0, 1}, seq[] = {0, 0}, accepted[] = {0};
    int32_t tok[] = {17, 4}, parents[] = {-1, 0};
    kvb_trace_header h = header_of(0);
    h.name = "n";
    h.source = "s";
    h.model.groups[0].scale = 0.25;
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
        {.kind = KVB_EVENT_CLEAR},
        {.kind = KVB_EVENT_PREFILL, .n = 2, .pos = pos, .seq = seq, .tok = tok, .reuse = true, .extra_key = 7},
        {.kind = KVB_EVENT_REORDER, .n = 2, .dsts = (uint32_t[]){0, 7}, .srcs = (uint32_t[]){7, 7}},
        {.kind = KVB_EVENT_REFUSED, .call = KVB_EVENT_REWIND, .len = 3, .error = -EINVAL},
        {.kind = KVB_EVENT_SEQ_ADD, .src = 1, .p0 = 2, .p1 = KVB_TRACE_POS_END, .delta = -2},
        {.kind = KVB_EVENT_DEFRAG},
        {.kind = KVB_EVENT_SEQ_DIV, .src = 1, .p1 = 8, .divisor = 4},
    };
    trace_write(tests_path("b.jsonl"), &h, events, sizeof events[0], sizeof events / sizeof events[0]);
    size_t n;
    char *text = tests_read(tests_path("b.jsonl"), &n);
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
                        "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":2}}\n"
                        "{\"clear\":{}}\n"
                        "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":2,\"tok\":[17,4],\"reuse\":7}}\n"
                        "{\"reorder\":{\"dst\":[0,7],\"src\":[7,7]}}\n"
                        "{\"rewind\":{\"len\":3},\"refused\":\"EINVAL\"}\n"
                        "{\"seq_add\":{\"seq\":1,\"p0\":2,\"delta\":-2}}\n"
                        "{\"defrag\":{}}\n"
                        "{\"seq_div\":{\"seq\":1,\"p1\":8,\"d\":4}}\n");
    free(text);

    h.model = models[1];
    h.model.groups[0].sink_logits = (const float[]){-1.5f, 0, 1, 2, 3, 4};
    h.model.groups[1].scale = 0.5;
    h.model.groups[2].scale = 0.125;
    h.model.groups[3].scale = 0.25;
    trace_write(tests_path("b.jsonl"), &h, NULL, 0, 0);
    text = tests_read(tests_path("b.jsonl"), &n);
    assert_string_equal(
        text,
        "{\"kvbench_trace\":2,\"name\":\"n\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":2,"
        "\"kv_cache.layers\":5,\"groups\":["
        "{\"layers\":[1,3],\"heads\":6,\"kv_heads\":3,\"k_dim\":20,\"v_dim\":16,\"window\":1,\"sinks\":4,\"scale\":1,"
        "\"sink_logits\":[-1.5,0,1,2,3,4]},"
        "{\"layers\":[4],\"heads\":4096,\"kv_heads\":1,\"k_dim\":4096,\"v_dim\":512,\"latent\":true,\"scale\":0.5,"
        "\"softcap\":0.30000001192092896},"
        "{\"layers\":[0],\"heads\":2,\"kv_heads\":2,\"k_dim\":16,\"v_dim\":17,\"chunk\":67108864,\"scale\":0.125},"
        "{\"layers\":[2],\"heads\":8,\"kv_heads\":2,\"k_dim\":24,\"v_dim\":16,\"scale\":0.25}]},"
        "\"values\":{\"profile\":\"llama\",\"seed\":9007199254740993},\"capacity\":4000}\n");
    free(text);
}

/* Recorded traces that are read and written again have the same bytes, so that a change of the format that breaks old
 * traces shows. A trace with lists of sequences has them after its copies are written as events. */
TEST(test_shipped_traces)
{
    const char *from = getenv("KVB_WORKLOADS") ? getenv("KVB_WORKLOADS") : "workloads/recorded";
    DIR *folder = opendir(from);
    uint32_t versions[3] = {0};
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[600];
        size_t length = strlen(entry->d_name), n[2];
        if (length < 6 || strcmp(entry->d_name + length - 6, ".jsonl"))
            continue;
        snprintf(path, sizeof path, "%s/%s", from, entry->d_name);
        kvb_trace *got = trace_load(path);
        trace_write(tests_path("s.jsonl"), &got->header, got->events, sizeof *got->events, got->n_events);
        char *was = tests_read(path, &n[0]), *is = tests_read(tests_path("s.jsonl"), &n[1]);
        if (strstr(was, "\"seq\":[[")) {
            free(was);
            was = is;
            n[0] = n[1];
            kvb_trace_free(got);
            got = trace_load(tests_path("s.jsonl"));
            trace_write(tests_path("s.jsonl"), &got->header, got->events, sizeof *got->events, got->n_events);
            is = tests_read(tests_path("s.jsonl"), &n[1]);
        }
        if (!was || !is || n[0] != n[1] || memcmp(was, is, n[0]))
            fail_msg("%s: read and written it is another file", path);
        versions[was[strlen("{\"kvbench_trace\":")] == '2' ? 2 : 1]++;
        free(was);
        free(is);
        kvb_trace_free(got);
    }
    if (!folder) {
        print_message("skipped: no %s\n", from);
        skip();
    }
    closedir(folder);
    assert_true(versions[1] >= 9 && versions[2] >= 4);
}
