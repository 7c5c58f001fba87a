/* SPDX-License-Identifier: Apache-2.0 */
/* The list of scenarios, and how one is played. */
#include "workloads/live/scenario.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/live/rng.h"

#define MAX_PREFILL 128u
#define PROMPTS     0x70726f6d70740000u /* stream of the prompts' random numbers: "prompt" */

const kvb_scenario *const kvb_scenarios[] = {
    &kvb_scenario_plain_decode, &kvb_scenario_batched_multi_seq, &kvb_scenario_agent_fork,
    &kvb_scenario_eagle_tree,   &kvb_scenario_parallel_sample,   NULL,
};

const kvb_scenario *kvb_scenario_find(const char *name)
{
    for (const kvb_scenario *const *s = kvb_scenarios; *s; s++)
        if (!strcmp((*s)->name, name))
            return *s;
    return NULL;
}

bool kvb_scenario_fits(const kvb_scenario *scenario, const kvb_cache_type *cache)
{
    return (!scenario->needs_seq || cache->seq) && (!scenario->needs_tree || cache->tree);
}

void kvb_live_trace_model(const kvb_weights *weights, kvb_trace_model *model)
{
    const kvb_model_config *c = &weights->config;
    *model = (kvb_trace_model){.layers = c->layers,
                               .heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .k_dim = c->head_dim,
                               .v_dim = c->head_dim,
                               .scale = 1.0 / sqrt(c->head_dim)};
}

void kvb_live_outcome_free(kvb_live_outcome *outcome)
{
    free(outcome->tokens);
    *outcome = (kvb_live_outcome){0};
}

int kvb_scene_check(kvb_scene *scene, int err)
{
    if (err)
        snprintf(scene->why, sizeof scene->why, "%s", scene->runner.why);
    return err;
}

int kvb_scene_runner(kvb_scene *scene, const kvb_weights *weights, kvb_runner *runner)
{
    const kvb_live_options *o = scene->options;
    kvb_runner_options options = {.weights = weights,
                                  .cache = o->cache,
                                  .k_pool = o->pool,
                                  .v_pool = o->pool,
                                  .kernel = o->kernel,
                                  .capacity = scene->scenario->capacity,
                                  .seq_capacity = scene->scenario->seq_capacity,
                                  .max_seqs = scene->scenario->max_seqs};
    int err = kvb_runner_open(runner, &options);
    if (err)
        snprintf(scene->why, sizeof scene->why, "%s", runner->why);
    return err;
}

int kvb_live_play(const kvb_scenario *scenario, const kvb_live_options *options, kvb_live_outcome *outcome, char *why,
                  size_t why_bytes)
{
    *outcome = (kvb_live_outcome){0};
    if (!kvb_scenario_fits(scenario, options->cache)) {
        snprintf(why, why_bytes, "%s needs the %s face, which %s lacks", scenario->name,
                 scenario->needs_tree ? "tree" : "seq", options->cache->name);
        return -ENOTSUP;
    }
    if (options->weights->config.vocab < KVB_LIVE_MIN_VOCAB) {
        snprintf(why, why_bytes, "%s needs a vocabulary of at least %u, the model has %u", scenario->name,
                 KVB_LIVE_MIN_VOCAB, options->weights->config.vocab);
        return -EINVAL;
    }
    kvb_scene scene = {.scenario = scenario, .options = options, .outcome = outcome};
    int err = kvb_scene_runner(&scene, options->weights, &scene.runner);
    if (!err) {
        scene.runner.op.recorder = options->recorder;
        err = scenario->play(&scene);
    }
    if (err)
        snprintf(why, why_bytes, "%s: %s", scenario->name, scene.why);
    kvb_runner_close(&scene.runner);
    return err;
}

int32_t kvb_scene_prompt(const kvb_scene *scene, uint32_t prompt, uint32_t i)
{
    return (int32_t)(kvb_live_random(scene->options->seed, PROMPTS + prompt, i) %
                     scene->options->weights->config.vocab);
}

int kvb_scene_say(kvb_scene *scene, int32_t token)
{
    kvb_live_outcome *o = scene->outcome;
    if (o->n == o->max) {
        size_t max = o->max ? 2 * o->max : 256;
        int32_t *tokens = realloc(o->tokens, max * sizeof *tokens);
        if (!tokens) {
            snprintf(scene->why, sizeof scene->why, "no memory for generated tokens");
            return -ENOMEM;
        }
        o->tokens = tokens;
        o->max = max;
    }
    o->tokens[o->n++] = token;
    return 0;
}

int kvb_scene_prefill(kvb_scene *scene, uint32_t seq, uint32_t prompt, uint32_t from, uint32_t n)
{
    uint32_t seqs[MAX_PREFILL];
    int32_t tok[MAX_PREFILL];
    assert(n <= MAX_PREFILL);
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = seq;
        tok[i] = kvb_scene_prompt(scene, prompt, from + i);
    }
    return kvb_scene_check(scene, kvb_runner_step(&scene->runner, KVB_EVENT_PREFILL, seqs, tok, n));
}

int kvb_scene_choose(kvb_scene *scene, kvb_scene_seq *seq, uint32_t i)
{
    assert(seq->length < KVB_SCENE_POSITIONS);
    seq->next = kvb_runner_best(&scene->runner, i, 0);
    seq->second[seq->length] = kvb_runner_best(&scene->runner, i, 1);
    return kvb_scene_say(scene, seq->next);
}

int kvb_scene_decode(kvb_scene *scene, kvb_scene_seq *const *seqs, uint32_t n, uint32_t steps)
{
    uint32_t ids[KVB_MAX_SEQS];
    int32_t tok[KVB_MAX_SEQS];
    assert(n <= KVB_MAX_SEQS);
    for (uint32_t step = 0; step < steps; step++) {
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = seqs[i]->id;
            tok[i] = seqs[i]->next;
        }
        int err = kvb_scene_check(scene, kvb_runner_step(&scene->runner, KVB_EVENT_STEP, ids, tok, n));
        for (uint32_t i = 0; !err && i < n; i++) {
            seqs[i]->length++;
            err = kvb_scene_choose(scene, seqs[i], i);
        }
        if (err)
            return err;
    }
    return 0;
}
