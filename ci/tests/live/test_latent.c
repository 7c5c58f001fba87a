/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: latent attention absorbed (a latent row for all heads) and expanded (K and V of each head, made of the same
 * weights) are one model: over every cache, and by other kernels, the history of mla-decode says the same, and its rows
 * agree within their rounding; and a geometry that is no latent attention is refused. */
#include "fixture.h"

#include <math.h>

#include "workloads/live/model.h"

enum { TOKENS = 192, HEADS = 8, HEAD = 16, RANK = 32, ROPE = 8, REST = HEAD - ROPE };

/* The history's rows, of one form of the model. */
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

/* The largest difference between K of the heads and what the latent rows make of them, as a part of the largest K. Rows
 * of the second layer are made of what all heads attended in the first. */
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

static void test_absorbed_is_expanded(void **state)
{
    (void)state;
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
    assert_true(pairs > 2);    /* by each kernel, and over more than one cache */
    kvb_weights_close(weights);
}

/* Geometries that the forward pass would compute as something else. */
static void test_what_is_refused(void **state)
{
    (void)state;
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
        assert_non_null(strstr(why, i < 8 ? "latent attention" : "sink logits"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_absorbed_is_expanded),
                                       cmocka_unit_test(test_what_is_refused)};
    return cmocka_run_group_tests_name("latent attention", tests, NULL, NULL);
}
