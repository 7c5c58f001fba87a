/* SPDX-License-Identifier: Apache-2.0 */
/* The list of scenarios, and how one is played. */
#include "workloads/live/scenario.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/rng.h"
#include "workloads/array.h"
#include "workloads/files.h"

#define MAX_PREFILL 128u
#define PROMPTS     0x70726f6d70740000u /* stream of the prompts' random numbers: "prompt" */

const kvb_scenario *const kvb_scenarios[] = {
    &kvb_scenario_plain_decode,  &kvb_scenario_batched_multi_seq,    &kvb_scenario_agent_fork,
    &kvb_scenario_eagle_tree,    &kvb_scenario_parallel_sample,      &kvb_scenario_sliding_window,
    &kvb_scenario_sink_window,   &kvb_scenario_mla_decode,           &kvb_scenario_gpt_oss_like,
    &kvb_scenario_gemma_like,    &kvb_scenario_chunked_local,        &kvb_scenario_beam_search,
    &kvb_scenario_context_shift, &kvb_scenario_evict_rollback,       &kvb_scenario_prefix_reuse,
    &kvb_scenario_paged_sharing, &kvb_scenario_continuous_admission, &kvb_scenario_spec_batch,
    &kvb_scenario_save_restore,  &kvb_scenario_preempt_resume,       &kvb_scenario_shared_prompt,
    &kvb_scenario_self_extend,   &kvb_scenario_hybrid_decode,        &kvb_scenario_hybrid_batch,
    &kvb_scenario_spec_hybrid,   &kvb_scenario_state_fork,           NULL,
};

const kvb_scenario *kvb_scenario_find(const char *name)
{
    for (const kvb_scenario *const *s = kvb_scenarios; *s; s++)
        if (!strcmp((*s)->name, name))
            return *s;
    return NULL;
}

void kvb_scenario_config(const kvb_scenario *scenario, kvb_model_config *config)
{
    *config = kvb_model_config_default;
    if (scenario->layers)
        config->layers = scenario->layers;
    if (scenario->geometry)
        scenario->geometry(config);
}

/* Do two layers of the same weights, whose rows have one shape, belong in one group? */
static bool alike(const kvb_group *a, const kvb_group *b)
{
    return a->rope.dims == b->rope.dims && a->window == b->window && a->sinks == b->sinks && a->chunk == b->chunk &&
           a->sink_logits == b->sink_logits && a->kind == b->kind;
}

void kvb_live_model(const kvb_scenario *scenario, const kvb_weights *weights, kvb_model *model)
{
    *model = (kvb_model){.n_layers = weights->config.layers};
    for (uint32_t layer = 0; layer < model->n_layers; layer++) {
        kvb_group g = kvb_model_config_group(&weights->config);
        if (scenario && (!scenario->full_every || (layer + 1) % scenario->full_every)) {
            g.window = scenario->limits.window;
            g.sinks = scenario->limits.sinks;
            g.chunk = scenario->limits.chunk;
        }
        if (scenario && scenario->needs & KVB_CACHE_SHIFT)
            g.rope = kvb_model_config_rope(&weights->config, layer);
        g.sink_logits = weights->layers ? weights->layers[layer].sinks : NULL;
        if (kvb_model_config_scans(&weights->config, layer))
            g = (kvb_group){.kind = KVB_GROUP_SCAN, .scan = weights->config.scan};
        uint8_t at = 0;
        while (at < model->n_groups && !alike(&model->groups[at], &g))
            at++;
        model->groups[at] = g;
        model->group_of[layer] = at;
        model->n_groups += at == model->n_groups;
    }
}

/* Does the cache lack something that the scenario needs? why: what. */
static bool lacks(const kvb_scenario *scenario, const kvb_cache_type *cache, char *why, size_t why_bytes)
{
    kvb_model_config config;
    kvb_model model;
    char text[160];
    kvb_scenario_config(scenario, &config);
    kvb_live_model(scenario, &(kvb_weights){.config = config}, &model);
    const char *lack = kvb_cache_lacks(cache, scenario->needs);
    if (lack)
        snprintf(why, why_bytes, "%s needs %s, which cache %s cannot do", scenario->name, lack, cache->name);
    else if (cache->serves && !cache->serves(&model, text, sizeof text))
        snprintf(why, why_bytes, "%s: %s", scenario->name, text);
    else
        return false;
    return true;
}

bool kvb_scenario_fits(const kvb_scenario *scenario, const kvb_cache_type *cache)
{
    char why[256];
    return !lacks(scenario, cache, why, sizeof why);
}

void kvb_live_outcome_free(kvb_live_outcome *outcome)
{
    free(outcome->tokens);
    *outcome = (kvb_live_outcome){0};
}

void kvb_scene_fail(kvb_scene *scene, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    scene->error = error;
    vsnprintf(scene->why, sizeof scene->why, format, args);
    va_end(args);
}

void kvb_scene_take(kvb_scene *scene, const kvb_runner *runner, int error)
{
    if (error)
        kvb_scene_fail(scene, error, "%s", runner->why);
}

void kvb_scene_runner(kvb_scene *scene, const kvb_weights *weights, kvb_runner *runner)
{
    const kvb_live_options *o = scene->options;
    kvb_runner_options options = {.weights = weights,
                                  .model = &scene->model,
                                  .cache = o->cache,
                                  .k_pool = o->pool,
                                  .v_pool = o->pool,
                                  .kernel = o->kernel,
                                  .scan = o->scan,
                                  .capacity = scene->scenario->capacity,
                                  .seq_capacity = scene->scenario->seq_capacity,
                                  .max_seqs = scene->scenario->max_seqs,
                                  .step = MAX_PREFILL,
                                  .rollback = scene->scenario->rollback};
    *runner = (kvb_runner){0};
    KVB_SCENE_TRY(scene, runner, kvb_runner_open(runner, &options));
}

int kvb_scenario_weights(const kvb_scenario *scenario, uint64_t seed, kvb_weights **weights, char *why,
                         size_t why_bytes)
{
    kvb_model_config config;
    kvb_scenario_config(scenario, &config);
    int err = kvb_weights_open(&config, weights, why, why_bytes);
    if (!err)
        kvb_weights_seed(*weights, seed);
    return err;
}

int kvb_live_play(const kvb_scenario *scenario, const kvb_live_options *options, kvb_live_outcome *outcome, char *why,
                  size_t why_bytes)
{
    *outcome = (kvb_live_outcome){0};
    if (lacks(scenario, options->cache, why, why_bytes))
        return -ENOTSUP;
    kvb_weights *seeded = NULL;
    kvb_scene scene = {.scenario = scenario, .options = options, .outcome = outcome, .weights = options->weights};
    int err = options->weights ? 0 : kvb_scenario_weights(scenario, options->seed, &seeded, why, why_bytes);
    if (err)
        return err;
    if (seeded)
        scene.weights = seeded;
    if (scene.weights->config.vocab < KVB_LIVE_MIN_VOCAB)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s needs a vocabulary of at least %u, the model has %u",
                           scenario->name, KVB_LIVE_MIN_VOCAB, scene.weights->config.vocab);
    kvb_live_model(scenario, scene.weights, &scene.model);
    kvb_scene_runner(&scene, scene.weights, &scene.runner);
    scene.runner.op.recorder = options->recorder;
    if (!scene.error)
        scenario->play(&scene);
    if (scene.error)
        snprintf(why, why_bytes, "%s: %s", scenario->name, scene.why);
    kvb_runner_close(&scene.runner);
    kvb_weights_close(seeded);
    return scene.error;
}

int32_t kvb_scene_prompt(const kvb_scene *scene, uint32_t prompt, uint32_t i)
{
    return (int32_t)(kvb_live_random(scene->options->seed, PROMPTS + prompt, i) % scene->weights->config.vocab);
}

void kvb_scene_step(kvb_scene *scene, kvb_event_kind kind, const uint32_t *seq, const int32_t *tok, uint32_t n)
{
    KVB_SCENE_TRY(scene, &scene->runner, kvb_runner_step(&scene->runner, kind, seq, tok, n));
}

int32_t kvb_scene_best(const kvb_scene *scene, uint32_t i, uint32_t rank)
{
    return scene->error ? 0 : kvb_runner_best(&scene->runner, i, rank);
}

void kvb_scene_say(kvb_scene *scene, int32_t token)
{
    kvb_live_outcome *o = scene->outcome;
    if (scene->error)
        return;
    if (kvb_array_reserve(&o->tokens, &o->max, o->n + 1, sizeof *o->tokens))
        kvb_scene_fail(scene, -ENOMEM, "no memory for generated tokens");
    else
        o->tokens[o->n++] = token;
}

void kvb_scene_feed(kvb_scene *scene, kvb_runner *runner, uint32_t seq, uint32_t prompt, uint32_t from, uint32_t n)
{
    uint32_t seqs[MAX_PREFILL];
    int32_t tok[MAX_PREFILL];
    assert(n <= MAX_PREFILL);
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = seq;
        tok[i] = kvb_scene_prompt(scene, prompt, from + i);
    }
    KVB_SCENE_TRY(scene, runner, kvb_runner_step(runner, KVB_EVENT_PREFILL, seqs, tok, n));
}

void kvb_scene_prefill(kvb_scene *scene, uint32_t seq, uint32_t prompt, uint32_t from, uint32_t n)
{
    kvb_scene_feed(scene, &scene->runner, seq, prompt, from, n);
}

void kvb_scene_choose(kvb_scene *scene, kvb_scene_seq *seq, uint32_t i)
{
    assert(scene->error || seq->length < KVB_SCENE_POSITIONS);
    if (scene->error)
        return;
    seq->second[seq->length] = kvb_scene_best(scene, i, 1);
    kvb_scene_choose_other(scene, seq, i, 0);
}

void kvb_scene_choose_other(kvb_scene *scene, kvb_scene_seq *seq, uint32_t i, uint32_t rank)
{
    seq->next = kvb_scene_best(scene, i, rank);
    kvb_scene_say(scene, seq->next);
}

void kvb_scene_choose_second(kvb_scene *scene, kvb_scene_seq *seq)
{
    if (scene->error)
        return;
    seq->next = seq->second[seq->length];
    kvb_scene_say(scene, seq->next);
}

void kvb_scene_begin(kvb_scene *scene, kvb_scene_seq *seq, uint32_t id, uint32_t prompt, uint32_t n)
{
    *seq = (kvb_scene_seq){.id = id, .length = n};
    kvb_scene_prefill(scene, id, prompt, 0, n);
    kvb_scene_choose(scene, seq, n - 1);
}

void kvb_scene_decode(kvb_scene *scene, kvb_scene_seq *const *seqs, uint32_t n, uint32_t steps)
{
    uint32_t ids[KVB_SCENE_SEQS];
    int32_t tok[KVB_SCENE_SEQS];
    assert(n <= KVB_SCENE_SEQS);
    for (uint32_t step = 0; step < steps && !scene->error; step++) {
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = seqs[i]->id;
            tok[i] = seqs[i]->next;
        }
        kvb_scene_step(scene, KVB_EVENT_STEP, ids, tok, n);
        for (uint32_t i = 0; i < n; i++) {
            seqs[i]->length++;
            kvb_scene_choose(scene, seqs[i], i);
        }
    }
}

void kvb_scene_fork(kvb_scene *scene, const kvb_scene_seq *src, kvb_scene_seq *dst, uint32_t id, uint32_t keep)
{
    const uint32_t p1 = keep == src->length ? KVB_POS_END : keep;
    *dst = *src;
    dst->id = id;
    dst->length = keep;
    KVB_SCENE_DO(scene, SEQ_CP, .src = src->id, .dst = id, .p1 = p1);
}

void kvb_scene_leave(kvb_scene *scene, uint32_t id)
{
    KVB_SCENE_DO(scene, SEQ_RM, .src = id, .p1 = KVB_POS_END);
}

void kvb_scene_shift(kvb_scene *scene, kvb_scene_seq *seq, uint32_t p0, int32_t delta)
{
    seq->length += (uint32_t)delta;
    KVB_SCENE_DO(scene, SEQ_ADD, .src = seq->id, .p0 = p0, .p1 = KVB_POS_END, .delta = delta);
}

void kvb_scene_backtrack(kvb_scene *scene, kvb_scene_seq *seq, uint32_t n)
{
    seq->length -= n;
    KVB_SCENE_DO(scene, SEQ_RM, .src = seq->id, .p0 = seq->length, .p1 = KVB_POS_END);
    kvb_scene_choose_second(scene, seq);
}

void kvb_play_branches(kvb_scene *scene, uint32_t prompt, uint32_t steps, kvb_scene_seq *seqs, uint32_t n)
{
    kvb_scene_begin(scene, &seqs[0], 0, 0, prompt);
    kvb_scene_decode(scene, &seqs, 1, steps);
    for (uint32_t b = 1; b <= n; b++) {
        kvb_scene_fork(scene, &seqs[0], &seqs[b], b, seqs[0].length);
        kvb_scene_choose_other(scene, &seqs[b], 0, b - 1);
    }
}
