/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the decoder that records traces, layer by layer. */
#include "ci/tests/tests.h"
#include "ci/tests/live/fixture.h"
#include "workloads/live/model.h"
#include "workloads/rng.h"
#include "workloads/live/runner.h"

/* Shows: the parts of the live model (RoPE, greedy choice, seeded weights, noise) follow their headers. */

enum { DIM = 16 };

static void row_fill(float *row, uint64_t stream)
{
    for (uint32_t i = 0; i < DIM; i++)
        row[i] = kvb_live_normal(7, stream, i);
}

static double product(const float *a, const float *b)
{
    double sum = 0;
    for (uint32_t i = 0; i < DIM; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void turn(float *x, uint32_t dim, uint32_t position, double theta)
{
    const kvb_rope rope = {.dims = dim, .base = theta};
    float angles[DIM];
    kvb_rope_angles(&rope, position, angles);
    kvb_rope_turn(&rope, angles, x);
}

TEST(test_rope_pairs_halves)
{
    float x[4] = {1, 0, 0, 0};
    turn(x, 4, 1, 10000.0);
    /* pair (0, 2) is rotated by 1 radian, pair (1, 3) by 1/100 */
    assert_float_equal(x[0], cosf(1.0f), 1e-6);
    assert_float_equal(x[2], sinf(1.0f), 1e-6);
    float y[4] = {0, 1, 0, 0};
    turn(y, 4, 1, 10000.0);
    assert_float_equal(y[1], cosf(0.01f), 1e-6);
    assert_float_equal(y[3], sinf(0.01f), 1e-6);
}

TEST(test_rope_is_relative)
{
    double at[2];
    for (uint32_t shift = 0; shift < 2; shift++) {
        float q[DIM], k[DIM];
        row_fill(q, 1);
        row_fill(k, 2);
        double length = product(q, q);
        turn(q, DIM, 9 + 1000 * shift, 10000.0);
        turn(k, DIM, 4 + 1000 * shift, 10000.0);
        assert_float_equal(product(q, q), length, 1e-4);
        at[shift] = product(q, k);
    }
    assert_float_equal(at[0], at[1], 1e-3);
    float still[DIM], same[DIM];
    row_fill(still, 3);
    memcpy(same, still, sizeof same);
    turn(still, DIM, 0, 10000.0);
    assert_memory_equal(still, same, sizeof same);
}

TEST(test_best_prefers_low_ids_on_ties)
{
    const float logits[] = {1, 5, -2, 5, 3, 5, 3};
    int32_t best[7];
    kvb_model_best(logits, 7, 7, best);
    const int32_t order[] = {1, 3, 5, 4, 6, 0, 2};
    assert_memory_equal(best, order, sizeof order);
    for (uint32_t n = 1; n < 7; n++) {
        kvb_model_best(logits, 7, n, best);
        assert_memory_equal(best, order, n * sizeof *order);
    }
}

TEST(test_normals_are_normal)
{
    enum { N = 100000 };
    double sum = 0, squares = 0, fourth = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = kvb_live_normal(3, 5, i);
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    assert_float_equal(sum / N, 0.0, 0.02);
    assert_float_equal(squares / N, 1.0, 0.02);
    assert_float_equal(fourth / N, 2.925, 0.1); /* 3 - 1.2/16: the sum of 16 uniforms */
}

TEST(test_weights_follow_the_seed)
{
    char why[160];
    kvb_weights *a = weights_new(&kvb_model_config_default), *b = weights_new(&kvb_model_config_default), *c;
    assert_memory_equal(a->block, b->block, a->block_floats * sizeof(float));
    assert_int_equal(kvb_weights_open(&kvb_model_config_default, &c, why, sizeof why), 0);
    kvb_weights_seed(c, SEED + 1);
    size_t equal = 0;
    for (size_t i = 0; i < a->block_floats; i++)
        equal += fabsf(a->block[i] - c->block[i]) <= 0;
    assert_true(equal < a->block_floats / 1000);
    kvb_weights_close(a);
    kvb_weights_close(b);
    kvb_weights_close(c);
}

/* Names and shapes as transformers' LlamaForCausalLM and Qwen3ForCausalLM have them. */
TEST(test_tensors_are_named_and_shaped_like_llamas)
{
    static const struct {
        const char *name;
        uint64_t shape[2];
        uint32_t n_dims;
    } expected[] = {
        {"model.embed_tokens.weight", {50, 40}, 2},
        {"model.layers.0.input_layernorm.weight", {40, 1}, 1},
        {"model.layers.0.self_attn.q_proj.weight", {24, 40}, 2},
        {"model.layers.0.self_attn.k_proj.weight", {12, 40}, 2},
        {"model.layers.0.self_attn.v_proj.weight", {12, 40}, 2},
        {"model.layers.0.self_attn.q_norm.weight", {6, 1}, 1},
        {"model.layers.0.self_attn.k_norm.weight", {6, 1}, 1},
        {"model.layers.0.self_attn.o_proj.weight", {40, 24}, 2},
        {"model.layers.0.post_attention_layernorm.weight", {40, 1}, 1},
        {"model.layers.0.mlp.gate_proj.weight", {56, 40}, 2},
        {"model.layers.0.mlp.up_proj.weight", {56, 40}, 2},
        {"model.layers.0.mlp.down_proj.weight", {40, 56}, 2},
        {"model.norm.weight", {40, 1}, 1},
        {"lm_head.weight", {50, 40}, 2},
    };
    enum { TENSORS = sizeof expected / sizeof *expected };
    kvb_model_config config = kvb_model_config_default;
    config.layers = 1;
    config.head_dim = 6;
    config.hidden = 40;
    config.ffn = 56;
    config.vocab = 50;
    kvb_weights *weights = weights_new(&config);
    assert_int_equal(weights->n_tensors, TENSORS);
    for (size_t i = 0; i < TENSORS; i++) {
        const kvb_weight *w = &weights->tensors[i];
        assert_string_equal(w->name, expected[i].name);
        assert_int_equal(w->n_dims, expected[i].n_dims);
        assert_int_equal(w->shape[0], expected[i].shape[0]);
        assert_int_equal(w->shape[1], expected[i].shape[1]);
    }
    kvb_weights_close(weights);
}

TEST(test_blur_is_relative_noise)
{
    kvb_weights *w = weights_new(&kvb_model_config_default), *draft;
    assert_int_equal(kvb_weights_blur(w, 9, 0.1f, &draft), 0);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const kvb_weight from = w->tensors[i], to = draft->tensors[i];
        double difference = 0, squares = 0;
        for (size_t e = 0; e < from.n; e++) {
            difference += ((double)to.data[e] - from.data[e]) * ((double)to.data[e] - from.data[e]);
            squares += (double)from.data[e] * from.data[e];
        }
        if (from.n_dims == 1)
            assert_true(difference <= 0);
        else
            assert_float_equal(sqrt(difference / squares), 0.1, 0.01);
    }
    kvb_weights_close(draft);
    kvb_weights_close(w);
}

TEST(test_bad_models_are_refused)
{
    const struct {
        kvb_model_config config;
        const char *names;
    } bad[] = {
        {{.layers = 0}, "num_hidden_layers"},
        {{.layers = 1, .heads = 3, .kv_heads = 2, .head_dim = 4, .hidden = 8, .ffn = 8, .vocab = 8}, "multiple"},
        {{.layers = 1, .heads = 2, .kv_heads = 2, .head_dim = 5, .hidden = 8, .ffn = 8, .vocab = 8}, "even"},
        {{.layers = 1, .heads = 2, .kv_heads = 2, .head_dim = 4, .hidden = 8, .ffn = 8, .vocab = 8}, "rope_theta"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[160] = "";
        kvb_weights *weights;
        assert_true(kvb_weights_open(&bad[i].config, &weights, why, sizeof why) < 0);
        assert_contains(why, bad[i].names);
    }
}

/* Shows: absorbed latent attention (a latent row for all heads) and expanded (K and V of each head, from the same
 * weights) are one model: mla-decode gives the same tokens over every cache and with other kernels, and rows that agree
 * within their rounding. A geometry that is no latent attention is refused. */

enum { TOKENS = 192, HEADS = 8, HEAD = 16, RANK = 32, ROPE = 8, REST = HEAD - ROPE };

/* Records the rows of mla-decode with one form of the model. */
static kvb_live_outcome record(kvb_weights *weights, bool expanded, const kvb_cache_type *cache,
                               const kvb_kernel *kernel, kvb_recorder *recorder)
{
    kvb_model model;
    weights->config.expanded = expanded;
    kvb_live_model(&kvb_scenario_mla_decode, weights, &model);
    const kvb_group *g = &model.groups[0];
    assert_true(g->latent == !expanded && g->kv_heads == (expanded ? HEADS : 1));
    assert_int_equal(g->k_dim, expanded ? HEAD : RANK + ROPE);
    assert_int_equal(kvb_recorder_open(recorder, &model), 0);
    kvb_live_options options = options_of(weights, cache);
    options.kernel = kernel;
    options.recorder = recorder;
    kvb_live_outcome said = play(&kvb_scenario_mla_decode, &options);
    assert_int_equal(recorder->n_tokens, TOKENS);
    return said;
}

/* The largest difference between the heads' K and K computed from latent rows, relative to the largest K. Rows of the
 * second layer depend on the attention of all heads in the first. */
static double difference(const kvb_weights *weights, const kvb_recorder *absorbed, const kvb_recorder *expanded,
                         uint32_t layer)
{
    double worst = 0, largest = 0;
    uint32_t up_rows = REST + weights->config.v_dim;
    for (uint32_t t = 0; t < TOKENS; t++) {
        const float *row = absorbed->rows[KVB_ROWS_K][layer] + t * (RANK + ROPE);
        const float *k = expanded->rows[KVB_ROWS_K][layer] + t * HEADS * HEAD;
        for (uint32_t i = 0; i < HEADS * HEAD; i++) {
            uint32_t h = i / HEAD, c = i % HEAD;
            const float *up = weights->layers[layer].kv_b + (h * up_rows + c) * RANK;
            double made = c < REST ? 0 : (double)row[RANK + c - REST];
            for (uint32_t r = 0; c < REST && r < RANK; r++)
                made += (double)up[r] * (double)row[r];
            assert_true(isfinite(k[i])); /* fmax() passes over NaN */
            worst = fmax(worst, fabs(made - (double)k[i]));
            largest = fmax(largest, fabs(made));
        }
    }
    return worst / largest;
}

TEST(test_absorbed_is_expanded)
{
    const kvb_kernel *const kernels[] = {&kvb_kernel_reference, &kvb_live_kernel_exact, &kvb_kernel_flash};
    char why[256];
    kvb_weights *weights = NULL;
    uint32_t pairs = 0;
    double worst = 0;
    assert_int_equal(kvb_scenario_weights(&kvb_scenario_mla_decode, SEED, &weights, why, sizeof why), 0);
    for (const kvb_cache_type *const *cache = kvb_builtin_caches; *cache; cache++)
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels && kvb_scenario_fits(&kvb_scenario_mla_decode, *cache);
             i++) {
            if (i > 0 && *cache != &kvb_cache_contiguous)
                continue;
            kvb_recorder rows[2];
            kvb_live_outcome said[2];
            for (int expanded = 0; expanded < 2; expanded++)
                said[expanded] = record(weights, expanded, *cache, kernels[i], &rows[expanded]);
            if (!says_the_same(&said[0], &said[1]))
                fail_msg("over %s, %s: absorbed and expanded do not say the same", (*cache)->name, kernels[i]->name);
            for (uint32_t layer = 0; layer < weights->config.layers; layer++)
                worst = fmax(worst, difference(weights, &rows[0], &rows[1], layer));
            for (int form = 0; form < 2; form++) {
                kvb_recorder_close(&rows[form]);
                kvb_live_outcome_free(&said[form]);
            }
            pairs++;
        }
    print_message("# rows of the two forms differ by %.2e of the largest\n", worst);
    assert_true(worst < 1e-5); /* a hundred roundings of 2^-24 */
    assert_true(pairs > 2);    /* each kernel, and more than one cache */
    kvb_weights_close(weights);
}

/* Geometries that the forward pass would compute wrongly. */
TEST(test_what_is_refused)
{
    kvb_model_config good, bad[9];
    char why[256];
    kvb_scenario_config(&kvb_scenario_mla_decode, &good);
    assert_int_equal(kvb_model_config_check(&good, why, sizeof why), 0);
    for (size_t i = 0; i < 9; i++)
        bad[i] = good;
    bad[0].kv_heads = 4;
    bad[1].qk_norm = true;
    bad[2].no_rope_every = 2;
    bad[3].v_dim = 0;
    bad[4].rope_dim = 0;
    bad[5].rope_dim = 7;
    bad[6].rope_dim = good.head_dim;
    bad[7].rope_dim = good.head_dim + 2;
    bad[8].sink_logits = true; /* a group for each layer */
    bad[8].layers = KVB_MODEL_GROUPS + 1;
    for (size_t i = 0; i < 9; i++) {
        assert_true(kvb_model_config_check(&bad[i], why, sizeof why) < 0);
        assert_contains(why, i < 8 ? "latent attention" : "sink logits");
    }
}

/*
 * Shows: the forward pass is a Llama decoder (against a naive one in double, written from the formulas), also with
 * windows, chunks, sink logits, layers without positions and latent attention; a token's bits do not depend on how
 * steps are cut; and a step without room is refused in one line.
 */

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

/* Multi-head attention with K and V computed from a latent row (DeepSeek-V2's paper, eq. 9 to 19). */
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

/* Logits of every token of the prompt, [N][vocab]. The scenario gives the limits of layers; NULL: none. */
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
    kvb_runner_options options = {.weights = weights,
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

TEST(test_forward_is_a_llama)
{
    kvb_model_config config = kvb_model_config_default;
    compare_with_naive(&config, NULL);
}

TEST(test_forward_without_qk_norm_tied)
{
    kvb_model_config config = kvb_model_config_default;
    config.qk_norm = false;
    config.tied = true;
    config.kv_heads = 1;
    config.head_dim = 12;
    config.hidden = 40;
    config.rope_theta = 500000.0;
    compare_with_naive(&config, NULL);
}

TEST(test_forward_with_windows)
{
    const kvb_scenario some = {.full_every = 2, .limits = {.window = 3, .sinks = 1}}, all = {.limits = {.window = 5}};
    kvb_model_config config = kvb_model_config_default;
    config.layers = 4;
    compare_with_naive(&config, &some);
    compare_with_naive(&config, &all);
}

TEST(test_forward_with_chunks_and_without_positions)
{
    const kvb_scenario some = {.full_every = 2, .limits = {.chunk = 6}};
    kvb_model_config config = kvb_model_config_default;
    config.layers = 4;
    config.no_rope_every = 2;
    compare_with_naive(&config, &some);
}

TEST(test_forward_with_sink_logits)
{
    const kvb_scenario some = {.full_every = 2, .limits = {.window = 5}};
    kvb_model_config config = kvb_model_config_default;
    config.layers = 4; /* each has its own group */
    config.sink_logits = true;
    compare_with_naive(&config, NULL);
    compare_with_naive(&config, &some);
}

TEST(test_forward_with_latent_attention)
{
    kvb_model_config config;
    kvb_scenario_config(&kvb_scenario_mla_decode, &config);
    compare_with_naive(&config, NULL);
    config.expanded = true;
    compare_with_naive(&config, NULL);
}

TEST(test_batching_changes_no_bit)
{
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

/* A cache that always claims to have room. */
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

/* The runner calls can_extend before each step, can_propose before each level of a tree. A step without room gives one
 * line and changes nothing. */
TEST(test_no_room_is_one_line)
{
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
            assert_int_equal(kvb_runner_step(&runner, KVB_EVENT_STEP, seq, prompt, 2),
                             0); /* a step that fits still succeeds */
        kvb_runner_close(&runner);
    }
    kvb_weights_close(weights);
}
