/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: no cache changes what the model says, and speculative decoding says what plain greedy decoding says. */
#include "fixture.h"

#include <errno.h>

#include "workloads/live/model.h"

/* Each with weights of the scenario's own geometry. */
/* Over recompute, which sees no row of a cache; over seq what needs rows that are kept. */
static void test_every_cache_says_the_same(void **state)
{
    (void)state;
    for (const kvb_scenario *const *s = kvb_scenarios; *s; s++) {
        const kvb_cache_type *base =
            kvb_scenario_fits(*s, &kvb_cache_recompute) ? &kvb_cache_recompute : &kvb_cache_seq;
        kvb_live_options options = options_of(NULL, base);
        options.kernel = &kvb_live_kernel_exact; /* what traces are recorded with */
        kvb_live_outcome truth = play(*s, &options);
        options.kernel = &kvb_kernel_reference;
        uint32_t others = 0;
        for (const kvb_cache_type *const *cache = kvb_builtin_caches; *cache; cache++) {
            if (*cache == base || !kvb_scenario_fits(*s, *cache))
                continue;
            options.cache = *cache;
            kvb_live_outcome said = play(*s, &options);
            if (!says_the_same(&said, &truth))
                fail_msg("%s over %s does not say what it says over %s", (*s)->name, (*cache)->name, base->name);
            kvb_live_outcome_free(&said);
            others++;
        }
        print_message("# %s: %u caches say what %s says\n", (*s)->name, others, base->name);
        assert_true(others > 0 || (*s)->needs & KVB_CACHE_DIVIDE); /* which seq alone can do */
        kvb_live_outcome_free(&truth);
    }
}

static void test_eagle_says_what_greedy_says(void **state)
{
    (void)state;
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        kvb_live_options options = options_of(weights, &kvb_cache_tree);
        options.seed = seed; /* other prompts, another draft */
        kvb_live_outcome eagle = play(&kvb_scenario_eagle_tree, &options);
        options.cache = &kvb_cache_contiguous;
        options.n_greedy = (uint32_t)eagle.n;
        kvb_live_outcome greedy = play(&kvb_scenario_eagle_greedy, &options);
        assert_true(says_the_same(&eagle, &greedy));

        double per_pass = (double)eagle.spoken / eagle.rounds;
        print_message("# seed %u: %u rounds, %.2f tokens per target pass\n", (unsigned)seed, eagle.rounds, per_pass);
        assert_true(eagle.rounds >= 40);
        assert_true(per_pass >= 2.5 && per_pass <= 4.5);
        assert_int_equal(eagle.n, eagle.spoken + 1); /* the first comes from the prefill */
        kvb_live_outcome_free(&eagle);
        kvb_live_outcome_free(&greedy);
    }
    kvb_weights_close(weights);
}

/* Trees of three sequences at once, with a fourth decoded beside them: other prompts and drafts accept other paths. */
static void test_trees_say_what_greedy_says(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        kvb_live_options options = options_of(NULL, &kvb_cache_seq);
        options.seed = seed;
        kvb_live_outcome trees = play(&kvb_scenario_spec_batch, &options);
        kvb_live_outcome greedy = play(&kvb_scenario_spec_greedy, &options);
        assert_true(says_the_same(&trees, &greedy));
        print_message("# seed %u: %u rounds of up to three trees, %u tokens\n", (unsigned)seed, trees.rounds,
                      trees.spoken);
        kvb_live_outcome_free(&trees);
        kvb_live_outcome_free(&greedy);
    }
}

/* A kernel that takes bit rows only makes the caller expand the mask, once a step for all layers. */
static void test_expanded_masks_are_of_this_step(void **state)
{
    (void)state;
    static const struct {
        const kvb_scenario *scenario;
        const kvb_cache_type *cache;
    } pairs[] = {
        {&kvb_scenario_plain_decode, &kvb_cache_contiguous},
        {&kvb_scenario_agent_fork, &kvb_cache_seq},
        {&kvb_scenario_eagle_tree, &kvb_cache_tree},
        {&kvb_scenario_sliding_window, &kvb_cache_window}, /* two groups: each has a mask of its own */
        {&kvb_scenario_sliding_window, &kvb_cache_seq},
    };
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    kvb_kernel explicit_only = kvb_kernel_reference;
    explicit_only.masks = KVB_MASK_BIT(KVB_MASK_EXPLICIT);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        kvb_live_options options = options_of(weights, pairs[i].cache);
        kvb_live_outcome truth = play(pairs[i].scenario, &options);
        options.kernel = &explicit_only;
        kvb_live_outcome said = play(pairs[i].scenario, &options);
        assert_true(says_the_same(&said, &truth));
        kvb_live_outcome_free(&said);
        kvb_live_outcome_free(&truth);
    }
    kvb_weights_close(weights);
}

static void test_model_is_lively(void **state)
{
    (void)state;
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    kvb_live_options options = options_of(weights, &kvb_cache_contiguous);
    kvb_live_outcome said = play(&kvb_scenario_plain_decode, &options);
    size_t distinct = 0;
    for (size_t i = 0; i < said.n; i++) {
        size_t before = 0;
        while (before < i && said.tokens[before] != said.tokens[i])
            before++;
        distinct += before == i;
    }
    print_message("# %zu distinct tokens of %zu\n", distinct, said.n);
    assert_true(2 * distinct > said.n); /* a short cycle would have few */
    kvb_live_outcome_free(&said);
    kvb_weights_close(weights);
}

static void test_what_a_cache_cannot_do_is_named(void **state)
{
    (void)state;
    static const struct {
        const kvb_scenario *scenario;
        const kvb_cache_type *cache;
        const char *why;
    } cases[] = {
        {&kvb_scenario_eagle_tree, &kvb_cache_contiguous,
         "eagle-tree needs propose and commit, which cache contiguous cannot do"},
        {&kvb_scenario_agent_fork, &kvb_cache_contiguous,
         "agent-fork needs several sequences, which cache contiguous cannot do"},
        {&kvb_scenario_plain_decode, &kvb_cache_window,
         "plain-decode: no layer has a window or chunks: cache window would be cache seq"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_live_options options = options_of(NULL, cases[i].cache);
        kvb_live_outcome outcome;
        char why[320] = "";
        assert_false(kvb_scenario_fits(cases[i].scenario, cases[i].cache));
        assert_int_equal(kvb_live_play(cases[i].scenario, &options, &outcome, why, sizeof why), -ENOTSUP);
        assert_string_equal(why, cases[i].why);
        kvb_live_outcome_free(&outcome);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cache_says_the_same),
        cmocka_unit_test(test_eagle_says_what_greedy_says),
        cmocka_unit_test(test_trees_say_what_greedy_says),
        cmocka_unit_test(test_expanded_masks_are_of_this_step),
        cmocka_unit_test(test_model_is_lively),
        cmocka_unit_test(test_what_a_cache_cannot_do_is_named),
    };
    return cmocka_run_group_tests_name("live caches agree", tests, NULL, NULL);
}
