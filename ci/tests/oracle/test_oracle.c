/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the oracle's rows of a trace, its rows for a kernel that rounds q, and its second opinion. */
#include <pthread.h>

#include "ci/tests/tests.h"
#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/codec.h"
#include "oracle/descent.h"
#include "oracle/opinion.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"
#include "oracle/window.h"

/* Layers with and without limits. */
static const float limited_logits[4] = {-3, 0.5f, 2, -1};
enum { LAYERS = 4, DIM = 48 }; /* the longest rows: 32 channels, which are summed together, and some more */
static const kvb_model limited_model = {
    .n_layers = LAYERS,
    .n_groups = 3,
    .group_of = {0, 1, 0, 2},
    .groups = {{.heads = 6, .kv_heads = 2, .k_dim = 10, .v_dim = 6, .scale = 0.3},
               {.heads = 4,
                .kv_heads = 4,
                .k_dim = 6,
                .v_dim = 10,
                .scale = 0.5,
                .window = 4,
                .sinks = 1,
                .softcap = 0.75f,
                .sink_logits = limited_logits},
               {.heads = 3, .kv_heads = 1, .k_dim = DIM, .v_dim = 8, .scale = 0.2, .latent = true, .chunk = 4}}};

/*
 * Shows: the oracle's rows are attention over what a query sees in that layer, with the layer's own rows, dims, limits
 * and sink logits, for any team; they are found by event and layer.
 */

static const kvb_format odd = {.name = "odd", .elem = KVB_INT8},
                        e4m3_head = {.name = "e4m3-head", .elem = KVB_E4M3, .head_scale = KVB_STATIC_HEAD};
enum { SEEN = 16 }; /* longest list */

/* A fork, a hole, two sequences in a step; then a tree. */
static void trace_make(hand *h)
{
    hand_extend(h, KVB_EVENT_PREFILL, 0, 0, 9);
    hand_cp(h, 0, 1, 0, 6);
    hand_rm(h, 0, 2, 4);
    hand_step(h, 3, (const uint32_t[]){9, 6, 10}, (const uint32_t[]){0, 1, 0});
    hand_event(h, KVB_EVENT_SEQ_KEEP)->src = 0;
    hand_propose(h, 4, (const int32_t[]){-1, 0, 0, 2});
    hand_commit(h, 2, (const uint32_t[]){0, 2});
    hand_extend(h, KVB_EVENT_STEP, 0, 13, 1);
}

/* Checks one row directly from the values: softmax over a list of tokens. */
static void check_row(const kvb_values *values, const kvb_expect *e, uint64_t token, const char *list,
                      const kvb_oracle_options *o)
{
    const kvb_group *g = kvb_model_group(&limited_model, e->layer);
    const uint32_t kv_head = e->head / (g->heads / g->kv_heads);
    uint32_t seen[SEEN], n = hand_list(list, seen);
    double k[SEEN * DIM], v[SEEN * DIM];
    hand_store_tokens(values, KVB_ROWS_K, o->k_format, o->k_amax ? o->k_amax[e->layer] : NULL, e->layer, kv_head, n,
                      seen, k);
    if (!g->latent)
        hand_store_tokens(values, KVB_ROWS_V, o->v_format, o->v_amax ? o->v_amax[e->layer] : NULL, e->layer, kv_head, n,
                          seen, v);
    hand_is_attention(values, e, token, n, k, g->latent ? NULL : v);
}

/* Largest magnitudes of each layer's KV heads. */
static const float *const magnitudes[LAYERS] = {(const float[]){3, 7}, (const float[]){0.5f, 40, 3, 8},
                                                (const float[]){100, 11}, (const float[]){0.7f}};

static void attention_of_what_is_seen(const kvb_format *k, const kvb_format *v, const float *const *amax)
{
    hand h = {0};
    kvb_values values;
    trace_make(&h);
    hand_values(&h, limited_model, 4, &values);
    const kvb_oracle_options options = {
        .k_format = k, .v_format = v, .k_amax = amax, .v_amax = amax, .max_pairs = UINT64_MAX, .seed = 1};
    kvb_oracle *oracle = hand_oracle_of(&h, &values, options);
    assert_int_equal(oracle->n_rows, (9 + 3 + 4 + 1) * (6 + 4 + 6 + 3));
    assert_int_equal(oracle->total_rows, oracle->n_rows);

    static const struct {
        uint32_t event, query, token;
        const char *seen[3]; /* by group */
    } queries[] = {
        {0, 0, 0, {"0", "0", "0"}},
        {0, 8, 8, {"0 1 2 3 4 5 6 7 8", "0 5 6 7 8", "8"}},
        {3, 0, 9, {"0 1 4 5 6 7 8 9", "0 6 7 8 9", "8 9"}},
        {3, 1, 10, {"0 1 2 3 4 5 10", "0 3 4 5 10", "4 5 10"}},
        {3, 2, 11, {"0 1 4 5 6 7 8 9 11", "0 7 8 9 11", "8 9 11"}},
        {5, 0, 12, {"0 1 4 5 6 7 8 9 11 12", "0 8 9 11 12", "8 9 11 12"}},
        {5, 1, 13, {"0 1 4 5 6 7 8 9 11 12 13", "0 9 11 12 13", "13"}},
        {5, 3, 15, {"0 1 4 5 6 7 8 9 11 12 14 15", "0 11 12 14 15", "14 15"}},
        {7, 0, 16, {"0 1 4 5 6 7 8 9 11 12 14 16", "0 11 12 14 16", "14 16"}},
    };
    size_t n;
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            uint32_t heads = kvb_model_group(&limited_model, layer)->heads;
            const kvb_expect *rows = kvb_oracle_rows(oracle, queries[i].event, layer, &n);
            assert_int_equal(n, h.events[queries[i].event].n * heads);
            for (uint32_t head = 0; head < heads; head++) {
                const kvb_expect *e = &rows[queries[i].query * heads + head];
                assert_true(e->event == queries[i].event && e->layer == layer && e->query == queries[i].query &&
                            e->head == head);
                check_row(&values, e, queries[i].token, queries[i].seen[limited_model.group_of[layer]], &options);
            }
        }
    kvb_oracle_rows(oracle, 1, 0, &n); /* a copy has no queries */
    assert_int_equal(n, 0);
    kvb_oracle_free(oracle);
    hand_free(&h);
}

TEST(every_row_is_attention_of_what_is_seen)
{
    attention_of_what_is_seen(&f16, &bf16, NULL);
    attention_of_what_is_seen(&int8_asym, &f32, NULL);
    attention_of_what_is_seen(&int8_had, &int8_asym, NULL);
    attention_of_what_is_seen(&kivi_k, &f16, NULL); /* rows as each query's sequence stores them */
}

/* Each layer and KV head has its own head scales. */
TEST(head_scales_go_by_layer_and_head)
{
    attention_of_what_is_seen(&e4m3_head, &f32, magnitudes);
    attention_of_what_is_seen(&f32, &e4m3_head, magnitudes);
}

/* ---- a team of three threads -------------------------------------------------------------------------------- */

typedef struct job {
    pthread_t thread;
    void (*part)(void *ctx, uint32_t i, uint32_t n);
    void *ctx;
    uint32_t i, n;
} job;

static void *job_main(void *arg)
{
    job *j = arg;
    j->part(j->ctx, j->i, j->n);
    return NULL;
}

static void threads_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    job jobs[8];
    for (uint32_t i = 0; i < team->n; i++) {
        jobs[i] = (job){.part = part, .ctx = ctx, .i = i, .n = team->n};
        assert_int_equal(pthread_create(&jobs[i].thread, NULL, job_main, &jobs[i]), 0);
    }
    for (uint32_t i = 0; i < team->n; i++)
        pthread_join(jobs[i].thread, NULL);
}

static size_t terms_bytes(const kvb_expect *e)
{
    return kvb_model_group(&limited_model, e->layer)->v_dim * sizeof *e->terms;
}

TEST(the_team_changes_nothing)
{
    static const kvb_team team = {.n = 3, .run = threads_run};
    hand h = {0};
    kvb_values values;
    trace_make(&h);
    hand_values(&h, limited_model, 4, &values);
    const kvb_format *const k_formats[] = {&bf16, &kivi_k};
    for (size_t f = 0; f < 2; f++) {
        kvb_oracle_options options = {.k_format = k_formats[f], .v_format = &f32, .max_pairs = UINT64_MAX, .seed = 1};
        kvb_oracle *alone = hand_oracle_of(&h, &values, options);
        options.team = &team;
        kvb_oracle *together = hand_oracle_of(&h, &values, options);
        assert_int_equal(alone->n_rows, together->n_rows);
        for (size_t r = 0; r < alone->n_rows; r++) {
            assert_true(alone->rows[r].lse == together->rows[r].lse);
            assert_memory_equal(alone->rows[r].terms, together->rows[r].terms, terms_bytes(&alone->rows[r]));
        }
        assert_memory_equal(&alone->format, &together->format, sizeof alone->format);
        assert_true(alone->format.kl_mean > 0);
        kvb_oracle_free(alone);
        kvb_oracle_free(together);
    }
    hand_free(&h);
}

TEST(sampled_rows_equal_those_of_the_full_check)
{
    hand h = {0};
    kvb_values values;
    hand_extend(&h, KVB_EVENT_FILL, 0, 0, 300);
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 300, 40);
    hand_extend(&h, KVB_EVENT_STEP, 0, 340, 1);
    hand_values(&h, limited_model, 4, &values);
    kvb_oracle_options options = {.k_format = &f32, .v_format = &f32, .max_pairs = UINT64_MAX, .seed = 1};
    kvb_oracle *full = hand_oracle_of(&h, &values, options);
    options.max_pairs = 40000;
    kvb_oracle *part = hand_oracle_of(&h, &values, options);
    assert_int_equal(part->total_rows, full->n_rows);
    assert_true(part->n_rows < full->n_rows / 2 && part->n_rows >= 64);
    for (size_t r = 0; r < part->n_rows; r++) {
        const kvb_expect *e = &part->rows[r];
        size_t n;
        const kvb_expect *rows = kvb_oracle_rows(full, e->event, e->layer, &n);
        const kvb_expect *same = &rows[e->query * kvb_model_group(&limited_model, e->layer)->heads + e->head];
        assert_true(same->lse == e->lse);
        assert_memory_equal(same->terms, e->terms, terms_bytes(e));
    }
    kvb_oracle_free(full);
    kvb_oracle_free(part);
    hand_free(&h);
}

/* ---- rows after shifts --------------------------------------------------------------------------------------- */

enum { SHIFTED = 6, MOVED_DIM = 16 };

/* Halves from element 4 on; neighbours; latent rows, rotated behind their V part. */
static const kvb_model roped = {
    .n_layers = 3,
    .n_groups = 3,
    .group_of = {0, 1, 2},
    .groups = {{.heads = 4,
                .kv_heads = 2,
                .k_dim = MOVED_DIM,
                .v_dim = 8,
                .scale = 0.3,
                .rope = {.known = true, .first = 4, .dims = 8, .base = 1e4}},
               {.heads = 2,
                .kv_heads = 2,
                .k_dim = MOVED_DIM,
                .v_dim = 8,
                .scale = 0.3,
                .rope = {.known = true, .neighbours = true, .dims = MOVED_DIM, .base = 500}},
               {.heads = 2,
                .kv_heads = 1,
                .k_dim = MOVED_DIM,
                .v_dim = 8,
                .latent = true,
                .scale = 0.3,
                .rope = {.known = true, .first = 8, .dims = 8, .base = 1e4}}}};

/* Rotates a row by delta positions. */
static void row_turn(const kvb_rope *rope, int32_t delta, float *row)
{
    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        const uint32_t a = rope->first + (rope->neighbours ? 2 * i : i),
                       b = rope->neighbours ? a + 1 : a + rope->dims / 2;
        const double angle = delta / pow(rope->base, 2.0 * i / rope->dims);
        const float c = (float)cos(angle), s = (float)sin(angle), x = row[a], y = row[b];
        row[a] = x * c - y * s;
        row[b] = x * s + y * c;
    }
}

/* Stores and reads the row, then rotates it, all in f32. */
static void row_move(const kvb_format *format, const kvb_rope *rope, int32_t delta, float *row)
{
    double scratch[512], *decoded = scratch, *sizes = scratch + MOVED_DIM, *coding = scratch + 2 * MOVED_DIM;
    const kvb_storage store = hand_storage(format, MOVED_DIM, NULL, 1, 0);
    assert_true(2 * MOVED_DIM * sizeof(double) + kvb_storage_scratch(&store) <= sizeof scratch);
    kvb_storage_turn(&store, row, (float *)(void *)coding);
    kvb_storage_code(&store, 1, coding, decoded, sizes);
    kvb_storage_read(&store, decoded, row);
    row_turn(rope, delta, row);
}

/* Tokens 2 .. 5 move by 3 positions; 2 and 3 go back before the next step, so that their rows do not change. The last
 * query must see the same as if the rows had been so from the beginning. */
static void moved_rows_are_turned_as_they_are_stored(const kvb_format *k, const kvb_format *v)
{
    hand moves = {0}, stays = {0};
    kvb_values before, after;
    size_t n, n_same;
    for (int i = 0; i < 2; i++) {
        hand *h = i ? &stays : &moves;
        hand_extend(h, KVB_EVENT_PREFILL, 0, 0, SHIFTED);
        if (!i) {
            hand_add(h, 0, 2, KVB_TRACE_POS_END, 3);
            hand_add(h, 0, 5, 7, -3);
        }
        hand_extend(h, KVB_EVENT_STEP, 0, i ? SHIFTED : SHIFTED + 3, 1);
        hand_values(h, roped, 9, i ? &after : &before);
    }
    for (uint32_t layer = 0; layer < roped.n_layers; layer++) {
        const kvb_group *g = kvb_model_group(&roped, layer);
        for (uint32_t t = 4; t < SHIFTED; t++)
            for (uint32_t h = 0; h < g->kv_heads; h++)
                row_move(k, &g->rope, 3,
                         (float *)(uintptr_t)kvb_values_rows(&after, KVB_ROWS_K, layer, t) + h * g->k_dim);
    }
    kvb_oracle *one = hand_oracle(&moves, &before, k, v), *two = hand_oracle(&stays, &after, k, v);
    for (uint32_t layer = 0; layer < roped.n_layers; layer++) {
        const kvb_group *g = kvb_model_group(&roped, layer);
        const kvb_expect *rows = kvb_oracle_rows(one, 3, layer, &n), *same = kvb_oracle_rows(two, 1, layer, &n_same);
        assert_true(n == g->heads && n_same == n);
        for (size_t r = 0; r < n; r++) {
            assert_int_equal(rows[r].visible, SHIFTED + 1);
            assert_true(fabs(rows[r].lse - same[r].lse) < 1e-12);
            for (uint32_t c = 0; c < g->v_dim; c++)
                assert_true(fabs(rows[r].terms[c].o - same[r].terms[c].o) < 1e-12);
        }
    }
    kvb_oracle *exact = hand_oracle(&moves, &before, &f32, &f32);
    double cost = 0; /* of the formats, compared with unrounded rows that are rotated, too */
    for (size_t r = 0; r < one->n_rows; r++)
        for (uint32_t c = 0; c < kvb_model_group(&roped, one->rows[r].layer)->v_dim; c++)
            cost = fmax(cost, fabs(one->rows[r].terms[c].o - exact->rows[r].terms[c].o));
    assert_true(fabs(one->format.max_abs - cost) < 1e-12 && (cost == 0) == (k->elem == KVB_F32));
    kvb_oracle_free(exact);
    kvb_oracle_free(one);
    kvb_oracle_free(two);
    hand_free(&moves);
    hand_free(&stays);
}

/* q and K of each token are rotated to its position, in any sequence. V is not. */
TEST(rows_before_rope)
{
    hand h = {0};
    kvb_values values, *turned;
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 5);
    hand_extend(&h, KVB_EVENT_FILL, 1, 0, 3);
    hand_extend(&h, KVB_EVENT_STEP, 0, 5, 1);
    hand_extend(&h, KVB_EVENT_STEP, 1, 3, 1);
    static const uint32_t position[] = {0, 1, 2, 3, 4, 0, 1, 2, 5, 3};
    hand_values(&h, roped, 9, &values);
    for (int kind = 0; kind < KVB_ROWS_ATTENDED; kind++)
        for (uint32_t layer = 0; layer < roped.n_layers; layer++)
            values.block_bytes[kind] +=
                h.tokens * kvb_values_floats(kvb_model_group(&roped, layer), (kvb_rows)kind) * sizeof(float);
    assert_int_equal(kvb_turned_open(&h.trace, &values, &turned), 0);
    for (uint32_t layer = 0; layer < roped.n_layers; layer++) {
        const kvb_group *g = kvb_model_group(&roped, layer);
        assert_true(g->rope.dims > 0);
        for (uint32_t t = 0; t < h.tokens; t++)
            for (int kind = 0; kind < KVB_ROWS_V; kind++)
                for (uint32_t head = 0; head < kvb_rows_heads(g, (kvb_rows)kind); head++) {
                    const size_t at = (size_t)head * g->k_dim;
                    float row[MOVED_DIM];
                    if (kind == KVB_ROWS_Q && t >= 5 && t < 8) /* the fill has no queries */
                        continue;
                    memcpy(row, kvb_values_rows(&values, (kvb_rows)kind, layer, t) + at, g->k_dim * sizeof *row);
                    row_turn(&g->rope, (int32_t)position[t], row);
                    assert_memory_equal(row, kvb_values_rows(turned, (kvb_rows)kind, layer, t) + at,
                                        g->k_dim * sizeof *row);
                }
        assert_ptr_equal(kvb_values_rows(turned, KVB_ROWS_V, layer, 0), kvb_values_rows(&values, KVB_ROWS_V, layer, 0));
    }
    kvb_turned_free(turned);
    hand_free(&h);
}

static void formats_are_refused(const hand *h, const kvb_values *values, const kvb_format *k, const kvb_format *v,
                                const char *words)
{
    const kvb_oracle_options options = {.k_format = k, .v_format = v, .max_pairs = UINT64_MAX, .seed = 1};
    kvb_oracle *oracle;
    char why[128];
    tests_refused(kvb_oracle_open(&h->trace, values, &options, &oracle, why, sizeof why), -ENOTSUP, why, words);
    assert_null(oracle);
}

TEST(shifts)
{
    moved_rows_are_turned_as_they_are_stored(&f32, &f32);
    moved_rows_are_turned_as_they_are_stored(&bf16, &f32);
    moved_rows_are_turned_as_they_are_stored(&int8_had, &bf16);
    hand h = {0};
    kvb_values values;
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 2);
    hand_add(&h, 0, 1, 2, 1);
    hand_extend(&h, KVB_EVENT_STEP, 0, 3, 1);
    hand_values(&h, roped, 9, &values);
    formats_are_refused(&h, &values, &int8_asym, &f32, "int8-asym");
    formats_are_refused(&h, &values, &kivi_k, &f32, "kivi4-k");
    formats_are_refused(&h, &values, &f32, &kivi_k, "kivi4-k");
    hand_free(&h);
}

/* Only the layer that attends has rows, in any sample; the layers before and behind it scan and have lanes. */
TEST(layers_that_scan_have_lanes)
{
    hand h = {0};
    kvb_values *values;
    char why[128];
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 40);
    h.trace.header.model = (kvb_model){.n_layers = 3, .n_groups = 2, .group_of = {0, 1, 0}};
    h.trace.header.model.groups[0] =
        (kvb_group){.kind = KVB_GROUP_SCAN, .scan = {KVB_SCAN_DELTA, 2, 1, 8, 48, 4, 16, true, KVB_F32, KVB_F32}};
    h.trace.header.model.groups[1] = (kvb_group){.heads = 2, .kv_heads = 1, .k_dim = 16, .v_dim = 16, .scale = 0.25};
    h.trace.needs.tokens = h.trace.needs.queries = 40;
    assert_int_equal(kvb_values_open(&h.trace, "llama", 7, NULL, NULL, &values, why, sizeof why), 0);
    for (int all = 0; all < 2; all++) {
        kvb_oracle *o = hand_oracle_of(&h, values,
                                       (kvb_oracle_options){.k_format = &f32,
                                                            .v_format = &f32,
                                                            .max_pairs = all ? UINT64_MAX : 1,
                                                            .opinion_pairs = UINT64_MAX,
                                                            .seed = 1});
        assert_int_equal(o->total_rows, 40 * 2);
        assert_true(all ? o->n_rows == o->total_rows : o->n_rows > 0 && o->n_rows < o->total_rows);
        for (size_t i = 0; i < o->n_rows; i++)
            assert_int_equal(o->rows[i].layer, 1);
        const kvb_descent *d = o->descent;
        assert_int_equal(d->total, 2 * (2 * 3 + 1));
        assert_int_equal(kvb_descent_lanes(d, 0), all ? 7 : 3);
        assert_int_equal(kvb_descent_lanes(d, 1), 0);
        assert_int_equal(d->lane_first[3 * KVB_SCAN_PARTS], d->total); /* each lane is followed, or glanced at */
        assert_int_equal(d->rows != NULL, !all);
        kvb_oracle_free(o);
    }
    kvb_values_free(values);
    hand_free(&h);
}

TEST(unknown_format_is_refused)
{
    hand h = {0};
    kvb_values values;
    trace_make(&h);
    hand_values(&h, limited_model, 4, &values);
    formats_are_refused(&h, &values, &f32, &odd, "'odd'");
    formats_are_refused(&h, &values, &odd, &f32, "'odd'");
    hand_free(&h);
}

/*
 * Shows: the rows of a kernel that rounds q are those of an oracle over the rounded q, in every layer, with sums for
 * its step of weights; the rounding of q is removed from its declaration. Other kernels get the oracle's own rows. A
 * round_query that goes further than declared (in norm, if K is transformed), or that gives another q for another call,
 * is refused by name.
 */

enum { SAME_LAYERS = 3, HEADS = 4, K = 16, V = 8, LAST = 5 };
static const kvb_format f16_had = {.name = "f16+had", .elem = KVB_F16, .transform = KVB_TRANSFORM_HADAMARD};
static const kvb_model model = {.n_layers = SAME_LAYERS,
                                .n_groups = 2,
                                .group_of = {0, 1, 0},
                                .groups = {{.heads = HEADS, .kv_heads = 2, .k_dim = K, .v_dim = V, .scale = 0.25},
                                           {.heads = 2, .kv_heads = 1, .k_dim = K, .v_dim = V, .scale = 0.3}}};

/* ---- how kernels round q ----------------------------------------------------------------------------------------- */

#define STEP (1.0 / 64) /* of the row's largest */
typedef int rounding(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded);

static int to_nearest(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    double largest = 0;
    (void)k, (void)head;
    for (uint32_t c = 0; c < p->k_dim; c++)
        largest = fmax(largest, fabs((double)q[c]));
    for (uint32_t c = 0; c < p->k_dim; c++)
        rounded[c] = (double)(float)(rint((double)q[c] / (largest * STEP)) * (largest * STEP));
    return 0;
}

static int down(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    to_nearest(p, k, head, q, rounded);
    rounded[3] *= 0.97;
    return 0;
}

static int by_tokens(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    to_nearest(p, k, head, q, rounded);
    rounded[0] = p->n_tok > 1 ? (double)q[0] : rounded[0];
    return 0;
}

static int unable(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    (void)p, (void)k, (void)head, (void)q, (void)rounded;
    return -ENOMEM;
}

static int not_a_number(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    to_nearest(p, k, head, q, rounded);
    rounded[p->k_dim - 1] = NAN;
    return 0;
}

static int to_zero(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    (void)k, (void)head, (void)q;
    memset(rounded, 0, p->k_dim * sizeof *rounded);
    return 0;
}

/* Shares of itself, of the largest |q| and of q's norm by which moved() moves one channel. */
static double of_itself, of_largest, of_norm;

static int moved(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    double largest = 0, norm2 = 0;
    (void)k, (void)head;
    for (uint32_t c = 0; c < p->k_dim; c++) {
        rounded[c] = (double)q[c];
        largest = fmax(largest, fabs(rounded[c]));
        norm2 += rounded[c] * rounded[c];
    }
    rounded[3] -= of_itself * fabs(rounded[3]) + of_largest * largest + of_norm * sqrt(norm2);
    return 0;
}

/* ---- the rig ----------------------------------------------------------------------------------------------------- */

typedef struct rig {
    hand h;
    kvb_values values;
    kvb_oracle *oracle;
    kvb_kernel kernel;
    kvb_rounded *rounded;
    const kvb_expect *rows;
    size_t n;
    char why[256];
} rig;

static void rig_open(rig *r, const kvb_format *k_format, rounding *round)
{
    *r = (rig){.kernel = {.name = "k", .round_query = round}};
    hand_extend(&r->h, KVB_EVENT_PREFILL, 0, 0, LAST);
    hand_extend(&r->h, KVB_EVENT_STEP, 0, LAST, 1);
    hand_values(&r->h, model, 3, &r->values);
    r->oracle = hand_oracle(&r->h, &r->values, k_format, &f16);
    assert_int_equal(kvb_rounded_open(r->oracle, &r->kernel, &r->rounded), 0);
}

static void rig_close(rig *r)
{
    kvb_rounded_free(r->rounded);
    kvb_oracle_free(r->oracle);
    hand_free(&r->h);
}

static const kvb_arithmetic coarse = {.dot_chain = 16, .query.step = STEP, .sums.step = 0.01};

/* The kernel's rows at an event, for a call of n_tok tokens. Returns the result of kvb_rounded_rows(). */
static int rig_rows(rig *r, const kvb_format *k_format, uint32_t event, uint32_t layer, uint32_t n_tok,
                    const float *head_scales, kvb_arithmetic *a)
{
    const kvb_group *g = kvb_model_group(&model, layer);
    const kvb_attend call = {.problem = {.n_tok = n_tok,
                                         .n_heads = g->heads,
                                         .n_kv_heads = g->kv_heads,
                                         .k_dim = K,
                                         .v_dim = V,
                                         .k_format = k_format,
                                         .v_format = &f16},
                             .k.head_scales = head_scales};
    return kvb_rounded_rows(r->rounded, &call, event, layer, a, &r->rows, &r->n, r->why, sizeof r->why);
}

/* The same at the last event, layer 0. Elements of q are those of the values times factor; factor 0: all are 1. */
static int once(const kvb_format *k_format, rounding *round, float factor, const float *head_scales, kvb_arithmetic a)
{
    rig r;
    rig_open(&r, k_format, round);
    float *q = r.values.block[KVB_ROWS_Q]; /* layer 0 comes first */
    for (uint32_t i = 0; i < r.h.tokens * HEADS * K; i++)
        q[i] = factor > 0 ? q[i] * factor : 1;
    int error = rig_rows(&r, k_format, 1, 0, 1, head_scales, &a);
    assert_true(error || (a.query.step == 0 && a.query.floor == 0 && a.query.rounding == KVB_F32));
    rig_close(&r);
    return error;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

TEST(attention_of_the_rounded_q)
{
    rig r, other; /* other: its values hold the rounded q */
    rig_open(&r, &f16, to_nearest);
    rig_open(&other, &f16, NULL);
    for (uint32_t layer = 0; layer < SAME_LAYERS; layer++)
        for (uint64_t token = 0; token <= LAST; token++)
            for (uint32_t head = 0; head < kvb_model_group(&model, layer)->heads; head++) {
                double q[K];
                float *at = (float *)(uintptr_t)kvb_values_rows(&other.values, KVB_ROWS_Q, layer, token) + head * K;
                to_nearest(&(kvb_problem){.k_dim = K}, NULL, head, at, q);
                for (uint32_t c = 0; c < K; c++)
                    at[c] = (float)q[c];
            }
    kvb_oracle_free(other.oracle);
    other.oracle = hand_oracle(&other.h, &other.values, &f16, &f16);
    for (uint32_t event = 0; event < 2; event++)
        for (uint32_t layer = 0; layer < SAME_LAYERS; layer++) {
            kvb_arithmetic a = coarse;
            size_t n_exact;
            assert_int_equal(rig_rows(&r, &f16, event, layer, event ? 1 : LAST, NULL, &a), 0);
            const kvb_expect *rows = r.rows, *exact = kvb_oracle_rows(other.oracle, event, layer, &n_exact);
            assert_true(r.n == n_exact && r.n > 0);
            assert_true(a.query.step == 0 && a.sums.step > 0 && a.dot_chain == coarse.dot_chain);
            for (size_t i = 0; i < r.n; i++) {
                assert_true(rows[i].query == exact[i].query && rows[i].head == exact[i].head);
                assert_true(rows[i].lse == exact[i].lse && rows[i].row.a_max == exact[i].row.a_max);
                assert_true(rows[i].row.step == coarse.sums.step && exact[i].row.step == 0);
                for (uint32_t c = 0; c < V; c++) {
                    assert_true(rows[i].terms[c].o == exact[i].terms[c].o && rows[i].terms[c].o != 0);
                    assert_true(rows[i].terms[c].steps > 0 && rows[i].terms[c].steps2 > 0);
                }
            }
        }
    rig_close(&other);
    rig_close(&r);
}

TEST(others_get_the_oracles_own)
{
    rig r;
    size_t n_own;
    rig_open(&r, &f16, NULL);
    kvb_arithmetic a = {.query.step = STEP};
    const kvb_expect *own = kvb_oracle_rows(r.oracle, 1, 1, &n_own);
    assert_int_equal(rig_rows(&r, &f16, 1, 1, 1, NULL, &a), 0);
    assert_true(r.rows == own && r.n == n_own && a.query.step == STEP);
    /* only weights in steps: the same q, with sums */
    a.sums.step = 0.01;
    assert_int_equal(rig_rows(&r, &f16, 1, 1, 1, NULL, &a), 0);
    assert_true(r.rows != own && r.n == n_own && a.query.step == STEP);
    assert_true(r.rows[0].lse == own[0].lse && r.rows[0].row.step == 0.01 && r.rows[0].terms[0].steps > 0);
    rig_close(&r);
}

/* Formats with residual cells are solved over the account of writes, with q and step from these rows. */
TEST(the_account_takes_q_and_step)
{
    static const uint32_t cells[LAST + 1] = {0, 1, 2, 3, 4, 5};
    static const uint64_t tokens[LAST + 1] = {0, 1, 2, 3, 4, 5};
    const kvb_mask mask = {.kind = KVB_MASK_NONE};
    rig r[2]; /* in both formats these few rows are f16 */
    kvb_expect actual;
    kvb_window *window;
    for (int i = 0; i < 2; i++) {
        kvb_arithmetic a = coarse;
        rig_open(&r[i], i ? &kivi_k : &f16, to_nearest);
        assert_int_equal(rig_rows(&r[i], &f16, 1, 0, 1, NULL, &a), 0); /* as if staged */
        assert_int_equal(r[i].n, HEADS);
    }
    assert_int_equal(kvb_window_open(r[1].oracle, &window), 0);
    for (int is_v = 0; is_v < 2; is_v++)
        assert_int_equal(kvb_window_write(window, 0, is_v, cells, LAST + 1, tokens), 0);
    assert_int_equal(kvb_window_solve(window, &r[1].rows[2], &(kvb_attend_of){&mask, LAST + 1, 1, 0}, &actual), 0);
    assert_true(fabs(actual.lse - r[0].rows[2].lse) < 1e-12);
    assert_true(fabs(actual.lse - r[0].oracle->rows[2].lse) > 1e-6);
    assert_true(actual.row.step == coarse.sums.step);
    kvb_window_free(window);
    rig_close(&r[0]);
    rig_close(&r[1]);
}

TEST(what_breaks_the_declaration_is_refused)
{
    static const struct {
        const kvb_format *k_format;
        rounding *round;
        uint32_t n_tok; /* tokens of a second call, after one of a single token */
        int error;
        const char *words;
    } cases[] = {
        {&f16, to_nearest, 4, 0, ""},
        {&f16, down, 1, -EILSEQ, "as far as the kernel declares"},
        {&f16, not_a_number, 1, -EILSEQ, ""},
        {&f16, by_tokens, 1, 0, ""},
        {&f16, by_tokens, 4, -EILSEQ, "another q for another call"},
        {&f16, unable, 1, -ENOMEM, ""},
        {&f16_had, down, 1, 0, ""}, /* the limit is on the norm: a single channel may go further */
        {&f16_had, not_a_number, 1, -EILSEQ, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_arithmetic first = coarse, second = coarse;
        rig r;
        rig_open(&r, cases[i].k_format, cases[i].round);
        int error = rig_rows(&r, cases[i].k_format, 1, 0, 1, NULL, &first);
        if (!error)
            error = rig_rows(&r, cases[i].k_format, 1, 0, cases[i].n_tok, NULL, &second);
        assert_int_equal(error, cases[i].error);
        assert_contains(r.why, cases[i].words);
        rig_close(&r);
    }
}

/* An element of q may move by step / 2 + floor of the largest |q|, by the type's roundoff of itself, and by 8 roundings
 * of f32. A transformed q may move so in all 16 channels: 4 times as far in norm, and by the roundoff. */
TEST(how_far_q_may_move_by_hand)
{
    const double wide = 8 * 0x1p-24;
    const struct {
        kvb_rounding query;
        double of_largest, of_itself;
    } cases[] = {
        {{.step = 1.0 / 64}, 1.0 / 128 + wide, 0},
        {{.floor = 1.0 / 256}, 1.0 / 256 + wide, 0},
        {{.step = 1.0 / 64, .floor = 1.0 / 256}, 3.0 / 256 + wide, 0},
        {{.rounding = KVB_BF16}, wide, 1.0 / 256},
        {{.rounding = KVB_F16, .step = 1.0 / 128}, 1.0 / 256 + wide, 1.0 / 2048},
        {{.rounding = KVB_F32}, wide, 0},
        {{.rounding = KVB_E5M2}, wide, 1.0 / 8},
        /* declarations beyond the need of 8-bit codes are limited */
        {{.step = 0.9}, 1.0 / 128 + wide, 0},
        {{.floor = 0.9}, 1.0 / 256 + wide, 0},
        {{.step = 0.9, .floor = 0.9}, 3.0 / 256 + wide, 0},
        {{.rounding = KVB_E2M1}, wide, 1.0 / 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int far = 0; far < 2; far++) {
            const double by = far ? 1 + 1e-6 : 1 - 1e-6;
            const kvb_arithmetic a = {.dot_chain = 16, .query = cases[i].query};
            of_largest = cases[i].of_largest * by, of_itself = cases[i].of_itself * by, of_norm = 0;
            assert_int_equal(once(&f16, moved, 1, NULL, a), far ? -EILSEQ : 0);
            of_norm = (4 * cases[i].of_largest + cases[i].of_itself) * by, of_largest = of_itself = 0;
            assert_int_equal(once(&f16_had, moved, 1, NULL, a), far ? -EILSEQ : 0);
        }
    of_itself = of_norm = 0; /* exactly as far as declared */
    of_largest = 1.0 / 128 + wide;
    assert_int_equal(once(&f16, moved, 0, NULL, (kvb_arithmetic){.dot_chain = 16, .query.step = 1.0 / 64}), 0);
}

/* Instructions may take subnormal numbers for 0. */
TEST(tiny_queries_may_be_zero)
{
    static const float down20[] = {0x1p-20f, 0x1p-20f}, up20[] = {0x1p20f, 0x1p20f};
    assert_int_equal(once(&f16, to_zero, 0x1p-132f, NULL, coarse), 0);
    assert_int_equal(once(&f16, to_zero, 0x1p-120f, NULL, coarse), -EILSEQ);
    assert_int_equal(once(&f16, to_zero, 0x1p-120f, down20, coarse), 0);
    assert_int_equal(once(&f16, to_zero, 0x1p-100f, down20, coarse), -EILSEQ);
    assert_int_equal(once(&f16, to_zero, 0x1p-120f, up20, coarse), -EILSEQ);
}

/*
 * Shows: the second opinion has the output and log-sum-exp of the full solution, and row sums that are not below its
 * own. It allows all that the full bound allows. A row of another query, a NaN and a wrong log-sum-exp fail. If the
 * budget is too small, the seed chooses the calls that have opinions.
 */

static const kvb_arithmetic declarations[] = {
    {.dot_chain = 16, .cell_chain = 64, .rescales = 3, .exp_error = 0x1p-23, .exp_floor = 0x1p-126},
    {.dot_chain = 16, .cell_chain = 64, .sums = {.rounding = KVB_BF16}},
    {.dot_chain = 16, .cell_chain = 64, .query = {.step = 1.0 / 127}, .sums = {.step = 1.0 / 255}},
};

/* full: an oracle that solves all rows; part: one that solves a sample and has second opinions on all rows. */
typedef struct both {
    hand h;
    kvb_values values;
    const kvb_format *k, *v;
    kvb_oracle *full, *part;
} both;

static kvb_oracle *opinions_open(const both *b, uint64_t opinions, uint64_t seed)
{
    return hand_oracle_of(
        &b->h, &b->values,
        (kvb_oracle_options){
            .k_format = b->k, .v_format = b->v, .max_pairs = 1, .opinion_pairs = opinions, .seed = seed});
}

static void both_open(both *b, const kvb_format *k, const kvb_format *v)
{
    *b = (both){.k = k, .v = v};
    hand_extend(&b->h, KVB_EVENT_PREFILL, 0, 0, 20);
    hand_cp(&b->h, 0, 1, 0, 6);
    hand_step(&b->h, 3, (const uint32_t[]){20, 6, 21}, (const uint32_t[]){0, 1, 0});
    hand_extend(&b->h, KVB_EVENT_STEP, 0, 22, 1);
    hand_values(&b->h, limited_model, 4, &b->values);
    b->full = hand_oracle_of(
        &b->h, &b->values,
        (kvb_oracle_options){
            .k_format = k, .v_format = v, .max_pairs = UINT64_MAX, .opinion_pairs = UINT64_MAX, .seed = 1});
    b->part = opinions_open(b, UINT64_MAX, 1);
}

static void both_close(both *b)
{
    kvb_oracle_free(b->full);
    kvb_oracle_free(b->part);
    hand_free(&b->h);
}

static int opinion_of(const both *b, size_t i, const kvb_arithmetic *a, kvb_elem elem, const void *out, float lse,
                      kvb_diff *diff)
{
    const kvb_opinion_row *row = &b->part->opinions->rows[i];
    const kvb_group *g = kvb_model_group(&limited_model, row->expect.layer);
    const kvb_opinion_head *head =
        &b->part->opinions->heads[row->expect.layer][row->expect.head / (g->heads / g->kv_heads)];
    return kvb_opinion_diff(diff, head, row, g->v_dim, a, (double)(float)g->scale, (double)g->softcap, elem, out, &lse);
}

static int opinion(const both *b, size_t i, const kvb_arithmetic *a, const float *out, float lse, kvb_diff *diff)
{
    return opinion_of(b, i, a, KVB_F32, out, lse, diff);
}

static void sums_are_above(const both *b)
{
    assert_null(b->full->opinions);
    assert_int_equal(b->part->opinions->n_rows, b->full->n_rows);
    for (size_t i = 0; i < b->full->n_rows; i++) {
        const kvb_expect *own = &b->full->rows[i], *other = &b->part->opinions->rows[i].expect;
        const kvb_bound_row *x = &own->row, *y = &other->row;
        assert_true(own->event == other->event && own->layer == other->layer && own->query == other->query &&
                    own->head == other->head && own->visible == other->visible);
        assert_true(fabs(own->lse - other->lse) < 1e-12);
        for (uint32_t c = 0; c < kvb_model_group(&limited_model, own->layer)->v_dim; c++)
            assert_true(fabs(own->terms[c].o - b->part->opinions->rows[i].o[c]) < 1e-12);
        const double pairs[][2] = {{x->a_max, y->a_max},   {x->q_max, y->q_max},        {x->s_max, y->s_max},
                                   {x->a_mean, y->a_mean}, {x->q_mean, y->q_mean},      {x->s_mean, y->s_mean},
                                   {x->p_max, y->p_max},   {x->v_largest, y->v_largest}};
        for (size_t j = 0; j < sizeof pairs / sizeof *pairs; j++)
            assert_true(pairs[j][0] <= pairs[j][1] * (1 + 1e-12));
        assert_true(fabs(x->weight_sum / y->weight_sum - 1) < 1e-12 && x->q_largest == y->q_largest);
    }
}

/* Moves each element, up or down, by 0.9 of the full bound. The rest is for rounding `out` to f32. */
static void allows_what_is_allowed(const both *b, const kvb_arithmetic *a)
{
    kvb_diff diff = {.rho = 0};
    for (size_t i = 0; i < b->full->n_rows; i++) {
        const kvb_expect *e = &b->full->rows[i];
        const kvb_group *g = kvb_model_group(&limited_model, e->layer);
        kvb_bound_factors f;
        float out[DIM];
        kvb_bound_prepare(a, KVB_BOUND_STATISTICAL, &e->row, (double)(float)g->scale, (double)g->softcap, KVB_F32, &f);
        for (uint32_t c = 0; c < g->v_dim; c++)
            out[c] = (float)(e->terms[c].o + (c % 2 ? 0.9 : -0.9) * kvb_bound_channel(&f, &e->terms[c]));
        assert_int_equal(opinion(b, i, a, out, (float)(e->lse + 0.9 * kvb_bound_log(&f, e->lse)), &diff), 0);
    }
    assert_true(diff.rows == b->full->n_rows && diff.rho <= 1 && !diff.any_failed);
}

TEST(opinion_is_above_the_bound)
{
    static const kvb_format *const formats[][2] = {
        {&f32, &f32}, {&f16, &int8_asym}, {&int8_had, &f16}, {&int8_had, &int8_had}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        both b;
        both_open(&b, formats[i][0], formats[i][1]);
        sums_are_above(&b);
        for (size_t a = 0; a < sizeof declarations / sizeof *declarations; a++)
            allows_what_is_allowed(&b, &declarations[a]);
        both_close(&b);
    }
}

TEST(wrong_rows_fail)
{
    both b;
    both_open(&b, &f32, &f32);
    for (size_t i = 0; i < b.full->n_rows; i++) {
        const kvb_expect *e = &b.full->rows[i], *other = &b.full->rows[i ? i - 1 : 1];
        uint32_t v_dim = kvb_model_group(&limited_model, e->layer)->v_dim;
        float right[DIM], wrong[DIM] = {0};
        if (e->layer != other->layer)
            continue;
        for (uint32_t c = 0; c < v_dim; c++) {
            right[c] = (float)e->terms[c].o;
            wrong[c] = (float)other->terms[c].o;
        }
        kvb_diff honest = {.rho = 0}, stale = honest, nan = honest, lse = honest;
        assert_int_equal(opinion(&b, i, declarations, right, (float)e->lse, &honest), 0);
        assert_true(!honest.any_failed);
        assert_int_equal(opinion(&b, i, declarations, wrong, (float)e->lse, &stale), 0);
        /* heads of one KV head have the same output if they see a single token */
        assert_true(stale.any_failed || !memcmp(right, wrong, v_dim * sizeof *right));
        right[v_dim - 1] = NAN;
        assert_int_equal(opinion(&b, i, declarations, right, (float)e->lse, &nan), 0);
        assert_true(nan.any_failed && nan.first.channel == v_dim - 1 && nan.first.query == e->query);
        right[v_dim - 1] = (float)e->terms[v_dim - 1].o;
        assert_int_equal(opinion(&b, i, declarations, right, (float)e->lse + 0.01f, &lse), 0);
        assert_true(lse.any_failed && lse.first.channel == v_dim);
    }
    both_close(&b);
}

/* Exact outputs, rounded to nearest, pass; with the sign of one channel changed they fail. */
TEST(narrow_outputs)
{
    both b;
    kvb_diff right = {.rho = 0}, wrong = right;
    both_open(&b, &f32, &f32);
    for (int wide = 0; wide < 2; wide++)
        for (size_t i = 0; i < b.full->n_rows; i++) {
            const kvb_expect *e = &b.full->rows[i];
            uint32_t v_dim = kvb_model_group(&limited_model, e->layer)->v_dim;
            uint16_t out[DIM];
            for (uint32_t c = 0; c < v_dim; c++)
                out[c] = kvb_codec_code(wide ? KVB_BF16 : KVB_F16, (float)e->terms[c].o);
            assert_int_equal(opinion_of(&b, i, declarations, wide ? KVB_BF16 : KVB_F16, out, (float)e->lse, &right), 0);
            out[v_dim - 1] ^= 0x8000;
            assert_int_equal(opinion_of(&b, i, declarations, wide ? KVB_BF16 : KVB_F16, out, (float)e->lse, &wrong), 0);
        }
    assert_true(right.rows == 2 * b.full->n_rows && !right.any_failed);
    assert_true(wrong.failed == 2 * b.full->n_rows);
    both_close(&b);
}

TEST(budget_chooses_calls)
{
    both b;
    size_t rows[2];
    both_open(&b, &f32, &f32);
    uint64_t all = 0, chosen = 0;
    for (size_t i = 0; i < b.full->n_rows; i++)
        all += b.full->rows[i].visible;
    for (int less = 0; less < 2; less++) { /* the budget is just enough; then one less */
        kvb_oracle *whole = opinions_open(&b, all - (uint64_t)less, 1);
        assert_true((whole->opinions->n_rows == b.full->n_rows) == !less);
        kvb_oracle_free(whole);
    }
    for (uint64_t seed = 0; seed < 8; seed++) {
        kvb_oracle *some = opinions_open(&b, 1000, seed);
        assert_true(some->opinions->n_rows < b.full->n_rows);
        chosen += some->opinions->n_rows;
        uint64_t pairs = 0;
        for (size_t i = 0; i < some->opinions->n_rows; i++)
            pairs += some->opinions->rows[i].expect.visible;
        assert_true(pairs <= 1000);
        kvb_opinions_of(some->opinions, 0, 1, &rows[0]);
        kvb_opinions_of(some->opinions, 2, 1, &rows[1]);
        assert_true((rows[0] == 0 || rows[0] == 80) && (rows[1] == 0 || rows[1] == 12));
        assert_true(some->opinions->heads[0][0].finite && some->opinions->heads[0][0].v_most > 0);
        kvb_oracle_free(some);
    }
    assert_true(chosen > 0);
    both_close(&b);
}

/* The largest magnitude of each channel and of all, over rows of 3 channels of which 2 count. */
TEST(a_head_by_hand)
{
    static double rows[] = {1, -3, 9, -4, 0.5, 9, INFINITY, 1, 9}, sizes[] = {2, 1, 9, 1, 1, 9, 1, 1, 9},
                  keys[] = {3, -4, 0, 6, 8, NAN};
    const kvb_stored v = {.rows = rows, .sizes = sizes, .dim = 3}, k = {.rows = keys, .dim = 2},
                     sized = {.rows = rows, .sizes = keys, .dim = 2};
    kvb_opinion_head head;
    kvb_arena arena = {0};
    kvb_opinion_head_open(&head, 2, &arena);
    assert_false(arena.failed);
    kvb_opinion_take_v(&head, &v, 0, 2);
    assert_true(head.v_top[0] == 2 && head.v_top[1] == 3 && head.v_least == 2 && head.v_most == 3 && head.finite);
    kvb_opinion_take_v(&head, &v, 1, 2);
    assert_true(head.v_top[0] == 4 && head.v_top[1] == 3 && head.v_least == 3 && head.v_most == 4 && head.finite);
    assert_true(kvb_opinion_take_k(&head, &k, 0) == 5 && kvb_opinion_take_k(&head, &sized, 0) == 5 && head.finite);
    kvb_opinion_take_v(&head, &v, 2, 2); /* infinite sizes do not count among the finite ones */
    assert_true(head.v_top[0] == 4 && head.v_top[1] == 3 && head.v_least == 3 && head.v_most == 4 && !head.finite);
    head.finite = true;
    assert_true(kvb_opinion_take_k(&head, &k, 1) == 6 && head.finite);
    assert_true(isnan(kvb_opinion_take_k(&head, &k, 2)) && !head.finite);
    kvb_arena_free(&arena);
}

/* The bound of an element: every V may be as far from o as the channel's largest, and has the row's mean errors. */
TEST(bounds_by_hand)
{
    double top[2] = {4, 8}, o[2] = {1, -2};
    const kvb_opinion_head head = {.v_top = top, .v_least = 4, .v_most = 8, .finite = true};
    const kvb_opinion_row row = {.expect = {.visible = 9,
                                            .lse = 1,
                                            .row = {.visible = 9,
                                                    .weight_sum = 2,
                                                    .v_mix = 1,
                                                    .a_max = 3,
                                                    .a_mean = 2,
                                                    .q_max = 5,
                                                    .q_mean = 4,
                                                    .s_max = 7,
                                                    .s_mean = 6}},
                                 .o = o};
    const kvb_arithmetic a = {.dot_chain = 100, .cell_chain = 64, .exp_error = 1e-5, .query.step = 1e-4};
    const kvb_bound_row *r = &row.expect.row;
    const kvb_bound_term terms[3] = {
        {.o = 1, .spread = 5, .spread_a = 10, .spread_q = 20, .spread_s = 30, .mass = 4, .v_max = 4},
        {.o = -2, .spread = 10, .spread_a = 20, .spread_q = 40, .spread_s = 60, .mass = 8, .v_max = 8},
        {.o = 0, .spread = 4, .spread_a = 8, .spread_q = 16, .spread_s = 24, .mass = 4, .v_max = 4}};
    double bound[3];
    for (int i = 0; i < 3; i++)
        bound[i] = kvb_bound_output(&a, KVB_BOUND_STATISTICAL, r, &terms[i], 0.5, 0, KVB_F32);
    assert_true(bound[2] < bound[0] && bound[0] < bound[1]);
    const struct {
        double off[2], rho;
        uint32_t elements; /* elements checked; 0: the row is near enough to pass as a whole */
    } cases[] = {
        {{0.999 * bound[2], -0.999 * bound[2]}, 0, 0},
        {{1.001 * bound[2], 0}, 1.001 * bound[2] / bound[0], 2},
        {{0, -1.001 * bound[2]}, 1.001 * bound[2] / bound[1], 2},
        {{-0.9 * bound[0], 0.5 * bound[1]}, 0.9, 2},
        {{0.5 * bound[0], 1.5 * bound[1]}, 1.5, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float out[2] = {(float)(o[0] + cases[i].off[0]), (float)(o[1] + cases[i].off[1])};
        kvb_diff d = {.rho = 0};
        assert_int_equal(kvb_opinion_diff(&d, &head, &row, 2, &a, 0.5, 0, KVB_F32, out, NULL), 0);
        assert_true(d.rows == 1 && d.elements == cases[i].elements);
        assert_true(fabs(d.rho - cases[i].rho) < 1e-3);
    }
    const float out[2] = {1, -2}, lse = (float)(1 + 0.9 * kvb_bound_lse(&a, KVB_BOUND_STATISTICAL, r, 1, 0.5, 0)),
                far = (float)(1 + 1.1 * kvb_bound_lse(&a, KVB_BOUND_STATISTICAL, r, 1, 0.5, 0));
    kvb_diff near = {.rho = 0}, off = {.rho = 0};
    assert_int_equal(kvb_opinion_diff(&near, &head, &row, 2, &a, 0.5, 0, KVB_F32, out, &lse), 0);
    assert_int_equal(kvb_opinion_diff(&off, &head, &row, 2, &a, 0.5, 0, KVB_F32, out, &far), 0);
    assert_true(near.rows == 1 && near.elements == 0 && off.elements == 3 && fabs(off.rho - 1.1) < 1e-2);
}
