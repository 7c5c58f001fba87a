/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: profiles, and the values of a trace. */
#include "ci/tests/tests.h"
#include "ci/tests/workloads/scratch.h"
#include "workloads/array.h"
#include "workloads/rng.h"
#include "workloads/safetensors.h"
#include "workloads/values.h"

/* Shows that the values of a trace are the profile's or the recorded rows, each kind in one aligned block, the same for
 * any number of parts that make them. Recorded tensors that do not fit the trace are refused. */

#define EVENTS                                                                                                         \
    "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":5}}\n{\"fill\":{\"seq\":1,\"n\":600}}\n"                                 \
    "{\"step\":{\"pos\":[5,600],\"seq\":[0,1]}}\n"
#define N_TOKENS 607u

static kvb_trace *load(const char *text)
{
    char why[300] = "";
    kvb_trace *trace;
    if (kvb_trace_load(tests_text("t.jsonl", text), 0, &trace, why, sizeof why))
        fail_msg("%s", why);
    return trace;
}

/* A team of three that runs its parts backwards. */
static void three_parts(void *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    *(int *)team += 1;
    for (uint32_t i = 3; i-- > 0;)
        part(ctx, i, 3);
}

TEST(test_seeded)
{
    char why[300] = "";
    kvb_trace *t = load(HEADER EVENTS);
    kvb_values *a, *b, *other;
    int called = 0;
    assert_int_equal(kvb_values_open(t, "llama", 0, NULL, NULL, &a, why, sizeof why), 0);
    assert_int_equal(kvb_values_open(t, "llama", 0, three_parts, &called, &b, why, sizeof why), 0);
    assert_int_equal(kvb_values_open(t, "llama", 99, NULL, NULL, &other, why, sizeof why), 0);
    assert_int_equal(called, 1);
    assert_string_equal(a->profile, "llama");
    assert_int_equal(a->tokens, N_TOKENS);
    for (unsigned kind = 0; kind < KVB_ROWS_ATTENDED; kind++) {
        size_t size = (kind == KVB_ROWS_Q ? 4u : 2u) * 16u, n = 2 * N_TOKENS * size;
        assert_int_equal((uintptr_t)a->block[kind] % 64, 0);
        assert_int_equal(a->block_bytes[kind], n * sizeof(float));
        assert_memory_equal(a->block[kind], b->block[kind], n * sizeof(float));
        assert_memory_not_equal(a->block[kind], other->block[kind], n * sizeof(float));
        assert_ptr_equal(kvb_values_rows(a, kind, 1, 3), a->block[kind] + (N_TOKENS + 3) * size);
    }
    /* Each token's rows are those of its identity and position. */
    for (size_t e = 0; e < t->n_events; e++) {
        for (uint32_t i = 0; i < t->events[e].n; i++) {
            float rows[64], zeros[64] = {0};
            uint64_t token = t->events[e].first + i;
            kvb_profile_rows(kvb_profile_find("llama"), &t->header.model, 1, KVB_ROWS_K, 1, token, t->events[e].pos[i],
                             rows);
            assert_memory_equal(rows, kvb_values_rows(a, KVB_ROWS_K, 1, token), 32 * sizeof(float));
            kvb_profile_rows(kvb_profile_find("llama"), &t->header.model, 1, KVB_ROWS_Q, 0, token, t->events[e].pos[i],
                             rows);
            assert_memory_equal(t->events[e].kind == KVB_EVENT_FILL ? zeros : rows,
                                kvb_values_rows(a, KVB_ROWS_Q, 0, token), 64 * sizeof(float));
        }
    }
    kvb_values_free(a);
    kvb_values_free(b);
    kvb_values_free(other);
    kvb_values_free(NULL);
    kvb_trace_free(t);
}

/* Tokens of a call that must be refused do not count as tokens. */
TEST(test_refused)
{
    char why[300] = "";
    kvb_values *v[2];
    kvb_trace *t[2] = {load(HEADER "{\"step\":{\"pos\":[0],\"seq\":[0]}}\n"),
                       load(HEADER_OF(1) "{\"step\":{\"pos\":[0],\"seq\":[0]}}\n"
                                         "{\"step\":{\"pos\":[1],\"seq\":[0]},\"refused\":\"ENOSPC\"}\n")};
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvb_values_open(t[i], "llama", 0, NULL, NULL, &v[i], why, sizeof why), 0);
    for (kvb_rows kind = KVB_ROWS_Q; kind < KVB_ROWS_ATTENDED; kind++)
        assert_memory_equal(kvb_values_rows(v[0], kind, 0, 0), kvb_values_rows(v[1], kind, 0, 0), 32 * sizeof(float));
    for (int i = 0; i < 2; i++) {
        kvb_values_free(v[i]);
        kvb_trace_free(t[i]);
    }
}

/* Layers of unlike groups have rows of different shapes and numbers; latent rows have no V. */
TEST(test_unlike_groups)
{
    static const char *const profiles[] = {"gaussian", "llama",        "peaked",        "needle",   "flat",
                                           "grid",     "large-logits", "giant-channel", "subnormal"};
    char why[300] = "";
    int called = 0;
    kvb_trace *t = load(HEADER_GROUPS EVENTS);
    const kvb_model *m = &t->header.model;
    for (size_t p = 0; p < sizeof profiles / sizeof *profiles; p++) {
        kvb_values *a, *b;
        assert_int_equal(kvb_values_open(t, profiles[p], 0, NULL, NULL, &a, why, sizeof why), 0);
        assert_int_equal(kvb_values_open(t, profiles[p], 0, three_parts, &called, &b, why, sizeof why), 0);
        for (unsigned kind = 0; kind < KVB_ROWS_ATTENDED; kind++) {
            size_t floats = 0;
            for (uint32_t layer = 0; layer < m->n_layers; layer++) {
                const kvb_group *g = kvb_model_group(m, layer);
                size_t row = kind == KVB_ROWS_Q   ? g->heads * g->k_dim
                             : kind == KVB_ROWS_K ? g->kv_heads * g->k_dim
                             : g->latent          ? 0
                                                  : g->kv_heads * g->v_dim;
                assert_int_equal(kvb_values_floats(g, kind), row);
                for (uint32_t token = 0; token < N_TOKENS; token += token == 0 ? N_TOKENS - 1 : 1) {
                    const float *rows = kvb_values_rows(a, kind, layer, token);
                    float want[256];
                    assert_int_equal(!rows, !row);
                    if (!rows)
                        continue;
                    uint32_t pos = token ? 600 : 0;
                    kvb_profile_rows(kvb_profile_find(profiles[p]), m, 1, kind, layer, token, pos, want);
                    assert_memory_equal(rows, want, row * sizeof(float));
                    assert_ptr_equal(rows, a->block[kind] + floats + token * row); /* layers follow each other */
                    for (uint32_t below = 0; below < layer; below++) {
                        const float *others = kvb_values_rows(a, kind, below, token);
                        assert_true(!others || memcmp(rows, others, 8 * sizeof(float)));
                    }
                }
                floats += row * N_TOKENS;
            }
            assert_int_equal(a->block_bytes[kind], floats * sizeof(float));
            assert_memory_equal(a->block[kind], b->block[kind], floats * sizeof(float));
        }
        kvb_values_free(a);
        kvb_values_free(b);
    }
    /* A profile that does not support one group does not support the trace. */
    kvb_values *v;
    t->header.model.groups[2].k_dim = 14;
    assert_int_equal(kvb_values_open(t, "peaked", 0, NULL, NULL, &v, why, sizeof why), -ENOTSUP);
    assert_contains(why, "needs a k_dim of at least 16");
    kvb_trace_free(t);
}

TEST(test_header_profile)
{
    char why[300] = "";
    kvb_trace *t = load(HEADER EVENTS);
    kvb_values *v;
    assert_int_equal(kvb_values_open(t, NULL, 0, NULL, NULL, &v, why, sizeof why), 0);
    assert_string_equal(v->profile, "gaussian");
    kvb_values_free(v);
    assert_int_equal(kvb_values_open(t, "gaus", 0, NULL, NULL, &v, why, sizeof why), -EINVAL);
    assert_contains(
        why, "unknown profile \"gaus\", known: gaussian, llama, qwen, peaked, needle, flat, grid, tags, large-logits, "
             "far-below, equal-keys, giant-channel, subnormal");
    assert_null(v);
    kvb_trace_free(t);
    t = load(HEADER "{\"fill\":{\"seq\":0,\"n\":524289}}\n");
    const kvb_model was = t->header.model;
    t->header.model.n_layers = 63;
    t->header.model.groups[0].kv_heads = 64;
    assert_int_equal(kvb_values_open(t, "tags", 0, NULL, NULL, &v, why, sizeof why), -ENOTSUP);
    assert_contains(
        why, "profile tags has bits for 524288 tokens beside the model's layers and heads, the trace has 524289");
    t->header.model = was;
    t->header.model.groups[0].k_dim = 8;
    assert_int_equal(kvb_values_open(t, "peaked", 0, NULL, NULL, &v, why, sizeof why), -ENOTSUP);
    t->header.model.n_layers = 1024;
    t->header.model.groups[0] = (kvb_group){1024, 1024, 4096, 4096, .scale = 1};
    tests_refused(kvb_values_open(t, "gaussian", 0, NULL, NULL, &v, why, sizeof why), -ENOMEM, why, "values need ");
    kvb_trace_free(t);
    t = load(HEADER); /* no tokens */
    assert_int_equal(kvb_values_open(t, NULL, 0, NULL, NULL, &v, why, sizeof why), 0);
    kvb_values_free(v);
    kvb_trace_free(t);
}

/* ---- recorded ------------------------------------------------------------------------------------------ */

/* Writes the tensors of seven tokens for the trace's model; `change` may spoil k.1. Element c of tensor i is 10000 i +
 * c. */
static void recorded_write(const kvb_trace *t, void (*change)(kvb_tensor *t))
{
    static const char *const names[4][3] = {
        {"q.0", "k.0", "v.0"}, {"q.1", "k.1", "v.1"}, {"q.2", "k.2", "v.2"}, {"q.3", "k.3", "v.3"}};
    static float data[12][7 * 4 * 48];
    kvb_tensor tensors[12];
    char why[300] = "";
    size_t n = 0;
    for (uint32_t layer = 0; layer < t->header.model.n_layers; layer++) {
        const kvb_group *g = kvb_model_group(&t->header.model, layer);
        for (unsigned kind = 0; kind < KVB_ROWS_ATTENDED; kind++) {
            uint64_t heads = kind == KVB_ROWS_Q ? g->heads : g->kv_heads,
                     dim = kind == KVB_ROWS_V ? g->v_dim : g->k_dim;
            if (kind == KVB_ROWS_V && g->latent)
                continue;
            for (size_t c = 0; c < 7 * heads * dim; c++)
                data[3 * layer + kind][c] = (float)(10000 * (3 * layer + kind) + c);
            tensors[n++] = (kvb_tensor){.name = names[layer][kind],
                                        .dtype = KVB_DTYPE_F32,
                                        .n_dims = 3,
                                        .dims = {7, heads, dim},
                                        .data = data[3 * layer + kind],
                                        .bytes = 7 * heads * dim * sizeof(float)};
            if (change && layer == 1 && kind == KVB_ROWS_K)
                change(&tensors[n - 1]);
        }
    }
    if (kvb_safetensors_write(tests_path("v.safetensors"), tensors, n, NULL, why, sizeof why))
        fail_msg("%s", why);
}

/* A trace of seven tokens with recorded values. */
static kvb_trace *recorded_load(const char *seeded)
{
    static const char was[] = "\"values\":{\"profile\":\"gaussian\",\"seed\":1}}\n";
    char text[2048];
    snprintf(text, sizeof text, "%.*s\"values\":{\"tensors\":\"v.safetensors\"}}\n%s",
             (int)(strlen(seeded) - strlen(was)), seeded, "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":7}}\n");
    return load(text);
}

TEST(test_recorded)
{
    static const char *const headers[] = {HEADER, HEADER_GROUPS};
    char why[300] = "";
    for (size_t i = 0; i < 2; i++) {
        kvb_trace *t = recorded_load(headers[i]);
        kvb_values *v;
        recorded_write(t, NULL);
        if (kvb_values_open(t, NULL, 0, NULL, NULL, &v, why, sizeof why))
            fail_msg("%s", why);
        assert_string_equal(v->profile, "recorded");
        for (uint32_t layer = 0; layer < t->header.model.n_layers; layer++)
            for (unsigned kind = 0; kind < KVB_ROWS_ATTENDED; kind++) {
                size_t row = kvb_values_floats(kvb_model_group(&t->header.model, layer), kind);
                for (uint64_t token = 0; token < 7 && row; token++)
                    assert_true(kvb_values_rows(v, kind, layer, token)[3] ==
                                (float)(10000 * (3 * layer + kind) + token * row + 3));
            }
        kvb_values_free(v);
        kvb_trace_free(t);
    }
    /* A profile may replace recorded values. */
    kvb_trace *t = recorded_load(HEADER);
    kvb_values *v;
    assert_int_equal(kvb_values_open(t, "tags", 0, NULL, NULL, &v, why, sizeof why), 0);
    assert_string_equal(v->profile, "tags");
    kvb_values_free(v);
    kvb_trace_free(t);
}

static void spoil_nan(kvb_tensor *t)
{
    ((float *)t->data)[2 * 32 + 16 + 5] = NAN;
}
static void spoil_heads(kvb_tensor *t)
{
    t->dims[1] = 1;
    t->dims[2] = 32;
}
static void spoil_tokens(kvb_tensor *t)
{
    t->dims[0] = 6;
    t->bytes = 6 * 32 * sizeof(float);
}
static void spoil_name(kvb_tensor *t)
{
    t->name = "k.01";
}
static void spoil_dtype(kvb_tensor *t)
{
    t->dtype = KVB_DTYPE_I32;
}

TEST(test_bad_recorded)
{
    static const struct {
        void (*change)(kvb_tensor *t);
        int err;
        const char *part;
    } bad[] = {
        {spoil_nan, -EINVAL, "v.safetensors: tensor 'k.1': NaN at [2,1,5]"},
        {spoil_heads, -EINVAL, "tensor 'k.1': has shape [7,1,32], expected [7,2,16]"},
        {spoil_tokens, -EINVAL, "tensor 'k.1': has shape [6,2,16], expected [7,2,16]"},
        {spoil_name, -ENOENT, "tensor 'k.1' is missing"},
        {spoil_dtype, -EINVAL, "tensor 'k.1': has dtype I32"},
    };
    char why[300] = "";
    kvb_trace *t = recorded_load(HEADER);
    kvb_values *v;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        recorded_write(t, bad[i].change);
        assert_int_equal(kvb_values_open(t, NULL, 0, NULL, NULL, &v, why, sizeof why), bad[i].err);
        assert_contains(why, bad[i].part);
        assert_null(v);
    }
    unlink(tests_path("v.safetensors"));
    assert_int_equal(kvb_values_open(t, NULL, 0, NULL, NULL, &v, why, sizeof why), -ENOENT);
    assert_contains(why, "v.safetensors: cannot be read: No such file or directory");
    kvb_trace_free(t);
}

/* Shows that each value profile has the property of its name, and that rows depend only on their key. */

/* A model of n equal layers. */
static kvb_model model_of(uint32_t n, uint32_t heads, uint32_t kv_heads, uint32_t k_dim, uint32_t v_dim)
{
    return (kvb_model){
        .n_layers = n, .n_groups = 1, .groups = {{heads, kv_heads, k_dim, v_dim, .scale = 1 / sqrt(k_dim)}}};
}

static kvb_model model;

static int model_make(void **state)
{
    model = model_of(4, 4, 2, 128, 64);
    return 0;
}

static CMFixtureFunction tests_setup = model_make;

/* ---- helpers ------------------------------------------------------------------------------------------- */

static uint32_t dim_of(const kvb_model *m, kvb_rows kind)
{
    return kind == KVB_ROWS_V ? m->groups[0].v_dim : m->groups[0].k_dim;
}
static uint32_t heads_of(const kvb_model *m, kvb_rows kind)
{
    return kind == KVB_ROWS_Q ? m->groups[0].heads : m->groups[0].kv_heads;
}

/* Rows [n][heads][dim] of tokens 0 .. n-1 at the same positions. */
static float *rows_make(const char *profile, const kvb_model *m, kvb_rows kind, uint32_t layer, uint32_t n)
{
    size_t size = (size_t)heads_of(m, kind) * dim_of(m, kind);
    float *rows = malloc(n * size * sizeof *rows);
    assert_non_null(rows);
    for (uint32_t t = 0; t < n; t++)
        kvb_profile_rows(kvb_profile_find(profile), m, 5, kind, layer, t, t, rows + t * size);
    return rows;
}

/* Softmax weights of one query head over keys 0 .. n-1. */
static void weights_make(const kvb_model *m, const float *q, const float *k, uint32_t head, uint32_t n, double *w)
{
    const kvb_group *g = &m->groups[0];
    double top = -INFINITY, sum = 0;
    for (uint32_t j = 0; j < n; j++) {
        const float *row = k + ((size_t)j * g->kv_heads + head / (g->heads / g->kv_heads)) * g->k_dim;
        double s = 0;
        for (uint32_t c = 0; c < g->k_dim; c++)
            s += (double)q[head * g->k_dim + c] * row[c];
        w[j] = s * g->scale;
        top = fmax(top, w[j]);
    }
    for (uint32_t j = 0; j < n; j++)
        sum += w[j] = exp(w[j] - top);
    for (uint32_t j = 0; j < n; j++)
        w[j] /= sum;
}

/* ---- all profiles -------------------------------------------------------------------------------------- */

TEST(test_rows_depend_on_key_alone)
{
    for (const kvb_profile *p = kvb_profiles; p->name; p++) {
        assert_ptr_equal(kvb_profile_find(p->name), p);
        for (unsigned kind = 0; kind < KVB_ROWS_ATTENDED; kind++) {
            size_t bytes = sizeof(float) * heads_of(&model, kind) * dim_of(&model, kind);
            float a[512], b[512];
            memset(a, 0xff, sizeof a);
            memset(b, 0xff, sizeof b);
            kvb_profile_rows(p, &model, 7, kind, 1, 40, 12, a);
            kvb_profile_rows(p, &model, 7, kind, 3, 2, 1, b); /* makes another row in between */
            assert_memory_not_equal(a, b, bytes);
            kvb_profile_rows(p, &model, 7, kind, 1, 40, 12, b);
            assert_memory_equal(a, b, sizeof a);
            assert_true(bytes == sizeof a || isnan(a[bytes / sizeof(float)])); /* wrote only its rows */
            for (size_t c = 0; c < bytes / sizeof(float); c++)
                assert_true(isfinite(a[c]));
            if (strcmp(p->name, "tags") == 0 && kind != KVB_ROWS_Q)
                continue; /* a tag has no seed */
            kvb_profile_rows(p, &model, 8, kind, 1, 40, 12, b);
            assert_memory_not_equal(a, b, bytes);
        }
    }
    assert_null(kvb_profile_find("none"));
}

TEST(test_normal_numbers)
{
    enum { N = 1000000 };
    double moment[5] = {0};
    for (uint32_t i = 0; i < N; i++) {
        double x = kvb_rng_normal((uint32_t)kvb_rng_bits(3, i)), power = 1;
        for (unsigned m = 1; m < 5; m++)
            moment[m] += (power *= x) / N;
    }
    assert_true(fabs(moment[1]) < 0.005 && fabs(moment[2] - 1) < 0.01);
    assert_true(fabs(moment[3]) < 0.02 && fabs(moment[4] - 3) < 0.05);
    /* Compares with the distribution function, also in the tails. */
    for (double p = 1e-9; p < 1; p = p < 0.1 ? p * 1.3 : p + 0.01) {
        uint32_t bits = (uint32_t)(p * 4294967296.0);
        double x = kvb_rng_normal(bits), back = 0.5 * erfc(-x / sqrt(2));
        assert_true(fabs(back / kvb_rng_unit(bits) - 1) < 1e-5);
    }
}

TEST(test_rows_of_normal_numbers)
{
    float row[201];
    kvb_rng_normals(7, 3, 201, row);
    for (uint32_t c = 0; c < 201; c++) {
        const uint64_t both = kvb_rng_bits(7, c / 2);
        assert_true(row[c] == (float)(3 * kvb_rng_normal((uint32_t)(c % 2 ? both >> 32 : both))));
    }
}

/* ---- each profile -------------------------------------------------------------------------------------- */

TEST(test_gaussian)
{
    enum { N = 2048 };
    float *k = rows_make("gaussian", &model, KVB_ROWS_K, 0, N), *q = rows_make("gaussian", &model, KVB_ROWS_Q, 0, 1);
    double sum2 = 0, sum4 = 0, n = (double)N * model.groups[0].kv_heads * model.groups[0].k_dim;
    for (size_t i = 0; i < (size_t)n; i++) {
        double x2 = (double)k[i] * k[i];
        sum2 += x2 / n;
        sum4 += x2 * x2 / n;
    }
    assert_true(fabs(sum2 - 1) < 0.02 && fabs(sum4 / (sum2 * sum2) - 3) < 0.1);
    /* No key dominates, and the weights are not flat. */
    double w[N];
    weights_make(&model, q, k, 0, N, w);
    kvb_doubles_sort(w, N);
    assert_true(w[N - 1] < 0.1 && w[N - 1] > 5.0 / N && w[0] < 0.5 / N);
    free(k);
    free(q);
}

/* RMS of each K channel over tokens 1 .. n-1, with RoPE undone. */
static void channel_rms(const float *k, uint32_t head, uint32_t n, double *rms)
{
    uint32_t dim = model.groups[0].k_dim, half = dim / 2;
    memset(rms, 0, dim * sizeof *rms);
    for (uint32_t t = 1; t < n; t++) {
        const float *row = k + ((size_t)t * model.groups[0].kv_heads + head) * dim;
        for (uint32_t i = 0; i < half; i++) {
            double angle = t * pow(10000, -2.0 * i / dim), c = cos(angle), s = sin(angle);
            double a = row[i] * c + row[i + half] * s, b = row[i + half] * c - row[i] * s;
            rms[i] += a * a / (n - 1);
            rms[i + half] += b * b / (n - 1);
        }
    }
    for (uint32_t c = 0; c < dim; c++)
        rms[c] = sqrt(rms[c]);
}

/* Checks the number of outlier channels, and their size relative to the median channel. */
static void outliers_check(const char *profile, uint32_t layer, double low, double high)
{
    enum { N = 400 };
    float *k = rows_make(profile, &model, KVB_ROWS_K, layer, N);
    for (uint32_t h = 0; h < model.groups[0].kv_heads; h++) {
        double rms[128], sorted[128];
        channel_rms(k, h, N, rms);
        memcpy(sorted, rms, sizeof rms);
        kvb_doubles_sort(sorted, 128);
        uint32_t n = 0;
        for (uint32_t c = 0; c < 128; c++) {
            if (rms[c] < 0.9 * low * sorted[64])
                continue;
            n++;
            assert_true(rms[c] < 1.5 * high * sorted[64]);
        }
        assert_in_range(n, 3, 6); /* 2-5 % of 128 */
    }
    free(k);
}

TEST(test_llama_outliers)
{
    outliers_check("llama", 0, 5, 15);
    outliers_check("llama", 2, 5, 15);
}

TEST(test_qwen_offsets)
{
    outliers_check("qwen", 0, 100, 300);
    outliers_check("qwen", 1, 5, 15);
    outliers_check("qwen", 3, 100, 300);
}

/* Mass of the sink over contexts from 32 to 8192 cells: 30-90 % for nearly all queries. */
static void sink_check(const char *profile, const kvb_model *m)
{
    enum { N = 8192 };
    static double w[N];
    for (uint32_t layer = 0; layer < m->n_layers; layer += 3) {
        float *k = rows_make(profile, m, KVB_ROWS_K, layer, N);
        for (uint32_t n = 32; n <= N; n *= 4) {
            double mean = 0;
            uint32_t inside = 0, all = 0;
            for (uint32_t i = 0; i < 5; i++) {
                float q[512];
                kvb_profile_rows(kvb_profile_find(profile), m, 5, KVB_ROWS_Q, layer, n - 1 - i, n - 1 - i, q);
                for (uint32_t h = 0; h < m->groups[0].heads; h++, all++) {
                    weights_make(m, q, k, h, n - i, w);
                    mean += w[0];
                    inside += w[0] >= 0.3 && w[0] <= 0.9;
                }
            }
            mean /= all;
            assert_true(mean > 0.4 && mean < 0.8);
            assert_true(inside >= all - 2);
        }
        free(k);
    }
}

TEST(test_sink)
{
    const kvb_model small = model_of(4, 4, 2, 16, 64);
    sink_check("llama", &model);
    sink_check("llama", &small);
    sink_check("qwen", &model);
}

TEST(test_llama_values)
{
    enum { N = 2000 };
    float *v = rows_make("llama", &model, KVB_ROWS_V, 1, N);
    double first = 0, rest = 0;
    uint32_t size = model.groups[0].kv_heads * model.groups[0].v_dim;
    for (uint32_t i = 0; i < N * size; i++)
        *(i < size ? &first : &rest) += (double)v[i] * v[i];
    first = sqrt(first / size);
    rest = sqrt(rest / ((N - 1) * size));
    assert_true(rest > 0.5 && rest < 0.6); /* 0.5 exp(0.3^2) */
    assert_true(first < 0.15 * 1.0 && first > 0.03);
    free(v);
}

TEST(test_peaked)
{
    enum { N = 131072 };
    static double w[N];
    static const uint32_t dims[] = {16, 64, 256};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
        const kvb_model m = model_of(1, 2, 1, dims[d], 16);
        float *k = rows_make("peaked", &m, KVB_ROWS_K, 0, N);
        for (uint32_t t = 0; t < N; t += 32767) { /* a query may see any cells, here all, also later ones */
            float q[512];
            kvb_profile_rows(kvb_profile_find("peaked"), &m, 5, KVB_ROWS_Q, 0, t, t, q);
            for (uint32_t h = 0; h < m.groups[0].heads; h++) {
                weights_make(&m, q, k, h, N, w);
                assert_true(w[t] > 0.99);
            }
        }
        free(k);
    }
    char why[200];
    const kvb_model tiny = model_of(4, 4, 2, 8, 64);
    assert_int_equal(kvb_profile_supports(kvb_profile_find("peaked"), &tiny, why, sizeof why), -ENOTSUP);
    assert_contains(why, "needs a k_dim of at least 16");
}

/* Every query finds its needle among the cells that it sees: all, a window of 100 with 2 sinks, or a chunk of 100. If all
 * are seen, every cell is the needle of some query. */
TEST(test_needle)
{
    enum { N = 1024, ALL, WINDOW, CHUNK };
    static double w[N];
    for (int sight = ALL; sight <= CHUNK; sight++) {
        uint32_t found[2][N] = {{0}}, sinks = 0, older = 0, others = 0;
        kvb_model m = model_of(1, 4, 2, 64, 16);
        m.groups[0].window = sight == WINDOW ? 100 : 0;
        m.groups[0].sinks = sight == WINDOW ? 2 : 0;
        m.groups[0].chunk = sight == CHUNK ? 100 : 0;
        float *k = rows_make("needle", &m, KVB_ROWS_K, 0, N), q[256];
        for (uint32_t t = 0; t < N; t++) {
            kvb_profile_rows(kvb_profile_find("needle"), &m, 5, KVB_ROWS_Q, 0, t, t, q);
            for (uint32_t h = 0; h < 4; h++) {
                uint32_t best = 0;
                weights_make(&m, q, k, h, t + 1, w);
                for (uint32_t c = 0; c <= t; c++)
                    best = w[c] > w[best] ? c : best;
                assert_true(sight != ALL || w[best] > 0.99);
                assert_true(sight != WINDOW || best < 2 || t - best < 100);
                assert_true(sight != CHUNK || best / 100 == t / 100);
                sinks += best < 2 && t >= 102;
                older += best < t;
                found[h / 2][best]++;
            }
        }
        for (uint32_t c = 0; c < N && sight == ALL; c++) {
            assert_true(found[0][c] && found[1][c]); /* at least its own query finds it */
            others += found[0][c] > 1;
        }
        assert_true(sight != ALL || others > N / 3); /* the later a cell, the fewer queries see it */
        assert_true(older > N && (sight != WINDOW || sinks > 10));
        free(k);
    }
}

TEST(test_flat)
{
    enum { N = 4096 };
    static double w[N];
    float *k = rows_make("flat", &model, KVB_ROWS_K, 0, N), *q = rows_make("flat", &model, KVB_ROWS_Q, 0, 1);
    weights_make(&model, q, k, 1, N, w);
    kvb_doubles_sort(w, N);
    assert_true(w[N - 1] / w[0] < 1.01);
    free(k);
    free(q);
}

/* Logits of one query head over keys 0 .. n-1, for the model of all tests. */
static void logits_make(const float *q, const float *k, uint32_t head, uint32_t n, double *logits)
{
    const kvb_group *g = &model.groups[0];
    for (uint32_t j = 0; j < n; j++) {
        logits[j] = 0;
        for (uint32_t c = 0; c < g->k_dim; c++)
            logits[j] +=
                g->scale * (double)q[head * g->k_dim + c] * (double)k[(j * g->kv_heads + head / 2) * g->k_dim + c];
    }
}

/* Logits lie where the profile puts them, with ordinary differences. */
TEST(test_logits_far_from_0)
{
    enum { N = 200 };
    static const struct {
        const char *profile;
        double least, most, spread_least, spread_most;
    } cases[] = {{"large-logits", 95, 505, 0.6, 1.6},
                 {"far-below", -160005, -79995, 0.6, 1.6},
                 {"equal-keys", -5, 5, 0, 0},
                 {"giant-channel", -6, 6, 0.4, 3},
                 {"subnormal", -1e-10, 1e-10, 0, 1e-10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float *k = rows_make(cases[i].profile, &model, KVB_ROWS_K, 2, N);
        float *q = rows_make(cases[i].profile, &model, KVB_ROWS_Q, 2, 8);
        for (uint32_t t = 0; t < 8; t++)
            for (uint32_t h = 0; h < 4; h++) {
                double logits[N], mean = 0, square = 0;
                logits_make(q + t * 4 * 128, k, h, N, logits);
                for (uint32_t j = 0; j < N; j++) {
                    assert_true(logits[j] >= cases[i].least && logits[j] <= cases[i].most);
                    mean += logits[j] / N;
                }
                for (uint32_t j = 0; j < N; j++)
                    square += (logits[j] - mean) * (logits[j] - mean) / N;
                assert_true(sqrt(square) >= cases[i].spread_least - 1e-12);
                assert_true(sqrt(square) <= cases[i].spread_most + 1e-12);
            }
        free(k);
        free(q);
    }
}

static double root_mean_square(const float *rows, uint32_t n, uint32_t dim, uint32_t channel)
{
    double square = 0;
    for (uint32_t t = 0; t < n; t++)
        square += (double)rows[(size_t)t * dim + channel] * (double)rows[(size_t)t * dim + channel] / n;
    return sqrt(square);
}

TEST(test_giant_channel)
{
    enum { N = 400 };
    for (unsigned kind = 0; kind < KVB_ROWS_ATTENDED; kind++) {
        const uint32_t dim = heads_of(&model, kind) * dim_of(&model, kind);
        float *rows = rows_make("giant-channel", &model, kind, 0, N);
        uint32_t unlike = 0;
        for (uint32_t c = 0; c < dim; c++) {
            const double size = root_mean_square(rows, N, dim, c);
            if (size > 0.8 && size < 1.2)
                continue;
            assert_true(kind == KVB_ROWS_Q ? size > 0.0008 && size < 0.004 : size > 250 && size < 1200);
            unlike++;
        }
        assert_int_equal(unlike, heads_of(&model, kind)); /* one in each head */
        free(rows);
    }
}

TEST(test_subnormal)
{
    for (unsigned kind = 0; kind < KVB_ROWS_ATTENDED; kind++)
        for (uint32_t layer = 0; layer < 2; layer++) {
            const uint32_t dim = dim_of(&model, kind);
            float *rows = rows_make("subnormal", &model, kind, layer, 1);
            for (uint32_t h = 0; h < heads_of(&model, kind); h++)
                for (uint32_t c = 0; c < dim; c++) {
                    const double size = fabs((double)rows[h * dim + c]);
                    const bool half = (layer + (kind == KVB_ROWS_Q ? h / 2 : h)) % 2;
                    assert_true(half ? size < 0x1p-14 && size > 0x1p-40 : size < 0x1p-126);
                    assert_true(size > 0);
                }
            free(rows);
        }
}

/* Multiples of 1/64 up to 1000 and zeros of both signs; in each format many elements lie half-way between two codes. */
TEST(test_grid)
{
    enum { N = 512 };
    static const float limits[] = {1000, 127, 8, 6, 448}; /* the largest code of each format */
    uint32_t zeros[2] = {0}, ties[5] = {0}, beyond = 0;
    for (kvb_rows kind = KVB_ROWS_K; kind <= KVB_ROWS_V; kind++) {
        const uint32_t dim = dim_of(&model, kind), n = N * heads_of(&model, kind) * dim;
        float *rows = rows_make("grid", &model, kind, 1, N);
        for (uint32_t i = 0; i < n; i += dim) {
            for (uint32_t c = 0; c < dim; c++) {
                const float x = rows[i + c];
                assert_true(fabsf(x) <= 1000 && fmodf(x, 0x1p-6f) == 0);
                assert_true(c % 16 || fabsf(x) == fabsf(rows[i])); /* each group's largest is the row's */
                assert_true(fabsf(x) <= fabsf(rows[i]));
                zeros[signbit(x) != 0] += x == 0;
                beyond += fabsf(x) > 448;
                for (uint32_t f = 1; f < 5; f++)
                    ties[f] += fabsf(fmodf(x / (fabsf(rows[i]) / limits[f]), 1)) == 0.5f;
            }
        }
        free(rows);
    }
    const uint32_t all = N * 2 * (128 + 64);
    assert_true(zeros[0] > all / 20 && zeros[1] > all / 20 && beyond > all / 20);
    for (uint32_t f = 1; f < 5; f++)
        assert_true(ties[f] > all / 20);
    float *k = rows_make("grid", &model, KVB_ROWS_K, 0, N), *q = rows_make("grid", &model, KVB_ROWS_Q, 0, 1);
    double w[N];
    weights_make(&model, q, k, 1, N, w);
    kvb_doubles_sort(w, N);
    assert_true(w[N - 1] < 0.9 && w[0] > 1e-9); /* neither one cell alone, nor none */
    free(k);
    free(q);
}

/* Decodes a row of tags: the code; all ones if its repetitions differ or an element is no symbol. */
static uint32_t tag_decode(const float *row, uint32_t dim)
{
    uint32_t bits = dim < 32 ? 2 : 1, period = 32 / bits, code = 0;
    for (uint32_t c = 0; c < dim; c++) {
        float symbol = bits == 2 ? (row[c] + 3) / 2 : (row[c] + 1) / 2;
        if (symbol != 0 && symbol != 1 && (bits == 1 || (symbol != 2 && symbol != 3)))
            return UINT32_MAX;
        if (c < period)
            code |= (uint32_t)symbol << bits * c;
        else if (row[c] != row[c - period])
            return UINT32_MAX;
    }
    return code;
}

TEST(test_tags)
{
    kvb_model m = model_of(63, 63, 63, 40, 31);
    static float rows[63 * 40];
    const kvb_profile *tags = kvb_profile_find("tags");
    const kvb_tag tag = kvb_tag_of(&m);
    static const uint64_t tokens[] = {0, 1, 77777, (1u << 19) - 1};
    assert_int_equal(tag.token_bits, 19);
    assert_int_equal(tag.layer_bits, 6);
    for (size_t t = 0; t < 4; t++) {
        for (uint32_t layer = 0; layer < 63; layer += 31) {
            for (unsigned kind = KVB_ROWS_K; kind <= KVB_ROWS_V; kind++) {
                kvb_profile_rows(tags, &m, 1, kind, layer, tokens[t], 9, rows);
                for (uint32_t h = 0; h < 63; h++) {
                    uint32_t code = tag_decode(rows + h * dim_of(&m, kind), dim_of(&m, kind));
                    assert_int_equal(kvb_tag_token(tag, code), tokens[t]);
                    assert_int_equal(code >> 19 & 63, layer);
                    assert_int_equal(code >> 25 & 63, h);
                    assert_int_equal(code >> 31, kind == KVB_ROWS_V);
                    assert_int_equal(code, kvb_tag_code(tag, tokens[t], layer, h, kind == KVB_ROWS_V));
                }
            }
        }
    }
    char why[200];
    static const struct {
        uint32_t layers, kv_heads, k_dim, v_dim;
        bool latent, can;
    } cases[] = {
        {63, 63, 40, 31, false, true},        {63, 63, 40, 16, false, true},
        {64, 63, 40, 31, false, true},        {1, 64, 40, 31, false, true},
        {1u << 25, 63, 40, 31, false, false}, {1, 1, 40, 15, false, false},
        {1, 1, 15, 40, false, false},         {1, 1, 40, 32, true, true},
        {1, 1, 40, 31, true, false}, /* V, the first 31 channels of K's 40, has not all bits */
        {1, 1, 31, 16, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m = model_of(cases[i].layers, cases[i].kv_heads, cases[i].kv_heads, cases[i].k_dim, cases[i].v_dim);
        m.groups[0].latent = cases[i].latent;
        if (!kvb_profile_supports(tags, &m, why, sizeof why) != cases[i].can)
            fail_msg("case %zu", i);
        if (!cases[i].can)
            assert_contains(why, "profile tags needs k_dim and v_dim of at least 16");
    }
    static const struct {
        uint32_t layers, kv_heads, token_bits;
    } room[] = {{1, 1, 30}, {1, 2, 29}, {2, 1, 29}, {3, 1, 29}, {4, 1, 28}, {48, 8, 22}, {63, 64, 19}, {64, 65, 17}};
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        m = model_of(room[i].layers, room[i].kv_heads, room[i].kv_heads, 40, 40);
        const kvb_tag of = kvb_tag_of(&m);
        assert_int_equal(of.token_bits, room[i].token_bits);
        const uint64_t last = (UINT64_C(1) << of.token_bits) - 1;
        assert_int_not_equal(kvb_tag_code(of, last, m.n_layers - 1, room[i].kv_heads - 1, true), UINT32_MAX);
    }
}

TEST(test_odd_dims)
{
    char why[200];
    kvb_model m = model_of(4, 4, 2, 15, 64);
    assert_int_equal(kvb_profile_supports(kvb_profile_find("llama"), &m, why, sizeof why), -ENOTSUP);
    assert_contains(why, "even k_dim");
    /* Even the smallest dims have room for the outliers beside the sink. */
    static float rows[2 * 4096];
    for (uint32_t dim = 4; dim <= 4096; dim = dim < 200 ? dim + 2 : 2 * dim) {
        m = model_of(4, 4, 2, dim, 64);
        if (kvb_profile_supports(kvb_profile_find("llama"), &m, why, sizeof why))
            continue;
        for (uint32_t layer = 0; layer < 4; layer++)
            kvb_profile_rows(kvb_profile_find("qwen"), &m, 5, KVB_ROWS_K, layer, 3, 3, rows);
    }
}
