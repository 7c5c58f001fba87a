/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that the values of a trace are the profile's or the recorded rows, in one aligned block each, the
 * same however many parts make them, and that recorded tensors that disagree with the trace are refused. */
#include "scratch.h"

#include "workloads/safetensors.h"
#include "workloads/values.h"

#include <errno.h>
#include <math.h>

#define EVENTS                                                                                                         \
    "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":5}}\n{\"fill\":{\"seq\":1,\"n\":600}}\n"                                 \
    "{\"step\":{\"pos\":[5,600],\"seq\":[0,1]}}\n"
#define N_TOKENS 607u

static kvb_trace *load(const char *text)
{
    char why[300] = "";
    kvb_trace *trace;
    if (kvb_trace_load(scratch_text("t.jsonl", text), 0, &trace, why, sizeof why))
        fail_msg("%s", why);
    return trace;
}

/* A team of three that works backwards. */
static void three_parts(void *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    *(int *)team += 1;
    for (uint32_t i = 3; i-- > 0;)
        part(ctx, i, 3);
}

static void test_seeded(void **state)
{
    (void)state;
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
            kvb_profile_find("llama")->rows(&t->header.model, 1, KVB_ROWS_K, 1, token, t->events[e].pos[i], rows);
            assert_memory_equal(rows, kvb_values_rows(a, KVB_ROWS_K, 1, token), 32 * sizeof(float));
            kvb_profile_find("llama")->rows(&t->header.model, 1, KVB_ROWS_Q, 0, token, t->events[e].pos[i], rows);
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

/* Layers of unlike groups: each has rows of its own shape and numbers, wherever it lies; latent rows have no V. */
/* Tokens of a call that must be refused are none. */
static void test_refused(void **state)
{
    (void)state;
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

static void test_unlike_groups(void **state)
{
    (void)state;
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
                    kvb_profile_find(profiles[p])->rows(m, 1, kind, layer, token, pos, want);
                    assert_memory_equal(rows, want, row * sizeof(float));
                    assert_ptr_equal(rows, a->block[kind] + floats + token * row); /* layers lie one after the other */
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
    /* What a profile cannot do for one group, it cannot do for the trace. */
    kvb_values *v;
    t->header.model.groups[2].k_dim = 14;
    assert_int_equal(kvb_values_open(t, "peaked", 0, NULL, NULL, &v, why, sizeof why), -ENOTSUP);
    assert_contains(why, "needs a k_dim of at least 16");
    kvb_trace_free(t);
}

static void test_header_profile(void **state)
{
    (void)state;
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
    assert_int_equal(kvb_values_open(t, "gaussian", 0, NULL, NULL, &v, why, sizeof why), -ENOMEM);
    assert_contains(why, "values need ");
    kvb_trace_free(t);
    t = load(HEADER); /* no tokens at all */
    assert_int_equal(kvb_values_open(t, NULL, 0, NULL, NULL, &v, why, sizeof why), 0);
    kvb_values_free(v);
    kvb_trace_free(t);
}

/* ---- recorded ------------------------------------------------------------------------------------------ */

/* Writes the tensors of seven tokens as the trace's model wants them; `change` may spoil k.1. Element c of tensor i is
 * 10000 i + c. */
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
    if (kvb_safetensors_write(scratch_path("v.safetensors"), tensors, n, NULL, why, sizeof why))
        fail_msg("%s", why);
}

/* A trace of seven tokens whose values are recorded. */
static kvb_trace *recorded_load(const char *seeded)
{
    static const char was[] = "\"values\":{\"profile\":\"gaussian\",\"seed\":1}}\n";
    char text[2048];
    snprintf(text, sizeof text, "%.*s\"values\":{\"tensors\":\"v.safetensors\"}}\n%s",
             (int)(strlen(seeded) - strlen(was)), seeded, "{\"prefill\":{\"seq\":0,\"from\":0,\"n\":7}}\n");
    return load(text);
}

static void test_recorded(void **state)
{
    (void)state;
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
    /* Another profile may stand in for recorded values. */
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

static void test_bad_recorded(void **state)
{
    (void)state;
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
    unlink(scratch_path("v.safetensors"));
    assert_int_equal(kvb_values_open(t, NULL, 0, NULL, NULL, &v, why, sizeof why), -ENOENT);
    assert_contains(why, "v.safetensors: cannot be read: No such file or directory");
    kvb_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeded),         cmocka_unit_test(test_refused),  cmocka_unit_test(test_unlike_groups),
        cmocka_unit_test(test_header_profile), cmocka_unit_test(test_recorded), cmocka_unit_test(test_bad_recorded),
    };
    return cmocka_run_group_tests_name("values", tests, scratch_setup, scratch_teardown);
}
