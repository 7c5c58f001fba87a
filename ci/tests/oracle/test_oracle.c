/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the oracle's rows are attention over what a query sees in that layer, by the layer's own rows, dims, limits
 * and logits; whatever the team; and are found by place.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>

#include "ci/tests/oracle/formats.h"
#include "ci/tests/oracle/hand.h"
#include "ci/tests/oracle/limited.h"
#include "oracle/descent.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"

static const kvb_format odd = {.name = "odd", .elem = KVB_INT8},
                        e4m3_head = {.name = "e4m3-head", .elem = KVB_E4M3, .head_scale = KVB_STATIC_HEAD};
enum { SEEN = 16 }; /* lists are no longer */

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

static kvb_oracle *open_or_fail(const hand *h, const kvb_values *values, const kvb_oracle_options *options)
{
    kvb_oracle *oracle;
    char why[128];
    assert_int_equal(kvb_oracle_open(&h->trace, values, options, &oracle, why, sizeof why), 0);
    return oracle;
}

/* What a format makes of a list of tokens' rows of one KV head, a sequence of its own. */
static void rows_stored(const kvb_values *values, kvb_rows kind, const kvb_format *format, const float *const *amax,
                        uint32_t layer, uint32_t kv_head, uint32_t n, const uint32_t *seen, double *rows)
{
    const kvb_group *g = kvb_model_group(&limited_model, layer);
    uint32_t dim = kind == KVB_ROWS_K ? g->k_dim : g->v_dim;
    const float *from[SEEN];
    double sizes[SEEN * DIM], scratch[4096];
    char why[128];
    kvb_storage store;
    assert_int_equal(
        kvb_storage_init(&store, format, dim, amax ? amax[layer] : NULL, g->kv_heads, kv_head, why, sizeof why), 0);
    assert_true(kvb_storage_scratch(&store) <= sizeof scratch);
    for (uint32_t i = 0; i < n; i++)
        from[i] = kvb_values_rows(values, kind, layer, seen[i]) + kv_head * dim;
    kvb_storage_rows(&store, from, n, scratch, rows, sizes);
}

/* One row, straight from the values: softmax over a list of tokens. */
static void check_row(const kvb_values *values, const kvb_expect *e, uint64_t token, const char *list,
                      const kvb_oracle_options *o)
{
    const kvb_group *g = kvb_model_group(&limited_model, e->layer);
    uint32_t kv_head = e->head / (g->heads / g->kv_heads), seen[SEEN], n = hand_list(list, seen);
    const float *q = kvb_values_rows(values, KVB_ROWS_Q, e->layer, token) + e->head * g->k_dim;
    double keys[SEEN * DIM], own[SEEN * DIM], *vectors = g->latent ? keys : own, out[DIM] = {0};
    double z = g->sink_logits ? exp((double)g->sink_logits[e->head]) : 0;
    rows_stored(values, KVB_ROWS_K, o->k_format, o->k_amax, e->layer, kv_head, n, seen, keys);
    if (!g->latent)
        rows_stored(values, KVB_ROWS_V, o->v_format, o->v_amax, e->layer, kv_head, n, seen, own);
    for (uint32_t i = 0; i < n; i++) {
        const double *k = keys + i * g->k_dim, *v = vectors + i * (g->latent ? g->k_dim : g->v_dim);
        double s = 0;
        for (uint32_t d = 0; d < g->k_dim; d++)
            s += (double)q[d] * k[d];
        s *= (double)(float)g->scale;
        if (g->softcap > 0)
            s = (double)g->softcap * tanh(s / (double)g->softcap);
        z += exp(s);
        for (uint32_t c = 0; c < g->v_dim; c++)
            out[c] += exp(s) * v[c];
    }
    assert_int_equal(e->visible, n);
    assert_true(fabs(e->lse - log(z)) < 1e-12);
    for (uint32_t c = 0; c < g->v_dim; c++)
        assert_true(fabs(e->terms[c].o - out[c] / z) < 1e-12);
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
    kvb_oracle *oracle = open_or_fail(&h, &values, &options);
    assert_int_equal(oracle->n_rows, (9 + 3 + 4 + 1) * (6 + 4 + 6 + 3));
    assert_int_equal(oracle->total_rows, oracle->n_rows);

    static const struct {
        uint32_t event, query, token;
        const char *seen[3]; /* in layers of each group */
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
    kvb_oracle_rows(oracle, 1, 0, &n); /* a copy asks nothing */
    assert_int_equal(n, 0);
    kvb_oracle_free(oracle);
    hand_free(&h);
}

static void every_row_is_attention_of_what_is_seen(void **state)
{
    (void)state;
    attention_of_what_is_seen(&f16, &bf16, NULL);
    attention_of_what_is_seen(&int8_asym, &f32, NULL);
    attention_of_what_is_seen(&int8_had, &int8_asym, NULL);
    attention_of_what_is_seen(&kivi_k, &f16, NULL); /* each query's own sequence */
}

/* Each layer and KV head has its own. */
static void head_scales_go_by_layer_and_head(void **state)
{
    (void)state;
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

static void the_team_changes_nothing(void **state)
{
    (void)state;
    static const kvb_team team = {.n = 3, .run = threads_run};
    hand h = {0};
    kvb_values values;
    trace_make(&h);
    hand_values(&h, limited_model, 4, &values);
    const kvb_format *const k_formats[] = {&bf16, &kivi_k};
    for (size_t f = 0; f < 2; f++) {
        kvb_oracle_options options = {.k_format = k_formats[f], .v_format = &f32, .max_pairs = UINT64_MAX, .seed = 1};
        kvb_oracle *alone = open_or_fail(&h, &values, &options);
        options.team = &team;
        kvb_oracle *together = open_or_fail(&h, &values, &options);
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

static void sampled_rows_equal_those_of_the_full_check(void **state)
{
    (void)state;
    hand h = {0};
    kvb_values values;
    hand_extend(&h, KVB_EVENT_FILL, 0, 0, 300);
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 300, 40);
    hand_extend(&h, KVB_EVENT_STEP, 0, 340, 1);
    hand_values(&h, limited_model, 4, &values);
    kvb_oracle_options options = {.k_format = &f32, .v_format = &f32, .max_pairs = UINT64_MAX, .seed = 1};
    kvb_oracle *full = open_or_fail(&h, &values, &options);
    options.max_pairs = 40000;
    kvb_oracle *part = open_or_fail(&h, &values, &options);
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

/* ---- rows that shifts have made ------------------------------------------------------------------------------ */

enum { SHIFTED = 6, MOVED_DIM = 16 };

/* Halves from element 4 on; neighbours; latent rows, turned behind what is V. */
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

static void add(hand *h, uint32_t p0, uint32_t p1, int32_t delta)
{
    kvb_event *e = hand_event(h, KVB_EVENT_SEQ_ADD);
    e->p0 = p0;
    e->p1 = p1;
    e->delta = delta;
    h->trace.needs.shift = true;
}

/* In f32, what is read back of the row as it was stored, turned: of a pair the one, then the other. */
static void row_move(const kvb_format *format, const kvb_rope *rope, int32_t delta, float *row)
{
    double scratch[512], *decoded = scratch, *sizes = scratch + MOVED_DIM, *coding = scratch + 2 * MOVED_DIM;
    kvb_storage store;
    char why[128];
    assert_int_equal(kvb_storage_init(&store, format, MOVED_DIM, NULL, 1, 0, why, sizeof why), 0);
    assert_true(2 * MOVED_DIM * sizeof(double) + kvb_storage_scratch(&store) <= sizeof scratch);
    kvb_storage_turn(&store, row, (float *)(void *)coding);
    kvb_storage_code(&store, 1, coding, decoded, sizes);
    kvb_storage_read(&store, decoded, row);
    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        const uint32_t a = rope->first + (rope->neighbours ? 2 * i : i),
                       b = rope->neighbours ? a + 1 : a + rope->dims / 2;
        const double angle = delta / pow(rope->base, 2.0 * i / rope->dims);
        const float c = (float)cos(angle), s = (float)sin(angle), x = row[a], y = row[b];
        row[a] = x * c - y * s;
        row[b] = x * s + y * c;
    }
}

/* Tokens 2 .. 5 move by 3 positions; 2 and 3 of them go back before the next step: their rows are what they were. The
 * last query sees what it would of rows that were so from the beginning. */
static void moved_rows_are_turned_as_they_are_stored(const kvb_format *k, const kvb_format *v)
{
    hand moves = {0}, stays = {0};
    kvb_values before, after;
    size_t n, n_same;
    for (int i = 0; i < 2; i++) {
        hand *h = i ? &stays : &moves;
        hand_extend(h, KVB_EVENT_PREFILL, 0, 0, SHIFTED);
        if (!i) {
            add(h, 2, KVB_TRACE_POS_END, 3);
            add(h, 5, 7, -3);
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
    const kvb_oracle_options options = {.k_format = k, .v_format = v, .max_pairs = UINT64_MAX, .seed = 1};
    kvb_oracle *one = open_or_fail(&moves, &before, &options), *two = open_or_fail(&stays, &after, &options);
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
    const kvb_oracle_options lossless = {.k_format = &f32, .v_format = &f32, .max_pairs = UINT64_MAX, .seed = 1};
    kvb_oracle *exact = open_or_fail(&moves, &before, &lossless);
    double cost = 0; /* of the formats: rows that were never rounded are turned, too */
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

static void shifts(void **state)
{
    (void)state;
    moved_rows_are_turned_as_they_are_stored(&f32, &f32);
    moved_rows_are_turned_as_they_are_stored(&bf16, &f32);
    moved_rows_are_turned_as_they_are_stored(&int8_had, &bf16);
    hand h = {0};
    kvb_values values;
    kvb_oracle *oracle;
    char why[128];
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 2);
    add(&h, 1, 2, 1);
    hand_extend(&h, KVB_EVENT_STEP, 0, 3, 1);
    hand_values(&h, roped, 9, &values);
    const kvb_format *const unknown[][2] = {{&int8_asym, &f32}, {&kivi_k, &f32}, {&f32, &kivi_k}};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const kvb_oracle_options options = {
            .k_format = unknown[i][0], .v_format = unknown[i][1], .max_pairs = UINT64_MAX, .seed = 1};
        assert_int_equal(kvb_oracle_open(&h.trace, &values, &options, &oracle, why, sizeof why), -ENOTSUP);
        assert_non_null(strstr(why, unknown[i][i == 2]->name));
    }
    hand_free(&h);
}

/* Layers that scan lie before and behind: rows are of the one that attends, whatever the sample; the others have lanes.
 */
static void layers_that_scan_have_lanes(void **state)
{
    hand h = {0};
    kvb_values *values;
    char why[128];
    (void)state;
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 40);
    h.trace.header.model = (kvb_model){.n_layers = 3, .n_groups = 2, .group_of = {0, 1, 0}};
    h.trace.header.model.groups[0] =
        (kvb_group){.kind = KVB_GROUP_SCAN, .scan = {KVB_SCAN_DELTA, 2, 1, 8, 48, 4, 16, true, KVB_F32, KVB_F32}};
    h.trace.header.model.groups[1] = (kvb_group){.heads = 2, .kv_heads = 1, .k_dim = 16, .v_dim = 16, .scale = 0.25};
    h.trace.needs.tokens = h.trace.needs.queries = 40;
    assert_int_equal(kvb_values_open(&h.trace, "llama", 7, NULL, NULL, &values, why, sizeof why), 0);
    for (int all = 0; all < 2; all++) {
        kvb_oracle *o = open_or_fail(&h, values,
                                     &(kvb_oracle_options){.k_format = &f32,
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
        assert_int_equal(d->lane_first[3 * KVB_SCAN_PARTS], d->total); /* each is followed, or glanced at */
        assert_int_equal(d->rows != NULL, !all);
        kvb_oracle_free(o);
    }
    kvb_values_free(values);
    hand_free(&h);
}

static void unknown_format_is_refused(void **state)
{
    (void)state;
    hand h = {0};
    kvb_values values;
    kvb_oracle *oracle;
    char why[128];
    trace_make(&h);
    hand_values(&h, limited_model, 4, &values);
    kvb_oracle_options options = {.k_format = &f32, .v_format = &odd, .max_pairs = UINT64_MAX};
    assert_int_equal(kvb_oracle_open(&h.trace, &values, &options, &oracle, why, sizeof why), -ENOTSUP);
    assert_non_null(strstr(why, "'odd'"));
    assert_null(oracle);
    options = (kvb_oracle_options){.k_format = &odd, .v_format = &f32, .max_pairs = UINT64_MAX};
    assert_int_equal(kvb_oracle_open(&h.trace, &values, &options, &oracle, why, sizeof why), -ENOTSUP);
    assert_non_null(strstr(why, "'odd'"));
    hand_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_attention_of_what_is_seen),
        cmocka_unit_test(head_scales_go_by_layer_and_head),
        cmocka_unit_test(the_team_changes_nothing),
        cmocka_unit_test(sampled_rows_equal_those_of_the_full_check),
        cmocka_unit_test(shifts),
        cmocka_unit_test(layers_that_scan_have_lanes),
        cmocka_unit_test(unknown_format_is_refused),
    };
    return cmocka_run_group_tests_name("oracle/oracle", tests, NULL, NULL);
}
