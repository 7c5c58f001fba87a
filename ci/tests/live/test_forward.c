/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the forward pass is a Llama decoder (against a naive one in double, written from the formulas), its layers
 * with windows, chunks, sink logits, without positions and with latent attention too; a token's numbers are the same
 * bits however steps are cut; and a step without room is refused in one line.
 */
#include "fixture.h"

#include <errno.h>
#include <math.h>

#include "workloads/live/runner.h"

enum { N = 20, MAX = 1024 };

static const int32_t prompt[N] = {17, 3, 200, 45, 45, 9, 128, 255, 0, 77, 31, 8, 90, 4, 4, 61, 250, 2, 19, 100};

static void naive_norm(const double *x, const float *gain, uint32_t n, double eps, double *out)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] / sqrt(squares / n + eps) * (double)gain[i];
}

static void naive_product(const float *w, const double *x, uint32_t rows, uint32_t columns, double *y)
{
    for (uint32_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (uint32_t c = 0; c < columns; c++)
            y[r] += (double)w[r * columns + c] * x[c];
    }
}

static void naive_rope(double *x, uint32_t dim, double theta, uint32_t position)
{
    for (uint32_t i = 0; i < dim / 2; i++) {
        double angle = position / pow(theta, 2.0 * i / dim);
        double a = x[i], b = x[i + dim / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + dim / 2] = a * sin(angle) + b * cos(angle);
    }
}

static void naive_heads(double *x, const float *gain, const kvb_model_config *c, uint32_t heads, uint32_t position,
                        uint32_t layer)
{
    for (uint32_t h = 0; h < heads; h++, x += c->head_dim) {
        if (gain)
            naive_norm(x, gain, c->head_dim, (double)c->norm_eps, x);
        if (!c->no_rope_every || (layer + 1) % c->no_rope_every)
            naive_rope(x, c->head_dim, c->rope_theta, position);
    }
}

/* Multi-head attention whose K and V are made of a latent row, as DeepSeek-V2's paper has it (eq. 9 to 19). */
static void naive_latent(const kvb_model_config *c, const kvb_layer_weights *w, const double *row, uint32_t position,
                         double *q, double *k, double *v)
{
    double latent[MAX];
    uint32_t rank = c->kv_lora_rank, rest = c->head_dim - c->rope_dim;
    naive_product(w->q, row, c->heads * c->head_dim, c->hidden, q);
    naive_product(w->kv_a, row, rank + c->rope_dim, c->hidden, latent);
    naive_norm(latent, w->kv_a_norm, rank, (double)c->norm_eps, latent);
    naive_rope(latent + rank, c->rope_dim, c->rope_theta, position);
    for (uint32_t h = 0; h < c->heads; h++, q += c->head_dim, k += c->head_dim, v += c->v_dim) {
        const float *up = w->kv_b + h * (rest + c->v_dim) * rank;
        naive_rope(q + rest, c->rope_dim, c->rope_theta, position);
        naive_product(up, latent, rest, rank, k);
        memcpy(k + rest, latent + rank, c->rope_dim * sizeof *k);
        naive_product(up + rest * rank, latent, c->v_dim, rank, v);
    }
}

static void naive_attend(const kvb_model_config *c, const kvb_group *limits, const float *sinks, const double *q,
                         double k[][MAX], double v[][MAX], uint32_t t, double *out)
{
    uint32_t dim = c->head_dim, v_dim = c->kv_lora_rank ? c->v_dim : dim;
    for (uint32_t h = 0; h < c->heads; h++) {
        uint32_t kv = h * c->kv_heads / c->heads;
        double weight[N], total = sinks ? exp((double)sinks[h]) : 0;
        for (uint32_t j = 0; j <= t; j++) {
            double s = 0;
            weight[j] = 0;
            if (limits && limits->window && j + limits->window <= t && j >= limits->sinks)
                continue;
            if (limits && limits->chunk && j / limits->chunk != t / limits->chunk)
                continue;
            for (uint32_t i = 0; i < dim; i++)
                s += q[h * dim + i] * k[j][kv * dim + i];
            total += weight[j] = exp(s / sqrt(dim));
        }
        for (uint32_t i = 0; i < v_dim; i++) {
            out[h * v_dim + i] = 0;
            for (uint32_t j = 0; j <= t; j++)
                out[h * v_dim + i] += weight[j] / total * v[j][kv * v_dim + i];
        }
    }
}

/* Logits of every token of the prompt, [N][vocab]. The scenario says which layers have limits; NULL: none. */
static void naive_forward(const kvb_weights *w, const kvb_scenario *scenario, double *logits)
{
    static double x[N][MAX], q[N][MAX], k[N][MAX], v[N][MAX];
    double row[MAX], gate[MAX], up[MAX], attended[MAX];
    const kvb_model_config *c = &w->config;
    uint32_t q_row = c->heads * c->head_dim, kv_row = c->kv_heads * c->head_dim;
    uint32_t o_row = c->kv_lora_rank ? c->heads * c->v_dim : q_row;
    double eps = (double)c->norm_eps;
    for (uint32_t t = 0; t < N; t++)
        for (uint32_t i = 0; i < c->hidden; i++)
            x[t][i] = (double)w->embed[(uint32_t)prompt[t] * c->hidden + i];
    for (uint32_t l = 0; l < c->layers; l++) {
        const kvb_layer_weights *lw = &w->layers[l];
        for (uint32_t t = 0; t < N; t++) {
            naive_norm(x[t], lw->attn_norm, c->hidden, eps, row);
            if (c->kv_lora_rank) {
                naive_latent(c, lw, row, t, q[t], k[t], v[t]);
                continue;
            }
            naive_product(lw->q, row, q_row, c->hidden, q[t]);
            naive_product(lw->k, row, kv_row, c->hidden, k[t]);
            naive_product(lw->v, row, kv_row, c->hidden, v[t]);
            naive_heads(q[t], lw->q_norm, c, c->heads, t, l);
            naive_heads(k[t], lw->k_norm, c, c->kv_heads, t, l);
        }
        for (uint32_t t = 0; t < N; t++) {
            bool whole = !scenario || (scenario->full_every && (l + 1) % scenario->full_every == 0);
            naive_attend(c, whole ? NULL : &scenario->limits, lw->sinks, q[t], k, v, t, attended);
            naive_product(lw->o, attended, c->hidden, o_row, row);
            for (uint32_t i = 0; i < c->hidden; i++)
                x[t][i] += row[i];
            naive_norm(x[t], lw->mlp_norm, c->hidden, eps, row);
            naive_product(lw->gate, row, c->ffn, c->hidden, gate);
            naive_product(lw->up, row, c->ffn, c->hidden, up);
            for (uint32_t i = 0; i < c->ffn; i++)
                gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
            naive_product(lw->down, gate, c->hidden, c->ffn, row);
            for (uint32_t i = 0; i < c->hidden; i++)
                x[t][i] += row[i];
        }
    }
    for (uint32_t t = 0; t < N; t++) {
        naive_norm(x[t], w->norm, c->hidden, eps, row);
        naive_product(w->lm_head, row, c->vocab, c->hidden, logits + t * c->vocab);
    }
}

static void runner_open(const kvb_weights *weights, const kvb_scenario *scenario, const kvb_cache_type *cache,
                        uint32_t capacity, kvb_runner *runner)
{
    static kvb_model model; /* outlives the runner */
    kvb_live_model(scenario, weights, &model);
    kvb_runner_options options = {.key = "test",
                                  .weights = weights,
                                  .model = &model,
                                  .cache = cache,
                                  .k_pool = kvb_builtin_pools[0],
                                  .v_pool = kvb_builtin_pools[0],
                                  .kernel = &kvb_kernel_reference,
                                  .capacity = capacity,
                                  .seq_capacity = capacity,
                                  .max_seqs = 1,
                                  .step = N};
    if (kvb_runner_open(runner, &options))
        fail_msg("%s", runner->why);
}

/* Logits of every token of the prompt in steps of `step` tokens, [N][vocab]. */
static void live_forward(const kvb_weights *weights, const kvb_scenario *scenario, const kvb_cache_type *cache,
                         uint32_t step, float *logits)
{
    kvb_runner runner;
    uint32_t seq[N] = {0}, vocab = weights->config.vocab;
    runner_open(weights, scenario, cache, 64, &runner);
    for (uint32_t done = 0; done < N; done += step) {
        uint32_t n = step < N - done ? step : N - done;
        if (kvb_runner_step(&runner, KVB_EVENT_PREFILL, seq, prompt + done, n))
            fail_msg("%s", runner.why);
        memcpy(logits + done * vocab, runner.logits, (size_t)n * vocab * sizeof *logits);
    }
    kvb_runner_close(&runner);
}

static void compare_with_naive(const kvb_model_config *config, const kvb_scenario *scenario)
{
    kvb_weights *weights = weights_new(config);
    size_t n = (size_t)N * config->vocab;
    float *live = calloc(n, sizeof *live);
    double *naive = calloc(n, sizeof *naive), error = 0, largest = 0;
    assert_true(live && naive);
    live_forward(weights, scenario, scenario ? &kvb_cache_window : &kvb_cache_contiguous, 7, live);
    naive_forward(weights, scenario, naive);
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(live[i])); /* fmax() passes over NaN */
        error = fmax(error, fabs((double)live[i] - naive[i]));
        largest = fmax(largest, fabs(naive[i]));
    }
    print_message("# largest difference %.2e of logits up to %.2f\n", error, largest);
    /* a few hundred roundings of 2^-24 each, amplified by the layers; a wrong formula is off by far more */
    assert_true(error < 1e-4 * largest);
    free(naive);
    free(live);
    kvb_weights_close(weights);
}

static void test_forward_is_a_llama(void **state)
{
    (void)state;
    kvb_model_config config = kvb_model_config_default;
    compare_with_naive(&config, NULL);
}

static void test_forward_without_qk_norm_tied(void **state)
{
    (void)state;
    kvb_model_config config = kvb_model_config_default;
    config.qk_norm = false;
    config.tied = true;
    config.kv_heads = 1;
    config.head_dim = 12;
    config.hidden = 40;
    config.rope_theta = 500000.0;
    compare_with_naive(&config, NULL);
}

static void test_forward_with_windows(void **state)
{
    (void)state;
    const kvb_scenario some = {.full_every = 2, .limits = {.window = 3, .sinks = 1}}, all = {.limits = {.window = 5}};
    kvb_model_config config = kvb_model_config_default;
    config.layers = 4;
    compare_with_naive(&config, &some);
    compare_with_naive(&config, &all);
}

static void test_forward_with_chunks_and_without_positions(void **state)
{
    (void)state;
    const kvb_scenario some = {.full_every = 2, .limits = {.chunk = 6}};
    kvb_model_config config = kvb_model_config_default;
    config.layers = 4;
    config.no_rope_every = 2;
    compare_with_naive(&config, &some);
}

static void test_forward_with_sink_logits(void **state)
{
    (void)state;
    const kvb_scenario some = {.full_every = 2, .limits = {.window = 5}};
    kvb_model_config config = kvb_model_config_default;
    config.layers = 4; /* each a group of its own */
    config.sink_logits = true;
    compare_with_naive(&config, NULL);
    compare_with_naive(&config, &some);
}

static void test_forward_with_latent_attention(void **state)
{
    (void)state;
    kvb_model_config config;
    kvb_scenario_config(&kvb_scenario_mla_decode, &config);
    compare_with_naive(&config, NULL);
    config.expanded = true;
    compare_with_naive(&config, NULL);
}

static void test_batching_changes_no_bit(void **state)
{
    (void)state;
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    size_t n = (size_t)N * weights->config.vocab;
    float *whole = calloc(n, sizeof *whole), *cut = calloc(n, sizeof *cut);
    assert_true(whole && cut);
    live_forward(weights, NULL, &kvb_cache_contiguous, N, whole);
    const kvb_cache_type *const caches[] = {&kvb_cache_contiguous, &kvb_cache_recompute, &kvb_cache_seq,
                                            &kvb_cache_tree, &kvb_cache_slab};
    for (size_t c = 0; c < sizeof caches / sizeof *caches; c++)
        for (uint32_t step = 1; step <= 8; step += 3) {
            live_forward(weights, NULL, caches[c], step, cut);
            assert_memory_equal(whole, cut, n * sizeof *whole);
        }
    free(cut);
    free(whole);
    kvb_weights_close(weights);
}

/* ---- room ------------------------------------------------------------------------------------------------ */

/* A cache that says there is room where there is none. */
static uint32_t any_room(const kvb_store *store, const kvb_change *change)
{
    (void)store, (void)change;
    return UINT32_MAX;
}

static int never_prepared(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    (void)change, (void)feed, (void)plan;
    return kvb_store_fail(store, -ENOSPC, "there is none");
}

/* can_extend is asked before each step, can_propose before each level of a tree: a line, and nothing has changed. */
static void test_no_room_is_one_line(void **state)
{
    (void)state;
    static const int32_t roots[] = {-1, -1, -1, -1};
    kvb_cache_type liar = kvb_cache_tree;
    liar.name = "liar";
    liar.room = any_room;
    liar.prepare = never_prepared;
    const struct {
        const kvb_cache_type *cache;
        bool tree;
        int err;
        const char *why;
    } cases[] = {
        {&kvb_cache_seq, false, -ENOSPC, "seq has no room for a step of 4 tokens"},
        {&kvb_cache_recompute, false, -ENOSPC, "recompute has no room for a step of 4 tokens"},
        {&kvb_cache_slab, false, -ENOSPC, "slab has no room for a step of 4 tokens"},
        {&kvb_cache_tree, true, -ENOSPC, "tree has no room for a step of 4 tokens"},
        {&liar, false, -EPROTO, "liar said that there is room for a step of 4 tokens, and refused it: there is none"},
        {&liar, true, -EPROTO, "liar said that there is room for a step of 4 tokens, and refused it: there is none"},
    };
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_runner runner;
        uint32_t seq[N] = {0};
        bool lies = cases[i].cache == &liar;
        runner_open(weights, NULL, cases[i].cache, lies ? 64 : 10, &runner);
        for (uint32_t done = 0; !lies && done < 8; done += 4)
            assert_int_equal(kvb_runner_step(&runner, KVB_EVENT_STEP, seq, prompt + done, 4), 0);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(cases[i].tree ? kvb_runner_propose(&runner, seq, roots, prompt, 4)
                                           : kvb_runner_step(&runner, KVB_EVENT_STEP, seq, prompt, 4),
                             cases[i].err);
            assert_string_equal(runner.why, cases[i].why);
        }
        if (!lies)
            assert_int_equal(kvb_runner_step(&runner, KVB_EVENT_STEP, seq, prompt, 2), 0); /* what fits still does */
        kvb_runner_close(&runner);
    }
    kvb_weights_close(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_is_a_llama),
        cmocka_unit_test(test_forward_without_qk_norm_tied),
        cmocka_unit_test(test_forward_with_windows),
        cmocka_unit_test(test_forward_with_chunks_and_without_positions),
        cmocka_unit_test(test_forward_with_sink_logits),
        cmocka_unit_test(test_forward_with_latent_attention),
        cmocka_unit_test(test_batching_changes_no_bit),
        cmocka_unit_test(test_no_room_is_one_line),
    };
    return cmocka_run_group_tests_name("live forward pass", tests, NULL, NULL);
}
