/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the live model: weights, options, a temporary directory. */
#ifndef KVB_TESTS_LIVE_FIXTURE_H
#define KVB_TESTS_LIVE_FIXTURE_H

#include "ci/tests/tests.h"
#include "kernels/kernels.h"
#include "workloads/live/live.h"

#define SEED 1u

static inline kvb_weights *weights_new(const kvb_model_config *config)
{
    kvb_weights *weights = NULL;
    char why[256] = "";
    if (kvb_weights_open(config, &weights, why, sizeof why))
        fail_msg("%s", why);
    kvb_weights_seed(weights, SEED);
    return weights;
}

static inline kvb_live_options options_of(const kvb_weights *weights, const kvb_cache_type *cache)
{
    return (kvb_live_options){.weights = weights,
                              .seed = SEED,
                              .cache = cache,
                              .pool = kvb_builtin_pools[0], /* f32 */
                              .kernel = &kvb_kernel_reference,
                              .scan = &kvb_kernel_scan_reference};
}

/* Plays the scenario; an error fails the test with its reason. */
static inline kvb_live_outcome play(const kvb_scenario *scenario, const kvb_live_options *options)
{
    kvb_live_outcome outcome;
    char why[320] = "";
    if (kvb_live_play(scenario, options, &outcome, why, sizeof why))
        fail_msg("%s over %s: %s", scenario->name, options->cache->name, why);
    assert_true(outcome.n > 0);
    return outcome;
}

static inline bool says_the_same(const kvb_live_outcome *a, const kvb_live_outcome *b)
{
    return a->n == b->n && !memcmp(a->tokens, b->tokens, a->n * sizeof *a->tokens);
}

#endif
